//! `runlet mcp`: MCP on standard input and output, for clients that start their servers as programs. Every message goes to a
//! gateway over HTTP, and what that answers comes back; nothing is understood that need not be.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use crate::gateway::{Connection, Failure, Gateway};
use crate::up::Own;

/// Longest silence of a gateway that lives: it sends something every 5 s.
const SILENCE: Duration = Duration::from_secs(30);

/// How long a gateway may be away, as while it restarts.
const PATIENCE: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(200);

/// How long what is under way may take once there is nothing more to read: as long as the longest call.
const LAST_ANSWERS: Duration = Duration::from_secs(60);

/// Lines that are read ahead.
const LINES: usize = 16;

/// The version of the protocol, in messages of the generation that has no handshake.
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

/// Code of an error that is neither the client's nor a tool's.
const BRIDGE_ERROR: i64 = -32_000;

/// Serve MCP on standard input and output.
#[derive(Debug, Args)]
pub(crate) struct Mcp {
    #[command(flatten)]
    connection: Connection,
    /// Start the gateway and the executor for this client alone, and stop them with it, instead of using a gateway
    #[arg(long)]
    start: bool,
    /// User that jobs run as, with --start where this is root
    #[arg(long, env = "RUNLET_JOB_USER")]
    job_user: Option<String>,
}

impl Mcp {
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        let failed = |error| Failure::Unusable(format!("waiting for signals: {error}"));
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let own = if self.start {
            let root: PathBuf = self.connection.root.clone();
            Some(
                Own::start(root, self.job_user)
                    .await
                    .map_err(|problem| Failure::Unusable(problem.to_string()))?,
            )
        } else {
            None
        };
        let gateway = match &own {
            Some(own) => self.connection.open_at(&own.url)?,
            None => self.connection.open()?,
        };
        tokio::select! {
            () = bridge(gateway) => {}
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        if let Some(own) = own {
            own.stop().await;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Passes messages on until there are no more.
async fn bridge(gateway: Gateway) {
    let bridge = Arc::new(Bridge { gateway, version: Mutex::default(), under_way: Mutex::default() });
    let mut lines = lines();
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            line = lines.recv() => match line {
                Some(line) => bridge.take(line, &mut tasks).await,
                None => break,
            },
            Some(_ended) = tasks.join_next() => {}
        }
    }
    let _late =
        tokio::time::timeout(LAST_ANSWERS, async { while tasks.join_next().await.is_some() {} }).await;
}

/// Lines of standard input, read by a thread of its own, which nobody need wait for.
fn lines() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(LINES);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            match line {
                Ok(line) if line.trim().is_empty() => {}
                Ok(line) => {
                    if sender.blocking_send(line).is_err() {
                        return;
                    }
                }
                Err(error) => return crate::warn(&format!("reading standard input: {error}")),
            }
        }
    });
    receiver
}

struct Bridge {
    gateway: Gateway,
    /// What the handshake agreed on, in the generation that has one.
    version: Mutex<Option<HeaderValue>>,
    /// Requests that wait for their answers, by the text of their ids.
    under_way: Mutex<HashMap<String, AbortHandle>>,
}

impl Bridge {
    async fn take(self: &Arc<Self>, line: String, tasks: &mut JoinSet<()>) {
        let message: Value = match serde_json::from_str(&line) {
            Ok(message) => message,
            Err(error) => {
                let error = json!({ "code": -32_700, "message": format!("not a message of JSON: {error}") });
                return write(&json!({ "jsonrpc": "2.0", "id": null, "error": error }).to_string()).await;
            }
        };
        if message["method"] == "notifications/cancelled" {
            // Ending the wait is what the gateway understands by it.
            if let Some(waiting) = lock(&self.under_way).remove(&message["params"]["requestId"].to_string()) {
                waiting.abort();
            }
            return;
        }
        let id = message.get("id").filter(|id| !id.is_null()).cloned();
        let this = Arc::clone(self);
        let key = id.as_ref().map(Value::to_string);
        // The handshake's answer says what every later message needs.
        let is_handshake = message["method"] == "initialize";
        let task = {
            let key = key.clone();
            async move {
                if let Err(problem) = this.pass(&message, line, is_handshake).await
                    && let Some(id) = id
                {
                    let error = json!({ "code": BRIDGE_ERROR, "message": problem });
                    write(&json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string()).await;
                }
                if let Some(key) = key {
                    lock(&this.under_way).remove(&key);
                }
            }
        };
        if is_handshake {
            task.await;
            return;
        }
        let mut under_way = lock(&self.under_way);
        let handle = tasks.spawn(task);
        if let Some(key) = key {
            under_way.insert(key, handle);
        }
    }

