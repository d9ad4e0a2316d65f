//! What edits change, what they leave, and what they say when they refuse.

use std::fs;

use proptest::prelude::*;

use super::{
    Edit, IfMatch, Range,
    condition::sha256_hex,
    edit,
    fixture::{Fixture, all, one},
    matching::{Outcome, replace},
};
use crate::error::Error;

/// Edits a file with `content` and returns what it holds then.
fn edited(content: impl AsRef<[u8]>, edits: &[Edit]) -> Vec<u8> {
    let fixture = Fixture::new();
    fixture.put("f", content);
    let result = fixture.edits("f", edits).unwrap();
    let now = fixture.get("f");
    assert_eq!(result.sha256, sha256_hex(&now));
    assert_eq!(result.size_bytes, u64::try_from(now.len()).unwrap());
    now
}

/// The error of edits, and that they left the file alone.
fn refused(content: &str, edits: &[Edit]) -> String {
    let fixture = Fixture::new();
    fixture.put("f", content);
    let before = fs::metadata(fixture.path("f")).unwrap().modified().unwrap();
    let error = fixture.edits("f", edits).unwrap_err().to_string();
    assert_eq!(fixture.get("f"), content.as_bytes());
    assert_eq!(fs::metadata(fixture.path("f")).unwrap().modified().unwrap(), before);
    assert_eq!(fixture.names("."), ["f"]);
    error
}

#[test]
fn fed_01_line_ends_stay_and_new_lines_get_those_of_their_neighbours() {
    assert_eq!(edited("a\r\nb\r\nc\r\n", &[one("b", "B")]), b"a\r\nB\r\nc\r\n");
    assert_eq!(edited("a\r\nb\r\nc\r\n", &[one("b", "B1\nB2")]), b"a\r\nB1\r\nB2\r\nc\r\n");
    assert_eq!(edited("a\r\nb\nc\r\n", &[one("b", "B")]), b"a\r\nB\nc\r\n");
    assert_eq!(edited("a\r\nb\nc\r\n", &[one("b", "B1\nB2")]), b"a\r\nB1\nB2\nc\r\n");
    assert_eq!(edited("a\r\nb", &[one("b", "B1\nB2")]), b"a\r\nB1\r\nB2");
    assert_eq!(edited("a\r\nx\nx\r\n", &[all("x", "1\n2")]), b"a\r\n1\n2\n1\r\n2\r\n");
    assert_eq!(edited("a\r\nb\r\n", &[one("b", "1\r\n2\n3")]), b"a\r\n1\r\n2\n3\r\n");
}

#[test]
fn fed_02_text_with_lf_matches_lines_with_crlf() {
    assert_eq!(edited("a\r\nb\r\nc\r\n", &[one("a\nb", "a\nX")]), b"a\r\nX\r\nc\r\n");
    assert_eq!(edited("a\r\nb\r\nc\r\n", &[one("b\n", "")]), b"a\r\nc\r\n");
    assert_eq!(edited("a\r\nb\r\nc\r\n", &[one("\nb", "")]), b"a\r\nc\r\n");
    assert_eq!(edited("a\nb\r\nc\n", &[one("a\nb\nc", "x\ny")]), b"x\r\ny\n");
    assert_eq!(edited("a\r\nb\r\n", &[one("a\r\nb", "c\r\nd")]), b"c\r\nd\r\n");
    assert!(refused("a\nb\n", &[one("a\r\nb", "c")]).contains("the line ends differ"));
}

#[test]
fn fed_03_a_byte_order_mark_stays() {
    assert_eq!(edited(b"\xef\xbb\xbfx=1\n", &[one("x=1", "x=2")]), b"\xef\xbb\xbfx=2\n");
}

#[test]
fn fed_04_the_last_line_end_is_neither_added_nor_taken() {
    assert_eq!(edited("a\nb", &[one("a", "A")]), b"A\nb");
    assert_eq!(edited("a\nb\n", &[one("b", "B")]), b"a\nB\n");
}

