//! Two executors and one data root.

use std::process::Stdio;
use std::time::Duration;

use serde_json::json;
use support::World;
use support::world::program;
use tokio::process::Command;

#[tokio::test(flavor = "multi_thread")]
async fn a_second_executor_is_refused_and_told_who_holds_the_root() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let job = client.start(&workspace, "sleep 2; echo done").await;
    for own_socket in [true, false] {
        let socket = if own_socket { world.directory().join("other/executor.sock") } else { world.socket() };
        let second = Command::new(program("runlet-executor"))
            .env("SANDBOX_ROOT", world.root())
            .env("RUNLET_SOCKET", socket)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(Duration::from_secs(10), second).await.unwrap().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(&format!("process id {}", world.executor_pid())), "{said}");
        assert!(said.contains("SANDBOX_ROOT"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    // The first one has not noticed.
    assert_eq!(client.ended(support::jobs::id(&job)).await["status"], json!("exited"));
    assert_eq!(client.run(&workspace, "echo ok").await["output"], json!("ok\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn executors_with_roots_of_their_own_do_not_meet() {
    let (one, two) = tokio::join!(World::start(), World::start());
    let (first, second) = (one.client(), two.client());
    let (here, there) = (first.workspace().await, second.workspace().await);
    assert_eq!(first.run(&here, "echo one").await["output"], json!("one\n"));
    assert_eq!(second.run(&there, "echo two").await["output"], json!("two\n"));
    let error = first.call("get_workspace", json!({ "workspace_id": there })).await.expect_error();
    assert_eq!(error["code"], json!("WORKSPACE_NOT_FOUND"));
}
