//! Workspaces: directories with their own home, temporary directory and Python environment. Knows nothing of the jobs
//! that run in them; whoever deletes a workspace ends those first.

mod create;
mod enclosed;
mod enclosure;
pub mod environment;
mod git;
mod python;
mod record;
pub(crate) mod removal;

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use create::check_name;
pub use create::{Network, NewWorkspace, SandboxStart};
pub use enclosure::{DiskForm, Enclosure};
pub use git::{Credential, GitSource, GitStatus};
pub use python::Python;

use crate::data_root::DataRoot;
use crate::error::{Error, Result};
use crate::file::Root;
use crate::id::WorkspaceId;
use crate::process::cgroup::Memory;
use crate::process::identity::Identity;
use crate::process::sandbox::{self, Running};
use crate::process::spawn::Spawner;
use crate::process::workers::Workers;
use crate::store::Store;

/// [`sandbox::HOME`] and [`sandbox::TMP`] beneath a sandbox's root.
const HOME_BENEATH: &str = "home/user";
const TMP_BENEATH: &str = "tmp";

/// A workspace as it is at one time.
#[derive(Debug, Clone)]
pub struct Workspace {
    /// Id.
    pub id: WorkspaceId,
    /// Order of creation.
    pub seq: i64,
    /// Name, if any.
    pub name: Option<String>,
    /// State.
    pub state: State,
    /// Who made it.
    pub principal: String,
    /// Id of the request that made it, if any.
    pub request_id: Option<String>,
    /// When it was made.
    pub created: OffsetDateTime,
    /// What was cloned into it.
    pub git: Option<Git>,
    /// Version of its Python environment, if it has one.
    pub python_version: Option<String>,
    /// Variables for every command.
    pub env: BTreeMap<String, String>,
    /// What its maker should know.
    pub notes: Vec<String>,
    /// Whether it is a sandbox: it has a lifetime, and is gone when the executor ends.
    pub sandbox: bool,
    /// Its directories.
    pub paths: Paths,
    /// The same as its jobs see them.
    pub seen: Paths,
    /// Whether its jobs see another root than that of the machine.
    pub enclosed: bool,
}

impl Workspace {
    /// Whether its own files are anywhere in that root, and not only where they are outside.
    fn has_own_root(&self) -> bool {
        self.seen != self.paths
    }
}

/// State of a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Being made.
    Creating,
    /// Usable.
    Ready,
    /// A sandbox whose processes stand still. It waits to be resumed.
    Suspended,
    /// Being removed.
    Deleting,
    /// Could not be made; the notes say why. It lives until it is deleted.
    Failed,
}

/// What was cloned into a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Git {
    /// URL without a credential.
    pub url: String,
    /// Branch or tag; empty for a detached commit.
    pub reference: String,
    /// Full commit id; empty where there is none.
    pub commit: String,
}

/// Directories of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// The workspace itself.
    pub root: PathBuf,
    /// Where commands start.
    pub work: PathBuf,
    /// Home directory.
    pub home: PathBuf,
    /// Temporary directory.
    pub tmp: PathBuf,
    /// Python environment.
    pub venv: PathBuf,
}

impl Paths {
    fn new(workspaces: &Path, id: &WorkspaceId) -> Self {
        let root = workspaces.join(id.as_str());
        Self {
            work: root.join("work"),
            home: root.join("home"),
            tmp: root.join("tmp"),
            venv: root.join("venv"),
            root,
        }
    }

    /// Those of a sandbox whose jobs see them at other places of a root of their own.
    fn beneath(root: &Path) -> Self {
        let home = root.join(HOME_BENEATH);
        let (tmp, venv) = (root.join(TMP_BENEATH), root.join("venv"));
        Self { work: home.clone(), home, tmp, venv, root: root.to_owned() }
    }

    /// Those of a sandbox with an overlay, which is kept in `place`.
    fn of_overlay(place: &Path) -> Self {
        Self { root: place.to_owned(), ..Self::beneath(&place.join(enclosure::UPPER)) }
    }

    /// What its jobs see of them.
    fn seen_in_sandbox() -> Self {
        Self {
            root: "/".into(),
            work: sandbox::HOME.into(),
            home: sandbox::HOME.into(),
            tmp: sandbox::TMP.into(),
            venv: "/venv".into(),
        }
    }
}

