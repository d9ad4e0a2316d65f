//! Images for tests, and short ways to preview them.

use std::{borrow::Cow, fmt::Write as _, io::Cursor};

use image::{
    DynamicImage, ImageEncoder, RgbImage, RgbaImage,
    codecs::{jpeg::JpegEncoder, png::PngEncoder, webp::WebPEncoder},
};

use super::{
    preview::{Preview, preview},
    sniff::Format,
};

pub(super) const RED: [u8; 3] = [255, 0, 0];
pub(super) const GREEN: [u8; 3] = [0, 255, 0];
pub(super) const BLUE: [u8; 3] = [0, 0, 255];

/// The preview of `bytes` at its usual size, which must be made: what is known, and the picture that is sent.
#[track_caller]
pub(super) fn shown(bytes: &[u8]) -> (super::Facts, DynamicImage) {
    let Preview { facts, redrawn } = preview(bytes, super::MAX_EDGE).unwrap();
    let sent = redrawn.as_deref().unwrap_or(bytes);
    assert!(sent.len() <= super::MAX_SENT_BYTES, "{} bytes", sent.len());
    let picture = image::load_from_memory(sent).unwrap();
    assert_eq!((picture.width(), picture.height()), (facts.sent_width, facts.sent_height));
    (facts, picture)
}

/// Whether a colour is this one, as near as a JPEG is.
pub(super) fn is_near(picture: &DynamicImage, x: u32, y: u32, color: [u8; 3]) -> bool {
    let pixel = picture.to_rgb8().get_pixel(x, y).0;
    pixel.iter().zip(color).all(|(one, other)| one.abs_diff(other) < 24)
}

/// A picture whose left half has one colour and whose right half another.
pub(super) fn halves(width: u32, height: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, _| image::Rgb(if x < width / 2 { RED } else { BLUE }))
}

/// Pixels in which no neighbour is like the other.
pub(super) fn noise(width: u32, height: u32) -> RgbImage {
    let mut state = 0x2545_f491_u32;
    RgbImage::from_fn(width, height, |_, _| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        let [one, two, three, _] = state.to_le_bytes();
        image::Rgb([one, two, three])
    })
}

/// Encodes a picture, with this orientation where one is given.
pub(super) fn encoded(picture: &RgbImage, format: Format, orientation: Option<u8>) -> Vec<u8> {
    fn write(mut encoder: impl ImageEncoder, picture: &RgbImage, orientation: Option<u8>) {
        if let Some(orientation) = orientation {
            encoder.set_exif_metadata(exif(orientation)).unwrap();
        }
        let (width, height) = picture.dimensions();
        encoder.write_image(picture, width, height, image::ExtendedColorType::Rgb8).unwrap();
    }
    let mut bytes = Vec::new();
    match format {
        Format::Png => write(PngEncoder::new(&mut bytes), picture, orientation),
        Format::Jpeg => write(JpegEncoder::new_with_quality(&mut bytes, 95), picture, orientation),
        Format::WebP => write(WebPEncoder::new_lossless(&mut bytes), picture, orientation),
        Format::Gif => picture.write_to(&mut Cursor::new(&mut bytes), image::ImageFormat::Gif).unwrap(),
        Format::Svg => panic!("not made of pixels"),
    }
    bytes
}

/// EXIF that says nothing but the orientation.
fn exif(orientation: u8) -> Vec<u8> {
    let mut bytes = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".to_vec();
    bytes.extend([orientation, 0, 0, 0, 0, 0, 0]);
    bytes
}

/// A PNG of so many bits and channels whose pixels are these bytes.
pub(super) fn png(size: (u32, u32), color: png::ColorType, depth: png::BitDepth, pixels: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, size.0, size.1);
    encoder.set_color(color);
    encoder.set_depth(depth);
    encoder.write_header().unwrap().write_image_data(pixels).unwrap();
    bytes
}

/// A PNG of 65 bytes that claims to have this size.
pub(super) fn png_claiming(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = [width.to_be_bytes(), height.to_be_bytes()].concat();
    header.extend([8, 6, 0, 0, 0]);
    for (name, data) in
        [(b"IHDR", header), (b"IDAT", b"\x78\x9c\x03\0\0\0\0\x01".to_vec()), (b"IEND", Vec::new())]
    {
        bytes.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
        bytes.extend(name);
        bytes.extend(&data);
        bytes.extend(crc(&[&name[..], &data].concat()).to_be_bytes());
    }
    bytes
}

fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(
            crc ^ u32::from(*byte),
            |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 },
        )
    })
}

