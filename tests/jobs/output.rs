//! When output can be read: while the command runs, after its end, after a timeout.

use std::time::{Duration, Instant};

use serde_json::json;
use support::World;
use support::jobs::{end, id};

#[tokio::test(flavor = "multi_thread")]
async fn out_12_one_log_keeps_the_order_of_both_streams() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let command = "for i in 1 2 3; do echo O$i; echo E$i >&2; done";
    for _ in 0..20 {
        assert_eq!(client.run(&workspace, command).await["output"], json!("O1\nE1\nO2\nE2\nO3\nE3\n"));
    }
    let job = client.run_with(&workspace, command, json!({ "separate_stderr": true })).await;
    assert_eq!((&job["output"], &job["stderr"]), (&json!("O1\nO2\nO3\n"), &json!("E1\nE2\nE3\n")));
    let errors = client.call("read_output", json!({ "job_id": id(&job), "stream": "stderr" })).await;
    assert_eq!(errors.expect()["output"], json!("E1\nE2\nE3\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_command_printed_last_is_there_when_its_end_is_told() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let runners: Vec<_> = (0..16)
        .map(|runner| {
            let (client, workspace) = (client.clone(), workspace.clone());
            tokio::spawn(async move {
                for round in 0..25 {
                    let job = client.run(&workspace, &format!("echo {runner} {round}")).await;
                    assert_eq!(job["output"], json!(format!("{runner} {round}\n")), "{job}");
                }
            })
        })
        .collect();
    for runner in runners {
        runner.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn out_14_a_timeout_keeps_what_was_printed() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let began = Instant::now();
    let job = client.run_with(&workspace, "echo before; sleep 100", json!({ "timeout_seconds": 2 })).await;
    assert!((2.0..6.0).contains(&began.elapsed().as_secs_f64()), "{:?}", began.elapsed());
    assert_eq!((&job["output"], end(&job)), (&json!("before\n"), (Some("timed_out"), Some(143))));
}

#[tokio::test(flavor = "multi_thread")]
async fn out_15_an_ended_job_can_be_read_again_and_again() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let job = client.start(&workspace, "echo hi").await;
    let _ended = client.ended(id(&job)).await;
    for _ in 0..2 {
        let read = client.job(id(&job)).await;
        assert_eq!((&read["output"], end(&read)), (&json!("hi\n"), (Some("exited"), Some(0))));
    }
    let listed = client.call("list_jobs", json!({ "workspace_id": workspace })).await.expect();
    assert_eq!(
        (&listed["jobs"][0]["job_id"], end(&listed["jobs"][0])),
        (&job["job_id"], (Some("exited"), Some(0)))
    );
    for unknown in ["job_aaaaaaaaaaaa", "job_", "nonsense", ""] {
        for tool in ["read_output", "cancel_job"] {
            let error = client.call(tool, json!({ "job_id": unknown })).await.expect_error();
            assert_eq!(error["code"], json!("JOB_NOT_FOUND"), "{tool} {unknown}");
            assert!(error["next"].as_str().unwrap().contains("list_jobs"), "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn out_16_a_command_that_outlives_the_wait_loses_nothing() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let job =
        client.run_with(&workspace, "echo A; sleep 3; echo B; exit 5", json!({ "wait_seconds": 1 })).await;
    assert_eq!((&job["output"], end(&job)), (&json!("A\n"), (Some("running"), None)));
    let _ended = client.ended(id(&job)).await;
    let read = json!({ "job_id": id(&job), "cursor": job["next_cursor"] });
    let rest = client.call("read_output", read).await.expect();
    assert_eq!((&rest["output"], end(&rest)), (&json!("B\n"), (Some("exited"), Some(5))));
}

#[tokio::test(flavor = "multi_thread")]
async fn out_18_python_output_is_there_as_it_is_printed() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let job = client
        .start(&workspace, "python3 -c \"import time; print('hello'); time.sleep(30); print('world')\"")
        .await;
    let read = json!({ "job_id": id(&job), "until": "hello", "wait_seconds": 15 });
    let read = client.call("read_output", read).await.expect();
    // The line end is a write of its own, which may come later.
    assert_eq!((read["output"].as_str().unwrap().trim_end(), &read["matched"]), ("hello", &json!(true)));
    assert_eq!(end(&read), (Some("running"), None));
    assert_eq!(end(&client.cancel(id(&job)).await), (Some("killed"), Some(143)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_output_ends_with_the_output_the_job_or_the_time() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let job = client.start(&workspace, "sleep 1; echo soon; sleep 600").await;
    let began = Instant::now();
    let read = client.call("read_output", json!({ "job_id": id(&job), "wait_seconds": 30 })).await.expect();
    assert_eq!(read["output"], json!("soon\n"));
    assert!(began.elapsed() < Duration::from_secs(10));
    let wait = json!({ "job_id": id(&job), "cursor": 5, "wait_seconds": 1 });
    assert_eq!(client.call("read_output", wait).await.expect()["output"], json!(""));
    let until = json!({ "job_id": id(&job), "until": "never", "wait_seconds": 30 });
    let (read, _cancelled) = tokio::join!(client.call("read_output", until), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        client.cancel(id(&job)).await
    });
    let read = read.expect();
    assert_eq!((&read["matched"], end(&read)), (&json!(false), (Some("killed"), Some(143))));
}
