//! Many jobs: 256 that live at once, and 10,000 records of ended ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::Bench;
use crate::calls::run_true;
use crate::table::{Figure, Row, Target, Unit};
use crate::wire::{Call, Connection, Crowd};

const ROUNDS: usize = 3;
const RECORDS: u32 = 10_000;
const CLIENTS: u32 = 16;

/// How long health takes to answer while 256 jobs start, live and are ended.
pub(crate) async fn living_jobs(bench: &Bench) -> Vec<Row> {
    let (mut slowest_alive, mut slowest_ready, mut ready_medians) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let done = Arc::new(AtomicBool::new(false));
        let alive = tokio::spawn(probe(bench.programs.address, Call::get("/healthz"), Arc::clone(&done)));
        let ready = tokio::spawn(probe(bench.programs.address, Call::get("/readyz"), Arc::clone(&done)));
        crowd_of_jobs(bench).await;
        done.store(true, Ordering::Relaxed);
        let (alive, ready) = (alive.await.unwrap(), ready.await.unwrap());
        slowest_alive.push(alive.iter().copied().fold(0.0, f64::max));
        slowest_ready.push(ready.iter().copied().fold(0.0, f64::max));
        ready_medians.push(crate::table::median(ready));
    }
    let row = |what: &str, values| {
        Row::new(what, &Figure::of(Unit::Milliseconds, values)).target(Target::AtMost(50.0))
    };
    vec![
        row("healthz during 256 jobs, slowest", slowest_alive),
        row("readyz during 256 jobs, slowest", slowest_ready),
        row("readyz during 256 jobs, p50", ready_medians),
    ]
}

/// Asks until it is told to stop; returns the time of each answer in milliseconds.
async fn probe(address: std::net::SocketAddr, call: Call, done: Arc<AtomicBool>) -> Vec<f64> {
    let mut connection = Connection::open(address).await;
    let mut times = Vec::new();
    while !done.load(Ordering::Relaxed) {
        times.push(connection.time(&call).await);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    times
}

/// Starts 256 jobs, lets them live for a second, and ends them with their workspace.
async fn crowd_of_jobs(bench: &Bench) {
    let client = bench.programs.client();
    let workspace = client.workspace().await;
    let start =
        json!({ "workspace_id": workspace, "command": "echo here; exec sleep 60", "wait_seconds": 0 });
    let call = Call::tool("run_command", &start, "\"status\":\"running\"");
    Crowd::open(bench.programs.address, 16).await.times(&call, 16).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let list = json!({ "workspace_id": workspace, "status": "running", "page_size": 200 });
    let listed = client.call("list_jobs", list).await.expect();
    assert_eq!(listed["jobs"].as_array().map(Vec::len), Some(200), "{listed}");
    let _deleted = client.call("delete_workspace", json!({ "workspace_id": workspace })).await.expect();
}

/// How long a page of jobs takes when there are 10,000 records. They are made by running jobs.
pub(crate) async fn records(bench: &Bench) -> Vec<Row> {
    let programs = &bench.programs;
    let mut crowd = Crowd::open(programs.address, 16).await;
    crowd.times(&run_true(&bench.workspace), RECORDS / CLIENTS).await;
    let mut connection = Connection::open(programs.address).await;
    let row = |what: &str, values| {
        Row::new(what, &Figure::of(Unit::Milliseconds, values)).target(Target::AtMost(20.0))
    };
    let mut rows = Vec::new();
    for (what, arguments) in [
        ("list_jobs of 10,000 records, 50 a page", json!({})),
        ("the same, of one workspace", json!({ "workspace_id": bench.workspace })),
        ("the same, by status", json!({ "status": "exited" })),
    ] {
        let call = Call::tool("list_jobs", &arguments, "\"next_page_token\"");
        let mut times = Vec::new();
        for _ in 0..100 {
            times.push(connection.time(&call).await);
        }
        rows.push(row(what, times));
    }
    rows
}
