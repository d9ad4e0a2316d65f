//! All jobs of a data root: the living ones in memory, every one on record.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::ledger::Progress;
use super::runner::Cancel;
use super::shell::Shells;
use super::stdin::{Stdin, Written};
use super::{End, EndState, Job, State, Touched, record};
use crate::error::{Error, Result};
use crate::file::Changes;
use crate::id::{JobId, WorkspaceId};
use crate::output::{Log, log};
use crate::process::signal;
use crate::resources::{Places, Resources};
use crate::store::JobFilter;
use crate::timestamp;

/// How much longer than its grace a cancellation waits for the last process to go.
const CANCEL_PATIENCE: Duration = Duration::from_secs(10);

/// All jobs.
#[derive(Debug)]
pub struct Jobs {
    pub(super) resources: Resources,
    pub(super) living: Arc<Living>,
    pub(super) shells: Arc<Shells>,
}

/// The living jobs by id.
#[derive(Debug, Default)]
pub(super) struct Living(Mutex<HashMap<JobId, Arc<Live>>>);

/// A job that has processes.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) fixed: Job,
    pub(super) started: OffsetDateTime,
    pub(super) started_at: Instant,
    pub(super) progress: watch::Receiver<Progress>,
    pub(super) orders: mpsc::Sender<Cancel>,
    pub(super) stdin: Stdin,
    pub(super) living: Arc<Living>,
    pub(super) places: Arc<Places>,
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
        let Progress {
            output_bytes,
            stderr_bytes,
            duration,
            end,
            leftovers,
            left,
            limit_hit,
            touched,
            output_over: _,
            gone: _,
            ended_processes: _,
            notes,
        } = progress.clone();
        let duration = if end.is_some() { duration } else { self.started_at.elapsed() };
        Job {
            duration,
            end,
            leftovers,
            left,
            limit_hit,
            touched,
            output_bytes,
            stderr_bytes,
            notes,
            ..self.fixed.clone()
        }
    }

    fn job(&self) -> Job {
        self.job_at(&self.progress.borrow())
    }

    /// Takes the job out of the living.
    pub(super) fn retire(&self) {
        self.living.lock().remove(&self.fixed.id);
        self.places.give_back(self.fixed.id.as_str());
    }
}

impl Living {
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<JobId, Arc<Live>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Jobs {
    /// Takes up the jobs on record. Those that ran when the last executor ended are lost: their processes went with it.
    pub async fn load(resources: Resources) -> Result<Self> {
        let this = Self { resources, living: Arc::default(), shells: Arc::default() };
        for row in this.resources.store.jobs_with_processes().await? {
            let Some(mut job) = record::from_row(row) else { continue };
            job.leftovers = 0;
            job.output_bytes = this.log(&job.id, log::Stream::Output).extent()?;
            job.stderr_bytes = this.log(&job.id, log::Stream::Stderr).extent()?;
            if job.end.is_none() {
                lose(&mut job);
            }
            let row = record::to_end_row(&job);
            this.resources.store.update_job(job.id.to_string(), job.state().name(), row, None).await?;
        }
        Ok(this)
    }

    /// The job with this id.
    pub async fn get(&self, job_id: &str) -> Result<Job> {
        let unknown = || Error::JobNotFound { job_id: job_id.chars().take(80).collect() };
        let id = JobId::parse(job_id).ok_or_else(unknown)?;
        if let Some(live) = self.live(&id) {
            return Ok(live.job());
        }
        self.resources.store.job(id.to_string()).await?.and_then(record::from_row).ok_or_else(unknown)
    }

    /// Names of the files that a job has changed; `None` where they were not counted.
    pub async fn changed_files(&self, job: &Job) -> Result<Option<Changes>> {
        let Touched::Counted { .. } = job.touched else { return Ok(None) };
        let row = self.resources.store.job_files(job.id.to_string()).await?;
        Ok(Some(row.map(record::from_names_row).unwrap_or_default()))
    }

    /// The same as soon as they are counted, for which this waits so long; `None` where that takes longer.
    pub async fn changed_files_soon(&self, job_id: &JobId, patience: Duration) -> Result<Option<Changes>> {
        if let Some(live) = self.live(job_id) {
            let mut progress = live.progress.clone();
            let counted = progress
                .wait_for(|now| now.gone || !matches!(now.touched, Touched::Unknown | Touched::Counting));
            let _elapsed = tokio::time::timeout(patience, counted).await;
        }
        self.changed_files(&self.get(job_id.as_str()).await?).await
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
        let mut rows = self.resources.store.jobs(filter).await?;
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
        let from = timestamp::millis_ago(since);
        let rows = self
            .resources
            .store
            .jobs(JobFilter { ended_since_ms: Some(from), limit, ..JobFilter::default() })
            .await?;
        let count = self.resources.store.count_ended_jobs(from).await?;
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
        Log::new(self.resources.logs.join(id.as_str()), stream)
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
        oom_killed: false,
    });
    job.touched = Touched::Unknown;
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
