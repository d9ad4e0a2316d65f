//! Makes a picture small enough: in pixels, so that a client takes it and pays for no more than it shows, and in bytes, so
//! that the whole answer stays below a mebibyte.

use fast_image_resize::{
    FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer,
    images::{Image, ImageRef},
};
use image::{
    DynamicImage, ExtendedColorType, ImageEncoder, RgbImage,
    codecs::{
        jpeg::JpegEncoder,
        png::{CompressionType, FilterType as PngFilter, PngEncoder},
    },
};

use super::{Refusal, sniff::Format};

/// Longest edge of what is sent, in pixels: past it Claude's interface scales an image down by itself.
pub const MAX_EDGE: u32 = 1568;

/// Most bytes of an image that is sent. In base64 it grows by a third, and clients refuse an answer of a mebibyte.
pub const MAX_SENT_BYTES: usize = 700_000;

/// Quality of a JPEG, as long as it fits: what is lost can't be seen.
const BEST_QUALITY: u8 = 90;
/// Quality of one that would be up to half as large again.
const GOOD_QUALITY: u8 = 75;
/// Least quality: below it a smaller picture shows more.
const LEAST_QUALITY: u8 = 60;

/// An encoded picture.
#[derive(Debug)]
pub(super) struct Fitted {
    pub(super) format: Format,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) bytes: Vec<u8>,
}

/// The largest size of the same shape whose longest edge is at most `max_edge`; never larger than the given one, and no side 0.
pub(super) fn scaled(width: u32, height: u32, max_edge: u32) -> (u32, u32) {
    let longest = width.max(height);
    if longest <= max_edge {
        return (width, height);
    }
    let scale = |side: u32| {
        let (side, longest) = (u64::from(side), u64::from(longest));
        let rounded = (side * u64::from(max_edge) + longest / 2) / longest;
        u32::try_from(rounded).unwrap_or(max_edge).max(1)
    };
    (scale(width), scale(height))
}

/// Scales a picture down until its longest edge is at most `max_edge`.
pub(super) fn scale(image: DynamicImage, max_edge: u32) -> Result<DynamicImage, Refusal> {
    let (width, height) = scaled(image.width(), image.height(), max_edge);
    if (width, height) == (image.width(), image.height()) {
        return Ok(image);
    }
    resize(&image, width, height).map_err(|error| Refusal::TooLarge(format!("it can't be scaled: {error}")))
}

fn resize(image: &DynamicImage, width: u32, height: u32) -> Result<DynamicImage, Box<dyn std::error::Error>> {
    let pixels = match image {
        DynamicImage::ImageLuma8(_) => PixelType::U8,
        DynamicImage::ImageLumaA8(_) => PixelType::U8x2,
        DynamicImage::ImageRgb8(_) => PixelType::U8x3,
        DynamicImage::ImageRgba8(_) => PixelType::U8x4,
        _ => return Err("its pixels have more than eight bits a channel".into()),
    };
    let source = ImageRef::new(image.width(), image.height(), image.as_bytes(), pixels)?;
    let mut target = Image::new(width, height, pixels);
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Lanczos3));
    Resizer::new().resize(&source, &mut target, &options)?;
    let buffer = target.into_vec();
    let made = match pixels {
        PixelType::U8 => image::GrayImage::from_raw(width, height, buffer).map(Into::into),
        PixelType::U8x2 => image::GrayAlphaImage::from_raw(width, height, buffer).map(Into::into),
        PixelType::U8x3 => RgbImage::from_raw(width, height, buffer).map(Into::into),
        _ => image::RgbaImage::from_raw(width, height, buffer).map(Into::into),
    };
    made.ok_or_else(|| "the scaled pixels are too few".into())
}

/// Encodes a picture in at most [`MAX_SENT_BYTES`]: as PNG where it is `lossless` and fits, else as JPEG on white, in
/// falling quality, then smaller.
pub(super) fn encode(image: DynamicImage, lossless: bool) -> Result<Fitted, Refusal> {
    let failed = |error: image::ImageError| Refusal::TooLarge(format!("it can't be encoded: {error}"));
    let fitted = |image: &DynamicImage, format, bytes| Fitted {
        format,
        width: image.width(),
        height: image.height(),
        bytes,
    };
    if lossless {
        let bytes = to_png(&image).map_err(failed)?;
        if bytes.len() <= MAX_SENT_BYTES {
            return Ok(fitted(&image, Format::Png, bytes));
        }
    }
    let mut image = on_white(image);
    let mut quality = BEST_QUALITY;
    loop {
        let bytes = to_jpeg(&image, quality).map_err(failed)?;
        if bytes.len() <= MAX_SENT_BYTES {
            return Ok(fitted(&image, Format::Jpeg, bytes));
        }
        quality = match quality {
            BEST_QUALITY if bytes.len() <= MAX_SENT_BYTES * 3 / 2 => GOOD_QUALITY,
            LEAST_QUALITY => {
                let edge = smaller_edge(&image, bytes.len());
                image = scale(image, edge)?;
                LEAST_QUALITY
            }
            _ => LEAST_QUALITY,
        };
    }
}

/// The longest edge at which a picture that takes so many bytes will probably fit.
fn smaller_edge(image: &DynamicImage, bytes: usize) -> u32 {
    let edge = usize::try_from(image.width().max(image.height())).unwrap_or(usize::MAX);
    // Bytes go with the area.
    let fitting = edge.saturating_mul(edge).saturating_mul(MAX_SENT_BYTES) / bytes;
    u32::try_from(fitting.isqrt() * 95 / 100).unwrap_or(1).max(1)
}

fn to_png(image: &DynamicImage) -> image::ImageResult<Vec<u8>> {
    let mut bytes = Vec::new();
    let encoder = PngEncoder::new_with_quality(&mut bytes, CompressionType::Default, PngFilter::Adaptive);
    encoder.write_image(image.as_bytes(), image.width(), image.height(), image.color().into())?;
    Ok(bytes)
}

fn to_jpeg(image: &DynamicImage, quality: u8) -> image::ImageResult<Vec<u8>> {
    let color = if image.color().has_color() { ExtendedColorType::Rgb8 } else { ExtendedColorType::L8 };
    let mut bytes = Vec::new();
    JpegEncoder::new_with_quality(&mut bytes, quality).write_image(
        image.as_bytes(),
        image.width(),
        image.height(),
        color,
    )?;
    Ok(bytes)
}

/// The picture without transparency: what shows through is white.
fn on_white(image: DynamicImage) -> DynamicImage {
    if !image.color().has_alpha() {
        return image;
    }
    let image = image.into_rgba8();
    let mut flat = RgbImage::new(image.width(), image.height());
    for (pixel, below) in image.pixels().zip(flat.pixels_mut()) {
        let [red, green, blue, alpha] = pixel.0.map(u16::from);
        let mix = |value: u16| u8::try_from((value * alpha + 255 * (255 - alpha) + 127) / 255).unwrap_or(255);
        below.0 = [red, green, blue].map(mix);
    }
    flat.into()
}
