//! The init of a job: a small process between the spawner and the job's program. Everything the program starts stays
//! below it, whatever it does to get away (it is a child subreaper, prctl(2)), and when it is told to, or when the
//! executor is gone, it ends every process of that tree before it ends itself. Once nothing of a job is left it is as it
//! was, and takes the next one, which saves a fork.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use rustix::process::{Gid, Signal, Uid, getpid};

use super::cgroup::{Group, Limits, Memory};
use super::child::{
    Program, Reaped, Stops, Surroundings, child_signals, drain, exit_now, reap, reset_signals,
};
use super::identity::Identity;
use super::tree;
use super::wire::{
    Descriptors, Event, Exited, Failed, Gone, NAMED_LEFTOVERS, ORDER_BYTES, Order, Request, Stage, Started,
    Used, receive_request,
};

/// How long to wait for killed processes to end before looking for new ones.
const SWEEP_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// What every job of a spawner has in common.
pub(super) struct Common {
    pub identity: Identity,
    pub open_files: libc::rlimit,
    /// Where each init has a group of its own, and what its job may use.
    pub group: Option<(Group, Limits)>,
}

/// Name of the group of the init with this process id.
pub(super) fn group_name(pid: i32) -> String {
    format!("init-{pid}")
}

/// Enters a group of its own, and returns where the kernel tells of want of memory in it.
fn enter_group(common: &Common) -> io::Result<Option<Memory>> {
    let Some((group, limits)) = &common.group else { return Ok(None) };
    let own = group.child(&group_name(getpid().as_raw_nonzero().get()), limits)?;
    own.enter()?;
    Ok(Some(own.memory()))
}

/// Runs one job after the other in this process, which was forked for that; never returns.
pub(super) fn run(control: &OwnedFd, common: &Common) -> ! {
    let control = control.as_fd();
    let _named = rustix::thread::set_name(c"runlet-init");
    let ready = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let Ok(signals) = ready.map_err(io::Error::from).and_then(|()| child_signals()) else { exit_now(1) };
    let Ok(memory) = enter_group(common) else { exit_now(1) };
    // After all of them are blocked: this process itself wants none.
    reset_signals();
    let mut buffer = Vec::new();
    loop {
        match receive_request(control, &mut buffer) {
            Ok(Some((request, descriptors))) if !is_abandoned(control) => {
                run_job(request, descriptors, common, memory.as_ref(), control, signals.as_fd());
            }
            // It waited until its executor had given it up, and must not begin.
            Ok(Some(_)) => {}
            Ok(None) => exit_now(0),
            // An order that came when its job was over: the executor will close the socket. Ending before it has read
            // the reports would take them from it, as the kernel then reports a reset first.
            Err(error) if error.raw_os_error().is_none() => {}
            // The executor sees it by the end of the socket.
            Err(_) => exit_now(1),
        }
    }
}

