//! Parts of downloads, as clients that resume ask for them.

use std::time::{Duration, Instant};

use reqwest::StatusCode;

use crate::desk::{Desk, header};

#[tokio::test(flavor = "multi_thread")]
async fn dl_01_range_on_an_empty_file() {
    let desk = Desk::new().await;
    desk.run(": > empty").await;
    let url = desk.offer("empty").await;
    let whole = desk.get(&url, &[]).await;
    assert_eq!((whole.status(), header(&whole, "content-length")), (StatusCode::OK, "0"));
    assert_eq!(whole.bytes().await.unwrap().len(), 0);
    for range in ["bytes=0-", "bytes=-5", "bytes=0-0"] {
        let answer = desk.get(&url, &[("range", range)]).await;
        assert_eq!(answer.status(), StatusCode::RANGE_NOT_SATISFIABLE, "{range}");
        assert_eq!(header(&answer, "content-range"), "bytes */0", "{range}");
    }
    // The connection is used again: with one that broke or hung, these would take their time.
    let start = Instant::now();
    for _ in 0..50 {
        assert_eq!(desk.fetch(&url).await, (StatusCode::OK, Vec::new()));
    }
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn dl_02_ranges_past_the_end_and_senseless_ones() {
    let desk = Desk::new().await;
    desk.put("five", "hello").await;
    let url = desk.offer("five").await;
    for (range, status, content_range, body) in [
        ("bytes=0-3145727", 206, "bytes 0-4/5", "hello"),
        ("bytes=5-", 416, "bytes */5", ""),
        ("bytes=4-", 206, "bytes 4-4/5", "o"),
        ("bytes=-10", 206, "bytes 0-4/5", "hello"),
        ("bytes=-0", 416, "bytes */5", ""),
        ("bytes=3-2", 200, "", "hello"),
        ("bytes=x", 200, "", "hello"),
        ("items=0-1", 200, "", "hello"),
    ] {
        let answer = desk.get(&url, &[("range", range)]).await;
        assert_eq!(answer.status(), status, "{range}");
        assert_eq!(header(&answer, "content-range"), content_range, "{range}");
        assert_eq!(header(&answer, "accept-ranges"), if status == 416 { "" } else { "bytes" }, "{range}");
        let text = answer.text().await.unwrap();
        if status != 416 {
            assert_eq!(text, body, "{range}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dl_04_many_ranges_are_answered_by_the_whole_file_at_once() {
    let desk = Desk::new().await;
    desk.put("five", "hello").await;
    let url = desk.offer("five").await;
    // As many as a header may hold.
    let many = format!("bytes={}", vec!["0-0"; 10_000].join(","));
    for range in ["bytes=0-0,2-2", "bytes=0-3,1-4,2-2", many.as_str()] {
        let start = Instant::now();
        let answer = desk.get(&url, &[("range", range)]).await;
        assert_eq!(
            (answer.status(), header(&answer, "content-range")),
            (StatusCode::OK, ""),
            "{}",
            range.len()
        );
        assert_eq!(answer.text().await.unwrap(), "hello");
        assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dl_05_resume_never_joins_two_versions() {
    let desk = Desk::new().await;
    desk.run("head -c 3M /dev/urandom > f").await;
    let old = std::fs::read(desk.at("f")).unwrap();
    let url = desk.offer("f").await;
    let first = desk.get(&url, &[("range", "bytes=0-1048575")]).await;
    let old_tag = header(&first, "etag").to_owned();
    assert!(old_tag.starts_with('"') && old_tag.ends_with('"'), "{old_tag} is not strong");
    assert!(first.bytes().await.unwrap() == old[..1 << 20]);
    desk.run("head -c 3M /dev/urandom > f").await;
    let new = std::fs::read(desk.at("f")).unwrap();

    // What was offered stays what it was.
    let rest = [("range", "bytes=1048576-"), ("if-range", old_tag.as_str())];
    let resumed = desk.get(&url, &rest).await;
    assert_eq!(resumed.status(), StatusCode::PARTIAL_CONTENT);
    assert!(resumed.bytes().await.unwrap() == old[1 << 20..]);

    // Another link to the same path is another file.
    let other = desk.offer("f").await;
    let weak = format!("W/{old_tag}");
    for tag in [old_tag.as_str(), weak.as_str(), "Mon, 30 Nov 2026 08:00:00 GMT"] {
        let answer = desk.get(&other, &[("range", "bytes=1048576-"), ("if-range", tag)]).await;
        assert_eq!((answer.status(), header(&answer, "content-range")), (StatusCode::OK, ""), "{tag}");
        assert_ne!(header(&answer, "etag"), old_tag);
        assert!(answer.bytes().await.unwrap() == new, "{tag}");
    }
    let plain = desk.get(&other, &[("range", "bytes=1048576-")]).await;
    assert_eq!(plain.status(), StatusCode::PARTIAL_CONTENT);
    assert!(plain.bytes().await.unwrap() == new[1 << 20..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn dl_10_head_is_get_without_a_body_and_changes_nothing() {
    let desk = Desk::new().await;
    desk.put("five", "hello").await;
    let url = desk.offer("five").await;
    for headers in [&[][..], &[("range", "bytes=1-2")], &[("range", "bytes=9-")]] {
        for _ in 0..3 {
            let (head, get) = (desk.head(&url, headers).await, desk.get(&url, headers).await);
            assert_eq!(head.status(), get.status());
            let plain = |response: &reqwest::Response| {
                let mut headers = response.headers().clone();
                headers.remove("date");
                headers
            };
            assert_eq!(plain(&head), plain(&get), "{headers:?}");
            assert_eq!(head.bytes().await.unwrap().len(), 0);
            assert!(!get.bytes().await.unwrap().is_empty());
        }
    }
    // As download managers do it.
    let parts = ["bytes=0-1", "bytes=2-3", "bytes=4-4"];
    let pairs = parts.map(|range| [("range", range)]);
    let answers = futures::future::join_all(pairs.iter().map(|range| desk.get(&url, range))).await;
    let mut text = String::new();
    for answer in answers {
        assert_eq!(answer.status(), StatusCode::PARTIAL_CONTENT);
        text.push_str(&answer.text().await.unwrap());
    }
    assert_eq!(text, "hello");
    let posted = desk.request(reqwest::Method::POST, &url).send().await.unwrap();
    assert_eq!((posted.status(), header(&posted, "allow")), (StatusCode::METHOD_NOT_ALLOWED, "GET, HEAD"));
}
