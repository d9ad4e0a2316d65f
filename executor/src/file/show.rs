//! Bytes as text for people and models. It only shows; nothing that is written to a file comes from here.

use std::fmt::Write as _;

/// `bytes` as text: what is not UTF-8 and every control character becomes an escape such as `\xff`, `\n` or `\t`.
pub(crate) fn show(bytes: &[u8]) -> String {
    show_keeping(bytes, &[])
}

/// As [`show`], with the control characters in `kept` left as they are.
pub(super) fn show_keeping(bytes: &[u8], kept: &[char]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            if !char.is_control() || kept.contains(&char) {
                text.push(char);
            } else if char.is_ascii() && !matches!(char, '\n' | '\r' | '\t') {
                escape(&mut text, &[u8::try_from(char).unwrap_or_default()]);
            } else {
                text.extend(char.escape_default());
            }
        }
        escape(&mut text, chunk.invalid());
    }
    text
}

/// The first `limit` characters of `text`, and an ellipsis where something is cut.
pub(super) fn shorten(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn escape(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string can't fail.
        let _: std::fmt::Result = write!(text, "\\x{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_what_is_no_text_as_escapes() {
        assert_eq!(show(b"a\xff\n\x1b[0m\t\xc3\xa9"), "a\\xff\\n\\x1b[0m\\t\u{e9}");
        assert_eq!(show_keeping(b"\ta\r\n", &['\t', '\n']), "\ta\\r\n");
        assert_eq!(shorten("äöü", 2), "äö…");
        assert_eq!(shorten("äö", 2), "äö");
    }
}
