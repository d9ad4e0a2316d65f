//! The executor's side of a process: takes an init that has nothing to do, or asks the spawner for one, and speaks with
//! it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{Gid, Uid};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, socketpair};
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;

use super::sandbox::Users;
use super::spawner::SpawnerHandle;
use super::wire::{
    self, Descriptors, Event, Exited, Failed, Gone, MAX_EVENT_BYTES, Order, Request, Stage, Used,
    memory_file, send_control, send_request,
};
use crate::error::{Error, Result};

/// Inits kept at most when their jobs are over: each saves a later job a fork.
const MOST_IDLE: usize = 64;

/// How long a program may take to start. It takes milliseconds, or seconds where hundreds start at once.
const START_LIMIT: Duration = Duration::from_secs(20);

/// Inits kept however long nobody has needed them.
const ALWAYS_IDLE: usize = 2;

/// Longest command passed as an argument, in bytes: the kernel refuses a string of MAX_ARG_STRLEN (32 pages) or more,
/// its final NUL counted. A longer one runs from a file.
pub const MAX_ARGUMENT_BYTES: usize = 32 * 4096 - 1;

/// Where a program finds the bytes attached to it.
pub const ATTACHMENT_PATH: &str = "/dev/fd/3";

/// What goes with a program besides its standard input.
#[derive(Debug)]
pub enum Attachment {
    /// A file with these bytes.
    Bytes(Vec<u8>),
    /// This descriptor.
    Descriptor(OwnedFd),
}

/// What to run.
#[derive(Debug)]
pub struct Command {
    /// The program and its arguments. The program is an absolute path.
    pub argv: Vec<Vec<u8>>,
    /// What the program finds at [`ATTACHMENT_PATH`].
    pub attachment: Option<Attachment>,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    /// Absolute path of the directory to start in. It is entered with the rights of the jobs' user, where jobs are.
    pub cwd: PathBuf,
    /// Whether standard input is a pipe; otherwise it is empty.
    pub stdin: bool,
    /// Whether standard error has a pipe of its own.
    pub separate_stderr: bool,
}

impl Command {
    /// bash running `text`, which may have any length.
    pub fn bash(text: &str, env: BTreeMap<String, String>, cwd: PathBuf) -> Self {
        let bash = b"/bin/bash".to_vec();
        let (argv, attachment) = if text.len() > MAX_ARGUMENT_BYTES {
            (vec![bash, ATTACHMENT_PATH.into()], Some(Attachment::Bytes(text.as_bytes().to_vec())))
        } else {
            (vec![bash, b"-c".to_vec(), text.as_bytes().to_vec()], None)
        };
        Self { argv, attachment, env, cwd, stdin: false, separate_stderr: false }
    }
}

/// The executor's ends of a process's pipes.
#[derive(Debug)]
pub struct Pipes {
    /// To its standard input, if asked for.
    pub stdin: Option<pipe::Sender>,
    /// From its standard output, and standard error unless that is separate.
    pub stdout: pipe::Receiver,
    /// From its standard error, if asked for.
    pub stderr: Option<pipe::Receiver>,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this status, 0 to 255.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

impl Exit {
    const fn from_status(status: i32) -> Self {
        if libc::WIFSIGNALED(status) {
            Self::Signal(libc::WTERMSIG(status))
        } else {
            Self::Code(libc::WEXITSTATUS(status))
        }
    }

    /// The status as a shell shows it: 128 + n after signal n.
    pub const fn shell_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

/// A program's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// How it ended.
    pub exit: Exit,
    /// Whether the kernel ended something of its tree for want of memory; `None` where that is not known.
    pub out_of_memory: Option<bool>,
    /// What was used of its tree by then; `None` where that is not known.
    pub usage: Option<Usage>,
    /// How many processes it left behind.
    pub leftovers: u32,
    /// The first of them.
    pub named: Vec<Leftover>,
}

impl Ended {
    /// The end of a program of which nobody saw the end.
    pub const KILLED: Self = Self {
        exit: Exit::Signal(libc::SIGKILL),
        out_of_memory: None,
        usage: None,
        leftovers: 0,
        named: Vec::new(),
    };
}

/// A process that lives on after the program that started it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// Its process id.
    pub pid: i32,
    /// Its arguments as a line of text, cut where they are long.
    pub command: String,
}

impl From<wire::Leftover> for Leftover {
    fn from(wire::Leftover { pid, command }: wire::Leftover) -> Self {
        let text = String::from_utf8_lossy(&command);
        // The kernel ends each argument with a NUL.
        let clean = |char: char| if char.is_control() { ' ' } else { char };
        Self { pid, command: text.chars().map(clean).collect::<String>().trim().to_owned() }
    }
}

