//! The protocol as clients of both eras meet it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Gateway, MODERN, TOKEN, modern_meta, request, text};

fn initialize(version: &str) -> Value {
    let params = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } });
    request("initialize", params)
}

#[tokio::test]
async fn every_revision_is_served_from_one_endpoint() {
    let gateway = Gateway::start(&[]).await;
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let answer = gateway.post(&initialize(version)).await.json();
        assert_eq!(answer["result"]["protocolVersion"], version);
        let instructions = answer["result"]["instructions"].as_str().unwrap();
        assert!(instructions.chars().count() <= 1_500);
    }
    assert_eq!(
        gateway.post(&initialize("2026-07-28")).await.json()["result"]["protocolVersion"],
        "2025-11-25"
    );
    let discover = request("server/discover", json!({ "_meta": modern_meta() }));
    let answer =
        gateway.post_with(&[&MODERN[..], &["Mcp-Method: server/discover"]].concat(), &discover).await.json();
    assert_eq!(answer["result"]["supportedVersions"].as_array().unwrap().len(), 5, "{answer}");
    let notification = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let answer = gateway.post(&notification).await;
    assert_eq!((answer.status, answer.body.as_str()), (202, ""));
}

#[tokio::test]
async fn list_of_tools_in_both_eras_prepared_or_not() {
    let gateway = Gateway::start(&[]).await;
    let prepared =
        gateway.post(&json!({ "jsonrpc": "2.0", "id": "a\u{e9}", "method": "tools/list" })).await.json();
    assert_eq!(prepared["id"], "a\u{e9}");
    // A parameter that the prepared answer does not know takes the long way.
    let made = gateway.post(&request("tools/list", json!({ "unknown": 1 }))).await.json();
    assert_eq!(prepared["result"], made["result"]);
    assert_eq!(prepared["result"].as_object().unwrap().len(), 1, "tools alone");

    let headers = [&MODERN[..], &["Mcp-Method: tools/list"]].concat();
    let prepared =
        gateway.post_with(&headers, &request("tools/list", json!({ "_meta": modern_meta() }))).await.json();
    let long_way = request("tools/list", json!({ "_meta": modern_meta(), "unknown": 1 }));
    let made = gateway.post_with(&headers, &long_way).await.json();
    assert_eq!(prepared["result"], made["result"]);
    assert_eq!(prepared["result"]["ttlMs"], 300_000);
    assert_eq!(prepared["result"]["cacheScope"], "public");
    assert_eq!(prepared["result"]["resultType"], "complete");
    let tools = prepared["result"]["tools"].as_array().unwrap();
    assert!(tools.is_sorted_by(|one, other| one["name"].as_str() < other["name"].as_str()));
    let tokens = serde_json::to_string(tools).unwrap().chars().count() / 4;
    println!("{} tools, {tokens} tokens", tools.len());

    let answer = gateway.post(&request("tools/list", json!({ "cursor": "x" }))).await.json();
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    assert_eq!(gateway.post(&request("ping", json!({}))).await.json()["result"], json!({}));
}

/// Neither takes an executor: the argument is refused before.
#[tokio::test]
async fn call_of_a_tool_in_both_eras_plain_or_not() {
    let gateway = Gateway::start(&[]).await;
    let call = |meta: Value| {
        let params = json!({ "name": "list_jobs", "arguments": { "unknown": 1 }, "_meta": meta });
        json!({ "jsonrpc": "2.0", "id": "a\u{e9}", "method": "tools/call", "params": params })
    };
    // A call that wants to know of its progress takes the long way.
    let watched = |mut meta: Value| {
        meta["progressToken"] = json!(1);
        call(meta)
    };
    let headers = [&MODERN[..], &["Mcp-Method: tools/call", "Mcp-Name: list_jobs"]].concat();
    for (headers, meta) in [(&[][..], json!({})), (&headers[..], modern_meta())] {
        let plain = gateway.post_with(headers, &call(meta.clone())).await;
        let long_way = gateway.post_with(headers, &watched(meta)).await;
        assert_eq!(plain.status, 200);
        assert!(text(&plain.json()["result"]).contains("unknown argument 'unknown'"), "{}", plain.body);
        assert_eq!(plain.json()["result"]["isError"], true);
        assert_eq!(plain.json(), long_way.json());
        assert_eq!(plain.head.contains("application/json"), long_way.head.contains("application/json"));
    }
}

