//! A suspended sandbox stands still with all that is in it, and goes on as if nothing had been.

use std::time::Duration;

use serde_json::{Value, json};
use support::{Client, World, wait};

use crate::sandbox;

async fn call(client: &Client, tool: &'static str, id: &str) -> Value {
    client.call(tool, json!({ "sandbox_id": id })).await.expect()
}

async fn start(client: &Client, id: &str, command: &str, timeout: u32) -> String {
    let arguments =
        json!({ "sandbox_id": id, "command": command, "wait_seconds": 0, "timeout_seconds": timeout });
    let job = client.call("execute_in_sandbox", arguments).await.expect();
    job["job_id"].as_str().unwrap().to_owned()
}

async fn printed(client: &Client, job: &str) -> usize {
    client.output(job).await.lines().count()
}

const COUNT: &str = "for i in $(seq 1000); do echo $i; sleep 0.05; done";

async fn stands_still_and_goes_on(world: &World) {
    let client = world.client();
    let id = sandbox(&client, json!({ "lifetime_seconds": 60 })).await;
    // Its time limit is shorter than the pause.
    let job = start(&client, &id, "for i in $(seq 20); do echo $i; sleep 0.05; done", 3).await;
    let counting = start(&client, &id, COUNT, 600).await;
    wait::until("something to be counted", Duration::from_secs(10), async || {
        printed(&client, &counting).await > 2
    })
    .await;
    let suspended = call(&client, "suspend_sandbox", &id).await;
    assert_eq!((&suspended["status"], &suspended["expires_at"]), (&json!("suspended"), &Value::Null));
    let remaining = suspended["remaining_seconds"].as_f64().unwrap();
    assert!((40.0..60.0).contains(&remaining), "{remaining}");
    assert_eq!(call(&client, "suspend_sandbox", &id).await["status"], json!("suspended"));
    let before = printed(&client, &counting).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(printed(&client, &counting).await, before);
    for (tool, arguments) in [
        ("execute_in_sandbox", json!({ "sandbox_id": id, "command": "true" })),
        ("read_file", json!({ "workspace_id": id, "path": "x" })),
        ("cancel_job", json!({ "job_id": counting })),
        ("write_stdin", json!({ "job_id": counting, "text": "x" })),
    ] {
        let error = client.call(tool, arguments).await.expect_error();
        assert_eq!(error["code"], json!("SANDBOX_SUSPENDED"), "{tool}: {error}");
        assert!(error["next"].as_str().unwrap().contains("resume_sandbox"), "{error}");
    }
    let listed = client.call("list_sandboxes", json!({ "status": "suspended" })).await.expect();
    assert_eq!(listed["sandboxes"][0]["id"], json!(id));
    let resumed = call(&client, "resume_sandbox", &id).await;
    assert_eq!((&resumed["status"], &resumed["remaining_seconds"]), (&json!("running"), &Value::Null));
    assert_eq!(resumed["notes"], suspended["notes"]);
    wait::until("the count to go on", Duration::from_secs(10), async || {
        printed(&client, &counting).await > before + 2
    })
    .await;
    let ended = client.ended(&job).await;
    assert_eq!((&ended["status"], &ended["exit_code"]), (&json!("exited"), &json!(0)), "{ended}");
    call(&client, "suspend_sandbox", &id).await;
    let gone = call(&client, "shutdown_sandbox", &id).await;
    assert_eq!((&gone["status"], &gone["ended_jobs"]), (&json!("shutdown"), &json!([counting])), "{gone}");
}

#[tokio::test(flavor = "multi_thread")]
async fn suspended_sandbox_stands_still_and_goes_on() {
    stands_still_and_goes_on(&World::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn suspended_sandbox_stands_still_without_control_groups() {
    stands_still_and_goes_on(&World::builder().user(31_419).start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn suspended_sandbox_outlives_its_executor_as_files() {
    let mut world = World::start().await;
    let client = world.client();
    let made = json!({ "name": "kept", "lifetime_seconds": 120, "metadata": { "a": "b" } });
    let id = sandbox(&client, made).await;
    let counting = start(&client, &id, &format!("echo x > kept; touch /etc/kept; {COUNT}"), 600).await;
    let running = sandbox(&client, json!({})).await;
    for kill in [true, false] {
        let state = call(&client, "suspend_sandbox", &id).await;
        if kill {
            world.kill_executor().await;
        } else {
            world.signal_executor(rustix::process::Signal::TERM);
            assert!(world.executor_ended().await.success());
        }
        world.start_executor().await;
        let found = call(&client, "get_sandbox", "kept").await;
        assert_eq!(
            (&found["id"], &found["status"], &found["metadata"]),
            (&json!(id), &json!("suspended"), &json!({ "a": "b" }))
        );
        assert_eq!(found["remaining_seconds"], state["remaining_seconds"]);
        assert_eq!(call(&client, "get_sandbox", &running).await["end_reason"], json!("lost"));
        let resumed = call(&client, "resume_sandbox", &id).await;
        assert_eq!(resumed["status"], json!("running"), "{resumed}");
        assert!(resumed["notes"].to_string().contains("processes are gone"), "{resumed}");
        let job = json!({ "sandbox_id": "kept", "command": "cat kept; ls /etc/kept; pgrep -c sleep" });
        let job = client.call("execute_in_sandbox", job).await.expect();
        assert_eq!(job["output"], json!("x\n/etc/kept\n0\n"), "{job}");
        assert_ne!(client.job(&counting).await["status"], json!("running"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_told() {
    let world = World::start().await;
    let client = world.client();
    let id = sandbox(&client, json!({ "network": false })).await;
    let idle = call(&client, "get_sandbox_usage", &id).await;
    assert_eq!(idle["now"]["processes"], json!(0), "{idle}");
    let work = "head -c 20M /dev/zero > zeros; python3 -c '
import os, time
x = b\"x\" * (50 << 20)
end = time.process_time() + 0.5
while time.process_time() < end: pass
print(1, flush=True)
time.sleep(60)'";
    let job = start(&client, &id, work, 600).await;
    wait::until("the work to be done", Duration::from_secs(30), async || printed(&client, &job).await == 1)
        .await;
    let used = call(&client, "get_sandbox_usage", &id).await;
    let (now, in_all) = (&used["now"], &used["in_all"]);
    let number = |value: &Value| value.as_f64().unwrap();
    assert!(number(&now["memory_bytes"]) > f64::from(50 << 20), "{used}");
    assert!(number(&in_all["peak_memory_bytes"]) > f64::from(50 << 20), "{used}");
    assert!(number(&now["disk_bytes"]) >= f64::from(20_000_000), "{used}");
    assert!((0.5..30.0).contains(&number(&in_all["cpu_seconds"])), "{used}");
    assert_eq!(now["processes"], json!(1), "{used}");
    assert_eq!(in_all["network_received_bytes"], json!(0), "{used}");
    client.cancel(&job).await;
    let after = call(&client, "get_sandbox_usage", &id).await;
    assert_eq!(after["now"]["processes"], json!(0), "{after}");
    assert!(number(&after["now"]["memory_bytes"]) < f64::from(40 << 20), "{after}");
    assert!(number(&after["in_all"]["cpu_seconds"]) >= number(&in_all["cpu_seconds"]), "{after}");
}
