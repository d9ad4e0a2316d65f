//! Making links.

use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use time::OffsetDateTime;

use super::registry::{Secret, Transfers};
use super::sink::{Sink, Watch};
use super::snapshot::{self, Snapshot, Wanted};
use super::{Format, Link, LinkId, Shared};
use crate::error::{Error, Result};
use crate::file::show;
use crate::id::{DownloadId, UploadId};
use crate::workspace::Lease;

/// Longest life of a link, in seconds.
const MAX_LIFETIME_SECONDS: u64 = 7 * 86_400;

/// Paths in one archive at most; a folder counts as one.
const MAX_PATHS: usize = 1000;

/// Longest name, as on disks.
const MAX_NAME_BYTES: usize = 255;

/// A download to be made.
#[derive(Debug)]
pub struct NewDownload {
    /// Who asks.
    pub principal: String,
    /// Files and folders.
    pub paths: Vec<Vec<u8>>,
    /// How long the link lives.
    pub lifetime: std::time::Duration,
    /// Name to offer.
    pub name: Option<String>,
    /// Form of an archive.
    pub format: Option<Format>,
}

/// A download that was made.
#[derive(Debug)]
pub struct MadeDownload {
    /// The link.
    pub link: Link,
    /// Its id and secret.
    pub secret_link: String,
    /// Entries of an archive.
    pub entries: u64,
    /// What its maker should know.
    pub notes: Vec<String>,
}

/// An upload to be made.
#[derive(Debug)]
pub struct NewUpload {
    /// Who asks.
    pub principal: String,
    /// Where the file goes.
    pub path: Vec<u8>,
    /// Most bytes that it may have.
    pub max_bytes: u64,
    /// How long the link lives.
    pub lifetime: std::time::Duration,
}

/// An upload that was made.
#[derive(Debug)]
pub struct MadeUpload {
    /// The link.
    pub link: Link,
    /// Its id and secret.
    pub secret_link: String,
    /// Size of the file that will be replaced.
    pub replaces_bytes: Option<u64>,
}

impl Transfers {
    /// Makes a snapshot and a link to it. Once begun it is finished also when nobody waits for it.
    pub async fn create_download(self: &Arc<Self>, lease: Lease, new: NewDownload) -> Result<MadeDownload> {
        check_lifetime(new.lifetime)?;
        new.name.as_deref().map(check_name).transpose()?;
        if !(1..=MAX_PATHS).contains(&new.paths.len()) {
            let problem = format!("expected 1 to {MAX_PATHS} paths, got {}", new.paths.len());
            return Err(Error::invalid("paths", problem));
        }
        self.clean().await?;
        self.check_count()?;
        let this = Arc::clone(self);
        let making = self.tasks.spawn(this.make_download(lease, new));
        making.await.map_err(|error| Error::internal("making a download", error))?
    }

    async fn make_download(self: Shared, lease: Lease, new: NewDownload) -> Result<MadeDownload> {
        let limit = self.caps.snapshot_time;
        let deadline = Instant::now() + limit;
        let too_slow = |_late| Error::SnapshotTooSlow { seconds: limit.as_secs(), bytes: 0 };
        let turn = tokio::time::timeout_at(deadline.into(), self.making.acquire()).await.map_err(too_slow)?;
        let id = DownloadId::generate()?;
        let unfinished = Unfinished::create(self.directory.join(id.as_str()))?;
        let watch = Watch {
            deadline: Some((deadline, limit)),
            workspace_id: lease.workspace.id.clone(),
            closing: lease.closing.clone(),
            stopping: self.stopping.clone(),
            reserve_bytes: self.caps.reserve_bytes,
        };
        let sink = Sink::new(unfinished.file()?, self.budget.hold(0), watch);
        let name = lease.workspace.name.clone().unwrap_or_else(|| lease.workspace.id.to_string());
        let wanted = Wanted { paths: new.paths, format: new.format, name };
        let root = Arc::clone(&lease.root);
        let made = self.files.run(move || snapshot::make(&root, &wanted, sink)).await??;
        drop(turn);
        let Snapshot { filled, path, name, entries, notes } = made;
        sync_directory(&self.directory).await?;
        let created = OffsetDateTime::now_utc();
        let link = Link {
            id: LinkId::Download(id),
            workspace_id: lease.workspace.id.clone(),
            principal: new.principal,
            path,
            name: new.name.unwrap_or(name),
            size_bytes: filled.size_bytes,
            sha256: filled.sha256,
            replaces: false,
            created,
            expires: created + new.lifetime,
        };
        let secret = Secret::generate()?;
        // Under the lease, so that no link is made after the workspace's links were ended.
        self.adopt(link.clone(), &secret, Some(filled.held)).await?;
        unfinished.keep();
        let secret_link = format!("{}.{}", link.id.as_str(), secret.text);
        Ok(MadeDownload { link, secret_link, entries, notes })
    }

