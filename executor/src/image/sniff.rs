//! What a file is, told by its bytes and never by its name.

use serde::{Deserialize, Serialize};

/// A format that can be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// PNG, animated or not.
    Png,
    /// JPEG.
    Jpeg,
    /// WebP, animated or not.
    WebP,
    /// GIF, animated or not.
    Gif,
    /// SVG.
    Svg,
}

impl Format {
    /// Its name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Png => "PNG",
            Self::Jpeg => "JPEG",
            Self::WebP => "WebP",
            Self::Gif => "GIF",
            Self::Svg => "SVG",
        }
    }

    /// Its media type.
    pub const fn mime_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::WebP => "image/webp",
            Self::Gif => "image/gif",
            Self::Svg => "image/svg+xml",
        }
    }
}

/// What the bytes of a file are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// An image that can be shown.
    Image(Format),
    /// An image of another format, by its name.
    Unsupported(&'static str),
    /// No image; what it looks like.
    Other(&'static str),
}

/// Starts of files of other image formats.
const UNSUPPORTED: [(&[u8], &str); 17] = [
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
    (b"II+\0", "BigTIFF"),
    (b"MM\0+", "BigTIFF"),
    (b"BM", "BMP"),
    (b"\0\0\x01\0", "ICO"),
    (b"v/1\x01", "OpenEXR"),
    (b"8BPS", "Photoshop PSD"),
    (b"\xff\x0a", "JPEG XL"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "JPEG XL"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
    (b"\xff\x4f\xff\x51", "JPEG 2000"),
    (b"qoif", "QOI"),
    (b"DDS ", "DDS"),
    (b"#?RADIANCE", "Radiance HDR"),
    (b"farbfeld", "farbfeld"),
    (b"gimp xcf ", "GIMP XCF"),
];

/// Brands of ISO media files (`ftyp`) that hold a still image.
const BRANDS: [(&[u8], &str); 7] = [
    (b"avif", "AVIF"),
    (b"avis", "AVIF"),
    (b"heic", "HEIC"),
    (b"heix", "HEIC"),
    (b"hevc", "HEIC"),
    (b"mif1", "HEIF"),
    (b"msf1", "HEIF"),
];

/// Starts of files that are no images.
const OTHERS: [(&[u8], &str); 9] = [
    (b"%PDF-", "PDF"),
    (b"%!PS", "PostScript"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"\xfd7zXZ\0", "xz data"),
    (b"\x7fELF", "an ELF program"),
    (b"RIFF", "a RIFF file of sound or video"),
    (b"version https://git-lfs", "a Git LFS pointer; the image itself was not fetched"),
];

/// Bytes of a text that are looked at for its root element.
const TEXT_BYTES: usize = 64 << 10;

/// What `bytes`, the whole of a file, are.
pub(super) fn kind(bytes: &[u8]) -> Kind {
    if bytes.is_empty() {
        return Kind::Other("an empty file");
    }
    if let Some(format) = raster(bytes) {
        return Kind::Image(format);
    }
    let start = |table: &[(&[u8], &'static str)]| {
        table.iter().find(|(magic, _)| bytes.starts_with(magic)).map(|(_, name)| *name)
    };
    if let Some(name) = brand(bytes).or_else(|| start(&UNSUPPORTED)) {
        // Two letters are no proof: a bitmap has its size next, so text that starts with them is text.
        return if name == "BMP" && !is_bitmap(bytes) { text(bytes) } else { Kind::Unsupported(name) };
    }
    match start(&OTHERS) {
        Some(name) => Kind::Other(name),
        None => text(bytes),
    }
}

/// The format of an image made of pixels.
pub(super) fn raster(bytes: &[u8]) -> Option<Format> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Format::Png),
        [0xff, 0xd8, 0xff, ..] => Some(Format::Jpeg),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Format::Gif),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Format::WebP),
        _ => None,
    }
}

fn brand(bytes: &[u8]) -> Option<&'static str> {
    let brand = bytes.get(4..12)?.strip_prefix(b"ftyp")?;
    BRANDS.iter().find(|(known, _)| *known == brand).map(|(_, name)| *name)
}

/// Whether the header after `BM` has the size that one of its versions has.
fn is_bitmap(bytes: &[u8]) -> bool {
    matches!(bytes.get(14..18), Some([12 | 40 | 52 | 56 | 64 | 108 | 124, 0, 0, 0]))
}

