//! How jobs and their output look: the line of facts, the text with every gap named, the call that gets the rest; and
//! the same as an object.

use std::fmt::Write as _;

use runlet_proto::v1::{
    Job, Output, ReadOutputResponse, StartJobResponse,
    job::{FileCounts, State},
    read_output_response::ChangedFiles,
};
use serde_json::{Map, Value, json};

use crate::path;
use crate::reply::{
    LogCalls, LogKind, Reply, break_line, counted, coverage, fields, filled, grouped, joined, push_output,
    raw_base64, seconds, shown, shown_command, time_text,
};

/// A job as a record, without its output.
pub(crate) fn job_record(job: &Job) -> Map<String, Value> {
    let object = json!({
        "job_id": job.job_id,
        "workspace_id": job.workspace_id,
        "command": shown_command(&job.command),
        "status": status(job.state()),
        "exit_code": job.exit_code,
        "signal": filled(job.signal.clone()),
        "total_bytes": job.output_bytes,
        "started_at": time_text(job.start_time.as_ref()),
        "ended_at": time_text(job.end_time.as_ref()),
        "duration_seconds": seconds(job.duration.as_ref()),
        "cpu_seconds": seconds(job.cpu_time.as_ref()),
        "max_rss_bytes": job.max_rss_bytes,
        "oom_killed": job.oom_killed,
        "limit_hit": job.limit_hit.as_ref().map(|hit| json!({ "name": hit.name, "value": hit.value })),
        "leftover_processes": job.leftover_processes,
        "leftovers": job
            .leftovers
            .iter()
            .map(|left| json!({ "pid": left.pid, "command": left.command }))
            .collect::<Vec<_>>(),
        "files": job.files.map(counts),
        "timeout_seconds": job.timeout.as_ref().map(|timeout| timeout.seconds),
    });
    let mut record = fields(object);
    if job.separate_stderr {
        record.insert("stderr_bytes".to_owned(), job.stderr_bytes.into());
    }
    if !job.shell.is_empty() {
        record.insert("shell".to_owned(), job.shell.clone().into());
    }
    if !job.files_note.is_empty() {
        record.insert("files_note".to_owned(), job.files_note.clone().into());
    }
    if !job.notes.is_empty() {
        record.insert("notes".to_owned(), job.notes.clone().into());
    }
    record
}

fn counts(files: FileCounts) -> Value {
    let FileCounts { created, changed, deleted } = files;
    json!({ "created": created, "changed": changed, "deleted": deleted })
}

fn status(state: State) -> &'static str {
    match state {
        State::Unspecified => "unknown",
        State::Running => "running",
        State::Exited => "exited",
        State::Killed => "killed",
        State::TimedOut => "timed_out",
        State::Lost => "lost",
    }
}

/// The answer to a started command.
pub(crate) fn started(answer: &StartJobResponse) -> Reply {
    let (job, output) = (answer.job.clone().unwrap_or_default(), answer.output.clone().unwrap_or_default());
    let calls = LogCalls { id: &job.job_id, kind: LogKind::JobOutput };
    let mut text = state_phrase(&job);
    let _ = write!(text, " · {}{}", counted(output.total_bytes, "byte"), shown(&output, 0));
    if answer.repeated_request {
        text.push_str(" · this request_id had been seen: this is the first call's job");
    }
    text.push('\n');
    push_remarks(&mut text, &job);
    push_counts(&mut text, &job);
    push_output(&mut text, &output, 0, &calls);
    let stderr = answer.stderr.as_ref().filter(|_| job.separate_stderr);
    let stderr_calls = LogCalls { id: &job.job_id, kind: LogKind::JobStderr };
    if let Some(stderr) = stderr {
        let _ = writeln!(text, "[stderr · {}{}]", counted(stderr.total_bytes, "byte"), shown(stderr, 0));
        push_output(&mut text, stderr, 0, &stderr_calls);
    }
    push_rest(&mut text, &job, &output, &calls);
    if let Some(stderr) = stderr.filter(|stderr| stderr.next_cursor < stderr.total_bytes) {
        push_rest(&mut text, &job, stderr, &stderr_calls);
    }

    let mut object = job_record(&job);
    // The caller has just sent it.
    object.insert("command".to_owned(), job.command.clone().into());
    insert_output(&mut object, &output, 0);
    if let Some(stderr) = stderr {
        object.insert("stderr".to_owned(), joined(stderr).into());
        object.insert("stderr_next_cursor".to_owned(), stderr.next_cursor.into());
        object.insert("stderr_truncated".to_owned(), coverage(stderr, 0).1.into());
    }
    object.insert("repeated_request".to_owned(), answer.repeated_request.into());
    Reply::Text(text, Value::Object(object))
}