/// A JPEG of one colour, by its components as they are stored, with Adobe's marker where a transform is given. It is
/// written by hand, so that the test depends on no encoder's idea of ink.
pub(super) fn jpeg(size: (u16, u16), components: &[u8], transform: Option<u8>) -> Vec<u8> {
    let count = u8::try_from(components.len()).unwrap();
    let mut bytes = b"\xff\xd8".to_vec();
    let mut segment = |marker: u8, data: &[u8]| {
        bytes.extend([0xff, marker]);
        bytes.extend(u16::try_from(data.len() + 2).unwrap().to_be_bytes());
        bytes.extend(data);
    };
    if let Some(transform) = transform {
        segment(0xee, &[b"Adobe\0\x64\0\0\0\0", &[transform][..]].concat());
    }
    segment(0xdb, &[&[0][..], &[1; 64]].concat());
    let mut frame = vec![8];
    frame.extend([size.1.to_be_bytes(), size.0.to_be_bytes()].concat());
    frame.push(count);
    frame.extend((1..=count).flat_map(|id| [id, 0x11, 0]));
    segment(0xc0, &frame);
    // Codes of the DC differences as in the standard's example, and a single AC code: the end of the block.
    segment(0xc4, &[0, 0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    segment(0xc4, &[0x10, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut scan = vec![count];
    scan.extend((1..=count).flat_map(|id| [id, 0]));
    scan.extend([0, 63, 0]);
    segment(0xda, &scan);
    bytes.extend(flat_blocks(size, components));
    bytes.extend(b"\xff\xd9");
    bytes
}

/// The scan: in each block the difference to the block before, which is 0 past the first.
fn flat_blocks((width, height): (u16, u16), components: &[u8]) -> Vec<u8> {
    const CODES: [(u32, u32); 12] = [
        (0b00, 2),
        (0b010, 3),
        (0b011, 3),
        (0b100, 3),
        (0b101, 3),
        (0b110, 3),
        (0b1110, 4),
        (0b1_1110, 5),
        (0b11_1110, 6),
        (0b111_1110, 7),
        (0b1111_1110, 8),
        (0b1_1111_1110, 9),
    ];
    let mut bits = String::new();
    for block in 0..width.div_ceil(8) * height.div_ceil(8) {
        for component in components {
            let level = if block == 0 { (i32::from(*component) - 128) * 8 } else { 0 };
            let size = 32 - level.unsigned_abs().leading_zeros();
            let (code, length) = CODES[size as usize];
            write!(bits, "{code:0length$b}", length = length as usize).unwrap();
            if size > 0 {
                let value = if level < 0 { level + (1 << size) - 1 } else { level };
                write!(bits, "{value:0size$b}", size = size as usize).unwrap();
            }
            bits.push('0');
        }
    }
    while !bits.len().is_multiple_of(8) {
        bits.push('1');
    }
    let bytes =
        bits.as_bytes().chunks(8).map(|byte| byte.iter().fold(0_u8, |value, bit| value << 1 | (bit - b'0')));
    bytes.flat_map(|byte| if byte == 0xff { vec![0xff, 0] } else { vec![byte] }).collect()
}

/// A frame of a GIF: place, size, colour.
type GifFrame = ((u16, u16), (u16, u16), [u8; 3]);

/// A GIF with a canvas of this size.
pub(super) fn gif(canvas: (u16, u16), frames: &[GifFrame]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = gif::Encoder::new(&mut bytes, canvas.0, canvas.1, &[]).unwrap();
    for ((left, top), (width, height), color) in frames {
        encoder
            .write_frame(&gif::Frame {
                left: *left,
                top: *top,
                width: *width,
                height: *height,
                palette: Some(color.to_vec()),
                buffer: Cow::Owned(vec![0; usize::from(*width) * usize::from(*height)]),
                ..gif::Frame::default()
            })
            .unwrap();
    }
    drop(encoder);
    bytes
}

/// An animated PNG whose frames have one colour each.
pub(super) fn apng(width: u32, height: u32, colors: &[[u8; 3]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_animated(u32::try_from(colors.len()).unwrap(), 0).unwrap();
    let mut writer = encoder.write_header().unwrap();
    for color in colors {
        writer.write_image_data(&color.repeat((width * height) as usize)).unwrap();
    }
    writer.finish().unwrap();
    bytes
}

/// An animated WebP of this canvas whose frames, one colour each, lie in its corner.
pub(super) fn animated_webp(canvas: u32, frames: &[(u32, [u8; 3])]) -> Vec<u8> {
    let chunk = |name: &[u8; 4], data: &[u8]| {
        let mut bytes = [&name[..], &u32::try_from(data.len()).unwrap().to_le_bytes(), data].concat();
        bytes.resize(bytes.len().next_multiple_of(2), 0);
        bytes
    };
    let three = |number: u32| number.to_le_bytes()[..3].to_vec();
    let size = three(canvas - 1);
    let mut body = chunk(b"VP8X", &[&[2, 0, 0, 0][..], &size, &size].concat());
    body.extend(chunk(b"ANIM", &[0; 6]));
    for (edge, color) in frames {
        let picture = RgbImage::from_pixel(*edge, *edge, image::Rgb(*color));
        let still = encoded(&picture, Format::WebP, None);
        let edge = three(edge - 1);
        let header = [&[0; 6][..], &edge, &edge, &[100, 0, 0, 0]].concat();
        body.extend(chunk(b"ANMF", &[&header[..], &still[12..]].concat()));
    }
    let length = u32::try_from(body.len() + 4).unwrap().to_le_bytes();
    [&b"RIFF"[..], &length, b"WEBP", &body].concat()
}

/// A picture that is half transparent.
pub(super) fn transparent(width: u32, height: u32) -> Vec<u8> {
    let pixels =
        RgbaImage::from_fn(width, height, |x, _| image::Rgba([0, 0, 0, if x < width / 2 { 0 } else { 255 }]));
    let mut bytes = Vec::new();
    pixels.write_to(&mut Cursor::new(&mut bytes), image::ImageFormat::Png).unwrap();
    bytes
}
