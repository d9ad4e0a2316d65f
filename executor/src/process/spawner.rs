//! The spawner: a process of one thread, forked before the executor starts any, so that forking it is cheap and safe.
//! It forks inits for jobs, and adopts what an init that was killed leaves behind. It outlives the executor by as long as
//! it takes to end every job.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{DumpableBehavior, Signal};

use super::cgroup::{Group, Limits, Quotas};
use super::child::{Fork, Reaped, Stops, child_signals, drain, exit_now, fork, reap};
use super::init::{self, Common};
use super::tree;
use super::veil::{Drawn, Veil};
use super::wire::receive_control;
use crate::error::{Error, Result};
use crate::process::identity::Identity;

/// How a spawner that can serve begins.
const GREETING: &str = "ok";

/// How long to wait for ended jobs to go before looking again.
const SWEEP_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// How long inits may take to end their jobs once the executor is gone.
const INITS_PATIENCE: Duration = Duration::from_secs(5);

/// The executor's end of a spawner that runs.
#[derive(Debug)]
pub struct SpawnerHandle {
    /// Where requests go; closing it ends every job.
    pub(super) socket: OwnedFd,
    /// Its process id, for messages.
    pub pid: i32,
    /// What keeps jobs from the executor.
    pub drawn: Drawn,
}

/// Forks the spawner. The calling process must have one thread.
///
/// `veil` hides the executor's own files from jobs, and `quotas` limit each.
pub fn fork_spawner(identity: &Identity, veil: &Veil, quotas: &Quotas) -> Result<SpawnerHandle> {
    let failed = |error: io::Error| Error::internal("starting the spawner", error);
    let flags = SocketFlags::CLOEXEC;
    let (own, its) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(|e| failed(e.into()))?;
    match fork().map_err(failed)? {
        Fork::Child => {
            drop(own);
            let status = run(identity.clone(), veil, quotas, its);
            exit_now(i32::from(status.is_err()))
        }
        Fork::Parent { pid } => {
            drop(its);
            let drawn = read_greeting(&own).map_err(failed)?;
            rustix::io::ioctl_fionbio(&own, true).map_err(|error| failed(error.into()))?;
            Ok(SpawnerHandle { socket: own, pid, drawn })
        }
    }
}

/// The spawner's first packet: `ok`, the isolation and a line for each gap; or `error` and the reason.
fn read_greeting(socket: &OwnedFd) -> io::Result<Drawn> {
    let mut packet = vec![0; 16 << 10];
    let (length, _) = rustix::net::recv(socket, &mut packet[..], rustix::net::RecvFlags::empty())?;
    let text = String::from_utf8_lossy(&packet[..length]).into_owned();
    let mut lines = text.lines().map(str::to_owned);
    match lines.next().as_deref() {
        Some(GREETING) => Ok(Drawn { isolation: lines.next().unwrap_or_default(), gaps: lines.collect() }),
        _ => Err(io::Error::other(lines.next().unwrap_or_else(|| "it ended at once".to_owned()))),
    }
}

fn run(identity: Identity, veil: &Veil, quotas: &Quotas, socket: OwnedFd) -> io::Result<()> {
    // A session of its own, so that Ctrl-C at the executor's terminal reaches the executor alone.
    rustix::process::setsid()?;
    let _named = rustix::thread::set_name(c"runlet-spawner");
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    // Mapping users takes files of this process that belong to root while it is not dumpable. No job lives yet.
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    let drawn = veil.draw(&identity);
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let greeting = match &drawn {
        Ok(drawn) => [GREETING, &drawn.isolation]
            .into_iter()
            .chain(drawn.gaps.iter().map(String::as_str))
            .collect::<Vec<_>>()
            .join("\n"),
        Err(error) => format!("error\n{error}"),
    };
    rustix::net::send(&socket, greeting.as_bytes(), rustix::net::SendFlags::NOSIGNAL)?;
    drawn.map_err(io::Error::other)?;
    serve_to_the_end(socket, identity, quotas.group.clone().ok().map(|group| (group, quotas.job)))
}

