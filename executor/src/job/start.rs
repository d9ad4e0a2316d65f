//! Starting a job: its record, its process, and the runner that follows it from there.

use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::ledger::{Ledger, Progress};
use super::output::Observed;
use super::receipt::Opening;
use super::registry::{Jobs, Live};
use super::runner::{Cancel, Runner};
use super::stdin::Stdin;
use super::stream::Stream;
use super::{Job, NewJob, Touched, record, shell};
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::output::{Output, log};
use crate::process::spawn::{Command, Pipes, Process};
use crate::store::is_conflict;
use crate::timer::Deadline;
use crate::workspace::{Lease, environment};

/// Orders that a runner may have waiting. Whoever gives more waits: each is taken up at once.
const ORDERS: usize = 4;

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

/// A program that runs, and what was noted before it did.
struct Begun {
    process: Process,
    pipes: Pipes,
    opening: Opening,
    still: Option<watch::Receiver<bool>>,
}

impl Jobs {
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
        let (observed, repeated) = match self.of_request(&new).await? {
            Some(known) => (self.observe(known), true),
            None => {
                // Dropping the caller must not leave a job half started.
                let this = Arc::clone(self);
                let begun = self.resources.tasks.spawn(async move { this.begin(lease, new).await });
                begun.await.map_err(|error| Error::internal("starting a job", error))??
            }
        };
        self.wait_for_end(&observed, wait).await;
        let (job, output) = self.head_and_tail(&observed, log::Stream::Output, max_bytes).await?;
        let stderr = if separate && job.separate_stderr {
            Some(self.head_and_tail(&observed, log::Stream::Stderr, max_bytes).await?.1)
        } else {
            None
        };
        Ok(Started { job, output, stderr, repeated })
    }

    async fn of_request(&self, new: &NewJob) -> Result<Option<JobId>> {
        let Some(request_id) = new.request_id.clone() else { return Ok(None) };
        let row = self.resources.store.job_of_request(new.principal.clone(), request_id).await?;
        Ok(row.and_then(|row| JobId::parse(&row.job_id)))
    }

    /// Records and starts a job; true when a request at the same time was faster and its job is returned.
    async fn begin(&self, lease: Lease, new: NewJob) -> Result<(Observed, bool)> {
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
            left: Vec::new(),
            limit_hit: None,
            touched: Touched::Unknown,
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
            (Ok(()), Some(Ok(begun))) => {
                self.launch(Arc::clone(&live), begun, progress, ordered, new).await;
                Ok((live.into(), false))
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
    ) -> Result<(Observed, bool)> {
        let id = live.fixed.id.clone();
        let claimed = self.shells.claim(&lease.workspace.id, &new.shell, &id, async || {
            let env = environment::environment(
                &lease.workspace,
                &self.resources.search_path,
                &self.resources.identity,
                &new.env,
            );
            let command = Command::bash("", env, lease.workspace.seen.work.clone());
            shell::start(&lease.spawner, command, lease.root.presence()).await
        });
        let claim = match claimed.await {
            Ok(claim) => claim,
            Err(error) => {
                live.retire();
                return Err(error);
            }
        };
        if let Err(error) = self.resources.store.insert_job(record::to_row(&live.fixed)).await {
            live.retire();
            claim.release();
            return self.not_started(&id, &new, Err(error), None).await;
        }
        let opening = Opening::note(&self.resources, lease, true).await;
        let task = shell::Task {
            opening,
            deadline: Deadline::new(live.started_at + new.timeout, lease.still.clone()),
            log: self.log(&id, log::Stream::Output).writer(self.resources.caps),
            directory: absolute(&lease.workspace.seen, &new.cwd),
            command: new.text(),
            ledger: Ledger::new(Arc::clone(&live), progress, self.resources.store.clone()),
            orders,
        };
        match claim.hand_over(task) {
            Ok(()) => Ok((live.into(), false)),
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
    ) -> (Result<()>, Option<Result<Begun>>) {
        let inserted = self.resources.store.insert_job(record::to_row(job));
        let spawned = async {
            let cwd = match new.cwd.as_slice() {
                [] => lease.workspace.seen.work.clone(),
                path => self.resources.files.directory(Arc::clone(&lease.root), path.to_vec()).await?,
            };
            let env = environment::environment(
                &lease.workspace,
                &self.resources.search_path,
                &self.resources.identity,
                &new.env,
            );
            let mut command = Command::bash(&new.text(), env, cwd);
            command.stdin = new.stdin.is_some() || new.keep_stdin_open;
            command.separate_stderr = new.separate_stderr;
            let opening = Opening::note(&self.resources, lease, false).await;
            let (process, pipes) = lease.spawner.spawn(command).await?;
            Ok(Begun { process, pipes, opening, still: lease.still.clone() })
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
    ) -> Result<(Observed, bool)> {
        match inserted {
            Err(error) if is_conflict(&error) => {
                self.of_request(new).await?.map(|first| (self.observe(first), true)).ok_or(error)
            }
            Err(error) => Err(error),
            Ok(()) => {
                self.resources.store.remove_ended(vec![id.to_string()]).await?;
                Err(spawn_error.unwrap_or(Error::ShuttingDown))
            }
        }
    }

    async fn launch(
        &self,
        live: Arc<Live>,
        begun: Begun,
        progress: watch::Sender<Progress>,
        orders: mpsc::Receiver<Cancel>,
        new: NewJob,
    ) {
        let Begun { process, pipes, opening, still } = begun;
        let id = &live.fixed.id;
        live.stdin.connect(pipes.stdin).await;
        if new.stdin.is_some() || new.keep_stdin_open {
            let (live, data, keep_open) =
                (Arc::clone(&live), new.stdin.unwrap_or_default(), new.keep_stdin_open);
            self.resources.tasks.spawn(async move {
                let mut over = live.progress.clone();
                tokio::select! {
                    () = live.stdin.feed(&data, keep_open) => {}
                    _ = over.wait_for(|progress| progress.gone) => {}
                }
            });
        }
        let writer = |stream| Some(self.log(id, stream).writer(self.resources.caps));
        let runner = Runner {
            process,
            output: Stream::new(pipes.stdout, writer(log::Stream::Output)),
            stderr: pipes.stderr.map(|pipe| Stream::new(pipe, writer(log::Stream::Stderr))),
            orders,
            deadline: Deadline::new(live.started_at + new.timeout, still),
            ledger: Ledger::new(Arc::clone(&live), progress, self.resources.store.clone()),
            opening,
            counting: None,
        };
        self.resources.tasks.spawn(runner.run());
    }

    fn reserve(
        &self,
        fixed: Job,
        progress: watch::Receiver<Progress>,
        orders: mpsc::Sender<Cancel>,
    ) -> Result<Arc<Live>> {
        let mut living = self.living.lock();
        if self.resources.tasks.is_closed() {
            return Err(Error::ShuttingDown);
        }
        self.resources.places.take(fixed.id.as_str())?;
        let live = Arc::new(Live {
            started: fixed.started,
            started_at: Instant::now(),
            fixed,
            progress,
            orders,
            stdin: Stdin::default(),
            living: Arc::clone(&self.living),
            places: Arc::clone(&self.resources.places),
        });
        living.insert(live.fixed.id.clone(), Arc::clone(&live));
        Ok(live)
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
