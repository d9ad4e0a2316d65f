//! What prompts written for hosted services do with sandboxes, through the official Python SDK.

use std::time::Duration;

use serde_json::{Value, json};
use support::World;
use tokio::process::Command;

use crate::toolchain::{Toolchain, run, source, tell};

/// Packages come from their registries.
const LIMIT: Duration = Duration::from_secs(180);

#[tokio::test(flavor = "multi_thread")]
async fn projects_are_tested_in_a_sandbox() {
    let toolchain = Toolchain::installed().await;
    let world = World::start().await;
    let mut command = Command::new(toolchain.python(2));
    command.arg(source().join("sandboxes.py"));
    tell(&mut command, &world);
    let printed = run(command, LIMIT).await.expect();
    let seen: Value = serde_json::from_str(printed.trim()).unwrap();
    assert_eq!((&seen["ran"], &seen["isolation"]), (&json!("passed\n"), &json!("namespaces")), "{seen}");
    assert_eq!(seen["tested"][0], json!(0), "{seen}");
    assert!(seen["report"].as_str().unwrap().contains("name=\"numbers\""), "{seen}");
    assert!(seen["python"].as_str().unwrap().contains("1 passed"), "{seen}");
    assert_eq!(seen["ended"], json!("shutdown"));
}
