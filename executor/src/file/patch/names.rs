//! The names in the headers of a patch: how they are quoted, what follows them, and which prefixes they have.

use super::Problem;

/// A file as a `---` or `+++` line names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    /// The name; nothing for `/dev/null`.
    pub(super) name: Option<Vec<u8>>,
    /// Whether the time beside it is the start of 1970: so `diff -N` tells of a file that isn't there.
    pub(super) absent: bool,
}

/// Reads what follows `--- ` or `+++ `.
pub(super) fn named(text: &[u8]) -> Result<Named, Problem> {
    let (name, rest) = if text.starts_with(b"\"") {
        unquote(text)?
    } else {
        let end = memchr::memchr(b'\t', text).unwrap_or(text.len());
        (text[..end].to_vec(), &text[end..])
    };
    if name.is_empty() {
        return Err("expected the name of a file".into());
    }
    let time = rest.trim_ascii_start();
    // The same moment, told in time zones west and east of Greenwich.
    let absent = time.starts_with(b"1970-01-01 ") || time.starts_with(b"1969-12-31 ");
    Ok(Named { name: (name != b"/dev/null").then_some(name), absent })
}

/// Reads a whole name, as after `rename from `.
pub(super) fn whole(text: &[u8]) -> Result<Vec<u8>, Problem> {
    let name = if text.starts_with(b"\"") { unquote(text)?.0 } else { text.to_vec() };
    if name.is_empty() { Err("expected the name of a file".into()) } else { Ok(name) }
}

/// The two names after `diff --git `. Nothing where they can't be told apart, which is when they differ and hold
/// spaces; then other lines have them.
pub(super) fn pair(text: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    if text.starts_with(b"\"") {
        let (old, rest) = unquote(text).ok()?;
        return Some((old, whole(rest.strip_prefix(b" ")?).ok()?));
    }
    if text.ends_with(b"\"") {
        let at = memchr::memmem::find(text, b" \"")?;
        return Some((text[..at].to_vec(), whole(&text[at + 1..]).ok()?));
    }
    let middle = text.len() / 2;
    let (old, new) = (text.get(..middle)?, text.get(middle + 1..)?);
    let same = old.len() == new.len() && text[middle] == b' ' && without_prefixes(old, new, true).is_some();
    if same || (text.get(middle) == Some(&b' ') && old == new) {
        return Some((old.to_vec(), new.to_vec()));
    }
    let mut parts = text.split(|byte| *byte == b' ');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(old), Some(new), None) if !old.is_empty() && !new.is_empty() => {
            Some((old.to_vec(), new.to_vec()))
        }
        _ => None,
    }
}

/// Both names without `a/` and `b/`, where they have them. In a section of git's they may be any two of the letters
/// that git uses, as long as the names are the same without.
pub(super) fn strip(old: Vec<u8>, new: Vec<u8>, git: bool) -> (Vec<u8>, Vec<u8>) {
    if let (Some(old), Some(new)) = (old.strip_prefix(b"a/"), new.strip_prefix(b"b/")) {
        return (old.to_vec(), new.to_vec());
    }
    match without_prefixes(&old, &new, git) {
        Some(name) => (name.to_vec(), name.to_vec()),
        None => (old, new),
    }
}

/// A name whose other side is `/dev/null`, without `prefix`.
pub(super) fn strip_one(name: &[u8], prefix: &[u8]) -> Vec<u8> {
    name.strip_prefix(prefix).unwrap_or(name).to_vec()
}

/// The name that both are without their prefixes.
fn without_prefixes<'a>(old: &'a [u8], new: &[u8], git: bool) -> Option<&'a [u8]> {
    const LETTERS: &[u8] = b"abciow";
    let ([first, b'/', name @ ..], [second, b'/', other @ ..]) = (old, new) else {
        return None;
    };
    let prefixes = (*first == b'a' && *second == b'b')
        || (git && first != second && LETTERS.contains(first) && LETTERS.contains(second));
    (prefixes && name == other && !name.is_empty()).then_some(name)
}

