//! `runlet ps`: what runs, in all workspaces.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};
use unicode_width::UnicodeWidthChar;

use crate::gateway::{Connection, Failure, Gateway};
use crate::say;

/// How long ago is lately.
const LATELY: Duration = Duration::days(1);

/// How long a job can run at most.
const LONGEST_JOB: Duration = Duration::days(1);

/// Columns of the command where the terminal leaves fewer.
const LEAST_COMMAND: usize = 10;

const HEADINGS: [&str; 5] = ["ID", "KIND", "WORKSPACE", "STATUS", "AGE"];

/// List the jobs and terminals that run.
#[derive(Debug, Args)]
pub(crate) struct Ps {
    #[command(flatten)]
    connection: Connection,
    /// Also what ended in the last day
    #[arg(short, long)]
    all: bool,
    /// Of this workspace only, by its id or name
    #[arg(long, value_name = "ID_OR_NAME")]
    workspace: Option<String>,
    /// Print the records of the tools instead
    #[arg(long)]
    json: bool,
}

impl Ps {
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        let gateway = self.connection.open()?;
        let mut jobs = self.jobs(&gateway).await?;
        let mut terminals = self.terminals(&gateway).await?;
        if self.json {
            say(&format!("{:#}", json!({ "jobs": jobs, "terminals": terminals })));
            return Ok(ExitCode::SUCCESS);
        }
        let workspaces = gateway.all("list_workspaces", "workspaces", json!({})).await?;
        let names: HashMap<&str, &str> = workspaces
            .iter()
            .filter_map(|workspace| Some((workspace["workspace_id"].as_str()?, workspace["name"].as_str()?)))
            .collect();
        jobs.append(&mut terminals);
        // Times have one form and one zone, so that they sort as text.
        jobs.sort_by(|one, other| text(other, "started_at").cmp(text(one, "started_at")));
        let now = OffsetDateTime::now_utc();
        let rows: Vec<_> = jobs.iter().map(|record| Row::of(record, &names, now)).collect();
        let width = rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| size.ws_col);
        say(table(&rows, width.filter(|&width| width > 0).map(usize::from)).trim_end());
        Ok(ExitCode::SUCCESS)
    }

    async fn jobs(&self, gateway: &Gateway) -> Result<Vec<Value>, Failure> {
        let asked = |status: Option<&str>| json!({ "workspace_id": self.workspace, "status": status });
        let mut jobs = gateway.all("list_jobs", "jobs", asked(Some("running"))).await?;
        if self.all {
            let now = OffsetDateTime::now_utc();
            // They come by the time of their start, newest first.
            let goes_on = |page: &[Value]| {
                let oldest = page.last().and_then(|job| time_of(job, "started_at"));
                oldest.is_none_or(|oldest| now - oldest < LATELY + LONGEST_JOB)
            };
            let others = gateway.pages("list_jobs", "jobs", asked(None), goes_on).await?;
            let running: std::collections::HashSet<String> =
                jobs.iter().map(|job| text(job, "job_id").to_owned()).collect();
            let wanted = |job: &Value| {
                time_of(job, "ended_at").is_some_and(|end| now - end < LATELY)
                    && !running.contains(text(job, "job_id"))
            };
            jobs.extend(others.into_iter().filter(wanted));
        }
        Ok(jobs)
    }

    async fn terminals(&self, gateway: &Gateway) -> Result<Vec<Value>, Failure> {
        let mut answer = gateway.call("list_terminals", json!({ "workspace_id": self.workspace })).await?;
        let Value::Array(mut terminals) = answer["terminals"].take() else { return Ok(Vec::new()) };
        terminals.retain(|terminal| self.all || terminal["status"] == "running");
        Ok(terminals)
    }
}

/// A line: five short cells, and the command.
struct Row {
    cells: [String; 5],
    command: String,
}

impl Row {
    fn of(record: &Value, names: &HashMap<&str, &str>, now: OffsetDateTime) -> Self {
        let (id, kind) = match record["terminal_id"].as_str() {
            Some(id) => (id, "terminal"),
            None => (text(record, "job_id"), "job"),
        };
        let workspace = text(record, "workspace_id");
        let workspace = names.get(workspace).copied().unwrap_or(workspace);
        let age = time_of(record, "started_at").map_or_else(|| "-".to_owned(), |start| age(now - start));
        let mut command = String::new();
        if let Some(name) = record["name"].as_str() {
            let _ = write!(command, "[{name}] ");
        }
        command.push_str(record["command"].as_str().unwrap_or("bash"));
        let cells = [id.to_owned(), kind.to_owned(), visible(workspace), status(record), age];
        Self { cells, command: visible(&command) }
    }
}

