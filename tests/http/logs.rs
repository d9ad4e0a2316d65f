//! The logs of both programs tell who called what, and nothing of what was said.

use serde_json::json;
use support::World;
use support::world::TOKEN;

#[tokio::test(flavor = "multi_thread")]
async fn logs_hold_no_command_no_content_and_no_token() {
    for level in ["info", "debug"] {
        let world = World::builder().executor("RUNLET_LOG", level).gateway("RUNLET_LOG", level).start().await;
        let client = world.client();
        let workspace = client
            .call(
                "create_workspace",
                json!({ "name": "logged", "python": false, "env": { "V": "CANARY-env" } }),
            )
            .await
            .expect()["workspace_id"]
            .clone();
        let run = json!({
            "workspace_id": workspace, "command": "echo CANARY-command; cat; exit 3", "stdin": "CANARY-stdin",
            "env": { "W": "CANARY-variable" }, "wait_seconds": 20,
        });
        let job = client.call("run_command", run).await.expect();
        assert_eq!(job["exit_code"], json!(3));
        client.call("read_output", json!({ "job_id": job["job_id"] })).await.expect();
        let write = json!({ "workspace_id": workspace, "path": "CANARY-name", "content": "CANARY-content" });
        client.call("write_file", write).await.expect();
        let edit = json!({ "workspace_id": workspace, "path": "CANARY-name", "edits": [
            { "old_text": "CANARY-absent", "new_text": "CANARY-new" },
        ] });
        client.call("edit_file", edit).await.expect_error();
        client.call("search_files", json!({ "workspace_id": workspace, "pattern": "CANARY" })).await.expect();
        client
            .call("run_command", json!({ "workspace_id": "CANARY ws", "command": "CANARY" }))
            .await
            .expect_error();
        let odd =
            client.rpc("tools/call", json!({ "name": "CANARY-tool", "arguments": { "a": "CANARY" } })).await;
        assert!(odd.unwrap()["error"].is_object());
        let wrong = support::Client::new(world.base(), "CANARY-token-0123456789-0123456789-0123456789");
        assert_eq!(wrong.post(&json!({})).await.unwrap().status(), 401);
        client.call("delete_workspace", json!({ "workspace_id": "logged" })).await.expect();

        let logs = world.logs();
        for told in ["run_command", "write_file", "edit_file", "EDIT_NOT_FOUND"] {
            assert!(logs.contains(told), "{level}: no line tells of {told}: {logs}");
        }
        let line = logs.lines().find(|line| line.contains("CANARY") || line.contains(TOKEN));
        assert!(line.is_none(), "{level}: {line:?}");
        let secret = std::fs::read_to_string(format!("{}.secret", world.socket().display())).unwrap();
        assert!(!logs.contains(secret.trim()), "{level}: the executor's secret is in a log");
    }
}
