//! The person's own terminal: as it has to be while another is shown on it, and as it was before.

use std::io::{self, IsTerminal, Write};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// The alternate screen, without wrapping, so that a row too long stays in its line; the title is kept for later.
const ENTER: &str = "\x1b[?1049h\x1b[?7l\x1b[22;2t\x1b[0m\x1b[2J";

/// Takes back all that was set: by this program, and by what it drew.
const LEAVE: &str = "\x1b[?2026l\x1b[0m\x1b[?1l\x1b[?2004l\x1b[?1049l\x1b[?7h\x1b[?25h\x1b[23;2t\x1b[0m";

/// Sizes that a terminal of Runlet can have.
const COLUMNS: (u16, u16) = (2, 500);
const ROWS: (u16, u16) = (1, 300);

/// A terminal in raw mode; as it was before when this is dropped.
#[derive(Debug)]
pub(super) struct Tty {
    /// Absent where nobody types.
    before: Option<Termios>,
}

/// Columns and rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) columns: u16,
    pub(super) rows: u16,
}

impl Size {
    /// The size of the person's terminal.
    pub(super) fn own() -> Self {
        let size = tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
        size.map_or(Self { columns: 80, rows: 24 }, |size| Self { columns: size.ws_col, rows: size.ws_row })
    }

    /// The nearest size that a terminal of Runlet can have.
    pub(super) fn possible(self) -> Self {
        let Self { columns, rows } = self;
        Self { columns: columns.clamp(COLUMNS.0, COLUMNS.1), rows: rows.clamp(ROWS.0, ROWS.1) }
    }
}

impl Tty {
    /// Whether somebody can type here.
    pub(super) fn is_typed_to() -> bool {
        io::stdin().is_terminal()
    }

    /// Whether there is a screen to draw on.
    pub(super) fn is_seen() -> bool {
        io::stdout().is_terminal()
    }

    /// Switches over. A panic switches back before it is told, so that it can be read.
    pub(super) fn enter(title: &str) -> io::Result<Self> {
        let before = if Self::is_typed_to() { Some(tcgetattr(io::stdin())?) } else { None };
        let for_panic = before.clone();
        let told = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave(for_panic.as_ref());
            told(panic);
        }));
        let tty = Self { before };
        tty.raw()?;
        put(format!("{ENTER}\x1b]2;{title}\x07").as_bytes())?;
        Ok(tty)
    }

    /// Raw mode, once more after the shell has had the terminal.
    pub(super) fn raw(&self) -> io::Result<()> {
        if let Some(before) = &self.before {
            let mut raw = before.clone();
            raw.make_raw();
            tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        }
        Ok(())
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        leave(self.before.as_ref());
    }
}

fn leave(before: Option<&Termios>) {
    if let Some(before) = before {
        // It fails where the terminal is gone, and there is nothing to restore then.
        let _gone = tcsetattr(io::stdin(), OptionalActions::Now, before).is_err();
    }
    let _gone = put(LEAVE.as_bytes()).is_err();
}

/// Writes to the person's screen at once.
pub(super) fn put(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_brought_within_the_limits() {
        let possible = |columns, rows| Size { columns, rows }.possible();
        assert_eq!(possible(700, 400), Size { columns: 500, rows: 300 });
        assert_eq!(possible(1, 0), Size { columns: 2, rows: 1 });
        assert_eq!(possible(100, 30), Size { columns: 100, rows: 30 });
    }
}
