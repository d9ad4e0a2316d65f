//! Where there are no namespaces: sandboxes are plain directories, and say so.

use serde_json::json;
use support::World;

#[tokio::test(flavor = "multi_thread")]
async fn plain_directory_says_that_it_is_one() {
    let world = World::builder()
        .executor("RUNLET_ISOLATION", "none")
        .executor("RUNLET_ISOLATE_WORKSPACES", "true")
        .start()
        .await;
    let client = world.client();
    let made = client.call("create_sandbox", json!({ "files": { "a.sh": "echo a" } })).await.expect();
    assert_eq!(made["isolation"], json!("none"), "{made}");
    assert!(made["notes"].to_string().contains("no isolation: RUNLET_ISOLATION is none"), "{made}");
    let run = json!({ "sandbox_id": made["id"], "command": "bash a.sh" });
    assert_eq!(client.call("execute_in_sandbox", run).await.expect()["output"], json!("a\n"));
    let overview = client.call("get_overview", json!({})).await.expect();
    assert_eq!(overview["executor"]["sandbox_isolation"], json!("none"), "{overview}");
    assert!(overview["executor"]["gaps"].to_string().contains("workspaces are not kept apart"), "{overview}");
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

/// What SECURITY.md says that a plain directory does not keep apart, so that nobody believes that it does; and what stays
/// closed to it all the same.
#[tokio::test(flavor = "multi_thread")]
async fn plain_directory_keeps_the_executor_apart_and_nothing_else() {
    let world = World::builder().executor("RUNLET_ISOLATION", "none").start().await;
    let client = world.client();
    let other = client.workspace().await;
    client.run(&other, "echo hidden > secret; (setsid sleep 33030.1 &); true").await;
    let made = client.call("create_sandbox", json!({})).await.expect();
    let run = async |command: String| {
        let arguments =
            json!({ "sandbox_id": made["id"], "command": format!("exec 2>/dev/null; {command}") });
        client.call("execute_in_sandbox", arguments).await.expect()["output"].as_str().unwrap().to_owned()
    };
    let root = world.root().display().to_string();
    for open in [
        format!("cat {root}/workspaces/{other}/work/secret && echo OPEN"),
        "kill -0 $(pgrep -f 'sleep [3]3030.1') && echo OPEN".to_owned(),
        "echo x > /tmp/runlet-test-plain && rm /tmp/runlet-test-plain && echo OPEN".to_owned(),
    ] {
        assert!(run(open.clone()).await.ends_with("OPEN\n"), "{open}");
    }
    for closed in [
        format!("cat {root}/runlet.db"),
        format!("ls {root}/logs {root}/links {root}/snapshots"),
        format!("cat {}.secret", world.socket().display()),
        format!("kill -0 {}", world.executor_pid()),
        format!("cat /proc/{}/environ", world.gateway_pid()),
        "cat /etc/shadow".to_owned(),
        "mount -t tmpfs none /mnt".to_owned(),
    ] {
        assert_eq!(run(format!("{closed} && echo OPEN")).await, "", "{closed}");
    }
}
