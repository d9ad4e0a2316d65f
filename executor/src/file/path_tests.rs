//! Where paths lead, and where they don't.

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::{
    fixture::{Fixture, problem},
    list::{self, ListRequest},
};
use crate::error::{Error, PathProblem};

#[test]
fn relative_absolute_and_home_paths_lead_to_the_same_files() {
    let fixture = Fixture::new();
    fixture.put("dir/f", "work");
    fs::write(fixture.root.path().join("home/f"), "home").unwrap();
    let absolute = fixture.path("dir//./f").to_str().unwrap().to_owned();
    for path in ["dir/f", "./dir/../dir/f", "~/../work/dir/f", &*absolute] {
        let found = fixture.lines(path).unwrap();
        assert_eq!((found.path, found.content), (fixture.path("dir/f"), b"work".to_vec()), "{path}");
    }
    assert_eq!(fixture.lines("~/f").unwrap().content, b"home");
    fixture.put("~other", "a name");
    assert_eq!(fixture.lines("~other").unwrap().content, b"a name");
}

#[test]
fn fed_20_a_directory_for_a_file_and_the_reverse() {
    let fixture = Fixture::new();
    fixture.put("dir/f", "x");
    for path in ["dir", "dir/", ".", "~", "dir/.."] {
        assert_eq!(problem(fixture.lines(path)), PathProblem::IsADirectory, "{path}");
        assert_eq!(problem(fixture.write(path, "x")), PathProblem::IsADirectory, "{path}");
        assert_eq!(problem(fixture.edit(path, "x", "y")), PathProblem::IsADirectory, "{path}");
    }
    for path in ["dir/f/x", "dir/f/", "dir/f/..", "dir/f/."] {
        assert_eq!(problem(fixture.lines(path)), PathProblem::NotADirectory, "{path}");
        assert_eq!(problem(fixture.write(path, "x")), PathProblem::NotADirectory, "{path}");
    }
    assert_eq!(problem(fixture.write("new/", "x")), PathProblem::IsADirectory);
    let request = list_request("dir/f");
    assert_eq!(problem(list::list(&fixture.root, &request, &fixture.limits)), PathProblem::NotADirectory);
    assert!(fixture.write("newdir/sub/x", "x").unwrap().created);
    assert_eq!(fixture.get("newdir/sub/x"), b"x");
    assert_eq!(fixture.names("."), ["dir", "newdir"]);
}

#[test]
fn fed_21_a_path_out_is_refused_without_a_hint() {
    let fixture = Fixture::new();
    let secret = fixture.directory.path().canonicalize().unwrap().join("a-secret");
    fs::create_dir(&secret).unwrap();
    fs::write(secret.join("s"), "secret").unwrap();
    let secret = secret.to_str().unwrap();
    fixture.put("x/f", "");
    let outside = [
        format!("{secret}/s"),
        format!("{secret}/absent"),
        "../../a-secret/s".to_owned(),
        "../../a-secret/absent".to_owned(),
        "x/../../../a-secret/s".to_owned(),
        "x/./../..//../../../../../../etc/passwd".to_owned(),
        "~/../../a-secret/s".to_owned(),
        "/etc/passwd".to_owned(),
        "/etc/absent".to_owned(),
        "/".to_owned(),
        format!("{}/../a-secret/s", fixture.root.path().display()),
    ];
    for path in &outside {
        let error = fixture.lines(path).unwrap_err().to_string();
        assert_eq!(error, format!("{path}: the path leads out of the workspace"));
        assert_eq!(problem(fixture.write(path, "x")), PathProblem::OutsideWorkspace, "{path}");
    }
    for path in ["../a-secret/s", "absent/../../../a-secret/s", "%2e%2e/", "~/.ssh/id_rsa"] {
        assert_eq!(problem(fixture.lines(path)), PathProblem::NotFound, "{path}");
    }
    for path in [&b""[..], b"a\0b", &[b'x'; 5000]] {
        let error = fixture.lines(path).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { field: "path", .. }), "{error}");
    }
    assert!(matches!(
        fixture.write("n".repeat(256), "").unwrap_err(),
        Error::InvalidArgument { field: "path", .. }
    ));
    assert_eq!(fs::read(format!("{secret}/s")).unwrap(), b"secret");
}

