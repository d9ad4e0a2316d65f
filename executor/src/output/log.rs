//! Owns the bytes of a log: an append-only sequence, cut into segment files. Knows nothing of text, and not whether the
//! log is still growing.
//!
//! A segment is named by the offset of its first byte (`output-0000000000800000`) and its length says how far it goes.
//! Nothing else is stored, so a reader needs no lock and a log survives a crash as it stands. What is missing between two
//! segments is a gap: freed because the log outgrew its caps, or never written because the disk was full.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Which of the logs in one directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output, with standard error in it unless that has its own log. Also what a terminal shows.
    Output,
    /// Standard error, where it has its own log.
    Stderr,
}

impl Stream {
    fn prefix(self) -> &'static str {
        match self {
            Self::Output => "output-",
            Self::Stderr => "stderr-",
        }
    }
}

/// How much of a log is kept, in bytes. A log never takes more than `head_bytes + tail_bytes` on disk.
#[derive(Debug, Clone, Copy)]
pub struct Caps {
    /// The first bytes, kept for good.
    pub head_bytes: u64,
    /// The newest bytes. They are freed a segment at a time, so at least `tail_bytes - segment_bytes` are there.
    pub tail_bytes: u64,
    /// Size of a full segment; at most half of `tail_bytes`.
    pub segment_bytes: u64,
}

impl Default for Caps {
    fn default() -> Self {
        const MIB: u64 = 1 << 20;
        Self { head_bytes: 8 * MIB, tail_bytes: 56 * MIB, segment_bytes: 8 * MIB }
    }
}

/// The name of a log: a directory and a stream. Neither need exist; a log without bytes leaves nothing on disk.
#[derive(Debug, Clone)]
pub struct Log {
    dir: PathBuf,
    stream: Stream,
}

impl Log {
    /// Names the log `stream` in `dir`, whose last part is the id of the job or terminal.
    pub fn new(dir: impl Into<PathBuf>, stream: Stream) -> Self {
        Self { dir: dir.into(), stream }
    }

    /// Starts the log, which must not exist yet. There is one writer to a log.
    pub fn writer(&self, caps: Caps) -> Writer {
        Writer {
            log: self.clone(),
            caps,
            total: 0,
            lost: 0,
            current: None,
            tail: VecDeque::new(),
            freed: false,
            error: None,
        }
    }

    /// Reads the log, whether it is being written, ended or left behind by a crash.
    pub fn reader(&self) -> Reader {
        Reader { log: self.clone(), open: None }
    }

    /// Offset after the last byte on disk: the total of a log whose writer is gone.
    pub fn extent(&self) -> Result<u64> {
        let segments = self.segments().map_err(|error| self.failed("listing", error))?;
        let Some(&start) = segments.last() else {
            return Ok(0);
        };
        match fs::metadata(self.path(start)) {
            Ok(metadata) => Ok(start + metadata.len()),
            Err(error) => Err(self.failed("reading", error)),
        }
    }

    fn path(&self, start: u64) -> PathBuf {
        self.dir.join(format!("{}{start:016x}", self.stream.prefix()))
    }

    /// Offsets at which segments start, in order.
    fn segments(&self) -> io::Result<Vec<u64>> {
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut starts = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            let offset = name.to_str().and_then(|name| name.strip_prefix(self.stream.prefix()));
            starts.extend(offset.and_then(|offset| u64::from_str_radix(offset, 16).ok()));
        }
        starts.sort_unstable();
        Ok(starts)
    }

    fn failed(&self, action: &str, error: io::Error) -> Error {
        Error::internal(format!("{action} the log {}", self.dir.display()), error)
    }
}

/// Removes a directory of logs. One that does not exist is removed already. A writer at work would make it anew, so end it
/// first.
pub fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::internal(format!("removing the logs {}", dir.display()), error))
        }
        _ => Ok(()),
    }
}

