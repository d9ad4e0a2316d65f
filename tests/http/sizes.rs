//! What is larger than gRPC's usual limit of a message.

use serde_json::json;
use support::World;

#[tokio::test(flavor = "multi_thread")]
async fn http_16_commands_inputs_and_outputs_past_4_mib_are_whole() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    for bytes in [4_194_303, 4_194_304, 4_200_000] {
        let run = json!({
            "workspace_id": workspace, "command": "wc -c", "stdin": "i".repeat(bytes), "wait_seconds": 30,
        });
        let job = client.call("run_command", run).await.expect();
        assert_eq!(job["output"].as_str().unwrap().trim(), bytes.to_string());
        let run = json!({
            "workspace_id": workspace, "command": format!(": {}; echo ran", "c".repeat(bytes)), "wait_seconds": 30,
        });
        assert_eq!(client.call("run_command", run).await.expect()["output"], json!("ran\n"));
        let print = format!("head -c {bytes} /dev/zero | tr '\\0' o");
        let job = client.run(&workspace, &print).await;
        assert_eq!(job["total_bytes"], json!(bytes));
        let (mut cursor, mut seen) = (0, 0);
        while cursor < bytes as u64 {
            let read = json!({ "job_id": job["job_id"], "cursor": cursor, "max_output_bytes": 524_288 });
            let read = client.call("read_output", read).await.expect();
            let text = read["output"].as_str().unwrap();
            assert!(!text.is_empty() && text.bytes().all(|byte| byte == b'o'));
            seen += text.len();
            cursor = read["next_cursor"].as_u64().unwrap();
        }
        assert_eq!(seen, bytes);
    }
    assert_eq!(client.run(&workspace, "echo the link lives").await["output"], json!("the link lives\n"));
}
