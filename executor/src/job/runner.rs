//! The runner of one job: the only writer of its state and its logs. It listens for the end of the program, for output,
//! for orders and for the time limit at once; the end of the output is not the end of the program, nor the reverse.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::ledger::{Ledger, Totals};
use super::stream::Stream;
use crate::process::spawn::{Ended, Exit, Process, Report};

/// Time between TERM and KILL when a job's time is over.
pub(super) const TIMEOUT_GRACE: Duration = Duration::from_secs(2);

/// An order to end the job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cancel {
    pub signal: i32,
    pub grace: Duration,
}

/// A job that runs, with all that its runner owns.
pub(super) struct Runner {
    pub process: Process,
    pub output: Stream,
    pub stderr: Option<Stream>,
    pub ledger: Ledger,
    pub orders: mpsc::Receiver<Cancel>,
    pub deadline: Instant,
}

/// How a job is being ended.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ending {
    /// Its time was over before its program ended.
    pub timed_out: bool,
    /// When what is left is killed.
    pub kill_at: Option<Instant>,
}

impl Runner {
    /// Runs until no process of the job is left.
    pub(super) async fn run(mut self) {
        let mut ending: Option<Ending> = None;
        let ended_processes = loop {
            let wake = ending.map_or(Some(self.deadline), |ending| ending.kill_at);
            tokio::select! {
                report = self.process.report() => match report {
                    Report::Ended(ended) => self.end(ended, ending.is_some_and(|ending| ending.timed_out)).await,
                    Report::Gone { ended } => break ended,
                    Report::Lost => {
                        self.lost().await;
                        break 0;
                    }
                },
                ready = self.output.readable() => {
                    self.output.advance(ready);
                    self.ledger.wrote(self.totals());
                }
                ready = readable(self.stderr.as_ref()) => {
                    if let Some(stderr) = &mut self.stderr {
                        stderr.advance(ready);
                    }
                    self.ledger.wrote(self.totals());
                }
                Some(cancel) = self.orders.recv() => {
                    ending = Some(cancel_process(&mut self.process, cancel, ending).await);
                }
                () = sleep_until(wake) => ending = Some(self.on_time(ending).await),
            }
        };
        self.drain();
        let totals = self.totals();
        self.ledger.close(ended_processes, totals).await;
    }

    /// What was printed before the end is there when the end is told.
    async fn end(&mut self, ended: Ended, timed_out: bool) {
        self.drain();
        self.ledger.end(ended, timed_out, self.totals()).await;
    }

    async fn lost(&mut self) {
        if !self.ledger.has_ended() {
            self.ledger.note("the job's supervisor was killed, and the job with it");
            self.end(KILLED, false).await;
        }
    }

    async fn on_time(&mut self, ending: Option<Ending>) -> Ending {
        match ending {
            None => {
                let cancel = Cancel { signal: libc::SIGTERM, grace: TIMEOUT_GRACE };
                let ending = cancel_process(&mut self.process, cancel, None).await;
                Ending { timed_out: !self.ledger.has_ended(), ..ending }
            }
            Some(ending) => {
                self.process.kill().await;
                Ending { kill_at: None, ..ending }
            }
        }
    }

    fn totals(&self) -> Totals {
        Totals { output: self.output.total(), stderr: self.stderr.as_ref().map_or(0, Stream::total) }
    }

    fn drain(&mut self) {
        self.output.drain();
        if let Some(stderr) = &mut self.stderr {
            stderr.drain();
        }
    }
}

/// The end of a program of which nobody saw the end.
pub(super) const KILLED: Ended = Ended { exit: Exit::Signal(libc::SIGKILL), usage: None, leftovers: 0 };

/// Begins to end a process with all it started. An earlier time for the kill is kept.
pub(super) async fn cancel_process(process: &mut Process, cancel: Cancel, ending: Option<Ending>) -> Ending {
    let Cancel { signal, grace } = cancel;
    if grace.is_zero() || signal == libc::SIGKILL {
        process.kill().await;
    } else {
        process.signal(signal).await;
    }
    let known = ending.unwrap_or_default();
    let kill_at = Instant::now() + grace;
    Ending { kill_at: Some(known.kill_at.map_or(kill_at, |earlier| earlier.min(kill_at))), ..known }
}

async fn readable(stream: Option<&Stream>) -> std::io::Result<()> {
    match stream {
        Some(stream) => stream.readable().await,
        None => std::future::pending().await,
    }
}

pub(super) async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
