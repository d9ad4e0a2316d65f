//! MCP over HTTP with a real executor behind the gateway.
#![expect(clippy::unwrap_used, reason = "a test that can't go on must fail")]

mod gateways;
mod load;
mod logs;
mod proxy;
mod refused;
mod restart;
mod sizes;
mod waits;
mod wire;