/// All workspaces of a data root.
#[derive(Debug)]
pub struct Workspaces {
    store: Store,
    root: Arc<DataRoot>,
    identity: Identity,
    spawner: Arc<Spawner>,
    search_path: Vec<PathBuf>,
    python: Arc<Python>,
    reserve_bytes: u64,
    clone_limit: Duration,
    git_env: BTreeMap<String, String>,
    enclosure: Arc<Enclosure>,
    tasks: TaskTracker,
    stopping: CancellationToken,
    known: Mutex<HashMap<WorkspaceId, Arc<Entry>>>,
}

/// A workspace and the gate through which work enters it.
#[derive(Debug)]
struct Entry {
    workspace: Mutex<Arc<Workspace>>,
    /// Its files: of a sandbox that has a root of its own, those that its processes see, as soon as it runs.
    root: Mutex<Arc<Root>>,
    /// Held for reading while something starts in the workspace or touches its files, for writing when it is closed
    /// for good. It is held across awaits: that is its purpose.
    gate: Arc<tokio::sync::RwLock<()>>,
    /// Ends the making of the workspace.
    abandoned: CancellationToken,
    /// What runs the jobs of a sandbox that has a root of its own.
    running: Mutex<Option<Arc<Running>>>,
    /// Held while that is started.
    starting: tokio::sync::Mutex<()>,
    /// Whether they stand still.
    still: watch::Sender<bool>,
}

/// Leave to use a workspace. It can't be deleted while this is held.
#[derive(Debug)]
pub struct Lease {
    /// The workspace.
    pub workspace: Arc<Workspace>,
    /// Its files.
    pub root: Arc<Root>,
    /// Starts its processes.
    pub spawner: Arc<Spawner>,
    /// Where the kernel tells of want of memory of its processes, if it has limits of its own.
    pub memory: Option<Arc<Memory>>,
    /// Whether a sandbox stands still, for what counts its time.
    pub still: Option<watch::Receiver<bool>>,
    /// Cancelled when the workspace is to be deleted, which then waits for this lease: what takes long gives up.
    pub closing: CancellationToken,
    running: Option<Arc<Running>>,
    _gate: tokio::sync::OwnedRwLockReadGuard<()>,
}

impl Lease {
    /// What makes terminals that its jobs know by name, where they have a root of their own.
    pub fn terminal_multiplexer(&self) -> Result<Option<OwnedFd>> {
        self.running.as_ref().map(|running| running.terminal_multiplexer()).transpose()
    }
}

/// What the manager is made of.
pub struct Parts {
    /// The records.
    pub store: Store,
    /// The data root.
    pub root: Arc<DataRoot>,
    /// Who jobs run as.
    pub identity: Identity,
    /// Threads with the jobs' file rights.
    pub workers: Workers,
    /// Starts processes.
    pub spawner: Arc<Spawner>,
    /// Where jobs find programs.
    pub search_path: Vec<PathBuf>,
    /// Bytes of the disk that stay free.
    pub reserve_bytes: u64,
    /// Longest time a clone may take.
    pub clone_limit: Duration,
    /// Variables for git, such as those that name a proxy or a private certificate authority.
    pub git_env: BTreeMap<String, String>,
    /// What gives sandboxes a root of their own.
    pub enclosure: Enclosure,
    /// Where work that outlives its caller is tracked.
    pub tasks: TaskTracker,
    /// Cancelled when the executor stops: nothing is made from then on.
    pub stopping: CancellationToken,
}

impl Workspaces {
    /// Takes up the workspaces on record. What was half made or half removed is removed.
    pub async fn load(parts: Parts) -> Result<Self> {
        let Parts {
            store,
            root,
            identity,
            workers,
            spawner,
            search_path,
            reserve_bytes,
            clone_limit,
            git_env,
            enclosure,
            tasks,
            stopping,
        } = parts;
        let python = Arc::new(Python::new(
            &root,
            identity.clone(),
            workers,
            Arc::clone(&spawner),
            search_path.clone(),
        ));
        let this = Self {
            store,
            root,
            identity,
            spawner,
            search_path,
            python,
            reserve_bytes,
            clone_limit,
            git_env,
            enclosure: Arc::new(enclosure),
            tasks,
            stopping,
            known: Mutex::new(HashMap::new()),
        };
        let suspended = this.store.suspended_sandboxes().await?;
        let encloses = this.enclosure.encloses_workspaces().await;
        for row in this.store.workspaces().await? {
            let id = row.workspace_id.clone();
            let found = record::from_row(row, &this.root.workspaces);
            match found.and_then(|workspace| this.outlives(workspace, &suspended, encloses)) {
                Some(workspace) => drop(this.adopt(workspace)?),
                None => {
                    if let Some(id) = WorkspaceId::parse(&id) {
                        let paths = Paths::new(&this.root.workspaces, &id);
                        removal::remove(&this.root.trash, &paths.root).await?;
                    }
                    this.store.remove_workspace(id).await?;
                }
            }
        }
        removal::clear(&this.root, &this.known_ids()).await?;
        Ok(this)
    }

