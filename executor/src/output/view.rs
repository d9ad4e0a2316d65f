//! Owns what a reader is shown of a log: pages, head and tail, or the bytes as they are, each within a limit. Knows
//! nothing of who asks, of waiting, and of how a cut is put into words.
//!
//! Offsets count raw bytes. A cursor given out never lies inside a character, an escape sequence or a CR LF; what is
//! unfinished at the end of a log that still grows is left for the next read.

use super::binary::{self, continuation_bytes};
use super::log::Reader;
use crate::error::{Error, Result};

mod scan;

use scan::Stretch;

/// Bytes read at a time.
const CHUNK: usize = 64 << 10;
/// Bytes read at most for one page, so that output which cleans to nothing doesn't hold up the caller.
const PAGE: usize = 8 << 20;
/// Bytes read at most for a head, and for a tail.
const WINDOW: usize = 1 << 20;
/// A cut is moved to the border of a line when one is this near, in bytes of text, and within an eighth of the limit.
const NEAR: usize = 200;
/// Pieces returned at most: a log full of gaps comes in several pages.
const PIECES: usize = 64;
/// The smallest limit that lets a page make progress and is worth a call.
const LEAST: usize = 64;

/// What was read.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// The parts, in order. Between two of them something is left out or no longer kept.
    pub pieces: Vec<Piece>,
    /// Where the next read goes on.
    pub next_cursor: u64,
    /// The log is over and `next_cursor` is at its end.
    pub end: bool,
    /// Bytes within the range read that the log does not keep.
    pub lost_bytes: u64,
    /// The range looks like binary data: the pieces say where it is, without text.
    pub binary: bool,
}

/// A contiguous part of a log.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Offset of its first byte.
    pub start: u64,
    /// Offset after its last byte.
    pub end: u64,
    /// Cleaned text; empty when raw bytes were asked for.
    pub text: String,
    /// The bytes as they are, when raw bytes were asked for.
    pub raw: Vec<u8>,
}

/// A log at a moment, to be read in one of several ways.
///
/// Every call reads files, at most 8 MiB of them, and so takes milliseconds; it fails when `cursor` lies past the end of
/// the log, when `max` is below 64, or when a file can't be read.
#[derive(Debug)]
pub struct View<'a> {
    reader: &'a mut Reader,
    total: u64,
    over: bool,
}

impl<'a> View<'a> {
    /// A view of the first `total` bytes of a log; `over` says that there will be no more.
    pub fn new(reader: &'a mut Reader, total: u64, over: bool) -> Self {
        Self { reader, total, over }
    }

    /// Text from the cursor on, at most `max` bytes of it. When a page ends within a line that is then redrawn, the next
    /// page begins with a line feed. Without redrawn lines, the texts of the pages put together are the text of the log.
    pub fn page(&mut self, cursor: u64, max: usize) -> Result<Output> {
        self.check(cursor, max)?;
        if binary::looks_binary(&self.sample(cursor)?) {
            return self.binary_page(cursor);
        }
        let text = self.collect(cursor, max, PAGE, 0)?;
        Ok(self.output(cursor, text.next, text.pieces))
    }

    /// All text from the cursor on if it has at most `max` bytes; otherwise a third of that from its beginning and two
    /// thirds from its end, cut between lines where one ends near the cut.
    pub fn head_and_tail(&mut self, cursor: u64, max: usize) -> Result<Output> {
        self.check(cursor, max)?;
        let mut sample = self.sample(cursor)?;
        let last = self.total.saturating_sub(binary::SAMPLE as u64);
        sample.extend(self.sample(last.max(cursor + sample.len() as u64))?);
        if binary::looks_binary(&sample) {
            return self.binary_range(cursor);
        }
        if self.total - cursor <= WINDOW as u64 {
            // Without a limit, for a line may be long before it is redrawn.
            let whole = self.collect(cursor, usize::MAX, WINDOW, 0)?;
            if whole.text_len() <= max {
                return Ok(self.output(cursor, whole.next, whole.pieces));
            }
        }
        let head = self.collect(cursor, max / 3, WINDOW, near(max / 3))?;
        let (tail, next) = self.last_part(head.next, max - head.text_len())?;
        let mut pieces = head.pieces;
        match pieces.last_mut() {
            Some(last) if last.end == tail.start => {
                last.end = tail.end;
                last.text.push_str(&tail.text);
            }
            _ if tail.start < tail.end => pieces.push(tail),
            _ => {}
        }
        let lost = (next - cursor).saturating_sub(self.reader.kept_bytes(cursor, next)?);
        Ok(Output { lost_bytes: lost, ..self.output(cursor, next, pieces) })
    }

