//! Seeing what runs.

use serde_json::{Value, json};
use support::World;

use crate::{printed, runlet};

#[tokio::test(flavor = "multi_thread")]
async fn jobs_and_terminals_of_all_workspaces_are_listed() {
    let world = World::start().await;
    let client = world.client();
    let named = client.call("create_workspace", json!({ "python": false, "name": "build" })).await.expect();
    let named = named["workspace_id"].as_str().unwrap();
    let other = client.workspace().await;
    let job = client.start(named, "printf '\\033[2J' >/dev/null; sleep 60").await;
    let terminal = client.open_with(&other, json!({ "name": "dev" })).await;
    let ended = client.run(&other, "exit 3").await;
    let id = |record: &Value, key: &str| record[key].as_str().unwrap().to_owned();
    let (job, terminal, ended) = (id(&job, "job_id"), id(&terminal, "terminal_id"), id(&ended, "job_id"));

    let (shown, said, code) = printed(runlet(&world, &["ps"])).await;
    assert_eq!((code, said.as_str()), (Some(0), ""));
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 3, "{shown}");
    let columns = |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
    assert_eq!(columns(lines[0]), ["ID", "KIND", "WORKSPACE", "STATUS", "AGE", "COMMAND"]);
    // The newest first.
    assert_eq!(columns(lines[1])[..4], [terminal.as_str(), "terminal", other.as_str(), "running"]);
    assert!(lines[1].ends_with("s   [dev] bash"), "{shown}");
    assert_eq!(columns(lines[2])[..4], [job.as_str(), "job", "build", "running"]);
    assert!(lines[2].ends_with("printf '\\033[2J' >/dev/null; sleep 60"), "{shown}");
    let start = |line: &str, part: &str| line.find(part).unwrap();
    assert_eq!(start(lines[0], "STATUS"), start(lines[1], "running"), "{shown}");
    assert_eq!(start(lines[0], "STATUS"), start(lines[2], "running"), "{shown}");

    let (shown, _, _) = printed(runlet(&world, &["ps", "-a"])).await;
    let line = shown.lines().find(|line| line.starts_with(&ended)).unwrap();
    assert!(line.contains("exited 3") && line.ends_with("exit 3"), "{shown}");
    assert_eq!(shown.lines().count(), 4, "{shown}");

    let (shown, _, _) = printed(runlet(&world, &["ps", "--workspace", "build"])).await;
    assert!(shown.contains(&job) && !shown.contains(&terminal), "{shown}");
    let (shown, _, _) = printed(runlet(&world, &["ps", "--json"])).await;
    let records: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(records["jobs"][0]["job_id"], json!(job));
    assert_eq!(records["terminals"][0]["name"], "dev");
    let (_, said, code) = printed(runlet(&world, &["ps", "--workspace", "nowhere"])).await;
    assert!(code == Some(1) && said.contains("nowhere") && said.lines().count() == 1, "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_command_holds_does_not_act_on_the_terminal() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    client.start(&workspace, "sleep 60 # \u{1b}]0;owned\u{7}\nsleep 1").await;
    let (shown, _, _) = printed(runlet(&world, &["ps"])).await;
    assert!(shown.contains("sleep 60 # \\u{1b}]0;owned\\u{7}\\nsleep 1"), "{shown:?}");
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
}
