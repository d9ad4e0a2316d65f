//! Requests that are refused do nothing.

use serde_json::json;
use support::World;
use support::world::TOKEN;

#[tokio::test(flavor = "multi_thread")]
async fn http_08_10_a_refused_request_runs_nothing() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let call = |command: &str| {
        json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": "run_command", "arguments": { "workspace_id": workspace, "command": command } },
        })
        .to_string()
    };
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let long = call(&format!("touch ran # {}", "x".repeat(17 << 20)));
    let cut = &call("touch ran")[..60];
    for (status, name, value, body) in [
        (403, "Origin", "https://evil.example", call("touch ran")),
        (403, "Origin", "null", call("touch ran")),
        (403, "Host", "evil.example", call("touch ran")),
        (401, "X-Sandbox-Token", "wrong-0123456789-0123456789-0123456789", call("touch ran")),
        (415, "Content-Encoding", "gzip", call("touch ran")),
        (413, "X-Nothing", "x", long),
        (400, "X-Nothing", "x", cut.to_owned()),
        (400, "X-Nothing", "x", format!("[{}]", call("touch ran"))),
    ] {
        let token = if name == "X-Sandbox-Token" { value } else { TOKEN };
        let request = http
            .post(&client.url)
            .header("X-Sandbox-Token", token)
            .header("Accept", "application/json, text/event-stream")
            .header("Content-Type", "application/json");
        let request = if name == "X-Sandbox-Token" { request } else { request.header(name, value) };
        let answer = request.body(body).send().await.unwrap();
        assert_eq!(answer.status(), status, "{name}: {value}");
        let said = answer.text().await.unwrap();
        assert!(serde_json::from_str::<serde_json::Value>(&said).is_ok(), "{name}: {said}");
    }
    assert_eq!(client.call("list_jobs", json!({})).await.expect()["jobs"], json!([]));
    assert_eq!(client.run(&workspace, "ls").await["output"], json!(""));
}
