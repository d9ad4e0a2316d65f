//! What a file is, and what its pixels are.

use std::time::{Duration, Instant};

use image::{DynamicImage, GenericImageView as _};
use png::{BitDepth, ColorType};

use super::{MAX_EDGE, Refusal, fixture::*, preview::preview, sniff::Format};

fn refusal(bytes: &[u8]) -> Refusal {
    preview(bytes, MAX_EDGE).unwrap_err()
}

#[test]
fn img_01_every_orientation_is_applied_in_every_format_that_has_one() {
    let picture = halves(40, 20);
    for format in [Format::Jpeg, Format::Png, Format::WebP] {
        for (orientation, size, red, blue) in [
            (1, (40, 20), (4, 10), (36, 10)),
            (2, (40, 20), (36, 10), (4, 10)),
            (3, (40, 20), (36, 10), (4, 10)),
            (4, (40, 20), (4, 10), (36, 10)),
            (5, (20, 40), (10, 4), (10, 36)),
            (6, (20, 40), (10, 4), (10, 36)),
            (7, (20, 40), (10, 36), (10, 4)),
            (8, (20, 40), (10, 36), (10, 4)),
        ] {
            let bytes = encoded(&picture, format, Some(orientation));
            let (facts, shown) = shown(&bytes);
            assert_eq!(shown.dimensions(), size, "{format:?} {orientation}");
            assert!(is_near(&shown, red.0, red.1, RED), "{format:?} {orientation}");
            assert!(is_near(&shown, blue.0, blue.1, BLUE), "{format:?} {orientation}");
            assert_eq!((facts.width, facts.height, facts.orientation), (40, 20, orientation));
            let redrawn = preview(&bytes, MAX_EDGE).unwrap().redrawn;
            assert_eq!(redrawn.is_none(), orientation == 1, "{format:?} {orientation}");
            if let Some(redrawn) = redrawn {
                let again = preview(&redrawn, MAX_EDGE).unwrap().facts;
                assert_eq!(again.orientation, 1, "the picture that is sent would be turned again");
                assert_eq!(facts.remarks, [format!("orientation {orientation} applied")]);
            }
        }
    }
}

#[test]
fn img_02_enormous_pictures_are_refused_by_their_dimensions() {
    let mut gif = gif((2, 2), &[((0, 0), (2, 2), RED)]);
    gif[6..10].copy_from_slice(&[0xff; 4]);
    let mut webp = animated_webp(16_384, &[(2, RED)]);
    webp.truncate(200);
    let start = Instant::now();
    for (bytes, dimensions) in [
        (png_claiming(100_000, 100_000), "100000×100000"),
        (png_claiming(16_384, 16_384), "16384×16384"),
        (png_claiming(7_072, 7_072), "7072×7072"),
        (jpeg_claiming(65_500, 65_500), "65500×65500"),
        (gif, "65535×65535"),
        (webp, "16384×16384"),
    ] {
        match refusal(&bytes) {
            Refusal::TooLarge(problem) => {
                assert!(problem.contains(dimensions) && problem.contains("at most 50"), "{problem}");
            }
            other => panic!("{dimensions}: {other:?}"),
        }
    }
    assert_eq!(png_claiming(100_000, 100_000).len(), 65);
    assert_eq!(refusal(b"II*\0\x08\0\0\0"), Refusal::Unsupported("TIFF".to_owned()));
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}

fn jpeg_claiming(width: u16, height: u16) -> Vec<u8> {
    let mut bytes = jpeg((8, 8), &[255, 128, 128], None);
    let frame = bytes.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    bytes[frame + 5..frame + 7].copy_from_slice(&height.to_be_bytes());
    bytes[frame + 7..frame + 9].copy_from_slice(&width.to_be_bytes());
    bytes
}

#[test]
fn img_03_what_is_no_image_is_named_and_the_type_is_that_of_the_bytes() {
    let not_an_image = |looks: &str| Refusal::NotAnImage(looks.to_owned());
    assert_eq!(refusal(b"<html><body>404</body></html>"), not_an_image("HTML"));
    assert_eq!(refusal(b""), not_an_image("an empty file"));
    assert_eq!(refusal(b"%PDF-1.7"), not_an_image("PDF"));
    assert_eq!(refusal(b"v/1\x01"), Refusal::Unsupported("OpenEXR".to_owned()));
    for format in [Format::Png, Format::Jpeg, Format::WebP, Format::Gif] {
        let bytes = encoded(&halves(16, 8), format, None);
        let preview = preview(&bytes, MAX_EDGE).unwrap();
        assert_eq!((preview.facts.sent, preview.redrawn), (format, None));
    }
}

#[test]
fn img_09_white_of_cmyk_and_ycck_is_white_and_red_is_red() {
    let mean = |picture: &DynamicImage| {
        let picture = picture.to_rgb8();
        let sum = picture.pixels().flat_map(|pixel| pixel.0).map(u32::from).sum::<u32>();
        sum / (3 * picture.width() * picture.height())
    };
    // Adobe stores ink inverted: 255 is none. YCCK holds the YCbCr of the red, green and blue that are 255 less each of
    // these.
    for (transform, white, red) in
        [(0, [255, 255, 255, 255], [255, 0, 0, 255]), (2, [0, 128, 128, 255], [179, 171, 1, 255])]
    {
        let (facts, shown_white) = shown(&jpeg((8, 8), &white, Some(transform)));
        assert!(mean(&shown_white) >= 250, "transform {transform}: {}", mean(&shown_white));
        assert_eq!(facts.remarks, ["CMYK"]);
        let (_, shown_red) = shown(&jpeg((16, 8), &red, Some(transform)));
        assert!(is_near(&shown_red, 12, 4, RED), "{transform}: {:?}", shown_red.to_rgb8().get_pixel(12, 4));
    }
    let (facts, plain) = shown(&jpeg((8, 8), &[255, 128, 128], None));
    assert_eq!((mean(&plain), facts.remarks.len()), (255, 0));
    assert!(is_near(&shown(&jpeg((8, 8), &[128], None)).1, 4, 4, [128; 3]));
}

