//! A root of its own for the processes of one sandbox: namespaces by bubblewrap, and an overlay over the machine's root.
//!
//! ```text
//! executor ──exec──▶ runlet-executor --enter-sandbox: mounts ──exec──▶ bwrap: namespaces ──exec──▶ runlet-executor
//!     └── socket on standard input, which becomes that of a spawner, process 1 of the sandbox ──────▶ --sandbox-init
//! ```
//!
//! Everything that is mounted lives in a mount namespace, which goes with its last process; everything else ends with
//! process 1, which ends when the executor closes its end of the socket.

mod cover;
mod enter;
mod inside;
mod users;

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

pub use enter::enter;
pub use inside::serve;

use super::cgroup::{self, Group, Memory};
use super::spawn::Spawner;
use crate::error::{Error, Result};

/// The oldest bubblewrap that knows every option that is used: `--as-pid-1` came with it.
const OLDEST_BUBBLEWRAP: (u32, u32) = (0, 3);

/// How long a sandbox may take to start. It takes some 10 ms.
const START_LIMIT: Duration = Duration::from_secs(20);

/// How long the processes of a sandbox may take to go once they were told to, before they are killed from outside.
const END_LIMIT: Duration = Duration::from_secs(10);

/// How often it is looked for processes that were started while others were stopped.
const STOP_ROUNDS: usize = 50;

/// Bytes kept of what bubblewrap said.
const COMPLAINT_BYTES: usize = 4096;

/// Where the user of a sandbox is at home, and where its commands start.
pub const HOME: &str = "/home/user";

/// Where everybody may write.
pub const TMP: &str = "/tmp";

/// What is known of a sandbox before it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Preparation {
    /// What keeps it to what it may use.
    pub fence: Fence,
    /// What users it has, where an overlay is mounted for it.
    pub users: Option<Users>,
}

/// What a sandbox is made of.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// bubblewrap.
    pub bubblewrap: PathBuf,
    /// What it sees of the machine's files.
    pub disk: Disk,
    /// Directories of the machine that are empty for the sandbox.
    pub hidden: Vec<PathBuf>,
    /// Directories in there that are its own, at the places that they have outside.
    pub own: Vec<PathBuf>,
    /// Name of the machine, as the sandbox sees it.
    pub hostname: String,
    /// Whether there is more network than the loopback.
    pub network: bool,
}

/// What keeps a sandbox to what it may use.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Fence {
    /// The control group that is entered by these files.
    Group(Vec<PathBuf>),
    /// Limits of its processes (setrlimit(2)): bytes of data that one of them has, and how many there are.
    Processes {
        /// Bytes of each process.
        data: Option<u64>,
        /// Processes and threads of the sandbox.
        count: Option<u64>,
    },
}

/// What a sandbox sees of the machine's files.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Disk {
    /// The machine's system, which it may change: an overlay keeps what it does. For an executor that may mount.
    Overlay(Overlay),
    /// The machine's root as it is, to be read only. Another user's root can't be changed even in an overlay.
    ReadOnly {
        /// What becomes [`HOME`]; it belongs to the jobs' user.
        home: PathBuf,
        /// What becomes [`TMP`].
        tmp: PathBuf,
    },
}

/// Directories of an overlay, of the executor's own.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Overlay {
    /// What other sandboxes left, over the machine's files; the last one lies uppermost.
    pub layers: Vec<PathBuf>,
    /// What processes change is put here. A directory on a disk.
    pub upper: PathBuf,
    /// Beside it, for the kernel's own use.
    pub scratch: PathBuf,
}

/// Who the users of a sandbox are outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Users {
    /// User that is root inside.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Whether there are more users, whom nobody is outside, and root owns what belongs to root outside: system packages can
    /// be installed. It takes a file system whose owners the kernel can map.
    pub many: bool,
}

/// A sandbox to be: a process that has done what takes no plan, which is half of the time that it takes to start one.
#[derive(Debug)]
pub struct Prepared {
    socket: OwnedFd,
    users: Option<Users>,
    group: Option<Group>,
    monitor: Child,
}

/// A sandbox that runs.
#[derive(Debug)]
pub struct Running {
    /// Starts processes in it.
    pub spawner: Arc<Spawner>,
    /// Where the kernel tells of want of memory in it, if it has a group of its own.
    pub memory: Option<Arc<Memory>>,
    group: Option<Group>,
    /// Process 1 of the sandbox, as its number is outside.
    first: i32,
    root: RootDirectory,
    /// bubblewrap's process outside, until it is ended.
    monitor: Mutex<Option<Child>>,
    /// Whether it has the machine's network.
    on_network: bool,
}

