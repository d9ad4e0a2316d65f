//! Terminals through the tools: opening one, typing, looking, waiting for its end.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{Client, wait};

impl Client {
    /// Opens a terminal with a command and returns it with its first screen.
    pub async fn open(&self, workspace: &str, command: &str) -> Value {
        self.open_with(workspace, json!({ "command": command })).await
    }

    /// Opens a terminal with further arguments.
    pub async fn open_with(&self, workspace: &str, more: Value) -> Value {
        let mut arguments = more;
        arguments["workspace_id"] = json!(workspace);
        self.call("open_terminal", arguments).await.expect()
    }

    /// Types with further arguments and returns what there is to see.
    pub async fn send(&self, terminal: &Value, more: Value) -> Value {
        let mut arguments = more;
        arguments["terminal_id"] = terminal["terminal_id"].clone();
        self.call("send_input", arguments).await.expect()
    }

    /// Types a line, and waits until `until` matches on the screen.
    #[track_caller]
    pub fn enter(&self, terminal: &Value, text: &str, until: &str) -> impl Future<Output = Value> + use<> {
        let (client, terminal, caller) = (self.clone(), terminal.clone(), std::panic::Location::caller());
        let input = json!({ "text": text, "keys": ["Enter"], "until": until, "wait_seconds": 15 });
        async move {
            let seen = client.send(&terminal, input).await;
            assert_eq!(seen["matched"], true, "{caller}: no match of the pattern on:\n{}", shown(&seen));
            seen
        }
    }

    /// Presses keys, and waits until `until` matches on the screen.
    #[track_caller]
    pub fn press(&self, terminal: &Value, keys: &[&str], until: &str) -> impl Future<Output = Value> + use<> {
        let (client, terminal, caller) = (self.clone(), terminal.clone(), std::panic::Location::caller());
        let input = json!({ "keys": keys, "until": until, "wait_seconds": 15 });
        async move {
            let seen = client.send(&terminal, input).await;
            assert_eq!(seen["matched"], true, "{caller}: no match of the pattern on:\n{}", shown(&seen));
            seen
        }
    }

    /// Looks at a terminal with further arguments.
    pub async fn look(&self, terminal: &Value, more: Value) -> Value {
        let mut arguments = more;
        arguments["terminal_id"] = terminal["terminal_id"].clone();
        self.call("read_terminal", arguments).await.expect()
    }

    /// Everything that a terminal's programs have written, cleaned.
    pub async fn written(&self, terminal: &Value) -> String {
        let mut all = String::new();
        let mut cursor = json!(0);
        loop {
            let read = self.look(terminal, json!({ "view": "output", "cursor": cursor })).await;
            all.push_str(read["output"].as_str().unwrap());
            if read["next_cursor"] == cursor {
                return all;
            }
            cursor = read["next_cursor"].clone();
        }
    }

    /// Waits until a terminal's program has ended and returns it.
    pub async fn terminal_ended(&self, terminal: &Value) -> Value {
        let mut seen = Value::Null;
        wait::until("the end of a terminal", Duration::from_secs(30), async || {
            // No screen matches this, so the call returns at the end.
            seen = self.look(terminal, json!({ "until": r"[^\s\S]", "wait_seconds": 20 })).await;
            seen["status"] != json!("running")
        })
        .await;
        seen
    }

    /// Closes a terminal and returns it.
    pub async fn close(&self, terminal: &Value) -> Value {
        self.call("close_terminal", json!({ "terminal_id": terminal["terminal_id"] })).await.expect()
    }
}

/// The screen of what was seen.
pub fn shown(seen: &Value) -> &str {
    seen["screen"].as_str().unwrap_or_default()
}

/// Opens an interactive bash whose prompt is `% `, and waits for it.
pub async fn shell(client: &Client, workspace: &str) -> Value {
    let terminal = client.open(workspace, "PS1='% ' exec bash --norc -i").await;
    client.look(&terminal, json!({ "until": "^% $", "wait_seconds": 10 })).await;
    terminal
}