/// What a reader asked for.
pub(super) struct Asked {
    /// `None` for the tail.
    pub(super) cursor: Option<u64>,
    pub(super) is_stderr: bool,
    pub(super) until: Option<String>,
    pub(super) raw: bool,
    pub(super) files: bool,
}

/// The answer to a reader.
pub(super) fn read(answer: &ReadOutputResponse, asked: &Asked) -> Reply {
    let (job, output) = (answer.job.clone().unwrap_or_default(), answer.output.clone().unwrap_or_default());
    let kind = if asked.is_stderr { LogKind::JobStderr } else { LogKind::JobOutput };
    let calls = LogCalls { id: &job.job_id, kind };
    let first = output.pieces.first().map_or(output.next_cursor, |piece| piece.start);
    let start = asked.cursor.unwrap_or(first);
    let mut text = state_phrase(&job);
    let stream = if asked.is_stderr { "stderr " } else { "" };
    let (from, to, total) = (grouped(first), grouped(output.next_cursor), grouped(output.total_bytes));
    let _ = write!(text, " · {stream}bytes {from}–{to} of {total}");
    match &asked.until {
        Some(_) if output.matched => text.push_str(" · until matched"),
        Some(_) => text.push_str(" · until has not matched"),
        None => {}
    }
    text.push('\n');
    push_remarks(&mut text, &job);
    if asked.files {
        push_names(&mut text, &job, answer.files.as_ref());
    }
    let raw = asked.raw.then(|| raw_base64(&output));
    if let Some(raw) = &raw {
        if first > start {
            let _ = writeln!(text, "[… {} no longer kept]", counted(first - start, "byte"));
        }
        let _ = writeln!(text, "base64: {raw}");
    } else {
        push_output(&mut text, &output, start, &calls);
    }
    push_rest(&mut text, &job, &output, &calls);

    let mut object = job_record(&job);
    insert_output(&mut object, &output, start);
    if let Some(names) = answer.files.as_ref().filter(|_| asked.files) {
        insert_names(&mut object, &job, names);
    }
    object.insert("cursor".to_owned(), first.into());
    object.insert("end".to_owned(), output.end.into());
    object.insert("lost_bytes".to_owned(), output.lost_bytes.into());
    if asked.until.is_some() {
        object.insert("matched".to_owned(), output.matched.into());
    }
    if let Some(raw) = raw {
        object.remove("output");
        object.insert("output_base64".to_owned(), raw.into());
    }
    Reply::Text(text, Value::Object(object))
}

fn insert_output(object: &mut Map<String, Value>, output: &Output, start: u64) {
    object.insert("output".to_owned(), joined(output).into());
    object.insert("next_cursor".to_owned(), output.next_cursor.into());
    object.insert("total_bytes".to_owned(), output.total_bytes.into());
    object.insert("truncated".to_owned(), coverage(output, start).1.into());
}

