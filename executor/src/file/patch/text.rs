//! The lines of a file, and where in it others occur.

use std::{cell::OnceCell, collections::HashMap};

use memchr::memchr_iter;

use super::hunk::Line;

/// A content as lines.
pub(super) struct Text<'a> {
    pub(super) content: &'a [u8],
    /// Its lines with their ends. The last one may have none.
    pub(super) lines: Vec<&'a [u8]>,
    /// Where lines are, without their ends; made when a hunk is not where it says.
    places: OnceCell<HashMap<&'a [u8], Vec<usize>>>,
}

/// How line ends are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineEnds {
    /// Byte for byte.
    Exact,
    /// LF in a hunk also stands for CR LF in the file.
    LfForCrlf,
}

impl<'a> Text<'a> {
    pub(super) fn new(content: &'a [u8]) -> Self {
        let mut start = 0;
        let mut lines: Vec<&[u8]> = memchr_iter(b'\n', content)
            .map(|end| {
                let line = &content[start..=end];
                start = end + 1;
                line
            })
            .collect();
        if start < content.len() {
            lines.push(&content[start..]);
        }
        Self { content, lines, places: OnceCell::new() }
    }

    /// Whether line `at` ends with CR LF, or, being the last and unfinished or past the end, the line before it.
    pub(super) fn has_crlf(&self, at: usize) -> bool {
        let ended = self.lines.get(at).filter(|line| line.ends_with(b"\n"));
        let line = ended.or_else(|| self.lines.get(at.min(self.lines.len()).checked_sub(1)?));
        line.is_some_and(|line| line.ends_with(b"\r\n"))
    }

    /// The matches of `old` nearest to line `expected`, none before `first`: one before it and one after it only where
    /// both are equally near.
    pub(super) fn nearest(
        &self,
        old: &[Line<'_>],
        ends: LineEnds,
        expected: usize,
        first: usize,
    ) -> [Option<usize>; 2] {
        if expected >= first && self.matches(old, ends, expected) {
            return [Some(expected), None];
        }
        let (offset, places) = self.anchor(old);
        let split = places.partition_point(|place| *place < expected + offset);
        let above = places[..split].iter().rev().map_while(|place| place.checked_sub(offset));
        let mut above = above.take_while(|at| *at >= first).peekable();
        let mut below = places[split..].iter().map(|place| place - offset).peekable();
        loop {
            let up = above.peek().map(|at| expected - at);
            let down = below.peek().map(|at| at - expected);
            let nearest = match (up, down) {
                (None, None) => return [None, None],
                (up, down) => up.unwrap_or(usize::MAX).min(down.unwrap_or(usize::MAX)),
            };
            let fits = |at: &usize| *at >= first && self.matches(old, ends, *at);
            let up = above.next_if(|at| expected - at == nearest).filter(fits);
            let down = below.next_if(|at| at - expected == nearest).filter(fits);
            if up.is_some() || down.is_some() {
                return [up, down];
            }
        }
    }

    /// All matches of `old`, from top to bottom.
    pub(super) fn places(&self, old: &[Line<'_>], ends: LineEnds) -> impl Iterator<Item = usize> {
        let (offset, places) = self.anchor(old);
        let places = places.iter().filter_map(move |place| place.checked_sub(offset));
        places.filter(move |at| self.matches(old, ends, *at))
    }

    /// Which of the lines is the rarest, and where it is.
    fn anchor(&self, old: &[Line<'_>]) -> (usize, &[usize]) {
        let index = self.places.get_or_init(|| {
            let mut places: HashMap<&[u8], Vec<usize>> = HashMap::new();
            for (at, line) in self.lines.iter().enumerate() {
                places.entry(bare(line)).or_default().push(at);
            }
            places
        });
        let places = |line: &Line<'_>| index.get(bare(line.text)).map_or(&[][..], Vec::as_slice);
        let lines = old.iter().map(places).enumerate();
        lines.min_by_key(|(_, places)| places.len()).unwrap_or_default()
    }

    fn matches(&self, old: &[Line<'_>], ends: LineEnds, at: usize) -> bool {
        let Some(lines) = self.lines.get(at..at.saturating_add(old.len())) else {
            return false;
        };
        lines.iter().zip(old).all(|(present, old)| match present.strip_suffix(b"\n") {
            None => !old.ended && *present == old.text,
            Some(_) if !old.ended => false,
            Some(text) => {
                let bare = text.strip_suffix(b"\r").filter(|_| ends == LineEnds::LfForCrlf);
                text == old.text || bare == Some(old.text)
            }
        })
    }
}

/// A line without its end, and without a CR there.
fn bare(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}
