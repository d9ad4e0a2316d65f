//! What prompts written for hosted services do, as it stands there.

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde_json::{Value, json};
use support::{World, terminals::shown};

use crate::sandbox;

#[tokio::test(flavor = "multi_thread")]
async fn code_is_run_in_one_call() {
    let world = World::start().await;
    let files = json!({ "/home/user/test_app.py": "assert 2 + 2 == 4\nprint('passed')\n" });
    let run = json!({ "files": files, "command": "python3 /home/user/test_app.py" });
    let ran = world.client().call("run_code", run).await.expect();
    assert_eq!((&ran["job"]["exit_code"], &ran["job"]["output"]), (&json!(0), &json!("passed\n")), "{ran}");
    assert_eq!(ran["reused"], json!(false));
    assert_eq!(ran["job"]["workspace_id"], ran["sandbox_id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn project_is_tested_and_its_report_fetched() {
    let world = World::start().await;
    let client = world.client();
    let package = json!({ "scripts": { "test": "node check.js > report.xml && echo tested" } }).to_string();
    let files = json!({
        "/home/user/package.json": package,
        "check.js": "console.log('<report tests=\"1\"/>')",
        "/tmp/deep/er/x": "y",
    });
    let id = sandbox(&client, json!({ "files": files, "metadata": { "for": "npm" } })).await;
    let run = json!({ "sandbox_id": id, "command": "cd /home/user && npm test && cat /tmp/deep/er/x" });
    let ran = client.call("execute_in_sandbox", run).await.expect();
    assert_eq!(ran["exit_code"], json!(0), "{ran}");
    assert!(ran["output"].as_str().unwrap().ends_with("tested\ny"), "{ran}");
    let fetch = json!({ "sandbox_id": id, "file_path": "/home/user/report.xml" });
    let fetched = client.call("download_artifact", fetch).await.expect();
    let content = BASE64.decode(fetched["content"].as_str().unwrap()).unwrap();
    assert_eq!(content, b"<report tests=\"1\"/>\n");
    let bytes: Vec<u8> = (0..=255).collect();
    let sent = json!({ "sandbox_id": id, "file_path": "b", "content": BASE64.encode(&bytes) });
    let sent = client.call("upload_file", sent).await.expect();
    assert_eq!(sent["path"], json!("/home/user/b"));
    let sum = json!({ "sandbox_id": id, "command": "sha256sum b | cut -c1-64" });
    let sum = client.call("execute_in_sandbox", sum).await.expect();
    assert_eq!(sum["output"].as_str().unwrap().trim(), sent["sha256"]);

    let listed = client.call("list_sandboxes", json!({ "metadata": { "for": "npm" } })).await.expect();
    assert_eq!(listed["sandboxes"].as_array().unwrap().len(), 1);
    assert_eq!(listed["sandboxes"][0]["id"], json!(id));
    let gone = client.call("shutdown_sandbox", json!({ "sandbox_id": id })).await.expect();
    assert_eq!((&gone["status"], &gone["end_reason"]), (&json!("shutdown"), &json!("shutdown")));
    let after = json!({ "sandbox_id": id, "command": "true" });
    let after = client.call("execute_in_sandbox", after).await.expect_error();
    assert_eq!(after["code"], json!("WORKSPACE_NOT_FOUND"));
    let shown = client.call("get_sandbox", json!({ "sandbox_id": id })).await.expect();
    assert_eq!(shown["status"], json!("shutdown"));
    let listed = client.call("list_sandboxes", json!({ "metadata": { "for": "npm" } })).await.expect();
    assert_eq!(listed["sandboxes"], json!([]));
    let ended = client.call("list_sandboxes", json!({ "status": "shutdown" })).await.expect();
    assert_eq!(ended["sandboxes"][0]["id"], json!(id));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_other_tool_takes_its_id() {
    let world = World::start().await;
    let client = world.client();
    let id = sandbox(&client, json!({ "name": "box", "env": { "GREETING": "hello" } })).await;
    let call = async |tool: &str, mut arguments: Value| {
        arguments["workspace_id"] = json!("box");
        client.call(tool, arguments).await.expect()
    };
    let job =
        call("run_command", json!({ "command": "echo $GREETING; pwd; echo $HOME; id -u; ls -A" })).await;
    assert_eq!(job["output"], json!("hello\n/home/user\n/home/user\n0\n"), "{job}");
    call("write_file", json!({ "path": "src/a.txt", "content": "one\ntwo\n" })).await;
    call("edit_file", json!({ "path": "~/src/a.txt", "edits": [{ "old_text": "two", "new_text": "zwei" }] }))
        .await;
    let read = call("read_file", json!({ "path": "/home/user/src/a.txt" })).await;
    assert_eq!(read["content"], json!("one\nzwei\n"), "{read}");
    let linked =
        call("run_command", json!({ "command": "ln -s /home/user/src/a.txt link && cat link" })).await;
    assert_eq!(linked["output"], json!("one\nzwei\n"));
    assert_eq!(call("read_file", json!({ "path": "link" })).await["content"], json!("one\nzwei\n"));
    let found = call("search_files", json!({ "pattern": "zwei" })).await;
    assert!(found.to_string().contains("src/a.txt"), "{found}");
    let made = call("create_download", json!({ "path": "src" })).await;
    assert!(made["size"].as_u64().or(made["size_bytes"].as_u64()).unwrap() > 0, "{made}");
    let shell = call("run_command", json!({ "command": "cd src; X=1", "shell": "s" })).await;
    assert_eq!(shell["exit_code"], json!(0));
    let shell = call("run_command", json!({ "command": "echo $X $PWD", "shell": "s" })).await;
    assert_eq!(shell["output"], json!("1 /home/user/src\n"));
    let terminal = client.open(&id, "").await;
    let seen = client.enter(&terminal, "test -t 0 && echo answer $((6*7))", "answer 42").await;
    assert!(shown(&seen).contains("answer 42"), "{seen}");
    let overview = client.call("get_overview", json!({})).await.expect();
    assert_eq!(overview["executor"]["sandbox_isolation"], json!("namespaces"), "{overview}");
    assert!(overview["workspaces"].to_string().contains(&id), "{overview}");
    let listed = client.call("list_workspaces", json!({})).await.expect();
    assert_eq!(listed["workspaces"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_named() {
    let world = World::start().await;
    let client = world.client();
    for (arguments, named) in [
        (json!({ "lifetime_seconds": 59 }), "lifetime_seconds"),
        (json!({ "lifetime_seconds": 3601 }), "lifetime_seconds"),
        (json!({ "files": { "../../../x": "" } }), "../../../x"),
        (json!({ "files": { "": "" } }), "path"),
        (json!({ "metadata": { "a": "x".repeat(20_000) } }), "metadata"),
        (json!({ "env": { "A=B": "" } }), "env"),
        (json!({ "name": "a b" }), "name"),
    ] {
        let error = client.call("create_sandbox", arguments).await.expect_error();
        assert!(error.to_string().contains(named), "{named}: {error}");
    }
    let content = json!({ "sandbox_id": "x", "file_path": "a", "content": "%" });
    let error = client.call("upload_file", content).await.expect_error();
    assert!(error.to_string().contains("base64"), "{error}");
    // Nothing of those that could not be made is left.
    let listed = client.call("list_sandboxes", json!({})).await.expect();
    assert_eq!(listed["sandboxes"], json!([]));
}
