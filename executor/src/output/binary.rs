//! Owns the question whether bytes are text or binary data. Knows nothing of where they come from.

/// Bytes that a judgement is made on.
pub(super) const SAMPLE: usize = 8192;

/// Fewer bytes than this that no text has are shown, whatever their share: `a\x00b` says more than "binary".
const FEW: usize = 32;

/// Whether a sample looks like binary data: more than three tenths of its bytes, and at least 32, are control characters that
/// no text has or no part of valid UTF-8. Text in a one-byte encoding stays below that, compressed data and UTF-16 above.
pub(super) fn looks_binary(sample: &[u8]) -> bool {
    let sample = &sample[continuation_bytes(sample)..];
    let mut odd = 0;
    for chunk in sample.utf8_chunks() {
        odd += chunk.invalid().len() + chunk.valid().bytes().filter(|byte| is_odd(*byte)).count();
    }
    odd >= FEW && odd * 10 > sample.len() * 3
}

/// Bytes at the start that belong to a character begun before it: 0 to 3.
pub(super) fn continuation_bytes(bytes: &[u8]) -> usize {
    bytes.iter().take(3).take_while(|byte| matches!(byte, 0x80..=0xbf)).count()
}

fn is_odd(byte: u8) -> bool {
    match byte {
        0x07..=0x0d | 0x1b => false,
        0..=0x1f | 0x7f => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::looks_binary;

    #[test]
    fn text_of_any_script_is_text() {
        assert!(!looks_binary("你好，世界。\n".repeat(1000).as_bytes()));
        assert!(!looks_binary("\x1b[31mred\x1b[0m\r\n\tprogress 1%\r".repeat(1000).as_bytes()));
        assert!(!looks_binary(&b"D\xe9j\xe0 vu \xe0 la cr\xe8me br\xfbl\xe9e\n".repeat(300)));
        assert!(!looks_binary(&b"./a/file/name.txt\0".repeat(500)));
    }

    #[test]
    fn few_odd_bytes_are_text() {
        assert!(!looks_binary(b"a\0b\n"));
        assert!(!looks_binary(&[0; 31]));
        assert!(looks_binary(&[0; 32]));
    }

    #[test]
    fn utf_16_is_binary() {
        let wide: Vec<u8> = "some text\n".repeat(50).encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(looks_binary(&wide));
    }
}