    /// The last text of the log, at most `max` bytes.
    pub fn tail(&mut self, max: usize) -> Result<Output> {
        self.check(0, max)?;
        let last = self.total.saturating_sub(binary::SAMPLE as u64);
        if binary::looks_binary(&self.sample(last)?) {
            return self.binary_range(last);
        }
        let (piece, next) = self.last_part(0, max)?;
        let start = piece.start;
        let pieces = Some(piece).filter(|piece| piece.start < piece.end).into_iter().collect();
        Ok(self.output(start, next, pieces))
    }

    /// At most `max` bytes from the cursor on, as they are. Binary data is not told apart.
    pub fn raw(&mut self, cursor: u64, max: usize) -> Result<Output> {
        self.check(cursor, max)?;
        let mut pieces: Vec<Piece> = Vec::new();
        let mut next = cursor;
        let mut room = max;
        while next < self.total && room > 0 && pieces.len() < PIECES {
            let Some((start, mut bytes)) = self.read(next, room.min(CHUNK))? else {
                next = self.total;
                break;
            };
            room -= bytes.len();
            next = start + bytes.len() as u64;
            match pieces.last_mut().filter(|last| last.end == start) {
                Some(last) => {
                    last.raw.append(&mut bytes);
                    last.end = next;
                }
                None => pieces.push(Piece { start, end: next, text: String::new(), raw: bytes }),
            }
        }
        Ok(self.output(cursor, next, pieces))
    }

    fn check(&self, cursor: u64, max: usize) -> Result<()> {
        if cursor > self.total {
            return Err(Error::CursorOutOfRange { id: self.reader.id(), cursor, total_bytes: self.total });
        }
        if max < LEAST {
            return Err(Error::invalid(
                "max_output_bytes",
                format!("{max} is too small, expected at least {LEAST}"),
            ));
        }
        Ok(())
    }

    /// An output whose loss is what its pieces don't cover.
    fn output(&self, cursor: u64, next_cursor: u64, pieces: Vec<Piece>) -> Output {
        let covered: u64 = pieces.iter().map(|piece| piece.end - piece.start).sum();
        Output {
            pieces,
            next_cursor,
            end: self.over && next_cursor == self.total,
            lost_bytes: (next_cursor - cursor).saturating_sub(covered),
            binary: false,
        }
    }

    /// `most`, or fewer bytes if the log has fewer from `offset` on.
    fn ahead(&self, offset: u64, most: usize) -> usize {
        usize::try_from(self.total.saturating_sub(offset)).map_or(most, |left| left.min(most))
    }

    /// Bytes to judge by whether the log is binary at `offset`.
    fn sample(&mut self, offset: u64) -> Result<Vec<u8>> {
        Ok(self.read(offset, binary::SAMPLE)?.map_or_else(Vec::new, |(_, bytes)| bytes))
    }

    /// The first kept bytes at or after `offset` that are in view. None: the rest is lost.
    fn read(&mut self, offset: u64, most: usize) -> Result<Option<(u64, Vec<u8>)>> {
        let mut chunk = self.reader.read_at(offset, self.ahead(offset, most))?;
        chunk.bytes.truncate(self.ahead(chunk.start, most));
        Ok(Some((chunk.start, chunk.bytes)).filter(|(_, bytes)| !bytes.is_empty()))
    }

    /// Text from `cursor` on, at most `max` bytes of it, made of at most `raw` bytes. Where the limit cuts it, the cut is
    /// moved back to the end of a line within the last `near` bytes.
    fn collect(&mut self, cursor: u64, max: usize, raw: usize, near: usize) -> Result<Collected> {
        let mut pieces = Vec::new();
        let mut next = cursor;
        let mut room = max;
        let mut budget = raw;
        while next < self.total && budget > 0 && pieces.len() < PIECES {
            let stretch = self.scan(next, budget, room, near)?;
            let full = stretch.is_full();
            let stuck = stretch.end() == next;
            let piece = if full { stretch.cut_end(near) } else { stretch.into_piece() };
            budget = budget.saturating_sub(usize::try_from(piece.end - piece.start).unwrap_or(budget));
            room -= piece.text.len();
            next = piece.end;
            if piece.start < piece.end {
                pieces.push(piece);
            }
            if full || stuck {
                break;
            }
        }
        Ok(Collected { pieces, next })
    }

