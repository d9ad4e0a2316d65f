//! Drawings, and documents that are made to do harm. Those that would take all memory or time are tried on the helper
//! process, from outside.

use std::time::{Duration, Instant};

use image::GenericImageView as _;

use super::{MAX_EDGE, Refusal, fixture::*, preview::preview, sniff::Format};

fn document(attributes: &str, content: &str) -> Vec<u8> {
    format!(
        "<?xml version='1.0'?><svg xmlns='http://www.w3.org/2000/svg' xmlns:xlink='http://www.w3.org/1999/xlink' \
         {attributes}>{content}</svg>"
    )
    .into_bytes()
}

#[test]
fn a_document_is_drawn_on_white_at_the_size_it_asks_for() {
    let bytes = document("width='60' height='30'", "<rect width='30' height='30' fill='red'/>");
    let (facts, picture) = shown(&bytes);
    assert_eq!((facts.format, facts.sent, facts.width, facts.height), (Format::Svg, Format::Png, 60, 30));
    assert_eq!(picture.dimensions(), (60, 30));
    assert!(is_near(&picture, 10, 10, RED) && is_near(&picture, 45, 10, [255; 3]));
    let large =
        document("viewBox='0 0 1000000000 1000000000'", "<rect width='500000000' height='1e9' fill='red'/>");
    let (facts, picture) = shown(&large);
    assert_eq!((facts.width, picture.dimensions()), (1_000_000_000, (1568, 1568)));
    assert!(is_near(&picture, 100, 800, RED) && is_near(&picture, 1500, 800, [255; 3]));
}

#[test]
fn text_is_drawn_in_the_fonts_of_the_system_or_missed_aloud() {
    let bytes = document("width='200' height='50'", "<text x='5' y='40' font-size='40'>MMMM</text>");
    let (facts, picture) = shown(&bytes);
    let dark = picture.to_luma8().pixels().filter(|pixel| pixel.0[0] < 64).count();
    assert_ne!(
        dark > 300,
        facts.remarks.iter().any(|remark| remark.contains("no fonts")),
        "{dark} {facts:?}"
    );
}

#[test]
fn nothing_outside_of_the_document_is_read_and_no_script_runs() {
    let directory = tempfile::tempdir().unwrap();
    let secret = directory.path().join("secret.png");
    std::fs::write(&secret, encoded(&halves(40, 20), Format::Png, None)).unwrap();
    let secret = secret.display();
    for content in [
        format!("<image href='{secret}' width='40' height='40'/>"),
        format!("<image xlink:href='file://{secret}' width='40' height='40'/>"),
        "<image href='http://127.0.0.1:9/a.png' width='40' height='40'/>".to_owned(),
        format!("<filter id='f'><feImage href='{secret}'/></filter><rect width='40' height='40' filter='url(#f)'/>"),
        format!("<use href='{secret}#x'/>"),
        "<script>document.documentElement.innerHTML = '<rect width=\"40\" height=\"40\" fill=\"red\"/>'</script>"
            .to_owned(),
        "<style>@import url('http://127.0.0.1:9/a.css');</style>".to_owned(),
        "<foreignObject width='40' height='40'><body xmlns='http://www.w3.org/1999/xhtml'>x</body></foreignObject>"
            .to_owned(),
    ] {
        let (_, picture) = shown(&document("width='40' height='40'", &content));
        assert!((0..40).all(|at| is_near(&picture, at, at, [255; 3])), "{content}");
    }
    let entity = "<!DOCTYPE svg [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><svg xmlns='http://www.w3.org/2000/svg' width='9' \
         height='9'><text>&x;</text></svg>";
    match preview(entity.as_bytes(), MAX_EDGE) {
        Err(Refusal::Broken { format, .. }) => assert_eq!(format, Format::Svg),
        Ok(made) => assert_eq!(made.facts.width, 9),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_embedded_picture_is_drawn_within_the_limits_and_no_embedded_document() {
    let base64 = |bytes: &[u8]| data_encoding::BASE64.encode(bytes);
    let image = |kind: &str, bytes: &[u8]| {
        let data = base64(bytes);
        document(
            "width='40' height='20'",
            &format!("<image href='data:image/{kind};base64,{data}' width='40' height='20'/>"),
        )
    };
    let (_, picture) = shown(&image("png", &encoded(&halves(40, 20), Format::Png, None)));
    assert!(is_near(&picture, 5, 10, RED) && is_near(&picture, 35, 10, BLUE));
    let (_, picture) = shown(&image("png", &png_claiming(100_000, 100_000)));
    assert!(is_near(&picture, 5, 10, [255; 3]));
    let inner = document("width='40' height='20'", "<rect width='40' height='20' fill='red'/>");
    assert!(is_near(&shown(&image("svg+xml", &inner)).1, 5, 10, [255; 3]));
}

#[test]
fn what_is_deep_blurred_or_broken_ends_in_time() {
    let start = Instant::now();
    let nested = format!("{}<rect width='9' height='9'/>{}", "<g>".repeat(100_000), "</g>".repeat(100_000));
    let entities = "<!DOCTYPE svg [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;'>\
                    <!ENTITY c '&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;'><!ENTITY d '&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;'>\
                    <!ENTITY e '&d;&d;&d;&d;&d;&d;&d;&d;&d;&d;'><!ENTITY f '&e;&e;&e;&e;&e;&e;&e;&e;&e;&e;'>]>\
                    <svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'><desc>&f;&f;&f;&f;&f;</desc></svg>";
    for bytes in
        [document("", &nested), entities.into(), b"<svg".to_vec(), document("width='-1' height='0'", "")]
    {
        match preview(&bytes, MAX_EDGE) {
            Err(Refusal::Broken { format: Format::Svg, problem }) => println!("{problem}"),
            other => panic!("{other:?}"),
        }
    }
    let blur = "<filter id='f' x='-100' y='-100' width='300' height='300'><feGaussianBlur stdDeviation='200'/></filter>\
                <rect width='500' height='500' filter='url(#f)'/>";
    let _blurred = preview(&document("width='500' height='500'", blur), MAX_EDGE).unwrap();
    println!("{:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}
