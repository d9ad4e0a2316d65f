use super::screen::Screen;
use super::{ansi, picture};
use crate::process::pty::Size;

fn screen(columns: u16, rows: u16, written: &str) -> Screen {
    let mut screen = Screen::new(Size { columns, rows });
    screen.feed(written.as_bytes());
    screen
}

fn answers(written: &str) -> String {
    let mut screen = Screen::new(Size { columns: 80, rows: 24 });
    String::from_utf8(screen.feed(written.as_bytes())).unwrap()
}

#[test]
fn rows_end_at_their_last_character_or_at_the_cursor() {
    let shown = screen(20, 4, "one  \r\n\r\n$ ").shown();
    assert_eq!(shown.text, "one\n\n$ ");
    assert_eq!((shown.cursor_row, shown.cursor_column, shown.cursor_visible), (3, 3, true));
    assert_eq!(screen(20, 4, "").shown().text, "");
}

#[test]
fn wide_characters_and_accents_are_themselves() {
    let shown = screen(10, 2, "漢字|e\u{301}|👍").shown();
    assert_eq!(shown.text, "漢字|e\u{301}|👍");
    assert_eq!(shown.cursor_column, 10);
}

#[test]
fn pty_12_questions_are_answered() {
    assert_eq!(answers("abc\x1b[6n"), "\x1b[1;4R");
    assert_eq!(answers("\x1b[5n"), "\x1b[0n");
    assert!(answers("\x1b[c").starts_with("\x1b[?"), "{:?}", answers("\x1b[c"));
    assert!(answers("\x1b[>c").starts_with("\x1b[>"), "{:?}", answers("\x1b[>c"));
    assert_eq!(answers("\x1b]11;?\x1b\\"), "\x1b]11;rgb:1212/1212/1212\x1b\\");
    assert_eq!(answers("\x1b]4;1;?\x07"), "\x1b]4;1;rgb:cdcd/3131/3131\x07");
    assert_eq!(answers("\x1b[18t"), "\x1b[8;24;80t");
    assert_eq!(answers("\x1b[14t"), "\x1b[4;384;640t");
}

#[test]
fn pty_12_a_question_in_two_parts_has_one_answer() {
    let mut screen = Screen::new(Size { columns: 80, rows: 24 });
    assert_eq!(screen.feed(b"\x1b["), b"");
    assert_eq!(screen.feed(b"6n"), b"\x1b[1;1R");
}

#[test]
fn an_update_whose_end_is_announced_shows_when_it_is_whole() {
    let mut screen = screen(20, 2, "before\x1b[?2026h\rafter!");
    assert_eq!(screen.shown().text, "before");
    assert!(screen.update_due().is_some());
    screen.feed(b"\x1b[?2026l");
    assert_eq!(screen.shown().text, "after!");
    assert!(screen.update_due().is_none());
    screen.feed(b"\x1b[?2026h\r\nlate");
    screen.end_update();
    assert_eq!(screen.shown().text, "after!\nlate");
}

#[test]
fn scrollback_holds_what_went_off_the_top_as_far_as_it_fits() {
    let lines: String = (1..=10).map(|line| format!("{line}\r\n")).collect();
    let screen = screen(20, 3, &lines);
    assert_eq!(screen.shown().text, "9\n10");
    assert_eq!(screen.scrollback(1_000).text, "1\n2\n3\n4\n5\n6\n7\n8\n9\n10");
    assert_eq!(screen.scrollback(9).text, "7\n8\n9\n10");
}

#[test]
fn drawing_a_screen_on_another_makes_the_same_screen() {
    let written = "\x1b[1;31mred\x1b[0m \x1b[48;5;200mpink\x1b[0m \x1b[38;2;1;2;3mown\x1b[0m \x1b[7mback\x1b[0m\r\n\
                   漢字 \x1b[4munder\x1b[0m\r\n\x1b[3;5H\x1b[?1h\x1b[?2004h*";
    let first = screen(30, 4, written);
    let mut second = screen(30, 4, "something else\r\nthat was there\x1b[?25l");
    second.feed(ansi::drawn(&first).as_bytes());
    assert_eq!(ansi::drawn(&second), ansi::drawn(&first));
    assert_eq!(second.shown().text, first.shown().text);
    assert_eq!(second.modes(), first.modes());
    assert_eq!(picture::png(&second).unwrap(), picture::png(&first).unwrap());
}

