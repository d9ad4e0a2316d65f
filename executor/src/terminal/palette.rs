//! Colours of a terminal: those of xterm for the numbers that a program may use, unless it has changed them.

use alacritty_terminal::term::cell::{Cell, Flags};
use alacritty_terminal::term::color::Colors;
use alacritty_terminal::vte::ansi::{Color, NamedColor, Rgb};

/// What is written, and what it is written on, where a program names no colours.
const FOREGROUND: Rgb = rgb(0xd8_d8_d8);
const BACKGROUND: Rgb = rgb(0x12_12_12);

/// The sixteen named colours, dark enough and bright enough to be told apart and to be read on [`BACKGROUND`].
const NAMED: [Rgb; 16] = [
    rgb(0x00_00_00),
    rgb(0xcd_31_31),
    rgb(0x0d_bc_79),
    rgb(0xe5_e5_10),
    rgb(0x24_72_c8),
    rgb(0xbc_3f_bc),
    rgb(0x11_a8_cd),
    rgb(0xe5_e5_e5),
    rgb(0x66_66_66),
    rgb(0xf1_4c_4c),
    rgb(0x23_d1_8b),
    rgb(0xf5_f5_43),
    rgb(0x3b_8e_ea),
    rgb(0xd6_70_d6),
    rgb(0x29_b8_db),
    rgb(0xff_ff_ff),
];

const fn rgb(hex: u32) -> Rgb {
    let [_, r, g, b] = hex.to_be_bytes();
    Rgb { r, g, b }
}

/// The colour with this number: 0 to 255, or one of the emulation's own names above.
pub(super) fn color(index: usize, changed: &Colors) -> Rgb {
    if index < alacritty_terminal::term::color::COUNT
        && let Some(own) = changed[index]
    {
        return own;
    }
    match index {
        0..16 => NAMED[index],
        // A cube of six levels, then a ramp of greys (XTerm Control Sequences, 256-colour mode).
        16..232 => {
            let level =
                |step: usize| if step == 0 { 0 } else { u8::try_from(55 + 40 * step).unwrap_or(u8::MAX) };
            let cube = index - 16;
            Rgb { r: level(cube / 36), g: level(cube / 6 % 6), b: level(cube % 6) }
        }
        232..256 => {
            let grey = u8::try_from(8 + 10 * (index - 232)).unwrap_or(u8::MAX);
            Rgb { r: grey, g: grey, b: grey }
        }
        _ if index == NamedColor::Background as usize => BACKGROUND,
        _ => FOREGROUND,
    }
}

/// The colours of a cell: what is written, and what it is written on.
pub(super) fn of_cell(cell: &Cell, changed: &Colors) -> (Rgb, Rgb) {
    let find = |wanted: Color| match wanted {
        Color::Spec(own) => own,
        Color::Indexed(index) => color(usize::from(index), changed),
        Color::Named(name) => named(name, changed),
    };
    let bold = match cell.fg {
        Color::Named(name) if cell.flags.contains(Flags::BOLD) => Color::Named(name.to_bright()),
        other => other,
    };
    let mut front = find(bold);
    if cell.flags.contains(Flags::DIM) {
        front = dimmed(front);
    }
    let back = find(cell.bg);
    if cell.flags.contains(Flags::INVERSE) { (back, front) } else { (front, back) }
}

fn named(name: NamedColor, changed: &Colors) -> Rgb {
    match name {
        NamedColor::DimForeground => dimmed(color(NamedColor::Foreground as usize, changed)),
        NamedColor::BrightForeground => color(NamedColor::Foreground as usize, changed),
        other => color(other as usize, changed),
    }
}

fn dimmed(color: Rgb) -> Rgb {
    let less = |part: u8| part / 3 * 2;
    Rgb { r: less(color.r), g: less(color.g), b: less(color.b) }
}
