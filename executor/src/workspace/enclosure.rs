//! What gives sandboxes a root of their own, where the machine allows that. It is found out once, by starting one.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::OnceCell;

use super::Workspace;
use super::create::Network;
use crate::config::Config;
use crate::data_root::DataRoot;
use crate::error::{Error, Result};
use crate::process::identity::Identity;
use crate::process::sandbox::{Plan, Running, find_bubblewrap};

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
    /// bubblewrap, or why it can't be used.
    found: OnceCell<std::result::Result<PathBuf, String>>,
}

impl Enclosure {
    /// As the settings want it. Jobs find programs in `search_path`, and bubblewrap is looked for there.
    pub fn of_machine(
        config: &Config,
        root: Arc<DataRoot>,
        identity: Identity,
        search_path: Vec<PathBuf>,
    ) -> Self {
        let socket_directory = config.socket.parent().and_then(|parent| parent.canonicalize().ok());
        // An ordinary user's home is open to whatever runs as that user; root's is not to the jobs' user.
        let home = std::env::home_dir().filter(|_| !identity.switch);
        let hidden =
            socket_directory.into_iter().chain(home).filter(|directory| directory.parent().is_some());
        let (hidden, refused) = (hidden.collect(), config.isolation == "none");
        Self { identity, root, hidden, search_path, refused, found: OnceCell::new() }
    }

    /// The bubblewrap that it works with, or a sentence that says why it does not.
    pub async fn usable(&self) -> std::result::Result<&Path, &str> {
        let found = self.found.get_or_init(|| self.find()).await;
        found.as_ref().map(PathBuf::as_path).map_err(String::as_str)
    }

    async fn find(&self) -> std::result::Result<PathBuf, String> {
        if self.refused {
            return Err("RUNLET_ISOLATION is none".to_owned());
        }
        let bubblewrap = find_bubblewrap(&self.search_path).await?;
        let place = self.root.sandboxes.join(TRIAL);
        let tried = self.try_once(&bubblewrap, &place).await.map_err(|error| error.to_string());
        let _removed = fs::remove_dir_all(&place);
        tried.map(|()| bubblewrap)
    }

    async fn try_once(&self, bubblewrap: &Path, place: &Path) -> Result<()> {
        let plan = self.plan(
            bubblewrap,
            place,
            (&place.join("home"), &place.join("tmp")),
            TRIAL,
            Network::Loopback,
        )?;
        for path in [&plan.home, &plan.tmp] {
            make(path)?;
        }
        Running::start(&plan, &self.identity).await?.end().await;
        Ok(())
    }

    /// Starts the sandbox of a workspace whose directories are there.
    pub(super) async fn start(&self, workspace: &Workspace, network: Network) -> Result<Running> {
        let bubblewrap =
            self.usable().await.map_err(|why| Error::internal("starting a sandbox", why.to_owned()))?;
        let place = self.root.sandbox(&workspace.id);
        let hostname = workspace.id.as_str().replace('_', "-");
        let paths = (workspace.paths.home.as_path(), workspace.paths.tmp.as_path());
        Running::start(&self.plan(bubblewrap, &place, paths, &hostname, network)?, &self.identity).await
    }

    fn plan(
        &self,
        bubblewrap: &Path,
        place: &Path,
        (home, tmp): (&Path, &Path),
        hostname: &str,
        network: Network,
    ) -> Result<Plan> {
        let (upper, scratch) = (place.join("upper"), place.join("scratch"));
        for path in [place, &upper, &scratch] {
            make(path)?;
        }
        Ok(Plan {
            bubblewrap: bubblewrap.to_owned(),
            upper,
            scratch,
            home: home.to_owned(),
            tmp: tmp.to_owned(),
            hidden: std::iter::once(self.root.path.clone()).chain(self.hidden.iter().cloned()).collect(),
            hostname: hostname.to_owned(),
            network: network == Network::Machine,
            outside: self.identity.switch.then_some((self.identity.uid, self.identity.gid)),
        })
    }
}

fn make(path: &Path) -> Result<()> {
    let failed = |error: std::io::Error| Error::internal(format!("making {}", path.display()), error);
    fs::create_dir_all(path).map_err(failed)?;
    // The upper directory is the root that the sandbox sees.
    fs::set_permissions(path, Permissions::from_mode(0o755)).map_err(failed)
}
