//! The gateway's own HTTP answers: JSON that says what is wrong and what to do.

use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER},
};
use serde_json::{Value, json};

/// Body of every request and answer.
pub(crate) use axum::body::Body;

/// Type of JSON.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Code of JSON-RPC for an error of the server's own making (-32000 to -32099 are left to servers).
const REFUSED: i32 = -32000;

/// JSON that is at hand.
pub(crate) fn json_bytes(status: StatusCode, bytes: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::from(bytes.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// `{"error": …, "message": …}`
pub(crate) fn error(status: StatusCode, error: &str, message: &str) -> Response<Body> {
    json_bytes(status, json!({ "error": error, "message": message }).to_string())
}

/// Refuses a request to MCP before its message is read. Clients show the error of a JSON-RPC message, and hide any other
/// body behind a sentence of their own; programs find `reason` in its data.
pub(crate) fn refusal(status: StatusCode, reason: &str, message: &str) -> Response<Body> {
    let error = json!({ "code": REFUSED, "message": message, "data": { "reason": reason } });
    json_bytes(status, json!({ "jsonrpc": "2.0", "id": null, "error": error }).to_string())
}

/// An error of JSON-RPC. `id` is that of the request, or null.
pub(crate) fn rpc_error(status: StatusCode, id: &Value, code: i32, message: &str) -> Response<Body> {
    let body = json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } });
    json_bytes(status, body.to_string())
}

/// 200 for a probe.
pub(crate) fn ok() -> Response<Body> {
    let mut response = json_bytes(StatusCode::OK, r#"{"status":"ok"}"#);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// 405.
pub(crate) fn method_not_allowed(allowed: &'static str) -> Response<Body> {
    let message = format!("this path takes {allowed} only");
    allowing(allowed, error(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", &message))
}

/// 405 for MCP, which takes messages only.
pub(crate) fn post_only() -> Response<Body> {
    let message = "this path takes POST only; there are no sessions and no streams to listen to";
    allowing("POST", refusal(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message))
}

fn allowing(methods: &'static str, mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    response
}

/// 401, the same whatever was wrong.
pub(crate) fn unauthorized() -> Response<Body> {
    refusal(
        StatusCode::UNAUTHORIZED,
        "unauthorized",
        "send the token once, as X-Sandbox-Token, as Authorization: Bearer, or as X-API-Key",
    )
}

/// 429.
pub(crate) fn too_many_failures() -> Response<Body> {
    let mut response = refusal(
        StatusCode::TOO_MANY_REQUESTS,
        "too_many_failures",
        "too many wrong tokens from this address; try later",
    );
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

/// 413, for a limit in bytes.
pub(crate) fn too_large(limit: usize) -> Response<Body> {
    let message = format!(
        "the request body is larger than the limit of {limit} bytes (JSON escapes count); \
         send a large file by the URL that create_upload makes"
    );
    refusal(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", &message)
}
