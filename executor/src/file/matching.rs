//! Finding a text in a file's bytes and replacing it. It looks at bytes alone: where they lie and how they come to the
//! disk is none of its business.
//!
//! A text matches as it is. Only where it has line ends and is not found so, its LF also stand for the CR LF of the
//! file. What is put in a line that ends with CR LF gets CR LF itself.

use std::ops::Range;

use memchr::{memchr, memchr_iter, memmem, memrchr};

/// What came of a replacement.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The content after it, and how often the text was replaced.
    Replaced(Vec<u8>, u64),
    /// The text does not occur.
    NotFound,
    /// The text occurs more than once: how often, and the numbers of the first lines where.
    NotUnique(usize, Vec<usize>),
    /// The content would be larger than the limit.
    TooLarge,
}

/// How many places of an ambiguous text are told.
const SHOWN_PLACES: usize = 5;

/// Replaces `old`, which is not empty, in `content`: all its occurrences from left to right, none over another, or the
/// only one. An occurrence that overlaps another makes it ambiguous.
pub(super) fn replace(content: &[u8], old: &[u8], new: &[u8], all: bool, limit: usize) -> Outcome {
    let finder = memmem::Finder::new(old);
    let mut text = Text::AsIs(content);
    if text.find(&finder, 0).is_none() && old.contains(&b'\n') && !old.contains(&b'\r') {
        text = Text::normal(content);
    }
    let Some(first) = text.find(&finder, 0) else {
        return Outcome::NotFound;
    };
    if !all && text.find(&finder, first + 1).is_some() {
        return not_unique(content, &text, &finder);
    }
    let mut ends = LineEnds { content, known: 0..0, crlf: false };
    let crlf_new = with_crlf(new);
    let (mut result, mut done, mut count) = (Vec::with_capacity(content.len()), 0, 0);
    let mut next = Some(first);
    while let Some(start) = next {
        let span = text.span(start..start + old.len());
        let crlf = match &text {
            Text::AsIs(_) => !old.contains(&b'\n') && crlf_new.is_some() && ends.crlf_at(span.end),
            Text::Normal { .. } => memmem::find(&content[span.clone()], b"\r\n").is_some(),
        };
        let put = if crlf { crlf_new.as_deref().unwrap_or(new) } else { new };
        result.extend_from_slice(&content[done..span.start]);
        result.extend_from_slice(put);
        if result.len() > limit {
            return Outcome::TooLarge;
        }
        done = span.end;
        count += 1;
        next = if all { text.find(&finder, start + old.len()) } else { None };
    }
    result.extend_from_slice(&content[done..]);
    if result.len() > limit { Outcome::TooLarge } else { Outcome::Replaced(result, count) }
}

/// Counts the occurrences that don't overlap; two that do count as two.
fn not_unique(content: &[u8], text: &Text<'_>, finder: &memmem::Finder<'_>) -> Outcome {
    let (mut count, mut lines) = (0, Vec::new());
    let mut next = text.find(finder, 0);
    while let Some(start) = next {
        count += 1;
        if lines.len() < SHOWN_PLACES {
            let at = text.span(start..start + finder.needle().len()).start;
            lines.push(line_number(content, at));
        }
        next = text.find(finder, start + finder.needle().len());
        if next.is_none() && count == 1 {
            next = text.find(finder, start + 1);
        }
    }
    Outcome::NotUnique(count, lines)
}

/// Number of the line, from 1 on, that holds the byte at `at`.
fn line_number(content: &[u8], at: usize) -> usize {
    memchr_iter(b'\n', &content[..at]).count() + 1
}

/// `new` with CR LF for each LF; nothing where it has none, or has CR LF of its own.
fn with_crlf(new: &[u8]) -> Option<Vec<u8>> {
    if !new.contains(&b'\n') || memmem::find(new, b"\r\n").is_some() {
        return None;
    }
    let lines: Vec<&[u8]> = new.split(|byte| *byte == b'\n').collect();
    Some(lines.join(&b"\r\n"[..]))
}

/// What is searched.
enum Text<'a> {
    /// The content.
    AsIs(&'a [u8]),
    /// The content with LF for each CR LF.
    Normal {
        text: Vec<u8>,
        /// Places in `text` of the LF that had a CR.
        shortened: Vec<usize>,
    },
}

impl<'a> Text<'a> {
    fn normal(content: &'a [u8]) -> Self {
        let (mut text, mut shortened, mut done) = (Vec::with_capacity(content.len()), Vec::new(), 0);
        for at in memmem::find_iter(content, b"\r\n") {
            text.extend_from_slice(&content[done..at]);
            shortened.push(text.len());
            done = at + 1;
        }
        text.extend_from_slice(&content[done..]);
        Self::Normal { text, shortened }
    }

    /// The first occurrence from `from` on.
    fn find(&self, finder: &memmem::Finder<'_>, mut from: usize) -> Option<usize> {
        match self {
            Self::Normal { text, .. } => Some(finder.find(text.get(from..)?)? + from),
            Self::AsIs(content) => loop {
                let start = finder.find(content.get(from..)?)? + from;
                // A match that starts between CR and LF would tear the line end apart.
                let torn = content[start] == b'\n' && start > 0 && content[start - 1] == b'\r';
                if !torn {
                    return Some(start);
                }
                from = start + 1;
            },
        }
    }

    /// Where in the content a range of this text lies.
    fn span(&self, range: Range<usize>) -> Range<usize> {
        match self {
            Self::AsIs(_) => range,
            Self::Normal { shortened, .. } => {
                let place = |at: usize| at + shortened.partition_point(|short| *short < at);
                place(range.start)..place(range.end)
            }
        }
    }
}

/// Tells how lines end, for places asked for from left to right.
struct LineEnds<'a> {
    content: &'a [u8],
    /// Part of the content where the answer is known.
    known: Range<usize>,
    crlf: bool,
}

impl LineEnds<'_> {
    /// Whether the line that holds `at` ends with CR LF, or, being the last and unfinished, the line before it.
    fn crlf_at(&mut self, at: usize) -> bool {
        if !self.known.contains(&at) {
            let next = memchr(b'\n', &self.content[at..]).map(|end| at + end);
            let end = next.or_else(|| memrchr(b'\n', &self.content[..at]));
            self.crlf = end.is_some_and(|end| self.content[..end].ends_with(b"\r"));
            self.known = at..next.map_or(self.content.len() + 1, |next| next + 1);
        }
        self.crlf
    }
}
