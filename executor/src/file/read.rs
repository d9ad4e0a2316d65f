//! Reading a range of a file. Memory is bounded by the limit, not by the file. It changes nothing.

use std::{
    fs::File,
    io::Read as _,
    ops::Range as Span,
    os::unix::fs::FileExt as _,
    path::PathBuf,
    time::{Duration, Instant},
};

use memchr::{memchr_iter, memmem, memrchr};
use rustix::{
    fs::{SeekFrom, seek},
    io::Errno,
};

use super::{
    Limits,
    condition::sha256_hex,
    meta::Meta,
    path::{Place, Root, open_file, path_error},
};
use crate::error::{Error, Result};

/// UTF-8 byte order mark.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Size of the pieces in which a file larger than the limit is searched for line ends.
const PIECE_BYTES: usize = 256 * 1024;
/// How long line ends are counted in a file larger than the limit.
const SCAN_TIME: Duration = Duration::from_secs(10);

/// What part of a file to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    /// Whole lines.
    Lines {
        /// First line, from 1 on.
        start: u64,
        /// How many, at least 1.
        count: u64,
    },
    /// Bytes.
    Bytes {
        /// First byte, from 0 on.
        offset: u64,
        /// How many; 0 for as many as may be read at once.
        length: u64,
    },
}

/// How lines end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineEnding {
    /// There is no line end.
    None,
    /// All end with LF.
    Lf,
    /// All end with CR LF.
    Crlf,
    /// Some end so, some so.
    Mixed,
}

/// A range of a file, and facts of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadFile {
    /// Absolute path, links resolved.
    pub path: PathBuf,
    /// Size of the file in bytes.
    pub size_bytes: u64,
    /// Lower-case hex SHA-256 of the file; `None` for a file larger than the limit.
    pub sha256: Option<String>,
    /// First byte of the range.
    pub offset: u64,
    /// First line of the range, from 1 on; 0 when bytes were asked for.
    pub start_line: u64,
    /// Lines in the range; 0 when bytes were asked for.
    pub line_count: u64,
    /// Lines of the file; `None` for a file larger than the limit.
    pub total_lines: Option<u64>,
    /// The file starts with a UTF-8 byte order mark, which `content` leaves out. False when bytes were asked for.
    pub byte_order_mark: bool,
    /// How the lines of the file end; those of the range for a file larger than the limit.
    pub line_ending: LineEnding,
    /// Permission bits.
    pub mode: u32,
    /// The bytes of the range.
    pub content: Vec<u8>,
}

/// Reads `range` of the file at `path`. A range past the end is empty. Fails with [`Error::FileTooLarge`] where the
/// range has more bytes than the limit.
pub(super) fn read(root: &Root, path: &[u8], range: Range, limits: &Limits) -> Result<ReadFile> {
    match range {
        Range::Lines { start: 0, .. } => {
            return Err(Error::invalid("start_line", "is 0; the first line has number 1"));
        }
        Range::Lines { count: 0, .. } => {
            return Err(Error::invalid("line_count", "is 0; expected at least 1"));
        }
        _ => {}
    }
    let (place, file, meta) = open_file(root, path)?;
    let reader = Reader { place, file, meta, limit: limits.max_bytes };
    if reader.meta.size > limits.max_bytes { reader.part(range) } else { reader.whole(range) }
}

/// The whole of an open file of `size` bytes or a little less, should it shrink meanwhile.
pub(super) fn read_whole(place: &Place, file: &File, size: u64) -> Result<Vec<u8>> {
    let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    file.take(size).read_to_end(&mut content).map_err(|e| failed(place, &e))?;
    Ok(content)
}

/// How the lines of `content` end.
pub(super) fn line_ending(content: &[u8]) -> LineEnding {
    let crlf = memmem::find_iter(content, b"\r\n").count();
    match memchr_iter(b'\n', content).count() {
        0 => LineEnding::None,
        _ if crlf == 0 => LineEnding::Lf,
        all if all == crlf => LineEnding::Crlf,
        _ => LineEnding::Mixed,
    }
}

struct Reader {
    place: Place,
    file: File,
    meta: Meta,
    limit: u64,
}

impl Reader {
    /// A range of a file that is read as a whole.
    fn whole(self, range: Range) -> Result<ReadFile> {
        let mut content = read_whole(&self.place, &self.file, self.meta.size)?;
        let size = to_u64(content.len());
        let total = count_lines(&content);
        let (span, start_line, line_count) = match range {
            Range::Lines { start, count } => {
                let ends = || memchr_iter(b'\n', &content).map(|at| at + 1);
                let line = |number: u64| match usize::try_from(number) {
                    Ok(0) => 0,
                    Ok(number) => ends().nth(number - 1).unwrap_or(content.len()),
                    Err(_) => content.len(),
                };
                let first = start - 1;
                (
                    line(first)..line(first.saturating_add(count)),
                    start,
                    count.min(total.saturating_sub(first)),
                )
            }
            Range::Bytes { offset, length } => (self.span(offset, length, size)?, 0, 0),
        };
        let mut result = ReadFile {
            size_bytes: size,
            sha256: Some(sha256_hex(&content)),
            total_lines: Some(total),
            line_ending: line_ending(&content),
            ..self.facts(to_u64(span.start), start_line, line_count)
        };
        if let Range::Bytes { offset, .. } = range {
            result.offset = offset;
        }
        let marked = content.starts_with(BYTE_ORDER_MARK);
        content.truncate(span.end);
        content.drain(..span.start);
        result.content = content;
        if matches!(range, Range::Lines { .. }) {
            result.leave_out_mark(marked);
        }
        Ok(result)
    }

