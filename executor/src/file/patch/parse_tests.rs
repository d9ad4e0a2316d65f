//! What is read from the text of a patch, and what is refused.

use super::{
    hunk::{Line, Stated, Tag},
    parse::{Action, Section, parse},
};
use crate::error::Error;

fn one(text: &str) -> Section<'_> {
    let mut sections = parse(text.as_bytes()).unwrap();
    assert_eq!(sections.len(), 1, "{text}");
    sections.remove(0)
}

/// The line and the sentence of the error.
fn refused(text: &str) -> (usize, String) {
    match parse(text.as_bytes()) {
        Err(Error::PatchInvalid { line, problem }) => (line, problem),
        other => panic!("{text}: {other:?}"),
    }
}

fn modify(name: &str) -> Action {
    Action::Modify(name.into())
}

/// The lines of each hunk, as they are written.
fn hunks(section: &Section<'_>) -> Vec<Vec<String>> {
    let line = |line: &Line<'_>| {
        let tag = match line.tag {
            Tag::Context => ' ',
            Tag::Removed => '-',
            Tag::Added => '+',
        };
        let end = if line.ended { "" } else { "\\" };
        format!("{tag}{}{end}", String::from_utf8_lossy(line.text))
    };
    section.hunks.iter().map(|hunk| hunk.lines.iter().map(line).collect()).collect()
}

const HUNK: &str = "@@ -1,2 +1,2 @@\n a\n-b\n+c\n";

#[test]
fn names_and_actions_are_told_from_the_headers() {
    let cases = [
        (format!("--- a/x\n+++ b/x\n{HUNK}"), modify("x")),
        (format!("--- x\t2024-01-01 00:00:00 +0000\n+++ x\n{HUNK}"), modify("x")),
        (format!("--- x.orig\n+++ x\n{HUNK}"), Action::ModifyEither("x.orig".into(), "x".into())),
        (format!("diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n{HUNK}"), modify("x")),
        (format!("diff --git i/x w/x\n--- i/x\n+++ w/x\n{HUNK}"), modify("x")),
        (
            format!(
                "diff --git \"a/\\303\\251\" \"b/\\303\\251\"\n--- \"a/\\303\\251\"\n+++ \"b/\\303\\251\"\n{HUNK}"
            ),
            modify("é"),
        ),
        ("--- /dev/null\n+++ b/d/x\n@@ -0,0 +1 @@\n+c\n".to_owned(), Action::Create("d/x".into())),
        ("--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-c\n".to_owned(), Action::Delete("x".into())),
        (
            "--- x\t1970-01-01 00:00:00.000000000 +0000\n+++ x\t2024-01-01\n@@ -0,0 +1 @@\n+c\n".to_owned(),
            Action::Create("x".into()),
        ),
        (
            "--- x\t2024-01-01\n+++ x\t1970-01-01 00:00:00.000000000 +0000\n@@ -1 +0,0 @@\n-c\n".to_owned(),
            Action::Delete("x".into()),
        ),
        (
            "diff --git a/x y b/x y\nnew file mode 100644\nindex 0..0\n".to_owned(),
            Action::Create("x y".into()),
        ),
        ("diff --git a/x b/x\ndeleted file mode 100644\n".to_owned(), Action::Delete("x".into())),
        (
            "diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n".to_owned(),
            Action::Rename("x".into(), "y".into()),
        ),
        (
            format!(
                "diff --git a/x b/y\nsimilarity index 90%\ncopy from x\ncopy to y\n--- a/x\n+++ b/y\n{HUNK}"
            ),
            Action::Copy("x".into(), "y".into()),
        ),
    ];
    for (text, action) in cases {
        assert_eq!(one(&text).action, action, "{text}");
        let crlf = text.replace('\n', "\r\n");
        assert_eq!(one(&crlf).action, action, "{crlf}");
    }
}

