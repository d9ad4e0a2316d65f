//! What a caller asks to run, and the checks it must pass.

use std::collections::BTreeMap;
use std::time::Duration;

use super::shell;
use crate::error::{Error, Result};
use crate::workspace::environment;

/// Longest time a job may be given: a day.
pub(super) const MAX_TIMEOUT: Duration = Duration::from_secs(86_400);

/// Longest id of a request.
const MAX_REQUEST_ID: usize = 128;

/// A command to run.
#[derive(Debug, Clone, Default)]
pub struct NewJob {
    /// Who asks.
    pub principal: String,
    /// Id of the request, if any: a repeated one gets the first one's job.
    pub request_id: Option<String>,
    /// Text for bash.
    pub command: String,
    /// Directory to start in; empty for the work directory.
    pub cwd: Vec<u8>,
    /// Variables added to the workspace's.
    pub env: BTreeMap<String, String>,
    /// What to send to standard input.
    pub stdin: Option<Vec<u8>>,
    /// Whether standard input stays open afterwards.
    pub keep_stdin_open: bool,
    /// Time after which the job is ended.
    pub timeout: Duration,
    /// Whether standard error gets a log of its own.
    pub separate_stderr: bool,
    /// Named shell to run in; empty for one of its own.
    pub shell: String,
}

impl NewJob {
    /// A command with nothing but a time limit.
    pub fn plain(principal: String, command: String, timeout: Duration) -> Self {
        Self { principal, command, timeout, ..Self::default() }
    }

    /// Checks what needs no look at the workspace.
    pub(super) fn check(&self) -> Result<()> {
        if self.command.trim().is_empty() {
            return Err(Error::invalid("command", "expected a command for bash, got none"));
        }
        if self.command.contains('\0') {
            return Err(Error::invalid("command", "the command holds a NUL, which no program can be given"));
        }
        if self.timeout.is_zero() || self.timeout > MAX_TIMEOUT {
            return Err(Error::invalid(
                "timeout_seconds",
                format!(
                    "expected 1 to {} seconds, got {}",
                    MAX_TIMEOUT.as_secs(),
                    self.timeout.as_secs_f64()
                ),
            ));
        }
        if self.request_id.as_ref().is_some_and(|id| id.len() > MAX_REQUEST_ID) {
            return Err(Error::invalid("request_id", format!("expected at most {MAX_REQUEST_ID} bytes")));
        }
        if !self.shell.is_empty() {
            self.check_shell()?;
        }
        environment::check(&self.env)
    }

    /// A named shell has its streams and variables already, which one command can't change.
    fn check_shell(&self) -> Result<()> {
        shell::check_name(&self.shell)?;
        let problem = if self.separate_stderr {
            (
                "separate_stderr",
                "a named shell has one stream for both; redirect stderr in the command (2>file)",
            )
        } else if self.stdin.is_some() || self.keep_stdin_open {
            ("stdin", "a command in a named shell has no input; use a here-document in the command")
        } else if !self.env.is_empty() {
            ("env", "a named shell keeps its variables; set them in the command, as in NAME=value command")
        } else {
            return Ok(());
        };
        Err(Error::invalid(problem.0, problem.1))
    }

    /// The command with Unix line ends, when every line of it ends as on Windows: bash would take the carriage returns
    /// for parts of words.
    pub(super) fn text(&self) -> String {
        let feeds = self.command.matches('\n').count();
        if feeds > 0 && self.command.matches("\r\n").count() == feeds {
            self.command.replace("\r\n", "\n")
        } else {
            self.command.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(command: &str) -> NewJob {
        NewJob { command: command.to_owned(), timeout: Duration::from_secs(1), ..NewJob::default() }
    }

    #[test]
    fn odd_timeouts_are_refused_by_name() {
        for timeout in [Duration::ZERO, MAX_TIMEOUT + Duration::from_secs(1), Duration::MAX] {
            let error = NewJob { timeout, ..job("true") }.check().unwrap_err().to_string();
            assert!(error.starts_with("timeout_seconds: expected 1 to 86400 seconds"), "{error}");
        }
        job("true").check().unwrap();
    }

    #[test]
    fn exe_05_line_ends_of_windows_become_those_of_unix_only_where_all_are() {
        assert_eq!(job("echo a\r\necho b\r\n").text(), "echo a\necho b\n");
        assert_eq!(job("printf 'a\r\n'\necho b").text(), "printf 'a\r\n'\necho b");
    }
}
