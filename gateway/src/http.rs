//! What happens to a request, in order: route, host, origin, token, body, protocol. It knows nothing of tools.

use std::{
    net::{IpAddr, Ipv4Addr},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use axum::{
    Router,
    extract::State,
    middleware::{self, Next},
    routing::{any, get},
};
use bytes::Bytes;
use futures::FutureExt;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{ACCEPT, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST},
};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Body as _;
use rmcp::transport::{
    StreamableHttpServerConfig, StreamableHttpService,
    streamable_http_server::session::never::NeverSessionManager,
};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{
    accept::Accept,
    answer::{self, Body},
    auth::{Brake, Refusal, Tokens, take_token},
    config::Config,
    downloads,
    envelope::{Envelope, PlainCall, Prepared},
    executor::Link,
    hosts::{HostRules, Refused},
    log::{Facts, RequestLine},
    mcp::{Caller, McpServer},
    slow::{into_events, slow_to_events},
    tools::{Offered, Toolbox},
    uploads,
};

/// Time for a whole request body after its headers.
const BODY_TIME: Duration = Duration::from_secs(30);
/// Most downloads and uploads at a time: what each holds in memory is small, but not nothing.
const MAX_TRANSFERS: usize = 256;
/// A probe wants an answer within 5 s.
const READY_TIME: Duration = Duration::from_secs(3);
/// A body that is too large is read to its end for this long, so that the client sees the answer and not a reset.
const DRAIN_TIME: Duration = Duration::from_secs(2);
const DRAIN_BYTES: usize = 64 << 20;

/// Everything that requests are served from.
pub(crate) struct Gateway {
    pub(crate) host_rules: HostRules,
    tokens: Tokens,
    allow_query_token: bool,
    max_body_bytes: usize,
    brake: Brake,
    prepared: Prepared,
    pub(crate) link: Arc<Link>,
    /// Downloads and uploads that may be under way.
    pub(crate) places: Arc<Semaphore>,
    server: McpServer,
    mcp: StreamableHttpService<McpServer, NeverSessionManager>,
}

impl Gateway {
    /// Builds it. `stopping` ends the waits of calls.
    pub(crate) fn new(config: &Config, stopping: CancellationToken) -> serde_json::Result<Self> {
        let toolbox = Arc::new(Toolbox::new(&config.tools));
        let prepared = Prepared::new(&toolbox.declarations())?;
        let link = Arc::new(Link::new(config.executor_socket.clone(), config.executor_secret_file.clone()));
        let server = McpServer { toolbox, link: Arc::clone(&link), stopping };
        // Host and Origin have been checked when a request gets there; the body has been limited.
        let settings = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_sse_keep_alive(Some(Duration::from_secs(5)))
            .with_max_request_body_bytes(config.max_body_bytes)
            .disable_allowed_hosts()
            .disable_allowed_origins();
        let own = server.clone();
        let mcp = StreamableHttpService::new(move || Ok(own.clone()), Arc::default(), settings);
        Ok(Self {
            host_rules: config.host_rules.clone(),
            tokens: config.tokens.clone(),
            allow_query_token: config.allow_query_token,
            max_body_bytes: config.max_body_bytes,
            brake: Brake::new(),
            prepared,
            link,
            places: Arc::new(Semaphore::new(MAX_TRANSFERS)),
            server,
            mcp,
        })
    }

    /// The routes. Requests carry a [`Peer`].
    pub(crate) fn router(self: Arc<Self>) -> Router {
        // Probes address a pod by its number and carry no token; they learn nothing.
        let alive = get(async || answer::ok());
        let routes =
            [("/mcp", any(mcp)), ("/healthz", alive.clone()), ("/health", alive), ("/readyz", get(ready))];
        let routed = routes.into_iter().fold(Router::new(), |router, (path, handler)| {
            // No redirect: a client would send its token once more, and perhaps elsewhere.
            router.route(path, handler.clone()).route(&format!("{path}/"), handler)
        });
        routed
            .route("/downloads/{*link}", any(downloads::serve))
            .route("/uploads/{*link}", any(uploads::serve))
            .method_not_allowed_fallback(async || answer::method_not_allowed("GET, HEAD"))
            .fallback(async || {
                answer::error(StatusCode::NOT_FOUND, "not_found", "nothing is here; MCP is at /mcp")
            })
            .layer(middleware::from_fn(observe))
            .with_state(self)
    }

