//! More output than anybody reads: memory stays flat, the log within its cap, the numbers true.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use support::jobs::{end, id};
use support::{World, probe, wait};

const MIB: u64 = 1 << 20;

/// Bytes of a flood. The variable is for shorter or longer ones by hand.
fn flood_bytes() -> u64 {
    let gib = std::env::var("RUNLET_TEST_FLOOD_GIB").map_or(5, |gib| gib.parse().unwrap());
    gib << 30
}

fn disk_bytes(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    entries.flatten().map(|entry| entry.metadata().map_or(0, |data| data.len())).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn out_04_a_flood_that_nobody_reads_costs_no_memory() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let bytes = flood_bytes();
    let _warm = client.run(&workspace, "head -c 64M /dev/zero | tr '\\0' x").await;
    let before = probe::resident_bytes(world.executor_pid());
    let began = Instant::now();
    let call = json!({
        "workspace_id": workspace, "command": format!("head -c {bytes} /dev/zero | tr '\\0' x"), "wait_seconds": 0,
        "timeout_seconds": 600,
    });
    let job = client.call("run_command", call).await.expect();
    let (mut most, mut slowest) = (0, Duration::ZERO);
    wait::until("the flood to be over", Duration::from_secs(300), async || {
        most = most.max(probe::resident_bytes(world.executor_pid()));
        let asked = Instant::now();
        let listed = client.call("list_jobs", json!({ "page_size": 1 })).await.expect();
        slowest = slowest.max(asked.elapsed());
        tokio::time::sleep(Duration::from_millis(50)).await;
        listed["jobs"][0]["status"] != json!("running")
    })
    .await;
    let took = began.elapsed();
    let log = disk_bytes(&world.root().join("logs").join(id(&job)));
    println!(
        "{bytes} bytes in {took:?}, memory + {} KiB, slowest other call {slowest:?}, log {log} bytes",
        most.saturating_sub(before) / 1024
    );
    let read = client.call("read_output", json!({ "job_id": id(&job), "cursor": "tail" })).await.expect();
    assert_eq!((end(&read), &read["total_bytes"]), ((Some("exited"), Some(0)), &json!(bytes)));
    assert!(read["output"].as_str().unwrap().len() <= 24_000);
    assert!(most.saturating_sub(before) < 16 * MIB, "{before} {most}");
    assert!(log <= 64 * MIB && log > 48 * MIB, "{log}");
    assert!(slowest < Duration::from_secs(3), "{slowest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn out_05_the_log_of_an_endless_job_stays_within_its_cap() {
    let cap = 2 * MIB;
    let mut world = World::builder().executor("RUNLET_JOB_LOG_BYTES", cap.to_string()).start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let job = client.start(&workspace, "echo FIRST; yes").await;
    let log = world.root().join("logs").join(id(&job));
    let mut most = 0;
    wait::until("a long log", Duration::from_secs(20), async || {
        most = most.max(disk_bytes(&log));
        client.job(id(&job)).await["total_bytes"].as_u64().unwrap() > 100 * MIB
    })
    .await;
    assert!(most <= cap, "{most}");
    // Head and tail are there.
    let call = json!({ "job_id": id(&job), "cursor": 0, "max_output_bytes": 524_288 });
    let head = client.call("read_output", call).await;
    assert!(head.text().contains("FIRST\ny\n"));
    world.kill_executor().await;
    world.start_executor().await;
    let lost = client.job(id(&job)).await;
    assert_eq!(end(&lost), (Some("lost"), None));
    assert!(lost["total_bytes"].as_u64().unwrap() > 100 * MIB && disk_bytes(&log) <= cap);
    // What is missing in the middle is named.
    let gap = json!({ "job_id": id(&job), "cursor": MIB / 2, "max_output_bytes": 1000 });
    let gap = client.call("read_output", gap).await;
    assert!(gap.text().contains("no longer kept"), "{}", gap.text());
    let piece = gap.expect();
    assert!(piece["lost_bytes"].as_u64().unwrap() > 90 * MIB, "{}", piece["lost_bytes"]);
    assert!(piece["output"].as_str().unwrap().contains("y\ny\n"));
    let tail = client.call("read_output", json!({ "job_id": id(&job), "cursor": "tail" })).await.expect();
    assert_eq!(tail["next_cursor"], lost["total_bytes"]);
    assert!(tail["output"].as_str().unwrap().contains("y\ny\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn out_06_a_job_finds_no_log() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let logs = world.root().join("logs");
    let command = format!(
        "ls {logs} 2>/dev/null | wc -l; cat {logs}/*/* 2>/dev/null | wc -c; ls -l /proc/$PPID/fd 2>/dev/null | grep -c logs; \
         find / -path /proc -prune -o -name 'output-0*' -print 2>/dev/null | wc -l",
        logs = logs.display()
    );
    assert_eq!(client.run(&workspace, &command).await["output"], json!("0\n0\n0\n0\n"));
    let listed = client
        .call("list_files", json!({ "workspace_id": workspace, "depth": 10, "include_ignored": true }))
        .await;
    assert!(!listed.text().contains("output-"), "{}", listed.text());
    let path = logs.to_string_lossy();
    let outside = client.call("list_files", json!({ "workspace_id": workspace, "path": path })).await;
    assert!(outside.is_error(), "{}", outside.text());
}
