//! Which sandbox a run gets.

use std::collections::HashSet;

use serde_json::{Value, json};
use support::{Client, World};

async fn run(client: &Client, arguments: Value) -> Value {
    client.call("run_code", arguments).await.expect()
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_sandbox_is_used_again_with_what_it_holds() {
    let world = World::start().await;
    let client = world.client();
    let first = run(&client, json!({ "command": "echo 1 > kept; exit 3", "files": { "a": "old" } })).await;
    assert_eq!((&first["reused"], &first["job"]["exit_code"]), (&json!(false), &json!(3)), "{first}");
    let second = run(&client, json!({ "command": "cat kept a", "files": { "a": "new" } })).await;
    assert_eq!((&second["reused"], &second["sandbox_id"]), (&json!(true), &first["sandbox_id"]));
    assert_eq!(second["job"]["output"], json!("1\nnew"));
    let shown =
        client.call("list_sandboxes", json!({ "metadata": { "purpose": "code-testing" } })).await.expect();
    assert_eq!(shown["sandboxes"].as_array().unwrap().len(), 1);
    // Other variables take another one.
    let other = run(&client, json!({ "command": "echo $A", "env": { "A": "b" } })).await;
    assert_eq!((&other["reused"], &other["job"]["output"]), (&json!(false), &json!("b\n")), "{other}");
    // One that has been ended is not used.
    client.call("shutdown_sandbox", json!({ "sandbox_id": first["sandbox_id"] })).await.expect();
    assert_eq!(run(&client, json!({ "command": "ls -A" })).await["reused"], json!(false));
}

#[tokio::test(flavor = "multi_thread")]
async fn busy_sandbox_is_left_alone() {
    let world = World::start().await;
    let client = world.client();
    let busy = run(&client, json!({ "command": "echo up; sleep 33020.1", "wait_seconds": 1 })).await;
    assert_eq!(busy["job"]["status"], json!("running"));
    let next = run(&client, json!({ "command": "echo next" })).await;
    assert_eq!(next["reused"], json!(false));
    assert_ne!(next["sandbox_id"], busy["sandbox_id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_at_once_get_one_each() {
    let world = World::start().await;
    let runs = (0..20).map(|number| {
        let client = world.client();
        tokio::spawn(async move {
            run(&client, json!({ "command": format!("echo {number} > n; sleep 2; cat n") })).await
        })
    });
    let mut seen = HashSet::new();
    for (number, task) in runs.collect::<Vec<_>>().into_iter().enumerate() {
        let ran = task.await.unwrap();
        assert_eq!(ran["job"]["output"], json!(format!("{number}\n")), "{ran}");
        assert!(seen.insert(ran["sandbox_id"].as_str().unwrap().to_owned()), "{ran}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn new_sandbox_goes_when_its_run_could_not_begin() {
    let world = World::start().await;
    let client = world.client();
    let arguments = json!({ "command": "true", "files": { "../../../x": "" } });
    let error = client.call("run_code", arguments).await.expect_error();
    assert_eq!(error["code"], json!("PATH_OUTSIDE_WORKSPACE"), "{error}");
    let listed = client.call("list_sandboxes", json!({})).await.expect();
    assert_eq!(listed["sandboxes"], json!([]));
    let ended = client.call("list_sandboxes", json!({ "status": "shutdown" })).await.expect();
    assert_eq!(ended["sandboxes"][0]["end_reason"], json!("failed"));
}
