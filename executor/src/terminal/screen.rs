//! The screen of a terminal: what its programs wrote, as a person would see it, and what they expect a terminal to answer.
//! The emulation is alacritty's; here is what goes in and what is read off it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use alacritty_terminal::event::{Event, EventListener, WindowSize};
use alacritty_terminal::grid::Dimensions;
use alacritty_terminal::index::{Column, Line};
use alacritty_terminal::term::cell::{Cell, Flags};
use alacritty_terminal::term::{Config, Osc52, Term, TermMode};
use alacritty_terminal::vte::ansi::{Processor, Rgb};

use super::palette;
use crate::process::pty::Size;

/// Lines kept that went off the top of the screen; the log keeps more. A line takes 24 bytes a column.
const HISTORY_LINES: usize = 2_000;

/// Bytes of a title that are shown.
const TITLE_BYTES: usize = 200;

/// Size of a character in pixels, as programs are told that ask, and as pictures of the screen have it.
pub(super) const CELL_WIDTH: u16 = 8;
/// See [`CELL_WIDTH`].
pub(super) const CELL_HEIGHT: u16 = 16;

/// The screen.
pub(super) struct Screen {
    term: Term<Heard>,
    parser: Processor,
    heard: Heard,
    fed: u64,
}

impl std::fmt::Debug for Screen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Screen").field("size", &self.size()).field("fed", &self.fed).finish_non_exhaustive()
    }
}

/// What a screen shows at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shown {
    /// Its rows from the top to the last one that is not blank, each without the blanks at its end; the cursor's row reaches
    /// to the cursor at least.
    pub text: String,
    /// Row of the cursor, from 1 on.
    pub cursor_row: u32,
    /// Column of the cursor, from 1 on.
    pub cursor_column: u32,
    /// Whether the program shows the cursor.
    pub cursor_visible: bool,
    /// Whether a program uses the alternate screen, as editors and pagers do.
    pub alternate: bool,
    /// The title that the program has set; may be empty.
    pub title: String,
    /// Bytes of the log that the screen is made of.
    pub offset: u64,
}

/// Modes in which a program wants to be typed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TypingModes {
    /// Cursor keys send SS3 instead of CSI sequences (DECCKM).
    pub application_cursor: bool,
    /// Pasted text is told apart from typed text.
    pub bracketed_paste: bool,
}

impl Screen {
    pub(super) fn new(size: Size) -> Self {
        let heard = Heard::default();
        let config = Config { scrolling_history: HISTORY_LINES, osc52: Osc52::Disabled, ..Config::default() };
        let term = Term::new(config, &Measure(size), heard.clone());
        Self { term, parser: Processor::new(), heard, fed: 0 }
    }

