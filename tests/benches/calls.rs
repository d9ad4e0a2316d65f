//! Calls: a command that does nothing, and the list of tools.

use std::time::Duration;

use serde_json::json;

use crate::Bench;
use crate::peer::PythonServer;
use crate::table::{Figure, Row, Target, Unit};
use crate::wire::{Call, Connection, Crowd};

const CLIENTS: usize = 16;
const BLOCKS: usize = 10;
const CALLS_PER_BLOCK: usize = 200;
const RATE_BLOCKS: usize = 5;
const RATE_TIME: Duration = Duration::from_millis(1500);

/// The call that runs `true` in a workspace.
pub(crate) fn run_true(workspace: &str) -> Call {
    Call::tool("run_command", &json!({ "workspace_id": workspace, "command": "true" }), "\"exit_code\":0")
}

/// `true` by one client: blocks of ours, of spawning and of the Python server in turn.
pub(crate) async fn one_client(bench: &Bench) -> Vec<Row> {
    let (programs, workspace) = (&bench.programs, &bench.workspace);
    let (call, peer_call) = (run_true(workspace), PythonServer::run_true());
    let mut ours = Connection::open(programs.address).await;
    let mut python = match &bench.python {
        Some(server) => Some(Connection::open(server.address).await),
        None => None,
    };
    let (mut own_times, mut spawn_times, mut python_times) = (Vec::new(), Vec::new(), Vec::new());
    for block in 0..=BLOCKS {
        let own_time = ours.median(&call, CALLS_PER_BLOCK).await;
        let spawn_time = bench.shell.median(CALLS_PER_BLOCK);
        let python_time = match &mut python {
            Some(python) => Some(python.median(&peer_call, CALLS_PER_BLOCK).await),
            None => None,
        };
        // The first block warms up.
        if block > 0 {
            own_times.push(own_time);
            spawn_times.push(spawn_time);
            python_times.extend(python_time);
        }
    }
    let what = "run_command `true`, 1 client, p50";
    let ours = Figure::of(Unit::Milliseconds, own_times);
    let beside_spawn = Row::new(what, &ours)
        .beside("posix_spawn", Figure::of(Unit::Milliseconds, spawn_times))
        .target(Target::RatioAtMost(1.5));
    beside_python(vec![beside_spawn], what, &ours, Unit::Milliseconds, python_times)
}

/// `true` by several clients: blocks of ours, of spawning and of the Python server in turn.
pub(crate) async fn many_clients(bench: &Bench) -> Vec<Row> {
    let (programs, workspace) = (&bench.programs, &bench.workspace);
    let (call, peer_call) = (run_true(workspace), PythonServer::run_true());
    let mut ours = Crowd::open(programs.address, CLIENTS).await;
    let mut python = python_crowd(bench).await;
    ours.times(&call, 20).await;
    let (mut own_rates, mut spawn_rates, mut python_rates) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RATE_BLOCKS {
        own_rates.push(ours.rate(&call, RATE_TIME).await);
        spawn_rates.push(bench.shell.rate(CLIENTS, RATE_TIME));
        if let Some(python) = &mut python {
            python_rates.push(python.rate(&peer_call, RATE_TIME).await);
        }
    }
    let what = "run_command `true`, 16 clients";
    let ours = Figure::of(Unit::PerSecond, own_rates);
    let rows = vec![
        Row::new(what, &ours).target(Target::AtLeast(1200.0)),
        Row::new(what, &ours)
            .beside("posix_spawn, 16 threads", Figure::of(Unit::PerSecond, spawn_rates))
            .target(Target::RatioAtLeast(0.65)),
    ];
    beside_python(rows, what, &ours, Unit::PerSecond, python_rates)
}

/// The list of tools by several clients, ours and the Python server's (of one tool) in turn.
pub(crate) async fn tools_list(bench: &Bench) -> Vec<Row> {
    let call = Call::mcp("tools/list", &json!({}), "\"tools\":[");
    let mut ours = Crowd::open(bench.programs.address, CLIENTS).await;
    let mut python = python_crowd(bench).await;
    ours.times(&call, 100).await;
    let (mut own_rates, mut python_rates) = (Vec::new(), Vec::new());
    for _ in 0..RATE_BLOCKS {
        own_rates.push(ours.rate(&call, RATE_TIME).await);
        if let Some(python) = &mut python {
            python_rates.push(python.rate(&call, RATE_TIME).await);
        }
    }
    let what = "tools/list, 16 clients";
    let ours = Figure::of(Unit::PerSecond, own_rates);
    let rows = vec![Row::new(what, &ours).target(Target::AtLeast(25_000.0))];
    beside_python(rows, what, &ours, Unit::PerSecond, python_rates)
}

async fn python_crowd(bench: &Bench) -> Option<Crowd> {
    match &bench.python {
        Some(server) => Some(Crowd::open(server.address, CLIENTS).await),
        None => None,
    }
}

/// Adds the row beside the Python server, if that ran.
fn beside_python(mut rows: Vec<Row>, what: &str, ours: &Figure, unit: Unit, values: Vec<f64>) -> Vec<Row> {
    if !values.is_empty() {
        rows.push(Row::new(what, ours).beside("Python SDK", Figure::of(unit, values)));
    }
    rows
}
