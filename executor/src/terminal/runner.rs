//! The runner of one terminal: the only writer of its state, its log and its screen. It listens for the end of the program,
//! for output and for the order to close at once, and gives the answers that programs expect of a terminal.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::ledger::Ledger;
use crate::file::Presence;
use crate::output::Writer;
use crate::process::pty::Pty;
use crate::process::spawn::{Ended, Process, Report};
use crate::timer::sleep_until;

/// Bytes read from a terminal at once. The kernel's own buffer has 4 KiB (N_TTY_BUF_SIZE).
const READ_BYTES: usize = 16 << 10;

/// A read of this many bytes says that more is on its way.
const FLOOD_BYTES: usize = 2 << 10;

/// Bytes moved before anything else is looked at while output floods.
const BURST_BYTES: usize = 1 << 20;

/// Answers kept for a program that does not read them.
const MOST_ANSWERS: usize = 64 << 10;

/// An order to end the terminal with all that runs in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Close {
    /// Time between HUP, which tells programs that their terminal is gone, and KILL.
    pub grace: Duration,
}

/// A terminal that runs, with all that its runner owns.
pub(super) struct Runner {
    pub process: Process,
    pub pty: Arc<Pty>,
    pub log: Writer,
    pub ledger: Ledger,
    pub orders: mpsc::Receiver<Close>,
    /// What runs in it may change files at any time.
    pub _presence: Presence,
    /// Answers that the program has not read.
    pub answers: Vec<u8>,
    /// Programs have closed the terminal for good.
    pub over: bool,
}

impl Runner {
    /// Runs until no process of the terminal is left. The terminal is let go of after that: a program that lives must not
    /// be told that somebody typed the end of the input.
    pub(super) async fn run(mut self) {
        let mut buffer = vec![0; READ_BYTES];
        let mut kill_at: Option<Instant> = None;
        let ended_processes = loop {
            let update_due = self.ledger.live().screen().update_due().map(Instant::from_std);
            tokio::select! {
                report = self.process.report() => match report {
                    Report::Ended(ended) => self.end(ended, &mut buffer).await,
                    Report::Gone { ended, .. } => break ended,
                    Report::Lost => {
                        if !self.ledger.has_ended() {
                            self.end(Ended::KILLED, &mut buffer).await;
                        }
                        break 0;
                    }
                },
                ready = self.pty.readable(), if !self.over => match ready {
                    Ok(()) => self.advance(&mut buffer),
                    Err(_) => self.over = true,
                },
                ready = self.pty.writable(), if !self.answers.is_empty() => match ready {
                    Ok(()) => self.answer(),
                    Err(_) => self.answers.clear(),
                },
                Some(Close { grace }) = self.orders.recv() => {
                    self.process.signal(libc::SIGHUP).await;
                    // Shells that wait for a program that was stopped do not hear anything else.
                    self.process.signal(libc::SIGCONT).await;
                    let at = Instant::now() + grace;
                    kill_at = Some(kill_at.map_or(at, |earlier| earlier.min(at)));
                }
                () = sleep_until(kill_at) => {
                    kill_at = None;
                    self.process.kill().await;
                }
                () = sleep_until(update_due) => {
                    let answers = self.ledger.live().screen().end_update();
                    self.queue(&answers);
                    self.ledger.wrote(self.log.total());
                }
            }
        };
        self.drain(&mut buffer);
        let total = self.log.total();
        self.ledger.close(ended_processes, total).await;
    }

    /// What was printed before the end is there when the end is told.
    async fn end(&mut self, ended: Ended, buffer: &mut [u8]) {
        self.drain(buffer);
        self.ledger.end(ended, self.log.total()).await;
    }

    /// Moves what the terminal holds to the log and the screen. A flood is moved off the async threads' time: what can't
    /// keep up holds up the program that writes, and nobody else.
    fn advance(&mut self, buffer: &mut [u8]) {
        let Some(first) = self.move_some(buffer, Pty::read) else { return };
        if first >= FLOOD_BYTES {
            tokio::task::block_in_place(|| {
                let mut moved = first;
                while moved < BURST_BYTES {
                    match self.move_some(buffer, Pty::read) {
                        Some(more) => moved += more,
                        None => break,
                    }
                }
            });
        }
        self.ledger.wrote(self.log.total());
    }

    /// Takes what the terminal holds now.
    fn drain(&mut self, buffer: &mut [u8]) {
        let mut left = BURST_BYTES;
        while !self.over && left > 0 {
            match self.move_some(buffer, Pty::read_now) {
                Some(moved) => left = left.saturating_sub(moved),
                None => break,
            }
        }
    }

    /// Moves one buffer; `None` when there is nothing to move.
    fn move_some(
        &mut self,
        buffer: &mut [u8],
        read: impl FnOnce(&Pty, &mut [u8]) -> std::io::Result<usize>,
    ) -> Option<usize> {
        let read = match read(&self.pty, buffer) {
            Ok(0) => {
                self.over = true;
                return None;
            }
            Ok(read) => read,
            Err(error) => {
                self.over = error.kind() != std::io::ErrorKind::WouldBlock;
                return None;
            }
        };
        self.log.append(&buffer[..read]);
        if let Some(error) = self.log.take_error() {
            tracing::warn!(error = %error, cause = ?error, "output of a terminal is lost");
        }
        let answers = self.ledger.live().screen().feed(&buffer[..read]);
        self.queue(&answers);
        Some(read)
    }

    fn queue(&mut self, answers: &[u8]) {
        if !answers.is_empty() && self.answers.len() + answers.len() <= MOST_ANSWERS {
            self.answers.extend_from_slice(answers);
            self.answer();
        }
    }

    fn answer(&mut self) {
        match self.pty.write(&self.answers) {
            Ok(written) => drop(self.answers.drain(..written)),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => self.answers.clear(),
        }
    }
}