#[test]
fn modes_set_or_clear_the_execute_bits() {
    let mode = |old: &str, new: &str| {
        one(&format!("diff --git a/x b/x\nold mode {old}\nnew mode {new}\n")).executable
    };
    assert_eq!(mode("100644", "100755"), Some(true));
    assert_eq!(mode("100755", "100644"), Some(false));
    assert_eq!(one("diff --git a/x b/x\nnew file mode 100755\n").executable, Some(true));
    assert_eq!(one("diff --git a/x b/x\nnew file mode 100644\n").executable, None);
    assert!(refused("diff --git a/x b/x\nnew file mode 120000\n").1.contains("symbolic link"));
    assert!(refused("diff --git a/x b/x\nindex 1..2 160000\n").1.contains("submodule"));
    assert_eq!(refused("diff --git a/x b/x\nold mode 1\n").0, 2);
}

#[test]
fn a_section_without_hunks_ends_before_the_next_file() {
    let modes = "diff --git a/m b/m\nold mode 100644\nnew mode 100755\n";
    let rename = "diff --git a/x b/y\nrename from x\nrename to y\n";
    let text = format!(
        "{modes}--- a/f\n+++ b/f\n{HUNK}{rename}--- a/y\n+++ b/y\n{HUNK}{rename}--- a/x\n+++ b/y\n{HUNK}"
    );
    let sections = parse(text.as_bytes()).unwrap();
    let actions: Vec<_> = sections.iter().map(|section| (&section.action, section.hunks.len())).collect();
    let renamed = Action::Rename("x".into(), "y".into());
    let wanted = [(&modify("m"), 0), (&modify("f"), 1), (&renamed, 0), (&modify("y"), 1), (&renamed, 1)];
    assert_eq!(actions, wanted);
    let (line, problem) = refused(&format!("diff --git a/x b/x\n--- a/y\n+++ b/y\n{HUNK}"));
    assert!(line == 2 && problem.contains("names another file"), "{line}: {problem}");
}

#[test]
fn talk_fences_and_mail_around_a_patch_are_passed_over() {
    let talk =
        format!("Here is the fix:\n\n- it helps\n\n```diff\n--- a/x\n+++ b/x\n{HUNK}```\n- done\n+ more\n");
    assert_eq!(hunks(&one(&talk)), [[" a", "-b", "+c"]]);
    let mail = format!(
        "From 12 Mon Sep 17 00:00:00 2001\nSubject: [PATCH] x\n\n---\n x | 2 +-\n 1 file changed\n\n\
         diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n{HUNK}-- \n2.47.3\n\nFrom 13\n---\n x | 2 +-\n"
    );
    assert_eq!(hunks(&one(&mail)), [[" a", "-b", "+c"]]);
    let two = format!("--- a/x\n+++ b/x\n{HUNK}\nAnd:\n\n--- a/y\n+++ b/y\n{HUNK}\n{HUNK}");
    let sections = parse(two.as_bytes()).unwrap();
    assert_eq!(sections.iter().map(|section| section.hunks.len()).collect::<Vec<_>>(), [1, 2]);
    assert_eq!((sections[1].line, sections[1].hunks[1].line), (10, 17));
    let recursive = format!(
        "diff -ru old new\n--- a/x\n+++ b/x\n{HUNK}Only in new: z\ndiff -ru p q\n--- a/y\n+++ b/y\n{HUNK}"
    );
    assert_eq!(parse(recursive.as_bytes()).unwrap().len(), 2);
}

#[test]
fn numbers_that_fit_say_where_a_hunk_ends() {
    // Lines that look like a header, but are counted.
    let text = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- a/x\n+++ b/x\n a\n@@ -9 +9 @@\n-p\n+q\n";
    assert_eq!(hunks(&one(text)), [vec!["--- a/x", "+++ b/x", " a"], vec!["-p", "+q"]]);
    assert_eq!(one(text).hunks[0].stated, Some(Stated { start: 1, old: 2, new: 2 }));
    let mark = "\\ No newline at end of file\n";
    let text = format!("--- a/x\n+++ b/x\n@@ -1 +1 @@ fn f()\n-a\n{mark}+b\n{mark}");
    assert_eq!(hunks(&one(&text)), [["-a\\", "+b\\"]]);
    let empty = "--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n\n-a\n+b\n\n\nTalk.\n";
    assert_eq!(hunks(&one(empty)), [[" ", "-a", "+b", " "]]);
}

