//! Python environments. Making one with `python3 -m venv` takes seconds, most of them for pip; so it is done once, into a
//! template that belongs to the executor, and each workspace gets a copy with its own paths in it. Copying some 1,500
//! files takes up to a second too, so one copy is in stock.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{Dir, FileType, Mode, OFlags, Timespec, Timestamps};
use tokio::sync::{Mutex, OnceCell};

use super::environment::find_program;
use super::{Paths, open_directory, removal};
use crate::data_root::DataRoot;
use crate::error::{Error, Result};
use crate::process::capture::capture;
use crate::process::identity::Identity;
use crate::process::spawn::{Command, Spawner};
use crate::process::workers::Workers;

/// Longest time for making the template.
const BUILD_LIMIT: Duration = Duration::from_secs(120);

/// Longest time for asking Python for its version.
const ASK_LIMIT: Duration = Duration::from_secs(10);

/// The template of Python environments, and copies of it.
#[derive(Debug)]
pub struct Python {
    workspaces: PathBuf,
    stock: PathBuf,
    trash: PathBuf,
    identity: Identity,
    workers: Workers,
    spawner: Arc<Spawner>,
    search_path: Vec<PathBuf>,
    template: OnceCell<Template>,
    /// Whether the stock is kept filled, and used.
    keeps_stock: AtomicBool,
    /// Held while the stock is being filled.
    filling: Mutex<()>,
}

/// The template, made.
#[derive(Debug, Clone)]
pub(super) struct Template {
    path: PathBuf,
    version: String,
}

impl Python {
    pub(super) fn new(
        root: &DataRoot,
        identity: Identity,
        workers: Workers,
        spawner: Arc<Spawner>,
        search_path: Vec<PathBuf>,
    ) -> Self {
        Self {
            workspaces: root.workspaces.clone(),
            stock: root.stock.clone(),
            trash: root.trash.clone(),
            identity,
            workers,
            spawner,
            search_path,
            template: OnceCell::new(),
            keeps_stock: AtomicBool::new(false),
            filling: Mutex::default(),
        }
    }

    /// Makes the template if it is missing, and a copy of it, so that workspaces need not wait for them. From now on the
    /// stock is filled again after each use.
    pub async fn prepare(&self) -> Result<()> {
        // What an earlier executor left there may be half made, or made for another user of jobs.
        for entry in fs::read_dir(&self.stock).map_err(|error| self.stock_failed(error))?.flatten() {
            removal::remove(&self.trash, &entry.path()).await?;
        }
        self.template().await?;
        self.keeps_stock.store(true, Ordering::Release);
        self.fill_stock().await
    }

    /// Makes the environment of a workspace; returns Python's version.
    pub(super) async fn furnish(&self, template: &Template, paths: &Paths) -> Result<String> {
        let failed = |error| Error::internal(format!("making {}", paths.venv.display()), error);
        let target = open_directory(&paths.root)?;
        let (old, new) = (template.path.clone(), paths.venv.clone());
        // Whoever moves it first has it; without one, one is copied here and now.
        let in_stock = self.keeps_stock.load(Ordering::Acquire)
            && fs::rename(self.in_stock(template), &paths.venv).is_ok();
        let source = if in_stock { None } else { Some(open_directory(&template.path)?) };
        let furnish = move || {
            if let Some(source) = source {
                copy_environment(&source, &target, c"venv")?;
            }
            // The jobs' user may be unable to pass through the directories above, which the descriptor spares it.
            let own = PathBuf::from(format!("/proc/self/fd/{}", target.as_raw_fd())).join("venv");
            relocate(&own, &old, &new)
        };
        self.workers.run(furnish).await?.map_err(failed)?;
        Ok(template.version.clone())
    }

