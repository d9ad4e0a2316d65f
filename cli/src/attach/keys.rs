//! What the person types: the key that detaches, and the text to send, in order and whole.

/// Most bytes sent by one call.
const BATCH: usize = 32 << 10;

/// Most bytes held while they can't be sent; what comes then is dropped, and told.
const HELD: usize = 4 << 20;

/// A key with Ctrl.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DetachKey(u8);

/// Reads a key such as `C-]`.
pub(super) fn detach_key(text: &str) -> Result<DetachKey, String> {
    let expected = || "expected Ctrl and a letter or one of ] \\ ^ _ @, such as C-] or C-b".to_owned();
    let prefix = ["C-", "c-", "^", "Ctrl-"].into_iter().find_map(|prefix| text.strip_prefix(prefix));
    let mut characters = prefix.ok_or_else(expected)?.chars();
    let key = match (characters.next(), characters.next()) {
        (Some(key @ ('a'..='z' | 'A'..='Z' | '@' | '\\' | ']' | '^' | '_')), None) => key,
        (Some('['), None) => return Err("C-[ is Escape, with which every arrow key begins".to_owned()),
        _ => return Err(expected()),
    };
    u8::try_from(key.to_ascii_uppercase()).map(|byte| DetachKey(byte & 0x1f)).map_err(|_| expected())
}

impl std::fmt::Display for DetachKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ctrl-{}", char::from(self.0 | 0x40))
    }
}

/// What was typed and is not sent yet.
#[derive(Debug)]
pub(super) struct Typed {
    detach: DetachKey,
    held: Vec<u8>,
}

/// What a piece of input meant.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meant {
    /// To be sent.
    Input,
    /// So many bytes found no room.
    Dropped(usize),
    /// The end of it was the key that detaches.
    Detach,
}

impl Typed {
    pub(super) const fn new(detach: DetachKey) -> Self {
        Self { detach, held: Vec::new() }
    }

    /// Takes what was typed, up to the key that detaches.
    pub(super) fn add(&mut self, bytes: &[u8]) -> Meant {
        let end = bytes.iter().position(|&byte| byte == self.detach.0);
        let input = &bytes[..end.unwrap_or(bytes.len())];
        let fits = input.len().min(HELD.saturating_sub(self.held.len()));
        self.held.extend_from_slice(&input[..fits]);
        match end {
            Some(_) => Meant::Detach,
            None if fits < input.len() => Meant::Dropped(input.len() - fits),
            None => Meant::Input,
        }
    }

    /// The next text to send; empty when there is none. The beginning of a character waits for its rest; bytes that can't
    /// be part of any text are left out, as a message can't carry them.
    pub(super) fn take(&mut self) -> String {
        let mut text = String::new();
        let mut used = 0;
        while used < self.held.len() && text.len() < BATCH {
            let window = &self.held[used..self.held.len().min(used + BATCH - text.len())];
            let is_last = used + window.len() == self.held.len();
            match std::str::from_utf8(window) {
                Ok(valid) => {
                    text.push_str(valid);
                    used += valid.len();
                }
                Err(error) => {
                    let valid = error.valid_up_to();
                    text.push_str(std::str::from_utf8(&window[..valid]).unwrap_or_default());
                    used += valid;
                    match error.error_len() {
                        Some(bad) => used += bad,
                        // Cut by the window or not typed to its end.
                        None if is_last || valid > 0 || !text.is_empty() => break,
                        None => used += 1,
                    }
                }
            }
        }
        self.held.drain(..used);
        text
    }

    /// Puts back what was not taken of the text sent last.
    pub(super) fn put_back(&mut self, rest: &[u8]) {
        self.held.splice(..0, rest.iter().copied());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed() -> Typed {
        Typed::new(detach_key("C-]").unwrap())
    }

    #[test]
    fn detach_keys_are_read_and_shown() {
        for (text, byte, shown) in
            [("C-]", 0x1d, "Ctrl-]"), ("c-b", 2, "Ctrl-B"), ("^\\", 0x1c, "Ctrl-\\"), ("Ctrl-A", 1, "Ctrl-A")]
        {
            let key = detach_key(text).unwrap();
            assert_eq!((key.0, key.to_string().as_str()), (byte, shown));
        }
        for bad in ["", "]", "C-", "C-[", "C-ab", "C-é", "M-x"] {
            assert!(detach_key(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn characters_wait_for_their_rest() {
        let mut typed = typed();
        assert_eq!(typed.add("a日".as_bytes().split_at(2).0), Meant::Input);
        assert_eq!((typed.take().as_str(), typed.take().as_str()), ("a", ""));
        typed.add(&"日".as_bytes()[1..]);
        assert_eq!((typed.take().as_str(), typed.held.len()), ("日", 0));
        typed.add(b"x\xffy");
        assert_eq!(typed.take(), "xy");
    }

    #[test]
    fn long_input_goes_in_batches_and_what_was_not_taken_goes_first() {
        let mut typed = typed();
        let text = "é".repeat(BATCH);
        typed.add(text.as_bytes());
        let mut sent = String::new();
        loop {
            let batch = typed.take();
            if batch.is_empty() {
                break;
            }
            assert!(batch.len() <= BATCH, "{}", batch.len());
            sent.push_str(&batch);
        }
        assert_eq!(sent, text);
        typed.add(b"world");
        typed.put_back(b"hello ");
        assert_eq!(typed.take(), "hello world");
    }

    #[test]
    fn the_key_that_detaches_ends_the_input() {
        let mut typed = typed();
        assert_eq!(typed.add(b"ab\x1dcd"), Meant::Detach);
        assert_eq!((typed.take().as_str(), typed.held.len()), ("ab", 0));
    }

    #[test]
    fn too_much_is_told() {
        let mut typed = typed();
        assert_eq!(typed.add(&vec![b'a'; HELD + 7]), Meant::Dropped(7));
    }
}
