//! The examples, run as their page says.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use support::World;
use tokio::process::Command;

use crate::toolchain::{Ended, Toolchain, run, tell};

/// The first Python environment of a data root takes its time on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(name)
}

fn python(toolchain: &Toolchain) -> Command {
    let mut command = Command::new(toolchain.python(2));
    command.arg(example("client.py"));
    command
}

/// Runs an example that should do its work, and checks that nothing is left.
async fn works(mut command: Command, world: &World) {
    tell(&mut command, world);
    let printed = run(command, LIMIT).await.expect();
    assert!(printed.contains("Hello from Python 3."), "{printed}");
    let left = world.client().call("list_workspaces", serde_json::json!({})).await.expect();
    assert_eq!(left["workspaces"], serde_json::json!([]));
}

/// Runs an example that can't do its work: it must say `problem` in a line or two, without a stack trace.
async fn complains(command: Command, problem: &str) {
    let Ended { code, stdout, stderr } = run(command, LIMIT).await;
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    assert!(stderr.contains(problem) && stderr.lines().count() <= 2, "{stderr}");
}

/// The ways in which it can't work.
async fn complains_of_each(command: impl Fn(&World) -> Command, world: &World) {
    let mut unset = command(world);
    unset.env("RUNLET_URL", format!("{}/mcp", world.base())).env_remove("SANDBOX_TOKEN");
    complains(unset, "SANDBOX_TOKEN is not set").await;
    let mut wrong = command(world);
    tell(&mut wrong, world);
    wrong.env("SANDBOX_TOKEN", "wrong-0123456789-0123456789-0123456789");
    complains(wrong, "SANDBOX_TOKEN was refused").await;
    let mut nowhere = command(world);
    tell(&mut nowhere, world);
    let url = format!("http://{}/mcp", unused_address());
    nowhere.env("RUNLET_URL", &url);
    complains(nowhere, &url).await;
}

/// Where nothing listens.
fn unused_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn python_example_works() {
    let toolchain = Toolchain::installed().await;
    let world = World::start().await;
    works(python(&toolchain), &world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python_example_says_what_is_wrong() {
    let toolchain = Toolchain::installed().await;
    let world = World::start().await;
    complains_of_each(|_| python(&toolchain), &world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn typescript_example_works() {
    let toolchain = Toolchain::installed().await;
    let world = World::start().await;
    works(toolchain.script(&example("client.ts"), &world), &world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn typescript_example_says_what_is_wrong() {
    let toolchain = Toolchain::installed().await;
    let world = World::start().await;
    complains_of_each(|world| toolchain.script(&example("client.ts"), world), &world).await;
}
