//! `GET` and `HEAD` of `/downloads/{link}/{name}`. Who has the link needs no token. The bytes pass through here as they
//! come from the executor; nothing of a file is kept.

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::extract::State;
use bytes::Bytes;
use futures::stream;
use http::request::Parts;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode,
    header::{
        ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE,
        CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, REFERRER_POLICY, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
    },
};
use runlet_proto::{
    content::Content,
    reason::{ErrorReason, Failure as Reason},
    v1::{FindLinkRequest, Link, ReadDownloadRequest, ReadDownloadResponse, link::Kind},
};
use tokio::sync::OwnedSemaphorePermit;
use tonic::{Status, Streaming};

use crate::{
    answer::{self, Body},
    connection::{Activity, Downloading},
    disposition::{attachment, media_type},
    executor::{Repeat, transfers},
    http::{Gateway, Peer, refuse},
    ranges::{Asked, asked},
};

/// Time that the executor has to say what a link is.
const FIND_TIME: Duration = Duration::from_secs(30);

/// Bytes of an open file that are read and sent at a time, and that a client which does not read costs.
const PIECE_BYTES: usize = 512 << 10;

/// Serves a request.
pub(crate) async fn serve(State(gateway): State<Arc<Gateway>>, request: Request<Body>) -> Response<Body> {
    let peer = Peer::of(&request);
    let (parts, _no_body) = request.into_parts();
    let mut response = download(&gateway, peer, &parts).await.unwrap_or_else(|refusal| refusal);
    guard(response.headers_mut());
    response
}

/// `Err` is an answer too.
async fn download(
    gateway: &Gateway,
    peer: IpAddr,
    request: &Parts,
) -> Result<Response<Body>, Response<Body>> {
    let Parts { method, uri, headers, extensions, .. } = request;
    gateway.host_rules.check_host(uri, headers).map_err(|refused| refuse(peer, refused))?;
    let is_head = method == Method::HEAD;
    if !is_head && method != Method::GET {
        return Err(answer::method_not_allowed("GET, HEAD"));
    }
    let secret_link = secret_link(uri.path(), "/downloads/");
    let link = gateway.find(secret_link, Kind::Download).await?;
    let etag = format!("\"{}\"", link.sha256);
    let size = link.size_bytes;
    let (status, offset, length) = match asked(headers, &etag, size) {
        Asked::Whole => (StatusCode::OK, 0, size),
        Asked::Part { offset, length } => (StatusCode::PARTIAL_CONTENT, offset, length),
        Asked::Beyond => return Err(beyond(size)),
    };
    let body = if is_head || length == 0 {
        Body::empty()
    } else {
        let place = gateway.place().ok_or_else(too_many)?;
        let pieces = gateway.pieces(secret_link, offset, length).await?;
        let downloading = extensions.get::<Arc<Activity>>().map(Activity::download);
        content(Download { pieces, left: length, _place: place, _downloading: downloading })
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    if status == StatusCode::PARTIAL_CONTENT {
        set(headers, CONTENT_RANGE, format!("bytes {offset}-{}/{size}", offset + length - 1));
    }
    set(headers, CONTENT_LENGTH, length.to_string());
    set(headers, ETAG, etag);
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type(&link.name)));
    headers.insert(CONTENT_DISPOSITION, attachment(&link.name));
    Ok(response)
}

impl Gateway {
    /// What a link is, or the answer that there is none.
    pub(crate) async fn find(&self, secret_link: &str, kind: Kind) -> Result<Link, Response<Body>> {
        let message = FindLinkRequest { secret_link: secret_link.to_owned(), kind: kind.into() };
        let send = |channel, request| async move { transfers(channel).find_link(request).await };
        let found = self.link.call(message, FIND_TIME, Repeat::Always, send).await;
        Ok(found.map_err(|status| refusal(&status))?.link.unwrap_or_default())
    }

    async fn pieces(&self, secret_link: &str, offset: u64, length: u64) -> Result<Pieces, Response<Body>> {
        if let Some(file) = self.link.file(secret_link).await {
            return Ok(Pieces::Handed(Content::new(file, offset, length, PIECE_BYTES)));
        }
        let message = ReadDownloadRequest { secret_link: secret_link.to_owned(), offset, length };
        let send = |channel, request| async move { transfers(channel).read_download(request).await };
        let sent = self.link.open(message, FIND_TIME, send).await;
        sent.map(Pieces::Sent).map_err(|status| refusal(&status))
    }

