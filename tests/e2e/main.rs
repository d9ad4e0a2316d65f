//! The product from outside: both real programs, real processes, real files.
#![expect(clippy::unwrap_used, reason = "a test that can't go on must fail")]

mod main_job;
mod overview;
mod shells;
mod waits;
