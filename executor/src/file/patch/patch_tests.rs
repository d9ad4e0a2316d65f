//! What patches do to the files of a workspace: all or nothing.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    process::Command,
};

use super::{Change, Moved, PatchedFile};
use crate::{
    error::{Error, PathProblem},
    file::{
        condition::sha256_hex,
        fixture::{Fixture, problem},
    },
};

/// A section that changes the one line `old` of `path`.
pub(super) fn change(path: &str, old: &str, new: &str) -> String {
    format!("--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-{old}\n+{new}\n")
}

pub(super) fn create(path: &str, line: &str) -> String {
    format!("--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{line}\n")
}

pub(super) fn delete(path: &str, line: &str) -> String {
    format!("--- a/{path}\n+++ /dev/null\n@@ -1 +0,0 @@\n-{line}\n")
}

fn rename(from: &str, to: &str) -> String {
    format!("diff --git a/{from} b/{to}\nsimilarity index 100%\nrename from {from}\nrename to {to}\n")
}

fn copy(from: &str, to: &str) -> String {
    format!("diff --git a/{from} b/{to}\nsimilarity index 100%\ncopy from {from}\ncopy to {to}\n")
}

/// Changes and paths, those of the work directory as they are named there.
fn said(fixture: &Fixture, files: &[PatchedFile]) -> Vec<(Change, String)> {
    let name = |file: &PatchedFile| fixture.root.name_of(&file.path).to_str().unwrap().to_owned();
    files.iter().map(|file| (file.change, name(file))).collect()
}

#[test]
fn files_are_changed_made_removed_and_renamed_in_one_go() {
    let fixture = Fixture::new();
    fixture.put("m", "x\nold\n");
    fixture.put("d/gone", "bye\n");
    fixture.put("from", "one\ntwo\nthree\n");
    fs::set_permissions(fixture.path("from"), Permissions::from_mode(0o750)).unwrap();
    let patch = [
        change("m", "old", "new"),
        create("new/dir/n", "hello"),
        delete("d/gone", "bye"),
        rename("from", "other/to"),
        "--- a/from\n+++ b/other/to\n@@ -2 +2 @@\n-two\n+TWO\n".to_owned(),
        copy("m", "c"),
        "diff --git a/run.sh b/run.sh\nnew file mode 100755\n".to_owned(),
    ];
    let files = fixture.patch(patch.concat()).unwrap();
    let wanted = [
        (Change::Modified, "m"),
        (Change::Created, "new/dir/n"),
        (Change::Deleted, "d/gone"),
        (Change::Renamed, "other/to"),
        (Change::Copied, "c"),
        (Change::Created, "run.sh"),
    ];
    assert_eq!(said(&fixture, &files), wanted.map(|(change, name)| (change, name.to_owned())));
    assert_eq!(files[0].moved, [Moved { hunk: 1, lines: 1 }]);
    assert_eq!((files[0].added, files[0].removed, files[0].size_bytes), (1, 1, 6));
    assert_eq!(files[0].sha256.as_deref(), Some(sha256_hex(b"x\nnew\n").as_str()));
    assert_eq!(files[3].from, Some(fixture.path("from")));
    assert_eq!((files[2].sha256.as_deref(), files[5].executable), (None, Some(true)));
    assert_eq!((fixture.get("m"), fixture.get("new/dir/n")), (b"x\nnew\n".to_vec(), b"hello\n".to_vec()));
    // A copy is one of the file before the patch.
    assert_eq!(
        (fixture.get("other/to"), fixture.get("c")),
        (b"one\nTWO\nthree\n".to_vec(), b"x\nold\n".to_vec())
    );
    assert_eq!((fixture.mode("other/to"), fixture.mode("run.sh")), (0o750, 0o755));
    assert_eq!(fixture.names("."), ["c", "d", "m", "new", "other", "run.sh"]);
    assert!(fixture.names("d").is_empty());
}