#[test]
fn fed_06_what_is_ambiguous_absent_or_without_effect_changes_nothing() {
    let error = refused("x\nx\n", &[one("x", "y")]);
    assert_eq!(error, "f: edit 1: 2 matches of old_text, at lines 1, 2");
    assert_eq!(edited("x\nx\n", &[all("x", "y")]), b"y\ny\n");
    assert!(refused("x\nx\n", &[one("zz", "y")]).starts_with("f: edit 1: old_text not found; "));
    assert_eq!(refused("aaa", &[one("aa", "b")]), "f: edit 1: 2 matches of old_text, at lines 1, 1");
    assert_eq!(edited("aaa", &[all("aa", "b")]), b"ba");
    assert!(refused("x\n", &[one("x", "x")]).contains("no change"));
    assert!(refused("x\n", &[one("x", "y"), one("y", "x")]).contains("no change"));
    assert_eq!(
        refused("x\n", &[one("x", "y"), one("", "y")]),
        "old_text: is empty in edit 2; expected the text to replace"
    );
    assert_eq!(refused("x\n", &[]), "edits: is empty; expected at least one edit");
    assert!(
        refused("x\n".repeat(9).as_str(), &[one("x", "y")])
            .ends_with("9 matches of old_text, at lines 1, 2, 3, 4, 5, …")
    );
}

#[test]
fn all_edits_are_done_in_order_or_none() {
    assert_eq!(edited("a b", &[one("a", "b2"), one("b2 b", "done")]), b"done");
    assert!(
        refused("a b", &[one("a", "x"), one("nowhere", "y")]).starts_with("f: edit 2: old_text not found")
    );
}

#[test]
fn fed_07_white_space_is_never_forgiven_but_named() {
    let error = refused("def foo():\n    x = 1\n    y = 2\n", &[one("    x  =  1", "    x = 100")]);
    assert!(error.contains("line 2: \"    x = 1\" — white space within the line differs"), "{error}");
    let error = refused("foo\nbar\n", &[one("foo ", "baz ")]);
    assert!(error.contains("line 1: \"foo\" — white space at the end of the line differs"), "{error}");
    assert!(refused("a  b c\n", &[one("a b", "Q")]).contains("not found"));
}

#[test]
fn fed_09_tabs_and_spaces_are_not_the_same() {
    assert_eq!(edited("all:\n\tcc x\n", &[one("cc x", "cc y")]), b"all:\n\tcc y\n");
    let error = refused("all:\n\tcc x\n", &[one("    cc x", "    cc z")]);
    assert!(error.contains("the indentation differs (tabs and spaces)"), "{error}");
}

#[test]
fn fed_10_bytes_that_are_not_text_stay() {
    let content = b"const x = 1;\n// caf\xe9 note\n";
    assert_eq!(edited(content, &[one("x = 1", "x = 2")]), b"const x = 2;\n// caf\xe9 note\n");
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\xff\xfe";
    assert_eq!(edited(png, &[one("IHDR", "ihdr")]), b"\x89PNG\r\n\x1a\n\0\0\0\rihdr\0\xff\xfe");
    let utf16 = b"\xff\xfea\0b\0\n\0";
    assert_eq!(edited(utf16, &[one("b", "c")]), b"\xff\xfea\0c\0\n\0");
    assert_eq!(edited(b"end\xc3", &[one("end", "END")]), b"END\xc3");
}

#[test]
fn fed_18_a_condition_on_the_content_holds_after_a_touch() {
    let fixture = Fixture::new();
    fixture.put("f", "one\n");
    let sha256 = fixture.lines("f").unwrap().sha256.unwrap();
    fs::File::open(fixture.path("f")).unwrap().set_modified(std::time::SystemTime::now()).unwrap();
    let if_match = IfMatch::parse(&sha256.to_uppercase()).unwrap();
    let change = |old, new| edit::edit(&fixture.root, b"f", &[one(old, new)], &if_match, &fixture.limits);
    change("one", "two").unwrap();
    let error = change("two", "three").unwrap_err();
    assert!(
        matches!(&error, Error::FileChanged { sha256, .. } if *sha256 == sha256_hex(b"two\n")),
        "{error}"
    );
    assert_eq!(fixture.get("f"), b"two\n");
}

