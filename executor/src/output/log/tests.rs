use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

const SMALL: Caps = Caps { head_bytes: 40, tail_bytes: 96, segment_bytes: 32 };

fn log() -> (TempDir, Log) {
    let root = tempfile::tempdir().unwrap();
    let log = Log::new(root.path().join("job_7f3k2m9qd4ra"), Stream::Output);
    (root, log)
}

/// Bytes that tell their offset.
fn bytes(start: u64, len: usize) -> Vec<u8> {
    (start..start + len as u64).map(|offset| (offset % 251).to_le_bytes()[0]).collect()
}

/// All that is kept, as runs of bytes with their offsets.
fn kept(log: &Log, step: usize) -> Vec<(u64, Vec<u8>)> {
    let mut reader = log.reader();
    let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut offset = 0;
    loop {
        let chunk = reader.read_at(offset, step).unwrap();
        if chunk.bytes.is_empty() {
            return runs;
        }
        assert!(chunk.start >= offset && chunk.bytes.len() <= step);
        offset = chunk.start + chunk.bytes.len() as u64;
        match runs.last_mut().filter(|(start, run)| start + run.len() as u64 == chunk.start) {
            Some((_, run)) => run.extend(chunk.bytes),
            None => runs.push((chunk.start, chunk.bytes)),
        }
    }
}

#[test]
fn a_log_without_bytes_leaves_nothing_on_disk() {
    let (root, log) = log();
    let mut writer = log.writer(SMALL);
    writer.append(b"");
    assert_eq!((log.extent().unwrap(), kept(&log, 8)), (0, vec![]));
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    assert_eq!(disk_bytes(&log.dir).unwrap(), 0);
    remove(&log.dir).unwrap();
}