#[tokio::test]
async fn modern_calls_with_headers_that_disagree_are_refused() {
    let gateway = Gateway::start(&[]).await;
    let message =
        request("tools/call", json!({ "name": "list_jobs", "arguments": {}, "_meta": modern_meta() }));
    for headers in [
        &["Mcp-Method: tools/call"][..],
        &["Mcp-Method: tools/call", "Mcp-Name: list_files"],
        &["Mcp-Method: tools/list", "Mcp-Name: list_jobs"],
        &["Mcp-Method: tools/call", "Mcp-Name: list_jobs", "Mcp-Name: list_files"],
    ] {
        let answer = gateway.post_with(&[&MODERN[..], headers].concat(), &message).await;
        assert_eq!((answer.status, &answer.json()["error"]["code"]), (400, &json!(-32020)), "{headers:?}");
    }
    let nothing_said = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28" });
    let message =
        request("tools/call", json!({ "name": "list_jobs", "arguments": {}, "_meta": nothing_said }));
    let headers = [&MODERN[..], &["Mcp-Method: tools/call", "Mcp-Name: list_jobs"]].concat();
    let answer = gateway.post_with(&headers, &message).await;
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (400, &json!(-32602)), "{}", answer.body);
}

#[tokio::test]
async fn modern_requests_with_headers_that_disagree_are_refused() {
    let gateway = Gateway::start(&[]).await;
    let message = request("tools/list", json!({ "_meta": modern_meta() }));
    for headers in [
        &["MCP-Protocol-Version: 2026-07-28"][..],
        &["MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call"],
        &["MCP-Protocol-Version: 2025-11-25", "Mcp-Method: tools/list"],
        &["Mcp-Method: tools/list"],
    ] {
        let answer = gateway.post_with(headers, &message).await;
        assert_eq!((answer.status, &answer.json()["error"]["code"]), (400, &json!(-32020)), "{headers:?}");
    }
    let answer =
        gateway.post_with(&["MCP-Protocol-Version: 1999-01-01"], &request("tools/list", json!({}))).await;
    assert_eq!(answer.status, 400);
    assert!(answer.json()["error"]["message"].as_str().unwrap().contains("1999-01-01"));
}

#[tokio::test]
async fn toolsets_narrow_the_list() {
    let gateway = Gateway::start(&["--toolsets=jobs,read_file"]).await;
    let answer = gateway.post(&request("tools/list", json!({}))).await.json();
    let names: Vec<&str> = answer["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["cancel_job", "list_jobs", "read_file", "read_output", "run_command", "wait_for", "write_stdin"]
    );
    let answer =
        gateway.post(&request("tools/call", json!({ "name": "write_file", "arguments": {} }))).await.json();
    assert_eq!(answer["error"]["code"], -32602);
}

#[tokio::test]
async fn http_01_old_session_ids_are_no_hindrance() {
    let gateway = Gateway::start(&[]).await;
    let token = format!("X-Sandbox-Token: {TOKEN}");
    for session in ["Mcp-Session-Id: 9f2c", "Mcp-Session-Id: invented"] {
        assert_eq!(gateway.post_with(&[session], &request("ping", json!({}))).await.status, 200);
        assert_eq!(
            gateway.post_with(&[session], &request("tools/list", json!({ "x": 1 }))).await.status,
            200
        );
        for method in ["GET", "DELETE"] {
            let answer = gateway.send(method, "/mcp", &[session, &token], "").await;
            assert_eq!(answer.status, 405, "{method}");
            assert!(answer.head.contains("allow: post"));
        }
        assert_eq!(gateway.post_with(&[session], &initialize("2025-11-25")).await.status, 200);
    }
}

