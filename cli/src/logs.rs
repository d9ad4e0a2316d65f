//! `runlet logs`: what a job or a terminal printed, to a file, a pipe or a person, and what it prints from now on.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use data_encoding::BASE64;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

use crate::gateway::{Connection, Failure, LONGEST_WAIT};
use crate::patience::{Answer, Patient};
use crate::warn;

/// Bytes of a job's output asked for at a time: the most that the tool gives.
const PAGE_BYTES: u64 = 524_288;

/// How often is seen whether somebody still reads what is printed.
const READER_PERIOD: Duration = Duration::from_millis(200);

/// How long is waited for the rest of a character or a line of which there is a beginning.
const REST_PERIOD: Duration = Duration::from_millis(200);

/// Print the output of a job or a terminal, and follow it.
#[derive(Debug, Args)]
#[command(
    after_help = "With --follow the exit status is that of the job: 128 and the signal's number if one ended it, and \
                        1 if it was lost. Without it, and when the reader has enough, it is 0."
)]
pub(crate) struct Logs {
    #[command(flatten)]
    connection: Connection,
    /// Go on until the end, over restarts of the gateway and the executor
    #[arg(short, long)]
    follow: bool,
    /// What a job that was started with separate_stderr wrote there
    #[arg(long)]
    stderr: bool,
    /// Only so many of the last bytes
    #[arg(long, value_name = "BYTES", conflicts_with = "from")]
    tail: Option<u64>,
    /// From this byte on, such as a next_cursor of the tools
    #[arg(long, value_name = "CURSOR")]
    from: Option<u64>,
    /// The bytes as they are, with escape sequences
    #[arg(long)]
    raw: bool,
    /// Id of a job, or id or name of a terminal
    #[arg(value_name = "ID")]
    id: String,
}

/// A part of the log.
struct Part {
    bytes: Vec<u8>,
    next: u64,
    total: u64,
    /// Bytes of it that are no longer kept.
    lost: u64,
    is_over: bool,
}

/// Whether there is somebody to print for.
#[derive(Debug, PartialEq, Eq)]
enum Reader {
    Reads,
    Gone,
}

