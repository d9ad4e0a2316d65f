//! What running a command takes, for jobs and terminals alike; and the places for those that live, of which there are so
//! many.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::task::TaskTracker;

use crate::error::{Error, Result};
use crate::file::Files;
use crate::output::Caps;
use crate::process::cgroup::Memory;
use crate::process::identity::Identity;
use crate::process::spawn::Spawner;
use crate::store::Store;

/// What jobs and terminals are made of.
#[derive(Debug, Clone)]
pub struct Resources {
    /// The records.
    pub store: Store,
    /// Starts processes.
    pub spawner: Arc<Spawner>,
    /// Where the kernel tells of want of memory of commands outside of sandboxes.
    pub memory: Arc<Memory>,
    /// Opens the directories that commands start in.
    pub files: Files,
    /// Who commands run as.
    pub identity: Identity,
    /// Where commands find programs.
    pub search_path: Vec<PathBuf>,
    /// Directory of the logs.
    pub logs: PathBuf,
    /// How much of a log is kept.
    pub caps: Caps,
    /// How many may live at once.
    pub places: Arc<Places>,
    /// Where work that outlives its caller is tracked.
    pub tasks: TaskTracker,
}

/// Places for jobs and terminals that live.
#[derive(Debug)]
pub struct Places {
    limit: usize,
    /// Ids of those that live, oldest first.
    taken: Mutex<Vec<String>>,
}

impl Places {
    /// So many.
    pub fn new(limit: usize) -> Self {
        Self { limit, taken: Mutex::default() }
    }

    /// Takes a place. Fails with [`Error::TooManyJobs`] when there is none.
    pub fn take(&self, id: &str) -> Result<()> {
        let mut taken = self.lock();
        if taken.len() >= self.limit {
            let oldest_id = taken.first().cloned().unwrap_or_default();
            return Err(Error::TooManyJobs { limit: self.limit, oldest_id });
        }
        taken.push(id.to_owned());
        Ok(())
    }

    /// Gives a place back.
    pub fn give_back(&self, id: &str) {
        self.lock().retain(|holder| holder != id);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
