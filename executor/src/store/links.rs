//! Rows of links.

use rusqlite::{Row, named_params};

use super::{Durability, Store};
use crate::error::Result;

/// A row of the table `links`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkRow {
    /// Order of creation; 0 before the insert.
    pub seq: i64,
    /// Id.
    pub link_id: String,
    /// SHA-256 of the secret.
    pub secret_sha256: Vec<u8>,
    /// The workspace.
    pub workspace_id: String,
    /// Who made it.
    pub principal: String,
    /// Absolute path.
    pub path: Vec<u8>,
    /// Name that is offered.
    pub name: String,
    /// Size of a download; most bytes of an upload.
    pub size_bytes: u64,
    /// Lower-case hex SHA-256 of a download.
    pub sha256: String,
    /// Whether an upload replaces a file.
    pub replaces: bool,
    /// Milliseconds since 1970.
    pub created_ms: i64,
    /// Milliseconds since 1970.
    pub expires_ms: i64,
    /// Whether it was ended before its time.
    pub ended: bool,
}

impl LinkRow {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            seq: row.get("seq")?,
            link_id: row.get("link_id")?,
            secret_sha256: row.get("secret_sha256")?,
            workspace_id: row.get("workspace_id")?,
            principal: row.get("principal")?,
            path: row.get("path")?,
            name: row.get("name")?,
            size_bytes: row.get::<_, i64>("size_bytes")?.cast_unsigned(),
            sha256: row.get("sha256")?,
            replaces: row.get("replaces")?,
            created_ms: row.get("created_ms")?,
            expires_ms: row.get("expires_ms")?,
            ended: row.get("ended")?,
        })
    }
}

impl Store {
    /// Adds a link and returns its `seq`.
    pub async fn insert_link(&self, row: LinkRow) -> Result<i64> {
        self.write("recording a link", Durability::Machine, move |transaction| {
            transaction.execute(
                "INSERT INTO links (link_id, secret_sha256, workspace_id, principal, path, name, size_bytes, sha256,
                                    replaces, created_ms, expires_ms)
                 VALUES (:link_id, :secret_sha256, :workspace_id, :principal, :path, :name, :size_bytes, :sha256,
                         :replaces, :created_ms, :expires_ms)",
                named_params! {
                    ":link_id": row.link_id, ":secret_sha256": row.secret_sha256, ":workspace_id": row.workspace_id,
                    ":principal": row.principal, ":path": row.path, ":name": row.name,
                    ":size_bytes": row.size_bytes.cast_signed(), ":sha256": row.sha256, ":replaces": row.replaces,
                    ":created_ms": row.created_ms, ":expires_ms": row.expires_ms,
                },
            )?;
            Ok(transaction.last_insert_rowid())
        })
        .await
    }

    /// Marks a link as ended, to be forgotten at `expires_ms`.
    pub async fn end_link(&self, link_id: String, expires_ms: i64) -> Result<()> {
        self.write("recording the end of a link", Durability::Machine, move |transaction| {
            transaction.execute(
                "UPDATE links SET ended = 1, expires_ms = ?2 WHERE link_id = ?1",
                rusqlite::params![link_id, expires_ms],
            )?;
            Ok(())
        })
        .await
    }

    /// Removes rows of links.
    pub async fn remove_links(&self, link_ids: Vec<String>) -> Result<()> {
        self.write("removing links", Durability::Process, move |transaction| {
            let mut statement = transaction.prepare_cached("DELETE FROM links WHERE link_id = ?1")?;
            for link_id in &link_ids {
                statement.execute([link_id])?;
            }
            Ok(())
        })
        .await
    }

    /// All links, oldest first.
    pub async fn links(&self) -> Result<Vec<LinkRow>> {
        self.call("reading links", |connection| {
            connection
                .prepare_cached("SELECT * FROM links ORDER BY seq")?
                .query_map([], LinkRow::read)?
                .collect()
        })
        .await
    }
}
