//! Why a text was not found: the lines of the file that are nearest to it, and what is different in them.

use memchr::memchr_iter;

use super::show::{shorten, show};

/// Longest hint in characters.
const MAX_CHARACTERS: usize = 800;
/// Longest line shown in a hint, in characters.
const LINE_CHARACTERS: usize = 120;
/// Bytes of a line that are compared.
const COMPARED_BYTES: usize = 400;
/// Lines shown at most.
const SHOWN_LINES: usize = 3;
/// Share of pairs of bytes, in thousandths, that a line must have in common to be near.
const NEAR: usize = 500;

/// A sentence on the lines of `content` nearest to `old`, which starts with a separator; at most 800 characters.
pub(super) fn nearest_lines(content: &[u8], old: &[u8]) -> String {
    let wanted: Vec<&[u8]> = lines(old).collect();
    // The line with most to go by stands for the text; the others are laid beside it.
    let Some((offset, anchor)) =
        wanted.iter().enumerate().max_by_key(|(at, line)| (line.trim_ascii().len(), usize::MAX - at))
    else {
        return String::new();
    };
    let near = nearest(content, anchor);
    let Some((best, _)) = near.first().copied() else {
        return "; no line of the file resembles it. Read the file again".to_owned();
    };
    let first = best.saturating_sub(offset);
    let present = lines(content).skip(first);
    let skipped = offset.saturating_sub(best);
    let differing = wanted.iter().skip(skipped).zip(present).enumerate().find(|(_, (old, new))| *old != new);
    let mut hint = match differing {
        Some((at, (old, new))) => {
            format!("; nearest is line {}: \"{}\" — {}", first + at + 1, quote(new), difference(old, new))
        }
        None => format!(
            "; it resembles the text from line {} on, but the line ends differ or are missing",
            first + 1
        ),
    };
    let others = near.iter().skip(1);
    hint.extend(others.map(|(number, line)| format!("; then line {}: \"{}\"", number + 1, quote(line))));
    shorten(&hint, MAX_CHARACTERS - 1)
}

/// The lines most like `anchor`, best first, with their numbers from 0 on.
fn nearest<'a>(content: &'a [u8], anchor: &[u8]) -> Vec<(usize, &'a [u8])> {
    let pairs = Pairs::of(anchor);
    let mut best: Vec<(usize, usize, &[u8])> = Vec::new();
    for (number, line) in lines(content).enumerate() {
        let score = pairs.likeness(line);
        let worst = best.last().map_or(0, |(score, ..)| *score);
        if score >= NEAR && (best.len() < SHOWN_LINES || score > worst) {
            let at = best.partition_point(|(other, ..)| *other >= score);
            best.insert(at, (score, number, line));
            best.truncate(SHOWN_LINES);
        }
    }
    best.into_iter().map(|(_, number, line)| (number, line)).collect()
}

/// The pairs of neighbouring bytes of a line, letters in lower case and white space left out.
struct Pairs {
    present: Vec<bool>,
    count: usize,
}

impl Pairs {
    fn of(line: &[u8]) -> Self {
        let mut present = vec![false; 1 << 16];
        let mut count = 0;
        for pair in Self::iterate(line) {
            present[pair] = true;
            count += 1;
        }
        Self { present, count }
    }

    /// Common pairs in thousandths.
    fn likeness(&self, line: &[u8]) -> usize {
        let (mut count, mut common) = (0, 0);
        for pair in Self::iterate(line) {
            count += 1;
            common += usize::from(self.present[pair]);
        }
        2000 * common.min(self.count) / (count + self.count).max(1)
    }

    fn iterate(line: &[u8]) -> impl Iterator<Item = usize> {
        let mut before = 0;
        line.iter().take(COMPARED_BYTES).filter(|byte| !byte.is_ascii_whitespace()).map(move |byte| {
            let pair = (before << 8) | usize::from(byte.to_ascii_lowercase());
            before = usize::from(byte.to_ascii_lowercase());
            pair
        })
    }
}

/// Says what is different in two lines that resemble each other.
fn difference(old: &[u8], new: &[u8]) -> &'static str {
    let squeezed =
        |line: &[u8]| -> Vec<u8> { line.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect() };
    let indentation = |line: &[u8]| line[..line.len() - line.trim_ascii_start().len()].to_vec();
    if old.strip_suffix(b"\r").unwrap_or(old) == new.strip_suffix(b"\r").unwrap_or(new) {
        "the line ends differ (CR LF and LF)"
    } else if old.trim_ascii_end() == new.trim_ascii_end() {
        "white space at the end of the line differs"
    } else if squeezed(old) == squeezed(new) {
        let (old, new) = (indentation(old), indentation(new));
        if old.contains(&b'\t') != new.contains(&b'\t') {
            "the indentation differs (tabs and spaces)"
        } else if old != new {
            "the indentation differs"
        } else {
            "white space within the line differs"
        }
    } else if old.eq_ignore_ascii_case(new) {
        "upper and lower case differ"
    } else {
        "the text differs"
    }
}

fn quote(line: &[u8]) -> String {
    shorten(&show(&line[..line.len().min(4 * LINE_CHARACTERS)]), LINE_CHARACTERS)
}

/// The lines of `content` without their LF.
fn lines(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    let content = content.strip_suffix(b"\n").unwrap_or(content);
    let mut start = 0;
    memchr_iter(b'\n', content).chain(std::iter::once(content.len())).map(move |end| {
        let line = &content[start..end];
        start = end + 1;
        line
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_line_and_what_is_different_in_it() {
        let hint = |content: &str, old: &str| nearest_lines(content.as_bytes(), old.as_bytes());
        let cases = [
            (
                "def f():\n    x = 1\n",
                "    x  =  1",
                "line 2: \"    x = 1\" — white space within the line differs",
            ),
            ("all:\n\tcc x\n", "    cc x", "line 2: \"\\tcc x\" — the indentation differs (tabs and spaces)"),
            ("foo\nbar\n", "foo ", "line 1: \"foo\" — white space at the end of the line differs"),
            (
                "let Total = 1;\n",
                "let total = 1;",
                "line 1: \"let Total = 1;\" — upper and lower case differ",
            ),
            ("one\ntwo\nthree\n", "two\nthrae", "line 3: \"three\" — the text differs"),
            ("one\ntwo\n", "one\r\ntwo\r\n", "line 1: \"one\" — the line ends differ (CR LF and LF)"),
        ];
        for (content, old, wanted) in cases {
            let hint = hint(content, old);
            assert!(hint.contains(wanted), "{old:?}: {hint}");
        }
        assert!(hint("alpha\n", "zzz").contains("no line of the file resembles it"));
    }

    #[test]
    fn is_at_most_800_characters_long_also_for_long_lines() {
        let line = "\u{1}x".repeat(10_000);
        let content = format!("{line}\n{line}\n{line}\n");
        let hint = nearest_lines(content.as_bytes(), format!("{line}!").as_bytes());
        assert!((100..=MAX_CHARACTERS).contains(&hint.chars().count()), "{}", hint.len());
    }
}
