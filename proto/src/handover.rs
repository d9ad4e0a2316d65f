//! Handing over an open file, where both programs are on one machine: a copy less of every byte at each of the borders that
//! a message crosses. The executor has a second socket for it; a gateway connects, says what it wants to read, and gets a
//! descriptor that can do nothing but read that. Where there is no such socket, and where the answer is no, the gateway
//! asks by message.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Interest};
use tokio::net::UnixStream;

/// Longest request: a secret of 64 characters, a link of 60, and what is between them.
const REQUEST_BYTES: u64 = 512;

/// The socket for it beside that of the executor.
pub fn socket_path(executor: &Path) -> PathBuf {
    let mut name = executor.as_os_str().to_owned();
    name.push(".files");
    name.into()
}

/// What a gateway asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// By which it proves itself.
    pub secret: String,
    /// Id and secret of a download.
    pub secret_link: String,
}

impl Request {
    /// Reads one; `None` for what is none.
    pub async fn receive(stream: &mut UnixStream) -> Option<Self> {
        let mut line = String::new();
        BufReader::new(stream.take(REQUEST_BYTES)).read_line(&mut line).await.ok()?;
        let (secret, secret_link) = line.strip_suffix('\n')?.split_once(' ')?;
        Some(Self { secret: secret.to_owned(), secret_link: secret_link.to_owned() })
    }

    /// Asks for a file by an executor's socket for it.
    ///
    /// # Errors
    ///
    /// Those of connecting, and `UnexpectedEof` where the answer is no.
    pub async fn send(&self, socket: &Path) -> io::Result<File> {
        let mut stream = UnixStream::connect(socket).await?;
        stream.write_all(format!("{} {}\n", self.secret, self.secret_link).as_bytes()).await?;
        stream.async_io(Interest::READABLE, || receive_file(&stream)).await
    }
}

/// Sends the answer that is not no.
///
/// # Errors
///
/// Those of sendmsg(2).
pub async fn send_file(stream: &UnixStream, file: &File) -> io::Result<()> {
    let send = || {
        let files = [file.as_fd()];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut attached = SendAncillaryBuffer::new(&mut space);
        attached.push(SendAncillaryMessage::ScmRights(&files));
        // A message with a file needs a byte at least.
        sendmsg(stream, &[IoSlice::new(&[1])], &mut attached, SendFlags::NOSIGNAL)?;
        Ok(())
    };
    stream.async_io(Interest::WRITABLE, send).await
}

fn receive_file(stream: &UnixStream) -> io::Result<File> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut attached = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut attached, RecvFlags::CMSG_CLOEXEC)?;
    let files = attached.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    files.last().map(File::from).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}
