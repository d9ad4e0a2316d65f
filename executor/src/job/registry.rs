//! All jobs of a data root: the living ones in memory, every one on record.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::ledger::{Ledger, Progress};
use super::runner::{Cancel, Runner};
use super::shell::{self, Shells};
use super::stdin::{Stdin, Written};
use super::stream::Stream;
use super::{End, EndState, Job, NewJob, State, record, signal};
use crate::error::{Error, Result};
use crate::file::Files;
use crate::id::{JobId, WorkspaceId};
use crate::output::{Caps, Log, Output, log};
use crate::process::identity::Identity;
use crate::process::spawn::{Command, Pipes, Process, Spawner};
use crate::store::{JobFilter, Store, is_conflict};
use crate::workspace::{Lease, environment};

/// Orders that a runner may have waiting. Whoever gives more waits: each is taken up at once.
const ORDERS: usize = 4;

/// How much longer than its grace a cancellation waits for the last process to go.
const CANCEL_PATIENCE: Duration = Duration::from_secs(10);

/// All jobs.
#[derive(Debug)]
pub struct Jobs {
    store: Store,
    spawner: Arc<Spawner>,
    files: Files,
    identity: Identity,
    search_path: Vec<PathBuf>,
    logs: PathBuf,
    caps: Caps,
    limit: usize,
    tasks: TaskTracker,
    living: Arc<Living>,
    shells: Arc<Shells>,
}

/// The living jobs by id.
#[derive(Debug, Default)]
pub(super) struct Living(Mutex<HashMap<JobId, Arc<Live>>>);

/// A job that has processes.
#[derive(Debug)]
pub(super) struct Live {
    fixed: Job,
    pub(super) started: OffsetDateTime,
    pub(super) started_at: Instant,
    progress: watch::Receiver<Progress>,
    orders: mpsc::Sender<Cancel>,
    stdin: Stdin,
    living: Arc<Living>,
}

/// What the jobs need.
pub struct Parts {
    /// The records.
    pub store: Store,
    /// Starts processes.
    pub spawner: Arc<Spawner>,
    /// Opens the directories that commands start in.
    pub files: Files,
    /// Who jobs run as.
    pub identity: Identity,
    /// Where jobs find programs.
    pub search_path: Vec<PathBuf>,
    /// Directory of the logs.
    pub logs: PathBuf,
    /// How much of a log is kept.
    pub caps: Caps,
    /// How many jobs may live at once.
    pub limit: usize,
    /// Where work that outlives its caller is tracked.
    pub tasks: TaskTracker,
}

/// A job that was started, or found by its request.
#[derive(Debug)]
pub struct Started {
    /// The job.
    pub job: Job,
    /// Head and tail of its output.
    pub output: Output,
    /// Head and tail of its errors, where they are separate.
    pub stderr: Option<Output>,
    /// The request had been seen, and this is the first one's job.
    pub repeated: bool,
}

/// A page of jobs.
#[derive(Debug)]
pub struct Page {
    /// The rows.
    pub jobs: Vec<Job>,
    /// `seq` of the last row, where more follow.
    pub next: Option<i64>,
}

impl Live {
    /// The job as the progress describes it.
    pub(super) fn job_at(&self, progress: &Progress) -> Job {
        let Progress { output_bytes, stderr_bytes, duration, end, leftovers, notes, .. } = progress.clone();
        let duration = if end.is_some() { duration } else { self.started_at.elapsed() };
        Job { duration, end, leftovers, output_bytes, stderr_bytes, notes, ..self.fixed.clone() }
    }

    fn job(&self) -> Job {
        self.job_at(&self.progress.borrow())
    }

    /// Takes the job out of the living.
    pub(super) fn retire(&self) {
        self.living.lock().remove(&self.fixed.id);
    }
}