    /// `Err` is an answer too: that of a request which did not get to the protocol.
    async fn mcp(
        &self,
        peer: IpAddr,
        mut request: Request<Body>,
        facts: Arc<Facts>,
    ) -> Result<Response<Body>, Response<Body>> {
        self.host_rules
            .check_host(request.uri(), request.headers())
            .map_err(|refused| refuse(peer, refused))?;
        self.host_rules.check_origin(request.headers()).map_err(|refused| refuse(peer, refused))?;
        let query = request.uri().query().filter(|_| self.allow_query_token).map(str::to_owned);
        let token = take_token(request.headers_mut(), query.as_deref());
        let Some(principal) = token.and_then(|token| self.tokens.find(&token)) else {
            return Err(match self.brake.wrong_token(peer).await {
                Refusal::Unauthorized => answer::unauthorized(),
                Refusal::TooMany => answer::too_many_failures(),
            });
        };
        facts.principal.get_or_init(|| Arc::clone(&principal.name));
        if request.method() != Method::POST {
            return Err(answer::post_only());
        }
        let Some(accept) = Accept::of(request.headers()) else {
            let message = "send Accept: application/json, text/event-stream";
            return Err(answer::refusal(StatusCode::NOT_ACCEPTABLE, "not_acceptable", message));
        };
        if let Some(problem) = content_problem(request.headers()) {
            return Err(answer::refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_content", problem));
        }
        let (parts, body) = request.into_parts();
        let body = self.collect(&parts.headers, body).await?;
        let base = self.host_rules.base(&parts.uri, &parts.headers);
        let caller = Caller { principal, accept, base, facts };
        self.answer(parts, body, caller).await
    }

    async fn answer(
        &self,
        mut parts: http::request::Parts,
        body: Bytes,
        caller: Caller,
    ) -> Result<Response<Body>, Response<Body>> {
        let envelope = Envelope::read(&body).map_err(|malformed| {
            answer::rpc_error(StatusCode::BAD_REQUEST, &Value::Null, malformed.code, &malformed.message)
        })?;
        if let Some(method) = envelope.method().filter(|method| is_method_name(method)) {
            caller.facts.rpc.get_or_init(|| method.to_owned());
        }
        let accept = caller.accept;
        if let Some(prepared) = self.prepared.answer(&parts.headers, &envelope) {
            let response = answer::json_bytes(StatusCode::OK, prepared);
            return Ok(if accept.json { response } else { into_events(response) });
        }
        let plain = PlainCall::read(&parts.headers, &envelope)
            .and_then(|call| Some((Arc::clone(self.server.toolbox.find(&call.tool)?), call)));
        let answer = match plain {
            Some((tool, call)) => called(self.server.clone(), tool, call, caller).boxed(),
            None => {
                let id = envelope.id();
                parts.extensions.insert(caller);
                self.through_machinery(parts, body, id).boxed()
            }
        };
        Ok(match accept {
            Accept { events: false, .. } => answer.await,
            Accept { json: false, .. } => into_events(slow_to_events(answer).await),
            Accept { .. } => slow_to_events(answer).await,
        })
    }

    /// The answer of the protocol's machinery to a message with this id.
    fn through_machinery(
        &self,
        mut parts: http::request::Parts,
        body: Bytes,
        id: Value,
    ) -> impl Future<Output = Response<Body>> + Send + use<> {
        parts.headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        // A query may hold a token, and nothing behind looks at it. The protocol's machinery wants a host, any host.
        parts.uri = http::Uri::from_static("/mcp");
        parts.headers.insert(HOST, HeaderValue::from_static("localhost"));
        let mcp = self.mcp.clone();
        let request = Request::from_parts(parts, Full::new(body));
        async move { in_json(mcp.handle(request).await.map(Body::new), &id).await }
    }

    /// Reads the whole body, in time and within the limit.
    async fn collect(&self, headers: &HeaderMap, body: Body) -> Result<Bytes, Response<Body>> {
        let limit = self.max_body_bytes;
        let announced =
            headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|length| length > limit as u64) || body.size_hint().lower() > limit as u64 {
            // A client that asks first has not sent the body.
            if !headers.contains_key(EXPECT) {
                drain(body);
            }
            return Err(answer::too_large(limit));
        }
        match tokio::time::timeout(BODY_TIME, Limited::new(body, limit).collect()).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(answer::too_large(limit)),
            Ok(Err(_)) => {
                let message = "the request body ended early";
                Err(answer::rpc_error(StatusCode::BAD_REQUEST, &Value::Null, -32700, message))
            }
            Err(_) => {
                let message = format!("the request body did not arrive within {} s", BODY_TIME.as_secs());
                Err(answer::refusal(StatusCode::REQUEST_TIMEOUT, "body_too_slow", &message))
            }
        }
    }
}

/// The answer to a call, without the protocol's machinery, which takes longer than many a command. Dropping it ends the
/// wait, as it does there.
async fn called(
    server: McpServer,
    tool: Arc<Offered>,
    mut call: PlainCall,
    caller: Caller,
) -> Response<Body> {
    let arguments = std::mem::take(&mut call.arguments);
    let result = server.call(&tool, arguments, &caller, std::future::pending()).await;
    match call.answer(result) {
        Ok(message) => answer::json_bytes(StatusCode::OK, message),
        Err(error) => {
            tracing::error!(%error, tool = call.tool, "can't write an answer");
            let message = "a fault of the gateway, which its log describes";
            answer::rpc_error(StatusCode::INTERNAL_SERVER_ERROR, &call.id(), -32603, message)
        }
    }
}

