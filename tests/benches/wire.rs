//! A client that costs as little as one can: a connection kept alive, a body made beforehand, an answer searched for one
//! text. It knows nothing of what the calls mean.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use support::world::TOKEN;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::table::median;

/// A request that is sent again and again.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    method: Method,
    path: &'static str,
    body: Bytes,
    /// What every answer must hold.
    expected: &'static str,
}

impl Call {
    /// A request to MCP whose answer must hold `expected`.
    pub(crate) fn mcp(method: &str, params: &Value, expected: &'static str) -> Self {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        Self { method: Method::POST, path: "/mcp", body: body.to_string().into(), expected }
    }

    /// A call of a tool whose answer must hold `expected`.
    pub(crate) fn tool(name: &str, arguments: &Value, expected: &'static str) -> Self {
        Self::mcp("tools/call", &json!({ "name": name, "arguments": arguments }), expected)
    }

    /// A question about health.
    pub(crate) fn get(path: &'static str) -> Self {
        Self { method: Method::GET, path, body: Bytes::new(), expected: "" }
    }
}

/// A connection that is kept alive.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    host: String,
}

impl Connection {
    /// Connects to a server that listens.
    pub(crate) async fn open(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).await.expect("the server listens")).await
    }

    /// Uses a connection that is there.
    pub(crate) async fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        let host = stream.peer_addr().unwrap().to_string();
        let (sender, driver) = handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(driver);
        Self { sender, host }
    }

    /// Sends a request and waits for the whole answer, which must be what was expected.
    pub(crate) async fn send(&mut self, call: &Call) {
        let (status, body) = self.exchange(call).await;
        let text = std::str::from_utf8(&body).unwrap();
        assert!(status == 200 && text.contains(call.expected), "{status} {text}");
    }

    /// Sends a request and returns the answer.
    pub(crate) async fn exchange(&mut self, call: &Call) -> (StatusCode, Bytes) {
        let request = Request::builder()
            .method(&call.method)
            .uri(call.path)
            .header("Host", &self.host)
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream")
            .header("X-Sandbox-Token", TOKEN)
            .body(Full::new(call.body.clone()))
            .unwrap();
        self.sender.ready().await.expect("the connection stays open");
        let (head, body) = self.sender.send_request(request).await.expect("an answer").into_parts();
        (head.status, body.collect().await.expect("a whole answer").to_bytes())
    }

    /// Milliseconds that one call takes.
    pub(crate) async fn time(&mut self, call: &Call) -> f64 {
        let start = Instant::now();
        self.send(call).await;
        milliseconds(start.elapsed())
    }

    /// The median of so many calls, one after the other, in milliseconds.
    pub(crate) async fn median(&mut self, call: &Call, calls: usize) -> f64 {
        let mut times = Vec::with_capacity(calls);
        for _ in 0..calls {
            times.push(self.time(call).await);
        }
        median(times)
    }
}

/// Several connections that are used at once.
#[derive(Debug)]
pub(crate) struct Crowd {
    connections: Vec<Connection>,
}

impl Crowd {
    /// Opens so many connections to one server.
    pub(crate) async fn open(address: SocketAddr, clients: usize) -> Self {
        let mut connections = Vec::with_capacity(clients);
        for _ in 0..clients {
            connections.push(Connection::open(address).await);
        }
        Self { connections }
    }

    /// Calls for a while, each connection one call after the other; returns the calls per second.
    pub(crate) async fn rate(&mut self, call: &Call, time: Duration) -> f64 {
        let start = Instant::now();
        let calls = self.each(call, move |_| start.elapsed() < time).await;
        f64::from(calls) / start.elapsed().as_secs_f64()
    }

    /// Makes so many calls on each connection.
    pub(crate) async fn times(&mut self, call: &Call, calls: u32) {
        self.each(call, move |made| made < calls).await;
    }

    async fn each(&mut self, call: &Call, more: impl Fn(u32) -> bool + Copy + Send + 'static) -> u32 {
        let mut running = JoinSet::new();
        for mut connection in self.connections.drain(..) {
            let call = call.clone();
            running.spawn(async move {
                let mut made = 0;
                while more(made) {
                    connection.send(&call).await;
                    made += 1;
                }
                (connection, made)
            });
        }
        let ended = running.join_all().await;
        ended
            .into_iter()
            .map(|(connection, made)| {
                self.connections.push(connection);
                made
            })
            .sum()
    }
}

/// A time as a number.
pub(crate) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
