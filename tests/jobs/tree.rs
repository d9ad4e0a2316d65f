//! Whole trees of processes: what they leave behind is counted, and dies when it should, however it tries to get away.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use support::jobs::{end, id};
use support::{Client, World, probe, wait};

const PROMPTLY: Duration = Duration::from_secs(5);

/// A command that starts four processes that try to get away, each with `marker` as an argument, and then stays.
pub(crate) fn escapees(marker: &str) -> String {
    format!(
        "setsid sleep {marker} & \
         (setsid sh -c 'sleep {marker} & exit' &) ; \
         nohup sleep {marker} >/dev/null 2>&1 & \
         env -i /bin/sh -c 'trap \"\" HUP TERM INT; exec sleep {marker}' & \
         echo up; "
    )
}

async fn started(client: &Client, workspace: &str, marker: &str, then: &str, more: Value) -> Value {
    let job = client.run_with(workspace, &(escapees(marker) + then), more).await;
    wait::until("the processes to be there", PROMPTLY, async || probe::marked(marker).len() == 4).await;
    job
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_08_a_background_child_does_not_hold_up_the_answer() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    for (number, command) in [
        "sleep MARK & echo hi",
        "nohup sh -c 'exec sleep MARK' & echo hi",
        "setsid sleep MARK & echo hi",
        "node -e \"require('child_process').spawn('sleep',['MARK'],{stdio:'inherit',detached:true}).unref()\"; echo hi",
    ]
    .into_iter()
    .enumerate()
    {
        let marker = format!("3108{number}.5");
        let call = json!({ "workspace_id": workspace, "command": command.replace("MARK", &marker), "wait_seconds": 30 });
        let began = Instant::now();
        let answer = client.call("run_command", call).await;
        assert!(began.elapsed() < PROMPTLY, "{command}: {:?}", began.elapsed());
        let text = answer.text();
        assert!(text.contains("[1 process that it started still running; cancel_job ends them]"), "{text}");
        let job = answer.expect();
        assert_eq!(end(&job), (Some("exited"), Some(0)), "{command}");
        assert!(job["output"].as_str().unwrap().ends_with("hi\n"), "{job}");
        assert_eq!(job["leftover_processes"], json!(1), "{command}");
        wait::until("the child", PROMPTLY, async || probe::marked(&marker).len() == 1).await;
        let cancelled = client.call("cancel_job", json!({ "job_id": id(&job) })).await.expect();
        assert_eq!((&cancelled["ended_processes"], end(&cancelled["job"])), (&json!(1), (Some("exited"), Some(0))));
        assert_eq!(probe::marked(&marker), [0; 0]);
        assert_eq!(client.job(id(&job)).await["leftover_processes"], json!(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_08_what_is_left_behind_may_go_on_writing() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let job = client.run(&workspace, "(sleep 1; echo late; echo still > alive) & echo hi").await;
    assert_eq!((&job["output"], end(&job)), (&json!("hi\n"), (Some("exited"), Some(0))));
    wait::until("the late output", PROMPTLY, async || client.output(id(&job)).await == "hi\nlate\n").await;
    wait::until("the process to end", PROMPTLY, async || {
        client.job(id(&job)).await["leftover_processes"] == json!(0)
    })
    .await;
    assert_eq!(client.run(&workspace, "cat alive").await["output"], json!("still\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_10_a_timeout_ends_the_whole_tree() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let began = Instant::now();
    let job = client
        .run_with(&workspace, "(sleep 5; touch marker) & sleep 31010.1", json!({ "timeout_seconds": 2 }))
        .await;
    assert!((2.0..6.0).contains(&began.elapsed().as_secs_f64()), "{:?}", began.elapsed());
    assert_eq!(job["status"], json!("timed_out"));
    let fifo = "mkfifo p; (while :; do echo c; sleep 1; done) > p & cat p; sleep 31010.1";
    let job = client.run_with(&workspace, fifo, json!({ "timeout_seconds": 2 })).await;
    assert_eq!(job["status"], json!("timed_out"));
    wait::until("the tree to go", PROMPTLY, async || probe::marked("31010.1").is_empty()).await;
    let job = started(
        &client,
        &workspace,
        "31010.2",
        "sleep 600",
        json!({ "timeout_seconds": 3, "wait_seconds": 0 }),
    )
    .await;
    assert_eq!(client.ended(id(&job)).await["status"], json!("timed_out"));
    wait::until("the escapees to go", PROMPTLY, async || probe::marked("31010.2").is_empty()).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(client.run(&workspace, "ls marker").await["exit_code"], json!(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_11_a_timeout_comes_in_time_and_odd_ones_are_refused() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    for (command, code, limit) in
        [("sleep 20; echo hello", 143, 6.0), ("trap '' TERM HUP INT; while :; do sleep 1; done", 137, 10.0)]
    {
        let began = Instant::now();
        let job = client.run_with(&workspace, command, json!({ "timeout_seconds": 2 })).await;
        assert!((2.0..limit).contains(&began.elapsed().as_secs_f64()), "{command}: {:?}", began.elapsed());
        assert_eq!((&job["output"], end(&job)), (&json!(""), (Some("timed_out"), Some(code))), "{command}");
    }
    for odd in [json!(0), json!(-1), json!(1e18), json!("2"), json!(86_401), json!(1.5)] {
        let error = client.refused(&workspace, "true", json!({ "timeout_seconds": odd })).await;
        assert!(error["message"].as_str().unwrap().contains("timeout_seconds"), "{odd}: {error}");
    }
    assert_eq!(
        end(&client.run_with(&workspace, "true", json!({ "timeout_seconds": 86_400 })).await),
        (Some("exited"), Some(0))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_12_a_cancel_answers_when_nothing_is_left() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let job = started(&client, &workspace, "31012.1", "sleep 600", json!({ "wait_seconds": 0 })).await;
    let cancelled =
        client.call("cancel_job", json!({ "job_id": id(&job), "grace_seconds": 1 })).await.expect();
    assert_eq!(probe::marked("31012.1"), [0; 0]);
    assert_eq!(end(&cancelled["job"]), (Some("killed"), Some(143)));
    assert_eq!(cancelled["job"]["signal"], json!("TERM"));
    assert!(cancelled["ended_processes"].as_u64().unwrap() >= 5, "{cancelled}");
    let again = client.call("cancel_job", json!({ "job_id": id(&job) })).await.expect();
    assert_eq!((&again["ended_processes"], end(&again["job"])), (&json!(0), (Some("killed"), Some(143))));
    assert_eq!(client.output(id(&job)).await, "up\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_12_a_job_that_floods_is_cancelled_and_its_output_kept() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    for signal in ["TERM", "KILL", "INT"] {
        let job = client.start(&workspace, "echo first; yes | tee /dev/stderr; sleep 31012.2").await;
        wait::until("a flood", PROMPTLY, async || {
            client.job(id(&job)).await["total_bytes"].as_u64().unwrap() > 1 << 20
        })
        .await;
        let began = Instant::now();
        let cancel = json!({ "job_id": id(&job), "signal": signal });
        let cancelled = client.call("cancel_job", cancel).await.expect()["job"].clone();
        assert!(began.elapsed() < PROMPTLY, "{signal}: {:?}", began.elapsed());
        assert_eq!(cancelled["status"], json!("killed"), "{signal}: {cancelled}");
        let now = client.job(id(&job)).await;
        assert!(now["output"].as_str().unwrap().starts_with("first\ny\n"), "{now}");
        assert_eq!(now["total_bytes"], cancelled["total_bytes"]);
    }
    assert_eq!(probe::marked("31012.2"), [0; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_can_be_answered_by_the_job_and_meets_many_at_once() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let polite = "trap 'echo got; exit 7' INT; echo up; while :; do sleep .1; done";
    let job = client.start(&workspace, polite).await;
    let up = json!({ "job_id": id(&job), "until": "up", "wait_seconds": 10 });
    let _up = client.call("read_output", up).await.expect();
    let cancels = (0..10).map(|_| client.call("cancel_job", json!({ "job_id": id(&job), "signal": "INT" })));
    let cancels: Vec<_> = cancels.map(tokio::spawn).collect();
    for cancel in cancels {
        assert_eq!(end(&cancel.await.unwrap().expect()["job"]), (Some("exited"), Some(7)));
    }
    assert_eq!(client.output(id(&job)).await, "up\ngot\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_13_leftovers_die_with_their_workspace() {
    let world = World::start().await;
    let client = world.client();
    let (workspace, other) = (client.workspace().await, client.workspace().await);
    let _left = started(&client, &workspace, "31013.1", "true", json!({})).await;
    let running = started(&client, &workspace, "31013.2", "sleep 600", json!({ "wait_seconds": 0 })).await;
    let bystander = started(&client, &other, "31013.3", "sleep 600", json!({ "wait_seconds": 0 })).await;
    let burning = "for i in 1 2 3; do setsid yes 31013.4 >/dev/null & done; echo $!";
    assert_eq!(end(&client.run(&workspace, burning).await), (Some("exited"), Some(0)));
    wait::until("all to burn", PROMPTLY, async || probe::marked("31013.4").len() == 3).await;
    let gone = client.call("delete_workspace", json!({ "workspace_id": workspace })).await.expect();
    assert_eq!(gone["ended_jobs"], json!([id(&running)]), "{gone}");
    for marker in ["31013.1", "31013.2", "31013.4"] {
        assert_eq!(probe::marked(marker), [0; 0]);
    }
    assert_eq!(probe::marked("31013.3").len(), 4);
    assert_eq!(client.job(id(&bystander)).await["status"], json!("running"));
    assert_eq!(end(&client.job(id(&running)).await), (Some("killed"), Some(143)));
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_13_nothing_outlives_the_executor() {
    let mut world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let _left = started(&client, &workspace, "31013.5", "true", json!({})).await;
    let _running = started(&client, &workspace, "31013.6", "sleep 600", json!({ "wait_seconds": 0 })).await;
    world.signal_executor(Signal::TERM);
    assert!(world.executor_ended().await.success());
    assert_eq!(probe::marked("31013.5"), [0; 0]);
    assert_eq!(probe::marked("31013.6"), [0; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_storm_is_ended() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let storm = "ulimit -u 400; storm() { setsid sh -c 'while :; do sleep 31099.1 & sleep .01; done' & }; \
                 for i in 1 2 3 4; do storm; done; while :; do sleep 1; done";
    let job = client.start(&workspace, storm).await;
    wait::until("a storm", Duration::from_secs(10), async || probe::marked("31099.1").len() > 100).await;
    let cancel = json!({ "job_id": id(&job), "grace_seconds": 1 });
    assert_eq!(client.call("cancel_job", cancel).await.expect()["job"]["status"], json!("killed"));
    assert_eq!(probe::marked("31099.1"), [0; 0]);
}
