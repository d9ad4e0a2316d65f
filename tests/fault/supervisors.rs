//! The processes between the executor and a job are killed: the init of a job, and the spawner.

use rustix::process::Signal;
use serde_json::json;
use support::jobs::{end, id};
use support::{World, probe, wait};

use super::{PROMPTLY, send, start_escapees, until_gone};

/// The inits that have a job; others wait for one.
fn busy_inits(world: &World) -> Vec<u32> {
    let mut inits = probe::children(world.spawner_pid());
    inits.retain(|&init| !probe::children(init).is_empty());
    inits
}

/// The init of the one job that runs.
async fn only_init(world: &World) -> u32 {
    let mut inits = Vec::new();
    wait::until("one init with a job", PROMPTLY, async || {
        inits = busy_inits(world);
        inits.len() == 1
    })
    .await;
    inits[0]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_init_takes_its_job_with_it_and_the_record_says_so() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let job = start_escapees(&client, &workspace, "33001.1", "echo printed; sleep 600").await;
    wait::until("the output", PROMPTLY, async || client.output(&job).await == "up\nprinted\n").await;
    send(only_init(&world).await, Signal::KILL);
    let now = client.ended(&job).await;
    assert_eq!((end(&now), &now["signal"]), ((Some("killed"), Some(137)), &json!("KILL")), "{now}");
    // What nobody measured is not told.
    assert!(now["cpu_seconds"].is_null() && now["max_rss_bytes"].is_null(), "{now}");
    assert!(now["notes"][0].as_str().unwrap().contains("supervisor was killed"), "{now}");
    assert_eq!(client.output(&job).await, "up\nprinted\n");
    until_gone("33001.1").await;
    wait::until("no init to have a job", PROMPTLY, async || busy_inits(&world).is_empty()).await;
    assert_eq!(probe::zombies(world.spawner_pid()), [0; 0]);
    assert_eq!(client.run(&workspace, "echo goes on").await["output"], json!("goes on\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_init_of_an_ended_job_takes_what_was_left_behind_with_it() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let job = start_escapees(&client, &workspace, "33002.1", "exit 5").await;
    assert_eq!(end(&client.ended(&job).await), (Some("exited"), Some(5)));
    let init = only_init(&world).await;
    let other = client.start(&workspace, "sleep 33002.2").await;
    wait::until("two inits", PROMPTLY, async || busy_inits(&world).len() == 2).await;
    send(init, Signal::KILL);
    until_gone("33002.1").await;
    wait::until("the record", PROMPTLY, async || client.job(&job).await["leftover_processes"] == json!(0))
        .await;
    assert_eq!(end(&client.job(&job).await), (Some("exited"), Some(5)));
    assert_eq!(end(&client.job(id(&other)).await), (Some("running"), None));
    assert_eq!(end(&client.cancel(id(&other)).await), (Some("killed"), Some(143)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_whose_init_is_killed_still_ends_and_leaves_nothing() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let job = start_escapees(&client, &workspace, "33003.1", "trap '' TERM; while :; do sleep 1; done").await;
    let init = only_init(&world).await;
    let cancel = client.call("cancel_job", json!({ "job_id": job, "grace_seconds": 30 }));
    let cancel = tokio::spawn(cancel);
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    send(init, Signal::KILL);
    let cancelled = cancel.await.unwrap().expect();
    assert_ne!(cancelled["job"]["status"], json!("running"));
    assert_eq!(probe::marked("33003.1"), [0; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_spawner_ends_the_executor_which_says_so_and_leaves_nothing() {
    let mut world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let job = start_escapees(&client, &workspace, "33004.1", "sleep 600").await;
    let left = start_escapees(&client, &workspace, "33004.2", "exit 0").await;
    assert_eq!(end(&client.ended(&left).await), (Some("exited"), Some(0)));
    send(world.spawner_pid(), Signal::KILL);
    let status = world.executor_ended().await;
    assert_eq!(status.code(), Some(1));
    wait::until("a word about it", PROMPTLY, async || world.logs().contains("the spawner was killed")).await;
    until_gone("33004.1").await;
    until_gone("33004.2").await;
    world.start_executor().await;
    assert_eq!(end(&client.job(&job).await), (Some("lost"), None));
    assert_eq!(client.output(&job).await, "up\n");
    assert_eq!(client.run(&workspace, "echo goes on").await["output"], json!("goes on\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_spawner_makes_starts_fail_in_time_and_not_hang() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    send(world.spawner_pid(), Signal::STOP);
    let run = json!({ "workspace_id": workspace, "command": "touch began", "wait_seconds": 1 });
    let error = client.call("run_command", run).await.expect_error();
    assert!(error["message"].as_str().unwrap().contains("stopped the spawner"), "{error}");
    send(world.spawner_pid(), Signal::CONT);
    // What was told to have failed does not begin afterwards.
    assert_eq!(client.run(&workspace, "echo goes on; ls").await["output"], json!("goes on\n"));
    wait::until("the init that came too late to be gone", PROMPTLY, async || {
        probe::children(world.spawner_pid()).len() == 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spawner_and_its_executor_killed_together_leave_nothing() {
    let mut world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    for _ in 0..5 {
        let job = start_escapees(&client, &workspace, "33005.1", "sleep 600").await;
        send(world.spawner_pid(), Signal::KILL);
        world.kill_executor().await;
        world.start_executor().await;
        until_gone("33005.1").await;
        assert_eq!(end(&client.job(&job).await), (Some("lost"), None));
    }
}
