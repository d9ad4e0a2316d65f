//! The gateway as clients meet it, without an executor behind it or with a server that speaks the executor's wire.

#![expect(clippy::unwrap_used, reason = "a helper that can't go on fails its test")]

mod guard;
mod link;
mod program;
mod protocol;
mod support;
mod time;
