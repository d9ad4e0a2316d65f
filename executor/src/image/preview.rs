//! From the bytes of a file to what a client is sent. It runs in the helper process, which bounds its time and memory.

use image::metadata::Orientation;

use super::{
    Facts, Refusal, decode, fit,
    sniff::{self, Format, Kind},
    svg,
};

/// What is sent.
#[derive(Debug)]
pub(super) struct Preview {
    pub(super) facts: Facts,
    /// The encoded picture; `None` when the file itself is sent.
    pub(super) redrawn: Option<Vec<u8>>,
}

/// Makes the preview of a file that consists of `bytes`, its longest edge at most `max_edge`.
pub(super) fn preview(bytes: &[u8], max_edge: u32) -> Result<Preview, Refusal> {
    match sniff::kind(bytes) {
        Kind::Image(Format::Svg) => of_drawing(bytes, max_edge),
        Kind::Image(format) => of_picture(format, bytes, max_edge),
        Kind::Unsupported(format) => Err(Refusal::Unsupported(format.to_owned())),
        Kind::Other(looks) => Err(Refusal::NotAnImage(looks.to_owned())),
    }
}

fn of_drawing(bytes: &[u8], max_edge: u32) -> Result<Preview, Refusal> {
    let svg::Drawing { image, size: (width, height), remarks } = svg::draw(bytes, max_edge)?;
    let facts = |fitted: &fit::Fitted| Facts {
        format: Format::Svg,
        width,
        height,
        orientation: Orientation::NoTransforms.to_exif(),
        frames: 1,
        remarks,
        sent: fitted.format,
        sent_width: fitted.width,
        sent_height: fitted.height,
    };
    let fitted = fit::encode(image, true)?;
    Ok(Preview { facts: facts(&fitted), redrawn: Some(fitted.bytes) })
}

fn of_picture(format: Format, bytes: &[u8], max_edge: u32) -> Result<Preview, Refusal> {
    let decode::Picture { image, orientation, frames, remarks, is_plain } = decode::decode(format, bytes)?;
    let (width, height) = (image.width(), image.height());
    let mut facts = Facts {
        format,
        width,
        height,
        orientation: orientation.to_exif(),
        frames,
        remarks,
        sent: format,
        sent_width: width,
        sent_height: height,
    };
    if is_plain && width.max(height) <= max_edge && bytes.len() <= fit::MAX_SENT_BYTES {
        return Ok(Preview { facts, redrawn: None });
    }
    // Turned after it was scaled: there is less to turn.
    let mut image = fit::scale(image, max_edge)?;
    image.apply_orientation(orientation);
    let fit::Fitted { format: sent, width, height, bytes } = fit::encode(image, format != Format::Jpeg)?;
    (facts.sent, facts.sent_width, facts.sent_height) = (sent, width, height);
    Ok(Preview { facts, redrawn: Some(bytes) })
}
