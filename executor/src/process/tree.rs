//! The descendants of a process, and signals to them.

use std::fs::{self, File};
use std::io::Read;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpgrp, getpid, kill_process_group};

use super::wire::{LEFTOVER_BYTES, Leftover};

/// Sends a signal to those children of this process that `wanted` names, and returns how many there are. They can't be
/// reaped meanwhile by anybody else, so their numbers are safe.
pub(super) fn signal_children(signal: Signal, wanted: impl Fn(i32) -> bool) -> usize {
    let mut found = 0;
    for pid in children_of(getpid().as_raw_nonzero().get()) {
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
    descendants_of(getpid().as_raw_nonzero().get())
}

/// The same of another one.
pub(super) fn descendants_of(pid: i32) -> Vec<i32> {
    let mut found = children_of(pid);
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

/// Sends a signal to every descendant of this process; returns how many got it. It goes to each process group as a
/// whole, as from a terminal: sent to one process after the other, it would come too late for the next of a pipeline,
/// which its neighbour's end has ended by then, and a shell that looks whether the signal ended the pipeline would go on
/// to its next command. A group is of one session (setpgid(2)), and this process's descendants are in none of its own.
pub(super) fn signal_descendants(signal: Signal) -> u32 {
    let mut groups: Vec<(Pid, u32)> = Vec::new();
    for group in descendants().into_iter().filter_map(group_of_descendant) {
        match groups.iter_mut().find(|(known, _)| *known == group) {
            Some((_, members)) => *members += 1,
            None => groups.push((group, 1)),
        }
    }
    // Between the look and the signal a number can't come to a stranger, as they are given in a circle (pid_max).
    let signalled = |&(group, _): &(Pid, u32)| kill_process_group(group, signal).is_ok();
    groups.iter().filter(|group| signalled(group)).map(|(_, members)| members).sum()
}

/// The process group of a process, if that is a descendant of this one.
fn group_of_descendant(pid: i32) -> Option<Pid> {
    let own = getpid().as_raw_nonzero().get();
    let Stat { parent, group, .. } = stat(pid)?;
    let mut at = parent;
    // A chain of parents is shorter than the table of processes (pid_max is 2^22 at most).
    for _ in 0..1 << 22 {
        if at == own {
            return Pid::from_raw(group).filter(|&group| group != getpgrp());
        }
        at = stat(at)?.parent;
    }
    None
}

/// Process ids of the children of a process, whoever that is.
pub(super) fn children(pid: u32) -> Vec<i32> {
    i32::try_from(pid).map(children_of).unwrap_or_default()
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
        .filter(|&pid| stat(pid).is_some_and(|stat| stat.parent == parent))
        .collect()
}

/// What `/proc/<pid>/stat` says of a process.
struct Stat {
    parent: i32,
    group: i32,
    /// Processor time of it and of its children that ended, in ticks of which a second has a hundred.
    ticks: u64,
    /// Pages of memory.
    pages: u64,
}

/// Processor time, of children that ended too, and bytes of memory of these processes, as far as they are there.
pub(super) fn used_by(pids: &[i32]) -> (Duration, u64) {
    let found: Vec<Stat> = pids.iter().filter_map(|&pid| stat(pid)).collect();
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(0);
    let ticks = found.iter().map(|stat| stat.ticks).sum::<u64>();
    let pages = found.iter().map(|stat| stat.pages).sum::<u64>();
    (
        Duration::from_millis(ticks.saturating_mul(1000 / rustix::param::clock_ticks_per_second().max(1))),
        pages * page,
    )
}

/// Fields by their numbers in proc_pid_stat(5); the second, the name, may hold spaces and parentheses.
fn stat(pid: i32) -> Option<Stat> {
    const AFTER_NAME: usize = 3;
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let after_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let fields: Vec<&str> = std::str::from_utf8(&stat[after_name..]).ok()?.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - AFTER_NAME)?.parse::<i64>().ok();
    let ticks: i64 = (14..=17).filter_map(field).sum();
    Some(Stat {
        parent: i32::try_from(field(4)?).ok()?,
        group: i32::try_from(field(5)?).ok()?,
        ticks: u64::try_from(ticks).unwrap_or(0),
        pages: field(24).and_then(|pages| u64::try_from(pages).ok()).unwrap_or(0),
    })
}
