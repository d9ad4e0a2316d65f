//! The link to the executor: one HTTP/2 connection, made when it is needed and made anew when it breaks. It knows how
//! to reach the executor and when a call may be repeated, and nothing of what the calls mean.

use std::{
    error::Error,
    fs::File,
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use hyper_util::rt::TokioIo;
use runlet_proto::{
    MAX_MESSAGE_BYTES, SECRET_METADATA_KEY, handover,
    reason::{ErrorReason, Failure as Reason},
    v1::{
        file_service_client::FileServiceClient, job_service_client::JobServiceClient,
        sandbox_service_client::SandboxServiceClient, system_service_client::SystemServiceClient,
        terminal_service_client::TerminalServiceClient, transfer_service_client::TransferServiceClient,
        workspace_service_client::WorkspaceServiceClient,
    },
};
use tokio::{net::UnixStream, time::Instant};
use tonic::{
    Code, ConnectError, Request, Response, Status, TimeoutExpired,
    metadata::{Ascii, MetadataValue},
    transport::{Channel, Endpoint},
};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

/// An executor that stopped is noticed by a ping that is sent this long after the last sign of life …
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// … and not answered for this long: 4.5 s in all, so that the caller knows within 5 s.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_millis(2500);
/// How long a call is repeated while the executor restarts.
const PATIENCE: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_millis(100);
/// How long a file may take to be handed over, before it is asked for by message.
const HANDOVER_TIME: Duration = Duration::from_secs(2);
const WINDOW_BYTES: u32 = 2 << 20;
/// Largest frame: a piece of content and what goes with it, so that it comes in one.
const FRAME_BYTES: u32 = 320 << 10;
/// What a download may have on its way to a client that does not read.
const BULK_WINDOW_BYTES: u32 = 1 << 20;
/// The largest there is: clients that don't read must not use up what the others share with them.
const BULK_CONNECTION_BYTES: u32 = (1 << 31) - 1;

/// Whether a call may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Whatever became of it: it reads, or carries a request id.
    Always,
    /// When it certainly did not reach the executor.
    Unsent,
    /// Not even then: the caller wants to know how things stand.
    Never,
}

/// The connection to one executor.
pub(crate) struct Link {
    channel: Channel,
    /// A connection of its own for downloads and uploads, so that no call waits behind one.
    bulk: Channel,
    /// Where the executor hands over open files, if it is on this machine.
    files_socket: PathBuf,
    secret_file: PathBuf,
    secret: Mutex<Option<MetadataValue<Ascii>>>,
}

impl Link {
    /// A link to the executor behind `socket`, which need not be there yet. `secret_file` holds the secret that it made
    /// at its start.
    pub(crate) fn new(socket: PathBuf, secret_file: PathBuf) -> Self {
        let files_socket = handover::socket_path(&socket);
        let channel = connect(socket.clone(), WINDOW_BYTES, 4 * WINDOW_BYTES);
        let bulk = connect(socket, BULK_WINDOW_BYTES, BULK_CONNECTION_BYTES);
        Self { channel, bulk, files_socket, secret_file, secret: Mutex::new(None) }
    }

