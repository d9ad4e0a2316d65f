//! What hunks make of a content, and where they are refused.

use std::{fmt::Write as _, fs, process::Command};

use proptest::prelude::*;
use similar::TextDiff;

use super::{
    apply::{Applied, Mismatch, Moved, apply},
    parse::parse,
};

fn patched(before: &[u8], hunks: &str) -> Result<Applied, Mismatch> {
    let patch = format!("--- a/f\n+++ b/f\n{hunks}");
    let sections = parse(patch.as_bytes()).unwrap();
    apply(before, &sections[0].hunks)
}

/// The content after `hunks`, as text.
#[track_caller]
fn after(before: &str, hunks: &str) -> String {
    String::from_utf8(patched(before.as_bytes(), hunks).unwrap().content).unwrap()
}

#[track_caller]
fn refused(before: &str, hunks: &str) -> String {
    patched(before.as_bytes(), hunks).unwrap_err().problem.into_owned()
}

const NO_END: &str = "\\ No newline at end of file\n";

#[test]
fn fed_01_line_ends_stay_and_added_lines_get_those_of_their_neighbours() {
    assert_eq!(after("a\r\nb\r\nc\r\n", "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"), "a\r\nB\r\nc\r\n");
    assert_eq!(after("a\r\nb\r\nc\r\n", "@@ -2 +2,2 @@\n-b\n+B1\n+B2\n"), "a\r\nB1\r\nB2\r\nc\r\n");
    assert_eq!(after("a\r\nb\nc\r\n", "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"), "a\r\nB\nc\r\n");
    assert_eq!(after("a\r\nb\r\n", "@@ -1,0 +2 @@\n+x\n"), "a\r\nx\r\nb\r\n");
    assert_eq!(after("a\r\nb", &format!("@@ -2 +2,2 @@\n-b\n{NO_END}+B1\n+B2\n{NO_END}")), "a\r\nB1\r\nB2");
    // Patches that have CR themselves are taken as they are.
    assert_eq!(after("a\r\nb\r\n", "@@ -1,2 +1,2 @@\n a\r\n-b\r\n+B\r\n"), "a\r\nB\r\n");
    assert_eq!(after("a\r\nb\r\n", "@@ -1,2 +1,2 @@\n a\r\n-b\r\n+b\n"), "a\r\nb\n");
    assert_eq!(after("a\nb\n", "@@ -1,2 +1,2 @@\n a\n-b\n+b\r\n"), "a\nb\r\n");
}

#[test]
fn fed_02_lf_matches_crlf_but_not_the_reverse() {
    assert_eq!(after("a\r\nb\r\nc\r\n", "@@ -1,2 +1,2 @@\n a\n-b\n+X\n"), "a\r\nX\r\nc\r\n");
    let problem = refused("a\nb\n", "@@ -1,2 +1,2 @@\n a\r\n-b\r\n+c\r\n");
    assert!(problem.contains("the line ends differ"), "{problem}");
    // A match as it is comes before one of other line ends.
    assert_eq!(after("a\r\nb\r\na\nb\n", "@@ -1,2 +1,2 @@\n a\n-b\n+X\n"), "a\r\nb\r\na\nX\n");
}

#[test]
fn fed_03_a_byte_order_mark_stays() {
    let mark = "\u{feff}";
    assert_eq!(after("\u{feff}x=1\n", "@@ -1 +1 @@\n-x=1\n+x=2\n"), "\u{feff}x=2\n");
    assert_eq!(after("\u{feff}x=1\n", &format!("@@ -1 +1 @@\n-{mark}x=1\n+x=2\n")), "x=2\n");
    assert_eq!(after("x\n", &format!("@@ -1 +1 @@\n-x\n+{mark}x\n")), "\u{feff}x\n");
}