/// `job_7f3k2m9qd4ra exited 1 in 2.1 s`
fn state_phrase(job: &Job) -> String {
    let id = &job.job_id;
    let time = format!("{:.1} s", seconds(job.duration.as_ref()).unwrap_or_default());
    let code = job.exit_code.map(|code| format!(" (exit code {code})")).unwrap_or_default();
    match job.state() {
        State::Unspecified => format!("{id} is in a state that this gateway does not know"),
        State::Running => format!("{id} has been running for {time}"),
        State::Exited => format!("{id} exited {} in {time}", job.exit_code.unwrap_or_default()),
        State::Killed => format!("{id} was ended by signal {}{code} after {time}", job.signal),
        State::TimedOut => format!("{id} timed out after {time}{code}"),
        State::Lost => format!("{id} was lost: the executor stopped while it ran; its output so far is kept"),
    }
}

fn push_remarks(text: &mut String, job: &Job) {
    if job.oom_killed {
        text.push_str("[the kernel ended it: out of memory]\n");
    }
    if job.leftover_processes > 0 {
        let count = counted(u64::from(job.leftover_processes), "process");
        let _ = writeln!(text, "[{count} that it started still running; cancel_job ends them]");
    }
    for note in &job.notes {
        let _ = writeln!(text, "[{note}]");
    }
}

/// `[2 files created, 1 changed; read_output(job_id="…", files=true) names them]`, unless nothing changed.
fn push_counts(text: &mut String, job: &Job) {
    let Some(FileCounts { created, changed, deleted }) = job.files else { return };
    let kinds = [(created, "created"), (changed, "changed"), (deleted, "deleted")];
    let mut parts = Vec::new();
    for (count, what) in kinds.into_iter().filter(|(count, _)| *count > 0) {
        let number = if parts.is_empty() { counted(count, "file") } else { grouped(count) };
        parts.push(format!("{number} {what}"));
    }
    if !parts.is_empty() {
        let (parts, id) = (parts.join(", "), &job.job_id);
        let _ = writeln!(text, "[{parts}; read_output(job_id=\"{id}\", files=true) names them]");
    }
}

/// The changed files with their names and how many were left out; or why there are none.
fn push_names(text: &mut String, job: &Job, names: Option<&ChangedFiles>) {
    let (Some(counts), Some(names)) = (job.files, names) else {
        let why = match job.state() {
            State::Running => "counted when it has ended",
            _ if job.files_note.is_empty() => "not known",
            _ => &job.files_note,
        };
        let _ = writeln!(text, "[changed files: {why}]");
        return;
    };
    let kinds = [
        ("created", counts.created, &names.created),
        ("changed", counts.changed, &names.changed),
        ("deleted", counts.deleted, &names.deleted),
    ];
    if kinds.iter().all(|(_, count, _)| *count == 0) {
        text.push_str("[no file was created, changed or deleted while it ran]\n");
    }
    for (what, count, names) in kinds.into_iter().filter(|(_, count, _)| *count > 0) {
        let _ = writeln!(text, "[{} {what}]", counted(count, "file"));
        for name in names {
            let _ = writeln!(text, "{}", path::to_text(name));
        }
        let more = count.saturating_sub(names.len() as u64);
        if more > 0 {
            let _ = writeln!(text, "[… {} more]", grouped(more));
        }
    }
}

fn insert_names(object: &mut Map<String, Value>, job: &Job, names: &ChangedFiles) {
    let shown = |names: &[bytes::Bytes]| names.iter().map(|name| path::to_text(name)).collect::<Vec<_>>();
    let counts = job.files.unwrap_or_default();
    let all = counts.created + counts.changed + counts.deleted;
    let named = names.created.len() + names.changed.len() + names.deleted.len();
    let files = json!({
        "created": shown(&names.created),
        "changed": shown(&names.changed),
        "deleted": shown(&names.deleted),
        "truncated": all > named as u64,
    });
    object.insert("file_names".to_owned(), files);
}

/// The call that gets the rest.
fn push_rest(text: &mut String, job: &Job, output: &Output, calls: &LogCalls<'_>) {
    break_line(text);
    if job.state() == State::Running {
        let wait = calls.read_from(output.next_cursor, ", wait_seconds=50");
        let _ = writeln!(text, "[still running; {wait} reads on]");
    } else if output.next_cursor < output.total_bytes {
        let _ = writeln!(text, "[more; {} reads on]", calls.read_from(output.next_cursor, ""));
    }
}

