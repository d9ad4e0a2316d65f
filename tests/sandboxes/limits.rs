//! What a sandbox may use, tried with bombs. It takes root and control groups.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Client, World};

use crate::sandbox;

async fn run(client: &Client, id: &str, command: &str) -> Value {
    let arguments = json!({ "sandbox_id": id, "command": command, "timeout_seconds": 20 });
    client.call("execute_in_sandbox", arguments).await.expect()
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_bomb_ends_alone_and_says_so() {
    let limit = 128 << 20;
    let world = World::builder().executor("RUNLET_SANDBOX_MEMORY_BYTES", limit.to_string()).start().await;
    let client = world.client();
    let id = sandbox(&client, json!({})).await;
    let job = run(&client, &id, "exec python3 -c 'x = b\"x\" * (600 << 20)'").await;
    assert_eq!((&job["exit_code"], &job["oom_killed"]), (&json!(137), &json!(true)), "{job}");
    assert_eq!(job["limit_hit"], json!({ "name": "memory_bytes", "value": limit }), "{job}");
    // Files in memory count too.
    let job = run(&client, &id, "head -c 600M /dev/zero > /dev/shm/x; echo $?").await;
    assert_ne!((&job["output"], &job["exit_code"]), (&json!("0\n"), &json!(0)), "{job}");
    client.call("shutdown_sandbox", json!({ "sandbox_id": id })).await.expect();
    let next = sandbox(&client, json!({})).await;
    assert_eq!(run(&client, &next, "echo on").await["output"], json!("on\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn fork_bomb_stays_inside() {
    let world = World::builder().executor("RUNLET_SANDBOX_PROCESSES", "64").start().await;
    let client = world.client();
    let other = client.workspace().await;
    let id = sandbox(&client, json!({})).await;
    let bomb = json!({
        "sandbox_id": id, "command": ":() { : | : & }; :; sleep 30", "wait_seconds": 1, "timeout_seconds": 3,
    });
    let job = client.call("execute_in_sandbox", bomb).await.expect();
    let before = Instant::now();
    assert_eq!(client.run(&other, "echo on").await["output"], json!("on\n"));
    assert!(before.elapsed() < Duration::from_secs(3), "{:?}", before.elapsed());
    let ended = client.ended(job["job_id"].as_str().unwrap()).await;
    assert_eq!(ended["status"], json!("timed_out"), "{ended}");
    client.call("shutdown_sandbox", json!({ "sandbox_id": id })).await.expect();
}

#[tokio::test(flavor = "multi_thread")]
async fn job_has_limits_of_its_own() {
    let limit = 96 << 20;
    let world = World::builder()
        .executor("RUNLET_JOB_MEMORY_BYTES", limit.to_string())
        .executor("RUNLET_JOB_PROCESSES", "32")
        .executor("RUNLET_JOB_CPUS", "0.2")
        .start()
        .await;
    let client = world.client();
    let workspace = client.workspace().await;
    let job = client.run(&workspace, "python3 -c 'x = b\"x\" * (600 << 20)'; echo went on").await;
    assert_eq!((&job["exit_code"], &job["oom_killed"]), (&json!(0), &json!(true)), "{job}");
    assert_eq!(job["limit_hit"], json!({ "name": "memory_bytes", "value": limit }), "{job}");
    let job = client.run(&workspace, "for i in $(seq 100); do sleep 3 & done; wait").await;
    assert!(job["output"].as_str().unwrap().contains("fork"), "{job}");
    let job = client.run(&workspace, "timeout 2 sh -c 'while :; do :; done'").await;
    let cpu = job["cpu_seconds"].as_f64().unwrap();
    assert!(cpu < 1.2, "{cpu} s of processor time in two seconds, with a fifth of a processor");
}
