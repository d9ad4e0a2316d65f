//! A gateway is killed in the middle of a call.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use support::jobs::end;
use support::{World, wait};

use super::PROMPTLY;

#[tokio::test(flavor = "multi_thread")]
async fn a_job_outlives_the_gateway_that_started_it() {
    let mut world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "run_command", "arguments": {
            "workspace_id": workspace, "command": "for i in $(seq 40); do echo $i; sleep .1; done", "wait_seconds": 40,
        } },
    });
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.post(&call).await?.text().await }
    });
    wait::until("the job", PROMPTLY, async || {
        let listed = client.call("list_jobs", json!({})).await.expect();
        listed["jobs"].as_array().unwrap().len() == 1
    })
    .await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    world.signal_gateway(0, Signal::KILL);
    world.gateway_ended(0).await;
    assert!(waiting.await.unwrap().is_err());
    let second = world.start_gateway().await;
    let client = world.client_of(second);
    let listed = client.call("list_jobs", json!({})).await.expect();
    let job = listed["jobs"][0]["job_id"].as_str().unwrap();
    assert_eq!(end(&client.ended(job).await), (Some("exited"), Some(0)));
    let lines: String = (1..=40).map(|number| format!("{number}\n")).collect();
    assert_eq!(client.output(job).await, lines);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_gateways_show_the_same_jobs() {
    let mut world = World::start().await;
    let second = world.start_gateway().await;
    let (one, two) = (world.client(), world.client_of(second));
    let workspace = one.workspace().await;
    let job = one.start(&workspace, "read x; echo got $x").await;
    let job_id = support::jobs::id(&job).to_owned();
    assert_eq!(end(&two.ended(&job_id).await), (Some("exited"), Some(0)));
    let open = one.run_with(&workspace, "cat", json!({ "keep_stdin_open": true, "wait_seconds": 0 })).await;
    let write = json!({ "job_id": open["job_id"], "text": "through the other\n", "close": true });
    let _written = two.call("write_stdin", write).await.expect();
    let _ended = one.ended(support::jobs::id(&open)).await;
    assert_eq!(two.output(support::jobs::id(&open)).await, "through the other\n");
}
