//! Owns the shape of terminal escape sequences: where one ends, and the few that change the current line. Knows nothing
//! of text around them.

/// A sequence that has not ended after this many bytes is none. The longest in use, a chunk of a picture, has some 4,200.
pub(super) const LIMIT: usize = 8192;

const ESC: u8 = 0x1b;
const BEL: u8 = 0x07;

/// What stands at the start of some bytes that begin with ESC.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sequence {
    /// A sequence of `len` bytes.
    Complete { len: usize, effect: Effect },
    /// The start of a sequence; more bytes will tell.
    Incomplete,
    /// No sequence: the ESC stands for itself.
    Broken,
}

/// What a sequence does to the current line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing that shows in text.
    Nothing,
    /// Erases from the cursor on.
    EraseRight,
    /// Erases the whole line.
    EraseLine,
    /// Moves the cursor to the first column.
    Return,
}

/// Parses the sequence at the start of `bytes`, which begin with ESC. The answer depends on the first `LIMIT` bytes only,
/// so it is the same however they arrive.
pub(super) fn parse(bytes: &[u8]) -> Sequence {
    let window = &bytes[..bytes.len().min(LIMIT)];
    let found = match window.get(1) {
        None => None,
        Some(b'[') => control_sequence(window),
        Some(b']') => operating_system_command(window),
        Some(b'P' | b'X' | b'^' | b'_') => control_string(window, 2),
        // An ESC interrupted by the next one says nothing.
        Some(&ESC) => Some(silent(1)),
        Some(0x20..=0x2f) => ended_by(window, 2, 0x20..=0x2f, 0x30..=0x7e),
        Some(0x30..=0x7e) => Some(silent(2)),
        Some(_) => Some(Sequence::Broken),
    };
    match found {
        Some(sequence) => sequence,
        None if window.len() == LIMIT => Sequence::Broken,
        None => Sequence::Incomplete,
    }
}

fn silent(len: usize) -> Sequence {
    Sequence::Complete { len, effect: Effect::Nothing }
}

/// A sequence whose bytes from `from` on are in `inner` until one in `last` ends it.
fn ended_by(
    window: &[u8],
    from: usize,
    inner: std::ops::RangeInclusive<u8>,
    last: std::ops::RangeInclusive<u8>,
) -> Option<Sequence> {
    let end = from + window[from..].iter().position(|byte| !inner.contains(byte))?;
    Some(if last.contains(&window[end]) { silent(end + 1) } else { Sequence::Broken })
}

/// CSI: parameters, intermediates, a final byte.
fn control_sequence(window: &[u8]) -> Option<Sequence> {
    let sequence = ended_by(window, 2, 0x20..=0x3f, 0x40..=0x7e)?;
    let Sequence::Complete { len, .. } = sequence else {
        return Some(sequence);
    };
    let effect = match &window[2..len] {
        b"K" | b"0K" | b"J" | b"0J" => Effect::EraseRight,
        b"2K" => Effect::EraseLine,
        b"G" | b"1G" => Effect::Return,
        _ => Effect::Nothing,
    };
    Some(Sequence::Complete { len, effect })
}

/// OSC: ended by BEL or as every control string. A line feed or another control means that its end was forgotten; what
/// follows is output, not a title.
fn operating_system_command(window: &[u8]) -> Option<Sequence> {
    let end = 2 + window[2..].iter().position(|byte| *byte < 0x20)?;
    match window[end] {
        BEL => Some(silent(end + 1)),
        ESC => control_string(window, end),
        _ => Some(Sequence::Broken),
    }
}

/// DCS, SOS, PM and APC: ended by ESC \, or cut off by the ESC of another sequence.
fn control_string(window: &[u8], from: usize) -> Option<Sequence> {
    let end = from + memchr::memchr(ESC, &window[from..])?;
    Some(if *window.get(end + 1)? == b'\\' { silent(end + 2) } else { silent(end) })
}
