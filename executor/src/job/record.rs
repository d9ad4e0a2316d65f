//! A job as a row, both directions.

use std::time::Duration;

use time::OffsetDateTime;

use super::{End, Job, State};
use crate::id::{JobId, WorkspaceId};
use crate::store::{JobEndRow, JobRow};
use crate::timestamp;

pub(super) fn to_row(job: &Job) -> JobRow {
    JobRow {
        seq: 0,
        job_id: job.id.as_str().to_owned(),
        workspace_id: job.workspace_id.as_str().to_owned(),
        command: job.command.clone(),
        state: job.state().name().to_owned(),
        principal: job.principal.clone(),
        request_id: job.request_id.clone(),
        shell: job.shell.clone(),
        separate_stderr: job.separate_stderr,
        timeout_ms: i64::try_from(job.timeout.as_millis()).unwrap_or(i64::MAX),
        started_ms: timestamp::to_millis(job.started),
        end: to_end_row(job),
    }
}

/// The columns that change after the start.
pub(super) fn to_end_row(job: &Job) -> JobEndRow {
    let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let end = job.end.as_ref();
    JobEndRow {
        ended_ms: end.map(|end| timestamp::to_millis(end.time)),
        duration_us: end.map(|_| micros(job.duration)),
        exit_code: end.and_then(|end| end.exit_code),
        signal: end.and_then(|end| end.signal.clone()),
        cpu_us: end.and_then(|end| end.cpu).map(micros),
        max_rss_bytes: end.and_then(|end| end.max_rss_bytes).map(signed),
        oom_killed: false,
        leftovers: job.leftovers,
        output_bytes: signed(job.output_bytes),
        stderr_bytes: signed(job.stderr_bytes),
        notes: serde_json::to_string(&job.notes).unwrap_or_default(),
    }
}

/// `None` for a row that no version of this program wrote.
pub(super) fn from_row(row: JobRow) -> Option<Job> {
    let unsigned = |number: i64| u64::try_from(number).unwrap_or(0);
    let time = |millis| timestamp::from_millis(millis).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let started = time(row.started_ms);
    let end = match State::from_name(&row.state)? {
        State::Running => None,
        State::Ended(state) => Some(End {
            state,
            time: row.end.ended_ms.map_or(started, time),
            exit_code: row.end.exit_code,
            signal: row.end.signal,
            cpu: row.end.cpu_us.map(|micros| Duration::from_micros(unsigned(micros))),
            max_rss_bytes: row.end.max_rss_bytes.map(unsigned),
        }),
    };
    Some(Job {
        id: JobId::parse(&row.job_id)?,
        workspace_id: WorkspaceId::parse(&row.workspace_id)?,
        command: row.command,
        principal: row.principal,
        request_id: row.request_id,
        shell: row.shell,
        separate_stderr: row.separate_stderr,
        timeout: Duration::from_millis(unsigned(row.timeout_ms)),
        started,
        duration: Duration::from_micros(unsigned(row.end.duration_us.unwrap_or(0))),
        end,
        leftovers: row.end.leftovers,
        output_bytes: unsigned(row.end.output_bytes),
        stderr_bytes: unsigned(row.end.stderr_bytes),
        notes: serde_json::from_str(&row.end.notes).ok()?,
    })
}
