//! Where the nouns meet: one machine with its workspaces, jobs and files. What concerns more than one of them, such as
//! deleting a workspace with its jobs, is done here.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::{OnceCell, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::data_root::DataRoot;
use crate::error::{Error, Result};
use crate::file::{Files, Limits};
use crate::id::{BlueprintId, JobId, TerminalId, WorkspaceId};
use crate::image::Images;
use crate::job::Jobs;
use crate::output::Caps;
use crate::process::capture::capture;
use crate::process::cgroup::Quotas;
use crate::process::identity::Identity;
use crate::process::lifetime::open_files_limit;
use crate::process::sandbox::Usage;
use crate::process::spawn::{Command, Spawner};
use crate::process::spawner::SpawnerHandle;
use crate::process::veil::Drawn;
use crate::process::workers::Workers;
use crate::resources::{Places, Resources};
use crate::retention::{self, Retention};
use crate::sandbox::{Blueprint, EndReason, Sandbox, Sandboxes};
use crate::store::Store;
use crate::terminal::Terminals;
use crate::timestamp;
use crate::transfer::{self, Transfers};
use crate::workspace::{self, Enclosure, State, Workspace, Workspaces, environment};

/// Descriptors of the executor itself, and those of one job or terminal: control socket, three pipes or the two sides of a
/// pseudo-terminal, a log or two.
const OWN_DESCRIPTORS: u64 = 96;
const DESCRIPTORS_OF_A_JOB: u64 = 6;

/// Time between TERM and KILL for the jobs of a workspace that is deleted.
const DELETE_GRACE: Duration = Duration::from_secs(2);

/// Longest look for what a crash left in one workspace, and how long the start waits for all of them.
const SWEEP_TIME: Duration = Duration::from_secs(2);
const SWEEP_PATIENCE: Duration = Duration::from_millis(100);

/// How often it is looked whether a sandbox's time is over.
const EXPIRY_PERIOD: Duration = Duration::from_secs(1);

/// Longest time for asking a program for its version.
const VERSION_LIMIT: Duration = Duration::from_secs(5);

/// Programs that agents ask for first.
const PROGRAMS: [&str; 6] = ["bash", "git", "node", "npm", "python3", "rg"];

/// The machine.
#[derive(Debug)]
pub struct Machine {
    /// Its workspaces.
    pub workspaces: Arc<Workspaces>,
    /// Its jobs.
    pub jobs: Arc<Jobs>,
    /// Its terminals.
    pub terminals: Arc<Terminals>,
    /// Its files.
    pub files: Files,
    /// Previews of its images.
    pub images: Images,
    /// Its sandboxes.
    pub sandboxes: Arc<Sandboxes>,
    /// Its downloads and uploads.
    pub transfers: Arc<Transfers>,
    /// The data root.
    pub root: Arc<DataRoot>,
    /// Who jobs run as.
    pub identity: Identity,
    /// What keeps jobs from the executor.
    pub drawn: Drawn,
    /// When this executor started.
    pub started: OffsetDateTime,
    /// How many jobs and terminals may live at once.
    pub job_limit: usize,
    /// The settings.
    pub config: Config,
    store: Store,
    spawner: Arc<Spawner>,
    search_path: Vec<std::path::PathBuf>,
    programs: OnceCell<BTreeMap<String, String>>,
    /// What the commands of blueprints print that are being built.
    builds: Mutex<HashMap<BlueprintId, watch::Receiver<String>>>,
    tasks: TaskTracker,
    stopping: CancellationToken,
}

/// What became of a deleted workspace.
#[derive(Debug)]
pub struct Deleted {
    /// Its id.
    pub workspace_id: WorkspaceId,
    /// Jobs that were running.
    pub ended_jobs: Vec<JobId>,
    /// Terminals that were open.
    pub ended_terminals: Vec<TerminalId>,
    /// Processes that earlier jobs had left.
    pub ended_processes: u32,
    /// Bytes freed.
    pub removed_bytes: u64,
    /// The sandbox that it was, if it was one.
    pub sandbox: Option<Arc<Sandbox>>,
}

