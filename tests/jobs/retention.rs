//! How long ended jobs are kept.

use std::time::Duration;

use serde_json::json;
use support::jobs::{end, id};
use support::{World, wait};

const CLEANED: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn out_05_ended_jobs_go_after_their_time_with_their_logs() {
    let world = World::builder()
        .executor("RUNLET_RETENTION_SECONDS", "2")
        .executor("RUNLET_CLEANING_SECONDS", "1")
        .start()
        .await;
    let client = world.client();
    let workspace = client.workspace().await;
    let running = client.start(&workspace, "echo stays; sleep 600").await;
    let old = client.run(&workspace, "echo goes").await;
    let log = world.root().join("logs").join(id(&old));
    assert!(log.is_dir());
    wait::until("the ended job to go", CLEANED, async || {
        client.call("read_output", json!({ "job_id": id(&old) })).await.is_error()
    })
    .await;
    let error = client.call("read_output", json!({ "job_id": id(&old) })).await.expect_error();
    assert_eq!(error["code"], json!("JOB_NOT_FOUND"), "{error}");
    wait::until("its log to go", CLEANED, async || !log.exists()).await;
    let listed = client.call("list_jobs", json!({})).await.expect();
    let ids: Vec<_> = listed["jobs"].as_array().unwrap().iter().map(|job| job["job_id"].clone()).collect();
    assert_eq!(ids, [running["job_id"].clone()]);
    assert_eq!(client.output(id(&running)).await, "stays\n");
    assert_eq!(client.cancel(id(&running)).await["status"], json!("killed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn out_05_all_logs_together_have_a_cap_and_the_oldest_go_first() {
    let world = World::builder()
        .executor("RUNLET_LOGS_BYTES", "3000000")
        .executor("RUNLET_CLEANING_SECONDS", "1")
        .start()
        .await;
    let client = world.client();
    let workspace = client.workspace().await;
    let silent = client.run(&workspace, "true").await;
    let mut jobs = Vec::new();
    for _ in 0..5 {
        jobs.push(client.run(&workspace, "head -c 1000000 /dev/zero | tr '\\0' x").await);
    }
    wait::until("the oldest logs to go", CLEANED, async || {
        client.call("read_output", json!({ "job_id": id(&jobs[1]) })).await.is_error()
    })
    .await;
    for job in &jobs[..2] {
        let error = client.call("read_output", json!({ "job_id": id(job) })).await.expect_error();
        assert_eq!(error["code"], json!("JOB_NOT_FOUND"));
    }
    for job in &jobs[2..] {
        assert_eq!(client.job(id(job)).await["total_bytes"], json!(1_000_000));
    }
    // What takes no room stays.
    assert_eq!(end(&client.job(id(&silent)).await), (Some("exited"), Some(0)));
}
