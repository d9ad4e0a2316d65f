//! Jobs: commands that run in a workspace, their states and their output. Each living job has one runner, which alone
//! writes its state; everybody else reads what the runner publishes, and the log on disk.

mod ledger;
mod new;
mod output;
mod receipt;
mod record;
mod registry;
mod runner;
mod shell;
mod start;
mod stdin;
mod stream;

use std::time::Duration;

use time::OffsetDateTime;

pub use new::NewJob;
pub use output::{ReadFrom, ReadRequest};
pub use registry::{Jobs, Page};
pub use start::Started;

pub use crate::process::spawn::Leftover;

use crate::id::{JobId, WorkspaceId};

/// A job as it is at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Id.
    pub id: JobId,
    /// Workspace it runs in.
    pub workspace_id: WorkspaceId,
    /// The command as given.
    pub command: String,
    /// Who started it.
    pub principal: String,
    /// Id of the request that started it, if any.
    pub request_id: Option<String>,
    /// Named shell it runs in; empty for one of its own.
    pub shell: String,
    /// Whether standard error has a log of its own.
    pub separate_stderr: bool,
    /// Time limit.
    pub timeout: Duration,
    /// When it was started.
    pub started: OffsetDateTime,
    /// Time it ran so far, or in all, on the monotonic clock.
    pub duration: Duration,
    /// Its end, if it has ended.
    pub end: Option<End>,
    /// Processes that live on after its end.
    pub leftovers: u32,
    /// The first of those that did when it ended.
    pub left: Vec<Leftover>,
    /// The limit that it ran into.
    pub limit_hit: Option<LimitHit>,
    /// What became of the files of the work directory while it ran.
    pub touched: Touched,
    /// Bytes written to the log of output.
    pub output_bytes: u64,
    /// Bytes written to the log of errors.
    pub stderr_bytes: u64,
    /// What its starter should know.
    pub notes: Vec<String>,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// What ended it.
    pub state: EndState,
    /// When.
    pub time: OffsetDateTime,
    /// Status as a shell shows it; `None` when it was lost.
    pub exit_code: Option<i32>,
    /// Name of the signal that ended it, such as `TERM`.
    pub signal: Option<String>,
    /// Processor time of its processes that have ended.
    pub cpu: Option<Duration>,
    /// Largest resident set of one of them.
    pub max_rss_bytes: Option<u64>,
    /// Whether the kernel ended it for want of memory.
    pub oom_killed: bool,
}

/// A limit that a job ran into, with its value. Where there are several, the first of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitHit {
    /// Its time, in seconds.
    Timeout(u64),
    /// Memory, in bytes.
    Memory(u64),
    /// What is kept of its output, in bytes.
    Log(u64),
}

impl LimitHit {
    /// The limit's name in records and answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Timeout(_) => "timeout_seconds",
            Self::Memory(_) => "memory_bytes",
            Self::Log(_) => "log_bytes",
        }
    }

    /// The limit's value.
    pub const fn value(self) -> u64 {
        match self {
            Self::Timeout(value) | Self::Memory(value) | Self::Log(value) => value,
        }
    }

    fn from_parts(name: &str, value: u64) -> Option<Self> {
        [Self::Timeout(value), Self::Memory(value), Self::Log(value)]
            .into_iter()
            .find(|hit| hit.name() == name)
    }
}

/// What became of the files of a work directory while a job ran, whoever changed them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Touched {
    /// It has not ended, or nobody knows any more.
    #[default]
    Unknown,
    /// It has ended, and the changes are being counted.
    Counting,
    /// So many changed.
    Counted {
        /// Paths that came to be.
        created: u64,
        /// Files whose content or facts changed.
        changed: u64,
        /// Paths that are gone.
        deleted: u64,
    },
    /// They were not counted, for this reason.
    Uncounted(String),
}

/// What ended a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndState {
    /// It ended by itself.
    Exited,
    /// A signal.
    Killed,
    /// Its time was over.
    TimedOut,
    /// The executor was killed while it ran.
    Lost,
}

/// State by which jobs are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Still running.
    Running,
    /// Ended.
    Ended(EndState),
}

impl State {
    /// The state's name in records and lists.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Ended(EndState::Exited) => "exited",
            Self::Ended(EndState::Killed) => "killed",
            Self::Ended(EndState::TimedOut) => "timed_out",
            Self::Ended(EndState::Lost) => "lost",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        let ended = [EndState::Exited, EndState::Killed, EndState::TimedOut, EndState::Lost].map(Self::Ended);
        std::iter::once(Self::Running).chain(ended).find(|state| state.name() == name)
    }
}

impl Job {
    /// State of the job.
    pub fn state(&self) -> State {
        self.end.as_ref().map_or(State::Running, |end| State::Ended(end.state))
    }
}
