//! Many at once.

use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::json;
use support::{World, probe, wait};

#[tokio::test(flavor = "multi_thread")]
async fn http_13_a_command_is_quick_beside_600_waits_on_one_thread() {
    let world = World::builder()
        .executor("TOKIO_WORKER_THREADS", "1")
        .gateway("TOKIO_WORKER_THREADS", "1")
        .start()
        .await;
    let client = world.client();
    let workspace = client.workspace().await;
    let job = json!({ "workspace_id": workspace, "command": "exec sleep 300", "wait_seconds": 0 });
    let job = client.call("run_command", job).await.expect();
    let read = json!({ "job_id": job["job_id"], "until": "never", "wait_seconds": 50 });
    let waits: Vec<_> = (0..600).map(|_| tokio::spawn(client.call("read_output", read.clone()))).collect();
    let before = probe::descriptors(world.gateway_pid());
    wait::until("600 connections", Duration::from_secs(20), async || {
        probe::descriptors(world.gateway_pid()) >= 600
    })
    .await;
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let start = Instant::now();
        assert_eq!(client.run(&workspace, "echo hi").await["output"], json!("hi\n"));
        best = best.min(start.elapsed());
    }
    println!("echo hi beside 600 waits took {best:?} ({before} descriptors at first)");
    assert!(best < Duration::from_secs(2), "{best:?}");
    let cancelled = Instant::now();
    client.call("cancel_job", json!({ "job_id": job["job_id"] })).await.expect();
    for wait in waits {
        assert_eq!(wait.await.unwrap().expect()["status"], json!("killed"));
    }
    assert!(cancelled.elapsed() < Duration::from_secs(10), "{:?}", cancelled.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn http_03_clients_that_come_and_go_leave_nothing_in_the_gateway() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let hello = json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" },
    });
    let round = async |count: usize| {
        for _ in 0..count / 20 {
            for answer in join_all((0..20).map(|_| client.rpc("initialize", hello.clone()))).await {
                assert!(answer.unwrap()["result"]["serverInfo"].is_object());
            }
        }
        // Calls that are opened and dropped.
        let job = json!({ "workspace_id": workspace, "command": "sleep 1", "wait_seconds": 40 });
        let opened = (0..40).map(|_| {
            tokio::time::timeout(Duration::from_millis(200), client.call("run_command", job.clone()))
        });
        join_all(opened).await;
        wait::until("the jobs to end", Duration::from_secs(30), async || {
            let running = client.call("list_jobs", json!({ "status": "running" })).await.expect();
            running["jobs"].as_array().unwrap().is_empty()
        })
        .await;
    };
    let pids = [world.gateway_pid(), world.executor_pid()];
    let measure = || pids.map(|pid| (probe::resident_bytes(pid), probe::threads(pid)));
    round(400).await;
    let before = measure();
    round(2_000).await;
    let after = measure();
    println!("before {before:?}, after {after:?}");
    for ((memory, threads), (grown, more)) in before.into_iter().zip(after) {
        assert!(grown < memory + memory / 5 + (4 << 20), "{memory} bytes became {grown}");
        assert!(more <= threads + 8, "{threads} threads became {more}");
    }
    let descriptors = probe::descriptors(pids[0]);
    assert!(descriptors < 128, "{descriptors} descriptors are open");
}