#[test]
fn segments_are_named_by_stream_and_offset() {
    let (_root, log) = log();
    log.writer(SMALL).append(&bytes(0, 41));
    Log::new(&log.dir, Stream::Stderr).writer(SMALL).append(b"err");
    let mut names: Vec<_> = fs::read_dir(&log.dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    let expected = [
        "output-0000000000000000",
        "output-0000000000000020",
        "output-0000000000000028",
        "stderr-0000000000000000",
    ];
    assert_eq!(names, expected);
    assert_eq!(disk_bytes(&log.dir).unwrap(), 44);
    assert_eq!(kept(&log, 7), [(0, bytes(0, 41))]);
}

#[test]
fn out_05_head_and_tail_are_kept_and_the_middle_is_freed() {
    let (_root, log) = log();
    let mut writer = log.writer(SMALL);
    for start in 0..1000 {
        writer.append(&bytes(start * 10, 10));
        assert!(disk_bytes(&log.dir).unwrap() <= SMALL.head_bytes + SMALL.tail_bytes);
    }
    let runs = kept(&log, 16);
    let [(0, head), (start, tail)] = &runs[..] else { panic!("{runs:?}") };
    assert_eq!(head, &bytes(0, 40));
    assert_eq!(tail, &bytes(*start, tail.len()));
    assert_eq!(start + tail.len() as u64, 10_000);
    assert!(tail.len() as u64 > SMALL.tail_bytes - SMALL.segment_bytes, "{}", tail.len());
    assert_eq!(log.reader().kept_bytes(0, 10_000).unwrap(), 40 + tail.len() as u64);
    assert_eq!(log.reader().kept_bytes(30, 9_990).unwrap(), tail.len() as u64);
}

#[test]
fn a_full_disk_costs_the_bytes_and_nothing_else() {
    let (_root, log) = log();
    let mut writer = log.writer(SMALL);
    writer.append(&bytes(0, 32));
    // Where the next segments go, every write fails with ENOSPC.
    symlink("/dev/full", log.path(32)).unwrap();
    writer.append(&bytes(32, 5));
    assert_eq!((writer.total(), writer.lost_bytes()), (37, 5));
    let error = writer.take_error().unwrap().to_string();
    assert!(error.contains("No space left on device"), "{error}");
    assert!(writer.take_error().is_none());
    writer.append(&bytes(37, 10));
    assert_eq!((writer.total(), writer.lost_bytes()), (47, 5));
    assert_eq!(kept(&log, 64), [(0, bytes(0, 32)), (37, bytes(37, 10))]);
    assert_eq!(log.extent().unwrap(), 47);
}

#[test]
fn a_directory_that_can_not_be_made_is_tried_again() {
    let (_root, log) = log();
    fs::write(&log.dir, "in the way").unwrap();
    let mut writer = log.writer(SMALL);
    writer.append(b"lost");
    fs::remove_file(&log.dir).unwrap();
    writer.append(b"kept");
    assert_eq!((writer.total(), writer.lost_bytes()), (8, 4));
    assert_eq!(kept(&log, 64), [(4, b"kept".to_vec())]);
}

#[test]
fn a_removed_log_reads_as_a_gap() {
    let (_root, log) = log();
    log.writer(SMALL).append(&bytes(0, 200));
    remove(&log.dir).unwrap();
    assert_eq!(log.reader().read_at(0, 10).unwrap(), Chunk { start: 0, bytes: vec![] });
    assert_eq!(log.reader().kept_bytes(0, 200).unwrap(), 0);
}

#[test]
fn readers_see_true_bytes_while_segments_come_and_go() {
    const TOTAL: u64 = 50_000;
    let (_root, log) = log();
    let published = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for step in [3, 16, 50, 500] {
            let (log, published) = (&log, &published);
            scope.spawn(move || {
                let mut reader = log.reader();
                let mut offset = 0;
                while offset < TOTAL {
                    let total = published.load(Ordering::Acquire);
                    if offset >= total {
                        std::thread::yield_now();
                        continue;
                    }
                    let chunk = reader.read_at(offset, step).unwrap();
                    assert!(!chunk.bytes.is_empty(), "nothing at {offset} of {total}");
                    assert_eq!(chunk.bytes, bytes(chunk.start, chunk.bytes.len()));
                    offset = chunk.start + chunk.bytes.len() as u64;
                }
            });
        }
        let mut writer = log.writer(SMALL);
        while writer.total() < TOTAL {
            writer.append(&bytes(writer.total(), 50));
            published.store(writer.total(), Ordering::Release);
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_log_is_a_vector_with_a_gap(
        appends in prop::collection::vec(0..80usize, 0..40),
        step in 1..100usize,
        head in 0..100u64,
        segment in 1..50u64,
        segments in 2..5u64,
    ) {
        let (_root, log) = log();
        let caps = Caps { head_bytes: head, tail_bytes: segment * segments, segment_bytes: segment };
        let mut writer = log.writer(caps);
        let mut model = Vec::new();
        for len in appends {
            let more = bytes(model.len() as u64, len);
            writer.append(&more);
            model.extend(more);
        }
        let total = model.len() as u64;
        prop_assert_eq!(writer.total(), total);
        drop(writer);
        // A new name for the old log is all that a restart leaves.
        let log = Log::new(&log.dir, Stream::Output);
        prop_assert_eq!(log.extent().unwrap(), total);
        let runs = kept(&log, step);
        for (start, run) in &runs {
            let start = usize::try_from(*start).unwrap();
            prop_assert_eq!(run, &model[start..start + run.len()]);
        }
        let disk = disk_bytes(&log.dir).unwrap();
        prop_assert_eq!(disk, runs.iter().map(|(_, run)| run.len() as u64).sum::<u64>());
        prop_assert!(disk <= head + segment * segments);
        let newest = (total - head.min(total)).min(segment * (segments - 1));
        let kept_from = |offset: u64| runs.iter().any(|(start, run)| {
            (*start..start + run.len() as u64).contains(&offset)
        });
        prop_assert!((0..head.min(total)).chain(total - newest..total).all(kept_from));
    }
}
