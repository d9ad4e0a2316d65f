//! What is told of files that change, and when a look is shared or repeated.

use std::{fs, os::unix::ffi::OsStrExt as _, os::unix::fs::PermissionsExt as _, time::Duration};

use super::{
    Files, IfMatch, MOST_NAMES, WriteOptions,
    fixture::Fixture,
    follow::{Base, Kept, Uncounted},
    index::{Changes, Index},
};

/// A look with all the time that a busy machine may need.
fn look(fixture: &Fixture, kept: &Kept) -> Result<Index, Uncounted> {
    Index::read(&fixture.root, kept, fixture.limits.followed_names, Duration::from_secs(60))
}

/// What differs after `change`.
fn changes(fixture: &Fixture, change: impl FnOnce()) -> Changes {
    let kept = Kept::default();
    let before = look(fixture, &kept).unwrap();
    change();
    before.changes(&look(fixture, &kept).unwrap())
}

fn names(changes: &Changes) -> [Vec<String>; 3] {
    [&changes.created, &changes.changed, &changes.deleted].map(|names| {
        assert_eq!(names.count, names.first.len() as u64);
        names.first.iter().map(|name| String::from_utf8(name.clone()).unwrap()).collect()
    })
}

fn texts(names: [&[&str]; 3]) -> [Vec<String>; 3] {
    names.map(|list| list.iter().map(|&name| name.to_owned()).collect())
}

