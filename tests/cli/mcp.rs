//! `runlet mcp`, as a client that starts its servers drives it: a line in, a line out.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use support::{World, probe, wait};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::{at, runlet};

const PROMPTLY: Duration = Duration::from_secs(20);

struct Bridge {
    child: Child,
    input: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Bridge {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, input, lines }
    }

    async fn write(&mut self, line: &str) {
        self.input.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn send(&mut self, id: u64, method: &str, params: Value) {
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.write(&message.to_string()).await;
    }

    async fn next(&mut self) -> Value {
        let line = tokio::time::timeout(PROMPTLY, self.lines.next_line()).await.unwrap();
        serde_json::from_str(&line.unwrap().unwrap()).unwrap()
    }

    async fn ask(&mut self, id: u64, method: &str, params: Value) -> Value {
        self.send(id, method, params).await;
        let answer = self.next().await;
        assert_eq!(answer["id"], json!(id), "{answer}");
        answer
    }

    async fn shake_hands(&mut self) {
        let client = json!({ "name": "test", "version": "1" });
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        let answer = self.ask(1, "initialize", params).await;
        assert_eq!(answer["result"]["protocolVersion"], json!("2025-11-25"), "{answer}");
        self.write(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    }

    /// Closes its input and waits for its end.
    async fn end(mut self) -> Option<i32> {
        drop(self.input.take());
        let ended = tokio::time::timeout(PROMPTLY, self.child.wait()).await.unwrap();
        ended.unwrap().code()
    }
}

fn run(workspace: &str, command: &str) -> Value {
    let arguments = json!({ "workspace_id": workspace, "command": command, "wait_seconds": 30 });
    json!({ "name": "run_command", "arguments": arguments })
}

fn output(answer: &Value) -> &Value {
    &answer["result"]["_meta"]["runlet/result"]["output"]
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_passed_on_side_by_side() {
    let world = World::start().await;
    let workspace = world.client().workspace().await;
    let mut bridge = Bridge::start(runlet(&world, &["mcp"]));
    bridge.shake_hands().await;
    let tools = bridge.ask(2, "tools/list", json!({})).await;
    assert!(tools["result"]["tools"].as_array().unwrap().len() > 30, "{tools}");
    // Answers come as they are ready, and what takes longer than 3 s comes as a stream.
    bridge
        .send(3, "tools/call", run(&workspace, "until [ -e go ]; do sleep 0.05; done; sleep 4; echo slow"))
        .await;
    let quick = bridge.ask(4, "tools/call", run(&workspace, "touch go; printf 'a\\nb'")).await;
    assert_eq!(output(&quick), &json!("a\nb"));
    let slow = bridge.next().await;
    assert_eq!((&slow["id"], output(&slow)), (&json!(3), &json!("slow\n")));
    let error = bridge.ask(5, "no/such", json!({})).await;
    assert_eq!(error["error"]["code"], json!(-32_601), "{error}");
    bridge.write("{ this is none").await;
    assert_eq!(bridge.next().await["error"]["code"], json!(-32_700));
    assert_eq!(bridge.end().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_ends_the_wait_and_not_the_job() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let mut bridge = Bridge::start(runlet(&world, &["mcp"]));
    bridge.shake_hands().await;
    bridge.send(7, "tools/call", run(&workspace, "touch begun; sleep 34001.5")).await;
    wait::until("the job", PROMPTLY, async || !probe::marked("34001.5").is_empty()).await;
    let cancelled =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } });
    bridge.write(&cancelled.to_string()).await;
    let next = bridge.ask(8, "tools/call", run(&workspace, "echo next")).await;
    assert_eq!(output(&next), &json!("next\n"));
    assert!(!probe::marked("34001.5").is_empty());
    // Nothing more is to be said, so it ends at once.
    assert_eq!(bridge.end().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_under_way_is_answered_after_the_end_of_the_input() {
    let world = World::start().await;
    let workspace = world.client().workspace().await;
    let mut bridge = Bridge::start(runlet(&world, &["mcp"]));
    bridge.shake_hands().await;
    bridge.send(2, "tools/call", run(&workspace, "sleep 1; echo late")).await;
    drop(bridge.input.take());
    assert_eq!(output(&bridge.next().await), &json!("late\n"));
    assert_eq!(bridge.end().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_can_not_be_reached_is_named() {
    let world = World::start().await;
    let mut wrong = at(world.base(), &["mcp"]);
    wrong.env("SANDBOX_TOKEN", "not-the-token-0123456789-0123456789");
    let mut bridge = Bridge::start(wrong);
    let refused = bridge.ask(1, "tools/list", json!({})).await;
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("X-Sandbox-Token"), "{message}");
    assert_eq!(bridge.end().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn both_programs_are_started_for_it_and_end_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("var");
    let mut command = at("http://127.0.0.1:1", &["mcp", "--start"]);
    command.env("SANDBOX_ROOT", &root);
    let mut bridge = Bridge::start(command);
    bridge.shake_hands().await;
    let made = json!({ "name": "create_workspace", "arguments": { "python": false, "name": "w" } });
    let made = bridge.ask(2, "tools/call", made).await;
    assert_eq!(made["result"]["structuredContent"]["name"], json!("w"), "{made}");
    let begun = json!({ "workspace_id": "w", "command": "sleep 34002.5", "wait_seconds": 0 });
    bridge.ask(3, "tools/call", json!({ "name": "run_command", "arguments": begun })).await;
    wait::until("the job", PROMPTLY, async || !probe::marked("34002.5").is_empty()).await;
    let children = probe::children(bridge.child.id().unwrap());
    assert_eq!(children.len(), 2);
    assert_eq!(bridge.end().await, Some(0));
    assert!(children.iter().all(|child| !probe::lives(*child)));
    assert_eq!(probe::marked("34002.5"), [0; 0]);
}
