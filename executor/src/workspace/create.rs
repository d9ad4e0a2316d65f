//! Making workspaces: their record, directories, clone and Python environment. Making one goes on when the caller goes
//! away, and ends when somebody deletes it or the executor stops.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::python::Template;
use super::{Entry, GitSource, Paths, State, Workspace, Workspaces, environment, git, record};
use crate::error::{Error, Result};
use crate::id::WorkspaceId;
use crate::process::copy::copy_directory;
use crate::store::is_conflict;

/// Longest name of a workspace.
const MAX_NAME: usize = 64;

/// What a workspace is made with, besides its directories.
struct Furniture {
    source: Option<git::Checked>,
    python: bool,
    sandbox: Option<SandboxStart>,
}

/// What to make.
#[derive(Debug, Clone, Default)]
pub struct NewWorkspace {
    /// Who asks.
    pub principal: String,
    /// Id of the request, if any.
    pub request_id: Option<String>,
    /// Name, if any.
    pub name: Option<String>,
    /// What to clone, if anything.
    pub git: Option<GitSource>,
    /// Variables for every command.
    pub env: BTreeMap<String, String>,
    /// Whether to make a Python environment.
    pub python: bool,
    /// How it starts, where it is a sandbox.
    pub sandbox: Option<SandboxStart>,
}

/// What a sandbox starts with.
#[derive(Debug, Clone)]
pub struct SandboxStart {
    /// What it reaches.
    pub network: Network,
    /// What others left that it begins with, the last one uppermost.
    pub layers: Vec<PathBuf>,
}

/// What a sandbox reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// What the machine does.
    Machine,
    /// Itself.
    Loopback,
}

impl Workspaces {
    /// Makes a workspace; a request seen before returns the workspace it made. What takes longer than `patience` goes on,
    /// and the workspace is returned as it is by then. Making it goes on too when the caller goes away.
    pub async fn create(self: &Arc<Self>, new: NewWorkspace, patience: Duration) -> Result<Arc<Workspace>> {
        check_name(new.name.as_deref())?;
        environment::check(&new.env)?;
        let source = new.git.map(git::Checked::new).transpose()?;
        if self.stopping.is_cancelled() {
            return Err(Error::ShuttingDown);
        }
        if let Some(known) = self.of_request(&new.principal, new.request_id.as_deref()) {
            return Ok(known);
        }
        let id = WorkspaceId::generate()?;
        let enclosed = if new.sandbox.is_some() { self.enclosure.usable().await.ok() } else { None };
        let paths = match enclosed {
            Some(found) => self.enclosure.paths(found, &id),
            None => Paths::new(&self.root.workspaces, &id),
        };
        let workspace = Workspace {
            seq: 0,
            name: new.name,
            state: State::Creating,
            principal: new.principal,
            request_id: new.request_id,
            created: OffsetDateTime::now_utc(),
            git: None,
            python_version: None,
            env: new.env,
            notes: Vec::new(),
            sandbox: new.sandbox.is_some(),
            seen: if enclosed.is_some() { Paths::seen_in_sandbox() } else { paths.clone() },
            enclosed: enclosed.is_some()
                || (new.sandbox.is_none() && self.enclosure.encloses_workspaces().await),
            paths,
            id: id.clone(),
        };
        let (told, outcome) = oneshot::channel();
        self.tasks.spawn(Arc::clone(self).make(
            workspace,
            Furniture { source, python: new.python, sandbox: new.sandbox },
            told,
        ));
        match tokio::time::timeout(patience, outcome).await {
            Err(_elapsed) => self.get(id.as_str()),
            Ok(told) => told.map_err(|error| Error::internal("making a workspace", error))?,
        }
    }

    /// Makes a workspace and tells the caller. When it can't be made, nothing of it stays if the caller learns why; else it
    /// stays as failed, with the reason among its notes, until somebody who has read it deletes it.
    async fn make(
        self: Arc<Self>,
        mut workspace: Workspace,
        furniture: Furniture,
        told: oneshot::Sender<Result<Arc<Workspace>>>,
    ) {
        let begun = async {
            workspace.seq = self.insert(&workspace).await?;
            match self.begin(&workspace).await {
                Ok(entry) => Ok(entry),
                Err(error) => {
                    self.forget(&workspace).await;
                    Err(error)
                }
            }
        };
        let entry = match begun.await {
            Ok(entry) => entry,
            Err(error) => {
                let _nobody_listens = told.send(Err(error)).is_err();
                return;
            }
        };
        let _gate = entry.gate.read().await;
        let made = self.finish(&entry, workspace, furniture).await;
        if made.is_err() && !told.is_closed() {
            self.forget(&entry.now()).await;
        }
        let _nobody_listens = told.send(made.map(|()| entry.now())).is_err();
    }

    /// Makes the directories and takes the workspace up as one that is being made.
    async fn begin(&self, workspace: &Workspace) -> Result<Arc<Entry>> {
        match self.enclosure.usable().await {
            Ok(found) if workspace.has_own_root() => {
                self.enclosure.make_directories(found, &workspace.paths)?;
            }
            _ => self.make_directories(&workspace.paths)?,
        }
        self.adopt(workspace.clone())
    }

    /// Furnishes a workspace and records what became of it.
    async fn finish(&self, entry: &Entry, mut workspace: Workspace, furniture: Furniture) -> Result<()> {
        // Not dropped when it is abandoned: it ends by itself, and then nothing writes into the directories any more.
        let furnished = match self.furnish(&mut workspace, furniture, entry).await {
            _ if self.stopping.is_cancelled() => Err(Error::ShuttingDown),
            _ if entry.abandoned.is_cancelled() => {
                Err(Error::WorkspaceNotFound { workspace_id: workspace.id.to_string() })
            }
            furnished => furnished,
        };
        workspace.state = if furnished.is_ok() { State::Ready } else { State::Failed };
        if let Err(error) = &furnished {
            workspace.notes.push(error.to_string());
        }
        let recorded = self.store.finish_workspace(record::to_row(&workspace)).await;
        entry.set(workspace);
        furnished.and(recorded)
    }

