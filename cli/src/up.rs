//! `runlet up`: both programs as two processes on this machine, with everything they need in one directory.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use reqwest::{StatusCode, Url, header::HOST};
use tokio::process::{Child, ChildStdin, Command};
use tokio::signal::unix::{SignalKind, signal};

use crate::{clients, gateway, say, token};

/// Exit status for settings that can't be used (EX_USAGE of sysexits.h).
const UNUSABLE_SETTINGS: u8 = 64;

/// How long both programs may take to answer.
const START_LIMIT: Duration = Duration::from_secs(30);

/// How often a starting program is asked whether it is ready.
const ASK_PERIOD: Duration = Duration::from_millis(20);

/// How long such a question may take.
const ASK_LIMIT: Duration = Duration::from_secs(6);

/// Longest path of a Unix socket, the final NUL left out (unix(7)).
const MAX_SOCKET_PATH: usize = 107;

/// Start the gateway and the executor on this machine.
#[derive(Debug, Args)]
pub(crate) struct Up {
    /// Directory of all data; one executor at a time
    #[arg(long, env = "SANDBOX_ROOT", default_value = "./var")]
    root: PathBuf,
    /// Address to listen on
    #[arg(long, env = "RUNLET_LISTEN", default_value = "127.0.0.1:8000")]
    listen: SocketAddr,
    /// User that jobs run as, where this is root
    #[arg(long, env = "RUNLET_JOB_USER")]
    job_user: Option<String>,
}

/// Why `up` could not start or had to stop.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error("{0}")]
    Setting(String),
    #[error("{action}: {source}")]
    Io { action: String, source: io::Error },
    #[error("{0}")]
    Ended(String),
}

impl Problem {
    fn io(action: impl Into<String>, source: io::Error) -> Self {
        Self::Io { action: action.into(), source }
    }
}

impl Up {
    pub(crate) fn run(self) -> ExitCode {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return complain(&Problem::io("starting", error)),
        };
        match runtime.block_on(self.serve()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(problem) => complain(&problem),
        }
    }

    async fn serve(self) -> Result<(), Problem> {
        let waiting = |error| Problem::io("waiting for Ctrl-C", error);
        let mut interrupt = signal(SignalKind::interrupt()).map_err(waiting)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(waiting)?;
        let place = self.prepare()?;
        let mut pair = Pair::start(&self, &place)?;
        let ready = tokio::select! {
            ready = pair.await_ready(self.listen) => ready,
            _ = interrupt.recv() => Err(Problem::Ended("interrupted while starting".to_owned())),
            _ = terminate.recv() => Err(Problem::Ended("ended while starting".to_owned())),
        };
        let outcome = match ready {
            Err(problem) => Err(problem),
            Ok(()) => {
                say(&self.greeting(&place));
                tokio::select! {
                    ended = pair.first_end() => Err(ended),
                    _ = interrupt.recv() => Ok(()),
                    _ = terminate.recv() => Ok(()),
                }
            }
        };
        let stopped = tokio::select! {
            () = pair.stop() => outcome,
            // A second Ctrl-C: both end at once, and the executor's spawner ends every job.
            _ = interrupt.recv() => { pair.stop_at_once().await; outcome }
            _ = terminate.recv() => { pair.stop_at_once().await; outcome }
        };
        if stopped.is_ok() {
            say("stopped");
        }
        stopped
    }

    /// Makes the data root, and the token unless one is set.
    fn prepare(&self) -> Result<Place, Problem> {
        let failed = |error| Problem::io(format!("making SANDBOX_ROOT {}", self.root.display()), error);
        std::fs::create_dir_all(&self.root).map_err(failed)?;
        let root = self.root.canonicalize().map_err(failed)?;
        let socket = root.join("run/executor.sock");
        if socket.as_os_str().len() > MAX_SOCKET_PATH {
            return Err(Problem::Setting(format!(
                "SANDBOX_ROOT: the path {} is too long for a socket below it ({MAX_SOCKET_PATH} bytes); choose a shorter one",
                root.display()
            )));
        }
        let given = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let token_file = token::file(&root);
        let token = if given("SANDBOX_TOKEN") || given("SANDBOX_TOKEN_FILE") {
            None
        } else {
            let failed = |error| Problem::io(format!("keeping the token in {}", token_file.display()), error);
            Some(token::keep(&token_file).map_err(failed)?)
        };
        Ok(Place { root, socket, token_file, token })
    }

    fn greeting(&self, place: &Place) -> String {
        let url = format!("http://{}/mcp", self.listen);
        let (token, kept) = match &place.token {
            Some(token) => (token.as_str(), format!("kept in {}", place.token_file.display())),
            None => ("<your token>", "the one you set".to_owned()),
        };
        format!(
            "Runlet is ready.\n\n\
             Endpoint      {url}\n\
             Token         {token}   ({kept})\n\
             Data          {}\n\n{}\n\
             Ctrl-C stops it, and ends every job.",
            place.root.display(),
            clients::instructions(&url, token)
        )
    }
}