/// Serves as the first process of a sandbox, where everything else is below this process anyway.
pub(super) fn serve_inside(socket: OwnedFd, identity: Identity) -> io::Result<()> {
    let _named = rustix::thread::set_name(c"runlet-spawner");
    rustix::net::send(&socket, GREETING.as_bytes(), rustix::net::SendFlags::NOSIGNAL)?;
    serve_to_the_end(socket, identity, None)
}

fn serve_to_the_end(socket: OwnedFd, identity: Identity, group: Option<(Group, Limits)>) -> io::Result<()> {
    let mut charges = Charges { group: group.as_ref().map(|(group, _)| group.clone()), ..Charges::default() };
    let common = Common { identity, open_files: open_files_of_jobs(), group };
    let signals = child_signals()?;
    serve(socket, &signals, &common, &mut charges)?;
    // The executor is gone. Each init has seen that too and ends its job; what is left is adopted and ended here. An init
    // that does not hear, because a job has stopped what it waits for, is ended after a while, and its job then.
    let patience_ends = Instant::now() + INITS_PATIENCE;
    while !charges.reap() {
        if Instant::now() > patience_ends {
            tree::signal_children(Signal::KILL, |_any| true);
        }
        let mut events = [PollFd::new(&signals, PollFlags::IN)];
        let _woken = poll(&mut events, Some(&SWEEP_PAUSE));
        drain(signals.as_fd());
    }
    // Sandboxes have seen it too, each by itself, but for those that are frozen.
    charges.group.map_or(Ok(()), |group| group.end())
}

/// Forks an init for every control socket it is sent, until the executor is gone.
fn serve(socket: OwnedFd, signals: &OwnedFd, common: &Common, charges: &mut Charges) -> io::Result<()> {
    loop {
        let mut events = [PollFd::new(&socket, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        match poll(&mut events, None) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        let (asked, ended) = (!events[0].revents().is_empty(), !events[1].revents().is_empty());
        if ended {
            drain(signals.as_fd());
            charges.reap();
        }
        if !asked {
            continue;
        }
        let Some(control) = receive_control(socket.as_fd())? else { return Ok(()) };
        match fork() {
            Ok(Fork::Child) => {
                drop(socket);
                // Those of other inits must not stay open with this one.
                *charges = Charges::default();
                init::run(&control, common)
            }
            Ok(Fork::Parent { pid }) => {
                charges.inits.insert(pid, control);
            }
            // The control socket closes, which tells the executor.
            Err(_) => {}
        }
    }
}

/// The inits that run, each with its end of the control socket: the executor is to see the end of that when nothing of
/// the job is left, even if the init was killed.
#[derive(Default)]
struct Charges {
    inits: HashMap<i32, OwnedFd>,
    /// The group in which each has its own.
    group: Option<Group>,
    /// Those of inits that were killed while what they left behind is being ended.
    killed: Vec<OwnedFd>,
}

impl Charges {
    /// Reaps ended children; true when there is none left. A child that is no init was left behind by an init that was
    /// killed: it is ended.
    fn reap(&mut self) -> bool {
        let childless = loop {
            match reap(Stops::Told) {
                Reaped::Child { pid, status, .. } => {
                    let control = self.inits.remove(&pid);
                    if let (Some(_), Some(group)) = (&control, &self.group) {
                        // What a killed init left may still be in there; then it goes with all others in the end.
                        let _removed = group.at(&init::group_name(pid)).remove();
                    }
                    self.killed.extend(control.filter(|_| status != 0));
                }
                // A job of the executor's own user can do that to its init, which then would obey nobody.
                Reaped::Stopped { pid } => {
                    tree::signal_children(Signal::KILL, |child| child == pid);
                }
                Reaped::None => break false,
                Reaped::Childless => break true,
            }
        };
        if !self.killed.is_empty()
            && tree::signal_children(Signal::KILL, |pid| !self.inits.contains_key(&pid)) == 0
        {
            self.killed.clear();
        }
        childless
    }
}

/// Jobs get the usual soft limit of open files, since programs that use select(2) break above it, and may raise it.
fn open_files_of_jobs() -> libc::rlimit {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let hard = limit.maximum.unwrap_or(libc::RLIM_INFINITY);
    libc::rlimit { rlim_cur: hard.min(1024), rlim_max: hard }
}
