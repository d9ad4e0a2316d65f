//! How a preview looks: what the file is, what was done to it, what is sent, and the image.

use std::fmt::Write as _;

use runlet_proto::v1::PreviewImageResponse;
use serde_json::json;

use crate::{
    path,
    reply::{Reply, size_text},
};

/// A preview. `asked` is the path as the caller gave it.
pub(super) fn previewed(asked: &str, answer: PreviewImageResponse) -> Reply {
    let PreviewImageResponse {
        path: found,
        size_bytes,
        sha256,
        format,
        width,
        height,
        orientation,
        frames,
        remarks,
        unchanged,
        sent_format,
        sent_mime_type,
        sent_width,
        sent_height,
        content,
    } = answer;
    let sent_bytes = content.len() as u64;
    let mut text = format!("{asked}: {format} {width}×{height}");
    for remark in &remarks {
        let _ = write!(text, ", {remark}");
    }
    let _ = write!(text, ", {}", size_text(size_bytes));
    if unchanged {
        text.push_str(", sent unchanged");
    } else {
        let sent_size = size_text(sent_bytes);
        let _ = write!(text, " → {sent_format} {sent_width}×{sent_height}, {sent_size}");
    }
    let object = json!({
        "path": path::to_text(&found),
        "format": format,
        "width": width,
        "height": height,
        "bytes": size_bytes,
        "sha256": sha256,
        "orientation": orientation,
        "frames": frames,
        "remarks": remarks,
        "unchanged": unchanged,
        "mime_type": sent_mime_type,
        "sent_width": sent_width,
        "sent_height": sent_height,
        "sent_bytes": sent_bytes,
    });
    Reply::Image { text, object, bytes: content, mime_type: sent_mime_type }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(answer: PreviewImageResponse) -> String {
        match previewed("photo.jpg", answer) {
            Reply::Image { text, .. } => text,
            other => panic!("expected an image, got {other:?}"),
        }
    }

    #[test]
    fn text_says_what_was_done() {
        let answer = PreviewImageResponse {
            format: "JPEG".to_owned(),
            width: 4032,
            height: 3024,
            size_bytes: 3_100_000,
            remarks: vec!["orientation 6 applied".to_owned()],
            sent_format: "JPEG".to_owned(),
            sent_width: 1176,
            sent_height: 1568,
            content: vec![0; 412_000].into(),
            ..PreviewImageResponse::default()
        };
        assert_eq!(
            text(answer),
            "photo.jpg: JPEG 4032×3024, orientation 6 applied, 3.1 MB → JPEG 1176×1568, 412 KB"
        );
        let answer = PreviewImageResponse {
            format: "PNG".to_owned(),
            width: 8,
            height: 4,
            size_bytes: 90,
            unchanged: true,
            ..PreviewImageResponse::default()
        };
        assert_eq!(text(answer), "photo.jpg: PNG 8×4, 90 bytes, sent unchanged");
    }
}
