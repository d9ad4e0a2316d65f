//! The order of changes: whoever changes a file waits for those who came before. It refuses to know what they do.

use std::{
    collections::HashMap,
    ffi::OsString,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::OwnedMutexGuard;

/// What makes two changes changes of one file.
///
/// A file is known by its directory and its name there, links resolved: that stays the same when the file is created
/// or replaced, which gives it another inode. A file with several names is known by its inode: it is written in place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Key {
    /// A name in a directory.
    Name {
        /// File system of the directory.
        device: (u32, u32),
        /// Inode of the directory.
        directory: u64,
        /// The name; with those of missing directories before it.
        name: OsString,
    },
    /// A file with several names.
    Inode {
        /// Its file system.
        device: (u32, u32),
        /// Its inode.
        inode: u64,
    },
}

type Line = Arc<tokio::sync::Mutex<()>>;

/// A waiting line for each file that is being changed. It forgets a line when nobody stands in it.
#[derive(Debug, Default)]
pub(super) struct Queue {
    lines: Mutex<HashMap<Key, Line>>,
}

/// The right to change a file, until dropped.
#[derive(Debug)]
pub(super) struct Turn {
    queue: Arc<Queue>,
    key: Key,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Queue {
    /// Waits in the line of `key`, first come first served.
    pub(super) async fn enter(self: &Arc<Self>, key: Key) -> Turn {
        let line = {
            let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(lines.entry(key.clone()).or_default())
        };
        // Made before waiting, so that a line is forgotten also when the waiting is given up.
        let mut turn = Turn { queue: Arc::clone(self), key, guard: None };
        turn.guard = Some(line.lock_owned().await);
        turn
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.lines.lock().unwrap().is_empty()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut lines = self.queue.lines.lock().unwrap_or_else(PoisonError::into_inner);
        self.guard = None;
        // New holders are made under the lock held here, so that a count of one means: nobody but the map.
        if lines.get(&self.key).is_some_and(|line| Arc::strong_count(line) == 1) {
            lines.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(inode: u64) -> Key {
        Key::Inode { device: (0, 0), inode }
    }

    #[tokio::test]
    async fn one_at_a_time_in_order_of_arrival_and_nothing_is_kept() {
        let queue = Arc::new(Queue::default());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let first = queue.enter(key(1)).await;
        let mut tasks = Vec::new();
        for number in 0..10 {
            let (queue, seen) = (Arc::clone(&queue), Arc::clone(&seen));
            tasks.push(tokio::spawn(async move {
                let turn = queue.enter(key(1)).await;
                seen.lock().unwrap().push(number);
                drop(turn);
            }));
            tokio::task::yield_now().await;
        }
        drop(queue.enter(key(2)).await);
        assert!(seen.lock().unwrap().is_empty());
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*seen.lock().unwrap(), (0..10).collect::<Vec<_>>());
        assert!(queue.is_empty());
    }

    #[tokio::test]
    async fn who_gives_up_waiting_leaves_nothing_behind() {
        let queue = Arc::new(Queue::default());
        let first = queue.enter(key(1)).await;
        let waiting = tokio::spawn({
            let queue = Arc::clone(&queue);
            async move { drop(queue.enter(key(1)).await) }
        });
        tokio::task::yield_now().await;
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        drop(first);
        assert!(queue.is_empty());
    }
}
