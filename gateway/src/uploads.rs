//! `PUT` of `/uploads/{link}`. Who has the link needs no token. The bytes pass through here to the executor as they come;
//! nothing of a file is kept, and the limit of other request bodies does not count.

use std::{sync::Arc, time::Duration};

use axum::extract::State;
use bytes::Bytes;
use futures::stream;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, EXPECT},
};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use runlet_proto::{
    CHUNK_BYTES,
    reason::{ErrorReason, Failure as Reason},
    v1::{
        ReceiveUploadRequest, ReceiveUploadResponse,
        link::Kind,
        receive_upload_request::{End, Header, Part},
    },
};
use serde_json::json;
use tokio::sync::mpsc;
use tonic::Status;

use crate::{
    answer::{self, Body},
    downloads::{refusal, secret_link, too_many},
    executor::transfers,
    http::{Gateway, Peer, drain, refuse},
    path,
};

/// Time without a byte after which an upload is given up.
const IDLE_TIME: Duration = Duration::from_secs(60);

/// Pieces on their way to the executor; when it is full, the client waits.
const QUEUE: usize = 2;

/// Serves a request.
pub(crate) async fn serve(State(gateway): State<Arc<Gateway>>, request: Request<Body>) -> Response<Body> {
    let mut response = upload(&gateway, request).await.unwrap_or_else(|refusal| refusal);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    response
}

/// `Err` is an answer too.
async fn upload(gateway: &Gateway, request: Request<Body>) -> Result<Response<Body>, Response<Body>> {
    let peer = Peer::of(&request);
    let (parts, mut body) = request.into_parts();
    gateway.host_rules.check_host(&parts.uri, &parts.headers).map_err(|refused| refuse(peer, refused))?;
    if parts.method != Method::PUT {
        return Err(answer::method_not_allowed("PUT"));
    }
    let outcome = take(gateway, &parts, &mut body).await;
    // A client that asks first has not sent the body.
    if outcome.is_err() && !parts.headers.contains_key(EXPECT) && !body.is_end_stream() {
        drain(body);
    }
    outcome
}

async fn take(
    gateway: &Gateway,
    parts: &http::request::Parts,
    body: &mut Body,
) -> Result<Response<Body>, Response<Body>> {
    let secret_link = secret_link(parts.uri.path(), "/uploads/").to_owned();
    let link = gateway.find(&secret_link, Kind::Upload).await?;
    if let Some(problem) = header_problem(&parts.headers) {
        return Err(answer::error(StatusCode::BAD_REQUEST, "bad_request", problem));
    }
    let limit = link.size_bytes;
    let length = number(&parts.headers, CONTENT_LENGTH);
    if length.is_some_and(|length| length > limit) {
        return Err(too_large(limit));
    }
    let _place = gateway.place().ok_or_else(too_many)?;
    let (sender, receiver) = mpsc::channel(QUEUE);
    let messages = stream::unfold(receiver, |mut receiver: mpsc::Receiver<Part>| async move {
        let part = receiver.recv().await?;
        Some((ReceiveUploadRequest { part: Some(part) }, receiver))
    });
    let send = |channel, request| async move { transfers(channel).receive_upload(request).await };
    let received = gateway.link.send_once(messages, send);
    let header = Header { secret_link, length };
    let (sent, received) = tokio::join!(pass_on(body, header, limit, sender), received);
    match (sent, received) {
        (_, Ok(written)) => Ok(done(&written)),
        (Err(refusal), Err(_)) => Err(refusal),
        (Ok(()), Err(status)) => Err(upload_refusal(&status, limit)),
    }
}

/// Passes the body on, to its end. When the executor wants no more of it, that is no error here.
async fn pass_on(
    body: &mut Body,
    header: Header,
    limit: u64,
    sender: mpsc::Sender<Part>,
) -> Result<(), Response<Body>> {
    let mut length: u64 = 0;
    if sender.send(Part::Header(header)).await.is_err() {
        return Ok(());
    }
    loop {
        let frame = tokio::select! {
            frame = tokio::time::timeout(IDLE_TIME, body.frame()) => frame,
            () = sender.closed() => return Ok(()),
        };
        let mut piece: Bytes = match frame {
            Err(_late) => {
                let message = format!("nothing came for {} s; nothing was written", IDLE_TIME.as_secs());
                return Err(answer::error(StatusCode::REQUEST_TIMEOUT, "upload_too_slow", &message));
            }
            Ok(None) => break,
            Ok(Some(Err(_))) => {
                let message = "the request body ended early; nothing was written";
                return Err(answer::error(StatusCode::BAD_REQUEST, "upload_cut_short", message));
            }
            Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
        };
        length = length.saturating_add(u64::try_from(piece.len()).unwrap_or(u64::MAX));
        if length > limit {
            return Err(too_large(limit));
        }
        while !piece.is_empty() {
            let part = piece.split_to(piece.len().min(CHUNK_BYTES));
            if sender.send(Part::Content(part)).await.is_err() {
                return Ok(());
            }
        }
    }
    // Without this the executor writes nothing.
    let _heard = sender.send(Part::End(End { length })).await;
    Ok(())
}

fn done(written: &ReceiveUploadResponse) -> Response<Body> {
    let status = if written.created { StatusCode::CREATED } else { StatusCode::OK };
    let object = json!({
        "path": path::to_text(&written.path),
        "bytes": written.size_bytes,
        "sha256": written.sha256,
    });
    answer::json_bytes(status, format!("{object}\n"))
}

fn too_large(limit: u64) -> Response<Body> {
    let message = format!(
        "the upload is larger than the {limit} bytes that its link allows; nothing was written; max_bytes of \
         create_upload allows more"
    );
    answer::error(StatusCode::PAYLOAD_TOO_LARGE, "upload_too_large", &message)
}

/// The answer for what the executor said of an upload.
fn upload_refusal(status: &Status, limit: u64) -> Response<Body> {
    let Some(Reason { reason, message, .. }) = Reason::from_status(status) else {
        return refusal(status);
    };
    let code = match reason {
        ErrorReason::UploadTooLarge => return too_large(limit),
        ErrorReason::UploadBusy => (StatusCode::CONFLICT, "upload_busy"),
        ErrorReason::PathExists => (StatusCode::CONFLICT, "path_exists"),
        ErrorReason::NoSpace | ErrorReason::LinksFull => (StatusCode::INSUFFICIENT_STORAGE, "no_space"),
        ErrorReason::UploadCutShort => (StatusCode::BAD_REQUEST, "upload_cut_short"),
        // The place has changed since the link was made.
        ErrorReason::PathNotFound
        | ErrorReason::PathOutsideWorkspace
        | ErrorReason::IsADirectory
        | ErrorReason::NotADirectory
        | ErrorReason::NotARegularFile
        | ErrorReason::SymlinkLoop
        | ErrorReason::PermissionDenied => (StatusCode::CONFLICT, "path_unusable"),
        _ => return refusal(status),
    };
    answer::error(code.0, code.1, &message)
}

/// What keeps the body from being what the file is to be, if anything does.
fn header_problem(headers: &HeaderMap) -> Option<&'static str> {
    let plain = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    if headers.contains_key(CONTENT_RANGE) {
        return Some("an upload is sent whole; send it without Content-Range");
    }
    let encoded = !headers.get_all(CONTENT_ENCODING).iter().all(plain);
    encoded.then_some("an upload is written as it is sent; send it without Content-Encoding")
}

fn number(headers: &HeaderMap, name: HeaderName) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}
