//! A person at a terminal: a pseudo-terminal with a screen of its own, on which `runlet` runs.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use alacritty_terminal::Term;
use alacritty_terminal::event::VoidListener;
use alacritty_terminal::grid::Dimensions;
use alacritty_terminal::index::{Column, Line};
use alacritty_terminal::term::cell::Flags;
use alacritty_terminal::term::{Config, TermMode};
use alacritty_terminal::vte::ansi::Processor;
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use rustix::termios::{Termios, tcgetattr};
use support::{World, wait, world::TOKEN, world::program};

/// How long something may take to be seen.
const PATIENCE: Duration = Duration::from_secs(20);

struct Measure(PtySize);

impl Dimensions for Measure {
    fn total_lines(&self) -> usize {
        self.screen_lines()
    }

    fn screen_lines(&self) -> usize {
        usize::from(self.0.rows)
    }

    fn columns(&self) -> usize {
        usize::from(self.0.cols)
    }
}

pub(crate) struct Person {
    master: Box<dyn MasterPty + Send>,
    child: Box<dyn Child + Send + Sync>,
    writer: Box<dyn Write + Send>,
    screen: Arc<Mutex<Term<VoidListener>>>,
    /// The terminal's own end, open so that its settings outlive the program.
    tty: File,
    before: Termios,
}

fn size(columns: u16, rows: u16) -> PtySize {
    PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 }
}

impl Person {
    /// Starts `runlet` on a terminal of 100 columns and 30 rows.
    pub(crate) fn runs(world: &World, arguments: &[&str]) -> Self {
        let pair = native_pty_system().openpty(size(100, 30)).unwrap();
        let tty = File::open(pair.master.tty_name().unwrap()).unwrap();
        let before = tcgetattr(&tty).unwrap();
        let mut command = CommandBuilder::new(program("runlet"));
        command.args(arguments);
        command.env("RUNLET_URL", world.base());
        command.env("SANDBOX_TOKEN", TOKEN);
        let child = pair.slave.spawn_command(command).unwrap();
        let screen = Term::new(Config::default(), &Measure(size(100, 30)), VoidListener);
        let screen = Arc::new(Mutex::new(screen));
        let (mut reader, shown) = (pair.master.try_clone_reader().unwrap(), Arc::clone(&screen));
        std::thread::spawn(move || {
            let (mut parser, mut buffer) =
                (Processor::<alacritty_terminal::vte::ansi::StdSyncHandler>::new(), [0; 65_536]);
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                parser.advance(&mut *shown.lock().unwrap(), &buffer[..length]);
            }
        });
        let writer = pair.master.take_writer().unwrap();
        Self { master: pair.master, child, writer, screen, tty, before }
    }

    pub(crate) fn types(&mut self, text: &str) {
        self.writer.write_all(text.as_bytes()).unwrap();
        self.writer.flush().unwrap();
    }

    /// Gives the person's terminal another size.
    pub(crate) fn resizes(&self, columns: u16, rows: u16) {
        self.screen.lock().unwrap().resize(Measure(size(columns, rows)));
        self.master.resize(size(columns, rows)).unwrap();
    }

    /// The rows of the person's screen, without the blanks at their ends.
    pub(crate) fn screen(&self) -> String {
        let term = self.screen.lock().unwrap();
        let row = |number: usize| -> String {
            let row = &term.grid()[Line(i32::try_from(number).unwrap())];
            let cells = (0..term.columns()).map(|column| &row[Column(column)]);
            let spacers = Flags::WIDE_CHAR_SPACER | Flags::LEADING_WIDE_CHAR_SPACER;
            cells.filter(|cell| !cell.flags.intersects(spacers)).map(|cell| cell.c).collect()
        };
        trimmed(&(0..term.screen_lines()).map(row).collect::<Vec<_>>().join("\n"))
    }

    /// Row and column of the cursor, from 1 on.
    pub(crate) fn cursor(&self) -> (u64, u64) {
        let point = self.screen.lock().unwrap().grid().cursor.point;
        (u64::try_from(point.line.0).unwrap() + 1, point.column.0 as u64 + 1)
    }

    pub(crate) fn mode(&self) -> TermMode {
        *self.screen.lock().unwrap().mode()
    }

    /// Waits until the screen holds a text.
    #[track_caller]
    pub(crate) fn sees(&self, text: &str) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let end = std::time::Instant::now() + PATIENCE;
            while !self.screen().contains(text) {
                assert!(std::time::Instant::now() < end, "{caller}: no {text:?} on\n{}", self.screen());
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = self.child.process_id().unwrap().cast_signed();
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// Waits until `runlet` has ended and returns its exit status.
    pub(crate) async fn ended(&mut self) -> u32 {
        let mut status = None;
        let child = &mut self.child;
        wait::until("the end of runlet", PATIENCE, async || {
            status = child.try_wait().unwrap();
            status.is_some()
        })
        .await;
        status.unwrap().exit_code()
    }

    /// The terminal is as it was before.
    #[track_caller]
    pub(crate) fn is_restored(&self) {
        let parts = |termios: &Termios| {
            let Termios { input_modes, output_modes, control_modes, local_modes, special_codes, .. } =
                termios;
            format!("{input_modes:?} {output_modes:?} {control_modes:?} {local_modes:?} {special_codes:?}")
        };
        assert_eq!(parts(&tcgetattr(&self.tty).unwrap()), parts(&self.before));
        let mode = self.mode();
        assert!(mode.contains(TermMode::SHOW_CURSOR | TermMode::LINE_WRAP), "{mode:?}");
        assert!(
            !mode.intersects(TermMode::ALT_SCREEN | TermMode::BRACKETED_PASTE | TermMode::APP_CURSOR),
            "{mode:?}"
        );
    }

    /// The terminal is not as it was before.
    pub(crate) fn is_raw(&self) -> bool {
        tcgetattr(&self.tty).unwrap().local_modes != self.before.local_modes
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        let _ended = self.child.kill();
    }
}

/// A screen without the blanks at the ends of rows, and without the blank rows at its end.
pub(crate) fn trimmed(screen: &str) -> String {
    let rows: Vec<&str> = screen.lines().map(str::trim_end).collect();
    rows.join("\n").trim_end().to_owned()
}
