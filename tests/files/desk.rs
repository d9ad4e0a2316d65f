//! A workspace to try the file tools in, and its files as they lie on the disk.

use std::path::PathBuf;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde_json::{Value, json};
use support::{Answer, Client, World};

pub(crate) struct Desk {
    pub(crate) world: World,
    pub(crate) client: Client,
    pub(crate) id: String,
}

impl Desk {
    pub(crate) async fn new() -> Self {
        Self::in_world(World::start().await).await
    }

    pub(crate) async fn in_world(world: World) -> Self {
        let client = world.client();
        let id = client.workspace().await;
        Self { world, client, id }
    }

    /// Where a path of the work directory lies on the disk.
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.world.root().join("workspaces").join(&self.id).join("work").join(path)
    }

    pub(crate) fn bytes(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.at(path)).unwrap()
    }

    pub(crate) async fn put(&self, path: &str, bytes: &[u8]) {
        let content = BASE64.encode(bytes);
        let written =
            self.call("write_file", json!({ "path": path, "content": content, "encoding": "base64" })).await;
        assert_eq!(written.expect()["bytes"], json!(bytes.len()));
    }

    /// Calls a tool on this workspace.
    pub(crate) async fn call(&self, tool: &str, mut arguments: Value) -> Answer {
        arguments["workspace_id"] = json!(self.id);
        self.client.call(tool, arguments).await
    }

    pub(crate) async fn read(&self, path: &str) -> Answer {
        self.call("read_file", json!({ "path": path })).await
    }

    pub(crate) async fn edit(&self, path: &str, old: &str, new: &str) -> Answer {
        self.call("edit_file", edit(path, old, new)).await
    }

    /// Runs a command that must succeed and returns what it printed.
    pub(crate) async fn run(&self, command: &str) -> String {
        let job = self.client.run(&self.id, command).await;
        assert_eq!(job["exit_code"], json!(0), "{command}: {job}");
        job["output"].as_str().unwrap().to_owned()
    }
}

/// Arguments of an edit.
pub(crate) fn edit(path: &str, old: &str, new: &str) -> Value {
    json!({ "path": path, "edits": [{ "old_text": old, "new_text": new }] })
}

/// The code of a tool that must have failed.
#[track_caller]
pub(crate) fn code(answer: Answer) -> String {
    answer.expect_error()["code"].as_str().unwrap().to_owned()
}
