//! What a client sees of an image.

use std::io::Cursor;
use std::time::Instant;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use image::codecs::jpeg::JpegEncoder;
use image::{DynamicImage, ImageEncoder, Rgb, RgbImage};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use support::Answer;

use crate::desk::Desk;

/// The picture in an answer that must have one: its bytes, decoded, and what was said of it.
#[track_caller]
fn picture(answer: &Answer) -> (Vec<u8>, DynamicImage, String) {
    assert!(!answer.is_error(), "{}", answer.text());
    let blocks = answer.result["content"].as_array().unwrap();
    assert_eq!(blocks.len(), 2, "{}", answer.text());
    let (text, block) = (blocks[0]["text"].as_str().unwrap(), &blocks[1]);
    assert_eq!(block["type"], json!("image"));
    assert_eq!(block["_meta"]["codex/imageDetail"], json!("high"));
    let data = block["data"].as_str().unwrap();
    assert_eq!(data.len() % 4, 0);
    let bytes = BASE64.decode(data).unwrap();
    let format = image::guess_format(&bytes).unwrap();
    assert_eq!(block["mimeType"], json!(format.to_mime_type()));
    let facts = answer.object();
    assert_eq!((&facts["sent_bytes"], &facts["mime_type"]), (&json!(bytes.len()), &block["mimeType"]));
    // The picture travels once, and the whole fits where clients stop reading.
    assert_eq!(answer.result["structuredContent"], Value::Null);
    let whole = answer.result.to_string();
    assert_eq!(whole.matches(&data[..data.len().min(4_000)]).count(), 1);
    assert!(whole.len() < 1 << 20, "{}", whole.len());
    let decoded = image::load_from_memory(&bytes).unwrap();
    assert_eq!(
        (&facts["sent_width"], &facts["sent_height"]),
        (&json!(decoded.width()), &json!(decoded.height()))
    );
    (bytes, decoded, text.to_owned())
}

fn halves(width: u32, height: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, _| if x < width / 2 { Rgb([255, 0, 0]) } else { Rgb([0, 0, 255]) })
}

