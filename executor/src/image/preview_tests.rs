//! What is sent: sizes, bytes, and what stays as it is.

use image::{DynamicImage, GenericImageView as _, RgbImage};

use super::{MAX_EDGE, MAX_SENT_BYTES, fit, fixture::*, preview::preview, sniff::Format};

#[test]
fn img_06_longest_edge_fits_and_no_side_is_0() {
    for ((width, height), sent) in [
        ((9000, 100), (1568, 17)),
        ((100, 9000), (17, 1568)),
        ((2001, 2001), (1568, 1568)),
        ((1, 1), (1, 1)),
        ((1, 9000), (1, 1568)),
        ((9000, 1), (1568, 1)),
        ((1568, 1568), (1568, 1568)),
        ((1569, 10), (1568, 10)),
    ] {
        assert_eq!(fit::scaled(width, height, MAX_EDGE), sent);
        let bytes = encoded(&RgbImage::from_pixel(width, height, image::Rgb(BLUE)), Format::Png, None);
        let made = preview(&bytes, MAX_EDGE).unwrap();
        assert_eq!((made.facts.sent_width, made.facts.sent_height), sent);
        assert_eq!((made.facts.width, made.facts.height), (width, height));
        assert_eq!(made.redrawn.is_none(), (width, height) == sent, "{width}×{height}");
        let (_, picture) = shown(&bytes);
        assert_eq!(picture.dimensions(), sent);
        assert!(is_near(&picture, sent.0 / 2, sent.1 / 2, BLUE));
    }
    assert_eq!(fit::scaled(4000, 3000, 100), (100, 75));
    assert_eq!(fit::scaled(65_535, 1, 1), (1, 1));
}

#[test]
fn img_07_noise_is_sent_in_fewer_bytes_than_clients_take() {
    let bytes = encoded(&noise(2000, 2000), Format::Png, None);
    assert!(bytes.len() > 10 << 20, "{}", bytes.len());
    let (facts, picture) = shown(&bytes);
    println!("sent {}×{}", facts.sent_width, facts.sent_height);
    assert_eq!(facts.sent, Format::Jpeg);
    assert!(picture.width() >= 700 && picture.width() == picture.height(), "{:?}", picture.dimensions());
}

#[test]
fn photos_become_jpeg_and_drawings_png() {
    let photo = RgbImage::from_fn(2400, 1600, |x, y| {
        let shade = |period: u32| u8::try_from((x * y / period + x) % 256).unwrap();
        image::Rgb([shade(997), shade(641), shade(313)])
    });
    let (facts, _) = shown(&encoded(&photo, Format::Jpeg, None));
    assert_eq!((facts.sent, facts.sent_width, facts.sent_height), (Format::Jpeg, 1568, 1045));
    let (facts, _) = shown(&encoded(&halves(2400, 1600), Format::Png, None));
    assert_eq!((facts.sent, facts.sent_width), (Format::Png, 1568));
}

#[test]
fn transparent_stays_so_in_png_and_is_white_in_jpeg() {
    let (facts, picture) = shown(&transparent(1800, 90));
    assert_eq!((facts.sent, picture.to_rgba8().get_pixel(5, 5).0[3]), (Format::Png, 0));
    let image = image::load_from_memory(&transparent(200, 100)).unwrap();
    let fitted = fit::encode(image, false).unwrap();
    let flat = image::load_from_memory(&fitted.bytes).unwrap();
    assert_eq!(fitted.format, Format::Jpeg);
    assert!(is_near(&flat, 20, 50, [255; 3]) && is_near(&flat, 180, 50, [0; 3]));
}

#[test]
fn no_dark_seam_appears_where_transparent_meets_colour() {
    let picture = image::RgbaImage::from_fn(3000, 30, |x, _| {
        image::Rgba(if x % 60 < 30 { [255, 255, 255, 255] } else { [0, 0, 0, 0] })
    });
    let scaled = fit::scale(DynamicImage::from(picture), 500).unwrap().to_rgba8();
    for pixel in scaled.pixels().filter(|pixel| pixel.0[3] > 8) {
        assert!(pixel.0[0] > 240, "{pixel:?}");
    }
}

#[test]
fn img_05_what_is_sent_is_whole_at_every_size() {
    for edge in [1, 100, 700, 1100, 1568] {
        let bytes = encoded(&noise(edge, edge), Format::Png, None);
        let made = preview(&bytes, MAX_EDGE).unwrap();
        let sent = made.redrawn.unwrap_or(bytes);
        assert!(sent.len() <= MAX_SENT_BYTES);
        image::load_from_memory(&sent).unwrap();
    }
}
