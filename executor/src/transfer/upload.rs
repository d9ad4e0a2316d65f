//! Taking an upload. Its content is gathered where only the executor may go; the workspace sees the file when it is
//! whole, and nothing before.

use std::sync::Arc;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::create::Unfinished;
use super::registry::{Entry, Transfers};
use super::sink::{Filled, Sink, Watch};
use super::{LinkKind, Shared};
use crate::error::{Error, Result};
use crate::file::{Gathered, WrittenFile};
use crate::workspace::Lease;

/// An upload on its way. Nothing is left of it when it is dropped.
#[derive(Debug)]
pub struct Incoming {
    transfers: Shared,
    entry: Arc<Entry>,
    lease: Lease,
    /// Taken out while a piece is written.
    sink: Option<Sink>,
    _unfinished: Unfinished,
    _turn: tokio::sync::OwnedSemaphorePermit,
}

impl Transfers {
    /// The workspace that an upload is for.
    pub fn workspace_of(&self, secret_link: &str) -> Result<String> {
        Ok(self.entry(secret_link, LinkKind::Upload)?.link.workspace_id.to_string())
    }

    /// Begins an upload of `length` bytes, where that is known.
    pub fn receive(
        self: &Arc<Self>,
        lease: Lease,
        secret_link: &str,
        length: Option<u64>,
    ) -> Result<Incoming> {
        let entry = self.entry(secret_link, LinkKind::Upload)?;
        let limit = entry.link.size_bytes;
        if length.is_some_and(|length| length > limit) {
            return Err(Error::UploadTooLarge { limit });
        }
        let turn = Arc::clone(&entry.busy).try_acquire_owned().map_err(|_busy| Error::UploadBusy)?;
        // It may have been used up a moment ago.
        let entry = self.entry(secret_link, LinkKind::Upload)?;
        let unfinished = Unfinished::create(self.directory.join(entry.link.id.as_str()))?;
        let watch = Watch {
            deadline: None,
            workspace_id: lease.workspace.id.clone(),
            closing: lease.closing.clone(),
            stopping: self.stopping.clone(),
            reserve_bytes: self.caps.reserve_bytes.saturating_add(length.unwrap_or(0)),
        };
        let sink = Sink::new(unfinished.file()?, self.budget.hold(0), watch);
        Ok(Incoming {
            transfers: Arc::clone(self),
            entry,
            lease,
            sink: Some(sink),
            _unfinished: unfinished,
            _turn: turn,
        })
    }
}

impl Incoming {
    /// Resolves when the upload is to end before it is whole, with the reason.
    pub fn interrupted(&self) -> impl Future<Output = Error> + Send + use<> {
        let (ended, closing) = (self.entry.ended.clone(), self.lease.closing.clone());
        let stopping: CancellationToken = self.transfers.stopping.clone();
        async move {
            tokio::select! {
                () = ended.cancelled() => {}
                () = closing.cancelled() => {}
                () = stopping.cancelled() => return Error::ShuttingDown,
            }
            Error::LinkNotFound { link_id: String::new() }
        }
    }

    /// Takes the next piece.
    pub async fn write(&mut self, piece: Bytes) -> Result<()> {
        let limit = self.entry.link.size_bytes;
        let mut sink = self.sink.take().ok_or_else(gone)?;
        if sink.written().saturating_add(u64::try_from(piece.len()).unwrap_or(u64::MAX)) > limit {
            return Err(Error::UploadTooLarge { limit });
        }
        let written = tokio::task::spawn_blocking(move || sink.push(&piece).map(|()| sink)).await;
        self.sink = Some(written.map_err(|error| Error::internal("taking an upload", error))??);
        Ok(())
    }

    /// The error that the content ended early.
    pub fn cut_short(&self) -> Error {
        Error::UploadCutShort { bytes: self.sink.as_ref().map_or(0, Sink::written) }
    }

    /// Puts the file in its place, if `length` bytes have come. The link is used up then. Once begun it is finished also
    /// when nobody waits for it.
    pub async fn finish(self, length: u64) -> Result<WrittenFile> {
        if self.sink.as_ref().map(Sink::written) != Some(length) {
            return Err(self.cut_short());
        }
        let tasks = self.transfers.tasks.clone();
        let putting = tasks.spawn(self.put());
        putting.await.map_err(|error| Error::internal("taking an upload", error))?
    }

    async fn put(mut self) -> Result<WrittenFile> {
        let sink = self.sink.take().ok_or_else(gone)?;
        let filled = tokio::task::spawn_blocking(move || sink.finish()).await;
        let filled = filled.map_err(|error| Error::internal("taking an upload", error))??;
        let Filled { file, held, size_bytes, sha256 } = filled;
        let Entry { link, .. } = &*self.entry;
        let (root, path) = (Arc::clone(&self.lease.root), link.path.clone());
        let gathered = Gathered { file, size_bytes, sha256 };
        let written = self.transfers.files.put(root, path, gathered, link.replaces).await?;
        drop(held);
        if let Err(error) = self.transfers.end(&self.entry).await {
            // The file is there, which is what counts; the link is ended for this executor's life.
            tracing::error!(error = %error, cause = ?error, "can't record that an upload was used");
        }
        Ok(written)
    }
}

fn gone() -> Error {
    Error::internal("taking an upload", "an earlier piece could not be written")
}
