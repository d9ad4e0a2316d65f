//! Uploads: whole or not at all, once, and never over something that nobody spoke of.

use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use support::wait;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::desk::{Desk, names, noise, sha256};

#[tokio::test(flavor = "multi_thread")]
async fn upload_lands_whole_and_is_used_up() {
    let desk = Desk::new().await;
    let content = noise(20 << 20);
    let url = desk.accept("in/file.bin", 32 << 20).await;
    let (status, text) = desk.send(&url, content.clone()).await;
    assert_eq!(status, StatusCode::CREATED, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    let path = desk.at("in/file.bin");
    assert_eq!(answer, json!({ "path": path, "bytes": 20 << 20, "sha256": sha256(&content) }));
    assert!(std::fs::read(&path).unwrap() == content);
    assert_eq!(names(path.parent().unwrap()), ["file.bin"]);
    assert_eq!(
        desk.run("stat -c '%U %a' in/file.bin; id -un; rm in/file.bin").await.lines().next(),
        Some("UNKNOWN 644")
    );
    for _ in 0..2 {
        assert_eq!(desk.send(&url, "again").await.0, StatusCode::NOT_FOUND);
    }
    assert!(!path.exists());
    assert_eq!(desk.kept(), Vec::<String>::new());
    let listed = desk.client.call("list_downloads", json!({})).await.expect();
    assert_eq!(listed["downloads"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_upload_is_an_empty_file() {
    let desk = Desk::new().await;
    let url = desk.accept("e", 1).await;
    assert_eq!(desk.send(&url, "").await.0, StatusCode::CREATED);
    assert_eq!(std::fs::read(desk.at("e")).unwrap(), b"");
}

#[tokio::test(flavor = "multi_thread")]
async fn fed_25_what_was_there_is_replaced_and_what_came_later_is_not() {
    let desk = Desk::new().await;
    desk.run("echo old > known; chmod 750 known").await;
    let made = desk.call("create_upload", json!({ "path": "known" })).await;
    assert!(made.text().contains("It will replace the file there, which has 4 bytes"), "{}", made.text());
    let made = made.expect();
    assert_eq!(made["replaces_bytes"], json!(4));
    let unknown = desk.accept("later", 10).await;
    desk.run("echo mine > later").await;
    let (status, text) = desk.send(&unknown, "theirs").await;
    assert_eq!(status, StatusCode::CONFLICT, "{text}");
    assert!(text.contains("exists already"), "{text}");
    assert_eq!(desk.run("cat later").await, "mine\n");
    // It was not used, so it still works when the way is free.
    desk.run("rm later").await;
    assert_eq!(desk.send(&unknown, "theirs").await.0, StatusCode::CREATED);
    assert_eq!(desk.send(made["url"].as_str().unwrap(), "new").await.0, StatusCode::OK);
    assert_eq!(desk.run("cat known later; stat -c %a known").await, "newtheirs750\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_the_limit_is_refused_with_it_and_leaves_nothing() {
    let desk = Desk::new().await;
    let url = desk.accept("f", 1000).await;
    let chunked = || {
        let pieces = futures::stream::iter((0..100).map(|_| Ok::<_, std::io::Error>(vec![1_u8; 100])));
        reqwest::Body::wrap_stream(pieces)
    };
    for body in [reqwest::Body::from(vec![1; 1001]), chunked()] {
        let (status, text) = desk.send(&url, body).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{text}");
        assert!(text.contains("1000 bytes"), "{text}");
    }
    assert!(!desk.at("f").exists());
    assert_eq!(desk.kept(), Vec::<String>::new());
    // The link was not used.
    assert_eq!(desk.send(&url, vec![1; 1000]).await.0, StatusCode::CREATED);
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_that_is_cut_leaves_nothing_and_can_be_sent_again() {
    let desk = Desk::new().await;
    let url = desk.accept("f", 1 << 30).await;
    let address = desk.world.base().trim_start_matches("http://").to_owned();
    let target = url.strip_prefix(desk.world.base()).unwrap();
    for head in ["Content-Length: 50000000", "Transfer-Encoding: chunked"] {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        let request = format!("PUT {target} HTTP/1.1\r\nHost: {address}\r\n{head}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let piece = if head.starts_with('T') { b"5\r\nhello\r\n".to_vec() } else { noise(8 << 20) };
        stream.write_all(&piece).await.unwrap();
        wait::until("the upload to begin", Duration::from_secs(5), async || desk.kept().len() == 1).await;
        // Another one at the same time is told so.
        assert_eq!(desk.send(&url, "x").await.0, StatusCode::CONFLICT);
        drop(stream);
        wait::until("nothing to be left", Duration::from_secs(5), async || desk.kept().is_empty()).await;
        assert_eq!(names(&desk.at("")), Vec::<String>::new());
    }
    assert_eq!(desk.send(&url, "whole").await.0, StatusCode::CREATED);
    assert_eq!(desk.run("cat f").await, "whole");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_uploads_at_once_one_wins() {
    let desk = Desk::new().await;
    let url = desk.accept("f", 64 << 20).await;
    let contents = [vec![1_u8; 30 << 20], vec![2; 30 << 20]];
    let sent =
        futures::future::join_all(contents.iter().map(|content| desk.send(&url, content.clone()))).await;
    let won: Vec<usize> = (0..2).filter(|place| sent[*place].0 == StatusCode::CREATED).collect();
    let [winner] = won[..] else { panic!("{sent:?}") };
    let loser = sent[1 - winner].0;
    assert!([StatusCode::CONFLICT, StatusCode::NOT_FOUND].contains(&loser), "{loser}");
    assert!(std::fs::read(desk.at("f")).unwrap() == contents[winner]);
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_upload_is_not_found() {
    let desk = Desk::new().await;
    let made = desk.call("create_upload", json!({ "path": "f", "expires_in_seconds": 1 })).await.expect();
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    assert_eq!(desk.send(made["url"].as_str().unwrap(), "x").await.0, StatusCode::NOT_FOUND);
    assert!(!desk.at("f").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_asks_first_is_told_before_it_sends() {
    let desk = Desk::new().await;
    let url = desk.accept("f", 1000).await;
    let address = desk.world.base().trim_start_matches("http://").to_owned();
    let target = url.strip_prefix(desk.world.base()).unwrap().to_owned();
    let ask = async |target: &str, length: usize| {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        let request = format!(
            "PUT {target} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = vec![0; 64];
        let read = tokio::time::timeout(Duration::from_secs(5), stream.read(&mut answer)).await;
        let read = read.expect("an answer before the body").unwrap();
        answer.truncate(read);
        (stream, String::from_utf8(answer).unwrap())
    };
    assert!(ask(&target, 2000).await.1.starts_with("HTTP/1.1 413"));
    assert!(ask("/uploads/up_aaaaaaaaaaaa.x", 10).await.1.starts_with("HTTP/1.1 404"));
    let (mut stream, answer) = ask(&target, 5).await;
    assert!(answer.starts_with("HTTP/1.1 100 Continue"), "{answer}");
    stream.write_all(b"hello").await.unwrap();
    let mut answer = [0; 64];
    let read = stream.read(&mut answer).await.unwrap();
    assert!(answer[..read].starts_with(b"HTTP/1.1 201"));
    assert_eq!(desk.run("cat f").await, "hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn curl_sends_as_the_answer_says() {
    let desk = Desk::new().await;
    let source = desk.world.directory().join("source");
    std::fs::write(&source, noise(20 << 20)).unwrap();
    let made = desk.call("create_upload", json!({ "path": "f" })).await;
    let text = made.text();
    let line = text.lines().find_map(|line| line.split_once("curl ")).unwrap_or_else(|| panic!("{text}")).1;
    let command = format!("curl -sS {line}").replace("FILE", source.to_str().unwrap());
    let start = Instant::now();
    let output = Command::new("bash").args(["-c", &command]).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["bytes"], json!(20 << 20));
    assert!(std::fs::read(desk.at("f")).unwrap() == std::fs::read(&source).unwrap());
    let again = Command::new("bash").args(["-c", &command]).output().await.unwrap();
    assert!(!again.status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn part_of_a_file_and_other_methods_are_refused() {
    let desk = Desk::new().await;
    let url = desk.accept("f", 1000).await;
    for (name, value) in [("content-range", "bytes 0-1/5"), ("content-encoding", "gzip")] {
        let answer = desk.request(Method::PUT, &url).header(name, value).body("x").send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{name}");
    }
    for method in [Method::GET, Method::POST, Method::OPTIONS] {
        let answer = desk.request(method, &url).send().await.unwrap();
        assert_eq!(
            (answer.status(), crate::desk::header(&answer, "allow")),
            (StatusCode::METHOD_NOT_ALLOWED, "PUT")
        );
    }
    let answer =
        desk.request(Method::PUT, &url).header("host", "evil.example.com").body("x").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    assert_eq!(desk.send(&url, "x").await.0, StatusCode::CREATED);
}
