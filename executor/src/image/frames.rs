//! How many frames an animation has. Nothing is decoded for it, so a long one is counted as fast as it is read.

use std::io::Cursor;

use super::sniff::Format;

/// Frames of a file of this format, at least 1. Of a file that is cut short those that are there.
pub(super) fn count(format: Format, bytes: &[u8]) -> u32 {
    let count = match format {
        Format::Gif => of_gif(bytes),
        Format::WebP => of_webp(bytes),
        Format::Png => of_png(bytes),
        Format::Jpeg | Format::Svg => None,
    };
    count.unwrap_or(1).max(1)
}

fn of_gif(bytes: &[u8]) -> Option<u32> {
    let mut options = gif::DecodeOptions::new();
    options.skip_frame_decoding(true);
    let mut decoder = options.read_info(bytes).ok()?;
    let mut frames = 0;
    while let Ok(Some(_)) = decoder.next_frame_info() {
        frames += 1;
    }
    Some(frames)
}

fn of_webp(bytes: &[u8]) -> Option<u32> {
    let decoder = image_webp::WebPDecoder::new(Cursor::new(bytes)).ok()?;
    decoder.is_animated().then(|| decoder.num_frames())
}

fn of_png(bytes: &[u8]) -> Option<u32> {
    let reader = png::Decoder::new(Cursor::new(bytes)).read_info().ok()?;
    reader.info().animation_control().map(|control| control.num_frames)
}
