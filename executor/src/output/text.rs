//! Owns the way from a program's bytes to text that can be read: a stream, the same however the bytes are cut into
//! chunks. Knows nothing of logs and offsets.
//!
//! - Escape sequences go. One that is broken, or has no end within 8 KiB, is shown, its ESC as `\x1b`.
//! - CR LF is a line feed. A CR alone, a backspace and the sequences that erase do what they do on a terminal: what is
//!   printed next overwrites the line, character by character, and blanks left over at its end go.
//! - Bytes that are no UTF-8, NUL and other control characters are shown as `\xNN`; tab and line feed stay. BEL and the
//!   two shifts of the character set say nothing and go.

use std::mem;

use super::escape::{self, Effect, Sequence};

/// Cleans a stream of bytes.
#[derive(Debug)]
pub struct Cleaner {
    /// Lines that are done, and what stands left of the cursor on the current one.
    text: String,
    /// Where the current line starts in `text`.
    line: usize,
    /// What stands right of the cursor, the nearest character last. With `text` it makes a gap buffer, so that redrawing
    /// a line costs no more than printing it.
    right: Vec<char>,
    right_bytes: usize,
    /// The start of a character, of an escape sequence or of CR LF, whose rest has not come yet.
    held: Vec<u8>,
    limit: usize,
    /// The current line began before this text, so that it can't be overwritten.
    carried: bool,
    /// The cursor was sent back on a line that can't be overwritten: what is printed next starts a new line.
    redraw: bool,
    /// Redrawn lines are kept, each as a line of its own.
    keep_redrawn: bool,
}

impl Cleaner {
    /// A cleaner at the start of a line that makes at most `limit` bytes of text. A limit of 8 lets every character pass.
    pub fn new(limit: usize) -> Self {
        Self {
            text: String::new(),
            line: 0,
            right: Vec::new(),
            right_bytes: 0,
            held: Vec::new(),
            limit,
            carried: false,
            redraw: false,
            keep_redrawn: false,
        }
    }

    /// A cleaner that goes on after the bytes `before`, which another one has shown. They matter from the last line feed
    /// on; `from_line_start` says that without one they begin a line. When the line they end in is redrawn, the text
    /// starts a new line for it.
    pub fn resume(before: &[u8], from_line_start: bool, limit: usize) -> Self {
        let newline = memchr::memrchr(b'\n', before);
        let mut shown = Self::new(usize::MAX);
        shown.feed(&before[newline.map_or(0, |at| at + 1)..]);
        shown.finish();
        let redraw = !shown.right.is_empty();
        let unknown = newline.is_none() && !from_line_start;
        Self { carried: redraw || unknown || !shown.text.is_empty(), redraw, ..Self::new(limit) }
    }

    /// A cleaner for searching: redrawn lines stay, each as a line of its own, so that all that was ever shown is found.
    pub fn keeping_redrawn() -> Self {
        Self { keep_redrawn: true, ..Self::new(usize::MAX) }
    }

    /// Takes bytes. Returns how many were taken: fewer than given only when the text has reached its limit.
    pub fn feed(&mut self, bytes: &[u8]) -> usize {
        let mut used = 0;
        if !self.held.is_empty() {
            let waiting = self.held.len();
            let mut joined = mem::take(&mut self.held);
            joined.extend_from_slice(&bytes[..bytes.len().min(escape::LIMIT)]);
            let (done, full) = self.clean(&joined, false);
            if done < waiting {
                // Either full, or all of `bytes` was joined: a sequence longer than the limit is not waited for.
                joined.truncate(if full { waiting } else { joined.len() });
                joined.drain(..done);
                self.held = joined;
                return if full { 0 } else { bytes.len() };
            }
            used = done - waiting;
            if full {
                return used;
            }
        }
        let (done, full) = self.clean(&bytes[used..], false);
        used += done;
        if full {
            return used;
        }
        self.held.extend_from_slice(&bytes[used..]);
        bytes.len()
    }

    /// Says that no more bytes come: what was held back is shown. Returns false when not all of it fits the limit.
    pub fn finish(&mut self) -> bool {
        let mut held = mem::take(&mut self.held);
        let (done, full) = self.clean(&held, true);
        held.drain(..done);
        self.held = held;
        !full
    }

