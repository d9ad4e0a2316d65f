//! What becomes of a terminal: recorded first, then published, so that nobody is told what a crash could still undo.

use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::watch;

use super::registry::Live;
use super::{End, EndState, record};
use crate::process::signal;
use crate::process::spawn::{Ended, Exit};
use crate::store::Store;

/// What is published of a living terminal.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    pub output_bytes: u64,
    pub duration: Duration,
    pub end: Option<End>,
    pub leftovers: u32,
    /// Nothing more will be written to the log.
    pub output_over: bool,
    /// No process of the terminal is left, and its record is final.
    pub gone: bool,
    /// Processes that were ended when the terminal was closed.
    pub ended_processes: u32,
}

/// The one writer of a terminal's state.
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

    pub(super) fn live(&self) -> &Live {
        &self.live
    }

    pub(super) fn has_ended(&self) -> bool {
        self.progress.borrow().end.is_some()
    }

    /// Publishes how much was written.
    pub(super) fn wrote(&self, total: u64) {
        self.progress.send_modify(|progress| progress.output_bytes = total);
    }

    /// Records and publishes the end of the program.
    pub(super) async fn end(&self, ended: Ended, total: u64) {
        let (state, signal) = match ended.exit {
            Exit::Signal(number) => (EndState::Killed, Some(signal::name(number))),
            Exit::Code(_) => (EndState::Exited, None),
        };
        let mut next = self.progress.borrow().clone();
        next.duration = self.live.started_at.elapsed();
        next.end = Some(End {
            state,
            time: OffsetDateTime::now_utc().max(self.live.fixed.started),
            exit_code: Some(ended.exit.shell_code()),
            signal,
            cpu: ended.usage.map(|usage| usage.cpu),
            max_rss_bytes: ended.usage.and_then(|usage| usage.max_rss_bytes),
        });
        next.leftovers = ended.leftovers;
        next.output_over = ended.leftovers == 0;
        next.output_bytes = total;
        self.record(&next).await;
        self.progress.send_replace(next);
    }

    /// The last step: nothing of the terminal runs any more. `ended_processes` were there when it was closed.
    pub(super) async fn close(self, ended_processes: u32, total: u64) {
        let before = self.progress.borrow().clone();
        let mut last = before.clone();
        last.leftovers = 0;
        last.output_over = true;
        last.gone = true;
        last.ended_processes = ended_processes;
        last.output_bytes = total;
        if (before.leftovers, before.output_bytes) != (last.leftovers, last.output_bytes) {
            self.record(&last).await;
        }
        self.live.retire();
        self.progress.send_replace(last);
    }

    async fn record(&self, progress: &Progress) {
        let row = record::to_row(&self.live.terminal_at(progress));
        let id = row.terminal_id.clone();
        if let Err(error) = self.store.update_terminal(row).await {
            tracing::error!(terminal_id = id, error = %error, cause = ?error, "can't record the end of a terminal");
        }
    }
}