#[test]
fn sections_of_one_file_apply_one_after_the_other_whatever_they_call_it() {
    let fixture = Fixture::new();
    fixture.put("f", "1\n");
    fixture.link("f", "l");
    let patch = [
        change("f", "1", "2"),
        change("./f", "2", "3"),
        change("l", "3", "4"),
        rename("f", "g"),
        change("g", "4", "5"),
    ];
    let files = fixture.patch(patch.concat()).unwrap();
    assert_eq!(said(&fixture, &files), [(Change::Renamed, "g".to_owned())]);
    assert_eq!((files[0].added, fixture.get("g")), (4, b"5\n".to_vec()));
    // Made, renamed and removed: nothing is left to do.
    let nothing = [create("a", "x"), rename("a", "b"), delete("b", "x")].concat();
    assert!(fixture.patch(nothing).unwrap_err().to_string().contains("changes nothing"));
    let again = [delete("g", "5"), create("g", "6")].concat();
    assert_eq!(said(&fixture, &fixture.patch(again).unwrap()), [(Change::Modified, "g".to_owned())]);
    assert_eq!(fixture.get("g"), b"6\n");
}

#[test]
fn fed_06_25_a_patch_that_does_not_fit_changes_nothing() {
    let fixture = Fixture::new();
    fixture.put("a", "1\n");
    fixture.put("b", "2\n");
    fixture.put("long", "2\n3\n");
    let before = fs::metadata(fixture.path("a")).unwrap();
    let refused = |last: String| {
        let patch = [change("a", "1", "one"), create("n/x", "x"), last].concat();
        let error = fixture.patch(patch).unwrap_err();
        let now = fs::metadata(fixture.path("a")).unwrap();
        assert_eq!((now.mtime_nsec(), now.ino()), (before.mtime_nsec(), before.ino()));
        assert_eq!(fixture.names("."), ["a", "b", "long"]);
        error
    };
    let error = refused(change("b", "22", "3"));
    assert!(
        matches!(&error, Error::PatchMismatch { path, hunk: 1, line: 12, .. } if path == "b"),
        "{error:?}"
    );
    assert!(error.to_string().starts_with("b: hunk 1 (line 12 of the patch) not found; "), "{error}");
    assert_eq!(problem(Err::<(), _>(refused(change("absent", "1", "2")))), PathProblem::NotFound);
    assert_eq!(problem(Err::<(), _>(refused(create("b", "2")))), PathProblem::Exists);
    assert_eq!(problem(Err::<(), _>(refused(rename("long", "b")))), PathProblem::Exists);
    assert_eq!(problem(Err::<(), _>(refused(rename("absent", "c")))), PathProblem::NotFound);
    assert_eq!(problem(Err::<(), _>(refused(copy("long", "b")))), PathProblem::Exists);
    assert!(
        refused(delete("long", "2")).to_string().contains("more lines than the patch removes, such as \"3\"")
    );
    let both = "--- b\n+++ long\n@@ -1 +1 @@\n-2\n+3\n".to_owned();
    assert!(refused(both).to_string().contains("names two files that both exist"));
    assert!(matches!(
        refused("--- a/b\n+++ b/b\n@@ -1 +1 @@\n x\n".into()),
        Error::PatchInvalid { line: 12, .. }
    ));
    let same = fixture.patch(change("b", "2", "2")).unwrap_err();
    assert!(matches!(same, Error::PatchInvalid { line: 1, .. }), "{same}");
}

#[test]
fn of_two_names_that_which_exists_is_changed_and_a_new_file_may_be_told_by_its_hunk() {
    let fixture = Fixture::new();
    fixture.put("x", "1\n");
    fixture.patch("--- x.orig\n+++ x\n@@ -1 +1 @@\n-1\n+2\n").unwrap();
    assert_eq!(fixture.get("x"), b"2\n");
    fixture.patch("--- x\n+++ y\n@@ -1 +1 @@\n-2\n+3\n").unwrap();
    assert_eq!((fixture.get("x"), fixture.names(".")), (b"3\n".to_vec(), vec!["x".to_owned()]));
    fixture.patch("--- a/n\n+++ b/n\n@@ -0,0 +1 @@\n+n\n").unwrap();
    assert_eq!(fixture.get("n"), b"n\n");
}

