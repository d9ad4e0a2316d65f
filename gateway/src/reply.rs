//! What tools answer, in the two forms that hosts need: text first for output, a record for the rest. Here is how
//! numbers, times, names and output look in text; what a tool answers is the tool's matter.

use std::fmt::Write as _;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use bytes::Bytes;
use prost_types::Timestamp;
use rmcp::model::{CallToolResult, ContentBlock, ImageContent, MetaObject, Resource};
use runlet_proto::v1::{Output, output::Piece};
use serde_json::{Map, Value};
use time::{OffsetDateTime, format_description::FormatItem, macros::format_description};

/// Key under which a result's `_meta` holds the typed object of a tool that answers with text, for programs.
pub(crate) const RESULT_META_KEY: &str = "runlet/result";

/// Characters of a command that a record shows.
const COMMAND_CHARS: usize = 200;

/// What a tool answers.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Text that holds everything, and the same as an object.
    Text(String, Value),
    /// An object, which is also the text.
    Record(Value),
    /// A picture after its text, and what is known of it as an object. The picture stands in the content alone.
    Image { text: String, object: Value, bytes: Bytes, mime_type: String },
    /// As `Text`, and a link beside it, for hosts that make something of one.
    Link {
        /// Holds everything, the link's URL too.
        text: String,
        object: Value,
        link: Box<Resource>,
    },
}

/// Key under which a picture's `_meta` tells Codex not to shrink it.
const DETAIL_META_KEY: &str = "codex/imageDetail";

impl Reply {
    /// The result of the tool.
    pub(crate) fn into_result(self) -> CallToolResult {
        match self {
            Self::Text(text, object) => text_first(vec![ContentBlock::text(text)], object),
            Self::Link { text, object, link } => {
                text_first(vec![ContentBlock::text(text), ContentBlock::resource_link(*link)], object)
            }
            Self::Record(object) => CallToolResult::structured(object),
            Self::Image { text, object, bytes, mime_type } => {
                let mut detail = MetaObject::default();
                detail.insert(DETAIL_META_KEY.to_owned(), "high".into());
                let image = ImageContent::new(BASE64.encode(&bytes), mime_type).with_meta(detail);
                text_first(vec![ContentBlock::text(text), ContentBlock::Image(image)], object)
            }
        }
    }
}

fn text_first(content: Vec<ContentBlock>, object: Value) -> CallToolResult {
    let mut meta = MetaObject::default();
    meta.insert(RESULT_META_KEY.to_owned(), object);
    CallToolResult::success(content).with_meta(Some(meta))
}

/// `1234567` as `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `2 bytes`, `1 byte`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 {
        ""
    } else if noun.ends_with("ch") || noun.ends_with("ss") {
        "es"
    } else {
        "s"
    };
    format!("{} {noun}{plural}", grouped(number))
}

/// A size in bytes to two digits or three, as people say it: `412 KB`, `3.1 MB`.
pub(crate) fn size_text(bytes: u64) -> String {
    let tenths = |unit: u64| (bytes * 10 + unit / 2) / unit;
    match bytes {
        0..1_000 => counted(bytes, "byte"),
        1_000..9_950 => format!("{}.{} KB", tenths(1_000) / 10, tenths(1_000) % 10),
        9_950..999_500 => format!("{} KB", (bytes + 500) / 1_000),
        _ => format!("{}.{} MB", grouped(tenths(1_000_000) / 10), tenths(1_000_000) % 10),
    }
}

/// A point in time in RFC 3339, UTC, to the millisecond.
pub(crate) fn time_text(time: Option<&Timestamp>) -> Option<String> {
    const FORMAT: &[FormatItem<'_>] =
        format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
    let time = time?;
    let nanos = i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos);
    OffsetDateTime::from_unix_timestamp_nanos(nanos).ok()?.format(FORMAT).ok()
}

