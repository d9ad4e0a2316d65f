//! The files of a workspace: reading, writing, editing, patching, listing and searching them. Paths and contents are bytes. It
//! owns where a path leads, the order of changes to one file, and how a change gets to the disk; it refuses to know who
//! asks and in what form the answers travel.

mod attributes;
mod condition;
mod diff;
mod edit;
mod facts;
mod follow;
mod hint;
mod index;
mod list;
mod load;
mod matching;
mod meta;
mod page;
mod patch;
mod path;
mod put;
mod queue;
mod read;
mod replace;
mod rules;
mod search;
mod search_file;
mod search_pool;
mod show;
mod sweep;
mod temp;
mod walk;
mod write;

#[cfg(test)]
mod edit_tests;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod follow_tests;
#[cfg(test)]
mod list_tests;
#[cfg(test)]
mod mod_tests;
#[cfg(test)]
mod path_tests;
#[cfg(test)]
mod read_tests;
#[cfg(test)]
mod search_tests;
#[cfg(test)]
mod write_tests;

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use time::OffsetDateTime;
use tokio_util::task::TaskTracker;

pub use self::{
    condition::IfMatch,
    edit::{Edit, EditedFile},
    facts::Facts,
    follow::{Base, Presence, Uncounted},
    index::{Changes, MOST_NAMES, Names},
    list::{Entry, ListRequest, Listing},
    load::LoadedFile,
    meta::Kind,
    patch::{Change, Moved, PatchedFile},
    path::Root,
    put::{Gathered, Spot},
    read::{LineEnding, Range, ReadFile},
    search::{FoundLine, SearchRequest, SearchResult},
    write::{WriteOptions, WrittenFile},
};
use self::{
    follow::Kept,
    path::ATTEMPTS,
    queue::{Key, Queue},
};
/// For archives, which walk trees in a way of their own.
pub(crate) use self::{
    meta::Meta,
    path::{FILE_FLAGS, Place, Target, open_beneath, open_file},
    show::show,
};
use crate::{
    error::{Error, Result},
    process::workers::Workers,
};

/// How much the file tools do at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of a file that is written or edited, and of a range that is read.
    pub max_bytes: u64,
    /// Bytes of free disk that a write leaves.
    pub reserve_bytes: u64,
    /// Names that a listing looks at.
    pub list_names: usize,
    /// Time that a listing takes.
    pub list_time: Duration,
    /// Time that a search takes.
    pub search_time: Duration,
    /// Files and directories up to which a work directory is followed.
    pub followed_names: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_bytes: 16 * 1024 * 1024,
            reserve_bytes: 256 * 1024 * 1024,
            list_names: 200_000,
            list_time: Duration::from_secs(5),
            search_time: Duration::from_secs(10),
            followed_names: 20_000,
        }
    }
}

/// The file tools. The work is done by a pool of threads that has the jobs' rights to files.
#[derive(Debug, Clone)]
pub struct Files {
    workers: Workers,
    tasks: TaskTracker,
    queue: Arc<Queue>,
    limits: Arc<Limits>,
    kept: Arc<Kept>,
}

impl Files {
    /// File tools on `workers`, within `limits`. Changes that outlive their caller are tracked among `tasks`.
    pub fn new(workers: Workers, limits: Limits, tasks: TaskTracker) -> Self {
        Self { workers, tasks, queue: Arc::default(), limits: Arc::new(limits), kept: Arc::default() }
    }

    /// Absolute path, links resolved, of the directory at `path`.
    pub async fn directory(&self, root: Arc<Root>, path: Vec<u8>) -> Result<PathBuf> {
        self.workers.run(move || root.path_of_directory(&path)).await?
    }

    /// Reads `range` of the file at `path`. A range past the end is empty. Fails with [`Error::FileTooLarge`] where the
    /// range has more bytes than may be read at once.
    pub async fn read(&self, root: Arc<Root>, path: Vec<u8>, range: Range) -> Result<ReadFile> {
        let limits = Arc::clone(&self.limits);
        self.workers.run(move || read::read(&root, &path, range, &limits)).await?
    }

    /// Reads all of the file at `path`. Fails with [`Error::FileTooLarge`] where it has more than `limit` bytes.
    pub async fn load(&self, root: Arc<Root>, path: Vec<u8>, limit: u64) -> Result<LoadedFile> {
        self.workers.run(move || load::load(&root, &path, limit)).await?
    }

    /// What is at `path`, links followed; `None` where there is nothing.
    pub async fn facts(&self, root: Arc<Root>, path: Vec<u8>) -> Result<Option<Facts>> {
        self.workers.run(move || facts::facts(&root, &path)).await?
    }

    /// Makes `content` the content of the file at `path`, creating it and its directories where they don't exist.
    /// After a link the file it leads to is written. Once begun it is finished also when nobody waits for it.
    pub async fn write(
        &self,
        root: Arc<Root>,
        path: Vec<u8>,
        content: Vec<u8>,
        options: WriteOptions,
    ) -> Result<WrittenFile> {
        let limits = Arc::clone(&self.limits);
        let paths = vec![path.clone()];
        self.change(root, paths, move |root| write::write(root, &path, &content, &options, &limits)).await
    }

