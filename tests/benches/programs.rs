//! Both programs as a person starts them. Their logs go to a file, not to this process: gathering them would cost what
//! is measured.

use std::fs::{self, File, Permissions};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use support::Client;
use support::world::{TOKEN, program};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::wire::{Call, Connection};

const LIMIT: Duration = Duration::from_secs(30);

/// An executor and a gateway. They are killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Programs {
    executor: Child,
    gateway: Child,
    /// Where the gateway listens.
    pub(crate) address: SocketAddr,
    /// From the start of the first program until the gateway said that it is ready.
    pub(crate) ready_after: Duration,
}

/// A directory for a data root, through which jobs of another user may pass.
pub(crate) fn directory() -> TempDir {
    let directory = tempfile::Builder::new().prefix("runlet-bench-").tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    directory
}

/// An address of this machine that nobody listens on.
pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

impl Programs {
    /// Starts both at once, on the data root in `directory`, and waits until they are ready.
    pub(crate) async fn start(directory: &Path) -> Self {
        let (socket, address) = (directory.join("run/executor.sock"), free_address());
        let log = File::options().create(true).append(true).open(directory.join("log")).unwrap();
        let spawn = |command: &mut Command| {
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.try_clone().unwrap());
            command.kill_on_drop(true).spawn().expect("the program starts")
        };
        let start = Instant::now();
        let executor = spawn(
            Command::new(program("runlet-executor"))
                .env("SANDBOX_ROOT", directory.join("var"))
                .env("RUNLET_SOCKET", &socket),
        );
        let gateway = spawn(
            Command::new(program("runlet-gateway"))
                .env("SANDBOX_TOKEN", TOKEN)
                .env("RUNLET_LISTEN", address.to_string())
                .env("RUNLET_EXECUTOR", format!("unix:{}", socket.display())),
        );
        while !is_ready(address).await {
            assert!(start.elapsed() < LIMIT, "the programs did not get ready");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Self { executor, gateway, address, ready_after: start.elapsed() }
    }

    /// A client that reads answers.
    pub(crate) fn client(&self) -> Client {
        Client::new(&format!("http://{}", self.address), TOKEN)
    }

    /// Process id of the executor.
    pub(crate) fn executor_pid(&self) -> u32 {
        self.executor.id().expect("a running executor")
    }

    /// Process ids of both programs.
    pub(crate) fn pids(&self) -> [u32; 2] {
        [self.executor_pid(), self.gateway.id().expect("a running gateway")]
    }

    /// Ends both in an orderly way.
    pub(crate) async fn stop(mut self) {
        for child in [&mut self.gateway, &mut self.executor] {
            let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed())).expect("a running program");
            kill_process(pid, Signal::TERM).unwrap();
            child.wait().await.unwrap();
        }
    }
}

/// Whether the gateway listens and reaches its executor.
async fn is_ready(address: SocketAddr) -> bool {
    match TcpStream::connect(address).await {
        Ok(stream) => Connection::over(stream).await.exchange(&Call::get("/readyz")).await.0 == 200,
        Err(_) => false,
    }
}
