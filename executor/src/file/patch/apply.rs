//! Hunks applied to the content of a file. It looks at bytes alone.
//!
//! The old lines of a hunk must be in the file as they are. Only where they have line ends and are not found so, their
//! LF also stand for the CR LF of the file; lines added between such lines get CR LF too. What may differ is the place:
//! the nearest to the one that the hunk names is taken, none before the end of the hunk before.

use super::{
    Problem,
    hunk::{Hunk, Line, Stated, Tag},
    text::{LineEnds, Text},
};
use crate::file::{hint::nearest_lines, show::show};

/// A content after its hunks.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Applied {
    pub(super) content: Vec<u8>,
    /// Number of lines added.
    pub(super) added: u64,
    /// Number of lines removed.
    pub(super) removed: u64,
    /// Hunks that were found elsewhere than they said.
    pub(super) moved: Vec<Moved>,
}

/// How far away a hunk was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Number of the hunk in the file's part of the patch, from 1 on.
    pub hunk: usize,
    /// Lines down; less than 0 for up.
    pub lines: i64,
}

/// A hunk that doesn't fit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mismatch {
    /// Its number, from 1 on.
    pub(super) hunk: usize,
    /// Reads after the number.
    pub(super) problem: Problem,
}

/// How many places of an ambiguous hunk are told.
const SHOWN_PLACES: usize = 5;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Applies `hunks` in order. A byte order mark that they don't mention stays where it is.
pub(super) fn apply(before: &[u8], hunks: &[Hunk<'_>]) -> Result<Applied, Mismatch> {
    let mut lines = hunks.iter().flat_map(|hunk| &hunk.lines);
    let mark = if lines.any(|line| line.text.starts_with(BYTE_ORDER_MARK)) {
        None
    } else {
        before.strip_prefix(BYTE_ORDER_MARK)
    };
    let text = Text::new(mark.unwrap_or(before));
    let mut content = Vec::with_capacity(before.len());
    if mark.is_some() {
        content.extend_from_slice(BYTE_ORDER_MARK);
    }
    let mut work = Work { text: &text, content, done: 0, drift: 0 };
    let mut moved = Vec::new();
    for (number, hunk) in (1..).zip(hunks) {
        let away = work.take(hunk).map_err(|problem| Mismatch { hunk: number, problem })?;
        if away != 0 {
            moved.push(Moved { hunk: number, lines: i64::try_from(away).unwrap_or(i64::MAX) });
        }
    }
    for line in &text.lines[work.done..] {
        work.content.extend_from_slice(line);
    }
    let count = |tag| {
        let lines = hunks.iter().flat_map(|hunk| &hunk.lines).filter(|line| line.tag == tag);
        u64::try_from(lines.count()).unwrap_or(u64::MAX)
    };
    let (added, removed) = (count(Tag::Added), count(Tag::Removed));
    Ok(Applied { content: work.content, added, removed, moved })
}

struct Work<'a> {
    text: &'a Text<'a>,
    /// The new content so far.
    content: Vec<u8>,
    /// Lines of the text that are behind.
    done: usize,
    /// How far from where it said the hunk before was found.
    drift: isize,
}

