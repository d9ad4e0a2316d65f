//! The executor's one error type. A message reads as a sentence of its own and tells the caller what was expected;
//! ids and numbers are fields. How an error looks on the wire is decided in `rpc/status.rs` alone.

use std::{fmt, io};

/// What the executor's fallible functions return.
pub type Result<T> = std::result::Result<T, Error>;

/// Every way an operation of the executor can fail.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An argument has a value that is not allowed.
    #[error("{field}: {problem}")]
    InvalidArgument {
        /// Name of the argument.
        field: &'static str,
        /// What is wrong with it and what was expected.
        problem: String,
    },
    /// No workspace has this id or name.
    #[error("no workspace has the id or name '{workspace_id}'")]
    WorkspaceNotFound {
        /// What was asked for.
        workspace_id: String,
    },
    /// A living workspace has this name.
    #[error("the name '{name}' belongs to the living workspace {workspace_id}")]
    WorkspaceExists {
        /// The name.
        name: String,
        /// Who has it.
        workspace_id: String,
    },
    /// The workspace is still being made.
    #[error("workspace {workspace_id} is still being made")]
    WorkspaceNotReady {
        /// The workspace.
        workspace_id: String,
    },
    /// No snapshot has this id or name.
    #[error("no snapshot has the id or name '{snapshot_id}'")]
    SnapshotNotFound {
        /// What was asked for.
        snapshot_id: String,
    },
    /// No blueprint has this id or name.
    #[error("no blueprint has the id or name '{name}'")]
    BlueprintNotFound {
        /// What was asked for.
        name: String,
    },
    /// The blueprint is still being built.
    #[error("blueprint {name} is still being built")]
    BlueprintNotReady {
        /// The blueprint.
        name: String,
    },
    /// A blueprint of this name follows from other commands, files or another base.
    #[error("the name '{name}' belongs to a blueprint with another definition, {blueprint_id}")]
    BlueprintExists {
        /// The name.
        name: String,
        /// What has it.
        blueprint_id: String,
    },
    /// The sandbox is suspended.
    #[error("sandbox {sandbox_id} is suspended")]
    SandboxSuspended {
        /// The sandbox.
        sandbox_id: String,
    },
    /// No job has this id.
    #[error("no job has the id '{job_id}', or its record was removed after its retention time")]
    JobNotFound {
        /// What was asked for.
        job_id: String,
    },
    /// The job takes no more input.
    #[error("job {job_id} has already ended")]
    JobEnded {
        /// The job.
        job_id: String,
    },
    /// The job's standard input is not open.
    #[error("standard input of job {job_id} is closed")]
    StdinClosed {
        /// The job.
        job_id: String,
    },
    /// The limit of living jobs and terminals is reached.
    #[error("too many jobs (limit {limit}), terminals counted; the oldest is {oldest_id}")]
    TooManyJobs {
        /// The limit.
        limit: usize,
        /// The job or terminal that has lived longest.
        oldest_id: String,
    },
    /// No terminal has this id, nor a living one this name.
    #[error(
        "no terminal has the id or name '{terminal_id}', or its record was removed after its retention time"
    )]
    TerminalNotFound {
        /// What was asked for.
        terminal_id: String,
    },
    /// The terminal's program has ended.
    #[error("terminal {terminal_id} has already ended: {outcome}")]
    TerminalEnded {
        /// The terminal.
        terminal_id: String,
        /// How it ended.
        outcome: String,
    },
    /// A living terminal has this name.
    #[error("the name '{name}' belongs to the living terminal {terminal_id}")]
    TerminalExists {
        /// The name.
        name: String,
        /// Who has it.
        terminal_id: String,
    },
    /// The operating system refused to start a command.
    #[error("can't start the command: {stage}: {source}")]
    Spawn {
        /// What was being done.
        stage: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The named shell is running another command.
    #[error("the shell '{shell}' is running job {job_id}")]
    ShellBusy {
        /// The shell.
        shell: String,
        /// What it runs.
        job_id: String,
    },
    /// The cursor lies past the end of the log.
    #[error("cursor {cursor} lies past the end of the log of {id}, which has {total_bytes} bytes")]
    CursorOutOfRange {
        /// The job or terminal.
        id: String,
        /// What was asked for.
        cursor: u64,
        /// Where the log ends.
        total_bytes: u64,
    },
    /// Something is wrong with a path.
    #[error("{path}: {problem}")]
    Path {
        /// The path as given.
        path: String,
        /// What is wrong.
        problem: PathProblem,
    },
    /// A file is larger than what may be read or edited at once.
    #[error("{path} has {bytes} bytes, more than the {limit} that can be read or edited at once")]
    FileTooLarge {
        /// The path as given.
        path: String,
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A file is not what the caller last saw.
    #[error("{path} is not what if_match names: its sha256 is {sha256}")]
    FileChanged {
        /// The path as given.
        path: String,
        /// Its SHA-256 now, or "absent".
        sha256: String,
    },
    /// The text to replace does not occur.
    #[error("{path}: edit {edit}: old_text not found{hint}")]
    EditNotFound {
        /// The path as given.
        path: String,
        /// Number of the edit, from 1 on.
        edit: usize,
        /// The nearest lines and why they differ, starting with a separator; may be empty.
        hint: String,
    },
    /// The text to replace occurs more than once.
    #[error("{path}: edit {edit}: {matches} matches of old_text, at lines {lines}")]
    EditNotUnique {
        /// The path as given.
        path: String,
        /// Number of the edit, from 1 on.
        edit: usize,
        /// How often it occurs.
        matches: usize,
        /// Where, the first few.
        lines: String,
    },
    /// The edits leave the file as it is.
    #[error("{path}: no change: the file would stay as it is")]
    EditWithoutEffect {
        /// The path as given.
        path: String,
    },
    /// A file is no image.
    #[error("{path}: not an image (looks like {looks})")]
    NotAnImage {
        /// The path as given.
        path: String,
        /// What its bytes look like.
        looks: String,
    },
    /// An image has a format that can't be shown.
    #[error("{path} is {format}, which can't be shown; PNG, JPEG, WebP, GIF and SVG can")]
    ImageUnsupported {
        /// The path as given.
        path: String,
        /// Name of the format.
        format: String,
    },
    /// An image takes more than a preview may.
    #[error("{path} can't be shown: {problem}")]
    ImageTooLarge {
        /// The path as given.
        path: String,
        /// What it takes, and the limit.
        problem: String,
    },
    /// An image can't be decoded.
    #[error("{path} looks like {format} but can't be decoded: {problem}")]
    ImageBroken {
        /// The path as given.
        path: String,
        /// Name of the format.
        format: &'static str,
        /// What the decoder said.
        problem: String,
    },
    /// A patch can't be understood.
    #[error("line {line} of the patch: {problem}")]
    PatchInvalid {
        /// The line of the patch, from 1 on.
        line: usize,
        /// What is wrong with it and what was expected.
        problem: String,
    },
    /// A hunk of a patch doesn't fit the file.
    #[error("{path}: hunk {hunk} (line {line} of the patch) {problem}")]
    PatchMismatch {
        /// The path as given.
        path: String,
        /// Number of the hunk in its part of the patch, from 1 on.
        hunk: usize,
        /// The line of the patch where it starts.
        line: usize,
        /// Why it doesn't fit, and what was expected.
        problem: String,
    },
    /// A patch failed while its files were being written.
    #[error("{source}; {state}")]
    PatchStopped {
        /// What failed.
        source: Box<Error>,
        /// What is on the disk now.
        state: String,
    },
    /// The disk is full, or only its reserve is left.
    #[error("no space left: {free_bytes} bytes free, of which {reserve_bytes} are kept in reserve")]
    NoSpace {
        /// Bytes free on the file system.
        free_bytes: u64,
        /// Bytes that are never given away.
        reserve_bytes: u64,
    },
    /// A repository asks for a login that was not given or not accepted.
    #[error(
        "{host}: authentication required: the repository is private or absent, or the credential is wrong"
    )]
    CloneAuthentication {
        /// The repository's host.
        host: String,
    },
    /// git could not clone.
    #[error("{host}: the clone failed: {problem}")]
    CloneFailed {
        /// The repository's host.
        host: String,
        /// What git said, without secrets.
        problem: String,
    },
    /// The clone took too long.
    #[error("{host}: the clone was ended after {seconds} s")]
    CloneTimedOut {
        /// The repository's host.
        host: String,
        /// The limit.
        seconds: u64,
    },
    /// A program is missing.
    #[error("{program} is not installed on the executor's machine, or the jobs' user may not run it")]
    ProgramMissing {
        /// The program.
        program: &'static str,
    },
    /// No living link has this id, or the link is not one; which of both is not told to whoever has a secret to offer.
    #[error("there is no such link: {}", if link_id.is_empty() { "it is unknown, or has ended" } else { link_id })]
    LinkNotFound {
        /// The id that was asked for; empty where a secret was.
        link_id: String,
    },
    /// The limit of living links is reached.
    #[error("too many links (limit {limit})")]
    TooManyLinks {
        /// The limit.
        limit: usize,
    },
    /// What links hold would take more than it may.
    #[error("the links would hold more than {limit} bytes, which is all that they may")]
    LinksFull {
        /// The limit.
        limit: u64,
    },
    /// Making a snapshot took too long.
    #[error("the snapshot was given up after {seconds} s, with {bytes} bytes of it made")]
    SnapshotTooSlow {
        /// The limit.
        seconds: u64,
        /// How far it came.
        bytes: u64,
    },
    /// An upload has more bytes than its link allows.
    #[error("the upload has more than the {limit} bytes that its link allows")]
    UploadTooLarge {
        /// The limit.
        limit: u64,
    },
    /// Another request is sending an upload.
    #[error("another request is sending this upload")]
    UploadBusy,
    /// An upload ended early.
    #[error("the upload ended after {bytes} bytes, before it was whole; nothing was written")]
    UploadCutShort {
        /// What had come.
        bytes: u64,
    },
    /// The executor is stopping.
    #[error("the executor is stopping and takes no new work")]
    ShuttingDown,
    /// An operation on the executor's own files, records or processes failed.
    #[error("{action}: {source}")]
    Internal {
        /// What was being done, to what.
        action: String,
        /// Why it failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// What can be wrong with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathProblem {
    /// It does not exist.
    NotFound,
    /// It leads out of the workspace. Says nothing of whether it exists.
    OutsideWorkspace,
    /// It exists where nothing was expected.
    Exists,
    /// It is a directory.
    IsADirectory,
    /// A part of it that should be a directory is not one.
    NotADirectory,
    /// It is a pipe, a device or a socket.
    NotARegularFile,
    /// Symbolic links lead in a circle.
    SymlinkLoop,
    /// Mode or owner forbid it.
    PermissionDenied,
}

impl fmt::Display for PathProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "no such file or directory",
            Self::OutsideWorkspace => "the path leads out of the workspace",
            Self::Exists => "exists already",
            Self::IsADirectory => "is a directory",
            Self::NotADirectory => "not a directory",
            Self::NotARegularFile => "not a regular file",
            Self::SymlinkLoop => "symbolic links lead in a circle (ELOOP)",
            Self::PermissionDenied => "permission denied",
        })
    }
}

impl Error {
    /// An argument `field` that is wrong for the reason `problem`.
    pub fn invalid(field: &'static str, problem: impl Into<String>) -> Self {
        Self::InvalidArgument { field, problem: problem.into() }
    }

    /// A path that is wrong.
    pub fn path(path: impl Into<String>, problem: PathProblem) -> Self {
        Self::Path { path: path.into(), problem }
    }

    /// A failed operation of the executor's own. `action` says what was being done, to what.
    pub fn internal(
        action: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Internal { action: action.into(), source: source.into() }
    }
}
