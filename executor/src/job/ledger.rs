//! What becomes of a job: recorded first, then published, so that nobody is told what a crash could still undo.

use std::sync::Arc;

use time::OffsetDateTime;
use tokio::sync::watch;

use super::registry::Live;
use super::{End, EndState, record};
use crate::process::signal;
use crate::process::spawn::{Ended, Exit};
use crate::store::Store;

/// What is published of a living job.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    pub output_bytes: u64,
    pub stderr_bytes: u64,
    pub duration: std::time::Duration,
    pub end: Option<End>,
    pub leftovers: u32,
    /// Nothing more will be written to the logs.
    pub output_over: bool,
    /// No process of the job is left, and its record is final.
    pub gone: bool,
    /// Processes that were ended when the job was.
    pub ended_processes: u32,
    pub notes: Vec<String>,
}

/// Bytes that a job has written so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub output: u64,
    pub stderr: u64,
}

/// The one writer of a job's state.
#[derive(Debug)]
pub(super) struct Ledger {
    live: Arc<Live>,
    progress: watch::Sender<Progress>,
    store: Store,
}

impl Ledger {
    pub(super) const fn new(live: Arc<Live>, progress: watch::Sender<Progress>, store: Store) -> Self {
        Self { live, progress, store }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.progress.borrow().end.is_some()
    }

    /// Publishes how much there is to read.
    pub(super) fn wrote(&self, totals: Totals) {
        self.progress.send_modify(|progress| {
            progress.output_bytes = totals.output;
            progress.stderr_bytes = totals.stderr;
        });
    }

    /// Adds something that the job's starter should know.
    pub(super) fn note(&self, note: &str) {
        self.progress.send_modify(|progress| progress.notes.push(note.to_owned()));
    }

    /// Records and publishes the end. Where no process is left behind, the output is over as well.
    pub(super) async fn end(&self, ended: Ended, timed_out: bool, totals: Totals) {
        let signal = match ended.exit {
            Exit::Signal(number) => Some(signal::name(number)),
            Exit::Code(_) => None,
        };
        let state = match (timed_out, ended.exit) {
            (true, _) => EndState::TimedOut,
            (false, Exit::Signal(_)) => EndState::Killed,
            (false, Exit::Code(_)) => EndState::Exited,
        };
        let mut next = self.progress.borrow().clone();
        next.duration = self.live.started_at.elapsed();
        next.end = Some(End {
            state,
            time: OffsetDateTime::now_utc().max(self.live.started),
            exit_code: Some(ended.exit.shell_code()),
            signal,
            cpu: ended.usage.map(|usage| usage.cpu),
            max_rss_bytes: ended.usage.map(|usage| usage.max_rss_bytes),
        });
        next.leftovers = ended.leftovers;
        next.output_over = ended.leftovers == 0;
        next.output_bytes = totals.output;
        next.stderr_bytes = totals.stderr;
        self.record(&next).await;
        self.progress.send_replace(next);
    }

    /// The last step: nothing of the job runs any more. `ended_processes` were there when it was told to end.
    pub(super) async fn close(self, ended_processes: u32, totals: Totals) {
        let before = self.progress.borrow().clone();
        let mut last = before.clone();
        last.leftovers = 0;
        last.output_over = true;
        last.gone = true;
        last.ended_processes = ended_processes;
        last.output_bytes = totals.output;
        last.stderr_bytes = totals.stderr;
        let recorded = |progress: &Progress| {
            (progress.leftovers, progress.output_bytes, progress.stderr_bytes, progress.notes.len())
        };
        if recorded(&before) != recorded(&last) {
            self.record(&last).await;
        }
        self.live.retire();
        self.progress.send_replace(last);
    }

    async fn record(&self, progress: &Progress) {
        let job = self.live.job_at(progress);
        let row = record::to_end_row(&job);
        if let Err(error) = self.store.update_job(job.id.to_string(), job.state().name(), row).await {
            tracing::error!(job_id = %job.id, error = %error, cause = ?error, "can't record the end of a job");
        }
    }
}
