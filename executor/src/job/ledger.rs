//! What becomes of a job: recorded first, then published, so that nobody is told what a crash could still undo.

use std::sync::Arc;

use time::OffsetDateTime;
use tokio::sync::watch;

use super::receipt::Count;
use super::registry::Live;
use super::{End, EndState, Leftover, LimitHit, Touched, record};
use crate::file::Changes;
use crate::process::cgroup::Limit;
use crate::process::signal;
use crate::process::spawn::{Ended, Exit, Usage};
use crate::store::Store;

/// What is published of a living job.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    pub output_bytes: u64,
    pub stderr_bytes: u64,
    pub duration: std::time::Duration,
    pub end: Option<End>,
    pub leftovers: u32,
    pub left: Vec<Leftover>,
    pub limit_hit: Option<LimitHit>,
    pub touched: Touched,
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
    /// What is kept of a log, if it was more than that.
    pub caps_hit: Option<u64>,
}

/// The end of a job's program.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    pub ended: Ended,
    pub timed_out: bool,
    /// The limit for which the kernel ended it.
    pub out_of_memory: Option<Limit>,
    /// What became of the files, if that is known already.
    pub count: Option<Count>,
}

/// What is left to say when nothing of a job runs any more.
#[derive(Debug, Clone, Default)]
pub(super) struct Rest {
    /// Processes that were there when it was told to end.
    pub ended_processes: u32,
    /// What the whole tree used; `None` where that is not known.
    pub usage: Option<Usage>,
    /// What became of the files, if that was not told with the end.
    pub count: Option<Count>,
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
    pub(super) async fn end(&self, outcome: Outcome, totals: Totals) {
        let Outcome { ended, timed_out, out_of_memory, count } = outcome;
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
            max_rss_bytes: ended.usage.and_then(|usage| usage.max_rss_bytes),
            oom_killed: out_of_memory.is_some(),
        });
        next.limit_hit = if timed_out {
            Some(LimitHit::Timeout(self.live.fixed.timeout.as_secs()))
        } else {
            let memory = out_of_memory.as_ref().map(|limit| LimitHit::Memory(limit.bytes));
            memory.or(totals.caps_hit.map(LimitHit::Log))
        };
        next.notes.extend(out_of_memory.map(|limit| limit.note));
        next.leftovers = ended.leftovers;
        next.left = ended.named;
        next.output_over = ended.leftovers == 0;
        next.output_bytes = totals.output;
        next.stderr_bytes = totals.stderr;
        next.touched = Touched::Counting;
        let names = take_count(&mut next, count);
        self.record(&next, names).await;
        self.progress.send_replace(next);
    }

    /// Records and publishes what became of the files.
    pub(super) async fn counted(&self, count: Count) {
        let mut next = self.progress.borrow().clone();
        let names = take_count(&mut next, Some(count));
        self.record(&next, names).await;
        self.progress.send_modify(|progress| progress.touched = next.touched);
    }

    /// The last step: nothing of the job runs any more.
    pub(super) async fn close(self, rest: Rest, totals: Totals) {
        let Rest { ended_processes, usage, count } = rest;
        let before = self.progress.borrow().clone();
        let mut last = before.clone();
        let names = take_count(&mut last, count);
        if let (Some(end), Some(usage)) = (&mut last.end, usage) {
            // Where its end was not measured, neither is what came before.
            end.cpu = end.cpu.map(|cpu| cpu.max(usage.cpu));
            end.max_rss_bytes = end.max_rss_bytes.max(usage.max_rss_bytes);
        }
        last.limit_hit = last.limit_hit.or(totals.caps_hit.map(LimitHit::Log));
        last.leftovers = 0;
        last.output_over = true;
        last.gone = true;
        last.ended_processes = ended_processes;
        last.output_bytes = totals.output;
        last.stderr_bytes = totals.stderr;
        if self.live.job_at(&before) != self.live.job_at(&last) {
            self.record(&last, names).await;
        }
        self.live.retire();
        self.progress.send_replace(last);
    }

    async fn record(&self, progress: &Progress, names: Option<Changes>) {
        let job = self.live.job_at(progress);
        let (row, names) = (record::to_end_row(&job), names.map(record::to_names_row));
        if let Err(error) = self.store.update_job(job.id.to_string(), job.state().name(), row, names).await {
            tracing::error!(job_id = %job.id, error = %error, cause = ?error, "can't record the end of a job");
        }
    }
}

fn take_count(progress: &mut Progress, count: Option<Count>) -> Option<Changes> {
    let Count { touched, names } = count?;
    progress.touched = touched;
    names
}
