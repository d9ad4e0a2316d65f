//! The executor is killed while files are written: each file is the old one or the new one, and nothing lies beside it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use support::{Client, World, wait};

const FILES: usize = 3;

/// What a file holds in round `round`: every line names the round, so that a mixture shows.
fn content(round: usize) -> String {
    format!("round {round:06}\n").repeat(20_000)
}

/// Writes and edits one file again and again until the executor is gone.
async fn keep_writing(client: Client, workspace: String, path: String) {
    let mut round = 0;
    loop {
        let write = json!({ "workspace_id": workspace, "path": path, "content": content(round) });
        let Ok(answer) = client.rpc("tools/call", json!({ "name": "write_file", "arguments": write })).await
        else {
            return;
        };
        if answer["result"]["isError"] == json!(true) {
            return;
        }
        let edit = json!({ "workspace_id": workspace, "path": path, "edits": [{
            "old_text": format!("round {round:06}"), "new_text": format!("round {:06}", round + 1), "replace_all": true,
        }] });
        let Ok(answer) = client.rpc("tools/call", json!({ "name": "edit_file", "arguments": edit })).await
        else {
            return;
        };
        if answer["result"]["isError"] == json!(true) {
            return;
        }
        round += 2;
    }
}

fn names(work: &Path) -> Vec<String> {
    let entries = fs::read_dir(work).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn assert_whole(work: &Path) {
    for entry in fs::read_dir(work).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        assert!(name.starts_with("file-"), "{name} is left over");
        let text = fs::read_to_string(entry.path()).unwrap();
        assert_eq!(text.lines().count(), 20_000, "{name}");
        let first = text.lines().next().unwrap();
        assert!(text.lines().all(|line| line == first), "{name} is torn");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_file_is_torn_and_no_temporary_one_left() {
    let mut world = World::start().await;
    let client = world.client();
    let made = client.call("create_workspace", json!({ "python": false })).await.expect();
    let (workspace, work) = (made["workspace_id"].as_str().unwrap(), made["path"].as_str().unwrap());
    let work = Path::new(work);
    for round in 0..8_u64 {
        let writers: Vec<_> = (0..FILES)
            .map(|file| {
                let (client, workspace) = (world.client(), workspace.to_owned());
                tokio::spawn(keep_writing(client, workspace, format!("file-{file}")))
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(250 + 37 * round)).await;
        world.kill_executor().await;
        // Calls in progress are repeated for a while; the writers end when they are given up.
        for writer in writers {
            writer.abort();
        }
        world.start_executor().await;
        // What a crash left is removed beside the calls, and a call that was repeated may still be writing.
        wait::until("nothing to lie beside the files", Duration::from_secs(10), async || {
            names(work).iter().all(|name| name.starts_with("file-"))
        })
        .await;
        assert_whole(work);
    }
    assert_eq!(fs::read_dir(work).unwrap().count(), FILES);
    let write = json!({ "workspace_id": workspace, "path": "file-0", "content": content(0) });
    let _written = client.call("write_file", write).await.expect();
    assert_whole(work);
}
