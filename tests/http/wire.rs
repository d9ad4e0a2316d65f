//! Requests in both eras of the protocol, and their answers as they arrive.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::world::TOKEN;

/// The two ways to speak MCP over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    Until2025,
    From2026,
}

/// An answer that is on its way.
pub(crate) struct Arriving {
    pub(crate) response: reqwest::Response,
    start: Instant,
    /// Time to the first byte of the body.
    pub(crate) first: Option<Duration>,
    text: String,
}

/// Sends a call to the gateway at `base` and returns when the headers of the answer are there.
pub(crate) async fn send(base: &str, era: Era, tool: &str, arguments: Value, progress: bool) -> Arriving {
    let mut params = json!({ "name": tool, "arguments": arguments, "_meta": {} });
    if progress {
        params["_meta"]["progressToken"] = json!("token");
    }
    let mut request = reqwest::Client::builder()
        .no_proxy()
        .build()
        .unwrap()
        .post(format!("{base}/mcp"))
        .header("X-Sandbox-Token", TOKEN)
        .header("Accept", "application/json, text/event-stream")
        .header("Accept-Encoding", "gzip, br");
    if era == Era::From2026 {
        request = request
            .header("MCP-Protocol-Version", "2026-07-28")
            .header("Mcp-Method", "tools/call")
            .header("Mcp-Name", tool);
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        params["_meta"]["io.modelcontextprotocol/clientInfo"] = json!({ "name": "test", "version": "1" });
    }
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
    let start = Instant::now();
    let response = request.json(&body).send().await.unwrap();
    assert_eq!(response.status(), 200);
    Arriving { response, start, first: None, text: String::new() }
}

impl Arriving {
    /// Waits for more of the body; `false` at its end.
    pub(crate) async fn more(&mut self) -> bool {
        let Some(piece) = self.response.chunk().await.unwrap() else { return false };
        self.first.get_or_insert(self.start.elapsed());
        self.text.push_str(std::str::from_utf8(&piece).unwrap());
        true
    }

    /// Comments that came so far.
    pub(crate) fn comments(&self) -> usize {
        self.text.lines().filter(|line| line.starts_with(':')).count()
    }

    /// Messages that came so far.
    pub(crate) fn messages(&self) -> Vec<Value> {
        let data = self.text.lines().filter_map(|line| line.strip_prefix("data:"));
        data.filter(|data| !data.trim().is_empty()).map(|data| serde_json::from_str(data).unwrap()).collect()
    }

    /// Progress that was told so far.
    pub(crate) fn progress(&self) -> usize {
        self.messages().iter().filter(|message| message["method"] == json!("notifications/progress")).count()
    }

    /// The result, when all has come.
    pub(crate) async fn result(mut self) -> Value {
        while self.more().await {}
        let last = self.messages().pop();
        // What is quick comes as plain JSON.
        last.unwrap_or_else(|| serde_json::from_str(&self.text).unwrap())["result"].clone()
    }
}