/// A name in double quotes with escapes as in C, and what follows it.
fn unquote(text: &[u8]) -> Result<(Vec<u8>, &[u8]), Problem> {
    let mut name = Vec::new();
    let mut rest = text.strip_prefix(b"\"").unwrap_or(text);
    loop {
        match rest {
            [b'"', after @ ..] => return Ok((name, after)),
            [b'\\', after @ ..] => {
                let (byte, after) = escape(after)?;
                name.push(byte);
                rest = after;
            }
            [byte, after @ ..] => {
                name.push(*byte);
                rest = after;
            }
            [] => return Err("expected a closing quote after the name".into()),
        }
    }
}

fn escape(text: &[u8]) -> Result<(u8, &[u8]), Problem> {
    if let [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] = text {
        return Ok(((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), after));
    }
    let (byte, after) = text.split_first().ok_or("expected a closing quote after the name")?;
    let byte = match byte {
        b'a' => 7,
        b'b' => 8,
        b't' => b'\t',
        b'n' => b'\n',
        b'v' => 11,
        b'f' => 12,
        b'r' => b'\r',
        b'"' | b'\\' => *byte,
        _ => return Err("expected names in quotes to be escaped as in C, such as \\303\\251 or \\t".into()),
    };
    Ok((byte, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fed_28_quoted_names_and_times_are_read() {
        let name = |text: &str| named(text.as_bytes()).unwrap();
        let is = |name: &str, absent| Named { name: Some(name.as_bytes().to_vec()), absent };
        assert_eq!(name("a/x"), is("a/x", false));
        assert_eq!(name("a b\t"), is("a b", false));
        assert_eq!(name("x\t2024-02-03 10:11:12.000000000 +0100"), is("x", false));
        assert_eq!(name("x\t1970-01-01 00:00:00.000000000 +0000"), is("x", true));
        assert_eq!(name("x\t1969-12-31 19:00:00.000000000 -0500"), is("x", true));
        assert_eq!(name("/dev/null"), Named { name: None, absent: false });
        assert_eq!(name(r#""a/caf\303\251""#), is("a/café", false));
        assert_eq!(named(br#""a/\"\\\t\377" "#).unwrap().name.unwrap(), b"a/\"\\\t\xff");
        for wrong in ["", "\"a", "\"a\\", "\"\\q\"", "\"\\400\""] {
            assert!(named(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_of_gits_first_line_are_told_apart() {
        let names = |text: &str| {
            pair(text.as_bytes())
                .map(|(old, new)| (String::from_utf8(old).unwrap(), String::from_utf8(new).unwrap()))
        };
        let are = |old: &str, new: &str| Some((old.to_owned(), new.to_owned()));
        assert_eq!(names("a/x b/x"), are("a/x", "b/x"));
        assert_eq!(names("a/x y b/x y"), are("a/x y", "b/x y"));
        assert_eq!(names("x y x y"), are("x y", "x y"));
        assert_eq!(names("a/x b/yy"), are("a/x", "b/yy"));
        assert_eq!(names("a/x y b/z"), None);
        assert_eq!(names(r#""a/\303\251" "b/\303\251""#), are("a/é", "b/é"));
        assert_eq!(names(r#"a/e "b/\303\251""#), are("a/e", "b/é"));
    }

    #[test]
    fn prefixes_are_taken_off_when_both_have_them() {
        let stripped = |old: &str, new: &str, git| {
            let (old, new) = strip(old.into(), new.into(), git);
            (String::from_utf8(old).unwrap(), String::from_utf8(new).unwrap())
        };
        let are = |old: &str, new: &str| (old.to_owned(), new.to_owned());
        assert_eq!(stripped("a/x", "b/x", false), are("x", "x"));
        assert_eq!(stripped("a/x", "b/y", false), are("x", "y"));
        assert_eq!(stripped("x.orig", "x", false), are("x.orig", "x"));
        assert_eq!(stripped("a/x", "a/x", true), are("a/x", "a/x"));
        assert_eq!(stripped("i/x", "w/x", true), are("x", "x"));
        assert_eq!(stripped("i/x", "w/x", false), are("i/x", "w/x"));
    }
}
