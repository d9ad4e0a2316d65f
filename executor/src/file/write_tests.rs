//! What a write keeps, what it refuses, and that it is whole or nothing.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
    process::{Command, Stdio},
};

use rustix::fs::{XattrFlags, getxattr, setxattr};

use super::{
    IfMatch, WriteOptions,
    condition::sha256_hex,
    fixture::{Fixture, all},
    write::write,
};
use crate::error::Error;

#[test]
fn fed_04_what_is_written_is_what_was_given() {
    let fixture = Fixture::new();
    for (content, created) in [("", true), ("x", false), ("a\r\nb\n", false)] {
        let written = fixture.write("f", content).unwrap();
        assert_eq!((written.created, written.sha256), (created, sha256_hex(content.as_bytes())));
        assert_eq!((fixture.get("f"), written.path), (content.into(), fixture.path("f")));
    }
    assert_eq!(fixture.names("."), ["f"]);
}

#[test]
fn fed_12_mode_owner_and_attributes_stay() {
    let fixture = Fixture::new();
    let attribute = |path: &str| {
        let mut value = [0; 8];
        let length = getxattr(fixture.path(path), "user.a", &mut value).unwrap();
        value[..length].to_vec()
    };
    for (path, mode, wanted) in [("run.sh", 0o755, 0o755), ("s", 0o640, 0o640), ("u", 0o4755, 0o755)] {
        fixture.put(path, "old");
        fs::set_permissions(fixture.path(path), Permissions::from_mode(mode)).unwrap();
        setxattr(fixture.path(path), "user.a", b"b", XattrFlags::empty()).unwrap();
        let owner = rustix::process::geteuid().is_root().then_some(12345);
        std::os::unix::fs::chown(fixture.path(path), owner, owner).unwrap();
        fs::set_permissions(fixture.path(path), Permissions::from_mode(mode)).unwrap();
        let before = fs::metadata(fixture.path(path)).unwrap();
        fixture.write(path, "new").unwrap();
        assert_eq!((fixture.mode(path), attribute(path)), (wanted, b"b".to_vec()), "{path}");
        fixture.edit(path, "new", "newer").unwrap();
        let after = fs::metadata(fixture.path(path)).unwrap();
        assert_eq!((fixture.mode(path), attribute(path)), (wanted, b"b".to_vec()), "{path}");
        assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()), "{path}");
    }
}

#[test]
fn execute_bits_follow_the_read_bits() {
    let fixture = Fixture::new();
    fixture.put("f", "");
    fs::set_permissions(fixture.path("f"), Permissions::from_mode(0o640)).unwrap();
    for (executable, wanted) in [(Some(true), 0o750), (None, 0o750), (Some(false), 0o640)] {
        let options = WriteOptions { if_match: IfMatch::Any, executable };
        write(&fixture.root, b"f", b"", &options, &fixture.limits).unwrap();
        assert_eq!(fixture.mode("f"), wanted);
    }
    let options = WriteOptions { if_match: IfMatch::Any, executable: Some(true) };
    write(&fixture.root, b"new", b"", &options, &fixture.limits).unwrap();
    assert_eq!(fixture.mode("new") & 0o700, 0o700);
}

#[test]
fn fed_13_a_link_stays_a_link() {
    let fixture = Fixture::new();
    fixture.put("dir/t", "old");
    fixture.link("dir/t", "l");
    fixture.link("l", "l2");
    for (path, wanted) in [("l", "new"), ("l2", "newer")] {
        assert!(!fixture.write(path, wanted).unwrap().created);
        assert_eq!(fixture.get("dir/t"), wanted.as_bytes());
    }
    fixture.edit("l2", "newer", "edited").unwrap();
    assert_eq!(fixture.get("dir/t"), b"edited");
    fixture.link("dir/made/here", "dangling");
    assert!(fixture.write("dangling", "x").unwrap().created);
    assert_eq!(fixture.get("dir/made/here"), b"x");
    for link in ["l", "l2", "dangling"] {
        assert!(fs::symlink_metadata(fixture.path(link)).unwrap().is_symlink());
    }
}

#[test]
fn a_file_with_several_names_keeps_them() {
    let fixture = Fixture::new();
    fixture.put("f", "a long old content");
    fs::hard_link(fixture.path("f"), fixture.path("g")).unwrap();
    fixture.write("f", "short").unwrap();
    assert_eq!((fixture.get("f"), fixture.get("g")), (b"short".to_vec(), b"short".to_vec()));
    fixture.edit("g", "short", "edited").unwrap();
    assert_eq!((fixture.get("f"), fixture.get("g")), (b"edited".to_vec(), b"edited".to_vec()));
}

