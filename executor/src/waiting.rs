//! Waiting for several things at once: the ends of jobs and terminals, their output, ports, paths, time. Each condition is
//! a task that looks by itself; the wait is over when enough of them hold, when too few still can, or when its time is up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::file::Facts;
use crate::job::{Job, ReadFrom, ReadRequest};
use crate::machine::Machine;
use crate::output::Stream;
use crate::terminal::{self, ReadTerminal, View};

/// Time between two looks at what tells nobody that it changed.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Most conditions of one wait.
const MOST_CONDITIONS: usize = 32;

/// Bytes of output that are read and thrown away with a match.
const LEAST_OUTPUT: usize = 256;

/// Something that can come true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// The job or terminal with this id has ended.
    Ended(String),
    /// This regular expression has matched all output so far of the job or terminal with this id.
    OutputMatches(String, String),
    /// Something listens on this TCP port of the machine.
    PortOpen(u16),
    /// The path exists in the workspace.
    PathExists(String, Vec<u8>),
    /// The path is not as it was when the wait began: made, removed, replaced, or its content or mode changed.
    PathChanged(String, Vec<u8>),
    /// So much time has gone by.
    Elapsed(Duration),
}

/// What is known of a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// Whether it held.
    pub held: bool,
    /// Whether it can still come true.
    pub possible: bool,
    /// What there is to say, such as `exited 0`.
    pub state: String,
}

/// How a wait went.
#[derive(Debug)]
pub struct Waited {
    /// Whether what was waited for holds.
    pub satisfied: bool,
    /// The conditions, in the order given.
    pub conditions: Vec<Known>,
    /// How long it took.
    pub duration: Duration,
}

impl Known {
    fn held(state: impl Into<String>) -> Self {
        Self { held: true, possible: true, state: state.into() }
    }

    fn not_yet(state: impl Into<String>) -> Self {
        Self { held: false, possible: true, state: state.into() }
    }

    fn never(state: impl Into<String>) -> Self {
        Self { held: false, possible: false, state: state.into() }
    }
}

impl Machine {
    /// Waits until one of the conditions holds, or all. Fails at once where one names what does not exist.
    pub async fn wait_for(
        self: &Arc<Self>,
        conditions: Vec<Condition>,
        all: bool,
        timeout: Duration,
    ) -> Result<Waited> {
        if conditions.is_empty() || conditions.len() > MOST_CONDITIONS {
            let field = if all { "all" } else { "any" };
            let problem = format!("expected 1 to {MOST_CONDITIONS} conditions, got {}", conditions.len());
            return Err(Error::invalid(field, problem));
        }
        let begun = Instant::now();
        let deadline = begun + timeout;
        // Dropping the set ends the tasks, when whoever waits goes away too.
        let mut looking = JoinSet::new();
        for (number, condition) in conditions.iter().cloned().enumerate() {
            let this = Arc::clone(self);
            looking.spawn(async move { (number, this.come_true(condition, deadline).await) });
        }
        let mut known = BTreeMap::new();
        while let Some(found) = looking.join_next().await {
            let (number, found) = found.map_err(|error| Error::internal("waiting for a condition", error))?;
            let found = found?;
            let over = if all { !found.possible } else { found.held };
            known.insert(number, found);
            if over {
                break;
            }
        }
        drop(looking);
        let mut last = Vec::with_capacity(conditions.len());
        for (number, condition) in conditions.into_iter().enumerate() {
            last.push(match known.remove(&number) {
                Some(found) => found,
                None => self.come_true(condition, Instant::now()).await?,
            });
        }
        let held = last.iter().filter(|condition| condition.held).count();
        let satisfied = if all { held == last.len() } else { held > 0 };
        Ok(Waited { satisfied, conditions: last, duration: begun.elapsed() })
    }

    /// Waits until the condition holds or can't any more, or the time is over; at least one look is taken.
    async fn come_true(&self, condition: Condition, deadline: Instant) -> Result<Known> {
        match condition {
            Condition::Ended(id) => self.end_of(&id, deadline).await,
            Condition::OutputMatches(id, regex) => self.match_of(&id, regex, deadline).await,
            Condition::PortOpen(port) => Ok(port_open(port, deadline).await),
            Condition::PathExists(workspace, path) => {
                self.path_until(&workspace, &path, deadline, |now, _first| now.is_some()).await
            }
            Condition::PathChanged(workspace, path) => {
                self.path_until(&workspace, &path, deadline, |now, first| now != first).await
            }
            Condition::Elapsed(time) => {
                let end = Instant::now() + time;
                tokio::time::sleep_until(end.min(deadline)).await;
                let state = format!("{:.1} s", time.as_secs_f64());
                Ok(if end <= deadline { Known::held(state) } else { Known::not_yet(state) })
            }
        }
    }

