//! What the tests share: both real programs on a data root of their own, a client that speaks MCP to them, and a look at
//! processes from outside.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that can't go on must fail")]

pub mod client;
pub mod git;
pub mod jobs;
pub mod probe;
pub mod terminals;
pub mod wait;
pub mod world;

pub use client::{Answer, Client};
pub use world::{Builder, World};

/// Makes ring the cryptography of every client, which makes none without.
pub fn install_tls() {
    let _installed = rustls::crypto::ring::default_provider().install_default();
}
