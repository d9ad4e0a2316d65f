//! Where a path leads. A path is walked beneath the workspace root name by name: each step opens one name in a
//! directory that is held open, links are read and their names walked in turn. So a name that changes meanwhile leads
//! at worst to another place inside. It refuses to know what is done with what it finds.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    fs::File,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{Mode, OFlags, ResolveFlags, openat2, readlinkat},
    io::{self, Errno},
    path::Arg,
};

use super::{
    follow::{Followed, Presence},
    meta::{Kind, Meta},
    queue::Key,
    show::show,
};
use crate::error::{Error, PathProblem, Result};

/// Longest path, as in the kernel.
const MAX_PATH_BYTES: usize = 4096;
/// Most links followed, as in the kernel.
const MAX_LINKS: usize = 40;
/// How often something that changed while it was looked at is tried again.
pub(super) const ATTEMPTS: usize = 8;

/// The root of a workspace: the directory that holds `work`, `home`, `tmp` and `venv`; or the whole root that the processes
/// of a sandbox see.
#[derive(Debug)]
pub struct Root {
    directory: OwnedFd,
    path: PathBuf,
    /// Where relative paths start, beneath the directory.
    work: &'static str,
    /// What `~` stands for, beneath the directory.
    home: &'static str,
    pub(super) followed: Followed,
}

/// Where a path led.
#[derive(Debug)]
pub(crate) struct Place {
    /// The path as given, in a form that can be shown.
    pub(crate) shown: String,
    /// Absolute path without links, as jobs see it.
    pub(crate) path: PathBuf,
    /// What is there.
    pub(crate) target: Target,
}

/// What is at a place.
#[derive(Debug)]
pub(crate) enum Target {
    /// A directory, opened with `O_PATH`.
    Directory(OwnedFd),
    /// Anything else that exists.
    Entry {
        /// The directory that holds it, opened with `O_PATH`.
        parent: OwnedFd,
        /// Its name there. Not that of a link.
        name: OsString,
        /// Its facts.
        meta: Meta,
    },
    /// Nothing.
    Missing {
        /// The last directory on the way that exists, opened with `O_PATH`.
        parent: OwnedFd,
        /// Directories on the way from there that don't exist.
        folders: Vec<OsString>,
        /// The last name.
        name: OsString,
        /// Whether the path was written as that of a directory, with a slash at its end.
        as_directory: bool,
    },
}

impl Root {
    /// The workspace root open as `directory`, which jobs see as the absolute `path`.
    pub fn new(directory: OwnedFd, path: impl Into<PathBuf>) -> Self {
        Self { directory, path: path.into(), work: "work", home: "home", followed: Followed::default() }
    }

    /// The root of a sandbox open as `directory`, which its jobs see as `/`, at home in `home` beneath it.
    pub fn of_sandbox(directory: OwnedFd, home: &'static str) -> Self {
        Self { work: home, home, ..Self::new(directory, "/") }
    }

    /// The workspace root at `path`. Fails where that is no directory.
    pub fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|e| Error::internal(format!("open the workspace root {}", path.display()), e))?;
        Ok(Self::new(directory, path))
    }

    /// To be held by whatever may change files of the workspace by itself, as long as it may.
    pub fn presence(self: &Arc<Self>) -> Presence {
        Presence::new(Arc::clone(self))
    }

    /// Absolute path as jobs see it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Absolute path, links resolved, of the directory at `path`.
    pub(super) fn path_of_directory(&self, path: &[u8]) -> Result<PathBuf> {
        let place = self.resolve(path)?;
        match place.target {
            Target::Directory(_) => Ok(place.path),
            Target::Entry { .. } => Err(place.problem(PathProblem::NotADirectory)),
            Target::Missing { .. } => Err(place.problem(PathProblem::NotFound)),
        }
    }

    /// `path` as tools name it: relative to `work` where it lies in there, absolute otherwise.
    pub(crate) fn name_of(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(self.path.join(self.work)) {
            Ok(inside) => inside.to_owned(),
            Err(_) => path.to_owned(),
        }
    }

    /// Walks `path`: relative to `work`, absolute inside the root, or `~` and `~/…` for `home`. Fails with
    /// [`PathProblem::OutsideWorkspace`] as soon as it leads out, whatever lies there.
    pub(crate) fn resolve(&self, path: &[u8]) -> Result<Place> {
        let shown = show(path);
        let parts = self.parts(path, &shown)?;
        let as_directory = path.ends_with(b"/") || path.ends_with(b"/.");
        for _ in 0..ATTEMPTS {
            let walk =
                Walk { root: self, shown: &shown, as_directory, names: Vec::new(), pending: parts.clone() };
            if let Some((target, names)) = walk.run()? {
                let path = names.iter().fold(self.path.clone(), |path, name| path.join(name));
                return Ok(Place { shown, path, target });
            }
        }
        Err(Error::internal(format!("resolve {shown}: its directories keep changing"), Errno::AGAIN))
    }

    /// The directory in which commands start.
    pub(super) fn work_directory(&self) -> io::Result<OwnedFd> {
        self.directory(self.work.split('/').map(OsStr::new))
    }

    /// Directory `names` beneath the root, links refused.
    pub(super) fn directory<'a>(&self, names: impl Iterator<Item = &'a OsStr>) -> io::Result<OwnedFd> {
        let path: PathBuf = std::iter::once(OsStr::new(".")).chain(names).collect();
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
        openat2(
            &self.directory,
            path,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
            resolve,
        )
    }

    fn parts(&self, path: &[u8], shown: &str) -> Result<VecDeque<OsString>> {
        if path.is_empty() {
            return Err(Error::invalid("path", "is empty; expected a path, such as src/main.rs"));
        }
        if path.contains(&0) {
            return Err(Error::invalid(
                "path",
                format!("'{shown}' contains a NUL byte, which no name may have"),
            ));
        }
        if path.len() > MAX_PATH_BYTES {
            let problem = format!("has {} bytes; a path has at most {MAX_PATH_BYTES}", path.len());
            return Err(Error::invalid("path", problem));
        }
        if path.starts_with(b"/") {
            return self.re_root(path).ok_or_else(|| Error::path(shown, PathProblem::OutsideWorkspace));
        }
        let (start, rest) = match path.strip_prefix(b"~") {
            Some(rest) if rest.is_empty() || rest.starts_with(b"/") => (self.home, rest),
            _ => (self.work, path),
        };
        Ok(split(start.as_bytes()).chain(split(rest)).collect())
    }

    /// The parts of an absolute path after those of the root, or nothing where it doesn't start with them.
    fn re_root(&self, path: &[u8]) -> Option<VecDeque<OsString>> {
        let mut parts = split(path);
        split(self.path.as_os_str().as_bytes()).all(|own| parts.next() == Some(own)).then(|| parts.collect())
    }
}