#[test]
fn fed_04_the_last_line_end_is_neither_added_nor_taken() {
    assert_eq!(after("a\nb", &format!("@@ -1,2 +1,2 @@\n-a\n+A\n b\n{NO_END}")), "A\nb");
    assert_eq!(after("a\nb\n", "@@ -1,2 +1,2 @@\n a\n-b\n+B\n"), "a\nB\n");
    assert_eq!(after("a\nb", &format!("@@ -2 +2 @@\n-b\n{NO_END}+b\n")), "a\nb\n");
    assert_eq!(after("a\nb\n", &format!("@@ -2 +2 @@\n-b\n+b\n{NO_END}")), "a\nb");
    assert!(refused("a\nb", "@@ -1,2 +1,2 @@\n-a\n+A\n b\n").contains("add the line \\ No newline"));
    let problem = refused("a\nb\n", &format!("@@ -1,2 +1,2 @@\n-a\n+A\n b\n{NO_END}"));
    assert!(problem.contains("leave out \\ No newline"), "{problem}");
    let problem = refused("a\nb\nc\n", &format!("@@ -1,1 +1,1 @@\n-a\n+A\n{NO_END}"));
    assert!(problem.contains("not at the end of the file"), "{problem}");
}

#[test]
fn fed_06_what_is_ambiguous_or_absent_is_refused() {
    assert!(refused("x\ny\n", "@@ -1 +1 @@\n-zz\n+y\n").starts_with("not found; "));
    assert_eq!(
        refused("x\ny\nx\nz\nx\n", "@@\n-x\n+X\n"),
        "matches at lines 1, 3, 5; expected more lines around the change, or exact numbers in its header"
    );
    assert_eq!(after("x\ny\nx\nz\n", "@@\n-x\n+X\n z\n"), "x\ny\nX\nz\n");
    // Equally near above and below.
    assert!(refused("x\n1\n2\nx\n5\n", "@@ -3 +3 @@\n-5\n+X\n x\n").starts_with("not found"));
    assert!(refused("x\n1\n2\n3\nx\n", "@@ -3 +3 @@\n-x\n+X\n").starts_with("matches at lines 1, 5;"));
    // Overlapping matches count each.
    assert!(refused("a\na\na\n", "@@\n-a\n-a\n+b\n").starts_with("matches at lines 1, 2;"));
}

#[test]
fn fed_07_09_content_is_never_forgiven() {
    let problem = refused("def foo():\n    x = 1\n", "@@ -2 +2 @@\n-    x  =  1\n+    x = 100\n");
    assert!(problem.contains("line 2: \"    x = 1\" — white space within the line differs"), "{problem}");
    let problem = refused("foo\nbar\n", "@@ -1 +1 @@\n-foo \n+baz \n");
    assert!(problem.contains("white space at the end"), "{problem}");
    let problem = refused("all:\n\tcc x\n", "@@ -2 +2 @@\n-    cc x\n+    cc z\n");
    assert!(problem.contains("tabs and spaces"), "{problem}");
    assert_eq!(after("all:\n\tcc x\n", "@@ -1,2 +1,2 @@\n all:\n-\tcc x\n+\tcc y\n"), "all:\n\tcc y\n");
}

#[test]
fn fed_10_bytes_that_are_not_utf_8_stay() {
    let before = b"const x = 1;\n// caf\xe9 note\n";
    let result = patched(before, "@@ -1 +1 @@\n-const x = 1;\n+const x = 2;\n").unwrap().content;
    assert_eq!(result, b"const x = 2;\n// caf\xe9 note\n");
    let patch = b"--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n const x = 1;\n-// caf\xe9 note\n+// caf\xe8\n";
    let sections = parse(patch).unwrap();
    assert_eq!(apply(before, &sections[0].hunks).unwrap().content, b"const x = 1;\n// caf\xe8\n");
}

