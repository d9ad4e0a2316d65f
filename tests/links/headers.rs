//! What a download's answer says to a browser, and what it does not say to others.

use reqwest::StatusCode;
use serde_json::json;
use support::World;

use crate::desk::{Desk, code, header, sha256, url};

fn assert_guarded(response: &reqwest::Response, what: &str) {
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "sandbox; default-src 'none'; frame-ancestors 'none'"),
        ("cache-control", "private, no-store"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
        ("set-cookie", ""),
        ("access-control-allow-origin", ""),
    ] {
        assert_eq!(header(response, name), value, "{what}: {name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dl_08_no_artifact_runs_in_a_browser() {
    let desk = Desk::new().await;
    let script = "<script>fetch('/')</script>";
    for (name, kind) in [
        ("x.html", "application/octet-stream"),
        ("x.svg", "application/octet-stream"),
        ("x.xhtml", "application/octet-stream"),
        ("x.txt", "text/plain; charset=utf-8"),
        ("x", "application/octet-stream"),
        ("x.png", "image/png"),
        ("x.pdf", "application/pdf"),
    ] {
        desk.put(name, script).await;
        let url = desk.offer(name).await;
        let answer = desk.get(&url, &[]).await;
        assert_guarded(&answer, name);
        assert_eq!(header(&answer, "content-type"), kind, "{name}");
        let disposition = format!("attachment; filename=\"{name}\"; filename*=UTF-8''{name}");
        assert_eq!(header(&answer, "content-disposition"), disposition);
        assert_eq!(header(&answer, "content-length"), script.len().to_string());
        assert_eq!(answer.text().await.unwrap(), script);
        // The name in the URL is decoration, and decides nothing.
        let disguised = url.replace(&format!("/{name}"), "/x.html");
        let answer = desk.get(&disguised, &[("range", "bytes=0-0")]).await;
        assert_guarded(&answer, name);
        assert_eq!(header(&answer, "content-type"), kind, "{name}");
    }
    for bad in [&desk.offer("x").await.replace("/dl_", "/dl_x"), &format!("{}/downloads/", desk.world.base())]
    {
        let refused = desk.get(bad, &[]).await;
        assert_eq!(refused.status(), StatusCode::NOT_FOUND);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_link_that_is_none_gets_the_same_answer() {
    let desk = Desk::new().await;
    desk.put("f", "secret").await;
    let good = desk.offer("f").await;
    let upload = desk.accept("g", 10).await;
    let revoked = desk.call("create_download", json!({ "path": "f" })).await.expect();
    desk.client.call("revoke_download", json!({ "download_id": revoked["download_id"] })).await.expect();
    let base = desk.world.base();
    let link = good.strip_prefix(&format!("{base}/downloads/")).unwrap().trim_end_matches("/f");
    let (id, secret) = link.split_once('.').unwrap();
    assert_eq!((id.len(), secret.len()), (15, 43));
    let mut changed = secret.to_owned();
    changed.replace_range(20..21, if &secret[20..21] == "A" { "B" } else { "A" });
    let other_secret = upload.rsplit_once('.').unwrap().1;
    let upload_link = upload.rsplit_once('/').unwrap().1;
    let mut answers = Vec::new();
    for link in [
        format!("{id}.{changed}"),
        format!("{id}.{}", &secret[..42]),
        format!("{id}.{secret}A"),
        format!("{id}.{other_secret}"),
        format!("{id}."),
        id.to_owned(),
        secret.to_owned(),
        format!("dl_aaaaaaaaaaaa.{secret}"),
        "x".to_owned(),
        "%00%ff".to_owned(),
        "dl_".repeat(5_000),
        upload_link.to_owned(),
        link_of(&url(&revoked)),
    ] {
        let answer = desk.get(&format!("{base}/downloads/{link}/f"), &[]).await;
        assert_guarded(&answer, &link);
        let mut headers = answer.headers().clone();
        headers.remove("date");
        answers.push((answer.status(), headers, answer.text().await.unwrap()));
    }
    assert_eq!(answers[0].0, StatusCode::NOT_FOUND);
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:#?}");
    assert!(answers[0].2.contains("no such link"), "{}", answers[0].2);
    for name in ["", "/", "/f", "/other/name", "/%00", "/..%2f"] {
        let (status, body) = desk.fetch(&format!("{base}/downloads/{link}{name}")).await;
        assert_eq!((status, body), (StatusCode::OK, b"secret".to_vec()), "{name}");
    }
}

fn link_of(url: &str) -> String {
    url.rsplit('/').nth(1).unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn links_begin_with_the_public_url_and_other_hosts_are_refused() {
    let world =
        World::builder().gateway("RUNLET_PUBLIC_URL", "https://runlet.example.com/box/").start().await;
    let desk = Desk::in_world(world).await;
    desk.put("f", "x").await;
    let url = desk.offer("f").await;
    let path = url.strip_prefix("https://runlet.example.com/box").unwrap_or_else(|| panic!("{url}"));
    let near = format!("{}{path}", desk.world.base());
    assert_eq!(desk.fetch(&near).await, (StatusCode::OK, b"x".to_vec()));
    assert_eq!(desk.get(&near, &[("host", "evil.example.com")]).await.status(), StatusCode::FORBIDDEN);
    assert_eq!(desk.get(&near, &[("host", "runlet.example.com")]).await.status(), StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_holds_the_link_as_text_and_as_a_block() {
    let desk = Desk::new().await;
    desk.put("report v1.txt", "hello").await;
    let made = desk.call("create_download", json!({ "path": "report v1.txt" })).await;
    let (text, object) = (made.text(), made.object());
    let url = object["url"].as_str().unwrap();
    assert!(url.starts_with(&format!("{}/downloads/dl_", desk.world.base())), "{url}");
    assert!(url.ends_with("/report%20v1.txt"), "{url}");
    let sum = sha256(b"hello");
    for part in [url, "5 bytes", sum.as_str(), object["expires_at"].as_str().unwrap()] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert_eq!((&object["size"], &object["sha256"]), (&json!(5), &json!(sum)));
    let block = &made.result["content"][1];
    let expected = json!({
        "type": "resource_link", "uri": url, "name": "report v1.txt", "mimeType": "text/plain; charset=utf-8", "size": 5,
    });
    assert_eq!(*block, expected);
    assert!(made.result.get("structuredContent").is_none());

    let named =
        desk.call("create_download", json!({ "path": "report v1.txt", "filename": "na\u{ef}ve.txt" }));
    let answer = desk.get(&crate::desk::url(&named.await.expect()), &[]).await;
    let disposition = "attachment; filename=\"na_ve.txt\"; filename*=UTF-8''na%C3%AFve.txt";
    assert_eq!(header(&answer, "content-disposition"), disposition);
    for name in ["a/b", "..", "a\nb", ""] {
        let refused =
            desk.call("create_download", json!({ "path": "report v1.txt", "filename": name })).await;
        let error = refused.expect_error();
        assert!(error["message"].as_str().unwrap().contains("filename"), "{error}");
    }
    for arguments in [json!({}), json!({ "path": "a", "paths": ["b"] })] {
        assert_eq!(code(desk.call("create_download", arguments).await), "INVALID_ARGUMENT");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_link_reaches_a_log() {
    for level in ["info", "debug"] {
        let world = World::builder().executor("RUNLET_LOG", level).gateway("RUNLET_LOG", level).start().await;
        let desk = Desk::in_world(world).await;
        desk.put("CANARY", "x").await;
        let (down, up) = (desk.offer("CANARY").await, desk.accept("CANARY-2", 10).await);
        desk.fetch(&down).await;
        desk.get(&down, &[("range", "bytes=9-")]).await;
        desk.fetch(&format!("{down}x?CANARY")).await;
        desk.send(&up, "123456789012").await;
        desk.send(&up, "123").await;
        desk.send(&up, "123").await;
        let logs = desk.world.logs();
        assert!(logs.contains("/downloads") && logs.contains("/uploads"), "{level}: {logs}");
        for link in [&down, &up] {
            let secret = link.split('.').next_back().unwrap().split('/').next().unwrap();
            assert_eq!(secret.len(), 43);
            assert!(!logs.contains(secret) && !logs.contains("CANARY"), "{level}: {logs}");
        }
    }
}
