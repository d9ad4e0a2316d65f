//! What the product is measured beside: the machine's own spawning, and a server on the official Python SDK.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use support::Client;
use tokio::net::TcpStream;
use tokio::process::Child;

use crate::programs::free_address;
use crate::table::median;
use crate::wire::{Call, milliseconds};

/// The Python server. It is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct PythonServer {
    child: Child,
    /// Where it listens.
    pub(crate) address: SocketAddr,
}

impl PythonServer {
    /// Starts the server in a virtual environment in `directory`, which is made when it is missing.
    ///
    /// # Errors
    ///
    /// A sentence that says why there is none, which leaves its cells of the table empty.
    pub(crate) async fn start(directory: &Path) -> Result<Self, String> {
        let python = install(&directory.join("py"))?;
        let address = free_address();
        let child = tokio::process::Command::new(python)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peer.py"))
            .arg(address.port().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("the Python server does not start: {error}"))?;
        let start = Instant::now();
        while TcpStream::connect(address).await.is_err() {
            if start.elapsed() > Duration::from_secs(20) {
                return Err("the Python server does not listen".to_owned());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(Self { child, address })
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("a running server")
    }

    /// The call of its tool that runs `true`.
    pub(crate) fn run_true() -> Call {
        Call::tool("run_command", &json!({ "command": "true" }), "\"exit_code\":0")
    }
}

/// The interpreter of a virtual environment with the SDK.
fn install(environment: &Path) -> Result<PathBuf, String> {
    let python = environment.join("bin/python");
    if python.is_file() && succeeds(Command::new(&python).args(["-c", "import mcp.server.mcpserver"])) {
        return Ok(python);
    }
    let made = succeeds(Command::new("python3").args(["-m", "venv", "--clear"]).arg(environment))
        && succeeds(Command::new(&python).args(["-m", "pip", "install", "--quiet", "mcp>=2.3,<3"]));
    made.then_some(python)
        .ok_or_else(|| "the Python SDK can't be installed (python3 -m venv, pip)".to_owned())
}

/// Whether a program can be run and ends well. Its output is not shown.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// `bash -c true` by posix_spawn, which is what the standard library uses here, where a job would run it and with a job's
/// variables: with others, such as a locale of more files, bash takes up to half as long again.
#[derive(Debug)]
pub(crate) struct Shell {
    directory: String,
    variables: Vec<(String, String)>,
}

impl Shell {
    /// As a job of this workspace finds it.
    pub(crate) async fn of_jobs(client: &Client, workspace: &str) -> Self {
        let job = client.run(workspace, "env -0 | tr '\\0' '\\n'").await;
        let printed = job["output"].as_str().expect("the output");
        let variables: Vec<(String, String)> = printed
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let directory = variables.iter().find(|(name, _)| name == "PWD").expect("a directory").1.clone();
        Self { directory, variables }
    }

    fn spawn_true(&self) {
        let mut bash = Command::new("/bin/bash");
        bash.args(["-c", "true"]).env_clear().current_dir(&self.directory);
        assert!(succeeds(bash.envs(self.variables.iter().map(|(name, value)| (name, value)))));
    }

    /// The median of so many spawns, one after the other, in milliseconds.
    pub(crate) fn median(&self, spawns: usize) -> f64 {
        let time = || {
            let start = Instant::now();
            self.spawn_true();
            milliseconds(start.elapsed())
        };
        median((0..spawns).map(|_| time()).collect())
    }

    /// Spawns per second of so many threads.
    pub(crate) fn rate(&self, threads: usize, time: Duration) -> f64 {
        let start = Instant::now();
        let spawns: u32 = thread::scope(|scope| {
            let spawn = || {
                let mut spawns = 0;
                while start.elapsed() < time {
                    self.spawn_true();
                    spawns += 1;
                }
                spawns
            };
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(spawn)).collect();
            running.into_iter().map(|thread| thread.join().expect("a thread that spawns")).sum()
        });
        f64::from(spawns) / start.elapsed().as_secs_f64()
    }
}
