use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::output::escape::{self, Effect, Sequence};
use crate::output::{Caps, Log, Stream, Writer};

const N: usize = 24_000;

struct World {
    _root: TempDir,
    log: Log,
    writer: Writer,
}

impl World {
    fn new(caps: Caps) -> Self {
        let root = tempfile::tempdir().unwrap();
        let log = Log::new(root.path().join("job_7f3k2m9qd4ra"), Stream::Output);
        let writer = log.writer(caps);
        Self { _root: root, log, writer }
    }

    fn of(bytes: impl AsRef<[u8]>) -> Self {
        let mut world = Self::new(Caps::default());
        world.writer.append(bytes.as_ref());
        world
    }

    fn read<T>(&self, over: bool, read: impl FnOnce(View<'_>) -> Result<T>) -> T {
        read(View::new(&mut self.log.reader(), self.writer.total(), over)).unwrap()
    }

    /// Reads to the end in pages, checking what every page must keep.
    fn pages(&self, max: usize) -> Vec<Output> {
        let mut pages = Vec::new();
        let mut cursor = 0;
        loop {
            let page = self.read(true, |mut view| view.page(cursor, max));
            assert!(page.next_cursor > cursor || page.end, "no progress at {cursor}");
            assert!(page.pieces.iter().map(|piece| piece.text.len()).sum::<usize>() <= max);
            cursor = page.next_cursor;
            pages.push(page);
            if pages.last().unwrap().end {
                return pages;
            }
        }
    }
}

fn text(output: &Output) -> String {
    output.pieces.iter().map(|piece| piece.text.as_str()).collect()
}

fn all(bytes: &[u8]) -> String {
    let mut cleaner = crate::output::text::Cleaner::new(usize::MAX);
    cleaner.feed(bytes);
    cleaner.finish();
    cleaner.into_text()
}

#[test]
fn out_01_every_cut_is_between_characters() {
    for n in [64, 300, N] {
        for len in n - 3..=n + 3 {
            let printed = "a".repeat(len) + &"€".repeat(10) + "\n";
            let world = World::of(&printed);
            let total = printed.len() as u64;
            assert_eq!(world.writer.total(), total);
            let page = world.read(true, |mut view| view.page(0, n));
            assert!(text(&page).len() <= n && text(&page).len() > n - 3 && printed.starts_with(&text(&page)));
            assert_eq!(text(&page).len() as u64, page.next_cursor);
            let tail = world.read(true, |mut view| view.tail(n));
            assert!(text(&tail).len() <= n && text(&tail).len() > n - 3 && printed.ends_with(&text(&tail)));
            assert_eq!(tail.pieces[0].start, total - text(&tail).len() as u64);
            let both = world.read(true, |mut view| view.head_and_tail(0, n));
            let [head, tail] = &both.pieces[..] else { panic!("{both:?}") };
            assert!(head.text.len() + tail.text.len() <= n && head.text.len() + tail.text.len() > n - 6);
            assert!(printed.starts_with(&head.text) && printed.ends_with(&tail.text));
            assert_eq!((head.end, tail.start), (head.text.len() as u64, total - tail.text.len() as u64));
            assert!(both.end && both.next_cursor == total && both.lost_bytes == 0);
        }
    }
}

#[test]
fn out_01_head_and_tail_cuts_fall_on_every_byte_of_a_character() {
    for n in 64..100 {
        for start in 0..4 {
            let printed = "a".repeat(start) + &"€😀".repeat(100);
            let both = World::of(&printed).read(true, |mut view| view.head_and_tail(0, n));
            let [head, tail] = &both.pieces[..] else { panic!("{both:?}") };
            assert!(head.text.len() + tail.text.len() <= n);
            assert!(printed.starts_with(&head.text) && printed.ends_with(&tail.text));
            assert_eq!(tail.end - tail.start, tail.text.len() as u64);
        }
    }
}

#[test]
fn out_02_polling_doubles_and_breaks_nothing() {
    let printed = b"cleanup \xe2\x80\x94 \x1b[31mred\x1b[0m\r\nend\r\n";
    let mut world = World::new(Caps::default());
    let mut cursor = 0;
    let mut shown = String::new();
    for byte in printed {
        world.writer.append(&[*byte]);
        let page = world.read(false, |mut view| view.page(cursor, N));
        shown += &text(&page);
        cursor = page.next_cursor;
        assert!(!page.end);
        // Never between CR and LF, inside the dash, or inside a sequence.
        assert!(![9, 10, 13, 14, 15, 16, 21, 22, 23, 25, 30].contains(&cursor), "{cursor}");
    }
    assert_eq!(shown, "cleanup — red\nend\n");
    assert_eq!(cursor, printed.len() as u64);
    world.writer.append(b"x\xe2\x82");
    let live = world.read(false, |mut view| view.page(cursor, N));
    assert_eq!((text(&live).as_str(), live.next_cursor), ("x", cursor + 1));
    let over = world.read(true, |mut view| view.page(live.next_cursor, N));
    assert_eq!((text(&over).as_str(), over.next_cursor, over.end), ("\\xe2\\x82", cursor + 3, true));
}

#[test]
fn out_02_many_characters_come_whole() {
    let world = World::of("你".repeat(50_000));
    let shown: String = world.pages(N).iter().map(text).collect();
    assert_eq!(shown, "你".repeat(50_000));
}

#[test]
fn out_08_nul_is_text_a_program_is_binary() {
    let world = World::of(b"a\0b\n");
    for output in
        [world.read(true, |mut view| view.page(0, N)), world.read(true, |mut view| view.head_and_tail(0, N))]
    {
        assert_eq!((text(&output).as_str(), output.binary, output.next_cursor), ("a\\x00b\n", false, 4));
    }
    let elf = [&b"\x7fELF\x02\x01\x01"[..], &[0; 4089]].concat();
    assert!(World::of(elf).read(true, |mut view| view.head_and_tail(0, N)).binary);
}

/// Bytes without any order, the same at every run.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.push(state.to_le_bytes()[3]);
    }
    bytes
}

