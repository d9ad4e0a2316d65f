//! Whether a file has its end. A decoder shows as much of a cut one as there is; what a client does with it is anyone's guess.

use memchr::memmem;

use super::sniff::Format;

/// The last chunk of a PNG: its name and its checksum.
const PNG_END: &[u8] = b"IEND\xae\x42\x60\x82";
const JPEG_END: &[u8] = b"\xff\xd9";
const GIF_END: u8 = b';';

/// Whether the end of the image is there. Other things may follow it.
pub(super) fn is_whole(format: Format, bytes: &[u8]) -> bool {
    match format {
        Format::Png => memmem::rfind(bytes, PNG_END).is_some(),
        // A thumbnail at the start has an end of its own.
        Format::Jpeg => memmem::rfind(bytes, JPEG_END).is_some_and(|at| at >= bytes.len() / 2),
        Format::WebP => declared_length(bytes).is_some_and(|length| length <= bytes.len()),
        Format::Gif => bytes.iter().rfind(|byte| **byte != 0) == Some(&GIF_END),
        Format::Svg => true,
    }
}

/// Length of a RIFF file by its header.
fn declared_length(bytes: &[u8]) -> Option<usize> {
    let length = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
    usize::try_from(length).ok()?.checked_add(8)
}
