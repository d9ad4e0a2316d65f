//! Rows of workspaces.

use rusqlite::{Row, named_params};

use super::{Durability, Store};
use crate::error::Result;

/// A row of the table `workspaces`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceRow {
    /// Order of creation; 0 before the insert.
    pub seq: i64,
    /// Id.
    pub workspace_id: String,
    /// Name, if any.
    pub name: Option<String>,
    /// `creating`, `ready` or `deleting`.
    pub state: String,
    /// Who made it.
    pub principal: String,
    /// Id of the request that made it, if any.
    pub request_id: Option<String>,
    /// Milliseconds since 1970.
    pub created_ms: i64,
    /// URL it was cloned from.
    pub git_url: Option<String>,
    /// Branch or tag checked out.
    pub git_ref: Option<String>,
    /// Commit checked out.
    pub git_commit: Option<String>,
    /// Version of its Python environment.
    pub python_version: Option<String>,
    /// Environment variables as a JSON object.
    pub env: String,
    /// Notes as a JSON array.
    pub notes: String,
    /// Whether it is a sandbox.
    pub sandbox: bool,
}

impl WorkspaceRow {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            seq: row.get("seq")?,
            workspace_id: row.get("workspace_id")?,
            name: row.get("name")?,
            state: row.get("state")?,
            principal: row.get("principal")?,
            request_id: row.get("request_id")?,
            created_ms: row.get("created_ms")?,
            git_url: row.get("git_url")?,
            git_ref: row.get("git_ref")?,
            git_commit: row.get("git_commit")?,
            python_version: row.get("python_version")?,
            env: row.get("env")?,
            notes: row.get("notes")?,
            sandbox: row.get("sandbox")?,
        })
    }
}

impl Store {
    /// Adds a workspace and returns its `seq`. A name or request that exists is a conflict.
    pub async fn insert_workspace(&self, row: WorkspaceRow) -> Result<i64> {
        self.write("recording a workspace", Durability::Machine, move |transaction| {
            transaction.execute(
                "INSERT INTO workspaces (workspace_id, name, state, principal, request_id, created_ms, git_url, git_ref,
                                         git_commit, python_version, env, notes, sandbox)
                 VALUES (:workspace_id, :name, :state, :principal, :request_id, :created_ms, :git_url, :git_ref,
                         :git_commit, :python_version, :env, :notes, :sandbox)",
                named_params! {
                    ":workspace_id": row.workspace_id, ":name": row.name, ":state": row.state,
                    ":principal": row.principal, ":request_id": row.request_id, ":created_ms": row.created_ms,
                    ":git_url": row.git_url, ":git_ref": row.git_ref, ":git_commit": row.git_commit,
                    ":python_version": row.python_version, ":env": row.env, ":notes": row.notes,
                    ":sandbox": row.sandbox,
                },
            )?;
            Ok(transaction.last_insert_rowid())
        })
        .await
    }

    /// Writes what is known of a workspace when it is ready.
    pub async fn finish_workspace(&self, row: WorkspaceRow) -> Result<()> {
        self.write("recording a workspace", Durability::Machine, move |transaction| {
            transaction.execute(
                "UPDATE workspaces SET state = :state, git_url = :git_url, git_ref = :git_ref, git_commit = :git_commit,
                        python_version = :python_version, notes = :notes
                 WHERE workspace_id = :workspace_id",
                named_params! {
                    ":workspace_id": row.workspace_id, ":state": row.state, ":git_url": row.git_url,
                    ":git_ref": row.git_ref,
                    ":git_commit": row.git_commit, ":python_version": row.python_version, ":notes": row.notes,
                },
            )?;
            Ok(())
        })
        .await
    }

    /// Marks a workspace as being deleted and frees its name.
    pub async fn retire_workspace(&self, workspace_id: String) -> Result<()> {
        self.write("recording a deletion", Durability::Machine, move |transaction| {
            transaction.execute(
                "UPDATE workspaces SET state = 'deleting', name = NULL WHERE workspace_id = ?1",
                [workspace_id],
            )?;
            Ok(())
        })
        .await
    }

    /// Removes the row of a workspace.
    pub async fn remove_workspace(&self, workspace_id: String) -> Result<()> {
        self.write("recording a deletion", Durability::Machine, move |transaction| {
            transaction.execute("DELETE FROM workspaces WHERE workspace_id = ?1", [workspace_id])?;
            Ok(())
        })
        .await
    }

    /// All workspaces, oldest first.
    pub async fn workspaces(&self) -> Result<Vec<WorkspaceRow>> {
        self.call("reading workspaces", |connection| {
            connection
                .prepare_cached("SELECT * FROM workspaces ORDER BY seq")?
                .query_map([], WorkspaceRow::read)?
                .collect()
        })
        .await
    }
}
