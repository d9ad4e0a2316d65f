//! Values as SQLite keeps them, whose integers have a sign and 64 bits. What can't be is cut to what can.

use std::time::Duration;

use time::OffsetDateTime;

use crate::timestamp;

/// A count for a column.
pub fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A count from a column.
pub fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// A duration for a column of microseconds.
pub fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// A duration from a column of microseconds.
pub fn from_micros(micros: i64) -> Duration {
    Duration::from_micros(unsigned(micros))
}

/// A time from a column of milliseconds since 1970.
pub fn time(millis: i64) -> OffsetDateTime {
    timestamp::from_millis(millis).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}
