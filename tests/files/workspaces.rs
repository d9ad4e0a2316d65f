//! Workspaces: names, lists, environment, state, deletion.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use support::{Client, World, probe, wait};

async fn create(client: &Client, name: &str) -> Value {
    client.call("create_workspace", json!({ "name": name, "python": false })).await.expect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_unique_while_it_lives_and_stands_for_the_id() {
    let world = World::start().await;
    let client = world.client();
    let first = create(&client, "demo.1_a-B").await;
    let again = json!({ "name": "demo.1_a-B", "python": false });
    let error = client.call("create_workspace", again.clone()).await.expect_error();
    assert_eq!(error["code"], json!("WORKSPACE_EXISTS"));
    assert!(error["next"].as_str().unwrap().contains(first["workspace_id"].as_str().unwrap()), "{error}");
    for id in [&first["workspace_id"], &json!("demo.1_a-B")] {
        let write = json!({ "workspace_id": id, "path": "f", "content": "x" });
        client.call("write_file", write).await.expect();
        let found = client.call("get_workspace", json!({ "workspace_id": id })).await.expect();
        assert_eq!(found["workspace_id"], first["workspace_id"]);
    }
    for name in ["", "a b", "a/b", ".hidden", "-rf", "ümlaut", "a\nb", &"x".repeat(65), "ws_abcdefghijkl"] {
        let answer = client.call("create_workspace", json!({ "name": name, "python": false })).await;
        if name.is_empty() {
            assert_eq!(answer.expect()["name"], json!(null), "no name is no name");
            continue;
        }
        let error = answer.expect_error();
        assert_eq!(error["code"], json!("INVALID_ARGUMENT"), "{name:?}");
        assert!(error["message"].as_str().unwrap().starts_with("name: "), "{error}");
    }
    // Of 8 who want one name at once, one gets it.
    let racing = (0..8).map(|_| client.call("create_workspace", json!({ "name": "race", "python": false })));
    let won = futures::future::join_all(racing).await.iter().filter(|answer| !answer.is_error()).count();
    assert_eq!(won, 1);
    client.call("delete_workspace", json!({ "workspace_id": "demo.1_a-B" })).await.expect();
    let second = client.call("create_workspace", again).await.expect();
    assert_ne!(second["workspace_id"], first["workspace_id"]);
    let listed = client.call("list_files", json!({ "workspace_id": "demo.1_a-B" })).await.expect();
    assert_eq!(listed["entries"], json!([]));
    for tool in ["get_workspace", "delete_workspace"] {
        let error = client.call(tool, json!({ "workspace_id": first["workspace_id"] })).await.expect_error();
        assert_eq!(error["code"], json!("WORKSPACE_NOT_FOUND"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_come_in_pages_newest_first_and_survive_a_restart() {
    let mut world = World::start().await;
    let client = world.client();
    for number in 0..5 {
        create(&client, &format!("w{number}")).await;
    }
    let mut names = Vec::new();
    let mut token = Value::Null;
    loop {
        let page = json!({ "page_size": 2, "page_token": token });
        let page = client.call("list_workspaces", page).await.expect();
        let rows = page["workspaces"].as_array().unwrap().clone();
        names.extend(rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()));
        token = page["next_page_token"].clone();
        if token.is_null() {
            break;
        }
        assert_eq!(rows.len(), 2);
    }
    assert_eq!(names, ["w4", "w3", "w2", "w1", "w0"]);
    let error = client.call("list_workspaces", json!({ "page_token": "nonsense" })).await.expect_error();
    assert!(error["message"].as_str().unwrap().contains("page_token"), "{error}");
    let before = client.call("list_workspaces", json!({})).await.expect();
    world.signal_executor(rustix::process::Signal::KILL);
    world.executor_ended().await;
    world.start_executor().await;
    assert_eq!(client.call("list_workspaces", json!({})).await.expect(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn environment_is_given_to_commands_and_named_but_not_shown() {
    let world = World::start().await;
    let client = world.client();
    let create = json!({ "name": "e", "python": false, "env": { "B": "VALUE-CANARY", "A": "a b\n€" } });
    let made = client.call("create_workspace", create).await;
    assert!(!made.text().contains("VALUE-CANARY"));
    assert_eq!(made.expect()["env"], json!(["A", "B"]));
    let shown = client.run("e", "printf '%s|%s|%s' \"$A\" \"$B\" \"$TZ\"").await;
    assert_eq!(
        shown["output"],
        json!("a b\n€|VALUE-CANARY|UTC\n").as_str().map(|text| json!(text.trim_end())).unwrap()
    );
    for env in [json!({ "A=B": "x" }), json!({ "": "x" }), json!({ "A": "nul\0" })] {
        let error =
            client.call("create_workspace", json!({ "env": env, "python": false })).await.expect_error();
        assert!(error["message"].as_str().unwrap().starts_with("env: "), "{error}");
    }
    let own = client.run("e", "cd && pwd; echo $TMPDIR; touch $TMPDIR/t ~/h; id -un; echo $USER").await;
    let output = own["output"].as_str().unwrap();
    let lines: Vec<&str> = output.lines().collect();
    let record = client.call("get_workspace", json!({ "workspace_id": "e" })).await.expect();
    assert_eq!(json!(lines[0]), record["home"], "{output}");
    assert!(
        lines[1].ends_with("/tmp") && lines[1].contains(record["workspace_id"].as_str().unwrap()),
        "{output}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_shows_its_jobs_disk_use_and_git_state() {
    let world = World::start().await;
    let client = world.client();
    let made = create(&client, "w").await;
    let show = async || client.call("get_workspace", json!({ "workspace_id": "w" })).await.expect();
    let empty = show().await;
    assert_eq!((&empty["running_jobs"], &empty["git_status"]), (&json!([]), &Value::Null));
    let job = json!({ "workspace_id": "w", "command": "sleep 31417.001", "wait_seconds": 0 });
    let job = client.call("run_command", job).await.expect();
    client.run("w", "head -c 1M /dev/urandom > blob; git init -q -b trunk; git add blob").await;
    let shown = show().await;
    assert_eq!(shown["running_jobs"], json!([job["job_id"]]));
    assert!(shown["disk_bytes"].as_u64().unwrap() >= (1 << 20) + empty["disk_bytes"].as_u64().unwrap());
    assert_eq!(shown["git_status"], json!({ "branch": "trunk", "commit": null, "changed_paths": 1 }));
    let commit = "git -c user.name=a -c user.email=a@b commit -qm one && git rev-parse HEAD; touch new";
    let id = client.run("w", commit).await["output"].as_str().unwrap().trim_end().to_owned();
    let status = json!({ "branch": "trunk", "commit": id, "changed_paths": 1 });
    assert_eq!(show().await["git_status"], status);
    let deleted = client.call("delete_workspace", json!({ "workspace_id": "w" })).await.expect();
    assert_eq!(deleted["ended_jobs"], json!([job["job_id"]]));
    assert!(deleted["removed_bytes"].as_u64().unwrap() >= 1 << 20, "{deleted}");
    assert!(probe::marked("31417.001").is_empty());
    assert!(!Path::new(made["path"].as_str().unwrap()).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_around_the_data_root_is_none_of_a_workspaces() {
    let world = World::start().await;
    let client = world.client();
    let init = std::process::Command::new("git").args(["init", "-q"]).current_dir(world.directory()).status();
    assert!(init.unwrap().success());
    create(&client, "w").await;
    let inside = client.run("w", "git rev-parse --show-toplevel; mkdir -p a/b; cd a/b; git status").await;
    let output = inside["output"].as_str().unwrap();
    assert_eq!(output.matches("not a git repository").count(), 2, "{output}");
    let shown = client.call("get_workspace", json!({ "workspace_id": "w" })).await.expect();
    assert_eq!(shown["git_status"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn ws_01_a_deleted_workspace_stays_gone_whatever_its_jobs_do() {
    let world = World::start().await;
    let client = world.client();
    let made = create(&client, "w").await;
    let work = made["path"].as_str().unwrap();
    for command in [
        "W=$(pwd -P); cd /; while :; do mkdir -p \"$W\"; date >> \"$W/log\"; sleep .1; done # plain",
        "(setsid bash -c 'W=$(pwd -P); cd /; while :; do mkdir -p \"$W\"; : > \"$W/log\"; sleep .1; done; : 31417.002' &)",
        "trap '' TERM HUP; while :; do sleep 0.1; done; : 31417.002",
    ] {
        let job = json!({ "workspace_id": "w", "command": command, "wait_seconds": 1 });
        client.call("run_command", job).await.expect();
    }
    client.run("w", "mkdir -p locked/in && chmod 000 locked/in && chmod 000 locked").await;
    let deleted = client.call("delete_workspace", json!({ "workspace_id": "w" })).await.expect();
    assert!(deleted["ended_jobs"].as_array().unwrap().len() >= 2, "{deleted}");
    assert!(!Path::new(work).parent().unwrap().exists(), "the folder is gone when the call answers");
    create(&client, "w").await;
    let listed =
        client.call("list_files", json!({ "workspace_id": "w", "include_ignored": true })).await.expect();
    assert_eq!(listed["entries"], json!([]));
    let mut looks = 0;
    wait::until("a second in which nothing comes back", Duration::from_secs(20), async || {
        assert!(!Path::new(work).exists());
        looks += 1;
        looks > 50
    })
    .await;
    assert!(std::fs::read_dir(world.root().join("workspaces")).unwrap().flatten().count() <= 2 + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_on_a_workspace_that_is_being_deleted_find_none() {
    let world = World::start().await;
    let client = world.client();
    create(&client, "w").await;
    let job = json!({ "workspace_id": "w", "command": "trap '' TERM; while :; do sleep 0.1; done", "wait_seconds": 1 });
    client.call("run_command", job).await.expect();
    let deleting = tokio::spawn(client.call("delete_workspace", json!({ "workspace_id": "w" })));
    wait::until("the name to be free", Duration::from_secs(5), async || {
        client.call("get_workspace", json!({ "workspace_id": "w" })).await.is_error()
    })
    .await;
    assert!(!deleting.is_finished(), "the job takes its grace");
    create(&client, "w").await;
    deleting.await.unwrap().expect();
    client.call("get_workspace", json!({ "workspace_id": "w" })).await.expect();
}

#[tokio::test(flavor = "multi_thread")]
async fn http_05_a_creation_whose_client_goes_away_is_whole_or_nothing() {
    let world = World::start().await;
    let client = world.client();
    for micros in [0, 200, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000] {
        let name = format!("w{micros}");
        let create = json!({ "name": name, "python": false });
        let call = client.call("create_workspace", create.clone());
        let _dropped_or_done = tokio::time::timeout(Duration::from_micros(micros), call).await;
        let again = client.call("create_workspace", create).await;
        if again.is_error() {
            let error = again.expect_error();
            assert_eq!(error["code"], json!("WORKSPACE_EXISTS"), "{error}");
        }
        wait::until("the workspace", Duration::from_secs(5), async || {
            let shown = client.call("get_workspace", json!({ "workspace_id": name })).await;
            !shown.is_error() && shown.object()["status"] == json!("ready")
        })
        .await;
        assert_eq!(client.run(&name, "echo works").await["output"], json!("works\n"));
    }
}
