//! The runner of one job: the only writer of its state and its logs. It listens for the end of the program, for output,
//! for orders and for the time limit at once; the end of the output is not the end of the program, nor the reverse.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::registry::Live;
use super::{End, EndState, record, signal};
use crate::output::Writer;
use crate::process::spawn::{Ended, Exit, Process, Report};
use crate::store::Store;

/// Bytes read from a pipe at once: what Linux gives a pipe (pipe(7)).
const READ_BYTES: usize = 64 << 10;

/// Bytes moved before the runner looks at anything else while output floods.
const BURST_BYTES: usize = 4 << 20;

/// Size asked for the pipe of a program that floods: fewer switches between it and the runner.
const WIDE_PIPE_BYTES: usize = 1 << 20;

/// Time between TERM and KILL when a job's time is over.
pub(super) const TIMEOUT_GRACE: Duration = Duration::from_secs(2);

/// What the runner publishes.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    pub output_bytes: u64,
    pub stderr_bytes: u64,
    pub duration: Duration,
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

/// An order to end the job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cancel {
    pub signal: i32,
    pub grace: Duration,
}

/// One of the job's streams.
pub(super) struct Stream {
    pub pipe: Receiver,
    pub log: Writer,
    /// The pipe is open.
    pub open: bool,
    /// The pipe was made wide.
    pub wide: bool,
}

impl Stream {
    pub(super) fn new(pipe: Receiver, log: Writer) -> Self {
        Self { pipe, log, open: true, wide: false }
    }
}

/// A job that runs, with all that its runner owns.
pub(super) struct Runner {
    pub live: Arc<Live>,
    pub process: Process,
    pub output: Stream,
    pub stderr: Option<Stream>,
    pub progress: watch::Sender<Progress>,
    pub orders: mpsc::Receiver<Cancel>,
    pub store: Store,
    pub deadline: Instant,
}

/// Why and how the job is being ended.
#[derive(Debug, Clone, Copy)]
struct Ending {
    timed_out: bool,
    kill_at: Option<Instant>,
}

