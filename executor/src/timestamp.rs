//! Times in records: milliseconds since 1970, UTC.

use std::time::Duration;

use time::OffsetDateTime;

/// Milliseconds since 1970.
pub(crate) fn to_millis(time: OffsetDateTime) -> i64 {
    i64::try_from(time.unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX)
}

/// Milliseconds since 1970 at the time that was so long ago; 0 where that was before.
pub(crate) fn millis_ago(age: Duration) -> i64 {
    let then = OffsetDateTime::now_utc().checked_sub(age.try_into().unwrap_or(time::Duration::MAX));
    then.map_or(0, to_millis)
}

/// The time that many milliseconds after 1970.
pub(crate) fn from_millis(millis: i64) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(millis) * 1_000_000).ok()
}
