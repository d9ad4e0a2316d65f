//! Where gateways connect: a Unix socket that only the gateway's user can open, and the secret beside it, new at each
//! start, by which a gateway proves that it can read what only that user can read.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::net::{UnixListener, UnixStream};
use tokio_stream::Stream;

use crate::error::{Error, Result};

/// Bytes of the secret.
const SECRET_BYTES: usize = 32;

/// A bound socket. Its files go when it is dropped.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    secret: Arc<str>,
    _files: Files,
    /// The only user besides this process's own that may connect.
    gateway_uid: Option<u32>,
}

#[derive(Debug)]
struct Files {
    socket: PathBuf,
    secret: PathBuf,
}

impl Drop for Files {
    fn drop(&mut self) {
        for path in [&self.socket, &self.secret] {
            let _gone = fs::remove_file(path).is_err();
        }
    }
}

impl Listener {
    /// Binds the socket. Must be called within the runtime.
    pub fn bind(path: &Path, gateway_uid: Option<u32>) -> Result<Self> {
        let failed = |error: io::Error| Error::internal(format!("listening on {}", path.display()), error);
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(failed(io::Error::other(
                "another executor answers there; set RUNLET_SOCKET to another path",
            )));
        }
        make_directory(path)?;
        // Nobody can connect between the bind and the change of its mode: it gets its name after both.
        let unnamed = path.with_extension(format!("new-{}", std::process::id()));
        remove(&unnamed).map_err(failed)?;
        let socket = UnixListener::bind(&unnamed).map_err(failed)?;
        let files = Files { socket: path.to_owned(), secret: secret_path(path) };
        let secret = write_secret(&files.secret, gateway_uid)?;
        fs::set_permissions(&unnamed, Permissions::from_mode(0o600)).map_err(failed)?;
        give(&unnamed, gateway_uid)?;
        fs::rename(&unnamed, path).map_err(failed)?;
        Ok(Self { socket, secret: secret.into(), _files: files, gateway_uid })
    }

    /// What a gateway must send.
    pub(super) fn secret(&self) -> Arc<str> {
        Arc::clone(&self.secret)
    }

    /// Connections of users that may connect.
    pub(super) fn incoming(self) -> Incoming {
        Incoming { listener: self }
    }
}

/// Where the secret of a socket lies.
pub fn secret_path(socket: &Path) -> PathBuf {
    let mut name = socket.as_os_str().to_owned();
    name.push(".secret");
    name.into()
}

/// A directory that is made here belongs to the executor, so that the veil may cover it.
fn make_directory(socket: &Path) -> Result<()> {
    let Some(directory) = socket.parent().filter(|parent| !parent.as_os_str().is_empty()) else {
        return Ok(());
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o711)
        .create(directory)
        .map_err(|error| Error::internal(format!("making the directory {}", directory.display()), error))
}

fn write_secret(path: &Path, gateway_uid: Option<u32>) -> Result<String> {
    let failed = |error: io::Error| Error::internal(format!("writing {}", path.display()), error);
    let mut bytes = [0; SECRET_BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::internal("reading random bytes", error.to_string()))?;
    let secret = data_encoding::HEXLOWER.encode(&bytes);
    let unnamed = path.with_extension(format!("secret-{}", std::process::id()));
    remove(&unnamed).map_err(failed)?;
    let mut file =
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unnamed).map_err(failed)?;
    io::Write::write_all(&mut file, secret.as_bytes()).map_err(failed)?;
    give(&unnamed, gateway_uid)?;
    fs::rename(&unnamed, path).map_err(failed)?;
    Ok(secret)
}

fn give(path: &Path, uid: Option<u32>) -> Result<()> {
    let Some(uid) = uid else { return Ok(()) };
    std::os::unix::fs::lchown(path, Some(uid), None)
        .map_err(|error| Error::internal(format!("giving {} to RUNLET_GATEWAY_USER", path.display()), error))
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Connections whose other end is the gateway's user or this process's own.
pub(super) struct Incoming {
    listener: Listener,
}

impl Stream for Incoming {
    type Item = io::Result<UnixStream>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let (stream, _address) = match self.listener.socket.poll_accept(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(accepted)) => accepted,
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
            };
            let own = rustix::process::geteuid().as_raw();
            match stream.peer_cred() {
                Ok(peer) if peer.uid() == own || Some(peer.uid()) == self.listener.gateway_uid => {
                    return Poll::Ready(Some(Ok(stream)));
                }
                Ok(peer) => {
                    tracing::warn!(uid = peer.uid(), pid = peer.pid(), "refused a connection of another user")
                }
                Err(error) => tracing::warn!(error = %error, "refused a connection of an unknown user"),
            }
        }
    }
}

impl Incoming {
    /// Paths of the socket and the secret, for the log.
    #[cfg(test)]
    fn files(&self) -> &Files {
        &self.listener._files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn socket_and_secret_are_closed_to_others_and_go_with_the_listener() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/executor.sock");
        let listener = Listener::bind(&path, None).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&secret_path(&path))), (0o600, 0o600));
        assert_eq!(fs::read_to_string(secret_path(&path)).unwrap(), *listener.secret());
        let refused = Listener::bind(&path, None).unwrap_err();
        assert!(
            std::error::Error::source(&refused)
                .unwrap()
                .to_string()
                .contains("another executor answers there")
        );
        let incoming = listener.incoming();
        assert_eq!(incoming.files().socket, path);
        drop(incoming);
        assert!(!path.exists() && !secret_path(&path).exists());
    }
}
