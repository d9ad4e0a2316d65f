//! Sandboxes: from nothing to the end of the first command, and a run in one that is there.

use std::time::Instant;

use serde_json::json;

use crate::Bench;
use crate::calls::run_true;
use crate::table::{Figure, Row, Target, Unit, median};
use crate::wire::{Call, Connection, milliseconds};

const BLOCKS: usize = 5;
const MADE_PER_BLOCK: usize = 20;
const RUNS_PER_BLOCK: usize = 200;

/// A sandbox is made, and its first command run; it is ended outside of the time.
pub(crate) async fn first_command(bench: &Bench) -> Vec<Row> {
    let client = bench.programs.client();
    let mut blocks = Vec::new();
    for block in 0..=BLOCKS {
        let mut times = Vec::new();
        for _ in 0..MADE_PER_BLOCK {
            let start = Instant::now();
            let made = client.call("create_sandbox", json!({})).await.expect();
            let run = json!({ "sandbox_id": made["id"], "command": "true" });
            let ran = client.call("execute_in_sandbox", run).await.expect();
            times.push(milliseconds(start.elapsed()));
            assert_eq!((&made["isolation"], &ran["exit_code"]), (&json!("namespaces"), &json!(0)), "{ran}");
            client.call("shutdown_sandbox", json!({ "sandbox_id": made["id"] })).await.expect();
        }
        // The first block warms up.
        if block > 0 {
            blocks.push(median(times));
        }
    }
    let figure = Figure::of(Unit::Milliseconds, blocks);
    vec![Row::new("create_sandbox and its first command, p50", &figure).target(Target::AtMost(50.0))]
}

/// `true` by run_code in a sandbox that is there, and by run_command in a workspace, in turn.
pub(crate) async fn run_again(bench: &Bench) -> Vec<Row> {
    let run = Call::tool("run_code", &json!({ "command": "true" }), "\"exit_code\":0");
    let beside = run_true(&bench.workspace);
    let mut connection = Connection::open(bench.programs.address).await;
    let (mut times, mut command_times) = (Vec::new(), Vec::new());
    for block in 0..=BLOCKS {
        let time = connection.median(&run, RUNS_PER_BLOCK).await;
        let command_time = connection.median(&beside, RUNS_PER_BLOCK).await;
        if block > 0 {
            times.push(time);
            command_times.push(command_time);
        }
    }
    let row =
        Row::new("run_code `true` in a sandbox that is there, p50", &Figure::of(Unit::Milliseconds, times));
    vec![
        row.beside("run_command", Figure::of(Unit::Milliseconds, command_times))
            .target(Target::RatioAtMost(1.5)),
    ]
}

/// 1 GiB in 16,384 files, as packages are.
const PACKAGES: &str = "python3 -c '
import os
for d in range(128):
    os.makedirs(f\"packages/{d}\")
    for f in range(128):
        with open(f\"packages/{d}/{f}\", \"wb\") as file:
            file.write(os.urandom(1 << 16))
'";

/// A snapshot is made of a sandbox with 1 GiB of packages, and another started from it.
pub(crate) async fn with_packages(bench: &Bench) -> Vec<Row> {
    let client = bench.programs.client();
    let blueprint = json!({ "name": "packages", "setup_commands": [PACKAGES] });
    let mut built = client.call("create_blueprint", blueprint).await.expect();
    while built["status"] == json!("building") {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        built = client.call("get_blueprint", json!({ "name": "packages" })).await.expect();
    }
    assert!(built["size_bytes"].as_u64() >= Some(1 << 30), "{built}");
    let (mut kept, mut changed) = (Vec::new(), Vec::new());
    for block in 0..=BLOCKS {
        let made = client.call("create_sandbox", json!({ "blueprint": "packages" })).await.expect();
        let work =
            json!({ "sandbox_id": made["id"], "command": "echo result > report.xml; rm packages/0/0" });
        client.call("execute_in_sandbox", work).await.expect();
        let time = saved_and_started(&client, &made["id"]).await;
        let all = json!({
            "sandbox_id": made["id"],
            "command": "cp -a packages copied; ls packages/0 | wc -l",
        });
        let copied = client.call("execute_in_sandbox", all).await.expect();
        assert_eq!(copied["output"], json!("127\n"), "{copied}");
        let whole = saved_and_started(&client, &made["id"]).await;
        client.call("shutdown_sandbox", json!({ "sandbox_id": made["id"] })).await.expect();
        if block > 0 {
            kept.push(time);
            changed.push(whole);
        }
    }
    client.call("delete_blueprint", json!({ "name": "packages" })).await.expect();
    let kept = Figure::of(Unit::Milliseconds, kept);
    let changed = Figure::of(Unit::Milliseconds, changed);
    vec![
        Row::new(
            "snapshot of a sandbox that has 1 GiB of packages, and the first command in one from it",
            &kept,
        )
        .target(Target::AtMost(300.0)),
        Row::new("the same, where it has changed that 1 GiB itself", &changed),
    ]
}

/// Milliseconds until the first command has ended in a sandbox from a snapshot of this one.
async fn saved_and_started(client: &support::Client, id: &serde_json::Value) -> f64 {
    let start = Instant::now();
    let saved = client.call("create_snapshot", json!({ "sandbox_id": id })).await.expect();
    let made = json!({ "snapshot_id": saved["snapshot_id"] });
    let made = client.call("create_sandbox", made).await.expect();
    let read = json!({ "sandbox_id": made["id"], "command": "cat report.xml; ls packages/1 | wc -l" });
    let ran = client.call("execute_in_sandbox", read).await.expect();
    let time = milliseconds(start.elapsed());
    assert_eq!(ran["output"], json!("result\n128\n"), "{ran}");
    client.call("shutdown_sandbox", json!({ "sandbox_id": made["id"] })).await.expect();
    client.call("delete_snapshot", json!({ "snapshot_id": saved["snapshot_id"] })).await.expect();
    time
}
