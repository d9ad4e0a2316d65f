//! How sandboxes end, and what they leave.

use std::fs;
use std::time::Duration;

use serde_json::json;
use support::{World, probe, wait};

use crate::sandbox;

const PROMPTLY: Duration = Duration::from_secs(10);

fn names(directory: std::path::PathBuf) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn mounts() -> usize {
    fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_made_and_ended_leave_nothing() {
    let world = World::start().await;
    let client = world.client();
    // The first ones take what stays: inits, connections.
    let first = sandbox(&client, json!({})).await;
    client.run(&first, "true").await;
    client.call("shutdown_sandbox", json!({ "sandbox_id": first })).await.expect();
    let executor = world.executor_pid();
    let before = (probe::descriptors(executor), probe::descendants(executor).len(), mounts());
    for round in 0..5 {
        let made = (0..8).map(|_| {
            let client = world.client();
            tokio::spawn(async move {
                let id = sandbox(&client, json!({})).await;
                let left = "(setsid sleep 33010.1 &); (sleep 33010.1 &); echo x > /tmp/x; echo up";
                let job = client.run(&id, left).await;
                assert_eq!(job["output"], json!("up\n"), "{job}");
                client.call("shutdown_sandbox", json!({ "sandbox_id": id })).await.expect();
            })
        });
        for task in made.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        println!("round {round}");
    }
    assert_eq!(probe::marked("33010.1"), [0; 0]);
    let now = || (probe::descriptors(executor), probe::descendants(executor).len(), mounts());
    let start = std::time::Instant::now();
    let is_more = |(descriptors, processes, mounts)| {
        descriptors > before.0 || processes > before.1 || mounts > before.2
    };
    while is_more(now()) && start.elapsed() < PROMPTLY {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let after = now();
    assert!(!is_more(after), "descriptors, processes, mounts: {before:?}, then {after:?}");
    for part in ["sandboxes", "workspaces", "trash"] {
        assert_eq!(names(world.root().join(part)), [""; 0], "{part}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_executor_leaves_no_sandbox() {
    let mut world = World::start().await;
    let client = world.client();
    let mut ids = Vec::new();
    for _ in 0..10 {
        let id = sandbox(&client, json!({})).await;
        client
            .call("run_command", json!({ "workspace_id": id, "command": "sleep 33011.1", "wait_seconds": 0 }))
            .await
            .expect();
        ids.push(id);
    }
    wait::until("ten to run", PROMPTLY, async || probe::marked("33011.1").len() >= 10).await;
    world.kill_executor().await;
    wait::until("all to be gone", PROMPTLY, async || probe::marked("33011.1").is_empty()).await;
    world.start_executor().await;
    let listed = client.call("list_sandboxes", json!({})).await.expect();
    assert_eq!(listed["sandboxes"], json!([]));
    let lost = client.call("get_sandbox", json!({ "sandbox_id": ids[0] })).await.expect();
    assert_eq!((&lost["status"], &lost["end_reason"]), (&json!("shutdown"), &json!("lost")), "{lost}");
    // At its start the executor tries one, which has a place there for a moment.
    wait::until("all places to be gone", PROMPTLY, async || {
        ["sandboxes", "workspaces"].iter().all(|part| names(world.root().join(part)).is_empty())
    })
    .await;
    assert_eq!(client.run(&sandbox(&client, json!({})).await, "echo on").await["output"], json!("on\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn sandbox_ends_at_its_time_with_all_that_runs() {
    let world = World::start().await;
    let client = world.client();
    let id = sandbox(&client, json!({ "lifetime_seconds": 60 })).await;
    let run = json!({ "workspace_id": id, "command": "sleep 33012.1", "wait_seconds": 0 });
    let job = client.call("run_command", run).await.expect();
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(client.run(&id, "echo lives").await["output"], json!("lives\n"));
    wait::until("its end", Duration::from_secs(20), async || {
        let shown = client.call("get_sandbox", json!({ "sandbox_id": id })).await.expect();
        shown["end_reason"] == json!("expired")
    })
    .await;
    assert_eq!(probe::marked("33012.1"), [0; 0]);
    let job = client.job(support::jobs::id(&job)).await;
    assert_eq!(job["status"], json!("killed"), "{job}");
}

#[tokio::test(flavor = "multi_thread")]
async fn orderly_stop_leaves_no_process() {
    let mut world = World::start().await;
    let client = world.client();
    let id = sandbox(&client, json!({})).await;
    client.run(&id, "(setsid sleep 33013.1 &); echo up").await;
    world.signal_executor(rustix::process::Signal::TERM);
    assert!(world.executor_ended().await.success());
    assert_eq!(probe::marked("33013.1"), [0; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_it_as_a_workspace_is_the_same() {
    let world = World::start().await;
    let client = world.client();
    let id = sandbox(&client, json!({ "name": "box" })).await;
    client.call("delete_workspace", json!({ "workspace_id": "box" })).await.expect();
    let shown = client.call("get_sandbox", json!({ "sandbox_id": id })).await.expect();
    assert_eq!((&shown["status"], &shown["end_reason"]), (&json!("shutdown"), &json!("shutdown")), "{shown}");
    // Its name is free again, and ending it once more changes nothing.
    sandbox(&client, json!({ "name": "box" })).await;
    let again = client.call("shutdown_sandbox", json!({ "sandbox_id": id })).await.expect();
    assert_eq!(again["expires_at"], shown["expires_at"]);
}
