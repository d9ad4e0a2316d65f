//! Content of a file, piece by piece, for whoever sends it on.

use std::fs::File;
use std::io::{Error, IoSliceMut, Result};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use rustix::io::{ReadWriteFlags, preadv2};

/// A part of an open file, read piece by piece as it is asked for.
#[derive(Debug)]
pub struct Content {
    file: Arc<File>,
    at: u64,
    end: u64,
    /// Bytes of a piece.
    piece_bytes: usize,
    spare: Spare,
}

/// The memory of a piece that was sent, for the next one.
type Spare = Arc<Mutex<Option<Vec<u8>>>>;

/// A piece on its way.
struct Piece {
    memory: Vec<u8>,
    length: usize,
    spare: Spare,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.memory[..self.length]
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        *self.spare.lock().unwrap_or_else(PoisonError::into_inner) = Some(std::mem::take(&mut self.memory));
    }
}

impl Content {
    /// `length` bytes of `file` from `offset` on, which must be there, in pieces of at most `piece_bytes`.
    pub fn new(file: File, offset: u64, length: u64, piece_bytes: usize) -> Self {
        let end = offset.saturating_add(length);
        Self { file: Arc::new(file), at: offset, end, piece_bytes, spare: Spare::default() }
    }

    /// The next piece; none at the end.
    ///
    /// # Errors
    ///
    /// Those of read(2), and `UnexpectedEof` where the file has become shorter.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        let length = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(self.piece_bytes);
        if length == 0 {
            return Ok(None);
        }
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The first piece is the longest.
        let memory = spare.unwrap_or_else(|| vec![0; length]);
        let mut piece = Piece { memory, length, spare: Arc::clone(&self.spare) };
        let at = self.at;
        // What is in memory already, as after it was written, costs no change of threads.
        let mut room = [IoSliceMut::new(&mut piece.memory[..length])];
        if preadv2(&self.file, &mut room, at, ReadWriteFlags::NOWAIT) != Ok(length) {
            let file = Arc::clone(&self.file);
            let read = tokio::task::spawn_blocking(move || {
                file.read_exact_at(&mut piece.memory[..length], at).map(|()| piece)
            });
            piece = read.await.map_err(Error::other)??;
        }
        self.at += u64::try_from(length).unwrap_or(0);
        Ok(Some(Bytes::from_owner(piece)))
    }
}