fn is_abandoned(control: BorrowedFd<'_>) -> bool {
    let mut events = [PollFd::from_borrowed_fd(control, PollFlags::empty())];
    let _looked = poll(&mut events, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    events[0].revents().contains(PollFlags::HUP)
}

fn run_job(
    request: Request,
    descriptors: Descriptors<OwnedFd>,
    common: &Common,
    memory: Option<&Memory>,
    control: BorrowedFd<'_>,
    signals: BorrowedFd<'_>,
) {
    let kills = memory.and_then(Memory::kills);
    let out_of_memory = || memory.map(|memory| memory.kills() > kills);
    let Descriptors { stdio, attachment } = descriptors;
    let started = start(request, &stdio, attachment.as_ref(), common);
    // The output ends when the last process of the job has closed it.
    drop((stdio, attachment));
    match started {
        Ok(program) => {
            report(control, Event::Started(Started { pid: program }));
            let gone = supervise(program, out_of_memory, control, signals);
            report(control, Event::Gone(gone));
        }
        Err((stage, errno)) => report(control, Event::Failed(Failed { stage: stage as u32, errno })),
    }
}

fn start(
    request: Request,
    stdio: &[OwnedFd; 3],
    attachment: Option<&OwnedFd>,
    common: &Common,
) -> Result<i32, (Stage, i32)> {
    let Request { argv, env, cwd, has_attachment: _, on_terminal } = request;
    if common.identity.switch {
        give_stdio(stdio, &common.identity);
    }
    let around = Surroundings {
        stdio: [stdio[0].as_fd(), stdio[1].as_fd(), stdio[2].as_fd()],
        attachment: attachment.map(AsFd::as_fd),
        on_terminal,
        identity: &common.identity,
        open_files: common.open_files,
    };
    Program::new(argv, env, cwd, around).map_err(|_| (Stage::Execute, libc::EINVAL))?.start()
}

/// A pipe or a terminal belongs to who made it, and no other user may open it by its name, as `tee /dev/stderr` does.
fn give_stdio(stdio: &[OwnedFd; 3], identity: &Identity) {
    let (user, group) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
    for end in stdio {
        let kind = rustix::fs::fstat(end).map(|data| FileType::from_raw_mode(data.st_mode));
        if kind == Ok(FileType::Fifo) || rustix::termios::isatty(end) {
            // Without it such programs fail, and the others do not.
            let _given = rustix::fs::fchown(end, Some(user), Some(group));
        }
    }
}

/// Waits for the end of the whole tree, obeying the executor meanwhile; returns what to report of it.
fn supervise(
    program: i32,
    out_of_memory: impl Fn() -> Option<bool>,
    control: BorrowedFd<'_>,
    signals: BorrowedFd<'_>,
) -> Gone {
    let mut sweeping = false;
    let mut ended = 0;
    let mut used = Used::default();
    loop {
        if reap_all(program, &out_of_memory, control, &mut used) {
            return Gone { ended, used };
        }
        if sweeping {
            ended = ended.max(tree::signal_descendants(Signal::KILL));
        }
        let mut events = [
            PollFd::from_borrowed_fd(signals, PollFlags::IN),
            PollFd::from_borrowed_fd(control, PollFlags::IN),
        ];
        // While sweeping the control socket is of no more interest, and may be closed.
        let watched = if sweeping { &mut events[..1] } else { &mut events[..] };
        let _woken = poll(watched, sweeping.then_some(&SWEEP_PAUSE));
        drain(signals);
        if !sweeping && !events[1].revents().is_empty() {
            match receive(control) {
                Some(Order::Signal(signal)) => {
                    if let Some(signal) = Signal::from_named_raw(signal) {
                        ended = ended.max(tree::signal_descendants(signal));
                    }
                }
                Some(Order::Kill) | None => sweeping = true,
            }
        }
    }
}

/// Reaps what has ended, adds what that used, and reports the program's end; true when no process is left. Whatever the
/// tree's processes did not wait for themselves comes here, since this process is their subreaper.
fn reap_all(
    program: i32,
    out_of_memory: impl Fn() -> Option<bool>,
    control: BorrowedFd<'_>,
    used: &mut Used,
) -> bool {
    let mut ended = None;
    let childless = loop {
        match reap(Stops::Ignored) {
            Reaped::Child { pid, status, cpu_micros, max_rss_kib } => {
                used.cpu_micros = used.cpu_micros.saturating_add(cpu_micros);
                used.max_rss_kib = used.max_rss_kib.max(max_rss_kib);
                if pid == program {
                    ended = Some(status);
                }
            }
            Reaped::Stopped { .. } => {}
            Reaped::None => break false,
            Reaped::Childless => break true,
        }
    };
    if let Some(status) = ended {
        let living = if childless { Vec::new() } else { tree::descendants() };
        let leftovers = u32::try_from(living.len()).unwrap_or(u32::MAX);
        let named = living.into_iter().filter_map(tree::leftover).take(NAMED_LEFTOVERS).collect();
        let out_of_memory = out_of_memory();
        report(control, Event::Exited(Exited { status, out_of_memory, used: *used, leftovers, named }));
    }
    childless
}

/// An executor that is gone needs no report.
fn report(control: BorrowedFd<'_>, event: Event) {
    let _sent = rustix::net::send(control, &event.to_packet(), rustix::net::SendFlags::NOSIGNAL);
}

fn receive(control: BorrowedFd<'_>) -> Option<Order> {
    let mut frame = [0; ORDER_BYTES];
    loop {
        match rustix::net::recv(control, &mut frame[..], rustix::net::RecvFlags::empty()) {
            Ok((ORDER_BYTES, _)) => return Some(Order::decode(frame)),
            Err(error) if io::Error::from(error).kind() == io::ErrorKind::Interrupted => {}
            _ => return None,
        }
    }
}