impl Machine {
    /// Opens the records and takes up what the data root holds. Must be called within the runtime.
    pub async fn open(
        config: Config,
        root: Arc<DataRoot>,
        identity: Identity,
        quotas: Arc<Quotas>,
        spawner: SpawnerHandle,
    ) -> Result<Self> {
        let after_crash = Store::was_left_open(&root.records);
        let store = Store::open(&root.records)?;
        let drawn = spawner.drawn.clone();
        let spawner = Arc::new(Spawner::new(spawner)?);
        let workers = Workers::start(&identity)?;
        let search_path = environment::search_path(&config.search_path, &identity);
        let tasks = TaskTracker::new();
        let stopping = CancellationToken::new();
        let job_limit = job_limit(config.max_jobs);
        let workspaces = Workspaces::load(workspace::Parts {
            store: store.clone(),
            root: Arc::clone(&root),
            identity: identity.clone(),
            workers: workers.clone(),
            spawner: Arc::clone(&spawner),
            search_path: search_path.clone(),
            reserve_bytes: config.free_disk_bytes,
            clone_limit: Duration::from_secs(config.clone_seconds),
            git_env: config.git_env(),
            enclosure: Enclosure::of_machine(
                &config,
                Arc::clone(&root),
                identity.clone(),
                search_path.clone(),
                Arc::clone(&quotas),
            ),
            tasks: tasks.clone(),
            stopping: stopping.clone(),
        })
        .await?;
        let limits = Limits {
            max_bytes: config.max_file_bytes,
            reserve_bytes: config.free_disk_bytes,
            ..Limits::default()
        };
        let files = Files::new(workers, limits, tasks.clone());
        let images = Images::new(files.clone(), Arc::clone(&spawner))?;
        let resources = Resources {
            store: store.clone(),
            spawner: Arc::clone(&spawner),
            memory: Arc::new(quotas.memory_of_jobs()),
            files: files.clone(),
            identity: identity.clone(),
            search_path: search_path.clone(),
            logs: root.logs.clone(),
            caps: caps(config.job_log_bytes)?,
            places: Arc::new(Places::new(job_limit)),
            tasks: tasks.clone(),
        };
        let jobs = Jobs::load(resources.clone()).await?;
        let terminals = Terminals::load(resources).await?;
        retention::forget_strays(&store, &root.logs).await?;
        let transfers = Transfers::load(transfer::Parts {
            store: store.clone(),
            directory: root.links.clone(),
            files: files.clone(),
            caps: transfer::Caps {
                total_bytes: config.links_bytes,
                reserve_bytes: config.free_disk_bytes,
                snapshot_time: Duration::from_secs(config.snapshot_seconds),
            },
            tasks: tasks.clone(),
            stopping: stopping.clone(),
        })
        .await?;
        for link in transfers.list(None) {
            // Its workspace was being deleted when the last executor ended.
            if workspaces.get(link.workspace_id.as_str()).is_err() {
                transfers.end_all(&link.workspace_id).await?;
            }
        }
        let (workspaces, started) = (Arc::new(workspaces), OffsetDateTime::now_utc());
        if config.isolation == "namespaces"
            && let Err(why) = workspaces.enclosure().usable().await
        {
            let problem = format!("namespaces can't be had: {why}; set it to auto or none");
            return Err(Error::invalid("RUNLET_ISOLATION", problem));
        }
        let sandboxes = Sandboxes::load(store.clone(), Arc::clone(&root), Arc::clone(&workspaces)).await?;
        if after_crash {
            let sweeping =
                tasks.spawn(sweep(Arc::clone(&workspaces), files.clone(), started, stopping.clone()));
            // Long enough for most; the rest goes on beside the calls.
            let _going_on = tokio::time::timeout(SWEEP_PATIENCE, sweeping).await;
        }
        Ok(Self {
            workspaces,
            jobs: Arc::new(jobs),
            terminals: Arc::new(terminals),
            files,
            images,
            sandboxes,
            transfers: Arc::new(transfers),
            root,
            identity,
            drawn,
            started,
            job_limit,
            config,
            store,
            spawner,
            search_path,
            programs: OnceCell::new(),
            builds: Mutex::default(),
            tasks,
            stopping,
        })
    }

