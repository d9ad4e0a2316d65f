//! A sandbox as a row, both directions.

use std::time::Duration;

use super::{EndReason, Sandbox};
use crate::id::WorkspaceId;
use crate::store::SandboxRow;
use crate::store::columns::time;
use crate::timestamp;

pub(super) fn to_row(sandbox: &Sandbox) -> SandboxRow {
    let Sandbox { id, seq, name, principal, metadata, created, expires, isolation, notes, .. } = sandbox;
    let Sandbox { loopback_only, remaining, layers, blueprint, snapshot_id, end, .. } = sandbox;
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
        loopback_only: *loopback_only,
        remaining_ms: remaining.map(|left| i64::try_from(left.as_millis()).unwrap_or(i64::MAX)),
        layers: serde_json::to_string(layers).unwrap_or_default(),
        blueprint: blueprint.clone(),
        snapshot_id: snapshot_id.clone(),
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
        loopback_only: row.loopback_only,
        remaining: row.remaining_ms.map(|left| Duration::from_millis(u64::try_from(left).unwrap_or(0))),
        layers: serde_json::from_str(&row.layers).ok()?,
        blueprint: row.blueprint,
        snapshot_id: row.snapshot_id,
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