fn encoded(picture: &RgbImage, format: image::ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    picture.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

fn is_red(picture: &DynamicImage, x: u32, y: u32) -> bool {
    let [red, green, blue] = picture.to_rgb8().get_pixel(x, y).0;
    red > 230 && green < 25 && blue < 25
}

async fn view(desk: &Desk, path: &str) -> Answer {
    desk.call("view_image", json!({ "path": path })).await
}

#[tokio::test(flavor = "multi_thread")]
async fn img_01_photo_on_its_side_is_shown_upright() {
    let desk = Desk::new().await;
    let mut photo = Vec::new();
    let mut encoder = JpegEncoder::new_with_quality(&mut photo, 95);
    let orientation_6 = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
    encoder.set_exif_metadata(orientation_6.to_vec()).unwrap();
    encoder.write_image(&halves(3000, 2000), 3000, 2000, image::ExtendedColorType::Rgb8).unwrap();
    desk.put("photo.jpg", &photo).await;
    let start = Instant::now();
    let answer = view(&desk, "photo.jpg").await;
    println!("6 megapixels in {:?}", start.elapsed());
    let (_, shown, text) = picture(&answer);
    assert_eq!((shown.width(), shown.height()), (1045, 1568));
    assert!(is_red(&shown, 500, 100) && !is_red(&shown, 500, 1500));
    assert!(text.starts_with("photo.jpg: JPEG 3000×2000, orientation 6 applied, "), "{text}");
    assert!(text.contains(" → JPEG 1045×1568, "), "{text}");
    let sum: String = Sha256::digest(&photo).iter().map(|byte| format!("{byte:02x}")).collect();
    let facts = answer.object();
    assert_eq!((&facts["sha256"], &facts["bytes"]), (&json!(sum), &json!(photo.len())));
    assert_eq!(
        (&facts["width"], &facts["height"], &facts["frames"]),
        (&json!(3000), &json!(2000), &json!(1))
    );
    assert_eq!(facts["path"], json!(desk.at("photo.jpg")));
}

#[tokio::test(flavor = "multi_thread")]
async fn img_03_06_small_images_arrive_byte_by_byte_whatever_their_name() {
    let desk = Desk::new().await;
    for (path, format) in [
        ("photo.png", image::ImageFormat::Jpeg),
        ("picture.txt", image::ImageFormat::Png),
        ("without-a-name", image::ImageFormat::Gif),
        ("web.jpg", image::ImageFormat::WebP),
    ] {
        let bytes = encoded(&halves(200, 100), format);
        desk.put(path, &bytes).await;
        let (sent, _, text) = picture(&view(&desk, path).await);
        assert!(sent == bytes, "{path} was changed");
        assert!(text.ends_with(", sent unchanged") && text.contains("200×100"), "{text}");
    }
    desk.put("wide.png", &encoded(&halves(9000, 100), image::ImageFormat::Png)).await;
    let (_, shown, text) = picture(&view(&desk, "wide.png").await);
    assert_eq!((shown.width(), shown.height()), (1568, 17));
    assert!(text.contains("PNG 9000×100") && text.contains("PNG 1568×17"), "{text}");
    let small = json!({ "path": "wide.png", "max_edge": 90 });
    let (_, shown, _) = picture(&desk.call("view_image", small).await);
    assert_eq!((shown.width(), shown.height()), (90, 1));
    assert!(is_red(&shown, 3, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn img_05_07_noise_arrives_whole_and_below_a_mebibyte() {
    let desk = Desk::new().await;
    let mut state = 1_u32;
    let noise = RgbImage::from_fn(2000, 2000, |_, _| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let [_, one, two, three] = state.to_le_bytes();
        Rgb([one, two, three])
    });
    std::fs::write(desk.at("noise.png"), encoded(&noise, image::ImageFormat::Png)).unwrap();
    let start = Instant::now();
    let (sent, _, text) = picture(&view(&desk, "noise.png").await);
    println!("{text} in {:?}", start.elapsed());
    assert!(sent.len() <= 700_000, "{}", sent.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn img_08_a_call_takes_one_image_so_none_is_left_out() {
    let desk = Desk::new().await;
    let tools = desk.client.rpc("tools/list", json!({})).await.unwrap();
    let tools = tools["result"]["tools"].as_array().unwrap().clone();
    let schema = &tools.iter().find(|tool| tool["name"] == "view_image").unwrap()["inputSchema"];
    assert_eq!(schema["properties"]["path"]["type"], json!("string"));
    assert_eq!(schema["required"], json!(["workspace_id", "path"]));
    assert_eq!(schema["properties"].as_object().unwrap().len(), 3, "{schema}");
    let several = json!({ "path": ["a.png", "b.png"] });
    let error = desk.call("view_image", several).await.expect_error();
    assert!(error["message"].as_str().unwrap().contains("path"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn img_13_animation_is_its_first_frame_and_says_so() {
    let desk = Desk::new().await;
    let mut bytes = Vec::new();
    let mut encoder = image::codecs::gif::GifEncoder::new(&mut bytes);
    for color in [[255, 0, 0, 255], [0, 255, 0, 255], [0, 0, 255, 255]] {
        let frame = image::RgbaImage::from_pixel(20, 10, image::Rgba(color));
        encoder.encode_frame(image::Frame::new(frame)).unwrap();
    }
    drop(encoder);
    desk.put("a.gif", &bytes).await;
    let answer = view(&desk, "a.gif").await;
    let (_, shown, text) = picture(&answer);
    assert!(text.contains("animated, 3 frames") && is_red(&shown, 10, 5), "{text}");
    assert_eq!(answer.object()["frames"], json!(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn svg_is_drawn_also_under_another_name() {
    let desk = Desk::new().await;
    let drawing = "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 80 40'><rect width='40' height='40' fill='red'/>\
                   <image href='/etc/passwd' width='9' height='9'/><text x='44' y='30'>hi</text></svg>";
    for path in ["x.svg", "x.png"] {
        desk.put(path, drawing.as_bytes()).await;
        let (_, shown, text) = picture(&view(&desk, path).await);
        assert_eq!((shown.width(), shown.height()), (80, 40));
        assert!(is_red(&shown, 20, 20) && !is_red(&shown, 60, 5));
        assert!(text.starts_with(&format!("{path}: SVG 80×40")), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_previews_at_once_are_all_right() {
    let desk = Desk::new().await;
    desk.put("a.png", &encoded(&halves(2400, 1200), image::ImageFormat::Png)).await;
    let start = Instant::now();
    let answers = futures::future::join_all((0..16).map(|_| view(&desk, "a.png"))).await;
    println!("16 of 3 megapixels in {:?}", start.elapsed());
    for answer in answers {
        assert!(is_red(&picture(&answer).1, 100, 100));
    }
}