impl Living {
    fn lock(&self) -> MutexGuard<'_, HashMap<JobId, Arc<Live>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Jobs {
    /// Takes up the jobs on record. Those that ran when the last executor ended are lost: their processes went with it.
    pub async fn load(parts: Parts) -> Result<Self> {
        let Parts { store, spawner, files, identity, search_path, logs, caps, limit, tasks } = parts;
        let this = Self {
            store,
            spawner,
            files,
            identity,
            search_path,
            logs,
            caps,
            limit,
            tasks,
            living: Arc::default(),
            shells: Arc::default(),
        };
        for row in this.store.jobs_with_processes().await? {
            let Some(mut job) = record::from_row(row) else { continue };
            job.leftovers = 0;
            job.output_bytes = this.log(&job.id, log::Stream::Output).extent()?;
            job.stderr_bytes = this.log(&job.id, log::Stream::Stderr).extent()?;
            if job.end.is_none() {
                lose(&mut job);
            }
            let row = record::to_end_row(&job);
            this.store.update_job(job.id.to_string(), job.state().name(), row).await?;
        }
        this.forget_strays().await?;
        Ok(this)
    }

    /// Starts a job and waits up to `wait` for its end. Once started it goes on whether or not anybody waits.
    pub async fn start(
        self: &Arc<Self>,
        lease: Lease,
        new: NewJob,
        wait: Duration,
        max_bytes: usize,
    ) -> Result<Started> {
        new.check()?;
        let separate = new.separate_stderr;
        let (job_id, repeated) = match self.of_request(&new).await? {
            Some(known) => (known, true),
            None => {
                // Dropping the caller must not leave a job half started.
                let this = Arc::clone(self);
                let begun = self.tasks.spawn(async move { this.begin(lease, new).await });
                begun.await.map_err(|error| Error::internal("starting a job", error))??
            }
        };
        self.wait_for_end(&job_id, wait).await;
        let (job, output) = self.head_and_tail(&job_id, log::Stream::Output, max_bytes).await?;
        let stderr = if separate && job.separate_stderr {
            Some(self.head_and_tail(&job_id, log::Stream::Stderr, max_bytes).await?.1)
        } else {
            None
        };
        Ok(Started { job, output, stderr, repeated })
    }

    async fn of_request(&self, new: &NewJob) -> Result<Option<JobId>> {
        let Some(request_id) = new.request_id.clone() else { return Ok(None) };
        let row = self.store.job_of_request(new.principal.clone(), request_id).await?;
        Ok(row.and_then(|row| JobId::parse(&row.job_id)))
    }

    /// Records and starts a job; true when a request at the same time was faster and its job is returned.
    async fn begin(&self, lease: Lease, new: NewJob) -> Result<(JobId, bool)> {
        let workspace = Arc::clone(&lease.workspace);
        let fixed = Job {
            id: JobId::generate()?,
            workspace_id: workspace.id.clone(),
            command: new.command.clone(),
            principal: new.principal.clone(),
            request_id: new.request_id.clone(),
            shell: new.shell.clone(),
            separate_stderr: new.separate_stderr,
            timeout: new.timeout,
            started: OffsetDateTime::now_utc(),
            duration: Duration::ZERO,
            end: None,
            leftovers: 0,
            output_bytes: 0,
            stderr_bytes: 0,
            notes: Vec::new(),
        };
        let (progress, seen) = watch::channel(Progress::default());
        let (orders, ordered) = mpsc::channel(ORDERS);
        let live = self.reserve(fixed, seen, orders)?;
        let id = live.fixed.id.clone();
        if !new.shell.is_empty() {
            return self.begin_in_shell(live, &lease, new, progress, ordered).await;
        }
        let (inserted, spawned) = self.record_and_spawn(&live.fixed, &lease, &new).await;
        match (inserted, spawned) {
            (Ok(()), Some(Ok((process, pipes)))) => {
                self.launch(live, process, pipes, progress, ordered, new).await;
                Ok((id, false))
            }
            (inserted, spawned) => {
                live.retire();
                self.not_started(&id, &new, inserted, spawned.and_then(Result::err)).await
            }
        }
    }

