//! Records and leftovers on disk after a crash.

use std::fs;

use serde_json::json;
use support::World;
use support::jobs::{end, id};

#[tokio::test(flavor = "multi_thread")]
async fn half_removed_workspaces_and_stray_logs_are_cleared_away() {
    let mut world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let kept = client.run(&workspace, "echo kept").await;
    world.kill_executor().await;
    let stray_workspace = world.root().join("workspaces/ws_aaaaaaaaaaaa/work");
    let stray_log = world.root().join("logs/job_aaaaaaaaaaaa");
    let trash = world.root().join("trash/ws_bbbbbbbbbbbb/home");
    for directory in [&stray_workspace, &stray_log, &trash] {
        fs::create_dir_all(directory).unwrap();
        fs::write(directory.join("output-0000000000000000"), "stray").unwrap();
    }
    world.start_executor().await;
    assert_eq!(client.output(id(&kept)).await, "kept\n");
    for stray in [stray_workspace, stray_log, trash] {
        assert!(!stray.exists(), "{} is still there", stray.display());
    }
    assert_eq!(fs::read_dir(world.root().join("trash")).unwrap().count(), 0);
    assert_eq!(client.run(&workspace, "echo ok").await["output"], json!("ok\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_finds_its_job_after_a_crash() {
    let mut world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let request = json!({ "request_id": "r-1" });
    let first = client.run_with(&workspace, "echo x >> n", request.clone()).await;
    let running = json!({ "request_id": "r-2", "wait_seconds": 0 });
    let second = client.run_with(&workspace, "echo y >> n; echo ran; sleep 600", running.clone()).await;
    let read = json!({ "job_id": id(&second), "until": "ran", "wait_seconds": 10 });
    let _ran = client.call("read_output", read).await.expect();
    world.kill_executor().await;
    world.start_executor().await;
    let again = client.run_with(&workspace, "echo x >> n", request).await;
    assert_eq!((&again["job_id"], &again["repeated_request"]), (&first["job_id"], &json!(true)));
    let again = client.run_with(&workspace, "echo y >> n; echo ran; sleep 600", running).await;
    assert_eq!((&again["job_id"], end(&again)), (&second["job_id"], (Some("lost"), None)));
    assert_eq!(client.run(&workspace, "cat n").await["output"], json!("x\ny\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn http_14_a_request_during_which_the_executor_is_killed_runs_once() {
    let mut world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let call = json!({
        "workspace_id": workspace, "command": "echo x >> n; sleep 1; echo done", "request_id": "r", "wait_seconds": 20,
    });
    let waiting = tokio::spawn(client.call("run_command", call));
    tokio::time::sleep(std::time::Duration::from_millis(400)).await;
    world.kill_executor().await;
    world.start_executor().await;
    // The gateway repeats the call, which meets the job on record.
    let answer = waiting.await.unwrap();
    assert!(answer.text().contains("was lost"), "{}", answer.text());
    assert_eq!(client.run(&workspace, "cat n").await["output"], json!("x\n"));
}
