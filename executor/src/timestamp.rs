//! Times in records: milliseconds since 1970, UTC.

use time::OffsetDateTime;

/// Milliseconds since 1970.
pub(crate) fn to_millis(time: OffsetDateTime) -> i64 {
    i64::try_from(time.unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX)
}

/// The time that many milliseconds after 1970.
pub(crate) fn from_millis(millis: i64) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(millis) * 1_000_000).ok()
}
