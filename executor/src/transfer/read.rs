//! Reading a download.

use std::fs::File;
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use rustix::io::{ReadWriteFlags, preadv2};

use super::LinkKind;
use super::registry::Transfers;
use crate::error::{Error, Result};

/// Bytes of a download, read piece by piece as they are asked for. The file stays open, whatever becomes of the link.
#[derive(Debug)]
pub struct Reader {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Transfers {
    /// Opens `length` bytes of a download from `offset` on.
    pub async fn open(&self, secret_link: &str, offset: u64, length: u64) -> Result<Reader> {
        let entry = self.entry(secret_link, LinkKind::Download)?;
        let size = entry.link.size_bytes;
        let Some(end) = offset.checked_add(length).filter(|end| *end <= size) else {
            let problem = format!("{length} bytes from {offset} on lie past the end, which is at {size}");
            return Err(Error::invalid("offset", problem));
        };
        let path = self.directory.join(entry.link.id.as_str());
        match tokio::fs::File::open(&path).await {
            Ok(file) => Ok(Reader { file: Arc::new(file.into_std().await), at: offset, end }),
            // It has ended since.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(Error::LinkNotFound { link_id: String::new() })
            }
            Err(error) => Err(Error::internal("opening a snapshot", error)),
        }
    }
}

impl Reader {
    /// The next piece, of at most so many bytes; none at the end.
    pub async fn next(&mut self, most: usize) -> Result<Option<Bytes>> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let room = left.min(most);
        if room == 0 {
            return Ok(None);
        }
        let (file, at) = (Arc::clone(&self.file), self.at);
        let mut piece = vec![0; room];
        // What is in memory already, as after it was written, costs no change of threads.
        let had = preadv2(&file, &mut [IoSliceMut::new(&mut piece)], at, ReadWriteFlags::NOWAIT);
        if had != Ok(room) {
            let read =
                tokio::task::spawn_blocking(move || file.read_exact_at(&mut piece, at).map(|()| piece));
            let read = read.await.map_err(|error| Error::internal("reading a snapshot", error))?;
            piece = read.map_err(|error| Error::internal("reading a snapshot", error))?;
        }
        self.at += u64::try_from(room).unwrap_or(0);
        Ok(Some(piece.into()))
    }
}
