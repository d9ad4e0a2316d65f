//! Rows of snapshots.

use rusqlite::{Row, named_params};

use super::{Durability, Store};
use crate::error::Result;

/// A row of the table `snapshots`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotRow {
    /// Order of creation; 0 before the insert.
    pub seq: i64,
    /// Id.
    pub snapshot_id: String,
    /// Name, if any.
    pub name: Option<String>,
    /// Who made it.
    pub principal: String,
    /// The sandbox that it is of.
    pub sandbox_id: String,
    /// Name of the blueprint of that.
    pub blueprint: Option<String>,
    /// Ids of the layers as a JSON array, its own last.
    pub layers: String,
    /// Form of the sandbox's disk.
    pub form: String,
    /// Bytes of its own layer.
    pub size_bytes: i64,
    /// Milliseconds since 1970.
    pub created_ms: i64,
}

impl SnapshotRow {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            seq: row.get("seq")?,
            snapshot_id: row.get("snapshot_id")?,
            name: row.get("name")?,
            principal: row.get("principal")?,
            sandbox_id: row.get("sandbox_id")?,
            blueprint: row.get("blueprint")?,
            layers: row.get("layers")?,
            form: row.get("form")?,
            size_bytes: row.get("size_bytes")?,
            created_ms: row.get("created_ms")?,
        })
    }
}

impl Store {
    /// Adds a snapshot and returns its `seq`. A name that exists is a conflict.
    pub async fn insert_snapshot(&self, row: SnapshotRow) -> Result<i64> {
        self.write("recording a snapshot", Durability::Machine, move |transaction| {
            transaction.execute(
                "INSERT INTO snapshots (snapshot_id, name, principal, sandbox_id, blueprint, layers, form, size_bytes,
                                        created_ms)
                 VALUES (:snapshot_id, :name, :principal, :sandbox_id, :blueprint, :layers, :form, :size_bytes,
                         :created_ms)",
                named_params! {
                    ":snapshot_id": row.snapshot_id, ":name": row.name, ":principal": row.principal,
                    ":sandbox_id": row.sandbox_id, ":blueprint": row.blueprint, ":layers": row.layers,
                    ":form": row.form, ":size_bytes": row.size_bytes, ":created_ms": row.created_ms,
                },
            )?;
            Ok(transaction.last_insert_rowid())
        })
        .await
    }

    /// All snapshots, newest first.
    pub async fn snapshots(&self) -> Result<Vec<SnapshotRow>> {
        self.call("reading snapshots", move |connection| {
            connection
                .prepare_cached("SELECT * FROM snapshots ORDER BY seq DESC")?
                .query_map([], SnapshotRow::read)?
                .collect()
        })
        .await
    }

    /// Removes a snapshot's row.
    pub async fn remove_snapshot(&self, snapshot_id: String) -> Result<()> {
        self.write("removing a snapshot", Durability::Machine, move |transaction| {
            transaction.execute("DELETE FROM snapshots WHERE snapshot_id = ?1", [snapshot_id])?;
            Ok(())
        })
        .await
    }
}
