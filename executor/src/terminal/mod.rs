//! Terminals: commands on a pseudo-terminal, with the screen that a person would see. Each living terminal has one runner,
//! which alone writes its state, its log and its screen; what is typed goes to the terminal in turns. Knows nothing of
//! jobs, and of who looks at a terminal: any number may, from anywhere.

mod ansi;
mod input;
mod keys;
mod ledger;
mod open;
mod palette;
mod picture;
mod read;
mod record;
mod registry;
mod runner;
mod screen;

#[cfg(test)]
mod screen_tests;

use std::time::Duration;

use time::OffsetDateTime;

pub use input::Typed;
pub use open::NewTerminal;
pub use read::{Content, ReadTerminal, Reading, View};
pub use registry::{Closed, Terminals};
pub use screen::Shown;

use crate::id::{TerminalId, WorkspaceId};
use crate::process::pty::Size;

/// A terminal as it is at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terminal {
    /// Id.
    pub id: TerminalId,
    /// Workspace it runs in.
    pub workspace_id: WorkspaceId,
    /// Name, which is as good as the id while it lives.
    pub name: Option<String>,
    /// The command as given; empty for an interactive shell.
    pub command: String,
    /// Who opened it.
    pub principal: String,
    /// Columns and rows.
    pub size: Size,
    /// When it was opened.
    pub started: OffsetDateTime,
    /// Time its program ran so far, or in all, on the monotonic clock.
    pub duration: Duration,
    /// Its end, if its program has ended.
    pub end: Option<End>,
    /// Processes that live on after its end.
    pub leftovers: u32,
    /// Bytes that its programs have written.
    pub output_bytes: u64,
}

/// How a terminal's program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// What ended it.
    pub state: EndState,
    /// When.
    pub time: OffsetDateTime,
    /// Status as a shell shows it; `None` when it was lost.
    pub exit_code: Option<i32>,
    /// Name of the signal that ended it, such as `HUP`.
    pub signal: Option<String>,
    /// Processor time of the program and the children it waited for.
    pub cpu: Option<Duration>,
    /// Largest resident set of one of its processes.
    pub max_rss_bytes: Option<u64>,
}

/// What ended a terminal's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndState {
    /// It ended by itself.
    Exited,
    /// A signal.
    Killed,
    /// The executor was killed while it ran.
    Lost,
}

impl Terminal {
    /// The state's name in records.
    pub fn state_name(&self) -> &'static str {
        match self.end.as_ref().map(|end| end.state) {
            None => record::RUNNING,
            Some(EndState::Exited) => "exited",
            Some(EndState::Killed) => "killed",
            Some(EndState::Lost) => "lost",
        }
    }
}
