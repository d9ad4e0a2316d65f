//! The main job through the client of rmcp, in every era it speaks.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::{CallToolRequestParams, ProgressNotificationParam, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, NotificationContext, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, RoleClient};
use serde_json::{Value, json};
use support::{World, world::TOKEN};

use crate::main_job::check;

/// Counts what is told of progress.
#[derive(Clone, Default)]
struct Counter(Arc<AtomicUsize>);

impl ClientHandler for Counter {
    async fn on_progress(&self, _: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct Runlet(RunningService<RoleClient, Counter>);

impl Runlet {
    async fn connect(world: &World, era: ClientLifecycleMode) -> Self {
        let token = (HeaderName::from_static("x-sandbox-token"), HeaderValue::from_static(TOKEN));
        let config = StreamableHttpClientTransportConfig::with_uri(format!("{}/mcp", world.base()))
            .custom_headers(HashMap::from([token]));
        let transport = StreamableHttpClientTransport::from_config(config);
        Self(Counter::default().serve_with_lifecycle(transport, era).await.unwrap())
    }

    /// The text and the object of an answer.
    async fn call(&self, tool: &'static str, arguments: Value) -> (String, Value) {
        let params = CallToolRequestParams::new(tool).with_arguments(arguments.as_object().unwrap().clone());
        let answer = self.0.call_tool(params).await.unwrap();
        let answer = serde_json::to_value(answer).unwrap();
        let blocks = answer["content"].as_array().unwrap();
        let text = match answer["isError"] == json!(true) {
            true => "error".to_owned(),
            false => blocks.iter().filter_map(|block| block["text"].as_str()).collect(),
        };
        let object = match &answer["structuredContent"] {
            Value::Null => answer["_meta"]["runlet/result"].clone(),
            object => object.clone(),
        };
        (text, object)
    }

    async fn run(&self, workspace: &Value, command: &str) -> Value {
        let arguments = json!({ "workspace_id": workspace, "command": command, "wait_seconds": 20 });
        self.call("run_command", arguments).await.1["output"].clone()
    }

    async fn growing_output(&self, workspace: &Value) -> (Value, Value) {
        let command = "echo first; until [ -e go ]; do sleep 0.02; done; echo second; exit 5";
        let start = json!({ "workspace_id": workspace, "command": command, "wait_seconds": 0 });
        let (_, job) = self.call("run_command", start).await;
        let read = |cursor: &Value, until: &str| json!({ "job_id": job["job_id"], "cursor": cursor, "until": until, "wait_seconds": 20 });
        let (_, first) = self.call("read_output", read(&json!(0), "first\n")).await;
        self.call("write_file", json!({ "workspace_id": workspace, "path": "go", "content": "" })).await;
        let (_, mut rest) = self.call("read_output", read(&first["next_cursor"], "second\n")).await;
        let output = rest["output"].clone();
        while rest["status"] == "running" {
            (_, rest) = self.call("read_output", read(&rest["next_cursor"], "never")).await;
        }
        (json!([first["output"], output]), rest["exit_code"].clone())
    }
}

async fn main_job(era: ClientLifecycleMode, protocol: &str) {
    let world = World::start().await;
    let runlet = Runlet::connect(&world, era).await;
    let tools = runlet.0.list_all_tools().await.unwrap();
    let tools: Vec<_> = tools.iter().map(|tool| tool.name.as_ref()).collect();
    let (_, made) = runlet.call("create_workspace", json!({ "name": "rust", "python": false })).await;
    let workspace = &made["workspace_id"];

    // Each command waits for the other.
    let parallel = tokio::join!(
        runlet.run(workspace, "touch a; until [ -e b ]; do sleep 0.02; done; echo one"),
        runlet.run(workspace, "touch b; until [ -e a ]; do sleep 0.02; done; echo two"),
    );
    let (growing, exit_code) = runlet.growing_output(workspace).await;
    // The answer to a call of more than 3 s comes as a stream of events.
    let slow = "sleep 4; echo late";
    let late = tokio::join!(runlet.run(workspace, slow), runlet.run(workspace, slow));

    let file = |rest: Value| {
        let mut arguments = json!({ "workspace_id": workspace, "path": "notes/zwölf.txt" });
        arguments.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        arguments
    };
    let (_, written) = runlet.call("write_file", file(json!({ "content": "eleven\nzwölf\n" }))).await;
    let edits = json!({
        "edits": [{ "old_text": "eleven", "new_text": "elf" }], "if_match": written["sha256"],
    });
    let (diff, _) = runlet.call("edit_file", file(edits)).await;
    let (text, _) = runlet.call("read_file", file(json!({}))).await;

    let named = json!({ "workspace_id": workspace });
    let (_, gone) = runlet.call("delete_workspace", named.clone()).await;
    let (after, error) = runlet.call("get_workspace", named).await;
    let seen = json!({
        "protocol": runlet.0.peer_info().map(|peer| peer.protocol_version.to_string()),
        "tools": tools,
        "parallel": [parallel.0, parallel.1],
        "growing": growing,
        "exit_code": exit_code,
        "late": [late.0, late.1],
        "progress": runlet.0.service().0.load(Ordering::Relaxed),
        "diff": diff,
        "text": text,
        "deleted": gone["workspace_id"] == *workspace,
        "after": after,
        "code": error["code"],
    });
    check(&seen, protocol);
}

#[tokio::test(flavor = "multi_thread")]
async fn rust_sdk_by_discovery() {
    let era = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    main_job(era, "2026-07-28").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rust_sdk_by_itself() {
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    let era = ClientLifecycleMode::Auto { preferred_versions, legacy_version: None };
    main_job(era, "2026-07-28").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rust_sdk_in_the_legacy_era() {
    main_job(ClientLifecycleMode::Initialize, "2025-11-25").await;
}
