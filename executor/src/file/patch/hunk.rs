//! One hunk of a patch. Where its numbers fit its lines they say where it ends; where they don't, which is a slip that
//! models make, its lines are believed as far as it is plain that they are lines of a hunk.

use super::{Problem, reader::Reader};

/// A hunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hunk<'a> {
    /// Number of its header in the patch.
    pub(super) line: usize,
    /// What its header says of its place; nothing for a bare `@@`.
    pub(super) stated: Option<Stated>,
    /// Its lines.
    pub(super) lines: Vec<Line<'a>>,
}

/// The numbers of a hunk's header that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stated {
    /// First old line, from 1 on; the line before it, where there are no old lines.
    pub(super) start: usize,
    /// Number of old lines.
    pub(super) old: usize,
    /// Number of new lines.
    pub(super) new: usize,
}

/// A line of a hunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub(super) tag: Tag,
    /// Its bytes, without LF.
    pub(super) text: &'a [u8],
    /// Whether it has a line end: not so the last one of a file that ends without.
    pub(super) ended: bool,
}

/// What becomes of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tag {
    Context,
    Removed,
    Added,
}

impl Hunk<'_> {
    /// Lines that must be in the file.
    pub(super) fn old_lines(&self) -> impl DoubleEndedIterator<Item = &Line<'_>> {
        self.lines.iter().filter(|line| line.tag != Tag::Added)
    }

    /// Lines that are in the file afterwards.
    pub(super) fn new_lines(&self) -> impl DoubleEndedIterator<Item = &Line<'_>> {
        self.lines.iter().filter(|line| line.tag != Tag::Removed)
    }

    /// Whether it says that the file has no lines before.
    pub(super) fn starts_a_file(&self) -> bool {
        self.stated.is_some_and(|stated| stated.start == 0 && stated.old == 0)
            && self.old_lines().next().is_none()
    }

    /// Whether it says that the file has no lines afterwards.
    pub(super) fn ends_a_file(&self) -> bool {
        self.stated.is_some_and(|stated| stated.new == 0) && self.new_lines().next().is_none()
    }
}

/// Reads the hunk whose header is the next line.
pub(super) fn read<'a>(reader: &mut Reader<'a>) -> Result<Hunk<'a>, (usize, Problem)> {
    let line = reader.number();
    let header = reader.take().unwrap_or_default();
    let stated = stated(header).map_err(|problem| (line, problem))?;
    let mut counted = reader.clone();
    let lines = match stated.and_then(|stated| read_counted(&mut counted, stated)) {
        Some(lines) => {
            *reader = counted;
            lines
        }
        None => read_on(reader)?,
    };
    check(&lines).map_err(|problem| (line, problem))?;
    Ok(Hunk { line, stated, lines })
}

/// The numbers of a header; nothing for a bare `@@`, whatever text follows.
fn stated(header: &[u8]) -> Result<Option<Stated>, Problem> {
    const EXPECTED: &str = "expected a hunk's header such as @@ -12,7 +12,8 @@";
    if header.starts_with(b"@@@") {
        return Err("a combined diff of a merge can't be applied; expected a diff of two versions".into());
    }
    let text = header.strip_prefix(b"@@").unwrap_or(header).trim_ascii();
    if !matches!(text, [b'-', b'0'..=b'9', ..]) {
        return Ok(None);
    }
    let numbers = || {
        let (start, old, rest) = range(text.strip_prefix(b"-")?)?;
        let (_, new, rest) = range(rest.trim_ascii_start().strip_prefix(b"+")?)?;
        let rest = rest.trim_ascii_start();
        (rest.is_empty() || rest.starts_with(b"@@")).then_some(Stated { start, old, new })
    };
    numbers().map(Some).ok_or_else(|| EXPECTED.into())
}

/// A start and a count, 1 where it isn't written, and what follows.
fn range(text: &[u8]) -> Option<(usize, usize, &[u8])> {
    let (start, rest) = number(text)?;
    match rest.strip_prefix(b",") {
        None => Some((start, 1, rest)),
        Some(rest) => number(rest).map(|(count, rest)| (start, count, rest)),
    }
}

fn number(text: &[u8]) -> Option<(usize, &[u8])> {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    // Numbers past any file are refused, so that sums can't overflow.
    let number = std::str::from_utf8(&text[..end]).ok()?.parse::<u32>().ok()?;
    Some((usize::try_from(number).ok()?, &text[end..]))
}

/// As many lines as the header says; nothing where they aren't those of a hunk, or more of them follow.
fn read_counted<'a>(reader: &mut Reader<'a>, stated: Stated) -> Option<Vec<Line<'a>>> {
    let Stated { mut old, mut new, .. } = stated;
    let mut lines = Vec::new();
    while old > 0 || new > 0 {
        let text = reader.take()?;
        let Some(line) = line(text) else {
            end_without(text, &mut lines)?;
            continue;
        };
        let (takes_old, takes_new) = (line.tag != Tag::Added, line.tag != Tag::Removed);
        old = old.checked_sub(usize::from(takes_old))?;
        new = new.checked_sub(usize::from(takes_new))?;
        lines.push(line);
    }
    if reader.peek().is_some_and(|text| text.starts_with(b"\\")) {
        end_without(reader.take()?, &mut lines)?;
    }
    let mut after = reader.clone();
    while after.peek().is_some_and(|text| text.trim_ascii().is_empty()) {
        after.take();
    }
    let more = after.peek().is_some_and(|text| matches!(text, [b' ' | b'+' | b'-', ..]));
    (!more || after.at_file_header() || after.at_signature()).then_some(lines)
}

/// The lines up to what can't be one of a hunk. Empty ones at the end part it from what follows.
fn read_on<'a>(reader: &mut Reader<'a>) -> Result<Vec<Line<'a>>, (usize, Problem)> {
    let mut lines = Vec::new();
    let mut filled = 0;
    while let Some(text) = reader.peek() {
        if reader.at_boundary() {
            break;
        }
        match line(text) {
            Some(line) => lines.push(line),
            None if end_without(text, &mut lines).is_some() => {}
            None => {
                let problem =
                    "expected a line of the hunk, which starts with a space, + or -, or the next header";
                return Err((reader.number(), problem.into()));
            }
        }
        if !text.is_empty() {
            filled = lines.len();
        }
        reader.take();
    }
    lines.truncate(filled);
    Ok(lines)
}

fn line(text: &[u8]) -> Option<Line<'_>> {
    let (tag, text) = match text {
        // A space at the end of a line is easily lost.
        [] | [b'\r'] => (Tag::Context, text),
        [b' ', rest @ ..] => (Tag::Context, rest),
        [b'+', rest @ ..] => (Tag::Added, rest),
        [b'-', rest @ ..] => (Tag::Removed, rest),
        _ => return None,
    };
    Some(Line { tag, text, ended: true })
}

/// Takes `\ No newline at end of file` for the line before.
fn end_without(text: &[u8], lines: &mut [Line<'_>]) -> Option<()> {
    if !text.starts_with(b"\\") {
        return None;
    }
    lines.last_mut()?.ended = false;
    Some(())
}

fn check(lines: &[Line<'_>]) -> Result<(), Problem> {
    if lines.iter().all(|line| line.tag == Tag::Context) {
        return Err("the hunk changes nothing; expected lines that start with + or -".into());
    }
    for other in [Tag::Added, Tag::Removed] {
        let mut side = lines.iter().filter(|line| line.tag != other).rev().skip(1);
        if side.any(|line| !line.ended) {
            return Err("only the last line of a file can have no newline".into());
        }
    }
    Ok(())
}