#[test]
fn the_result_shows_the_change_under_the_name_of_the_file() {
    let fixture = Fixture::new();
    fixture.put("dir/f", "1\n2\n3\n");
    fixture.link("dir/f", "l");
    let result = fixture.edits("l", &[one("2", "two"), all("3", "three")]).unwrap();
    assert_eq!(result.path, fixture.path("dir/f"));
    assert_eq!((result.replacements, result.diff_truncated), (2, false));
    assert_eq!(result.diff, "--- a/dir/f\n+++ b/dir/f\n@@ -1,3 +1,3 @@\n 1\n-2\n-3\n+two\n+three\n");
}

#[test]
fn an_edit_that_would_grow_the_file_past_the_limit_is_refused() {
    let mut fixture = Fixture::new();
    fixture.limits.max_bytes = 1000;
    fixture.put("f", "a".repeat(1000));
    let error = fixture.edits("f", &[all("a", &"b".repeat(1000))]).unwrap_err();
    assert!(matches!(error, Error::FileTooLarge { limit: 1000, .. }), "{error}");
    assert_eq!(fixture.get("f"), "a".repeat(1000).as_bytes());
}

#[test]
fn texts_that_repeat_themselves_take_no_time() {
    let start = std::time::Instant::now();
    let content = "a".repeat(4 << 20);
    let old = "a".repeat(2 << 20);
    assert_eq!(
        replace(content.as_bytes(), old.as_bytes(), b"", false, 1 << 30),
        Outcome::NotUnique(2, vec![1, 1])
    );
    let replaced = replace(content.as_bytes(), b"a", b"\n", true, 1 << 30);
    assert_eq!(replaced, Outcome::Replaced("\n".repeat(4 << 20).into_bytes(), 4 << 20));
    assert!(start.elapsed() < std::time::Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn reading_a_line_and_editing_it_meet() {
    let fixture = Fixture::new();
    fixture.put("f", "a\r\nb\r\n");
    let line = fixture.read("f", Range::Lines { start: 2, count: 1 }).unwrap().content;
    fixture.edit("f", std::str::from_utf8(&line).unwrap(), "B\r\n").unwrap();
    assert_eq!(fixture.get("f"), b"a\r\nB\r\n");
}

/// How often `old` occurs in `text`, those included that overlap.
fn occurrences(text: &str, old: &str) -> usize {
    text.char_indices().filter(|(at, _)| text[*at..].starts_with(old)).count()
}

proptest! {
    #[test]
    fn edits_do_what_the_simple_model_does(content in "[ab\n]{0,40}", old in "[ab\n]{1,4}", new in "[abc\n]{0,4}", all: bool) {
        let result = replace(content.as_bytes(), old.as_bytes(), new.as_bytes(), all, usize::MAX);
        match (occurrences(&content, &old), all) {
            (0, _) => prop_assert_eq!(result, Outcome::NotFound),
            (1, _) | (_, true) => {
                let count = u64::try_from(content.matches(&old).count()).unwrap();
                prop_assert_eq!(result, Outcome::Replaced(content.replace(&old, &new).into_bytes(), count));
            }
            (many, false) => {
                let told = matches!(result, Outcome::NotUnique(count, _) if (2..=many).contains(&count));
                prop_assert!(told, "{:?}", result);
            }
        }
    }

    #[test]
    fn a_file_with_crlf_is_edited_as_one_with_lf(content in "([ab]{0,3}\n){1,8}", old in "[ab\n]{1,4}", new in "[abc\n]{0,4}", all: bool) {
        let crlf = content.replace('\n', "\r\n");
        let plain = replace(content.as_bytes(), old.as_bytes(), new.as_bytes(), all, usize::MAX);
        let found = replace(crlf.as_bytes(), old.as_bytes(), new.as_bytes(), all, usize::MAX);
        let wanted = match plain {
            Outcome::Replaced(text, count) => {
                let text = String::from_utf8(text).unwrap().replace('\n', "\r\n");
                Outcome::Replaced(text.into_bytes(), count)
            }
            other => other,
        };
        prop_assert_eq!(found, wanted);
    }
}
