//! The main job: a workspace, commands in parallel, output as it grows, files.

use std::time::{Duration, Instant};

use serde_json::json;
use support::World;

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_works_in_a_workspace() {
    let world = World::start().await;
    let client = world.client();
    let made = client.call("create_workspace", json!({ "name": "demo" })).await.expect();
    assert_eq!((made["status"].as_str(), made["name"].as_str()), (Some("ready"), Some("demo")));

    let job = client.run("demo", "python3 -c 'print(6 * 7)'; pwd").await;
    let path = made["path"].as_str().unwrap();
    assert_eq!((job["status"].as_str(), job["exit_code"].as_i64()), (Some("exited"), Some(0)));
    assert_eq!(job["output"].as_str(), Some(format!("42\n{path}\n").as_str()));

    let written = client
        .call("write_file", json!({ "workspace_id": "demo", "path": "a.txt", "content": "one\ntwo\n" }))
        .await;
    assert_eq!(written.expect()["created"], json!(true));
    let edit =
        json!({ "workspace_id": "demo", "path": "a.txt", "edits": [{ "old_text": "two", "new_text": "2" }] });
    assert!(client.call("edit_file", edit).await.text().contains("-two\n+2\n"));
    assert_eq!(client.run("demo", "cat a.txt").await["output"], json!("one\n2\n"));
    let found = client.call("search_files", json!({ "workspace_id": "demo", "pattern": "^o" })).await;
    assert!(found.text().contains("a.txt:1:one"), "{}", found.text());

    let gone = client.call("delete_workspace", json!({ "workspace_id": "demo" })).await.expect();
    assert_eq!(gone["workspace_id"], made["workspace_id"]);
    assert!(!std::path::Path::new(path).exists());
    let error = client.call("get_workspace", json!({ "workspace_id": "demo" })).await.expect_error();
    assert_eq!(error["code"], json!("WORKSPACE_NOT_FOUND"));
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_read_as_it_grows() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let start = json!({
        "workspace_id": workspace, "command": "echo A; sleep 1; echo B; exit 5", "wait_seconds": 0,
    });
    let job = client.call("run_command", start).await.expect();
    assert_eq!((job["status"].as_str(), job["exit_code"].is_null()), (Some("running"), true));
    let mut cursor = job["next_cursor"].as_u64().unwrap();
    let mut text = job["output"].as_str().unwrap().to_owned();
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let read = json!({ "job_id": job["job_id"], "cursor": cursor, "wait_seconds": 5 });
        let next = client.call("read_output", read).await.expect();
        text += next["output"].as_str().unwrap();
        cursor = next["next_cursor"].as_u64().unwrap();
        if next["status"] != json!("running") {
            assert_eq!((next["status"].as_str(), next["exit_code"].as_i64()), (Some("exited"), Some(5)));
            break;
        }
        assert!(Instant::now() < end);
    }
    assert_eq!(text, "A\nB\n");
}
