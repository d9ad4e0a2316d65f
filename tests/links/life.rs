//! How links end: by time, by order, with their workspace.

use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::{Value, json};
use support::wait;

use crate::desk::{Desk, code, sha256, url};

async fn offer(desk: &Desk, path: &str, seconds: u64) -> Value {
    desk.call("create_download", json!({ "path": path, "expires_in_seconds": seconds })).await.expect()
}

#[tokio::test(flavor = "multi_thread")]
async fn dl_09_what_began_in_time_completes_and_nothing_begins_later() {
    let desk = Desk::new().await;
    desk.run("head -c 64M /dev/urandom > f").await;
    let made = offer(&desk, "f", 3).await;
    let (start, url) = (Instant::now(), url(&made));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut running = desk.get(&url, &[]).await;
    let mut content = running.chunk().await.unwrap().unwrap().to_vec();
    tokio::time::sleep(Duration::from_secs(4).saturating_sub(start.elapsed())).await;
    assert_eq!(desk.fetch(&url).await.0, StatusCode::NOT_FOUND);
    let resumed = desk.get(&url, &[("range", "bytes=100-")]).await;
    assert_eq!(resumed.status(), StatusCode::NOT_FOUND);
    assert_eq!(desk.head(&url, &[]).await.status(), StatusCode::NOT_FOUND);
    while let Some(piece) = running.chunk().await.unwrap() {
        content.extend_from_slice(&piece);
    }
    assert_eq!(json!(sha256(&content)), made["sha256"]);
    let listed = desk.client.call("list_downloads", json!({})).await.expect();
    assert_eq!(listed["downloads"], json!([]));
    assert_eq!(
        code(desk.call("create_download", json!({ "path": "f", "expires_in_seconds": 0 })).await),
        "INVALID_ARGUMENT"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn dl_09_expired_links_are_cleaned_away_with_their_snapshots() {
    let world = support::World::builder().executor("RUNLET_CLEANING_SECONDS", "1").start().await;
    let desk = Desk::in_world(world).await;
    desk.put("f", "x").await;
    let (short, long) = (offer(&desk, "f", 1).await, offer(&desk, "f", 100).await);
    assert_eq!(desk.kept().len(), 2);
    wait::until("the snapshot to go", Duration::from_secs(10), async || desk.kept().len() == 1).await;
    assert_eq!(desk.kept(), [long["download_id"].as_str().unwrap()]);
    assert_eq!(desk.fetch(&url(&short)).await.0, StatusCode::NOT_FOUND);
    assert_eq!(desk.fetch(&url(&long)).await.0, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn dl_09_revoked_is_gone_at_once_and_twice_is_the_same_as_once() {
    let desk = Desk::new().await;
    desk.put("f", "x").await;
    let (first, second) = (offer(&desk, "f", 100).await, offer(&desk, "f", 100).await);
    let upload = desk.call("create_upload", json!({ "path": "u" })).await.expect();
    let listed = desk.client.call("list_downloads", json!({ "workspace_id": desk.id })).await.expect();
    let ids: Vec<&Value> =
        listed["downloads"].as_array().unwrap().iter().map(|row| &row["download_id"]).collect();
    assert_eq!(ids, [&upload["download_id"], &second["download_id"], &first["download_id"]]);
    let secret = url(&first).rsplit_once('.').unwrap().1.trim_end_matches("/f").to_owned();
    assert!(!listed.to_string().contains(&secret), "a secret is in the list");
    for made in [&first, &upload] {
        for revoked in [true, false] {
            let revoke = json!({ "download_id": made["download_id"] });
            let answer = desk.client.call("revoke_download", revoke).await.expect();
            assert_eq!(answer["revoked"], json!(revoked), "{answer}");
        }
    }
    assert_eq!(desk.fetch(&url(&first)).await.0, StatusCode::NOT_FOUND);
    assert_eq!(desk.send(&url(&upload), "x").await.0, StatusCode::NOT_FOUND);
    assert_eq!(desk.fetch(&url(&second)).await.0, StatusCode::OK);
    assert_eq!(desk.kept(), [second["download_id"].as_str().unwrap()]);
    for id in ["dl_aaaaaaaaaaaa", "nothing", "ws_aaaaaaaaaaaa"] {
        let unknown = desk.client.call("revoke_download", json!({ "download_id": id })).await;
        assert_eq!(code(unknown), "LINK_NOT_FOUND");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ws_01_links_end_with_their_workspace_and_a_running_download_completes() {
    let desk = Desk::new().await;
    desk.run("head -c 64M /dev/urandom > f").await;
    let made = offer(&desk, "f", 100).await;
    let upload = desk.accept("u", 10).await;
    let mut running = desk.get(&url(&made), &[]).await;
    let mut content = running.chunk().await.unwrap().unwrap().to_vec();
    let start = Instant::now();
    desk.client.call("delete_workspace", json!({ "workspace_id": desk.id })).await.expect();
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_eq!(desk.fetch(&url(&made)).await.0, StatusCode::NOT_FOUND);
    assert_eq!(desk.send(&upload, "x").await.0, StatusCode::NOT_FOUND);
    assert_eq!(desk.kept(), Vec::<String>::new());
    while let Some(piece) = running.chunk().await.unwrap() {
        content.extend_from_slice(&piece);
    }
    assert_eq!(json!(sha256(&content)), made["sha256"]);
    let listed = desk.client.call("list_downloads", json!({})).await.expect();
    assert_eq!(listed["downloads"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn ws_01_a_workspace_is_deleted_while_its_archive_is_made_and_an_upload_runs() {
    let desk = Desk::new().await;
    // Sparse, so that it is there at once and takes long to read.
    desk.run("truncate -s 200G big").await;
    let upload = desk.accept("u", 1 << 30).await;
    let body = reqwest::Body::wrap_stream(futures::stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Some((Ok::<_, std::io::Error>(vec![1; 65_536]), ()))
    }));
    let sending = tokio::spawn(desk.request(reqwest::Method::PUT, &upload).body(body).send());
    let making = tokio::spawn(
        desk.client
            .call("create_download", json!({ "workspace_id": desk.id, "path": "big", "archive": "tar.gz" })),
    );
    wait::until("both to begin", Duration::from_secs(10), async || desk.kept().len() == 2).await;
    let start = Instant::now();
    desk.client.call("delete_workspace", json!({ "workspace_id": desk.id })).await.expect();
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_eq!(code(making.await.unwrap()), "WORKSPACE_NOT_FOUND");
    if let Ok(answer) = sending.await.unwrap() {
        assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    }
    wait::until("nothing to be left", Duration::from_secs(5), async || desk.kept().is_empty()).await;
}
