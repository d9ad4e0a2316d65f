//! What gives sandboxes a root of their own, where the machine allows that. It is found out once, by starting one.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OnceCell;

use super::create::{Network, SandboxStart};
use super::{Paths, Workspace};
use crate::config::Config;
use crate::data_root::DataRoot;
use crate::error::{Error, Result};
use crate::id::WorkspaceId;
use crate::process::cgroup::{Limits, Quotas};
use crate::process::identity::Identity;
use crate::process::sandbox::{
    Disk, Fence, Overlay, Plan, Preparation, Prepared, Running, Users, find_bubblewrap,
};

/// Name under which it is tried at the start, beside those of sandboxes.
const TRIAL: &str = "trial";

/// What gives sandboxes a root of their own.
#[derive(Debug)]
pub struct Enclosure {
    identity: Identity,
    root: Arc<DataRoot>,
    /// Directories of the executor's own besides the data root.
    hidden: Vec<PathBuf>,
    search_path: Vec<PathBuf>,
    /// Whether sandboxes are to be plain directories, whatever the machine allows.
    refused: bool,
    /// Whether workspaces are kept apart as well.
    of_workspaces: bool,
    quotas: Arc<Quotas>,
    stock: Mutex<Stock>,
    /// Number of the next control group.
    groups: AtomicU64,
    found: OnceCell<std::result::Result<Found, String>>,
}

/// What was prepared for the next sandbox, so that it starts in less time.
#[derive(Debug, Default)]
struct Stock {
    prepared: Option<Prepared>,
    /// Nothing is prepared any more.
    closed: bool,
}

/// What was found to work.
#[derive(Debug, Clone)]
pub struct Found {
    bubblewrap: PathBuf,
    form: Form,
    /// What a sandbox can't do here, in a sentence; none where there is nothing.
    pub gap: Option<String>,
}

/// What a sandbox sees of the machine's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// An overlay over its system.
    Overlay(Users),
    /// Its root, to be read only, with its own home.
    ReadOnly,
}

/// How a sandbox's own files are kept. What was saved of one form is nothing for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskForm {
    /// What it changed of the machine's system, by users of its own.
    Mapped,
    /// The same, by one user.
    Overlay,
    /// Its home and `/tmp`.
    Home,
    /// The directory of a workspace.
    Directory,
}

impl DiskForm {
    /// Its name in records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mapped => "mapped overlay",
            Self::Overlay => "overlay",
            Self::Home => "home",
            Self::Directory => "directory",
        }
    }

    /// Whether what is saved of it is all there is, and not only what was changed of what it began with.
    pub const fn is_whole(self) -> bool {
        matches!(self, Self::Home | Self::Directory)
    }
}

impl Enclosure {
    /// As the settings want it. Jobs find programs in `search_path`, and bubblewrap is looked for there.
    pub fn of_machine(
        config: &Config,
        root: Arc<DataRoot>,
        identity: Identity,
        search_path: Vec<PathBuf>,
        quotas: Arc<Quotas>,
    ) -> Self {
        let socket_directory = config.socket.parent().and_then(|parent| parent.canonicalize().ok());
        // An ordinary user's home is open to whatever runs as that user; root's is not to the jobs' user.
        let home = std::env::home_dir().filter(|_| !identity.switch);
        let hidden =
            socket_directory.into_iter().chain(home).filter(|directory| directory.parent().is_some());
        let (hidden, refused) = (hidden.collect(), config.isolation == "none");
        Self {
            identity,
            root,
            hidden,
            search_path,
            refused,
            of_workspaces: config.isolate_workspaces,
            quotas,
            stock: Mutex::default(),
            groups: AtomicU64::new(0),
            found: OnceCell::new(),
        }
    }

    /// How it works here, or a sentence that says why it does not.
    pub async fn usable(&self) -> std::result::Result<&Found, &str> {
        self.found.get_or_init(|| self.find()).await.as_ref().map_err(String::as_str)
    }

    async fn find(&self) -> std::result::Result<Found, String> {
        if self.refused {
            return Err("RUNLET_ISOLATION is none".to_owned());
        }
        let bubblewrap = find_bubblewrap(&self.search_path).await?;
        let (uid, gid) = (self.identity.uid, self.identity.gid);
        let forms = if rustix::process::geteuid().is_root() {
            [true, false].map(|many| Form::Overlay(Users::of_jobs(uid, gid, many))).to_vec()
        } else {
            vec![Form::ReadOnly]
        };
        let mut why = None;
        for form in forms {
            let gap = match (form, &why) {
                (Form::ReadOnly, _) => Some(
                    "sandboxes can't change the machine's system, as by installing packages: the executor is not root"
                        .to_owned(),
                ),
                (Form::Overlay(_), Some(why)) => {
                    Some(format!("packages of the system can't be installed in sandboxes: {why}"))
                }
                (Form::Overlay(_), None) => None,
            };
            let found = Found { bubblewrap: bubblewrap.clone(), form, gap };
            match self.try_once(&found).await {
                Ok(()) => return Ok(found),
                Err(error) => why = Some(causes(&error)),
            }
        }
        Err(why.unwrap_or_default())
    }