#[test]
fn lines_are_believed_where_the_numbers_do_not_fit() {
    for header in ["@@ -1,9 +1,9 @@", "@@ -1,1 +1,1 @@", "@@ -1 +1", "@@", "@@ fn f()", "@@ ... @@"] {
        let text = format!(
            "--- a/x\n+++ b/x\n{header}\n a\n-b\n\n+c\n d\n\n--- a/y\n+++ b/y\n{header}\n-p\n+q\n```\n"
        );
        let sections = parse(text.as_bytes()).unwrap();
        assert_eq!(hunks(&sections[0]), [[" a", "-b", " ", "+c", " d"]], "{header}");
        assert_eq!(hunks(&sections[1]), [["-p", "+q"]], "{header}");
        assert_eq!(sections[0].hunks[0].stated.is_some(), header.contains('1'), "{header}");
    }
}

#[test]
fn what_is_no_patch_is_refused_by_its_line() {
    let head = "--- a/x\n+++ b/x\n";
    let cases = [
        (String::new(), 1, "nothing to apply"),
        ("just talk\n".to_owned(), 1, "nothing to apply"),
        (format!("@@ -1 +1 @@\n-a\n+b\n{head}"), 1, "a hunk without a file"),
        (head.to_owned(), 1, "neither hunks"),
        (format!("{head}@@ -1,2 +1,2 @@\n a\n b\n"), 3, "changes nothing"),
        (format!("{head}@@ -1 +x @@\n-a\n+b\n"), 3, "expected a hunk's header"),
        (format!("{head}@@ -99999999999 +1 @@\n-a\n+b\n"), 3, "expected a hunk's header"),
        (format!("{head}@@@ -1 -1 +1 @@@\n--a\n++b\n"), 3, "combined diff"),
        (format!("{head}@@ -1,3 +1,3 @@\n a\n-b\n+c\nd without a space\n"), 7, "expected a line of the hunk"),
        (format!("{head}{HUNK}talk\n+lost\n"), 8, "looks like a line of a hunk"),
        (
            format!("{head}@@ -1,2 +1,2 @@\n-a\n\\ No newline at end of file\n-b\n+c\n"),
            3,
            "only the last line",
        ),
        (format!("--- a/x\n+++ b/y\n{HUNK}"), 1, "the names differ"),
        ("diff --git a/x b/y\nrename from x\n".to_owned(), 1, "both lines of a rename"),
        (format!("--- /dev/null\n+++ b/x\n{HUNK}"), 1, "only lines that start with +"),
        (format!("--- a/x\n+++ /dev/null\n{HUNK}"), 1, "only lines that start with -"),
        (format!("--- /dev/null\n+++ /dev/null\n{HUNK}"), 1, "a name beside /dev/null"),
        (
            "diff --git a/p.png b/p.png\nindex 1..2 100644\nGIT binary patch\nliteral 1\n".to_owned(),
            3,
            "p.png is binary",
        ),
        ("diff --git a/p b/p\nindex 1..2\nBinary files a/p and b/p differ\n".to_owned(), 3, "p is binary"),
        (format!("Binary files q and r differ\n{head}{HUNK}"), 1, "q and r is binary"),
        (format!("{head}{HUNK}Binary files q and r differ\n"), 7, "q and r is binary"),
        (format!("--- \"a/x\n+++ b/x\n{HUNK}"), 1, "closing quote"),
    ];
    for (text, line, sentence) in cases {
        let (at, problem) = refused(&text);
        assert!(at == line && problem.contains(sentence), "{text}\nline {at}: {problem}");
    }
    let many = format!("{head}{HUNK}").repeat(501);
    assert!(refused(&many).1.contains("more than 500 files"));
}
