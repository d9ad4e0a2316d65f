//! The thread that has the connection. Writes that wait at the same time are committed together, so that a crowd of
//! jobs costs a commit each time the thread looks, and not two for each job.

use rusqlite::{Connection, ffi};
use tokio::sync::mpsc;

use super::Durability;

/// Writes committed together at most, so that the first one does not wait for long.
const BATCH: usize = 64;

/// A call that only reads, or sees to its transaction itself.
pub(super) type Call = Box<dyn FnOnce(&mut Connection) + Send>;

/// A change. It runs within a transaction and returns what delivers its outcome once that is committed, and whether it
/// worked.
pub(super) type Write = Box<dyn FnOnce(&Connection) -> (bool, Deliver) + Send>;

/// Delivers a change's outcome, given that of the commit.
pub(super) type Deliver = Box<dyn FnOnce(rusqlite::Result<()>)>;

/// What the thread is told.
pub(super) enum Message {
    Call(Call),
    Write(Durability, Write),
    Close,
}

/// Serves until it is told to close, or nobody can tell it any more.
pub(super) fn serve(connection: Connection, mut queue: mpsc::Receiver<Message>) {
    let mut database = Database { connection, durability: Durability::Machine };
    let mut next = None;
    while let Some(message) = next.take().or_else(|| queue.blocking_recv()) {
        match message {
            Message::Call(call) => call(&mut database.connection),
            Message::Write(durability, write) => {
                let mut batch = vec![write];
                let mut most = durability;
                while batch.len() < BATCH && next.is_none() {
                    match queue.try_recv() {
                        Ok(Message::Write(durability, write)) => {
                            batch.push(write);
                            most = most.max(durability);
                        }
                        Ok(other) => next = Some(other),
                        Err(_) => break,
                    }
                }
                database.commit(batch, most);
            }
            Message::Close => return,
        }
    }
}

/// The connection, and the durability it is set to.
struct Database {
    connection: Connection,
    durability: Durability,
}

impl Database {
    fn commit(&mut self, batch: Vec<Write>, durability: Durability) {
        let mut deliveries = Vec::with_capacity(batch.len());
        let committed = self.transact(batch, durability, &mut deliveries);
        let failure = committed.err().map(|error| {
            let code = error.sqlite_error().copied().unwrap_or(ffi::Error::new(ffi::SQLITE_ERROR));
            (code, error.to_string())
        });
        for deliver in deliveries {
            deliver(match &failure {
                None => Ok(()),
                Some((code, text)) => Err(rusqlite::Error::SqliteFailure(*code, Some(text.clone()))),
            });
        }
    }

    /// Runs the changes in one transaction; one that fails takes back what it did itself, and nothing of the others.
    /// A change that is dropped without having run tells its caller that the records are closed.
    fn transact(
        &mut self,
        batch: Vec<Write>,
        durability: Durability,
        deliveries: &mut Vec<Deliver>,
    ) -> rusqlite::Result<()> {
        if self.durability != durability {
            self.connection.pragma_update(None, "synchronous", durability.level())?;
            self.durability = durability;
        }
        let alone = batch.len() == 1;
        let mut transaction = self.connection.transaction()?;
        for write in batch {
            if alone {
                let (worked, deliver) = write(&transaction);
                deliveries.push(deliver);
                if !worked {
                    return transaction.rollback();
                }
            } else {
                let savepoint = transaction.savepoint()?;
                let (worked, deliver) = write(&savepoint);
                deliveries.push(deliver);
                // A savepoint that is dropped is rolled back.
                if worked {
                    savepoint.commit()?;
                }
            }
        }
        transaction.commit()
    }
}
