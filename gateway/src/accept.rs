//! What form of answer a client takes. The protocol wants both media types named; clients that name one, or none, are
//! served in the form that they take.

use http::{HeaderMap, header::ACCEPT};

/// The forms a client takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accept {
    pub(crate) json: bool,
    pub(crate) events: bool,
}

impl Accept {
    /// Reads the header. `None` when it names neither form.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(ACCEPT).iter().peekable();
        if values.peek().is_none() {
            return Some(Self { json: true, events: true });
        }
        let mut accept = Self { json: false, events: false };
        for range in values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default().to_ascii_lowercase();
            if parts.any(is_refusal) {
                continue;
            }
            accept.json |= matches!(name.as_str(), "application/json" | "application/*" | "*/*");
            accept.events |= matches!(name.as_str(), "text/event-stream" | "text/*" | "*/*");
        }
        (accept.json || accept.events).then_some(accept)
    }
}

/// Whether a parameter is a weight of zero.
fn is_refusal(parameter: &str) -> bool {
    let weight = parameter.strip_prefix("q=").or_else(|| parameter.strip_prefix("Q="));
    weight.is_some_and(|weight| weight.parse().is_ok_and(|weight: f32| weight == 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_06_every_form_of_the_header() {
        let of = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(ACCEPT, value.parse().unwrap());
            }
            Accept::of(&headers).map(|accept| (accept.json, accept.events))
        };
        assert_eq!(of(&["application/json, text/event-stream"]), Some((true, true)));
        assert_eq!(of(&["text/event-stream,application/json;q=0.5"]), Some((true, true)));
        assert_eq!(of(&["application/json", "text/event-stream"]), Some((true, true)));
        assert_eq!(of(&["application/json"]), Some((true, false)));
        assert_eq!(of(&["application/*"]), Some((true, false)));
        assert_eq!(of(&["Text/Event-Stream"]), Some((false, true)));
        assert_eq!(of(&["*/*"]), Some((true, true)));
        assert_eq!(of(&[]), Some((true, true)));
        assert_eq!(of(&["text/html"]), None);
        assert_eq!(of(&["application/json;q=0, text/event-stream"]), Some((false, true)));
    }
}
