//! What the programs need when nobody uses them: memory, and time to start.

use std::fs;
use std::time::Duration;

use serde_json::json;
use support::probe::resident_bytes;

use crate::Bench;
use crate::programs::{Programs, directory};
use crate::table::{Figure, Row, Target, Unit};
use crate::wire::milliseconds;

const STARTS: usize = 5;

/// Starts both programs again and again on one data root.
pub(crate) async fn idle(bench: &Bench) -> Vec<Row> {
    let directory = directory();
    let first = Programs::start(directory.path()).await;
    let first_ready = milliseconds(first.ready_after);
    // The first start also makes what every workspace's Python is copied from; it is ready when a workspace is.
    let _made = first.client().call("create_workspace", json!({})).await.expect();
    first.stop().await;
    let (mut times, mut sizes) = (vec![first_ready], Vec::new());
    for _ in 0..STARTS {
        let programs = Programs::start(directory.path()).await;
        times.push(milliseconds(programs.ready_after));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let pids = programs.pids().into_iter().flat_map(with_descendants);
        sizes.push(mebibytes(pids.map(resident_bytes).sum()));
        programs.stop().await;
    }
    let memory = Row::new("idle memory, both programs, every process", &Figure::of(Unit::Mebibytes, sizes))
        .target(Target::AtMost(30.0));
    vec![
        match bench.python_idle_bytes {
            Some(bytes) => memory.beside("Python SDK", Figure::of(Unit::Mebibytes, vec![mebibytes(bytes)])),
            None => memory,
        },
        Row::new("start to ready", &Figure::of(Unit::Milliseconds, times)).target(Target::AtMost(200.0)),
    ]
}

/// A process, its children, theirs, and so on.
fn with_descendants(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    for task in tasks {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        found.extend(
            children.split_whitespace().filter_map(|pid| pid.parse().ok()).flat_map(with_descendants),
        );
    }
    found
}

/// Bytes as MiB.
#[expect(clippy::cast_precision_loss, reason = "a size to be shown")]
pub(crate) fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