    /// Puts a copy of the template in stock, if one is to be kept there and is not.
    pub(super) async fn fill_stock(&self) -> Result<()> {
        let Ok(_filling) = self.filling.try_lock() else { return Ok(()) };
        let Some(template) = self.template.get().filter(|_| self.keeps_stock.load(Ordering::Acquire)) else {
            return Ok(());
        };
        let (copy, making) = (self.in_stock(template), self.stock.join("making"));
        if copy.is_dir() {
            return Ok(());
        }
        // What was left by an attempt that failed.
        removal::remove(&self.trash, &making).await?;
        self.make_own_directory(&making, 0o700).map_err(|error| self.stock_failed(error))?;
        let (source, target) = (open_directory(&template.path)?, open_directory(&making)?);
        let copied = self.workers.run(move || copy_environment(&source, &target, c"venv")).await?;
        copied
            .and_then(|()| fs::rename(making.join("venv"), &copy))
            .and_then(|()| fs::remove_dir(&making))
            .map_err(|error| self.stock_failed(error))
    }

    fn stock_failed(&self, error: io::Error) -> Error {
        Error::internal(format!("filling {}", self.stock.display()), error)
    }

    fn in_stock(&self, template: &Template) -> PathBuf {
        self.stock.join(format!("python-{}", template.version))
    }

    /// Makes a directory of the jobs' user.
    fn make_own_directory(&self, path: &Path, mode: u32) -> io::Result<()> {
        fs::create_dir(path)?;
        fs::set_permissions(path, Permissions::from_mode(mode))?;
        if self.identity.switch {
            std::os::unix::fs::lchown(path, Some(self.identity.uid), Some(self.identity.gid))?;
        }
        Ok(())
    }

    /// The template, once it is made.
    pub(super) async fn template(&self) -> Result<&Template> {
        self.template.get_or_try_init(|| self.find_or_build()).await
    }

    async fn find_or_build(&self) -> Result<Template> {
        let python =
            find_program(&self.search_path, "python3").ok_or(Error::ProgramMissing { program: "python3" })?;
        let asked = self
            .run(
                &python,
                &["-c", "import platform; print(platform.python_version())"],
                ASK_LIMIT,
                Path::new("/tmp"),
            )
            .await?;
        let version = String::from_utf8_lossy(&asked).trim().to_owned();
        let path = self.workspaces.join(format!(".python-{version}"));
        if !path.is_dir() {
            self.build(&python, &path).await?;
        }
        Ok(Template { path, version })
    }

    /// Builds in a directory of the jobs' user, since Python runs as that one, then takes the result over.
    async fn build(&self, python: &Path, path: &Path) -> Result<()> {
        let failed = |error: io::Error| Error::internal(format!("making {}", path.display()), error);
        let building = path.with_extension("building");
        match fs::remove_dir_all(&building) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        self.make_own_directory(&building, 0o755).map_err(failed)?;
        let (from, to) = (building.join("venv"), path.to_owned());
        self.run(python, &["-m", "venv", &from.to_string_lossy()], BUILD_LIMIT, &building).await?;
        let switch = self.identity.switch;
        tokio::task::spawn_blocking(move || {
            relocate(&from, &from, &to)?;
            if switch {
                take_over(&from)?;
            }
            fs::rename(&from, &to)?;
            fs::remove_dir_all(&building)
        })
        .await
        .map_err(|error| Error::internal("making a Python environment", error))?
        .map_err(failed)
    }

    /// What Python prints. Its temporary files go to `tmp`.
    async fn run(&self, python: &Path, arguments: &[&str], limit: Duration, tmp: &Path) -> Result<Vec<u8>> {
        let mut argv = vec![python.as_os_str().as_encoded_bytes().to_vec()];
        argv.extend(arguments.iter().map(|argument| argument.as_bytes().to_vec()));
        let command = Command {
            argv,
            attachment: None,
            env: BTreeMap::from([
                ("LC_CTYPE".to_owned(), "C.UTF-8".to_owned()),
                ("TMPDIR".to_owned(), tmp.to_string_lossy().into_owned()),
            ]),
            cwd: "/".into(),
            stdin: false,
            separate_stderr: true,
        };
        let captured = capture(&self.spawner, command, limit).await?;
        if captured.succeeded() {
            return Ok(captured.stdout);
        }
        let said = String::from_utf8_lossy(&captured.stderr).into_owned()
            + &String::from_utf8_lossy(&captured.stdout);
        if said.contains("ensurepip") {
            return Err(Error::ProgramMissing { program: "python3-venv" });
        }
        Err(Error::internal(format!("running {} {}", python.display(), arguments.join(" ")), said))
    }
}