#[test]
fn fed_12_mode_owner_and_attributes_stay_also_over_a_rename() {
    let fixture = Fixture::new();
    let owner = rustix::process::geteuid().is_root().then_some(12345);
    for (path, mode) in [("run.sh", 0o755), ("s", 0o640), ("r", 0o604)] {
        fixture.put(path, "old\n");
        std::os::unix::fs::chown(fixture.path(path), owner, owner).unwrap();
        fs::set_permissions(fixture.path(path), Permissions::from_mode(mode)).unwrap();
        rustix::fs::setxattr(fixture.path(path), "user.a", b"b", rustix::fs::XattrFlags::empty()).unwrap();
    }
    let before = fs::metadata(fixture.path("s")).unwrap();
    fixture
        .patch([change("run.sh", "old", "new"), change("s", "old", "new"), rename("r", "to")].concat())
        .unwrap();
    for (path, mode) in [("run.sh", 0o755), ("s", 0o640), ("to", 0o604)] {
        let now = fs::metadata(fixture.path(path)).unwrap();
        assert_eq!((now.mode() & 0o7777, now.uid(), now.gid()), (mode, before.uid(), before.gid()), "{path}");
        let mut value = [0; 8];
        assert_eq!(rustix::fs::getxattr(fixture.path(path), "user.a", &mut value), Ok(1), "{path}");
    }
    let mode = "diff --git a/s b/s\nold mode 100644\nnew mode 100755\n";
    let files = fixture.patch(mode).unwrap();
    assert_eq!(
        (fixture.mode("s"), files[0].executable, files[0].change),
        (0o750, Some(true), Change::Modified)
    );
    assert!(fixture.patch(mode).unwrap_err().to_string().contains("changes nothing"));
}

#[test]
fn fed_13_links_are_followed_for_changes_and_never_replaced() {
    let fixture = Fixture::new();
    fixture.put("t", "old\n");
    fixture.link("t", "l");
    fixture.link("l", "l2");
    fixture.link("absent", "dangling");
    fixture.patch(change("l2", "old", "new")).unwrap();
    assert_eq!(fixture.get("t"), b"new\n");
    assert_eq!(problem(fixture.patch(delete("l", "new"))), PathProblem::NotARegularFile);
    assert_eq!(problem(fixture.patch(rename("l", "m"))), PathProblem::NotARegularFile);
    assert_eq!(problem(fixture.patch(create("dangling", "x"))), PathProblem::Exists);
    assert_eq!(problem(fixture.patch(rename("t", "dangling"))), PathProblem::Exists);
    assert_eq!(fixture.names("."), ["dangling", "l", "l2", "t"]);
    fixture.link("b", "a");
    fixture.link("a", "b");
    assert_eq!(problem(fixture.patch(change("a", "x", "y"))), PathProblem::SymlinkLoop);
}

#[test]
fn files_with_several_names_stay_one_file() {
    let fixture = Fixture::new();
    fixture.put("f", "1\n");
    fs::hard_link(fixture.path("f"), fixture.path("h")).unwrap();
    fixture.patch([change("f", "1", "2"), change("h", "2", "3")].concat()).unwrap();
    assert_eq!((fixture.get("f"), fixture.get("h")), (b"3\n".to_vec(), b"3\n".to_vec()));
    for patch in [[change("h", "3", "4"), delete("f", "3")], [delete("f", "3"), change("h", "3", "4")]] {
        let error = fixture.patch(patch.concat()).unwrap_err();
        assert!(error.to_string().contains("has several names"), "{error}");
    }
    fixture.patch(delete("f", "3")).unwrap();
    assert_eq!((fixture.names("."), fixture.get("h")), (vec!["h".to_owned()], b"3\n".to_vec()));
}

#[test]
fn fed_19_20_21_22_what_is_no_file_or_not_inside_is_refused() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.directory.path().join("a-secret")).unwrap();
    fs::write(fixture.directory.path().join("a-secret/s"), "1\n").unwrap();
    fixture.put_special_files();
    fixture.put("dir/file", "1\n");
    fixture.link("/etc/passwd", "leak");
    fixture.link("/", "root");
    let outside = [
        "../../a-secret/s".to_owned(),
        "../../a-secret/absent".to_owned(),
        "dir/../../../a-secret/s".to_owned(),
        fixture.directory.path().join("a-secret/s").to_str().unwrap().to_owned(),
        "leak".to_owned(),
        "root/etc/passwd".to_owned(),
        "root/tmp/x".to_owned(),
        "z".to_owned(),
    ];
    fixture.put("plain", "1\n");
    for path in &outside {
        for patch in [
            change(path, "1", "2"),
            create(path, "1"),
            delete(path, "1"),
            rename("plain", path),
            copy(path, "c"),
        ] {
            assert_eq!(problem(fixture.patch(&patch)), PathProblem::OutsideWorkspace, "{patch}");
        }
    }
    for (path, wanted) in [
        ("p", PathProblem::NotARegularFile),
        ("s", PathProblem::NotARegularFile),
        ("dir", PathProblem::IsADirectory),
        ("plain/x", PathProblem::NotADirectory),
    ] {
        assert_eq!(problem(fixture.patch(change(path, "1", "2"))), wanted, "{path}");
        assert_eq!(problem(fixture.patch(create(path, "1"))), wanted, "{path}");
        assert_eq!(problem(fixture.patch(rename("plain", path))), wanted, "{path}");
    }
    assert_eq!(fs::read(fixture.directory.path().join("a-secret/s")).unwrap(), b"1\n");
    assert_eq!(fixture.get("plain"), b"1\n");
}