    /// Starts what goes on beside the calls: the Python template, the look for programs, the cleaning.
    pub fn start_background(self: &Arc<Self>) {
        let this = Arc::clone(self);
        self.background(async move {
            if this.config.prepare_python
                && let Err(error) = this.workspaces.python().prepare().await
            {
                tracing::warn!(error = %error, cause = ?error, "no Python environments can be made");
            }
            this.programs().await;
        });
        let this = Arc::clone(self);
        self.background(async move {
            if let Err(why) = this.workspaces.enclosure().usable().await {
                tracing::warn!(why, "sandboxes are plain directories here");
            }
            loop {
                tokio::time::sleep(EXPIRY_PERIOD).await;
                for id in this.sandboxes.expired() {
                    match this.end_sandbox(id.as_str(), EndReason::Expired).await {
                        Ok(_ended) => tracing::info!(sandbox_id = %id, "a sandbox's time was over"),
                        Err(error) => tracing::error!(error = %error, cause = ?error, "can't end a sandbox"),
                    }
                }
            }
        });
        let this = Arc::clone(self);
        self.background(async move {
            let retention = Retention {
                age: Duration::from_secs(this.config.retention_seconds),
                log_bytes: this.config.logs_bytes,
                logs: this.root.logs.clone(),
            };
            let period = Duration::from_secs(this.config.cleaning_seconds.max(1));
            loop {
                tokio::time::sleep(period).await;
                this.spawner.trim();
                this.files.forget_idle();
                match retention.apply(&this.store, this.living_ids()).await {
                    Ok(0) => {}
                    Ok(count) => {
                        tracing::info!(count, "removed ended jobs and terminals past their retention")
                    }
                    Err(error) => tracing::error!(error = %error, cause = ?error, "can't remove ended jobs"),
                }
                if let Err(error) = this.store.forget_sandboxes(timestamp::millis_ago(retention.age)).await {
                    tracing::error!(error = %error, cause = ?error, "can't remove ended sandboxes");
                }
                match this.transfers.clean().await {
                    Ok(0) => {}
                    Ok(count) => tracing::info!(count, "removed links past their time"),
                    Err(error) => tracing::error!(error = %error, cause = ?error, "can't remove links"),
                }
            }
        });
    }

    /// Ids of the jobs and terminals that have processes.
    fn living_ids(&self) -> Vec<String> {
        let jobs = self.jobs.living(None).into_iter().map(|job| job.id.to_string());
        jobs.chain(self.terminals.living(None).into_iter().map(|terminal| terminal.id.to_string())).collect()
    }

    /// Runs `work` until it ends or the machine stops.
    fn background(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stopping = self.stopping.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = work => {}
                () = stopping.cancelled() => {}
            }
        });
    }

    /// Does `work`, however long it takes. The machine's stop waits for it.
    pub(crate) fn background_to_the_end(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(work);
    }

    pub(crate) fn builds(&self) -> MutexGuard<'_, HashMap<BlueprintId, watch::Receiver<String>>> {
        self.builds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when jobs can no longer be started because the spawner was killed.
    pub async fn spawner_gone(&self) {
        self.spawner.gone().await;
    }

    /// Ends the processes of a workspace, then removes its files. It goes on when the caller goes away.
    pub async fn delete_workspace(self: &Arc<Self>, id_or_name: &str) -> Result<Deleted> {
        self.end_sandbox(id_or_name, EndReason::Shutdown).await
    }

    /// The same for a sandbox, which stays on record as ended for this reason.
    pub async fn end_sandbox(self: &Arc<Self>, id_or_name: &str, reason: EndReason) -> Result<Deleted> {
        let (this, id_or_name) = (Arc::clone(self), id_or_name.to_owned());
        let deleting = self.tasks.spawn(async move { this.take_down(&id_or_name, reason, None).await });
        deleting.await.map_err(|error| Error::internal("deleting a workspace", error))?
    }

    /// Ends a sandbox, of which the disk becomes that of a blueprint.
    pub(crate) async fn end_keeping(&self, id: &WorkspaceId, blueprint: &mut Blueprint) -> Result<()> {
        self.take_down(id.as_str(), EndReason::Shutdown, Some(blueprint)).await.map(drop)
    }

    async fn take_down(
        &self,
        id_or_name: &str,
        reason: EndReason,
        blueprint: Option<&mut Blueprint>,
    ) -> Result<Deleted> {
        // Deleting is what helps when the disk is full, and has to be recorded.
        self.root.give_room();
        let workspace = self.workspaces.close(id_or_name).await?;
        let deleted = self.take_down_closed(&workspace, reason, blueprint).await;
        if deleted.is_err() {
            // It can be tried again.
            self.workspaces.reopen(&workspace);
        }
        self.root.keep_room();
        deleted
    }

    async fn take_down_closed(
        &self,
        workspace: &Workspace,
        reason: EndReason,
        blueprint: Option<&mut Blueprint>,
    ) -> Result<Deleted> {
        let mut still = Vec::new();
        if workspace.state == State::Suspended {
            still = self.jobs.living(Some(&workspace.id));
            self.workspaces.end_processes(&workspace.id).await;
        }
        let (jobs, terminals) = tokio::join!(
            self.jobs.end_all(Some(&workspace.id), DELETE_GRACE),
            self.terminals.close_all(Some(&workspace.id)),
        );
        let (mut ended_jobs, ended_processes) = jobs?;
        ended_jobs.extend(still.into_iter().filter(|job| job.end.is_none()).map(|job| job.id));
        ended_jobs.sort();
        ended_jobs.dedup();
        let ended_terminals = terminals?;
        self.transfers.end_all(&workspace.id).await?;
        if let Some(blueprint) = blueprint {
            self.workspaces.end_processes(&workspace.id).await;
            self.sandboxes.keep_disk(blueprint, &workspace.id).await?;
        }
        let removed_bytes = self.workspaces.remove(workspace).await?;
        let sandbox = self.sandboxes.ended(&workspace.id, reason).await?;
        let workspace_id = workspace.id.clone();
        Ok(Deleted { workspace_id, ended_jobs, ended_terminals, ended_processes, removed_bytes, sandbox })
    }

    /// What a sandbox uses: what its processes do, if it runs, and bytes of its files, with true where those are more.
    pub async fn usage(&self, sandbox: &Sandbox) -> Result<(Option<Usage>, u64, bool)> {
        let workspace = self.workspaces.get(sandbox.id.as_str())?;
        let (used, (bytes, partial)) =
            tokio::try_join!(self.workspaces.usage(&sandbox.id), self.workspaces.disk_bytes(&workspace),)?;
        Ok((used, bytes, partial))
    }

    /// Versions of the programs that agents ask for first, as far as jobs can run them.
    pub async fn programs(&self) -> &BTreeMap<String, String> {
        self.programs
            .get_or_init(|| async {
                let mut found = BTreeMap::new();
                for name in PROGRAMS {
                    if let Some(version) = self.version(name).await {
                        found.insert(name.to_owned(), version);
                    }
                }
                found
            })
            .await
    }

    async fn version(&self, name: &str) -> Option<String> {
        let program = environment::find_program(&self.search_path, name)?;
        let command = Command {
            argv: vec![program.as_os_str().as_encoded_bytes().to_vec(), b"--version".to_vec()],
            attachment: None,
            env: BTreeMap::from([
                ("PATH".to_owned(), environment::path_variable(&self.search_path)),
                ("LC_CTYPE".to_owned(), "C.UTF-8".to_owned()),
            ]),
            cwd: "/".into(),
            stdin: false,
            separate_stderr: true,
        };
        let captured = capture(&self.spawner, command, VERSION_LIMIT).await.ok()?;
        let text = String::from_utf8_lossy(&captured.stdout).into_owned();
        let first = text.lines().next()?;
        let version = first.split_ascii_whitespace().find(|word| {
            word.trim_start_matches('v').starts_with(|c: char| c.is_ascii_digit()) && word.contains('.')
        })?;
        captured.succeeded().then(|| version.trim_start_matches('v').to_owned())
    }

    /// Ends every job and all other work, and closes the records. Nothing new is taken from now on.
    pub async fn stop(&self) -> Result<()> {
        self.tasks.close();
        self.stopping.cancel();
        let grace = Duration::from_secs(self.config.stop_grace_seconds);
        self.workspaces.end_suspended().await;
        let (jobs, terminals) = tokio::join!(self.jobs.end_all(None, grace), self.terminals.close_all(None));
        // Whatever could not be ended: the rest is.
        self.workspaces.end_sandboxes().await;
        self.tasks.wait().await;
        self.store.close().await;
        let (ended_jobs, ended_terminals) = (jobs?.0.len(), terminals?.len());
        tracing::info!(ended_jobs, ended_terminals, "stopped");
        Ok(())
    }
}

