//! A real gateway on a port of its own, and the plainest client.

use std::{
    ffi::OsString,
    net::SocketAddr,
    path::PathBuf,
    time::{Duration, Instant},
};

use runlet_gateway::{Config, Order};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";

pub(crate) const MODERN: [&str; 2] =
    ["MCP-Protocol-Version: 2026-07-28", "Accept: application/json, text/event-stream"];

/// What each request of the era from 2026-07-28 on says about itself.
pub(crate) fn modern_meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
    })
}

pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    pub(crate) directory: tempfile::TempDir,
    pub(crate) stop: CancellationToken,
    pub(crate) serving: JoinHandle<()>,
}

impl Gateway {
    /// Starts one without an executor, with these flags beside those it needs.
    pub(crate) async fn start(flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let executor = format!("--executor=unix:{}", directory.path().join("executor.sock").display());
        let config = config(&[&[executor.as_str()], flags].concat());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let serving = tokio::spawn(runlet_gateway::serve(listener, &config, stop.clone()).unwrap());
        Self { address, directory, stop, serving }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("executor.sock")
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends bytes as they are, reads until the end.
    pub(crate) async fn raw(&self, request: &[u8]) -> Answer {
        let mut stream = self.connect().await;
        let start = Instant::now();
        // A refusal may come before all has been sent.
        let _sent = stream.write_all(request).await;
        let mut bytes = Vec::new();
        let mut first = None;
        let mut buffer = [0; 65536];
        while let Ok(read @ 1..) = stream.read(&mut buffer).await {
            first.get_or_insert_with(|| start.elapsed());
            bytes.extend_from_slice(&buffer[..read]);
        }
        Answer::parse(&bytes, first.unwrap_or_default())
    }

    /// A request with these headers beside Host, Connection and Content-Length.
    pub(crate) async fn send(&self, method: &str, target: &str, headers: &[&str], body: &str) -> Answer {
        let host =
            if headers.iter().any(|header| header.starts_with("Host:")) { "" } else { "Host: localhost\r\n" };
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let length = body.len();
        let head = format!(
            "{method} {target} HTTP/1.1\r\n{host}Connection: close\r\nContent-Length: {length}\r\n{headers}\r\n"
        );
        self.raw(&[head.as_bytes(), body.as_bytes()].concat()).await
    }

    /// A message as a client of the era before 2026-07-28 sends it.
    pub(crate) async fn post(&self, message: &Value) -> Answer {
        self.post_with(&[], message).await
    }

    pub(crate) async fn post_with(&self, headers: &[&str], message: &Value) -> Answer {
        let token = format!("X-Sandbox-Token: {TOKEN}");
        let usual = [token.as_str(), "Content-Type: application/json"];
        self.send("POST", "/mcp", &[&usual, headers].concat(), &message.to_string()).await
    }

    /// Calls a tool and returns its result.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Value {
        let params = json!({ "name": tool, "arguments": arguments });
        let answer = self.post(&request("tools/call", params)).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.message()["result"].clone()
    }
}

pub(crate) fn config(flags: &[&str]) -> Config {
    let arguments = ["runlet-gateway"].iter().chain(flags).map(OsString::from);
    match Order::read(arguments, Some(TOKEN.into())).unwrap() {
        Order::Serve(config) => *config,
        other => panic!("expected settings, got {other:?}"),
    }
}

pub(crate) fn request(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params })
}

/// The text of a tool's result.
pub(crate) fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
    /// Time to the first byte.
    pub(crate) first: Duration,
}

impl Answer {
    fn parse(bytes: &[u8], first: Duration) -> Self {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let head = head.to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        let body =
            if head.contains("transfer-encoding: chunked") { unchunked(body) } else { body.to_owned() };
        Self { status, head, body, first }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The message, whether it came as JSON or as the last event of a stream.
    pub(crate) fn message(&self) -> Value {
        if !self.head.contains("text/event-stream") {
            return self.json();
        }
        let data = self.body.lines().rev().find_map(|line| line.strip_prefix("data:"));
        serde_json::from_str(data.unwrap_or_else(|| panic!("no event in {}", self.body))).unwrap()
    }
}

fn unchunked(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, tail)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        body.push_str(&tail[..size]);
        rest = tail[size..].strip_prefix("\r\n").unwrap_or_default();
    }
    body
}
