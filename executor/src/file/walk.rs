//! Walking a directory tree in the order of its paths' bytes. Each directory is opened in the one before it, which is
//! held open, and links are not followed: a tree that changes meanwhile can't lead out. It refuses to know what is
//! done with the entries.

use std::{
    ffi::OsStr,
    mem::MaybeUninit,
    ops::ControlFlow,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    sync::Arc,
    time::Instant,
};

use rustix::{
    fs::{FileType, Mode, OFlags, RawDir},
    io,
};

use super::{
    meta::{Kind, Meta},
    path::{Root, open_beneath},
    rules::{RuleFiles, Rules},
};

/// Deepest level walked, so that few directories are open at a time.
const MAX_DEPTH: usize = 128;
/// Size of the buffer for names.
const BUFFER_BYTES: usize = 32 * 1024;

/// What to walk.
pub(super) struct Walk {
    /// Levels to go down, from 1 on.
    pub(super) depth: usize,
    /// Whether to include what is hidden or left out by rules.
    pub(super) include_ignored: bool,
    /// Whether to go into directories named `.git`, where nothing else leaves them out.
    pub(super) enter_git: bool,
    /// Paths before this one are passed over.
    pub(super) from: Vec<u8>,
    /// Directories are opened until so many names were seen, …
    pub(super) max_names: usize,
    /// … or until this moment.
    pub(super) deadline: Instant,
}

/// An entry of the tree.
pub(super) struct Item<'a> {
    /// The directory it is in.
    pub(super) directory: &'a Arc<OwnedFd>,
    /// Its name there.
    pub(super) name: &'a OsStr,
    /// Its path below the start.
    pub(super) path: &'a [u8],
    /// What it is.
    pub(super) kind: Kind,
}

/// How a walk ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// All entries were visited.
    Complete,
    /// Something was left out for good: a directory too deep or with too many names.
    Incomplete,
    /// The limit was reached before this path was visited; a walk from there goes on.
    Limit(Vec<u8>),
    /// The visitor had enough.
    Stopped,
}

impl Walk {
    /// Visits the entries below the directory open as `start`, whose names from the root on are `names`. Fails where
    /// that can't be read; other directories that can't be read are passed over.
    pub(super) fn run(
        &self,
        root: &Root,
        start: &OwnedFd,
        names: &[&OsStr],
        visit: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> io::Result<End> {
        let mut tour = Tour { walk: self, path: Vec::new(), start: 0, seen: 0, incomplete: false };
        let above = tour.rules_above(root, names);
        for name in names {
            tour.path.extend_from_slice(name.as_bytes());
            tour.path.push(b'/');
        }
        tour.start = tour.path.len();
        let mut frames = vec![tour.open(start, OsStr::new("."), above.as_ref())?];
        loop {
            let depth = frames.len();
            let Some(frame) = frames.last_mut() else { break };
            let Some(next) = frame.names.next() else {
                frames.pop();
                continue;
            };
            tour.path.truncate(frame.prefix);
            tour.path.extend_from_slice(frame.names.bytes(&next));
            let below = &tour.path[tour.start..];
            if !next.enter {
                let name = OsStr::from_bytes(&tour.path[frame.prefix..]);
                let item = Item { directory: &frame.directory, name, path: below, kind: next.kind };
                if below >= &*self.from && visit(item).is_break() {
                    return Ok(End::Stopped);
                }
                continue;
            }
            match tour.entrance(depth) {
                Entrance::Open => {}
                Entrance::Skip => continue,
                Entrance::Limit => return Ok(End::Limit(tour.path[tour.start..].to_vec())),
            }
            let (directory, rules) = (Arc::clone(&frame.directory), frame.rules.clone());
            let name = OsStr::from_bytes(&tour.path[frame.prefix..tour.path.len() - 1]).to_owned();
            if let Ok(frame) = tour.open(&directory, &name, rules.as_ref()) {
                frames.push(frame);
            }
        }
        Ok(if tour.incomplete { End::Incomplete } else { End::Complete })
    }
}

/// A directory on the way.
struct Frame {
    directory: Arc<OwnedFd>,
    /// Length of its path, with a slash at its end.
    prefix: usize,
    names: Names,
    rules: Option<Arc<Rules>>,
}

/// What to do about a directory on the way.
enum Entrance {
    Open,
    Skip,
    Limit,
}

struct Tour<'a> {
    walk: &'a Walk,
    /// Path from the root on.
    path: Vec<u8>,
    /// Where in it the part below the start begins.
    start: usize,
    seen: usize,
    incomplete: bool,
}

