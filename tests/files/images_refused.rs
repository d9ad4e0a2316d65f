//! What is no image, or one that is made to do harm.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::probe;

use crate::desk::{Desk, code};

async fn refused(desk: &Desk, path: &str) -> Value {
    desk.call("view_image", json!({ "path": path })).await.expect_error()
}

/// A PNG of 65 bytes that claims to have 100,000 × 100,000 pixels.
const BOMB: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\x01\x86\xa0\0\x01\x86\xa0\x08\x06\0\0\0\xa8\x52\x0b\xc8\0\0\0\x08IDAT\
      \x78\xda\x03\0\0\0\0\x01\x6f\xdd\xc9\x91\0\0\0\0IEND\xae\x42\x60\x82";

#[tokio::test(flavor = "multi_thread")]
async fn img_02_twenty_bombs_at_once_are_refused_within_a_second_and_in_little_memory() {
    let desk = Desk::new().await;
    desk.put("bomb.png", BOMB).await;
    refused(&desk, "bomb.png").await;
    let before = probe::resident_bytes(desk.world.executor_pid());
    let start = Instant::now();
    let answers = futures::future::join_all((0..20).map(|_| refused(&desk, "bomb.png"))).await;
    let elapsed = start.elapsed();
    for error in answers {
        assert_eq!(error["code"], json!("IMAGE_TOO_LARGE"), "{error}");
        assert!(error["message"].as_str().unwrap().contains("100000×100000"), "{error}");
        assert!(error["next"].as_str().unwrap().contains("-resize"), "{error}");
    }
    let grown = probe::resident_bytes(desk.world.executor_pid()).saturating_sub(before);
    println!("20 bombs in {elapsed:?}, {} KiB more", grown >> 10);
    assert!(elapsed < Duration::from_secs(1), "{elapsed:?}");
    assert!(grown < 64 << 20, "{grown}");
    desk.run("truncate -s 65M large.png").await;
    let error = refused(&desk, "large.png").await;
    assert_eq!(error["code"], json!("IMAGE_TOO_LARGE"), "{error}");
    assert!(error["message"].as_str().unwrap().contains("68157440 bytes"), "{error}");
    assert!(error["message"].as_str().unwrap().contains("67108864"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn img_03_11_what_is_no_image_or_another_kind_is_named() {
    let desk = Desk::new().await;
    for (path, bytes, refusal, names) in [
        ("x.jpg", &b"<html><body>404</body></html>"[..], "NOT_AN_IMAGE", "not an image (looks like HTML)"),
        ("empty.png", b"", "NOT_AN_IMAGE", "not an image (looks like an empty file)"),
        ("x.pdf", b"%PDF-1.7\n", "NOT_AN_IMAGE", "PDF"),
        ("x.txt", b"some text\n", "NOT_AN_IMAGE", "text"),
        ("x.tiff", b"II*\0\x08\0\0\0", "IMAGE_UNSUPPORTED", "TIFF"),
        ("x.exr", b"v/1\x01\x02\0\0\0", "IMAGE_UNSUPPORTED", "OpenEXR"),
        ("x.avif", b"\0\0\0\x1cftypavif\0\0\0\0", "IMAGE_UNSUPPORTED", "AVIF"),
        ("x.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "IMAGE_BROKEN", "PNG"),
    ] {
        desk.put(path, bytes).await;
        let error = refused(&desk, path).await;
        assert_eq!(error["code"], json!(refusal), "{error}");
        assert!(error["message"].as_str().unwrap().contains(names), "{error}");
        assert!(!error["next"].as_str().unwrap().is_empty(), "{error}");
    }
    assert!(refused(&desk, "x.tiff").await["next"].as_str().unwrap().contains("PNG"));
}

#[tokio::test(flavor = "multi_thread")]
async fn fed_19_22_pipes_devices_directories_and_links_that_lead_out_are_refused_at_once() {
    let desk = Desk::new().await;
    desk.run(
        "mkfifo pipe; mkdir dir; ln -s /dev/zero zero; ln -s /proc/self/mem memory; ln -s / root; ln -s l1 l2; ln -s l2 l1
         ln -s /usr/share/pixmaps/debian-logo.png leak",
    )
    .await;
    let start = Instant::now();
    for (path, refusal) in [
        ("pipe", "NOT_A_REGULAR_FILE"),
        ("dir", "IS_A_DIRECTORY"),
        ("zero", "PATH_OUTSIDE_WORKSPACE"),
        ("memory", "PATH_OUTSIDE_WORKSPACE"),
        ("root/usr/share/pixmaps/debian-logo.png", "PATH_OUTSIDE_WORKSPACE"),
        ("leak", "PATH_OUTSIDE_WORKSPACE"),
        ("../../x.png", "PATH_OUTSIDE_WORKSPACE"),
        ("l1", "SYMLINK_LOOP"),
        ("absent.png", "PATH_NOT_FOUND"),
    ] {
        assert_eq!(code(desk.call("view_image", json!({ "path": path })).await), refusal, "{path}");
    }
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    for edge in [json!(0), json!(1569), json!("90"), json!(-1)] {
        let error =
            desk.call("view_image", json!({ "path": "x.png", "max_edge": edge })).await.expect_error();
        assert!(error["message"].as_str().unwrap().contains("max_edge"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drawing_that_would_take_all_memory_or_time_is_given_up_and_nothing_of_it_stays() {
    let desk = Desk::new().await;
    let svg = |inside: &str| {
        format!("<svg xmlns='http://www.w3.org/2000/svg' width='1500' height='1500'>{inside}</svg>")
    };
    let mut laughs = String::from("<g id='l0'><rect width='9' height='9'/></g>");
    for level in 1..20 {
        let uses = format!("<use href='#l{}'/>", level - 1).repeat(10);
        laughs.extend([format!("<g id='l{level}'>"), uses, "</g>".to_owned()]);
    }
    let blurs = "<feGaussianBlur stdDeviation='1e6'/>".repeat(500);
    let blur = format!(
        "<filter id='f' x='-9' y='-9' width='30' height='30'>{blurs}</filter><rect width='1500' height='1500' \
         filter='url(#f)'/>"
    );
    let nested = format!("{}<rect/>{}", "<g opacity='.5'>".repeat(100_000), "</g>".repeat(100_000));
    for (name, inside) in [("laughs", laughs), ("blur", blur), ("nested", nested)] {
        desk.put(name, svg(&inside).as_bytes()).await;
        let start = Instant::now();
        let error = refused(&desk, name).await;
        println!("{name}: {:?}: {}", start.elapsed(), error["message"]);
        let refusal = error["code"].as_str().unwrap();
        assert!(["IMAGE_TOO_LARGE", "IMAGE_BROKEN"].contains(&refusal), "{error}");
        assert!(start.elapsed() < Duration::from_secs(30), "{name}: {:?}", start.elapsed());
    }
    assert!(!has_helper(&desk), "a helper is left");
    assert_eq!(desk.run("echo the executor lives").await, "the executor lives\n");
}

/// Whether a helper of this desk's executor lives; those of other tests don't count.
fn has_helper(desk: &Desk) -> bool {
    let own = probe::descendants(desk.world.executor_pid());
    probe::marked("--draw-preview").iter().any(|pid| own.contains(pid))
}
