//! Gateways keep nothing: any of them answers any call.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use support::{World, wait};

#[tokio::test(flavor = "multi_thread")]
async fn http_02_what_one_gateway_starts_another_follows() {
    let mut world = World::start().await;
    let second = world.start_gateway().await;
    let (one, other) = (world.client(), world.client_of(second));
    let workspace = one.workspace().await;
    let job = json!({
        "workspace_id": workspace, "command": "read a; echo got $a; read b; echo got $b", "keep_stdin_open": true,
        "wait_seconds": 0,
    });
    let job = one.call("run_command", job).await.expect();
    let id = job["job_id"].clone();
    let waiting = tokio::spawn(
        other.call("read_output", json!({ "job_id": id, "until": "got 1", "wait_seconds": 30 })),
    );
    one.call("write_stdin", json!({ "job_id": id, "text": "1\n" })).await.expect();
    let read = waiting.await.unwrap().expect();
    assert_eq!(read["output"], json!("got 1\n"));
    other.call("write_stdin", json!({ "job_id": id, "text": "2\n" })).await.expect();
    let rest = json!({ "job_id": id, "cursor": read["next_cursor"], "until": "got 2", "wait_seconds": 30 });
    assert_eq!(one.call("read_output", rest).await.expect()["output"], json!("got 2\n"));

    // The same request through both runs once.
    let append = json!({
        "workspace_id": workspace, "command": "echo x >> n; sleep 1; cat n", "request_id": "once", "wait_seconds": 20,
    });
    let (first, second) =
        tokio::join!(one.call("run_command", append.clone()), other.call("run_command", append));
    let (first, second) = (first.expect(), second.expect());
    assert_eq!((&first["job_id"], &first["output"]), (&second["job_id"], &json!("x\n")));
    assert_eq!(second["output"], json!("x\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn http_18_a_gateway_that_is_told_to_stop_leaves_jobs_to_the_others() {
    let mut world = World::start().await;
    let second = world.start_gateway().await;
    let (one, other) = (world.client(), world.client_of(second));
    let workspace = one.workspace().await;
    let run = json!({ "workspace_id": workspace, "command": "sleep 5; echo whole", "wait_seconds": 45 });
    let waiting = tokio::spawn(one.call("run_command", run));
    let mut running = Value::Null;
    wait::until("the job", Duration::from_secs(10), async || {
        running = other.call("list_jobs", json!({ "status": "running" })).await.expect()["jobs"][0].clone();
        running.is_object()
    })
    .await;
    let start = Instant::now();
    world.signal_gateway(0, Signal::TERM);
    let answer = waiting.await.unwrap();
    assert_eq!(answer.expect_error()["code"], json!("GATEWAY_STOPPING"));
    assert!(world.gateway_ended(0).await.success());
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    let rest = json!({ "job_id": running["job_id"], "until": "whole", "wait_seconds": 30 });
    assert_eq!(other.call("read_output", rest).await.expect()["output"], json!("whole\n"));
}
