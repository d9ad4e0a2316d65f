//! Who and what is let in: tokens, hosts, origins, bodies.

use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};

use crate::support::{Gateway, TOKEN, request};

#[tokio::test]
async fn token_in_each_spelling_and_every_doubt_is_401() {
    let gateway = Gateway::start(&[]).await;
    let body = request("ping", json!({})).to_string();
    let spelled = [
        format!("X-Sandbox-Token: {TOKEN}"),
        format!("Authorization: Bearer {TOKEN}"),
        format!("authorization: bearer {TOKEN}"),
        format!("X-API-Key: {TOKEN}"),
    ];
    for header in &spelled {
        let answer = gateway.send("POST", "/mcp", &["Content-Type: application/json", header], &body).await;
        assert_eq!(answer.status, 200, "{header}");
    }
    let other = "X-API-Key: fedcba9876543210fedcba9876543210";
    let prefix = format!("X-Sandbox-Token: {}", &TOKEN[..31]);
    let doubts: [&[&str]; 7] = [
        &[],
        &["X-Sandbox-Token:"],
        &[other],
        &[&prefix],
        &[&spelled[0], other],
        &[&spelled[0], &spelled[0]],
        &["Authorization: Basic dTpw"],
    ];
    let mut bodies = Vec::new();
    for headers in doubts {
        let answer = gateway
            .send("POST", "/mcp", &[&["Content-Type: application/json"], headers].concat(), &body)
            .await;
        assert_eq!(answer.status, 401, "{headers:?}");
        assert!(!answer.head.contains("www-authenticate"), "it would start OAuth");
        assert!(answer.json()["error"]["message"].as_str().unwrap().contains("X-Sandbox-Token"));
        bodies.push(answer.body);
    }
    bodies.dedup();
    assert_eq!(bodies.len(), 1, "the answer tells what was wrong: {bodies:?}");
    let query = format!("/mcp?api_key={TOKEN}");
    for method in ["GET", "DELETE", "OPTIONS"] {
        assert_eq!(gateway.send(method, "/mcp", &[], "").await.status, 401, "{method}");
    }
    assert_eq!(gateway.send("POST", &query, &["Content-Type: application/json"], &body).await.status, 401);
}

#[tokio::test]
async fn token_in_the_query_only_where_a_setting_allows_it() {
    let gateway = Gateway::start(&["--allow-query-token"]).await;
    let body = request("ping", json!({})).to_string();
    let query = format!("/mcp?api_key={TOKEN}");
    assert_eq!(gateway.send("POST", &query, &["Content-Type: application/json"], &body).await.status, 200);
}

#[tokio::test]
async fn wrong_tokens_are_slowed_and_right_ones_are_not() {
    let gateway = Gateway::start(&[]).await;
    for _ in 0..10 {
        gateway.send("POST", "/mcp", &["X-Sandbox-Token: wrong"], "").await;
    }
    let start = Instant::now();
    assert_eq!(gateway.send("POST", "/mcp", &["X-Sandbox-Token: wrong"], "").await.status, 401);
    assert!(start.elapsed() >= Duration::from_secs(1));
    let start = Instant::now();
    assert_eq!(gateway.post(&request("ping", json!({}))).await.status, 200);
    assert!(start.elapsed() < Duration::from_millis(500));
}

