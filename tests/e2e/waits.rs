//! `wait_for`: several things at once, within one call.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Client, World, jobs::id};

async fn wait(client: &Client, arguments: Value) -> (Value, Duration) {
    let begun = Instant::now();
    let waited = client.call("wait_for", arguments).await.expect();
    (waited, begun.elapsed())
}

fn held(waited: &Value) -> Vec<bool> {
    waited["conditions"].as_array().unwrap().iter().map(|row| row["held"].as_bool().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_of_several_ends_the_wait() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let slow = client.start(&workspace, "sleep 60").await;
    let quick = client.start(&workspace, "sleep 1; exit 3").await;
    let any = json!([{ "job_ended": id(&slow) }, { "job_ended": id(&quick) }, { "seconds": 30 }]);
    let (waited, time) = wait(&client, json!({ "any": any })).await;
    assert_eq!((&waited["satisfied"], held(&waited)), (&json!(true), vec![false, true, false]));
    assert_eq!(waited["conditions"][1]["state"], "exited 3");
    assert_eq!(waited["conditions"][0]["state"], "running");
    assert!(time < Duration::from_secs(4), "{time:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_of_several_are_waited_for() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let one = client.start(&workspace, "sleep 0.3; echo ready one").await;
    let terminal = client.open(&workspace, "sleep 1; echo ready two; sleep 60").await;
    let all = json!([
        { "output_matches": { "id": id(&one), "regex": "ready \\w+" } },
        { "output_matches": { "id": terminal["terminal_id"], "regex": "two" } },
        { "job_ended": id(&one) },
    ]);
    let (waited, time) = wait(&client, json!({ "all": all })).await;
    assert_eq!((&waited["satisfied"], held(&waited)), (&json!(true), vec![true, true, true]));
    assert!(time < Duration::from_secs(5), "{time:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_come_true_any_more_ends_a_wait_for_all() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let job = client.start(&workspace, "sleep 0.5; echo failed").await;
    let all = json!([{ "output_matches": { "id": id(&job), "regex": "passed" } }, { "seconds": 40 }]);
    let (waited, time) = wait(&client, json!({ "all": all })).await;
    assert_eq!((&waited["satisfied"], held(&waited)), (&json!(false), vec![false, false]));
    let state = (&waited["conditions"][0]["possible"], &waited["conditions"][0]["state"]);
    assert_eq!(state, (&json!(false), &json!("no match, exited 0")));
    assert!(time < Duration::from_secs(4), "{time:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_and_paths_are_seen_when_they_come() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = format!("sleep 1; exec python3 -m http.server {port} --bind 127.0.0.1");
    client.start(&workspace, &server).await;
    let (waited, time) = wait(&client, json!({ "any": [{ "port_open": port }] })).await;
    assert_eq!(held(&waited), [true], "{waited}");
    assert!(time < Duration::from_secs(8), "{time:?}");
    let path = json!({ "workspace_id": workspace, "path": "made/later" });
    client.start(&workspace, "sleep 0.5; mkdir made; echo hi > made/later").await;
    let (waited, _) = wait(&client, json!({ "any": [{ "path_exists": path }] })).await;
    assert_eq!((held(&waited), &waited["conditions"][0]["state"]), (vec![true], &json!("exists, 3 bytes")));
    client.start(&workspace, "sleep 0.5; echo ho > made/later").await;
    let (waited, _) = wait(&client, json!({ "any": [{ "path_changed": path }] })).await;
    assert_eq!(held(&waited), [true]);
    let (waited, _) = wait(&client, json!({ "any": [{ "path_changed": path }], "timeout_seconds": 1 })).await;
    assert_eq!((&waited["satisfied"], held(&waited)), (&json!(false), vec![false]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_in_time_and_holds_up_no_deletion() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let path = json!({ "workspace_id": workspace, "path": "never" });
    let waiting = tokio::spawn({
        let (client, path) = (client.clone(), path.clone());
        async move { wait(&client, json!({ "any": [{ "path_exists": path }], "timeout_seconds": 20 })).await }
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    let begun = Instant::now();
    client.call("delete_workspace", json!({ "workspace_id": workspace })).await.expect();
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    let (waited, time) = waiting.await.unwrap();
    assert_eq!(waited["conditions"][0]["state"], "the workspace is gone");
    assert!(time < Duration::from_secs(5), "{time:?}");
    let (waited, time) = wait(&client, json!({ "any": [{ "seconds": 30 }], "timeout_seconds": 1 })).await;
    assert_eq!(waited["satisfied"], false);
    assert!(time < Duration::from_secs(3), "{time:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_conditions_are_refused_by_their_place() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    for (arguments, code, part) in [
        (json!({}), "INVALID_ARGUMENT", "expected either any or all"),
        (json!({ "any": [] }), "INVALID_ARGUMENT", "any: expected 1 to 32 conditions"),
        (
            json!({ "any": [{ "seconds": 1 }], "all": [{ "seconds": 1 }] }),
            "INVALID_ARGUMENT",
            "either any or all",
        ),
        (
            json!({ "any": [{ "seconds": 1 }, { "moon_full": true }] }),
            "INVALID_ARGUMENT",
            "any[1]: moon_full",
        ),
        (json!({ "all": [{ "job_ended": "job_aaaaaaaaaaaa" }] }), "JOB_NOT_FOUND", "job_aaaaaaaaaaaa"),
        (
            json!({ "all": [{ "output_matches": { "id": "term_aaaaaaaaaaaa", "regex": "x" } }] }),
            "TERMINAL_NOT_FOUND",
            "term_",
        ),
        (
            json!({ "any": [{ "path_exists": { "workspace_id": workspace, "path": "../../x" } }] }),
            "PATH_OUTSIDE_WORKSPACE",
            "leads out",
        ),
    ] {
        let error = client.call("wait_for", arguments.clone()).await.expect_error();
        assert_eq!(error["code"], code, "{arguments}");
        assert!(error["message"].as_str().unwrap().contains(part), "{arguments}: {error}");
    }
}
