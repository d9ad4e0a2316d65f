//! Domain values as wire messages, and the few that come the other way.

use std::time::Duration;

use prost_types::Timestamp;
use runlet_proto::v1;
use time::OffsetDateTime;

use crate::error::{Error, Result};
use crate::file::Changes;
use crate::job::{EndState, Job, Leftover, Started, State, Touched};
use crate::output;
use crate::terminal::{self, Terminal};
use crate::workspace::{self, Workspace};

/// Rows on a page when the caller names no number, and at most.
const DEFAULT_PAGE: u32 = 50;
const MAX_PAGE: u32 = 1000;

/// Limits of the output in one answer, in bytes.
const LEAST_OUTPUT: u32 = 256;
const MOST_OUTPUT: u32 = 512 << 10;

pub(super) fn timestamp(time: OffsetDateTime) -> Timestamp {
    let nanos = i32::try_from(time.nanosecond()).unwrap_or(0);
    Timestamp { seconds: time.unix_timestamp(), nanos }
}

pub(super) fn duration(time: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(time.subsec_nanos()).unwrap_or(0),
    }
}

/// A duration that may be absent, which is zero.
pub(super) fn from_duration(field: &'static str, value: Option<prost_types::Duration>) -> Result<Duration> {
    let Some(value) = value else { return Ok(Duration::ZERO) };
    Duration::try_from(value).map_err(|_| Error::invalid(field, "expected a duration that is not negative"))
}

/// An optional text, for which the wire has the empty one.
pub(super) fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

pub(super) fn page_size(given: u32) -> Result<u32> {
    match given {
        0 => Ok(DEFAULT_PAGE),
        1..=MAX_PAGE => Ok(given),
        _ => Err(Error::invalid("page_size", format!("expected 1 to {MAX_PAGE}, got {given}"))),
    }
}

pub(super) fn output_limit(given: u32) -> Result<usize> {
    if !(LEAST_OUTPUT..=MOST_OUTPUT).contains(&given) {
        let problem = format!("expected {LEAST_OUTPUT} to {MOST_OUTPUT}, got {given}");
        return Err(Error::invalid("max_output_bytes", problem));
    }
    usize::try_from(given).map_err(|error| Error::internal("reading max_output_bytes", error))
}

/// A page token is the place of the last row of the page before.
pub(super) fn from_page_token(token: &str) -> Result<Option<i64>> {
    if token.is_empty() {
        return Ok(None);
    }
    let invalid = || Error::invalid("page_token", "expected the next_page_token of an earlier answer");
    token.strip_prefix('p').and_then(|number| number.parse().ok()).map(Some).ok_or_else(invalid)
}

pub(super) fn page_token(next: Option<i64>) -> String {
    next.map(|number| format!("p{number}")).unwrap_or_default()
}

pub(super) fn workspace(workspace: &Workspace, isolation: &str) -> v1::Workspace {
    let path = |path: &std::path::Path| path.to_string_lossy().into_owned();
    v1::Workspace {
        workspace_id: workspace.id.to_string(),
        name: workspace.name.clone().unwrap_or_default(),
        path: path(&workspace.seen.work),
        home: path(&workspace.seen.home),
        state: match workspace.state {
            workspace::State::Creating => v1::workspace::State::Creating,
            workspace::State::Ready => v1::workspace::State::Ready,
            workspace::State::Suspended => v1::workspace::State::Suspended,
            workspace::State::Deleting => v1::workspace::State::Deleting,
            workspace::State::Failed => v1::workspace::State::Failed,
        }
        .into(),
        create_time: Some(timestamp(workspace.created)),
        git: workspace.git.as_ref().map(|git| v1::workspace::Git {
            url: git.url.clone(),
            r#ref: git.reference.clone(),
            commit: git.commit.clone(),
        }),
        python: workspace.python_version.as_ref().map(|version| v1::workspace::Python {
            version: version.clone(),
            venv: path(&workspace.seen.venv),
        }),
        env_names: workspace.env.keys().cloned().collect(),
        isolation: if workspace.enclosed { "namespaces" } else { isolation }.to_owned(),
        notes: workspace.notes.clone(),
    }
}

pub(super) fn started(started: Started) -> v1::StartJobResponse {
    let Started { job, output, stderr, repeated } = started;
    let (output_bytes, stderr_bytes) = (job.output_bytes, job.stderr_bytes);
    v1::StartJobResponse {
        output: Some(self::output(output, output_bytes, false)),
        stderr: stderr.map(|stderr| self::output(stderr, stderr_bytes, false)),
        job: Some(self::job(job)),
        repeated_request: repeated,
    }
}

