//! The clock of a controller.

use pathloom_model::Nanos;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time since 1970 at the start, and monotonic from then on. It continues over a restart, and never goes back within a
/// run.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    base: Nanos,
    start: Instant,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Clock {
        Clock::start_not_before(Nanos::ZERO)
    }

    /// A clock that starts now, or at `earliest` if the machine's clock was set back before that.
    pub fn start_not_before(earliest: Nanos) -> Clock {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { base: Nanos(since.as_nanos() as u64).max(earliest), start: Instant::now() }
    }

    /// The time.
    #[inline]
    pub fn now(&self) -> Nanos {
        self.base.saturating_add(Nanos(self.start.elapsed().as_nanos() as u64))
    }

    /// The time from now until `at`.
    pub fn until(&self, at: Nanos) -> Duration {
        Duration::from_nanos(at.saturating_sub(self.now()).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continues_from_the_given_time_if_the_machine_clock_was_set_back() {
        let ahead = Clock::start().now().saturating_add(Nanos::from_secs(3600));
        let clock = Clock::start_not_before(ahead);
        assert!(clock.now() >= ahead && clock.now() < ahead.saturating_add(Nanos::from_secs(60)));
        assert!(
            Clock::start_not_before(Nanos::from_secs(1)).now() > Nanos::from_secs(1_000_000_000),
            "it is the present time if the given time has passed"
        );
    }
}
