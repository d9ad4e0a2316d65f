//! The executor is restarted under a gateway that goes on.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use support::{World, wait};

#[tokio::test(flavor = "multi_thread")]
async fn http_17_calls_outlive_a_restart_of_the_executor() {
    let mut world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let run = json!({
        "workspace_id": workspace, "command": "echo x >> n; exec sleep 31419.001", "request_id": "r1", "wait_seconds": 45,
    });
    let waiting = tokio::spawn(client.call("run_command", run.clone()));
    let plain = json!({ "workspace_id": workspace, "command": "exec sleep 31419.002", "wait_seconds": 45 });
    let unsafe_to_repeat = tokio::spawn(client.call("run_command", plain));
    let mut jobs = Value::Null;
    wait::until("both jobs", Duration::from_secs(10), async || {
        jobs = client.call("list_jobs", json!({ "status": "running" })).await.expect()["jobs"].clone();
        jobs.as_array().unwrap().len() == 2
    })
    .await;
    let start = Instant::now();
    world.signal_executor(Signal::KILL);
    world.executor_ended().await;
    // A call that comes while nobody is there waits for the executor to come back.
    let early = tokio::spawn(client.call("list_workspaces", json!({})));
    world.start_executor().await;
    assert_eq!(early.await.unwrap().expect()["workspaces"][0]["workspace_id"], json!(workspace));
    let survived = waiting.await.unwrap().expect();
    assert_eq!((&survived["status"], &survived["exit_code"]), (&json!("lost"), &Value::Null), "{survived}");
    assert!(jobs.as_array().unwrap().iter().any(|job| job["job_id"] == survived["job_id"]));
    assert_eq!(client.call("run_command", run).await.expect()["job_id"], survived["job_id"]);
    let error = unsafe_to_repeat.await.unwrap().expect_error();
    assert_eq!((&error["code"], &error["retryable"]), (&json!("EXECUTOR_UNAVAILABLE"), &json!(true)));
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(client.run(&workspace, "cat n").await["output"], json!("x\n"));

    // An executor that stays away is a clear error in time, and then the link heals again.
    world.signal_executor(Signal::KILL);
    world.executor_ended().await;
    let start = Instant::now();
    let error = client.call("list_workspaces", json!({})).await.expect_error();
    assert_eq!(error["code"], json!("EXECUTOR_UNAVAILABLE"));
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
    world.start_executor().await;
    client.call("list_workspaces", json!({})).await.expect();
}
