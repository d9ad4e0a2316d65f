//! The lines of a patch, one after the other, and what kind of line the next is.

use memchr::memchr;

/// A place in a patch.
#[derive(Debug, Clone)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    number: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { rest: text, number: 1 }
    }

    /// Number of the next line, from 1 on.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// The next line, without LF. Nothing at the end.
    pub(super) fn peek(&self) -> Option<&'a [u8]> {
        self.clone().take()
    }

    /// As [`Reader::peek`], going on to the line after it.
    pub(super) fn take(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let end = memchr(b'\n', self.rest).unwrap_or(self.rest.len());
        let line = &self.rest[..end];
        self.rest = self.rest.get(end + 1..).unwrap_or_default();
        self.number += 1;
        Some(line)
    }

    /// What follows `prefix` in the next line, which is a header: without the CR of its line end.
    pub(super) fn after(&self, prefix: &str) -> Option<&'a [u8]> {
        let line = self.peek()?;
        line.strip_suffix(b"\r").unwrap_or(line).strip_prefix(prefix.as_bytes())
    }

    /// Whether the next two lines name a file.
    pub(super) fn at_file_header(&self) -> bool {
        let mut after = self.clone();
        let first = after.take().is_some_and(|line| line.starts_with(b"--- "));
        first && after.peek().is_some_and(|line| line.starts_with(b"+++ "))
    }

    /// Whether the next two lines are the signature of a mail that git made: two dashes and its version.
    pub(super) fn at_signature(&self) -> bool {
        let mut after = self.clone();
        let dashes = after.take().is_some_and(|line| matches!(line.trim_ascii_end(), b"--"));
        dashes && after.peek().is_some_and(|line| line.first().is_some_and(u8::is_ascii_digit))
    }

    /// Whether a hunk ends before the next line, whatever its numbers say.
    pub(super) fn at_boundary(&self) -> bool {
        const STARTS: [&[u8]; 6] = [b"@@", b"diff ", b"Index: ", b"```", b"Only in ", b"Binary files "];
        let starts = |line: &[u8]| STARTS.iter().any(|start| line.starts_with(start));
        self.peek().is_none_or(starts) || self.at_file_header() || self.at_signature()
    }
}