    /// Removes what was made of a workspace that nobody wants. A rest on the disk goes at the next start.
    async fn forget(&self, workspace: &Workspace) {
        let entry = self.lock().remove(&workspace.id);
        if let Some(entry) = entry {
            entry.end_running().await;
        }
        let _removed = self.remove_files(workspace).await;
        let _forgotten = self.store.remove_workspace(workspace.id.as_str().to_owned()).await;
    }

    async fn insert(&self, workspace: &Workspace) -> Result<i64> {
        match self.store.insert_workspace(record::to_row(workspace)).await {
            Err(error) if is_conflict(&error) => {
                let name = workspace.name.clone().unwrap_or_default();
                let rows = self.store.workspaces().await?;
                match rows.into_iter().find(|row| row.name.as_ref() == Some(&name)) {
                    Some(row) => Err(Error::WorkspaceExists { name, workspace_id: row.workspace_id }),
                    None => Err(Error::invalid(
                        "request_id",
                        "the first request with this id is still being worked on",
                    )),
                }
            }
            other => other,
        }
    }

    async fn furnish(
        &self,
        workspace: &mut Workspace,
        Furniture { source, python, sandbox }: Furniture,
        entry: &Entry,
    ) -> Result<()> {
        let abandoned = &entry.abandoned;
        if let Some(start) = sandbox {
            if self.enclosure.form().await.is_whole() {
                for layer in &start.layers {
                    copy_directory(layer, &workspace.paths.root).await?;
                }
            }
            match self.enclosure.usable().await {
                Ok(found) => {
                    entry.runs(self.enclosure.start(workspace, &start).await?)?;
                    workspace.notes.extend(found.gap.clone());
                    workspace.notes.extend(self.enclosure.unlimited());
                }
                Err(why) => workspace.notes.push(format!(
                    "no isolation: {why}. Commands run in a plain directory of the machine, with relative paths"
                )),
            }
        }
        if let Some(source) = source {
            let cloner = git::Cloner {
                spawner: &self.spawner,
                search_path: &self.search_path,
                env: &self.git_env,
                limit: self.clone_limit,
                abandoned,
            };
            let cloned = cloner.clone_into(&workspace.paths, source).await?;
            workspace.git = Some(cloned.git);
            workspace.notes.extend(cloned.notes);
        }
        if python {
            let furnished = match self.template(abandoned).await {
                Ok(template) => self.python.furnish(&template, &workspace.paths).await,
                Err(error) => Err(error),
            };
            self.restock();
            match furnished {
                Ok(version) => workspace.python_version = Some(version),
                Err(error @ Error::ProgramMissing { .. }) => {
                    workspace.notes.push(format!("no Python environment: {error}"));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Fills the stock of Python environments, for the next workspace.
    fn restock(&self) {
        let (python, stopping) = (Arc::clone(&self.python), self.stopping.clone());
        self.tasks.spawn(async move {
            let filled = tokio::select! {
                filled = python.fill_stock() => filled,
                () = stopping.cancelled() => Ok(()),
            };
            if let Err(error) = filled {
                tracing::warn!(error = %error, cause = ?error, "no Python environment could be put in stock");
            }
        });
    }

    /// The template of Python environments. Making it goes on when this workspace is abandoned, for others wait for it too.
    async fn template(&self, abandoned: &CancellationToken) -> Result<Template> {
        let (python, stopping) = (Arc::clone(&self.python), self.stopping.clone());
        let making = self.tasks.spawn(async move {
            tokio::select! {
                template = python.template() => template.cloned(),
                () = stopping.cancelled() => Err(Error::ShuttingDown),
            }
        });
        tokio::select! {
            made = making => made.map_err(|error| Error::internal("making the Python template", error))?,
            () = abandoned.cancelled() => Err(Error::ShuttingDown),
        }
    }

    /// The directories belong to the jobs' user; nobody else may enter.
    fn make_directories(&self, paths: &Paths) -> Result<()> {
        for path in [&paths.root, &paths.work, &paths.home, &paths.tmp] {
            let failed = |error: std::io::Error| Error::internal(format!("making {}", path.display()), error);
            fs::DirBuilder::new().recursive(path != &paths.root).create(path).map_err(failed)?;
            fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(failed)?;
        }
        // The root last: until then the jobs' user can't reach what is being made below it.
        if self.identity.switch {
            for path in [&paths.work, &paths.home, &paths.tmp, &paths.root] {
                std::os::unix::fs::lchown(path, Some(self.identity.uid), Some(self.identity.gid)).map_err(
                    |error| Error::internal(format!("giving {} to the jobs' user", path.display()), error),
                )?;
            }
        }
        Ok(())
    }
}

pub(crate) fn check_name(name: Option<&str>) -> Result<()> {
    let Some(name) = name else { return Ok(()) };
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(allowed) || name.starts_with(['.', '-'])
    {
        return Err(Error::invalid(
            "name",
            format!(
                "a name has 1 to {MAX_NAME} of the characters A-Z a-z 0-9 . _ - and starts with none of . -; got '{}'",
                name.chars().take(80).collect::<String>()
            ),
        ));
    }
    if WorkspaceId::parse(name).is_some() {
        return Err(Error::invalid("name", "a name can't have the form of an id"));
    }
    Ok(())
}
