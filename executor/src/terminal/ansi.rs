//! The screen as the sequences that draw it on another terminal, with its colours and with the modes in which its program
//! wants to be typed to, so that what a person types there arrives as it should.

use std::fmt::Write as _;

use alacritty_terminal::grid::Dimensions;
use alacritty_terminal::index::Column;
use alacritty_terminal::term::TermMode;
use alacritty_terminal::term::cell::{Cell, Flags};
use alacritty_terminal::vte::ansi::{Color, NamedColor};

use super::screen::{Screen, is_spacer, line, shown_char};

/// Flags and the parameters that set them (ECMA-48, SGR).
const STYLES: [(Flags, &str); 6] = [
    (Flags::BOLD, ";1"),
    (Flags::DIM, ";2"),
    (Flags::ITALIC, ";3"),
    (Flags::ALL_UNDERLINES, ";4"),
    (Flags::INVERSE, ";7"),
    (Flags::STRIKEOUT, ";9"),
];

/// Draws the whole screen, whatever was there before.
pub(super) fn drawn(screen: &Screen) -> String {
    let term = screen.term();
    let mut text = String::from("\x1b[?25l\x1b[0m");
    let mut style = String::from("\x1b[0m");
    for row in 0..term.screen_lines() {
        let Some(at) = line(row) else { break };
        // Erased before it is drawn: erasing after a full row would take its last character.
        let _ = write!(text, "\x1b[{};1H\x1b[0m\x1b[2K", row + 1);
        style.replace_range(.., "\x1b[0m");
        for column in 0..term.columns() {
            let cell = &term.grid()[at][Column(column)];
            if is_spacer(cell) {
                continue;
            }
            let wanted = style_of(cell);
            if wanted != style {
                text.push_str(&wanted);
                style = wanted;
            }
            text.push(shown_char(cell));
            text.extend(cell.zerowidth().into_iter().flatten());
        }
    }
    let mode = term.mode();
    for (flag, number) in
        [(TermMode::APP_CURSOR, 1), (TermMode::BRACKETED_PASTE, 2004), (TermMode::SHOW_CURSOR, 25)]
    {
        let _ = write!(text, "\x1b[?{number}{}", if mode.contains(flag) { 'h' } else { 'l' });
    }
    let cursor = term.grid().cursor.point;
    let _ = write!(text, "\x1b[0m\x1b[{};{}H", cursor.line.0 + 1, cursor.column.0 + 1);
    text
}

fn style_of(cell: &Cell) -> String {
    let mut style = String::from("\x1b[0");
    for (flag, parameter) in STYLES {
        if cell.flags.intersects(flag) {
            style.push_str(parameter);
        }
    }
    push_color(&mut style, cell.fg, 30);
    push_color(&mut style, cell.bg, 40);
    style.push('m');
    style
}

fn push_color(style: &mut String, color: Color, base: u16) {
    let _ = match color {
        Color::Spec(rgb) => write!(style, ";{};2;{};{};{}", base + 8, rgb.r, rgb.g, rgb.b),
        Color::Indexed(index) => write!(style, ";{};5;{index}", base + 8),
        Color::Named(name) => match name as usize {
            index @ 0..8 => write!(style, ";{}", usize::from(base) + index),
            index @ 8..16 => write!(style, ";{}", usize::from(base) + 60 + index - 8),
            index if (NamedColor::DimBlack as usize..=NamedColor::DimWhite as usize).contains(&index) => {
                write!(style, ";2;{}", usize::from(base) + index - NamedColor::DimBlack as usize)
            }
            _ => Ok(()),
        },
    };
}
