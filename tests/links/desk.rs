//! A workspace with files, links to them, and a client that has links and no token.

use std::path::PathBuf;

use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use support::{Answer, Client, World};

pub(crate) struct Desk {
    pub(crate) world: World,
    pub(crate) client: Client,
    pub(crate) id: String,
    http: reqwest::Client,
}

impl Desk {
    pub(crate) async fn new() -> Self {
        Self::in_world(World::start().await).await
    }

    pub(crate) async fn in_world(world: World) -> Self {
        let client = world.client();
        let id = client.workspace().await;
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { world, client, id, http }
    }

    /// Where a path of the work directory lies on the disk.
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.world.root().join("workspaces").join(&self.id).join("work").join(path)
    }

    /// Calls a tool on this workspace.
    pub(crate) async fn call(&self, tool: &str, mut arguments: Value) -> Answer {
        arguments["workspace_id"] = json!(self.id);
        self.client.call(tool, arguments).await
    }

    pub(crate) async fn put(&self, path: &str, content: &str) {
        self.call("write_file", json!({ "path": path, "content": content })).await.expect();
    }

    /// Runs a command that must succeed and returns what it printed.
    pub(crate) async fn run(&self, command: &str) -> String {
        let job = self.client.run(&self.id, command).await;
        assert_eq!(job["exit_code"], json!(0), "{command}: {job}");
        job["output"].as_str().unwrap().to_owned()
    }

    /// Makes a download and returns its URL.
    pub(crate) async fn offer(&self, path: &str) -> String {
        url(&self.call("create_download", json!({ "path": path })).await.expect())
    }

    /// Makes an upload and returns its URL.
    pub(crate) async fn accept(&self, path: &str, max_bytes: u64) -> String {
        let made = self.call("create_upload", json!({ "path": path, "max_bytes": max_bytes })).await;
        url(&made.expect())
    }

    pub(crate) fn request(&self, method: Method, url: &str) -> RequestBuilder {
        self.http.request(method, url)
    }

    pub(crate) async fn get(&self, url: &str, headers: &[(&str, &str)]) -> Response {
        self.with(Method::GET, url, headers).await
    }

    pub(crate) async fn head(&self, url: &str, headers: &[(&str, &str)]) -> Response {
        self.with(Method::HEAD, url, headers).await
    }

    /// Status and body of a `GET`.
    pub(crate) async fn fetch(&self, url: &str) -> (StatusCode, Vec<u8>) {
        let response = self.get(url, &[]).await;
        (response.status(), response.bytes().await.unwrap().to_vec())
    }

    /// Status and body of a `PUT`.
    pub(crate) async fn send(&self, url: &str, content: impl Into<reqwest::Body>) -> (StatusCode, String) {
        let response = self.request(Method::PUT, url).body(content).send().await.unwrap();
        (response.status(), response.text().await.unwrap())
    }

    async fn with(&self, method: Method, url: &str, headers: &[(&str, &str)]) -> Response {
        let request = headers
            .iter()
            .fold(self.request(method, url), |request, (name, value)| request.header(*name, *value));
        request.send().await.unwrap()
    }

    /// Has downloads come by message, as from an executor on another machine.
    pub(crate) fn hand_over_nothing(&self) {
        std::fs::remove_file(format!("{}.files", self.world.socket().display())).unwrap();
    }

    /// Starts the executor again and waits until it has taken up what there is.
    pub(crate) async fn restart_executor(&mut self) {
        self.world.start_executor().await;
        self.client.call("list_downloads", json!({})).await.expect();
    }

    /// Names in the executor's directory of snapshots.
    pub(crate) fn kept(&self) -> Vec<String> {
        names(&self.world.root().join("links"))
    }
}

/// Names in a directory, sorted.
pub(crate) fn names(directory: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

pub(crate) fn url(made: &Value) -> String {
    made["url"].as_str().unwrap().to_owned()
}

pub(crate) fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

/// The code of a tool that must have failed.
#[track_caller]
pub(crate) fn code(answer: Answer) -> String {
    answer.expect_error()["code"].as_str().unwrap().to_owned()
}

pub(crate) fn sha256(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that repeat nowhere soon.
pub(crate) fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut content = Vec::with_capacity(bytes + 8);
    while content.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        content.extend_from_slice(&state.to_le_bytes());
    }
    content.truncate(bytes);
    content
}