#[tokio::test]
async fn http_07_names_of_the_server() {
    let gateway =
        Gateway::start(&["--public-url=https://mcp.example.com", "--allowed-hosts=other.example"]).await;
    let ping = request("ping", json!({}));
    for host in [
        "mcp.example.com",
        "mcp.example.com:443",
        "MCP.EXAMPLE.COM",
        "mcp.example.com.",
        "other.example:8000",
        "[::1]:80",
    ] {
        assert_eq!(gateway.post_with(&[&format!("Host: {host}")], &ping).await.status, 200, "{host}");
        // The protocol's machinery must not refuse what is let in.
        let list = request("tools/list", json!({ "x": 1 }));
        assert_eq!(gateway.post_with(&[&format!("Host: {host}")], &list).await.status, 200, "{host}");
    }
    let answer = gateway.post_with(&["Host: evil.com", "X-Forwarded-Host: mcp.example.com"], &ping).await;
    assert_eq!(
        (answer.status, answer.json()["error"]["data"]["reason"].as_str()),
        (403, Some("host_not_allowed"))
    );
    assert_eq!(gateway.post_with(&["Host: localhost", "Host: localhost"], &ping).await.status, 400);
    let answer = gateway.raw(b"POST /mcp HTTP/1.1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!(answer.status, 400);
    assert_eq!(gateway.send("GET", "/healthz", &["Host: 10.0.0.7:8000"], "").await.status, 200, "a probe");
}

#[tokio::test]
async fn http_07_http2_without_tls_has_an_authority_instead_of_a_host() {
    let gateway = Gateway::start(&["--allowed-hosts=mcp.example.com"]).await;
    let io = TokioIo::new(gateway.connect().await);
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    for (authority, status) in [("mcp.example.com", 200), ("evil.com", 403), ("localhost:8000", 200)] {
        let message = hyper::Request::post(format!("http://{authority}/mcp"))
            .header("x-sandbox-token", TOKEN)
            .header("content-type", "application/json")
            .body(Full::<bytes::Bytes>::from(request("tools/list", json!({ "x": 1 })).to_string()))
            .unwrap();
        let response = client.send_request(message).await.unwrap();
        assert_eq!(response.status(), status, "{authority}");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(serde_json::from_slice::<Value>(&body).is_ok());
    }
}

#[tokio::test]
async fn http_08_origins() {
    let gateway = Gateway::start(&["--allowed-origins=https://app.example.com"]).await;
    let list = request("tools/list", json!({ "x": 1 }));
    for (origin, status) in [
        ("https://evil.com", 403),
        ("null", 403),
        ("https://app.example.com", 200),
        ("http://127.0.0.1:4321", 200),
        ("http://localhost:3000", 200),
    ] {
        let answer = gateway.post_with(&[&format!("Origin: {origin}")], &list).await;
        assert_eq!(answer.status, status, "{origin}");
        assert!(!answer.head.contains("access-control"), "{origin}");
    }
    let preflight = ["Origin: https://evil.com", "Access-Control-Request-Method: POST"];
    let answer = gateway.send("OPTIONS", "/mcp", &preflight, "").await;
    assert_eq!(answer.status, 403);
    assert!(!answer.head.contains("access-control"));
}

#[tokio::test]
async fn http_10_bodies_that_are_too_large_or_no_messages() {
    let limit = 1 << 20;
    let gateway = Gateway::start(&["--max-body-bytes=1048576"]).await;
    let of_size = |size: usize| {
        let empty = request("ping", json!({ "x": "" })).to_string().len();
        request("ping", json!({ "x": "a".repeat(size - empty) }))
    };
    for size in [limit - 1, limit] {
        assert_eq!(gateway.post(&of_size(size)).await.status, 200, "{size}");
    }
    let answer = gateway.post(&of_size(limit + 1)).await;
    assert_eq!(answer.status, 413);
    assert!(answer.json()["error"]["message"].as_str().unwrap().contains("1048576"));

    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Sandbox-Token: {TOKEN}\r\nContent-Type: application/json\r\nConnection: close\r\n"
    );
    let start = Instant::now();
    let huge = format!("{head}Content-Length: 10737418240\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(gateway.raw(huge.as_bytes()).await.status, 413);
    assert!(start.elapsed() < Duration::from_secs(1));
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 16, "a".repeat(1 << 16));
    let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n", chunk.repeat(17));
    assert_eq!(gateway.raw(chunked.as_bytes()).await.status, 413);

    let token = format!("X-Sandbox-Token: {TOKEN}");
    let send = async |kind: &str, body: &str| {
        let answer = gateway.send("POST", "/mcp", &[&token, kind], body).await;
        (answer.status, answer.json())
    };
    let json_kind = "Content-Type: application/json; charset=utf-8";
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"x","arguments":{}{}}}}}"#,
        "[".repeat(1_000),
        "]".repeat(1_000)
    );
    for (body, code) in [
        (r#"{"jsonrpc":"2.0","id":1,"meth"#, -32700),
        ("", -32700),
        ("nonsense", -32700),
        ("\u{0}", -32700),
        (deep.as_str(), -32600),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600),
        (r#"{"id":1,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, -32600),
    ] {
        let (status, answer) = send(json_kind, body).await;
        assert_eq!(
            (status, &answer["error"]["code"]),
            (400, &json!(code)),
            "{}",
            &body[..body.len().min(80)]
        );
    }
    assert_eq!(send("Content-Type: text/plain", "{}").await.0, 415);
    assert_eq!(send("X-No-Type: 1", "{}").await.0, 415);
    let gzip = gateway.send("POST", "/mcp", &[&token, json_kind, "Content-Encoding: gzip"], "x").await;
    assert_eq!(gzip.status, 415);
    assert!(gzip.json()["error"]["message"].is_string());
    assert_eq!(gateway.post(&request("ping", json!({}))).await.status, 200, "the gateway lives");
}
