//! Processes across the executor's own life: who it is on record as having started, and waiting for those to end.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{DumpableBehavior, Pid, PidfdFlags, Resource, Rlimit, pidfd_open};

use crate::error::{Error, Result};

/// How long the processes of an executor that was killed may take to go.
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

/// How many files this process may have open; `None` for no limit.
pub fn open_files_limit() -> Option<u64> {
    rustix::process::getrlimit(Resource::Nofile).current
}

/// Notes in `file` that `pid` is the spawner, with its start time, by which it is told from a later process of the same
/// number.
pub fn note_spawner(file: &Path, pid: i32) -> Result<()> {
    let start = start_time(pid).unwrap_or_default();
    fs::write(file, format!("{pid} {start}\n"))
        .map_err(|error| Error::internal(format!("writing {}", file.display()), error))
}

/// Waits for the spawner noted in `file`: while it lives, jobs of the executor before this one are still being ended.
pub fn await_previous_spawner(file: &Path) -> Result<()> {
    let Ok(noted) = fs::read_to_string(file) else { return Ok(()) };
    let mut fields = noted.split_ascii_whitespace();
    let (Some(Ok(pid)), Some(start)) = (fields.next().map(str::parse::<i32>), fields.next()) else {
        return Ok(());
    };
    let Some(handle) = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
        return Ok(());
    };
    if start_time(pid).as_deref() != Some(start) {
        return Ok(());
    }
    if ends_within(&handle, PATIENCE) {
        return Ok(());
    }
    Err(Error::internal(
        "waiting for the processes of the executor before this one",
        format!(
            "the spawner with process id {pid} is still ending jobs; end them, or wait, then start again"
        ),
    ))
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

/// Field 22 of `/proc/<pid>/stat`: clock ticks between the machine's start and the process's.
fn start_time(pid: i32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_name, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(19).map(str::to_owned)
}
