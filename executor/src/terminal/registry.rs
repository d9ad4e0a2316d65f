//! All terminals of a data root: the living ones in memory, every one on record.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::input::Input;
use super::ledger::Progress;
use super::runner::Close;
use super::screen::Screen;
use super::{End, EndState, Terminal, record};
use crate::error::{Error, Result};
use crate::id::{TerminalId, WorkspaceId};
use crate::output::{Log, log};
use crate::process::pty::{Pty, Size};
use crate::resources::{Places, Resources};
use crate::timestamp;

/// Time between HUP and KILL when a terminal is closed.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// How much longer than its grace a closing waits for the last process to go.
const CLOSE_PATIENCE: Duration = Duration::from_secs(10);

/// Sizes that a terminal can have. Programs fail at less, and pictures of the screen become too large at more.
const COLUMNS: std::ops::RangeInclusive<u32> = 2..=500;
const ROWS: std::ops::RangeInclusive<u32> = 1..=300;

/// All terminals.
#[derive(Debug)]
pub struct Terminals {
    pub(super) resources: Resources,
    pub(super) living: Arc<Living>,
}

/// The living terminals by id.
#[derive(Debug, Default)]
pub(super) struct Living(Mutex<HashMap<TerminalId, Arc<Live>>>);

/// A terminal that has processes.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) fixed: Terminal,
    pub(super) started_at: Instant,
    pub(super) progress: watch::Receiver<Progress>,
    pub(super) orders: mpsc::Sender<Close>,
    pub(super) pty: Arc<Pty>,
    pub(super) input: Input,
    screen: Mutex<Screen>,
    living: Arc<Living>,
    places: Arc<Places>,
}

/// What was ended by closing a terminal.
#[derive(Debug)]
pub struct Closed {
    /// The terminal.
    pub terminal: Terminal,
    /// Processes that were ended.
    pub ended_processes: u32,
}

impl Live {
    pub(super) fn new(
        terminals: &Terminals,
        fixed: Terminal,
        pty: Pty,
        progress: watch::Receiver<Progress>,
        orders: mpsc::Sender<Close>,
    ) -> Self {
        Self {
            screen: Mutex::new(Screen::new(fixed.size)),
            started_at: Instant::now(),
            fixed,
            progress,
            orders,
            pty: Arc::new(pty),
            input: Input::default(),
            living: Arc::clone(&terminals.living),
            places: Arc::clone(&terminals.resources.places),
        }
    }

    pub(super) fn screen(&self) -> MutexGuard<'_, Screen> {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The terminal as the progress describes it.
    pub(super) fn terminal_at(&self, progress: &Progress) -> Terminal {
        let Progress { output_bytes, duration, end, leftovers, .. } = progress.clone();
        let duration = if end.is_some() { duration } else { self.started_at.elapsed() };
        Terminal { duration, end, leftovers, output_bytes, size: self.screen().size(), ..self.fixed.clone() }
    }

    pub(super) fn terminal(&self) -> Terminal {
        let progress = self.progress.borrow().clone();
        self.terminal_at(&progress)
    }

    /// Takes the terminal out of the living.
    pub(super) fn retire(&self) {
        self.living.lock().remove(&self.fixed.id);
        self.places.give_back(self.fixed.id.as_str());
    }
}