/// What a sandbox uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time since it runs, and memory.
    pub counted: cgroup::Usage,
    /// Processes now, without those that are the executor's.
    pub processes: u64,
    /// Bytes received and sent since it runs; `None` where it shares the network with others.
    pub network_bytes: Option<(u64, u64)>,
}

/// The root of a sandbox as its processes see it, opened with `O_PATH`.
pub type RootDirectory = OwnedFd;

/// The bubblewrap that is found in `directories`, or why it can't be used.
pub async fn find_bubblewrap(directories: &[PathBuf]) -> std::result::Result<PathBuf, String> {
    let program = directories.iter().map(|directory| directory.join("bwrap")).find(|path| path.is_file());
    let program = program.ok_or("bubblewrap is missing; install the package bubblewrap")?;
    let asked = Command::new(&program).arg("--version").stdin(Stdio::null()).output().await;
    let said = asked.map_err(|error| format!("{} can't be run: {error}", program.display()))?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let version = text.split_ascii_whitespace().last().unwrap_or_default().to_owned();
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (major, minor) >= OLDEST_BUBBLEWRAP => Ok(program),
        _ => {
            let (major, minor) = OLDEST_BUBBLEWRAP;
            Err(format!(
                "{} is of version '{version}'; {major}.{minor} or newer is needed",
                program.display()
            ))
        }
    }
}

impl Prepared {
    /// Starts one. The group is that of its fence.
    pub fn start(preparation: &Preparation, group: Option<Group>) -> Result<Self> {
        let (socket, its) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|error| failed(error.into()))?;
        let text = serde_json::to_string(preparation).map_err(|error| failed(error.into()))?;
        let monitor = Command::new("/proc/self/exe")
            .arg("--enter-sandbox")
            .arg(text)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(its))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        Ok(Self { socket, users: preparation.users, group, monitor })
    }

    /// Becomes a sandbox. Its directories must be there.
    pub async fn enter(self, plan: &Plan) -> Result<Running> {
        let Self { socket, users, group, mut monitor } = self;
        let text = serde_json::to_string(plan).map_err(|error| failed(error.into()))?;
        // One that is gone says why by its end.
        let _sent = rustix::net::send(&socket, text.as_bytes(), rustix::net::SendFlags::NOSIGNAL);
        let spawner = Spawner::inside(socket, users)?;
        match tokio::time::timeout(START_LIMIT, spawner.greeted()).await {
            Ok(true) => match root_of(&monitor) {
                Ok((first, root)) => {
                    let memory = group.as_ref().map(|group| Arc::new(group.memory()));
                    let (spawner, monitor) = (Arc::new(spawner), Mutex::new(Some(monitor)));
                    let on_network = plan.network;
                    Ok(Running { spawner, memory, group, first, root, monitor, on_network })
                }
                Err(error) => {
                    drop(spawner);
                    end(monitor, group).await;
                    Err(failed(error))
                }
            },
            outcome => {
                drop(spawner);
                let mut complaint = Vec::new();
                if outcome.is_ok()
                    && let Some(stderr) = monitor.stderr.take()
                {
                    let mut stderr = stderr.take(COMPLAINT_BYTES as u64);
                    let reading = stderr.read_to_end(&mut complaint);
                    let _read = tokio::time::timeout(Duration::from_secs(1), reading).await;
                }
                end(monitor, group).await;
                let said = String::from_utf8_lossy(&complaint).trim().to_owned();
                let why = if said.is_empty() { "it does not answer".to_owned() } else { said };
                Err(failed(io::Error::other(why)))
            }
        }
    }

    /// Ends one that is not needed.
    pub async fn end(self) {
        drop(self.socket);
        end(self.monitor, self.group).await;
    }
}

fn failed(error: io::Error) -> Error {
    Error::internal("starting a sandbox", error)
}

impl Running {
    /// Its root as its processes see it.
    pub fn root(&self) -> io::Result<RootDirectory> {
        self.root.try_clone()
    }

    /// Opens what makes terminals that its processes know by name (pts(4)).
    pub fn terminal_multiplexer(&self) -> Result<OwnedFd> {
        use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        openat2(&self.root, "dev/pts/ptmx", flags, Mode::empty(), resolve)
            .map_err(|error| Error::internal("opening a terminal of a sandbox", error))
    }

    /// Stops all its processes where they are, or lets them go on. When this returns, they have stopped.
    pub async fn freeze(&self, frozen: bool) -> Result<()> {
        let (first, group) = (self.first, self.group.clone());
        let freezing = tokio::task::spawn_blocking(move || match group {
            Some(group) => group.freeze(frozen),
            None => {
                stop(first, frozen);
                Ok(())
            }
        });
        let failed = |error| Error::internal("suspending or resuming a sandbox", error);
        freezing.await.map_err(|error| failed(error.into()))?.map_err(failed)
    }