    /// A range of a file that is too large to be read as a whole.
    fn part(self, range: Range) -> Result<ReadFile> {
        let size = self.meta.size;
        let (mut result, length) = match range {
            Range::Bytes { offset, length } => {
                let span = self.span(offset, length, size)?;
                (self.facts(offset, 0, 0), span.len())
            }
            Range::Lines { start, count } => {
                let deadline = Instant::now() + SCAN_TIME;
                let (first, _) = self.skip_lines(0, start - 1, size, deadline)?;
                let until = size.min(first.saturating_add(self.limit + 1));
                let (end, found) = self.skip_lines(first, count, until, deadline)?;
                if end - first > self.limit {
                    return Err(self.too_large());
                }
                let unfinished = found < count && end == size && first < size && !self.ends_with_line(end)?;
                (self.facts(first, start, found + u64::from(unfinished)), to_usize(end - first))
            }
        };
        result.content = vec![0; length];
        let read =
            read_at(&self.file, &mut result.content, result.offset).map_err(|e| failed(&self.place, &e))?;
        result.content.truncate(read);
        result.line_ending = line_ending(&result.content);
        if matches!(range, Range::Lines { .. }) {
            let mut start = [0; BYTE_ORDER_MARK.len()];
            let read = read_at(&self.file, &mut start, 0).map_err(|e| failed(&self.place, &e))?;
            result.leave_out_mark(&start[..read] == BYTE_ORDER_MARK);
        }
        Ok(result)
    }

    /// From `start` on, the place after `count` line ends and how many there were, looking no further than `until`.
    /// Holes are not read: there is no line end in them.
    fn skip_lines(&self, start: u64, count: u64, until: u64, deadline: Instant) -> Result<(u64, u64)> {
        let mut piece = vec![0; PIECE_BYTES];
        let (mut at, mut found) = (start, 0);
        while found < count && at < until {
            if Instant::now() > deadline {
                return Err(self.too_large());
            }
            at = match seek(&self.file, SeekFrom::Data(at)) {
                Ok(data) => data,
                Err(Errno::NXIO) => until,
                Err(_) => at,
            };
            if at >= until {
                break;
            }
            let wanted = to_usize(until - at).min(piece.len());
            let read = read_at(&self.file, &mut piece[..wanted], at).map_err(|e| failed(&self.place, &e))?;
            if read == 0 {
                break;
            }
            let ends = memchr_iter(b'\n', &piece[..read]);
            let (mut seen, mut last) = (0, read);
            for end in ends {
                seen += 1;
                if found + seen == count {
                    last = end + 1;
                    break;
                }
            }
            found += seen;
            at += to_u64(last);
        }
        Ok((at.min(until), found))
    }

    fn ends_with_line(&self, end: u64) -> Result<bool> {
        let mut last = [0];
        let read =
            read_at(&self.file, &mut last, end.saturating_sub(1)).map_err(|e| failed(&self.place, &e))?;
        Ok(memrchr(b'\n', &last[..read]).is_some())
    }

    /// The bytes from `offset` on that are in a file of `size` bytes.
    fn span(&self, offset: u64, length: u64, size: u64) -> Result<Span<usize>> {
        let rest = size.saturating_sub(offset);
        let length = if length == 0 { rest.min(self.limit) } else { length.min(rest) };
        if length > self.limit {
            return Err(self.too_large());
        }
        let start = to_usize(offset.min(size));
        Ok(start..start.saturating_add(to_usize(length)))
    }

    fn facts(&self, offset: u64, start_line: u64, line_count: u64) -> ReadFile {
        ReadFile {
            path: self.place.path.clone(),
            size_bytes: self.meta.size,
            sha256: None,
            offset,
            start_line,
            line_count,
            total_lines: None,
            byte_order_mark: false,
            line_ending: LineEnding::None,
            mode: self.meta.mode,
            content: Vec::new(),
        }
    }

    fn too_large(&self) -> Error {
        Error::FileTooLarge { path: self.place.shown.clone(), bytes: self.meta.size, limit: self.limit }
    }
}

impl ReadFile {
    /// Notes that the file starts with a byte order mark, and takes it out of the content.
    fn leave_out_mark(&mut self, marked: bool) {
        self.byte_order_mark = marked;
        if marked && self.offset == 0 && self.content.starts_with(BYTE_ORDER_MARK) {
            self.content.drain(..BYTE_ORDER_MARK.len());
            self.offset = to_u64(BYTE_ORDER_MARK.len());
        }
    }
}

fn count_lines(content: &[u8]) -> u64 {
    let unfinished = content.last().is_some_and(|byte| *byte != b'\n');
    to_u64(memchr_iter(b'\n', content).count()) + u64::from(unfinished)
}

/// Reads at `offset` until `buffer` is full or the file ends.
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + to_u64(filled)) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

fn failed(place: &Place, error: &std::io::Error) -> Error {
    path_error(&place.shown, "read", Errno::from_io_error(error).unwrap_or(Errno::IO))
}

fn to_u64(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

fn to_usize(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}
