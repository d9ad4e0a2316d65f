//! Sandboxes: the calls that agents know from hosted services, what a sandbox can't reach, and how it ends.
#![expect(clippy::unwrap_used, reason = "a test that can't go on must fail")]

mod apart;
mod examples;
mod life;
mod limits;
mod pauses;
mod plain;
mod runs;
mod saved;
mod system;
mod workspaces;

use serde_json::{Value, json};
use support::Client;

/// Makes a sandbox and returns its id.
async fn sandbox(client: &Client, arguments: Value) -> String {
    let made = client.call("create_sandbox", arguments).await.expect();
    assert_eq!(made["isolation"], json!("namespaces"), "{made}");
    made["id"].as_str().unwrap().to_owned()
}
