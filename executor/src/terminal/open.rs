//! Opening a terminal: its record, its program, and the runner that follows it from there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::{mpsc, watch};

use super::ledger::{Ledger, Progress};
use super::registry::{Live, Terminals, size};
use super::runner::{Close, Runner};
use super::{Terminal, record};
use crate::error::{Error, Result};
use crate::id::TerminalId;
use crate::process::pty::Pty;
use crate::process::spawn::Command;
use crate::workspace::{Lease, environment};

/// Orders that a runner may have waiting. Whoever gives more waits: each is taken up at once.
const ORDERS: usize = 4;

/// Longest name.
const MAX_NAME: usize = 64;

/// Variables of a terminal's programs beside those of every command, and those that speak against one.
const TERMINAL_VARIABLES: [(&str, &str); 2] = [("TERM", "xterm-256color"), ("COLORTERM", "truecolor")];
const UNWANTED_VARIABLES: [&str; 5] =
    ["PAGER", "GIT_PAGER", "MANPAGER", "SYSTEMD_PAGER", "GIT_TERMINAL_PROMPT"];

/// A terminal to open.
#[derive(Debug, Clone)]
pub struct NewTerminal {
    /// Who asks.
    pub principal: String,
    /// Name, if any.
    pub name: Option<String>,
    /// Text for bash; empty for an interactive bash.
    pub command: String,
    /// Directory to start in; empty for the work directory.
    pub cwd: Vec<u8>,
    /// Variables added to the workspace's.
    pub env: BTreeMap<String, String>,
    /// Characters in a row.
    pub columns: u32,
    /// Rows.
    pub rows: u32,
}

impl NewTerminal {
    fn check(&self) -> Result<()> {
        if self.command.contains('\0') {
            return Err(Error::invalid("command", "the command holds a NUL, which no program can be given"));
        }
        let fits = |name: &String| {
            !name.is_empty()
                && name.len() <= MAX_NAME
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
                && TerminalId::parse(name).is_none()
        };
        if self.name.as_ref().is_some_and(|name| !fits(name)) {
            let problem =
                format!("expected 1 to {MAX_NAME} letters, digits, '.', '_' or '-', and no terminal's id");
            return Err(Error::invalid("name", problem));
        }
        environment::check(&self.env)
    }

    fn bash(&self, env: BTreeMap<String, String>, cwd: std::path::PathBuf) -> Command {
        let mut command = Command::bash(&self.command, env, cwd);
        if self.command.trim().is_empty() {
            command.argv = vec![b"/bin/bash".to_vec(), b"-i".to_vec()];
            command.attachment = None;
        }
        command
    }
}

impl Terminals {
    /// Opens a terminal. Once opened it lives on whoever looks at it, until its program ends or it is closed.
    pub async fn open(self: &Arc<Self>, lease: Lease, new: NewTerminal) -> Result<Terminal> {
        new.check()?;
        // Dropping the caller must not leave a terminal half opened.
        let this = Arc::clone(self);
        let begun = self.resources.tasks.spawn(async move { this.begin(lease, new).await });
        begun.await.map_err(|error| Error::internal("opening a terminal", error))?
    }

    async fn begin(&self, lease: Lease, new: NewTerminal) -> Result<Terminal> {
        let workspace = Arc::clone(&lease.workspace);
        let fixed = Terminal {
            id: TerminalId::generate()?,
            workspace_id: workspace.id.clone(),
            name: new.name.clone(),
            command: new.command.trim().to_owned(),
            principal: new.principal.clone(),
            size: size(new.columns, new.rows)?,
            started: OffsetDateTime::now_utc(),
            duration: Duration::ZERO,
            end: None,
            leftovers: 0,
            output_bytes: 0,
        };
        let resources = &self.resources;
        let cwd = match new.cwd.as_slice() {
            [] => workspace.seen.work.clone(),
            path => resources.files.directory(Arc::clone(&lease.root), path.to_vec()).await?,
        };
        let mut env = environment::environment(
            &workspace,
            &resources.search_path,
            &resources.identity,
            &BTreeMap::new(),
        );
        for name in UNWANTED_VARIABLES {
            if !workspace.env.contains_key(name) {
                env.remove(name);
            }
        }
        env.extend(TERMINAL_VARIABLES.map(|(name, value)| (name.to_owned(), value.to_owned())));
        env.extend(new.env.clone());
        let (pty, program_side) = Pty::open(fixed.size, lease.terminal_multiplexer()?)?;
        let (progress, seen) = watch::channel(Progress::default());
        let (orders, ordered) = mpsc::channel::<Close>(ORDERS);
        let live = self.reserve(Live::new(self, fixed, pty, seen, orders))?;
        let presence = lease.root.presence();
        let started = async {
            resources.store.insert_terminal(record::to_row(&live.fixed)).await?;
            lease.spawner.spawn_on_terminal(new.bash(env, cwd), program_side).await
        };
        let process = match started.await {
            Ok(process) => process,
            Err(error) => {
                live.retire();
                resources.store.remove_ended(vec![live.fixed.id.to_string()]).await?;
                return Err(error);
            }
        };
        let runner = Runner {
            process,
            pty: Arc::clone(&live.pty),
            log: self.log(&live.fixed.id).writer(resources.caps),
            ledger: Ledger::new(Arc::clone(&live), progress, resources.store.clone()),
            orders: ordered,
            _presence: presence,
            answers: Vec::new(),
            over: false,
        };
        resources.tasks.spawn(runner.run());
        Ok(live.terminal())
    }

    fn reserve(&self, live: Live) -> Result<Arc<Live>> {
        let mut living = self.living.lock();
        if self.resources.tasks.is_closed() {
            return Err(Error::ShuttingDown);
        }
        if let Some(name) = &live.fixed.name
            && let Some(holder) = living.values().find(|other| other.fixed.name.as_ref() == Some(name))
        {
            return Err(Error::TerminalExists {
                name: name.clone(),
                terminal_id: holder.fixed.id.to_string(),
            });
        }
        self.resources.places.take(live.fixed.id.as_str())?;
        let live = Arc::new(live);
        living.insert(live.fixed.id.clone(), Arc::clone(&live));
        Ok(live)
    }
}