    /// What of a workspace on record is there after its executor ended; of sandboxes those that were suspended.
    fn outlives(&self, mut workspace: Workspace, suspended: &[String], encloses: bool) -> Option<Workspace> {
        if workspace.sandbox {
            if !suspended.iter().any(|id| id == workspace.id.as_str()) {
                return None;
            }
            (workspace.paths, workspace.seen) = self.enclosure.left(&workspace.id)?;
        }
        let usable = workspace.state == State::Ready && workspace.paths.root.is_dir();
        workspace.enclosed = workspace.has_own_root() || encloses;
        let state = if workspace.sandbox { State::Suspended } else { State::Ready };
        usable.then_some(Workspace { state, ..workspace })
    }

    /// The Python environments' template.
    pub fn python(&self) -> Arc<Python> {
        Arc::clone(&self.python)
    }

    fn adopt(&self, workspace: Workspace) -> Result<Arc<Entry>> {
        let directory = open_directory(&workspace.paths.root)?;
        let root = Root::new(directory, &workspace.paths.root);
        let id = workspace.id.clone();
        let entry = Arc::new(Entry {
            workspace: Mutex::new(Arc::new(workspace)),
            root: Mutex::new(Arc::new(root)),
            gate: Arc::default(),
            abandoned: self.stopping.child_token(),
            running: Mutex::default(),
            starting: tokio::sync::Mutex::default(),
            still: watch::Sender::new(false),
        });
        self.lock().insert(id, Arc::clone(&entry));
        Ok(entry)
    }

    /// Living workspaces, newest first.
    pub fn list(&self) -> Vec<Arc<Workspace>> {
        let mut all: Vec<Arc<Workspace>> = self.lock().values().map(|entry| entry.now()).collect();
        all.sort_by_key(|workspace| std::cmp::Reverse(workspace.seq));
        all
    }

    /// The workspace with this id or name.
    pub fn get(&self, id_or_name: &str) -> Result<Arc<Workspace>> {
        Ok(self.entry(id_or_name)?.now())
    }

    /// Leave to use a workspace.
    pub async fn enter(&self, id_or_name: &str) -> Result<Lease> {
        let entry = self.entry(id_or_name)?;
        let gate = Arc::clone(&entry.gate).read_owned().await;
        let workspace = entry.now();
        match workspace.state {
            State::Ready => {}
            State::Suspended => {
                return Err(Error::SandboxSuspended { sandbox_id: workspace.id.to_string() });
            }
            State::Creating => {
                return Err(Error::WorkspaceNotReady { workspace_id: workspace.id.to_string() });
            }
            State::Failed => {
                let why = workspace.notes.join("; ");
                return Err(Error::invalid(
                    "workspace_id",
                    format!("{} could not be made: {why}", workspace.id),
                ));
            }
            State::Deleting => return Err(Error::WorkspaceNotFound { workspace_id: id_or_name.to_owned() }),
        }
        let closing = entry.abandoned.clone();
        let running = self.running(&entry, &workspace).await?;
        let spawner = running.as_ref().map_or(&self.spawner, |running| &running.spawner);
        let spawner = Arc::clone(spawner);
        let memory = running.as_ref().and_then(|running| running.memory.clone());
        let still = workspace.sandbox.then(|| entry.still.subscribe());
        Ok(Lease { workspace, root: entry.root(), spawner, memory, still, closing, running, _gate: gate })
    }

    /// Closes a workspace for good: once this returns nothing starts in it any more.
    pub async fn close(&self, id_or_name: &str) -> Result<Arc<Workspace>> {
        let entry = self.entry(id_or_name)?;
        entry.abandoned.cancel();
        let _closed = entry.gate.write().await;
        let workspace = entry.now();
        if workspace.state == State::Deleting {
            return Err(Error::WorkspaceNotFound { workspace_id: id_or_name.to_owned() });
        }
        self.store.retire_workspace(workspace.id.as_str().to_owned()).await?;
        entry.set(Workspace { state: State::Deleting, name: None, ..(*workspace).clone() });
        Ok(workspace)
    }

