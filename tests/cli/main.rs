//! `runlet ps`, `runlet logs` and `runlet attach` as a person uses them, beside agents on both real programs.
#![expect(clippy::unwrap_used, reason = "a test that can't go on must fail")]

mod attach;
mod connecting;
mod logs;
mod mcp;
mod person;
mod programs;
mod ps;

use std::process::Stdio;

use support::{World, world::TOKEN, world::program};
use tokio::process::Command;

/// `runlet` with the address of a world's gateway and its token.
fn runlet(world: &World, arguments: &[&str]) -> Command {
    let mut command = at(world.base(), arguments);
    command.env("SANDBOX_TOKEN", TOKEN);
    command
}

/// `runlet` with an address and no token.
fn at(url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program("runlet"));
    command
        .args(arguments)
        .env("RUNLET_URL", url)
        .env_remove("SANDBOX_TOKEN")
        .env_remove("SANDBOX_TOKEN_FILE")
        .env("SANDBOX_ROOT", "/nowhere")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// What a command printed, what it complained about, and its exit status.
async fn printed(mut command: Command) -> (String, String, Option<i32>) {
    let output = command.output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code())
}
