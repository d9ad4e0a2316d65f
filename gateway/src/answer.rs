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
    let mut response = error(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", &message);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// 401, the same whatever was wrong.
pub(crate) fn unauthorized() -> Response<Body> {
    error(
        StatusCode::UNAUTHORIZED,
        "unauthorized",
        "send the token once, as X-Sandbox-Token, as Authorization: Bearer, or as X-API-Key",
    )
}

/// 429.
pub(crate) fn too_many_failures() -> Response<Body> {
    let mut response = error(
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
         write a large file in parts, for example by run_command with `cat >> file` and stdin"
    );
    error(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", &message)
}
