//! Paths between tools and the wire: text on one side, bytes on the other. A byte that can't stand in a line of text
//! (not UTF-8, or a control character) is written `\xNN`, both ways; so is the backslash of a name that itself holds
//! such a sequence. Every path that is shown can thus be sent back.

use bytes::Bytes;

/// The bytes of a path given as text.
pub(crate) fn to_bytes(text: &str) -> Bytes {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        match escape(rest) {
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[4..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes.into()
}

/// The text of a path.
pub(crate) fn to_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid();
        for (place, char) in valid.char_indices() {
            if char.is_control() || (char == '\\' && escape(&valid.as_bytes()[place..]).is_some()) {
                let mut buffer = [0; 4];
                char.encode_utf8(&mut buffer).bytes().for_each(|byte| push_escape(&mut text, byte));
            } else {
                text.push(char);
            }
        }
        chunk.invalid().iter().for_each(|byte| push_escape(&mut text, *byte));
    }
    text
}

/// Content as text for a model: bytes that are not UTF-8, and NUL, as `\xNN`; and whether there were any.
pub(crate) fn visible(bytes: &[u8]) -> (String, bool) {
    let mut text = String::with_capacity(bytes.len());
    let mut odd = false;
    for chunk in bytes.utf8_chunks() {
        for (number, part) in chunk.valid().split('\0').enumerate() {
            if number > 0 {
                odd = true;
                push_escape(&mut text, 0);
            }
            text.push_str(part);
        }
        odd |= !chunk.invalid().is_empty();
        chunk.invalid().iter().for_each(|byte| push_escape(&mut text, *byte));
    }
    (text, odd)
}

fn escape(bytes: &[u8]) -> Option<u8> {
    let [b'\\', b'x', high, low, ..] = bytes else {
        return None;
    };
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

fn push_escape(text: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    text.push_str("\\x");
    text.push(char::from(DIGITS[usize::from(byte >> 4)]));
    text.push(char::from(DIGITS[usize::from(byte & 15)]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fed_28_every_name_that_is_shown_can_be_sent_back() {
        for name in [
            &b"plain.txt"[..],
            b"bad\xff.txt",
            b"nl\nx",
            b"\x1b[31m",
            b"-rf",
            b" lead",
            b"back\\slash\\x",
            b"literal \\xff",
            b"\\x5cxff",
            "caf\u{e9} \u{85} \u{20ac}".as_bytes(),
            b"cut \xe2\x82",
        ] {
            let text = to_text(name);
            assert_eq!(to_bytes(&text), name, "{text}");
            assert!(!text.chars().any(char::is_control), "{text:?}");
        }
        assert_eq!(to_text(b"bad\xff.txt"), "bad\\xff.txt");
    }

    #[test]
    fn out_08_nul_is_made_visible() {
        assert_eq!(visible(b"a\0b\n"), ("a\\x00b\n".to_owned(), true));
        assert_eq!(visible("a\u{20ac}\n".as_bytes()), ("a\u{20ac}\n".to_owned(), false));
        assert_eq!(visible(b"caf\xe9"), ("caf\\xe9".to_owned(), true));
    }
}
