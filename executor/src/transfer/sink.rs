//! A file that is being filled, within limits: the bytes that all links may take, the disk's reserve, a deadline, the
//! life of the workspace. It counts and hashes what it is given, and refuses to know what that is.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use data_encoding::HEXLOWER;
use rustix::fs::fstatvfs;
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::id::WorkspaceId;

/// Bytes between two looks at the free space.
const LOOK_BYTES: u64 = 8 << 20;

/// Bytes after which what was written is made durable, so that no long sync stands at the end.
const SYNC_BYTES: u64 = 256 << 20;

/// Least piece of zeros that is left as a hole.
const HOLE_BYTES: usize = 16 << 10;

/// The bytes that all links may take.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    used: AtomicU64,
}

/// A part of the budget, until it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Budget {
    pub(super) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicU64::new(0) })
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Takes what is there already, also past the limit.
    pub(super) fn hold(self: &Arc<Self>, bytes: u64) -> Held {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Held { budget: Arc::clone(self), bytes }
    }
}

impl Held {
    /// Takes so many bytes more.
    pub(super) fn grow(&mut self, bytes: u64) -> Result<()> {
        let Budget { limit, used } = &*self.budget;
        let taken = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|sum| sum <= limit)
        });
        taken.map_err(|_full| Error::LinksFull { limit: *limit })?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What ends the work before it is done.
#[derive(Debug, Clone)]
pub(super) struct Watch {
    /// When it must be done, if it must.
    pub(super) deadline: Option<(Instant, Duration)>,
    /// The workspace that the work is for.
    pub(super) workspace_id: WorkspaceId,
    /// Cancelled when the workspace is to be deleted.
    pub(super) closing: CancellationToken,
    /// Cancelled when the executor stops.
    pub(super) stopping: CancellationToken,
    /// Bytes of the disk that stay free.
    pub(super) reserve_bytes: u64,
}

impl Watch {
    /// Fails when the work is to end. `bytes` is how far it has come.
    pub(super) fn check(&self, bytes: u64) -> Result<()> {
        if self.stopping.is_cancelled() {
            return Err(Error::ShuttingDown);
        }
        if self.closing.is_cancelled() {
            return Err(Error::WorkspaceNotFound { workspace_id: self.workspace_id.to_string() });
        }
        match self.deadline {
            Some((end, limit)) if Instant::now() >= end => {
                Err(Error::SnapshotTooSlow { seconds: limit.as_secs(), bytes })
            }
            _ => Ok(()),
        }
    }
}

/// The file.
#[derive(Debug)]
pub(super) struct Sink {
    file: File,
    held: Held,
    watch: Watch,
    digest: Sha256,
    written: u64,
    looked_at: Option<u64>,
    unsynced: u64,
    failed: bool,
}

/// A file that is whole and durable.
#[derive(Debug)]
pub(super) struct Filled {
    pub(super) file: File,
    pub(super) held: Held,
    pub(super) size_bytes: u64,
    pub(super) sha256: String,
}

impl Sink {
    /// An empty one that fills `file`, which is empty.
    pub(super) fn new(file: File, held: Held, watch: Watch) -> Self {
        Self {
            file,
            held,
            watch,
            digest: Sha256::new(),
            written: 0,
            looked_at: None,
            unsynced: 0,
            failed: false,
        }
    }