    async fn end_of(&self, id: &str, deadline: Instant) -> Result<Known> {
        let wait = deadline.saturating_duration_since(Instant::now());
        if is_terminal(id) {
            let terminal = self.terminals.wait_for_end(id, wait).await?;
            let state = terminal_state(&terminal);
            return Ok(if terminal.end.is_some() { Known::held(state) } else { Known::not_yet(state) });
        }
        let job = self.jobs.ended_within(id, wait).await?;
        let state = job_state(&job);
        Ok(if job.end.is_some() { Known::held(state) } else { Known::not_yet(state) })
    }

    async fn match_of(&self, id: &str, until: String, deadline: Instant) -> Result<Known> {
        let wait = deadline.saturating_duration_since(Instant::now());
        let (matched, over, state) = if is_terminal(id) {
            let look =
                ReadTerminal { view: View::Output, cursor: Some(0), wait, until, max_bytes: LEAST_OUTPUT };
            let reading = self.terminals.read(id, look).await?;
            (reading.matched, reading.terminal.end.is_some(), terminal_state(&reading.terminal))
        } else {
            let read = ReadRequest {
                stream: Stream::Output,
                from: ReadFrom::Cursor(0),
                max_bytes: LEAST_OUTPUT,
                wait,
                until,
                raw: false,
            };
            let (job, _output, matched) = self.jobs.read(id, read).await?;
            (matched, job.end.is_some(), job_state(&job))
        };
        Ok(match (matched, over) {
            (true, _) => Known::held(state),
            (false, false) => Known::not_yet(format!("no match yet, {state}")),
            (false, true) => Known::never(format!("no match, {state}")),
        })
    }

    /// Looks at a path until `holds` of what is there now and what was there first.
    async fn path_until(
        &self,
        workspace: &str,
        path: &[u8],
        deadline: Instant,
        holds: impl Fn(&Option<Facts>, &Option<Facts>) -> bool,
    ) -> Result<Known> {
        let mut first = None;
        loop {
            // Not held between two looks, so that the workspace can be deleted meanwhile.
            let now = match self.workspaces.enter(workspace).await {
                Ok(lease) => self.files.facts(Arc::clone(&lease.root), path.to_vec()).await?,
                Err(error) if first.is_none() => return Err(error),
                Err(_deleted) => return Ok(Known::never("the workspace is gone")),
            };
            let first = first.get_or_insert_with(|| now.clone());
            let state = match &now {
                Some(facts) => format!("exists, {} bytes", facts.size()),
                None => "does not exist".to_owned(),
            };
            if holds(&now, first) {
                return Ok(Known::held(state));
            }
            if Instant::now() >= deadline {
                return Ok(Known::not_yet(state));
            }
            tokio::time::sleep_until(deadline.min(Instant::now() + LOOK_AGAIN)).await;
        }
    }
}

fn is_terminal(id: &str) -> bool {
    // A terminal may also be told by its name, which is no job's id.
    !id.starts_with("job_")
}

fn job_state(job: &Job) -> String {
    let code = job.end.as_ref().and_then(|end| end.exit_code);
    match code {
        Some(code) => format!("{} {code}", job.state().name()),
        None => job.state().name().to_owned(),
    }
}

fn terminal_state(terminal: &terminal::Terminal) -> String {
    match terminal.end.as_ref().and_then(|end| end.exit_code) {
        Some(code) => format!("{} {code}", terminal.state_name()),
        None => terminal.state_name().to_owned(),
    }
}

async fn port_open(port: u16, deadline: Instant) -> Known {
    loop {
        if is_listened_on(port).await {
            return Known::held("open");
        }
        if Instant::now() >= deadline {
            return Known::not_yet("nothing listens");
        }
        tokio::time::sleep_until(deadline.min(Instant::now() + LOOK_AGAIN)).await;
    }
}

/// Asks the kernel instead of connecting: some servers take one connection only, and others log each.
async fn is_listened_on(port: u16) -> bool {
    for table in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        let Ok(sockets) = tokio::fs::read_to_string(table).await else { continue };
        if sockets.lines().skip(1).any(|socket| listens_on(socket, port)) {
            return true;
        }
    }
    false
}

/// A row of that table (proc(5)): its number, local address and port in hexadecimal, remote ones, and the state, of which
/// 0A is listening.
fn listens_on(socket: &str, port: u16) -> bool {
    let mut fields = socket.split_ascii_whitespace().skip(1);
    let (local, _remote, state) = (fields.next(), fields.next(), fields.next());
    let local_port = local.and_then(|local| u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok());
    local_port == Some(port) && state == Some("0A")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_socket_is_told_from_others() {
        let listening =
            "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1";
        let connected =
            "   1: 0100007F:1F91 0100007F:A000 01 00000000:00000000 00:00000000 00000000     0        0 2";
        assert!(listens_on(listening, 8080));
        assert!(!listens_on(listening, 8081));
        assert!(!listens_on(connected, 8081));
        assert!(!listens_on("", 80));
    }
}