#[test]
fn hunks_are_found_near_their_place_in_order_and_apart() {
    let lines = |numbers: std::ops::RangeInclusive<i32>| {
        numbers.fold(String::new(), |mut text, number| {
            writeln!(text, "line {number}").unwrap();
            text
        })
    };
    let before = format!("new\nnew\n{}", lines(1..=30));
    let hunks = "@@ -5,1 +5,1 @@\n-line 5\n+LINE 5\n@@ -20,2 +20,1 @@\n-line 20\n-line 21\n+LINE 20\n";
    let applied = patched(before.as_bytes(), hunks).unwrap();
    assert_eq!(applied.moved, [Moved { hunk: 1, lines: 2 }, Moved { hunk: 2, lines: 2 }]);
    assert_eq!((applied.added, applied.removed), (2, 3));
    let wanted = before.replace("line 5\n", "LINE 5\n").replace("line 20\nline 21\n", "LINE 20\n");
    assert_eq!(String::from_utf8(applied.content).unwrap(), wanted);
    // The nearer of two, and where the hunk before was found counts.
    let before = "}\na\n}\nb\nc\n}\nd\n";
    assert_eq!(after(before, "@@ -5 +5 @@\n-}\n+]\n"), "}\na\n}\nb\nc\n]\nd\n");
    assert_eq!(after(before, "@@ -2 +2 @@\n-b\n+B\n@@ -4 +4 @@\n-}\n+]\n"), "}\na\n}\nB\nc\n]\nd\n");
    let problem = refused("a\nb\nc\n", "@@ -2 +2 @@\n-b\n+B\n@@ -1 +1 @@\n-a\n+A\n");
    assert!(problem.starts_with("matches at line 1 only, before the end of the hunk before"), "{problem}");
    let problem = refused("a\nb\nc\n", "@@ -1,2 +1,2 @@\n a\n-b\n+B\n@@ -2,2 +2,2 @@\n b\n-c\n+C\n");
    assert!(problem.contains("none over another"), "{problem}");
}

#[test]
fn a_hunk_without_old_lines_goes_where_it_says_or_nowhere() {
    assert_eq!(after("a\nb\n", "@@ -1,0 +2 @@\n+x\n"), "a\nx\nb\n");
    assert_eq!(after("a\nb\n", "@@ -2,0 +3 @@\n+x\n"), "a\nb\nx\n");
    assert_eq!(after("a\n", "@@ -0,0 +1 @@\n+x\n"), "x\na\n");
    assert_eq!(after("", "@@ -0,0 +1 @@\n+x\n"), "x\n");
    assert_eq!(after("", "@@\n+x\n"), "x\n");
    assert!(refused("a\n", "@@ -2,0 +3 @@\n+x\n").contains("but the file has 1"));
    assert!(refused("a\n", "@@ -1,1 +1,2 @@\n+x\n").contains("counts old ones"));
    assert!(refused("a\n", "@@\n+x\n").contains("neither a line number"));
    assert!(refused("a", "@@ -1,0 +2 @@\n+x\n").contains("has no newline"));
    let moved = "@@ -1 +1 @@\n-a\n+A\n@@ -2,0 +3 @@\n+x\n";
    assert!(refused("0\na\nb\nc\n", moved).contains("its place can't be found"));
}

#[test]
fn a_million_lines_that_are_alike_are_searched_in_time() {
    let before = "x\n".repeat(1_000_000) + "y\n";
    let mut hunks = String::new();
    for _ in 0..200 {
        hunks.push_str("@@ -7 +7 @@\n-x\n+z\n");
    }
    let started = std::time::Instant::now();
    let applied = patched(before.as_bytes(), &hunks).unwrap();
    assert_eq!(applied.content.iter().filter(|byte| **byte == b'z').count(), 200);
    assert!(patched(before.as_bytes(), &format!("@@ -9 +9 @@\n{}-q\n+r\n", " x\n".repeat(1000))).is_err());
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}

/// Texts of few different lines, with and without a last line end.
fn text() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        Just("\n"),
        Just("a\n"),
        Just("b\n"),
        Just("b\r\n"),
        Just(" a\n"),
        Just("-- x\n"),
        Just("++ y\n"),
        Just("@@ -1 +1 @@\n"),
        Just("é\n"),
    ];
    (prop::collection::vec(line, 0..25), any::<bool>()).prop_map(|(lines, ended)| {
        let text = lines.concat();
        if ended { text } else { text.trim_end_matches(['\r', '\n']).to_owned() }
    })
}

