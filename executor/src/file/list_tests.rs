//! What a listing shows, in what order, and how its pages fit together.

use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt as _, time::Duration};

use super::{Kind, ListRequest, Listing, fixture::Fixture, list::list};
use crate::error::Error;

fn request() -> ListRequest {
    ListRequest {
        path: Vec::new(),
        glob: String::new(),
        depth: 2,
        include_ignored: false,
        page_size: 500,
        page_token: String::new(),
    }
}

fn listed(fixture: &Fixture, request: &ListRequest) -> Listing {
    list(&fixture.root, request, &fixture.limits).unwrap()
}

fn paths(listing: &Listing) -> Vec<String> {
    listing.entries.iter().map(|entry| String::from_utf8_lossy(&entry.path).into_owned()).collect()
}

/// A tree whose order by bytes is not that of its directories.
fn tree() -> Fixture {
    let fixture = Fixture::new();
    for path in ["a/x", "a/y/z", "a-b", "a.c/d", "a0", "B", ".hidden/f", ".git/HEAD"] {
        fixture.put(path, path);
    }
    fixture
}

#[test]
fn entries_come_in_the_order_of_their_bytes_down_to_the_depth() {
    let fixture = tree();
    let all = ["B", "a", "a-b", "a.c", "a.c/d", "a/x", "a/y", "a/y/z", "a0"];
    assert_eq!(paths(&listed(&fixture, &ListRequest { depth: 9, ..request() })), all);
    assert_eq!(paths(&listed(&fixture, &request())), ["B", "a", "a-b", "a.c", "a.c/d", "a/x", "a/y", "a0"]);
    assert_eq!(
        paths(&listed(&fixture, &ListRequest { depth: 1, ..request() })),
        ["B", "a", "a-b", "a.c", "a0"]
    );
    let inner = listed(&fixture, &ListRequest { path: b"a".to_vec(), ..request() });
    assert_eq!(
        (paths(&inner), inner.path),
        (vec!["a/x".into(), "a/y".into(), "a/y/z".into()], fixture.path("a"))
    );
    let everything = paths(&listed(&fixture, &ListRequest { include_ignored: true, ..request() }));
    assert_eq!(everything[..5], [".git", ".git/HEAD", ".hidden", ".hidden/f", "B"]);
}

#[test]
fn pages_of_any_size_add_up_to_the_whole_also_when_entries_come_and_go() {
    let fixture = tree();
    let whole = paths(&listed(&fixture, &ListRequest { depth: 9, ..request() }));
    for page_size in 1..=whole.len() + 1 {
        let mut request = ListRequest { depth: 9, page_size, ..request() };
        let mut seen = Vec::new();
        loop {
            let page = listed(&fixture, &request);
            assert!(page.entries.len() <= page_size && !page.incomplete);
            seen.extend(paths(&page));
            if page.next_page_token.is_empty() {
                break;
            }
            request.page_token = page.next_page_token;
        }
        assert_eq!(seen, whole, "pages of {page_size}");
    }
    let first = listed(&fixture, &ListRequest { depth: 9, page_size: 4, ..request() });
    assert_eq!(paths(&first), ["B", "a", "a-b", "a.c"]);
    fs::remove_dir_all(fixture.path("a.c")).unwrap();
    fixture.put("A", "");
    fixture.put("a.d", "");
    let rest = ListRequest { depth: 9, page_token: first.next_page_token, ..request() };
    assert_eq!(paths(&listed(&fixture, &rest)), ["a.d", "a/x", "a/y", "a/y/z", "a0"]);
}

#[test]
fn a_pattern_without_a_slash_matches_the_last_part_at_any_depth() {
    let fixture = Fixture::new();
    for path in ["main.rs", "src/lib.rs", "src/deep/x.rs", "src/deep/x.py"] {
        fixture.put(path, "");
    }
    let matching =
        |glob: &str| paths(&listed(&fixture, &ListRequest { glob: glob.into(), depth: 9, ..request() }));
    assert_eq!(matching("*.rs"), ["main.rs", "src/deep/x.rs", "src/lib.rs"]);
    assert_eq!(matching("src/*.rs"), ["src/lib.rs"]);
    assert_eq!(matching("/*.rs"), ["main.rs"]);
    assert_eq!(matching("src/**/*.{py,rs}"), ["src/deep/x.py", "src/deep/x.rs", "src/lib.rs"]);
    assert_eq!(matching("deep"), ["src/deep"]);
    let request = ListRequest { glob: "[a".into(), ..request() };
    let error = list(&fixture.root, &request, &fixture.limits).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { field: "glob", .. }), "{error}");
}

