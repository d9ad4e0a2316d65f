//! How terminals and what there is to see of them look: the line of facts, then the screen or the output; and the same as
//! an object.

use std::fmt::Write as _;

use runlet_proto::v1::{Output, Screen, Sight, Terminal, sight::Content, terminal::State};
use serde_json::{Map, Value, json};

use crate::reply::{
    LogCalls, LogKind, Reply, break_line, counted, coverage, fields, filled, grouped, joined, push_output,
    raw_base64, seconds, shown_command, time_text,
};

/// What a caller asked for.
#[derive(Default)]
pub(super) struct Asked {
    pub(super) cursor: Option<u64>,
    pub(super) until: bool,
    pub(super) raw: bool,
    /// Bytes of the input that were taken, and that there were.
    pub(super) typed: Option<(u64, u64)>,
}

/// A terminal as a record.
pub(crate) fn terminal_record(terminal: &Terminal) -> Map<String, Value> {
    let object = json!({
        "terminal_id": terminal.terminal_id,
        "workspace_id": terminal.workspace_id,
        "name": filled(terminal.name.clone()),
        "command": filled(shown_command(&terminal.command)),
        "status": status(terminal.state()),
        "exit_code": terminal.exit_code,
        "signal": filled(terminal.signal.clone()),
        "cols": terminal.columns,
        "rows": terminal.rows,
        "total_bytes": terminal.output_bytes,
        "started_at": time_text(terminal.start_time.as_ref()),
        "ended_at": time_text(terminal.end_time.as_ref()),
        "duration_seconds": seconds(terminal.duration.as_ref()),
        "cpu_seconds": seconds(terminal.cpu_time.as_ref()),
        "max_rss_bytes": terminal.max_rss_bytes,
        "leftover_processes": terminal.leftover_processes,
    });
    fields(object)
}

fn status(state: State) -> &'static str {
    match state {
        State::Unspecified => "unknown",
        State::Running => "running",
        State::Exited => "exited",
        State::Killed => "killed",
        State::Lost => "lost",
    }
}

/// The answer of a tool that shows nothing but what became of the terminal.
pub(super) fn told(terminal: &Terminal, ended_processes: Option<u32>) -> Reply {
    let mut text = state_phrase(terminal);
    let mut object = terminal_record(terminal);
    if let Some(ended) = ended_processes {
        let _ = write!(text, " · {} ended by closing it", counted(u64::from(ended), "process"));
        object.insert("ended_processes".to_owned(), ended.into());
    }
    text.push('\n');
    Reply::Text(text, Value::Object(object))
}

/// The answer of a tool that shows something of the terminal.
pub(super) fn seen(sight: Sight, asked: &Asked) -> Reply {
    let Sight { terminal, content, matched } = sight;
    let terminal = terminal.unwrap_or_default();
    let mut text = state_phrase(&terminal);
    let mut object = terminal_record(&terminal);
    if asked.until {
        text.push_str(if matched { " · until matched" } else { " · until has not matched" });
        object.insert("matched".to_owned(), matched.into());
    }
    if let Some((accepted, given)) = asked.typed {
        object.insert("accepted_bytes".to_owned(), accepted.into());
        object.insert("truncated_input".to_owned(), (accepted < given).into());
    }
    match content {
        Some(Content::Screen(screen)) => push_screen(&mut text, &mut object, &screen, &terminal, asked),
        Some(Content::Output(output)) => push_log(&mut text, &mut object, &output, &terminal, asked),
        Some(Content::Image(bytes)) => {
            text.push_str(" · a picture of the screen\n");
            push_remarks(&mut text, &terminal, asked);
            object.insert("mime_type".to_owned(), "image/png".into());
            return Reply::Image {
                text,
                object: Value::Object(object),
                bytes,
                mime_type: "image/png".to_owned(),
            };
        }
        None => text.push('\n'),
    }
    Reply::Text(text, Value::Object(object))
}

fn push_screen(
    text: &mut String,
    object: &mut Map<String, Value>,
    screen: &Screen,
    terminal: &Terminal,
    asked: &Asked,
) {
    let (row, column) = (screen.cursor_row, screen.cursor_column);
    let hidden = if screen.cursor_visible { "" } else { " (hidden)" };
    let _ = write!(text, " · cursor at row {row}, column {column}{hidden} · next_cursor {}", screen.offset);
    if screen.alternate {
        text.push_str(" · full-screen program");
    }
    if !screen.title.is_empty() {
        let _ = write!(text, " · title {:?}", screen.title);
    }
    text.push('\n');
    push_remarks(text, terminal, asked);
    text.push_str(&screen.text);
    break_line(text);
    object.insert("screen".to_owned(), screen.text.clone().into());
    let cursor = json!({ "row": row, "column": column, "visible": screen.cursor_visible });
    object.insert("cursor".to_owned(), cursor);
    object.insert("alternate_screen".to_owned(), screen.alternate.into());
    object.insert("title".to_owned(), filled(screen.title.clone()).into());
    object.insert("next_cursor".to_owned(), screen.offset.into());
}

