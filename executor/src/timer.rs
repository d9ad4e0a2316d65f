//! Waiting for a moment that there may not be.

use tokio::time::Instant;

/// Resolves at `time`; never without one.
pub(crate) async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
