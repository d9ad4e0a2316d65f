//! What is typed into a terminal. Typists take turns; each waits a bounded time for the program to read.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::keys;
use super::registry::Live;
use super::screen::TypingModes;
use crate::error::{Error, Result};

/// How long typing waits for the program to make room.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longest line that the kernel gathers for a program that reads whole lines; of a longer one it drops the rest without a
/// word (termios(3): 4,096 with the line feed).
const LONGEST_LINE: usize = 4_095;

/// What ends a line, or empties it: line feed, carriage return, and Ctrl-C, Ctrl-D, Ctrl-U, Ctrl-Z and Ctrl-\\. A program that
/// has other keys for these has a shorter line at most.
const LINE_ENDS: [u8; 7] = [b'\n', b'\r', 0x03, 0x04, 0x15, 0x1a, 0x1c];

const PASTE_START: &[u8] = b"\x1b[200~";
const PASTE_END: &[u8] = b"\x1b[201~";

/// What to type, in this order.
#[derive(Debug, Clone, Default)]
pub struct Typed {
    /// Text, as it is.
    pub text: String,
    /// Text to paste: marked as pasted where the program asked for it, its line feeds as the key Enter elsewhere.
    pub paste: String,
    /// Names of keys.
    pub keys: Vec<String>,
}

/// The turns of the typists.
#[derive(Debug, Default)]
pub(super) struct Input {
    /// Bytes typed since the last end of a line. Held across awaits on purpose: it is the queue.
    begun: Mutex<usize>,
}

impl Typed {
    /// The bytes that a terminal sends for it.
    fn bytes(&self, modes: TypingModes) -> Result<Vec<u8>> {
        let mut bytes = self.text.clone().into_bytes();
        bytes.extend(pasted(&self.paste, modes.bracketed_paste));
        for key in &self.keys {
            bytes.extend(keys::encode(key, modes)?);
        }
        Ok(bytes)
    }

    fn is_empty(&self) -> bool {
        self.text.is_empty() && self.paste.is_empty() && self.keys.is_empty()
    }
}

fn pasted(text: &str, bracketed: bool) -> Vec<u8> {
    if text.is_empty() {
        return Vec::new();
    }
    if !bracketed {
        return text.replace("\r\n", "\r").replace('\n', "\r").into_bytes();
    }
    // Text that brings its own end mark would have its rest taken for typed.
    let inside = text.replace(['\x1b', '\u{9b}'], "").into_bytes();
    [PASTE_START, &inside, PASTE_END].concat()
}

/// Types as much as the program takes in time; returns the bytes taken and the bytes there are.
pub(super) async fn type_in(live: &Live, typed: &Typed) -> Result<(usize, usize)> {
    if typed.is_empty() {
        return Ok((0, 0));
    }
    let mut begun = live.input.begun.lock().await;
    let bytes = typed.bytes(live.screen().modes())?;
    let deadline = Instant::now() + PATIENCE;
    let mut gone = live.progress.clone();
    let mut done = 0;
    while done < bytes.len() {
        let piece = next_piece(live, &bytes[done..], *begun).map_err(|error| at(error, done, bytes.len()))?;
        let ready = tokio::select! {
            ready = tokio::time::timeout_at(deadline, live.pty.writable()) => ready,
            _ = gone.wait_for(|progress| progress.end.is_some()) => break,
        };
        let Ok(ready) = ready else { break };
        match ready.and_then(|()| live.pty.write(piece)) {
            Ok(written) => {
                let typed = &piece[..written];
                let line_end = typed.iter().rposition(|byte| LINE_ENDS.contains(byte));
                *begun = line_end.map_or(*begun + written, |end| written - end - 1);
                done += written;
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_closed) => break,
        }
    }
    Ok((done, bytes.len()))
}

/// What can be typed at once: a line, where the kernel gathers lines, all of it otherwise.
fn next_piece<'a>(live: &Live, bytes: &'a [u8], begun: usize) -> Result<&'a [u8]> {
    if !live.pty.gathers_lines() {
        return Ok(bytes);
    }
    let end = bytes.iter().position(|byte| LINE_ENDS.contains(byte));
    let line = end.map_or(bytes, |end| &bytes[..=end]);
    let length = begun + line.len() - usize::from(end.is_some());
    if length > LONGEST_LINE {
        return Err(Error::invalid(
            "text",
            format!(
                "holds a line of {length} bytes; the program reads whole lines, of which a terminal keeps {LONGEST_LINE} \
                 bytes: write the text to a file instead, or run the program by run_command with stdin"
            ),
        ));
    }
    Ok(line)
}

/// Says how much of the input had been typed before the error.
fn at(error: Error, done: usize, of: usize) -> Error {
    match error {
        Error::InvalidArgument { field, problem } if done > 0 => {
            Error::invalid(field, format!("{problem} (the first {done} of {of} bytes were typed)"))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pasted_text_is_marked_where_the_program_asked_for_it() {
        assert_eq!(pasted("a\nb\r\nc", false), b"a\rb\rc");
        assert_eq!(pasted("a\nb", true), b"\x1b[200~a\nb\x1b[201~");
        assert_eq!(pasted("", true), b"");
    }

    #[test]
    fn pasted_text_can_not_end_the_paste() {
        assert_eq!(pasted("a\x1b[201~rm -rf\n", true), b"\x1b[200~a[201~rm -rf\n\x1b[201~");
    }
}