/// Both programs, started for one client.
pub(crate) struct Own {
    pair: Pair,
    /// Where the gateway is.
    pub(crate) url: String,
}

impl Own {
    /// Starts them on this data root, at an address of the loopback that nobody else uses.
    pub(crate) async fn start(root: PathBuf, job_user: Option<String>) -> Result<Self, Problem> {
        let free = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0));
        let listen = free.and_then(|listener| listener.local_addr());
        let listen = listen.map_err(|error| Problem::io("looking for a free port", error))?;
        let up = Up { root, listen, job_user };
        let place = up.prepare()?;
        let mut pair = Pair::start(&up, &place)?;
        pair.await_ready(listen).await?;
        Ok(Self { pair, url: format!("http://{listen}") })
    }

    /// Stops them, and every job with them.
    pub(crate) async fn stop(mut self) {
        self.pair.stop().await;
    }
}

/// Where everything lies.
struct Place {
    root: PathBuf,
    socket: PathBuf,
    token_file: PathBuf,
    /// The token that was made or found; `None` when the caller set one.
    token: Option<String>,
}

/// The two programs.
struct Pair {
    executor: Child,
    gateway: Child,
    /// Our ends of their standard inputs, by which they see that this process lives. Waiting for a child would close
    /// what is left in it.
    _inputs: [Option<ChildStdin>; 2],
}

impl Pair {
    fn start(up: &Up, place: &Place) -> Result<Self, Problem> {
        let mut executor = command("runlet-executor")?;
        executor.env("SANDBOX_ROOT", &place.root).env("RUNLET_SOCKET", &place.socket);
        // The executor and its jobs have no use for the token.
        executor.env_remove("SANDBOX_TOKEN").env_remove("SANDBOX_TOKEN_FILE");
        if let Some(user) = &up.job_user {
            executor.env("RUNLET_JOB_USER", user);
        }
        let mut gateway = command("runlet-gateway")?;
        gateway.env("RUNLET_LISTEN", up.listen.to_string());
        gateway.env("RUNLET_EXECUTOR", format!("unix:{}", place.socket.display()));
        if place.token.is_some() {
            gateway.env_remove("SANDBOX_TOKEN").env("SANDBOX_TOKEN_FILE", &place.token_file);
        }
        let started = |name: &str, error| Problem::io(format!("starting {name}"), error);
        let mut executor = executor.spawn().map_err(|error| started("runlet-executor", error))?;
        let mut gateway = gateway.spawn().map_err(|error| started("runlet-gateway", error))?;
        let inputs = [executor.stdin.take(), gateway.stdin.take()];
        Ok(Self { executor, gateway, _inputs: inputs })
    }