/// `running`, `exited 1`, `killed TERM`.
pub(crate) fn status(record: &Value) -> String {
    let status = text(record, "status");
    match status {
        "exited" => format!("exited {}", record["exit_code"].as_i64().unwrap_or_default()),
        "killed" => format!("killed {}", text(record, "signal")),
        _ => status.replace('_', " "),
    }
}

fn text<'a>(record: &'a Value, key: &str) -> &'a str {
    record[key].as_str().unwrap_or_default()
}

fn time_of(record: &Value, key: &str) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(record[key].as_str()?, &Rfc3339).ok()
}

/// Two digits or so: `12s`, `5m`, `3h`, `2d`.
fn age(time: Duration) -> String {
    match time.whole_seconds().max(0) {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7_200 => format!("{}m", seconds / 60),
        seconds @ 7_200..172_800 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// The text in one line, in which nothing acts on the terminal: control characters and those that turn the direction of
/// writing stand as escapes.
fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        let turns =
            matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if character.is_control() || turns {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// The lines under their headings, cut to a width if there is one.
fn table(rows: &[Row], width: Option<usize>) -> String {
    let columns: [usize; 5] = std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| columns_of(&row.cells[column]));
        cells.chain([HEADINGS[column].len()]).max().unwrap_or_default()
    });
    let room = width.map(|width| width.saturating_sub(columns.iter().map(|column| column + 2).sum()));
    let mut table = String::new();
    let mut line = |cells: [&str; 5], command: &str| {
        for (cell, column) in cells.into_iter().zip(columns) {
            let _ = write!(table, "{cell}{:1$}", "", column + 2 - columns_of(cell));
        }
        table.push_str(&cut(command, room.map(|room| room.max(LEAST_COMMAND))));
        table.push('\n');
    };
    line(HEADINGS, "COMMAND");
    for row in rows {
        line(std::array::from_fn(|column| row.cells[column].as_str()), &row.command);
    }
    table
}

fn columns_of(text: &str) -> usize {
    unicode_width::UnicodeWidthStr::width(text)
}

/// As much of a text as has room, with a mark where it was cut.
fn cut(text: &str, room: Option<usize>) -> String {
    let Some(room) = room.filter(|&room| columns_of(text) > room) else { return text.to_owned() };
    let (mut shown, mut used) = (String::new(), 1);
    for character in text.chars() {
        used += character.width().unwrap_or_default();
        if used > room {
            break;
        }
        shown.push(character);
    }
    shown.push('…');
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_aligned_cut_and_harmless() {
        let now = OffsetDateTime::parse("2026-11-30T08:05:00.000Z", &Rfc3339).unwrap();
        let job = json!({
            "job_id": "job_a", "workspace_id": "ws_a", "status": "running", "started_at": "2026-11-30T08:00:00.000Z",
            "command": "printf '\u{1b}[2J日本語'\nsleep 1000",
        });
        let terminal = json!({
            "terminal_id": "term_a", "workspace_id": "ws_b", "status": "exited", "exit_code": 3, "name": "dev",
            "started_at": "2026-11-30T07:00:00.000Z", "command": null,
        });
        let names = HashMap::from([("ws_b", "build")]);
        let rows = [Row::of(&job, &names, now), Row::of(&terminal, &names, now)];
        assert_eq!(
            table(&rows, Some(60)),
            "ID      KIND      WORKSPACE  STATUS    AGE  COMMAND\n\
             job_a   job       ws_a       running   5m   printf '\\u{1b}[…\n\
             term_a  terminal  build      exited 3  65m  [dev] bash\n"
        );
        assert!(table(&rows, None).contains("printf '\\u{1b}[2J日本語'\\nsleep 1000\n"));
    }

    #[test]
    fn wide_characters_are_not_cut_in_the_middle() {
        assert_eq!(
            [cut("日本語", Some(6)), cut("日本語", Some(5)), cut("日本語", Some(4))],
            ["日本語", "日本…", "日…"]
        );
    }

    #[test]
    fn ages() {
        let ages =
            [0, 119, 120, 7_199, 7_200, 172_799, 172_800].map(|seconds| age(Duration::seconds(seconds)));
        assert_eq!(ages, ["0s", "119s", "2m", "119m", "2h", "47h", "2d"]);
    }
}
