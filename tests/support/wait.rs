//! Waiting for something to become true, with an end.

use std::time::{Duration, Instant};

/// Waits until `holds` gives true, and fails after `limit`, saying `what` was waited for.
pub async fn until(what: &str, limit: Duration, mut holds: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + limit;
    while !holds().await {
        assert!(Instant::now() < end, "waited {limit:?} in vain for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
