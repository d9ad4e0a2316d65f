//! How a failed call looks to a model: a code, a sentence, whether the same call may work later, and the call that gets
//! it further. It decides no retries and writes no log.

use std::collections::HashMap;

use rmcp::model::{CallToolResult, ContentBlock, MetaObject};
use runlet_proto::reason::{ErrorReason, Failure as Reason};
use serde_json::json;
use tonic::{Code, Status};

use crate::{executor, reply::RESULT_META_KEY};

/// A failed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// A name in UPPER_SNAKE_CASE.
    pub(crate) code: &'static str,
    /// What went wrong.
    pub(crate) message: String,
    /// Whether the same call may succeed later.
    pub(crate) retryable: bool,
    /// What to do next.
    pub(crate) next: String,
}

/// Longest error text in characters: hosts cut longer ones.
const MAX_CHARS: usize = 8_000;

impl Failure {
    /// An argument that can't be taken.
    pub(crate) fn argument(message: impl Into<String>) -> Self {
        Self {
            code: ErrorReason::InvalidArgument.name(),
            message: message.into(),
            retryable: false,
            next: "Call the tool again with the argument corrected.".to_owned(),
        }
    }

    /// The client went away or cancelled.
    pub(crate) fn cancelled() -> Self {
        Self {
            code: "CANCELLED",
            message: "the request was cancelled; what it started goes on".to_owned(),
            retryable: true,
            next: "list_jobs shows jobs that run; cancel_job ends one.".to_owned(),
        }
    }

    /// The gateway is told to stop.
    pub(crate) fn stopping() -> Self {
        Self {
            code: "GATEWAY_STOPPING",
            message: "the gateway is stopping and ended the wait; what the call started goes on".to_owned(),
            retryable: true,
            next:
                "Call again in a few seconds; list_jobs shows a job that was started, read_output reads on."
                    .to_owned(),
        }
    }

    /// A fault of the gateway.
    pub(crate) fn internal() -> Self {
        Self {
            code: ErrorReason::Internal.name(),
            message: "a fault of the gateway, which its log describes".to_owned(),
            retryable: false,
            next: "get_overview shows what works.".to_owned(),
        }
    }

    /// The result of the tool: everything stands in the text, for hosts show only that of an error.
    pub(crate) fn into_result(self) -> CallToolResult {
        let Self { code, message, retryable, next } = self;
        let tail = format!("\nretryable: {retryable}\nnext: {next}");
        let room = MAX_CHARS.saturating_sub(code.len() + 2 + tail.chars().count());
        let cut: String = message.chars().take(room).collect();
        let text = format!("{code}: {cut}{tail}");
        let mut meta = MetaObject::default();
        let object = json!({ "code": code, "message": cut, "retryable": retryable, "next": next });
        meta.insert(RESULT_META_KEY.to_owned(), object);
        CallToolResult::error(vec![ContentBlock::text(text)]).with_meta(Some(meta))
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        if let Some(Reason { reason, message, metadata }) = Reason::from_status(&status) {
            return Self {
                code: reason.name(),
                message,
                retryable: is_retryable(reason),
                next: next(reason, &metadata),
            };
        }
        let trouble = executor::Trouble::of(&status);
        if trouble == executor::Trouble::Refused {
            let reason = ErrorReason::Unauthenticated;
            let message = "the executor does not take the gateway's secret".to_owned();
            tracing::error!("the executor does not take the secret in RUNLET_EXECUTOR_SECRET_FILE");
            return Self {
                code: reason.name(),
                message,
                retryable: false,
                next: next(reason, &HashMap::new()),
            };
        }
        if status.code() == Code::Unimplemented {
            return Self {
                code: "NOT_SUPPORTED",
                message: "the executor does not know this call; it is older than the gateway".to_owned(),
                retryable: false,
                next: "Do without; the operator can update the executor.".to_owned(),
            };
        }
        if trouble == executor::Trouble::None {
            tracing::error!(code = ?status.code(), message = status.message(), "the executor's status has no reason");
            return Self::internal();
        }
        let message = if executor::ran_out_of_time(&status) {
            "the executor did not answer in time"
        } else {
            "the executor can't be reached; it may be restarting"
        };
        let reason = ErrorReason::ExecutorUnavailable;
        let next = next(reason, &HashMap::new());
        Self { code: reason.name(), message: message.to_owned(), retryable: true, next }
    }
}