    /// Gives the command to a named shell.
    async fn begin_in_shell(
        &self,
        live: Arc<Live>,
        lease: &Lease,
        new: NewJob,
        progress: watch::Sender<Progress>,
        orders: mpsc::Receiver<Cancel>,
    ) -> Result<(JobId, bool)> {
        let id = live.fixed.id.clone();
        let claimed = self.shells.claim(&lease.workspace.id, &new.shell, &id, async || {
            let env = environment::environment(&lease.workspace, &self.search_path, &self.identity, &new.env);
            shell::start(&self.spawner, Command::bash("", env, lease.workspace.paths.work.clone())).await
        });
        let claim = match claimed.await {
            Ok(claim) => claim,
            Err(error) => {
                live.retire();
                return Err(error);
            }
        };
        if let Err(error) = self.store.insert_job(record::to_row(&live.fixed)).await {
            live.retire();
            claim.release();
            return self.not_started(&id, &new, Err(error), None).await;
        }
        let task = shell::Task {
            deadline: live.started_at + new.timeout,
            log: self.log(&id, log::Stream::Output).writer(self.caps),
            directory: absolute(&lease.workspace.paths, &new.cwd),
            command: new.text(),
            ledger: Ledger::new(Arc::clone(&live), progress, self.store.clone()),
            orders,
        };
        match claim.hand_over(task) {
            Ok(()) => Ok((id, false)),
            Err(_task) => {
                live.retire();
                let ended = std::io::Error::other("the shell ended at this very moment; call again");
                let error = Error::Spawn { stage: "handing it to the shell".to_owned(), source: ended };
                self.not_started(&id, &new, Ok(()), Some(error)).await
            }
        }
    }

    /// A request that may be repeated must be on record before it has any effect; for others the two go together.
    async fn record_and_spawn(
        &self,
        job: &Job,
        lease: &Lease,
        new: &NewJob,
    ) -> (Result<()>, Option<Result<(Process, Pipes)>>) {
        let inserted = self.store.insert_job(record::to_row(job));
        let spawned = async {
            let cwd = match new.cwd.as_slice() {
                [] => lease.workspace.paths.work.clone(),
                path => self.files.directory(Arc::clone(&lease.root), path.to_vec()).await?,
            };
            let env = environment::environment(&lease.workspace, &self.search_path, &self.identity, &new.env);
            let mut command = Command::bash(&new.text(), env, cwd);
            command.stdin = new.stdin.is_some() || new.keep_stdin_open;
            command.separate_stderr = new.separate_stderr;
            self.spawner.spawn(command).await
        };
        if new.request_id.is_none() {
            let (inserted, spawned) = tokio::join!(inserted, spawned);
            return (inserted, Some(spawned));
        }
        match inserted.await {
            Ok(()) => (Ok(()), Some(spawned.await)),
            Err(error) => (Err(error), None),
        }
    }

    /// Dropping the process has ended it, if it was started at all.
    async fn not_started(
        &self,
        id: &JobId,
        new: &NewJob,
        inserted: Result<()>,
        spawn_error: Option<Error>,
    ) -> Result<(JobId, bool)> {
        match inserted {
            Err(error) if is_conflict(&error) => {
                self.of_request(new).await?.map(|first| (first, true)).ok_or(error)
            }
            Err(error) => Err(error),
            Ok(()) => {
                self.store.remove_jobs(vec![id.to_string()]).await?;
                Err(spawn_error.unwrap_or(Error::ShuttingDown))
            }
        }
    }

    async fn launch(
        &self,
        live: Arc<Live>,
        process: Process,
        pipes: Pipes,
        progress: watch::Sender<Progress>,
        orders: mpsc::Receiver<Cancel>,
        new: NewJob,
    ) {
        let id = &live.fixed.id;
        live.stdin.connect(pipes.stdin).await;
        if new.stdin.is_some() || new.keep_stdin_open {
            let (live, data, keep_open) =
                (Arc::clone(&live), new.stdin.unwrap_or_default(), new.keep_stdin_open);
            self.tasks.spawn(async move {
                let mut over = live.progress.clone();
                tokio::select! {
                    () = live.stdin.feed(&data, keep_open) => {}
                    _ = over.wait_for(|progress| progress.gone) => {}
                }
            });
        }
        let writer = |stream| Some(self.log(id, stream).writer(self.caps));
        let runner = Runner {
            process,
            output: Stream::new(pipes.stdout, writer(log::Stream::Output)),
            stderr: pipes.stderr.map(|pipe| Stream::new(pipe, writer(log::Stream::Stderr))),
            orders,
            deadline: live.started_at + new.timeout,
            ledger: Ledger::new(Arc::clone(&live), progress, self.store.clone()),
        };
        self.tasks.spawn(runner.run());
    }

