//! The official conformance suite, in both eras, against a gateway that offers the suite's own tools beside Runlet's.

use std::time::Duration;

use support::World;

use crate::proxy;
use crate::toolchain::{Toolchain, run, source};

const LIMIT: Duration = Duration::from_secs(300);

async fn suite(requirements: &str) {
    let toolchain = Toolchain::installed().await;
    let world = World::builder().gateway_program("examples/conformance").start().await;
    let address = proxy::start(world.base().trim_start_matches("http://").to_owned()).await;
    let mut command = toolchain.package_program("conformance");
    command.args(["server", "--requirements", requirements, "--url"]).arg(format!("http://{address}/mcp"));
    command.arg("--expected-failures").arg(source().join("conformance-baseline.yml"));
    command.arg("--output-dir").arg(world.directory().join("results"));
    let ended = run(command, LIMIT).await;
    let summary = ended.stdout.find("=== SUMMARY ===").unwrap_or_default();
    println!("{}", &ended.stdout[summary..]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn conforms_to_2025_11_25() {
    suite("2025-11-25").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conforms_to_2026_07_28() {
    suite("2026-07-28").await;
}
