//! The system of a sandbox is its own: packages are installed and users changed, and nothing of it is seen outside.

use std::path::Path;

use serde_json::json;
use support::World;

use crate::sandbox;

const INSTALL: &str =
    "(apt-get update && apt-get install -y --no-install-recommends cowsay) > log 2>&1 || tail log";

#[tokio::test(flavor = "multi_thread")]
async fn packages_are_installed_inside_alone() {
    let world = World::start().await;
    let client = world.client();
    let id = sandbox(&client, json!({})).await;
    let run = async |command: &str| {
        let arguments = json!({ "sandbox_id": id, "command": command });
        client.call("execute_in_sandbox", arguments).await.expect()
    };
    let installed = run(INSTALL).await;
    assert_eq!(installed["output"], json!(""), "{installed}");
    let said = run("/usr/games/cowsay moo | grep -c moo; dpkg -s cowsay | grep ^Status").await;
    assert_eq!(said["output"], json!("1\nStatus: install ok installed\n"));
    assert!(!Path::new("/usr/games/cowsay").exists());
    let other = sandbox(&client, json!({})).await;
    let other = json!({ "sandbox_id": other, "command": "ls /usr/games/cowsay 2>/dev/null; id -un" });
    assert_eq!(client.call("execute_in_sandbox", other).await.expect()["output"], json!("root\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn users_are_made_and_become_others() {
    let world = World::start().await;
    let client = world.client();
    let id = sandbox(&client, json!({})).await;
    let command = "useradd --create-home ada && su ada -c 'id -un; touch ~/x; cat /home/user/secret' 2>&1; \
                   stat -c %U /home/ada/x /etc/passwd";
    let arguments = json!({
        "sandbox_id": id, "command": format!("echo x > secret; chmod 600 secret; {command}"),
    });
    let made = client.call("execute_in_sandbox", arguments).await.expect();
    let expected = "ada\ncat: /home/user/secret: Permission denied\nada\nroot\n";
    assert_eq!(made["output"], json!(expected), "{made}");
    // Files of such a user are files like others, and go with the sandbox.
    let read = json!({ "workspace_id": id, "path": "/home/ada/.bashrc" });
    client.call("read_file", read).await.expect();
    client.call("shutdown_sandbox", json!({ "sandbox_id": id })).await.expect();
    let left = std::fs::read_dir(world.root().join("sandboxes")).unwrap().count();
    assert_eq!(left, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn terminals_have_names_inside() {
    let world = World::start().await;
    let client = world.client();
    let id = sandbox(&client, json!({})).await;
    let open = json!({ "workspace_id": id, "command": "tty; stat -c '%U' $(tty); stty size; echo done; exec cat", "cols": 91, "rows": 23 });
    let terminal = client.call("open_terminal", open).await.expect();
    let read = json!({ "terminal_id": terminal["terminal_id"], "until": "done", "wait_seconds": 10 });
    let shown = client.call("read_terminal", read).await.expect().to_string();
    assert!(shown.contains("/dev/pts/0") && shown.contains("root") && shown.contains("23 91"), "{shown}");
}
