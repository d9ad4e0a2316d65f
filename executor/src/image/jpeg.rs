//! What the markers of a JPEG tell that its decoder does not.

/// Number of components: 1 for grey, 3 for colour, 4 for CMYK and YCCK.
pub(super) fn components(bytes: &[u8]) -> Option<u8> {
    let mut at = 2;
    loop {
        let marker = *bytes.get(at..at + 2)?.strip_prefix(b"\xff")?.first()?;
        match marker {
            // A fill byte.
            0xff => at += 1,
            // Markers without a segment.
            0x01 | 0xd0..=0xd8 => at += 2,
            // Start of a frame; the four left out are tables and an extension.
            0xc0..=0xcf if ![0xc4, 0xc8, 0xcc].contains(&marker) => return bytes.get(at + 9).copied(),
            // The scan, or the end, before any frame.
            0xd9 | 0xda => return None,
            _ => {
                let length = u16::from_be_bytes(bytes.get(at + 2..at + 4)?.try_into().ok()?);
                at += 2 + usize::from(length);
            }
        }
    }
}