/// Tells text by its first element or sign.
fn text(bytes: &[u8]) -> Kind {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let bytes = &bytes[..bytes.len().min(TEXT_BYTES)];
    // A text may be cut within a character here.
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return Kind::Other("binary data"),
    };
    if text.contains('\0') {
        return Kind::Other("binary data");
    }
    let (root, is_xml) = root_element(text);
    let name = root.split(|c: char| !c.is_alphanumeric() && !"_-.:".contains(c)).next().unwrap_or_default();
    let local = name.rsplit(':').next().unwrap_or_default();
    if local == "svg" {
        return Kind::Image(Format::Svg);
    }
    let lower = text.trim_start().get(..9).unwrap_or_default().to_ascii_lowercase();
    let html = ["html", "head", "body", "title", "script", "div", "p", "table", "meta"];
    if lower == "<!doctype" || html.contains(&name.to_ascii_lowercase().as_str()) {
        return Kind::Other("HTML");
    }
    if is_xml || !name.is_empty() {
        return Kind::Other("XML");
    }
    match text.trim_start().chars().next() {
        None => Kind::Other("blank text"),
        Some('{' | '[') => Kind::Other("JSON"),
        Some(_) => Kind::Other("text"),
    }
}

/// What follows the `<` of the first element, past declarations and comments, and whether an XML declaration came before.
/// Nothing where there is no element.
fn root_element(text: &str) -> (&str, bool) {
    let mut rest = text.trim_start();
    let is_xml = rest.starts_with("<?xml");
    loop {
        let end = if rest.starts_with("<?") {
            rest.find("?>").map(|at| at + 2)
        } else if rest.starts_with("<!--") {
            rest.find("-->").map(|at| at + 3)
        } else if rest.starts_with("<!") {
            doctype_end(rest)
        } else {
            return (rest.strip_prefix('<').unwrap_or_default(), is_xml);
        };
        match end {
            Some(end) => rest = rest[end..].trim_start(),
            None => return ("", is_xml),
        }
    }
}

/// The end of a document type, which may have declarations in brackets.
fn doctype_end(text: &str) -> Option<usize> {
    let first = text.find(['>', '['])?;
    if text[first..].starts_with('>') {
        return Some(first + 1);
    }
    let bracket = first + text[first..].find(']')?;
    Some(bracket + text[bracket..].find('>')? + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn img_03_kind_is_told_by_the_bytes() {
        for (bytes, kind_of) in [
            (&b""[..], Kind::Other("an empty file")),
            (b"<html><body>404</body></html>", Kind::Other("HTML")),
            (b"\n<!DOCTYPE html><p>no", Kind::Other("HTML")),
            (b"%PDF-1.7\n", Kind::Other("PDF")),
            (b"hello", Kind::Other("text")),
            (b"BM is how this text starts", Kind::Other("text")),
            (b"{\"error\": 404}", Kind::Other("JSON")),
            (b"\x00\x01\x02", Kind::Other("binary data")),
            (b"<?xml version='1.0'?><feed/>", Kind::Other("XML")),
            (b"RIFF\0\0\0\0WAVEfmt ", Kind::Other("a RIFF file of sound or video")),
            (b"<svg xmlns='http://www.w3.org/2000/svg'/>", Kind::Image(Format::Svg)),
            (b"\xef\xbb\xbf<?xml version='1.0'?>\n<!-- <html> -->\n<s:svg/>", Kind::Image(Format::Svg)),
            (b"<!DOCTYPE svg [<!ENTITY a 'b>c'>]><svg/>", Kind::Image(Format::Svg)),
            (b"<!DOCTYPE svg PUBLIC 'a' 'b'><svg>", Kind::Image(Format::Svg)),
            (b"\x89PNG\r\n\x1a\n", Kind::Image(Format::Png)),
            (b"\xff\xd8\xff\xe0", Kind::Image(Format::Jpeg)),
            (b"GIF87a", Kind::Image(Format::Gif)),
            (b"RIFF\0\0\0\0WEBPVP8 ", Kind::Image(Format::WebP)),
            (b"II*\0\x08\0\0\0", Kind::Unsupported("TIFF")),
            (b"v/1\x01\x02\0\0\0", Kind::Unsupported("OpenEXR")),
            (b"\0\0\0\x1cftypavif\0\0\0\0", Kind::Unsupported("AVIF")),
            (b"\0\0\0\x18ftypheic\0\0\0\0", Kind::Unsupported("HEIC")),
            (b"BM\x46\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x02\0\0\0", Kind::Unsupported("BMP")),
        ] {
            assert_eq!(kind(bytes), kind_of, "{}", bytes.escape_ascii());
        }
    }
}
