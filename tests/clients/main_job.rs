//! The main job through the SDKs for Python and TypeScript, both lines of each, in every era they speak; and what each
//! client must have seen of it.

use std::time::Duration;

use serde_json::{Value, json};
use support::{World, world::program};
use tokio::process::Command;

use crate::toolchain::{Toolchain, run, source, tell};

const LIMIT: Duration = Duration::from_secs(90);

const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";

/// Checks what a client saw of the main job.
#[track_caller]
pub(crate) fn check(seen: &Value, protocol: &str) {
    assert_eq!(seen["protocol"], protocol);
    let tools = seen["tools"].as_array().unwrap();
    assert!(tools.contains(&json!("run_command")) && tools.contains(&json!("read_file")), "{tools:?}");
    assert_eq!(seen["parallel"], json!(["one\n", "two\n"]));
    assert_eq!(seen["growing"], json!(["first\n", "second\n"]));
    assert_eq!(seen["exit_code"], 5);
    assert_eq!(seen["late"], json!(["late\n", "late\n"]));
    assert!(seen["progress"].as_u64().unwrap() >= 1, "no progress was told");
    let diff = seen["diff"].as_str().unwrap();
    assert!(diff.contains("-eleven\n+elf\n zwölf\n"), "{diff}");
    let text = seen["text"].as_str().unwrap();
    assert!(text.contains("elf\n") && text.contains("zwölf\n") && !text.contains("eleven"), "{text}");
    assert_eq!(seen["deleted"], true);
    assert_eq!((&seen["after"], &seen["code"]), (&json!("error"), &json!("WORKSPACE_NOT_FOUND")));
}

/// Runs one of the scripts and checks what it saw.
async fn script(mut command: Command, arguments: &[&str], world: &World, protocol: &str) {
    tell(&mut command, world);
    command.args(arguments);
    let printed = run(command, LIMIT).await.expect();
    check(&serde_json::from_str(&printed).unwrap(), protocol);
}

async fn python(line: u32, era: &str, protocol: &str) {
    python_with(line, era, protocol, |_| ()).await;
}

/// Through `runlet mcp`, which the SDK starts.
async fn python_on_stdio(line: u32, era: &str, protocol: &str) {
    let name = |command: &mut Command| {
        command.env("RUNLET_PROGRAM", program("runlet"));
    };
    python_with(line, era, protocol, name).await;
}

async fn python_with(line: u32, era: &str, protocol: &str, more: impl FnOnce(&mut Command)) {
    let toolchain = Toolchain::installed().await;
    let world = World::start().await;
    let mut command = Command::new(toolchain.python(line));
    command.arg(source().join("main_job.py"));
    more(&mut command);
    script(command, &[era], &world, protocol).await;
}

async fn typescript(line: &str, era: &str, protocol: &str) {
    let toolchain = Toolchain::installed().await;
    let world = World::start().await;
    let command = toolchain.script(&source().join("main_job.mjs"), &world);
    script(command, &[line, era], &world, protocol).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python_sdk_2_by_default() {
    python(2, "auto", MODERN).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python_sdk_2_in_2026_07_28() {
    python(2, MODERN, MODERN).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python_sdk_2_in_the_legacy_era() {
    python(2, "legacy", LEGACY).await;
}

/// The SDK hides a body that is no error of JSON-RPC.
#[tokio::test(flavor = "multi_thread")]
async fn python_sdk_2_shows_why_it_was_refused() {
    let toolchain = Toolchain::installed().await;
    let world = World::start().await;
    let mut command = Command::new(toolchain.python(2));
    command.arg(source().join("main_job.py")).arg("legacy");
    tell(&mut command, &world);
    command.env("SANDBOX_TOKEN", "not-the-token-0123456789-0123456789");
    let ended = run(command, LIMIT).await;
    assert_ne!(ended.code, Some(0));
    assert!(ended.stderr.contains("send the token once, as X-Sandbox-Token"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn python_sdk_1() {
    python(1, "legacy", LEGACY).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python_sdk_2_on_stdio_by_default() {
    python_on_stdio(2, "auto", MODERN).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python_sdk_2_on_stdio_in_the_legacy_era() {
    python_on_stdio(2, "legacy", LEGACY).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python_sdk_1_on_stdio() {
    python_on_stdio(1, "legacy", LEGACY).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn typescript_client_2_by_default() {
    typescript("2", "auto", MODERN).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn typescript_client_2_in_2026_07_28() {
    typescript("2", MODERN, MODERN).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn typescript_client_2_in_the_legacy_era() {
    typescript("2", "legacy", LEGACY).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn typescript_sdk_1() {
    typescript("1", "legacy", LEGACY).await;
}