    /// Bytes taken that don't show yet, because their meaning depends on what follows.
    pub fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// Length of the text so far, in bytes.
    pub fn text_bytes(&self) -> usize {
        self.text.len() + self.right_bytes
    }

    /// Whether a line has just ended and nothing has come since.
    pub fn is_at_line_start(&self) -> bool {
        self.text_bytes() == self.line && self.line > 0 && self.held.is_empty()
    }

    /// The text.
    pub fn into_text(mut self) -> String {
        self.settle();
        self.text
    }

    /// The text left of the cursor: all of it, unless a line is being redrawn.
    pub fn printed(&self) -> &str {
        &self.text
    }

    /// Forgets all but the last `keep` bytes of finished text, at least. Returns whether anything was forgotten.
    pub fn forget(&mut self, keep: usize) -> bool {
        let cut = self.text.floor_char_boundary(self.text.len().saturating_sub(keep));
        self.text.drain(..cut);
        self.line = self.line.saturating_sub(cut);
        cut > 0
    }

    /// Cleans bytes. Returns how many are done, and whether the limit stopped it. Otherwise what is left is the start of
    /// something, unless `over`.
    fn clean(&mut self, bytes: &[u8], over: bool) -> (usize, bool) {
        let mut used = 0;
        while let Some(&byte) = bytes.get(used) {
            let rest = &bytes[used..];
            let plain = plain_prefix(rest);
            if plain > 0 {
                let whole = over || plain < rest.len();
                let done = self.put_plain(&rest[..plain], whole);
                used += done;
                if done < plain {
                    let left = &rest[done..plain];
                    return (used, whole || !is_character_start(left));
                }
                continue;
            }
            let step = match byte {
                b'\r' => self.carriage_return(rest, over),
                0x08 => self.backspace(),
                0x07 | 0x0e | 0x0f => Step::Done(1),
                0x1b => self.escape(rest, over),
                0xc2 => self.latin(rest, over),
                _ => self.show(byte),
            };
            match step {
                Step::Done(len) => used += len,
                Step::Wait => return (used, false),
                Step::Full => return (used, true),
            }
        }
        (used, false)
    }

    /// Puts bytes without control characters. `whole` says that a character cut off at their end will not be completed.
    /// Returns how many are done.
    fn put_plain(&mut self, bytes: &[u8], whole: bool) -> usize {
        let mut used = 0;
        for chunk in bytes.utf8_chunks() {
            let put = self.put(chunk.valid());
            used += put;
            if put < chunk.valid().len() {
                return used;
            }
            let last = used + chunk.invalid().len() == bytes.len();
            if last && !whole && is_character_start(chunk.invalid()) {
                return used;
            }
            for &byte in chunk.invalid() {
                let Step::Done(_) = self.show(byte) else {
                    return used;
                };
                used += 1;
            }
        }
        used
    }

    /// Puts text. Returns how many of its bytes fit.
    fn put(&mut self, text: &str) -> usize {
        let mut used = 0;
        while let Some(character) = text[used..].chars().next() {
            if self.right.is_empty() && !self.redraw {
                let rest = &text[used..];
                let rest = &rest[..rest.floor_char_boundary(self.room())];
                if let Some(at) = memchr::memrchr(b'\n', rest.as_bytes()) {
                    self.line = self.text.len() + at + 1;
                    self.carried = false;
                }
                self.text.push_str(rest);
                return used + rest.len();
            }
            if !self.put_over(character) {
                break;
            }
            used += character.len_utf8();
        }
        used
    }

    /// Puts a character where a line is being redrawn. Returns whether it fits.
    fn put_over(&mut self, character: char) -> bool {
        let len = character.len_utf8();
        if character == '\n' {
            return self.line_feed();
        }
        if self.redraw {
            if len >= self.room() || !self.line_feed() {
                return false;
            }
        } else {
            let under = self.right.last().map_or(0, |under| under.len_utf8());
            if len > self.room() + under {
                return false;
            }
            self.right.pop();
            self.right_bytes -= under;
        }
        self.text.push(character);
        true
    }

