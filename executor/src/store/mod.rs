//! Records in SQLite: one connection on a thread of its own, so that no caller waits for a disk on an async thread and
//! writes never compete. It knows rows, not what they mean.

mod blueprints;
pub mod columns;
mod ended;
mod jobs;
mod links;
mod migrations;
mod sandboxes;
mod snapshots;
mod terminals;
mod thread;
mod workspaces;

use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use thread::{Deliver, Message, Write};

pub use blueprints::BlueprintRow;
pub use ended::EndedRow;
pub use jobs::{JobEndRow, JobFilesRow, JobFilter, JobRow};
pub use links::LinkRow;
pub use sandboxes::SandboxRow;
pub use snapshots::SnapshotRow;
pub use terminals::TerminalRow;
pub use workspaces::WorkspaceRow;

use crate::error::{Error, Result};

/// Pages after which the write-ahead log is taken over into the file, which takes a sync: 32 MiB, some thousand jobs.
const CHECKPOINT_PAGES: u32 = 8192;

/// Calls that may wait for the thread; a further caller waits for a place.
const QUEUE: usize = 1024;

/// The records. Cloning it gives another handle to the same ones.
#[derive(Debug, Clone)]
pub struct Store {
    calls: mpsc::Sender<Message>,
    thread: Arc<Thread>,
}

#[derive(Debug)]
struct Thread(std::sync::Mutex<Option<std::thread::JoinHandle<()>>>);

/// How surely a write is on disk when its call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// Survives a crash of this program, and of the machine once the next checkpoint was made. For what the crash of the
    /// machine would end anyway, such as jobs.
    Process,
    /// Survives a power cut.
    Machine,
}

impl Durability {
    const fn level(self) -> &'static str {
        match self {
            Self::Process => "NORMAL",
            Self::Machine => "FULL",
        }
    }
}

impl Store {
    /// Whether whoever had the database last did not close it: its log is gone after a close, and only then.
    pub fn was_left_open(path: &Path) -> bool {
        path.with_extension("db-wal").exists()
    }

    /// Opens the database, checks it, and brings it to the present version.
    pub fn open(path: &Path) -> Result<Self> {
        let failed = |error: rusqlite::Error| {
            Error::internal(format!("opening the records {}", path.display()), error)
        };
        let mut connection = Connection::open(path).map_err(failed)?;
        // The data root has one executor; so the file is locked once and not for each transaction.
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE").map_err(failed)?;
        connection.pragma_update(None, "journal_mode", "WAL").map_err(failed)?;
        connection.pragma_update(None, "synchronous", Durability::Machine.level()).map_err(failed)?;
        connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES).map_err(failed)?;
        connection.pragma_update(None, "foreign_keys", "ON").map_err(failed)?;
        let sound: String =
            connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(failed)?;
        if sound != "ok" {
            return Err(Error::internal(
                format!("checking the records {}", path.display()),
                format!("the file is damaged ({sound}); move it away to start afresh, or restore a copy"),
            ));
        }
        migrations::run(&mut connection, path)?;
        let (calls, queue) = mpsc::channel::<Message>(QUEUE);
        let thread = std::thread::Builder::new()
            .name("runlet-records".to_owned())
            .spawn(move || thread::serve(connection, queue))
            .map_err(|error| Error::internal("starting the records' thread", error))?;
        Ok(Self { calls, thread: Arc::new(Thread(std::sync::Mutex::new(Some(thread)))) })
    }

    /// Closes the records once every call made so far is done. Further calls fail.
    pub async fn close(&self) {
        // A thread that is gone has closed them.
        let _closed = self.calls.send(Message::Close).await.is_err();
        let handle = self.thread.0.lock().ok().and_then(|mut slot| slot.take());
        if let Some(handle) = handle {
            let _joined = tokio::task::spawn_blocking(move || handle.join()).await;
        }
    }

    /// Runs `work` on the records' thread. Work that was queued is done even if the caller goes away.
    async fn call<T: Send + 'static>(
        &self,
        action: &'static str,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, result) = oneshot::channel();
        let call = Message::Call(Box::new(move |connection| {
            // The caller may be gone.
            let _unheard = answer.send(work(connection)).is_err();
        }));
        self.tell(action, call, result).await
    }

    /// As `call`, for a change, which is as sure as `durability` says when this returns.
    async fn write<T: Send + 'static>(
        &self,
        action: &'static str,
        durability: Durability,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, result) = oneshot::channel();
        let write: Write = Box::new(move |connection| {
            let outcome = work(connection);
            let worked = outcome.is_ok();
            let deliver: Deliver = Box::new(move |committed| {
                let _unheard = answer.send(outcome.and_then(|value| committed.map(|()| value))).is_err();
            });
            (worked, deliver)
        });
        self.tell(action, Message::Write(durability, write), result).await
    }

    async fn tell<T>(
        &self,
        action: &'static str,
        message: Message,
        result: oneshot::Receiver<rusqlite::Result<T>>,
    ) -> Result<T> {
        self.calls.send(message).await.map_err(|_| Error::ShuttingDown)?;
        match result.await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) if is_full(&error) => Err(Error::NoSpace { free_bytes: 0, reserve_bytes: 0 }),
            Ok(Err(error)) => Err(Error::internal(action, error)),
            Err(_) => Err(Error::ShuttingDown),
        }
    }
}

fn is_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull)
}

/// Whether an insert failed because a unique column has the value already.
pub(crate) fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::Internal { source, .. }
        if source.downcast_ref::<rusqlite::Error>().and_then(rusqlite::Error::sqlite_error_code)
            == Some(rusqlite::ErrorCode::ConstraintViolation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn records_that_were_closed_are_told_from_others() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runlet.db");
        assert!(!Store::was_left_open(&path));
        let store = Store::open(&path).unwrap();
        assert!(Store::was_left_open(&path));
        store.close().await;
        assert!(!Store::was_left_open(&path));
    }
}
