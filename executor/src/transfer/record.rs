//! A link as a row, both directions.

use super::{Link, LinkId};
use crate::id::WorkspaceId;
use crate::store::{LinkRow, columns};
use crate::timestamp;

pub(super) fn to_row(link: &Link, secret_sha256: &[u8; 32]) -> LinkRow {
    let Link { id, workspace_id, principal, path, name, size_bytes, sha256, replaces, created, expires } =
        link;
    LinkRow {
        seq: 0,
        link_id: id.as_str().to_owned(),
        secret_sha256: secret_sha256.to_vec(),
        workspace_id: workspace_id.to_string(),
        principal: principal.clone(),
        path: path.clone(),
        name: name.clone(),
        size_bytes: *size_bytes,
        sha256: sha256.clone(),
        replaces: *replaces,
        created_ms: timestamp::to_millis(*created),
        expires_ms: timestamp::to_millis(*expires),
        ended: false,
    }
}

/// The link and the SHA-256 of its secret. `None` for a row that no version of this program wrote.
pub(super) fn from_row(row: LinkRow) -> Option<(Link, [u8; 32])> {
    let link = Link {
        id: LinkId::parse(&row.link_id)?,
        workspace_id: WorkspaceId::parse(&row.workspace_id)?,
        principal: row.principal,
        path: row.path,
        name: row.name,
        size_bytes: row.size_bytes,
        sha256: row.sha256,
        replaces: row.replaces,
        created: columns::time(row.created_ms),
        expires: timestamp::from_millis(row.expires_ms)?,
    };
    Some((link, row.secret_sha256.try_into().ok()?))
}
