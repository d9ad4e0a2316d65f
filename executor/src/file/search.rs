//! Searching the lines of a directory tree: what is asked for, and how a page is put together from what the files
//! hold. How files are searched side by side is decided in `search_pool`, how one is searched in `search_file`.

use std::{
    ffi::OsStr,
    ops::ControlFlow,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::PathBuf,
    sync::Arc,
    time::Instant,
};

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use rustix::io;

use super::{
    Limits,
    list::names_below,
    meta::Kind,
    page::{Filter, Position, check_page_size},
    path::{Place, Root, Target},
    search_file::{FileLines, Line, Searching},
    search_pool::{Task, Visit, search_in_order},
    walk::{End, Item, Walk},
};
use crate::error::{Error, PathProblem, Result};

/// Most matching lines on a page.
const MAX_PAGE_SIZE: usize = 1000;
/// Most lines of context.
const MAX_CONTEXT: usize = 10;
/// A page ends when its lines have so many bytes.
const MAX_PAGE_BYTES: usize = 1024 * 1024;

/// What to search for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchRequest {
    /// Regular expression in the syntax of Rust's regex crate, or text when `literal`.
    pub pattern: String,
    /// File or directory; empty for the work directory.
    pub path: Vec<u8>,
    /// Only paths that match; empty for all. A pattern without `/` matches the last part at any depth.
    pub glob: String,
    /// Take the pattern as text.
    pub literal: bool,
    /// Take upper and lower case as the same.
    pub ignore_case: bool,
    /// Lines to show before and after a match, 0 to 10.
    pub context: usize,
    /// Matching lines on a page, 1 to 1000.
    pub page_size: usize,
    /// `next_page_token` of the page before; empty for the first.
    pub page_token: String,
}

/// A page of lines, in the order of the paths' bytes and of lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchResult {
    /// The matching lines, and those around them.
    pub lines: Vec<FoundLine>,
    /// Token of the next page; empty on the last.
    pub next_page_token: String,
    /// Files that were searched for this page.
    pub searched_files: u64,
    /// Files that were passed over because they are binary, or have a line that is too long to be text.
    pub binary_files: u64,
    /// Whether the search stopped at its limit of time or names, or left out what lies too deep.
    pub incomplete: bool,
}

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundLine {
    /// Path relative to the work directory, or absolute outside of it. Lines of one file share it.
    pub path: Arc<PathBuf>,
    /// Number of the line, from 1 on.
    pub number: u64,
    /// Its text without the line end, cut at 1,000 characters.
    pub text: String,
    /// True for a match, false for context.
    pub is_match: bool,
}

/// Searches what `request` asks for. Files that can't be read are passed over.
pub(super) fn search(root: &Root, request: &SearchRequest, limits: &Limits) -> Result<SearchResult> {
    check_page_size(request.page_size, MAX_PAGE_SIZE)?;
    if request.context > MAX_CONTEXT {
        return Err(Error::invalid(
            "context",
            format!("is {}; expected 0 to {MAX_CONTEXT}", request.context),
        ));
    }
    let filter = Filter::new(&request.glob)?;
    let after = Position::parse(&request.page_token)?;
    let searching = Searching {
        matcher: matcher(request)?,
        context: request.context,
        max_matches: request.page_size,
        max_bytes: MAX_PAGE_BYTES,
        after: after.clone().unwrap_or_default(),
        deadline: Instant::now() + limits.search_time,
    };
    let place = root.resolve(if request.path.is_empty() { b"." } else { &request.path })?;
    let mut page = Page::new(root, &place, request);
    let end = match &place.target {
        Target::Missing { .. } => return Err(place.problem(PathProblem::NotFound)),
        Target::Entry { meta, .. } if meta.kind != Kind::File => {
            return Err(place.problem(PathProblem::NotARegularFile));
        }
        Target::Entry { .. } => search_one(&place, &searching, &mut page)?,
        Target::Directory(directory) => search_tree(&place, directory, &filter, &searching, &mut page)
            .map_err(|e| place.error("search", e))?,
    };
    Ok(page.finish(end, after))
}

fn matcher(request: &SearchRequest) -> Result<RegexMatcher> {
    if request.pattern.is_empty() {
        return Err(Error::invalid("pattern", "is empty; expected what to search for"));
    }
    if request.literal && request.pattern.contains('\n') {
        return Err(Error::invalid("pattern", "has a line break; lines are searched one by one"));
    }
    let built = RegexMatcherBuilder::new()
        .case_insensitive(request.ignore_case)
        .fixed_strings(request.literal)
        .multi_line(true)
        .crlf(true)
        .build(&request.pattern);
    built.map_err(|e| {
        // The matcher wraps the pattern before it parses it, so its positions are off; the parser's own are not.
        let problem = match regex::bytes::Regex::new(&request.pattern) {
            Err(syntax) if !request.literal => syntax.to_string(),
            _ => e.to_string(),
        };
        Error::invalid("pattern", problem)
    })
}

