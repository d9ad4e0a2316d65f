//! Searching many files side by side while their results come in order. One thread walks, others search; files are
//! handed over by the batch, and no batch runs far ahead of the first one that is not done. So memory is bounded, and
//! the search can stop as soon as the results at hand are enough.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::OsString,
    fs::File,
    ops::ControlFlow,
    os::fd::OwnedFd,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use grep_searcher::Searcher;
use rustix::{
    fs::{Mode, OFlags},
    io,
};

use super::{
    meta::{Kind, Meta},
    path::{FILE_FLAGS, open_beneath},
    search_file::{FileLines, Searching},
    walk::End,
};

/// Most threads that search.
const MAX_THREADS: usize = 8;
/// Files that are handed over at a time. Each may hold a directory open.
const BATCH_FILES: usize = 32;
/// Batches that may be under way for each thread.
const BATCHES_PER_THREAD: usize = 3;

/// A file to search.
pub(super) struct Task {
    /// The directory it is in.
    pub(super) directory: Arc<OwnedFd>,
    /// Its name there.
    pub(super) name: OsString,
    /// Its path below the start.
    pub(super) path: Vec<u8>,
}

/// Hands tasks over; breaks when no more are wanted.
pub(super) type Visit<'a> = dyn FnMut(Task) -> ControlFlow<()> + 'a;

/// Searches the files that `produce` hands over, and gives the results to `consume` in the same order until it breaks.
/// `produce` runs on this thread; the others have this one's rights to files, as threads have that are started by it.
pub(super) fn search_in_order(
    searching: &Searching,
    produce: impl FnOnce(&mut Visit<'_>) -> io::Result<End>,
    consume: &mut (dyn FnMut(FileLines) -> ControlFlow<()> + Send),
) -> io::Result<End> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let pool = Pool {
        state: Mutex::new(State {
            waiting: VecDeque::new(),
            made: 0,
            over: false,
            done: BTreeMap::new(),
            consumed: 0,
            stopped: false,
            consume,
        }),
        changed: Condvar::new(),
    };
    let end = thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| pool.search(searching));
        }
        let _guard = StopOnPanic(&pool);
        let mut batch = Vec::new();
        let end = produce(&mut |task| {
            batch.push(task);
            if batch.len() < BATCH_FILES {
                return ControlFlow::Continue(());
            }
            pool.hand_over(std::mem::take(&mut batch), threads * BATCHES_PER_THREAD)
        });
        let _: ControlFlow<()> = pool.hand_over(batch, threads * BATCHES_PER_THREAD);
        pool.lock().over = true;
        pool.changed.notify_all();
        end
    });
    if pool.lock().stopped { Ok(End::Stopped) } else { end }
}

struct Pool<'a> {
    state: Mutex<State<'a>>,
    /// Told whenever the state changes so that somebody may go on.
    changed: Condvar,
}

struct State<'a> {
    /// Batches that nobody searches yet, with their numbers.
    waiting: VecDeque<(usize, Vec<Task>)>,
    /// Batches handed over so far.
    made: usize,
    /// No batch will follow.
    over: bool,
    /// Results that wait for those of a batch before them.
    done: BTreeMap<usize, Vec<FileLines>>,
    /// Batches whose results were consumed.
    consumed: usize,
    /// Nobody wants more results.
    stopped: bool,
    consume: &'a mut (dyn FnMut(FileLines) -> ControlFlow<()> + Send),
}

impl<'a> Pool<'a> {
    fn lock(&self) -> MutexGuard<'_, State<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a batch to the threads that search, when fewer than `window` are under way.
    fn hand_over(&self, batch: Vec<Task>, window: usize) -> ControlFlow<()> {
        let full = |state: &mut State<'_>| !state.stopped && state.made - state.consumed >= window;
        let mut state = self.changed.wait_while(self.lock(), full).unwrap_or_else(PoisonError::into_inner);
        if state.stopped {
            return ControlFlow::Break(());
        }
        let number = state.made;
        state.made += 1;
        state.waiting.push_back((number, batch));
        drop(state);
        self.changed.notify_all();
        ControlFlow::Continue(())
    }

    /// Searches batches until there are no more.
    fn search(&self, searching: &Searching) {
        let _guard = StopOnPanic(self);
        let mut searcher = searching.searcher();
        loop {
            let idle = |state: &mut State<'_>| !state.stopped && !state.over && state.waiting.is_empty();
            let mut state =
                self.changed.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
            if state.stopped {
                return;
            }
            let Some((number, batch)) = state.waiting.pop_front() else {
                return;
            };
            drop(state);
            let found = batch.into_iter().map(|task| search_task(searching, &mut searcher, task)).collect();
            self.lock().finish(number, found);
            self.changed.notify_all();
        }
    }
}

/// Keeps a thread that panics from leaving the others waiting for it.
struct StopOnPanic<'a, 'b>(&'a Pool<'b>);

impl Drop for StopOnPanic<'_, '_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.lock().stopped = true;
            self.0.changed.notify_all();
        }
    }
}

impl State<'_> {
    /// Takes the results of a batch, and consumes those whose turn it is.
    fn finish(&mut self, number: usize, found: Vec<FileLines>) {
        self.done.insert(number, found);
        while let Some(next) = self.done.remove(&self.consumed) {
            self.consumed += 1;
            for file in next {
                if !self.stopped {
                    self.stopped = (self.consume)(file).is_break();
                }
            }
        }
    }
}

fn search_task(searching: &Searching, searcher: &mut Searcher, task: Task) -> FileLines {
    let Task { directory, name, path } = task;
    let opened = open_beneath(&directory, &*name, OFlags::RDONLY | FILE_FLAGS, Mode::empty());
    match opened.and_then(|file| Ok((Meta::of(&file)?, file))) {
        Ok((meta, file)) if meta.kind == Kind::File => searching.file(searcher, &File::from(file), path),
        _ => FileLines { path, unreadable: true, ..FileLines::default() },
    }
}
