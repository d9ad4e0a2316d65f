//! Reading what a job printed: now, or once there is something to read.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::registry::{Jobs, Live};
use super::{Job, Touched};
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::output::until::Found;
use crate::output::{Output, Until, View, log};

/// Bytes up to which a log is read on the spot; a longer one is read where waiting for a disk holds up nobody.
const INLINE_BYTES: u64 = 256 << 10;

/// How long an answer that tells of a job's end waits for the count of the files that it changed.
const COUNT_PATIENCE: Duration = Duration::from_millis(30);

/// Where to start reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadFrom {
    /// At this offset.
    Cursor(u64),
    /// At the last part that fits.
    Tail,
}

/// What to read.
#[derive(Debug, Clone)]
pub struct ReadRequest {
    /// Which log.
    pub stream: log::Stream,
    /// Where to start.
    pub from: ReadFrom,
    /// Most bytes of text, or of raw bytes.
    pub max_bytes: usize,
    /// How long to wait for output, for `until` or for the end.
    pub wait: Duration,
    /// Regular expression to wait for; empty for none.
    pub until: String,
    /// Whether to return the bytes as they are.
    pub raw: bool,
}

/// A job that somebody looks at. One that lived then is held, so that its end need not be read from the records.
#[derive(Debug)]
pub(super) struct Observed {
    pub id: JobId,
    live: Option<Arc<Live>>,
}

impl From<Arc<Live>> for Observed {
    fn from(live: Arc<Live>) -> Self {
        Self { id: live.fixed.id.clone(), live: Some(live) }
    }
}

/// A log at one moment.
#[derive(Debug, Clone, Copy)]
struct Extent {
    total: u64,
    over: bool,
}

impl Jobs {
    pub(super) fn observe(&self, id: JobId) -> Observed {
        Observed { live: self.live(&id), id }
    }

    /// Waits up to `wait` for the job's end.
    pub(super) async fn wait_for_end(&self, observed: &Observed, wait: Duration) {
        if let Some(live) = &observed.live {
            let mut progress = live.watch();
            let ended = progress.wait_for(|progress| progress.end.is_some());
            let _elapsed = tokio::time::timeout(wait, ended).await;
        }
        settle(observed).await;
    }

    /// The job as it is at its end, or after `wait`.
    pub async fn ended_within(&self, job_id: &str, wait: Duration) -> Result<Job> {
        let observed = self.observe(self.get(job_id).await?.id);
        self.wait_for_end(&observed, wait).await;
        self.get(observed.id.as_str()).await
    }

    /// Reads a piece of a job's output. Also returns the job, and whether `until` matched.
    pub async fn read(&self, job_id: &str, request: ReadRequest) -> Result<(Job, Output, bool)> {
        let job = self.get(job_id).await?;
        let start = match request.from {
            ReadFrom::Cursor(cursor) => cursor,
            ReadFrom::Tail => 0,
        };
        let total = bytes_of(&job, request.stream);
        if start > total {
            return Err(Error::CursorOutOfRange {
                id: job.id.to_string(),
                cursor: start,
                total_bytes: total,
            });
        }
        let mut until = match request.until.as_str() {
            "" => None,
            pattern => Some(Until::new(pattern, start)?),
        };
        let observed = self.observe(job.id);
        let matched = self.wait_for_output(&observed, &request, start, &mut until).await?;
        settle(&observed).await;
        let (job, extent) = self.extent(&observed, request.stream).await?;
        let output = self
            .view(&observed.id, request.stream, extent, move |view| match (request.raw, request.from) {
                (true, ReadFrom::Cursor(cursor)) => view.raw(cursor, request.max_bytes),
                (true, ReadFrom::Tail) => {
                    let most = u64::try_from(request.max_bytes).unwrap_or(u64::MAX);
                    view.raw(extent.total.saturating_sub(most), request.max_bytes)
                }
                (false, ReadFrom::Cursor(cursor)) => view.page(cursor, request.max_bytes),
                (false, ReadFrom::Tail) => view.tail(request.max_bytes),
            })
            .await?;
        Ok((job, output, matched))
    }

