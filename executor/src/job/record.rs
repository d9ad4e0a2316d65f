//! A job as a row, both directions.

use std::time::Duration;

use super::{End, Job, Leftover, LimitHit, State, Touched};
use crate::file::{Changes, Names};
use crate::id::{JobId, WorkspaceId};
use crate::store::columns::{from_micros, micros, signed, time, unsigned};
use crate::store::{JobEndRow, JobFilesRow, JobRow};
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
    let end = job.end.as_ref();
    let (files, files_note) = match &job.touched {
        // What is being counted when the executor is killed is never counted.
        Touched::Unknown | Touched::Counting => (None, None),
        Touched::Counted { created, changed, deleted } => {
            (Some([*created, *changed, *deleted].map(signed)), None)
        }
        Touched::Uncounted(why) => (None, Some(why.clone())),
    };
    let left: Vec<_> = job.left.iter().map(|left| (left.pid, &left.command)).collect();
    JobEndRow {
        ended_ms: end.map(|end| timestamp::to_millis(end.time)),
        duration_us: end.map(|_| micros(job.duration)),
        exit_code: end.and_then(|end| end.exit_code),
        signal: end.and_then(|end| end.signal.clone()),
        cpu_us: end.and_then(|end| end.cpu).map(micros),
        max_rss_bytes: end.and_then(|end| end.max_rss_bytes).map(signed),
        oom_killed: end.is_some_and(|end| end.oom_killed),
        limit_name: job.limit_hit.map(|hit| hit.name().to_owned()),
        limit_value: job.limit_hit.map(|hit| signed(hit.value())),
        leftovers: job.leftovers,
        left: serde_json::to_string(&left).unwrap_or_default(),
        files_created: files.map(|[created, ..]| created),
        files_changed: files.map(|[_, changed, _]| changed),
        files_deleted: files.map(|[.., deleted]| deleted),
        files_note,
        output_bytes: signed(job.output_bytes),
        stderr_bytes: signed(job.stderr_bytes),
        notes: serde_json::to_string(&job.notes).unwrap_or_default(),
    }
}

/// `None` for a row that no version of this program wrote.
pub(super) fn from_row(row: JobRow) -> Option<Job> {
    let started = time(row.started_ms);
    let end = match State::from_name(&row.state)? {
        State::Running => None,
        State::Ended(state) => Some(End {
            state,
            time: row.end.ended_ms.map_or(started, time),
            exit_code: row.end.exit_code,
            signal: row.end.signal,
            cpu: row.end.cpu_us.map(from_micros),
            max_rss_bytes: row.end.max_rss_bytes.map(unsigned),
            oom_killed: row.end.oom_killed,
        }),
    };
    let touched = match (row.end.files_created, row.end.files_changed, row.end.files_deleted) {
        (Some(created), Some(changed), Some(deleted)) => Touched::Counted {
            created: unsigned(created),
            changed: unsigned(changed),
            deleted: unsigned(deleted),
        },
        _ => row.end.files_note.map_or(Touched::Unknown, Touched::Uncounted),
    };
    let limit_hit = row.end.limit_name.zip(row.end.limit_value);
    let left: Vec<(i32, String)> = serde_json::from_str(&row.end.left).ok()?;
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
        duration: from_micros(row.end.duration_us.unwrap_or(0)),
        end,
        leftovers: row.end.leftovers,
        left: left.into_iter().map(|(pid, command)| Leftover { pid, command }).collect(),
        limit_hit: limit_hit.and_then(|(name, value)| LimitHit::from_parts(&name, unsigned(value))),
        touched,
        output_bytes: unsigned(row.end.output_bytes),
        stderr_bytes: unsigned(row.end.stderr_bytes),
        notes: serde_json::from_str(&row.end.notes).ok()?,
    })
}

/// Names hold every byte but NUL, which JSON can't say; so each is ended by one.
pub(super) fn to_names_row(changes: Changes) -> JobFilesRow {
    let joined = |names: Names| names.first.iter().flat_map(|name| name.iter().copied().chain([0])).collect();
    let Changes { created, changed, deleted } = changes;
    JobFilesRow { created: joined(created), changed: joined(changed), deleted: joined(deleted) }
}

/// The counts are those of the names that are on record.
pub(super) fn from_names_row(row: JobFilesRow) -> Changes {
    let split = |names: Vec<u8>| {
        let first: Vec<Vec<u8>> =
            names.split_inclusive(|&byte| byte == 0).map(|name| name[..name.len() - 1].to_vec()).collect();
        Names { count: first.len() as u64, first }
    };
    let JobFilesRow { created, changed, deleted } = row;
    Changes { created: split(created), changed: split(changed), deleted: split(deleted) }
}