/// What those processes of a tree used that have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Processor time of all of them.
    pub cpu: Duration,
    /// Largest resident set of one of them, in bytes; `None` where that is not known.
    pub max_rss_bytes: Option<u64>,
}

impl From<Used> for Usage {
    fn from(Used { cpu_micros, max_rss_kib }: Used) -> Self {
        let max_rss_bytes = Some(max_rss_kib.saturating_mul(1024));
        Self { cpu: Duration::from_micros(cpu_micros), max_rss_bytes }
    }
}

/// What a process's init tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// The program ended; processes it started may live on.
    Ended(Ended),
    /// Nothing is left.
    Gone {
        /// How many processes were there when it was ordered to end.
        ended: u32,
        /// What the whole tree used.
        usage: Usage,
    },
    /// The init itself was killed. Its program's end is unknown; the spawner has ended what it left.
    Lost,
}

/// Starts processes.
#[derive(Debug)]
pub struct Spawner {
    socket: Packets,
    idle: Arc<Idle>,
    /// Standard input of programs that have none.
    null: OwnedFd,
    /// Who pipes and terminals are given to here, because inside nobody may.
    owner: Option<(Uid, Gid)>,
}

impl Spawner {
    /// Takes over the executor's end of a spawner. Must be called within the runtime.
    pub fn new(handle: SpawnerHandle) -> Result<Self> {
        Self::at(handle.socket)
    }

    fn at(socket: OwnedFd) -> Result<Self> {
        let socket = Packets::new(socket);
        let null = null_device().map_err(|error| Error::internal("opening /dev/null", error))?;
        let socket = socket.map_err(|error| Error::internal("watching the spawner", error))?;
        Ok(Self { socket, idle: Arc::default(), null, owner: None })
    }

    /// Takes over the executor's end of the spawner of a sandbox, whose root is `owner` on this machine.
    pub(super) fn inside(socket: OwnedFd, owner: Option<Users>) -> Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)
            .map_err(|error| Error::internal("watching the spawner of a sandbox", error))?;
        let owner = owner.map(|users| (Uid::from_raw(users.uid), Gid::from_raw(users.gid)));
        Ok(Self { owner, ..Self::at(socket)? })
    }

    /// Whether it began to serve; false when it ended instead.
    pub(super) async fn greeted(&self) -> bool {
        self.socket.receive(|packet| !packet.is_empty()).await.unwrap_or(false)
    }

    /// Whether it is there.
    pub fn lives(&self) -> bool {
        self.socket.is_open()
    }

    /// Has it end every process, and itself.
    pub(super) fn close(&self) {
        let _closed = rustix::net::shutdown(self.socket.0.get_ref(), rustix::net::Shutdown::Both);
        self.idle.clear();
    }

    /// Starts a process with pipes. When it returns, the program runs or the error says why it could not.
    pub async fn spawn(&self, command: Command) -> Result<(Process, Pipes)> {
        let failed = |error: io::Error| Error::Spawn {
            stage: "connecting its input and output".to_owned(),
            source: error,
        };
        let (stdin, stdin_end) = if command.stdin {
            let (reader, writer) = pipe_pair().map_err(failed)?;
            (Some(pipe::Sender::from_owned_fd(nonblocking(writer)?).map_err(failed)?), Some(reader))
        } else {
            (None, None)
        };
        let (stdout, stdout_end) = receiving_pipe()?;
        let (stderr, stderr_end) = if command.separate_stderr {
            let (receiver, end) = receiving_pipe()?;
            (Some(receiver), Some(end))
        } else {
            (None, None)
        };
        let stdio = [
            stdin_end.as_ref().unwrap_or(&self.null).as_fd(),
            stdout_end.as_fd(),
            stderr_end.as_ref().unwrap_or(&stdout_end).as_fd(),
        ];
        let process = self.start(command, stdio, false).await?;
        Ok((process, Pipes { stdin, stdout, stderr }))
    }

    /// Starts a process on a terminal, which becomes the one of its session.
    pub async fn spawn_on_terminal(&self, command: Command, terminal: OwnedFd) -> Result<Process> {
        self.start(command, [terminal.as_fd(); 3], true).await
    }

    async fn start(
        &self,
        command: Command,
        stdio: [BorrowedFd<'_>; 3],
        on_terminal: bool,
    ) -> Result<Process> {
        let failed = |error: io::Error| Error::Spawn {
            stage: "connecting its input and output".to_owned(),
            source: error,
        };
        if let Some((user, group)) = self.owner {
            for end in stdio.iter().filter(|end| end.as_raw_fd() != self.null.as_raw_fd()) {
                rustix::fs::fchown(end, Some(user), Some(group)).map_err(|error| failed(error.into()))?;
            }
        }
        let attachment = match command.attachment {
            None => None,
            Some(Attachment::Bytes(bytes)) => Some(memory_file("runlet-attachment", &bytes).map_err(failed)?),
            Some(Attachment::Descriptor(descriptor)) => Some(descriptor),
        };
        let request = Request {
            argv: command.argv,
            env: command
                .env
                .into_iter()
                .map(|(name, value)| format!("{name}={value}").into_bytes())
                .collect(),
            has_attachment: attachment.is_some(),
            cwd: command.cwd.into_os_string().into_encoded_bytes(),
            on_terminal,
        };
        let descriptors = Descriptors { stdio, attachment: attachment.as_ref().map(AsFd::as_fd) };
        let process = async {
            loop {
                let (control, is_new) = match self.idle.take() {
                    Some(control) => (control, false),
                    None => (self.fork_init().await?, true),
                };
                let sent = control.send(|socket| send_request(socket, &request, &descriptors)).await;
                let mut process =
                    Process { control: Some(control), ordered: false, idle: Arc::clone(&self.idle) };
                let begun = match sent {
                    Ok(()) => process.started().await?,
                    // An init that is gone, or was never forked, has closed its end.
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => false,
                    Err(error) => return Err(failed(error)),
                };
                match (begun, is_new) {
                    (true, _) => return Ok(process),
                    // It was killed while it had nothing to do, as a job can do that is its user's; the next may live.
                    (false, false) => {}
                    (false, true) => return Err(no_init()),
                }
            }
        };
        let started = tokio::time::timeout(START_LIMIT, process).await;
        started.map_err(|_elapsed| Error::Spawn {
            stage: "waiting for its start".to_owned(),
            source: io::Error::other(
                "its init does not answer; if that repeats, somebody has stopped the spawner: restart the executor",
            ),
        })?
    }

    /// Resolves when the spawner is gone, which it never is while the executor lives unless somebody killed it.
    pub async fn gone(&self) {
        // It has nothing to say but that.
        let _end = self.socket.receive(|_packet| ()).await;
    }

    /// Ends inits that no job has needed since the last call.
    pub fn trim(&self) {
        self.idle.trim();
    }

    async fn fork_init(&self) -> Result<Packets> {
        let failed = |source| Error::Spawn { stage: "asking the spawner for an init".to_owned(), source };
        let (own, its) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(|error| failed(error.into()))?;
        self.socket.send(|socket| send_control(socket, its.as_fd())).await.map_err(failed)?;
        Packets::new(nonblocking(own)?).map_err(failed)
    }
}

