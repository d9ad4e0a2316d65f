//! First bytes in time: when an answer is slow, the response begins as a stream of events with comments, and the answer
//! follows as an event. Dropping the response drops the call's wait.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE},
};
use hyper::body::Frame;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::answer::Body;

/// How long an answer may take before the response begins without it.
const GRACE: Duration = Duration::from_secs(3);
/// Time between comments.
const COMMENT_INTERVAL: Duration = Duration::from_secs(5);

/// Waits for `answer` for a while, then begins a stream that ends with it.
pub(crate) async fn slow_to_events(mut answer: BoxFuture<'static, Response<Body>>) -> Response<Body> {
    if let Ok(response) = tokio::time::timeout(GRACE, &mut answer).await {
        return response;
    }
    let mut comments = interval(COMMENT_INTERVAL);
    comments.set_missed_tick_behavior(MissedTickBehavior::Delay);
    event_stream(Body::new(LateBody { state: State::Waiting(answer), comments }))
}

/// The answer as a stream of events, if it is a JSON body of status 200.
pub(crate) fn into_events(response: Response<Body>) -> Response<Body> {
    if response.status() != StatusCode::OK || is_events(&response) {
        return response;
    }
    event_stream(Body::new(EventBody { part: Part::Begin, inner: response.into_body() }))
}

fn is_events(response: &Response<Body>) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

fn event_stream(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    headers.remove(CONTENT_LENGTH);
    response
}

struct LateBody {
    state: State,
    comments: Interval,
}

enum State {
    Waiting(BoxFuture<'static, Response<Body>>),
    Passing(Body),
}

type FramePoll<E> = Poll<Option<Result<Frame<Bytes>, E>>>;

impl hyper::body::Body for LateBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> FramePoll<Self::Error> {
        loop {
            match &mut self.state {
                State::Passing(body) => return Pin::new(body).poll_frame(context),
                State::Waiting(answer) => match answer.as_mut().poll(context) {
                    Poll::Ready(response) => {
                        let body = if is_events(&response) {
                            response.into_body()
                        } else {
                            Body::new(EventBody { part: Part::Begin, inner: response.into_body() })
                        };
                        self.state = State::Passing(body);
                    }
                    Poll::Pending => {
                        return self
                            .comments
                            .poll_tick(context)
                            .map(|_| Some(Ok(Frame::data(Bytes::from_static(b":\n\n")))));
                    }
                },
            }
        }
    }
}

/// A body of JSON, which has no line breaks, as one event.
struct EventBody {
    part: Part,
    inner: Body,
}

enum Part {
    Begin,
    Inner,
    End,
}

impl hyper::body::Body for EventBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> FramePoll<Self::Error> {
        match self.part {
            Part::Begin => {
                self.part = Part::Inner;
                Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"data: ")))))
            }
            Part::Inner => match Pin::new(&mut self.inner).poll_frame(context) {
                Poll::Ready(None) => {
                    self.part = Part::End;
                    Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"\n\n")))))
                }
                other => other,
            },
            Part::End => Poll::Ready(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use futures::FutureExt;
    use tokio::time::Instant;

    use http_body_util::BodyExt;

    use super::*;
    use crate::answer;

    #[tokio::test(start_paused = true)]
    async fn slow_answer_begins_in_time_and_ends_as_an_event() {
        let start = Instant::now();
        let slow = async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            answer::json_bytes(StatusCode::OK, "{}")
        };
        let response = slow_to_events(slow.boxed()).await;
        assert_eq!(start.elapsed(), GRACE);
        assert_eq!(response.headers()[CONTENT_TYPE], "text/event-stream");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, ":\n\n:\n\n:\n\n:\n\ndata: {}\n\n");
    }

    #[tokio::test(start_paused = true)]
    async fn quick_answer_stays_as_it_is() {
        let response = slow_to_events(async { answer::ok() }.boxed()).await;
        assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_response_drops_the_wait() {
        struct Flag(Arc<AtomicBool>);
        impl Drop for Flag {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let dropped = Arc::new(AtomicBool::new(false));
        let flag = Flag(Arc::clone(&dropped));
        let never = async move {
            let _flag = flag;
            std::future::pending::<Response<Body>>().await
        };
        let response = slow_to_events(never.boxed()).await;
        assert!(!dropped.load(Ordering::SeqCst));
        drop(response);
        assert!(dropped.load(Ordering::SeqCst));
    }
}