struct Picture {
    width: usize,
    pixels: Vec<u8>,
}

impl Picture {
    fn of(screen: &Screen) -> Self {
        let png = picture::png(screen).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        Self { width: usize::try_from(info.width).unwrap(), pixels }
    }

    fn at(&self, x: usize, y: usize) -> [u8; 3] {
        let at = (y * self.width + x) * 3;
        self.pixels[at..at + 3].try_into().unwrap()
    }

    /// Colours in a cell, each once.
    fn colors(&self, column: usize, row: usize) -> std::collections::BTreeSet<[u8; 3]> {
        let places = (0..16).flat_map(|y| (0..8).map(move |x| (x, y)));
        places.map(|(x, y)| self.at(column * 8 + x, row * 16 + y)).collect()
    }
}

const BACK: [u8; 3] = [0x12; 3];
const FRONT: [u8; 3] = [0xd8; 3];

#[test]
fn a_picture_has_the_colours_of_the_screen() {
    let screen = screen(
        10,
        2,
        "\x1b[?25lA\x1b[31mB\x1b[0;44m \x1b[0;38;5;196mC\x1b[0;38;2;9;8;7mD\x1b[0;7mE\x1b[0;1;31mF",
    );
    let picture = Picture::of(&screen);
    assert_eq!((picture.width, picture.pixels.len()), (80, 80 * 32 * 3));
    assert_eq!(picture.colors(0, 0), [BACK, FRONT].into());
    assert_eq!(picture.colors(1, 0), [BACK, [0xcd, 0x31, 0x31]].into());
    assert_eq!(picture.colors(2, 0), [[0x24, 0x72, 0xc8]].into());
    assert_eq!(picture.colors(3, 0), [BACK, [0xff, 0, 0]].into());
    assert_eq!(picture.colors(4, 0), [BACK, [9, 8, 7]].into());
    assert_eq!(picture.colors(5, 0), [FRONT, BACK].into());
    assert_eq!(picture.at(5 * 8, 0), FRONT);
    assert_eq!(picture.colors(6, 0), [BACK, [0xf1, 0x4c, 0x4c]].into());
    assert_eq!(picture.colors(0, 1), [BACK].into());
}

#[test]
fn lines_of_a_box_meet_at_the_borders_of_the_cells() {
    let picture = Picture::of(&screen(4, 3, "\x1b[?25l┌──┐\r\n│  │\r\n└──┘"));
    let row_of_line = (0..16).find(|&y| picture.at(8, y) == FRONT).expect("a horizontal line");
    for x in 4..28 {
        assert_eq!(picture.at(x, row_of_line), FRONT, "column {x} of the upper line");
    }
    let column_of_line = (0..8).find(|&x| picture.at(x, 16) == FRONT).expect("a vertical line");
    for y in row_of_line..(32 + row_of_line) {
        assert_eq!(picture.at(column_of_line, y), FRONT, "row {y} of the left line");
    }
}

#[test]
fn a_wide_character_fills_two_cells_and_the_next_one_is_in_its_place() {
    let picture = Picture::of(&screen(6, 1, "\x1b[?25l漢|"));
    assert_eq!(picture.colors(0, 0), [BACK, FRONT].into());
    assert_eq!(picture.colors(1, 0), [BACK, FRONT].into());
    assert_eq!(picture.colors(2, 0), [BACK, FRONT].into());
    assert_eq!(picture.colors(3, 0), [BACK].into());
}

#[test]
fn the_cursor_is_a_block() {
    let picture = Picture::of(&screen(4, 1, "$ "));
    assert_eq!(picture.colors(2, 0), [FRONT].into());
}

#[test]
fn pty_14_the_largest_screen_stays_small() {
    let mut screen = screen(500, 300, "");
    for line in 0..3_000 {
        screen.feed(format!("{line}\r\n").as_bytes());
    }
    assert!(screen.shown().text.ends_with("\n2999"));
    assert!(picture::png(&screen).unwrap().len() < 700 << 10);
    screen.resize(Size { columns: 2, rows: 1 });
    screen.feed("漢字 wide\r\n".as_bytes());
    screen.resize(Size { columns: 500, rows: 300 });
    screen.shown();
}