    /// A place among the downloads and uploads under way.
    pub(crate) fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }
}

/// The link in a path: what stands between the route and the next slash. What follows is decoration.
pub(crate) fn secret_link<'a>(path: &'a str, route: &str) -> &'a str {
    let rest = path.strip_prefix(route).unwrap_or_default();
    rest.split_once('/').map_or(rest, |(link, _name)| link)
}

/// The answer for a link that is none, whatever the reason.
pub(crate) fn not_found() -> Response<Body> {
    let message = "there is no such link, or it has ended: links expire, can be revoked, and end with their workspace; \
                   an upload can be used once";
    answer::error(StatusCode::NOT_FOUND, "link_not_found", message)
}

/// The answer for what the executor said.
pub(crate) fn refusal(status: &Status) -> Response<Body> {
    match Reason::from_status(status).map(|failure| failure.reason) {
        Some(ErrorReason::LinkNotFound | ErrorReason::WorkspaceNotFound) => not_found(),
        Some(ErrorReason::ShuttingDown) | None => {
            let message = "the executor can't be reached; try again in a few seconds";
            retry_later(answer::error(StatusCode::SERVICE_UNAVAILABLE, "executor_unavailable", message))
        }
        Some(_) => {
            let message = "a fault of the executor, which its log describes";
            answer::error(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
        }
    }
}

/// The answer where no place is left.
pub(crate) fn too_many() -> Response<Body> {
    let message = "too many downloads and uploads are under way; try again in a few seconds";
    retry_later(answer::error(StatusCode::SERVICE_UNAVAILABLE, "too_many_transfers", message))
}

fn retry_later(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

fn beyond(size: u64) -> Response<Body> {
    let message = format!("the file has {size} bytes; the range lies past its end");
    let mut response = answer::error(StatusCode::RANGE_NOT_SATISFIABLE, "range_not_satisfiable", &message);
    set(response.headers_mut(), CONTENT_RANGE, format!("bytes */{size}"));
    response
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: String) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}

/// What every answer says, so that no browser runs what an agent made, keeps it, or tells where it came from.
fn guard(headers: &mut HeaderMap) {
    for (name, value) in [
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'; frame-ancestors 'none'"),
        (CACHE_CONTROL, "private, no-store"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// Where the content comes from.
enum Pieces {
    /// The open file, which outlives the executor.
    Handed(Content),
    /// The executor, by message.
    Sent(Streaming<ReadDownloadResponse>),
}

impl Pieces {
    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        match self {
            Self::Handed(content) => content.next().await.map_err(Status::from),
            Self::Sent(messages) => Ok(messages.message().await?.map(|message| message.content)),
        }
    }
}

/// A download under way.
struct Download {
    pieces: Pieces,
    left: u64,
    _place: OwnedSemaphorePermit,
    _downloading: Option<Downloading>,
}

/// The body. One that ends early ends as an error, so that the connection breaks and nobody takes it for whole.
fn content(download: Download) -> Body {
    let pieces = stream::try_unfold(download, |mut download| async move {
        if download.left == 0 {
            return Ok(None);
        }
        let early = || Status::data_loss("the content ended early");
        let piece = download.pieces.next().await?.ok_or_else(early)?;
        let length = u64::try_from(piece.len()).unwrap_or(u64::MAX);
        download.left = download.left.checked_sub(length).ok_or_else(early)?;
        Ok::<_, Status>(Some((piece, download)))
    });
    Body::from_stream(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_is_what_stands_before_the_name() {
        for path in
            ["/downloads/dl_a.b", "/downloads/dl_a.b/", "/downloads/dl_a.b/n", "/downloads/dl_a.b/../x/%00"]
        {
            assert_eq!(secret_link(path, "/downloads/"), "dl_a.b", "{path}");
        }
        assert_eq!(secret_link("/downloads//x", "/downloads/"), "");
    }
}
