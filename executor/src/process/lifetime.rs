//! The executor's own process: what it may leave behind, by what it is known, and the wait for its spawner at the end.

use std::fs;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{DumpableBehavior, Pid, PidfdFlags, Resource, Rlimit, pidfd_open};

use crate::error::{Error, Result};

/// How long the spawner may take to end what is left.
const PATIENCE: Duration = Duration::from_secs(10);

/// Makes this process unreadable for others of its user, leaves no core file behind, raises its limit of open files as
/// far as it may, and lets others read the files that it makes for jobs.
pub fn harden() -> Result<()> {
    let failed = |error: rustix::io::Errno| Error::internal("hardening the process", error);
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(failed)?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(Resource::Core, none).map_err(failed)?;
    let files = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: files.maximum, maximum: files.maximum };
    rustix::process::setrlimit(Resource::Nofile, raised).map_err(failed)
}

/// Lets this process have at most so many bytes of address space, files mapped into it included.
pub fn limit_memory(bytes: u64) -> Result<()> {
    let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
    rustix::process::setrlimit(Resource::As, limit)
        .map_err(|error| Error::internal("limiting the memory of the process", error))
}

/// How many files this process may have open; `None` for no limit.
pub fn open_files_limit() -> Option<u64> {
    rustix::process::getrlimit(Resource::Nofile).current
}

/// Waits for the spawner, whose executor is this process and has closed its socket.
pub fn await_own_spawner(pid: i32) {
    let handle = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    if handle.is_some_and(|handle| !ends_within(&handle, PATIENCE)) {
        tracing::error!(pid, "the spawner is still ending jobs; leaving it to that");
    }
}

fn ends_within(handle: &impl std::os::fd::AsFd, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let Ok(timeout) = Timespec::try_from(left) else { return false };
        match poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// When a process started, which tells it from a later one of the same number: field 22 of `/proc/<pid>/stat`, in clock
/// ticks since the machine's start. `None` when there is no such process, or it has ended and only waits to be reaped.
pub fn start_time(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_name, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let living = !matches!(fields.next()?, "Z" | "X");
    // The state was the third field.
    living.then(|| fields.nth(18).map(str::to_owned)).flatten()
}