#[test]
fn out_09_a_binary_flood_is_named_and_can_be_fetched() {
    let printed = noise(1 << 20);
    let world = World::of(&printed);
    let expected = Output {
        pieces: vec![Piece { start: 0, end: 1 << 20, ..Piece::default() }],
        next_cursor: 1 << 20,
        end: true,
        lost_bytes: 0,
        binary: true,
    };
    assert_eq!(world.read(true, |mut view| view.page(0, N)), expected);
    assert_eq!(world.read(true, |mut view| view.head_and_tail(0, N)), expected);
    assert!(world.read(true, |mut view| view.tail(N)).binary);
    let mut fetched: Vec<u8> = Vec::new();
    while fetched.len() < printed.len() {
        let raw = world.read(true, |mut view| view.raw(fetched.len() as u64, 100_000));
        assert!(!raw.binary && raw.pieces.len() == 1);
        assert_eq!(raw.pieces[0].start, fetched.len() as u64);
        fetched.extend(&raw.pieces[0].raw);
        assert_eq!(raw.next_cursor, fetched.len() as u64);
    }
    assert!(fetched == printed);
}

#[test]
fn out_09_text_after_binary_data_is_shown() {
    let lines = "你好 line\n".repeat(3000);
    let world = World::of([&noise(23_000), lines.as_bytes()].concat());
    let pages = world.pages(N);
    assert!(pages[0].binary && pages[0].next_cursor >= 23_000 && !pages[1].binary);
    let shown: String = pages[1..].iter().map(text).collect();
    assert!(lines.ends_with(&shown) && shown.len() > lines.len() - 9000, "{}", shown.len());
}

