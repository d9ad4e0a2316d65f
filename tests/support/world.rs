//! Both programs, started for one test and ended with it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::{Client, probe, wait};

/// The token of every test's gateway.
pub const TOKEN: &str = "test-token-0123456789-0123456789-0123456789";

/// How long a program may take to start on a busy machine.
const START: Duration = Duration::from_secs(30);

/// What a test wants to be different.
#[derive(Debug, Default)]
pub struct Builder {
    executor: Vec<(String, String)>,
    gateway: Vec<(String, String)>,
    root_mode: Option<u32>,
    executor_wrapper: Vec<String>,
    user: Option<u32>,
    gateway_program: Option<String>,
    copies_programs: bool,
}

impl Builder {
    /// Starts another program as the gateway, named from where cargo puts the programs.
    pub fn gateway_program(mut self, name: &str) -> Self {
        self.gateway_program = Some(name.to_owned());
        self
    }

    /// Starts both programs as the user with this number, which takes root.
    pub fn user(mut self, uid: u32) -> Self {
        let switch = format!("setpriv --reuid={uid} --regid={uid} --clear-groups --");
        self.executor_wrapper = switch.split(' ').map(str::to_owned).collect();
        self.user = Some(uid);
        self
    }

    /// Sets a variable of the executor.
    pub fn executor(mut self, name: &str, value: impl Into<String>) -> Self {
        self.executor.push((name.to_owned(), value.into()));
        self
    }

    /// Sets a variable of the gateway.
    pub fn gateway(mut self, name: &str, value: impl Into<String>) -> Self {
        self.gateway.push((name.to_owned(), value.into()));
        self
    }

    /// Sets the mode of the directory that holds the data root; by default everybody may pass through.
    pub fn root_mode(mut self, mode: u32) -> Self {
        self.root_mode = Some(mode);
        self
    }

    /// Starts the executor through another program, such as `prlimit --nofile=256`.
    pub fn executor_through(mut self, wrapper: &[&str]) -> Self {
        self.executor_wrapper = wrapper.iter().map(|&part| part.to_owned()).collect();
        self
    }

    /// Adds a program to those that the executor is started through, nearer to it than the ones before. The programs are
    /// then started from a copy, since what lies between may lack the right to reach the place where cargo puts them.
    pub fn executor_further_through(mut self, wrapper: &[&str]) -> Self {
        self.executor_wrapper.extend(wrapper.iter().map(|&part| part.to_owned()));
        self.copies_programs = true;
        self
    }

    /// Starts both programs and waits until they are ready.
    pub async fn start(self) -> World {
        crate::install_tls();
        let directory = tempfile::Builder::new().prefix("runlet-test-").tempdir().unwrap();
        let mode = self.root_mode.unwrap_or(0o755);
        fs::set_permissions(directory.path(), Permissions::from_mode(mode)).unwrap();
        if let Some(uid) = self.user {
            std::os::unix::fs::chown(directory.path(), Some(uid), Some(uid)).unwrap();
        }
        let mut world = World { directory, builder: self, executor: None, gateways: Vec::new() };
        world.start_executor().await;
        world.start_gateway().await;
        world
    }
}

/// Both programs on a data root of their own. They are killed when this is dropped.
#[derive(Debug)]
pub struct World {
    directory: tempfile::TempDir,
    builder: Builder,
    executor: Option<Program>,
    gateways: Vec<Gateway>,
}

/// A program with what it logged.
#[derive(Debug)]
pub struct Program {
    child: Child,
    log: Arc<Mutex<String>>,
}

#[derive(Debug)]
struct Gateway {
    program: Program,
    base: String,
}

impl World {
    /// Both programs with their defaults.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// What a test wants to be different.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The data root.
    pub fn root(&self) -> PathBuf {
        self.directory.path().join("var")
    }

