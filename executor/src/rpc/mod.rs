//! The gRPC services: wire messages in, domain calls, wire messages out. The only place that knows the wire; it decides
//! nothing.

mod convert;
mod file;
mod handover;
mod job;
pub mod listen;
mod sandbox;
mod status;
mod system;
mod terminal;
mod transfer;
mod workspace;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use runlet_proto::v1::file_service_server::FileServiceServer;
use runlet_proto::v1::job_service_server::JobServiceServer;
use runlet_proto::v1::sandbox_service_server::SandboxServiceServer;
use runlet_proto::v1::system_service_server::SystemServiceServer;
use runlet_proto::v1::terminal_service_server::TerminalServiceServer;
use runlet_proto::v1::transfer_service_server::TransferServiceServer;
use runlet_proto::v1::workspace_service_server::WorkspaceServiceServer;
use runlet_proto::{MAX_MESSAGE_BYTES, SECRET_METADATA_KEY};
use subtle::ConstantTimeEq;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;
use tonic::{Request, Status};

use crate::error::{Error, Result};
use crate::machine::Machine;
use listen::Listener;
use status::unauthenticated;

/// HTTP/2 keep-alive: a gateway that is gone is noticed within the sum of the two.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Calls of one gateway at a time; every waiting call counts.
const CONCURRENT_CALLS: u32 = 8192;

/// Largest frame: a piece of content and what goes with it, so that it comes in one.
const FRAME_BYTES: u32 = 320 << 10;

/// Largest metadata of a call.
const METADATA_BYTES: u32 = 32 << 10;

/// Serves the machine until `stop` resolves, and then until the calls in progress have their answers.
pub async fn serve(machine: Arc<Machine>, listener: Listener, stop: impl Future<Output = ()>) -> Result<()> {
    let secret = listener.secret();
    let guard = {
        let secret = Arc::clone(&secret);
        move |request: Request<()>| authenticate(&secret, request)
    };
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_serving::<JobServiceServer<job::Service>>().await;
    let router = Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .http2_max_header_list_size(METADATA_BYTES)
        .max_concurrent_streams(CONCURRENT_CALLS)
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(8 << 20)
        .max_frame_size(FRAME_BYTES)
        .add_service(health)
        .add_service(guarded(
            WorkspaceServiceServer::new(workspace::Service(Arc::clone(&machine)))
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
            guard.clone(),
        ))
        .add_service(guarded(
            FileServiceServer::new(file::Service(Arc::clone(&machine)))
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
            guard.clone(),
        ))
        .add_service(guarded(
            JobServiceServer::new(job::Service(Arc::clone(&machine)))
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
            guard.clone(),
        ))
        .add_service(guarded(
            TerminalServiceServer::new(terminal::Service(Arc::clone(&machine)))
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
            guard.clone(),
        ))
        .add_service(guarded(
            SandboxServiceServer::new(sandbox::Service(Arc::clone(&machine)))
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
            guard.clone(),
        ))
        .add_service(guarded(
            TransferServiceServer::new(transfer::Service(Arc::clone(&machine))),
            guard.clone(),
        ))
        .add_service(guarded(SystemServiceServer::new(system::Service(Arc::clone(&machine))), guard));
    let stop = async move {
        stop.await;
        reporter.set_service_status("", tonic_health::ServingStatus::NotServing).await;
    };
    let (calls, files, _bound) = listener.incoming();
    let handing = handover::serve(machine, secret, files);
    tokio::select! {
        served = router.serve_with_incoming_shutdown(calls, stop) => {
            served.map_err(|error| Error::internal("serving gateways", error))
        }
        () = handing => Ok(()),
    }
}

fn guarded<S, F>(service: S, guard: F) -> InterceptedService<S, F>
where
    F: FnMut(Request<()>) -> std::result::Result<Request<()>, Status>,
{
    InterceptedService::new(service, guard)
}

fn authenticate(secret: &str, request: Request<()>) -> std::result::Result<Request<()>, Status> {
    let given = request.metadata().get(SECRET_METADATA_KEY).map(|value| value.as_bytes());
    if given.is_some_and(|given| is_secret(secret, given)) { Ok(request) } else { Err(unauthenticated()) }
}

fn is_secret(secret: &str, given: &[u8]) -> bool {
    given.ct_eq(secret.as_bytes()).into()
}