    fn reserve(
        &self,
        fixed: Job,
        progress: watch::Receiver<Progress>,
        orders: mpsc::Sender<Cancel>,
    ) -> Result<Arc<Live>> {
        let mut living = self.living.lock();
        if self.tasks.is_closed() {
            return Err(Error::ShuttingDown);
        }
        if living.len() >= self.limit {
            let oldest = living.values().min_by_key(|live| live.started_at);
            let oldest_job_id = oldest.map(|live| live.fixed.id.to_string()).unwrap_or_default();
            return Err(Error::TooManyJobs { limit: self.limit, oldest_job_id });
        }
        let live = Arc::new(Live {
            started: fixed.started,
            started_at: Instant::now(),
            fixed,
            progress,
            orders,
            stdin: Stdin::default(),
            living: Arc::clone(&self.living),
        });
        living.insert(live.fixed.id.clone(), Arc::clone(&live));
        Ok(live)
    }

    /// Waits up to `wait` for the job's end.
    async fn wait_for_end(&self, id: &JobId, wait: Duration) {
        if let Some(live) = self.live(id) {
            let mut progress = live.progress.clone();
            let _elapsed =
                tokio::time::timeout(wait, progress.wait_for(|progress| progress.end.is_some())).await;
        }
    }

    /// The job with this id.
    pub async fn get(&self, job_id: &str) -> Result<Job> {
        let unknown = || Error::JobNotFound { job_id: job_id.chars().take(80).collect() };
        let id = JobId::parse(job_id).ok_or_else(unknown)?;
        if let Some(live) = self.live(&id) {
            return Ok(live.job());
        }
        self.store.job(id.to_string()).await?.and_then(record::from_row).ok_or_else(unknown)
    }

    /// Jobs, newest first.
    pub async fn list(
        &self,
        workspace_id: Option<&WorkspaceId>,
        state: Option<State>,
        size: u32,
        before: Option<i64>,
    ) -> Result<Page> {
        let filter = JobFilter {
            workspace_id: workspace_id.map(|id| id.as_str().to_owned()),
            state: state.map(|state| state.name().to_owned()),
            before_seq: before,
            ended_since_ms: None,
            limit: size + 1,
        };
        let mut rows = self.store.jobs(filter).await?;
        let more = rows.len() > usize::try_from(size).unwrap_or(usize::MAX);
        if more {
            rows.pop();
        }
        let next = if more { rows.last().map(|row| row.seq) } else { None };
        Ok(Page {
            jobs: rows.into_iter().filter_map(record::from_row).map(|job| self.refresh(job)).collect(),
            next,
        })
    }

    /// Jobs that have processes, oldest first.
    pub fn living(&self, workspace_id: Option<&WorkspaceId>) -> Vec<Job> {
        let mut jobs: Vec<Job> = self.lives(workspace_id).iter().map(|live| live.job()).collect();
        jobs.sort_by_key(|job| job.started);
        jobs
    }

    /// Jobs that ended in the last `since`, newest first, at most `limit`, and how many there are in all.
    pub async fn ended(&self, since: Duration, limit: u32) -> Result<(Vec<Job>, u32)> {
        let from = OffsetDateTime::now_utc().checked_sub(since.try_into().unwrap_or(time::Duration::MAX));
        let from = from.map_or(0, crate::timestamp::to_millis);
        let rows =
            self.store.jobs(JobFilter { ended_since_ms: Some(from), limit, ..JobFilter::default() }).await?;
        let count = self.store.count_ended_jobs(from).await?;
        Ok((rows.into_iter().filter_map(record::from_row).map(|job| self.refresh(job)).collect(), count))
    }

    /// A row of a living job lacks what has happened since its start.
    fn refresh(&self, job: Job) -> Job {
        self.live(&job.id).map_or(job, |live| live.job())
    }

    /// Writes to a job's standard input; returns the bytes accepted.
    pub async fn write_stdin(&self, job_id: &str, data: &[u8], close: bool) -> Result<usize> {
        let job = self.get(job_id).await?;
        let Some(live) = self.live(&job.id).filter(|live| live.progress.borrow().end.is_none()) else {
            return Err(Error::JobEnded { job_id: job.id.to_string() });
        };
        match live.stdin.write(data, close).await {
            Written::Accepted(bytes) => Ok(bytes),
            Written::Closed => Err(Error::StdinClosed { job_id: job.id.to_string() }),
        }
    }

