//! A client's connection with its clocks: how long headers may take, how long it may idle, how long it may refuse to
//! read. It sees bytes and the number of requests at work, not what they are.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};

use crate::answer::Body;

/// Time for the first request of a connection to arrive, and for the rest of headers that have begun.
const HEADER_TIME: Duration = Duration::from_secs(5);
/// Time without a request after which a connection is closed.
const IDLE_TIME: Duration = Duration::from_secs(75);
/// Time that a client may leave what was sent to it unread.
const WRITE_TIME: Duration = Duration::from_secs(30);
/// The same while something is being downloaded, which people pause.
const DOWNLOAD_WRITE_TIME: Duration = Duration::from_secs(300);

/// Counts the requests of a connection.
#[derive(Default)]
pub(crate) struct Activity {
    /// Requests at work.
    running: AtomicUsize,
    /// Requests that have begun, ever.
    begun: AtomicUsize,
    /// Downloads among those at work.
    downloads: AtomicUsize,
}

/// A download at work, until it is dropped.
pub(crate) struct Downloading(Arc<Activity>);

/// A request at work, until it is dropped.
pub(crate) struct Running(Arc<Activity>);

impl Activity {
    pub(crate) fn begin(self: &Arc<Self>) -> Running {
        self.running.fetch_add(1, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed);
        Running(Arc::clone(self))
    }

    /// Gives the client more time to read.
    pub(crate) fn download(self: &Arc<Self>) -> Downloading {
        self.downloads.fetch_add(1, Ordering::Relaxed);
        Downloading(Arc::clone(self))
    }
}

impl Drop for Downloading {
    fn drop(&mut self) {
        self.0.downloads.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body, whose request is at work until it has been sent.
pub(crate) fn until_sent(body: Body, running: Running) -> Body {
    Body::new(RunningBody { body, _running: running })
}

struct RunningBody {
    body: Body,
    _running: Running,
}

impl hyper::body::Body for RunningBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Headers are on their way.
    Headers,
    /// Requests are at work.
    Busy,
    /// Nothing is to be done.
    Idle,
}

/// The connection.
pub(crate) struct Timed<I> {
    io: I,
    activity: Arc<Activity>,
    begun: usize,
    phase: Phase,
    is_http2: bool,
    deadline: Pin<Box<Sleep>>,
    unread: Option<Pin<Box<Sleep>>>,
}

impl<I> Timed<I> {
    pub(crate) fn new(io: I, activity: Arc<Activity>) -> Self {
        let deadline = Box::pin(sleep(HEADER_TIME));
        Self { io, activity, begun: 0, phase: Phase::Headers, is_http2: false, deadline, unread: None }
    }

    fn enter(&mut self, phase: Phase, time: Duration) {
        self.phase = phase;
        self.deadline.as_mut().reset(Instant::now() + time);
    }

    /// Follows the requests, and says whether the time is over.
    fn is_late(&mut self, context: &mut Context<'_>) -> bool {
        let begun = self.activity.begun.load(Ordering::Relaxed);
        if self.activity.running.load(Ordering::Relaxed) > 0 {
            (self.phase, self.begun) = (Phase::Busy, begun);
            return false;
        }
        if self.phase == Phase::Busy || self.begun != begun {
            self.begun = begun;
            self.enter(Phase::Idle, IDLE_TIME);
        }
        self.deadline.as_mut().poll(context).is_ready()
    }

    fn progress(&mut self) {
        self.unread = None;
    }

    /// Starts the clock of a client that does not read.
    fn poll_unread<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let downloads = self.activity.downloads.load(Ordering::Relaxed) > 0;
        let time = if downloads { DOWNLOAD_WRITE_TIME } else { WRITE_TIME };
        let clock = self.unread.get_or_insert_with(|| Box::pin(sleep(time)));
        ready!(clock.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Timed<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match Pin::new(&mut self.io).poll_read(context, buffer) {
            Poll::Ready(outcome) => outcome?,
            // What has come in time is taken, however late this process looks.
            Poll::Pending if self.is_late(context) => {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "no request came in time")));
            }
            Poll::Pending => return Poll::Pending,
        }
        let read = &buffer.filled()[before..];
        if self.phase == Phase::Headers && read.starts_with(b"PRI") {
            // Its frames are not only requests; the longer time is enough.
            self.is_http2 = true;
            self.enter(Phase::Idle, IDLE_TIME);
        } else if self.phase == Phase::Idle && !self.is_http2 && !read.is_empty() {
            self.enter(Phase::Headers, HEADER_TIME);
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Timed<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.io).poll_write(context, bytes) {
            Poll::Pending => self.poll_unread(context),
            done => {
                self.progress();
                done
            }
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.io).poll_write_vectored(context, slices) {
            Poll::Pending => self.poll_unread(context),
            done => {
                self.progress();
                done
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    fn pair() -> (DuplexStream, Timed<DuplexStream>, Arc<Activity>) {
        let (client, server) = duplex(64);
        let activity = Arc::new(Activity::default());
        let timed = Timed::new(server, Arc::clone(&activity));
        (client, timed, activity)
    }

    #[tokio::test(start_paused = true)]
    async fn headers_have_5_s_and_an_idle_connection_75() {
        let (mut client, mut timed, activity) = pair();
        let mut buffer = [0; 64];
        client.write_all(b"GET").await.unwrap();
        timed.read_exact(&mut buffer[..3]).await.unwrap();
        let running = activity.begin();
        let busy = tokio::time::timeout(Duration::from_secs(600), timed.read(&mut buffer)).await;
        assert!(busy.is_err(), "a request at work has no deadline here");
        drop(running);
        let start = Instant::now();
        assert_eq!(timed.read(&mut buffer).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed().as_secs(), IDLE_TIME.as_secs());

        let (mut client, mut timed, activity) = pair();
        drop(activity.begin());
        let start = Instant::now();
        let drip = async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            loop {
                client.write_all(b"a").await.unwrap();
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        let read = async { while timed.read(&mut buffer).await.is_ok() {} };
        tokio::select! { () = read => {} () = drip => {} }
        assert_eq!(start.elapsed().as_secs(), 20 + HEADER_TIME.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_does_not_read_has_30_s() {
        let (_client, mut timed, _activity) = pair();
        let start = Instant::now();
        assert_eq!(timed.write_all(&[0; 1024]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed().as_secs(), WRITE_TIME.as_secs());

        let (_client, mut timed, activity) = pair();
        let downloading = activity.download();
        let start = Instant::now();
        assert_eq!(timed.write_all(&[0; 1024]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed().as_secs(), DOWNLOAD_WRITE_TIME.as_secs());
        drop(downloading);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_download_goes_on_while_bytes_move() {
        let (mut client, mut timed, activity) = pair();
        let _downloading = activity.download();
        let start = Instant::now();
        let reads = async {
            let mut buffer = [0; 64];
            for _ in 0..20 {
                tokio::time::sleep(Duration::from_secs(200)).await;
                client.read_exact(&mut buffer).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(timed.write_all(&[0; 1280]), reads);
        written.unwrap();
        assert!(start.elapsed() > Duration::from_secs(3_600));
    }
}
