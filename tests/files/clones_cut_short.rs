//! Clones that are slow, stop, or are not wanted any more.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use support::git::GitServer;
use support::{Client, World, probe, wait};

use crate::clones::{LOGIN, clone};

/// More than what `/stops/` sends.
const LARGE: &str = "head -c 3M /dev/urandom > large; git add .; git commit -qm one";

const PROMPTLY: Duration = Duration::from_secs(5);

/// A server with a large repository, and a world whose calls wait for a second.
async fn start(more: &[(&str, &str)]) -> (GitServer, World, String) {
    let server = GitServer::start(LOGIN, "http://127.0.0.1:1").await;
    server.repository("r.git", LARGE).await;
    let mut builder = World::builder().executor("GIT_SSL_CAINFO", server.ca_file());
    for (name, value) in more {
        builder = builder.executor(name, *value);
    }
    let world = builder.start().await;
    let url = server.url("stops", "r.git");
    (server, world, url)
}

/// Processes of a clone from `url`: each has it as an argument, or works for one that has.
fn cloning(url: &str) -> Vec<u32> {
    let mut all = probe::marked(url);
    let all_of_it: Vec<u32> = all.iter().flat_map(|&pid| probe::descendants(pid)).collect();
    all.extend(all_of_it);
    all
}

async fn begun(url: &str) -> Vec<u32> {
    wait::until("the clone to run", Duration::from_secs(20), async || cloning(url).len() > 2).await;
    cloning(url)
}

async fn none_left(pids: &[u32]) {
    wait::until("the clone's processes to be gone", PROMPTLY, async || {
        pids.iter().all(|&pid| !probe::lives(pid))
    })
    .await;
}

async fn status(client: &Client, name: &str) -> Value {
    client.call("get_workspace", json!({ "workspace_id": name })).await.expect()["status"].clone()
}

