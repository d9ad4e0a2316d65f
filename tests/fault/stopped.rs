//! The executor is told to stop, or stands still.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;
use support::jobs::{end, id};
use support::{World, probe, wait};

use super::{PROMPTLY, start_escapees};

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_executor_gives_jobs_their_grace_and_leaves_nothing() {
    let mut world = World::builder().executor("RUNLET_STOP_GRACE_SECONDS", "2").start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let polite =
        client.start(&workspace, "trap 'echo saved; exit 9' TERM; echo up; while :; do sleep .1; done").await;
    let up = json!({ "job_id": id(&polite), "until": "up", "wait_seconds": 10 });
    let _up = client.call("read_output", up).await.expect();
    let stubborn = client.start(&workspace, "trap '' TERM; echo up; while :; do sleep 1; done").await;
    let up = json!({ "job_id": id(&stubborn), "until": "up", "wait_seconds": 10 });
    let _up = client.call("read_output", up).await.expect();
    let running = start_escapees(&client, &workspace, "34001.1", "sleep 600").await;
    let began = Instant::now();
    world.signal_executor(Signal::TERM);
    let status = world.executor_ended().await;
    assert!(status.success(), "{status}: {}", world.logs());
    assert!(began.elapsed() < Duration::from_secs(2) + PROMPTLY, "{:?}", began.elapsed());
    assert_eq!(probe::marked("34001.1"), [0; 0]);
    world.start_executor().await;
    assert_eq!(end(&client.job(id(&polite)).await), (Some("exited"), Some(9)));
    let output = client.output(id(&polite)).await;
    // Between the two bash may tell that its sleep was ended.
    assert!(output.starts_with("up\n") && output.ends_with("saved\n"), "{output}");
    assert_eq!(end(&client.job(id(&stubborn)).await), (Some("killed"), Some(137)));
    assert_eq!(end(&client.job(&running).await), (Some("killed"), Some(143)));
}

#[tokio::test(flavor = "multi_thread")]
async fn http_18_a_wait_ends_with_an_answer_when_the_executor_stops() {
    let mut world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let job = client.start(&workspace, "echo so far; sleep 34002.1").await;
    let read = json!({ "job_id": id(&job), "cursor": 7, "wait_seconds": 40 });
    let waiting = tokio::spawn(client.call("read_output", read));
    tokio::time::sleep(Duration::from_millis(500)).await;
    world.signal_executor(Signal::TERM);
    assert!(world.executor_ended().await.success());
    let answer = tokio::time::timeout(Duration::from_secs(10), waiting).await.unwrap().unwrap();
    // Either the end of the job, or a clear word that the executor went.
    let text = answer.text();
    assert!(text.contains("was ended by signal TERM") || text.contains("EXECUTOR_UNAVAILABLE"), "{text}");
    assert_eq!(probe::marked("34002.1"), [0; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_stops_at_once() {
    let mut world = World::builder().executor("RUNLET_STOP_GRACE_SECONDS", "60").start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let job = start_escapees(&client, &workspace, "34003.1", "trap '' TERM; while :; do sleep 1; done").await;
    world.signal_executor(Signal::TERM);
    wait::until("the executor to be stopping", PROMPTLY, async || {
        world.logs().contains("stopping; a second")
    })
    .await;
    let began = Instant::now();
    world.signal_executor(Signal::TERM);
    world.executor_ended().await;
    assert!(began.elapsed() < PROMPTLY, "{:?}", began.elapsed());
    assert_eq!(probe::marked("34003.1"), [0; 0]);
    world.start_executor().await;
    let job = client.job(&job).await;
    assert!(matches!(end(&job), (Some("lost"), None) | (Some("killed"), Some(137))), "{job}");
}

#[tokio::test(flavor = "multi_thread")]
async fn http_17_a_standing_executor_gives_a_clear_error_and_heals() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let job = client.start(&workspace, "sleep 2; echo done; sleep 34004.1").await;
    world.signal_executor(Signal::STOP);
    for (tool, arguments) in [
        ("list_jobs", json!({})),
        ("run_command", json!({ "workspace_id": workspace, "command": "touch ran", "wait_seconds": 0 })),
        ("read_output", json!({ "job_id": id(&job), "wait_seconds": 0 })),
    ] {
        let asked = Instant::now();
        let error = client.call(tool, arguments).await.expect_error();
        assert!(asked.elapsed() < Duration::from_millis(6500), "{tool}: {:?}", asked.elapsed());
        assert_eq!(
            (&error["code"], &error["retryable"]),
            (&json!("EXECUTOR_UNAVAILABLE"), &json!(true)),
            "{tool}"
        );
    }
    world.signal_executor(Signal::CONT);
    wait::until("the link to heal", PROMPTLY, async || !client.call("list_jobs", json!({})).await.is_error())
        .await;
    assert_eq!(client.run(&workspace, "echo back").await["output"], json!("back\n"));
    let read = json!({ "job_id": id(&job), "until": "done", "wait_seconds": 10 });
    assert_eq!(client.call("read_output", read).await.expect()["matched"], json!(true));
    assert_eq!(end(&client.cancel(id(&job)).await), (Some("killed"), Some(143)));
}

#[tokio::test(flavor = "multi_thread")]
async fn http_17_a_wait_during_which_the_executor_stands_ends_in_time() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let asked = Instant::now();
    let call = json!({ "workspace_id": workspace, "command": "sleep 34005.1", "wait_seconds": 40 });
    let waiting = tokio::spawn(client.call("run_command", call));
    tokio::time::sleep(Duration::from_millis(500)).await;
    world.signal_executor(Signal::STOP);
    let answer = tokio::time::timeout(Duration::from_secs(12), waiting).await.expect("in time").unwrap();
    assert_eq!(answer.expect_error()["code"], json!("EXECUTOR_UNAVAILABLE"));
    println!("told after {:?}", asked.elapsed());
    world.signal_executor(Signal::CONT);
    wait::until("the link to heal", PROMPTLY, async || !client.call("list_jobs", json!({})).await.is_error())
        .await;
    let listed = client.call("list_jobs", json!({ "status": "running" })).await.expect();
    let job = listed["jobs"][0]["job_id"].as_str().unwrap();
    assert_eq!(end(&client.cancel(job).await), (Some("killed"), Some(143)));
}