fn search_one(place: &Place, searching: &Searching, page: &mut Page<'_>) -> Result<End> {
    let Some((file, _)) = place.open()? else {
        return Err(place.problem(PathProblem::NotFound));
    };
    let found = searching.file(&mut searching.searcher(), &file, Vec::new());
    Ok(if page.add(found).is_break() { End::Stopped } else { End::Complete })
}

fn search_tree(
    place: &Place,
    directory: &OwnedFd,
    filter: &Filter,
    searching: &Searching,
    page: &mut Page<'_>,
) -> io::Result<End> {
    let walk = Walk {
        depth: usize::MAX,
        include_ignored: false,
        enter_git: true,
        from: searching.after.path.clone(),
        max_names: usize::MAX,
        deadline: searching.deadline,
    };
    let root = page.root;
    let names = names_below(root, &place.path);
    let produce = |hand_over: &mut Visit<'_>| {
        walk.run(root, directory, &names, &mut |item: Item<'_>| {
            if item.kind != Kind::File || !filter.matches(item.path) {
                return ControlFlow::Continue(());
            }
            let Item { directory, name, path, .. } = item;
            hand_over(Task { directory: Arc::clone(directory), name: name.to_owned(), path: path.to_vec() })
        })
    };
    search_in_order(searching, produce, &mut |file| page.add(file))
}

/// A page in the making. Files come to it in order.
struct Page<'a> {
    request: &'a SearchRequest,
    root: &'a Root,
    /// Where the search started.
    start: PathBuf,
    result: SearchResult,
    matches: usize,
    bytes: usize,
    /// The last match on it, or the last file that was searched to its end without reaching the limit of time.
    last: Option<Position>,
    full: bool,
}

impl<'a> Page<'a> {
    fn new(root: &'a Root, place: &Place, request: &'a SearchRequest) -> Self {
        let (start, result) = (place.path.clone(), SearchResult::default());
        Self { request, root, start, result, matches: 0, bytes: 0, last: None, full: false }
    }

    /// Adds what a file holds. Breaks when the page is over.
    fn add(&mut self, file: FileLines) -> ControlFlow<()> {
        self.result.searched_files += u64::from(!file.unreadable && !file.binary);
        self.result.binary_files += u64::from(file.binary);
        let path = match file.path.as_slice() {
            [] => self.start.clone(),
            below => self.start.join(OsStr::from_bytes(below)),
        };
        let path = Arc::new(self.root.name_of(&path));
        let mut before = Vec::new();
        let mut last_line = None;
        for line in file.lines {
            let Line { number, text, is_match } = line;
            let near = last_line.is_some_and(|last: u64| number - last <= to_u64(self.request.context));
            let line = FoundLine { path: Arc::clone(&path), number, text, is_match };
            if is_match {
                if self.matches >= self.request.page_size || self.bytes >= MAX_PAGE_BYTES {
                    self.full = true;
                    return ControlFlow::Break(());
                }
                self.matches += 1;
                before.drain(..).for_each(|line| self.push(line));
                self.push(line);
                self.last = Some(Position { path: file.path.clone(), line: number });
                last_line = Some(number);
            } else if near {
                self.push(line);
            } else {
                before.push(line);
            }
        }
        if file.more {
            self.full = true;
            return ControlFlow::Break(());
        }
        if file.out_of_time {
            self.result.incomplete = true;
            return ControlFlow::Break(());
        }
        self.last = Some(Position { path: file.path, line: u64::MAX });
        ControlFlow::Continue(())
    }

    fn push(&mut self, line: FoundLine) {
        self.bytes += line.text.len();
        self.result.lines.push(line);
    }

    fn finish(mut self, end: End, after: Option<Position>) -> SearchResult {
        self.result.incomplete |= matches!(end, End::Limit(_) | End::Incomplete);
        let goes_on = self.full || self.result.incomplete && end != End::Incomplete;
        // A page that got nowhere has no next one: it would get nowhere too.
        if goes_on && self.last > after {
            self.result.next_page_token = self.last.unwrap_or_default().token();
        }
        self.result
    }
}

fn to_u64(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