impl Place {
    /// What orders changes here: see [`Key`].
    pub(super) fn key(&self) -> Result<Key> {
        let named = |parent: &OwnedFd, name| {
            let meta = Meta::of(parent).map_err(|e| self.error("look at the directory", e))?;
            Ok(Key::Name { device: meta.device, directory: meta.inode, name })
        };
        match &self.target {
            Target::Directory(_) => Err(self.problem(PathProblem::IsADirectory)),
            Target::Entry { meta, .. } if meta.links > 1 => {
                Ok(Key::Inode { device: meta.device, inode: meta.inode })
            }
            Target::Entry { parent, name, .. } => named(parent, name.clone()),
            Target::Missing { parent, folders, name, .. } => {
                let below: PathBuf = folders.iter().chain(std::iter::once(name)).collect();
                named(parent, below.into_os_string())
            }
        }
    }

    /// Opens the regular file at this place for reading. `None` when it was swapped for something else since.
    pub(super) fn open(&self) -> Result<Option<(File, Meta)>> {
        let Target::Entry { parent, name, meta } = &self.target else {
            let missing = matches!(self.target, Target::Missing { .. });
            return Err(self.problem(if missing {
                PathProblem::NotFound
            } else {
                PathProblem::IsADirectory
            }));
        };
        if meta.kind != Kind::File {
            return Err(self.problem(PathProblem::NotARegularFile));
        }
        let file = match open_beneath(parent, name, OFlags::RDONLY | FILE_FLAGS, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::LOOP | Errno::NOENT | Errno::NXIO) => return Ok(None),
            Err(e) => return Err(self.error("open", e)),
        };
        let now = Meta::of(&file).map_err(|e| self.error("look at", e))?;
        Ok((now.kind == Kind::File).then(|| (File::from(file), now)))
    }

    /// The error that this place has `problem`.
    pub(crate) fn problem(&self, problem: PathProblem) -> Error {
        Error::path(&*self.shown, problem)
    }

    /// The error for `errno`, met on trying to `action` what is at this place.
    pub(crate) fn error(&self, action: &str, errno: Errno) -> Error {
        path_error(&self.shown, action, errno)
    }
}

/// Opens the regular file at `path` for reading. Returns where it was found, the file, and its facts before reading.
pub(crate) fn open_file(root: &Root, path: &[u8]) -> Result<(Place, File, Meta)> {
    for _ in 0..ATTEMPTS {
        let place = root.resolve(path)?;
        if let Some((file, meta)) = place.open()? {
            return Ok((place, file, meta));
        }
    }
    Err(Error::path(show(path), PathProblem::NotARegularFile))
}

/// Flags for a file that must neither block, nor be a link, nor become a controlling terminal.
pub(crate) const FILE_FLAGS: OFlags =
    OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Opens one name in a directory. The kernel refuses what would lead out of it.