#[tokio::test]
async fn http_06_every_accept_header_is_served_in_its_form() {
    let gateway = Gateway::start(&[]).await;
    for message in [request("ping", json!({})), initialize("2025-11-25"), request("tools/list", json!({}))] {
        for (headers, kind) in [
            (&["Accept: application/json, text/event-stream"][..], "application/json"),
            (&["Accept: text/event-stream, application/json"], "application/json"),
            (&["Accept: application/json;q=0.5, text/event-stream;q=0.5"], "application/json"),
            (&["Accept: application/json", "Accept: text/event-stream"], "application/json"),
            (&["Accept: application/json"], "application/json"),
            (&["Accept: application/*"], "application/json"),
            (&["Accept: */*"], "application/json"),
            (&[], "application/json"),
            (&["Accept: text/event-stream"], "text/event-stream"),
        ] {
            let answer = gateway.post_with(headers, &message).await;
            assert_eq!(answer.status, 200, "{headers:?}");
            assert!(answer.head.contains(&format!("content-type: {kind}")), "{headers:?}: {}", answer.head);
            assert!(answer.message()["result"].is_object());
        }
        let answer = gateway.post_with(&["Accept: text/html"], &message).await;
        assert_eq!(answer.status, 406);
        assert!(answer.json()["error"]["message"].as_str().unwrap().contains("application/json"));
    }
}

#[tokio::test]
async fn http_19_bad_arguments_are_named() {
    let gateway = Gateway::start(&[]).await;
    for (tool, arguments, word) in [
        ("run_command", json!({ "command": "true" }), "'workspace_id' is missing"),
        (
            "run_command",
            json!({ "workspace_id": "w", "command": "true", "cmd": 1 }),
            "unknown argument 'cmd'",
        ),
        (
            "run_command",
            json!({ "workspace_id": "w", "command": "true", "wait_seconds": "5" }),
            "wait_seconds: expected an integer from 0 to 50",
        ),
        (
            "run_command",
            json!({ "workspace_id": "w", "command": "true", "wait_seconds": 51 }),
            "from 0 to 50, got 51",
        ),
        (
            "run_command",
            json!({ "workspace_id": "w", "command": "true", "timeout_seconds": 0 }),
            "from 1 to 86400, got 0",
        ),
        ("run_command", json!({ "workspace_id": "w", "command": "true", "timeout_seconds": -1 }), "got -1"),
        ("run_command", json!({ "workspace_id": "w", "command": null }), "'command' is missing"),
        (
            "read_output",
            json!({ "job_id": "j", "cursor": "end" }),
            "cursor: expected an integer of 0 or more or \"tail\"",
        ),
        (
            "read_file",
            json!({ "workspace_id": "w", "path": "a", "encoding": "latin1" }),
            "\"utf-8\" or \"base64\"",
        ),
        ("read_file", json!({ "workspace_id": "w", "path": "a", "offset": 1, "start_line": 1 }), "not both"),
        (
            "write_file",
            json!({ "workspace_id": "w", "path": "a", "content": "!", "encoding": "base64" }),
            "content: expected standard base64",
        ),
        (
            "edit_file",
            json!({ "workspace_id": "w", "path": "a", "edits": [{ "old_text": "a" }] }),
            "'edits[0].new_text' is missing",
        ),
        (
            "edit_file",
            json!({ "workspace_id": "w", "path": "a", "edits": [] }),
            "edits: expected an array that is not empty",
        ),
        ("write_stdin", json!({ "job_id": "j" }), "expected text, base64 or close"),
        ("create_workspace", json!({ "git_ref": "main" }), "git_url"),
    ] {
        let start = Instant::now();
        let result = gateway.call(tool, arguments.clone()).await;
        assert!(start.elapsed() < Duration::from_secs(1));
        assert_eq!(result["isError"], true, "{tool} {arguments}");
        let text = text(&result);
        assert!(text.starts_with("INVALID_ARGUMENT: ") && text.contains(word), "{tool} {arguments}: {text}");
        assert!(text.contains("\nretryable: false\nnext: "), "{text}");
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_are_json_too() {
    let gateway = Gateway::start(&[]).await;
    for path in ["/", "/.well-known/oauth-protected-resource", "/mcp/x", "/mcpx"] {
        let answer = gateway.send("GET", path, &[], "").await;
        assert_eq!((answer.status, answer.json()["error"].as_str()), (404, Some("not_found")), "{path}");
    }
    assert_eq!(gateway.send("POST", "/healthz", &[], "").await.status, 405);
    let token = format!("X-Sandbox-Token: {TOKEN}");
    let body = request("ping", json!({})).to_string();
    let answer = gateway.send("POST", "/mcp/", &[&token, "Content-Type: application/json"], &body).await;
    assert_eq!(answer.status, 200);
    let answer = gateway.post(&request("no/such", json!({}))).await;
    assert_eq!(answer.json()["error"]["code"], -32601);
}