impl Work<'_> {
    /// Applies a hunk. Returns how far from where it said it was found.
    fn take(&mut self, hunk: &Hunk<'_>) -> Result<isize, Problem> {
        let old: Vec<Line<'_>> = hunk.old_lines().copied().collect();
        let at = match (hunk.stated, old.is_empty()) {
            (Some(stated), true) => self.place_of_insertion(stated)?,
            (None, true) if self.text.lines.is_empty() => 0,
            (None, true) => {
                return Err("has neither a line number nor lines to find its place by".into());
            }
            (Some(stated), false) => self.nearest(&old, stated)?,
            (None, false) => self.only(&old)?,
        };
        let end = at + old.len();
        let finishes = hunk.new_lines().next_back().is_some_and(|line| !line.ended);
        if finishes && end < self.text.lines.len() {
            return Err("ends without a newline, but not at the end of the file".into());
        }
        for line in &self.text.lines[self.done..at] {
            self.content.extend_from_slice(line);
        }
        self.put(hunk, at);
        self.done = end;
        let Some(stated) = hunk.stated.filter(|_| !old.is_empty()) else {
            return Ok(0);
        };
        self.drift = at.cast_signed() - stated.start.saturating_sub(1).cast_signed();
        Ok(self.drift)
    }

    /// Where lines go that have none of the file beside them.
    fn place_of_insertion(&self, stated: Stated) -> Result<usize, Problem> {
        let present = self.text.lines.len();
        let at = stated.start;
        if present == 0 {
            Ok(0)
        } else if stated.old != 0 {
            let problem = "only adds lines, but its header counts old ones; expected them, or a header such as \
                           @@ -7,0 +8,2 @@ for lines after line 7";
            Err(problem.into())
        } else if self.drift != 0 {
            Err("only adds lines, so that its place can't be found after a hunk before it was found \
                 elsewhere; expected lines of the file around them"
                .into())
        } else if at > present {
            Err(format!("adds lines after line {at}, but the file has {present}").into())
        } else if at < self.done {
            Err("overlaps the hunk before it; expected hunks in the order of the file".into())
        } else if at == present && !self.text.lines[at - 1].ends_with(b"\n") {
            Err("adds lines after the last line, which has no newline; expected that line in the hunk too"
                .into())
        } else {
            Ok(at)
        }
    }

    /// The match nearest to where the hunk says, given how far off the one before was.
    fn nearest(&self, old: &[Line<'_>], stated: Stated) -> Result<usize, Problem> {
        let expected = stated.start.saturating_sub(1).saturating_add_signed(self.drift);
        for ends in ends_to_try(old) {
            match self.text.nearest(old, ends, expected, self.done) {
                [Some(above), Some(below)] => return Err(ambiguous(&[above, below], 2)),
                [Some(at), None] | [None, Some(at)] => return Ok(at),
                [None, None] => {}
            }
        }
        Err(self.not_found(old))
    }

    /// The match of a hunk without numbers.
    fn only(&self, old: &[Line<'_>]) -> Result<usize, Problem> {
        for ends in ends_to_try(old) {
            let places: Vec<usize> = self.text.places(old, ends).collect();
            match places[..] {
                [] => {}
                [at] if at >= self.done => return Ok(at),
                [_] => break,
                _ => return Err(ambiguous(&places, places.len())),
            }
        }
        Err(self.not_found(old))
    }

    fn not_found(&self, old: &[Line<'_>]) -> Problem {
        for ends in ends_to_try(old) {
            if let Some(at) = self.text.places(old, ends).next() {
                let problem = format!(
                    "matches at line {} only, before the end of the hunk before it; expected hunks in the order of \
                     the file, none over another",
                    at + 1
                );
                return problem.into();
            }
        }
        let mut other = old.to_vec();
        if let Some(last) = other.last_mut() {
            last.ended = !last.ended;
            let ended = last.ended;
            if ends_to_try(&other).any(|ends| self.text.places(&other, ends).next().is_some()) {
                let problem = if ended {
                    "not found: its last line has a newline in the file; leave out \\ No newline at end of file"
                } else {
                    "not found: the file's last line has no newline; add the line \\ No newline at end of file \
                     after it"
                };
                return problem.into();
            }
        }
        let wanted: Vec<&[u8]> = old.iter().map(|line| line.text).collect();
        let mut wanted = wanted.join(&b"\n"[..]);
        wanted.push(b'\n');
        format!("not found{}", nearest_lines(self.text.content, &wanted)).into()
    }

    /// Appends the new lines of a hunk that was found at `at`.
    fn put(&mut self, hunk: &Hunk<'_>, at: usize) {
        // Whoever writes CR means it, and its absence elsewhere too.
        let as_given = hunk.lines.iter().any(|line| line.text.ends_with(b"\r"));
        let end = at + hunk.old_lines().count();
        let mut here = at;
        // The removed lines that the added ones, in turn, stand for.
        let mut replaced = at..at;
        for line in &hunk.lines {
            match line.tag {
                Tag::Context => {
                    self.content.extend_from_slice(self.text.lines[here]);
                    here += 1;
                    replaced = here..here;
                }
                Tag::Removed => {
                    here += 1;
                    replaced.end = here;
                }
                Tag::Added => {
                    let like = self.neighbour(&mut replaced, at..end);
                    self.content.extend_from_slice(line.text);
                    if line.ended {
                        let crlf = !as_given && self.text.has_crlf(like);
                        self.content.extend_from_slice(if crlf { b"\r\n" } else { b"\n" });
                    }
                }
            }
        }
    }

    /// The line whose end an added line gets: the one it stands for, or else one beside it, rather of the hunk.
    fn neighbour(&self, replaced: &mut std::ops::Range<usize>, hunk: std::ops::Range<usize>) -> usize {
        if let Some(line) = replaced.next() {
            return line;
        }
        let here = replaced.start;
        if here > hunk.start || (hunk.is_empty() && here > 0) { here - 1 } else { here }
    }
}

/// How line ends may be compared, the strict way first.
fn ends_to_try(old: &[Line<'_>]) -> impl Iterator<Item = LineEnds> + use<> {
    let plain = old.iter().any(|line| line.ended) && !old.iter().any(|line| line.text.contains(&b'\r'));
    std::iter::once(LineEnds::Exact).chain(plain.then_some(LineEnds::LfForCrlf))
}

fn ambiguous(places: &[usize], count: usize) -> Problem {
    let more = if count > SHOWN_PLACES { ", …" } else { "" };
    let lines: Vec<String> = places.iter().take(SHOWN_PLACES).map(|at| (at + 1).to_string()).collect();
    let lines = lines.join(", ");
    format!("matches at lines {lines}{more}; expected more lines around the change, or exact numbers in its header")
        .into()
}

/// What is left of a file that was to be deleted.
pub(super) fn left_over(content: &[u8]) -> Problem {
    let first = content.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let first = crate::file::show::shorten(&show(first), 120);
    format!("the file has more lines than the patch removes, such as \"{first}\"; expected all of them")
        .into()
}
