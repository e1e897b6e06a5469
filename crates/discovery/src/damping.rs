//! A flapping port is not used until it has been stable for a while. The more it flapped, the longer (the idea of RFC
//! 2439).

use pathloom_model::Nanos;

/// Number of failures within [`MEMORY`] that have no consequence.
const FREE_FAILURES: u32 = 3;
/// Without a failure for this long, the earlier ones are forgotten.
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
    /// The port lost carrier.
    pub(crate) fn failed(&mut self, now: Nanos) {
        if now.saturating_sub(self.last) > MEMORY {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        self.last = now;
    }

    /// How long the port must stay up before it is used; `None`: at once.
    pub(crate) fn wait(&self, now: Nanos) -> Option<Nanos> {
        if now.saturating_sub(self.last) > MEMORY {
            return None;
        }
        let excess = self.failures.checked_sub(FREE_FAILURES + 1)?;
        Some(Nanos(FIRST_WAIT.0 << excess.min(10)).min(LONGEST_WAIT))
    }

    /// Failures remembered.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_ten_seconds_and_are_forgotten_after_quiet() {
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