/// Removes what a crash of the last executor left in the workspaces.
async fn sweep(
    workspaces: Arc<Workspaces>,
    files: Files,
    started: OffsetDateTime,
    stopping: CancellationToken,
) {
    for workspace in workspaces.list() {
        if stopping.is_cancelled() {
            return;
        }
        let Ok(lease) = workspaces.enter(workspace.id.as_str()).await else { continue };
        match files.sweep(Arc::clone(&lease.root), started, SWEEP_TIME).await {
            Ok(0) => {}
            Ok(count) => {
                tracing::info!(count, workspace_id = %workspace.id, "removed files that a crash left")
            }
            Err(error) => tracing::warn!(error = %error, cause = ?error, "can't look for what a crash left"),
        }
    }
}

/// As many jobs as the setting allows and the limit of open files can carry.
fn job_limit(setting: usize) -> usize {
    let carried = open_files_limit()
        .map_or(u64::MAX, |files| files.saturating_sub(OWN_DESCRIPTORS) / DESCRIPTORS_OF_A_JOB);
    setting.min(usize::try_from(carried).unwrap_or(usize::MAX)).max(1)
}

fn caps(log_bytes: u64) -> Result<Caps> {
    const LEAST: u64 = 1 << 20;
    if log_bytes < LEAST {
        return Err(Error::invalid(
            "RUNLET_JOB_LOG_BYTES",
            format!("expected {LEAST} or more, got {log_bytes}"),
        ));
    }
    let head_bytes = log_bytes / 8;
    Ok(Caps { head_bytes, tail_bytes: log_bytes - head_bytes, segment_bytes: head_bytes })
}
