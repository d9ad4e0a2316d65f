//! The links that are known: found by id and secret, ended, cleaned away, taken up at the start.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use data_encoding::BASE64URL_NOPAD;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::expiry::{Expiry, Moment};
use super::sink::{Budget, Held};
use super::{Caps, Link, LinkId, LinkKind, Parts, record};
use crate::error::{Error, Result};
use crate::file::Files;
use crate::id::WorkspaceId;
use crate::store::Store;
use crate::timestamp;

/// Links that may live at once.
pub(super) const MAX_LINKS: usize = 1000;

/// Bytes of randomness in a secret.
const SECRET_BYTES: usize = 32;

/// How long an ended link is remembered, so that ending it again is told from ending one that never was.
const REMEMBERED: time::Duration = time::Duration::HOUR;

/// Snapshots made at once; each takes a thread of the file tools.
const MAKING: usize = 4;

/// The links of a data root.
#[derive(Debug)]
pub struct Transfers {
    pub(super) store: Store,
    pub(super) directory: PathBuf,
    pub(super) files: Files,
    pub(super) caps: Caps,
    pub(super) tasks: TaskTracker,
    pub(super) stopping: CancellationToken,
    pub(super) budget: Arc<Budget>,
    pub(super) making: tokio::sync::Semaphore,
    known: Mutex<HashMap<LinkId, Arc<Entry>>>,
}

/// A link as it is known.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) link: Link,
    seq: i64,
    secret_sha256: [u8; 32],
    expiry: Mutex<Expiry>,
    /// Cancelled when the link is ended before its time.
    pub(super) ended: CancellationToken,
    /// What its snapshot takes.
    held: Mutex<Option<Held>>,
    /// Held by the request that sends an upload.
    pub(super) busy: Arc<tokio::sync::Semaphore>,
}

impl Entry {
    fn new(link: Link, seq: i64, secret_sha256: [u8; 32], held: Option<Held>) -> Self {
        let expiry = Mutex::new(Expiry::at(link.expires, Moment::now()));
        let (ended, busy) = (CancellationToken::new(), Arc::new(tokio::sync::Semaphore::new(1)));
        Self { link, seq, secret_sha256, expiry, ended, held: Mutex::new(held), busy }
    }

    fn is_over(&self, now: Moment) -> bool {
        self.expiry.lock().unwrap_or_else(PoisonError::into_inner).is_over(now)
    }

    fn lives(&self, now: Moment) -> bool {
        !self.ended.is_cancelled() && !self.is_over(now)
    }
}

/// A new secret: as it stands in a link, and as it is kept.
pub(super) struct Secret {
    pub(super) text: String,
    pub(super) sha256: [u8; 32],
}

impl Secret {
    pub(super) fn generate() -> Result<Self> {
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes)
            .map_err(|error| Error::internal("reading random bytes", error.to_string()))?;
        let text = BASE64URL_NOPAD.encode(&bytes);
        let sha256 = Sha256::digest(&text).into();
        Ok(Self { text, sha256 })
    }
}

impl Transfers {
    /// Takes up the links on record. Snapshots that are not on record, or only in part there, are removed.
    pub async fn load(parts: Parts) -> Result<Self> {
        let Parts { store, directory, files, caps, tasks, stopping } = parts;
        let budget = Budget::new(caps.total_bytes);
        let making = tokio::sync::Semaphore::new(MAKING);
        let known = Mutex::default();
        let this = Self { store, directory, files, caps, tasks, stopping, budget, making, known };
        let mut lost = Vec::new();
        for row in this.store.links().await? {
            let (id, seq, ended) = (row.link_id.clone(), row.seq, row.ended);
            let Some((link, secret)) = record::from_row(row) else {
                lost.push(id);
                continue;
            };
            let size = std::fs::metadata(this.directory.join(link.id.as_str())).map(|data| data.len());
            let held = match link.id.kind() {
                LinkKind::Download if ended => None,
                LinkKind::Download if size.is_ok_and(|size| size == link.size_bytes) => {
                    Some(this.budget.hold(link.size_bytes))
                }
                LinkKind::Download => {
                    lost.push(id);
                    continue;
                }
                LinkKind::Upload => None,
            };
            let entry = Entry::new(link, seq, secret, held);
            if ended {
                entry.ended.cancel();
            }
            this.lock().insert(entry.link.id.clone(), Arc::new(entry));
        }
        this.store.remove_links(lost).await?;
        this.clean().await?;
        this.forget_strays().await?;
        Ok(this)
    }

    /// The link with this id and secret, if it is of this kind and lives.
    pub fn find(&self, secret_link: &str, kind: LinkKind) -> Result<Link> {
        Ok(self.entry(secret_link, kind)?.link.clone())
    }