    /// Sends a message and writes what is answered. An error is a sentence for the client.
    async fn pass(&self, message: &Value, line: String, is_handshake: bool) -> Result<(), String> {
        let mut response = self.send(message, &line).await?;
        let status = response.status();
        let kind =
            response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let is_stream = kind.starts_with("text/event-stream");
        let mut unread = Vec::new();
        let mut answered = false;
        while let Some(piece) = self.piece(&mut response).await? {
            // What came before was looked through before.
            let mut looked = unread.len();
            unread.extend_from_slice(&piece);
            while is_stream && let Some(end) = unread[looked..].iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = unread.drain(..=looked + end).collect();
                looked = 0;
                if let Some(data) = String::from_utf8_lossy(&line).strip_prefix("data:") {
                    answered |= self.answer(data.trim(), message, is_handshake).await;
                }
            }
        }
        if !is_stream {
            answered = self.answer(String::from_utf8_lossy(&unread).trim(), message, is_handshake).await;
        }
        if answered || (status.is_success() && message.get("id").is_none()) {
            return Ok(());
        }
        let said = serde_json::from_slice::<Value>(&unread).unwrap_or_default();
        let said =
            said["message"].as_str().unwrap_or("see whether the address and the token are right").to_owned();
        Err(format!("the gateway at {} answered HTTP {}: {said}", self.gateway.address(), status.as_u16()))
    }

    /// Writes a message of JSON-RPC; false for what is none.
    async fn answer(&self, text: &str, request: &Value, is_handshake: bool) -> bool {
        let Ok(mut message) = serde_json::from_str::<Value>(text) else { return false };
        if message["jsonrpc"] != "2.0" {
            return false;
        }
        // What is refused before it is read has no id. Here it is known whose answer it is.
        if message["error"].is_object() && message["id"].is_null() {
            message["id"] = request["id"].clone();
        }
        if is_handshake && let Some(version) = message["result"]["protocolVersion"].as_str() {
            *lock(&self.version) = HeaderValue::from_str(version).ok();
        }
        write(&message.to_string()).await;
        true
    }

    /// Sends a message; once more while nobody listens, for it has not arrived then.
    async fn send(&self, message: &Value, line: &str) -> Result<Response, String> {
        let until = Instant::now() + PATIENCE;
        loop {
            let request = self.with_headers(self.gateway.post(line.to_owned()), message);
            match tokio::time::timeout(SILENCE, request.send()).await {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(error)) if error.is_connect() && Instant::now() < until => {
                    tokio::time::sleep(PAUSE).await;
                }
                Ok(Err(error)) => return Err(self.gateway.unreached(&error).to_string()),
                Err(_elapsed) => return Err(self.silent()),
            }
        }
    }

    async fn piece(&self, response: &mut Response) -> Result<Option<Vec<u8>>, String> {
        match tokio::time::timeout(SILENCE, response.chunk()).await {
            Ok(Ok(piece)) => Ok(piece.map(|piece| piece.to_vec())),
            Ok(Err(error)) => Err(self.gateway.unreached(&error).to_string()),
            Err(_elapsed) => Err(self.silent()),
        }
    }

    fn silent(&self) -> String {
        format!("the gateway at {} said nothing for {} s", self.gateway.address(), SILENCE.as_secs())
    }

    /// What HTTP says beside the body, by the protocol's rules for either generation (basic/transports).
    fn with_headers(&self, request: RequestBuilder, message: &Value) -> RequestBuilder {
        let method = message["method"].as_str().unwrap_or_default();
        let params = &message["params"];
        match params["_meta"][VERSION_KEY].as_str() {
            Some(version) => {
                let name = match method {
                    "tools/call" | "prompts/get" => params["name"].as_str(),
                    "resources/read" => params["uri"].as_str(),
                    _ => None,
                };
                let request = request.header("MCP-Protocol-Version", version).header("Mcp-Method", method);
                name.into_iter().fold(request, |request, name| request.header("Mcp-Name", name))
            }
            None => match lock(&self.version).clone() {
                Some(version) => request.header("MCP-Protocol-Version", version),
                None => request,
            },
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a message as a line, whole. A client that is gone needs no answer; the end of its input follows.
async fn write(message: &str) {
    let line = format!("{message}\n");
    let writing = tokio::task::spawn_blocking(move || {
        let mut output = std::io::stdout().lock();
        output.write_all(line.as_bytes()).and_then(|()| output.flush())
    });
    let _written = writing.await;
}
