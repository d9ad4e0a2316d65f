//! A full-screen program made with crossterm, as agents write and try them: it draws a box with a list, moves a marker by
//! the cursor keys, tells its size, and ends by `q`.

use std::io::{self, Write};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{Event, KeyCode, KeyModifiers, read};
use crossterm::style::{Color, Print, ResetColor, SetForegroundColor};
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{execute, queue};

const ITEMS: [&str; 3] = ["first", "second", "日本語"];

fn main() -> io::Result<()> {
    let mut out = io::stdout();
    enable_raw_mode()?;
    execute!(out, EnterAlternateScreen, Hide)?;
    let mut chosen = 0;
    let mut last = String::from("none");
    loop {
        draw(&mut out, chosen, &last)?;
        match read()? {
            Event::Key(key) => {
                match key.code {
                    KeyCode::Char('q') => break,
                    KeyCode::Up => chosen = (chosen + ITEMS.len() - 1) % ITEMS.len(),
                    KeyCode::Down => chosen = (chosen + 1) % ITEMS.len(),
                    _ => {}
                }
                let held = if key.modifiers == KeyModifiers::NONE {
                    String::new()
                } else {
                    format!("{:?}-", key.modifiers)
                };
                last = format!("{held}{:?}", key.code);
            }
            Event::Resize(columns, rows) => last = format!("resize {columns}x{rows}"),
            _ => {}
        }
    }
    execute!(out, Show, LeaveAlternateScreen)?;
    disable_raw_mode()?;
    println!("chosen: {}", ITEMS[chosen]);
    Ok(())
}

fn draw(out: &mut impl Write, chosen: usize, last: &str) -> io::Result<()> {
    let (columns, rows) = size()?;
    queue!(out, Clear(ClearType::All), MoveTo(0, 0), Print("┌──────────┐"))?;
    for (row, item) in (1_u16..).zip(ITEMS) {
        let marker = if usize::from(row) == chosen + 1 { '>' } else { ' ' };
        queue!(
            out,
            MoveTo(0, row),
            Print(format!("│{marker} ")),
            SetForegroundColor(Color::Green),
            Print(item)
        )?;
        queue!(out, ResetColor, MoveTo(11, row), Print("│"))?;
    }
    queue!(
        out,
        MoveTo(0, 4),
        Print("└──────────┘"),
        MoveTo(0, 5),
        Print(format!("{columns}x{rows} last {last}"))
    )?;
    out.flush()
}
