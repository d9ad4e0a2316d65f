//! Searching one file: its matching lines with those around them, as far as one page can use them. It knows neither
//! where files come from nor what a page looks like.

use std::{
    fs::File,
    io::{self, Read},
    time::Instant,
};

use grep_matcher::LineTerminator;
use grep_regex::RegexMatcher;
use grep_searcher::{
    BinaryDetection, MmapChoice, Searcher, SearcherBuilder, Sink, SinkContext, SinkContextKind, SinkMatch,
};

use super::{page::Position, show::shorten};

/// Longest line that is searched, in bytes.
const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;
/// Longest line that is shown, in characters.
const SHOWN_CHARACTERS: usize = 1000;

/// What to search for in each file, and until when.
pub(super) struct Searching {
    /// Finds matches.
    pub(super) matcher: RegexMatcher,
    /// Lines to show before and after a match.
    pub(super) context: usize,
    /// Matches of a file that are of use.
    pub(super) max_matches: usize,
    /// Bytes of lines of a file that are of use.
    pub(super) max_bytes: usize,
    /// In the file at this position, lines up to this one are passed over.
    pub(super) after: Position,
    /// When to stop.
    pub(super) deadline: Instant,
}

/// A line of the file at hand.
#[derive(Debug)]
pub(super) struct Line {
    /// Its number, from 1 on.
    pub(super) number: u64,
    /// What is shown of it.
    pub(super) text: String,
    /// True for a match, false for context.
    pub(super) is_match: bool,
}

/// What was found in a file.
#[derive(Debug, Default)]
pub(super) struct FileLines {
    /// Its path.
    pub(super) path: Vec<u8>,
    /// Lines in their order.
    pub(super) lines: Vec<Line>,
    /// There are more matches than are of use.
    pub(super) more: bool,
    /// It isn't text, and `lines` is empty.
    pub(super) binary: bool,
    /// It could not be read, or is no regular file.
    pub(super) unreadable: bool,
    /// The time was over before its end.
    pub(super) out_of_time: bool,
}

impl Searching {
    /// A searcher, to be used for many files one after the other.
    pub(super) fn searcher(&self) -> Searcher {
        SearcherBuilder::new()
            .line_terminator(LineTerminator::crlf())
            .line_number(true)
            .before_context(self.context)
            .after_context(self.context)
            .binary_detection(BinaryDetection::quit(0))
            // A file that is cut short while it is mapped would end the program.
            .memory_map(MmapChoice::never())
            .heap_limit(Some(MAX_LINE_BYTES))
            .build()
    }

    /// Searches `file`, which has this `path`.
    pub(super) fn file(&self, searcher: &mut Searcher, file: &File, path: Vec<u8>) -> FileLines {
        let after_line = if path == self.after.path { self.after.line } else { 0 };
        let mut found = FileLines { path, ..FileLines::default() };
        let timed = Timed { file, deadline: self.deadline };
        let sink =
            Collector { searching: self, after_line, found: &mut found, matches: 0, bytes: 0, before: 0 };
        match searcher.search_reader(&self.matcher, timed, sink) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::TimedOut => found.out_of_time = true,
            Err(e) if e.raw_os_error().is_some() => found.unreadable = true,
            // A line longer than the limit.
            Err(_) => found.binary = true,
        }
        if found.binary || found.unreadable {
            found.lines.clear();
            found.more = false;
        }
        found
    }
}

struct Collector<'a> {
    searching: &'a Searching,
    after_line: u64,
    found: &'a mut FileLines,
    matches: usize,
    bytes: usize,
    /// How many of the last lines are context before a match that is still to come.
    before: usize,
}

impl Collector<'_> {
    fn push(&mut self, number: Option<u64>, bytes: &[u8], is_match: bool) {
        let line = Line { number: number.unwrap_or_default(), text: shown(bytes), is_match };
        self.bytes += line.text.len();
        self.found.lines.push(line);
    }

    fn drop_before(&mut self) {
        self.found.lines.truncate(self.found.lines.len() - self.before);
        self.before = 0;
    }
}

impl Sink for Collector<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, line: &SinkMatch<'_>) -> Result<bool, io::Error> {
        if line.line_number().is_some_and(|number| number <= self.after_line) {
            self.drop_before();
            return Ok(true);
        }
        if self.matches == self.searching.max_matches || self.bytes >= self.searching.max_bytes {
            self.drop_before();
            self.found.more = true;
            return Ok(false);
        }
        self.before = 0;
        self.matches += 1;
        self.push(line.line_number(), line.bytes(), true);
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, line: &SinkContext<'_>) -> Result<bool, io::Error> {
        match line.kind() {
            // Of a match that was passed over.
            SinkContextKind::After if self.matches == 0 => return Ok(true),
            SinkContextKind::Before => self.before += 1,
            _ => {}
        }
        self.push(line.line_number(), line.bytes(), false);
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> Result<bool, io::Error> {
        self.found.binary = true;
        Ok(false)
    }
}

/// What is shown of a line.
fn shown(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // No character has more than four bytes.
    let line = &line[..line.len().min(4 * (SHOWN_CHARACTERS + 1))];
    shorten(&String::from_utf8_lossy(line), SHOWN_CHARACTERS)
}

/// A file that fails to be read when the time is over.
struct Timed<'a> {
    file: &'a File,
    deadline: Instant,
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if Instant::now() >= self.deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.file.read(buffer)
    }
}