    pub(super) fn written(&self) -> u64 {
        self.written
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Adds to the content.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<()> {
        self.note(bytes)?;
        if is_zero(bytes) && bytes.len() >= HOLE_BYTES {
            let length = i64::try_from(bytes.len()).unwrap_or(0);
            self.file.seek(SeekFrom::Current(length)).map_err(|e| self.failed(e))?;
            return Ok(());
        }
        self.file.write_all(bytes).map_err(|e| self.failed(e))?;
        self.unsynced += count(bytes);
        if self.unsynced >= SYNC_BYTES {
            self.file.sync_data().map_err(|e| self.failed(e))?;
            self.unsynced = 0;
        }
        Ok(())
    }

    /// Takes notice of content that the file has already.
    pub(super) fn note(&mut self, bytes: &[u8]) -> Result<()> {
        self.watch.check(self.written)?;
        if self.looked_at.is_none_or(|last| self.written - last >= LOOK_BYTES) {
            self.looked_at = Some(self.written);
            self.keep_reserve()?;
        }
        self.held.grow(count(bytes))?;
        self.digest.update(bytes);
        self.written += count(bytes);
        Ok(())
    }

    /// Throws away what it has.
    pub(super) fn restart(self) -> Result<Self> {
        let Self { mut file, held, watch, .. } = self;
        let failed = |error| Error::internal("emptying a snapshot", error);
        file.set_len(0).map_err(failed)?;
        file.rewind().map_err(failed)?;
        let budget = Arc::clone(&held.budget);
        drop(held);
        Ok(Self::new(file, budget.hold(0), watch))
    }

    /// Makes the content durable.
    pub(super) fn finish(self) -> Result<Filled> {
        self.file.set_len(self.written).map_err(|e| self.failed(e))?;
        // After an error the kernel takes the lost pages for clean, so a second try would lie.
        self.file.sync_all().map_err(|e| self.failed(e))?;
        let Self { file, held, digest, written, .. } = self;
        Ok(Filled { file, held, size_bytes: written, sha256: HEXLOWER.encode(&digest.finalize()) })
    }

    fn keep_reserve(&self) -> Result<()> {
        let free_bytes = self.free_bytes();
        let reserve_bytes = self.watch.reserve_bytes;
        if free_bytes < reserve_bytes { Err(Error::NoSpace { free_bytes, reserve_bytes }) } else { Ok(()) }
    }

    fn free_bytes(&self) -> u64 {
        fstatvfs(&self.file).map_or(u64::MAX, |facts| facts.f_bavail.saturating_mul(facts.f_frsize))
    }

    fn failed(&self, error: io::Error) -> Error {
        match Errno::from_io_error(&error) {
            Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => {
                Error::NoSpace { free_bytes: self.free_bytes(), reserve_bytes: self.watch.reserve_bytes }
            }
            _ => Error::internal("writing what a link leads to", error),
        }
    }
}

/// For what writes through the standard library. An error of ours travels in one of its, see [`unwrapped`]. What comes
/// after one is thrown away: writers of archives write their end also when they are dropped.
impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failed {
            return Ok(bytes.len());
        }
        let pushed = self.push(bytes);
        self.failed = pushed.is_err();
        pushed.map(|()| bytes.len()).map_err(io::Error::other)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The error of ours that travelled in `error`.
pub(super) fn unwrapped(action: &str, error: io::Error) -> Error {
    error.downcast::<Error>().unwrap_or_else(|error| Error::internal(action, error))
}

/// Equal to itself moved by one, and zero at its start.
fn is_zero(bytes: &[u8]) -> bool {
    bytes.first() == Some(&0) && bytes[1..] == bytes[..bytes.len() - 1]
}

fn count(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn sink(budget: &Arc<Budget>, path: &std::path::Path) -> Sink {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
        let watch = Watch {
            deadline: None,
            workspace_id: WorkspaceId::generate().unwrap(),
            closing: CancellationToken::new(),
            stopping: CancellationToken::new(),
            reserve_bytes: 0,
        };
        Sink::new(file, budget.hold(0), watch)
    }

    #[test]
    fn zeros_become_holes_and_the_content_stays_what_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let budget = Budget::new(64 << 20);
        let mut sink = sink(&budget, &path);
        let mut expected = Vec::new();
        for piece in [&b"head"[..], &vec![0; 4 << 20], b"\0", b"middle", &vec![0; 1 << 20]] {
            sink.push(piece).unwrap();
            expected.extend_from_slice(piece);
        }
        let filled = sink.finish().unwrap();
        assert!(fs::read(&path).unwrap() == expected);
        assert_eq!(filled.sha256, HEXLOWER.encode(&Sha256::digest(&expected)));
        assert!(fs::metadata(&path).unwrap().blocks() * 512 < 1 << 20);
    }

    #[test]
    fn budget_is_given_back_and_never_passed() {
        let directory = tempfile::tempdir().unwrap();
        let budget = Budget::new(100);
        let mut one = sink(&budget, &directory.path().join("1"));
        one.push(&[1; 60]).unwrap();
        let mut other = sink(&budget, &directory.path().join("2"));
        assert!(matches!(other.push(&[1; 41]), Err(Error::LinksFull { limit: 100 })));
        other.push(&[1; 40]).unwrap();
        let mut one = one.restart().unwrap();
        one.push(&[1; 60]).unwrap();
        drop(one);
        other.push(&[1; 60]).unwrap();
    }

    #[test]
    fn reserve_deadline_and_deletion_end_it() {
        let directory = tempfile::tempdir().unwrap();
        let budget = Budget::new(100);
        let mut full = sink(&budget, &directory.path().join("1"));
        full.watch.reserve_bytes = u64::MAX;
        assert!(matches!(full.push(b"x"), Err(Error::NoSpace { .. })));
        let mut late = sink(&budget, &directory.path().join("2"));
        late.watch.deadline = Some((Instant::now(), Duration::from_secs(40)));
        let error = unwrapped("", late.write(b"x").unwrap_err());
        assert!(matches!(error, Error::SnapshotTooSlow { seconds: 40, bytes: 0 }), "{error:?}");
        let mut closed = sink(&budget, &directory.path().join("3"));
        closed.watch.closing.cancel();
        assert!(matches!(closed.push(b"x"), Err(Error::WorkspaceNotFound { .. })));
        closed.watch.stopping.cancel();
        assert!(matches!(closed.push(b"x"), Err(Error::ShuttingDown)));
    }
}
