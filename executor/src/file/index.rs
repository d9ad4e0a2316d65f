//! The names and facts of the files of a work directory at one moment, and what differs between two such moments. It
//! opens nothing but directories, and refuses to know what is done with the differences.

use std::{
    cmp::Ordering,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    ops::ControlFlow,
    time::{Duration, Instant},
};

use super::{
    follow::{Kept, Share, Uncounted},
    meta::{Kind, Meta},
    path::Root,
    walk::{End, Item, Walk},
};

/// Most bytes of the paths of a directory that is followed.
const MAX_PATH_BYTES: usize = 2 << 20;
/// Entries that are looked at between two looks at the clock.
const BETWEEN_CLOCKS: usize = 64;

/// Most names that are told of each kind of change.
pub const MOST_NAMES: usize = 200;

/// The files of a work directory, in the order of their paths' bytes. The inside of `.git` is not among them.
#[derive(Debug)]
pub(super) struct Index {
    paths: Vec<u8>,
    entries: Vec<Entry>,
    _share: Share,
}

/// A file, directory, link or other thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    /// Where its path ends in the paths; it starts where the one before ends.
    end: u32,
    kind: Kind,
    /// A hash of what tells whether it was changed, which takes a quarter of the memory of that.
    facts: u64,
}

/// What differs between two moments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Paths that came to be.
    pub created: Names,
    /// Files whose content or facts changed.
    pub changed: Names,
    /// Paths that are gone.
    pub deleted: Names,
}

/// Paths below the work directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// How many there are.
    pub count: u64,
    /// The first of them in the order of their bytes, at most [`MOST_NAMES`].
    pub first: Vec<Vec<u8>>,
}

impl Index {
    /// Looks at the work directory of `root` for so long, and at so many entries, at most. What this thread may not read
    /// is not seen.
    pub(super) fn read(root: &Root, kept: &Kept, most: usize, time: Duration) -> Result<Self, Uncounted> {
        let work = root.work_directory().map_err(|_| Uncounted::Unreadable)?;
        let deadline = Instant::now() + time;
        let walk = Walk {
            depth: usize::MAX,
            include_ignored: true,
            enter_git: false,
            from: Vec::new(),
            max_names: most,
            deadline,
        };
        let (mut paths, mut entries) = (Vec::new(), Vec::new());
        let mut visit = |item: Item<'_>| {
            let late = entries.len() % BETWEEN_CLOCKS == 0 && Instant::now() >= deadline;
            if late || entries.len() == most || paths.len() + item.path.len() > MAX_PATH_BYTES {
                return ControlFlow::Break(());
            }
            // What is gone by now is not there.
            if let Ok(meta) = Meta::at(item.directory, item.name) {
                paths.extend_from_slice(item.path);
                let end = u32::try_from(paths.len()).unwrap_or(u32::MAX);
                entries.push(Entry { end, kind: meta.kind, facts: facts(&meta) });
            }
            ControlFlow::Continue(())
        };
        let end = walk.run(root, &work, &[], &mut visit).map_err(|_| Uncounted::Unreadable)?;
        if end != End::Complete {
            return Err(if Instant::now() >= deadline { Uncounted::Slow } else { Uncounted::TooLarge });
        }
        paths.shrink_to_fit();
        entries.shrink_to_fit();
        let share = kept.take(paths.capacity() + entries.capacity() * size_of::<Entry>());
        Ok(Self { paths, entries, _share: share.ok_or(Uncounted::TooMany)? })
    }

    /// How many entries it has.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing differs between the two.
    pub(super) fn same(&self, other: &Self) -> bool {
        self.entries == other.entries && self.paths == other.paths
    }

    /// What differs in `now`.
    pub(super) fn changes(&self, now: &Self) -> Changes {
        let mut changes = Changes::default();
        let (mut old, mut new) = (self.iter().peekable(), now.iter().peekable());
        loop {
            let order = match (old.peek(), new.peek()) {
                (Some((before, _)), Some((after, _))) => before.cmp(after),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return changes,
            };
            let gone = if order.is_le() { old.next() } else { None };
            let come = if order.is_ge() { new.next() } else { None };
            match (gone, come) {
                (Some((path, before)), Some((_, after))) if before.kind == after.kind => {
                    if before.facts != after.facts {
                        changes.changed.push(path);
                    }
                }
                (gone, come) => {
                    gone.into_iter().for_each(|(path, _)| changes.deleted.push(path));
                    come.into_iter().for_each(|(path, _)| changes.created.push(path));
                }
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], Entry)> {
        let mut start = 0;
        self.entries.iter().map(move |&entry| {
            let end = usize::try_from(entry.end).unwrap_or(usize::MAX);
            let path = self.paths.get(start..end).unwrap_or_default();
            start = end;
            (path, entry)
        })
    }
}

impl Names {
    fn push(&mut self, path: &[u8]) {
        self.count += 1;
        if self.first.len() < MOST_NAMES {
            self.first.push(path.to_vec());
        }
    }
}

/// A directory changes with what is in it, which is told by itself; so nothing of it counts but that it is there.
fn facts(meta: &Meta) -> u64 {
    if meta.kind == Kind::Directory {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    (meta.device, meta.inode, meta.mode, meta.size, meta.modified, meta.changed).hash(&mut hasher);
    hasher.finish()
}
