use super::*;
use crate::output::{Caps, Log, Stream};

const CAPS: Caps = Caps { head_bytes: 64, tail_bytes: 256 << 10, segment_bytes: 64 << 10 };

/// Appends the parts one by one, polling after each, and returns the number of the first after which there was a match.
fn first_match(pattern: &str, parts: &[&[u8]]) -> Option<usize> {
    let root = tempfile::tempdir().unwrap();
    let log = Log::new(root.path().join("job"), Stream::Output);
    let mut writer = log.writer(CAPS);
    let mut until = Until::new(pattern, 0).unwrap();
    let mut reader = log.reader();
    let mut first = None;
    for (number, part) in parts.iter().enumerate() {
        writer.append(part);
        let found = until.poll(&mut reader, writer.total(), number + 1 == parts.len()).unwrap();
        assert_ne!(found, Found::More);
        if found == Found::Yes && first.is_none() {
            first = Some(number);
        }
        assert_eq!(found == Found::Yes, first.is_some());
    }
    first
}

#[test]
fn a_match_may_arrive_in_parts() {
    assert_eq!(
        first_match("ready on port [0-9]+", &[b"starting\n", b"rea", b"dy on port ", b"8", b"0"]),
        Some(3)
    );
    assert_eq!(first_match("a—b", &[b"a\xe2", b"\x80", b"\x94", b"\x1b[3", b"1mb"]), Some(4));
    assert_eq!(first_match("^DONE$", &[b"NOT DONE\n", b"\x1b[1mDO", b"NE\r", b"\n"]), Some(2));
    assert_eq!(first_match("a\\n\\nb", &[b"a\r\n", b"\r\n", b"b"]), Some(2));
    assert_eq!(first_match("absent", &[b"a", b"b"]), None);
    assert_eq!(first_match("xe2", &[b"a\xe2", b""]), Some(1));
}

#[test]
fn redrawn_lines_are_found() {
    assert_eq!(first_match("^P 50%$", &[b"\rP 49%\rP 50%\rP 51%\rDONE "]), Some(0));
}

#[test]
fn line_starts_stay_true_when_text_is_forgotten() {
    let long = vec![b'x'; BACK * 2];
    assert_eq!(first_match("\\A(x|y)", &[b"z", &long, b"y"]), None);
    assert_eq!(first_match("^x", &[b"z", &long, &long, b"\nx"]), Some(3));
    assert_eq!(first_match("xz$", &[&long, b"z"]), Some(1));
}

#[test]
fn nothing_matches_across_a_gap() {
    let root = tempfile::tempdir().unwrap();
    let log = Log::new(root.path().join("job"), Stream::Output);
    let mut writer = log.writer(CAPS);
    let mut until = Until::new("a+b", 0).unwrap();
    let mut reader = log.reader();
    writer.append(&[b'a'; 64]);
    assert_eq!(until.poll(&mut reader, writer.total(), false).unwrap(), Found::NotYet);
    for _ in 0..64 {
        writer.append(&[b'b'; 16 << 10]);
    }
    assert_eq!(until.poll(&mut reader, writer.total(), false).unwrap(), Found::NotYet);
    writer.append(b"ab");
    assert_eq!(until.poll(&mut reader, writer.total(), false).unwrap(), Found::Yes);
}

#[test]
fn a_poll_reads_a_bounded_part() {
    let root = tempfile::tempdir().unwrap();
    let log = Log::new(root.path().join("job"), Stream::Output);
    let mut writer = log.writer(Caps::default());
    writer.append(&vec![b'x'; POLL + 1]);
    writer.append(b"end");
    let mut until = Until::new("end", 0).unwrap();
    let mut reader = log.reader();
    assert_eq!(until.poll(&mut reader, writer.total(), false).unwrap(), Found::More);
    assert_eq!(until.poll(&mut reader, writer.total(), false).unwrap(), Found::Yes);
}

#[test]
fn a_pattern_that_is_none_is_refused_by_name() {
    for pattern in ["(", "[z-a]", "(x{1000}){1000}"] {
        let error = Until::new(pattern, 0).unwrap_err().to_string();
        assert!(error.starts_with("until: expected a regular expression"), "{error}");
    }
}
