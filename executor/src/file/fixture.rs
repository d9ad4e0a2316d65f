//! A workspace for tests, and short ways to use it.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use tempfile::TempDir;

use tokio_util::task::TaskTracker;

use super::{
    Edit, EditedFile, Files, IfMatch, Limits, PatchedFile, Range, ReadFile, Root, WriteOptions, WrittenFile,
    edit, patch, read, write,
};
use crate::{
    error::{Error, PathProblem, Result},
    process::{identity::Identity, workers::Workers},
};

/// A workspace `a` beside a directory `a-secret`, both removed when dropped.
pub(super) struct Fixture {
    pub(super) directory: TempDir,
    pub(super) root: Arc<Root>,
    pub(super) limits: Limits,
}

impl Fixture {
    pub(super) fn new() -> Self {
        Self::in_directory(tempfile::tempdir().unwrap())
    }

    pub(super) fn in_directory(directory: TempDir) -> Self {
        let path = directory.path().canonicalize().unwrap().join("a");
        for part in ["work", "home", "tmp", "venv"] {
            fs::create_dir_all(path.join(part)).unwrap();
        }
        let root = Arc::new(Root::open(&path).unwrap());
        let limits = Limits { reserve_bytes: 0, followed_names: 2_000, ..Limits::default() };
        Self { directory, root, limits }
    }

    pub(super) fn files(&self) -> Files {
        self.files_as(rustix::process::geteuid().as_raw(), false)
    }

    /// File tools with the rights of this user.
    pub(super) fn files_as(&self, uid: u32, switch: bool) -> Files {
        let identity = Identity { uid, gid: uid, groups: Vec::new(), name: "tests".to_owned(), switch };
        Files::new(Workers::start(&identity).unwrap(), self.limits.clone(), TaskTracker::new())
    }

    /// Absolute path of a path below `work`.
    pub(super) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.path().join("work").join(path)
    }

    pub(super) fn put(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(super) fn get(&self, path: impl AsRef<Path>) -> Vec<u8> {
        fs::read(self.path(path)).unwrap()
    }

    pub(super) fn link(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) {
        std::os::unix::fs::symlink(target, self.path(path)).unwrap();
    }

    pub(super) fn mode(&self, path: impl AsRef<Path>) -> u32 {
        fs::metadata(self.path(path)).unwrap().mode() & 0o7777
    }

    /// All names in a directory, sorted.
    pub(super) fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Makes the things that are neither file nor directory: `p` a pipe, `s` a socket, `z` a link to `/dev/zero`.
    pub(super) fn put_special_files(&self) {
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        rustix::fs::mknodat(rustix::fs::CWD, self.path("p"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
        drop(std::os::unix::net::UnixListener::bind(self.path("s")).unwrap());
        self.link("/dev/zero", "z");
    }

    pub(super) fn read(&self, path: impl AsRef<[u8]>, range: Range) -> Result<ReadFile> {
        read::read(&self.root, path.as_ref(), range, &self.limits)
    }

    pub(super) fn lines(&self, path: impl AsRef<[u8]>) -> Result<ReadFile> {
        self.read(path, Range::Lines { start: 1, count: 2000 })
    }

    pub(super) fn write(&self, path: impl AsRef<[u8]>, content: impl AsRef<[u8]>) -> Result<WrittenFile> {
        self.write_if(path, content, IfMatch::Any)
    }

    pub(super) fn write_if(
        &self,
        path: impl AsRef<[u8]>,
        content: impl AsRef<[u8]>,
        if_match: IfMatch,
    ) -> Result<WrittenFile> {
        let options = WriteOptions { if_match, executable: None };
        write::write(&self.root, path.as_ref(), content.as_ref(), &options, &self.limits)
    }

    pub(super) fn edit(&self, path: impl AsRef<[u8]>, old: &str, new: &str) -> Result<EditedFile> {
        self.edits(path, &[one(old, new)])
    }

    pub(super) fn edits(&self, path: impl AsRef<[u8]>, edits: &[Edit]) -> Result<EditedFile> {
        edit::edit(&self.root, path.as_ref(), edits, &IfMatch::Any, &self.limits)
    }

    pub(super) fn patch(&self, text: impl AsRef<[u8]>) -> Result<Vec<PatchedFile>> {
        patch::patch(&self.root, text.as_ref(), &self.limits)
    }
}

/// One edit of one occurrence.
pub(super) fn one(old: &str, new: &str) -> Edit {
    Edit { old_text: old.into(), new_text: new.into(), replace_all: false }
}

/// One edit of all occurrences.
pub(super) fn all(old: &str, new: &str) -> Edit {
    Edit { replace_all: true, ..one(old, new) }
}

/// What is wrong with the path.
pub(super) fn problem<T: std::fmt::Debug>(result: Result<T>) -> PathProblem {
    match result {
        Err(Error::Path { problem, .. }) => problem,
        other => panic!("expected a problem of a path, got {other:?}"),
    }
}
