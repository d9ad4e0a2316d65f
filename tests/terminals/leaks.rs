//! Opening and closing terminals leaves nothing.

use std::time::Duration;

use serde_json::json;
use support::{Client, World, probe, wait};

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
struct Counted {
    descriptors: usize,
    threads: usize,
    processes: usize,
}

fn count(world: &World) -> Counted {
    let pid = world.executor_pid();
    Counted {
        descriptors: probe::descriptors(pid),
        threads: probe::threads(pid),
        processes: probe::descendants(pid).len(),
    }
}

/// Sides of terminals that the executor holds open.
fn masters(world: &World) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", world.executor_pid()))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter(|target| target.to_string_lossy().contains("ptmx") || target.starts_with("/dev/pts"))
        .count()
}

async fn open_in_turns(client: &Client, workspace: &str, command: &str, close: bool) {
    let turns = (0..20).map(|_| async {
        for _ in 0..10 {
            let arguments = json!({ "workspace_id": workspace, "command": command });
            let terminal = client.call("open_terminal", arguments).await.expect();
            if close {
                client.close(&terminal).await;
            } else {
                client.terminal_ended(&terminal).await;
            }
        }
    });
    futures::future::join_all(turns).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pty_17_six_hundred_terminals_leave_what_was_there_before() {
    // What is kept for the next ones is let go of when nobody has needed it for so long.
    let world = World::builder().executor("RUNLET_CLEANING_SECONDS", "1").start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    // Once, so that what is kept for later is there.
    open_in_turns(&client, &workspace, "true", false).await;
    let before = count(&world);
    open_in_turns(&client, &workspace, "true", false).await;
    open_in_turns(&client, &workspace, "cat", true).await;
    for _ in 0..10 {
        // Whoever opened these goes away before there is an answer.
        let leavers = (0..20).map(|_| {
            let arguments = json!({ "workspace_id": workspace, "command": "sleep 0.2" });
            tokio::time::timeout(Duration::from_millis(5), client.call("open_terminal", arguments))
        });
        futures::future::join_all(leavers).await;
    }
    // The last of them may still be ending: it holds its terminal until then.
    wait::until("the terminals to be gone", Duration::from_secs(20), async || {
        let after = count(&world);
        let masters = masters(&world);
        eprintln!("before {before:?}, after {after:?}, terminals held {masters}");
        masters == 0
            && after.descriptors <= before.descriptors + 3
            && after.threads <= before.threads + 3
            && after.processes <= before.processes + 3
    })
    .await;
    assert_eq!(probe::zombies(world.executor_pid()), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_29_terminals_past_the_limit_are_refused_with_the_oldest_named() {
    let world = World::builder().executor("RUNLET_MAX_JOBS", "3").start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let first = client.open(&workspace, "cat").await;
    client.open(&workspace, "cat").await;
    client.start(&workspace, "sleep 60").await;
    let error = client.call("open_terminal", json!({ "workspace_id": workspace })).await.expect_error();
    assert_eq!(error["code"], "TOO_MANY_JOBS");
    let next = error["next"].as_str().unwrap();
    assert!(next.contains(&format!("close_terminal(terminal_id={})", first["terminal_id"])), "{next}");
    client.close(&first).await;
    client.open(&workspace, "cat").await;
}
