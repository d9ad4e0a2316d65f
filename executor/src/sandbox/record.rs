//! A sandbox as a row, both directions.

use super::{EndReason, Sandbox};
use crate::id::WorkspaceId;
use crate::store::SandboxRow;
use crate::store::columns::time;
use crate::timestamp;

pub(super) fn to_row(sandbox: &Sandbox) -> SandboxRow {
    let Sandbox { id, seq, name, principal, metadata, created, expires, isolation, notes, end } = sandbox;
    SandboxRow {
        seq: *seq,
        sandbox_id: id.to_string(),
        name: name.clone(),
        principal: principal.clone(),
        metadata: serde_json::to_string(metadata).unwrap_or_default(),
        created_ms: timestamp::to_millis(*created),
        expires_ms: timestamp::to_millis(*expires),
        isolation: isolation.clone(),
        notes: serde_json::to_string(notes).unwrap_or_default(),
        ended_ms: end.map(|(at, _)| timestamp::to_millis(at)),
        end_reason: end.map(|(_, reason)| reason.name().to_owned()),
    }
}

/// `None` for a row that no version of this program wrote.
pub(super) fn from_row(row: SandboxRow) -> Option<Sandbox> {
    let end = match (row.ended_ms, row.end_reason) {
        (Some(at), Some(reason)) => Some((time(at), EndReason::from_name(&reason)?)),
        _ => None,
    };
    Some(Sandbox {
        id: WorkspaceId::parse(&row.sandbox_id)?,
        seq: row.seq,
        name: row.name,
        principal: row.principal,
        metadata: serde_json::from_str(&row.metadata).ok()?,
        created: time(row.created_ms),
        expires: time(row.expires_ms),
        isolation: row.isolation,
        notes: serde_json::from_str(&row.notes).ok()?,
        end,
    })
}

impl EndReason {
    fn from_name(name: &str) -> Option<Self> {
        [Self::Shutdown, Self::Expired, Self::Failed, Self::Lost]
            .into_iter()
            .find(|reason| reason.name() == name)
    }
}