/// Inits without a job.
#[derive(Debug, Default)]
struct Idle(Mutex<Stock>);

#[derive(Debug, Default)]
struct Stock {
    inits: Vec<Packets>,
    /// As few as there were since the last look: so many were not needed.
    fewest: usize,
}

impl Idle {
    /// One that lives: there is nothing to read from it, not even an end.
    fn take(&self) -> Option<Packets> {
        let mut stock = self.lock();
        let taken = loop {
            let Some(control) = stock.inits.pop() else { break None };
            if control.is_open() {
                break Some(control);
            }
        };
        stock.fewest = stock.fewest.min(stock.inits.len());
        taken
    }

    /// Keeps one for the next job. One that is too many ends when its socket is closed.
    fn put(&self, control: Packets) {
        let mut stock = self.lock();
        if stock.inits.len() < MOST_IDLE {
            stock.inits.push(control);
        }
    }

    /// Ends all of them.
    fn clear(&self) {
        self.lock().inits.clear();
    }

    /// Ends those that were not needed since the last call.
    fn trim(&self) {
        let mut stock = self.lock();
        let unneeded = stock.fewest.min(stock.inits.len().saturating_sub(ALWAYS_IDLE));
        // The last ones that were put back are the first to be taken, so the first ones are idle the longest.
        stock.inits.drain(..unneeded);
        stock.fewest = stock.inits.len();
    }

    fn lock(&self) -> MutexGuard<'_, Stock> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A socket that keeps packets apart.
#[derive(Debug)]
struct Packets(AsyncFd<OwnedFd>);

impl Packets {
    fn new(socket: OwnedFd) -> io::Result<Self> {
        #[expect(unsafe_code, reason = "tokio has no safe type for a socket of packets")]
        // SAFETY: an OwnedFd keeps its descriptor open and unchanged until it is dropped, after the registration.
        let socket = unsafe { AsyncFd::register(socket) };
        socket.map(Self).map_err(io::Error::other)
    }

