//! Draws SVG, on white as a page would show it. Nothing is read for it but the system's fonts: a reference to a file or an
//! address draws nothing. It bounds neither time nor memory, which is up to the process it runs in.

use std::sync::Arc;

use image::{DynamicImage, RgbImage};
use memchr::memmem;
use resvg::{
    tiny_skia::{Color, Pixmap, Transform},
    usvg::{
        ImageHrefResolver, ImageKind, Options, Tree,
        fontdb::{Database, Family, Query},
    },
};

use super::{
    Refusal,
    decode::{MAX_PIXELS, dimensions},
    fit::scaled,
    sniff::{Format, raster},
};

/// A drawing.
#[derive(Debug)]
pub(super) struct Drawing {
    pub(super) image: DynamicImage,
    /// Size that the document asks for, in pixels.
    pub(super) size: (u32, u32),
    /// What was left out.
    pub(super) remarks: Vec<String>,
}

/// Draws the document in `bytes`, with the longest edge at most `max_edge`.
pub(super) fn draw(bytes: &[u8], max_edge: u32) -> Result<Drawing, Refusal> {
    let text = std::str::from_utf8(bytes).map_err(|error| Refusal::broken(Format::Svg, &error))?;
    let has_text = [b"<text".as_slice(), b":text"].iter().any(|tag| memmem::find(bytes, tag).is_some());
    let fonts = if has_text { system_fonts() } else { Database::new() };
    let mut remarks = Vec::new();
    if has_text && fonts.is_empty() {
        remarks.push("text was not drawn: the executor's machine has no fonts".to_owned());
    }
    let options = Options {
        fontdb: Arc::new(fonts),
        image_href_resolver: ImageHrefResolver {
            resolve_data: Box::new(|_mime, data, _options| embedded(data)),
            resolve_string: Box::new(|_reference, _options| None),
        },
        ..Options::default()
    };
    let tree = Tree::from_str(text, &options).map_err(|error| Refusal::broken(Format::Svg, &error))?;
    let (width, height) = (tree.size().width(), tree.size().height());
    let size = (pixels(width), pixels(height));
    let (drawn_width, drawn_height) = scaled(size.0, size.1, max_edge);
    let mut canvas = Pixmap::new(drawn_width, drawn_height)
        .ok_or_else(|| Refusal::broken(Format::Svg, &"its size can't be drawn"))?;
    canvas.fill(Color::WHITE);
    #[expect(clippy::cast_precision_loss, reason = "an edge of at most 1568 pixels")]
    let ratio = |drawn: u32, wanted: f32| drawn as f32 / wanted;
    let transform = Transform::from_scale(ratio(drawn_width, width), ratio(drawn_height, height));
    resvg::render(&tree, transform, &mut canvas.as_mut());
    // Every pixel is opaque, white having been there before.
    let opaque = canvas.data().chunks_exact(4).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect();
    let image = RgbImage::from_raw(drawn_width, drawn_height, opaque)
        .ok_or_else(|| Refusal::broken(Format::Svg, &"its size can't be drawn"))?;
    Ok(Drawing { image: image.into(), size, remarks })
}

/// A length in whole pixels, at least 1.
fn pixels(length: f32) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
    let whole = length.round() as u32;
    whole.max(1)
}

/// An image within the document: one of pixels within the limits, and no further document.
fn embedded(data: Arc<Vec<u8>>) -> Option<ImageKind> {
    let format = raster(&data)?;
    let (width, height) = dimensions(format, &data)?;
    if u64::from(width) * u64::from(height) > MAX_PIXELS {
        return None;
    }
    Some(match format {
        Format::Png => ImageKind::PNG(data),
        Format::Jpeg => ImageKind::JPEG(data),
        Format::WebP => ImageKind::WEBP(data),
        Format::Gif => ImageKind::GIF(data),
        Format::Svg => return None,
    })
}

/// The fonts of the system. Generic families that lead nowhere lead to what there is.
fn system_fonts() -> Database {
    let mut fonts = Database::new();
    fonts.load_system_fonts();
    let family = |wanted: &str| {
        let mut families =
            fonts.faces().filter_map(|face| face.families.first().map(|(name, _)| name.clone()));
        families.find(|name| name.contains(wanted))
    };
    let any = family("Sans").or_else(|| family(""));
    let (serif, mono) = (family("Serif").or_else(|| any.clone()), family("Mono").or_else(|| any.clone()));
    for (generic, found, set) in [
        (Family::Serif, serif, Database::set_serif_family as fn(&mut Database, String)),
        (Family::SansSerif, any.clone(), Database::set_sans_serif_family),
        (Family::Monospace, mono, Database::set_monospace_family),
        (Family::Cursive, any.clone(), Database::set_cursive_family),
        (Family::Fantasy, any, Database::set_fantasy_family),
    ] {
        let query = Query { families: &[generic], ..Query::default() };
        if fonts.query(&query).is_none()
            && let Some(found) = found
        {
            set(&mut fonts, found);
        }
    }
    fonts
}
