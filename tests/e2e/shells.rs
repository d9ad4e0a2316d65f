//! Named shells: what a command leaves behind in its bash is there for the next one.

use serde_json::{Value, json};
use support::{Answer, Client, World};

async fn answer(client: &Client, workspace: &str, command: &str) -> Answer {
    let run = json!({ "workspace_id": workspace, "command": command, "shell": "main", "wait_seconds": 20 });
    client.call("run_command", run).await
}

async fn shell(client: &Client, workspace: &str, command: &str) -> Value {
    answer(client, workspace, command).await.expect()
}

async fn world() -> (World, Client, String) {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    (world, client, workspace)
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_and_variables_stay() {
    let (_world, client, workspace) = world().await;
    shell(&client, &workspace, "mkdir -p a/b; cd a/b; NAME='x y'; greet() { echo \"hi $1\"; }").await;
    let next = shell(&client, &workspace, "basename \"$PWD\"; echo \"$NAME\"; greet you").await;
    assert_eq!((next["output"].as_str(), next["exit_code"].as_i64()), (Some("b\nx y\nhi you\n"), Some(0)));
    let other = json!({ "workspace_id": workspace, "command": "basename \"$PWD\"; echo \"[$NAME]\"", "shell": "other" });
    assert_eq!(client.call("run_command", other).await.expect()["output"], json!("work\n[]\n"));
    let there =
        json!({ "workspace_id": workspace, "command": "basename \"$PWD\"", "shell": "main", "cwd": "a" });
    assert_eq!(client.call("run_command", there).await.expect()["output"], json!("a\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_03_20_output_and_status_are_those_of_the_command() {
    let (_world, client, workspace) = world().await;
    let document = "cat <<'EOF'\nfirst\nEOF\necho second; printf 'no newline'";
    assert_eq!(shell(&client, &workspace, document).await["output"], json!("first\nsecond\nno newline"));
    let failed = shell(&client, &workspace, "false").await;
    assert_eq!((failed["status"].as_str(), failed["exit_code"].as_i64()), (Some("exited"), Some(1)));
    let forged = shell(
        &client,
        &workspace,
        "printf 's0\\0' >&3; set | grep -c __runlet; tr '\\0' ' ' </proc/$$/cmdline | wc -l",
    )
    .await;
    assert!(forged["output"].as_str().unwrap().contains("3: Bad file descriptor"), "{forged}");
    assert_eq!(shell(&client, &workspace, "echo still here").await["output"], json!("still here\n"));
    let input = shell(&client, &workspace, "read x; echo \"[$x]\"").await;
    assert_eq!(input["output"], json!("[]\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_17_a_deleted_directory_does_not_end_the_shell() {
    let (_world, client, workspace) = world().await;
    shell(&client, &workspace, "mkdir d && cd d").await;
    shell(&client, &workspace, "rm -rf \"$PWD\"").await;
    let moved = answer(&client, &workspace, "echo hello").await;
    assert!(
        moved.text().contains("the shell's directory was gone; the command ran in /"),
        "{}",
        moved.text()
    );
    assert_eq!(
        (moved.object()["output"].as_str(), moved.object()["exit_code"].as_i64()),
        (Some("hello\n"), Some(0))
    );
    assert_eq!(shell(&client, &workspace, "cd / && pwd").await["output"], json!("/\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_19_a_shell_that_ends_is_followed_by_a_new_one() {
    let (_world, client, workspace) = world().await;
    assert_eq!(shell(&client, &workspace, "set -euo pipefail; false").await["exit_code"], json!(1));
    assert_eq!(shell(&client, &workspace, "echo alive").await["output"], json!("alive\n"));
    let ended = answer(&client, &workspace, "exit 4").await;
    assert_eq!(ended.object()["exit_code"], json!(4));
    assert!(ended.text().contains("the shell ended with this command"), "{}", ended.text());
    assert_eq!(shell(&client, &workspace, "echo alive2").await["output"], json!("alive2\n"));
    shell(&client, &workspace, "alias echo=false; PS1=; trap 'exit 9' DEBUG").await;
    shell(&client, &workspace, "/bin/echo x").await;
    assert_eq!(shell(&client, &workspace, "/bin/echo y").await["output"], json!("y\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_shell_says_what_it_runs_and_can_be_freed() {
    let (_world, client, workspace) = world().await;
    let start =
        json!({ "workspace_id": workspace, "command": "sleep 600", "shell": "main", "wait_seconds": 0 });
    let job = client.call("run_command", start).await.expect();
    let busy = answer(&client, &workspace, "echo no").await.expect_error();
    assert_eq!(busy["code"], json!("SHELL_BUSY"));
    assert!(busy["message"].as_str().unwrap().contains(job["job_id"].as_str().unwrap()), "{busy}");
    let ended = client.call("cancel_job", json!({ "job_id": job["job_id"] })).await.expect();
    assert_eq!(ended["job"]["status"], json!("killed"), "{ended}");
    assert_eq!(shell(&client, &workspace, "echo free").await["output"], json!("free\n"));
    let limited = json!({ "workspace_id": workspace, "command": "echo a; sleep 60", "shell": "main", "timeout_seconds": 1 });
    let late = client.call("run_command", limited).await.expect();
    assert_eq!((late["status"].as_str(), late["output"].as_str()), (Some("timed_out"), Some("a\n")));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_named_shell_can_not_do_is_refused_by_name() {
    let (_world, client, workspace) = world().await;
    for (field, value) in
        [("separate_stderr", json!(true)), ("stdin", json!("x")), ("env", json!({ "A": "1" }))]
    {
        let mut run = json!({ "workspace_id": workspace, "command": "true", "shell": "main" });
        run[field] = value;
        let error = client.call("run_command", run).await.expect_error();
        assert!(error["message"].as_str().unwrap().starts_with(field), "{field}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shells_end_with_their_workspace() {
    let (_world, client, workspace) = world().await;
    shell(&client, &workspace, "sleep 31416.101 & sleep 0.1").await;
    assert_eq!(support::probe::marked("31416.101").len(), 1);
    client.call("delete_workspace", json!({ "workspace_id": workspace })).await.expect();
    assert_eq!(support::probe::marked("31416.101"), Vec::<u32>::new());
}
