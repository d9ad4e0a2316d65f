//! A picture of the screen. The characters are those of GNU Unifont, a font of bitmaps for nearly all of Unicode: line
//! drawing meets at the borders of the cells, and wide characters fill two of them.

use alacritty_terminal::grid::Dimensions;
use alacritty_terminal::index::{Column, Point};
use alacritty_terminal::term::TermMode;
use alacritty_terminal::term::cell::{Cell, Flags};
use alacritty_terminal::vte::ansi::Rgb;
use unifont::Glyph;

use super::palette;
use super::screen::{CELL_HEIGHT, CELL_WIDTH, Screen, is_spacer, line, shown_char};
use crate::error::{Error, Result};

/// Row of the cell in which text is underlined, and the one in which it is struck out.
const UNDERLINE_ROW: usize = CELL_HEIGHT as usize - 2;
const STRIKE_ROW: usize = CELL_HEIGHT as usize / 2;

/// Shown for a character that the font lacks.
const UNKNOWN: char = '\u{fffd}';

/// Pixels in three bytes each, row by row.
struct Canvas {
    width: usize,
    pixels: Vec<u8>,
}

impl Canvas {
    fn set(&mut self, x: usize, y: usize, color: Rgb) {
        let at = (y * self.width + x) * 3;
        if x < self.width
            && let Some(pixel) = self.pixels.get_mut(at..at + 3)
        {
            pixel.copy_from_slice(&[color.r, color.g, color.b]);
        }
    }
}

/// The screen as a PNG.
pub(super) fn png(screen: &Screen) -> Result<Vec<u8>> {
    let term = screen.term();
    let (columns, rows) = (term.columns(), term.screen_lines());
    let (width, height) = (columns * usize::from(CELL_WIDTH), rows * usize::from(CELL_HEIGHT));
    let mut canvas = Canvas { width, pixels: vec![0; width * height * 3] };
    let cursor = term.mode().contains(TermMode::SHOW_CURSOR).then_some(term.grid().cursor.point);
    for row in 0..rows {
        let Some(at) = line(row) else { break };
        for column in 0..columns {
            let cell = &term.grid()[at][Column(column)];
            if is_spacer(cell) && !cell.flags.contains(Flags::LEADING_WIDE_CHAR_SPACER) {
                continue;
            }
            let (mut front, mut back) = palette::of_cell(cell, term.colors());
            if cursor == Some(Point::new(at, Column(column))) {
                std::mem::swap(&mut front, &mut back);
            }
            draw(&mut canvas, (column, row), cell, (front, back));
        }
    }
    encode(&canvas, width, height).map_err(|error| Error::internal("making a picture of a terminal", error))
}

fn draw(canvas: &mut Canvas, (column, row): (usize, usize), cell: &Cell, (front, back): (Rgb, Rgb)) {
    let cells = if cell.flags.contains(Flags::WIDE_CHAR) { 2 } else { 1 };
    let width = cells * usize::from(CELL_WIDTH);
    let (left, top) = (column * usize::from(CELL_WIDTH), row * usize::from(CELL_HEIGHT));
    let stacked: Vec<&Glyph> = std::iter::once(shown_char(cell))
        .chain(cell.zerowidth().into_iter().flatten().copied())
        .filter(|character| *character != ' ')
        .filter_map(|character| unifont::get_glyph(character).or_else(|| unifont::get_glyph(UNKNOWN)))
        .collect();
    let bold = cell.flags.contains(Flags::BOLD);
    let underlined = cell.flags.intersects(Flags::ALL_UNDERLINES);
    let struck = cell.flags.contains(Flags::STRIKEOUT);
    for y in 0..usize::from(CELL_HEIGHT) {
        let ruled = (underlined && y == UNDERLINE_ROW) || (struck && y == STRIKE_ROW);
        // Slanted by a pixel for each quarter of the height, where the font has no italics.
        let slant =
            if cell.flags.contains(Flags::ITALIC) { (UNDERLINE_ROW.saturating_sub(y)) / 5 } else { 0 };
        for x in 0..width {
            let inked = |glyph: &&Glyph| {
                // A glyph that is narrower or wider than its cells is put in their middle.
                let shift = (width / 2) as isize - (glyph.get_width() / 2) as isize + slant as isize;
                let on = |x: isize| usize::try_from(x - shift).is_ok_and(|x| glyph.get_pixel(x, y));
                on(x as isize) || (bold && on(x as isize - 1))
            };
            let color = if ruled || stacked.iter().any(inked) { front } else { back };
            canvas.set(left + x, top + y, color);
        }
    }
}

fn encode(canvas: &Canvas, width: usize, height: usize) -> std::result::Result<Vec<u8>, png::EncodingError> {
    let mut bytes = Vec::new();
    let side = |pixels: usize| u32::try_from(pixels).unwrap_or(u32::MAX);
    let mut encoder = png::Encoder::new(&mut bytes, side(width), side(height));
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header()?.write_image_data(&canvas.pixels)?;
    Ok(bytes)
}