/// Bytes that the logs in a directory take; 0 when there is none.
pub fn disk_bytes(dir: &Path) -> Result<u64> {
    let counted = (|| {
        let entries = match fs::read_dir(dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
            entries => entries?,
        };
        let mut sum = 0;
        for entry in entries {
            match entry?.metadata() {
                Ok(metadata) => sum += metadata.len(),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(sum)
    })();
    counted.map_err(|error| Error::internal(format!("measuring the logs {}", dir.display()), error))
}

/// The one writer of a log. Appending never fails and never waits for anything but the page cache.
#[derive(Debug)]
pub struct Writer {
    log: Log,
    caps: Caps,
    total: u64,
    lost: u64,
    current: Option<Segment>,
    /// Full segments after the head, oldest first: start and length.
    tail: VecDeque<(u64, u64)>,
    /// Something was freed for what came later.
    freed: bool,
    error: Option<io::Error>,
}

#[derive(Debug)]
struct Segment {
    file: File,
    start: u64,
    len: u64,
    room: u64,
}

impl Writer {
    /// Appends bytes. Those that can't be written are counted as lost and stay a gap; the next call tries again. The bytes
    /// are there for readers when this returns, so publish `total` afterwards.
    pub fn append(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.write_some(rest) {
                Ok(written) => {
                    self.total += written as u64;
                    rest = &rest[written..];
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.close_segment();
                    self.total += rest.len() as u64;
                    self.lost += rest.len() as u64;
                    self.error.get_or_insert(error);
                    return;
                }
            }
        }
    }

    /// Bytes appended so far, lost ones included: the offset of the next byte.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Bytes that could not be written. Bytes freed by the caps are not among them.
    pub fn lost_bytes(&self) -> u64 {
        self.lost
    }

    /// The caps in bytes, if something was freed to stay within them.
    pub fn caps_hit(&self) -> Option<u64> {
        self.freed.then_some(self.caps.head_bytes.saturating_add(self.caps.tail_bytes))
    }

    /// The first write error since the last call, for the executor's own log.
    pub fn take_error(&mut self) -> Option<Error> {
        self.error.take().map(|error| self.log.failed("writing", error))
    }

    fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.current.as_ref().is_none_or(|segment| segment.room == 0) {
            self.close_segment();
            self.current = Some(self.open_segment()?);
        }
        let Some(segment) = &mut self.current else {
            return Err(ErrorKind::NotFound.into());
        };
        let fits = bytes.len().min(usize::try_from(segment.room).unwrap_or(usize::MAX));
        let written = segment.file.write(&bytes[..fits])?;
        if written == 0 {
            return Err(ErrorKind::WriteZero.into());
        }
        segment.len += written as u64;
        segment.room -= written as u64;
        Ok(written)
    }

    fn open_segment(&mut self) -> io::Result<Segment> {
        let start = self.total;
        let room = if start < self.caps.head_bytes {
            // No segment is both head and tail.
            self.caps.segment_bytes.min(self.caps.head_bytes - start)
        } else {
            self.make_room();
            self.caps.segment_bytes
        };
        DirBuilder::new().recursive(true).mode(0o700).create(&self.log.dir)?;
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(self.log.path(start))?;
        Ok(Segment { file, start, len: 0, room })
    }

    fn close_segment(&mut self) {
        let Some(segment) = self.current.take() else {
            return;
        };
        if segment.len == 0 {
            self.unlink(segment.start);
        } else if segment.start >= self.caps.head_bytes {
            self.tail.push_back((segment.start, segment.len));
        }
    }

    /// Frees the oldest segments after the head, so that one more full segment fits under the cap.
    fn make_room(&mut self) {
        let mut kept: u64 = self.tail.iter().map(|(_, len)| len).sum();
        while kept + self.caps.segment_bytes > self.caps.tail_bytes {
            let Some((start, len)) = self.tail.pop_front() else {
                return;
            };
            self.unlink(start);
            self.freed = true;
            kept -= len;
        }
    }

    /// A segment that can't be unlinked stays readable; there is nothing better to do about it.
    fn unlink(&self, start: u64) {
        drop(fs::remove_file(self.log.path(start)));
    }
}

/// A reader of a log. Any number may read while the log is written; each holds at most one file open.
#[derive(Debug)]
pub struct Reader {
    log: Log,
    open: Option<(u64, File)>,
}

/// Contiguous bytes of a log.
#[derive(Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Offset of the first byte. Above the offset asked for when the bytes between are not kept.
    pub start: u64,
    /// The bytes; empty when nothing is kept at or after the offset asked for.
    pub bytes: Vec<u8>,
}

impl Reader {
    /// Id of the job or terminal whose log this is.
    pub fn id(&self) -> String {
        self.log.dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Reads the first kept bytes at or after `offset`: at least one if there is any, at most `max`.
    pub fn read_at(&mut self, offset: u64, max: usize) -> Result<Chunk> {
        self.try_read(offset, max).map_err(|error| self.log.failed("reading", error))
    }

    /// Bytes of the range from `start` to `end` that are kept.
    pub fn kept_bytes(&self, start: u64, end: u64) -> Result<u64> {
        let mut kept = 0;
        for first in self.log.segments().map_err(|error| self.log.failed("listing", error))? {
            match fs::metadata(self.log.path(first)) {
                Ok(metadata) => {
                    kept += (first + metadata.len()).min(end).saturating_sub(first.max(start));
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(self.log.failed("reading", error)),
            }
        }
        Ok(kept)
    }

    fn try_read(&mut self, offset: u64, max: usize) -> io::Result<Chunk> {
        if max == 0 {
            return Ok(Chunk { start: offset, bytes: Vec::new() });
        }
        let mut bytes = vec![0; max];
        if let Some((start, file)) = self.open.as_ref().filter(|(start, _)| *start <= offset) {
            let len = file.read_at(&mut bytes, offset - start)?;
            if len > 0 {
                bytes.truncate(len);
                return Ok(Chunk { start: offset, bytes });
            }
        }
        // A segment that goes between the listing and the opening is a gap that has just grown: the next one is tried,
        // and the listing is made anew when all have gone.
        for _ in 0..8 {
            let starts = self.log.segments()?;
            let first = starts.partition_point(|start| *start <= offset).saturating_sub(1);
            let mut vanished = false;
            for &start in &starts[first.min(starts.len())..] {
                let file = match File::open(self.log.path(start)) {
                    Ok(file) => file,
                    Err(error) if error.kind() == ErrorKind::NotFound => {
                        vanished = true;
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                let from = offset.max(start);
                let len = file.read_at(&mut bytes, from - start)?;
                if len > 0 {
                    self.open = Some((start, file));
                    bytes.truncate(len);
                    return Ok(Chunk { start: from, bytes });
                }
            }
            if !vanished {
                return Ok(Chunk { start: offset, bytes: Vec::new() });
            }
        }
        Err(io::Error::other("its segments go faster than they can be opened"))
    }
}

#[cfg(test)]
mod tests;