pub(crate) fn open_beneath(
    directory: impl AsFd,
    name: impl Arg + Copy,
    flags: OFlags,
    mode: Mode,
) -> io::Result<OwnedFd> {
    let mut result = Err(Errno::AGAIN);
    for _ in 0..ATTEMPTS {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        result = openat2(&directory, name, flags | OFlags::CLOEXEC, mode, resolve);
        if !matches!(result, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
    }
    result
}

/// The error for `errno`, met on trying to `action` the path that is shown as `shown`.
pub(super) fn path_error(shown: &str, action: &str, errno: Errno) -> Error {
    let problem = match errno {
        Errno::NOENT => PathProblem::NotFound,
        Errno::NOTDIR => PathProblem::NotADirectory,
        Errno::ISDIR => PathProblem::IsADirectory,
        Errno::LOOP => PathProblem::SymlinkLoop,
        Errno::XDEV => PathProblem::OutsideWorkspace,
        Errno::EXIST => PathProblem::Exists,
        Errno::NXIO | Errno::NODEV => PathProblem::NotARegularFile,
        Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY => PathProblem::PermissionDenied,
        Errno::NAMETOOLONG => {
            return Error::invalid("path", format!("'{shown}' has a name of more than 255 bytes"));
        }
        _ => return Error::internal(format!("{action} {shown}"), errno),
    };
    Error::path(shown, problem)
}

/// One walk from the root.
struct Walk<'a> {
    root: &'a Root,
    shown: &'a str,
    as_directory: bool,
    /// Names walked so far; none is a link.
    names: Vec<OsString>,
    /// Names still to walk.
    pending: VecDeque<OsString>,
}

impl Walk<'_> {
    /// `None` when a directory that had been walked is gone or has become a link.
    fn run(mut self) -> Result<Option<(Target, Vec<OsString>)>> {
        let mut links = 0;
        let mut here = self.error_free(self.root.directory(std::iter::empty()))?;
        while let Some(name) = self.pending.pop_front() {
            if name == ".." {
                self.names.pop().ok_or_else(|| Error::path(self.shown, PathProblem::OutsideWorkspace))?;
                match self.root.directory(self.names.iter().map(OsString::as_os_str)) {
                    Ok(parent) => here = parent,
                    Err(Errno::LOOP | Errno::NOENT | Errno::NOTDIR | Errno::AGAIN) => return Ok(None),
                    Err(e) => return Err(path_error(self.shown, "resolve", e)),
                }
                continue;
            }
            let found = match open_beneath(&here, &*name, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()) {
                Err(Errno::NOENT) => return self.missing(here, name).map(Some),
                found => self.error_free(found)?,
            };
            let meta = self.error_free(Meta::of(&found))?;
            match meta.kind {
                Kind::Directory => {
                    self.names.push(name);
                    here = found;
                }
                Kind::Symlink => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Error::path(self.shown, PathProblem::SymlinkLoop));
                    }
                    if self.follow(&found)? {
                        here = self.error_free(self.root.directory(std::iter::empty()))?;
                    }
                }
                _ if self.pending.is_empty() && !self.as_directory => {
                    self.names.push(name.clone());
                    return Ok(Some((Target::Entry { parent: here, name, meta }, self.names)));
                }
                _ => return Err(Error::path(self.shown, PathProblem::NotADirectory)),
            }
        }
        Ok(Some((Target::Directory(here), self.names)))
    }

    /// Puts the names of a link's target before those still to walk. True when the walk starts again at the root.
    fn follow(&mut self, link: &OwnedFd) -> Result<bool> {
        let target = self.error_free(readlinkat(link, "", Vec::new()))?.into_bytes();
        let absolute = target.starts_with(b"/");
        let parts = if absolute { self.root.re_root(&target) } else { Some(split(&target).collect()) };
        let parts = parts.ok_or_else(|| Error::path(self.shown, PathProblem::OutsideWorkspace))?;
        if absolute {
            self.names.clear();
        }
        for part in parts.into_iter().rev() {
            self.pending.push_front(part);
        }
        Ok(absolute)
    }

    fn missing(mut self, parent: OwnedFd, name: OsString) -> Result<(Target, Vec<OsString>)> {
        let mut folders: Vec<OsString> = std::iter::once(name).chain(self.pending).collect();
        if folders.iter().any(|name| name == "..") {
            return Err(Error::path(self.shown, PathProblem::NotFound));
        }
        self.names.extend(folders.iter().cloned());
        let name = folders.pop().unwrap_or_default();
        Ok((Target::Missing { parent, folders, name, as_directory: self.as_directory }, self.names))
    }

    fn error_free<T>(&self, result: io::Result<T>) -> Result<T> {
        result.map_err(|e| path_error(self.shown, "resolve", e))
    }
}

/// The names of a path, in order; empty ones and `.` are left out.
fn split(path: &[u8]) -> impl Iterator<Item = OsString> {
    path.split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty() && *name != b".")
        .map(|name| OsString::from_vec(name.to_vec()))
}