impl Tour<'_> {
    /// Rules of the directories above the start.
    fn rules_above(&self, root: &Root, names: &[&OsStr]) -> Option<Arc<Rules>> {
        let (mut rules, mut prefix) = (None, 0);
        if self.walk.include_ignored {
            return rules;
        }
        for (depth, name) in names.iter().enumerate() {
            if let Ok(directory) = root.directory(names[..depth].iter().copied()) {
                rules = Rules::read(rules.as_ref(), &directory, prefix, RuleFiles::of(&directory));
            }
            prefix += name.len() + 1;
        }
        rules
    }

    /// Whether to open the directory whose path, with a slash at its end, is the present one.
    fn entrance(&mut self, depth: usize) -> Entrance {
        let (walk, below) = (self.walk, &self.path[self.start..]);
        // Those that lead to where the walk goes on were counted when it came there.
        let leads_to_from = walk.from.starts_with(below);
        let is_git = below == b".git/" || below.ends_with(b"/.git/");
        if (below < &*walk.from && !leads_to_from) || (is_git && !walk.enter_git) {
            Entrance::Skip
        } else if depth >= walk.depth.min(MAX_DEPTH) {
            self.incomplete |= walk.depth > MAX_DEPTH;
            Entrance::Skip
        } else if !leads_to_from && (self.seen >= walk.max_names || Instant::now() >= walk.deadline) {
            Entrance::Limit
        } else {
            Entrance::Open
        }
    }

    /// Opens directory `name`, whose path is the present one, and reads its names.
    fn open(&mut self, within: &OwnedFd, name: &OsStr, above: Option<&Arc<Rules>>) -> io::Result<Frame> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let directory = open_beneath(within, name, flags, Mode::empty())?;
        let (mut names, files) = self.read_names(&directory)?;
        let prefix = self.path.len();
        let mut rules = None;
        if !self.walk.include_ignored {
            rules = Rules::read(above, &directory, prefix, files);
            let path = &mut self.path;
            names.spans.retain(|span| {
                let name = &names.bytes[span.start..span.name_end];
                path.truncate(prefix);
                path.extend_from_slice(name);
                !Rules::leave_out(rules.as_ref(), path, name, span.kind)
            });
        }
        names.sort();
        Ok(Frame { directory: Arc::new(directory), prefix, names, rules })
    }

    fn read_names(&mut self, directory: &OwnedFd) -> io::Result<(Names, RuleFiles)> {
        let mut buffer = [const { MaybeUninit::uninit() }; BUFFER_BYTES];
        let mut entries = RawDir::new(directory, &mut buffer);
        let (mut names, mut files, mut count) = (Names::default(), RuleFiles::default(), 0);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if count == self.walk.max_names {
                self.incomplete = true;
                break;
            }
            count += 1;
            let kind = match entry.file_type() {
                FileType::Unknown => match Meta::at(directory, entry.file_name()) {
                    Ok(meta) => meta.kind,
                    Err(_) => continue,
                },
                kind => kind.into(),
            };
            files.note(name);
            names.push(name, kind);
        }
        self.seen += count;
        Ok((names, files))
    }
}

/// The names in a directory. A directory stands in it twice: as an entry, and with a slash at its end, to be entered
/// where its content belongs in the order of paths.
#[derive(Default)]
struct Names {
    bytes: Vec<u8>,
    spans: Vec<NameSpan>,
    /// How many were handed out.
    next: usize,
}

#[derive(Clone)]
struct NameSpan {
    start: usize,
    name_end: usize,
    kind: Kind,
    enter: bool,
}

impl Names {
    fn push(&mut self, name: &[u8], kind: Kind) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(name);
        let span = NameSpan { start, name_end: self.bytes.len(), kind, enter: false };
        self.spans.push(span.clone());
        if kind == Kind::Directory {
            self.bytes.push(b'/');
            self.spans.push(NameSpan { enter: true, ..span });
        }
    }

    fn sort(&mut self) {
        let mut spans = std::mem::take(&mut self.spans);
        spans.sort_unstable_by(|a, b| self.bytes(a).cmp(self.bytes(b)));
        self.spans = spans;
    }

    fn bytes(&self, span: &NameSpan) -> &[u8] {
        &self.bytes[span.start..span.name_end + usize::from(span.enter)]
    }

    fn next(&mut self) -> Option<NameSpan> {
        self.next += 1;
        self.spans.get(self.next - 1).cloned()
    }
}