#[cfg(test)]
mod tests {
    use runlet_proto::v1::output::Piece;

    use super::*;

    fn job(state: State, exit_code: Option<i32>) -> Job {
        Job {
            job_id: "job_7f3k2m9qd4ra".to_owned(),
            workspace_id: "ws_a".to_owned(),
            command: "make".to_owned(),
            state: state.into(),
            exit_code,
            duration: Some(prost_types::Duration { seconds: 2, nanos: 100_000_000 }),
            ..Job::default()
        }
    }

    fn output(text: &str, total: u64) -> Output {
        let end = text.len() as u64;
        let piece = Piece { start: 0, end, text: text.to_owned(), ..Piece::default() };
        Output { pieces: vec![piece], next_cursor: end, total_bytes: total, ..Output::default() }
    }

    fn parts(reply: Reply) -> (String, Value) {
        match reply {
            Reply::Text(text, object) => (text, object),
            other => panic!("expected text, got {other:?}"),
        }
    }

    #[test]
    fn ended_command_is_a_line_of_facts_and_its_output() {
        let answer = StartJobResponse {
            job: Some(job(State::Exited, Some(1))),
            output: Some(output("no rule\n", 8)),
            ..StartJobResponse::default()
        };
        let (text, object) = parts(started(&answer));
        assert_eq!(text, "job_7f3k2m9qd4ra exited 1 in 2.1 s · 8 bytes\nno rule\n");
        assert_eq!(object["status"], "exited");
        assert_eq!(object["exit_code"], 1);
        assert_eq!(object["signal"], Value::Null);
        assert_eq!(object["output"], "no rule\n");
        assert_eq!(object["truncated"], false);
    }

    #[test]
    fn running_command_names_the_call_that_waits_for_it() {
        let answer = StartJobResponse {
            job: Some(job(State::Running, None)),
            output: Some(output("A\n", 2)),
            ..StartJobResponse::default()
        };
        let (text, object) = parts(started(&answer));
        assert_eq!(
            text,
            "job_7f3k2m9qd4ra has been running for 2.1 s · 2 bytes\nA\n\
             [still running; read_output(job_id=\"job_7f3k2m9qd4ra\", cursor=2, wait_seconds=50) reads on]\n"
        );
        assert_eq!(object["exit_code"], Value::Null);
    }

    #[test]
    fn changed_files_are_counted_in_a_line_unless_there_are_none() {
        let files = |created, changed, deleted| Some(FileCounts { created, changed, deleted });
        let text = |files| {
            let job = Job { files, ..job(State::Exited, Some(0)) };
            parts(started(&StartJobResponse { job: Some(job), ..StartJobResponse::default() })).0
        };
        let names = "read_output(job_id=\"job_7f3k2m9qd4ra\", files=true) names them]\n";
        assert!(text(files(2, 1, 0)).ends_with(&format!("\n[2 files created, 1 changed; {names}")));
        assert!(text(files(0, 0, 1200)).ends_with(&format!("\n[1,200 files deleted; {names}")));
        assert!(!text(files(0, 0, 0)).contains('['));
        assert!(!text(None).contains('['));
    }

    #[test]
    fn reader_is_told_where_it_is_and_how_to_go_on() {
        let answer = ReadOutputResponse {
            job: Some(job(State::Exited, Some(0))),
            output: Some(output("abc", 9)),
            files: None,
        };
        let asked = Asked {
            cursor: Some(0),
            is_stderr: false,
            until: Some("z".to_owned()),
            raw: false,
            files: false,
        };
        let (text, object) = parts(read(&answer, &asked));
        assert_eq!(
            text,
            "job_7f3k2m9qd4ra exited 0 in 2.1 s · bytes 0–3 of 9 · until has not matched\nabc\n\
             [more; read_output(job_id=\"job_7f3k2m9qd4ra\", cursor=3) reads on]\n"
        );
        assert_eq!((&object["matched"], &object["truncated"]), (&json!(false), &json!(true)));
    }
}