    /// Living links, newest first.
    pub fn list(&self, workspace_id: Option<&WorkspaceId>) -> Vec<Link> {
        let now = Moment::now();
        let mut entries: Vec<_> = self.lock().values().cloned().collect();
        entries
            .retain(|entry| entry.lives(now) && workspace_id.is_none_or(|id| *id == entry.link.workspace_id));
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.seq));
        entries.iter().map(|entry| entry.link.clone()).collect()
    }

    /// Ends a link. False when it had been ended before.
    pub async fn revoke(&self, link_id: &str) -> Result<bool> {
        let unknown = || Error::LinkNotFound { link_id: link_id.chars().take(80).collect() };
        let id = LinkId::parse(link_id).ok_or_else(unknown)?;
        let entry = self.lock().get(&id).cloned().ok_or_else(unknown)?;
        let lived = entry.lives(Moment::now());
        if lived {
            self.end(&entry).await?;
        }
        Ok(lived)
    }

    /// Ends the links of a workspace.
    pub async fn end_all(&self, workspace_id: &WorkspaceId) -> Result<usize> {
        let now = Moment::now();
        let entries: Vec<_> = self.lock().values().cloned().collect();
        let mut count = 0;
        for entry in entries.iter().filter(|entry| entry.link.workspace_id == *workspace_id) {
            if entry.lives(now) {
                self.end(entry).await?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// Ends a link before its time: for everybody at once, then on record, then on the disk.
    pub(super) async fn end(&self, entry: &Entry) -> Result<()> {
        entry.ended.cancel();
        let now = Moment::now();
        let forget = entry.link.expires.min(now.wall + REMEMBERED);
        *entry.expiry.lock().unwrap_or_else(PoisonError::into_inner) = Expiry::at(forget, now);
        let id = entry.link.id.as_str().to_owned();
        self.store.end_link(id, timestamp::to_millis(forget)).await?;
        self.drop_snapshot(entry).await
    }

    /// Removes what is past its time; returns how many links that were.
    pub async fn clean(&self) -> Result<usize> {
        let now = Moment::now();
        let over: Vec<_> = self.lock().values().filter(|entry| entry.is_over(now)).cloned().collect();
        if over.is_empty() {
            return Ok(0);
        }
        // The row goes first: a snapshot without a row is found at the next start.
        let ids = over.iter().map(|entry| entry.link.id.as_str().to_owned()).collect();
        self.store.remove_links(ids).await?;
        for entry in &over {
            entry.ended.cancel();
            self.lock().remove(&entry.link.id);
            self.drop_snapshot(entry).await?;
        }
        Ok(over.len())
    }

    pub(super) fn entry(&self, secret_link: &str, kind: LinkKind) -> Result<Arc<Entry>> {
        let none = || Error::LinkNotFound { link_id: String::new() };
        let (id, secret) = secret_link.split_once('.').unwrap_or_default();
        let entry =
            LinkId::parse(id).filter(|id| id.kind() == kind).and_then(|id| self.lock().get(&id).cloned());
        // The same work is done for an id that nobody has.
        let digest: [u8; 32] = Sha256::digest(secret).into();
        let kept = entry.as_ref().map_or([0; 32], |entry| entry.secret_sha256);
        let matches = bool::from(kept.ct_eq(&digest));
        entry.filter(|entry| matches && entry.lives(Moment::now())).ok_or_else(none)
    }

    /// Fails when there are as many links as may live.
    pub(super) fn check_count(&self) -> Result<()> {
        let now = Moment::now();
        let living = self.lock().values().filter(|entry| entry.lives(now)).count();
        if living >= MAX_LINKS { Err(Error::TooManyLinks { limit: MAX_LINKS }) } else { Ok(()) }
    }

    /// Records a link; it can be found from then on.
    pub(super) async fn adopt(&self, link: Link, secret: &Secret, held: Option<Held>) -> Result<()> {
        let seq = self.store.insert_link(record::to_row(&link, &secret.sha256)).await?;
        let entry = Arc::new(Entry::new(link, seq, secret.sha256, held));
        self.lock().insert(entry.link.id.clone(), entry);
        Ok(())
    }

    async fn drop_snapshot(&self, entry: &Entry) -> Result<()> {
        if entry.link.id.kind() == LinkKind::Download {
            remove(self.directory.join(entry.link.id.as_str())).await?;
        }
        drop(entry.held.lock().unwrap_or_else(PoisonError::into_inner).take());
        Ok(())
    }

    /// Removes files that no living download has: those half made, and uploads that were cut short.
    async fn forget_strays(&self) -> Result<()> {
        let failed = |error| Error::internal(format!("listing {}", self.directory.display()), error);
        let mut entries = tokio::fs::read_dir(&self.directory).await.map_err(failed)?;
        while let Some(found) = entries.next_entry().await.map_err(failed)? {
            let id = found.file_name().to_str().and_then(LinkId::parse);
            let now = Moment::now();
            let lives = |id: &LinkId| self.lock().get(id).is_some_and(|entry| entry.lives(now));
            if !id.is_some_and(|id| id.kind() == LinkKind::Download && lives(&id)) {
                remove(found.path()).await?;
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LinkId, Arc<Entry>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn remove(path: PathBuf) -> Result<()> {
    match tokio::fs::remove_file(&path).await {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(&path, error)),
        _ => Ok(()),
    }
}

fn failed(path: &Path, error: std::io::Error) -> Error {
    Error::internal(format!("removing {}", path.display()), error)
}