/// The fields of an object, for more to be added.
pub(crate) fn fields(object: Value) -> Map<String, Value> {
    match object {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// Seconds to the millisecond.
pub(crate) fn seconds(duration: Option<&prost_types::Duration>) -> Option<f64> {
    let duration = duration?;
    let millis = duration.seconds.saturating_mul(1_000).saturating_add(i64::from(duration.nanos / 1_000_000));
    Some(f64::from(u32::try_from(millis.max(0)).unwrap_or(u32::MAX)) / 1_000.0)
}

/// A duration of whole seconds for the wire.
pub(crate) fn wire_seconds(seconds: u32) -> prost_types::Duration {
    prost_types::Duration { seconds: i64::from(seconds), nanos: 0 }
}

/// A command as records show it: its beginning, where it is long.
pub(crate) fn shown_command(command: &str) -> String {
    let mut shown: String = command.chars().take(COMMAND_CHARS).collect();
    if shown.len() < command.len() {
        shown.push('…');
    }
    shown
}

/// A text that may be empty, as a value that is null then.
pub(crate) fn filled(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// Whose log, and which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogKind {
    JobOutput,
    JobStderr,
    Terminal,
}

/// How to get on in a log.
pub(crate) struct LogCalls<'a> {
    pub(crate) id: &'a str,
    pub(crate) kind: LogKind,
}

impl LogCalls<'_> {
    /// The call that reads from `cursor` on.
    pub(crate) fn read_from(&self, cursor: u64, more: &str) -> String {
        let id = self.id;
        match self.kind {
            LogKind::JobOutput => format!("read_output(job_id=\"{id}\", cursor={cursor}{more})"),
            LogKind::JobStderr => {
                format!("read_output(job_id=\"{id}\", cursor={cursor}, stream=\"stderr\"{more})")
            }
            LogKind::Terminal => {
                format!("read_terminal(terminal_id=\"{id}\", view=\"output\", cursor={cursor}{more})")
            }
        }
    }

    /// The call that reads the bytes from `cursor` on as they are.
    fn read_raw(&self, cursor: u64) -> String {
        match self.kind {
            LogKind::JobOutput | LogKind::JobStderr => self.read_from(cursor, ", raw=true"),
            LogKind::Terminal => {
                format!("read_terminal(terminal_id=\"{}\", view=\"raw\", cursor={cursor})", self.id)
            }
        }
    }
}

/// Bytes of `output` that are shown, and whether something between `start` and the end of the log is not.
pub(crate) fn coverage(output: &Output, start: u64) -> (u64, bool) {
    let shown = output.pieces.iter().map(|piece| piece.end - piece.start).sum::<u64>();
    (shown, start + shown < output.total_bytes)
}

/// Which of the bytes from `start` to the end of the log are shown, for the line of facts: empty when all are.
pub(crate) fn shown(output: &Output, start: u64) -> String {
    if !coverage(output, start).1 {
        return String::new();
    }
    match output.pieces.as_slice() {
        [] => ", none shown".to_owned(),
        [piece] if piece.start == 0 => format!(", first {} shown", grouped(piece.end)),
        [piece] if piece.end == output.total_bytes => {
            format!(", last {} shown", grouped(piece.end - piece.start))
        }
        [first, last] if first.start == 0 && last.end == output.total_bytes => {
            format!(", first {} and last {} shown", grouped(first.end), grouped(last.end - last.start))
        }
        [first, .., last] | [first @ last] => {
            format!(", from byte {} to {} shown", grouped(first.start), grouped(last.end))
        }
    }
}

/// Appends the text of `output`, read from `start` on, with every gap named. Ends with a line break.
pub(crate) fn push_output(text: &mut String, output: &Output, start: u64, calls: &LogCalls<'_>) {
    if output.binary {
        let _ = writeln!(text, "[binary data, not shown; {} returns it as base64]", calls.read_raw(start));
    } else {
        push_pieces(text, output, start, calls);
    }
}

fn push_pieces(text: &mut String, output: &Output, start: u64, calls: &LogCalls<'_>) {
    let mut at = start;
    for Piece { start, end, text: piece, .. } in &output.pieces {
        if *start > at {
            break_line(text);
            let lost = match output.lost_bytes {
                0 => format!("; {} reads them", calls.read_from(at, "")),
                lost if lost >= start - at => ", no longer kept".to_owned(),
                lost => format!(
                    ", {} of them no longer kept; {} reads the rest",
                    grouped(lost),
                    calls.read_from(at, "")
                ),
            };
            let _ = writeln!(text, "[… {} left out{lost}]", counted(start - at, "byte"));
        }
        text.push_str(piece);
        at = *end;
    }
    break_line(text);
    if output.pieces.is_empty() && output.lost_bytes > 0 {
        let _ = writeln!(
            text,
            "[… {} from byte {} on no longer kept]",
            counted(output.lost_bytes, "byte"),
            grouped(start)
        );
    }
}