fn directories(world: &World) -> Vec<String> {
    let entries = std::fs::read_dir(world.root().join("workspaces")).unwrap().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with("ws_"))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn git_11_a_clone_from_a_server_that_falls_silent_ends_in_time_and_leaves_nothing() {
    let (server, world, url) = start(&[("RUNLET_CLONE_SECONDS", "3")]).await;
    let client = world.client();
    let start = Instant::now();
    let (answer, pids) = tokio::join!(clone(&client, "w", &url, json!({})), begun(&url));
    let error = answer.expect_error();
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    assert_eq!((&error["code"], &error["retryable"]), (&json!("CLONE_TIMED_OUT"), &json!(true)), "{error}");
    assert!(error["message"].as_str().unwrap().contains("localhost"), "{error}");
    none_left(&pids).await;
    assert_eq!(directories(&world), Vec::<String>::new());
    clone(&client, "w", &server.url("open", "r.git"), json!({})).await.expect();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clone_that_takes_longer_than_the_call_waits_comes_back_as_creating() {
    let (server, world, url) = start(&[("RUNLET_CREATE_WAIT_SECONDS", "1")]).await;
    let client = world.client();
    let slow = clone(&client, "slow", &server.url("slow", "r.git"), json!({})).await.expect();
    assert_eq!(slow["status"], json!("creating"), "{slow}");
    let again = clone(&client, "slow", &url, json!({})).await.expect_error();
    assert_eq!(again["code"], json!("WORKSPACE_EXISTS"));
    let early = json!({ "workspace_id": "slow", "command": "ls" });
    let error = client.call("run_command", early).await.expect_error();
    assert_eq!(
        (&error["code"], &error["retryable"]),
        (&json!("WORKSPACE_NOT_READY"), &json!(true)),
        "{error}"
    );
    let error = client.call("list_files", json!({ "workspace_id": "slow" })).await.expect_error();
    assert!(error["next"].as_str().unwrap().contains("get_workspace"), "{error}");
    wait::until("the clone", Duration::from_secs(20), async || status(&client, "slow").await == "ready")
        .await;
    let shown = client.call("get_workspace", json!({ "workspace_id": "slow" })).await.expect();
    assert_eq!(shown["git"]["ref"], json!("main"), "{shown}");
    assert_eq!(client.run("slow", "ls").await["output"], json!("large\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clone_that_fails_when_nobody_waits_tells_why_until_it_is_deleted() {
    let (_server, world, url) =
        start(&[("RUNLET_CREATE_WAIT_SECONDS", "1"), ("RUNLET_CLONE_SECONDS", "3")]).await;
    let client = world.client();
    let made = clone(&client, "w", &url, json!({})).await.expect();
    assert_eq!(made["status"], json!("creating"));
    wait::until("the failure", Duration::from_secs(20), async || status(&client, "w").await == "failed")
        .await;
    let shown = client.call("get_workspace", json!({ "workspace_id": "w" })).await.expect();
    assert!(shown["notes"].to_string().contains("after 3 s"), "{shown}");
    let run = json!({ "workspace_id": "w", "command": "ls" });
    let error = client.call("run_command", run).await.expect_error();
    assert!(error["message"].as_str().unwrap().contains("after 3 s"), "{error}");
    client.call("delete_workspace", json!({ "workspace_id": "w" })).await.expect();
    assert_eq!(directories(&world), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_can_be_deleted_in_the_middle_of_its_clone() {
    let (server, world, url) = start(&[]).await;
    let client = world.client();
    let creating = tokio::spawn({
        let (client, url) = (client.clone(), url.clone());
        async move { clone(&client, "w", &url, json!({})).await }
    });
    let pids = begun(&url).await;
    let start = Instant::now();
    client.call("delete_workspace", json!({ "workspace_id": "w" })).await.expect();
    assert!(start.elapsed() < PROMPTLY, "{:?}", start.elapsed());
    assert!(pids.iter().all(|&pid| !probe::lives(pid)), "nothing runs when the call answers");
    assert_eq!(directories(&world), Vec::<String>::new());
    let error = creating.await.unwrap().expect_error();
    assert_eq!(error["code"], json!("WORKSPACE_NOT_FOUND"), "{error}");
    clone(&client, "w", &server.url("open", "r.git"), json!({})).await.expect();
}

#[tokio::test(flavor = "multi_thread")]
async fn http_05_a_clone_goes_on_when_the_client_goes_away() {
    let (server, world, _url) = start(&[]).await;
    let client = world.client();
    let url = server.url("slow", "r.git");
    {
        let creating = clone(&client, "w", &url, json!({}));
        tokio::pin!(creating);
        tokio::select! {
            answer = &mut creating => panic!("it came too soon: {}", answer.text()),
            () = wait::until("the clone to run", PROMPTLY, async || !probe::marked(&url).is_empty()) => {}
        }
    }
    assert_eq!(status(&client, "w").await, json!("creating"));
    wait::until("the clone", Duration::from_secs(20), async || status(&client, "w").await == "ready").await;
    assert_eq!(client.run("w", "git log --format=%s && ls").await["output"], json!("one\nlarge\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn git_11_a_killed_executor_leaves_no_half_workspace_and_no_git() {
    let (server, mut world, url) = start(&[("RUNLET_CREATE_WAIT_SECONDS", "1")]).await;
    let client = world.client();
    clone(&client, "w", &url, json!({})).await.expect();
    let pids = begun(&url).await;
    world.signal_executor(Signal::KILL);
    world.executor_ended().await;
    none_left(&pids).await;
    world.start_executor().await;
    let listed = client.call("list_workspaces", json!({})).await.expect();
    assert_eq!(listed["workspaces"], json!([]));
    assert_eq!(directories(&world), Vec::<String>::new());
    clone(&client, "w", &server.url("open", "r.git"), json!({})).await.expect();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_that_is_told_to_stop_gives_up_a_clone() {
    let (_server, mut world, url) = start(&[("RUNLET_CREATE_WAIT_SECONDS", "1")]).await;
    let client = world.client();
    clone(&client, "w", &url, json!({})).await.expect();
    let pids = begun(&url).await;
    let start = Instant::now();
    world.signal_executor(Signal::TERM);
    assert!(world.executor_ended().await.success());
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    none_left(&pids).await;
    world.start_executor().await;
    assert_eq!(client.call("list_workspaces", json!({})).await.expect()["workspaces"], json!([]));
}
