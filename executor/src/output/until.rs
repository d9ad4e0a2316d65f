//! Owns waiting for a text: whether a regular expression has matched the cleaned output since a cursor. Knows nothing of
//! time and of who waits.

use regex::{Regex, RegexBuilder};

use super::log::Reader;
use super::text::Cleaner;
use crate::error::{Error, Result};

/// Bytes read at a time.
const CHUNK: usize = 256 << 10;
/// Bytes read at most in one poll.
const POLL: usize = 4 << 20;
/// Bytes of text before new output that a match may begin in.
const BACK: usize = 64 << 10;
/// Limit of the compiled expression and of the engine's cache, in bytes each.
const COMPILED: usize = 1 << 20;

/// What a poll found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The expression has matched; it stays so.
    Yes,
    /// It matches nothing of what there is so far.
    NotYet,
    /// Not all that there is has been looked at: poll again, there is nothing to wait for.
    More,
}

/// A regular expression whose `^` and `$` match at line borders too. Fails when it is none, or one too large.
pub fn compile(pattern: &str) -> Result<Regex> {
    RegexBuilder::new(pattern)
        .multi_line(true)
        .size_limit(COMPILED)
        .dfa_size_limit(COMPILED)
        .build()
        .map_err(|error| Error::invalid("until", format!("expected a regular expression: {error}")))
}

/// A regular expression looking for its first match in a growing log.
///
/// `^` and `$` match at line borders too, and `$` at the end of what there is so far, so that a prompt is found. Lines that
/// were redrawn since count as lines of their own. A match may reach back 64 KiB before the output that completes it.
#[derive(Debug)]
pub struct Until {
    regex: Regex,
    cleaner: Cleaner,
    position: u64,
    forgotten: bool,
    matched: bool,
}

impl Until {
    /// Looks for `pattern` from `cursor` on. Fails when it is no regular expression, or one too large.
    pub fn new(pattern: &str, cursor: u64) -> Result<Self> {
        let regex = compile(pattern)?;
        let cleaner = Cleaner::keeping_redrawn();
        Ok(Self { regex, cleaner, position: cursor, forgotten: false, matched: false })
    }

    /// Looks at what has come since the last poll: the log has `total` bytes, and no more will come if `over`.
    pub fn poll(&mut self, reader: &mut Reader, total: u64, over: bool) -> Result<Found> {
        let mut budget = POLL;
        while !self.matched && self.position < total {
            if budget == 0 {
                return Ok(Found::More);
            }
            let ahead = usize::try_from(total - self.position).unwrap_or(CHUNK).min(CHUNK).min(budget);
            let mut chunk = reader.read_at(self.position, ahead)?;
            if chunk.start > self.position || chunk.bytes.is_empty() {
                // Nothing reaches across a gap.
                self.cleaner.finish();
                self.cleaner.feed(b"\n");
            }
            let left = usize::try_from(total.saturating_sub(chunk.start)).unwrap_or(CHUNK);
            chunk.bytes.truncate(left);
            budget -= chunk.bytes.len();
            self.cleaner.feed(&chunk.bytes);
            self.position =
                if chunk.bytes.is_empty() { total } else { chunk.start + chunk.bytes.len() as u64 };
            self.search();
        }
        if over && !self.matched && self.cleaner.held_bytes() > 0 {
            self.cleaner.finish();
            self.search();
        }
        Ok(if self.matched { Found::Yes } else { Found::NotYet })
    }

    fn search(&mut self) {
        let text = self.cleaner.printed();
        // One character before the part that is searched tells whether a line or a word begins there.
        let start = if self.forgotten { text.chars().next().map_or(0, char::len_utf8) } else { 0 };
        self.matched = self.regex.is_match_at(text, start);
        self.forgotten |= self.cleaner.forget(BACK);
    }
}

#[cfg(test)]
mod tests;
