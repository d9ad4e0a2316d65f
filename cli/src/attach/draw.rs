//! Frames: a screen as the executor drew it, fitted to the person's terminal, and over it for a while a line for the person.

use std::fmt::Write as _;

use tokio::time::Instant;

use super::tty::{self, Size};

/// What is on the person's screen.
#[derive(Debug, Default)]
pub(super) struct Painter {
    drawn: String,
    size: Option<Size>,
    own: Option<Size>,
    notice: Option<(String, Instant)>,
    /// A notice has come or gone since the last frame.
    stale: bool,
    /// The screen is the person's own again.
    closed: bool,
}

impl Painter {
    /// Shows the screen of a terminal of a size, unless that is what is shown.
    pub(super) fn show(&mut self, drawn: &str, size: Size) -> std::io::Result<()> {
        let own = Size::own();
        let resized = self.size != Some(size) || self.own != Some(own);
        if self.drawn == drawn && !resized && !self.stale {
            return Ok(());
        }
        drawn.clone_into(&mut self.drawn);
        (self.size, self.own) = (Some(size), Some(own));
        self.paint(resized)
    }

    /// Says something in the last line until a time.
    pub(super) fn say(&mut self, notice: &str, until: Instant) -> std::io::Result<()> {
        self.notice = Some((notice.to_owned(), until));
        self.paint(false)
    }

    /// When the line goes.
    pub(super) fn notice_ends(&self) -> Option<Instant> {
        self.notice.as_ref().map(|(_, until)| *until)
    }

    /// Takes the line away, if its time has come.
    pub(super) fn end_notice(&mut self) -> std::io::Result<()> {
        if self.notice_ends().is_some_and(|until| Instant::now() >= until) {
            self.notice = None;
            return self.paint(false);
        }
        Ok(())
    }

    /// The next frame is drawn on an empty screen.
    pub(super) fn forget(&mut self) {
        self.size = None;
    }

    /// Nothing is drawn any more.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    fn paint(&mut self, cleared: bool) -> std::io::Result<()> {
        let Some(own) = self.own.filter(|_| !self.closed) else {
            self.stale = true;
            return Ok(());
        };
        self.stale = false;
        let notice = self.notice.as_ref().map(|(notice, _)| notice.as_str());
        let frame = frame(&self.drawn, own, cleared, notice);
        tokio::task::block_in_place(|| tty::put(frame.as_bytes()))
    }
}

/// One update of a screen of this size, shown as a whole by terminals that can.
fn frame(drawn: &str, own: Size, cleared: bool, notice: Option<&str>) -> String {
    let mut frame = String::with_capacity(drawn.len() + 256);
    frame.push_str("\x1b[?2026h");
    if cleared {
        frame.push_str("\x1b[0m\x1b[2J");
    }
    let (rows, modes) = cropped(drawn, own.rows);
    frame.push_str(rows);
    frame.push_str(modes);
    if let Some(notice) = notice {
        let room = usize::from(own.columns).saturating_sub(2);
        let notice: String = notice.chars().filter(|character| !character.is_control()).take(room).collect();
        // The cursor and its place are kept.
        let _ = write!(frame, "\x1b7\x1b[{};1H\x1b[0;7m {notice} \x1b[0m\x1b8", own.rows);
    }
    frame.push_str("\x1b[?2026l");
    frame
}

/// The sequences of the rows that there is room for, and those of the modes and the cursor.
fn cropped(drawn: &str, rows: u16) -> (&str, &str) {
    // After the rows the modes are set, the first of them that of the cursor keys; rows hold styles only.
    let modes = drawn.rfind("\x1b[?1h").or_else(|| drawn.rfind("\x1b[?1l")).unwrap_or(drawn.len());
    let (drawn, modes) = drawn.split_at(modes);
    let end = drawn.find(&format!("\x1b[{};1H", u32::from(rows) + 1)).unwrap_or(drawn.len());
    (&drawn[..end], modes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWN: &str = "\x1b[?25l\x1b[0m\x1b[1;1H\x1b[0m\x1b[2Kone\x1b[2;1H\x1b[0m\x1b[2Ktwo\x1b[?1h\x1b[?2004l\
                         \x1b[?25h\x1b[0m\x1b[2;4H";

    #[test]
    fn rows_without_room_are_left_out_and_modes_are_kept() {
        let modes = "\x1b[?1h\x1b[?2004l\x1b[?25h\x1b[0m\x1b[2;4H";
        assert_eq!(cropped(DRAWN, 1), ("\x1b[?25l\x1b[0m\x1b[1;1H\x1b[0m\x1b[2Kone", modes));
        assert_eq!(cropped(DRAWN, 2).0.len() + modes.len(), DRAWN.len());
        assert_eq!(cropped("", 2), ("", ""));
    }

    #[test]
    fn a_notice_is_one_line_and_does_not_act() {
        let frame = frame(DRAWN, Size { columns: 10, rows: 2 }, true, Some("a\x1b[2J\nbcdefghijkl"));
        assert!(frame.contains("\x1b[2;1H\x1b[0;7m a[2Jbcde \x1b[0m"), "{frame:?}");
        assert!(
            frame.starts_with("\x1b[?2026h\x1b[0m\x1b[2J") && frame.ends_with("\x1b[?2026l"),
            "{frame:?}"
        );
    }
}
