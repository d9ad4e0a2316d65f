//! Links outlive both programs; a download that is cut says so and is resumed.

use std::time::Duration;

use reqwest::StatusCode;
use rustix::process::Signal;
use serde_json::json;
use support::wait;

use crate::desk::{Desk, sha256, url};

const BYTES: u64 = 64 << 20;

/// What came of a download before it broke. It must break.
async fn until_it_breaks(mut running: reqwest::Response) -> Vec<u8> {
    let mut content = Vec::new();
    loop {
        match tokio::time::timeout(Duration::from_secs(30), running.chunk()).await.expect("a visible end") {
            Ok(Some(piece)) => content.extend_from_slice(&piece),
            Ok(None) => {
                panic!("a download that was cut ended as if it were whole, with {} bytes", content.len())
            }
            Err(_) => return content,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn download_is_resumed_after_the_executor_was_killed() {
    let mut desk = Desk::new().await;
    desk.run(&format!("head -c {BYTES} /dev/urandom > f; echo x > gone")).await;
    let made = desk.call("create_download", json!({ "path": "f" })).await.expect();
    let revoked = desk.call("create_download", json!({ "path": "gone" })).await.expect();
    desk.client.call("revoke_download", json!({ "download_id": revoked["download_id"] })).await.expect();
    let upload = desk.accept("u", 10).await;
    let used = desk.accept("v", 10).await;
    assert_eq!(desk.send(&used, "x").await.0, StatusCode::CREATED);
    let url_of_made = url(&made);
    desk.hand_over_nothing();
    let running = desk.get(&url_of_made, &[]).await;
    let tag = crate::desk::header(&running, "etag").to_owned();
    // Left behind by an executor that was killed at a bad moment.
    let links = desk.world.root().join("links");
    for stray in ["dl_aaaaaaaaaaaa", "up_aaaaaaaaaaaa", "odd"] {
        std::fs::write(links.join(stray), "x").unwrap();
    }
    desk.world.kill_executor().await;
    let mut content = until_it_breaks(running).await;
    assert!(u64::try_from(content.len()).unwrap() < BYTES);
    desk.restart_executor().await;
    assert_eq!(desk.kept(), [made["download_id"].as_str().unwrap()]);
    let range = format!("bytes={}-", content.len());
    let rest = desk.get(&url_of_made, &[("range", range.as_str()), ("if-range", tag.as_str())]).await;
    assert_eq!(rest.status(), StatusCode::PARTIAL_CONTENT);
    content.extend_from_slice(&rest.bytes().await.unwrap());
    assert_eq!(json!(sha256(&content)), made["sha256"]);
    assert_eq!(desk.fetch(&url(&revoked)).await.0, StatusCode::NOT_FOUND);
    assert_eq!(desk.send(&used, "x").await.0, StatusCode::NOT_FOUND);
    assert_eq!(desk.send(&upload, "kept").await.0, StatusCode::CREATED);
    let again = desk.client.call("revoke_download", json!({ "download_id": revoked["download_id"] })).await;
    assert_eq!(again.expect()["revoked"], json!(false));
}

#[tokio::test(flavor = "multi_thread")]
async fn running_download_outlives_the_executor_on_the_same_machine() {
    let mut desk = Desk::new().await;
    desk.run(&format!("head -c {BYTES} /dev/urandom > f")).await;
    let made = desk.call("create_download", json!({ "path": "f" })).await.expect();
    let mut running = desk.get(&url(&made), &[]).await;
    let mut content = running.chunk().await.unwrap().unwrap().to_vec();
    desk.world.kill_executor().await;
    while let Some(piece) = running.chunk().await.unwrap() {
        content.extend_from_slice(&piece);
    }
    assert_eq!(json!(sha256(&content)), made["sha256"]);
    // With the secret of the executor that is gone, which the gateway still has.
    desk.restart_executor().await;
    assert_eq!(sha256(&desk.fetch(&url(&made)).await.1), sha256(&content));
}

#[tokio::test(flavor = "multi_thread")]
async fn download_is_resumed_through_another_gateway() {
    let mut desk = Desk::new().await;
    desk.run(&format!("head -c {BYTES} /dev/urandom > f")).await;
    let made = desk.call("create_download", json!({ "path": "f" })).await.expect();
    let running = desk.get(&url(&made), &[]).await;
    let first = desk.world.base().to_owned();
    let second = desk.world.start_gateway().await;
    desk.world.signal_gateway(0, Signal::KILL);
    desk.world.gateway_ended(0).await;
    let mut content = until_it_breaks(running).await;
    let other = desk.world.client_of(second).url.trim_end_matches("/mcp").to_owned();
    let range = format!("bytes={}-", content.len());
    let rest = desk.get(&url(&made).replace(&first, &other), &[("range", range.as_str())]).await;
    assert_eq!(rest.status(), StatusCode::PARTIAL_CONTENT);
    content.extend_from_slice(&rest.bytes().await.unwrap());
    assert_eq!(json!(sha256(&content)), made["sha256"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_that_meets_the_executors_end_leaves_nothing() {
    let mut desk = Desk::new().await;
    let url = desk.accept("f", 1 << 30).await;
    let body = reqwest::Body::wrap_stream(futures::stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        Some((Ok::<_, std::io::Error>(vec![1; 65_536]), ()))
    }));
    let sending = tokio::spawn(desk.request(reqwest::Method::PUT, &url).body(body).send());
    wait::until("the upload to begin", Duration::from_secs(5), async || desk.kept().len() == 1).await;
    desk.world.kill_executor().await;
    let answer = tokio::time::timeout(Duration::from_secs(30), sending).await.expect("an end").unwrap();
    if let Ok(answer) = answer {
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
    desk.restart_executor().await;
    assert_eq!(desk.kept(), Vec::<String>::new());
    assert!(!desk.at("f").exists());
    assert_eq!(desk.send(&url, "whole").await.0, StatusCode::CREATED);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_do_not_read_hold_up_nobody() {
    let desk = Desk::new().await;
    desk.run(&format!("head -c {BYTES} /dev/urandom > f")).await;
    let url = desk.offer("f").await;
    let before = support::probe::resident_bytes(desk.world.gateway_pid());
    let mut idle = Vec::new();
    for _ in 0..40 {
        idle.push(desk.get(&url, &[]).await);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let start = std::time::Instant::now();
    assert_eq!(desk.run("echo on").await, "on\n");
    assert_eq!(desk.get(&url, &[("range", "bytes=0-9")]).await.bytes().await.unwrap().len(), 10);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    let grown = support::probe::resident_bytes(desk.world.gateway_pid()).saturating_sub(before);
    println!("40 clients that do not read: the gateway grew by {} KiB", grown >> 10);
    assert!(grown < 80 << 20, "{grown}");
    drop(idle);
}
