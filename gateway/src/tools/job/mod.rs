//! Commands: start one, read its output, feed it, end it, list them.

mod render;

use std::{collections::BTreeMap, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use runlet_proto::v1::{
    self, CancelJobRequest, ListJobsRequest, ReadOutputRequest, StartJobRequest, WriteStdinRequest,
    job::State, read_output_request::Start,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{ANSWER_TIME, Context, Effect, Offered, Tool, with_wait};
use crate::{
    executor::{Repeat, jobs},
    failure::Failure,
    reply::{Reply, filled, wire_seconds},
};

pub(super) use render::{job_record, started};

pub(super) fn tools() -> Vec<Offered> {
    vec![
        Offered::new::<RunCommand>("jobs"),
        Offered::new::<ReadOutput>("jobs"),
        Offered::new::<WriteStdin>("jobs"),
        Offered::new::<CancelJob>("jobs"),
        Offered::new::<ListJobs>("jobs"),
    ]
}

/// Runs a bash command in a workspace. What takes longer than wait_seconds goes on as a job: follow it with
/// read_output. Only cancel_job ends it, never a dropped request.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RunCommand {
    /// Id or name
    workspace_id: String,
    #[schemars(length(min = 1))]
    command: String,
    /// Default: the work directory
    cwd: Option<String>,
    env: Option<BTreeMap<String, String>>,
    /// Input; default: empty
    stdin: Option<String>,
    /// For write_stdin
    #[serde(default)]
    keep_stdin_open: bool,
    /// Then the job is ended
    #[serde(default = "timeout_seconds")]
    #[schemars(range(min = 1, max = 86400))]
    timeout_seconds: u32,
    #[serde(default = "wait_seconds")]
    #[schemars(range(min = 0, max = 50))]
    wait_seconds: u32,
    /// Head and tail of more
    #[serde(default = "max_output_bytes")]
    #[schemars(range(min = 256, max = 524288))]
    max_output_bytes: u32,
    #[serde(default)]
    separate_stderr: bool,
    /// Name of a bash that keeps cwd and variables between calls
    shell: Option<String>,
    /// A repeat returns the first call's job
    request_id: Option<String>,
}

fn timeout_seconds() -> u32 {
    600
}

fn wait_seconds() -> u32 {
    10
}

pub(super) fn max_output_bytes() -> u32 {
    24_000
}

impl Tool for RunCommand {
    const NAME: &'static str = "run_command";
    const TITLE: &'static str = "Run a command";
    const EFFECT: Effect = Effect { open_world: true, ..Effect::CHANGES };

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let has_request_id = self.request_id.as_ref().is_some_and(|id| !id.is_empty());
        let repeat = if has_request_id { Repeat::Always } else { Repeat::Unsent };
        let message = StartJobRequest {
            principal: context.principal(),
            request_id: self.request_id.unwrap_or_default(),
            workspace_id: self.workspace_id,
            command: self.command,
            cwd: self.cwd.unwrap_or_default(),
            env: self.env.unwrap_or_default().into_iter().collect(),
            stdin: self.stdin.map(Into::into),
            keep_stdin_open: self.keep_stdin_open,
            timeout: Some(wire_seconds(self.timeout_seconds)),
            separate_stderr: self.separate_stderr,
            shell: self.shell.unwrap_or_default(),
            wait: Some(wire_seconds(self.wait_seconds)),
            max_output_bytes: self.max_output_bytes,
        };
        let send = |channel, request| async move { jobs(channel).start_job(request).await };
        let answer = context.link.call(message, with_wait(self.wait_seconds), repeat, send).await?;
        Ok(render::started(&answer))
    }
}

/// Reads a job's output from a cursor on, and its status. With wait_seconds it waits for new output, for until to
/// match, or for the end.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadOutput {
    job_id: String,
    /// Byte offset, such as the last next_cursor
    #[serde(default)]
    cursor: Cursor,
    #[serde(default = "max_output_bytes")]
    #[schemars(range(min = 256, max = 524288))]
    max_output_bytes: u32,
    #[serde(default)]
    #[schemars(range(min = 0, max = 50))]
    wait_seconds: u32,
    /// Regex
    until: Option<String>,
    #[serde(default)]
    stream: Stream,
    /// As base64
    #[serde(default)]
    raw: bool,
    /// Name the files it changed
    #[serde(default)]
    files: bool,
}

#[derive(Deserialize, Serialize, JsonSchema, Clone, Copy)]
#[serde(untagged)]
enum Cursor {
    At(u64),
    Tail(Tail),
}

#[derive(Deserialize, Serialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Tail {
    Tail,
}

impl Default for Cursor {
    fn default() -> Self {
        Self::At(0)
    }
}

#[derive(Deserialize, Serialize, JsonSchema, Clone, Copy, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Stream {
    #[default]
    Output,
    Stderr,
}