impl Living {
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<TerminalId, Arc<Live>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Terminals {
    /// Takes up the terminals on record. Those that ran when the last executor ended are lost: their processes went with it.
    pub async fn load(resources: Resources) -> Result<Self> {
        let this = Self { resources, living: Arc::default() };
        for row in this.resources.store.terminals_with_processes().await? {
            let Some(mut terminal) = record::from_row(row) else { continue };
            terminal.leftovers = 0;
            terminal.output_bytes = this.log(&terminal.id).extent()?;
            if terminal.end.is_none() {
                lose(&mut terminal);
            }
            this.resources.store.update_terminal(record::to_row(&terminal)).await?;
        }
        Ok(this)
    }

    /// The terminal with this id, or the living one with this name.
    pub async fn get(&self, id_or_name: &str) -> Result<Terminal> {
        if let Some(live) = self.live(id_or_name) {
            return Ok(live.terminal());
        }
        let unknown = || Error::TerminalNotFound { terminal_id: id_or_name.chars().take(80).collect() };
        let id = TerminalId::parse(id_or_name).ok_or_else(unknown)?;
        self.resources.store.terminal(id.to_string()).await?.and_then(record::from_row).ok_or_else(unknown)
    }

    /// Terminals that have processes, oldest first.
    pub fn living(&self, workspace_id: Option<&WorkspaceId>) -> Vec<Terminal> {
        let mut terminals: Vec<Terminal> =
            self.lives(workspace_id).iter().map(|live| live.terminal()).collect();
        terminals.sort_by_key(|terminal| terminal.started);
        terminals
    }

    /// Terminals whose program ended in the last `since`, newest first, at most `limit`.
    pub async fn ended(
        &self,
        workspace_id: Option<&WorkspaceId>,
        since: Duration,
        limit: u32,
    ) -> Result<Vec<Terminal>> {
        let from = timestamp::millis_ago(since);
        let workspace = workspace_id.map(|id| id.as_str().to_owned());
        let rows = self.resources.store.ended_terminals(workspace, from, limit).await?;
        Ok(rows.into_iter().filter_map(record::from_row).collect())
    }

    /// Changes the size of a living terminal.
    pub async fn resize(&self, id_or_name: &str, columns: u32, rows: u32) -> Result<Terminal> {
        let size = size(columns, rows)?;
        let live = self.running(id_or_name).await?;
        live.screen().resize(size);
        live.pty.resize(size)?;
        let terminal = live.terminal();
        self.resources.store.update_terminal(record::to_row(&terminal)).await?;
        Ok(terminal)
    }

    /// Ends a terminal with all that runs in it, and waits until nothing of it is left. One that is gone stays as it is.
    pub async fn close(&self, id_or_name: &str) -> Result<Closed> {
        let terminal = self.get(id_or_name).await?;
        let ended_processes = match self.live(terminal.id.as_str()) {
            Some(live) => close(&live, CLOSE_GRACE).await?,
            None => 0,
        };
        Ok(Closed { terminal: self.get(terminal.id.as_str()).await?, ended_processes })
    }

    /// Closes all terminals of a workspace, or all, and waits until nothing of them is left. Returns those that were open.
    pub async fn close_all(&self, workspace_id: Option<&WorkspaceId>) -> Result<Vec<TerminalId>> {
        let mut open = Vec::new();
        let mut closings = tokio::task::JoinSet::new();
        for live in self.lives(workspace_id) {
            if live.progress.borrow().end.is_none() {
                open.push(live.fixed.id.clone());
            }
            closings.spawn(async move { close(&live, CLOSE_GRACE).await });
        }
        while let Some(closed) = closings.join_next().await {
            closed.map_err(|error| Error::internal("closing terminals", error))??;
        }
        Ok(open)
    }

    /// The living terminal with this id or name.
    pub(super) fn live(&self, id_or_name: &str) -> Option<Arc<Live>> {
        let living = self.living.lock();
        let named = |live: &&Arc<Live>| live.fixed.name.as_deref() == Some(id_or_name);
        let by_id = TerminalId::parse(id_or_name).and_then(|id| living.get(&id).cloned());
        by_id.or_else(|| living.values().find(named).cloned())
    }

    /// The living terminal with this id or name, whose program has not ended.
    pub(super) async fn running(&self, id_or_name: &str) -> Result<Arc<Live>> {
        let terminal = self.get(id_or_name).await?;
        let live = self.live(terminal.id.as_str()).filter(|live| live.progress.borrow().end.is_none());
        live.ok_or_else(|| ended(&terminal))
    }

    fn lives(&self, workspace_id: Option<&WorkspaceId>) -> Vec<Arc<Live>> {
        let wanted = |live: &&Arc<Live>| workspace_id.is_none_or(|id| live.fixed.workspace_id == *id);
        self.living.lock().values().filter(wanted).cloned().collect()
    }

    pub(super) fn log(&self, id: &TerminalId) -> Log {
        Log::new(self.resources.logs.join(id.as_str()), log::Stream::Output)
    }
}

/// A size that a terminal can have.
pub(super) fn size(columns: u32, rows: u32) -> Result<Size> {
    let within = |field, given: u32, range: std::ops::RangeInclusive<u32>| {
        let fits = u16::try_from(given).ok().filter(|_| range.contains(&given));
        fits.ok_or_else(|| {
            Error::invalid(field, format!("expected {} to {}, got {given}", range.start(), range.end()))
        })
    };
    Ok(Size { columns: within("cols", columns, COLUMNS)?, rows: within("rows", rows, ROWS)? })
}

fn ended(terminal: &Terminal) -> Error {
    let outcome = match terminal.end.as_ref() {
        Some(End { signal: Some(signal), .. }) => format!("signal {signal}"),
        Some(End { exit_code: Some(code), .. }) => format!("exit code {code}"),
        _ => "lost when the executor ended".to_owned(),
    };
    Error::TerminalEnded { terminal_id: terminal.id.to_string(), outcome }
}

/// The end of a terminal whose executor was killed.
fn lose(terminal: &mut Terminal) {
    let time = OffsetDateTime::now_utc().max(terminal.started);
    terminal.duration = (time - terminal.started).try_into().unwrap_or_default();
    terminal.end = Some(End {
        state: EndState::Lost,
        time,
        exit_code: None,
        signal: None,
        cpu: None,
        max_rss_bytes: None,
    });
}

/// Ends one terminal and waits for its last process.
async fn close(live: &Live, grace: Duration) -> Result<u32> {
    let mut progress = live.progress.clone();
    // A runner that has just finished takes no more orders, which is as good.
    let _finished = live.orders.send(Close { grace }).await.is_err();
    let gone = progress.wait_for(|progress| progress.gone);
    match tokio::time::timeout(grace + CLOSE_PATIENCE, gone).await {
        Ok(Ok(last)) => Ok(last.ended_processes),
        Ok(Err(_runner_gone)) => Ok(0),
        Err(_elapsed) => Err(Error::internal(
            format!("closing {}", live.fixed.id),
            "some of its processes do not end even when killed; they wait for a device or a network file system",
        )),
    }
}
