//! Downloads and uploads by link, with both programs and the clients that people use.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that can't go on must fail")]

mod archives;
mod desk;
mod files;
mod headers;
mod large;
mod life;
mod ranges;
mod restarts;
mod uploads;
