//! The clock of a controller.

use pathloom_model::Nanos;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time since 1970 at the start, and steady from there on: it goes on over a restart, and never back within a run.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    base: Nanos,
    start: Instant,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Clock {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { base: Nanos(since.as_nanos() as u64), start: Instant::now() }
    }

    /// The time.
    #[inline]
    pub fn now(&self) -> Nanos {
        self.base.saturating_add(Nanos(self.start.elapsed().as_nanos() as u64))
    }

    /// How long it is from now until `at`.
    pub fn until(&self, at: Nanos) -> Duration {
        Duration::from_nanos(at.saturating_sub(self.now()).0)
    }
}
