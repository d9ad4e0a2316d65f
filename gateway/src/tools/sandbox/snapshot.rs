//! Snapshots: what a sandbox has on its disk, for others to begin with.

use runlet_proto::v1::{CreateSnapshotRequest, DeleteSnapshotRequest, ListSnapshotsRequest, Snapshot};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::wait_seconds;
use crate::{
    executor::{Repeat, sandboxes},
    failure::Failure,
    reply::{Reply, fields, filled, time_text},
    tools::{ANSWER_TIME, Context, Effect, Offered, Tool, with_wait},
};

pub(super) fn tools() -> Vec<Offered> {
    vec![
        Offered::new::<CreateSnapshot>("sandboxes"),
        Offered::new::<ListSnapshots>("sandboxes"),
        Offered::new::<DeleteSnapshot>("sandboxes"),
    ]
}

/// Saves the disk of a sandbox, frozen meanwhile. create_sandbox(snapshot_id) starts from it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CreateSnapshot {
    sandbox_id: String,
    /// Works as id
    name: Option<String>,
}

impl Tool for CreateSnapshot {
    const NAME: &'static str = "create_snapshot";
    const TITLE: &'static str = "Create a snapshot";
    const EFFECT: Effect = Effect::ADDS;
    const RECORD: &'static [(&'static str, &'static str)] = &[("snapshot_id", "string")];

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let message = CreateSnapshotRequest {
            principal: context.principal(),
            sandbox_id: self.sandbox_id,
            name: self.name.unwrap_or_default(),
        };
        let send = |channel, request| async move { sandboxes(channel).create_snapshot(request).await };
        let limit = with_wait(wait_seconds());
        let answer = context.link.call(message, limit, Repeat::Unsent, send).await?;
        Ok(Reply::Record(Value::Object(object(&answer.snapshot.unwrap_or_default()))))
    }
}

/// Lists snapshots, newest first.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListSnapshots {}

impl Tool for ListSnapshots {
    const NAME: &'static str = "list_snapshots";
    const TITLE: &'static str = "List snapshots";
    const EFFECT: Effect = Effect::READS;
    const RECORD: &'static [(&'static str, &'static str)] = &[("snapshots", "array")];

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let send = |channel, request| async move { sandboxes(channel).list_snapshots(request).await };
        let message = ListSnapshotsRequest {};
        let answer = context.link.call(message, ANSWER_TIME, Repeat::Always, send).await?;
        let rows: Vec<_> = answer.snapshots.iter().map(object).collect();
        Ok(Reply::Record(json!({ "snapshots": rows })))
    }
}

/// Deletes a snapshot. Sandboxes made from it go on.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DeleteSnapshot {
    snapshot_id: String,
}

impl Tool for DeleteSnapshot {
    const NAME: &'static str = "delete_snapshot";
    const TITLE: &'static str = "Delete a snapshot";
    const EFFECT: Effect = Effect::REMOVES;
    const RECORD: &'static [(&'static str, &'static str)] =
        &[("snapshot_id", "string"), ("used_by", "array")];

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let message = DeleteSnapshotRequest { principal: context.principal(), snapshot_id: self.snapshot_id };
        let send = |channel, request| async move { sandboxes(channel).delete_snapshot(request).await };
        let answer = context.link.call(message, ANSWER_TIME, Repeat::Unsent, send).await?;
        let mut record = object(&answer.snapshot.unwrap_or_default());
        record.insert("used_by".to_owned(), answer.used_by.into());
        Ok(Reply::Record(Value::Object(record)))
    }
}

fn object(snapshot: &Snapshot) -> Map<String, Value> {
    let object = json!({
        "snapshot_id": snapshot.snapshot_id,
        "name": filled(snapshot.name.clone()),
        "sandbox_id": snapshot.sandbox_id,
        "blueprint": filled(snapshot.blueprint.clone()),
        "size_bytes": snapshot.size_bytes,
        "created_at": time_text(snapshot.create_time.as_ref()),
    });
    fields(object)
}
