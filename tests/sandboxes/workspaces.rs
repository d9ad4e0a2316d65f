//! Workspaces that are kept apart as sandboxes are, by setting.

use std::path::Path;

use serde_json::json;
use support::{World, probe};

#[tokio::test(flavor = "multi_thread")]
async fn workspaces_are_kept_apart_by_setting() {
    kept_apart(World::builder().executor("RUNLET_ISOLATE_WORKSPACES", "true").start().await, true, "33020.1")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workspaces_are_kept_apart_where_the_executor_is_an_ordinary_user() {
    let world = World::builder().user(31_421).executor("RUNLET_ISOLATE_WORKSPACES", "true").start().await;
    kept_apart(world, false, "33021.1").await;
}

/// `marker` is in the command line of what it leaves running, for nobody else's to be taken for that.
async fn kept_apart(mut world: World, system: bool, marker: &str) {
    let client = world.client();
    let made = client.call("create_workspace", json!({ "name": "one" })).await.expect();
    assert_eq!(made["isolation"], json!("namespaces"), "{made}");
    let (one, path) = (made["workspace_id"].as_str().unwrap(), made["path"].as_str().unwrap());
    let two = client.workspace().await;
    client.run(one, &format!("echo hidden > secret; (setsid sleep {marker} &); true")).await;
    let secret = format!("{path}/secret");
    for (id, seen) in [(one, "hidden\n1\n"), (two.as_str(), "0\n")] {
        let look = client
            .run(id, &format!("cat {secret} 2>/dev/null; pgrep -c -f 'sleep [3]{}'", &marker[1..]))
            .await;
        assert_eq!(look["output"], json!(seen), "{look}");
    }
    for attack in [
        format!("ls {}/logs", world.root().display()),
        format!("cat {}.secret", world.socket().display()),
        format!("kill -0 {}", world.executor_pid()),
    ] {
        let tried = client.run(&two, &format!("{attack} && echo LEAK")).await;
        assert!(!tried["output"].as_str().unwrap().contains("LEAK"), "{attack}: {tried}");
    }
    // Everything is where it is outside, and works: files, the Python environment, shells, terminals.
    let read = json!({ "workspace_id": one, "path": secret });
    assert_eq!(client.call("read_file", read.clone()).await.expect()["content"], json!("hidden\n"));
    let python =
        client.run(one, "python -c 'import sys; print(sys.prefix)'; pip --version | cut -c 1-4; pwd").await;
    let venv = made["python"]["venv"].as_str().unwrap();
    assert_eq!(python["output"], json!(format!("{venv}\npip \n{path}\n")), "{python}");
    client.run_with(one, "cd /tmp; X=1", json!({ "shell": "s" })).await;
    let shell = client.run_with(one, "pwd; echo $X", json!({ "shell": "s" })).await;
    assert_eq!(shell["output"], json!("/tmp\n1\n"), "{shell}");
    let open = json!({ "workspace_id": one, "command": "tty; cat secret; exec cat" });
    let terminal = client.call("open_terminal", open).await.expect();
    let look = json!({ "terminal_id": terminal["terminal_id"], "until": "hidden", "wait_seconds": 10 });
    let shown = client.call("read_terminal", look).await.expect().to_string();
    assert!(shown.contains("/dev/pts/0"), "{shown}");
    if system {
        let change = client.run(one, "touch /etc/runlet-test && ls /etc/runlet-test").await;
        assert_eq!(change["output"], json!("/etc/runlet-test\n"), "{change}");
        assert!(!Path::new("/etc/runlet-test").exists());
    }
    // It lives on over a restart of the executor, with what it changed of the system.
    world.kill_executor().await;
    world.start_executor().await;
    assert_eq!(probe::marked(marker), [0; 0]);
    assert_eq!(client.call("read_file", read).await.expect()["content"], json!("hidden\n"));
    if system {
        let kept = client.run(one, "ls /etc/runlet-test; git init -q; git status --short").await;
        assert_eq!(kept["output"], json!("/etc/runlet-test\n?? secret\n"), "{kept}");
    }
    let shown = client.call("get_workspace", json!({ "workspace_id": one })).await.expect();
    assert_eq!((&shown["isolation"], &shown["status"]), (&json!("namespaces"), &json!("ready")), "{shown}");
    client.run(one, &format!("(setsid sleep {marker} &); true")).await;
    client.call("delete_workspace", json!({ "workspace_id": one })).await.expect();
    assert_eq!(probe::marked(marker), [0; 0]);
    let left = std::fs::read_dir(world.root().join("sandboxes")).unwrap().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).filter(|name| *name != *two).collect();
    assert!(left.iter().all(|name| name == "trial"), "{left:?}");
}

/// Ends process 1 of the only sandbox of an executor from outside.
fn kill_process_1(world: &World) {
    let is_it = |pid: &u32| {
        let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.starts_with("/run/runlet/init")
    };
    let found: Vec<u32> = probe::descendants(world.executor_pid()).into_iter().filter(is_it).collect();
    let first = found.iter().min().unwrap().cast_signed();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(first).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_process_1_is_noticed() {
    let world = World::builder().executor("RUNLET_ISOLATE_WORKSPACES", "true").start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    client.run(&workspace, "echo kept > a").await;
    kill_process_1(&world);
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert_eq!(client.run(&workspace, "cat a").await["output"], json!("kept\n"));
    client.call("delete_workspace", json!({ "workspace_id": workspace })).await.expect();
    let id = crate::sandbox(&client, json!({})).await;
    client.run(&id, "true").await;
    kill_process_1(&world);
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let error = client.refused(&id, "true", json!({})).await;
    assert!(error["message"].as_str().unwrap().contains("process 1"), "{error}");
    client.call("shutdown_sandbox", json!({ "sandbox_id": id })).await.expect();
}
