//! Waits: what is on the wire while they last, and what becomes of the job when they end early.

use std::time::Duration;

use serde_json::{Value, json};
use support::{World, probe, wait};

use crate::wire::{Era, send};

fn command(workspace: &str, command: &str, wait_seconds: u32) -> Value {
    json!({ "workspace_id": workspace, "command": command, "wait_seconds": wait_seconds })
}

#[tokio::test(flavor = "multi_thread")]
async fn http_05_11_12_a_long_wait_shows_life_in_both_eras_and_its_end_is_not_the_jobs() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let mut waits = Vec::new();
    for (number, (era, progress)) in
        [(Era::Until2025, true), (Era::Until2025, false), (Era::From2026, true), (Era::From2026, false)]
            .into_iter()
            .enumerate()
    {
        let job = command(&workspace, &format!("echo begun; exec sleep 31418.00{number}"), 45);
        let base = world.base().to_owned();
        waits.push(tokio::spawn(async move {
            let mut wait = send(&base, era, "run_command", job, progress).await;
            let headers = wait.response.headers().clone();
            assert!(
                headers["content-type"].to_str().unwrap().starts_with("text/event-stream"),
                "{headers:?}"
            );
            assert_eq!(headers["cache-control"], "no-cache");
            assert_eq!(headers["x-accel-buffering"], "no");
            assert!(!headers.contains_key("content-encoding"));
            while if progress { wait.progress() < 3 } else { wait.comments() < 2 } {
                assert!(wait.more().await, "the answer ended");
            }
            assert!(wait.first.unwrap() < Duration::from_secs(5), "{:?}", wait.first);
            for told in wait.messages() {
                assert_eq!(told["params"]["progressToken"], json!("token"), "{told}");
            }
        }));
    }
    for wait in waits {
        wait.await.unwrap();
    }
    // All four connections are gone, in the middle of their waits.
    for number in 0..4 {
        assert_eq!(probe::marked(&format!("31418.00{number}")).len(), 1);
    }
    let jobs = client.call("list_jobs", json!({ "status": "running" })).await.expect();
    let jobs = jobs["jobs"].as_array().unwrap().clone();
    assert_eq!(jobs.len(), 4, "{jobs:?}");
    for job in jobs {
        let id = job["job_id"].as_str().unwrap();
        assert_eq!(client.output(id).await, "begun\n");
        client.call("cancel_job", json!({ "job_id": id })).await.expect();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn http_05_a_cancelled_notification_ends_no_job_and_no_other_call() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let base = world.base().to_owned();
    let job = command(&workspace, "until [ -e stop ]; do sleep 0.1; done; echo whole", 45);
    let wait =
        tokio::spawn(
            async move { send(&base, Era::Until2025, "run_command", job, true).await.result().await },
        );
    wait::until("the job", Duration::from_secs(10), async || {
        let jobs = client.call("list_jobs", json!({ "status": "running" })).await.expect();
        jobs["jobs"].as_array().unwrap().len() == 1
    })
    .await;
    for id in [json!(7), json!(12345), json!("unknown")] {
        let cancelled = json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id, "reason": "enough" },
        });
        let answer = client.post(&cancelled).await.unwrap();
        assert_eq!(answer.status(), 202);
        assert_eq!(answer.text().await.unwrap(), "");
    }
    client
        .call("write_file", json!({ "workspace_id": workspace, "path": "stop", "content": "" }))
        .await
        .expect();
    let result = wait.await.unwrap();
    assert_eq!(result["_meta"]["runlet/result"]["output"], json!("whole\n"), "{result}");
}

#[tokio::test(flavor = "multi_thread")]
async fn http_05_a_write_whose_client_goes_away_is_whole_or_nothing() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let file = world.root().join("workspaces").join(&workspace).join("work/f");
    let (old, new) = ("a".repeat(4 << 20), "b".repeat(4 << 20));
    for millis in [1, 5, 10, 20, 40, 80] {
        let write = |content: &str| json!({ "workspace_id": workspace, "path": "f", "content": content });
        client.call("write_file", write(&old)).await.expect();
        let dropped =
            tokio::time::timeout(Duration::from_millis(millis), client.call("write_file", write(&new)));
        let _dropped_or_done = dropped.await;
        // The next change of the file queues behind what is under way.
        let edit = json!({ "workspace_id": workspace, "path": "f", "edits": [{ "old_text": "none", "new_text": "" }] });
        client.call("edit_file", edit).await.expect_error();
        let content = std::fs::read_to_string(&file).unwrap();
        assert!(content == old || content == new, "{} bytes of both", content.len());
    }
    let listed = client
        .call("list_files", json!({ "workspace_id": workspace, "include_ignored": true }))
        .await
        .expect();
    assert_eq!(listed["entries"].as_array().unwrap().len(), 1, "{listed}");
}