    /// The directory that holds everything of this world.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The executor's socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("run/executor.sock")
    }

    /// A client of the first gateway.
    pub fn client(&self) -> Client {
        self.client_of(0)
    }

    /// A client of one of the gateways.
    pub fn client_of(&self, gateway: usize) -> Client {
        Client::new(&self.gateways[gateway].base, TOKEN)
    }

    /// Address of the first gateway, such as `http://127.0.0.1:41234`.
    pub fn base(&self) -> &str {
        &self.gateways[0].base
    }

    /// Process id of the executor.
    pub fn executor_pid(&self) -> u32 {
        self.executor.as_ref().and_then(|program| program.child.id()).expect("a running executor")
    }

    /// Process id of the first gateway.
    pub fn gateway_pid(&self) -> u32 {
        self.gateways[0].program.child.id().expect("a running gateway")
    }

    /// What both programs have logged so far.
    pub fn logs(&self) -> String {
        let programs = self.executor.iter().chain(self.gateways.iter().map(|gateway| &gateway.program));
        programs.map(|program| program.log.lock().unwrap().clone()).collect()
    }

    /// Starts the executor and waits until it answers.
    pub async fn start_executor(&mut self) {
        let mut command = through(&self.builder.executor_wrapper, &self.program("runlet-executor"));
        command.env("SANDBOX_ROOT", self.root()).env("RUNLET_SOCKET", self.socket());
        command.env("RUNLET_LOG_FORMAT", "json").env_remove("SANDBOX_TOKEN");
        // Seconds of work that most tests have no use for.
        command.env("RUNLET_PREPARE_PYTHON", "false");
        command.envs(self.builder.executor.iter().map(|(name, value)| (name, value)));
        let started = Program::start(command);
        wait::until("the executor's socket", START, async || {
            assert!(!started.log().contains("runlet-executor: "), "the executor failed: {}", started.log());
            tokio::net::UnixStream::connect(self.socket()).await.is_ok()
        })
        .await;
        self.executor = Some(started);
    }

    /// Starts one more gateway and waits until it reaches the executor; returns its number.
    pub async fn start_gateway(&mut self) -> usize {
        let number = self.launch_gateway().await;
        let ready = format!("{}/readyz", self.gateways[number].base);
        wait::until("the gateway to reach the executor", START, async || {
            reqwest::get(&ready).await.is_ok_and(|answer| answer.status() == 200)
        })
        .await;
        number
    }

    /// Starts one more gateway, whether or not it reaches the executor; returns its client.
    pub async fn try_gateway(&mut self) -> Client {
        let number = self.launch_gateway().await;
        self.client_of(number)
    }

    fn program(&self, name: &str) -> PathBuf {
        let built = program(name);
        if !self.builder.copies_programs {
            return built;
        }
        let copy = self.directory.path().join(name);
        if !copy.is_file() {
            fs::copy(built, &copy).unwrap();
        }
        copy
    }

    async fn launch_gateway(&mut self) -> usize {
        // A wrapper that switches the user is for both.
        let wrapper =
            if self.builder.user.is_some() { self.builder.executor_wrapper.as_slice() } else { &[] };
        let name = self.builder.gateway_program.as_deref().unwrap_or("runlet-gateway");
        let mut command = through(wrapper, &self.program(name));
        command
            .env("SANDBOX_TOKEN", TOKEN)
            .env("RUNLET_LISTEN", "127.0.0.1:0")
            .env("RUNLET_LOG_FORMAT", "json");
        command.env("RUNLET_EXECUTOR", format!("unix:{}", self.socket().display()));
        command.envs(self.builder.gateway.iter().map(|(name, value)| (name, value)));
        let program = Program::start(command);
        let mut address = None;
        wait::until("the gateway's address", START, async || {
            address = program.log().lines().find_map(address_in);
            address.is_some()
        })
        .await;
        let base = format!("http://{}", address.unwrap());
        self.gateways.push(Gateway { program, base });
        self.gateways.len() - 1
    }

    /// Sends the executor a signal.
    pub fn signal_executor(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.executor_pid().cast_signed()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Sends a gateway a signal.
    pub fn signal_gateway(&self, gateway: usize, signal: rustix::process::Signal) {
        let pid = self.gateways[gateway].program.child.id().expect("a running gateway");
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid.cast_signed()).unwrap(), signal)
            .unwrap();
    }

    /// Waits until the executor has ended and returns its exit status.
    pub async fn executor_ended(&mut self) -> std::process::ExitStatus {
        self.executor.as_mut().expect("an executor").child.wait().await.unwrap()
    }

    /// Kills the executor with signal 9 and waits until it is gone.
    pub async fn kill_executor(&mut self) {
        self.signal_executor(rustix::process::Signal::KILL);
        self.executor_ended().await;
    }

    /// Process id of the spawner: the executor's child of that name.
    pub fn spawner_pid(&self) -> u32 {
        let named = |pid: &u32| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "runlet-spawner\n")
        };
        probe::children(self.executor_pid()).into_iter().find(named).expect("a spawner")
    }

    /// Waits until a gateway has ended and returns its exit status.
    pub async fn gateway_ended(&mut self, gateway: usize) -> std::process::ExitStatus {
        self.gateways[gateway].program.child.wait().await.unwrap()
    }
}

impl Program {
    /// Starts a program and gathers what it logs.
    pub fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the program starts");
        let log = Arc::new(Mutex::new(String::new()));
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let gathered = Arc::clone(&log);
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let mut log = gathered.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        Self { child, log }
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }
}

fn through(wrapper: &[String], program: &Path) -> Command {
    let Some((first, arguments)) = wrapper.split_first() else { return Command::new(program) };
    let mut command = Command::new(first);
    command.args(arguments).arg(program);
    command
}

fn address_in(line: &str) -> Option<String> {
    let logged: Value = serde_json::from_str(line).ok()?;
    Some(logged["address"].as_str()?.to_owned())
}

/// A program of the workspace, which cargo puts two directories above the tests.
pub fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.ancestors().nth(2).unwrap().join(name);
    assert!(path.is_file(), "{} is missing; run `cargo build --workspace` first", path.display());
    path
}