impl Tool for ReadOutput {
    const NAME: &'static str = "read_output";
    const TITLE: &'static str = "Read a job's output";
    const EFFECT: Effect = Effect::READS;

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let stream = match self.stream {
            Stream::Output => v1::Stream::Output,
            Stream::Stderr => v1::Stream::Stderr,
        };
        let message = ReadOutputRequest {
            job_id: self.job_id,
            stream: stream.into(),
            start: Some(match self.cursor {
                Cursor::At(offset) => Start::Cursor(offset),
                Cursor::Tail(Tail::Tail) => Start::Tail(true),
            }),
            max_output_bytes: self.max_output_bytes,
            wait: Some(wire_seconds(self.wait_seconds)),
            until: self.until.clone().unwrap_or_default(),
            raw: self.raw,
            files: self.files,
        };
        let send = |channel, request| async move { jobs(channel).read_output(request).await };
        let answer = context.link.call(message, with_wait(self.wait_seconds), Repeat::Always, send).await?;
        let asked = render::Asked {
            cursor: match self.cursor {
                Cursor::At(offset) => Some(offset),
                Cursor::Tail(Tail::Tail) => None,
            },
            is_stderr: self.stream == Stream::Stderr,
            until: self.until,
            raw: self.raw,
            files: self.files,
        };
        Ok(render::read(&answer, &asked))
    }
}

/// Writes to the stdin of a job started with keep_stdin_open.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WriteStdin {
    job_id: String,
    text: Option<String>,
    /// Bytes, instead of text
    base64: Option<String>,
    #[serde(default)]
    close: bool,
}

impl Tool for WriteStdin {
    const NAME: &'static str = "write_stdin";
    const TITLE: &'static str = "Write to a job's stdin";
    const EFFECT: Effect = Effect { open_world: true, ..Effect::CHANGES };
    const RECORD: &'static [(&'static str, &'static str)] =
        &[("accepted_bytes", "integer"), ("closed", "boolean")];

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let data = match (self.text, self.base64) {
            (Some(_), Some(_)) => {
                return Err(Failure::argument("write_stdin: text and base64 are both given, expected one"));
            }
            (Some(text), None) => text.into_bytes(),
            (None, Some(base64)) => BASE64.decode(base64).map_err(|error| {
                Failure::argument(format!("write_stdin: base64: expected standard base64: {error}"))
            })?,
            (None, None) if self.close => Vec::new(),
            (None, None) => {
                return Err(Failure::argument("write_stdin: expected text, base64 or close=true"));
            }
        };
        let job_id = self.job_id.clone();
        let message = WriteStdinRequest {
            principal: context.principal(),
            job_id: self.job_id,
            data: data.into(),
            close: self.close,
        };
        let send = |channel, request| async move { jobs(channel).write_stdin(request).await };
        let answer = context.link.call(message, ANSWER_TIME, Repeat::Unsent, send).await?;
        Ok(Reply::Record(json!({
            "job_id": job_id,
            "accepted_bytes": answer.accepted_bytes,
            "closed": answer.closed,
        })))
    }
}

/// Ends a job with all it started, and answers when they are gone.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CancelJob {
    job_id: String,
    #[serde(default = "signal")]
    signal: String,
    /// Time until KILL
    #[serde(default = "grace_seconds")]
    #[schemars(range(min = 0, max = 50))]
    grace_seconds: u32,
}

fn signal() -> String {
    "TERM".to_owned()
}

fn grace_seconds() -> u32 {
    5
}

impl Tool for CancelJob {
    const NAME: &'static str = "cancel_job";
    const TITLE: &'static str = "End a job";
    const EFFECT: Effect = Effect::REMOVES;
    const RECORD: &'static [(&'static str, &'static str)] =
        &[("job", "object"), ("ended_processes", "integer")];

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let message = CancelJobRequest {
            principal: context.principal(),
            job_id: self.job_id,
            signal: self.signal,
            grace: Some(wire_seconds(self.grace_seconds)),
        };
        let limit = ANSWER_TIME + Duration::from_secs(u64::from(self.grace_seconds));
        let send = |channel, request| async move { jobs(channel).cancel_job(request).await };
        let answer = context.link.call(message, limit, Repeat::Always, send).await?;
        let job = answer.job.unwrap_or_default();
        Ok(Reply::Record(json!({ "job": job_record(&job), "ended_processes": answer.ended_processes })))
    }
}

/// Lists jobs, newest first, without their output.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListJobs {
    workspace_id: Option<String>,
    status: Option<Status>,
    #[serde(default = "page_size")]
    #[schemars(range(min = 1, max = 1000))]
    page_size: u32,
    page_token: Option<String>,
}

fn page_size() -> u32 {
    50
}

#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum Status {
    Running,
    Exited,
    Killed,
    TimedOut,
    Lost,
}

impl From<Status> for State {
    fn from(status: Status) -> Self {
        match status {
            Status::Running => Self::Running,
            Status::Exited => Self::Exited,
            Status::Killed => Self::Killed,
            Status::TimedOut => Self::TimedOut,
            Status::Lost => Self::Lost,
        }
    }
}

impl Tool for ListJobs {
    const NAME: &'static str = "list_jobs";
    const TITLE: &'static str = "List jobs";
    const EFFECT: Effect = Effect::READS;
    const RECORD: &'static [(&'static str, &'static str)] = &[("jobs", "array")];

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let message = ListJobsRequest {
            workspace_id: self.workspace_id.unwrap_or_default(),
            state: self.status.map_or(State::Unspecified, State::from).into(),
            page_size: self.page_size,
            page_token: self.page_token.unwrap_or_default(),
        };
        let send = |channel, request| async move { jobs(channel).list_jobs(request).await };
        let answer = context.link.call(message, ANSWER_TIME, Repeat::Always, send).await?;
        let jobs: Vec<_> = answer.jobs.iter().map(job_record).collect();
        Ok(Reply::Record(json!({ "jobs": jobs, "next_page_token": filled(answer.next_page_token) })))
    }
}
