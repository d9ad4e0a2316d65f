//! How a file is announced to a browser: as something to save under a name, of a type that no browser runs.

use http::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What is not escaped in the last part of a URL, nor in RFC 8187's form of a name.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

/// A name as the last part of a URL.
pub(crate) fn url_name(name: &str) -> String {
    utf8_percent_encode(name, ESCAPED).to_string()
}

/// `attachment` with the name, for old clients in ASCII, for all others as it is (RFC 6266).
pub(crate) fn attachment(name: &str) -> HeaderValue {
    let plain = |c: char| {
        if c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '/' | '%') || c == ' ' { c } else { '_' }
    };
    let ascii: String = name.chars().map(plain).collect();
    let value = format!("attachment; filename=\"{ascii}\"; filename*=UTF-8''{}", url_name(name));
    // All that is left is printable ASCII.
    HeaderValue::try_from(value).unwrap_or(HeaderValue::from_static("attachment"))
}

/// The type of a file by the ending of its name, from a list of those that a browser shows or plays but never runs.
pub(crate) fn media_type(name: &str) -> &'static str {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    match ending.as_deref().unwrap_or_default() {
        "txt" | "log" | "md" | "diff" | "patch" => "text/plain; charset=utf-8",
        "csv" => "text/csv; charset=utf-8",
        "json" => "application/json",
        "pdf" => "application/pdf",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "zip" => "application/zip",
        "gz" | "tgz" => "application/gzip",
        "tar" => "application/x-tar",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dl_08_nothing_that_runs_has_a_type_of_its_own() {
        for name in ["x.html", "x.HTM", "x.svg", "x.xhtml", "x.xml", "x.js", "x", "x.", ".html", "x.png.html"]
        {
            assert_eq!(media_type(name), "application/octet-stream", "{name}");
        }
        assert_eq!(media_type("x.html.TXT"), "text/plain; charset=utf-8");
        assert_eq!(media_type("a.tar.gz"), "application/gzip");
    }

    #[test]
    fn names_stay_names() {
        assert_eq!(attachment("a b.txt"), "attachment; filename=\"a b.txt\"; filename*=UTF-8''a%20b.txt");
        assert_eq!(
            attachment("na\u{ef}ve \u{20ac}.txt"),
            "attachment; filename=\"na_ve _.txt\"; filename*=UTF-8''na%C3%AFve%20%E2%82%AC.txt"
        );
        let odd = attachment("a\"; filename=evil.exe\r\nSet-Cookie: x=y\\\0/%41");
        assert_eq!(
            odd,
            "attachment; filename=\"a_; filename=evil.exe__Set-Cookie: x=y____41\"; \
             filename*=UTF-8''a%22%3B%20filename%3Devil%2Eexe%0D%0ASet-Cookie%3A%20x%3Dy%5C%00%2F%2541"
                .replace("%2E", ".")
        );
        assert_eq!(url_name("a/b?c#d e%.tar.gz"), "a%2Fb%3Fc%23d%20e%25.tar.gz");
    }
}