/// Makes the executor the owner, so that no job can change what other workspaces will get.
fn take_over(tree: &Path) -> io::Result<()> {
    std::os::unix::fs::lchown(tree, Some(0), Some(0))?;
    if fs::symlink_metadata(tree)?.is_dir() {
        for entry in fs::read_dir(tree)? {
            take_over(&entry?.path())?;
        }
    }
    Ok(())
}

/// Copies the template `source` to `name` in the directory `target`. Runs with the jobs' file rights.
fn copy_environment(source: &OwnedFd, target: &OwnedFd, name: &CStr) -> io::Result<()> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    copy_tree(&rustix::fs::openat(source, ".", flags, Mode::empty())?, target, name)
}

/// Copies the directory `from` to `name` in the directory `into`. An environment has some 1,500 files, so each of them is
/// opened once and named relative to its directory.
fn copy_tree(from: &OwnedFd, into: &OwnedFd, name: &CStr) -> io::Result<()> {
    rustix::fs::mkdirat(into, name, Mode::from_raw_mode(0o755))?;
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let to = rustix::fs::openat(into, name, flags, Mode::empty())?;
    for entry in Dir::read_from(from)? {
        let entry = entry?;
        let name = entry.file_name();
        match entry.file_type() {
            _ if name == c"." || name == c".." => {}
            FileType::Directory => {
                copy_tree(&rustix::fs::openat(from, name, flags, Mode::empty())?, &to, name)?
            }
            FileType::Symlink => {
                rustix::fs::symlinkat(rustix::fs::readlinkat(from, name, Vec::new())?, &to, name)?
            }
            _ => copy_file(from, &to, name)?,
        }
    }
    Ok(())
}

fn copy_file(from: &OwnedFd, to: &OwnedFd, name: &CStr) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let source = rustix::fs::openat(from, name, flags, Mode::empty())?;
    let data = rustix::fs::fstat(&source)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let target = rustix::fs::openat(to, name, flags, Mode::from_raw_mode(data.st_mode & 0o777))?;
    let mut target = File::from(target);
    // Shares the bytes where the file system can.
    if rustix::fs::ioctl_ficlone(&target, &source).is_err() {
        io::copy(&mut File::from(source), &mut target)?;
    }
    // Python takes a compiled file only if it names the time of its source.
    let modified =
        Timespec { tv_sec: data.st_mtime, tv_nsec: i64::try_from(data.st_mtime_nsec).unwrap_or(0) };
    rustix::fs::futimens(&target, &Timestamps { last_access: modified, last_modification: modified })?;
    Ok(())
}

/// Replaces the environment's own path in its scripts and settings.
fn relocate(environment: &Path, old: &Path, new: &Path) -> io::Result<()> {
    let (old, new) = (old.as_os_str().as_encoded_bytes(), new.as_os_str().as_encoded_bytes());
    let mut files = vec![environment.join("pyvenv.cfg")];
    for entry in fs::read_dir(environment.join("bin"))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            files.push(entry.path());
        }
    }
    for file in files {
        let content = fs::read(&file)?;
        let replaced = replace(&content, old, new);
        if replaced != content {
            let mode = fs::metadata(&file)?.mode();
            fs::write(&file, replaced)?;
            fs::set_permissions(&file, Permissions::from_mode(mode))?;
        }
    }
    Ok(())
}

fn replace(content: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(content.len());
    let mut rest = content;
    while let Some(at) = rest.windows(old.len()).position(|window| window == old) {
        replaced.extend_from_slice(&rest[..at]);
        replaced.extend_from_slice(new);
        rest = &rest[at + old.len()..];
    }
    replaced.extend_from_slice(rest);
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_occurrence_is_replaced() {
        assert_eq!(replace(b"#!/a/bin /a/b /ab", b"/a/", b"/xyz/"), b"#!/xyz/bin /xyz/b /ab");
        assert_eq!(replace(b"none", b"/a/", b"/b/"), b"none");
    }
}