    /// Ends a job with all that it started, and waits until nothing of it is left. A job that is gone stays as it is.
    /// Returns how many processes were ended.
    pub async fn cancel(&self, job_id: &str, signal: &str, grace: Duration) -> Result<(Job, u32)> {
        let signal = signal::ending(signal)?;
        let job = self.get(job_id).await?;
        let ended = match self.live(&job.id) {
            Some(live) => end(&live, signal, grace).await?,
            None => 0,
        };
        Ok((self.get(job_id).await?, ended))
    }

    /// Ends all jobs of a workspace, or all, and waits until nothing of them is left. Returns the jobs that were running
    /// and how many processes earlier ones had left behind.
    pub async fn end_all(
        &self,
        workspace_id: Option<&WorkspaceId>,
        grace: Duration,
    ) -> Result<(Vec<JobId>, u32)> {
        let lives = self.lives(workspace_id);
        let mut running = Vec::new();
        let mut leftovers = 0;
        let mut endings = tokio::task::JoinSet::new();
        for live in lives {
            let now = live.progress.borrow().clone();
            if now.end.is_none() {
                running.push(live.fixed.id.clone());
            } else {
                leftovers += now.leftovers;
            }
            endings.spawn(async move { end(&live, libc::SIGTERM, grace).await });
        }
        while let Some(ended) = endings.join_next().await {
            ended.map_err(|error| Error::internal("ending jobs", error))??;
        }
        self.shells.end(workspace_id).await;
        Ok((running, leftovers))
    }

    pub(super) fn live(&self, id: &JobId) -> Option<Arc<Live>> {
        self.living.lock().get(id).cloned()
    }

    fn lives(&self, workspace_id: Option<&WorkspaceId>) -> Vec<Arc<Live>> {
        let wanted = |live: &&Arc<Live>| workspace_id.is_none_or(|id| live.fixed.workspace_id == *id);
        self.living.lock().values().filter(wanted).cloned().collect()
    }

    pub(super) fn log(&self, id: &JobId, stream: log::Stream) -> Log {
        Log::new(self.logs.join(id.as_str()), stream)
    }

    pub(super) const fn logs(&self) -> &PathBuf {
        &self.logs
    }

    pub(super) const fn store(&self) -> &Store {
        &self.store
    }
}

impl Live {
    pub(super) fn watch(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }
}

/// The end of a job whose executor was killed.
fn lose(job: &mut Job) {
    let time = OffsetDateTime::now_utc().max(job.started);
    job.duration = (time - job.started).try_into().unwrap_or_default();
    job.end = Some(End {
        state: EndState::Lost,
        time,
        exit_code: None,
        signal: None,
        cpu: None,
        max_rss_bytes: None,
    });
    job.notes.push("the executor ended while this job ran; its processes were ended with it".to_owned());
}

/// Ends one job and waits for its last process.
async fn end(live: &Live, signal: i32, grace: Duration) -> Result<u32> {
    let mut progress = live.progress.clone();
    // A runner that has just finished takes no more orders, which is as good.
    let _finished = live.orders.send(Cancel { signal, grace }).await.is_err();
    let gone = progress.wait_for(|progress| progress.gone);
    match tokio::time::timeout(grace + CANCEL_PATIENCE, gone).await {
        Ok(Ok(last)) => Ok(last.ended_processes),
        Ok(Err(_runner_gone)) => Ok(0),
        Err(_elapsed) => Err(Error::internal(
            format!("ending {}", live.fixed.id),
            "some of its processes do not end even when killed; they wait for a device or a network file system",
        )),
    }
}

/// A directory as a shell can enter it from wherever it is; empty for staying there.
fn absolute(paths: &crate::workspace::Paths, cwd: &[u8]) -> String {
    let text = String::from_utf8_lossy(cwd);
    match text.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/')) {
        _ if text.is_empty() => String::new(),
        Some(rest) => format!("{}{rest}", paths.home.display()),
        None if text.starts_with('/') => text.into_owned(),
        None => format!("{}/{text}", paths.work.display()),
    }
}
