//! Calls that are made again while the gateway or the executor is away, as it is when it is updated.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::gateway::{Failure, Gateway};

/// How long an absence may last.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// Time between two calls.
pub(crate) const PERIOD: Duration = Duration::from_millis(300);

/// Makes calls that may be made twice, again and again while nobody answers.
#[derive(Debug)]
pub(crate) struct Patient {
    gateway: Gateway,
    /// Somebody has answered before: what is wrong now was not so from the start.
    answered: bool,
    away_since: Option<Instant>,
}

/// What came of a call.
#[derive(Debug)]
pub(crate) enum Answer {
    Object(Value),
    /// Nobody answered; it is time to call again. The sentence says what is wrong, once per absence.
    Away(Option<String>),
}

impl Patient {
    pub(crate) const fn new(gateway: Gateway) -> Self {
        Self { gateway, answered: false, away_since: None }
    }

    /// Calls once, and after a failure that passes, waits a moment.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Result<Answer, Failure> {
        let failure = match self.gateway.call(tool, arguments).await {
            Ok(object) => {
                (self.answered, self.away_since) = (true, None);
                return Ok(Answer::Object(object));
            }
            Err(failure) => failure,
        };
        let Failure::Away { message, .. } = &failure else { return Err(failure) };
        let is_first = self.away_since.is_none();
        let since = *self.away_since.get_or_insert_with(Instant::now);
        if !self.answered || since.elapsed() > LIMIT {
            return Err(failure);
        }
        let told = is_first.then(|| format!("{message}. Waiting for it, up to {} seconds.", LIMIT.as_secs()));
        tokio::time::sleep(PERIOD).await;
        Ok(Answer::Away(told))
    }
}
