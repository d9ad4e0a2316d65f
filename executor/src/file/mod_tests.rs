//! Changes that are made at once, and by threads with other rights than the process has.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
    sync::Arc,
};

use super::{
    IfMatch, SearchRequest, WriteOptions,
    fixture::{Fixture, one, problem},
};
use crate::error::PathProblem;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fed_16_parallel_edits_all_land() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.path("d")).unwrap();
    for hard_link in [false, true] {
        let content: String = (1..=100).map(|number| format!("L{number}\n")).collect();
        fixture.put("f", &content);
        fixture.link("f", format!("s{hard_link}"));
        let mut names = vec!["f".to_owned(), "./d/../f".to_owned(), format!("s{hard_link}")];
        if hard_link {
            fs::hard_link(fixture.path("f"), fixture.path("h")).unwrap();
            names.push("h".to_owned());
        }
        let files = fixture.files();
        let edits: Vec<_> = (1..=20)
            .map(|number| {
                let (files, root) = (files.clone(), Arc::clone(&fixture.root));
                let path = names[number % names.len()].clone().into_bytes();
                let edit = one(&format!("L{number}\n"), &format!("X{number}\n"));
                tokio::spawn(async move { files.edit(root, path, vec![edit], IfMatch::Any).await })
            })
            .collect();
        for edit in edits {
            edit.await.unwrap().unwrap();
        }
        let wanted: String =
            (1..=100).map(|number| format!("{}{number}\n", if number <= 20 { "X" } else { "L" })).collect();
        assert_eq!(String::from_utf8(fixture.get("f")).unwrap(), wanted);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_that_must_create_a_file_one_does() {
    let fixture = Fixture::new();
    let files = fixture.files();
    let writes: Vec<_> = (0..20)
        .map(|number| {
            let (files, root) = (files.clone(), Arc::clone(&fixture.root));
            let options = WriteOptions { if_match: IfMatch::Absent, executable: None };
            let content = number.to_string().into_bytes();
            tokio::spawn(async move { files.write(root, b"new/dir/f".to_vec(), content, options).await })
        })
        .collect();
    let mut created = 0;
    for write in writes {
        created += usize::from(write.await.unwrap().is_ok());
    }
    assert_eq!(created, 1);
}

#[tokio::test]
async fn a_change_is_finished_when_nobody_waits_for_it() {
    let fixture = Fixture::new();
    let files = fixture.files();
    let options = WriteOptions { if_match: IfMatch::Any, executable: None };
    let write = files.write(Arc::clone(&fixture.root), b"f".to_vec(), b"new".to_vec(), options);
    // Polled once, which starts it, and dropped.
    let given_up = tokio::time::timeout(std::time::Duration::ZERO, write).await;
    assert!(given_up.is_err() || fixture.path("f").exists());
    tokio::time::timeout(std::time::Duration::from_secs(10), async {
        while !fixture.path("f").exists() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    })
    .await
    .unwrap();
    assert_eq!(fixture.get("f"), b"new");
}

#[tokio::test]
async fn threads_of_another_user_change_what_that_user_may_and_keep_owners() {
    // Only root can take the part of another user.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let fixture = Fixture::new();
    let let_in = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let_in(fixture.directory.path(), 0o755);
    let_in(&fixture.path(""), 0o777);
    for (path, mode) in [("writable", 0o666), ("readable", 0o644), ("secret", 0o600), ("closed/f", 0o644)] {
        fixture.put(path, "old");
        let_in(&fixture.path(path), mode);
    }
    let_in(&fixture.path("closed"), 0o700);
    let before = fs::metadata(fixture.path("writable")).unwrap();
    let files = fixture.files_as(65534, true);
    let write = async |path: &str, content: &str| {
        let options = WriteOptions { if_match: IfMatch::Any, executable: None };
        files.write(Arc::clone(&fixture.root), path.into(), content.into(), options).await
    };
    let edit = async |path: &str| {
        files.edit(Arc::clone(&fixture.root), path.into(), vec![one("old", "new")], IfMatch::Any).await
    };
    write("new/f", "created").await.unwrap();
    write("new/f", "replaced").await.unwrap();
    edit("writable").await.unwrap();
    for path in ["readable", "secret", "closed/f"] {
        assert_eq!(problem(write(path, "new").await), PathProblem::PermissionDenied, "{path}");
        assert_eq!(problem(edit(path).await), PathProblem::PermissionDenied, "{path}");
    }
    // Threads that a search starts have no more rights than the one that runs it.
    let pattern = SearchRequest {
        pattern: "old".to_owned(),
        path: Vec::new(),
        glob: String::new(),
        literal: false,
        ignore_case: false,
        context: 0,
        page_size: 10,
        page_token: String::new(),
    };
    let found = files.search(Arc::clone(&fixture.root), pattern).await.unwrap();
    let paths: Vec<_> = found.lines.iter().map(|line| line.path.to_str().unwrap()).collect();
    assert_eq!(paths, ["readable"]);

    assert_eq!((fixture.get("new/f"), fixture.get("readable")), (b"replaced".to_vec(), b"old".to_vec()));
    assert_eq!(fs::metadata(fixture.path("new/f")).unwrap().uid(), 65534);
    // Replaced, it would have become the other user's.
    let after = fs::metadata(fixture.path("writable")).unwrap();
    assert_eq!((fixture.get("writable"), after.uid(), after.ino()), (b"new".to_vec(), 0, before.ino()));
    assert_eq!(fixture.names("."), ["closed", "new", "readable", "secret", "writable"]);
}
