//! From a pipe to a log: reading never waits, and a flood is moved in bursts.

use std::cell::RefCell;
use std::io;

use tokio::net::unix::pipe::Receiver;

use crate::output::Writer;

/// Bytes read from a pipe at once: what Linux gives a pipe (pipe(7)).
const READ_BYTES: usize = 64 << 10;

/// Bytes moved before anything else is looked at while output floods.
const BURST_BYTES: usize = 4 << 20;

/// Size asked for the pipe of a program that floods: fewer switches between it and its reader.
const WIDE_PIPE_BYTES: usize = 1 << 20;

thread_local! {
    /// One buffer a thread serves all streams, since reading from a pipe never waits.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// One of a process's streams.
#[derive(Debug)]
pub(super) struct Stream {
    pipe: Receiver,
    /// Where the bytes go; `None` while nobody wants them.
    log: Option<Writer>,
    open: bool,
    wide: bool,
}

impl Stream {
    pub(super) const fn new(pipe: Receiver, log: Option<Writer>) -> Self {
        Self { pipe, log, open: true, wide: false }
    }

    /// Lets what comes from now on go to another log, or nowhere.
    pub(super) fn redirect(&mut self, log: Option<Writer>) {
        self.log = log;
    }

    /// Bytes written to the present log.
    pub(super) fn total(&self) -> u64 {
        self.log.as_ref().map_or(0, Writer::total)
    }

    /// The caps of the present log in bytes, if the log went past them.
    pub(super) fn caps_hit(&self) -> Option<u64> {
        self.log.as_ref().and_then(Writer::caps_hit)
    }

    /// Resolves when there may be something to read; never once the pipe is closed.
    pub(super) async fn readable(&self) -> io::Result<()> {
        if self.open { self.pipe.readable().await } else { std::future::pending().await }
    }

    /// Moves what the pipe holds to the log. A flood is moved off the async threads' time: a disk that can't keep up
    /// holds up the program that writes, and nobody else.
    pub(super) fn advance(&mut self, ready: io::Result<()>) {
        if ready.is_err() {
            self.open = false;
            return;
        }
        let Ok(read) = self.read_once(Receiver::try_read) else { return };
        if read < READ_BYTES {
            return;
        }
        tokio::task::block_in_place(|| {
            if !self.wide {
                self.wide = true;
                // Refused where the user's pipes have used up their memory; the pipe works as it is.
                let _refused = rustix::pipe::fcntl_setpipe_size(&self.pipe, WIDE_PIPE_BYTES).is_err();
            }
            let mut moved = read;
            while moved < BURST_BYTES {
                match self.read_once(Receiver::try_read) {
                    Ok(0) | Err(_) => return,
                    Ok(read) => moved += read,
                }
            }
        });
    }

    /// Takes what the pipe holds now. What is written from now on comes by the usual way.
    pub(super) fn drain(&mut self) {
        let mut left = rustix::pipe::fcntl_getpipe_size(&self.pipe).unwrap_or(WIDE_PIPE_BYTES);
        while self.open && left > 0 {
            match self.read_once(read_now) {
                Ok(0) | Err(_) => break,
                Ok(read) => left = left.saturating_sub(read),
            }
        }
    }

    /// Moves one buffer; 0 at the end of the pipe, which is noted. An error says that there is nothing to read now.
    fn read_once(
        &mut self,
        read: impl FnOnce(&Receiver, &mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        BUFFER.with_borrow_mut(|buffer| {
            let read = match read(&self.pipe, buffer) {
                Ok(0) => {
                    self.open = false;
                    return Ok(0);
                }
                Ok(read) => read,
                Err(error) => {
                    self.open &= error.kind() == io::ErrorKind::WouldBlock;
                    return Err(error);
                }
            };
            if let Some(log) = &mut self.log {
                log.append(&buffer[..read]);
                if let Some(error) = log.take_error() {
                    tracing::warn!(error = %error, cause = ?error, "output of a job is lost");
                }
            }
            Ok(read)
        })
    }
}

/// Asks the kernel itself. The runtime answers from what it was last told, which may be older than the end of the program.
fn read_now(pipe: &Receiver, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::io::retry_on_intr(|| rustix::io::read(pipe, &mut *buffer))?)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::output::{Caps, Log, log};

    #[tokio::test]
    async fn draining_takes_what_the_runtime_has_not_been_told_of() {
        let directory = tempfile::tempdir().unwrap();
        let log = Log::new(directory.path().join("job"), log::Stream::Output);
        let (reader, mut writer) = io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&reader, true).unwrap();
        let pipe = Receiver::from_owned_fd(reader.into()).unwrap();
        let mut stream = Stream::new(pipe, Some(log.writer(Caps::default())));
        writer.write_all(b"last words").unwrap();
        // Nothing was awaited, so the runtime has not looked at the pipe.
        stream.drain();
        assert_eq!(stream.total(), 10);
        assert_eq!(log.reader().read_at(0, 100).unwrap().bytes, b"last words");
    }
}
