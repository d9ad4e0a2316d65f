//! What is no plain file, or is one of extraordinary size.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{World, probe};

use crate::desk::{Desk, code, edit};

#[tokio::test(flavor = "multi_thread")]
async fn fed_19_pipes_sockets_and_devices_are_refused_at_once() {
    let desk = Desk::new().await;
    desk.run(
        "mkdir odd; cd odd; mkfifo pipe; echo text > plain
         python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'
         ln -s /dev/zero zero; ln -s /proc/self/mem memory",
    )
    .await;
    let start = Instant::now();
    for (path, refusal) in [
        ("odd/pipe", "NOT_A_REGULAR_FILE"),
        ("odd/socket", "NOT_A_REGULAR_FILE"),
        ("odd/zero", "PATH_OUTSIDE_WORKSPACE"),
        ("odd/memory", "PATH_OUTSIDE_WORKSPACE"),
    ] {
        assert_eq!(code(desk.read(path).await), refusal, "{path}");
        assert_eq!(code(desk.edit(path, "a", "b").await), refusal, "{path}");
        let write = json!({ "path": path, "content": "x" });
        assert_eq!(code(desk.call("write_file", write).await), refusal, "{path}");
    }
    let listed = desk.call("list_files", json!({ "path": "odd" })).await.expect();
    let kinds: Vec<(&str, &str)> = listed["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["path"].as_str().unwrap(), entry["kind"].as_str().unwrap()))
        .collect();
    assert!(kinds.contains(&("odd/pipe", "other")) && kinds.contains(&("odd/zero", "symlink")), "{kinds:?}");
    let found = desk.call("search_files", json!({ "pattern": "text" })).await;
    assert!(found.text().contains("odd/plain:1:text"), "{}", found.text());
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn fed_20_directories_are_no_files_and_files_no_directories() {
    let desk = Desk::new().await;
    desk.run("mkdir dir; echo text > file").await;
    assert_eq!(code(desk.read("dir").await), "IS_A_DIRECTORY");
    assert_eq!(code(desk.edit("dir", "a", "b").await), "IS_A_DIRECTORY");
    for (path, refusal) in [("dir", "IS_A_DIRECTORY"), (".", "IS_A_DIRECTORY"), ("file/x", "NOT_A_DIRECTORY")]
    {
        let write = json!({ "path": path, "content": "x" });
        assert_eq!(code(desk.call("write_file", write).await), refusal, "{path}");
    }
    assert_eq!(code(desk.call("list_files", json!({ "path": "file" })).await), "NOT_A_DIRECTORY");
    assert_eq!(code(desk.call("list_files", json!({ "path": "absent" })).await), "PATH_NOT_FOUND");
    desk.call("write_file", json!({ "path": "new/sub/x", "content": "x" })).await.expect();
    assert_eq!(desk.bytes("new/sub/x"), b"x");
}

#[tokio::test(flavor = "multi_thread")]
async fn fed_26_a_file_of_10_gib_is_read_in_parts_and_edited_never() {
    let desk = Desk::new().await;
    desk.run("seq 20 > big; truncate -s 10G big; echo end >> big").await;
    let before = probe::resident_bytes(desk.world.executor_pid());
    let start = Instant::now();
    let lines = json!({ "path": "big", "start_line": 1, "line_count": 10 });
    assert_eq!(
        desk.call("read_file", lines).await.expect()["content"],
        json!("1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n")
    );
    let end = json!({ "path": "big", "offset": 10_737_418_240_u64, "length": 100 });
    assert_eq!(desk.call("read_file", end).await.expect()["content"], json!("end\n"));
    let error = desk.edit("big", "end", "END").await.expect_error();
    assert_eq!(error["code"], json!("FILE_TOO_LARGE"));
    assert!(error["message"].as_str().unwrap().contains("16777216"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
    let grown = probe::resident_bytes(desk.world.executor_pid()).saturating_sub(before);
    assert!(grown < 64 << 20, "{grown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fed_15_a_full_disk_leaves_the_file_as_it_was() {
    let world = World::builder().executor("RUNLET_FREE_DISK_BYTES", (1_u64 << 60).to_string()).start().await;
    let desk = Desk::in_world(world).await;
    desk.run("printf 0123456789 > orig").await;
    let write = json!({ "path": "orig", "content": "x".repeat(5 << 20) });
    for error in [
        desk.call("write_file", write).await.expect_error(),
        desk.call("edit_file", edit("orig", "5", &"y".repeat(1 << 20))).await.expect_error(),
    ] {
        assert_eq!(
            (&error["code"], &error["retryable"]),
            (&json!("NO_SPACE"), &Value::Bool(true)),
            "{error}"
        );
        assert!(error["message"].as_str().unwrap().contains("no space"), "{error}");
    }
    assert_eq!(desk.bytes("orig"), b"0123456789");
    assert_eq!(desk.run("ls -A").await, "orig\n");
}
