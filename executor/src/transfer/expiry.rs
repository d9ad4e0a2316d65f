//! When a link ends. Two clocks decide, whichever is first: the wall clock, which is what people read and what survives
//! a restart, and the time since the machine was booted, which nobody can set back.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use time::OffsetDateTime;

/// One moment on both clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) wall: OffsetDateTime,
    /// Since the machine was booted; it goes on while the machine sleeps.
    pub(super) boot: Duration,
}

impl Moment {
    pub(super) fn now() -> Self {
        let since_boot = clock_gettime(ClockId::Boottime);
        let nanos = u32::try_from(since_boot.tv_nsec).unwrap_or(0);
        Self {
            wall: OffsetDateTime::now_utc(),
            boot: Duration::new(u64::try_from(since_boot.tv_sec).unwrap_or(0), nanos),
        }
    }
}

/// The end of a link.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expiry(Moment);

impl Expiry {
    /// The end at `wall`, seen from `now`.
    pub(super) fn at(wall: OffsetDateTime, now: Moment) -> Self {
        let left = Duration::try_from(wall - now.wall).unwrap_or(Duration::ZERO);
        Self(Moment { wall, boot: now.boot + left })
    }

    pub(super) fn is_over(&self, now: Moment) -> bool {
        now.wall >= self.0.wall || now.boot >= self.0.boot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn later(moment: Moment, wall_seconds: i64, boot_seconds: u64) -> Moment {
        Moment {
            wall: moment.wall + time::Duration::seconds(wall_seconds),
            boot: moment.boot + Duration::from_secs(boot_seconds),
        }
    }

    #[test]
    fn dl_09_a_clock_that_is_set_back_does_not_prolong_a_link() {
        let now = Moment::now();
        let expiry = Expiry::at(now.wall + time::Duration::seconds(60), now);
        assert!(!expiry.is_over(later(now, 59, 59)));
        assert!(expiry.is_over(later(now, 60, 60)));
        assert!(expiry.is_over(later(now, 60 - 3_600, 60)));
        assert!(expiry.is_over(later(now, 60, 1)), "the wall clock says that it is over");
        assert!(Expiry::at(now.wall - time::Duration::seconds(1), now).is_over(now));
    }
}
