//! Where paths may lead.

use serde_json::json;

use crate::desk::{Desk, code};

#[tokio::test(flavor = "multi_thread")]
async fn fed_21_22_nothing_outside_is_read_written_or_told_of() {
    let desk = Desk::new().await;
    let other = desk.client.workspace().await;
    desk.client
        .call("write_file", json!({ "workspace_id": other, "path": "s", "content": "SECRET" }))
        .await
        .expect();
    let others = desk.world.root().join("workspaces").join(&other).join("work/s");
    desk.run("mkdir x; ln -s /etc/passwd leak; ln -s / root; ln -s ../../.. up").await;
    let beside = format!("../../{other}/work/s");
    for path in [
        others.to_str().unwrap(),
        &beside,
        &format!("x/../{beside}"),
        "x/./../../../../../..//etc/passwd",
        "/etc/passwd",
        "/etc/absent",
        "leak",
        "root/etc/passwd",
        "root/etc/absent",
        "up/up",
        "~/../../x",
    ] {
        for answer in [
            desk.read(path).await,
            desk.edit(path, "root", "x").await,
            desk.call("write_file", json!({ "path": path, "content": "x" })).await,
        ] {
            let error = answer.expect_error();
            assert_eq!(error["code"], json!("PATH_OUTSIDE_WORKSPACE"), "{path}: {error}");
            assert!(!error.to_string().contains("SECRET") && !error.to_string().contains("root:"), "{error}");
        }
    }
    for path in ["/etc", "root/etc", "up"] {
        assert_eq!(code(desk.call("list_files", json!({ "path": path })).await), "PATH_OUTSIDE_WORKSPACE");
        let search = json!({ "path": path, "pattern": "root" });
        assert_eq!(code(desk.call("search_files", search).await), "PATH_OUTSIDE_WORKSPACE");
    }
    assert_eq!(code(desk.read("%2e%2e/x").await), "PATH_NOT_FOUND");
    assert_eq!(code(desk.read("~/.ssh/id_rsa").await), "PATH_NOT_FOUND");
    assert!(matches!(code(desk.read("").await).as_str(), "INVALID_ARGUMENT" | "IS_A_DIRECTORY"));
    let found = desk.call("search_files", json!({ "pattern": "root:" })).await;
    assert!(found.text().starts_with("0 matching lines"), "{}", found.text());
    // What lies inside is reached by every spelling.
    desk.call("write_file", json!({ "path": "~/h", "content": "home" })).await.expect();
    assert_eq!(desk.run("cat ~/h").await, "home");
    let absolute = desk.at("in");
    desk.call("write_file", json!({ "path": absolute, "content": "in" })).await.expect();
    assert_eq!(desk.bytes("in"), b"in");
}

#[tokio::test(flavor = "multi_thread")]
async fn fed_24_a_directory_swapped_for_a_link_leads_nowhere() {
    let desk = Desk::new().await;
    let outside = desk.run("mktemp -d /tmp/runlet-outside-XXXXXX").await.trim_end().to_owned();
    let swap = format!(
        "mkdir d; ln -s {outside} e; exec python3 -c '
import ctypes
libc = ctypes.CDLL(None)
while True:
    libc.renameat2(-100, b\"d\", -100, b\"e\", 2)
'"
    );
    let job = desk.call("run_command", json!({ "command": swap, "wait_seconds": 1 })).await.expect();
    assert_eq!(job["status"], json!("running"), "{job}");
    let mut landed = 0;
    for number in 0..300 {
        let write = json!({ "path": "d/x", "content": number.to_string() });
        let answer = desk.call("write_file", write).await;
        if answer.is_error() {
            assert_eq!(code(answer), "PATH_OUTSIDE_WORKSPACE");
        } else {
            landed += 1;
        }
    }
    desk.client.call("cancel_job", json!({ "job_id": job["job_id"] })).await.expect();
    assert!(std::fs::read_dir(&outside).unwrap().next().is_none(), "something was written to {outside}");
    std::fs::remove_dir(outside).unwrap();
    assert!(landed > 0);
}
