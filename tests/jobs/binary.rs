//! Output that is no text.

use serde_json::json;
use support::World;
use support::jobs::{end, id};

#[tokio::test(flavor = "multi_thread")]
async fn out_09_binary_output_is_named_and_its_bytes_can_be_had() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let command = "head -c 1048576 /dev/urandom > bytes; cat bytes";
    let answer = client.call("run_command", json!({ "workspace_id": workspace, "command": command })).await;
    let text = answer.text();
    assert!(text.contains("1,048,576 bytes") && text.contains("binary data") && text.len() < 1000, "{text}");
    assert!(text.contains("raw=true"), "{text}");
    let job = answer.expect();
    let mut cursor = 0;
    for part in 0.. {
        let read = json!({ "job_id": id(&job), "cursor": cursor, "raw": true, "max_output_bytes": 300_000 });
        let piece = client.call("read_output", read).await.expect();
        let content = &piece["output_base64"];
        let path = format!("part.{part:03}");
        let write =
            json!({ "workspace_id": workspace, "path": path, "content": content, "encoding": "base64" });
        let _written = client.call("write_file", write).await.expect();
        cursor = piece["next_cursor"].as_u64().unwrap();
        if piece["end"] == json!(true) {
            break;
        }
    }
    assert_eq!(cursor, 1_048_576);
    let same = client.run(&workspace, "cat part.* | cmp - bytes && echo same").await;
    assert_eq!(same["output"], json!("same\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn text_after_binary_output_is_still_read() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let job = client.run(&workspace, "head -c 100000 /dev/urandom; printf '\\n%s\\n' \"$(seq 5000)\"").await;
    assert_eq!(end(&job), (Some("exited"), Some(0)));
    let (mut text, mut cursor) = (String::new(), json!(0));
    loop {
        let read = json!({ "job_id": id(&job), "cursor": cursor });
        let piece = client.call("read_output", read).await.expect();
        text += piece["output"].as_str().unwrap_or_default();
        assert_ne!(piece["next_cursor"], cursor, "no way forward");
        cursor = piece["next_cursor"].clone();
        if piece["end"] == json!(true) {
            break;
        }
    }
    assert!(text.ends_with("\n4999\n5000\n"));
}