    /// The beginning and the end of a job's output.
    pub(super) async fn head_and_tail(
        &self,
        observed: &Observed,
        stream: log::Stream,
        max_bytes: usize,
    ) -> Result<(Job, Output)> {
        let (job, extent) = self.extent(observed, stream).await?;
        if extent.total == 0 {
            return Ok((job, Output { end: extent.over, ..Output::default() }));
        }
        let output =
            self.view(&observed.id, stream, extent, move |view| view.head_and_tail(0, max_bytes)).await?;
        Ok((job, output))
    }

    /// Waits until there is something to return; true when `until` matched.
    async fn wait_for_output(
        &self,
        observed: &Observed,
        request: &ReadRequest,
        start: u64,
        until: &mut Option<Until>,
    ) -> Result<bool> {
        let deadline = Instant::now() + request.wait;
        let mut watch = observed.live.as_ref().map(|live| live.watch());
        loop {
            let (job, extent) = self.extent(observed, request.stream).await?;
            let ended = job.end.is_some();
            match until {
                None if extent.total > start || ended => return Ok(false),
                None => {}
                Some(until) => match self.poll(&observed.id, request.stream, extent, until).await? {
                    Found::Yes => return Ok(true),
                    Found::More => continue,
                    Found::NotYet if ended => return Ok(false),
                    Found::NotYet => {}
                },
            }
            let Some(watch) = &mut watch else { return Ok(false) };
            // The value was looked at before the wait, so that no change between the two is missed.
            let changed = watch.wait_for(|now| {
                let total = match request.stream {
                    log::Stream::Output => now.output_bytes,
                    log::Stream::Stderr => now.stderr_bytes,
                };
                total > extent.total || now.end.is_some()
            });
            match tokio::time::timeout_at(deadline, changed).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) | Err(_) => return Ok(false),
            }
        }
    }

    async fn poll(
        &self,
        id: &JobId,
        stream: log::Stream,
        extent: Extent,
        until: &mut Until,
    ) -> Result<Found> {
        let mut reader = self.log(id, stream).reader();
        if extent.total <= INLINE_BYTES {
            return until.poll(&mut reader, extent.total, extent.over);
        }
        tokio::task::block_in_place(|| until.poll(&mut reader, extent.total, extent.over))
    }

    async fn view(
        &self,
        id: &JobId,
        stream: log::Stream,
        extent: Extent,
        look: impl FnOnce(&mut View<'_>) -> Result<Output> + Send + 'static,
    ) -> Result<Output> {
        let log = self.log(id, stream);
        let read = move || look(&mut View::new(&mut log.reader(), extent.total, extent.over));
        if extent.total <= INLINE_BYTES {
            return read();
        }
        tokio::task::spawn_blocking(read).await.map_err(|error| Error::internal("reading output", error))?
    }

    /// The job and the extent of its log at the same moment.
    async fn extent(&self, observed: &Observed, stream: log::Stream) -> Result<(Job, Extent)> {
        let (job, over) = match &observed.live {
            Some(live) => {
                let progress = live.watch().borrow().clone();
                (live.job_at(&progress), progress.output_over)
            }
            None => (self.get(observed.id.as_str()).await?, true),
        };
        let total = bytes_of(&job, stream);
        Ok((job, Extent { total, over }))
    }
}

/// Waits a moment for what is still counted of a job that has ended.
async fn settle(observed: &Observed) {
    if let Some(live) = &observed.live {
        let mut progress = live.watch();
        let settled = progress.wait_for(|progress| progress.touched != Touched::Counting);
        let _elapsed = tokio::time::timeout(COUNT_PATIENCE, settled).await;
    }
}

const fn bytes_of(job: &Job, stream: log::Stream) -> u64 {
    match stream {
        log::Stream::Output => job.output_bytes,
        log::Stream::Stderr => job.stderr_bytes,
    }
}
