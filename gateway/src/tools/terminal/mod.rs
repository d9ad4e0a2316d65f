//! Terminals: open one, type into it, look at it, end it, list them.

mod render;

use std::collections::BTreeMap;

use runlet_proto::v1::{
    self, CloseTerminalRequest, ListTerminalsRequest, OpenTerminalRequest, ReadTerminalRequest,
    ResizeTerminalRequest, SendInputRequest,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{ANSWER_TIME, Context, Effect, Offered, Tool, with_wait};
use crate::{
    executor::{Repeat, terminals},
    failure::Failure,
    reply::{Reply, wire_seconds},
};

pub(super) use render::terminal_record;

pub(super) fn tools() -> Vec<Offered> {
    vec![
        Offered::new::<OpenTerminal>("terminals"),
        Offered::new::<SendInput>("terminals"),
        Offered::new::<ReadTerminal>("terminals"),
        Offered::new::<ResizeTerminal>("terminals"),
        Offered::new::<CloseTerminal>("terminals"),
        Offered::new::<ListTerminals>("terminals"),
    ]
}

/// Bytes of text in an answer.
const MAX_OUTPUT_BYTES: u32 = 24_000;

/// Opens a terminal for programs that need one: editors, debuggers, REPLs, prompts. It lives until its program ends or
/// close_terminal.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OpenTerminal {
    workspace_id: String,
    /// Default: an interactive bash
    command: Option<String>,
    #[serde(default = "cols")]
    #[schemars(range(min = 2, max = 500))]
    cols: u32,
    #[serde(default = "rows")]
    #[schemars(range(min = 1, max = 300))]
    rows: u32,
    cwd: Option<String>,
    env: Option<BTreeMap<String, String>>,
    /// Works as id
    name: Option<String>,
}

fn cols() -> u32 {
    120
}

fn rows() -> u32 {
    32
}

impl Tool for OpenTerminal {
    const NAME: &'static str = "open_terminal";
    const TITLE: &'static str = "Open a terminal";
    const EFFECT: Effect = Effect { open_world: true, ..Effect::CHANGES };

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let message = OpenTerminalRequest {
            principal: context.principal(),
            workspace_id: self.workspace_id,
            command: self.command.unwrap_or_default(),
            columns: self.cols,
            rows: self.rows,
            cwd: self.cwd.unwrap_or_default(),
            env: self.env.unwrap_or_default().into_iter().collect(),
            name: self.name.unwrap_or_default(),
        };
        let send = |channel, request| async move { terminals(channel).open_terminal(request).await };
        let answer = context.link.call(message, ANSWER_TIME, Repeat::Unsent, send).await?;
        Ok(render::seen(answer.sight.unwrap_or_default(), &render::Asked::default()))
    }
}

#[derive(Deserialize, Serialize, JsonSchema, Clone, Copy, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum View {
    #[default]
    Screen,
    Output,
    Scrollback,
    Image,
    Drawn,
    Raw,
}

impl From<View> for v1::View {
    fn from(view: View) -> Self {
        match view {
            View::Screen => Self::Screen,
            View::Output => Self::Output,
            View::Scrollback => Self::Scrollback,
            View::Image => Self::Image,
            View::Drawn => Self::Drawn,
            View::Raw => Self::Raw,
        }
    }
}

/// Types into a terminal: text as it is, then paste, then keys. Returns the screen once it is quiet, or until matches.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SendInput {
    terminal_id: String,
    /// Enter is not added: give it as a key
    text: Option<String>,
    /// Such as Enter, Tab, Escape, Up, C-c, M-x, F5
    keys: Option<Vec<String>>,
    /// Several lines as one paste
    paste: Option<String>,
    #[serde(default = "wait_seconds")]
    #[schemars(range(min = 0, max = 50))]
    wait_seconds: u32,
    /// Regex on the screen
    until: Option<String>,
    #[serde(default)]
    view: View,
}

fn wait_seconds() -> u32 {
    1
}

impl Tool for SendInput {
    const NAME: &'static str = "send_input";
    const TITLE: &'static str = "Type into a terminal";
    const EFFECT: Effect = Effect { open_world: true, ..Effect::CHANGES };

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let message = SendInputRequest {
            principal: context.principal(),
            terminal_id: self.terminal_id,
            text: self.text.unwrap_or_default(),
            paste: self.paste.unwrap_or_default(),
            keys: self.keys.unwrap_or_default(),
            wait: Some(wire_seconds(self.wait_seconds)),
            until: self.until.clone().unwrap_or_default(),
            view: v1::View::from(self.view).into(),
            max_output_bytes: MAX_OUTPUT_BYTES,
        };
        let send = |channel, request| async move { terminals(channel).send_input(request).await };
        let answer = context.link.call(message, with_wait(self.wait_seconds), Repeat::Unsent, send).await?;
        let asked = render::Asked {
            until: self.until.is_some(),
            raw: self.view == View::Raw,
            typed: Some((answer.accepted_bytes, answer.input_bytes)),
            ..render::Asked::default()
        };
        Ok(render::seen(answer.sight.unwrap_or_default(), &asked))
    }
}

