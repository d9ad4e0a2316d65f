//! The data root: its layout, its lock, and what is cleared away when an executor takes it over.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::id::WorkspaceId;
use crate::process::lifetime;

/// How long the processes of an executor that was killed may take to go.
const PATIENCE: Duration = Duration::from_secs(10);

/// Free bytes of disk that are so few that it may be full at any moment.
const LITTLE: u64 = 64 << 20;

/// Bytes of disk that are kept for the records of what is deleted.
const ROOM: u64 = 4 << 20;

/// How often it is looked whether they have gone.
const LOOK_PERIOD: rustix::thread::Timespec = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// The directories of a data root. It is locked as long as this lives.
#[derive(Debug)]
pub struct DataRoot {
    /// Absolute path.
    pub path: PathBuf,
    /// `workspaces/`, the only part that jobs may enter.
    pub workspaces: PathBuf,
    /// `logs/`: output of jobs.
    pub logs: PathBuf,
    /// `sandboxes/`: what each sandbox changes of the machine's files, as an overlay keeps it.
    pub sandboxes: PathBuf,
    /// `snapshots/`: what sandboxes left, by the id of the snapshot or blueprint; others begin with it.
    pub snapshots: PathBuf,
    /// `links/`: snapshots that downloads are of, and uploads on their way.
    pub links: PathBuf,
    /// `trash/`: what is being removed. A crash never leaves half of a workspace elsewhere.
    pub trash: PathBuf,
    /// `stock/`: what was made ahead for workspaces to come.
    pub stock: PathBuf,
    /// `runlet.db`: the records.
    pub records: PathBuf,
    _lock: File,
}

impl DataRoot {
    /// Makes the layout where it is missing and takes the lock. `shared` says that jobs run as another user, who must be
    /// able to pass through.
    pub fn open(path: &Path, shared: bool) -> Result<Self> {
        create_directory(path, if shared { 0o711 } else { 0o700 })?;
        let path = fs::canonicalize(path)
            .map_err(|error| Error::internal(format!("opening SANDBOX_ROOT {}", path.display()), error))?;
        if path.to_str().is_none() {
            // Jobs see the path in their environment, and clients in results.
            return Err(Error::invalid("SANDBOX_ROOT", format!("{} is not valid UTF-8", path.display())));
        }
        let lock = take_lock(&path)?;
        let root = Self {
            workspaces: path.join("workspaces"),
            logs: path.join("logs"),
            links: path.join("links"),
            sandboxes: path.join("sandboxes"),
            snapshots: path.join("snapshots"),
            trash: path.join("trash"),
            stock: path.join("stock"),
            records: path.join("runlet.db"),
            path,
            _lock: lock,
        };
        create_directory(&root.workspaces, if shared { 0o711 } else { 0o700 })?;
        create_directory(&root.logs, 0o700)?;
        create_directory(&root.links, 0o700)?;
        create_directory(&root.sandboxes, 0o700)?;
        create_directory(&root.snapshots, 0o700)?;
        create_directory(&root.trash, 0o700)?;
        create_directory(&root.stock, 0o700)?;
        close_records(&root.path)?;
        root.keep_room();
        Ok(root)
    }

    /// Where the overlay of a sandbox is kept.
    pub fn sandbox(&self, id: &WorkspaceId) -> PathBuf {
        self.sandboxes.join(id.as_str())
    }

    /// Takes room on the disk, for the records of what is deleted when that is full.
    pub fn keep_room(&self) {
        let taken = || -> std::io::Result<()> {
            let file = OpenOptions::new().create(true).append(true).mode(0o600).open(self.room())?;
            Ok(rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, ROOM)?)
        };
        if taken().is_err() {
            // Not now; after the next deletion.
            let _not_there = fs::remove_file(self.room());
        }
    }

    /// Gives that room to whoever writes next, if there is little else.
    pub fn give_room(&self) {
        if self.free_bytes() < LITTLE {
            let _not_there = fs::remove_file(self.room());
        }
    }

    fn room(&self) -> PathBuf {
        self.path.join(".room")
    }

    /// Bytes free on its file system for an ordinary user.
    pub fn free_bytes(&self) -> u64 {
        rustix::fs::statvfs(&self.path).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

/// SQLite makes its files with the umask's mode; jobs run as another user must not read them.
fn close_records(root: &Path) -> Result<()> {
    let path = root.join("runlet.db");
    let failed = |error| Error::internal(format!("opening {}", path.display()), error);
    let file = OpenOptions::new().create(true).append(true).open(&path).map_err(failed)?;
    file.set_permissions(Permissions::from_mode(0o600)).map_err(failed)
}

fn create_directory(path: &Path, mode: u32) -> Result<()> {
    let failed =
        |error: std::io::Error| Error::internal(format!("making the directory {}", path.display()), error);
    fs::DirBuilder::new().recursive(true).mode(mode).create(path).map_err(failed)?;
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed)
}

/// Takes the lock of a data root. The file is never removed, so that two executors never lock two files.
///
/// The spawner and the inits of jobs inherit the lock. So after an executor was killed it is held until the last of its
/// jobs has been ended; that is waited for.
fn take_lock(root: &Path) -> Result<File> {
    let path = root.join(".lock");
    let failed = |error: std::io::Error| Error::internal(format!("locking {}", path.display()), error);
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let holder = fs::read_to_string(&path).unwrap_or_default();
        let (pid, start) = holder.trim().split_once(' ').unwrap_or((holder.trim(), ""));
        if pid.parse().is_ok_and(|pid| lifetime::start_time(pid).is_some_and(|now| now == start)) {
            let advice = "stop that one first, or set SANDBOX_ROOT to another directory";
            let why = format!("the data root is in use by the executor with process id {pid}; {advice}");
            return Err(Error::internal(format!("locking {}", path.display()), why));
        }
        if Instant::now() > deadline {
            let why = format!(
                "the executor with process id {pid} is gone from here, but not all processes of its jobs, or it runs in \
                 another container; end them, or wait, then start again"
            );
            return Err(Error::internal(format!("locking {}", path.display()), why));
        }
        let _interrupted = rustix::thread::nanosleep(&LOOK_PERIOD);
    }
    file.set_permissions(Permissions::from_mode(0o600)).map_err(failed)?;
    file.set_len(0).map_err(failed)?;
    file.rewind().map_err(failed)?;
    let pid = std::process::id();
    let start = lifetime::start_time(pid).unwrap_or_default();
    writeln!(file, "{pid} {start}").map_err(failed)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_executor_is_refused_and_told_who_holds_the_root() {
        let directory = tempfile::tempdir().unwrap();
        let first = DataRoot::open(directory.path(), false).unwrap();
        let error = DataRoot::open(directory.path(), false).unwrap_err();
        let said = std::error::Error::source(&error).unwrap().to_string();
        assert!(said.contains(&format!("process id {}", std::process::id())), "{said}");
        drop(first);
        DataRoot::open(directory.path(), false).unwrap();
    }

    #[test]
    fn only_workspaces_can_be_entered_by_others() {
        let directory = tempfile::tempdir().unwrap();
        let root = DataRoot::open(&directory.path().join("var"), true).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&root.path), mode(&root.workspaces)), (0o711, 0o711));
        assert_eq!((mode(&root.logs), mode(&root.trash), mode(&root.records)), (0o700, 0o700, 0o600));
    }
}
