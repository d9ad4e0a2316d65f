//! The descendants of a process, and signals to them. A process is held by a descriptor before it is signalled and
//! checked to be a descendant after, so that a reused number never hits a stranger.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::wire::{LEFTOVER_BYTES, Leftover};

/// Sends a signal to those children of this process that `wanted` names, and returns how many there are. They can't be
/// reaped meanwhile by anybody else, so their numbers are safe.
pub(super) fn signal_children(signal: Signal, wanted: impl Fn(i32) -> bool) -> usize {
    let mut found = 0;
    for pid in children_of(rustix::process::getpid().as_raw_nonzero().get()) {
        if wanted(pid)
            && let Some(process) = Pid::from_raw(pid)
        {
            found += 1;
            let _may_be_gone = rustix::process::kill_process(process, signal);
        }
    }
    found
}

/// Process ids of all descendants of this process, parents before their children.
pub(super) fn descendants() -> Vec<i32> {
    let mut found = children_of(rustix::process::getpid().as_raw_nonzero().get());
    let mut next = 0;
    while next < found.len() {
        let children = children_of(found[next]);
        found.extend(children);
        next += 1;
    }
    found
}

/// A process with the first of its arguments; `None` for one that has none, because it has just ended.
pub(super) fn leftover(pid: i32) -> Option<Leftover> {
    let mut command = Vec::with_capacity(LEFTOVER_BYTES);
    let arguments = File::open(format!("/proc/{pid}/cmdline")).ok()?;
    arguments.take(LEFTOVER_BYTES as u64).read_to_end(&mut command).ok()?;
    (!command.is_empty()).then_some(Leftover { pid, command })
}

/// Processes that are held at a time, so that a crowd does not use up the descriptors.
const HELD: usize = 256;

/// Sends a signal to every descendant of this process; returns how many got it. All are held before the first is
/// signalled, so that they get it as good as at once: in a pipeline, the end of one is soon the end of the next, which
/// then would not have been ended by the signal.
pub(super) fn signal_descendants(signal: Signal) -> u32 {
    let mut signalled = 0;
    for crowd in descendants().chunks(HELD) {
        let held: Vec<OwnedFd> = crowd.iter().filter_map(|&pid| hold_descendant(pid)).collect();
        for process in &held {
            signalled += u32::from(pidfd_send_signal(process, signal).is_ok());
        }
    }
    signalled
}

fn hold_descendant(pid: i32) -> Option<OwnedFd> {
    let handle = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    is_descendant(pid).then_some(handle)
}

fn is_descendant(pid: i32) -> bool {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let mut at = pid;
    // A chain of parents is shorter than the table of processes (pid_max is 2^22 at most).
    for _ in 0..1 << 22 {
        match parent_of(at) {
            Some(parent) if parent == own => return true,
            Some(parent) if parent > 1 => at = parent,
            _ => return false,
        }
    }
    false
}

/// Children by the kernel's own list; where the kernel was built without it, by a walk over all processes.
fn children_of(pid: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut found = Vec::new();
    for thread in threads.flatten() {
        match fs::read_to_string(thread.path().join("children")) {
            Ok(list) => found.extend(list.split_ascii_whitespace().filter_map(|id| id.parse::<i32>().ok())),
            Err(_) if thread.path().exists() => return children_by_walk(pid),
            Err(_) => {}
        }
    }
    found
}

fn children_by_walk(parent: i32) -> Vec<i32> {
    let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
    all.flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|&pid| parent_of(pid) == Some(parent))
        .collect()
}

/// The fourth field of `/proc/<pid>/stat`; the second, the name, may hold spaces and parentheses.
fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let after_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
    std::str::from_utf8(&stat[after_name..]).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}
