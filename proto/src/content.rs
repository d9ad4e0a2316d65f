//! Content of a file, piece by piece, for whoever sends it on.

use std::fs::File;
use std::io::{Error, IoSliceMut, Result};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use rustix::io::{ReadWriteFlags, preadv2};

use crate::CHUNK_BYTES;

/// A part of an open file, read piece by piece as it is asked for.
#[derive(Debug)]
pub struct Content {
    file: Arc<File>,
    at: u64,
    end: u64,
    /// Has the memory of the last piece, once that has been sent.
    buffer: BytesMut,
}

impl Content {
    /// `length` bytes of `file` from `offset` on, which must be there.
    pub fn new(file: File, offset: u64, length: u64) -> Self {
        Self { file: Arc::new(file), at: offset, end: offset.saturating_add(length), buffer: BytesMut::new() }
    }

    /// The next piece, of at most [`CHUNK_BYTES`]; none at the end.
    ///
    /// # Errors
    ///
    /// Those of read(2), and `UnexpectedEof` where the file has become shorter.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        let room = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        if room == 0 {
            return Ok(None);
        }
        let at = self.at;
        self.buffer.resize(room, 0);
        let mut piece = self.buffer.split();
        // What is in memory already, as after it was written, costs no change of threads.
        let had = preadv2(&self.file, &mut [IoSliceMut::new(&mut piece)], at, ReadWriteFlags::NOWAIT);
        if had != Ok(room) {
            let file = Arc::clone(&self.file);
            let read =
                tokio::task::spawn_blocking(move || file.read_exact_at(&mut piece, at).map(|()| piece));
            piece = read.await.map_err(Error::other)??;
        }
        self.at += u64::try_from(room).unwrap_or(0);
        Ok(Some(piece.freeze()))
    }
}