#[test]
fn out_10_cleaning_comes_before_the_cap() {
    let progress: String = (1..=5000).map(|i| format!("\rP {i:05}")).collect();
    let world = World::of(progress + "\nDONE\n");
    let expected = Output {
        pieces: vec![Piece { start: 0, end: 40_006, text: "P 05000\nDONE\n".into(), raw: vec![] }],
        next_cursor: 40_006,
        end: true,
        lost_bytes: 0,
        binary: false,
    };
    assert_eq!(world.read(true, |mut view| view.page(0, 64)), expected);
    assert_eq!(world.read(true, |mut view| view.head_and_tail(0, 64)), expected);
    assert_eq!(world.read(true, |mut view| view.tail(64)), expected);
    assert_eq!(world.read(true, |mut view| view.raw(0, 50_000)).pieces[0].raw.len(), 40_006);
}

#[test]
fn out_10_a_line_redrawn_across_pages_starts_anew() {
    let mut world = World::new(Caps::default());
    let mut cursor = 0;
    let mut shown = Vec::new();
    for part in ["start\n\rP 1", "\rP 2\rP 3", "\r", "P 4\r", "\nDONE\n"] {
        world.writer.append(part.as_bytes());
        let page = world.read(false, |mut view| view.page(cursor, N));
        cursor = page.next_cursor;
        shown.push(text(&page));
    }
    assert_eq!(shown, ["start\nP 1", "\nP 3", "", "\nP 4", "\nDONE\n"]);
}

#[test]
fn out_11_a_sequence_split_between_polls_goes() {
    let mut world = World::of("\x1b[31");
    let page = world.read(false, |mut view| view.page(0, N));
    assert_eq!((text(&page).as_str(), page.next_cursor), ("", 0));
    world.writer.append(b"mred\x1b[0m\n");
    assert_eq!(text(&world.read(false, |mut view| view.page(0, N))), "red\n");
}

#[test]
fn head_and_tail_are_cut_between_lines() {
    let lines: String = (0..10_000).map(|i| format!("line {i}\n")).collect();
    let world = World::of(&lines);
    let output = world.read(true, |mut view| view.head_and_tail(0, N));
    let [head, tail] = &output.pieces[..] else { panic!("{output:?}") };
    assert!(head.text.ends_with('\n') && tail.text.starts_with("line "));
    assert!((7900..=8000).contains(&head.text.len()) && (15_900..=16_100).contains(&tail.text.len()));
    let (end, start) = (usize::try_from(head.end).unwrap(), usize::try_from(tail.start).unwrap());
    assert_eq!((&lines[..end], &lines[start..]), (head.text.as_str(), tail.text.as_str()));
    let rest = world.read(true, |mut view| view.page(head.end, N));
    assert!(lines[end..].starts_with(&text(&rest)));
}

#[test]
fn a_large_range_is_read_at_both_ends_only() {
    let lines: String = (0..400_000).map(|i| format!("line {i}\n")).collect();
    let world = World::of(&lines);
    let output = world.read(true, |mut view| view.head_and_tail(5, N));
    let [head, tail] = &output.pieces[..] else { panic!("{output:?}") };
    assert!(
        lines[5..].starts_with(&head.text) && lines.ends_with(&tail.text) && tail.text.starts_with("line ")
    );
    let tail_only = world.read(true, |mut view| view.tail(N));
    assert!(text(&tail_only).len() > N - 20 && lines.ends_with(&text(&tail_only)));
    assert_eq!(tail_only.pieces[0].start, (lines.len() - text(&tail_only).len()) as u64);
    assert!(tail_only.end);
}

#[test]
fn a_large_range_without_lines_is_cut_at_characters() {
    let world = World::of("€".repeat(1_000_000));
    for output in
        [world.read(true, |mut view| view.head_and_tail(0, N)), world.read(true, |mut view| view.tail(N))]
    {
        assert!(text(&output).chars().all(|character| character == '€'));
        assert!(text(&output).len() > N - 6);
        assert!(output.pieces.iter().all(|piece| piece.end - piece.start == piece.text.len() as u64));
    }
}

