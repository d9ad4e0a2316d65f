//! Snapshots and blueprints: what a sandbox has on its disk, for others to begin with.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use support::{Client, World, wait};

use crate::sandbox;

async fn run(client: &Client, id: &str, command: &str) -> Value {
    client.call("execute_in_sandbox", json!({ "sandbox_id": id, "command": command })).await.expect()
}

async fn output(client: &Client, id: &str, command: &str) -> String {
    run(client, id, command).await["output"].as_str().unwrap().to_owned()
}

fn layers(world: &World) -> usize {
    std::fs::read_dir(world.root().join("snapshots")).unwrap().count()
}

async fn snapshot_is_a_beginning(world: &World, system: bool) {
    let client = world.client();
    let id = sandbox(&client, json!({})).await;
    let writer = "echo 1 > a; ln -s a link; mkdir d; echo 2 > d/b; chmod 700 d; \
                  python3 -c 'import os; os.truncate(os.open(\"hole\", os.O_CREAT | os.O_WRONLY), 1 << 33)'; \
                  [ -w /etc ] && { rm /etc/issue; echo own > /etc/motd; useradd ada; touch of; chown ada of; }; true";
    run(&client, &id, writer).await;
    let made = json!({ "sandbox_id": id, "name": "first" });
    let first = client.call("create_snapshot", made.clone()).await.expect();
    assert_eq!((&first["name"], &first["sandbox_id"]), (&json!("first"), &json!(id)));
    assert!(first["size_bytes"].as_u64().unwrap() < 10 << 20, "{first}");
    let again = client.call("create_snapshot", made).await.expect_error();
    assert!(again["message"].as_str().unwrap().contains("name"), "{again}");
    // What comes later is not in it.
    run(&client, &id, "echo 3 > a; rm link").await;
    let next = sandbox(&client, json!({ "snapshot_id": "first" })).await;
    let shown = client.call("get_sandbox", json!({ "sandbox_id": next })).await.expect();
    assert_eq!(shown["snapshot_id"], first["snapshot_id"]);
    let read = "cat link d/b; stat -c '%a' d; stat -c '%s' hole; du hole | cut -f 1";
    assert_eq!(output(&client, &next, read).await, "1\n2\n700\n8589934592\n0\n");
    if system {
        let read = "ls /etc/issue 2>&1 | grep -c 'No such'; cat /etc/motd; stat -c %U of";
        assert_eq!(output(&client, &next, read).await, "1\nown\nada\n");
    }
    // Each has its own from there on, and one of the second has both.
    run(&client, &next, "echo 4 > a; echo 5 > e").await;
    let second = client.call("create_snapshot", json!({ "sandbox_id": next })).await.expect();
    let last = sandbox(&client, json!({ "snapshot_id": second["snapshot_id"] })).await;
    assert_eq!(output(&client, &last, "cat a e d/b").await, "4\n5\n2\n");
    assert_eq!(output(&client, &id, "cat a; ls e 2>&1 | grep -c 'No such'").await, "3\n1\n");
    // Deleting one harms nobody; it goes from the disk with its last user.
    let deleted = client.call("delete_snapshot", json!({ "snapshot_id": "first" })).await.expect();
    assert!(deleted["used_by"].as_array().unwrap().contains(&json!(next)), "{deleted}");
    client.call("delete_snapshot", json!({ "snapshot_id": second["snapshot_id"] })).await.expect();
    assert_eq!(output(&client, &last, "cat a d/b").await, "4\n2\n");
    let gone = client.call("create_sandbox", json!({ "snapshot_id": "first" })).await.expect_error();
    assert_eq!(gone["code"], json!("SNAPSHOT_NOT_FOUND"));
    for id in [&id, &next, &last] {
        client.call("shutdown_sandbox", json!({ "sandbox_id": id })).await.expect();
    }
    assert_eq!(layers(world), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshot_is_a_beginning_for_others() {
    snapshot_is_a_beginning(&World::start().await, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshot_is_a_beginning_where_the_executor_is_an_ordinary_user() {
    snapshot_is_a_beginning(&World::builder().user(31_420).start().await, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshot_of_a_plain_directory_is_a_beginning_too() {
    let world = World::builder().user(31_422).executor("RUNLET_ISOLATION", "none").start().await;
    let client = world.client();
    let made = client.call("create_sandbox", json!({ "files": { "a": "1" } })).await.expect();
    let saved = client.call("create_snapshot", json!({ "sandbox_id": made["id"] })).await.expect();
    let next = client.call("create_sandbox", json!({ "snapshot_id": saved["snapshot_id"] })).await.expect();
    assert_eq!(output(&client, next["id"].as_str().unwrap(), "cat a; echo 2 > b").await, "1");
    // Nothing stood still for it, and the time of jobs goes on.
    let late = json!({ "sandbox_id": made["id"], "command": "sleep 60", "timeout_seconds": 1 });
    let late = client.call("execute_in_sandbox", late).await.expect();
    assert_eq!(late["status"], json!("timed_out"), "{late}");
}

/// Its jobs could lead an executor with root's rights elsewhere while it copies.
#[tokio::test(flavor = "multi_thread")]
async fn plain_directory_is_not_saved_by_root() {
    let world = World::builder().executor("RUNLET_ISOLATION", "none").start().await;
    let client = world.client();
    let made = client.call("create_sandbox", json!({})).await.expect();
    let error = client.call("create_snapshot", json!({ "sandbox_id": made["id"] })).await.expect_error();
    assert!(error["message"].as_str().unwrap().contains("plain directory"), "{error}");
    let built = json!({ "name": "b", "setup_commands": ["true"] });
    let built = client.call("create_blueprint", built).await.expect();
    assert_eq!(built["status"], json!("failed"), "{built}");
    assert!(built["build_log"].as_str().unwrap().contains("plain directories"), "{built}");
    let listed = client.call("list_sandboxes", json!({})).await.expect();
    assert_eq!((&listed["sandboxes"].as_array().unwrap().len(), layers(&world)), (&1, 0), "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshot_of_what_is_being_written_is_of_one_moment() {
    let mut world = World::start().await;
    let client = world.client();
    let id = sandbox(&client, json!({})).await;
    // Each round writes its number into every file, in order.
    let writer = "python3 -u -c '
import itertools
files = [open(f\"f{i}\", \"wb\", buffering=0) for i in range(40)]
for n in itertools.count():
    for file in files:
        file.seek(0)
        file.write(b\"%9d\" % n)
    if n == 50: print(\"on\")
'";
    let start = json!({ "sandbox_id": id, "command": writer, "wait_seconds": 0 });
    let job = client.call("execute_in_sandbox", start).await.expect();
    let job = job["job_id"].as_str().unwrap();
    wait::until("the writer to run", Duration::from_secs(20), async || {
        client.output(job).await.contains("on")
    })
    .await;
    let saved = client.call("create_snapshot", json!({ "sandbox_id": id, "name": "kept" })).await.expect();
    assert_eq!(client.job(job).await["status"], json!("running"));
    let count = async |client: &Client, id: &str| {
        let numbers = output(client, id, "cat f? f?? | tr -s ' ' '\\n' | grep . | sort -u").await;
        numbers.lines().map(|line| line.parse::<u64>().unwrap()).collect::<Vec<_>>()
    };
    let next = sandbox(&client, json!({ "snapshot_id": saved["snapshot_id"] })).await;
    let seen = count(&client, &next).await;
    assert!(seen.len() <= 2 && seen[seen.len() - 1] - seen[0] <= 1 && seen[0] >= 50, "{seen:?}");
    // It is there after a restart, and what was suspended on it goes on.
    client.call("suspend_sandbox", json!({ "sandbox_id": next })).await.expect();
    client.call("delete_snapshot", json!({ "snapshot_id": "kept" })).await.expect();
    world.kill_executor().await;
    world.start_executor().await;
    client.call("resume_sandbox", json!({ "sandbox_id": next })).await.expect();
    assert_eq!(count(&client, &next).await, seen);
    client.call("shutdown_sandbox", json!({ "sandbox_id": next })).await.expect();
    assert_eq!(layers(&world), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn blueprint_is_built_once_and_found_by_its_name() {
    let world = World::start().await;
    let client = world.client();
    let tools = json!({
        "name": "tools",
        "setup_commands": [
            "echo prepared; echo 1 >> count; cat given > copy",
            "echo 'echo from the tool' > /usr/local/bin/tool; chmod +x /usr/local/bin/tool",
        ],
        "files": { "given": "x\n" },
    });
    let built = client.call("create_blueprint", tools.clone()).await.expect();
    assert_eq!(built["status"], json!("ready"), "{built}");
    let log = built["build_log"].as_str().unwrap();
    assert!(log.starts_with("$ echo prepared") && log.contains("\nprepared\n"), "{log}");
    assert!(!Path::new("/usr/local/bin/tool").exists());
    // The sandbox that it was built in is gone; asked for again, it is the same.
    let listed = client.call("list_sandboxes", json!({})).await.expect();
    assert_eq!(listed["sandboxes"], json!([]));
    let again = client.call("create_blueprint", tools.clone()).await.expect();
    assert_eq!(again["blueprint_id"], built["blueprint_id"]);
    let other = json!({ "name": "tools", "setup_commands": ["true"] });
    let error = client.call("create_blueprint", other).await.expect_error();
    assert_eq!(error["code"], json!("BLUEPRINT_EXISTS"), "{error}");
    // An equal one by another name shares its disk.
    let mut alias = tools.clone();
    alias["name"] = json!("alias");
    let alias = client.call("create_blueprint", alias).await.expect();
    assert_eq!((&alias["status"], layers(&world)), (&json!("ready"), 1));
    let more = json!({ "name": "more", "base": "tools", "setup_commands": ["tool > said; echo 2 >> count"] });
    let more = client.call("create_blueprint", more).await.expect();
    assert_eq!((&more["status"], &more["base"]), (&json!("ready"), &json!("tools")), "{more}");
    let id = sandbox(&client, json!({ "blueprint": "more" })).await;
    assert_eq!(
        output(&client, &id, "tool; cat said count copy").await,
        "from the tool\nfrom the tool\n1\n2\nx\n"
    );
    let plain = sandbox(&client, json!({ "blueprint": "tools" })).await;
    assert_eq!(output(&client, &plain, "cat count; ls said 2>&1 | grep -c 'No such'").await, "1\n1\n");
    // run_code takes one of its own blueprint only.
    let code = json!({ "command": "tool", "blueprint": "tools" });
    let first = client.call("run_code", code.clone()).await.expect();
    assert_eq!((&first["reused"], &first["job"]["output"]), (&json!(false), &json!("from the tool\n")));
    assert_eq!(client.call("run_code", code).await.expect()["reused"], json!(true));
    let bare = client.call("run_code", json!({ "command": "tool" })).await.expect();
    assert_eq!((&bare["reused"], &bare["job"]["exit_code"]), (&json!(false), &json!(127)));
    // Deleting one harms none of those.
    let deleted = client.call("delete_blueprint", json!({ "name": "tools" })).await.expect();
    assert!(deleted["used_by"].as_array().unwrap().contains(&json!(plain)), "{deleted}");
    client.call("delete_blueprint", json!({ "name": "alias" })).await.expect();
    assert_eq!(output(&client, &plain, "tool").await, "from the tool\n");
    assert_eq!(
        output(&client, &sandbox(&client, json!({ "blueprint": "more" })).await, "tool").await,
        "from the tool\n"
    );
    let names = client.call("list_blueprints", json!({})).await.expect();
    assert_eq!(names["blueprints"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_build_shows_its_log_and_can_be_tried_again() {
    let mut world = World::start().await;
    let client = world.client();
    let broken = json!({ "name": "b", "setup_commands": ["echo fine", "echo no such thing >&2; exit 3", "echo never"] });
    let failed = client.call("create_blueprint", broken).await.expect();
    assert_eq!(failed["status"], json!("failed"), "{failed}");
    let log = failed["build_log"].as_str().unwrap();
    assert!(log.contains("no such thing") && log.ends_with("command 2 exited 3\n"), "{log}");
    assert!(!log.contains("never"), "{log}");
    let error = client.call("create_sandbox", json!({ "blueprint": "b" })).await.expect_error();
    assert!(error["message"].as_str().unwrap().contains("get_blueprint"), "{error}");
    assert_eq!(
        (layers(&world), &client.call("list_sandboxes", json!({})).await.expect()["sandboxes"]),
        (0, &json!([]))
    );
    let mended = json!({ "name": "b", "setup_commands": ["echo fine"] });
    assert_eq!(client.call("create_blueprint", mended).await.expect()["status"], json!("ready"));
    for (arguments, named) in [
        (json!({ "name": "c", "setup_commands": [] }), "setup_commands"),
        (json!({ "name": "c", "setup_commands": ["true", " "] }), "command 2"),
        (json!({ "name": "a b", "setup_commands": ["true"] }), "name"),
        (json!({ "name": "c", "setup_commands": ["true"], "base": "nosuch" }), "nosuch"),
    ] {
        let error = client.call("create_blueprint", arguments).await.expect_error();
        assert!(error.to_string().contains(named), "{named}: {error}");
    }
    // One that is being built when the executor goes is told as failed.
    let slow = json!({ "name": "slow", "setup_commands": ["echo begun; sleep 600"] });
    let other = client.clone();
    let asked = tokio::spawn(async move { other.call("create_blueprint", slow).await });
    wait::until("the build to begin", Duration::from_secs(20), async || {
        let found = client.call("get_blueprint", json!({ "name": "slow" })).await;
        found.object()["status"] == json!("building")
    })
    .await;
    let error = client.call("create_sandbox", json!({ "blueprint": "slow" })).await.expect_error();
    assert_eq!(error["code"], json!("BLUEPRINT_NOT_READY"), "{error}");
    world.kill_executor().await;
    asked.abort();
    world.start_executor().await;
    let found = client.call("get_blueprint", json!({ "name": "slow" })).await.expect();
    assert_eq!(found["status"], json!("failed"), "{found}");
    assert!(found["build_log"].as_str().unwrap().contains("the executor ended"), "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn run_code_names_the_files_it_made() {
    let world = World::start().await;
    let client = world.client();
    let code = json!({ "command": "mkdir out; echo 1 > out/report.xml; echo 2 > b; cat given", "files": { "given": "x\n" } });
    let ran = client.call("run_code", code).await.expect();
    let mut artifacts: Vec<String> = serde_json::from_value(ran["artifacts"].clone()).unwrap();
    artifacts.sort();
    assert!(artifacts.contains(&"/home/user/b".to_owned()), "{ran}");
    assert!(artifacts.contains(&"/home/user/out/report.xml".to_owned()), "{ran}");
    assert!(!artifacts.contains(&"/home/user/given".to_owned()), "{ran}");
    let file = json!({ "sandbox_id": ran["sandbox_id"], "file_path": "/home/user/out/report.xml" });
    assert_eq!(client.call("download_artifact", file).await.expect()["content"], json!("MQo="));
}
