//! What takes time: an executor that is absent or silent, first bytes, slow clients, stopping.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{Gateway, MODERN, TOKEN, modern_meta, request, text};

#[tokio::test]
async fn absent_executor_is_a_clear_error_in_time() {
    let gateway = Gateway::start(&[]).await;
    for path in ["/healthz", "/health", "/healthz/"] {
        let answer = gateway.send("GET", path, &[], "").await;
        assert_eq!((answer.status, answer.json()), (200, json!({ "status": "ok" })));
    }
    let start = Instant::now();
    let answer = gateway.send("GET", "/readyz", &[], "").await;
    assert_eq!(answer.status, 503);
    assert!(answer.json()["message"].as_str().unwrap().contains("executor"));
    assert!(start.elapsed() < Duration::from_secs(5));
    let start = Instant::now();
    let result = gateway.call("list_workspaces", json!({ "page_token": null })).await;
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(result["isError"], true);
    assert!(text(&result).starts_with("EXECUTOR_UNAVAILABLE: "), "{result}");
    assert!(text(&result).contains("retryable: true"));
}

#[tokio::test]
async fn http_17_executor_that_does_not_answer_is_a_clear_error_in_time() {
    let gateway = Gateway::start(&[]).await;
    // As when the executor was sent SIGSTOP: the kernel takes the connection, nobody reads.
    let _stopped = std::os::unix::net::UnixListener::bind(gateway.socket()).unwrap();
    let start = Instant::now();
    let answer = gateway.send("GET", "/readyz", &[], "").await;
    assert_eq!(answer.status, 503);
    let call = json!({ "workspace_id": "w", "command": "true", "wait_seconds": 50 });
    let result = gateway.call("run_command", call).await;
    assert!(start.elapsed() < Duration::from_secs(9), "{:?}", start.elapsed());
    assert!(text(&result).starts_with("EXECUTOR_UNAVAILABLE: "), "{result}");
}

#[tokio::test]
async fn first_byte_of_a_slow_call_comes_in_time_in_both_eras() {
    let gateway = Gateway::start(&[]).await;
    let params = json!({ "name": "list_workspaces", "arguments": {} });
    let legacy = gateway.post(&request("tools/call", params.clone())).await;
    let mut params = params;
    params["_meta"] = modern_meta();
    let headers = [&MODERN[..], &["Mcp-Method: tools/call", "Mcp-Name: list_workspaces"]].concat();
    let modern = gateway.post_with(&headers, &request("tools/call", params)).await;
    for answer in [legacy, modern] {
        assert_eq!(answer.status, 200);
        assert!(answer.head.contains("text/event-stream") && answer.head.contains("x-accel-buffering: no"));
        assert!(answer.first < Duration::from_millis(3_500), "{:?}", answer.first);
        assert!(answer.body.starts_with(":\n\n"), "{}", answer.body);
        assert_eq!(answer.message()["result"]["isError"], true);
    }
}

#[tokio::test]
async fn client_that_takes_only_json_gets_json_however_slow() {
    let gateway = Gateway::start(&[]).await;
    let params = json!({ "name": "list_workspaces", "arguments": {}, "_meta": { "progressToken": 1 } });
    let answer = gateway.post_with(&["Accept: application/json"], &request("tools/call", params)).await;
    assert!(answer.head.contains("content-type: application/json"), "{}", answer.head);
    assert_eq!(answer.json()["result"]["isError"], true);
}

#[tokio::test]
async fn progress_is_told_to_a_client_that_asks_for_it() {
    let gateway = Gateway::start(&[]).await;
    let params = json!({ "name": "list_workspaces", "arguments": {}, "_meta": { "progressToken": "p" } });
    let answer = gateway.post(&request("tools/call", params)).await;
    assert!(answer.first < Duration::from_secs(2), "{:?}", answer.first);
    let events: Vec<Value> = answer
        .body
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    assert_eq!(events[0]["method"], "notifications/progress");
    assert_eq!(events[0]["params"]["progressToken"], "p");
    assert_eq!(events.last().unwrap()["id"], 7);
}

#[tokio::test]
async fn slow_headers_and_silent_connections_are_closed() {
    let gateway = Gateway::start(&[]).await;
    let drip = async {
        let mut stream = gateway.connect().await;
        let start = Instant::now();
        for byte in b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Padding: aaaaaaaaaaaaaaaaaaaa".iter().cycle()
        {
            if stream.write_all(&[*byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(start.elapsed() < Duration::from_secs(8));
        }
        start.elapsed()
    };
    let silent = async {
        let mut stream = gateway.connect().await;
        let start = Instant::now();
        let _ended = stream.read(&mut [0; 16]).await;
        start.elapsed()
    };
    let (drip, silent) = tokio::join!(drip, silent);
    assert!(drip > Duration::from_secs(4), "{drip:?}");
    assert!((4..7).contains(&silent.as_secs()), "{silent:?}");
}

#[tokio::test]
async fn slow_body_is_given_up_after_30_s() {
    let gateway = Gateway::start(&[]).await;
    let mut stream = gateway.connect().await;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Sandbox-Token: {TOKEN}\r\nContent-Type: application/json\r\n\
         Content-Length: 1000\r\n\r\n"
    );
    let start = Instant::now();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 64];
    loop {
        match tokio::time::timeout(Duration::from_secs(1), stream.read(&mut answer)).await {
            Ok(read) => break assert!(answer[..read.unwrap()].starts_with(b"HTTP/1.1 408")),
            Err(_) => stream.write_all(b" ").await.unwrap(),
        }
    }
    assert!((29..33).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

#[tokio::test]
async fn idle_connection_outlives_the_time_for_headers() {
    let gateway = Gateway::start(&[]).await;
    let mut stream = gateway.connect().await;
    for _ in 0..2 {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut answer = [0; 512];
        let read = stream.read(&mut answer).await.unwrap();
        assert!(answer[..read].starts_with(b"HTTP/1.1 200"));
        tokio::time::sleep(Duration::from_secs(6)).await;
    }
}

#[tokio::test]
async fn connections_past_the_limit_are_told_so() {
    let gateway = Gateway::start(&[]).await;
    let mut held = Vec::new();
    for _ in 0..1024 {
        held.push(gateway.connect().await);
    }
    // The gateway accepts in order, so all of those are counted when this one is.
    let answer = gateway.send("GET", "/healthz", &[], "").await;
    assert_eq!(answer.status, 503);
    assert!(answer.json()["message"].as_str().unwrap().contains("1024"));
    drop(held);
    let deadline = Instant::now() + Duration::from_secs(3);
    while gateway.send("GET", "/healthz", &[], "").await.status != 200 {
        assert!(Instant::now() < deadline);
    }
}

#[tokio::test]
async fn http_18_stop_ends_waits_with_a_clear_error() {
    let gateway = Gateway::start(&[]).await;
    let _stopped = std::os::unix::net::UnixListener::bind(gateway.socket()).unwrap();
    let wait = gateway
        .call("run_command", json!({ "workspace_id": "w", "command": "sleep 60", "wait_seconds": 50 }));
    let stop = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        gateway.stop.cancel();
    };
    let start = Instant::now();
    let (result, ()) = tokio::join!(wait, stop);
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    assert!(text(&result).starts_with("GATEWAY_STOPPING: "), "{result}");
    let _idle = tokio::net::TcpStream::connect(gateway.address).await;
    tokio::time::timeout(Duration::from_secs(10), gateway.serving).await.unwrap().unwrap();
}
