//! What can be downloaded, and what not.

use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::json;
use support::World;

use crate::desk::{Desk, code, sha256, url};

#[tokio::test(flavor = "multi_thread")]
async fn fed_19_pipes_sockets_and_devices_are_refused_at_once() {
    let desk = Desk::new().await;
    desk.run(
        "mkfifo p; ln -s /dev/zero z; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'",
    )
    .await;
    for (path, expected) in [
        ("p", "NOT_A_REGULAR_FILE"),
        ("s", "NOT_A_REGULAR_FILE"),
        ("z", "PATH_OUTSIDE_WORKSPACE"),
        ("/proc/self/mem", "PATH_OUTSIDE_WORKSPACE"),
    ] {
        for arguments in [json!({ "path": path }), json!({ "path": path, "archive": "zip" })] {
            let start = Instant::now();
            assert_eq!(code(desk.call("create_download", arguments).await), expected, "{path}");
            assert_eq!(code(desk.call("create_upload", json!({ "path": path })).await), expected, "{path}");
            assert!(start.elapsed() < Duration::from_secs(1), "{path}: {:?}", start.elapsed());
        }
    }
    assert_eq!(desk.kept(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn fed_20_file_as_a_directory_and_the_reverse() {
    let desk = Desk::new().await;
    desk.run("mkdir d; echo x > file").await;
    for tool in ["create_download", "create_upload"] {
        assert_eq!(code(desk.call(tool, json!({ "path": "file/x" })).await), "NOT_A_DIRECTORY");
        assert_eq!(code(desk.call(tool, json!({ "path": "file/" })).await), "NOT_A_DIRECTORY");
        assert_eq!(code(desk.call(tool, json!({ "path": "" })).await), "INVALID_ARGUMENT");
    }
    assert_eq!(code(desk.call("create_upload", json!({ "path": "d" })).await), "IS_A_DIRECTORY");
    assert_eq!(code(desk.call("create_download", json!({ "path": "nothing" })).await), "PATH_NOT_FOUND");
    // A folder becomes an archive.
    let made = desk.call("create_download", json!({ "path": "d" })).await.expect();
    assert_eq!(made["name"], json!("d.tar.gz"));
    // An upload makes the folders on its way.
    let url = desk.accept("new/sub/x", 10).await;
    assert_eq!(desk.send(&url, "deep").await.0, StatusCode::CREATED);
    assert_eq!(desk.run("cat new/sub/x").await, "deep");
}

#[tokio::test(flavor = "multi_thread")]
async fn fed_22_no_link_leads_out() {
    let desk = Desk::new().await;
    desk.run("ln -s /etc/passwd leak; ln -s / root; echo in > real; ln -s real inside").await;
    for path in ["leak", "root/etc/passwd", "../../../etc/passwd", "/etc/passwd"] {
        for tool in ["create_download", "create_upload"] {
            assert_eq!(
                code(desk.call(tool, json!({ "path": path })).await),
                "PATH_OUTSIDE_WORKSPACE",
                "{path}"
            );
        }
    }
    let made = desk.offer("inside").await;
    assert_eq!(desk.fetch(&made).await, (StatusCode::OK, b"in\n".to_vec()));
}

#[tokio::test(flavor = "multi_thread")]
async fn fed_28_files_of_any_name_are_fetched_by_the_name_that_is_listed() {
    let desk = Desk::new().await;
    desk.run(r#"for f in $'bad\xff.txt' $'nl\nx' $'\x1b[31m' -rf ' lead'; do echo in >"./$f"; done"#).await;
    let listed = desk.call("list_files", json!({})).await.expect();
    let entries = listed["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 5, "{listed}");
    for entry in entries {
        let url = desk.offer(entry["path"].as_str().unwrap()).await;
        assert_eq!(desk.fetch(&url).await, (StatusCode::OK, b"in\n".to_vec()), "{entry}");
    }
    let up = desk.accept("up\\xfe.bin", 10).await;
    assert_eq!(desk.send(&up, "x").await.0, StatusCode::CREATED);
    assert_eq!(desk.run("ls | grep -ac up; cat $'up\\xfe.bin'").await, "1\nx");
}

#[tokio::test(flavor = "multi_thread")]
async fn file_that_only_the_executor_may_read_is_refused() {
    let desk = Desk::new().await;
    std::fs::write(desk.at("root"), "root's").unwrap();
    std::fs::set_permissions(desk.at("root"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(code(desk.call("create_download", json!({ "path": "root" })).await), "PERMISSION_DENIED");
    let archived = desk.call("create_download", json!({ "path": "." })).await.expect();
    assert!(archived["notes"][0].as_str().unwrap().contains("1 entries could not be read"), "{archived}");
    // And nobody but the executor may read a snapshot.
    let root = desk.world.root().join("links");
    let mode = |path: &std::path::Path| {
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(path).unwrap().permissions()) & 0o777
    };
    assert_eq!(mode(&root), 0o700);
    assert_eq!(mode(&root.join(archived["download_id"].as_str().unwrap())), 0o600);
    let job = desk.client.run(&desk.id, &format!("ls {}", root.display())).await;
    assert_ne!(job["exit_code"], json!(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn caps_are_named_and_leave_nothing_behind() {
    let world = World::builder()
        .executor("RUNLET_LINKS_BYTES", (4 << 20).to_string())
        .executor("RUNLET_SNAPSHOT_SECONDS", "2")
        .start()
        .await;
    let desk = Desk::in_world(world).await;
    desk.run("head -c 3M /dev/urandom > f; truncate -s 200G big").await;
    let first = desk.call("create_download", json!({ "path": "f" })).await.expect();
    for arguments in
        [json!({ "path": "f" }), json!({ "path": "f", "archive": "tar.gz" }), json!({ "path": "big" })]
    {
        let error = desk.call("create_download", arguments).await.expect_error();
        assert_eq!(error["code"], json!("LINKS_FULL"), "{error}");
        assert!(error["message"].as_str().unwrap().contains("4194304"), "{error}");
    }
    let start = Instant::now();
    let slow = desk.call("create_download", json!({ "path": "big", "archive": "zip" })).await.expect_error();
    assert!(["SNAPSHOT_TOO_SLOW", "LINKS_FULL"].contains(&slow["code"].as_str().unwrap()), "{slow}");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    let upload =
        desk.call("create_upload", json!({ "path": "u", "max_bytes": 5 << 20 })).await.expect_error();
    assert!(upload["message"].as_str().unwrap().contains("4194304"), "{upload}");
    assert_eq!(desk.kept().len(), 1);
    desk.client.call("revoke_download", json!({ "download_id": first["download_id"] })).await.expect();
    let again = desk.call("create_download", json!({ "path": "f" })).await.expect();
    let (status, content) = desk.fetch(&url(&again)).await;
    assert_eq!((status, json!(sha256(&content))), (StatusCode::OK, again["sha256"].clone()));
}

#[tokio::test(flavor = "multi_thread")]
async fn reserve_of_the_disk_is_respected() {
    let world = World::builder().executor("RUNLET_FREE_DISK_BYTES", (1_u64 << 60).to_string()).start().await;
    let desk = Desk::in_world(world).await;
    desk.run("echo x > f").await;
    assert_eq!(code(desk.call("create_download", json!({ "path": "f" })).await), "NO_SPACE");
    let upload = desk.accept("u", 10).await;
    let (status, text) = desk.send(&upload, "x").await;
    assert_eq!(status, StatusCode::INSUFFICIENT_STORAGE, "{text}");
    assert_eq!(desk.kept(), Vec::<String>::new());
    assert!(!desk.at("u").exists());
}