/// Looks at a terminal: its screen, its output from a cursor on, its scrollback, or a picture. With wait_seconds it waits
/// for something new, or for until to match. Works after the end too.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadTerminal {
    terminal_id: String,
    /// drawn: the screen with its escape sequences. raw: the output in base64
    #[serde(default)]
    view: View,
    /// Byte offset in the output; default: its end
    cursor: Option<u64>,
    #[serde(default)]
    #[schemars(range(min = 0, max = 50))]
    wait_seconds: u32,
    /// Regex on the screen, or on the output after cursor
    until: Option<String>,
}

impl Tool for ReadTerminal {
    const NAME: &'static str = "read_terminal";
    const TITLE: &'static str = "Look at a terminal";
    const EFFECT: Effect = Effect::READS;

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let message = ReadTerminalRequest {
            terminal_id: self.terminal_id,
            view: v1::View::from(self.view).into(),
            cursor: self.cursor,
            wait: Some(wire_seconds(self.wait_seconds)),
            until: self.until.clone().unwrap_or_default(),
            max_output_bytes: MAX_OUTPUT_BYTES,
        };
        let send = |channel, request| async move { terminals(channel).read_terminal(request).await };
        let answer = context.link.call(message, with_wait(self.wait_seconds), Repeat::Always, send).await?;
        let asked = render::Asked {
            cursor: self.cursor,
            until: self.until.is_some(),
            raw: self.view == View::Raw,
            typed: None,
        };
        Ok(render::seen(answer.sight.unwrap_or_default(), &asked))
    }
}

/// Changes a terminal's size, of which its program is told.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ResizeTerminal {
    terminal_id: String,
    #[schemars(range(min = 2, max = 500))]
    cols: u32,
    #[schemars(range(min = 1, max = 300))]
    rows: u32,
}

impl Tool for ResizeTerminal {
    const NAME: &'static str = "resize_terminal";
    const TITLE: &'static str = "Resize a terminal";
    const EFFECT: Effect = Effect { read_only: false, ..Effect::READS };

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let message = ResizeTerminalRequest {
            principal: context.principal(),
            terminal_id: self.terminal_id,
            columns: self.cols,
            rows: self.rows,
        };
        let send = |channel, request| async move { terminals(channel).resize_terminal(request).await };
        let answer = context.link.call(message, ANSWER_TIME, Repeat::Always, send).await?;
        Ok(render::told(&answer.terminal.unwrap_or_default(), None))
    }
}

/// Ends a terminal with all that runs in it, without typing anything.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CloseTerminal {
    terminal_id: String,
}

impl Tool for CloseTerminal {
    const NAME: &'static str = "close_terminal";
    const TITLE: &'static str = "Close a terminal";
    const EFFECT: Effect = Effect::REMOVES;

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let message = CloseTerminalRequest { principal: context.principal(), terminal_id: self.terminal_id };
        let send = |channel, request| async move { terminals(channel).close_terminal(request).await };
        let answer = context.link.call(message, ANSWER_TIME, Repeat::Always, send).await?;
        Ok(render::told(&answer.terminal.unwrap_or_default(), Some(answer.ended_processes)))
    }
}

/// Lists terminals that live, then those that ended in the last day.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListTerminals {
    workspace_id: Option<String>,
}

impl Tool for ListTerminals {
    const NAME: &'static str = "list_terminals";
    const TITLE: &'static str = "List terminals";
    const EFFECT: Effect = Effect::READS;
    const RECORD: &'static [(&'static str, &'static str)] = &[("terminals", "array")];

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let message = ListTerminalsRequest { workspace_id: self.workspace_id.unwrap_or_default() };
        let send = |channel, request| async move { terminals(channel).list_terminals(request).await };
        let answer = context.link.call(message, ANSWER_TIME, Repeat::Always, send).await?;
        let rows: Vec<_> = answer.terminals.iter().map(terminal_record).collect();
        Ok(Reply::Record(json!({ "terminals": rows })))
    }
}
