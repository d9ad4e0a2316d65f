//! Following the files of a work directory: what they were when somebody last looked, and whether anything may have
//! changed them since, so that most looks need not be repeated. Whoever lives in a workspace, or changes a file of it,
//! holds a [`Presence`] meanwhile.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use super::{
    Files,
    index::{Changes, Index},
    path::Root,
};

/// How long a look before something begins may take, which is waited for; and with the wait for its turn.
const BASE_TIME: Duration = Duration::from_millis(50);
const BASE_LIMIT: Duration = Duration::from_millis(250);
/// How long a look after something ended may take; and with the wait for its turn.
const CHANGES_TIME: Duration = Duration::from_millis(250);
const CHANGES_LIMIT: Duration = Duration::from_secs(1);
/// A directory that could not be followed is looked at again when that was so long ago, and nobody waits for it.
const RETRY_AFTER: Duration = Duration::from_secs(30);
/// How long what was seen is kept while nobody asks for it.
const IDLE: Duration = Duration::from_secs(600);
/// Bytes that all that was seen may take together.
const MOST_BYTES: usize = 64 << 20;
/// Entries that are looked at within a millisecond or two.
const FEW: usize = 500;

/// Why changes are not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uncounted {
    /// There is too much to look at.
    TooLarge,
    /// Looking at it takes too long.
    Slow,
    /// The work directory can't be read.
    Unreadable,
    /// What is kept of all directories takes the memory that it may.
    TooMany,
    /// Others were looking all the time.
    Busy,
}

impl fmt::Display for Uncounted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::TooLarge => "not followed: the work directory holds more than 20,000 files",
            Self::Slow => "not followed: looking through the work directory takes too long",
            Self::Unreadable => "not followed: the work directory can't be read",
            Self::TooMany => "not followed: too many files are followed at once",
            Self::Busy => "not counted: the machine was too busy",
        })
    }
}

/// What a workspace's files were when something began; or why that is not known.
#[derive(Debug, Clone)]
pub struct Base(Result<Arc<Index>, Uncounted>);

impl Base {
    /// Whether what has changed since can be told at once, because there are few files or because it can't be told.
    pub fn settles_soon(&self) -> bool {
        self.0.as_ref().is_ok_and(|index| index.len() <= FEW) || self.0.is_err()
    }
}

/// Something that may change the files of a workspace while this is held.
#[derive(Debug)]
pub struct Presence(Arc<Root>);

impl Presence {
    pub(super) fn new(root: Arc<Root>) -> Self {
        root.followed.lock().present += 1;
        Self(root)
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let mut state = self.0.followed.lock();
        state.present -= 1;
        state.departed += 1;
    }
}

/// What is known of a workspace's files.
#[derive(Debug, Default)]
pub(super) struct Followed {
    state: Mutex<State>,
    /// Held across a look, which is its purpose: those who wait for it share the next one.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// Presences held.
    present: u32,
    /// Presences given up so far.
    departed: u64,
    /// Looks begun so far.
    begun: u64,
    last: Option<Look>,
}

/// What was seen.
#[derive(Debug)]
struct Look {
    found: Result<Arc<Index>, Uncounted>,
    /// As long as so many have departed and nobody is present, it is as it was; `None` where somebody was.
    holds_for: Option<u64>,
    used: Instant,
}

impl Followed {
    /// How often it was looked at.
    #[cfg(test)]
    pub(super) fn looks(&self) -> u64 {
        self.lock().begun
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// What the files are now, if nothing can have changed them since they were seen; `idle` of those present do not
    /// change anything yet. What could not be followed is not tried again here.
    fn known(&mut self, idle: u32) -> Option<Result<Arc<Index>, Uncounted>> {
        let quiet = self.present == idle;
        let departed = self.departed;
        let last = self.last.as_mut()?;
        if last.found.is_ok() && !(quiet && last.holds_for == Some(departed)) {
            return None;
        }
        if last.found.is_ok() {
            last.used = Instant::now();
        }
        Some(last.found.clone())
    }

    fn is_due(&self) -> bool {
        self.last.as_ref().is_none_or(|last| last.used.elapsed() >= RETRY_AFTER)
    }
}

/// The memory that all looks share.
#[derive(Debug, Default)]
pub(super) struct Kept {
    bytes: Arc<AtomicUsize>,
    roots: Mutex<Vec<Weak<Root>>>,
}

/// A part of that memory.
#[derive(Debug)]
pub(super) struct Share {
    bytes: usize,
    of: Arc<AtomicUsize>,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Kept {
    /// So many bytes, if need be at the cost of what is kept for later; `None` where jobs that run hold the rest.
    pub(super) fn take(&self, bytes: usize) -> Option<Share> {
        let fits = |taken: usize| (taken + bytes <= MOST_BYTES).then_some(taken + bytes);
        let take = || self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if !take() {
            self.forget(Duration::ZERO);
            if !take() {
                return None;
            }
        }
        Some(Share { bytes, of: Arc::clone(&self.bytes) })
    }

    fn add(&self, root: &Arc<Root>) {
        let mut roots = self.lock();
        if !roots.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(root))) {
            roots.push(Arc::downgrade(root));
        }
    }