    /// The last text from `from` on, at most `max` bytes, and where the next read goes on.
    fn last_part(&mut self, from: u64, max: usize) -> Result<(Piece, u64)> {
        let window = self.total.saturating_sub(WINDOW as u64);
        let from = if window > from { self.resynchronise(window)? } else { from };
        let mut last = self.scan(from, WINDOW, usize::MAX, max + near(max))?;
        let mut next = last.end();
        // What lies before a gap is left out: the end matters.
        while next < self.total {
            let following = self.scan(next, WINDOW, usize::MAX, max + near(max))?;
            if following.end() == next {
                break;
            }
            next = following.end();
            if following.start < next {
                last = following;
            }
        }
        Ok((self.cut_start(last, max)?, next))
    }

    /// Cuts text off the beginning of a stretch, so that at most `max` bytes remain.
    fn cut_start(&mut self, stretch: Stretch, max: usize) -> Result<Piece> {
        let (piece, marks) = stretch.into_marked();
        let cut = piece.text.ceil_char_boundary(piece.text.len().saturating_sub(max));
        if cut == 0 {
            return Ok(piece);
        }
        let border = marks.iter().find(|line| (cut..=cut + near(max)).contains(&line.text));
        let (start, cut) = match (border, marks.iter().rfind(|line| line.text <= cut)) {
            (Some(line), _) => (line.offset, line.text),
            // The cut is within a line. Its offset is found by cleaning up to there once more.
            (None, Some(line)) => {
                (self.scan(line.offset, WINDOW, cut - line.text, 0)?.end().min(piece.end), cut)
            }
            (None, None) => (piece.start, cut),
        };
        Ok(Piece { start, text: piece.text[cut..].to_owned(), ..piece })
    }

    /// The next place at or after `offset` where text can start: after a line feed, or else at a character.
    fn resynchronise(&mut self, offset: u64) -> Result<u64> {
        let Some((start, bytes)) = self.read(offset, CHUNK)? else {
            return Ok(offset);
        };
        let line =
            memchr::memchr(b'\n', &bytes).map(|at| start + at as u64 + 1).filter(|line| *line < self.total);
        Ok(line.unwrap_or(start + continuation_bytes(&bytes) as u64))
    }

    /// Binary data from the cursor on: as far as it goes, to a gap, or for the length of a page.
    fn binary_page(&mut self, cursor: u64) -> Result<Output> {
        let mut piece: Option<Piece> = None;
        let mut next = cursor;
        while next < self.total {
            let Some((start, bytes)) = self.read(next, binary::SAMPLE)? else {
                next = self.total;
                break;
            };
            let piece = piece.get_or_insert(Piece { start, end: start, ..Piece::default() });
            if start > piece.end || piece.end - piece.start >= PAGE as u64 {
                break;
            }
            if start > cursor && !binary::looks_binary(&bytes) && bytes.len() == binary::SAMPLE {
                // Text begins about here. It must not begin within a character.
                piece.end += continuation_bytes(&bytes) as u64;
                next = piece.end;
                break;
            }
            piece.end = start + bytes.len() as u64;
            next = piece.end;
        }
        Ok(Output { binary: true, ..self.output(cursor, next, piece.into_iter().collect()) })
    }

    /// Binary data from the cursor to the end.
    fn binary_range(&mut self, cursor: u64) -> Result<Output> {
        let start = self.read(cursor, 1)?.map_or(self.total, |(start, _)| start);
        let lost = (self.total - cursor).saturating_sub(self.reader.kept_bytes(cursor, self.total)?);
        let pieces = vec![Piece { start, end: self.total, ..Piece::default() }];
        Ok(Output { binary: true, lost_bytes: lost, ..self.output(cursor, self.total, pieces) })
    }
}

fn near(max: usize) -> usize {
    NEAR.min(max / 8)
}

/// Text from a cursor on.
struct Collected {
    pieces: Vec<Piece>,
    next: u64,
}

impl Collected {
    fn text_len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.text.len()).sum()
    }
}

#[cfg(test)]
mod tests;
