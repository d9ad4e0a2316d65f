//! The wire between the gateway and the executor: the messages and services generated from `runlet/v1/*.proto`, and the
//! [`reason`]s for which a call can fail. It knows neither program.

pub mod content;
pub mod handover;
pub mod reason;

/// Messages, clients and servers of the package `runlet.v1`.
pub mod v1 {
    tonic::include_proto!("runlet.v1");
}

/// Metadata key of the secret by which a gateway proves itself to its executor.
pub const SECRET_METADATA_KEY: &str = "x-runlet-secret";

/// Largest gRPC message either side accepts, in bytes: a request body of 16 MiB and what goes with it.
pub const MAX_MESSAGE_BYTES: usize = 18 << 20;

/// Largest piece of content in one message of a stream, in bytes.
pub const CHUNK_BYTES: usize = 256 << 10;