    /// Whether the other end is open, and has said nothing that was not read.
    fn is_open(&self) -> bool {
        let looked = recv(self.0.get_ref(), &mut [0; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        matches!(looked, Err(Errno::AGAIN))
    }

    /// Sends a packet by `send`, as soon as there is room for it.
    async fn send(&self, send: impl Fn(BorrowedFd<'_>) -> io::Result<()>) -> io::Result<()> {
        loop {
            let mut guard = self.0.writable().await?;
            if let Ok(sent) = guard.try_io(|socket| send(socket.get_ref().as_fd())) {
                return sent;
            }
        }
    }

    /// Receives a packet, which is empty when the other end is gone. Dropping the future loses nothing.
    async fn receive<T>(&self, take: impl Fn(&[u8]) -> T) -> io::Result<T> {
        loop {
            let mut guard = self.0.readable().await?;
            let received = guard.try_io(|socket| {
                let mut packet = [0; MAX_EVENT_BYTES];
                let (length, _) = recv(socket.get_ref(), &mut packet[..], RecvFlags::DONTWAIT)?;
                Ok(take(&packet[..length]))
            });
            if let Ok(received) = received {
                return received;
            }
        }
    }
}

/// A process with everything it started. Dropping it ends them all.
#[derive(Debug)]
pub struct Process {
    /// `None` once nothing is left of it.
    control: Option<Packets>,
    /// An order may reach the init when the job is over already, so that it can't be told what comes after that.
    ordered: bool,
    idle: Arc<Idle>,
}

impl Process {
    /// Whether the init took it on; false when it was killed before it read what to start.
    async fn started(&mut self) -> Result<bool> {
        match self.received().await {
            Ok(Some(Event::Started(_))) => Ok(true),
            // The kernel says so of a socket that was closed with something unread (unix(7)).
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(false),
            Ok(Some(Event::Failed(Failed { stage, errno }))) => {
                self.retire();
                Err(Error::Spawn {
                    stage: Stage::from_u32(stage).describe().to_owned(),
                    source: io::Error::from_raw_os_error(errno),
                })
            }
            // It read that and was killed, perhaps by the program itself. The next report says so.
            _ => Ok(true),
        }
    }

    /// The next report. After `Gone` and `Lost` there is none but `Lost`. Dropping the future loses nothing.
    pub async fn report(&mut self) -> Report {
        match self.event().await {
            Some(Event::Exited(Exited { status, out_of_memory, used, leftovers, named })) => {
                Report::Ended(Ended {
                    exit: Exit::from_status(status),
                    out_of_memory,
                    usage: Some(used.into()),
                    leftovers,
                    named: named.into_iter().map(Leftover::from).collect(),
                })
            }
            Some(Event::Gone(Gone { ended, used })) => {
                self.retire();
                Report::Gone { ended, usage: used.into() }
            }
            _ => Report::Lost,
        }
    }

    /// Sends a signal to every process of the tree.
    pub async fn signal(&mut self, signal: i32) {
        self.order(Order::Signal(signal)).await;
    }

    /// Ends every process of the tree; `Gone` follows when that is done.
    pub async fn kill(&mut self) {
        self.order(Order::Kill).await;
    }

    /// An init that is gone has nothing left to order; the next report says so.
    async fn order(&mut self, order: Order) {
        let Some(control) = &self.control else { return };
        self.ordered = true;
        let frame = order.encode();
        let _sent = control
            .send(|socket| {
                rustix::net::send(socket, &frame, SendFlags::NOSIGNAL)?;
                Ok(())
            })
            .await;
    }

    async fn event(&self) -> Option<Event> {
        self.received().await.ok()?
    }

    async fn received(&self) -> io::Result<Option<Event>> {
        match &self.control {
            Some(control) => control.receive(Event::from_packet).await,
            None => Ok(None),
        }
    }

    /// Nothing is left of it, and its init is free for another.
    fn retire(&mut self) {
        if let Some(control) = self.control.take().filter(|_| !self.ordered) {
            self.idle.put(control);
        }
    }
}

fn no_init() -> Error {
    Error::Spawn {
        stage: "creating a process".to_owned(),
        source: io::Error::other("the kernel gave none, or its init was killed"),
    }
}

fn pipe_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

fn receiving_pipe() -> Result<(pipe::Receiver, OwnedFd)> {
    let failed = |error: io::Error| Error::Spawn {
        stage: "connecting its input and output".to_owned(),
        source: error,
    };
    let (reader, writer) = pipe_pair().map_err(failed)?;
    Ok((pipe::Receiver::from_owned_fd(nonblocking(reader)?).map_err(failed)?, writer))
}

fn nonblocking(descriptor: OwnedFd) -> Result<OwnedFd> {
    rustix::io::ioctl_fionbio(&descriptor, true).map_err(|error| Error::Spawn {
        stage: "connecting its input and output".to_owned(),
        source: error.into(),
    })?;
    Ok(descriptor)
}

fn null_device() -> io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    Ok(rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}