/// Where a request came from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

impl Peer {
    pub(crate) fn of(request: &Request<Body>) -> IpAddr {
        request.extensions().get::<Self>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0)
    }
}

async fn mcp(State(gateway): State<Arc<Gateway>>, request: Request<Body>) -> Response<Body> {
    let peer = Peer::of(&request);
    let facts = request.extensions().get::<Arc<Facts>>().cloned().unwrap_or_default();
    gateway.mcp(peer, request, facts).await.unwrap_or_else(|refusal| refusal)
}

async fn ready(State(gateway): State<Arc<Gateway>>) -> Response<Body> {
    match gateway.link.check(READY_TIME).await {
        Ok(()) => answer::ok(),
        Err(reason) => answer::error(StatusCode::SERVICE_UNAVAILABLE, "not_ready", &reason),
    }
}

/// Leaves a line in the log for each request, and turns a panic into a 500.
async fn observe(mut request: Request<Body>, next: Next) -> Response<Body> {
    let route = match request.uri().path() {
        "/mcp" | "/mcp/" => "/mcp",
        "/healthz" | "/healthz/" | "/health" | "/health/" => "/healthz",
        "/readyz" | "/readyz/" => "/readyz",
        // What follows is a secret.
        path if path.starts_with("/downloads/") => "/downloads",
        path if path.starts_with("/uploads/") => "/uploads",
        _ => "other",
    };
    let line = RequestLine::new(request.method().clone(), route);
    request.extensions_mut().insert(Arc::clone(&line.facts));
    let response = without_panic(next.run(request)).await;
    line.follow(response)
}

/// The answer, or a 500 when making it panics.
async fn without_panic(answer: impl Future<Output = Response<Body>>) -> Response<Body> {
    AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(|_| {
        let message = "a fault of the gateway, which its log describes";
        answer::error(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    })
}

pub(crate) fn drain(body: Body) {
    tokio::spawn(tokio::time::timeout(DRAIN_TIME, async move {
        let mut body = Limited::new(body, DRAIN_BYTES);
        while let Some(Ok(_)) = body.frame().await {}
    }));
}

pub(crate) fn refuse(peer: IpAddr, refused: Refused) -> Response<Body> {
    match refused {
        Refused::BadHost => answer::refusal(
            StatusCode::BAD_REQUEST,
            "bad_host",
            "expected one Host header that names this server",
        ),
        Refused::Host(host) => {
            tracing::warn!(%peer, host = host.escape_debug().to_string(), "refused a request for another host");
            let message = "this host name is not let in; the operator adds it to RUNLET_ALLOWED_HOSTS";
            answer::refusal(StatusCode::FORBIDDEN, "host_not_allowed", message)
        }
        Refused::Origin(origin) => {
            tracing::warn!(%peer, origin = origin.escape_debug().to_string(), "refused a request from another origin");
            let message = "this origin is not let in; the operator adds it to RUNLET_ALLOWED_ORIGINS";
            answer::refusal(StatusCode::FORBIDDEN, "origin_not_allowed", message)
        }
    }
}

/// What keeps the body from being read, if anything does.
fn content_problem(headers: &HeaderMap) -> Option<&'static str> {
    let plain = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    if !headers.get_all(CONTENT_ENCODING).iter().all(plain) {
        return Some("the body is compressed; send it without Content-Encoding");
    }
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    let is_json = essence.eq_ignore_ascii_case("application/json");
    (!is_json).then_some("send the JSON-RPC message with Content-Type: application/json")
}

/// Whether a method's name may stand in the log.
fn is_method_name(method: &str) -> bool {
    method.len() <= 64 && method.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/_-".contains(&byte))
}

/// Errors of the transport come as plain text; clients read JSON.
async fn in_json(response: Response<Body>, id: &Value) -> Response<Body> {
    let status = response.status();
    let is_json = response
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if !(status.is_client_error() || status.is_server_error()) || is_json {
        return response;
    }
    let text = match response.into_body().collect().await {
        Ok(body) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
        Err(error) => error.to_string(),
    };
    match status {
        // The content type was right, so what it could not read is the message.
        StatusCode::UNSUPPORTED_MEDIA_TYPE => answer::rpc_error(StatusCode::BAD_REQUEST, id, -32600, &text),
        status if status.is_server_error() => {
            tracing::error!(%status, text, "the protocol's machinery failed");
            answer::rpc_error(status, id, -32603, "a fault of the gateway, which its log describes")
        }
        status => answer::rpc_error(status, id, -32600, &text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panic_becomes_a_500() {
        let response = without_panic(async { panic!("on purpose") }).await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(without_panic(async { answer::ok() }).await.status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn errors_of_the_transport_become_json_with_the_requests_id() {
        let mut plain = answer::json_bytes(StatusCode::UNSUPPORTED_MEDIA_TYPE, "no message");
        plain.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        let response = in_json(plain, &Value::from(7)).await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&body["id"], &body["error"]["message"]), (&Value::from(7), &Value::from("no message")));
    }
}
