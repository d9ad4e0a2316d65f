//! Rows of sandboxes.

use rusqlite::{OptionalExtension, Row, named_params};

use super::{Durability, Store};
use crate::error::Result;

/// A row of the table `sandboxes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxRow {
    /// Order of creation; 0 before the insert.
    pub seq: i64,
    /// Id.
    pub sandbox_id: String,
    /// Name, if any.
    pub name: Option<String>,
    /// Who made it.
    pub principal: String,
    /// Metadata as a JSON object.
    pub metadata: String,
    /// Milliseconds since 1970.
    pub created_ms: i64,
    /// Milliseconds since 1970.
    pub expires_ms: i64,
    /// What keeps it apart.
    pub isolation: String,
    /// Notes as a JSON array.
    pub notes: String,
    /// Whether it reaches nothing but itself.
    pub loopback_only: bool,
    /// Milliseconds that it has left; none unless it is suspended.
    pub remaining_ms: Option<i64>,
    /// Ids of what it was started with, as a JSON array, the last one uppermost.
    pub layers: String,
    /// Name of the blueprint it was made from.
    pub blueprint: Option<String>,
    /// Id of the snapshot it was made from.
    pub snapshot_id: Option<String>,
    /// Milliseconds since 1970; none while it lives.
    pub ended_ms: Option<i64>,
    /// Why it ended.
    pub end_reason: Option<String>,
}

impl SandboxRow {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            seq: row.get("seq")?,
            sandbox_id: row.get("sandbox_id")?,
            name: row.get("name")?,
            principal: row.get("principal")?,
            metadata: row.get("metadata")?,
            created_ms: row.get("created_ms")?,
            expires_ms: row.get("expires_ms")?,
            isolation: row.get("isolation")?,
            notes: row.get("notes")?,
            loopback_only: row.get("loopback_only")?,
            remaining_ms: row.get("remaining_ms")?,
            layers: row.get("layers")?,
            blueprint: row.get("blueprint")?,
            snapshot_id: row.get("snapshot_id")?,
            ended_ms: row.get("ended_ms")?,
            end_reason: row.get("end_reason")?,
        })
    }
}

impl Store {
    /// Adds a sandbox and returns its `seq`.
    pub async fn insert_sandbox(&self, row: SandboxRow) -> Result<i64> {
        self.write("recording a sandbox", Durability::Process, move |transaction| {
            transaction.execute(
                "INSERT INTO sandboxes (sandbox_id, name, principal, metadata, created_ms, expires_ms, isolation, notes,
                                        loopback_only, layers, blueprint, snapshot_id)
                 VALUES (:sandbox_id, :name, :principal, :metadata, :created_ms, :expires_ms, :isolation, :notes,
                         :loopback_only, :layers, :blueprint, :snapshot_id)",
                named_params! {
                    ":sandbox_id": row.sandbox_id, ":name": row.name, ":principal": row.principal,
                    ":metadata": row.metadata, ":created_ms": row.created_ms, ":expires_ms": row.expires_ms,
                    ":isolation": row.isolation, ":notes": row.notes, ":loopback_only": row.loopback_only,
                    ":layers": row.layers, ":blueprint": row.blueprint, ":snapshot_id": row.snapshot_id,
                },
            )?;
            Ok(transaction.last_insert_rowid())
        })
        .await
    }

    /// Records the end of a sandbox.
    pub async fn end_sandbox(&self, sandbox_id: String, ended_ms: i64, reason: String) -> Result<()> {
        self.write("recording the end of a sandbox", Durability::Process, move |transaction| {
            transaction.execute(
                "UPDATE sandboxes SET ended_ms = ?2, end_reason = ?3 WHERE sandbox_id = ?1",
                (sandbox_id, ended_ms, reason),
            )?;
            Ok(())
        })
        .await
    }

    /// Records that a sandbox is suspended with so many milliseconds left, or that it runs until a time, in milliseconds since
    /// 1970; and its notes.
    pub async fn pause_sandbox(&self, row: SandboxRow) -> Result<()> {
        self.write(
            "recording that a sandbox is suspended or resumed",
            Durability::Machine,
            move |transaction| {
                transaction.execute(
                "UPDATE sandboxes SET remaining_ms = ?2, expires_ms = ?3, notes = ?4 WHERE sandbox_id = ?1",
                (row.sandbox_id, row.remaining_ms, row.expires_ms, row.notes),
            )?;
                Ok(())
            },
        )
        .await
    }

    /// Records that the sandboxes that ran were lost with their executor.
    pub async fn lose_sandboxes(&self, ended_ms: i64) -> Result<()> {
        self.write("recording the end of sandboxes", Durability::Process, move |transaction| {
            transaction.execute(
                "UPDATE sandboxes SET ended_ms = ?1, end_reason = 'lost'
                 WHERE ended_ms IS NULL AND remaining_ms IS NULL",
                [ended_ms],
            )?;
            Ok(())
        })
        .await
    }

    /// Ids of the sandboxes that are suspended.
    pub async fn suspended_sandboxes(&self) -> Result<Vec<String>> {
        self.call("reading sandboxes", move |connection| {
            connection
                .prepare_cached(
                    "SELECT sandbox_id FROM sandboxes WHERE remaining_ms IS NOT NULL AND ended_ms IS NULL",
                )?
                .query_map([], |row| row.get(0))?
                .collect()
        })
        .await
    }

    /// The sandbox with this id.
    pub async fn sandbox(&self, sandbox_id: String) -> Result<Option<SandboxRow>> {
        self.call("reading a sandbox", move |connection| {
            connection
                .prepare_cached("SELECT * FROM sandboxes WHERE sandbox_id = ?1")?
                .query_row([sandbox_id], SandboxRow::read)
                .optional()
        })
        .await
    }

    /// Sandboxes that have ended, newest first.
    pub async fn ended_sandboxes(&self, most: usize) -> Result<Vec<SandboxRow>> {
        self.call("reading sandboxes", move |connection| {
            connection
                .prepare_cached(
                    "SELECT * FROM sandboxes WHERE ended_ms IS NOT NULL ORDER BY seq DESC LIMIT ?1",
                )?
                .query_map([i64::try_from(most).unwrap_or(i64::MAX)], SandboxRow::read)?
                .collect()
        })
        .await
    }

    /// Removes the rows of sandboxes that ended before a time, in milliseconds since 1970.
    pub async fn forget_sandboxes(&self, before_ms: i64) -> Result<()> {
        self.write("removing sandboxes", Durability::Process, move |transaction| {
            transaction.execute("DELETE FROM sandboxes WHERE ended_ms < ?1", [before_ms])?;
            Ok(())
        })
        .await
    }
}