    fn line_feed(&mut self) -> bool {
        if self.room() == 0 {
            return false;
        }
        self.settle();
        self.text.push('\n');
        self.line = self.text.len();
        self.carried = false;
        self.redraw = false;
        true
    }

    /// Moves the cursor to the end of the line.
    fn settle(&mut self) {
        let blanks = self.right.iter().take_while(|under| **under == ' ').count();
        self.text.extend(self.right.drain(..).skip(blanks).rev());
        self.right_bytes = 0;
    }

    fn carriage_return(&mut self, bytes: &[u8], over: bool) -> Step {
        match bytes.get(1) {
            None if !over => return Step::Wait,
            Some(b'\n') if self.line_feed() => return Step::Done(2),
            Some(b'\n') => return Step::Full,
            _ => self.return_to_start(),
        }
        Step::Done(1)
    }

    fn return_to_start(&mut self) {
        if self.carried || (self.keep_redrawn && self.text_bytes() > self.line) {
            self.settle();
            self.redraw = true;
        } else {
            let left = &self.text[self.line..];
            self.right.extend(left.chars().rev());
            self.right_bytes += left.len();
            self.text.truncate(self.line);
        }
    }

    fn backspace(&mut self) -> Step {
        if self.text.len() > self.line
            && let Some(character) = self.text.pop()
        {
            self.right.push(character);
            self.right_bytes += character.len_utf8();
        }
        Step::Done(1)
    }

    fn escape(&mut self, bytes: &[u8], over: bool) -> Step {
        match escape::parse(bytes) {
            Sequence::Complete { len, effect } => {
                self.apply(effect);
                Step::Done(len)
            }
            Sequence::Incomplete if !over => Step::Wait,
            Sequence::Incomplete | Sequence::Broken => self.show(bytes[0]),
        }
    }

    fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::Nothing => {}
            Effect::Return => self.return_to_start(),
            Effect::EraseRight => self.erase_right(),
            Effect::EraseLine => {
                self.return_to_start();
                self.erase_right();
            }
        }
    }

    fn erase_right(&mut self) {
        self.right.clear();
        self.right_bytes = 0;
    }

    /// C2 starts U+0080 to U+00BF, of which the first 32 are control characters.
    fn latin(&mut self, bytes: &[u8], over: bool) -> Step {
        match bytes.get(1) {
            None if !over => Step::Wait,
            Some(&second @ 0xa0..=0xbf) if self.put(char::from(second).encode_utf8(&mut [0; 4])) > 0 => {
                Step::Done(2)
            }
            Some(0xa0..=0xbf) => Step::Full,
            _ => self.show(bytes[0]),
        }
    }

    /// Shows a byte as `\xNN`.
    fn show(&mut self, byte: u8) -> Step {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digit = |value: u8| char::from(DIGITS[usize::from(value & 15)]);
        if self.room() < 4 + usize::from(self.redraw) {
            return Step::Full;
        }
        for character in ['\\', 'x', digit(byte >> 4), digit(byte)] {
            self.put(character.encode_utf8(&mut [0; 4]));
        }
        Step::Done(1)
    }

    fn room(&self) -> usize {
        self.limit.saturating_sub(self.text_bytes())
    }
}

/// What became of a control character.
enum Step {
    /// So many bytes are done.
    Done(usize),
    /// It depends on bytes that have not come yet.
    Wait,
    /// There is no room for it.
    Full,
}

/// Length of the longest start of `bytes` without anything that has to be looked at one by one: control characters other
/// than tab and line feed, and C2, which starts some.
fn plain_prefix(bytes: &[u8]) -> usize {
    let special =
        |byte: u8| (byte < 0x20) & (byte != b'\t') & (byte != b'\n') | (byte == 0x7f) | (byte == 0xc2);
    // Blocks without a branch inside are compared many bytes at a time.
    let (blocks, _) = bytes.as_chunks::<64>();
    let clear =
        blocks.iter().take_while(|block| !block.iter().fold(false, |any, byte| any | special(*byte))).count();
    let start = clear * 64;
    let rest = &bytes[start..];
    start + rest.iter().position(|byte| special(*byte)).unwrap_or(rest.len())
}

/// Whether more bytes can make a character of these.
fn is_character_start(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
}

#[cfg(test)]
pub(super) mod tests;