    /// Makes a link by which one file can be sent.
    pub async fn create_upload(self: &Arc<Self>, lease: Lease, new: NewUpload) -> Result<MadeUpload> {
        check_lifetime(new.lifetime)?;
        let most = self.budget.limit();
        if !(1..=most).contains(&new.max_bytes) {
            let problem = format!("expected 1 to {most}, got {}", new.max_bytes);
            return Err(Error::invalid("max_bytes", problem));
        }
        self.clean().await?;
        self.check_count()?;
        let spot = self.files.look(Arc::clone(&lease.root), new.path).await?;
        let created = OffsetDateTime::now_utc();
        let name = show(spot.path.file_name().unwrap_or_default().as_bytes());
        let link = Link {
            id: LinkId::Upload(UploadId::generate()?),
            workspace_id: lease.workspace.id.clone(),
            principal: new.principal,
            path: spot.path.into_os_string().into_encoded_bytes(),
            name,
            size_bytes: new.max_bytes,
            sha256: String::new(),
            replaces: spot.taken_bytes.is_some(),
            created,
            expires: created + new.lifetime,
        };
        let secret = Secret::generate()?;
        self.adopt(link.clone(), &secret, None).await?;
        let secret_link = format!("{}.{}", link.id.as_str(), secret.text);
        Ok(MadeUpload { link, secret_link, replaces_bytes: spot.taken_bytes })
    }
}

fn check_lifetime(lifetime: std::time::Duration) -> Result<()> {
    let seconds = lifetime.as_secs();
    if (1..=MAX_LIFETIME_SECONDS).contains(&seconds) {
        return Ok(());
    }
    let problem = format!("expected 1 to {MAX_LIFETIME_SECONDS}, got {seconds}");
    Err(Error::invalid("expires_in_seconds", problem))
}

fn check_name(name: &str) -> Result<()> {
    let bad = name.is_empty()
        || name.len() > MAX_NAME_BYTES
        || matches!(name, "." | "..")
        || name.contains(|c: char| matches!(c, '/' | '\\') || c.is_control());
    if !bad {
        return Ok(());
    }
    let expected = "expected the name of a file: 1 to 255 bytes without slashes and control characters";
    Err(Error::invalid("filename", expected))
}

/// A file of the executor's own that goes away unless it is kept.
#[derive(Debug)]
pub(super) struct Unfinished {
    path: Option<PathBuf>,
    file: File,
}

impl Unfinished {
    pub(super) fn create(path: PathBuf) -> Result<Self> {
        let failed = |error| Error::internal(format!("creating {}", path.display()), error);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(failed)?;
        Ok(Self { path: Some(path), file })
    }

    pub(super) fn file(&self) -> Result<File> {
        self.file.try_clone().map_err(|error| Error::internal("opening a snapshot", error))
    }

    pub(super) fn keep(mut self) {
        self.path = None;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(path) = self.path.take() {
            // What can't be removed now is a stray at the next start.
            let _removed = std::fs::remove_file(path);
        }
    }
}

async fn sync_directory(path: &Path) -> Result<()> {
    let path = path.to_owned();
    let failed = |error| Error::internal("syncing the directory of links", error);
    let synced = tokio::task::spawn_blocking(move || File::open(path)?.sync_all()).await;
    synced.map_err(|error| Error::internal("syncing the directory of links", error))?.map_err(failed)
}
