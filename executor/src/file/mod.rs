//! The files of a workspace: reading, writing, editing, listing and searching them. Paths and contents are bytes. It
//! owns where a path leads, the order of changes to one file, and how a change gets to the disk; it refuses to know who
//! asks and in what form the answers travel.

mod attributes;
mod condition;
mod diff;
mod edit;
mod hint;
mod list;
mod matching;
mod meta;
mod page;
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
mod temp;
mod walk;
mod write;

#[cfg(test)]
mod edit_tests;
#[cfg(test)]
mod fixture;
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

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio_util::task::TaskTracker;

pub use self::{
    condition::IfMatch,
    edit::{Edit, EditedFile},
    list::{Entry, ListRequest, Listing},
    meta::Kind,
    path::Root,
    put::{Gathered, Spot},
    read::{LineEnding, Range, ReadFile},
    search::{FoundLine, SearchRequest, SearchResult},
    write::{WriteOptions, WrittenFile},
};
/// For archives, which walk trees in a way of their own.
pub(crate) use self::{
    meta::Meta,
    path::{FILE_FLAGS, Place, Target, open_beneath, open_file},
    show::show,
};
use self::{path::ATTEMPTS, queue::Queue};
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
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_bytes: 16 * 1024 * 1024,
            reserve_bytes: 256 * 1024 * 1024,
            list_names: 200_000,
            list_time: Duration::from_secs(5),
            search_time: Duration::from_secs(10),
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
}

impl Files {
    /// File tools on `workers`, within `limits`. Changes that outlive their caller are tracked among `tasks`.
    pub fn new(workers: Workers, limits: Limits, tasks: TaskTracker) -> Self {
        Self { workers, tasks, queue: Arc::default(), limits: Arc::new(limits) }
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
        self.change(root, path, move |root, path| write::write(root, path, &content, &options, &limits)).await
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
        self.change(root, path, move |root, path| edit::edit(root, path, &edits, &if_match, &limits)).await
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
        self.change(root, path, move |root, path| put::put(root, path, &new, replaces, &limits)).await
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

    /// Runs `work` when it is its turn to change the file at `path`.
    async fn change<T: Send + 'static>(
        &self,
        root: Arc<Root>,
        path: Vec<u8>,
        work: impl FnOnce(&Root, &[u8]) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let this = self.clone();
        let path: Arc<[u8]> = path.into();
        // A task of its own: whoever waits may leave, the change goes on.
        let task = self.tasks.spawn(async move { this.change_in_turn(root, path, work).await });
        task.await.map_err(|e| Error::internal("change a file", e))?
    }

    async fn change_in_turn<T: Send + 'static>(
        &self,
        root: Arc<Root>,
        path: Arc<[u8]>,
        mut work: impl FnOnce(&Root, &[u8]) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let mut attempts = ATTEMPTS;
        loop {
            let key = {
                let (root, path) = (Arc::clone(&root), Arc::clone(&path));
                self.workers.run(move || root.resolve(&path)?.key()).await??
            };
            let turn = self.queue.enter(key.clone()).await;
            attempts -= 1;
            let (root, path) = (Arc::clone(&root), Arc::clone(&path));
            let outcome = self.workers.run(move || {
                // While it waited the path may have come to lead elsewhere, where others wait. One that never rests is
                // changed all the same: a change notices what others do to its file.
                if attempts > 0 && root.resolve(&path)?.key()? != key {
                    return Ok(Err(work));
                }
                work(&root, &path).map(Ok)
            });
            match outcome.await?? {
                Ok(result) => return Ok(result),
                Err(back) => work = back,
            }
            drop(turn);
        }
    }
}