#[test]
fn gaps_are_counted_and_split_pieces() {
    let caps = Caps { head_bytes: 1000, tail_bytes: 4000, segment_bytes: 1000 };
    let mut world = World::new(caps);
    let printed = "€".repeat(10_000);
    for part in printed.as_bytes().chunks(100) {
        world.writer.append(part);
    }
    // Kept are 1,000 bytes, which end after the first byte of a character, and 4,000, which begin with the last of one.
    let page = world.read(true, |mut view| view.page(0, N));
    let [head, tail] = &page.pieces[..] else { panic!("{page:?}") };
    assert_eq!((head.start, head.end, head.text.as_str()), (0, 1000, &*("€".repeat(333) + "\\xe2")));
    assert_eq!((tail.start, tail.end, tail.text.as_str()), (26_001, 30_000, &*"€".repeat(1333)));
    assert_eq!((page.next_cursor, page.lost_bytes, page.end), (30_000, 25_001, true));
    let both = world.read(true, |mut view| view.head_and_tail(0, 900));
    assert_eq!((both.pieces.len(), both.lost_bytes, both.pieces[1].end), (2, 25_000, 30_000));
    let raw = world.read(true, |mut view| view.raw(500, N));
    assert_eq!((raw.pieces.len(), raw.pieces[0].raw.len(), raw.lost_bytes), (2, 500, 25_000));
    let gap = world.read(true, |mut view| view.page(5000, N));
    assert_eq!((gap.pieces.len(), gap.pieces[0].start, gap.lost_bytes), (1, 26_001, 21_001));
}

#[test]
fn the_middle_of_a_large_range_is_not_read() {
    const SEGMENT: u64 = 256 << 10;
    let mut world =
        World::new(Caps { head_bytes: SEGMENT, tail_bytes: 64 * SEGMENT, segment_bytes: SEGMENT });
    world.writer.append("some line\n".repeat(400_000).as_bytes());
    let dir = world._root.path().join("job_7f3k2m9qd4ra");
    for number in 1..world.writer.total() / SEGMENT - 4 {
        // A directory can be opened but not read.
        let path = dir.join(format!("output-{:016x}", number * SEGMENT));
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(path).unwrap();
    }
    assert!(View::new(&mut world.log.reader(), world.writer.total(), true).page(SEGMENT, N).is_err());
    assert!(text(&world.read(true, |mut view| view.head_and_tail(0, N))).len() > N - 20);
    assert!(text(&world.read(true, |mut view| view.tail(N))).len() > N - 20);
}

#[test]
fn a_log_whose_end_is_lost_ends_all_the_same() {
    let mut world = World::of("kept");
    let dir = world._root.path().join("job_7f3k2m9qd4ra");
    std::os::unix::fs::symlink("/dev/full", dir.join("output-0000000000000004")).unwrap();
    // The first segment is full at 8 MiB only, so this writer starts where that one stopped.
    let caps = Caps { head_bytes: 4, tail_bytes: 8, segment_bytes: 4 };
    world.writer = world.log.writer(caps);
    world.writer.append(b"kept");
    world.writer.append(b"lost");
    assert_eq!((world.writer.total(), world.writer.lost_bytes()), (8, 4));
    let outputs = [
        world.read(true, |mut view| view.page(0, N)),
        world.read(true, |mut view| view.head_and_tail(0, N)),
        world.read(true, |mut view| view.tail(N)),
        world.read(true, |mut view| view.raw(0, N)),
    ];
    for output in outputs {
        assert_eq!((output.next_cursor, output.end, output.lost_bytes), (8, true, 4));
        assert_eq!((output.pieces.len(), output.pieces[0].end), (1, 4));
    }
}