    /// Waits until the gateway reaches the executor.
    async fn await_ready(&mut self, address: SocketAddr) -> Result<(), Problem> {
        let until = Instant::now() + START_LIMIT;
        let failed = |error| Problem::Ended(format!("asking whether the gateway is ready: {error}"));
        let url =
            Url::parse(&format!("http://{address}/readyz")).map_err(|error| failed(error.to_string()))?;
        let http = gateway::client(&url).map_err(|error| failed(error.to_string()))?;
        loop {
            self.check_alive()?;
            let asked = http.get(url.clone()).header(HOST, "localhost").timeout(ASK_LIMIT).send().await;
            if asked.is_ok_and(|answer| answer.status() == StatusCode::OK) {
                // Another program may answer at this address while ours could not listen there.
                return self.check_alive();
            }
            if Instant::now() > until {
                return Err(Problem::Ended(format!("{url} gave no good answer in {START_LIMIT:?}")));
            }
            tokio::time::sleep(ASK_PERIOD).await;
        }
    }

    fn check_alive(&mut self) -> Result<(), Problem> {
        for (name, child) in [("runlet-executor", &mut self.executor), ("runlet-gateway", &mut self.gateway)]
        {
            if let Some(status) =
                child.try_wait().map_err(|error| Problem::io(format!("watching {name}"), error))?
            {
                return Err(ended(name, status));
            }
        }
        Ok(())
    }

    /// Resolves when either program has ended, which neither does by itself.
    async fn first_end(&mut self) -> Problem {
        let (name, status) = tokio::select! {
            status = self.executor.wait() => ("runlet-executor", status),
            status = self.gateway.wait() => ("runlet-gateway", status),
        };
        match status {
            Ok(status) => ended(name, status),
            Err(error) => Problem::io(format!("watching {name}"), error),
        }
    }

    /// Stops the gateway, then the executor with all jobs, each in its own time.
    async fn stop(&mut self) {
        for child in [&mut self.gateway, &mut self.executor] {
            tell_to_end(child);
            let _status = child.wait().await;
        }
    }

    async fn stop_at_once(&mut self) {
        for child in [&mut self.gateway, &mut self.executor] {
            tell_to_end(child);
        }
        for child in [&mut self.gateway, &mut self.executor] {
            let _killed = child.kill().await;
        }
    }
}

fn tell_to_end(child: &Child) {
    let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
    if let Some(id) = id {
        let _gone = rustix::process::kill_process(id, rustix::process::Signal::TERM).is_err();
    }
}

fn ended(name: &str, status: ExitStatus) -> Problem {
    Problem::Ended(format!("{name} ended ({status}); what it said is above. Stopping."))
}

/// A program that lies beside this one. It gets a process group of its own, so that Ctrl-C reaches only this process,
/// which then stops the two in order; and its standard input tells it when this process is gone.
fn command(name: &str) -> Result<Command, Problem> {
    let own = std::env::current_exe().map_err(|error| Problem::io("finding this program", error))?;
    let path = own.parent().unwrap_or(Path::new(".")).join(name);
    if !path.is_file() {
        return Err(Problem::Setting(format!(
            "{} is missing; build the whole workspace with `cargo build --release`, or install the three programs together",
            path.display()
        )));
    }
    let mut command = Command::new(path);
    // They log to standard error; standard output is for those who asked this process for something.
    command.arg("--stop-with-stdin").stdin(Stdio::piped()).stdout(Stdio::null());
    command.process_group(0).kill_on_drop(true);
    if std::env::var_os("RUNLET_LOG").is_none() {
        command.env("RUNLET_LOG", "warn");
    }
    Ok(command)
}

fn complain(problem: &Problem) -> ExitCode {
    eprintln!("runlet: {problem}");
    match problem {
        Problem::Setting(_) => ExitCode::from(UNUSABLE_SETTINGS),
        Problem::Io { .. } | Problem::Ended(_) => ExitCode::FAILURE,
    }
}
