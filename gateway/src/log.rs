//! The log: how it is set up, and the one line that each request leaves. A line holds names, ids, sizes and times;
//! never arguments, bodies, tokens, query strings or links.

use std::{
    pin::Pin,
    sync::{Arc, OnceLock, atomic::AtomicU64, atomic::Ordering},
    task::{Context, Poll},
    time::Instant,
};

use bytes::Bytes;
use http::{Method, Response};
use hyper::body::{Frame, SizeHint};
use tracing_subscriber::{EnvFilter, fmt};

use crate::{answer::Body, config::LogFormat};

/// Sets up the log of the process. Does nothing when there is one already.
///
/// # Errors
///
/// A sentence, when the filter can't be read.
pub(crate) fn init(filter: &str, format: LogFormat) -> Result<(), String> {
    // From debug on the SDK logs whole requests, with commands and contents; at info, three lines for each; its warnings
    // repeat what clients sent, such as the name of a tool that does not exist.
    let quiet = if filter.contains("rmcp") { "" } else { ",rmcp=error" };
    let filter = EnvFilter::try_new(format!("{filter}{quiet}"))
        .map_err(|error| format!("RUNLET_LOG: '{filter}': {error}"))?;
    let log = fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).with_target(false);
    let result = match format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
    drop(result);
    Ok(())
}

/// What is found out about a request on its way.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// Who sent it.
    pub(crate) principal: OnceLock<Arc<str>>,
    /// Method of JSON-RPC, if it is one of the protocol's.
    pub(crate) rpc: OnceLock<String>,
    /// The tool called.
    pub(crate) tool: OnceLock<String>,
    /// The workspace named in the arguments.
    pub(crate) workspace: OnceLock<String>,
    /// Code of the tool's error.
    pub(crate) failure: OnceLock<&'static str>,
}

/// The line of one request. It is written when the response has been sent, or is dropped.
pub(crate) struct RequestLine {
    id: u64,
    start: Instant,
    method: Method,
    route: &'static str,
    status: u16,
    ended: bool,
    pub(crate) facts: Arc<Facts>,
}

static REQUESTS: AtomicU64 = AtomicU64::new(1);

impl RequestLine {
    pub(crate) fn new(method: Method, route: &'static str) -> Self {
        let id = REQUESTS.fetch_add(1, Ordering::Relaxed);
        Self { id, start: Instant::now(), method, route, status: 0, ended: false, facts: Arc::default() }
    }

    /// Lets the line follow the response to its end.
    pub(crate) fn follow(mut self, response: Response<Body>) -> Response<Body> {
        self.status = response.status().as_u16();
        response.map(|body| Body::new(LoggedBody { body, line: self }))
    }
}

impl Drop for RequestLine {
    fn drop(&mut self) {
        let Facts { principal, rpc, tool, workspace, failure } = self.facts.as_ref();
        let duration_ms = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (principal, rpc, tool) =
            (principal.get().map(AsRef::as_ref), rpc.get().map(String::as_str), tool.get());
        let (tool, workspace, failure) =
            (tool.map(String::as_str), workspace.get().map(String::as_str), failure.get());
        let dropped = (!self.ended).then_some(true);
        // Probes come every few seconds for ever.
        if matches!(self.route, "/mcp" | "/downloads" | "/uploads") || self.status >= 400 {
            tracing::info!(
                request = self.id, method = %self.method, route = self.route, status = self.status, duration_ms,
                principal, rpc, tool, workspace, failure, dropped, "request"
            );
        } else {
            tracing::debug!(request = self.id, method = %self.method, route = self.route, status = self.status, "request");
        }
    }
}

struct LoggedBody {
    body: Body,
    line: RequestLine,
}

impl hyper::body::Body for LoggedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None)) || self.body.is_end_stream() {
            self.line.ended = true;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