thread_local! {
    /// One buffer a thread serves all runners, since reading from a pipe never waits.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

impl Runner {
    /// Runs until no process of the job is left.
    pub(super) async fn run(mut self) {
        let mut ending: Option<Ending> = None;
        loop {
            let wake = match ending {
                None => Some(self.deadline),
                Some(ending) => ending.kill_at,
            };
            tokio::select! {
                report = self.process.report() => if self.on_report(report, ending).await { return },
                ready = self.output.pipe.readable(), if self.output.open => self.on_output(ready),
                ready = readable(self.stderr.as_ref()) => self.on_stderr(ready),
                Some(cancel) = self.orders.recv() => ending = self.on_cancel(cancel, ending).await,
                () = sleep_until(wake) => ending = Some(self.on_time(ending).await),
            }
        }
    }

    /// True when the job is gone and its record is final.
    async fn on_report(&mut self, report: Report, ending: Option<Ending>) -> bool {
        match report {
            Report::Ended(ended) => {
                self.drain();
                self.publish_end(ended, ending.is_some_and(|ending| ending.timed_out)).await;
                false
            }
            Report::Gone { ended } => {
                self.finish(ended).await;
                true
            }
            Report::Lost => {
                if self.progress.borrow().end.is_none() {
                    self.drain();
                    let ended = Ended {
                        exit: Exit::Signal(libc::SIGKILL),
                        cpu: Duration::ZERO,
                        max_rss_bytes: 0,
                        leftovers: 0,
                    };
                    self.progress.send_modify(|progress| {
                        progress
                            .notes
                            .push("the job's supervisor was killed, and the job with it".to_owned());
                    });
                    self.publish_end(ended, false).await;
                }
                self.finish(0).await;
                true
            }
        }
    }

    /// Records and publishes the end. Where no process is left behind, the output is over as well.
    async fn publish_end(&mut self, ended: Ended, timed_out: bool) {
        let signal = match ended.exit {
            Exit::Signal(number) => Some(signal::name(number)),
            Exit::Code(_) => None,
        };
        let state = match (timed_out, ended.exit) {
            (true, _) => EndState::TimedOut,
            (false, Exit::Signal(_)) => EndState::Killed,
            (false, Exit::Code(_)) => EndState::Exited,
        };
        let end = End {
            state,
            time: OffsetDateTime::now_utc().max(self.live.started),
            exit_code: Some(ended.exit.shell_code()),
            signal,
            cpu: Some(ended.cpu),
            max_rss_bytes: Some(ended.max_rss_bytes),
        };
        let over = ended.leftovers == 0;
        let mut next = self.progress.borrow().clone();
        next.duration = self.live.started_at.elapsed();
        next.end = Some(end);
        next.leftovers = ended.leftovers;
        next.output_over = over;
        self.count(&mut next);
        self.record(&next).await;
        self.progress.send_replace(next);
    }

    /// The last step: nothing of the job runs any more.
    async fn finish(&mut self, ended: u32) {
        self.drain();
        let mut last = self.progress.borrow().clone();
        let known = (last.leftovers, last.output_bytes, last.stderr_bytes, last.notes.len());
        last.leftovers = 0;
        last.output_over = true;
        last.gone = true;
        last.ended_processes = ended;
        self.count(&mut last);
        if known != (last.leftovers, last.output_bytes, last.stderr_bytes, last.notes.len()) {
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

    async fn on_cancel(&mut self, cancel: Cancel, ending: Option<Ending>) -> Option<Ending> {
        self.end_with(cancel.signal, cancel.grace).await;
        let kill_at = Instant::now() + cancel.grace;
        let kill_at = ending.and_then(|ending| ending.kill_at).map_or(kill_at, |known| known.min(kill_at));
        Some(Ending { timed_out: ending.is_some_and(|ending| ending.timed_out), kill_at: Some(kill_at) })
    }

    async fn on_time(&mut self, ending: Option<Ending>) -> Ending {
        match ending {
            None => {
                self.end_with(libc::SIGTERM, TIMEOUT_GRACE).await;
                Ending {
                    timed_out: self.progress.borrow().end.is_none(),
                    kill_at: Some(Instant::now() + TIMEOUT_GRACE),
                }
            }
            Some(ending) => {
                self.process.kill().await;
                Ending { kill_at: None, ..ending }
            }
        }
    }

    async fn end_with(&mut self, signal: i32, grace: Duration) {
        if grace.is_zero() || signal == libc::SIGKILL {
            self.process.kill().await;
        } else {
            self.process.signal(signal).await;
        }
    }

    fn on_output(&mut self, ready: io::Result<()>) {
        move_bytes(&mut self.output, ready);
        let mut next = Progress::default();
        self.count(&mut next);
        self.progress.send_modify(|progress| progress.output_bytes = next.output_bytes);
    }

    fn on_stderr(&mut self, ready: io::Result<()>) {
        if let Some(stderr) = &mut self.stderr {
            move_bytes(stderr, ready);
        }
        let mut next = Progress::default();
        self.count(&mut next);
        self.progress.send_modify(|progress| progress.stderr_bytes = next.stderr_bytes);
    }

    fn count(&self, progress: &mut Progress) {
        progress.output_bytes = self.output.log.total();
        progress.stderr_bytes = self.stderr.as_ref().map_or(0, |stream| stream.log.total());
    }

    /// Takes what the pipes hold now. What a process left behind writes from now on comes by the usual way.
    fn drain(&mut self) {
        for stream in std::iter::once(&mut self.output).chain(&mut self.stderr) {
            let held = rustix::pipe::fcntl_getpipe_size(&stream.pipe).unwrap_or(WIDE_PIPE_BYTES);
            let mut left = held;
            while stream.open && left > 0 {
                match read_once(stream) {
                    Ok(0) | Err(_) => break,
                    Ok(read) => left = left.saturating_sub(read),
                }
            }
        }
    }
}

async fn readable(stream: Option<&Stream>) -> io::Result<()> {
    match stream {
        Some(stream) if stream.open => stream.pipe.readable().await,
        _ => std::future::pending().await,
    }
}

async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Moves what the pipe holds to the log. A flood is moved in bursts, off the async threads' time: a disk that can't
/// keep up holds up the program that writes, and nobody else.
fn move_bytes(stream: &mut Stream, ready: io::Result<()>) {
    if ready.is_err() {
        stream.open = false;
        return;
    }
    let Ok(read) = read_once(stream) else { return };
    if read < READ_BYTES {
        return;
    }
    tokio::task::block_in_place(|| {
        if !stream.wide {
            stream.wide = true;
            // Refused where the user's pipes have used up their memory; the pipe works as it is.
            let _refused = rustix::pipe::fcntl_setpipe_size(&stream.pipe, WIDE_PIPE_BYTES).is_err();
        }
        let mut moved = read;
        while moved < BURST_BYTES {
            match read_once(stream) {
                Ok(0) | Err(_) => return,
                Ok(read) => moved += read,
            }
        }
    });
}

/// Moves one buffer; 0 at the end of the pipe, which is noted. An error says that there is nothing to read now.
fn read_once(stream: &mut Stream) -> io::Result<usize> {
    BUFFER.with_borrow_mut(|buffer| {
        let read = match stream.pipe.try_read(buffer) {
            Ok(0) => {
                stream.open = false;
                return Ok(0);
            }
            Ok(read) => read,
            Err(error) => {
                stream.open &= error.kind() == io::ErrorKind::WouldBlock;
                return Err(error);
            }
        };
        stream.log.append(&buffer[..read]);
        if let Some(error) = stream.log.take_error() {
            tracing::warn!(error = %error, cause = ?error, "output of a job is lost");
        }
        Ok(read)
    })
}