    async fn try_once(&self, found: &Found) -> Result<()> {
        let place = self.root.sandboxes.join(TRIAL);
        let paths = match found.form {
            Form::Overlay(_) => Paths::of_overlay(&place),
            Form::ReadOnly => Paths::beneath(&place),
        };
        let start = SandboxStart { network: Network::Loopback, layers: Vec::new() };
        let tried = async {
            self.make_directories(found, &paths)?;
            self.run(found, &paths, TRIAL, &start, Vec::new()).await?.end().await;
            Ok(())
        };
        let tried = tried.await;
        let _removed = fs::remove_dir_all(&place);
        tried
    }

    /// How sandboxes' own files are kept here.
    pub async fn form(&self) -> DiskForm {
        match self.usable().await.map(|found| found.form) {
            Ok(Form::Overlay(users)) if users.many => DiskForm::Mapped,
            Ok(Form::Overlay(_)) => DiskForm::Overlay,
            Ok(Form::ReadOnly) => DiskForm::Home,
            Err(_) => DiskForm::Directory,
        }
    }

    /// The directories of a sandbox, which are not made by this.
    pub(super) fn paths(&self, found: &Found, id: &WorkspaceId) -> Paths {
        match found.form {
            Form::Overlay(_) => Paths::of_overlay(&self.root.sandbox(id)),
            Form::ReadOnly => Paths::beneath(&self.root.workspaces.join(id.as_str())),
        }
    }

    /// The directories that a sandbox of this id has on the disk, and what its jobs see of them.
    pub(super) fn left(&self, id: &WorkspaceId) -> Option<(Paths, Paths)> {
        let overlay = Paths::of_overlay(&self.root.sandbox(id));
        let other = Paths::beneath(&self.root.workspaces.join(id.as_str()));
        // What is further inside is the sandbox's own, which may have removed it.
        let found = [overlay, other].into_iter().find(|paths| paths.root.is_dir())?;
        Some((found, Paths::seen_in_sandbox()))
    }

    /// Starts the sandbox of a workspace.
    pub(super) async fn start(&self, workspace: &Workspace, start: &SandboxStart) -> Result<Running> {
        let found = self.found().await?;
        let running = self.run(found, &workspace.paths, &hostname(&workspace.id), start, Vec::new()).await;
        self.restock(found);
        running
    }

    /// Whether workspaces that are no sandboxes are kept apart too.
    pub(super) async fn encloses_workspaces(&self) -> bool {
        self.of_workspaces && self.usable().await.is_ok()
    }

    /// That they are not, though the setting wants it, and why, in a sentence.
    pub async fn unenclosed(&self) -> Option<String> {
        let why = if self.of_workspaces { self.usable().await.err()? } else { return None };
        Some(format!("workspaces are not kept apart, as RUNLET_ISOLATE_WORKSPACES wants: {why}"))
    }

    /// Starts what keeps a workspace apart that is no sandbox. Its directories are where they are outside.
    pub(super) async fn start_around(&self, workspace: &Workspace) -> Result<Running> {
        let found = self.found().await?;
        let paths = match found.form {
            Form::Overlay(_) => {
                let paths = self.paths(found, &workspace.id);
                // Once only, of which this is the last: what is in there later is the workspace's own, and may lead anywhere.
                if !paths.root.join(SCRATCH).is_dir() {
                    self.make_directories(found, &paths)?;
                }
                paths
            }
            Form::ReadOnly => workspace.paths.clone(),
        };
        let start = SandboxStart { network: Network::Machine, layers: Vec::new() };
        let own = vec![workspace.paths.root.clone()];
        let running = self.run(found, &paths, &hostname(&workspace.id), &start, own).await;
        self.restock(found);
        running
    }

    async fn found(&self) -> Result<&Found> {
        let found = self.usable().await;
        found.map_err(|why| Error::internal("starting a sandbox", why.to_owned()))
    }

    async fn run(
        &self,
        found: &Found,
        paths: &Paths,
        hostname: &str,
        start: &SandboxStart,
        own: Vec<PathBuf>,
    ) -> Result<Running> {
        let plan = self.plan(found, paths, hostname, start, own);
        let ready = self.stock().prepared.take();
        if let Some(ready) = ready
            && let Ok(running) = ready.enter(&plan).await
        {
            return Ok(running);
        }
        // What was prepared may have been killed since.
        self.prepare(found)?.enter(&plan).await
    }

