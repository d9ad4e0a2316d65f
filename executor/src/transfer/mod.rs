//! Links: downloads of a snapshot, and uploads of one file. It owns their ids, secrets and ends, the snapshots on the
//! disk, and what all of that may take. It refuses to know how a link looks in a URL and what HTTP asks of it.
//!
//! A link ends at its time, when it is revoked, when its workspace is deleted, and an upload when it has been used. From
//! then on it is not found; what was being read goes on through the open file.

mod archive;
#[cfg(test)]
mod archive_tests;
mod create;
mod expiry;
mod pack;
mod read;
mod record;
mod registry;
mod sink;
mod snapshot;
mod upload;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use archive::Format;
pub use create::{MadeDownload, MadeUpload, NewDownload, NewUpload};
pub use registry::Transfers;
pub use upload::Incoming;

use crate::file::Files;
use crate::id::{DownloadId, UploadId, WorkspaceId};
use crate::store::Store;

/// Id of a link.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LinkId {
    /// Of a download.
    Download(DownloadId),
    /// Of an upload.
    Upload(UploadId),
}

impl LinkId {
    /// The id in this text, if it has an id's form.
    pub fn parse(text: &str) -> Option<Self> {
        let download = DownloadId::parse(text).map(Self::Download);
        download.or_else(|| UploadId::parse(text).map(Self::Upload))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Download(id) => id.as_str(),
            Self::Upload(id) => id.as_str(),
        }
    }

    /// What a link with this id is for.
    pub const fn kind(&self) -> LinkKind {
        match self {
            Self::Download(_) => LinkKind::Download,
            Self::Upload(_) => LinkKind::Upload,
        }
    }
}

/// What a link is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkKind {
    /// A snapshot can be read.
    Download,
    /// One file can be sent, once.
    Upload,
}

/// A link without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Id.
    pub id: LinkId,
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Who made it.
    pub principal: String,
    /// Absolute path of the file, or of the first one in an archive.
    pub path: Vec<u8>,
    /// Name for whoever fetches it.
    pub name: String,
    /// Size of a download; most bytes of an upload.
    pub size_bytes: u64,
    /// Lower-case hex SHA-256 of a download.
    pub sha256: String,
    /// Whether an upload may replace a file.
    pub replaces: bool,
    /// When it was made.
    pub created: OffsetDateTime,
    /// When it ends.
    pub expires: OffsetDateTime,
}

/// What the links are made of.
pub struct Parts {
    /// The records.
    pub store: Store,
    /// Where snapshots lie.
    pub directory: PathBuf,
    /// Files of workspaces.
    pub files: Files,
    /// Caps.
    pub caps: Caps,
    /// Where work that outlives its caller is tracked.
    pub tasks: TaskTracker,
    /// Cancelled when the executor stops.
    pub stopping: CancellationToken,
}

/// How much links may take.
#[derive(Debug, Clone, Copy)]
pub struct Caps {
    /// Bytes of all snapshots and of uploads on their way.
    pub total_bytes: u64,
    /// Bytes of the disk that stay free.
    pub reserve_bytes: u64,
    /// Time for making a snapshot.
    pub snapshot_time: Duration,
}

/// A shared handle.
type Shared = Arc<Transfers>;
