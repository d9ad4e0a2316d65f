//! Listing a directory tree. It looks at names and facts, and opens nothing but directories.

use std::{
    ffi::OsStr,
    ops::ControlFlow,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
    time::Instant,
};

use rustix::fs::readlinkat;

use super::{
    Limits,
    meta::{Kind, Meta},
    page::{Filter, Position, check_page_size},
    path::{Root, Target},
    walk::{End, Item, Walk},
};
use crate::error::{Error, PathProblem, Result};

/// Most entries on a page.
const MAX_PAGE_SIZE: usize = 5000;

/// What to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListRequest {
    /// The directory; empty for the work directory.
    pub path: Vec<u8>,
    /// Only paths that match; empty for all. A pattern without `/` matches the last part at any depth.
    pub glob: String,
    /// Levels to go down, from 1 on.
    pub depth: usize,
    /// Include hidden files and what `.gitignore` leaves out.
    pub include_ignored: bool,
    /// Entries on a page, 1 to 5000.
    pub page_size: usize,
    /// `next_page_token` of the page before; empty for the first.
    pub page_token: String,
}

/// A page of a listing, in the order of the paths' bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Absolute path of the directory, links resolved.
    pub path: PathBuf,
    /// The entries.
    pub entries: Vec<Entry>,
    /// Token of the next page; empty on the last.
    pub next_page_token: String,
    /// Whether the page stopped at a limit of names or time, or left out what lies too deep.
    pub incomplete: bool,
}

/// A file, directory, link or other thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Path as the tools take it: relative to the work directory, or absolute outside of it.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Size of a file in bytes, 0 for others.
    pub size_bytes: u64,
    /// Seconds since 1970 of the last change of its content.
    pub modified: i64,
    /// Permission bits.
    pub mode: u32,
    /// Target of a symbolic link; empty for others.
    pub link_target: Vec<u8>,
}

/// Lists what `request` asks for.
pub(super) fn list(root: &Root, request: &ListRequest, limits: &Limits) -> Result<Listing> {
    check_page_size(request.page_size, MAX_PAGE_SIZE)?;
    if request.depth == 0 {
        return Err(Error::invalid("depth", "is 0; expected at least 1"));
    }
    let filter = Filter::new(&request.glob)?;
    let after = Position::parse(&request.page_token)?;
    let place = root.resolve(if request.path.is_empty() { b"." } else { &request.path })?;
    let start = match &place.target {
        Target::Directory(directory) => directory,
        Target::Entry { .. } => return Err(place.problem(PathProblem::NotADirectory)),
        Target::Missing { .. } => return Err(place.problem(PathProblem::NotFound)),
    };
    let walk = Walk {
        depth: request.depth,
        include_ignored: request.include_ignored,
        enter_git: true,
        from: after.clone().map(|after| after.path).unwrap_or_default(),
        max_names: limits.list_names,
        deadline: Instant::now() + limits.list_time,
    };
    let mut entries = Vec::new();
    let mut visit = |item: Item<'_>| {
        if after.as_ref().is_some_and(|after| item.path == after.path) || !filter.matches(item.path) {
            return ControlFlow::Continue(());
        }
        if entries.len() == request.page_size {
            return ControlFlow::Break(());
        }
        // What is gone by now is not listed.
        entries.extend(entry(&item));
        ControlFlow::Continue(())
    };
    let names = names_below(root, &place.path);
    let end = walk.run(root, start, &names, &mut visit).map_err(|e| place.error("list", e))?;
    let next = match &end {
        End::Stopped => entries.last().map(|entry| entry.path.clone()),
        End::Limit(path) => Some(path.clone()),
        End::Complete | End::Incomplete => None,
    };
    let next_page_token = next.map(|path| Position { path, line: 0 }.token()).unwrap_or_default();
    let incomplete = matches!(end, End::Incomplete | End::Limit(_));
    for entry in &mut entries {
        let path = place.path.join(OsStr::from_bytes(&entry.path));
        entry.path = root.name_of(&path).into_os_string().into_vec();
    }
    Ok(Listing { path: place.path, entries, next_page_token, incomplete })
}

/// The names that lead from the root to `path`.
pub(super) fn names_below<'a>(root: &Root, path: &'a Path) -> Vec<&'a OsStr> {
    path.strip_prefix(root.path()).map(|below| below.iter().collect()).unwrap_or_default()
}

fn entry(item: &Item<'_>) -> Option<Entry> {
    let meta = Meta::at(item.directory, item.name).ok()?;
    let link_target = match meta.kind {
        Kind::Symlink => readlinkat(item.directory, item.name, Vec::new()).ok()?.into_bytes(),
        _ => Vec::new(),
    };
    Some(Entry {
        path: item.path.to_vec(),
        kind: meta.kind,
        size_bytes: if meta.kind == Kind::File { meta.size } else { 0 },
        modified: meta.modified.0,
        mode: meta.mode,
        link_target,
    })
}
