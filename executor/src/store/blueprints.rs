//! Rows of blueprints.

use rusqlite::{Row, named_params};

use super::{Durability, Store};
use crate::error::Result;

/// A row of the table `blueprints`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlueprintRow {
    /// Order of creation; 0 before the insert.
    pub seq: i64,
    /// Id.
    pub blueprint_id: String,
    /// Name.
    pub name: String,
    /// Who made it.
    pub principal: String,
    /// Digest of everything that its disk follows from.
    pub definition: String,
    /// Commands as a JSON array.
    pub commands: String,
    /// Paths of the files that were written first, as a JSON array.
    pub files: String,
    /// Name of the blueprint it builds on.
    pub base: Option<String>,
    /// Ids of the layers as a JSON array, its own last.
    pub layers: String,
    /// Form of the disk.
    pub form: String,
    /// `building`, `ready` or `failed`.
    pub state: String,
    /// What its commands printed.
    pub log: String,
    /// Bytes of its own layer.
    pub size_bytes: i64,
    /// Milliseconds since 1970.
    pub created_ms: i64,
    /// Milliseconds since 1970; none while it is built.
    pub ended_ms: Option<i64>,
}

impl BlueprintRow {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            seq: row.get("seq")?,
            blueprint_id: row.get("blueprint_id")?,
            name: row.get("name")?,
            principal: row.get("principal")?,
            definition: row.get("definition")?,
            commands: row.get("commands")?,
            files: row.get("files")?,
            base: row.get("base")?,
            layers: row.get("layers")?,
            form: row.get("form")?,
            state: row.get("state")?,
            log: row.get("log")?,
            size_bytes: row.get("size_bytes")?,
            created_ms: row.get("created_ms")?,
            ended_ms: row.get("ended_ms")?,
        })
    }
}

impl Store {
    /// Adds a blueprint and returns its `seq`. A name that exists is a conflict.
    pub async fn insert_blueprint(&self, row: BlueprintRow) -> Result<i64> {
        self.write("recording a blueprint", Durability::Machine, move |transaction| {
            transaction.execute(
                "INSERT INTO blueprints (blueprint_id, name, principal, definition, commands, files, base, layers, form,
                                         state, log, size_bytes, created_ms, ended_ms)
                 VALUES (:blueprint_id, :name, :principal, :definition, :commands, :files, :base, :layers, :form,
                         :state, :log, :size_bytes, :created_ms, :ended_ms)",
                named_params! {
                    ":blueprint_id": row.blueprint_id, ":name": row.name, ":principal": row.principal,
                    ":definition": row.definition, ":commands": row.commands, ":files": row.files,
                    ":base": row.base, ":layers": row.layers, ":form": row.form, ":state": row.state,
                    ":log": row.log, ":size_bytes": row.size_bytes, ":created_ms": row.created_ms,
                    ":ended_ms": row.ended_ms,
                },
            )?;
            Ok(transaction.last_insert_rowid())
        })
        .await
    }

    /// Records what became of a build.
    pub async fn end_blueprint(&self, row: BlueprintRow) -> Result<()> {
        self.write("recording a blueprint", Durability::Machine, move |transaction| {
            transaction.execute(
                "UPDATE blueprints SET state = :state, log = :log, layers = :layers, form = :form,
                        size_bytes = :size_bytes, ended_ms = :ended_ms
                 WHERE blueprint_id = :blueprint_id",
                named_params! {
                    ":blueprint_id": row.blueprint_id, ":state": row.state, ":log": row.log,
                    ":layers": row.layers, ":form": row.form, ":size_bytes": row.size_bytes,
                    ":ended_ms": row.ended_ms,
                },
            )?;
            Ok(())
        })
        .await
    }

    /// All blueprints, newest first.
    pub async fn blueprints(&self) -> Result<Vec<BlueprintRow>> {
        self.call("reading blueprints", move |connection| {
            connection
                .prepare_cached("SELECT * FROM blueprints ORDER BY seq DESC")?
                .query_map([], BlueprintRow::read)?
                .collect()
        })
        .await
    }

    /// Removes a blueprint's row.
    pub async fn remove_blueprint(&self, blueprint_id: String) -> Result<()> {
        self.write("removing a blueprint", Durability::Machine, move |transaction| {
            transaction.execute("DELETE FROM blueprints WHERE blueprint_id = ?1", [blueprint_id])?;
            Ok(())
        })
        .await
    }
}
