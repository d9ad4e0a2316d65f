//! Workspaces whose jobs see a root of their own: what runs those, how a sandbox stands still and goes on, and what becomes
//! of its disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::create::SandboxStart;
use super::enclosure::{self, DiskForm};
use super::{Entry, State, Workspace, Workspaces, removal};
use crate::error::{Error, Result};
use crate::id::WorkspaceId;
use crate::process::copy::copy_directory;
use crate::process::sandbox::{Running, Usage};

impl Workspaces {
    /// What runs the jobs of a workspace that has a root of its own. Of those that are no sandboxes it is started when first
    /// needed, also after the executor was, or somebody has killed it.
    pub(super) async fn running(
        &self,
        entry: &Arc<Entry>,
        workspace: &Arc<Workspace>,
    ) -> Result<Option<Arc<Running>>> {
        let known = entry.running().clone();
        match known {
            Some(running) if running.spawner.lives() => return Ok(Some(running)),
            Some(_) if workspace.sandbox => {
                let problem = format!(
                    "process 1 of {} was killed, perhaps for want of memory; shut it down and create another",
                    workspace.id
                );
                return Err(Error::invalid("sandbox_id", problem));
            }
            None if workspace.sandbox || !workspace.enclosed => return Ok(None),
            _ => {}
        }
        let (enclosure, entry, workspace) =
            (Arc::clone(&self.enclosure), Arc::clone(entry), Arc::clone(workspace));
        // It goes on when the caller goes away, so that there are never two of one workspace.
        let starting = tokio::spawn(async move {
            let _alone = entry.starting.lock().await;
            let known = entry.running().clone();
            match known {
                Some(running) if running.spawner.lives() => return Ok(running),
                Some(_) => entry.end_running().await,
                None => {}
            }
            if entry.now().state == State::Deleting {
                return Err(Error::WorkspaceNotFound { workspace_id: workspace.id.to_string() });
            }
            let running = Arc::new(enclosure.start_around(&workspace).await?);
            *entry.running() = Some(Arc::clone(&running));
            Ok(running)
        });
        starting
            .await
            .map_err(|error| Error::internal("starting what keeps a workspace apart", error))?
            .map(Some)
    }

    /// Has all processes of a sandbox stand still. `record` is done when nothing more starts in it, and before they do.
    pub async fn suspend(&self, id: &WorkspaceId, record: impl Future<Output = Result<()>>) -> Result<()> {
        let entry = self.entry(id.as_str())?;
        let _closed = entry.gate.write().await;
        let workspace = entry.now();
        let running = entry.running().clone();
        match (workspace.state, running) {
            (State::Suspended, _) => Ok(()),
            (State::Ready, Some(running)) => {
                record.await?;
                if let Err(error) = running.freeze(true).await {
                    let _goes_on = running.freeze(false).await;
                    return Err(error);
                }
                entry.still.send_replace(true);
                entry.set(Workspace { state: State::Suspended, ..(*workspace).clone() });
                Ok(())
            }
            (State::Ready, None) => Err(Error::invalid(
                "sandbox_id",
                format!("{id} is a plain directory (isolation none), which can't be suspended"),
            )),
            _ => Err(Error::WorkspaceNotFound { workspace_id: id.to_string() }),
        }
    }

    /// Lets the processes of a suspended sandbox go on; where they ended with an executor, it starts again with its files.
    /// True for that.
    pub async fn resume(&self, id: &WorkspaceId, start: SandboxStart) -> Result<bool> {
        let entry = self.entry(id.as_str())?;
        let _closed = entry.gate.write().await;
        let workspace = entry.now();
        if workspace.state != State::Suspended {
            return Ok(false);
        }
        let running = entry.running().clone();
        let anew = running.is_none();
        match running {
            Some(running) => running.freeze(false).await?,
            None => {
                entry.runs(self.enclosure.start(&workspace, &start).await?)?;
            }
        }
        entry.set(Workspace { state: State::Ready, ..(*workspace).clone() });
        entry.still.send_replace(false);
        Ok(anew)
    }

