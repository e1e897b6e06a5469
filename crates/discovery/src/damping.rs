//! A flapping port is not used until it has been stable for a while. The waiting time grows with the number of failures
//! (the idea of RFC 2439).

use pathloom_model::Nanos;

/// Number of failures without consequence, if the gaps between them are at most [`MEMORY`].
const FREE_FAILURES: u32 = 3;
/// After this time without a failure, earlier failures are forgotten.
const MEMORY: Nanos = Nanos::from_secs(10);
/// First required time without failure; doubled per further failure.
const FIRST_WAIT: Nanos = Nanos::from_millis(100);
/// Longest required time without failure.
const LONGEST_WAIT: Nanos = Nanos::from_secs(10);

/// The failures of one port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Damper {
    failures: u32,
    last: Nanos,
}

impl Damper {
    /// Records that the port lost carrier.
    pub(crate) fn failed(&mut self, now: Nanos) {
        if now.saturating_sub(self.last) > MEMORY {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        self.last = now;
    }

    /// Returns how long the port must stay up before it is used. `None`: it is used at once.
    pub(crate) fn wait(&self, now: Nanos) -> Option<Nanos> {
        if now.saturating_sub(self.last) > MEMORY {
            return None;
        }
        let excess = self.failures.checked_sub(FREE_FAILURES + 1)?;
        Some(Nanos(FIRST_WAIT.0 << excess.min(10)).min(LONGEST_WAIT))
    }

    /// Number of failures remembered.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_ten_seconds_and_end_after_a_time_without_failures() {
        let (mut damper, mut waits, mut now) = (Damper::default(), Vec::new(), Nanos::from_secs(100));
        for _ in 0..40 {
            now += Nanos::from_millis(10);
            damper.failed(now);
            waits.push(damper.wait(now).map_or(0, |wait| wait.0 / 1_000_000));
        }
        assert_eq!(waits[..8], [0, 0, 0, 100, 200, 400, 800, 1600]);
        assert_eq!(waits[39], 10_000);
        now += Nanos::from_secs(11);
        assert_eq!(damper.wait(now), None);
        damper.failed(now);
        assert_eq!(damper.failures(), 1);
    }
}