fn push_log(
    text: &mut String,
    object: &mut Map<String, Value>,
    output: &Output,
    terminal: &Terminal,
    asked: &Asked,
) {
    let calls = LogCalls { id: &terminal.terminal_id, kind: LogKind::Terminal };
    let first = output.pieces.first().map_or(output.next_cursor, |piece| piece.start);
    let start = asked.cursor.unwrap_or(first);
    let (from, to, total) = (grouped(first), grouped(output.next_cursor), grouped(output.total_bytes));
    let _ = writeln!(text, " · bytes {from}–{to} of {total}");
    push_remarks(text, terminal, asked);
    if asked.raw {
        let raw = raw_base64(output);
        let _ = writeln!(text, "base64: {raw}");
        object.insert("output_base64".to_owned(), raw.into());
    } else {
        push_output(text, output, start, &calls);
        object.insert("output".to_owned(), joined(output).into());
    }
    break_line(text);
    if terminal.state() == State::Running {
        let wait = calls.read_from(output.next_cursor, ", wait_seconds=50");
        let _ = writeln!(text, "[still running; {wait} reads on]");
    } else if output.next_cursor < output.total_bytes {
        let _ = writeln!(text, "[more; {} reads on]", calls.read_from(output.next_cursor, ""));
    }
    object.insert("next_cursor".to_owned(), output.next_cursor.into());
    object.insert("truncated".to_owned(), coverage(output, start).1.into());
    object.insert("lost_bytes".to_owned(), output.lost_bytes.into());
    object.insert("end".to_owned(), output.end.into());
}

/// `term_7f3k2m9qd4ra running, 120×32`
fn state_phrase(terminal: &Terminal) -> String {
    let id = &terminal.terminal_id;
    let time = format!("{:.1} s", seconds(terminal.duration.as_ref()).unwrap_or_default());
    let size = format!("{}×{}", terminal.columns, terminal.rows);
    let code = terminal.exit_code.map(|code| format!(" (exit code {code})")).unwrap_or_default();
    match terminal.state() {
        State::Unspecified => format!("{id} is in a state that this gateway does not know"),
        State::Running => format!("{id} is running, {size}"),
        State::Exited => format!("{id} exited {} in {time}", terminal.exit_code.unwrap_or_default()),
        State::Killed => format!("{id} was ended by signal {}{code} after {time}", terminal.signal),
        State::Lost => format!("{id} was lost: the executor stopped while it ran; its output so far is kept"),
    }
}

fn push_remarks(text: &mut String, terminal: &Terminal, asked: &Asked) {
    if let Some((accepted, given)) = asked.typed.filter(|(accepted, given)| accepted < given) {
        let (accepted, given) = (grouped(accepted), counted(given, "byte"));
        let _ = writeln!(
            text,
            "[the terminal took the first {accepted} of {given}: the program does not read; send the rest when it does]"
        );
    }
    if terminal.leftover_processes > 0 {
        let count = counted(u64::from(terminal.leftover_processes), "process");
        let _ = writeln!(text, "[{count} that it started still running; close_terminal ends them]");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terminal(state: State) -> Terminal {
        Terminal {
            terminal_id: "term_a".to_owned(),
            state: state.into(),
            exit_code: (state == State::Exited).then_some(3),
            columns: 120,
            rows: 32,
            output_bytes: 9,
            ..Terminal::default()
        }
    }

    fn screen(text: &str) -> Option<Content> {
        let screen = Screen {
            text: text.to_owned(),
            cursor_row: 1,
            cursor_column: 3,
            cursor_visible: true,
            offset: 9,
            ..Screen::default()
        };
        Some(Content::Screen(screen))
    }

    #[test]
    fn a_screen_is_a_line_of_facts_and_its_rows() {
        let sight = Sight { terminal: Some(terminal(State::Running)), content: screen("$ "), matched: true };
        let Reply::Text(text, object) = seen(sight, &Asked { until: true, ..Asked::default() }) else {
            panic!("expected text")
        };
        assert_eq!(
            text,
            "term_a is running, 120×32 · until matched · cursor at row 1, column 3 · next_cursor 9\n$ \n"
        );
        assert_eq!((&object["screen"], &object["matched"]), (&json!("$ "), &json!(true)));
        assert_eq!((&object["next_cursor"], &object["status"]), (&json!(9), &json!("running")));
    }

    #[test]
    fn input_that_was_not_taken_is_told() {
        let sight = Sight { terminal: Some(terminal(State::Exited)), content: screen(""), matched: false };
        let asked = Asked { typed: Some((4_096, 1 << 20)), ..Asked::default() };
        let Reply::Text(text, object) = seen(sight, &asked) else { panic!("expected text") };
        assert!(text.starts_with("term_a exited 3 in 0.0 s"), "{text}");
        assert!(text.contains("took the first 4,096 of 1,048,576 bytes"), "{text}");
        assert_eq!(object["truncated_input"], true);
    }
}
