//! Ranges, facts of files, and files larger than memory.

use std::{
    fs::{self, File},
    io::Write as _,
    time::{Duration, Instant},
};

use super::{
    LineEnding, Range,
    condition::sha256_hex,
    fixture::{Fixture, problem},
};
use crate::error::{Error, PathProblem};

fn lines(start: u64, count: u64) -> Range {
    Range::Lines { start, count }
}

fn bytes(offset: u64, length: u64) -> Range {
    Range::Bytes { offset, length }
}

#[test]
fn ranges_of_lines_with_their_place_and_the_totals() {
    let mut fixture = Fixture::new();
    let content = b"one\ntwo\nthree\nfour";
    fixture.put("f", content);
    let cases = [
        (lines(1, 2000), 0, 4, &content[..]),
        (lines(1, 1), 0, 1, b"one\n"),
        (lines(2, 2), 4, 2, b"two\nthree\n"),
        (lines(4, 1), 14, 1, b"four"),
        (lines(4, u64::MAX), 14, 1, b"four"),
        (lines(5, 1), 18, 0, b""),
        (lines(u64::MAX, u64::MAX), 18, 0, b""),
    ];
    for (range, offset, count, wanted) in cases {
        let found = fixture.read("f", range).unwrap();
        assert_eq!((found.offset, found.line_count, &*found.content), (offset, count, wanted), "{range:?}");
        assert_eq!((found.size_bytes, found.total_lines), (18, Some(4)));
        assert_eq!(found.sha256, Some(sha256_hex(content)));
    }
    // A file larger than the limit is read by parts: the same ranges, without the totals.
    fixture.limits.max_bytes = 17;
    for (range, offset, count, wanted) in cases.into_iter().skip(1) {
        let found = fixture.read("f", range).unwrap();
        assert_eq!((found.offset, found.line_count, &*found.content), (offset, count, wanted), "{range:?}");
        assert_eq!((found.size_bytes, found.total_lines, found.sha256), (18, None, None));
    }
    assert!(matches!(
        fixture.read("f", lines(1, 2000)),
        Err(Error::FileTooLarge { bytes: 18, limit: 17, .. })
    ));
}

#[test]
fn ranges_of_bytes() {
    let mut fixture = Fixture::new();
    fixture.put("f", "0123456789");
    for limit in [10, 9] {
        fixture.limits.max_bytes = limit;
        for (range, wanted) in
            [(bytes(2, 3), "234"), (bytes(8, 100), "89"), (bytes(1, 0), "123456789"), (bytes(99, 5), "")]
        {
            let found = fixture.read("f", range).unwrap();
            assert_eq!(found.content, wanted.as_bytes(), "{range:?}");
            assert!(matches!(range, Range::Bytes { offset, .. } if offset == found.offset));
            assert_eq!((found.start_line, found.line_count), (0, 0));
        }
    }
    assert_eq!(fixture.read("f", bytes(0, 0)).unwrap().content, b"012345678");
    assert!(matches!(fixture.read("f", bytes(0, 10)), Err(Error::FileTooLarge { .. })));
}

#[test]
fn impossible_ranges_and_absent_files_are_named() {
    let fixture = Fixture::new();
    fixture.put("empty", "");
    let error = |range| fixture.read("empty", range).unwrap_err().to_string();
    assert_eq!(error(lines(0, 1)), "start_line: is 0; the first line has number 1");
    assert_eq!(error(lines(1, 0)), "line_count: is 0; expected at least 1");
    let empty = fixture.lines("empty").unwrap();
    assert_eq!((empty.total_lines, empty.line_count, empty.line_ending), (Some(0), 0, LineEnding::None));
    assert_eq!(problem(fixture.lines("absent")), PathProblem::NotFound);
}

#[test]
fn fed_03_the_byte_order_mark_is_left_out_and_told() {
    let mut fixture = Fixture::new();
    fixture.put("f", b"\xef\xbb\xbfx=1\ny=2\n");
    for limit in [100, 10] {
        fixture.limits.max_bytes = limit;
        let first = fixture.read("f", lines(1, 1)).unwrap();
        assert_eq!((&*first.content, first.offset, first.byte_order_mark), (&b"x=1\n"[..], 3, true));
        let second = fixture.read("f", lines(2, 1)).unwrap();
        assert_eq!((&*second.content, second.offset, second.byte_order_mark), (&b"y=2\n"[..], 7, true));
        let raw = fixture.read("f", bytes(0, 4)).unwrap();
        assert_eq!((&*raw.content, raw.byte_order_mark), (&b"\xef\xbb\xbfx"[..], false));
    }
}

#[test]
fn line_ends_are_told() {
    let fixture = Fixture::new();
    let cases = [
        ("a", LineEnding::None),
        ("a\nb\n", LineEnding::Lf),
        ("a\r\nb\r\n", LineEnding::Crlf),
        ("a\r\nb\n", LineEnding::Mixed),
        ("a\rb", LineEnding::None),
    ];
    for (content, wanted) in cases {
        fixture.put("f", content);
        assert_eq!(fixture.lines("f").unwrap().line_ending, wanted, "{content:?}");
    }
}

#[test]
fn fed_09_a_tab_is_read_as_a_tab() {
    let fixture = Fixture::new();
    fixture.put("Makefile", "all:\n\tcc x\n");
    assert_eq!(fixture.read("Makefile", lines(2, 1)).unwrap().content, b"\tcc x\n");
}

#[test]
fn fed_26_a_file_larger_than_memory_is_read_where_asked() {
    let fixture = Fixture::new();
    let size = 10 << 30;
    let mut file = File::create(fixture.path("big")).unwrap();
    file.write_all("line\n".repeat(10).as_bytes()).unwrap();
    file.set_len(size).unwrap();
    let mut file = File::options().append(true).open(fixture.path("big")).unwrap();
    file.write_all(b"\nend\n").unwrap();
    let before = peak_memory();
    let start = Instant::now();

    let head = fixture.read("big", lines(1, 10)).unwrap();
    assert_eq!((head.content, head.size_bytes), ("line\n".repeat(10).into_bytes(), size + 5));
    assert_eq!(fixture.read("big", bytes(size, 0)).unwrap().content, b"\nend\n");
    assert_eq!(fixture.read("big", bytes(size + 1, 3)).unwrap().content, b"end");
    let tail = fixture.read("big", lines(12, 5)).unwrap();
    assert_eq!((&*tail.content, tail.offset, tail.line_count), (&b"end\n"[..], size + 1, 1));
    // Line 11 is the hole.
    assert!(matches!(fixture.read("big", lines(11, 1)), Err(Error::FileTooLarge { .. })));
    let error = fixture.edit("big", "end", "END").unwrap_err().to_string();
    assert!(error.contains("more than the 16777216"), "{error}");

    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    // Other tests run beside this one, so the bound is wide, but far below the file.
    assert!(peak_memory() - before < 512 << 20, "{}", peak_memory() - before);
    assert_eq!(fs::metadata(fixture.path("big")).unwrap().len(), size + 5);
}

/// Largest resident set of this process so far, in bytes.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}
