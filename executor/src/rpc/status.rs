//! How an error of the executor looks on the wire: its code, its reason and the facts that go with it.

use runlet_proto::reason::{ErrorReason, Failure};
use tonic::{Code, Status};

use crate::error::{Error, PathProblem};

/// Bytes of a message at most: details travel in HTTP/2 headers, which have a limit of their own.
const MAX_MESSAGE: usize = 4000;

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let mut message = error.to_string();
        let (code, reason, facts) = classify(error, &mut message);
        if message.len() > MAX_MESSAGE {
            let cut = message.floor_char_boundary(MAX_MESSAGE);
            message.truncate(cut);
            message.push('…');
        }
        let metadata = facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Failure { reason, message, metadata }.into_status(code)
    }
}

type Facts = Vec<(&'static str, String)>;

fn classify(error: Error, message: &mut String) -> (Code, ErrorReason, Facts) {
    use ErrorReason as Reason;
    match error {
        Error::InvalidArgument { field, .. } => {
            (Code::InvalidArgument, Reason::InvalidArgument, vec![("field", field.to_owned())])
        }
        Error::WorkspaceNotFound { workspace_id } => {
            (Code::NotFound, Reason::WorkspaceNotFound, vec![("workspace_id", workspace_id)])
        }
        Error::WorkspaceExists { name, workspace_id } => (
            Code::AlreadyExists,
            Reason::WorkspaceExists,
            vec![("name", name), ("workspace_id", workspace_id)],
        ),
        Error::WorkspaceNotReady { workspace_id } => {
            (Code::FailedPrecondition, Reason::WorkspaceNotReady, vec![("workspace_id", workspace_id)])
        }
        Error::SnapshotNotFound { snapshot_id } => {
            (Code::NotFound, Reason::SnapshotNotFound, vec![("snapshot_id", snapshot_id)])
        }
        Error::BlueprintNotFound { name } => {
            (Code::NotFound, Reason::BlueprintNotFound, vec![("name", name)])
        }
        Error::BlueprintNotReady { name } => {
            (Code::FailedPrecondition, Reason::BlueprintNotReady, vec![("name", name)])
        }
        Error::BlueprintExists { name, blueprint_id } => (
            Code::AlreadyExists,
            Reason::BlueprintExists,
            vec![("name", name), ("blueprint_id", blueprint_id)],
        ),
        Error::SandboxSuspended { sandbox_id } => {
            (Code::FailedPrecondition, Reason::SandboxSuspended, vec![("sandbox_id", sandbox_id)])
        }
        Error::JobNotFound { job_id } => (Code::NotFound, Reason::JobNotFound, vec![("job_id", job_id)]),
        Error::JobEnded { job_id } => (Code::FailedPrecondition, Reason::JobEnded, vec![("job_id", job_id)]),
        Error::StdinClosed { job_id } => {
            (Code::FailedPrecondition, Reason::StdinClosed, vec![("job_id", job_id)])
        }
        Error::TooManyJobs { limit, oldest_id } => (
            Code::ResourceExhausted,
            Reason::TooManyJobs,
            vec![("limit", limit.to_string()), ("oldest_id", oldest_id)],
        ),
        Error::TerminalNotFound { terminal_id } => {
            (Code::NotFound, Reason::TerminalNotFound, vec![("terminal_id", terminal_id)])
        }
        Error::TerminalEnded { terminal_id, .. } => {
            (Code::FailedPrecondition, Reason::TerminalEnded, vec![("terminal_id", terminal_id)])
        }
        Error::TerminalExists { name, terminal_id } => {
            (Code::AlreadyExists, Reason::TerminalExists, vec![("name", name), ("terminal_id", terminal_id)])
        }
        Error::Spawn { stage, source } => {
            let errno = source.raw_os_error().unwrap_or(0).to_string();
            (Code::FailedPrecondition, Reason::SpawnFailed, vec![("stage", stage), ("errno", errno)])
        }
        Error::ShellBusy { shell, job_id } => {
            (Code::FailedPrecondition, Reason::ShellBusy, vec![("shell", shell), ("job_id", job_id)])
        }
        Error::CursorOutOfRange { id, total_bytes, .. } => (
            Code::OutOfRange,
            Reason::CursorOutOfRange,
            vec![("id", id), ("total_bytes", total_bytes.to_string())],
        ),
        Error::Path { path, problem } => {
            let (code, reason) = classify_path(problem);
            (code, reason, vec![("path", path)])
        }
        Error::FileTooLarge { path, bytes, limit } => (
            Code::FailedPrecondition,
            Reason::FileTooLarge,
            vec![("path", path), ("bytes", bytes.to_string()), ("limit", limit.to_string())],
        ),
        Error::FileChanged { path, sha256 } => {
            (Code::FailedPrecondition, Reason::FileChanged, vec![("path", path), ("sha256", sha256)])
        }
        Error::EditNotFound { path, edit, .. } => {
            (Code::FailedPrecondition, Reason::EditNotFound, vec![("path", path), ("edit", edit.to_string())])
        }
        Error::EditNotUnique { path, edit, matches, .. } => (
            Code::FailedPrecondition,
            Reason::EditNotUnique,
            vec![("path", path), ("edit", edit.to_string()), ("matches", matches.to_string())],
        ),
        Error::EditWithoutEffect { path } => {
            (Code::FailedPrecondition, Reason::EditWithoutEffect, vec![("path", path)])
        }
        Error::NotAnImage { path, .. } => {
            (Code::FailedPrecondition, Reason::NotAnImage, vec![("path", path)])
        }
        Error::ImageUnsupported { path, format } => {
            (Code::FailedPrecondition, Reason::ImageUnsupported, vec![("path", path), ("format", format)])
        }
        Error::ImageTooLarge { path, .. } => {
            (Code::FailedPrecondition, Reason::ImageTooLarge, vec![("path", path)])
        }
        Error::ImageBroken { path, format, .. } => (
            Code::FailedPrecondition,
            Reason::ImageBroken,
            vec![("path", path), ("format", format.to_owned())],
        ),
        Error::PatchInvalid { line, .. } => {
            (Code::InvalidArgument, Reason::PatchInvalid, vec![("line", line.to_string())])
        }
        Error::PatchMismatch { path, hunk, line, .. } => (
            Code::FailedPrecondition,
            Reason::PatchMismatch,
            vec![("path", path), ("hunk", hunk.to_string()), ("line", line.to_string())],
        ),
        Error::PatchStopped { source, state } => {
            let mut cause = source.to_string();
            let classified = classify(*source, &mut cause);
            *message = format!("{cause}; {state}");
            classified
        }
        Error::NoSpace { free_bytes, .. } => {
            (Code::ResourceExhausted, Reason::NoSpace, vec![("free_bytes", free_bytes.to_string())])
        }
        Error::CloneAuthentication { host } => {
            (Code::FailedPrecondition, Reason::CloneAuthenticationRequired, vec![("host", host)])
        }
        Error::CloneFailed { host, .. } => {
            (Code::FailedPrecondition, Reason::CloneFailed, vec![("host", host)])
        }
        Error::CloneTimedOut { host, seconds } => (
            Code::FailedPrecondition,
            Reason::CloneTimedOut,
            vec![("host", host), ("seconds", seconds.to_string())],
        ),
        Error::ProgramMissing { program } => {
            (Code::FailedPrecondition, Reason::ProgramMissing, vec![("program", program.to_owned())])
        }
        Error::LinkNotFound { link_id } => (Code::NotFound, Reason::LinkNotFound, vec![("link_id", link_id)]),
        Error::TooManyLinks { limit } => {
            (Code::ResourceExhausted, Reason::TooManyLinks, vec![("limit", limit.to_string())])
        }
        Error::LinksFull { limit } => {
            (Code::ResourceExhausted, Reason::LinksFull, vec![("limit", limit.to_string())])
        }
        Error::SnapshotTooSlow { seconds, bytes: _ } => {
            (Code::FailedPrecondition, Reason::SnapshotTooSlow, vec![("seconds", seconds.to_string())])
        }
        Error::UploadTooLarge { limit } => {
            (Code::FailedPrecondition, Reason::UploadTooLarge, vec![("limit", limit.to_string())])
        }
        Error::UploadBusy => (Code::FailedPrecondition, Reason::UploadBusy, Vec::new()),
        Error::UploadCutShort { bytes: _ } => (Code::InvalidArgument, Reason::UploadCutShort, Vec::new()),
        Error::ShuttingDown => (Code::Unavailable, Reason::ShuttingDown, Vec::new()),
        Error::Internal { action, source } => {
            // The caller gets a number by which the log tells the rest; a cause may name what is not the caller's.
            let incident = data_encoding::HEXLOWER.encode(&incident());
            tracing::error!(incident, action, cause = %source, "internal error");
            *message = format!(
                "an internal error, incident {incident}, while {action}; the executor's log has the cause"
            );
            (Code::Internal, Reason::Internal, vec![("incident", incident)])
        }
    }
}

const fn classify_path(problem: PathProblem) -> (Code, ErrorReason) {
    match problem {
        PathProblem::NotFound => (Code::NotFound, ErrorReason::PathNotFound),
        PathProblem::OutsideWorkspace => (Code::PermissionDenied, ErrorReason::PathOutsideWorkspace),
        PathProblem::Exists => (Code::AlreadyExists, ErrorReason::PathExists),
        PathProblem::IsADirectory => (Code::FailedPrecondition, ErrorReason::IsADirectory),
        PathProblem::NotADirectory => (Code::FailedPrecondition, ErrorReason::NotADirectory),
        PathProblem::NotARegularFile => (Code::FailedPrecondition, ErrorReason::NotARegularFile),
        PathProblem::SymlinkLoop => (Code::FailedPrecondition, ErrorReason::SymlinkLoop),
        PathProblem::PermissionDenied => (Code::PermissionDenied, ErrorReason::PermissionDenied),
    }
}

/// Random bytes; without a random source an incident is told by its time in the log.
fn incident() -> [u8; 4] {
    let mut bytes = [0; 4];
    let _unavailable = getrandom::fill(&mut bytes).is_err();
    bytes
}

/// For a caller that did not prove to be a gateway.
pub(super) fn unauthenticated() -> Status {
    let message =
        "the caller did not send this executor's secret; give the gateway the file beside the socket"
            .to_owned();
    Failure { reason: ErrorReason::Unauthenticated, message, metadata: std::collections::HashMap::new() }
        .into_status(Code::Unauthenticated)
}
