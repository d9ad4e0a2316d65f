//! One call and another: a client that goes away, a repeated request, many waits at once, one state for all to see.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::jobs::{end, id};
use support::{Client, World, probe, wait};

const PROMPTLY: Duration = Duration::from_secs(5);

fn call(workspace: &str, command: &str, wait_seconds: u32) -> Value {
    let arguments = json!({ "workspace_id": workspace, "command": command, "wait_seconds": wait_seconds });
    json!({
        "jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": { "name": "run_command", "arguments": arguments },
    })
}

async fn only_job(client: &Client, workspace: &str) -> Value {
    let listed = client.call("list_jobs", json!({ "workspace_id": workspace })).await.expect();
    assert_eq!(listed["jobs"].as_array().unwrap().len(), 1, "{listed}");
    listed["jobs"][0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn http_05_a_client_that_goes_away_does_not_end_its_job() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let leaver = client.clone();
    let body = call(&workspace, "echo begun; sleep 4 && echo done", 40);
    // Dropping the request closes its connection.
    let left = tokio::time::timeout(Duration::from_secs(1), async move {
        let answer = leaver.post(&body).await.unwrap();
        answer.text().await
    });
    assert!(left.await.is_err(), "the answer came too early");
    let job = only_job(&client, &workspace).await;
    assert_eq!(end(&job), (Some("running"), None));
    assert_eq!(end(&client.ended(id(&job)).await), (Some("exited"), Some(0)));
    assert_eq!(client.output(id(&job)).await, "begun\ndone\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn http_05_a_cancelled_request_does_not_end_its_job() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let waiting = tokio::spawn({
        let (client, body) = (client.clone(), call(&workspace, "sleep 3; echo done", 20));
        async move { client.post(&body).await.unwrap().text().await }
    });
    wait::until("the job", PROMPTLY, async || {
        let listed = client.call("list_jobs", json!({})).await.expect();
        listed["jobs"].as_array().unwrap().len() == 1
    })
    .await;
    for request in [json!(7), json!("unknown"), json!(99)] {
        let cancelled = json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": request },
        });
        assert!(client.post(&cancelled).await.unwrap().status().is_success());
    }
    let job = only_job(&client, &workspace).await;
    assert_eq!(end(&client.ended(id(&job)).await), (Some("exited"), Some(0)));
    let _answered = waiting.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn http_05_a_write_whose_client_leaves_is_whole_or_nothing() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let content = "0123456789abcde\n".repeat(50_000);
    for patience in [1, 2, 5, 10, 20, 40, 80] {
        let path = format!("f{patience}");
        let body = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "write_file",
            "arguments": { "workspace_id": workspace, "path": path, "content": content } },
        });
        let _left = tokio::time::timeout(Duration::from_millis(patience), client.post(&body)).await;
    }
    wait::until("every write to be whole or not there", PROMPTLY, async || {
        let sizes = client.run(&workspace, "stat -c %s f* 2>/dev/null; ls -A | grep -cv '^f[0-9]*$'").await;
        sizes["output"].as_str().unwrap().lines().all(|line| line == "800000" || line == "0")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_14_a_job_outlives_the_connection_that_started_it() {
    let world = World::start().await;
    let job = {
        let first = world.client();
        let workspace = first.workspace().await;
        first.start(&workspace, "sleep 3; echo done").await
    };
    let second = world.client();
    assert_eq!(end(&second.ended(id(&job)).await), (Some("exited"), Some(0)));
    assert_eq!(second.output(id(&job)).await, "done\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn http_13_slow_calls_do_not_hold_up_others() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let began = Instant::now();
    let slow: Vec<_> = (0..20)
        .map(|_| {
            tokio::spawn(
                client.call("run_command", call(&workspace, "sleep 6", 30)["params"]["arguments"].clone()),
            )
        })
        .collect();
    let job = client.start(&workspace, "sleep 31313.1").await;
    // More waits than tokio has threads for blocking work. An answer after every few keeps the client itself from being
    // so busy with connecting that the gateway gives up waiting for its requests.
    let read = json!({ "job_id": id(&job), "wait_seconds": 50 });
    let mut waits = Vec::new();
    for _ in 0..20 {
        waits.extend((0..30).map(|_| tokio::spawn(client.call("read_output", read.clone()))));
        let _answer = client.call("list_jobs", json!({ "page_size": 1 })).await.expect();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let asked = Instant::now();
    assert_eq!(client.run(&workspace, "echo hi").await["output"], json!("hi\n"));
    assert!(asked.elapsed() < PROMPTLY, "{:?}", asked.elapsed());
    for answer in slow {
        assert_eq!(end(&answer.await.unwrap().expect()), (Some("exited"), Some(0)));
    }
    // One after the other they would take two minutes.
    assert!(began.elapsed() < Duration::from_secs(45), "{:?}", began.elapsed());
    let _cancelled = client.cancel(id(&job)).await;
    for answer in waits {
        assert_eq!(answer.await.unwrap().expect()["status"], json!("killed"));
    }
    assert_eq!(probe::marked("31313.1"), [0; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn http_14_a_repeated_request_runs_once_when_it_carries_an_id() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let with_id = json!({ "request_id": "r-1" });
    let first = client.run_with(&workspace, "echo x >> n; echo ran", with_id.clone()).await;
    assert_eq!(first["repeated_request"], json!(false));
    let again = client.run_with(&workspace, "echo x >> n; echo ran", with_id).await;
    assert_eq!(
        (&again["repeated_request"], &again["job_id"], &again["output"]),
        (&json!(true), &first["job_id"], &json!("ran\n"))
    );
    // Ten at the same moment are one as well.
    let same = json!({ "workspace_id": workspace, "command": "echo y >> n", "request_id": "r-2", "wait_seconds": 20 });
    let calls: Vec<_> = (0..10).map(|_| tokio::spawn(client.call("run_command", same.clone()))).collect();
    let mut ids = Vec::new();
    for call in calls {
        ids.push(id(&call.await.unwrap().expect()).to_owned());
    }
    ids.dedup();
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert_eq!(client.run(&workspace, "cat n").await["output"], json!("x\ny\n"));
    // Without an id every call is a call of its own, whatever its number in the protocol.
    for _ in 0..2 {
        let _sent = client.post(&call(&workspace, "echo z >> n", 20)).await.unwrap().text().await;
    }
    assert_eq!(client.run(&workspace, "grep -c z n").await["output"], json!("2\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn http_14_tools_say_what_a_repetition_does() {
    let world = World::start().await;
    let answer = world.client().rpc("tools/list", json!({})).await.unwrap();
    let tools = answer["result"]["tools"].as_array().unwrap().clone();
    let hint = |name: &str, hint: &str| {
        tools.iter().find(|tool| tool["name"] == json!(name)).unwrap()["annotations"][hint].clone()
    };
    assert_eq!(hint("run_command", "readOnlyHint"), json!(false));
    assert_eq!(hint("run_command", "idempotentHint"), json!(false));
    for reader in ["read_output", "list_jobs", "read_file", "list_workspaces"] {
        assert_eq!(hint(reader, "readOnlyHint"), json!(true), "{reader}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ws_03_every_answer_tells_the_same_state() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    for (command, cancelled, last) in [
        ("sleep 1; exit 3", false, "exited"),
        ("sleep 600", true, "killed"),
        ("sleep 600 # timed", false, "timed_out"),
    ] {
        let started =
            client.run_with(&workspace, command, json!({ "wait_seconds": 0, "timeout_seconds": 2 })).await;
        let mut seen = vec![started.clone()];
        let began = Instant::now();
        while seen.last().unwrap()["status"] == json!("running") {
            assert!(began.elapsed() < Duration::from_secs(15), "{:?}", seen.last());
            if cancelled && began.elapsed() > Duration::from_millis(300) {
                seen.push(client.cancel(id(&started)).await);
            }
            let listed = client.call("list_jobs", json!({ "workspace_id": workspace })).await.expect();
            seen.push(listed["jobs"][0].clone());
            seen.push(client.job(id(&started)).await);
        }
        let mut ended = false;
        for job in &seen {
            let running = job["status"] == json!("running");
            assert!(!(ended && running), "it ran again after its end: {job}");
            ended |= !running;
            assert_eq!(running, job["exit_code"].is_null(), "{job}");
            assert_eq!(running, job["ended_at"].is_null(), "{job}");
            let started_at = job["started_at"].as_str().unwrap();
            assert!(started_at.ends_with('Z'), "{job}");
            // Times of this form are in order when their texts are.
            assert!(running || job["ended_at"].as_str().unwrap() >= started_at, "{job}");
            assert!(job["duration_seconds"].as_f64().unwrap() >= 0.0, "{job}");
        }
        assert_eq!(seen.last().unwrap()["status"], json!(last), "{command}");
    }
}