#[test]
fn fed_22_a_link_out_is_refused_and_one_inside_is_followed() {
    let fixture = Fixture::new();
    let secret = fixture.directory.path().join("a-secret");
    fs::write(&secret, "secret").unwrap();
    fixture.link("/etc/passwd", "leak");
    fixture.link("/", "root");
    fixture.link("../../a-secret", "beside");
    fixture.link(fixture.directory.path().join("absent"), "dangling");
    fixture.put("f", "inside");
    fixture.link(fixture.path("f"), "absolute");
    fixture.link(fixture.root.path(), "up");
    for path in ["leak", "root/etc/passwd", "beside", "dangling", "root/etc/absent", "up/work/leak"] {
        assert_eq!(problem(fixture.lines(path)), PathProblem::OutsideWorkspace, "{path}");
        assert_eq!(problem(fixture.write(path, "x")), PathProblem::OutsideWorkspace, "{path}");
        assert_eq!(problem(fixture.edit(path, "s", "x")), PathProblem::OutsideWorkspace, "{path}");
    }
    for path in ["absolute", "up/work/f", "up/work/up/work/absolute"] {
        let found = fixture.lines(path).unwrap();
        assert_eq!((found.path, found.content), (fixture.path("f"), b"inside".to_vec()), "{path}");
    }
    assert_eq!(
        problem(list::list(&fixture.root, &list_request("root"), &fixture.limits)),
        PathProblem::OutsideWorkspace
    );
    assert_eq!(fs::read(&secret).unwrap(), b"secret");
}

#[test]
fn fed_13_links_in_a_circle_are_named_so() {
    let fixture = Fixture::new();
    fixture.link("b", "a");
    fixture.link("a", "b");
    fixture.link(fixture.path("self"), "self");
    for path in ["a", "self", "a/x"] {
        assert_eq!(problem(fixture.lines(path)), PathProblem::SymlinkLoop, "{path}");
        assert_eq!(problem(fixture.write(path, "")), PathProblem::SymlinkLoop, "{path}");
    }
    assert!(fixture.lines("a").unwrap_err().to_string().contains("ELOOP"));
}

#[test]
fn fed_19_pipes_sockets_and_devices_are_refused_at_once() {
    let fixture = Fixture::new();
    fixture.put_special_files();
    fixture.link("p", "to-pipe");
    let start = Instant::now();
    for path in ["p", "s", "to-pipe"] {
        assert_eq!(problem(fixture.lines(path)), PathProblem::NotARegularFile, "{path}");
        assert_eq!(problem(fixture.write(path, "")), PathProblem::NotARegularFile, "{path}");
        assert_eq!(problem(fixture.edit(path, "a", "b")), PathProblem::NotARegularFile, "{path}");
    }
    assert_eq!(problem(fixture.lines("z")), PathProblem::OutsideWorkspace);
    let listing = list::list(&fixture.root, &list_request("."), &fixture.limits).unwrap();
    let kinds: Vec<_> = listing.entries.iter().map(|entry| (&*entry.path, entry.kind)).collect();
    use super::Kind::{Other, Symlink};
    assert_eq!(kinds, [(&b"p"[..], Other), (b"s", Other), (b"to-pipe", Symlink), (b"z", Symlink)]);
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[test]
fn fed_24_a_directory_swapped_for_a_link_leads_nowhere_else() {
    let fixture = Fixture::new();
    let out = fixture.directory.path().join("out");
    fs::create_dir(&out).unwrap();
    fs::create_dir(fixture.path("d")).unwrap();
    fixture.link(&out, "l");
    let (d, l) = (fixture.path("d"), fixture.path("l"));
    let done = AtomicBool::new(false);
    let (mut written, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                renameat_with(CWD, &d, CWD, &l, RenameFlags::EXCHANGE).unwrap();
            }
        });
        for number in 0..10_000 {
            match fixture.write("d/x", format!("{number}")) {
                Ok(_) => written += 1,
                Err(Error::Path { problem: PathProblem::OutsideWorkspace, .. }) => refused += 1,
                Err(e) => panic!("{e}"),
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(fs::read_dir(&out).unwrap().count(), 0);
    assert!(written > 0 && refused > 0, "{written} written, {refused} refused");
}

#[test]
fn fed_30_names_that_differ_only_in_case_are_two_files() {
    let fixture = Fixture::new();
    fixture.put("README.md", "upper\n");
    fixture.put("readme.md", "lower\n");
    fixture.edit("readme.md", "lower", "changed").unwrap();
    assert_eq!(
        (fixture.get("README.md"), fixture.get("readme.md")),
        (b"upper\n".to_vec(), b"changed\n".to_vec())
    );
}

fn list_request(path: &str) -> ListRequest {
    ListRequest {
        path: path.into(),
        glob: String::new(),
        depth: 2,
        include_ignored: true,
        page_size: 100,
        page_token: String::new(),
    }
}
