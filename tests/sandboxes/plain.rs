//! Where there are no namespaces: sandboxes are plain directories, and say so.

use serde_json::json;
use support::World;

#[tokio::test(flavor = "multi_thread")]
async fn plain_directory_says_that_it_is_one() {
    let world = World::builder().executor("RUNLET_ISOLATION", "none").start().await;
    let client = world.client();
    let made = client.call("create_sandbox", json!({ "files": { "a.sh": "echo a" } })).await.expect();
    assert_eq!(made["isolation"], json!("none"), "{made}");
    assert!(made["notes"].to_string().contains("no isolation: RUNLET_ISOLATION is none"), "{made}");
    let run = json!({ "sandbox_id": made["id"], "command": "bash a.sh" });
    assert_eq!(client.call("execute_in_sandbox", run).await.expect()["output"], json!("a\n"));
    let overview = client.call("get_overview", json!({})).await.expect();
    assert_eq!(overview["executor"]["sandbox_isolation"], json!("none"), "{overview}");
    client.call("shutdown_sandbox", json!({ "sandbox_id": made["id"] })).await.expect();
}

/// As in many containers.
#[tokio::test(flavor = "multi_thread")]
async fn kernel_that_grants_no_namespaces_is_told_of() {
    let limit = "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --ambient-caps=-all --inh-caps=-all -- \"$@\"";
    let forbid = ["unshare", "--user", "--map-current-user", "--keep-caps", "--", "sh", "-c", limit, "sh"];
    let world = World::builder().user(31_419).executor_further_through(&forbid).start().await;
    let client = world.client();
    let made = client.call("create_sandbox", json!({})).await.expect();
    assert_eq!(made["isolation"], json!("none"), "{made}");
    assert!(made["notes"].to_string().contains("no isolation: starting a sandbox"), "{made}");
}