    /// Takes what programs wrote; returns what a terminal answers to it.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.parser.advance(&mut self.term, bytes);
        self.fed += bytes.len() as u64;
        self.answers()
    }

    /// When a program's update, of which it announced to tell the end, is shown as it is, since the end did not come.
    pub(super) fn update_due(&self) -> Option<Instant> {
        self.parser.sync_timeout().sync_timeout()
    }

    /// Shows an update whose end did not come in time; returns what a terminal answers to it.
    pub(super) fn end_update(&mut self) -> Vec<u8> {
        self.parser.stop_sync(&mut self.term);
        self.answers()
    }

    /// The screen was made from a log of which the first `offset` bytes were left out.
    pub(super) fn skip_to(&mut self, offset: u64) {
        self.fed = offset;
    }

    pub(super) fn resize(&mut self, size: Size) {
        self.term.resize(Measure(size));
    }

    pub(super) fn size(&self) -> Size {
        let narrow = |number| u16::try_from(number).unwrap_or(u16::MAX);
        Size { columns: narrow(self.term.columns()), rows: narrow(self.term.screen_lines()) }
    }

    pub(super) fn modes(&self) -> TypingModes {
        let mode = self.term.mode();
        TypingModes {
            application_cursor: mode.contains(TermMode::APP_CURSOR),
            bracketed_paste: mode.contains(TermMode::BRACKETED_PASTE),
        }
    }

    pub(super) const fn term(&self) -> &Term<impl EventListener> {
        &self.term
    }

    /// What it shows now.
    pub(super) fn shown(&self) -> Shown {
        let cursor = self.term.grid().cursor.point;
        let rows =
            (0..self.term.screen_lines()).map(|row| line(row).map_or_else(String::new, |at| self.row(at)));
        let mut text = rows.collect::<Vec<_>>().join("\n");
        text.truncate(text.trim_end_matches('\n').len());
        let mode = self.term.mode();
        let place = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).saturating_add(1);
        Shown {
            text,
            cursor_row: place(usize::try_from(cursor.line.0).unwrap_or(0)),
            cursor_column: place(cursor.column.0),
            cursor_visible: mode.contains(TermMode::SHOW_CURSOR),
            alternate: mode.contains(TermMode::ALT_SCREEN),
            title: self.heard.lock().title.clone(),
            offset: self.fed,
        }
    }

    /// The lines that went off the top, as far as they are kept and fit `max_bytes`, and then the screen.
    pub(super) fn scrollback(&self, max_bytes: usize) -> Shown {
        let mut shown = self.shown();
        let mut room = max_bytes.saturating_sub(shown.text.len());
        let mut above = Vec::new();
        for back in 1..=self.term.history_size() {
            let Some(text) = line(back).map(|Line(at)| self.row(Line(-at))) else { break };
            let Some(left) = room.checked_sub(text.len() + 1) else { break };
            room = left;
            above.push(text);
        }
        above.reverse();
        above.push(shown.text);
        shown.text = above.join("\n");
        shown
    }

    fn row(&self, at: Line) -> String {
        let cursor = self.term.grid().cursor.point;
        let mut text = String::new();
        let mut kept = 0;
        for column in 0..self.term.columns() {
            let cell = &self.term.grid()[at][Column(column)];
            if !is_spacer(cell) {
                text.push(shown_char(cell));
                text.extend(cell.zerowidth().into_iter().flatten());
            }
            if !text.ends_with(' ') || (at == cursor.line && column < cursor.column.0) {
                kept = text.len();
            }
        }
        text.truncate(kept);
        text
    }

    fn answers(&self) -> Vec<u8> {
        let questions = std::mem::take(&mut self.heard.lock().questions);
        let size = self.size();
        let window = WindowSize {
            num_lines: size.rows,
            num_cols: size.columns,
            cell_width: CELL_WIDTH,
            cell_height: CELL_HEIGHT,
        };
        let mut answers = Vec::new();
        for question in questions {
            let answer = match question {
                Question::Answered(text) => text,
                Question::Color(index, form) => form(palette::color(index, self.term.colors())),
                Question::Size(form) => form(window),
            };
            answers.extend_from_slice(answer.as_bytes());
        }
        answers
    }
}

/// The second cell of a wide character, or the one left free where it would not have fitted.
pub(super) fn is_spacer(cell: &Cell) -> bool {
    cell.flags.intersects(Flags::WIDE_CHAR_SPACER | Flags::LEADING_WIDE_CHAR_SPACER)
}

/// The character as it is seen: concealed text is not, and a tab is the space it takes.
pub(super) fn shown_char(cell: &Cell) -> char {
    if cell.flags.contains(Flags::HIDDEN) || cell.c.is_control() { ' ' } else { cell.c }
}

/// A row by its number from 0 on.
pub(super) fn line(number: usize) -> Option<Line> {
    i32::try_from(number).ok().map(Line)
}

struct Measure(Size);

impl Dimensions for Measure {
    fn total_lines(&self) -> usize {
        self.screen_lines()
    }

    fn screen_lines(&self) -> usize {
        usize::from(self.0.rows)
    }

    fn columns(&self) -> usize {
        usize::from(self.0.columns)
    }
}

/// What the emulation tells.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Said>>);

#[derive(Default)]
struct Said {
    questions: Vec<Question>,
    title: String,
}

/// A program's question to its terminal.
enum Question {
    Answered(String),
    Color(usize, Arc<dyn Fn(Rgb) -> String + Sync + Send>),
    Size(Arc<dyn Fn(WindowSize) -> String + Sync + Send>),
}

impl Heard {
    fn lock(&self) -> std::sync::MutexGuard<'_, Said> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventListener for Heard {
    fn send_event(&self, event: Event) {
        let mut said = self.lock();
        match event {
            Event::PtyWrite(text) => said.questions.push(Question::Answered(text)),
            Event::ColorRequest(index, form) => said.questions.push(Question::Color(index, form)),
            Event::TextAreaSizeRequest(form) => said.questions.push(Question::Size(form)),
            Event::Title(mut title) => {
                title.retain(|character| !character.is_control());
                title.truncate(title.floor_char_boundary(TITLE_BYTES));
                said.title = title;
            }
            Event::ResetTitle => said.title.clear(),
            _ => {}
        }
    }
}