#[test]
fn a_running_program_can_be_replaced() {
    let fixture = Fixture::new();
    fs::copy("/bin/sleep", fixture.path("program")).unwrap();
    let mut child = Command::new(fixture.path("program")).arg("60").spawn().unwrap();
    let written = fixture.write("program", "#!/bin/sh\n");
    child.kill().unwrap();
    child.wait().unwrap();
    written.unwrap();
    assert_eq!((fixture.get("program"), fixture.mode("program")), (b"#!/bin/sh\n".to_vec(), 0o755));
}

#[test]
fn fed_17_a_write_from_a_stale_read_is_refused() {
    let fixture = Fixture::new();
    fixture.put("f", "v1");
    let seen = IfMatch::Sha256(fixture.lines("f").unwrap().sha256.unwrap());
    fixture.put("f", "v2");
    let error = fixture.write_if("f", "v3", seen.clone()).unwrap_err();
    assert!(matches!(&error, Error::FileChanged { sha256, .. } if *sha256 == sha256_hex(b"v2")), "{error}");
    assert_eq!(fixture.get("f"), b"v2");
    fixture.write_if("f", "v3", IfMatch::Sha256(sha256_hex(b"v2"))).unwrap();
    let error = fixture.write_if("absent", "v3", seen).unwrap_err();
    assert!(matches!(&error, Error::FileChanged { sha256, .. } if sha256 == "absent"), "{error}");
    assert_eq!(fixture.names("."), ["f"]);
}

#[test]
fn fed_25_a_write_that_must_create_leaves_what_is_there() {
    let fixture = Fixture::new();
    assert!(fixture.write_if("f", "first", IfMatch::Absent).unwrap().created);
    let error = fixture.write_if("f", "second", IfMatch::Absent).unwrap_err();
    assert!(matches!(error, Error::FileChanged { .. }), "{error}");
    assert_eq!(fixture.get("f"), b"first");
}

#[test]
fn conditions_are_hashes_or_absent() {
    let hash = sha256_hex(b"");
    assert_eq!(IfMatch::parse("").unwrap(), IfMatch::Any);
    assert_eq!(IfMatch::parse("absent").unwrap(), IfMatch::Absent);
    assert_eq!(IfMatch::parse(&hash.to_uppercase()).unwrap(), IfMatch::Sha256(hash));
    for text in ["12", "Absent", &"g".repeat(64)] {
        assert!(
            matches!(IfMatch::parse(text), Err(Error::InvalidArgument { field: "if_match", .. })),
            "{text}"
        );
    }
}

#[test]
fn fed_27_files_of_all_sizes_arrive_whole_or_the_limit_is_named() {
    let fixture = Fixture::new();
    for bytes in [120_000, 1 << 20, 3_900_000, 4_100_000, 16 << 20] {
        let mut content = "\u{20ac}\"'\n".repeat(bytes / 6 + 1).into_bytes();
        content.truncate(bytes);
        let written = fixture.write("f", &content).unwrap();
        assert_eq!(
            (written.sha256, written.size_bytes),
            (sha256_hex(&content), u64::try_from(bytes).unwrap())
        );
        assert_eq!(fixture.get("f"), content);
    }
    let error = fixture.write("g", vec![b'x'; 20 << 20]).unwrap_err().to_string();
    assert_eq!(error, "g has 20971520 bytes, more than the 16777216 that can be read or edited at once");
    assert_eq!(fixture.names("."), ["f"]);
}

#[test]
fn a_reserve_of_free_disk_is_kept() {
    let mut fixture = Fixture::new();
    fixture.put("f", "old");
    fixture.limits.reserve_bytes = u64::MAX / 2;
    for path in ["f", "new/x"] {
        let error = fixture.write(path, "new").unwrap_err();
        assert!(matches!(error, Error::NoSpace { free_bytes, .. } if free_bytes > 0), "{error}");
    }
    assert!(matches!(fixture.edit("f", "old", "new"), Err(Error::NoSpace { .. })));
    assert_eq!((fixture.names("."), fixture.get("f")), (vec!["f".to_owned()], b"old".to_vec()));
}

/// Names the directory in which a child of a test does its part.
const CHILD_DIRECTORY: &str = "RUNLET_TEST_CHILD_DIRECTORY";

