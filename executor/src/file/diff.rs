//! The difference of two contents as people and models read it. It is shown, never applied.

use std::{os::unix::ffi::OsStrExt as _, path::Path, time::Duration};

use similar::{Algorithm, TextDiff};

use super::show::{show, show_keeping};

/// Longest diff in bytes.
const MAX_BYTES: usize = 64 * 1024;
/// Lines before and after a change.
const CONTEXT: usize = 3;
/// After this time the rest is shown as taken out and put in as a whole.
const MAX_TIME: Duration = Duration::from_millis(500);

/// Unified diff of the file at `path`, and whether it was cut. Bytes that are not UTF-8, and control characters other
/// than tabs and the CR of line ends, are shown as escapes.
pub(super) fn unified_diff(path: &Path, before: &[u8], after: &[u8]) -> (String, bool) {
    let name = show(path.as_os_str().as_bytes());
    let name = name.trim_start_matches('/');
    let diff = TextDiff::configure().algorithm(Algorithm::Myers).timeout(MAX_TIME).diff_lines(before, after);
    let mut text = format!("--- a/{name}\n+++ b/{name}\n");
    let mut unified = diff.unified_diff();
    for hunk in unified.context_radius(CONTEXT).iter_hunks() {
        if !push_line(&mut text, &hunk.header().to_string()) {
            return (text, true);
        }
        for change in hunk.iter_changes() {
            let line = change.value();
            let unfinished = if line.ends_with(b"\n") { "" } else { "\n\\ No newline at end of file" };
            let line = show_keeping(line.strip_suffix(b"\n").unwrap_or(line), &['\t', '\r']);
            if !push_line(&mut text, &format!("{}{line}{unfinished}", change.tag())) {
                return (text, true);
            }
        }
    }
    (text, false)
}

fn push_line(text: &mut String, line: &str) -> bool {
    let fits = text.len() + line.len() < MAX_BYTES;
    if fits {
        text.push_str(line);
        text.push('\n');
    }
    fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_changes_with_context_and_what_is_not_text() {
        let before = b"1\n2\n3\n4\n5\r\n6\n7\n8\xe9\n9\nend";
        let after = b"1\n2\n3\n4\nfive\r\n6\n7\n8\xe9\n9\nend";
        let wanted =
            "--- a/dir/f\n+++ b/dir/f\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\r\n+five\r\n 6\n 7\n 8\\xe9\n";
        assert_eq!(unified_diff(Path::new("dir/f"), before, after), (wanted.to_owned(), false));
        let wanted = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n";
        assert_eq!(unified_diff(Path::new("/f"), b"a", b"b\n"), (wanted.to_owned(), false));
    }

    #[test]
    fn is_cut_at_a_line() {
        let (before, after) = ("a\n".repeat(50_000), "b\n".repeat(50_000));
        let (diff, cut) = unified_diff(Path::new("f"), before.as_bytes(), after.as_bytes());
        assert!(cut && diff.len() <= MAX_BYTES && diff.ends_with("\n-a\n"), "{}", diff.len());
    }
}
