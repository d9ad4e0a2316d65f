//! Owns the cleaning of a contiguous part of a log, and which offset belongs to which place in its text.

use std::collections::VecDeque;

use super::{CHUNK, Piece, View};
use crate::error::Result;
use crate::output::binary::continuation_bytes;
use crate::output::text::Cleaner;

/// Bytes before a cursor that are looked at to find out what it continues.
const BEFORE: u64 = 4096;

/// Cleaned text of a contiguous part of a log.
#[derive(Debug)]
pub(super) struct Stretch {
    /// Offset of its first byte.
    pub(super) start: u64,
    /// Offset after the last byte that the cleaner took.
    fed: u64,
    cleaner: Cleaner,
    full: bool,
    /// Starts of lines. The first lies at least `keep` bytes before the end of the text, or is the start of it.
    marks: VecDeque<Mark>,
    keep: usize,
}

/// A place where text can be cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    /// Place in the text.
    pub(super) text: usize,
    /// Offset in the log.
    pub(super) offset: u64,
}

impl View<'_> {
    /// Cleans from `from`, or the first kept byte after it, to a gap, to the end of what is there, to `limit` bytes of
    /// text, or for `raw` bytes. Line starts in the last `keep` bytes of the text are remembered.
    pub(super) fn scan(&mut self, from: u64, raw: usize, limit: usize, keep: usize) -> Result<Stretch> {
        let mut stretch = Stretch::new(from, self.cleaner_at(from, limit)?, keep);
        let mut budget = raw;
        let closed = loop {
            if stretch.full || budget == 0 {
                break false;
            }
            if stretch.fed >= self.total {
                break self.over;
            }
            match self.read(stretch.fed, budget.min(CHUNK))? {
                Some((start, bytes)) if start == stretch.fed => {
                    budget -= bytes.len();
                    stretch.feed(&bytes);
                }
                _ if stretch.fed > stretch.start => break true,
                Some((start, bytes)) => {
                    // The rest of a character whose beginning is lost says nothing.
                    let broken = continuation_bytes(&bytes);
                    budget -= broken.min(budget);
                    stretch = Stretch::new(start + broken as u64, Cleaner::new(limit), keep);
                    budget -= (bytes.len() - broken).min(budget);
                    stretch.feed(&bytes[broken..]);
                }
                None => return Ok(Stretch::new(self.total, Cleaner::new(limit), keep)),
            }
        };
        if closed {
            stretch.full |= !stretch.cleaner.finish();
        }
        Ok(stretch)
    }

    /// A cleaner that goes on at `offset`, knowing what kind of line it is in.
    fn cleaner_at(&mut self, offset: u64, limit: usize) -> Result<Cleaner> {
        let asked = offset.saturating_sub(BEFORE);
        if asked == offset {
            return Ok(Cleaner::new(limit));
        }
        let mut before = Vec::new();
        let mut start = asked;
        while start + (before.len() as u64) < offset {
            let at = start + before.len() as u64;
            let most = usize::try_from(offset - at).unwrap_or(CHUNK);
            let Some((found, mut bytes)) = self.read(at, most)? else {
                break;
            };
            if found > at {
                before.clear();
                start = found;
            }
            bytes.truncate(usize::try_from(offset.saturating_sub(found)).unwrap_or(0));
            before.append(&mut bytes);
        }
        Ok(if before.is_empty() { Cleaner::new(limit) } else { Cleaner::resume(&before, start == 0, limit) })
    }
}

impl Stretch {
    fn new(start: u64, cleaner: Cleaner, keep: usize) -> Self {
        let marks = VecDeque::from([Mark { text: 0, offset: start }]);
        Self { start, fed: start, cleaner, full: false, marks, keep }
    }

    fn feed(&mut self, bytes: &[u8]) {
        if self.keep == 0 {
            return self.feed_part(bytes);
        }
        let mut rest = bytes;
        while !rest.is_empty() && !self.full {
            let line = memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
            self.feed_part(&rest[..line]);
            rest = &rest[line..];
            if self.cleaner.is_at_line_start() {
                self.mark();
            }
        }
    }

    fn feed_part(&mut self, bytes: &[u8]) {
        let taken = self.cleaner.feed(bytes);
        self.fed += taken as u64;
        self.full = taken < bytes.len();
    }

    fn mark(&mut self) {
        let text = self.cleaner.text_bytes();
        self.marks.push_back(Mark { text, offset: self.fed });
        while self.marks.get(1).is_some_and(|second| text - second.text >= self.keep) {
            self.marks.pop_front();
        }
    }

    /// Offset after the last byte that is shown, or that shows as nothing.
    pub(super) fn end(&self) -> u64 {
        self.fed - self.cleaner.held_bytes() as u64
    }

    /// Whether the limit ended it.
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    /// The whole of it.
    pub(super) fn into_piece(self) -> Piece {
        Piece { start: self.start, end: self.end(), text: self.cleaner.into_text(), raw: Vec::new() }
    }

    /// What ends at the last line start, if that is within the last `near` bytes of text; else the whole.
    pub(super) fn cut_end(self, near: usize) -> Piece {
        let line = self.marks.back().copied().filter(|line| line.text > 0);
        let mut piece = self.into_piece();
        if let Some(line) = line.filter(|line| piece.text.len() - line.text <= near) {
            piece.text.truncate(line.text);
            piece.end = line.offset;
        }
        piece
    }

    /// The whole of it, with the line starts that were remembered.
    pub(super) fn into_marked(mut self) -> (Piece, VecDeque<Mark>) {
        let marks = std::mem::take(&mut self.marks);
        (self.into_piece(), marks)
    }
}
