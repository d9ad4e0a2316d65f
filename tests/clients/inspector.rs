//! The official Inspector: what it says of the tools' schemas, and a call through it.

use std::time::Duration;

use support::{World, world::TOKEN};
use tokio::process::Command;

use crate::toolchain::{Toolchain, run};

const LIMIT: Duration = Duration::from_secs(60);

fn inspector(toolchain: &Toolchain, world: &World, era: &str) -> Command {
    let mut command = toolchain.package_program("mcp-inspector");
    command.arg("--cli").arg(format!("{}/mcp", world.base())).args(["--transport", "http"]);
    command.arg("--header").arg(format!("X-Sandbox-Token: {TOKEN}")).args(["--protocol-era", era]);
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn inspector_finds_no_fault_in_the_schemas() {
    let toolchain = Toolchain::installed().await;
    let world = World::start().await;
    for era in ["legacy", "modern"] {
        let mut command = inspector(&toolchain, &world, era);
        command.args(["--method", "tools/list", "--strict"]);
        let ended = run(command, LIMIT).await;
        println!("{era}: {}", ended.stderr);
        assert_eq!(ended.code, Some(0), "{}\n{}", ended.stdout, ended.stderr);
        assert!(ended.stdout.contains("run_command"), "{}", ended.stdout);
        assert!(!ended.stderr.to_lowercase().contains("warning"), "{}", ended.stderr);
    }
}
