//! How files, changes, listings and matches look.

use std::fmt::Write as _;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use runlet_proto::v1::{
    EditFileResponse, ListFilesResponse, SearchFilesResponse,
    list_files_response::{Entry, Kind},
    read_file_response::Header,
};
use serde_json::{Value, json};

use crate::{
    path,
    reply::{Reply, break_line, counted, filled, grouped, time_text},
};

/// Most bytes of text that lines of a file come in: hosts cut or set aside what is longer.
pub(super) const MAX_TEXT_BYTES: usize = 64 << 10;

/// A part of a file. `asked` is the path as the caller gave it.
pub(super) fn content(asked: &str, header: &Header, mut content: Vec<u8>, base64: bool) -> Reply {
    let by_lines = header.start_line > 0;
    let whole = content.len();
    if by_lines && whole > MAX_TEXT_BYTES {
        let last = content[..MAX_TEXT_BYTES].iter().rposition(|byte| *byte == b'\n');
        content.truncate(last.map_or(MAX_TEXT_BYTES, |last| last + 1));
    }
    let cut = content.len() < whole;
    let lines = if cut { newlines(&content) } else { header.line_count };
    let end = header.offset + content.len() as u64;

    let mut facts = path::to_text(&header.path);
    if by_lines && lines > 0 {
        let _ = write!(facts, " · lines {}–{}", header.start_line, header.start_line + lines - 1);
        if let Some(total) = header.total_lines {
            let _ = write!(facts, " of {total}");
        }
    } else {
        let _ = write!(facts, " · bytes {}–{}", grouped(header.offset), grouped(end));
        if let Some(total) = header.total_lines.filter(|_| by_lines) {
            let _ = write!(facts, " · {}", counted(total, "line"));
        }
    }
    let _ = write!(facts, " · {}", counted(header.size_bytes, "byte"));
    if !header.sha256.is_empty() {
        let _ = write!(facts, " · sha256 {}", header.sha256);
    }
    if matches!(header.line_ending.as_str(), "crlf" | "mixed") {
        let _ = write!(facts, " · line endings {}", header.line_ending);
    }
    if header.byte_order_mark {
        facts.push_str(" · starts with a byte order mark, left out here");
    }
    let (body, odd) = if base64 { (BASE64.encode(&content), false) } else { path::visible(&content) };
    if odd {
        facts.push_str(" · bytes that are not text stand as \\xNN; encoding=\"base64\" returns them exactly");
    }
    let mut text = format!("{facts}\n{body}");
    let next = rest(header, &content, lines, cut);
    if let Some(call) = &next {
        break_line(&mut text);
        let _ = writeln!(text, "[more; read_file(path={}, {call}) reads on]", Value::from(asked));
    }
    let encoding = if base64 { "base64" } else { "utf-8" };
    let object = json!({
        "path": path::to_text(&header.path),
        "content": body,
        "encoding": encoding,
        "exact": !odd,
        "start_line": by_lines.then_some(header.start_line),
        "line_count": by_lines.then_some(lines),
        "total_lines": header.total_lines,
        "offset": header.offset,
        "length": content.len(),
        "bytes": header.size_bytes,
        "sha256": filled(header.sha256.clone()),
        "line_ending": header.line_ending,
        "byte_order_mark": header.byte_order_mark,
        "mode": format!("{:04o}", header.mode),
        "truncated": next.is_some(),
    });
    Reply::Text(text, object)
}

