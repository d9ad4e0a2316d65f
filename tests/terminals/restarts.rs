//! What outlives the executor: what terminals showed, and how they ended.

use serde_json::json;
use support::{World, probe, terminals::shown};

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_whose_executor_was_killed_is_lost_and_can_be_looked_at() {
    let mut world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let command = "printf '\\033[2;3Hplaced'; sleep 31430.1";
    let running = client.open_with(&workspace, json!({ "command": command, "cols": 90, "rows": 20 })).await;
    client.look(&running, json!({ "until": "placed", "wait_seconds": 5 })).await;
    let size = json!({ "terminal_id": running["terminal_id"], "cols": 60, "rows": 10 });
    client.call("resize_terminal", size).await.expect();
    let done = client.open(&workspace, "echo done; exit 4").await;
    client.terminal_ended(&done).await;
    world.kill_executor().await;
    world.start_executor().await;
    assert_eq!(probe::marked("31430.1"), Vec::<u32>::new());
    let seen = client.look(&running, json!({})).await;
    assert_eq!((&seen["status"], &seen["exit_code"]), (&json!("lost"), &json!(null)));
    assert_eq!((&seen["cols"], &seen["rows"], shown(&seen)), (&json!(60), &json!(10), "\n  placed"));
    let seen = client.look(&done, json!({})).await;
    assert_eq!((&seen["status"], &seen["exit_code"], shown(&seen)), (&json!("exited"), &json!(4), "done"));
    assert_eq!(client.written(&done).await, "done\n");
}
