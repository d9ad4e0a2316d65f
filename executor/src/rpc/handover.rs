//! Hands open downloads over to gateways on this machine.

use std::sync::Arc;
use std::time::Duration;

use runlet_proto::handover::{Request, send_file};
use tokio::net::UnixStream;
use tokio_stream::StreamExt;

use super::is_secret;
use super::listen::Incoming;
use crate::machine::Machine;

/// Time that a gateway has to say what it wants, and to take it.
const TIME: Duration = Duration::from_secs(5);

/// Pause after the system refused to accept, as when descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves the gateways that connect, for ever.
pub(super) async fn serve(machine: Arc<Machine>, secret: Arc<str>, mut incoming: Incoming) {
    while let Some(connected) = incoming.next().await {
        let stream = match connected {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "can't accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let answering = answer(Arc::clone(&machine), Arc::clone(&secret), stream);
        tokio::spawn(async move { tokio::time::timeout(TIME, answering).await });
    }
}

/// Closes the connection for no.
async fn answer(machine: Arc<Machine>, secret: Arc<str>, mut stream: UnixStream) {
    let Some(request) = Request::receive(&mut stream).await else { return };
    if !is_secret(&secret, request.secret.as_bytes()) {
        return;
    }
    if let Ok((_link, file)) = machine.transfers.open(&request.secret_link).await
        && let Err(error) = send_file(&stream, &file).await
    {
        tracing::debug!(%error, "a gateway did not take a download");
    }
}
