//! How sandboxes end, and what they leave.

use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use support::{World, probe, wait};

use crate::sandbox;

const PROMPTLY: Duration = Duration::from_secs(10);

fn names(directory: PathBuf) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// How many sandboxes the test makes that makes many. A thousand take some minutes.
fn many() -> usize {
    std::env::var("RUNLET_TEST_SANDBOXES").map_or(40, |text| text.parse().unwrap())
}

/// Directories of control groups, with this in their paths, of the executor of a data root.
fn groups_of(root: &Path, part: &str) -> usize {
    let mut hasher = std::hash::DefaultHasher::new();
    root.hash(&mut hasher);
    let own = format!("/runlet-{:016x}", hasher.finish());
    let mut pending = vec![PathBuf::from("/sys/fs/cgroup")];
    let mut found = 0;
    while let Some(directory) = pending.pop() {
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            let path = entry.path();
            let text = path.to_string_lossy();
            found += usize::from(text.contains(&own) && text.contains(part));
            pending.push(path);
        }
    }
    found
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
    let root = world.root().canonicalize().unwrap();
    // Otherwise the look for them later would find nothing whatever there was.
    let one = sandbox(&client, json!({})).await;
    let prepared = groups_of(&root, "/sandbox-");
    assert!(prepared > 0, "{root:?}");
    client.call("shutdown_sandbox", json!({ "sandbox_id": one })).await.expect();
    let groups = groups_of(&root, "/sandbox-");
    assert!(groups < prepared);
    let before = (probe::descriptors(executor), probe::descendants(executor).len(), mounts());
    for round in 0..many() / 8 {
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
        println!("round {round}, {} sandboxes", 8 * (round + 1));
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
    for part in ["sandboxes", "workspaces", "trash", "snapshots"] {
        assert_eq!(names(world.root().join(part)), [""; 0], "{part}");
    }
    assert_eq!(groups_of(&root, "/sandbox-"), groups, "control groups");
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_live_at_once() {
    let world = World::start().await;
    let client = world.client();
    let made = (0..50).map(|number| {
        let client = client.clone();
        tokio::spawn(async move {
            let id = sandbox(&client, json!({ "metadata": { "number": number.to_string() } })).await;
            let run = format!("echo {number} > mine; (sleep 33014.1 &); hostname");
            let job = client.run(&id, &run).await;
            assert_eq!(job["output"], json!(format!("{}\n", id.replace('_', "-"))), "{job}");
            (number, id)
        })
    });
    let mut all = Vec::new();
    for task in made.collect::<Vec<_>>() {
        all.push(task.await.unwrap());
    }
    let listed = client.call("list_sandboxes", json!({})).await.expect();
    assert_eq!(listed["sandboxes"].as_array().unwrap().len(), 50);
    for (number, id) in &all {
        let seen = client.run(id, "cat mine; pgrep -c sleep; ls | wc -l").await;
        assert_eq!(seen["output"], json!(format!("{number}\n1\n1\n")), "{seen}");
    }
    assert_eq!(probe::marked("33014.1").len(), 50);
    let ends = all.iter().map(|(_, id)| client.call("shutdown_sandbox", json!({ "sandbox_id": id })));
    for ended in futures::future::join_all(ends).await {
        ended.expect();
    }
    assert_eq!(probe::marked("33014.1"), [0; 0]);
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
    // Some stand still, and hear nothing of its end.
    for id in &ids[..3] {
        client.call("suspend_sandbox", json!({ "sandbox_id": id })).await.expect();
    }
    world.kill_executor().await;
    wait::until("all to be gone", PROMPTLY, async || probe::marked("33011.1").is_empty()).await;
    world.start_executor().await;
    for id in &ids[..3] {
        client.call("shutdown_sandbox", json!({ "sandbox_id": id })).await.expect();
    }
    let listed = client.call("list_sandboxes", json!({})).await.expect();
    assert_eq!(listed["sandboxes"], json!([]));
    let lost = client.call("get_sandbox", json!({ "sandbox_id": ids[9] })).await.expect();
    assert_eq!((&lost["status"], &lost["end_reason"]), (&json!("shutdown"), &json!("lost")), "{lost}");
    // At its start the executor tries one, which has a place there for a moment.
    wait::until("all places to be gone", PROMPTLY, async || {
        ["sandboxes", "workspaces"].iter().all(|part| names(world.root().join(part)).is_empty())
    })
    .await;
    assert_eq!(client.run(&sandbox(&client, json!({})).await, "echo on").await["output"], json!("on\n"));
    // Nothing of the control groups stays either, when the executor is gone.
    let root = world.root().canonicalize().unwrap();
    world.kill_executor().await;
    wait::until("its control groups to be gone", PROMPTLY, async || groups_of(&root, "") == 0).await;
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
