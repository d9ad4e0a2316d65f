//! Names of keys, and what a terminal sends for them (XTerm Control Sequences, "PC-Style Function Keys").

use super::screen::TypingModes;
use crate::error::{Error, Result};

/// Keys held down together with another, as the bits of xterm's parameter.
const SHIFT: u8 = 1;
const ALT: u8 = 2;
const CONTROL: u8 = 4;

/// What stands before a key's name, in any case, for a key held down with it.
const HELD: [(&str, u8); 12] = [
    ("c-", CONTROL),
    ("ctrl-", CONTROL),
    ("ctrl+", CONTROL),
    ("control-", CONTROL),
    ("control+", CONTROL),
    ("m-", ALT),
    ("alt-", ALT),
    ("alt+", ALT),
    ("meta-", ALT),
    ("s-", SHIFT),
    ("shift-", SHIFT),
    ("shift+", SHIFT),
];

/// A key and how it is told to programs.
#[derive(Debug, Clone, Copy)]
enum Key {
    /// One byte, or with Shift these.
    Byte(u8),
    /// `CSI letter`, or `SS3 letter` in the application's mode of the cursor keys.
    Cursor(char),
    /// `SS3 letter`, or `CSI 1 ; n letter` with others held down.
    Function(char),
    /// `CSI number ~`.
    Number(u8),
    /// Any other character.
    Character(char),
}

const NAMES: [(&str, Key); 50] = [
    ("enter", Key::Byte(b'\r')),
    ("return", Key::Byte(b'\r')),
    ("cr", Key::Byte(b'\r')),
    ("tab", Key::Byte(b'\t')),
    ("escape", Key::Byte(0x1b)),
    ("esc", Key::Byte(0x1b)),
    ("backspace", Key::Byte(0x7f)),
    ("bspace", Key::Byte(0x7f)),
    ("bs", Key::Byte(0x7f)),
    ("space", Key::Character(' ')),
    ("up", Key::Cursor('A')),
    ("down", Key::Cursor('B')),
    ("right", Key::Cursor('C')),
    ("left", Key::Cursor('D')),
    ("arrowup", Key::Cursor('A')),
    ("arrowdown", Key::Cursor('B')),
    ("arrowright", Key::Cursor('C')),
    ("arrowleft", Key::Cursor('D')),
    ("home", Key::Cursor('H')),
    ("end", Key::Cursor('F')),
    ("insert", Key::Number(2)),
    ("ins", Key::Number(2)),
    ("delete", Key::Number(3)),
    ("del", Key::Number(3)),
    ("pageup", Key::Number(5)),
    ("pgup", Key::Number(5)),
    ("ppage", Key::Number(5)),
    ("pagedown", Key::Number(6)),
    ("pgdn", Key::Number(6)),
    ("npage", Key::Number(6)),
    ("f1", Key::Function('P')),
    ("f2", Key::Function('Q')),
    ("f3", Key::Function('R')),
    ("f4", Key::Function('S')),
    ("f5", Key::Number(15)),
    ("f6", Key::Number(17)),
    ("f7", Key::Number(18)),
    ("f8", Key::Number(19)),
    ("f9", Key::Number(20)),
    ("f10", Key::Number(21)),
    ("f11", Key::Number(23)),
    ("f12", Key::Number(24)),
    ("f13", Key::Number(25)),
    ("f14", Key::Number(26)),
    ("f15", Key::Number(28)),
    ("f16", Key::Number(29)),
    ("f17", Key::Number(31)),
    ("f18", Key::Number(32)),
    ("f19", Key::Number(33)),
    ("f20", Key::Number(34)),
];

/// What a terminal sends for the key of this name.
pub(super) fn encode(name: &str, modes: TypingModes) -> Result<Vec<u8>> {
    let unknown = || {
        let shown: String = name.chars().take(40).collect();
        Error::invalid(
            "keys",
            format!(
                "'{shown}' is no key; expected names such as Enter, Tab, Escape, Backspace, Space, Up, Home, PageDown, \
                 Delete, F5, C-c, M-x, S-Tab, C-Left, or a single character; words to type go into text"
            ),
        )
    };
    let (held, rest) = split(name);
    let key = find(rest).ok_or_else(unknown)?;
    let parameter = 1 + held;
    Ok(match key {
        Key::Cursor(letter) if held == 0 && modes.application_cursor => format!("\x1bO{letter}").into(),
        Key::Cursor(letter) if held == 0 => format!("\x1b[{letter}").into(),
        Key::Function(letter) if held == 0 => format!("\x1bO{letter}").into(),
        Key::Cursor(letter) | Key::Function(letter) => format!("\x1b[1;{parameter}{letter}").into(),
        Key::Number(number) if held == 0 => format!("\x1b[{number}~").into(),
        Key::Number(number) => format!("\x1b[{number};{parameter}~").into(),
        Key::Byte(b'\t') if held == SHIFT => b"\x1b[Z".to_vec(),
        Key::Byte(byte) => {
            let byte = if byte == 0x7f && held & CONTROL != 0 { 0x08 } else { byte };
            with_alt(held, vec![byte])
        }
        Key::Character(character) => with_alt(held, character_bytes(character, held).ok_or_else(unknown)?),
    })
}

