//! The listening side: accepts connections up to a limit, serves HTTP/1 and HTTP/2 on them, and stops without losing
//! what is under way. It knows nothing of what requests mean.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, body::Body};
use http::Request;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::{
    connection::{Activity, Timed, until_sent},
    http::Peer,
};

const MAX_CONNECTIONS: usize = 1024;
/// Connections past the limit that are told so at one time; the rest is closed without a word.
const MAX_REFUSALS: usize = 64;
const REFUSAL_TIME: Duration = Duration::from_secs(1);
const STOP_TIME: Duration = Duration::from_secs(9);
const MAX_HEADER_BYTES: usize = 64 << 10;
const MAX_STREAMS: u32 = 256;
/// Pause after the system refused to accept, as when descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves connections from `listener` until `stop`, then lets what is under way end, for a while.
pub(crate) async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let refusals = Arc::new(Semaphore::new(MAX_REFUSALS));
    let graceful = GracefulShutdown::new();
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(MAX_HEADER_BYTES);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(MAX_STREAMS);
    builder.http2().keep_alive_interval(Duration::from_secs(30)).max_header_list_size(MAX_STREAMS * 256);
    let builder = Arc::new(builder);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "can't accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        match Arc::clone(&places).try_acquire_owned() {
            Ok(place) => {
                let watcher = graceful.watcher();
                let (builder, router) = (Arc::clone(&builder), router.clone());
                tokio::spawn(async move {
                    let connection = Connection { stream, peer, router, place };
                    connection.serve(&builder, watcher).await;
                });
            }
            Err(_) => refuse(stream, &refusals),
        }
    }
    drop(listener);
    if tokio::time::timeout(STOP_TIME, graceful.shutdown()).await.is_err() {
        tracing::warn!("stopped with requests under way");
    }
}

struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    place: OwnedSemaphorePermit,
}

impl Connection {
    async fn serve(
        self,
        builder: &auto::Builder<TokioExecutor>,
        watcher: hyper_util::server::graceful::Watcher,
    ) {
        let Self { stream, peer, router, place } = self;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "can't set TCP_NODELAY");
        }
        let activity = Arc::new(Activity::default());
        let io = TokioIo::new(Timed::new(stream, Arc::clone(&activity)));
        let service = service_fn(move |request: Request<Incoming>| {
            let (router, running) = (router.clone(), activity.begin());
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(Peer(peer.ip()));
            request.extensions_mut().insert(Arc::clone(&activity));
            async move {
                let response = router.oneshot(request).await?;
                Ok::<_, Infallible>(response.map(|body| until_sent(body, running)))
            }
        });
        let connection = builder.serve_connection(io, service).into_owned();
        if let Err(error) = watcher.watch(connection).await {
            tracing::debug!(%peer, error, "a connection ended early");
        }
        drop(place);
    }
}

/// Tells a client that there are too many connections, as far as it listens.
fn refuse(stream: TcpStream, refusals: &Arc<Semaphore>) {
    let Ok(place) = Arc::clone(refusals).try_acquire_owned() else {
        return;
    };
    tokio::spawn(async move {
        let told = tokio::time::timeout(REFUSAL_TIME, tell_full(stream)).await;
        tracing::debug!(told = told.is_ok(), "refused a connection past the limit");
        drop(place);
    });
}

async fn tell_full(mut stream: TcpStream) -> io::Result<()> {
    let body = format!(
        r#"{{"error":"too_many_connections","message":"the limit of {MAX_CONNECTIONS} connections is reached; try again in a few seconds"}}"#
    );
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         retry-after: 5\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await?;
    // What the client sends is read, for closing with it unread would take the answer from the client again.
    let mut unread = [0; 4096];
    while stream.read(&mut unread).await? > 0 {}
    Ok(())
}