/// The hunks that the crate `similar` makes.
fn diff_of(old: &str, new: &str, context: usize) -> String {
    let diff = TextDiff::from_lines(old, new);
    let mut unified = diff.unified_diff();
    let mut hunks = String::new();
    for hunk in unified.context_radius(context).iter_hunks() {
        write!(hunks, "{hunk}").unwrap();
    }
    hunks
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_diff_applied_to_the_old_text_gives_the_new(old in text(), new in text(), context in 1_usize..4) {
        prop_assume!(old != new);
        let applied = patched(old.as_bytes(), &diff_of(&old, &new, context)).unwrap();
        prop_assert_eq!(String::from_utf8(applied.content).unwrap(), new);
        prop_assert!(applied.moved.is_empty());
    }

    #[test]
    fn also_after_lines_were_inserted_above(
        keep in prop::collection::vec(0_u8..4, 1..40), above in 1_usize..30, context in 1_usize..4, counted: bool,
    ) {
        let (mut old, mut new) = (String::new(), String::new());
        for (number, what) in keep.iter().enumerate() {
            let line = format!("line {number}\n");
            if *what != 0 {
                old.push_str(&line);
            }
            if *what != 1 {
                new.push_str(&line);
            }
        }
        prop_assume!(old != new && !old.is_empty());
        let inserted = "inserted\n".repeat(above);
        let mut hunks = diff_of(&old, &new, context);
        if !counted {
            // Counts that are wrong.
            hunks = hunks.lines().map(|line| match line.strip_prefix("@@ -") {
                Some(rest) => {
                    let start = rest.split([',', ' ']).next().unwrap();
                    format!("@@ -{start},77 +1,78 @@\n")
                }
                None => format!("{line}\n"),
            }).collect();
        }
        let applied = patched(format!("{inserted}{old}").as_bytes(), &hunks).unwrap();
        prop_assert_eq!(String::from_utf8(applied.content).unwrap(), format!("{inserted}{new}"));
        prop_assert!(applied.moved.iter().all(|moved| moved.lines == i64::try_from(above).unwrap()));
    }

    #[test]
    fn a_diff_of_crlf_files_and_its_lf_form_give_the_same(
        old in "([ab]\n){0,12}", new in "([ab]\n){0,12}", context in 1_usize..4,
    ) {
        prop_assume!(old != new);
        let (old_crlf, new_crlf) = (old.replace('\n', "\r\n"), new.replace('\n', "\r\n"));
        let exact = patched(old_crlf.as_bytes(), &diff_of(&old_crlf, &new_crlf, context)).unwrap();
        prop_assert_eq!(&exact.content, new_crlf.as_bytes());
        let plain = patched(old_crlf.as_bytes(), &diff_of(&old, &new, context)).unwrap();
        let wanted = if old.is_empty() { &new } else { &new_crlf };
        prop_assert_eq!(&plain.content, wanted.as_bytes());
    }

    #[test]
    fn no_text_makes_it_panic(patch in "(--- a/x\n|[+]{3} b/x\n|@@ -[0-9],[0-9] [+][0-9],[0-9] @@\n|@@\n|[ +-]?[ab]?\n|\\\\\n|diff --git a/x b/x\n|[^\n]{0,6}\n){0,16}", content in text()) {
        if let Ok(sections) = parse(patch.as_bytes()) {
            for section in sections {
                let _result = apply(content.as_bytes(), &section.hunks);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn what_diff_u_writes_applies(old in text(), new in text(), context in 0_usize..5) {
        prop_assume!(old != new);
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("x"), &old).unwrap();
        fs::write(directory.path().join("y"), &new).unwrap();
        let output = Command::new("diff").args([format!("-U{context}"), "x".to_owned(), "y".to_owned()])
            .current_dir(directory.path()).output().unwrap();
        let sections = parse(&output.stdout).unwrap();
        let applied = apply(old.as_bytes(), &sections[0].hunks).unwrap();
        // Without lines around it, one that is added has no line end but that of its neighbour to go by.
        if context > 0 || !old.contains('\r') {
            prop_assert_eq!(String::from_utf8(applied.content).unwrap(), new);
        }
    }
}