    /// Does `edits` one after the other on the file at `path`, all or none. Fails with [`Error::EditNotFound`],
    /// [`Error::EditNotUnique`] or [`Error::EditWithoutEffect`], and then the file was not touched. Once begun it is
    /// finished also when nobody waits for it.
    pub async fn edit(
        &self,
        root: Arc<Root>,
        path: Vec<u8>,
        edits: Vec<Edit>,
        if_match: IfMatch,
    ) -> Result<EditedFile> {
        let limits = Arc::clone(&self.limits);
        let paths = vec![path.clone()];
        self.change(root, paths, move |root| edit::edit(root, &path, &edits, &if_match, &limits)).await
    }

    /// Applies a unified diff of several files, all or none. Fails with [`Error::PatchInvalid`],
    /// [`Error::PatchMismatch`] or what is wrong with a file, and then no file was touched; with
    /// [`Error::PatchStopped`] where writing failed, which tells that all was put back. Once begun it is finished also
    /// when nobody waits for it.
    pub async fn patch(&self, root: Arc<Root>, patch: Vec<u8>) -> Result<Vec<PatchedFile>> {
        let limits = Arc::clone(&self.limits);
        let patch: Arc<[u8]> = patch.into();
        let text = Arc::clone(&patch);
        let paths = self.workers.run(move || patch::names(&text)).await??;
        self.change(root, paths, move |root| patch::patch(root, &patch, &limits)).await
    }

    /// Removes what a crash of an executor before `started` left in a workspace, as far as `time` goes; returns how many
    /// files went.
    pub async fn sweep(&self, root: Arc<Root>, started: OffsetDateTime, time: Duration) -> Result<usize> {
        let started = (started.unix_timestamp(), started.nanosecond());
        self.workers.run(move || sweep::sweep(&root, started, Instant::now() + time)).await
    }

    /// Looks whether a file can be put at `path`.
    pub async fn look(&self, root: Arc<Root>, path: Vec<u8>) -> Result<Spot> {
        self.workers.run(move || put::look(&root, &path)).await?
    }

    /// Puts a file that was gathered elsewhere at `path`, creating its directories where they don't exist. A file that
    /// is there is replaced if `replaces`, else it stays. Once begun it is finished also when nobody waits for it.
    pub async fn put(
        &self,
        root: Arc<Root>,
        path: Vec<u8>,
        new: Gathered,
        replaces: bool,
    ) -> Result<WrittenFile> {
        let limits = Arc::clone(&self.limits);
        let paths = vec![path.clone()];
        self.change(root, paths, move |root| put::put(root, &path, &new, replaces, &limits)).await
    }

    /// Runs `work` with the jobs' rights to files.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        self.workers.run(work).await
    }

    /// Lists a directory tree, without following links.
    pub async fn list(&self, root: Arc<Root>, request: ListRequest) -> Result<Listing> {
        let limits = Arc::clone(&self.limits);
        self.workers.run(move || list::list(&root, &request, &limits)).await?
    }

    /// Searches the lines of a directory tree, without following links.
    pub async fn search(&self, root: Arc<Root>, request: SearchRequest) -> Result<SearchResult> {
        let limits = Arc::clone(&self.limits);
        self.workers.run(move || search::search(&root, &request, &limits)).await?
    }

    /// Runs `work` when it is its turn to change the files at `paths`.
    async fn change<T: Send + 'static>(
        &self,
        root: Arc<Root>,
        paths: Vec<Vec<u8>>,
        work: impl FnOnce(&Root) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let this = self.clone();
        let paths: Arc<[Vec<u8>]> = paths.into();
        // A task of its own: whoever waits may leave, the change goes on.
        let task = self.tasks.spawn(async move {
            let _presence = root.presence();
            this.change_in_turn(root, paths, work).await
        });
        task.await.map_err(|e| Error::internal("change a file", e))?
    }

    async fn change_in_turn<T: Send + 'static>(
        &self,
        root: Arc<Root>,
        paths: Arc<[Vec<u8>]>,
        mut work: impl FnOnce(&Root) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let mut attempts = ATTEMPTS;
        loop {
            let keys = {
                let (root, paths) = (Arc::clone(&root), Arc::clone(&paths));
                self.workers.run(move || keys_of(&root, &paths)).await??
            };
            // One after the other in one order for all, so that no two changes wait for each other.
            let mut turns = Vec::with_capacity(keys.len());
            for key in &keys {
                turns.push(self.queue.enter(key.clone()).await);
            }
            attempts -= 1;
            let (root, paths) = (Arc::clone(&root), Arc::clone(&paths));
            let outcome = self.workers.run(move || {
                // While it waited a path may have come to lead elsewhere, where others wait. One that never rests is
                // changed all the same: a change notices what others do to its file.
                if attempts > 0 && keys_of(&root, &paths)? != keys {
                    return Ok(Err(work));
                }
                work(&root).map(Ok)
            });
            match outcome.await?? {
                Ok(result) => return Ok(result),
                Err(back) => work = back,
            }
            drop(turns);
        }
    }
}

/// The keys of `paths`, each once, in the order in which their turns are waited for.
fn keys_of(root: &Root, paths: &[Vec<u8>]) -> Result<Vec<Key>> {
    let mut keys: Vec<Key> = paths.iter().map(|path| root.resolve(path)?.key()).collect::<Result<_>>()?;
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}
