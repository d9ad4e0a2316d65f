//! `get_overview`: the one call after which an agent that has lost its memory knows what it had.

use serde_json::{Value, json};
use support::{World, jobs::id};

fn ids(rows: &Value, key: &str) -> Vec<String> {
    rows.as_array().unwrap().iter().map(|row| row[key].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_lives_and_what_ended_lately_is_there() {
    let world = World::start().await;
    let client = world.client();
    let made = client.call("create_workspace", json!({ "name": "app", "python": false })).await.expect();
    let workspace = made["workspace_id"].as_str().unwrap();
    let running = client.start("app", "sleep 60").await;
    let ended = client.run("app", "echo data > f; exit 3").await;
    let open = client.open_with("app", json!({ "name": "repl", "command": "cat" })).await;
    let closed = client.open("app", "exit 4").await;
    client.terminal_ended(&closed).await;
    let download =
        client.call("create_download", json!({ "workspace_id": "app", "path": "f" })).await.expect();
    let seen = client.call("get_overview", json!({})).await.expect();
    assert_eq!(ids(&seen["workspaces"], "workspace_id"), [workspace]);
    assert_eq!(ids(&seen["running_jobs"], "job_id"), [id(&running)]);
    assert_eq!(ids(&seen["ended_jobs"], "job_id"), [id(&ended)]);
    assert_eq!(seen["ended_jobs"][0]["exit_code"], 3);
    assert_eq!(ids(&seen["terminals"], "terminal_id"), [open["terminal_id"].as_str().unwrap()]);
    assert_eq!(
        (&seen["terminals"][0]["name"], &seen["terminals"][0]["status"]),
        (&json!("repl"), &json!("running"))
    );
    assert_eq!(ids(&seen["ended_terminals"], "terminal_id"), [closed["terminal_id"].as_str().unwrap()]);
    assert_eq!(ids(&seen["links"], "download_id"), [download["download_id"].as_str().unwrap()]);
    let secret = download["url"].as_str().unwrap().split('/').nth(4).unwrap();
    assert!(!seen.to_string().contains(secret), "the overview holds the secret of a link");
    let none = client.call("get_overview", json!({ "since_seconds": 0 })).await.expect();
    assert_eq!((&none["ended_jobs"], &none["ended_terminals"]), (&json!([]), &json!([])));
}
