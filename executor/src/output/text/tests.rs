use proptest::prelude::*;

use super::*;

fn clean(bytes: &[u8]) -> String {
    let mut cleaner = Cleaner::new(usize::MAX);
    assert_eq!(cleaner.feed(bytes), bytes.len());
    assert!(cleaner.finish());
    cleaner.into_text()
}

/// Cleans `bytes` fed one by one, and checks that it makes no difference.
fn cleaned(bytes: impl AsRef<[u8]>) -> String {
    let mut cleaner = Cleaner::new(usize::MAX);
    for byte in bytes.as_ref() {
        cleaner.feed(&[*byte]);
    }
    cleaner.finish();
    let text = cleaner.into_text();
    assert_eq!(clean(bytes.as_ref()), text);
    text
}

#[test]
fn out_02_characters_split_between_reads_stay_whole() {
    assert_eq!(cleaned("cleanup — end\n"), "cleanup — end\n");
    assert_eq!(cleaned("你".repeat(5000)), "你".repeat(5000));
    assert_eq!(cleaned(b"x\xe2\x82"), "x\\xe2\\x82");
    assert_eq!(
        cleaned(b"\xe2\x82\x1b[mx\xf0\x9f\n\xed\xa0\x80\xff"),
        "\\xe2\\x82x\\xf0\\x9f\n\\xed\\xa0\\x80\\xff"
    );
    assert_eq!(cleaned("a\u{fffd}b\u{a0}£\u{9b}"), "a\u{fffd}b\u{a0}£\\xc2\\x9b");
    assert_eq!(cleaned(b"\xc2"), "\\xc2");
    assert_eq!(cleaned(b"\xc2\xc2\xa3"), "\\xc2£");
}

#[test]
fn out_08_control_characters_are_shown() {
    assert_eq!(cleaned(b"a\0b\n"), "a\\x00b\n");
    assert_eq!(cleaned(b"\ta\x0cb\x7f\x1f\x07\x0e\x0f.\n"), "\ta\\x0cb\\x7f\\x1f.\n");
}

#[test]
fn out_10_carriage_returns_are_applied() {
    assert_eq!(cleaned("first\rsecond\nthird\n"), "second\nthird\n");
    let progress: String = (1..=5000).map(|i| format!("\rP {i:05}")).collect();
    assert_eq!(cleaned(progress + "\nDONE\n"), "P 05000\nDONE\n");
    assert_eq!(cleaned("abcdef\rxy\n"), "xycdef\n");
    assert_eq!(cleaned("abcdef\rxy"), "xycdef");
    assert_eq!(cleaned("long text\r         \rOK\n"), "OK\n");
    assert_eq!(cleaned("long text\r\x1b[KOK\n"), "OK\n");
    assert_eq!(cleaned("long text\r\x1b[K\n"), "\n");
    assert_eq!(cleaned("a\r\r\nb\r"), "a\nb");
    assert_eq!(cleaned("long text\x1b[2K\x1b[1GOK\nlong text\x1b[GOK\n"), "OK\nOKng text\n");
    assert_eq!(cleaned("进度 10\r你\n"), "你度 10\n");
    assert_eq!(cleaned("é\rab\rü\n"), "üb\n");
}

#[test]
fn backspaces_are_applied() {
    assert_eq!(cleaned("a\x08b _\x08x B\x08B\n"), "b x B\n");
    assert_eq!(cleaned("|\x08/\x08-\x08\n"), "-\n");
    assert_eq!(cleaned("\x08\x08a\n\x08b"), "a\nb");
    assert_eq!(cleaned("你好\x08\x08x\n"), "x好\n");
}

#[test]
fn out_11_escape_sequences_go_and_text_stays() {
    assert_eq!(cleaned("a\r\nb\r\n"), "a\nb\n");
    assert_eq!(cleaned("\x1b[?25lx\x1b[?25h\n"), "x\n");
    assert_eq!(cleaned("\x1b]0;title\x07y\x1b]8;;http://h\x1b\\z\x1b]8;;\x1b\\\n"), "yz\n");
    assert_eq!(cleaned("\x1b[31mred\x1b[0m\n"), "red\n");
    assert_eq!(cleaned("\x1b[38;2;1;2;3m\x1b[>0q\x1b[!p\x1b[4:3mtext\x1b[200~\x1b[=1;1u\n"), "text\n");
    assert_eq!(cleaned("\x1b(B\x1b)0\x1b%G\x1b#8\x1b7\x1b8\x1b=\x1b>\x1bMtext\x1bc\n"), "text\n");
    assert_eq!(cleaned("\x1bP1$r0m\x1b\\a\x1b_Gpic\nture\x1b\\b\x1b^pm\x1b\\c\x1bXsos\x1b\\d\n"), "abcd\n");
    assert_eq!(cleaned("\x1b]0;标题“x”\x07text\n"), "text\n");
}