    /// Sends `message` by `send` and returns the answer. `limit` is the time after which it is given up.
    ///
    /// While the executor can't be reached, a call that did not reach it, or that may be repeated, is sent again for up
    /// to [`PATIENCE`].
    pub(crate) async fn call<M, R, S, F>(
        &self,
        message: M,
        limit: Duration,
        repeat: Repeat,
        send: S,
    ) -> Result<R, Status>
    where
        M: Clone,
        S: Fn(Channel, Request<M>) -> F,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        self.call_over(&self.channel, message, limit, (repeat, send)).await
    }

    /// As [`Link::call`], for an answer that is read as it comes, for as long as that takes. `limit` is for its start.
    pub(crate) async fn open<M, R, S, F>(&self, message: M, limit: Duration, send: S) -> Result<R, Status>
    where
        M: Clone,
        S: Fn(Channel, Request<M>) -> F,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        self.call_over(&self.bulk, message, limit, (Repeat::Always, send)).await
    }

    /// The file of a download, opened by the executor; `None` where it has to be asked for by message.
    pub(crate) async fn file(&self, secret_link: &str) -> Option<File> {
        let secret = self.secret()?.to_str().ok()?.to_owned();
        let request = handover::Request { secret, secret_link: secret_link.to_owned() };
        let asked = tokio::time::timeout(HANDOVER_TIME, request.send(&self.files_socket)).await.ok()?;
        asked.inspect_err(|error| tracing::debug!(%error, "the executor handed over no file")).ok()
    }

    /// Sends what can be sent once only, such as a stream that is read from elsewhere. There is no time limit.
    pub(crate) async fn send_once<M, R, S, F>(&self, message: M, send: S) -> Result<R, Status>
    where
        S: FnOnce(Channel, Request<M>) -> F,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        let mut request = Request::new(message);
        if let Some(secret) = self.secret() {
            request.metadata_mut().insert(SECRET_METADATA_KEY, secret);
        }
        send(self.bulk.clone(), request).await.map(Response::into_inner)
    }

    async fn call_over<M, R, S, F>(
        &self,
        channel: &Channel,
        message: M,
        limit: Duration,
        (repeat, send): (Repeat, S),
    ) -> Result<R, Status>
    where
        M: Clone,
        S: Fn(Channel, Request<M>) -> F,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        let patience_ends = Instant::now() + PATIENCE;
        loop {
            let secret = self.secret();
            let mut request = Request::new(message.clone());
            request.set_timeout(limit);
            if let Some(secret) = &secret {
                request.metadata_mut().insert(SECRET_METADATA_KEY, secret.clone());
            }
            let status = match send(channel.clone(), request).await {
                Ok(response) => return Ok(response.into_inner()),
                Err(status) => status,
            };
            let again = match Trouble::of(&status) {
                Trouble::Refused => self.has_new_secret(secret.as_ref()),
                Trouble::NeverSent => repeat != Repeat::Never,
                Trouble::Broken => repeat == Repeat::Always,
                Trouble::None => false,
            };
            if !again || Instant::now() + PAUSE > patience_ends {
                return Err(status);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Asks whether the executor serves.
    ///
    /// # Errors
    ///
    /// A sentence that says why not.
    pub(crate) async fn check(&self, limit: Duration) -> Result<(), String> {
        let ask = |channel, request| async move { HealthClient::new(channel).check(request).await };
        let call = self.call(HealthCheckRequest::default(), limit, Repeat::Never, ask);
        match tokio::time::timeout(limit, call).await {
            Err(_) => Err(format!("the executor did not answer within {} s", limit.as_secs())),
            Ok(Ok(health)) if health.status() == ServingStatus::Serving => Ok(()),
            Ok(Ok(_)) => Err("the executor is starting or stopping".to_owned()),
            Ok(Err(status)) if status.code() == Code::Unauthenticated => Err(format!(
                "the executor does not accept the secret in {}, or the file can't be read",
                self.secret_file.display()
            )),
            Ok(Err(_)) => Err("the executor can't be reached".to_owned()),
        }
    }

    fn secret(&self) -> Option<MetadataValue<Ascii>> {
        let mut secret = self.secret.lock().unwrap_or_else(PoisonError::into_inner);
        if secret.is_none() {
            *secret = self.read_secret();
        }
        secret.clone()
    }

    /// Reads the secret again after it was refused: a restarted executor has another one.
    fn has_new_secret(&self, refused: Option<&MetadataValue<Ascii>>) -> bool {
        let read = self.read_secret();
        let is_new = read.is_some() && read.as_ref() != refused;
        *self.secret.lock().unwrap_or_else(PoisonError::into_inner) = read;
        is_new
    }

    fn read_secret(&self) -> Option<MetadataValue<Ascii>> {
        let text = std::fs::read_to_string(&self.secret_file)
            .inspect_err(|error| tracing::debug!(file = %self.secret_file.display(), %error, "can't read the executor's secret"))
            .ok()?;
        text.trim().parse().ok()
    }
}

/// A connection that is made when it is needed.
fn connect(socket: PathBuf, stream_bytes: u32, connection_bytes: u32) -> Channel {
    Endpoint::from_static("http://executor")
        .connect_timeout(Duration::from_secs(2))
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(stream_bytes)
        .initial_connection_window_size(connection_bytes)
        .max_frame_size(FRAME_BYTES)
        .connect_with_connector_lazy(tower::service_fn(move |_| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        }))
}

/// What kept a call from being answered, apart from what the executor itself said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Nothing: the status is an answer.
    None,
    /// It did not reach the executor.
    NeverSent,
    /// The connection broke, or the answer did not come in time.
    Broken,
    /// The executor did not take the secret, and did nothing.
    Refused,
}

impl Trouble {
    pub(crate) fn of(status: &Status) -> Self {
        let reason = Reason::from_status(status).map(|failure| failure.reason);
        match (reason, status.code()) {
            (Some(ErrorReason::Unauthenticated), _) | (None, Code::Unauthenticated) => Self::Refused,
            // It is about to be replaced.
            (Some(ErrorReason::ShuttingDown), _) => Self::NeverSent,
            (Some(_), _) => Self::None,
            (None, _) if has_cause::<ConnectError>(status) => Self::NeverSent,
            (None, Code::Unavailable | Code::Unknown | Code::Cancelled | Code::DeadlineExceeded) => {
                Self::Broken
            }
            (None, Code::Internal) if status.source().is_some() => Self::Broken,
            (None, _) => Self::None,
        }
    }
}

/// Whether the status stands for an answer that did not come in time.
pub(crate) fn ran_out_of_time(status: &Status) -> bool {
    status.code() == Code::DeadlineExceeded || has_cause::<TimeoutExpired>(status)
}

fn has_cause<E: Error + 'static>(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<E>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Client of the workspaces.
pub(crate) fn workspaces(channel: Channel) -> WorkspaceServiceClient<Channel> {
    WorkspaceServiceClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES)
}

/// Client of the jobs.
pub(crate) fn jobs(channel: Channel) -> JobServiceClient<Channel> {
    JobServiceClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES)
}

/// Client of the terminals.
pub(crate) fn terminals(channel: Channel) -> TerminalServiceClient<Channel> {
    TerminalServiceClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES)
}

/// Client of the files.
pub(crate) fn files(channel: Channel) -> FileServiceClient<Channel> {
    FileServiceClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES)
}

/// Client of the downloads and uploads.
pub(crate) fn transfers(channel: Channel) -> TransferServiceClient<Channel> {
    TransferServiceClient::new(channel)
}

/// Client of the sandboxes.
pub(crate) fn sandboxes(channel: Channel) -> SandboxServiceClient<Channel> {
    SandboxServiceClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES)
}

/// Client of the executor as a whole.
pub(crate) fn system(channel: Channel) -> SystemServiceClient<Channel> {
    SystemServiceClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES)
}
