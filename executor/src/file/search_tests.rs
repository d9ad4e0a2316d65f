//! What a search finds, in what order, and how its pages fit together.

use std::{
    fs::File,
    time::{Duration, Instant},
};

use super::{
    SearchRequest, SearchResult,
    fixture::{Fixture, problem},
    search::search,
};
use crate::error::{Error, PathProblem};

fn request(pattern: &str) -> SearchRequest {
    SearchRequest {
        pattern: pattern.into(),
        path: Vec::new(),
        glob: String::new(),
        literal: false,
        ignore_case: false,
        context: 0,
        page_size: 100,
        page_token: String::new(),
    }
}

fn searched(fixture: &Fixture, request: &SearchRequest) -> SearchResult {
    search(&fixture.root, request, &fixture.limits).unwrap()
}

/// Lines in grep's form.
fn lines(result: &SearchResult) -> Vec<String> {
    let form = |line: &super::FoundLine| {
        let mark = if line.is_match { ':' } else { '-' };
        format!("{}{mark}{}{mark}{}", line.path.display(), line.number, line.text)
    };
    result.lines.iter().map(form).collect()
}

fn tree() -> Fixture {
    let fixture = Fixture::new();
    fixture.put("a/x", "one\ntwo\nthree\nfour\nfive\n");
    fixture.put("a-b", "two\r\nTwo\r\n");
    fixture.put("b/c/d", "zero\ntwo");
    fixture
}

#[test]
fn matches_come_in_the_order_of_path_and_line() {
    let fixture = tree();
    let found = searched(&fixture, &request("^t.o$"));
    assert_eq!(lines(&found), ["a-b:1:two", "a/x:2:two", "b/c/d:2:two"]);
    assert_eq!((found.searched_files, found.binary_files, found.incomplete), (3, 0, false));
    assert_eq!(found.next_page_token, "");
    let insensitive = SearchRequest { ignore_case: true, glob: "a-*".into(), ..request("TWO") };
    assert_eq!(lines(&searched(&fixture, &insensitive)), ["a-b:1:two", "a-b:2:Two"]);
    assert_eq!(lines(&searched(&fixture, &SearchRequest { literal: true, ..request("t.o") })), [""; 0]);
    assert_eq!(
        lines(&searched(&fixture, &SearchRequest { path: b"a/x".to_vec(), ..request("two") })),
        ["a/x:2:two"]
    );
    let home = SearchRequest { path: b"~".to_vec(), ..request("secret") };
    std::fs::write(fixture.root.path().join("home/f"), "a secret\n").unwrap();
    assert_eq!(
        lines(&searched(&fixture, &home)),
        [format!("{}/home/f:1:a secret", fixture.root.path().display())]
    );
}

#[test]
fn context_surrounds_matches_once() {
    let fixture = tree();
    let with_context = SearchRequest { context: 1, path: b"a".to_vec(), ..request("two|five") };
    assert_eq!(
        lines(&searched(&fixture, &with_context)),
        ["a/x-1-one", "a/x:2:two", "a/x-3-three", "a/x-4-four", "a/x:5:five"]
    );
}

#[test]
fn pages_of_any_size_add_up_to_the_whole() {
    let fixture = Fixture::new();
    for file in 0..100 {
        let content: String = (0..file % 7).map(|line| format!("match {line}\nother\n")).collect();
        fixture.put(format!("{}/{file}", file % 10), content);
    }
    let whole = lines(&searched(&fixture, &SearchRequest { page_size: 1000, ..request("match") }));
    assert_eq!(whole.len(), 295);
    for page_size in [1, 2, 7, 294, 295, 296] {
        let mut request = SearchRequest { page_size, context: 1, ..request("match") };
        let mut seen = Vec::new();
        loop {
            let page = searched(&fixture, &request);
            let matches = page.lines.iter().filter(|line| line.is_match).count();
            assert!(matches == page_size || page.next_page_token.is_empty());
            seen.extend(lines(&page).into_iter().filter(|line| line.contains("match")));
            if page.next_page_token.is_empty() {
                break;
            }
            request.page_token = page.next_page_token;
        }
        assert_eq!(seen, whole, "pages of {page_size}");
    }
}

#[test]
fn a_page_of_long_lines_ends_before_it_is_too_large() {
    let fixture = Fixture::new();
    fixture.put("f", format!("x{}\n", "\u{20ac}".repeat(2000)).repeat(500));
    let mut request = SearchRequest { page_size: 1000, ..request("x") };
    let first = searched(&fixture, &request);
    assert_eq!(first.lines[0].text.chars().count(), 1001);
    assert!(first.lines.len() < 500 && !first.next_page_token.is_empty());
    request.page_token = first.next_page_token;
    let second = searched(&fixture, &request);
    assert_eq!((first.lines.len() + second.lines.len(), &*second.next_page_token), (500, ""));
}

#[test]
fn fed_19_binary_files_and_what_is_no_file_are_passed_over() {
    let fixture = Fixture::new();
    fixture.put_special_files();
    fixture.put("binary", b"needle\n\0\n");
    fixture.put("latin", b"needle caf\xe9\n");
    fixture.put(".hidden", "needle\n");
    fixture.link("/etc", "out");
    fixture.link("latin", "link");
    let start = Instant::now();
    let found = searched(&fixture, &request("needle"));
    assert_eq!(lines(&found), ["latin:1:needle caf\u{fffd}"]);
    assert_eq!((found.searched_files, found.binary_files), (1, 1));
    for (path, wanted) in [
        ("p", PathProblem::NotARegularFile),
        ("out", PathProblem::OutsideWorkspace),
        ("../../a-secret", PathProblem::OutsideWorkspace),
        ("absent", PathProblem::NotFound),
    ] {
        let request = SearchRequest { path: path.into(), ..request("x") };
        assert_eq!(problem(search(&fixture.root, &request, &fixture.limits)), wanted, "{path}");
    }
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[test]
fn fed_26_a_large_file_without_text_is_passed_over_at_once() {
    let fixture = Fixture::new();
    File::create(fixture.path("big")).unwrap().set_len(10 << 30).unwrap();
    let start = Instant::now();
    assert_eq!(searched(&fixture, &request("x")).binary_files, 1);
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[test]
fn a_search_without_time_says_that_it_is_incomplete() {
    let mut fixture = tree();
    fixture.limits.search_time = Duration::ZERO;
    let found = searched(&fixture, &request("two"));
    assert_eq!((found.lines.len(), found.incomplete, &*found.next_page_token), (0, true, ""));
}

#[test]
fn wrong_arguments_are_named() {
    let fixture = Fixture::new();
    let error = |request: SearchRequest| search(&fixture.root, &request, &fixture.limits).unwrap_err();
    let unclosed = error(request("ab(c"));
    assert!(matches!(&unclosed, Error::InvalidArgument { field: "pattern", .. }), "{unclosed}");
    let text = unclosed.to_string();
    assert!(text.contains("    ab(c\n      ^\n") && text.contains("unclosed group"), "{text}");
    assert!(error(request("")).to_string().starts_with("pattern: is empty"));
    let lines = SearchRequest { literal: true, ..request("a\nb") };
    assert!(error(lines).to_string().starts_with("pattern: has a line break"));
    assert!(error(SearchRequest { context: 11, ..request("x") }).to_string().starts_with("context: is 11"));
    assert!(
        error(SearchRequest { page_size: 1001, ..request("x") })
            .to_string()
            .starts_with("page_size: is 1001")
    );
}