pub(super) fn terminal(terminal: Terminal) -> v1::Terminal {
    let Terminal {
        id,
        workspace_id,
        name,
        command,
        principal,
        size,
        started,
        duration: ran,
        end,
        leftovers,
        output_bytes,
    } = terminal;
    let state = match end.as_ref().map(|end| end.state) {
        None => v1::terminal::State::Running,
        Some(terminal::EndState::Exited) => v1::terminal::State::Exited,
        Some(terminal::EndState::Killed) => v1::terminal::State::Killed,
        Some(terminal::EndState::Lost) => v1::terminal::State::Lost,
    };
    v1::Terminal {
        terminal_id: id.to_string(),
        workspace_id: workspace_id.to_string(),
        name: name.unwrap_or_default(),
        command,
        state: state.into(),
        exit_code: end.as_ref().and_then(|end| end.exit_code),
        signal: end.as_ref().and_then(|end| end.signal.clone()).unwrap_or_default(),
        start_time: Some(timestamp(started)),
        end_time: end.as_ref().map(|end| timestamp(end.time)),
        duration: Some(duration(ran)),
        cpu_time: end.as_ref().and_then(|end| end.cpu).map(duration),
        max_rss_bytes: end.as_ref().and_then(|end| end.max_rss_bytes),
        leftover_processes: leftovers,
        output_bytes,
        columns: size.columns.into(),
        rows: size.rows.into(),
        principal,
    }
}

pub(super) fn job(job: Job) -> v1::Job {
    let state = match job.state() {
        State::Running => v1::job::State::Running,
        State::Ended(EndState::Exited) => v1::job::State::Exited,
        State::Ended(EndState::Killed) => v1::job::State::Killed,
        State::Ended(EndState::TimedOut) => v1::job::State::TimedOut,
        State::Ended(EndState::Lost) => v1::job::State::Lost,
    };
    let Job {
        id,
        workspace_id,
        command,
        principal,
        request_id: _, // known to whoever made it
        shell,
        separate_stderr,
        timeout,
        started,
        duration: ran,
        end,
        leftovers,
        left,
        limit_hit,
        touched,
        output_bytes,
        stderr_bytes,
        notes,
    } = job;
    let (files, files_note) = file_counts(touched);
    v1::Job {
        job_id: id.to_string(),
        workspace_id: workspace_id.to_string(),
        command,
        state: state.into(),
        exit_code: end.as_ref().and_then(|end| end.exit_code),
        signal: end.as_ref().and_then(|end| end.signal.clone()).unwrap_or_default(),
        start_time: Some(timestamp(started)),
        end_time: end.as_ref().map(|end| timestamp(end.time)),
        duration: Some(duration(ran)),
        cpu_time: end.as_ref().and_then(|end| end.cpu).map(duration),
        max_rss_bytes: end.as_ref().and_then(|end| end.max_rss_bytes),
        oom_killed: end.as_ref().is_some_and(|end| end.oom_killed),
        leftover_processes: leftovers,
        output_bytes,
        stderr_bytes,
        separate_stderr,
        shell,
        principal,
        notes,
        timeout: Some(duration(timeout)),
        limit_hit: limit_hit.map(|hit| v1::job::LimitHit { name: hit.name().to_owned(), value: hit.value() }),
        leftovers: left
            .into_iter()
            .map(|Leftover { pid, command }| v1::job::Leftover { pid, command })
            .collect(),
        files,
        files_note,
    }
}

fn file_counts(touched: Touched) -> (Option<v1::job::FileCounts>, String) {
    match touched {
        Touched::Unknown => (None, String::new()),
        Touched::Counting => (None, "being counted".to_owned()),
        Touched::Counted { created, changed, deleted } => {
            (Some(v1::job::FileCounts { created, changed, deleted }), String::new())
        }
        Touched::Uncounted(why) => (None, why),
    }
}

pub(super) fn changed_files(changes: Changes) -> v1::read_output_response::ChangedFiles {
    let wire = |names: crate::file::Names| names.first.into_iter().map(Into::into).collect();
    let Changes { created, changed, deleted } = changes;
    v1::read_output_response::ChangedFiles {
        created: wire(created),
        changed: wire(changed),
        deleted: wire(deleted),
    }
}

pub(super) fn from_job_state(state: v1::job::State) -> Option<State> {
    match state {
        v1::job::State::Unspecified => None,
        v1::job::State::Running => Some(State::Running),
        v1::job::State::Exited => Some(State::Ended(EndState::Exited)),
        v1::job::State::Killed => Some(State::Ended(EndState::Killed)),
        v1::job::State::TimedOut => Some(State::Ended(EndState::TimedOut)),
        v1::job::State::Lost => Some(State::Ended(EndState::Lost)),
    }
}

pub(super) fn output(read: output::Output, total_bytes: u64, matched: bool) -> v1::Output {
    let output::Output { pieces, next_cursor, end, lost_bytes, binary } = read;
    v1::Output {
        pieces: pieces
            .into_iter()
            .map(|output::Piece { start, end, text, raw }| v1::output::Piece {
                start,
                end,
                text,
                raw: raw.into(),
            })
            .collect(),
        next_cursor,
        total_bytes,
        end,
        lost_bytes,
        matched,
        binary,
    }
}

/// A number of things that the wire counts in 32 bits.
pub(super) fn size(given: u32) -> usize {
    usize::try_from(given).unwrap_or(usize::MAX)
}