fn newlines(content: &[u8]) -> u64 {
    content.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// The arguments that read on, if there is more.
fn rest(header: &Header, content: &[u8], lines: u64, cut: bool) -> Option<String> {
    let end = header.offset + content.len() as u64;
    if header.start_line == 0 {
        return (end < header.size_bytes && !content.is_empty())
            .then(|| format!("offset={end}, length={}", content.len()));
    }
    if cut && lines == 0 {
        // A line longer than the text may be.
        return Some(format!("offset={end}, length={MAX_TEXT_BYTES}"));
    }
    let next = header.start_line + lines;
    let more =
        cut || (lines > 0 && header.total_lines.map_or(end < header.size_bytes, |total| next <= total));
    more.then(|| format!("start_line={next}"))
}

/// A change.
pub(super) fn edited(answer: &EditFileResponse) -> Reply {
    let name = path::to_text(&answer.path);
    let mut text = format!(
        "{name} · {} · {} · sha256 {}\n{}",
        counted(answer.replacements, "replacement"),
        counted(answer.size_bytes, "byte"),
        answer.sha256,
        answer.diff
    );
    break_line(&mut text);
    if answer.diff_truncated {
        text.push_str("[the diff is longer and was cut; every edit was made]\n");
    }
    let object = json!({
        "path": name,
        "sha256": answer.sha256,
        "bytes": answer.size_bytes,
        "replacements": answer.replacements,
        "diff": answer.diff,
        "truncated": answer.diff_truncated,
    });
    Reply::Text(text, object)
}

/// A page of a listing.
pub(super) fn listed(answer: ListFilesResponse) -> Reply {
    let entries: Vec<Value> = answer.entries.iter().map(entry).collect();
    let mut object = json!({
        "path": path::to_text(&answer.path),
        "entries": entries,
        "next_page_token": filled(answer.next_page_token),
    });
    if answer.incomplete {
        object["incomplete"] = "stopped at its limit of entries or time; list a smaller directory".into();
    }
    Reply::Record(object)
}

fn entry(entry: &Entry) -> Value {
    let kind = match entry.kind() {
        Kind::File => "file",
        Kind::Directory => "directory",
        Kind::Symlink => "symlink",
        Kind::Other | Kind::Unspecified => "other",
    };
    let mut object = json!({ "path": path::to_text(&entry.path), "kind": kind });
    if entry.kind() == Kind::File {
        object["bytes"] = entry.size_bytes.into();
        let time = prost_types::Timestamp { seconds: entry.modify_time_seconds, nanos: 0 };
        object["modified_at"] = time_text(Some(&time)).into();
        if entry.mode & 0o111 != 0 {
            object["executable"] = true.into();
        }
    }
    if entry.kind() == Kind::Symlink {
        object["target"] = path::to_text(&entry.link_target).into();
    }
    object
}

/// A page of matches, as ripgrep writes them: `path:line:text`, and `path-line-text` for context.
pub(super) fn found(answer: SearchFilesResponse) -> Reply {
    let matches = answer.lines.iter().filter(|line| line.is_match).count() as u64;
    let mut text = format!(
        "{} · {} searched",
        counted(matches, "matching line"),
        counted(answer.searched_files, "file")
    );
    if answer.binary_files > 0 {
        let _ = write!(text, " · {} passed over", counted(answer.binary_files, "binary file"));
    }
    if answer.incomplete {
        text.push_str(" · stopped at its time limit; search a smaller directory or by glob");
    }
    text.push('\n');
    let mut before: Option<(&[u8], u64)> = None;
    let has_context = answer.lines.iter().any(|line| !line.is_match);
    for line in &answer.lines {
        let follows = before.is_none_or(|(path, number)| path == line.path && number + 1 == line.line_number);
        if has_context && !follows {
            text.push_str("--\n");
        }
        before = Some((&line.path, line.line_number));
        let mark = if line.is_match { ':' } else { '-' };
        let _ = writeln!(text, "{}{mark}{}{mark}{}", path::to_text(&line.path), line.line_number, line.text);
    }
    if !answer.next_page_token.is_empty() {
        let _ =
            writeln!(text, "[more; the same call with page_token=\"{}\" reads on]", answer.next_page_token);
    }
    let lines: Vec<Value> = answer
        .lines
        .iter()
        .map(|line| {
            json!({
                "path": path::to_text(&line.path),
                "line": line.line_number,
                "text": line.text,
                "is_match": line.is_match,
            })
        })
        .collect();
    let object = json!({
        "lines": lines,
        "next_page_token": filled(answer.next_page_token),
        "searched_files": answer.searched_files,
        "binary_files": answer.binary_files,
        "incomplete": answer.incomplete,
    });
    Reply::Text(text, object)
}

#[cfg(test)]
mod tests {
    use runlet_proto::v1::search_files_response::Line;

    use super::*;

    fn header(lines: u64, total_lines: u64, size: u64) -> Header {
        Header {
            path: "/ws/work/f".into(),
            size_bytes: size,
            sha256: "ab".to_owned(),
            start_line: 1,
            line_count: lines,
            total_lines: Some(total_lines),
            line_ending: "lf".to_owned(),
            ..Header::default()
        }
    }

    fn parts(reply: Reply) -> (String, Value) {
        match reply {
            Reply::Text(text, object) => (text, object),
            _ => panic!("expected text"),
        }
    }

    #[test]
    fn whole_file_is_its_facts_and_its_text() {
        let (text, object) = parts(content("f", &header(2, 2, 4), b"a\nb\n".to_vec(), false));
        assert_eq!(text, "/ws/work/f · lines 1–2 of 2 · 4 bytes · sha256 ab\na\nb\n");
        assert_eq!((&object["truncated"], &object["exact"]), (&json!(false), &json!(true)));
    }

    #[test]
    fn rest_of_a_file_is_named() {
        let (text, _) = parts(content("f", &header(1, 2, 4), b"a\n".to_vec(), false));
        assert!(text.ends_with("[more; read_file(path=\"f\", start_line=2) reads on]\n"), "{text}");
        let long = b"0123456\n".repeat(10_000);
        let (text, object) = parts(content("f", &header(10_000, 10_000, 80_000), long, false));
        assert!(
            text.ends_with("[more; read_file(path=\"f\", start_line=8193) reads on]\n"),
            "{}",
            &text[65_000..]
        );
        assert_eq!(object["line_count"], 8_192);
        let (text, _) = parts(content("f", &header(1, 1, 100_000), vec![b'x'; 100_000], false));
        assert!(text.ends_with("[more; read_file(path=\"f\", offset=65536, length=65536) reads on]\n"));
    }

    #[test]
    fn matches_look_like_those_of_ripgrep() {
        let line = |number, text: &str, is_match| Line {
            path: "src/a.rs".into(),
            line_number: number,
            text: text.to_owned(),
            is_match,
        };
        let answer = SearchFilesResponse {
            lines: vec![line(1, "fn a", true), line(2, "}", false), line(9, "fn b", true)],
            next_page_token: "t".to_owned(),
            searched_files: 3,
            binary_files: 1,
            incomplete: false,
        };
        let (text, _) = parts(found(answer));
        assert_eq!(
            text,
            "2 matching lines · 3 files searched · 1 binary file passed over\n\
             src/a.rs:1:fn a\nsrc/a.rs-2-}\n--\nsrc/a.rs:9:fn b\n\
             [more; the same call with page_token=\"t\" reads on]\n"
        );
    }
}
