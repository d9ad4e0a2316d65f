//! Waiting for a moment that there may not be, or that moves.

use tokio::sync::watch;
use tokio::time::Instant;

/// Resolves at `time`; never without one.
pub(crate) async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// A deadline in a time that stands still now and then: true says that it does.
#[derive(Debug)]
pub(crate) struct Deadline {
    at: Instant,
    still: Option<watch::Receiver<bool>>,
    /// When it came to stand.
    since: Option<Instant>,
}

impl Deadline {
    /// At this moment, unless the time stands still before.
    pub(crate) const fn new(at: Instant, still: Option<watch::Receiver<bool>>) -> Self {
        Self { at, still, since: None }
    }

    /// Resolves when the moment has come. Dropping the future loses nothing.
    pub(crate) async fn passed(&mut self) {
        loop {
            let Some(still) = &mut self.still else { return tokio::time::sleep_until(self.at).await };
            let stands = *still.borrow_and_update();
            if stands {
                self.since.get_or_insert_with(Instant::now);
            } else if let Some(since) = self.since.take() {
                self.at += since.elapsed();
            }
            tokio::select! {
                changed = still.changed() => if changed.is_err() {
                    self.still = None;
                },
                () = tokio::time::sleep_until(self.at), if !stands => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn deadline_waits_while_the_time_stands_still() {
        let (switch, still) = watch::channel(false);
        let began = Instant::now();
        let mut deadline = Deadline::new(began + Duration::from_secs(10), Some(still));
        let wait = async |deadline: &mut Deadline, seconds| {
            tokio::time::timeout(Duration::from_secs(seconds), deadline.passed()).await
        };
        assert!(wait(&mut deadline, 6).await.is_err());
        switch.send_replace(true);
        assert!(wait(&mut deadline, 100).await.is_err());
        switch.send_replace(false);
        assert!(wait(&mut deadline, 5).await.is_ok());
        assert_eq!(began.elapsed().as_secs(), 110);
        drop(switch);
        assert!(wait(&mut deadline, 1).await.is_ok());
    }
}
