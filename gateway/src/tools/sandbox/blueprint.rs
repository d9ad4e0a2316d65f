//! Blueprints: named disks that were prepared by commands, for sandboxes to begin with.

use runlet_proto::v1::{
    Blueprint, CreateBlueprintRequest, DeleteBlueprintRequest, GetBlueprintRequest, ListBlueprintsRequest,
    blueprint::State,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Files, wait_seconds, wire_files};
use crate::{
    executor::{Repeat, sandboxes},
    failure::Failure,
    reply::{Reply, fields, filled, time_text, wire_seconds},
    tools::{ANSWER_TIME, Context, Effect, Offered, Tool, with_wait},
};

/// How long a call waits until a blueprint is built, in seconds. A build that takes longer goes on.
const BUILD_WAIT: u32 = 40;

pub(super) fn tools() -> Vec<Offered> {
    vec![
        Offered::new::<CreateBlueprint>("sandboxes"),
        Offered::new::<GetBlueprint>("sandboxes"),
        Offered::new::<ListBlueprints>("sandboxes"),
        Offered::new::<DeleteBlueprint>("sandboxes"),
    ]
}

/// Prepares a disk once, by bash commands run as root at /home/user. Sandboxes start from it by name. While its status is
/// building, get_blueprint shows the log.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CreateBlueprint {
    name: String,
    #[schemars(length(min = 1))]
    setup_commands: Vec<String>,
    /// Path → text, written first
    files: Option<Files>,
    /// Blueprint to build on
    base: Option<String>,
}

impl Tool for CreateBlueprint {
    const NAME: &'static str = "create_blueprint";
    const TITLE: &'static str = "Create a blueprint";
    const EFFECT: Effect = Effect { open_world: true, idempotent: true, ..Effect::ADDS };
    const RECORD: &'static [(&'static str, &'static str)] = &[("name", "string"), ("status", "string")];

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let message = CreateBlueprintRequest {
            principal: context.principal(),
            name: self.name,
            setup_commands: self.setup_commands,
            files: wire_files(self.files),
            base: self.base.unwrap_or_default(),
            wait: Some(wire_seconds(BUILD_WAIT)),
        };
        let send = |channel, request| async move { sandboxes(channel).create_blueprint(request).await };
        let limit = with_wait(wait_seconds());
        let answer = context.link.call(message, limit, Repeat::Always, send).await?;
        Ok(with_log(answer.blueprint.unwrap_or_default()))
    }
}

/// Shows a blueprint with its build log.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GetBlueprint {
    name: String,
}

impl Tool for GetBlueprint {
    const NAME: &'static str = "get_blueprint";
    const TITLE: &'static str = "Show a blueprint";
    const EFFECT: Effect = Effect::READS;
    const RECORD: &'static [(&'static str, &'static str)] = &[("name", "string"), ("build_log", "string")];

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let send = |channel, request| async move { sandboxes(channel).get_blueprint(request).await };
        let message = GetBlueprintRequest { name: self.name };
        let answer = context.link.call(message, ANSWER_TIME, Repeat::Always, send).await?;
        Ok(with_log(answer.blueprint.unwrap_or_default()))
    }
}

/// Lists blueprints, newest first.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListBlueprints {}

impl Tool for ListBlueprints {
    const NAME: &'static str = "list_blueprints";
    const TITLE: &'static str = "List blueprints";
    const EFFECT: Effect = Effect::READS;
    const RECORD: &'static [(&'static str, &'static str)] = &[("blueprints", "array")];

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let send = |channel, request| async move { sandboxes(channel).list_blueprints(request).await };
        let message = ListBlueprintsRequest {};
        let answer = context.link.call(message, ANSWER_TIME, Repeat::Always, send).await?;
        let rows: Vec<_> = answer.blueprints.iter().map(object).collect();
        Ok(Reply::Record(json!({ "blueprints": rows })))
    }
}

/// Deletes a blueprint. Sandboxes and blueprints made from it go on.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DeleteBlueprint {
    name: String,
}

impl Tool for DeleteBlueprint {
    const NAME: &'static str = "delete_blueprint";
    const TITLE: &'static str = "Delete a blueprint";
    const EFFECT: Effect = Effect::REMOVES;
    const RECORD: &'static [(&'static str, &'static str)] = &[("name", "string"), ("used_by", "array")];

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let message = DeleteBlueprintRequest { principal: context.principal(), name: self.name };
        let send = |channel, request| async move { sandboxes(channel).delete_blueprint(request).await };
        let answer = context.link.call(message, ANSWER_TIME, Repeat::Unsent, send).await?;
        let mut record = object(&answer.blueprint.unwrap_or_default());
        record.insert("used_by".to_owned(), answer.used_by.into());
        Ok(Reply::Record(Value::Object(record)))
    }
}

fn with_log(blueprint: Blueprint) -> Reply {
    let mut record = object(&blueprint);
    record.insert("build_log".to_owned(), tail(&blueprint.log).into());
    Reply::Record(Value::Object(record))
}

/// The end of a log, where what went wrong stands.
fn tail(log: &str) -> String {
    const MOST: usize = 16_000;
    let start = log.ceil_char_boundary(log.len().saturating_sub(MOST));
    if start == 0 { log.to_owned() } else { format!("[{start} bytes left out]\n{}", &log[start..]) }
}

fn object(blueprint: &Blueprint) -> Map<String, Value> {
    let object = json!({
        "blueprint_id": blueprint.blueprint_id,
        "name": blueprint.name,
        "status": match blueprint.state() {
            State::Building => "building",
            State::Failed => "failed",
            State::Ready | State::Unspecified => "ready",
        },
        "setup_commands": blueprint.setup_commands,
        "files": blueprint.files,
        "base": filled(blueprint.base.clone()),
        "size_bytes": blueprint.size_bytes,
        "created_at": time_text(blueprint.create_time.as_ref()),
        "ended_at": blueprint.end_time.as_ref().map(|time| time_text(Some(time))),
    });
    fields(object)
}