#[test]
fn fed_27_files_and_patches_past_the_limits_are_refused_with_the_limit() {
    let mut fixture = Fixture::new();
    fixture.limits.max_bytes = 1000;
    fixture.put("large", "x\n".repeat(501));
    let error = fixture.patch(change("large", "x", "y")).unwrap_err();
    assert!(matches!(error, Error::FileTooLarge { bytes: 1002, limit: 1000, .. }), "{error}");
    fixture.put("near", "x\n".repeat(500));
    let grown = fixture.patch(change("near", "x", "longer")).unwrap_err();
    assert!(matches!(grown, Error::FileTooLarge { limit: 1000, .. }), "{grown}");
    let mut patch = String::new();
    for number in 0..5 {
        fixture.put(format!("f{number}"), "x\n".repeat(450));
        patch.push_str(&change(&format!("f{number}"), "x", "y"));
    }
    let error = fixture.patch(patch).unwrap_err();
    assert!(error.to_string().contains("8000 bytes together"), "{error}");
    assert!(super::names(&vec![b'x'; (8 << 20) + 1]).unwrap_err().to_string().contains("8388608"));
}

#[test]
fn fed_28_30_odd_names_and_names_that_differ_in_case_are_told_apart() {
    let fixture = Fixture::new();
    fixture.put("README.md", "1\n");
    fixture.put("readme.md", "1\n");
    fixture.patch(change("readme.md", "1", "2")).unwrap();
    assert_eq!((fixture.get("README.md"), fixture.get("readme.md")), (b"1\n".to_vec(), b"2\n".to_vec()));
    let patch = "--- /dev/null\n+++ \"b/bad\\377 \\n\\033[31m\"\n@@ -0,0 +1 @@\n+x\n";
    fixture.patch(patch).unwrap();
    let entries: Vec<Vec<u8>> = fs::read_dir(fixture.path(""))
        .unwrap()
        .map(|entry| std::os::unix::ffi::OsStringExt::into_vec(entry.unwrap().file_name()))
        .collect();
    assert!(entries.contains(&b"bad\xff \n\x1b[31m".to_vec()), "{entries:?}");
    for name in ["-rf", " lead"] {
        fixture.patch(create(name, "x")).unwrap();
        fixture.patch(change(name, "x", "y")).unwrap();
        assert_eq!(fixture.get(name), b"y\n");
    }
}

#[test]
fn what_diff_with_new_and_removed_files_writes_applies() {
    let fixture = Fixture::new();
    for side in ["a", "b"] {
        fs::create_dir(fixture.path(side)).unwrap();
    }
    for (path, content) in
        [("a/gone", "1\n2\n"), ("a/both", "1\n2\n"), ("b/both", "1\n3\n"), ("b/sub/new", "n")]
    {
        fixture.put(path, content);
    }
    let diff = Command::new("diff").args(["-ruN", "a", "b"]).current_dir(fixture.path("")).output().unwrap();
    for (path, content) in [("gone", "1\n2\n"), ("both", "1\n2\n")] {
        fixture.put(path, content);
    }
    let files = fixture.patch(&diff.stdout).unwrap();
    let wanted = [(Change::Modified, "both"), (Change::Deleted, "gone"), (Change::Created, "sub/new")];
    assert_eq!(said(&fixture, &files), wanted.map(|(change, name)| (change, name.to_owned())));
    assert_eq!((fixture.get("both"), fixture.get("sub/new")), (b"1\n3\n".to_vec(), b"n".to_vec()));
}