fn is_retryable(reason: ErrorReason) -> bool {
    matches!(
        reason,
        ErrorReason::TooManyJobs
            | ErrorReason::ShellBusy
            | ErrorReason::WorkspaceNotReady
            | ErrorReason::BlueprintNotReady
            | ErrorReason::NoSpace
            | ErrorReason::TooManyLinks
            | ErrorReason::LinksFull
            | ErrorReason::UploadBusy
            | ErrorReason::CloneTimedOut
            | ErrorReason::ShuttingDown
            | ErrorReason::ExecutorUnavailable
    )
}

/// The call that gets the agent further, by reason.
fn next(reason: ErrorReason, metadata: &HashMap<String, String>) -> String {
    let fact = |key: &str| metadata.get(key).map_or("", String::as_str);
    match reason {
        ErrorReason::InvalidArgument => "Call the tool again with the argument corrected.".to_owned(),
        ErrorReason::WorkspaceNotFound => "list_workspaces shows those that live; create_workspace makes one.".to_owned(),
        ErrorReason::WorkspaceExists => {
            format!("Use workspace {}, or call create_workspace with another name.", fact("workspace_id"))
        }
        ErrorReason::WorkspaceNotReady => format!(
            "get_workspace(workspace_id=\"{}\") tells when its status is ready; then call again.",
            fact("workspace_id")
        ),
        ErrorReason::SnapshotNotFound => "list_snapshots shows them; create_snapshot makes one.".to_owned(),
        ErrorReason::BlueprintNotFound => "list_blueprints shows them; create_blueprint makes one.".to_owned(),
        ErrorReason::BlueprintNotReady => format!(
            "get_blueprint(name=\"{}\") tells when its status is ready; then call again.",
            fact("name")
        ),
        ErrorReason::BlueprintExists => format!(
            "Call create_blueprint with another name, or delete_blueprint(name=\"{}\") before.",
            fact("name")
        ),
        ErrorReason::SandboxSuspended => {
            format!("resume_sandbox(sandbox_id=\"{}\") lets it go on; then call again.", fact("sandbox_id"))
        }
        ErrorReason::JobNotFound => "list_jobs shows the jobs.".to_owned(),
        ErrorReason::JobEnded => format!("read_output(job_id=\"{}\") shows how it ended.", fact("job_id")),
        ErrorReason::StdinClosed => {
            "Start the command again by run_command with keep_stdin_open=true, or with all its input as stdin.".to_owned()
        }
        ErrorReason::TooManyJobs => {
            let oldest = fact("oldest_id");
            let end = if oldest.starts_with("term_") {
                format!("close_terminal(terminal_id=\"{oldest}\")")
            } else {
                format!("cancel_job(job_id=\"{oldest}\")")
            };
            format!("Wait, or end one: {end} ends the oldest.")
        }
        ErrorReason::SpawnFailed => "Check cwd and env; get_overview shows the executor's limits.".to_owned(),
        ErrorReason::ShellBusy => format!(
            "Wait by read_output(job_id=\"{}\", wait_seconds=50), or name another shell.",
            fact("job_id")
        ),
        ErrorReason::CursorOutOfRange => {
            let (id, total) = (fact("id"), fact("total_bytes"));
            let read = if id.starts_with("term_") {
                format!("read_terminal(terminal_id=\"{id}\", view=\"output\")")
            } else {
                format!("read_output(job_id=\"{id}\", cursor=\"tail\")")
            };
            format!("{read} reads the end; the log has {total} bytes.")
        }
        ErrorReason::TerminalNotFound => "list_terminals shows the terminals.".to_owned(),
        ErrorReason::TerminalEnded => format!(
            "read_terminal(terminal_id=\"{}\") shows its last screen; open_terminal opens another.",
            fact("terminal_id")
        ),
        ErrorReason::TerminalExists => {
            format!("Use terminal {}, or call open_terminal with another name.", fact("terminal_id"))
        }
        ErrorReason::PathNotFound => "list_files shows what is there.".to_owned(),
        ErrorReason::PathOutsideWorkspace => {
            "Use a path inside the workspace; run_command reaches what lies outside.".to_owned()
        }
        ErrorReason::PathExists => "Choose another path, or leave out the condition.".to_owned(),
        ErrorReason::IsADirectory => format!("list_files(path=\"{}\") lists it.", fact("path")),
        ErrorReason::NotADirectory | ErrorReason::NotARegularFile | ErrorReason::SymlinkLoop => {
            "list_files shows what the path is.".to_owned()
        }
        ErrorReason::PermissionDenied => "run_command can change the mode: chmod.".to_owned(),
        ErrorReason::FileTooLarge => {
            "read_file with offset and length reads a part; run_command works on the whole, create_download hands it on.".to_owned()
        }
        ErrorReason::FileChanged => "read_file reads it as it is now; then call again with its sha256.".to_owned(),
        ErrorReason::EditNotFound => "read_file shows the text; copy old_text from it exactly.".to_owned(),
        ErrorReason::EditNotUnique => "Make old_text longer so that it is unique, or set replace_all=true.".to_owned(),
        ErrorReason::EditWithoutEffect => "Nothing is to be done, or old_text and new_text are mixed up.".to_owned(),
        ErrorReason::PatchInvalid => "Correct that line and call apply_patch again; nothing was changed.".to_owned(),
        ErrorReason::PatchMismatch => {
            "read_file shows the file as it is; correct the hunk and call apply_patch again; nothing was changed."
                .to_owned()
        }
        ErrorReason::NoSpace => "Free disk: delete files by run_command, or delete_workspace.".to_owned(),
        ErrorReason::CloneAuthenticationRequired => "Call create_workspace with git_credential.".to_owned(),
        ErrorReason::CloneFailed => "Check git_url and git_ref, then call create_workspace again.".to_owned(),
        ErrorReason::CloneTimedOut => "Call create_workspace with git_depth=1.".to_owned(),
        ErrorReason::ProgramMissing => "Install it on the executor's machine, or do without.".to_owned(),
        ErrorReason::NotAnImage => {
            format!("read_file(path=\"{}\") shows text; run_command with `file` tells more.", fact("path"))
        }
        ErrorReason::ImageUnsupported => {
            "Convert it to PNG by run_command, such as `magick in out.png`, ffmpeg or Python's Pillow, and view that."
                .to_owned()
        }
        ErrorReason::ImageTooLarge => {
            "Make it smaller by run_command, such as `magick in -resize 1568x1568 out.png` or `rsvg-convert -w 1568 in -o \
             out.png`, and view that."
                .to_owned()
        }
        ErrorReason::ImageBroken => {
            "Make or fetch the file again; run_command with `file` and `ls -l` tells what it is.".to_owned()
        }
        ErrorReason::LinkNotFound => "list_downloads shows the links that live.".to_owned(),
        ErrorReason::TooManyLinks | ErrorReason::LinksFull => {
            "list_downloads shows the links; revoke_download ends one, and they end by themselves.".to_owned()
        }
        ErrorReason::SnapshotTooSlow => {
            "Make the archive by run_command, then call create_download for that file; or ask for less.".to_owned()
        }
        ErrorReason::UploadTooLarge | ErrorReason::UploadBusy | ErrorReason::UploadCutShort => {
            "Send the file again, or make another link: create_upload.".to_owned()
        }
        ErrorReason::ShuttingDown | ErrorReason::ExecutorUnavailable => {
            "Call again in a few seconds; list_jobs then shows what became of the jobs.".to_owned()
        }
        ErrorReason::Unauthenticated => {
            "Tell the operator: the gateway's RUNLET_EXECUTOR_SECRET_FILE is not that of its executor.".to_owned()
        }
        ErrorReason::Internal | ErrorReason::Unspecified => {
            format!("Tell the operator the incident {}; its cause is in the executor's log.", fact("incident"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(failure: Failure) -> String {
        let result = failure.into_result();
        assert_eq!(result.is_error, Some(true));
        assert_eq!(result.structured_content, None);
        result.content[0].as_text().unwrap().text.clone()
    }

    #[test]
    fn executors_reason_becomes_the_code_and_names_the_next_call() {
        let status = Reason {
            reason: ErrorReason::TooManyJobs,
            message: "too many jobs (limit 256)".to_owned(),
            metadata: HashMap::from([("oldest_id".to_owned(), "job_a".to_owned())]),
        }
        .into_status(Code::ResourceExhausted);
        let text = text_of(status.into());
        assert_eq!(
            text,
            "TOO_MANY_JOBS: too many jobs (limit 256)\nretryable: true\nnext: Wait, or end one: cancel_job(job_id=\"job_a\") ends the oldest."
        );
    }

    #[test]
    fn broken_connection_is_executor_unavailable_and_an_odd_status_is_not() {
        assert_eq!(Failure::from(Status::unavailable("reset")).code, "EXECUTOR_UNAVAILABLE");
        assert_eq!(Failure::from(Status::unimplemented("")).code, "NOT_SUPPORTED");
        assert_eq!(Failure::from(Status::out_of_range("decoded message too large")).code, "INTERNAL");
    }

    #[test]
    fn text_is_cut_at_8000_characters_and_keeps_its_end() {
        let text = text_of(Failure::argument("€".repeat(20_000)));
        assert_eq!(text.chars().count(), MAX_CHARS);
        assert!(text.ends_with("next: Call the tool again with the argument corrected."));
    }
}
