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