#[test]
fn broken_escape_sequences_are_shown() {
    assert_eq!(cleaned("\x1b[31"), "\\x1b[31");
    assert_eq!(cleaned("\x1b[31\nnext\n"), "\\x1b[31\nnext\n");
    assert_eq!(cleaned("\x1b]0;no end\nnext\n"), "\\x1b]0;no end\nnext\n");
    assert_eq!(cleaned("\x1b]0;cut off\x1b[1mtext\x1b\x1b[0m\n"), "text\n");
    assert_eq!(cleaned("\x1b\n\x1b你"), "\\x1b\n\\x1b你");
    for start in ["\x1bP", "\x1b[", "\x1b]", "\x1b_"] {
        for extra in [0, 1, 20_000] {
            let body = "1".repeat(escape::LIMIT - 2 + extra);
            let bytes = format!("{start}{body}\nnext\n");
            let text = if extra == 0 { cleaned(&bytes) } else { clean(bytes.as_bytes()) };
            assert_eq!(text, format!("\\x1b{}{body}\nnext\n", &start[1..]));
        }
    }
    let longest = "1".repeat(escape::LIMIT - 4);
    assert_eq!(cleaned(format!("\x1bP{longest}\x1b\\text")), "text");
    assert_eq!(cleaned(format!("\x1bP{longest}1\x1b\\text")), format!("\\x1bP{longest}1text"));
}

#[test]
fn out_01_a_limit_cuts_between_characters() {
    for limit in 8..40 {
        let text = "a".repeat(15) + &"€".repeat(10);
        let mut cleaner = Cleaner::new(limit);
        let taken = cleaner.feed(text.as_bytes());
        let cut = cleaner.into_text();
        assert_eq!(cut, text[..taken]);
        assert!(cut.len() <= limit && cut.len() + 3 > limit, "{limit}");
    }
    let mut cleaner = Cleaner::new(8);
    assert_eq!(cleaner.feed(b"1234567\x1b[m\x07\r\n8"), 13);
    let mut cleaner = Cleaner::new(8);
    assert_eq!(cleaner.feed(b"12345678\x1b[m\x07\r\n8"), 12);
    let mut cleaner = Cleaner::new(8);
    assert_eq!(cleaner.feed(b"12345\0"), 5);
}

#[test]
fn a_redrawn_line_that_was_begun_before_starts_anew() {
    let resumed = |before: &str, bytes: &str| {
        let mut cleaner = Cleaner::resume(before.as_bytes(), true, 100);
        cleaner.feed(bytes.as_bytes());
        cleaner.finish();
        cleaner.into_text()
    };
    assert_eq!(resumed("P 1", "\rP 2\rP 3\n"), "\nP 3\n");
    assert_eq!(resumed("P 1\rP", " 2\rP 3\n"), "\nP 3\n");
    assert_eq!(resumed("P 1\rP", " 2\n"), "\n 2\n");
    assert_eq!(resumed("P 1", "23\x1b[K\rP 200\r\x1b[K\rx"), "23\nx");
    assert_eq!(resumed("P 1", " of 2\n\rnext\rmore\n"), " of 2\nmore\n");
    assert_eq!(resumed("P 1", "\r\nnext"), "\nnext");
    assert_eq!(resumed("a\n", "\rb"), "b");
    assert_eq!(resumed("a\r\x1b[K", "b"), "b");
    assert_eq!(resumed("P 1", "\x08\x08x"), "x");
}

#[test]
fn a_searching_cleaner_keeps_redrawn_lines() {
    let mut cleaner = Cleaner::keeping_redrawn();
    cleaner.feed(b"\rP 1\rP 2\r\x1b[K\rP 3\r\nDONE\n");
    assert_eq!(cleaner.printed(), "P 1\nP 2\nP 3\nDONE\n");
    assert!(cleaner.forget(6));
    assert_eq!(cleaner.printed(), "\nDONE\n");
    assert!(!cleaner.forget(6));
}

/// Pieces of output that mean something, and pieces of those.
pub(crate) fn output() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        "[a-z 你é€£\u{9b}😀]{0,12}".prop_map(String::into_bytes),
        prop::sample::select(vec![
            "\n",
            "\r\n",
            "\r",
            "\x08",
            "\x07",
            "\0",
            "\x1b",
            "\x1b[",
            "\x1b[31m",
            "\x1b[K",
            "\x1b[2K",
            "\x1b[1G",
            "\x1b]0;t\x07",
            "\x1b]8;;h\x1b\\",
            "\x1bP",
            "\x1b(B",
            "\\",
            "\t",
        ])
        .prop_map(|part| part.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..4),
    ];
    prop::collection::vec(part, 0..60).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn chunks_make_no_difference(bytes in output(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20)) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        let mut cleaner = Cleaner::new(usize::MAX);
        let mut start = 0;
        for cut in cuts {
            cleaner.feed(&bytes[start..cut]);
            start = cut;
        }
        cleaner.feed(&bytes[start..]);
        cleaner.finish();
        prop_assert_eq!(cleaner.into_text(), clean(&bytes));
    }

    #[test]
    fn text_is_fit_to_be_shown_and_within_its_limit(bytes in output(), limit in 8..200usize) {
        let mut cleaner = Cleaner::new(limit);
        let taken = cleaner.feed(&bytes);
        prop_assert!(cleaner.text_bytes() <= limit);
        if taken == bytes.len() {
            cleaner.finish();
        }
        let text = cleaner.into_text();
        prop_assert!(text.len() <= limit);
        let fit = |c: char| c != char::REPLACEMENT_CHARACTER && (!c.is_control() || c == '\n' || c == '\t');
        prop_assert!(text.chars().all(fit));
    }
}
