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

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_is_freed_with_the_sandbox() {
    // The data root is a disk of its own, which nobody else sees.
    let mount = "mkdir -p \"$SANDBOX_ROOT\" && mount -t tmpfs -o size=300m,mode=711 none \"$SANDBOX_ROOT\" && exec \"$@\"";
    let world = World::builder()
        .executor("RUNLET_FREE_DISK_BYTES", (64 << 20).to_string())
        .executor_through(&["unshare", "--mount", "--", "sh", "-c", mount, "sh"])
        .start()
        .await;
    let client = world.client();
    let other = client.workspace().await;
    let id = sandbox(&client, json!({})).await;
    let filled = run(&client, &id, "head -c 1G /dev/zero > fill; echo $?").await;
    assert_ne!(filled["output"], json!("0\n"), "{filled}");
    // File tools keep a reserve; the executor answers, and says what is the matter.
    let write = json!({ "workspace_id": other, "path": "a", "content": "x" });
    let refused = client.call("write_file", write.clone()).await.expect_error();
    assert_eq!(refused["code"], json!("NO_SPACE"), "{refused}");
    client.call("get_overview", json!({})).await.expect();
    client.call("shutdown_sandbox", json!({ "sandbox_id": id })).await.expect();
    client.call("write_file", write).await.expect();
    assert_eq!(client.run(&other, "cat a").await["output"], json!("x"));
    let next = sandbox(&client, json!({})).await;
    assert_eq!(run(&client, &next, "echo on").await["output"], json!("on\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_files_stay_inside() {
    let world = World::start().await;
    let client = world.client();
    let id = sandbox(&client, json!({})).await;
    let make = "cd /tmp && for i in $(seq 10000); do : > runlet-test-$i; done; ls | wc -l";
    assert_eq!(run(&client, &id, make).await["output"], json!("10000\n"));
    assert!(!std::path::Path::new("/tmp/runlet-test-1").exists());
    client.call("shutdown_sandbox", json!({ "sandbox_id": id })).await.expect();
}

/// An ordinary user may make no control groups here.
#[tokio::test(flavor = "multi_thread")]
async fn what_nothing_limits_is_said_and_the_rest_is_limited() {
    let world = World::builder()
        .user(31_423)
        .executor("RUNLET_SANDBOX_MEMORY_BYTES", (256 << 20).to_string())
        .executor("RUNLET_SANDBOX_PROCESSES", "100")
        .start()
        .await;
    let client = world.client();
    let made = client.call("create_sandbox", json!({})).await.expect();
    assert!(made["notes"].to_string().contains("processors are not limited"), "{made}");
    let overview = client.call("get_overview", json!({})).await.expect();
    assert!(overview["executor"]["gaps"].to_string().contains("of jobs are not limited"), "{overview}");
    let id = made["id"].as_str().unwrap();
    let job = run(&client, id, "python3 -c 'x = b\"x\" * (600 << 20)' 2>&1 | tail -1").await;
    assert_eq!(job["output"], json!("MemoryError\n"), "{job}");
    let job = run(&client, id, "for i in $(seq 200); do sleep 2 & done; wait").await;
    assert!(job["output"].as_str().unwrap().contains("fork"), "{job}");
}
