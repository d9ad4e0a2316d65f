//! Where gateways connect: a Unix socket that only the gateway's user can open, and the secret beside it, new at each
//! start, by which a gateway proves that it can read what only that user can read.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use runlet_proto::handover;
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::Stream;

use crate::error::{Error, Result};

/// Bytes of the secret.
const SECRET_BYTES: usize = 32;

/// The bound sockets. Their files go when it is dropped.
#[derive(Debug)]
pub struct Listener {
    calls: UnixListener,
    /// Where open files are handed over.
    files: UnixListener,
    secret: Arc<str>,
    bound: Bound,
    /// The only user besides this process's own that may connect.
    gateway_uid: Option<u32>,
}

/// Paths that are removed when this is dropped.
#[derive(Debug, Default)]
pub(super) struct Bound(Vec<PathBuf>);

impl Drop for Bound {
    fn drop(&mut self) {
        for path in &self.0 {
            let _gone = fs::remove_file(path).is_err();
        }
    }
}

impl Listener {
    /// Binds the sockets. Must be called within the runtime.
    pub fn bind(path: &Path, gateway_uid: Option<u32>) -> Result<Self> {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            let problem = "another executor answers there; set RUNLET_SOCKET to another path";
            return Err(Error::internal(
                format!("listening on {}", path.display()),
                io::Error::other(problem),
            ));
        }
        make_directory(path)?;
        let (secret_path, files_path) = (secret_path(path), handover::socket_path(path));
        let secret = write_secret(&secret_path, gateway_uid)?;
        let mut bound = Bound(vec![secret_path]);
        let files = bind(&files_path, gateway_uid)?;
        bound.0.push(files_path);
        // The last, because whoever finds it may use the others.
        let calls = bind(path, gateway_uid)?;
        bound.0.push(path.to_owned());
        Ok(Self { calls, files, secret: secret.into(), bound, gateway_uid })
    }

    /// What a gateway must send.
    pub(super) fn secret(&self) -> Arc<str> {
        Arc::clone(&self.secret)
    }

    /// Connections of users that may connect: for calls, and for open files.
    pub(super) fn incoming(self) -> (Incoming, Incoming, Bound) {
        let Self { calls, files, secret: _, bound, gateway_uid } = self;
        (Incoming { socket: calls, gateway_uid }, Incoming { socket: files, gateway_uid }, bound)
    }
}

/// Nobody can connect between the bind and the change of its mode: the socket gets its name after both.
fn bind(path: &Path, gateway_uid: Option<u32>) -> Result<UnixListener> {
    let failed = |error: io::Error| Error::internal(format!("listening on {}", path.display()), error);
    let unnamed = path.with_extension(format!("new-{}", std::process::id()));
    remove(&unnamed).map_err(failed)?;
    let socket = UnixListener::bind(&unnamed).map_err(failed)?;
    fs::set_permissions(&unnamed, Permissions::from_mode(0o600)).map_err(failed)?;
    give(&unnamed, gateway_uid)?;
    fs::rename(&unnamed, path).map_err(failed)?;
    Ok(socket)
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
    socket: UnixListener,
    gateway_uid: Option<u32>,
}

impl Stream for Incoming {
    type Item = io::Result<UnixStream>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let (stream, _address) = match self.socket.poll_accept(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(accepted)) => accepted,
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
            };
            let own = rustix::process::geteuid().as_raw();
            match stream.peer_cred() {
                Ok(peer) if peer.uid() == own || Some(peer.uid()) == self.gateway_uid => {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn socket_and_secret_are_closed_to_others_and_go_with_the_listener() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/executor.sock");
        let listener = Listener::bind(&path, None).unwrap();
        let names = || {
            let entries = fs::read_dir(path.parent().unwrap()).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&secret_path(&path))), (0o600, 0o600));
        assert_eq!(mode(&handover::socket_path(&path)), 0o600);
        assert_eq!(fs::read_to_string(secret_path(&path)).unwrap(), *listener.secret());
        let refused = Listener::bind(&path, None).unwrap_err();
        assert!(
            std::error::Error::source(&refused)
                .unwrap()
                .to_string()
                .contains("another executor answers there")
        );
        let (_calls, _files, bound) = listener.incoming();
        assert_eq!(names(), ["executor.sock", "executor.sock.files", "executor.sock.secret"]);
        drop(bound);
        assert!(names().is_empty());
    }
}