/// This test program, to run `test`, a path below this folder's module, alone with the part of a child in `directory`, after a line of shell.
fn child(test: &str, directory: &Path, shell: &str) -> Command {
    let mut command = Command::new("bash");
    let script = format!("{shell}; exec \"$0\" --exact --nocapture \"$1\"");
    command.arg("-c").arg(script).arg(std::env::current_exe().unwrap()).arg(format!("file::{test}"));
    command.env(CHILD_DIRECTORY, directory).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn child_fixture() -> Option<Fixture> {
    let directory = std::env::var_os(CHILD_DIRECTORY)?;
    Some(Fixture::in_directory(tempfile::Builder::new().disable_cleanup(true).tempdir_in(directory).unwrap()))
}

/// Writes and edits that don't fit; the old content stays, and nothing else.
fn fill_disk(fixture: &Fixture) {
    fixture.put("orig", "0123456789");
    fixture.put("linked", "0123456789");
    fs::hard_link(fixture.path("linked"), fixture.path("twin")).unwrap();
    let five = vec![b'x'; 5 << 20];
    for path in ["orig", "linked", "new"] {
        let error = fixture.write(path, &five).unwrap_err();
        assert!(matches!(error, Error::NoSpace { .. }), "{path}: {error}");
        assert!(error.to_string().starts_with("no space"));
    }
    for path in ["orig", "linked"] {
        let error = fixture.edits(path, &[all("5", &"y".repeat(5 << 20))]).unwrap_err();
        assert!(matches!(error, Error::NoSpace { .. }), "{path}: {error}");
        assert_eq!(fixture.get(path), b"0123456789");
    }
    assert_eq!(fixture.names("."), ["linked", "orig", "twin"]);
    fixture.write("orig", "still works").unwrap();
}

#[test]
fn fed_15_a_full_disk_leaves_the_old_file() {
    in_little_space("write_tests::fed_15_a_full_disk_leaves_the_old_file", fill_disk);
}

/// Runs `body`, the whole of `test`, where no file may be larger than 1 MiB; and, where this user may mount, on a disk
/// of 1 MiB.
pub(super) fn in_little_space(test: &str, body: impl FnOnce(&Fixture)) {
    if let Some(fixture) = child_fixture() {
        return body(&fixture);
    }
    let directory = tempfile::tempdir().unwrap();
    let run = |shell: &str| {
        let output = child(test, directory.path(), shell).output().unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{shell}: {text}");
    };
    run("trap '' XFSZ; ulimit -f 1024");
    let mount =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(directory.path()).output();
    if mount.is_ok_and(|output| output.status.success()) {
        run("true");
        assert!(Command::new("umount").arg(directory.path()).status().unwrap().success());
    }
}

#[test]
fn fed_15_a_kill_in_mid_write_leaves_the_old_content_or_the_new() {
    let contents = ["old\n".repeat(500_000), "new!\n".repeat(500_000)];
    let work = |fixture: &Fixture| {
        for content in &contents {
            fixture.write("f", content).unwrap();
        }
    };
    let test = "write_tests::fed_15_a_kill_in_mid_write_leaves_the_old_content_or_the_new";
    killed_in_mid_work(test, work, |work| {
        let left = fs::read(work.join("f")).unwrap();
        assert!(contents.iter().any(|content| left == content.as_bytes()), "{} bytes", left.len());
    });
}

/// Has a child do `body`, a part of the whole of `test` that writes a file `f`, over and over; kills it 50 times in the
/// midst of that, and has `check` look at its work directory.
pub(super) fn killed_in_mid_work(test: &str, body: impl Fn(&Fixture), check: impl Fn(&Path)) {
    if let Some(fixture) = child_fixture() {
        loop {
            body(&fixture);
        }
    }
    let directory = tempfile::tempdir().unwrap();
    for round in 0..50 {
        let mut child = child(test, directory.path(), "true").spawn().unwrap();
        let work = wait_for_work(directory.path());
        // A little later each time, so that the kill meets every part of a write.
        std::thread::park_timeout(std::time::Duration::from_micros(100 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        check(&work);
        fs::remove_dir_all(work.parent().unwrap().parent().unwrap()).unwrap();
    }
}

/// Waits until the child has written its file for the first time; returns its work directory.
fn wait_for_work(directory: &Path) -> std::path::PathBuf {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        let entries: io::Result<Vec<_>> = fs::read_dir(directory).unwrap().collect();
        if let Some(entry) = entries.unwrap().first() {
            let work = entry.path().join("a/work");
            if work.join("f").exists() {
                return work;
            }
        }
        assert!(std::time::Instant::now() < deadline, "the child writes nothing");
        std::thread::yield_now();
    }
}
