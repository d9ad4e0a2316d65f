//! How fast the product is, beside what it is made of and what else there is: `cargo bench -p runlet-tests`, or
//! `cargo bench -p runlet-tests -- search memory` for some families. Everything runs on this machine's loopback.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a bench that can't go on must fail")]

mod calls;
mod crowd;
mod downloads;
mod memory;
mod output;
mod peer;
mod programs;
mod sandboxes;
mod search;
mod table;
mod terminals;
mod wire;
mod workspaces;

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use support::probe::resident_bytes;
use tempfile::TempDir;

use peer::{PythonServer, Shell};
use programs::Programs;
use serde_json::json;
use table::Row;

/// What the families share.
struct Bench {
    programs: Programs,
    /// Holds the data root, and files of the peers on the same disk.
    directory: TempDir,
    /// A workspace without Python.
    workspace: String,
    /// Bash without Runlet.
    shell: Shell,
    /// The Python server, where it can be had.
    python: Option<PythonServer>,
    /// Its resident memory before it was used.
    python_idle_bytes: Option<u64>,
}

/// One thread: the client is to cost little, and the programs to have the rest of the machine.
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let asked: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let start = Instant::now();
    build();
    let bench = Bench::start().await;
    let mut rows: Vec<Row> = Vec::new();
    macro_rules! family {
        ($name:literal, $measure:path) => {
            if asked.is_empty() || asked.iter().any(|name| name == $name) {
                eprintln!("{:4} s  {}", start.elapsed().as_secs(), $name);
                rows.extend($measure(&bench).await);
            }
        };
    }
    family!("one-client", calls::one_client);
    family!("many-clients", calls::many_clients);
    family!("tools-list", calls::tools_list);
    family!("output", output::one_gibibyte);
    family!("echo", terminals::echo);
    family!("drawing", terminals::drawing);
    family!("downloads", downloads::one_gibibyte);
    family!("workspaces", workspaces::with_python);
    family!("sandboxes", sandboxes::first_command);
    family!("run-code", sandboxes::run_again);
    family!("snapshots", sandboxes::with_packages);
    family!("search", search::beside_ripgrep);
    family!("memory", memory::idle);
    family!("living-jobs", crowd::living_jobs);
    family!("records", crowd::records);
    eprintln!("{:4} s  done", start.elapsed().as_secs());
    bench.programs.stop().await;
    table::print(&rows);
}

impl Bench {
    async fn start() -> Self {
        let own = std::env::current_exe().unwrap();
        let target = own.ancestors().nth(3).expect("a program in target/release/deps");
        let python = PythonServer::start(&target.join("bench")).await;
        let python = python.inspect_err(|problem| eprintln!("{problem}; its cells stay empty")).ok();
        let python_idle_bytes = python.as_ref().map(|server| resident_bytes(server.pid()));
        let directory = programs::directory();
        let programs = Programs::start(directory.path()).await;
        let client = programs.client();
        // The executor makes its template of Python environments at the start, which is no matter of any row.
        let prepared = client.call("create_workspace", json!({})).await.expect();
        client.call("delete_workspace", json!({ "workspace_id": prepared["workspace_id"] })).await.expect();
        let workspace = client.workspace().await;
        let shell = Shell::of_jobs(&client, &workspace).await;
        Self { programs, directory, workspace, shell, python, python_idle_bytes }
    }
}

/// Builds both programs as they are shipped: cargo builds none for a bench of another package.
fn build() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let built = Command::new(cargo)
        .args(["build", "--release", "-p", "runlet-executor", "-p", "runlet-gateway"])
        .current_dir(workspace)
        .status();
    assert!(built.is_ok_and(|status| status.success()), "the programs can't be built");
}