    fn prepare(&self, found: &Found) -> Result<Prepared> {
        let (limits, number) = (&self.quotas.sandbox, self.groups.fetch_add(1, Ordering::Relaxed));
        let name = format!("sandbox-{number}");
        let made = self.quotas.group.as_ref().ok().map(|all| all.child(&name, limits)).transpose();
        let group = made.map_err(|error| Error::internal("making a control group", error))?;
        let fence = match &group {
            Some(group) => Fence::Group(group.entrances()),
            None => Fence::Processes { data: limits.memory_bytes, count: limits.processes },
        };
        let users = match found.form {
            Form::Overlay(users) => Some(users),
            Form::ReadOnly => None,
        };
        Prepared::start(&Preparation { fence, users }, group)
    }

    /// Prepares for the next one, if nothing is.
    fn restock(&self, found: &Found) {
        if self.stock().prepared.is_some() || self.stock().closed {
            return;
        }
        match self.prepare(found) {
            Ok(prepared) => {
                let mut stock = self.stock();
                let unneeded = if stock.closed { Some(prepared) } else { stock.prepared.replace(prepared) };
                drop(stock);
                if let Some(unneeded) = unneeded {
                    tokio::spawn(unneeded.end());
                }
            }
            Err(error) => {
                tracing::warn!(error = %error, cause = ?error, "can't prepare for the next sandbox")
            }
        }
    }

    /// Ends what was prepared; from now on nothing is.
    pub(super) async fn close(&self) {
        let prepared = {
            let mut stock = self.stock();
            stock.closed = true;
            stock.prepared.take()
        };
        if let Some(prepared) = prepared {
            prepared.end().await;
        }
    }

    fn stock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a sandbox may use.
    pub fn limits(&self) -> &Limits {
        &self.quotas.sandbox
    }

    /// What of that nothing enforces, and why, in a sentence; none where all is.
    pub fn unlimited(&self) -> Option<String> {
        let why = self.quotas.group.as_ref().err()?;
        Some(format!("memory is limited per process and processors are not limited: {why}"))
    }

    /// The same for jobs that are in no sandbox.
    pub fn unlimited_jobs(&self) -> Option<String> {
        let why = self.quotas.group.as_ref().err()?;
        Some(format!("memory, processors and processes of jobs are not limited: {why}"))
    }

    /// Makes the directories of a sandbox, as far as they are missing.
    pub(super) fn make_directories(&self, found: &Found, paths: &Paths) -> Result<()> {
        make(&paths.root, 0o700, None)?;
        match found.form {
            Form::Overlay(users) => {
                // The upper directory is the root that the sandbox sees; nobody else's files lie in it.
                let root = users.many.then_some(users);
                let upper = paths.root.join(UPPER);
                make(&upper, 0o755, root)?;
                make(&upper.join("home"), 0o755, root)?;
                make(&paths.home, 0o755, Some(users))?;
                make(&paths.tmp, 0o1777, Some(users))?;
                make(&paths.root.join(SCRATCH), 0o700, None)
            }
            Form::ReadOnly => {
                make(&paths.home, 0o755, None)?;
                make(&paths.tmp, 0o1777, None)
            }
        }
    }

    fn plan(
        &self,
        found: &Found,
        paths: &Paths,
        hostname: &str,
        start: &SandboxStart,
        own: Vec<PathBuf>,
    ) -> Plan {
        let disk = match found.form {
            Form::Overlay(_) => {
                let (upper, scratch) = (paths.root.join(UPPER), paths.root.join(SCRATCH));
                Disk::Overlay(Overlay { layers: start.layers.clone(), upper, scratch })
            }
            Form::ReadOnly => Disk::ReadOnly { home: paths.home.clone(), tmp: paths.tmp.clone() },
        };
        Plan {
            bubblewrap: found.bubblewrap.clone(),
            disk,
            hidden: std::iter::once(self.root.path.clone()).chain(self.hidden.iter().cloned()).collect(),
            own,
            hostname: hostname.to_owned(),
            network: start.network == Network::Machine,
        }
    }
}

/// Directory of an overlay that has what the sandbox changed.
pub(super) const UPPER: &str = "upper";

/// The kernel's own beside it.
const SCRATCH: &str = "scratch";

fn make(path: &Path, mode: u32, owner: Option<Users>) -> Result<()> {
    let failed = |error: std::io::Error| Error::internal(format!("making {}", path.display()), error);
    fs::create_dir_all(path).map_err(failed)?;
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed)?;
    match owner {
        Some(Users { uid, gid, .. }) => chown(path, Some(uid), Some(gid)).map_err(failed),
        None => Ok(()),
    }
}

/// What the machine is called inside.
fn hostname(id: &WorkspaceId) -> String {
    id.as_str().replace('_', "-")
}

/// An error with its causes, as one line.
fn causes(error: &Error) -> String {
    let first: &dyn std::error::Error = error;
    let all: Vec<String> =
        std::iter::successors(Some(first), |error| error.source()).map(ToString::to_string).collect();
    all.join(": ")
}
