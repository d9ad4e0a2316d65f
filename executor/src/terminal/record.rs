//! A terminal as a row, both directions.

use super::{End, EndState, Terminal};
use crate::id::{TerminalId, WorkspaceId};
use crate::process::pty::Size;
use crate::store::TerminalRow;
use crate::store::columns::{from_micros, micros, signed, time, unsigned};
use crate::timestamp;

/// State of a terminal whose program has not ended.
pub(super) const RUNNING: &str = "running";

pub(super) fn to_row(terminal: &Terminal) -> TerminalRow {
    let end = terminal.end.as_ref();
    TerminalRow {
        terminal_id: terminal.id.as_str().to_owned(),
        workspace_id: terminal.workspace_id.as_str().to_owned(),
        name: terminal.name.clone(),
        command: terminal.command.clone(),
        state: terminal.state_name().to_owned(),
        principal: terminal.principal.clone(),
        columns: terminal.size.columns,
        rows: terminal.size.rows,
        started_ms: timestamp::to_millis(terminal.started),
        ended_ms: end.map(|end| timestamp::to_millis(end.time)),
        duration_us: end.map(|_| micros(terminal.duration)),
        exit_code: end.and_then(|end| end.exit_code),
        signal: end.and_then(|end| end.signal.clone()),
        cpu_us: end.and_then(|end| end.cpu).map(micros),
        max_rss_bytes: end.and_then(|end| end.max_rss_bytes).map(signed),
        leftovers: terminal.leftovers,
        output_bytes: signed(terminal.output_bytes),
    }
}

/// `None` for a row that no version of this program wrote.
pub(super) fn from_row(row: TerminalRow) -> Option<Terminal> {
    let started = time(row.started_ms);
    let state = match row.state.as_str() {
        RUNNING => None,
        "exited" => Some(EndState::Exited),
        "killed" => Some(EndState::Killed),
        "lost" => Some(EndState::Lost),
        _ => return None,
    };
    Some(Terminal {
        id: TerminalId::parse(&row.terminal_id)?,
        workspace_id: WorkspaceId::parse(&row.workspace_id)?,
        name: row.name,
        command: row.command,
        principal: row.principal,
        size: Size { columns: row.columns, rows: row.rows },
        started,
        duration: from_micros(row.duration_us.unwrap_or(0)),
        end: state.map(|state| End {
            state,
            time: row.ended_ms.map_or(started, time),
            exit_code: row.exit_code,
            signal: row.signal,
            cpu: row.cpu_us.map(from_micros),
            max_rss_bytes: row.max_rss_bytes.map(unsigned),
        }),
        leftovers: row.leftovers,
        output_bytes: unsigned(row.output_bytes),
    })
}