/// Alt is an escape before the key.
fn with_alt(held: u8, mut bytes: Vec<u8>) -> Vec<u8> {
    if held & ALT != 0 {
        bytes.insert(0, 0x1b);
    }
    bytes
}

fn character_bytes(character: char, held: u8) -> Option<Vec<u8>> {
    if held & CONTROL == 0 {
        let shifted: String =
            if held & SHIFT != 0 { character.to_uppercase().collect() } else { character.to_string() };
        return Some(shifted.into_bytes());
    }
    let byte = u8::try_from(character).ok()?.to_ascii_uppercase();
    match byte {
        b'@'..=b'_' => Some(vec![byte & 0x1f]),
        b' ' => Some(vec![0]),
        b'?' => Some(vec![0x7f]),
        b'/' => Some(vec![0x1f]),
        _ => None,
    }
}

/// The keys held down, and the name of the other.
fn split(name: &str) -> (u8, &str) {
    let mut held = 0;
    let mut rest = name;
    loop {
        // The last character is the key itself, as in `C--`.
        let found = HELD.iter().find(|(prefix, _)| {
            rest.len() > prefix.len()
                && rest.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
        });
        match found {
            Some((prefix, key)) => {
                held |= key;
                rest = &rest[prefix.len()..];
            }
            None => break,
        }
    }
    match rest.strip_prefix('^').filter(|key| key.chars().count() == 1) {
        Some(key) => (held | CONTROL, key),
        None => (held, rest),
    }
}

fn find(name: &str) -> Option<Key> {
    let mut characters = name.chars();
    if let (Some(character), None) = (characters.next(), characters.next()) {
        return (!character.is_control()).then_some(Key::Character(character));
    }
    let named = |(known, _): &&(&str, Key)| known.eq_ignore_ascii_case(name);
    NAMES.iter().find(named).map(|(_, key)| *key)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: TypingModes = TypingModes { application_cursor: false, bracketed_paste: false };

    #[test]
    fn keys_send_what_xterm_sends() {
        for (name, expected) in [
            ("Enter", "\r"),
            ("Return", "\r"),
            ("Tab", "\t"),
            ("S-Tab", "\x1b[Z"),
            ("Escape", "\x1b"),
            ("Backspace", "\x7f"),
            ("C-Backspace", "\x08"),
            ("M-Backspace", "\x1b\x7f"),
            ("Space", " "),
            ("C-Space", "\0"),
            ("Up", "\x1b[A"),
            ("C-Up", "\x1b[1;5A"),
            ("S-Left", "\x1b[1;2D"),
            ("C-M-Right", "\x1b[1;7C"),
            ("Home", "\x1b[H"),
            ("End", "\x1b[F"),
            ("PageUp", "\x1b[5~"),
            ("pgdn", "\x1b[6~"),
            ("Delete", "\x1b[3~"),
            ("C-Delete", "\x1b[3;5~"),
            ("F1", "\x1bOP"),
            ("S-F1", "\x1b[1;2P"),
            ("F5", "\x1b[15~"),
            ("F12", "\x1b[24~"),
            ("C-c", "\x03"),
            ("ctrl+C", "\x03"),
            ("^C", "\x03"),
            ("C-[", "\x1b"),
            ("C-\\", "\x1c"),
            ("C-_", "\x1f"),
            ("C-?", "\x7f"),
            ("M-x", "\x1bx"),
            ("Alt-x", "\x1bx"),
            ("C-M-a", "\x1b\x01"),
            ("S-a", "A"),
            ("a", "a"),
            ("é", "é"),
            ("-", "-"),
            ("M--", "\x1b-"),
            ("^", "^"),
        ] {
            assert_eq!(encode(name, PLAIN).unwrap(), expected.as_bytes(), "{name}");
        }
    }

    #[test]
    fn cursor_keys_follow_the_mode_of_the_program() {
        let modes = TypingModes { application_cursor: true, ..PLAIN };
        assert_eq!(encode("Up", modes).unwrap(), b"\x1bOA");
        assert_eq!(encode("End", modes).unwrap(), b"\x1bOF");
        assert_eq!(encode("C-Up", modes).unwrap(), b"\x1b[1;5A");
        assert_eq!(encode("F1", modes).unwrap(), b"\x1bOP");
    }

    #[test]
    fn what_is_no_key_is_named() {
        for odd in ["", "Entr", "C-", "C-é", "C-Hyper-x", "hello", "\n", "F21", "C-1"] {
            let error = encode(odd, PLAIN).unwrap_err().to_string();
            assert!(error.starts_with("keys: '") && error.contains("Enter"), "{odd}: {error}");
        }
    }
}