#[test]
fn what_came_what_changed_and_what_went_is_told_in_order() {
    let fixture = Fixture::new();
    for path in ["a", "a.txt", "a-dir/x", "a-dir/y", "gone/1", "gone/2", "kept", "mode", "same", "turns"] {
        fixture.put(path, "old");
    }
    fixture.link("kept", "link");
    let told = changes(&fixture, || {
        fixture.put("a-dir/new", "");
        fixture.put("a-dir/y", "newer");
        fixture.put("a", "longer than before");
        fixture.put("b/c/d", "");
        fs::remove_dir_all(fixture.path("gone")).unwrap();
        fs::rename(fixture.path("a.txt"), fixture.path("z.txt")).unwrap();
        fs::set_permissions(fixture.path("mode"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::remove_file(fixture.path("link")).unwrap();
        fixture.link("another", "link");
        fs::remove_file(fixture.path("turns")).unwrap();
        fs::create_dir(fixture.path("turns")).unwrap();
        fixture.put("passing", "");
        fs::remove_file(fixture.path("passing")).unwrap();
    });
    let expected: [&[&str]; 3] = [
        &["a-dir/new", "b", "b/c", "b/c/d", "turns", "z.txt"],
        &["a", "a-dir/y", "link", "mode"],
        &["a.txt", "gone", "gone/1", "gone/2", "turns"],
    ];
    assert_eq!(names(&told), texts(expected));
}

#[test]
fn only_the_inside_of_git_is_passed_over() {
    let fixture = Fixture::new();
    fixture.put(".git/HEAD", "a");
    fixture.put("sub/.git/HEAD", "a");
    fixture.put(".gitignore", "ignored\n");
    fixture.put("ignored", "a");
    fixture.put(".hidden", "a");
    let told = changes(&fixture, || {
        for path in [".git/HEAD", ".git/new", "sub/.git/HEAD", ".gitignore", "ignored", ".hidden", "x.git/f"]
        {
            fixture.put(path, "b and more");
        }
        fs::create_dir_all(fixture.path("new/.git/objects")).unwrap();
    });
    let expected: [&[&str]; 3] =
        [&["new", "new/.git", "x.git", "x.git/f"], &[".gitignore", ".hidden", "ignored"], &[]];
    assert_eq!(names(&told), texts(expected));
}

#[test]
fn names_of_any_bytes_are_told_as_they_are_and_the_first_only() {
    let fixture = Fixture::new();
    let odd = b"new\nline \xff \x1b[31m";
    let told = changes(&fixture, || {
        fs::write(fixture.path(std::ffi::OsStr::from_bytes(odd)), "").unwrap();
        for number in 0..MOST_NAMES + 50 {
            fixture.put(format!("many/{number:03}"), "");
        }
    });
    assert_eq!(told.created.count, 252);
    assert_eq!(told.created.first.len(), MOST_NAMES);
    assert_eq!(told.created.first[..2], [b"many".to_vec(), b"many/000".to_vec()]);
    let told = changes(&fixture, || fs::remove_file(fixture.path(std::ffi::OsStr::from_bytes(odd))).unwrap());
    assert_eq!(told.deleted.first, [odd.to_vec()]);
}

#[test]
fn a_tree_that_is_too_large_is_not_followed_and_takes_no_memory() {
    let fixture = Fixture::new();
    let kept = Kept::default();
    fs::create_dir(fixture.path("flat")).unwrap();
    for number in 0..2_000 {
        fs::write(fixture.path(format!("flat/{number}")), "").unwrap();
    }
    assert_eq!(look(&fixture, &kept).unwrap_err(), Uncounted::TooLarge);
    let slow = Index::read(&fixture.root, &kept, 1 << 20, Duration::ZERO);
    assert_eq!(slow.unwrap_err(), Uncounted::Slow);
    // All that may be is free.
    assert!(kept.take(64 << 20).is_some());
    fs::remove_dir_all(fixture.root.path().join("work")).unwrap();
    assert_eq!(look(&fixture, &kept).unwrap_err(), Uncounted::Unreadable);
}

/// Changes between two looks with something present, as a job makes them.
async fn job(files: &Files, fixture: &Fixture, work: impl FnOnce()) -> Changes {
    let presence = fixture.root.presence();
    let base = files.base(&fixture.root, 1).await;
    work();
    drop(presence);
    files.clone().changes(fixture.root.clone(), base).await.unwrap()
}

/// Whether the next job's base is the one that is known, which lacks a file that nobody could have made.
async fn is_known(files: &Files, fixture: &Fixture, witness: &str) -> bool {
    // Behind everybody's back.
    fixture.put(witness, "");
    job(files, fixture, || {}).await.created.count == 1
}

#[tokio::test]
async fn a_look_is_repeated_only_where_something_may_have_changed() {
    let fixture = Fixture::new();
    let files = fixture.files();
    fixture.put("a", "");
    assert_eq!(job(&files, &fixture, || fixture.put("b", "")).await.created.first, [b"b".to_vec()]);
    assert!(is_known(&files, &fixture, "1").await);
    assert!(is_known(&files, &fixture, "2").await);
    let options = WriteOptions { if_match: IfMatch::Any, executable: None };
    files.write(fixture.root.clone(), b"c".to_vec(), b"by a tool".to_vec(), options).await.unwrap();
    assert!(!is_known(&files, &fixture, "3").await);
    assert!(is_known(&files, &fixture, "4").await);
    let other = fixture.root.presence();
    assert!(!is_known(&files, &fixture, "5").await);
    assert!(!is_known(&files, &fixture, "6").await);
    drop(other);
    assert!(!is_known(&files, &fixture, "7").await);
    assert!(is_known(&files, &fixture, "8").await);
    // What is forgotten is looked at again.
    assert!(files.kept.take(64 << 20).is_some());
    assert!(!is_known(&files, &fixture, "9").await);
}

#[tokio::test]
async fn looks_that_wait_for_their_turn_share_the_next_one() {
    let fixture = Fixture::new();
    let files = fixture.files();
    let _present = fixture.root.presence();
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let (files, root) = (files.clone(), fixture.root.clone());
        asking.spawn(async move { files.base(&root, 0).await });
    }
    assert!(asking.join_all().await.iter().all(Base::settles_soon));
    assert!(fixture.root.followed.looks() <= 3, "{}", fixture.root.followed.looks());
}

#[tokio::test]
async fn a_tree_that_was_too_large_is_not_looked_at_for_a_beginner() {
    let fixture = Fixture::new();
    let files = fixture.files();
    for number in 0..2_001 {
        fs::write(fixture.path(number.to_string()), "").unwrap();
    }
    for _ in 0..5 {
        let _present = fixture.root.presence();
        let base = files.base(&fixture.root, 1).await;
        let told = files.clone().changes(fixture.root.clone(), base).await;
        assert_eq!(told.unwrap_err(), Uncounted::TooLarge);
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(fixture.root.followed.looks(), 1);
}