#[test]
fn what_cleans_to_nothing_is_passed_in_bounded_steps() {
    let world = World::of(format!("\x1b]0;{}\x07", "t".repeat(1019)).repeat(10_000));
    let pages = world.pages(N);
    assert_eq!(pages.iter().map(text).collect::<String>(), "");
    assert_eq!(pages.len(), 2);
    assert_eq!(pages[0].next_cursor, PAGE as u64);
}

#[test]
fn an_empty_log_reads_as_nothing() {
    let world = World::new(Caps::default());
    for over in [false, true] {
        let expected = Output { end: over, ..Output::default() };
        assert_eq!(world.read(over, |mut view| view.page(0, N)), expected);
        assert_eq!(world.read(over, |mut view| view.head_and_tail(0, N)), expected);
        assert_eq!(world.read(over, |mut view| view.tail(N)), expected);
        assert_eq!(world.read(over, |mut view| view.raw(0, N)), expected);
    }
}

#[test]
fn bad_arguments_are_refused_by_name() {
    let world = World::of("text");
    let mut reader = world.log.reader();
    let mut view = View::new(&mut reader, 4, true);
    let error = view.page(5, N).unwrap_err().to_string();
    assert_eq!(error, "cursor 5 lies past the end of the log of job_7f3k2m9qd4ra, which has 4 bytes");
    assert_eq!(
        view.raw(0, 63).unwrap_err().to_string(),
        "max_output_bytes: 63 is too small, expected at least 64"
    );
}

/// Output without anything that changes a line already printed.
fn without_redrawing() -> impl Strategy<Value = Vec<u8>> {
    crate::output::text::tests::output().prop_map(|mut bytes| {
        // Taking one out may join others, so it starts over.
        while let Some(at) = (0..bytes.len()).find(|at| redraws(&bytes[*at..])) {
            bytes.remove(at);
        }
        bytes
    })
}

fn redraws(bytes: &[u8]) -> bool {
    match bytes[0] {
        b'\r' => bytes.get(1) != Some(&b'\n'),
        0x08 => true,
        0x1b => !matches!(
            escape::parse(bytes),
            Sequence::Broken | Sequence::Incomplete | Sequence::Complete { effect: Effect::Nothing, .. }
        ),
        _ => false,
    }
}

proptest! {
    #[test]
    fn pages_put_together_are_the_whole_text(bytes in without_redrawing(), max in 64..200usize) {
        let world = World::of(&bytes);
        let pages = world.pages(max);
        for page in &pages {
            let (before, after) = bytes.split_at(usize::try_from(page.next_cursor).unwrap());
            prop_assert!(!(before.ends_with(b"\r") && after.starts_with(b"\n")));
        }
        if pages.iter().all(|page| !page.binary) {
            prop_assert_eq!(pages.iter().map(text).collect::<String>(), all(&bytes));
        }
    }

    #[test]
    fn live_pages_put_together_are_the_whole_text(bytes in without_redrawing(), step in 1..50usize) {
        let mut world = World::new(Caps::default());
        let mut shown = String::new();
        let mut cursor = 0;
        for part in bytes.chunks(step) {
            world.writer.append(part);
            let page = world.read(false, |mut view| view.page(cursor, N));
            prop_assume!(!page.binary);
            shown += &text(&page);
            cursor = page.next_cursor;
        }
        shown += &text(&world.read(true, |mut view| view.page(cursor, N)));
        prop_assert_eq!(shown, all(&bytes));
    }

    #[test]
    fn any_view_keeps_its_limit(bytes in crate::output::text::tests::output(), max in 64..200usize) {
        let world = World::of(&bytes);
        world.pages(max);
        let both = world.read(true, |mut view| view.head_and_tail(0, max));
        let tail = world.read(true, |mut view| view.tail(max));
        for output in [&both, &tail] {
            prop_assert!(text(output).len() <= max);
            prop_assert!(output.end && output.pieces.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
        let whole = all(&bytes);
        if !both.binary && whole.len() <= max {
            prop_assert_eq!((both.pieces.len(), text(&both)), (usize::from(!bytes.is_empty()), whole));
        }
    }
}
