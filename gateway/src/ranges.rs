//! Which part of a file a request asks for (RFC 9110, section 14). One range at most is served; whatever asks for more,
//! or makes no sense, gets the whole file, as the RFC has it.

use http::{
    HeaderMap, HeaderName,
    header::{IF_RANGE, RANGE},
};

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// All of it.
    Whole,
    /// These bytes, of which there is one at least.
    Part { offset: u64, length: u64 },
    /// Bytes that the file does not have.
    Beyond,
}

/// What a request with these headers asks of a file of `size` bytes with this strong `etag`.
pub(crate) fn asked(headers: &HeaderMap, etag: &str, size: u64) -> Asked {
    let Some(range) = single(headers, RANGE) else { return Asked::Whole };
    // A weak tag or a date does not say that the bytes are the same.
    if headers.contains_key(IF_RANGE) && single(headers, IF_RANGE) != Some(etag) {
        return Asked::Whole;
    }
    part(range, size).unwrap_or(Asked::Whole)
}

fn single(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?.to_str().ok()?;
    values.next().is_none().then(|| first.trim_ascii())
}

/// The one range of bytes in a header, or none where there is not just one that makes sense.
fn part(range: &str, size: u64) -> Option<Asked> {
    let (unit, range) = range.split_once('=')?;
    let (first, last) = range.trim_ascii().split_once('-')?;
    if !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (offset, end) = match (first, last) {
        ("", last) => (size.saturating_sub(number(last)?), size),
        (first, "") => (number(first)?, size),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return None;
            }
            (first, last.saturating_add(1).min(size))
        }
    };
    if offset >= size { Some(Asked::Beyond) } else { Some(Asked::Part { offset, length: end - offset }) }
}

/// A number in digits alone. One too large for any file is the largest.
fn number(digits: &str) -> Option<u64> {
    let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    const ETAG: &str = "\"e\"";

    fn of(pairs: &[(HeaderName, &str)], size: u64) -> Asked {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        asked(&headers, ETAG, size)
    }

    fn range(value: &str, size: u64) -> Asked {
        of(&[(RANGE, value)], size)
    }

    const fn bytes(offset: u64, length: u64) -> Asked {
        Asked::Part { offset, length }
    }

    #[test]
    fn dl_01_no_range_of_an_empty_file() {
        assert_eq!(of(&[], 0), Asked::Whole);
        for value in ["bytes=0-", "bytes=-5", "bytes=0-0"] {
            assert_eq!(range(value, 0), Asked::Beyond, "{value}");
        }
    }

    #[test]
    fn dl_02_ranges_of_five_bytes() {
        for (value, right) in [
            ("bytes=0-3145727", bytes(0, 5)),
            ("bytes=5-", Asked::Beyond),
            ("bytes=4-", bytes(4, 1)),
            ("bytes=-10", bytes(0, 5)),
            ("bytes=-2", bytes(3, 2)),
            ("bytes=-0", Asked::Beyond),
            ("bytes=3-2", Asked::Whole),
            ("bytes=x", Asked::Whole),
            ("items=0-1", Asked::Whole),
            ("bytes=1-3", bytes(1, 3)),
            ("Bytes=1-3", bytes(1, 3)),
            ("bytes=1-18446744073709551615", bytes(1, 4)),
            ("bytes=1-99999999999999999999999", bytes(1, 4)),
            ("bytes=99999999999999999999999-", Asked::Beyond),
            ("bytes=-99999999999999999999999", bytes(0, 5)),
            ("bytes=+1-3", Asked::Whole),
            ("bytes=1-3x", Asked::Whole),
            ("bytes=-", Asked::Whole),
            ("bytes", Asked::Whole),
        ] {
            assert_eq!(range(value, 5), right, "{value}");
        }
        assert_eq!(of(&[(RANGE, "bytes=0-0"), (RANGE, "bytes=1-1")], 5), Asked::Whole);
    }

    #[test]
    fn dl_04_many_ranges_are_the_whole_file_at_once() {
        let many = format!("bytes={}", vec!["0-0"; 10_000].join(","));
        let start = std::time::Instant::now();
        for value in ["bytes=0-0,2-2", "bytes=0-3,1-4", "bytes=0-0,", many.as_str()] {
            assert_eq!(range(value, 5), Asked::Whole);
        }
        assert!(start.elapsed().as_millis() < 100);
    }

    #[test]
    fn dl_05_only_the_same_strong_tag_gives_a_part() {
        let with = |tag| of(&[(RANGE, "bytes=1-"), (IF_RANGE, tag)], 5);
        assert_eq!(with(ETAG), bytes(1, 4));
        for other in ["\"other\"", "W/\"e\"", "e", "Mon, 30 Nov 2026 08:00:00 GMT", ""] {
            assert_eq!(with(other), Asked::Whole, "{other}");
        }
    }

    proptest! {
        #[test]
        fn a_range_is_what_counting_its_bytes_says(first: Option<u8>, last: Option<u8>, size in 0_u64..64) {
            let digits = |number: Option<u8>| number.map(|number| number.to_string()).unwrap_or_default();
            let (first, last) = (first.map(|n| n % 80), last.map(|n| n % 80));
            let wanted = |place: u64| match (first, last) {
                (Some(first), Some(last)) => (u64::from(first)..=u64::from(last)).contains(&place),
                (Some(first), None) => place >= u64::from(first),
                (None, Some(last)) => place + u64::from(last) >= size,
                (None, None) => false,
            };
            let places: Vec<u64> = (0..size).filter(|place| wanted(*place)).collect();
            let senseless = match (first, last) {
                (Some(first), Some(last)) => last < first,
                (None, None) => true,
                _ => false,
            };
            let right = match (senseless, places.first()) {
                (true, _) => Asked::Whole,
                (false, None) => Asked::Beyond,
                (false, Some(offset)) => bytes(*offset, places.len() as u64),
            };
            prop_assert_eq!(range(&format!("bytes={}-{}", digits(first), digits(last)), size), right);
        }

        #[test]
        fn no_header_panics_or_leads_past_the_end(value in "\\PC{0,40}", size: u64) {
            if let Ok(value) = HeaderValue::from_str(&value) {
                let mut headers = HeaderMap::new();
                headers.insert(RANGE, value);
                if let Asked::Part { offset, length } = asked(&headers, ETAG, size) {
                    prop_assert!(length > 0 && offset.checked_add(length).is_some_and(|end| end <= size));
                }
            }
        }
    }
}
