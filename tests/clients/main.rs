//! The official SDKs, the conformance suite and the examples, against both real programs.
#![expect(clippy::unwrap_used, reason = "a test that can't go on must fail")]

mod conformance;
mod examples;
mod inspector;
mod main_job;
mod proxy;
mod rust_sdk;
mod sandboxes;
mod tool_list;
mod toolchain;
