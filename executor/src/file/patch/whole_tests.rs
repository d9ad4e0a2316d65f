//! That patches leave all files new or all old, whatever fails, and whoever else is at work.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    sync::Arc,
};

use super::patch_tests::{change, create, delete};
use crate::{
    error::Error,
    file::{
        fixture::Fixture,
        write_tests::{in_little_space, killed_in_mid_work},
    },
};

#[test]
fn fed_15_a_full_disk_puts_everything_back() {
    in_little_space("patch::whole_tests::fed_15_a_full_disk_puts_everything_back", |fixture| {
        fixture.put("a", "1\n");
        fixture.put("b", "2\n");
        fixture.put("d", "4\n");
        let large = format!("+{}\n", "x".repeat(3 << 20));
        let patch = [
            change("a", "1", "one"),
            create("new/dir/n", "n"),
            delete("d", "4"),
            format!("--- a/b\n+++ b/b\n@@ -1 +1 @@\n-2\n{large}"),
        ];
        let error = fixture.patch(patch.concat()).unwrap_err();
        let no_space =
            matches!(&error, Error::PatchStopped { source, .. } if matches!(**source, Error::NoSpace { .. }));
        assert!(no_space && error.to_string().ends_with("nothing was changed"), "{error}");
        let contents = ["a", "b", "d"].map(|path| fixture.get(path));
        assert_eq!(contents, [b"1\n", b"2\n", b"4\n"]);
        assert_eq!(fixture.names("."), ["a", "b", "d"]);
        fixture.patch(change("a", "1", "still works")).unwrap();
    });
}

#[test]
fn fed_15_a_kill_in_mid_patch_leaves_each_file_old_or_new_and_whole() {
    let body = "x\n".repeat(100_000);
    let work = |fixture: &Fixture| {
        if !fixture.path("f").exists() {
            for path in ["a", "b", "f"] {
                fixture.put(path, format!("old\n{body}"));
            }
        }
        let both = |old, new| ["a", "b", "f"].map(|path| change(path, old, new)).concat();
        fixture.patch(both("old", "new") + &create("n", "n")).unwrap();
        fixture.patch(both("new", "old") + &delete("n", "n")).unwrap();
    };
    let test = "patch::whole_tests::fed_15_a_kill_in_mid_patch_leaves_each_file_old_or_new_and_whole";
    killed_in_mid_work(test, work, |work| {
        for path in ["a", "b"] {
            let left = fs::read_to_string(work.join(path)).unwrap();
            let first = left.strip_suffix(body.as_str());
            assert!(matches!(first, Some("old\n" | "new\n")), "{path}: {} bytes", left.len());
        }
        assert!(fs::read(work.join("n")).map_or(true, |left| left == b"n\n"));
    });
}

#[test]
fn what_fails_half_way_is_put_back_as_it_was() {
    let fixture = Fixture::new();
    fixture.put("a", "1\n");
    fixture.put("gone", "bye\n");
    fixture.put("kept/k", "k\n");
    fixture.put("linked", "L\n");
    fs::hard_link(fixture.path("linked"), fixture.path("twin")).unwrap();
    fs::set_permissions(fixture.path("gone"), Permissions::from_mode(0o640)).unwrap();
    let mode = "diff --git a/a b/a\nold mode 100644\nnew mode 100755\n".to_owned();
    // A file and a directory of one name: the directory can't be made once the file is there.
    let patch = [
        change("a", "1", "2"),
        mode,
        change("linked", "L", "longer"),
        create("new/n", "n"),
        delete("gone", "bye"),
        create("x", "file"),
        create("x/y", "file in directory"),
    ];
    let error = fixture.patch(patch.concat()).unwrap_err();
    assert!(matches!(error, Error::FileChanged { .. } | Error::PatchStopped { .. }), "{error}");
    let contents = ["a", "gone", "kept/k", "linked", "twin"].map(|path| fixture.get(path));
    assert_eq!(contents, [&b"1\n"[..], b"bye\n", b"k\n", b"L\n", b"L\n"]);
    assert_eq!((fixture.mode("a"), fixture.mode("gone")), (0o644, 0o640));
    assert_eq!(fixture.names("."), ["a", "gone", "kept", "linked", "twin"]);
}

