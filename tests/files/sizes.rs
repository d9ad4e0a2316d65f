//! Sizes from 120 KB to past the limits.

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::desk::Desk;

/// Text of this many bytes that JSON has to escape here and there.
fn text(bytes: usize) -> String {
    let mut text = "a \"quoted\" € and a \\ \n".repeat(bytes / 20);
    text.truncate(text.floor_char_boundary(bytes));
    while text.len() < bytes {
        text.push('.');
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn fed_27_writes_of_any_size_arrive_whole_or_are_refused_with_the_limit() {
    let desk = Desk::new().await;
    for bytes in [120_000, 1 << 20, 4_089_446, 4_299_161, 12 << 20] {
        let content = text(bytes);
        let write = json!({ "path": "f", "content": content });
        let written = desk.call("write_file", write).await.expect();
        let sum: String = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((&written["bytes"], &written["sha256"]), (&json!(bytes), &json!(sum)));
        assert!(desk.bytes("f") == content.as_bytes(), "{bytes} bytes differ on the disk");
    }
    let write = json!({ "workspace_id": desk.id, "path": "f", "content": text(20 << 20) });
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "write_file", "arguments": write },
    });
    let refused = desk.client.post(&call).await.unwrap();
    assert_eq!(refused.status(), 413);
    let said = refused.text().await.unwrap();
    assert!(said.contains("16777216") || said.contains("16 MiB"), "{said}");
    assert_eq!(desk.bytes("f").len(), 12 << 20);

    desk.run("head -c 20M /dev/zero > large").await;
    let whole = json!({ "path": "large", "offset": 0, "length": 20 << 20 });
    let error = desk.call("read_file", whole).await.expect_error();
    assert_eq!(error["code"], json!("FILE_TOO_LARGE"), "{error}");
    assert!(error["message"].as_str().unwrap().contains("16777216"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn http_16_pieces_past_4_mib_pass_in_both_directions() {
    let desk = Desk::new().await;
    for bytes in [4_194_303, 4_194_304, 4_200_000] {
        let content: Vec<u8> = (0..bytes).map(|number: usize| number.to_le_bytes()[number % 3]).collect();
        desk.put("f", &content).await;
        assert!(desk.bytes("f") == content, "{bytes} bytes differ on the disk");
        let read = json!({ "path": "f", "offset": 0, "length": bytes, "encoding": "base64" });
        let read = desk.call("read_file", read).await.expect();
        assert!(BASE64.decode(read["content"].as_str().unwrap()).unwrap() == content, "{bytes} bytes differ");
        // An edit is one message.
        let old = text(bytes);
        desk.put("e", old.as_bytes()).await;
        desk.edit("e", &old, "short").await.expect();
        assert_eq!(desk.bytes("e"), b"short");
    }
    assert_eq!(desk.run("echo the link lives").await, "the link lives\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn binary_content_is_read_exactly_in_base64_and_visibly_as_text() {
    let desk = Desk::new().await;
    let content: Vec<u8> = (0..=255).collect();
    desk.put("all", &content).await;
    let read = desk.call("read_file", json!({ "path": "all", "encoding": "base64" })).await.expect();
    assert_eq!(BASE64.decode(read["content"].as_str().unwrap()).unwrap(), content);
    let part = json!({ "path": "all", "offset": 200, "length": 10, "encoding": "base64" });
    let part = desk.call("read_file", part).await.expect();
    assert_eq!(BASE64.decode(part["content"].as_str().unwrap()).unwrap(), content[200..210]);
    let shown = desk.read("all").await.text();
    assert!(shown.contains("\\x00") && shown.contains("\\xff") && !shown.contains('\0'), "{shown}");
    let wrong = json!({ "path": "w", "content": "no base64!", "encoding": "base64" });
    let error = desk.call("write_file", wrong).await.expect_error();
    assert!(error["message"].as_str().unwrap().contains("content"), "{error}");
    assert!(!desk.at("w").exists());
}
