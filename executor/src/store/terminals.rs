//! Rows of terminals.

use rusqlite::{OptionalExtension, Row, named_params};

use super::{Durability, Store};
use crate::error::Result;

/// A row of the table `terminals`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminalRow {
    /// Id.
    pub terminal_id: String,
    /// Workspace it ran in.
    pub workspace_id: String,
    /// Name, if any.
    pub name: Option<String>,
    /// The command; empty for an interactive shell.
    pub command: String,
    /// `running`, `exited`, `killed` or `lost`.
    pub state: String,
    /// Who opened it.
    pub principal: String,
    /// Characters in a row.
    pub columns: u16,
    /// Rows.
    pub rows: u16,
    /// Milliseconds since 1970.
    pub started_ms: i64,
    /// Milliseconds since 1970.
    pub ended_ms: Option<i64>,
    /// Microseconds on the monotonic clock.
    pub duration_us: Option<i64>,
    /// Status as a shell shows it.
    pub exit_code: Option<i32>,
    /// Name of the signal that ended it.
    pub signal: Option<String>,
    /// Processor time.
    pub cpu_us: Option<i64>,
    /// Largest resident set.
    pub max_rss_bytes: Option<i64>,
    /// Processes left behind.
    pub leftovers: u32,
    /// Bytes of output.
    pub output_bytes: i64,
}

impl TerminalRow {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            terminal_id: row.get("terminal_id")?,
            workspace_id: row.get("workspace_id")?,
            name: row.get("name")?,
            command: row.get("command")?,
            state: row.get("state")?,
            principal: row.get("principal")?,
            columns: row.get("columns")?,
            rows: row.get("rows")?,
            started_ms: row.get("started_ms")?,
            ended_ms: row.get("ended_ms")?,
            duration_us: row.get("duration_us")?,
            exit_code: row.get("exit_code")?,
            signal: row.get("signal")?,
            cpu_us: row.get("cpu_us")?,
            max_rss_bytes: row.get("max_rss_bytes")?,
            leftovers: row.get("leftovers")?,
            output_bytes: row.get("output_bytes")?,
        })
    }
}

impl Store {
    /// Adds a terminal that is about to run.
    pub async fn insert_terminal(&self, row: TerminalRow) -> Result<()> {
        self.write("recording a terminal", Durability::Process, move |transaction| {
            transaction
                .prepare_cached(
                    "INSERT INTO terminals (terminal_id, workspace_id, name, command, state, principal, columns, rows,
                                            started_ms)
                     VALUES (:terminal_id, :workspace_id, :name, :command, :state, :principal, :columns, :rows,
                             :started_ms)",
                )?
                .execute(named_params! {
                    ":terminal_id": row.terminal_id, ":workspace_id": row.workspace_id, ":name": row.name,
                    ":command": row.command, ":state": row.state, ":principal": row.principal,
                    ":columns": row.columns, ":rows": row.rows, ":started_ms": row.started_ms,
                })?;
            Ok(())
        })
        .await
    }

    /// Writes a terminal's size, state and what goes with it.
    pub async fn update_terminal(&self, row: TerminalRow) -> Result<()> {
        self.write("recording a terminal", Durability::Process, move |transaction| {
            transaction
                .prepare_cached(
                    "UPDATE terminals SET state = :state, columns = :columns, rows = :rows, ended_ms = :ended_ms,
                            duration_us = :duration_us, exit_code = :exit_code, signal = :signal, cpu_us = :cpu_us,
                            max_rss_bytes = :max_rss_bytes, leftovers = :leftovers, output_bytes = :output_bytes
                     WHERE terminal_id = :terminal_id",
                )?
                .execute(named_params! {
                    ":terminal_id": row.terminal_id, ":state": row.state, ":columns": row.columns, ":rows": row.rows,
                    ":ended_ms": row.ended_ms, ":duration_us": row.duration_us, ":exit_code": row.exit_code,
                    ":signal": row.signal, ":cpu_us": row.cpu_us, ":max_rss_bytes": row.max_rss_bytes,
                    ":leftovers": row.leftovers, ":output_bytes": row.output_bytes,
                })?;
            Ok(())
        })
        .await
    }

    /// The row with this id.
    pub async fn terminal(&self, terminal_id: String) -> Result<Option<TerminalRow>> {
        self.call("reading a terminal", move |connection| {
            connection
                .prepare_cached("SELECT * FROM terminals WHERE terminal_id = ?1")?
                .query_row([terminal_id], TerminalRow::read)
                .optional()
        })
        .await
    }

    /// Terminals on record as running, or as having left processes behind.
    pub async fn terminals_with_processes(&self) -> Result<Vec<TerminalRow>> {
        self.call("reading terminals", |connection| {
            connection
                .prepare_cached("SELECT * FROM terminals WHERE state = 'running' OR leftovers > 0")?
                .query_map([], TerminalRow::read)?
                .collect()
        })
        .await
    }

    /// Terminals that ended at or after this time, newest first; those of one workspace, or of all.
    pub async fn ended_terminals(
        &self,
        workspace_id: Option<String>,
        since_ms: i64,
        limit: u32,
    ) -> Result<Vec<TerminalRow>> {
        self.call("reading terminals", move |connection| {
            connection
                .prepare_cached(
                    "SELECT * FROM terminals WHERE ended_ms >= ?1 AND (?2 IS NULL OR workspace_id = ?2)
                     ORDER BY seq DESC LIMIT ?3",
                )?
                .query_map((since_ms, workspace_id, limit), TerminalRow::read)?
                .collect()
        })
        .await
    }
}
