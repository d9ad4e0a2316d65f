//! The runner of one job: the only writer of its state and its logs. It listens for the end of the program, for output,
//! for orders and for the time limit at once; the end of the output is not the end of the program, nor the reverse.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::ledger::{Ledger, Outcome, Rest, Totals};
use super::receipt::{Counting, Opening, counted};
use super::stream::Stream;
use crate::process::spawn::{Ended, Process, Report};
use crate::timer::{Deadline, sleep_until};

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
    pub deadline: Deadline,
    pub opening: Opening,
    /// The changed files, while they are counted.
    pub counting: Option<Counting>,
}

/// How a job is being ended.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ending {
    /// Its time was over before its program ended.
    pub timed_out: bool,
    /// When what is left is killed.
    pub kill_at: Option<Instant>,
    /// It was killed.
    pub killed: bool,
}

impl Runner {
    /// Runs until no process of the job is left.
    pub(super) async fn run(mut self) {
        let mut ending: Option<Ending> = None;
        let mut rest = loop {
            let kill_at = ending.and_then(|ending| ending.kill_at);
            tokio::select! {
                report = self.process.report() => match report {
                    Report::Ended(ended) => self.end(ended, ending.unwrap_or_default()).await,
                    Report::Gone { ended, usage } => {
                        break Rest { ended_processes: ended, usage: Some(usage), count: None };
                    }
                    Report::Lost => {
                        self.lost().await;
                        break Rest::default();
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
                count = counted(self.counting.as_mut()) => {
                    self.counting = None;
                    self.ledger.counted(count).await;
                }
                Some(cancel) = self.orders.recv() => {
                    ending = Some(cancel_process(&mut self.process, cancel, ending).await);
                }
                () = self.deadline.passed(), if ending.is_none() => ending = Some(self.on_time(None).await),
                () = sleep_until(kill_at), if ending.is_some() => ending = Some(self.on_time(ending).await),
            }
        };
        self.drain();
        if let Some(counting) = self.counting.take() {
            rest.count = Some(counting.await);
        }
        let totals = self.totals();
        self.ledger.close(rest, totals).await;
    }

    /// What was printed before the end is there when the end is told.
    async fn end(&mut self, ended: Ended, ending: Ending) {
        self.drain();
        let out_of_memory = self.opening.out_of_memory(&ended, ending.killed);
        let count = match self.opening.count(&ended).await {
            Ok(count) => Some(count),
            Err(counting) => {
                self.counting = Some(counting);
                None
            }
        };
        let outcome = Outcome { ended, timed_out: ending.timed_out, out_of_memory, count };
        self.ledger.end(outcome, self.totals()).await;
    }

    async fn lost(&mut self) {
        if !self.ledger.has_ended() {
            self.ledger.note("the job's supervisor was killed, and the job with it");
            self.end(Ended::KILLED, Ending { killed: true, ..Ending::default() }).await;
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
                Ending { kill_at: None, killed: true, ..ending }
            }
        }
    }

    fn totals(&self) -> Totals {
        let stderr = self.stderr.as_ref();
        Totals {
            output: self.output.total(),
            stderr: stderr.map_or(0, Stream::total),
            caps_hit: self.output.caps_hit().or(stderr.and_then(Stream::caps_hit)),
        }
    }

    fn drain(&mut self) {
        self.output.drain();
        if let Some(stderr) = &mut self.stderr {
            stderr.drain();
        }
    }
}

/// Begins to end a process with all it started. An earlier time for the kill is kept.
pub(super) async fn cancel_process(process: &mut Process, cancel: Cancel, ending: Option<Ending>) -> Ending {
    let Cancel { signal, grace } = cancel;
    let kill = grace.is_zero() || signal == libc::SIGKILL;
    if kill {
        process.kill().await;
    } else {
        process.signal(signal).await;
    }
    let known = ending.unwrap_or_default();
    let kill_at = Instant::now() + grace;
    Ending {
        kill_at: Some(known.kill_at.map_or(kill_at, |earlier| earlier.min(kill_at))),
        killed: known.killed || kill,
        ..known
    }
}

async fn readable(stream: Option<&Stream>) -> std::io::Result<()> {
    match stream {
        Some(stream) => stream.readable().await,
        None => std::future::pending().await,
    }
}