    /// What it uses.
    pub async fn usage(&self) -> Result<Usage> {
        let (first, group, on_network) = (self.first, self.group.clone(), self.on_network);
        let looking = tokio::task::spawn_blocking(move || usage(first, group.as_ref(), on_network));
        let failed = |error| Error::internal("looking at what a sandbox uses", error);
        looking.await.map_err(|error| failed(error.into()))?.map_err(failed)
    }

    /// Ends all its processes. When this returns none is left, nor anything mounted for it.
    pub async fn end(&self) {
        let monitor = self.monitor.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(monitor) = monitor {
            self.spawner.close();
            end(monitor, self.group.clone()).await;
        }
    }
}

/// Process 1 of a sandbox, as its number is outside: the only child of bubblewrap's process there.
fn process_1(monitor: &Child) -> Option<i32> {
    super::tree::children(monitor.id()?).into_iter().next()
}

fn root_of(monitor: &Child) -> io::Result<(i32, RootDirectory)> {
    use rustix::fs::{Mode, OFlags};
    let first = process_1(monitor).ok_or_else(|| io::Error::other("its process 1 is gone"))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok((first, rustix::fs::open(format!("/proc/{first}/root"), flags, Mode::empty())?))
}

/// Waits for the processes to go, and kills what does not.
async fn end(mut monitor: Child, group: Option<Group>) {
    if let Some(group) = group {
        let ended = tokio::task::spawn_blocking(move || group.end()).await;
        if let Ok(Err(error)) = ended {
            tracing::warn!(error = %error, "a sandbox's control group can't be removed");
        }
    } else if let Some(first) = process_1(&monitor) {
        // Where all have been stopped, it would not see that its socket is closed.
        stop(first, false);
    }
    if tokio::time::timeout(END_LIMIT, monitor.wait()).await.is_err() {
        tracing::warn!("a sandbox did not end by itself; it is killed");
        // bubblewrap's process outside has process 1 as its child, and that goes with it only if it is told so.
        let children = monitor.id().map(super::tree::children).unwrap_or_default();
        for pid in children.into_iter().filter_map(Pid::from_raw) {
            let _may_be_gone = rustix::process::kill_process(pid, Signal::KILL);
        }
        let _killed = monitor.kill().await;
    }
}

/// Stops process 1 of a sandbox and all below it, or lets them go on. Process 1 is the first to stop and the last to go on:
/// it ends what it finds stopped.
fn stop(first: i32, stopped: bool) {
    let signal = if stopped { Signal::STOP } else { Signal::CONT };
    let send = |pid: i32| {
        if let Some(process) = Pid::from_raw(pid) {
            let _may_be_gone = rustix::process::kill_process(process, signal);
        }
    };
    let mut known = vec![first];
    if stopped {
        send(first);
    }
    for _ in 0..STOP_ROUNDS {
        // Whoever was not stopped yet may have started more.
        let new: Vec<i32> =
            super::tree::descendants_of(first).into_iter().filter(|pid| !known.contains(pid)).collect();
        if new.is_empty() {
            break;
        }
        new.iter().copied().for_each(send);
        known.extend(new);
    }
    if !stopped {
        send(first);
    }
}

fn usage(first: i32, group: Option<&Group>, on_network: bool) -> io::Result<Usage> {
    let all = super::tree::descendants_of(first);
    // Below process 1 are the inits of its jobs, and below those what is the jobs'.
    let inits = super::tree::children(first.unsigned_abs()).len();
    let processes = u64::try_from(all.len().saturating_sub(inits)).unwrap_or(u64::MAX);
    let network_bytes = if on_network { None } else { network_bytes(first) };
    let counted = match group {
        Some(group) => group.usage()?,
        None => {
            let (cpu, memory_bytes) = super::tree::used_by(&[all, vec![first]].concat());
            cgroup::Usage { cpu, memory_bytes, peak_memory_bytes: None }
        }
    };
    Ok(Usage { counted, processes, network_bytes })
}

/// What came in and went out of all interfaces that a process sees: fields 1 and 9 after the name in `/proc/net/dev`.
fn network_bytes(pid: i32) -> Option<(u64, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/net/dev")).ok()?;
    let mut sum = (0, 0);
    for line in text.lines().filter_map(|line| Some(line.split_once(':')?.1)) {
        let mut fields = line.split_ascii_whitespace().map(|field| field.parse::<u64>().unwrap_or(0));
        sum.0 += fields.next().unwrap_or(0);
        sum.1 += fields.nth(7).unwrap_or(0);
    }
    Some(sum)
}

/// The end of the socket that was given as standard input.
fn socket() -> io::Result<OwnedFd> {
    use std::os::fd::AsFd;
    let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
    let null = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(null)?;
    Ok(socket)
}