#[test]
fn rules_of_git_and_ripgrep_leave_out_what_they_name() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path(".git/info")).unwrap();
    fixture.put(".git/info/exclude", "secret\n");
    fixture.put(".gitignore", "/build/\n*.log\n!keep.log\n!.shown\n");
    fixture.put("sub/.gitignore", "*.tmp\n");
    fixture.put("sub/.ignore", "!important.log\n");
    fixture.put("inner/.git", "gitdir: elsewhere\n");
    for path in [
        "build/x",
        "a.log",
        "keep.log",
        "secret",
        ".shown",
        "sub/build",
        "sub/x.tmp",
        "sub/important.log",
        "sub/y.log",
    ] {
        fixture.put(path, "");
    }
    fixture.put("inner/z.log", "");
    let wanted = [".shown", "inner", "inner/z.log", "keep.log", "sub", "sub/build", "sub/important.log"];
    assert_eq!(paths(&listed(&fixture, &request())), wanted);
    let sub = ListRequest { path: b"sub".to_vec(), ..request() };
    assert_eq!(paths(&listed(&fixture, &sub)), ["sub/build", "sub/important.log"]);
    // Without a repository .gitignore is a file like any other, as for ripgrep; .ignore counts.
    fs::remove_dir_all(fixture.path(".git")).unwrap();
    let names = paths(&listed(&fixture, &ListRequest { depth: 1, ..request() }));
    assert_eq!(names, ["a.log", "build", "inner", "keep.log", "secret", "sub"]);
}

#[test]
fn fed_28_names_that_are_not_text_are_listed_once_and_readable_by_what_is_listed() {
    let fixture = Fixture::new();
    let names: [&[u8]; 5] = [b"\x1b[31m", b" lead", b"-rf", b"bad\xff.txt", b"nl\nx"];
    for name in names {
        fixture.put(OsStr::from_bytes(name), name);
    }
    let listing = listed(&fixture, &request());
    let found: Vec<&[u8]> = listing.entries.iter().map(|entry| &*entry.path).collect();
    assert_eq!(found, names);
    for name in found {
        assert_eq!(fixture.lines(name).unwrap().content, name);
        fixture.write(name, "new").unwrap();
    }
    let error = fixture.lines(b"no\xff\n").unwrap_err().to_string();
    assert_eq!(error, "no\\xff\\n: no such file or directory");
}

#[test]
fn links_are_shown_and_not_followed() {
    let fixture = Fixture::new();
    fixture.put("f", "12345");
    fixture.link("/", "out");
    fixture.link(".", "self");
    let entries = listed(&fixture, &ListRequest { depth: 9, ..request() }).entries;
    let facts: Vec<_> = entries.iter().map(|entry| (&*entry.path, entry.kind, &*entry.link_target)).collect();
    let wanted: [(&[u8], Kind, &[u8]); 3] =
        [(b"f", Kind::File, b""), (b"out", Kind::Symlink, b"/"), (b"self", Kind::Symlink, b".")];
    assert_eq!(facts, wanted);
    assert_eq!((entries[0].size_bytes, entries[0].mode), (5, fixture.mode("f")));
    assert!(entries[0].modified > 1_700_000_000);
}

#[test]
fn a_listing_that_meets_its_limit_says_so_and_goes_on_from_there() {
    let mut fixture = Fixture::new();
    let mut wanted = Vec::new();
    for directory in ["a", "b", "c"] {
        wanted.push(directory.to_owned());
        for number in 0..10 {
            fixture.put(format!("{directory}/{number}"), "");
            wanted.push(format!("{directory}/{number}"));
        }
    }
    for (names, time) in [(12, Duration::from_secs(5)), (1000, Duration::ZERO)] {
        (fixture.limits.list_names, fixture.limits.list_time) = (names, time);
        let (mut request, mut seen, mut pages) = (request(), Vec::new(), 0);
        loop {
            let page = listed(&fixture, &request);
            seen.extend(paths(&page));
            pages += 1;
            if page.next_page_token.is_empty() {
                assert!(!page.incomplete);
                break;
            }
            assert!(page.incomplete);
            request.page_token = page.next_page_token;
        }
        assert_eq!(seen, wanted);
        assert!((3..=4).contains(&pages), "{pages}");
    }
}

#[test]
fn a_directory_with_more_names_than_the_limit_is_shown_in_part() {
    let mut fixture = Fixture::new();
    for number in 0..20 {
        fixture.put(format!("{number}"), "");
    }
    fixture.limits.list_names = 15;
    let listing = listed(&fixture, &request());
    assert_eq!((listing.entries.len(), listing.incomplete), (15, true));
}

#[test]
fn a_tree_too_deep_is_walked_in_part_and_says_so() {
    let fixture = Fixture::new();
    fixture.put(format!("{}f", "d/".repeat(300)), "");
    let listing = listed(&fixture, &ListRequest { depth: 1000, ..request() });
    assert_eq!((listing.entries.len(), listing.incomplete, &*listing.next_page_token), (128, true, ""));
    let listing = listed(&fixture, &ListRequest { depth: 20, ..request() });
    assert_eq!((listing.entries.len(), listing.incomplete), (20, false));
}

#[test]
fn wrong_arguments_are_named() {
    let fixture = Fixture::new();
    let error =
        |request: ListRequest| list(&fixture.root, &request, &fixture.limits).unwrap_err().to_string();
    assert_eq!(error(ListRequest { depth: 0, ..request() }), "depth: is 0; expected at least 1");
    assert_eq!(error(ListRequest { page_size: 0, ..request() }), "page_size: is 0; expected 1 to 5000");
    for token in ["!", "AAAA"] {
        let request = ListRequest { page_token: token.into(), ..request() };
        assert_eq!(error(request), "page_token: is none that a page ended with");
    }
}