    /// Takes up again a workspace that was closed, because it could not be removed.
    pub fn reopen(&self, workspace: &Workspace) {
        if let Ok(entry) = self.entry(workspace.id.as_str()) {
            entry.set(workspace.clone());
        }
    }

    /// Removes a workspace that was closed and whose processes are gone; returns the bytes freed.
    pub async fn remove(&self, workspace: &Workspace) -> Result<u64> {
        self.end_processes(&workspace.id).await;
        let bytes = self.remove_files(workspace).await?;
        self.store.remove_workspace(workspace.id.as_str().to_owned()).await?;
        self.lock().remove(&workspace.id);
        Ok(bytes)
    }

    /// Removes what is on the disk; returns the bytes freed.
    async fn remove_files(&self, workspace: &Workspace) -> Result<u64> {
        let own = removal::remove(&self.root.trash, &workspace.paths.root).await?;
        let changed = removal::remove(&self.root.trash, &self.root.sandbox(&workspace.id)).await?;
        Ok(own + changed)
    }

    /// What gives sandboxes a root of their own.
    pub fn enclosure(&self) -> &Enclosure {
        &self.enclosure
    }

    /// Bytes of a workspace on disk; the second value is true when counting stopped at its limit of time.
    pub async fn disk_bytes(&self, workspace: &Workspace) -> Result<(u64, bool)> {
        removal::disk_bytes(workspace.paths.root.clone()).await
    }

    /// State of the working tree; `None` where the work directory is no repository, or is not ready.
    pub async fn git_status(&self, workspace: &Arc<Workspace>) -> Result<Option<GitStatus>> {
        if workspace.state != State::Ready {
            return Ok(None);
        }
        // What a repository has git run, as filters, is to run where its commands do.
        let Ok(entry) = self.entry(workspace.id.as_str()) else { return Ok(None) };
        // While it is closed for a snapshot, or for good, nobody can look.
        let Ok(_gate) = entry.gate.try_read() else { return Ok(None) };
        if entry.now().state != State::Ready {
            return Ok(None);
        }
        let own = self.running(&entry, workspace).await?;
        if workspace.enclosed && own.is_none() {
            return Ok(None);
        }
        let spawner = own.as_ref().map_or(&self.spawner, |own| &own.spawner);
        git::status(spawner, &self.search_path, &workspace.seen).await
    }

    fn of_request(&self, principal: &str, request_id: Option<&str>) -> Option<Arc<Workspace>> {
        let request_id = request_id?;
        let made_by = |workspace: &Arc<Workspace>| {
            workspace.principal == principal && workspace.request_id.as_deref() == Some(request_id)
        };
        self.lock().values().map(|entry| entry.now()).find(made_by)
    }

    fn entry(&self, id_or_name: &str) -> Result<Arc<Entry>> {
        let known = self.lock();
        let found = match WorkspaceId::parse(id_or_name) {
            Some(id) => known.get(&id).cloned(),
            None => known.values().find(|entry| entry.now().name.as_deref() == Some(id_or_name)).cloned(),
        };
        found.ok_or_else(|| Error::WorkspaceNotFound { workspace_id: id_or_name.chars().take(80).collect() })
    }

    fn known_ids(&self) -> Vec<WorkspaceId> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<WorkspaceId, Arc<Entry>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn now(&self) -> Arc<Workspace> {
        Arc::clone(&self.workspace.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn root(&self) -> Arc<Root> {
        Arc::clone(&self.root.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes up a sandbox with a root of its own that runs.
    fn runs(&self, running: Running) -> Result<()> {
        let root = running.root().map_err(|error| Error::internal("opening the root of a sandbox", error))?;
        let root = Arc::new(Root::of_sandbox(root, HOME_BENEATH));
        *self.root.lock().unwrap_or_else(PoisonError::into_inner) = root;
        *self.running() = Some(Arc::new(running));
        Ok(())
    }

    /// Ends all processes of a sandbox that has a root of its own.
    async fn end_running(&self) {
        let running = self.running().take();
        if let Some(running) = running {
            running.end().await;
        }
    }

    fn running(&self) -> MutexGuard<'_, Option<Arc<Running>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, workspace: Workspace) {
        *self.workspace.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(workspace);
    }
}

fn open_directory(path: &Path) -> Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    rustix::fs::open(
        path,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(|error| Error::internal(format!("opening {}", path.display()), error))
}