    /// Forgets what nobody has asked for in that time.
    fn forget(&self, idle: Duration) {
        self.lock().retain(|root| {
            let Some(root) = root.upgrade() else { return false };
            let mut state = root.followed.lock();
            let old =
                state.last.as_ref().is_none_or(|last| last.found.is_ok() && last.used.elapsed() >= idle);
            if old {
                state.last = None;
            }
            !old
        });
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Root>>> {
        self.roots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files {
    /// What the files of a work directory are before something begins that changes them. `idle` presences are held by
    /// whoever asks and change nothing until they have the answer.
    pub async fn base(&self, root: &Arc<Root>, idle: u32) -> Base {
        let known = root.followed.lock().known(idle);
        if let Some(found) = known {
            return Base(found);
        }
        let look = tokio::time::timeout(BASE_LIMIT, self.look_through(root, Some(idle)));
        Base(look.await.unwrap_or(Err(Uncounted::Busy)))
    }

    /// What has changed in a work directory since. Changes of others are among them.
    pub async fn changes(self, root: Arc<Root>, base: Base) -> Result<Changes, Uncounted> {
        let before = match base.0 {
            Ok(before) => before,
            Err(why) => {
                if root.followed.lock().is_due() {
                    let this = self.clone();
                    self.tasks.spawn(async move { drop(this.look_through(&root, None).await) });
                }
                return Err(why);
            }
        };
        let look = tokio::time::timeout(CHANGES_LIMIT, self.look_through(&root, None));
        let now = look.await.unwrap_or(Err(Uncounted::Busy))?;
        Ok(if Arc::ptr_eq(&before, &now) { Changes::default() } else { before.changes(&now) })
    }

    /// Forgets the files of workspaces that nobody has asked for in a while.
    pub fn forget_idle(&self) {
        self.kept.forget(IDLE);
    }

    /// Looks at a work directory, or shares a look that begins later than this call. What is known by then is taken for
    /// a beginner, of whom `idle` are present.
    async fn look_through(&self, root: &Arc<Root>, idle: Option<u32>) -> Result<Arc<Index>, Uncounted> {
        let earlier = root.followed.lock().begun;
        let _turn = root.followed.turn.lock().await;
        let (quiet, departed) = {
            let mut state = root.followed.lock();
            if state.begun > earlier
                && let Some(last) = &state.last
            {
                return last.found.clone();
            }
            if let Some(found) = idle.and_then(|idle| state.known(idle)) {
                return found;
            }
            state.begun += 1;
            (state.present == idle.unwrap_or(0), state.departed)
        };
        let (its, kept, most) = (Arc::clone(root), Arc::clone(&self.kept), self.limits.followed_names);
        let time = if idle.is_some() { BASE_TIME } else { CHANGES_TIME };
        let found = self.workers.run(move || Index::read(&its, &kept, most, time)).await;
        let mut found = found.unwrap_or(Err(Uncounted::Busy)).map(Arc::new);
        let mut state = root.followed.lock();
        // A longer look, for which nobody waits, may still see it all.
        if idle.is_some() && matches!(found, Err(Uncounted::Slow)) {
            return found;
        }
        // The same twice takes memory once.
        if let (Ok(now), Some(Look { found: Ok(before), .. })) = (&found, &state.last)
            && before.same(now)
        {
            found = Ok(Arc::clone(before));
        }
        let holds_for = quiet.then_some(departed);
        state.last = Some(Look { found: found.clone(), holds_for, used: Instant::now() });
        drop(state);
        self.kept.add(root);
        found
    }
}