impl Logs {
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        if self.stderr && !self.is_job() {
            let problem =
                "--stderr: a terminal has one output; expected the id of a job, such as job_7f3k2m9qd4ra";
            return Err(Failure::Usage(problem.to_owned()));
        }
        let patient = Patient::new(self.connection.open()?);
        tokio::select! {
            outcome = self.print(patient) => outcome,
            () = reader_gone() => Ok(ExitCode::SUCCESS),
        }
    }

    fn is_job(&self) -> bool {
        self.id.starts_with("job_")
    }

    async fn print(&self, mut patient: Patient) -> Result<ExitCode, Failure> {
        let (mut cursor, most) = self.start(&mut patient).await?;
        let mut wait = 0;
        loop {
            let record = self.read(&mut patient, cursor, wait).await?;
            let part = self.part(&record, cursor)?;
            if part.lost > 0 {
                warn(&format!("{} bytes from byte {cursor} on are no longer kept", part.lost));
            } else if part.bytes.is_empty() && part.next > cursor && !self.raw {
                warn(&format!("bytes {cursor} to {} hold no text; --raw prints them", part.next));
            }
            if put(&part.bytes)? == Reader::Gone {
                return Ok(ExitCode::SUCCESS);
            }
            let got_on = part.next > cursor;
            cursor = part.next;
            match () {
                () if !self.follow && (cursor >= most || !got_on) => return Ok(ExitCode::SUCCESS),
                () if self.follow && part.is_over && (cursor >= part.total || !got_on) => {
                    return Ok(self.end(&record));
                }
                () if !got_on && cursor < part.total => tokio::time::sleep(REST_PERIOD).await,
                () => {}
            }
            wait = if self.follow { LONGEST_WAIT } else { 0 };
        }
    }

    /// Where to start, and how much there is.
    async fn start(&self, patient: &mut Patient) -> Result<(u64, u64), Failure> {
        let record = self.read(patient, 0, 0).await?;
        if self.stderr && record["stderr_bytes"].is_null() {
            let problem = format!("{} was not started with separate_stderr: leave --stderr out", self.id);
            return Err(Failure::Unusable(problem));
        }
        let total = total(&record);
        if let Some(from) = self.from.filter(|&from| from > total) {
            return Err(Failure::Usage(format!("--from {from}: expected {total} or less, which is the end")));
        }
        let start = self.tail.map(|bytes| total.saturating_sub(bytes)).or(self.from).unwrap_or_default();
        Ok((start, total))
    }

    /// Calls until somebody answers.
    async fn read(&self, patient: &mut Patient, cursor: u64, wait: u64) -> Result<Value, Failure> {
        let (tool, arguments) = if self.is_job() {
            let stream = if self.stderr { "stderr" } else { "output" };
            let more = json!({
                "job_id": self.id, "cursor": cursor, "wait_seconds": wait, "stream": stream, "raw": self.raw,
                "max_output_bytes": PAGE_BYTES,
            });
            ("read_output", more)
        } else {
            let view = if self.raw { "raw" } else { "output" };
            let id = &self.id;
            let more = json!({ "terminal_id": id, "cursor": cursor, "wait_seconds": wait, "view": view });
            ("read_terminal", more)
        };
        loop {
            match patient.call(tool, arguments.clone()).await? {
                Answer::Object(record) => return Ok(record),
                Answer::Away(Some(told)) => warn(&told),
                Answer::Away(None) => {}
            }
        }
    }

    fn part(&self, record: &Value, cursor: u64) -> Result<Part, Failure> {
        let number = |key: &str| record[key].as_u64();
        let text = |key: &str| record[key].as_str().unwrap_or_default();
        let bytes = if self.raw {
            BASE64.decode(text("output_base64").as_bytes()).map_err(|error| {
                Failure::Unusable(format!("the gateway's output is not what was expected: {error}"))
            })?
        } else {
            text("output").as_bytes().to_vec()
        };
        Ok(Part {
            bytes,
            next: number("next_cursor").unwrap_or(cursor),
            total: total(record),
            lost: number("lost_bytes").unwrap_or_default(),
            is_over: record["status"] != "running",
        })
    }

    /// The exit status, as the job had it.
    fn end(&self, record: &Value) -> ExitCode {
        let leftovers = record["leftover_processes"].as_u64().unwrap_or_default();
        if leftovers > 0 {
            warn(&format!("{} has ended; processes that it started still run: {leftovers}", self.id));
        }
        match (record["status"].as_str(), record["exit_code"].as_u64()) {
            (Some("lost"), _) => {
                warn(&format!("{} was lost: the executor stopped while it ran", self.id));
                ExitCode::FAILURE
            }
            (_, Some(code)) => u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from),
            (_, None) => ExitCode::FAILURE,
        }
    }
}

/// Bytes of the log that was read.
fn total(record: &Value) -> u64 {
    record["total_bytes"].as_u64().unwrap_or_default()
}

/// Prints bytes at once.
fn put(bytes: &[u8]) -> Result<Reader, Failure> {
    let mut stdout = io::stdout().lock();
    match tokio::task::block_in_place(|| stdout.write_all(bytes).and_then(|()| stdout.flush())) {
        Ok(()) => Ok(Reader::Reads),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(Failure::Unusable(format!("can't print: {error}"))),
    }
}

/// Resolves when nobody reads any more what is printed, as after `| head`. Only printing would tell otherwise, and a job may
/// print nothing for hours.
async fn reader_gone() {
    loop {
        let stdout = io::stdout();
        let mut ends = [PollFd::new(&stdout, PollFlags::empty())];
        let found = poll(&mut ends, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        if found.is_ok() && ends[0].revents().contains(PollFlags::ERR) {
            return;
        }
        tokio::time::sleep(READER_PERIOD).await;
    }
}