    /// Copies what a sandbox has on its disk to `place`, and returns its form and bytes. Its processes stand still meanwhile; in
    /// a plain directory they go on.
    pub async fn save(&self, id: &WorkspaceId, place: &Path) -> Result<(DiskForm, u64)> {
        let entry = self.entry(id.as_str())?;
        let _closed = entry.gate.write().await;
        let workspace = entry.now();
        let form = self.enclosure.form().await;
        if form == DiskForm::Directory && self.identity.switch {
            // Its jobs could lead an executor that is root elsewhere while it copies.
            let problem =
                format!("{id} is a plain directory (isolation none), of which no snapshot can be made");
            return Err(Error::invalid("sandbox_id", problem));
        }
        let disk = own_files(&workspace, form);
        let (bytes, _partial) = removal::disk_bytes(disk.clone()).await?;
        let (free_bytes, reserve_bytes) = (self.root.free_bytes(), self.reserve_bytes);
        if bytes > free_bytes.saturating_sub(reserve_bytes) {
            return Err(Error::NoSpace { free_bytes, reserve_bytes });
        }
        let running = entry.running().clone().filter(|_| workspace.state == State::Ready);
        if let Some(running) = &running {
            if let Err(error) = running.freeze(true).await {
                let _goes_on = running.freeze(false).await;
                return Err(error);
            }
            entry.still.send_replace(true);
        }
        let copied = copy_directory(&disk, place).await;
        if let Some(running) = &running {
            running.freeze(false).await?;
            entry.still.send_replace(false);
        }
        copied?;
        Ok((form, bytes))
    }

    /// Moves what an ended sandbox has on its disk to `place`, and returns its form and bytes.
    pub async fn give_disk(&self, id: &WorkspaceId, place: &Path) -> Result<(DiskForm, u64)> {
        let form = self.enclosure.form().await;
        if form == DiskForm::Directory && self.identity.switch {
            return Err(Error::invalid(
                "setup_commands",
                "sandboxes are plain directories here, which can't be kept",
            ));
        }
        let disk = own_files(&*self.get(id.as_str())?, form);
        let moved = std::fs::rename(&disk, place);
        moved.map_err(|error| Error::internal(format!("moving {}", disk.display()), error))?;
        Ok((form, removal::disk_bytes(place.to_owned()).await?.0))
    }

    /// What the processes of a sandbox use; nothing where it does not run.
    pub async fn usage(&self, id: &WorkspaceId) -> Result<Option<Usage>> {
        let running = self.entry(id.as_str())?.running().clone();
        match running {
            Some(running) => running.usage().await.map(Some),
            None => Ok(None),
        }
    }

    /// Fails where a sandbox stands still, so that none of its processes can do what is asked.
    pub fn expect_awake(&self, id: &WorkspaceId) -> Result<()> {
        match self.get(id.as_str()) {
            Ok(workspace) if workspace.state == State::Suspended => {
                Err(Error::SandboxSuspended { sandbox_id: id.to_string() })
            }
            _ => Ok(()),
        }
    }

    /// Ends the processes of a sandbox at once.
    pub async fn end_processes(&self, id: &WorkspaceId) {
        if let Ok(entry) = self.entry(id.as_str()) {
            let _not_started_meanwhile = entry.starting.lock().await;
            entry.end_running().await;
        }
    }

    /// The same for all that stand still: they would hear nothing of an orderly end.
    pub async fn end_suspended(&self) {
        let entries: Vec<Arc<Entry>> = self.lock().values().cloned().collect();
        let still = entries.iter().filter(|entry| entry.now().state == State::Suspended);
        futures::future::join_all(still.map(|entry| entry.end_running())).await;
    }

    /// Ends what runs the jobs of sandboxes, when the executor stops.
    pub async fn end_sandboxes(&self) {
        let entries: Vec<Arc<Entry>> = self.lock().values().cloned().collect();
        futures::future::join_all(entries.iter().map(|entry| entry.end_running())).await;
        self.enclosure.close().await;
    }
}

/// Where a sandbox's own files are.
fn own_files(workspace: &Workspace, form: DiskForm) -> PathBuf {
    let root = &workspace.paths.root;
    if form.is_whole() { root.clone() } else { root.join(enclosure::UPPER) }
}