#[test]
fn a_directory_that_may_not_be_written_puts_removed_files_back() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let fixture = Fixture::new();
    fixture.put("mine/a", "1\n");
    fixture.put("mine/b", "2\n");
    fixture.put("closed/c", "3\n");
    for path in ["mine", "mine/a", "mine/b", "closed/c"] {
        std::os::unix::fs::chown(fixture.path(path), Some(12345), Some(12345)).unwrap();
    }
    fs::set_permissions(fixture.path("mine/b"), Permissions::from_mode(0o600)).unwrap();
    for path in [fixture.directory.path(), fixture.root.path(), &fixture.path("")] {
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    let files = fixture.files_as(12345, true);
    let patch = [
        change("mine/a", "1", "one"),
        create("mine/n/n", "n"),
        delete("mine/b", "2"),
        delete("closed/c", "3"),
    ];
    let patched = files.patch(Arc::clone(&fixture.root), patch.concat().into());
    let error = runtime.block_on(patched).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("permission denied; nothing is changed: what was written before was put back"),
        "{error}"
    );
    assert_eq!((fixture.get("mine/a"), fixture.get("mine/b")), (b"1\n".to_vec(), b"2\n".to_vec()));
    assert_eq!(
        (fixture.names("mine"), fixture.mode("mine/b")),
        (vec!["a".to_owned(), "b".to_owned()], 0o600)
    );
    assert_eq!(fs::metadata(fixture.path("mine/b")).unwrap().uid(), 12345);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fed_16_patches_at_once_all_land_in_whatever_order_they_name_files() {
    let fixture = Fixture::new();
    let content: String = (1..=100).map(|number| format!("L{number}\n")).collect();
    for path in ["f", "g"] {
        fixture.put(path, &content);
    }
    fixture.link("f", "l");
    let files = fixture.files();
    let patches: Vec<_> = (1..=20)
        .map(|number| {
            let (files, root) = (files.clone(), Arc::clone(&fixture.root));
            let line = number * 5;
            let hunk =
                |path| format!("--- a/{path}\n+++ b/{path}\n@@ -{line} +{line} @@\n-L{line}\n+X{line}\n");
            let sections = if number % 2 == 0 { [hunk("l"), hunk("g")] } else { [hunk("g"), hunk("./f")] };
            tokio::spawn(async move { files.patch(root, sections.concat().into()).await })
        })
        .collect();
    for patch in patches {
        assert_eq!(patch.await.unwrap().unwrap().len(), 2);
    }
    let wanted: String =
        (1..=100).map(|number| format!("{}{number}\n", if number % 5 == 0 { "X" } else { "L" })).collect();
    for path in ["f", "g"] {
        assert_eq!(String::from_utf8(fixture.get(path)).unwrap(), wanted, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_patch_that_was_begun_is_finished_when_nobody_waits() {
    let fixture = Fixture::new();
    fixture.put("a", "1\n");
    let files = fixture.files();
    let waiting = tokio::spawn({
        let (files, root) = (files.clone(), Arc::clone(&fixture.root));
        async move { files.patch(root, [change("a", "1", "2"), create("n", "n")].concat().into()).await }
    });
    while !fixture.path("n").exists() && !waiting.is_finished() {
        tokio::task::yield_now().await;
    }
    waiting.abort();
    files.tasks.close();
    files.tasks.wait().await;
    assert_eq!((fixture.get("a"), fixture.get("n")), (b"2\n".to_vec(), b"n\n".to_vec()));
}

#[test]
fn fed_24_a_directory_that_is_swapped_for_a_link_never_leads_out() {
    let fixture = Fixture::new();
    let out = fixture.directory.path().join("out");
    fs::create_dir_all(&out).unwrap();
    fs::create_dir(fixture.path("d")).unwrap();
    fixture.link(&out, "l");
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let swapper = std::thread::spawn({
        let (stop, d, l) = (Arc::clone(&stop), fixture.path("d"), fixture.path("l"));
        move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(rustix::fs::CWD, &d, rustix::fs::CWD, &l, flags).unwrap();
            }
        }
    });
    let mut landed = 0;
    for number in 0..1000 {
        let name = format!("d/x{number}");
        landed += usize::from(
            fixture.patch([create(&name, "1"), create(&format!("d/y{number}"), "2")].concat()).is_ok(),
        );
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    swapper.join().unwrap();
    assert_eq!(fs::read_dir(&out).unwrap().count(), 0);
    assert!(landed > 0);
}
