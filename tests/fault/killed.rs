//! The executor is killed while jobs run, and started again on the same root.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;
use support::jobs::{end, id};
use support::{World, probe, wait};

use super::{PROMPTLY, send, start_escapees, until_gone};

#[tokio::test(flavor = "multi_thread")]
async fn exe_30_jobs_of_a_killed_executor_are_lost_and_their_output_is_kept() {
    let mut world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let ended = client.run(&workspace, "echo ended; exit 3").await;
    let running = start_escapees(&client, &workspace, "32030.1", "seq 1000; sleep 600").await;
    let printed = client.job(&running).await["total_bytes"].clone();
    let left = start_escapees(&client, &workspace, "32030.2", "exit 4").await;
    let separate = json!({ "separate_stderr": true, "wait_seconds": 0 });
    let two = client.run_with(&workspace, "echo out; echo err >&2; sleep 32030.3", separate).await;
    wait::until("all output", PROMPTLY, async || {
        client.job(id(&two)).await["stderr_bytes"] == json!(4)
            && end(&client.job(&left).await).0 == Some("exited")
    })
    .await;

    world.kill_executor().await;
    for marker in ["32030.1", "32030.2", "32030.3"] {
        until_gone(marker).await;
    }
    world.start_executor().await;

    assert_eq!(end(&client.job(id(&ended)).await), (Some("exited"), Some(3)));
    assert_eq!(client.output(id(&ended)).await, "ended\n");
    let lost = client.job(&running).await;
    assert_eq!((end(&lost), &lost["total_bytes"]), ((Some("lost"), None), &printed));
    assert!(lost["signal"].is_null() && !lost["ended_at"].is_null(), "{lost}");
    assert!(client.output(&running).await.ends_with("\n999\n1000\n"));
    let left = client.job(&left).await;
    assert_eq!((end(&left), &left["leftover_processes"]), ((Some("exited"), Some(4)), &json!(0)));
    let errors = client.call("read_output", json!({ "job_id": id(&two), "stream": "stderr" })).await;
    assert_eq!(
        (client.output(id(&two)).await.as_str(), &errors.expect()["output"]),
        ("out\n", &json!("err\n"))
    );
    let listed = client.call("list_jobs", json!({ "status": "running" })).await.expect();
    assert_eq!(listed["jobs"], json!([]));
    let cancelled = client.call("cancel_job", json!({ "job_id": running })).await.expect();
    assert_eq!((end(&cancelled["job"]), &cancelled["ended_processes"]), ((Some("lost"), None), &json!(0)));
    assert_eq!(client.run(&workspace, "echo goes on").await["output"], json!("goes on\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_30_a_stranger_with_the_number_on_record_is_left_alone() {
    let mut world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let _running = client.start(&workspace, "sleep 32031.1").await;
    world.kill_executor().await;
    let stranger = tokio::process::Command::new("sleep").arg("32031.2").kill_on_drop(true).spawn().unwrap();
    let stranger_pid = stranger.id().unwrap();
    for start in ["1", "", "x y"] {
        fs::write(world.root().join(".lock"), format!("{stranger_pid} {start}\n")).unwrap();
        world.start_executor().await;
        assert_eq!(client.run(&workspace, "echo ok").await["output"], json!("ok\n"));
        world.kill_executor().await;
        assert!(probe::lives(stranger_pid));
    }
    for torn in ["", "\n", "nonsense", "99999999999 1\n", "-1 1\n", "0 0\n"] {
        fs::write(world.root().join(".lock"), torn).unwrap();
        world.start_executor().await;
        world.kill_executor().await;
    }
    drop(stranger);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_executor_starts_again_at_once_twenty_times() {
    let mut world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let mut lost = Vec::new();
    for round in 0..20 {
        let job =
            client.start(&workspace, &format!("echo {round}; setsid sleep 32020.1 & sleep 32020.1")).await;
        lost.push(id(&job).to_owned());
        world.kill_executor().await;
        let began = Instant::now();
        world.start_executor().await;
        assert!(began.elapsed() < PROMPTLY, "{round}: {:?}", began.elapsed());
        assert_eq!(probe::marked("32020.1"), [0; 0], "{round}");
        assert_eq!(end(&client.job(lost.last().unwrap()).await), (Some("lost"), None));
    }
    let listed = client.call("list_jobs", json!({ "status": "lost" })).await.expect();
    assert_eq!(listed["jobs"].as_array().unwrap().len(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_floods_when_the_executor_is_killed_keeps_its_log() {
    let mut world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let job = client.start(&workspace, "seq 1 1000000000").await;
    wait::until("a flood", PROMPTLY, async || {
        client.job(id(&job)).await["total_bytes"].as_u64().unwrap() > 4 << 20
    })
    .await;
    world.kill_executor().await;
    world.start_executor().await;
    let lost = client.job(id(&job)).await;
    let total = lost["total_bytes"].as_u64().unwrap();
    assert!(end(&lost) == (Some("lost"), None) && total > 4 << 20, "{lost}");
    // What is on disk are the first bytes of what was printed, with none missing or out of order.
    let numbers = |text: &str| -> Vec<u64> { text.lines().map_while(|line| line.parse().ok()).collect() };
    let head = client.call("read_output", json!({ "job_id": id(&job), "max_output_bytes": 400_000 })).await;
    // The last line may be cut.
    let head = numbers(head.expect()["output"].as_str().unwrap().rsplit_once('\n').unwrap().0);
    assert!(head.len() > 1000 && head.iter().copied().eq(1..=head.len() as u64));
    let tail = client.call("read_output", json!({ "job_id": id(&job), "cursor": "tail" })).await.expect();
    let text = tail["output"].as_str().unwrap();
    let tail = numbers(text.split_once('\n').unwrap().1);
    assert!(tail.len() > 1000 && tail[..tail.len() - 1].windows(2).all(|pair| pair[1] == pair[0] + 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_13_processes_are_gone_soon_after_the_executor_is_killed() {
    let mut world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let _running = start_escapees(&client, &workspace, "32013.1", "trap '' TERM; sleep 600").await;
    let storm =
        "ulimit -u 400; for i in 1 2 3; do setsid sh -c 'while :; do sleep 32013.2 & sleep .01; done' & done";
    let _storm = client.start(&workspace, storm).await;
    wait::until("a storm", PROMPTLY, async || probe::marked("32013.2").len() > 30).await;
    let spawner = world.spawner_pid();
    world.kill_executor().await;
    until_gone("32013.1").await;
    until_gone("32013.2").await;
    wait::until("the spawner to end", PROMPTLY, async || !probe::lives(spawner)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_waits_for_the_processes_of_the_one_before() {
    let mut world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let _running = client.start(&workspace, "sleep 32014.1").await;
    let spawner = world.spawner_pid();
    send(spawner, rustix::process::Signal::STOP);
    world.kill_executor().await;
    let resume = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(2)).await;
        send(spawner, rustix::process::Signal::CONT);
    });
    world.start_executor().await;
    resume.await.unwrap();
    assert!(!probe::lives(spawner));
    assert_eq!(probe::marked("32014.1"), [0; 0]);
}