#[test]
fn img_11_deep_shallow_and_palette_pixels_keep_their_colours() {
    let grey = png((4, 4), ColorType::Grayscale, BitDepth::Sixteen, &[0x80, 0].repeat(16));
    let (facts, picture) = shown(&grey);
    assert!((127..=128).contains(&picture.to_luma8().get_pixel(1, 1).0[0]));
    assert_eq!(facts.remarks, ["16 bits a channel"]);
    let deep = png((4, 4), ColorType::Rgba, BitDepth::Sixteen, &[0xff, 0xff, 0, 0, 0, 0, 0x80, 0].repeat(16));
    let pixel = shown(&deep).1.to_rgba8().get_pixel(2, 2).0;
    assert_eq!(pixel[..3], RED);
    assert!((127..=128).contains(&pixel[3]), "{pixel:?}");
    let black_and_white = png((8, 2), ColorType::Grayscale, BitDepth::One, &[0xf0, 0xf0]);
    let picture = shown(&black_and_white).1.to_luma8();
    assert_eq!((picture.get_pixel(3, 0).0, picture.get_pixel(4, 0).0), ([255], [0]));

    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, 2, 1);
    encoder.set_color(ColorType::Indexed);
    encoder.set_palette([RED, BLUE].concat());
    encoder.set_trns(vec![255, 0]);
    encoder.write_header().unwrap().write_image_data(&[0, 1]).unwrap();
    let picture = preview(&bytes, 1).unwrap();
    assert_eq!((picture.facts.sent_width, picture.facts.sent_height), (1, 1));
    let small = image::load_from_memory(&picture.redrawn.unwrap()).unwrap().to_rgba8();
    let [red, _, blue, alpha] = small.get_pixel(0, 0).0;
    assert!(red > 200 && blue < 55 && alpha > 64 && alpha < 192, "{:?}", small.get_pixel(0, 0));
}

#[test]
fn img_13_first_frame_of_an_animation_is_shown_on_the_whole_canvas() {
    let three = [((0, 0), (8, 8), RED), ((3, 3), (1, 1), GREEN), ((0, 0), (8, 8), BLUE)];
    for (bytes, format) in [
        (gif((8, 8), &three), Format::Gif),
        (apng(8, 8, &[RED, GREEN, BLUE]), Format::Png),
        (animated_webp(8, &[(8, RED), (8, GREEN), (8, BLUE)]), Format::WebP),
    ] {
        let (facts, picture) = shown(&bytes);
        assert_eq!((facts.format, facts.frames), (format, 3));
        assert_eq!(facts.remarks, ["animated, 3 frames, the first shown"]);
        assert_eq!(picture.dimensions(), (8, 8));
        assert!((0..8).all(|at| is_near(&picture, at, at, RED)), "{format:?}");
        assert_eq!(facts.sent, Format::Png);
    }
    let (_, corner) = shown(&gif((20, 10), &[((2, 2), (4, 4), RED), ((0, 0), (1, 1), BLUE)]));
    assert_eq!(corner.dimensions(), (20, 10));
    assert_eq!(corner.to_rgba8().get_pixel(10, 8).0[3], 0, "the canvas around the frame is not transparent");
    assert!(is_near(&corner, 3, 3, RED));
    let (_, corner) = shown(&animated_webp(16, &[(4, RED), (4, BLUE)]));
    assert_eq!(corner.dimensions(), (16, 16));
    assert!(is_near(&corner, 1, 1, RED));

    let start = Instant::now();
    let many = gif((64, 64), &[((0, 0), (64, 64), RED); 10_000]);
    let written = start.elapsed();
    assert_eq!(shown(&many).0.frames, 10_000);
    assert!(start.elapsed() - written < Duration::from_secs(2), "{:?}", start.elapsed() - written);
}

#[test]
fn what_is_cut_short_is_refused_or_shown_and_never_sent_as_it_is() {
    let picture = noise(24, 24);
    for format in [Format::Png, Format::Jpeg, Format::WebP, Format::Gif] {
        let whole = encoded(&picture, format, None);
        let mut refused = 0;
        for length in (0..whole.len()).step_by(whole.len().div_ceil(250)) {
            match preview(&whole[..length], MAX_EDGE) {
                Err(_) => refused += 1,
                Ok(made) => {
                    let sent = made.redrawn.expect("a cut file is sent as it is");
                    assert_eq!(made.facts.remarks, ["cut off before its end"], "{format:?} {length}");
                    image::load_from_memory(&sent).unwrap();
                }
            }
        }
        println!("{format:?}: {refused} of 250 refused");
        assert!(refused > 1, "{format:?}");
    }
}

#[test]
fn odd_profiles_and_texts_break_nothing() {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, 2, 2);
    encoder.set_color(ColorType::Rgb);
    encoder.add_ztxt_chunk("Comment".to_owned(), "0".repeat(30 << 20)).unwrap();
    let mut writer = encoder.write_header().unwrap();
    writer.write_chunk(png::chunk::iCCP, b"broken\0\0not a profile").unwrap();
    writer.write_image_data(&RED.repeat(4)).unwrap();
    writer.finish().unwrap();
    assert!(bytes.len() < 1 << 20, "{}", bytes.len());
    assert!(is_near(&shown(&bytes).1, 1, 1, RED));
}