/// The bytes of `output` as they are, in base64.
pub(crate) fn raw_base64(output: &Output) -> String {
    let raw: Vec<u8> = output.pieces.iter().flat_map(|piece| piece.raw.iter().copied()).collect();
    BASE64.encode(raw)
}

/// Ends the last line, if it has not ended.
pub(crate) fn break_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

/// All texts of `output`, one after the other.
pub(crate) fn joined(output: &Output) -> String {
    output.pieces.iter().map(|piece| piece.text.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(start: u64, text: &str) -> Piece {
        Piece { start, end: start + text.len() as u64, text: text.to_owned(), raw: bytes::Bytes::new() }
    }

    #[test]
    fn numbers_and_times() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(counted(1, "byte"), "1 byte");
        assert_eq!(counted(2_000, "match"), "2,000 matches");
        assert_eq!(counted(2, "process"), "2 processes");
        assert_eq!(
            [1, 999, 1_000, 9_949, 9_950, 411_700, 999_500, 3_149_999, 67_108_864].map(size_text),
            ["1 byte", "999 bytes", "1.0 KB", "9.9 KB", "10 KB", "412 KB", "1.0 MB", "3.1 MB", "67.1 MB"]
        );
        let time = Timestamp { seconds: 1_796_025_600, nanos: 5_000_000 };
        assert_eq!(time_text(Some(&time)).as_deref(), Some("2026-11-30T08:00:00.005Z"));
        assert_eq!(seconds(Some(&prost_types::Duration { seconds: 2, nanos: 712_999_999 })), Some(2.712));
    }

    #[test]
    fn picture_stands_in_the_content_alone_and_once() {
        let reply = Reply::Image {
            text: "a.png".to_owned(),
            object: serde_json::json!({ "width": 1 }),
            bytes: Bytes::from_static(b"picture"),
            mime_type: "image/png".to_owned(),
        };
        let result = serde_json::to_value(reply.into_result()).unwrap();
        assert_eq!(result["content"][0]["text"], "a.png");
        let image = &result["content"][1];
        assert_eq!((&image["type"], &image["mimeType"]), (&"image".into(), &"image/png".into()));
        assert_eq!(
            (&image["data"], &image["_meta"][DETAIL_META_KEY]),
            (&"cGljdHVyZQ==".into(), &"high".into())
        );
        assert_eq!(result["_meta"][RESULT_META_KEY]["width"], 1);
        assert_eq!(result["structuredContent"], Value::Null);
        assert_eq!(result.to_string().matches("cGljdHVyZQ").count(), 1);
    }

    #[test]
    fn gap_is_named_with_the_call_that_reads_it() {
        let calls = LogCalls { id: "job_a", kind: LogKind::JobOutput };
        let mut output = Output {
            pieces: vec![piece(0, "head\n"), piece(105, "tail")],
            next_cursor: 109,
            total_bytes: 109,
            end: true,
            ..Output::default()
        };
        let mut text = String::new();
        push_output(&mut text, &output, 0, &calls);
        assert_eq!(
            text,
            "head\n[… 100 bytes left out; read_output(job_id=\"job_a\", cursor=5) reads them]\ntail\n"
        );
        assert_eq!(shown(&output, 0), ", first 5 and last 4 shown");
        output.lost_bytes = 100;
        text.clear();
        push_output(&mut text, &output, 0, &calls);
        assert_eq!(text, "head\n[… 100 bytes left out, no longer kept]\ntail\n");
    }

    #[test]
    fn nothing_kept_from_a_cursor_on_is_named() {
        let calls = LogCalls { id: "job_a", kind: LogKind::JobOutput };
        let output = Output {
            total_bytes: 1_109,
            next_cursor: 1_109,
            lost_bytes: 1_009,
            end: true,
            ..Output::default()
        };
        let mut text = String::new();
        push_output(&mut text, &output, 100, &calls);
        assert_eq!(text, "[… 1,009 bytes from byte 100 on no longer kept]\n");
    }

    #[test]
    fn whole_output_has_no_remark() {
        let output = Output {
            pieces: vec![piece(0, "hi\n")],
            total_bytes: 3,
            next_cursor: 3,
            end: true,
            ..Output::default()
        };
        assert_eq!(shown(&output, 0), "");
        assert_eq!(coverage(&output, 0), (3, false));
    }
}
