//! From the bytes of a file to pixels: the first frame on its full canvas, eight bits a channel, no larger than the limits.
//! It refuses to know how a picture is sent.

use std::io::Cursor;

use image::{
    DynamicImage, ImageDecoder, Limits,
    codecs::{gif::GifDecoder, jpeg::JpegDecoder, png::PngDecoder, webp::WebPDecoder},
    metadata::Orientation,
};

use super::{Refusal, frames, jpeg, sniff::Format, whole};

/// Most pixels of an image: 50 megapixels, past every camera in common use.
pub(super) const MAX_PIXELS: u64 = 50_000_000;

/// Most bytes that a decoder may take for itself, beside the pixels.
const DECODER_BYTES: u64 = 512 << 20;

/// A decoded image.
#[derive(Debug)]
pub(super) struct Picture {
    /// Its pixels as stored, the orientation not applied.
    pub(super) image: DynamicImage,
    /// How it is to be turned.
    pub(super) orientation: Orientation,
    /// Frames of the animation, 1 for a still.
    pub(super) frames: u32,
    /// What is remarkable about it.
    pub(super) remarks: Vec<String>,
    /// Whether every client shows the file itself as it is meant.
    pub(super) is_plain: bool,
}

/// Width and height of an image of this format.
pub(super) fn dimensions(format: Format, bytes: &[u8]) -> Option<(u32, u32)> {
    decoder(format, bytes).ok().map(|decoder| decoder.dimensions())
}

/// Decodes an image of pixels. Fails where it has more than [`MAX_PIXELS`], before a pixel is decoded.
pub(super) fn decode(format: Format, bytes: &[u8]) -> Result<Picture, Refusal> {
    let broken = |problem: &dyn std::fmt::Display| Refusal::broken(format, problem);
    let mut decoder = decoder(format, bytes).map_err(|error| broken(&error))?;
    check_dimensions(decoder.dimensions())?;
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(DECODER_BYTES);
    decoder.set_limits(limits).map_err(|error| broken(&error))?;
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let image = DynamicImage::from_decoder(decoder).map_err(|error| broken(&error))?;
    let frames = frames::count(format, bytes);
    let is_upright = orientation == Orientation::NoTransforms;
    let mut remarks = Vec::new();
    let is_deep = image.color().bytes_per_pixel() > image.color().channel_count();
    if is_deep {
        remarks.push("16 bits a channel".to_owned());
    }
    let four_inks = format == Format::Jpeg && jpeg::components(bytes) == Some(4);
    if four_inks {
        remarks.push("CMYK".to_owned());
    }
    let is_cut = !whole::is_whole(format, bytes);
    if is_cut {
        remarks.push("cut off before its end".to_owned());
    }
    if !is_upright {
        remarks.push(format!("orientation {} applied", orientation.to_exif()));
    }
    if frames > 1 {
        remarks.push(format!("animated, {frames} frames, the first shown"));
    }
    let is_plain = is_upright && frames == 1 && !(is_deep || four_inks || is_cut);
    Ok(Picture { image: to_8_bits(image), orientation, frames, remarks, is_plain })
}

fn decoder(format: Format, bytes: &[u8]) -> image::ImageResult<Box<dyn ImageDecoder + '_>> {
    let reader = Cursor::new(bytes);
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(DECODER_BYTES);
    Ok(match format {
        Format::Png => Box::new(PngDecoder::with_limits(reader, limits)?),
        Format::Jpeg => Box::new(JpegDecoder::new(reader)?),
        Format::WebP => Box::new(WebPDecoder::new(reader)?),
        Format::Gif => Box::new(GifDecoder::new(reader)?),
        Format::Svg => return Err(unsupported(Format::Svg)),
    })
}

fn unsupported(format: Format) -> image::ImageError {
    let hint = image::error::ImageFormatHint::Name(format.name().to_owned());
    image::ImageError::Unsupported(hint.into())
}

fn check_dimensions((width, height): (u32, u32)) -> Result<(), Refusal> {
    let pixels = u64::from(width) * u64::from(height);
    if pixels > MAX_PIXELS {
        return Err(Refusal::TooLarge(format!(
            "it is {width}×{height}, {} megapixels; an image has at most {}",
            pixels.div_ceil(1_000_000),
            MAX_PIXELS / 1_000_000,
        )));
    }
    Ok(())
}

fn to_8_bits(image: DynamicImage) -> DynamicImage {
    match image {
        DynamicImage::ImageLuma8(_)
        | DynamicImage::ImageLumaA8(_)
        | DynamicImage::ImageRgb8(_)
        | DynamicImage::ImageRgba8(_) => image,
        DynamicImage::ImageLuma16(_) => image.into_luma8().into(),
        DynamicImage::ImageLumaA16(_) => image.into_luma_alpha8().into(),
        DynamicImage::ImageRgb16(_) | DynamicImage::ImageRgb32F(_) => image.into_rgb8().into(),
        _ => image.into_rgba8().into(),
    }
}
