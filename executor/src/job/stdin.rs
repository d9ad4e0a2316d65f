//! Standard input of a living job. Writers take turns; each waits a bounded time for the program to read.

use std::io;
use std::time::Duration;

use tokio::net::unix::pipe::Sender;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long a write waits for the program to make room.
const PATIENCE: Duration = Duration::from_secs(5);

/// The executor's end of a job's standard input.
#[derive(Debug, Default)]
pub(super) struct Stdin {
    /// Held across awaits on purpose: it is the queue of the writers.
    pipe: Mutex<Option<Sender>>,
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// This many bytes were accepted.
    Accepted(usize),
    /// Standard input is closed, on this side or the program's.
    Closed,
}

impl Stdin {
    /// Connects it, unless the job has none.
    pub(super) async fn connect(&self, pipe: Option<Sender>) {
        *self.pipe.lock().await = pipe;
    }

    /// Writes as much as the program takes in time, then closes if asked to and everything was taken.
    pub(super) async fn write(&self, data: &[u8], close: bool) -> Written {
        self.write_within(data, close, Some(PATIENCE)).await
    }

    /// Writes everything, however long the program takes, then closes unless it is to stay open.
    pub(super) async fn feed(&self, data: &[u8], keep_open: bool) {
        let _closed = self.write_within(data, !keep_open, None).await;
    }

    async fn write_within(&self, data: &[u8], close: bool, patience: Option<Duration>) -> Written {
        let mut slot = self.pipe.lock().await;
        let Some(pipe) = slot.as_ref() else { return Written::Closed };
        let deadline = patience.map(|patience| Instant::now() + patience);
        let mut written = 0;
        while written < data.len() {
            let ready = match deadline {
                None => pipe.writable().await,
                Some(deadline) => match tokio::time::timeout_at(deadline, pipe.writable()).await {
                    Ok(ready) => ready,
                    Err(_elapsed) => return Written::Accepted(written),
                },
            };
            match ready.and_then(|()| pipe.try_write(&data[written..])) {
                Ok(more) => written += more,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => {
                    *slot = None;
                    return if written > 0 { Written::Accepted(written) } else { Written::Closed };
                }
            }
        }
        if close {
            *slot = None;
        }
        Written::Accepted(written)
    }
}
