//! Limits on frames from one port to the controller. Each port has a token bucket, so a flooding port uses only the
//! tokens of its bucket.

use crate::Place;
use pathloom_model::{units::NS_PER_S, Nanos};
use std::collections::BTreeMap;

/// Tokens arrive at a constant rate and accumulate up to a burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// Tokens per second; at least 1.
    pub per_s: u32,
    /// Maximum number of tokens; at least 1.
    pub burst: u32,
}

/// A token bucket, in integers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TokenBucket {
    rate: Rate,
    /// Tokens times 10⁹: each nanosecond adds `per_s`.
    level: u64,
    filled: Nanos,
}

impl TokenBucket {
    /// Creates a full bucket.
    pub(crate) fn new(now: Nanos, rate: Rate) -> TokenBucket {
        TokenBucket { rate, level: u64::from(rate.burst.max(1)) * NS_PER_S, filled: now }
    }

    fn fill(&mut self, now: Nanos) {
        let gained = now.saturating_sub(self.filled).0.saturating_mul(u64::from(self.rate.per_s.max(1)));
        self.level = self.level.saturating_add(gained).min(u64::from(self.rate.burst.max(1)) * NS_PER_S);
        self.filled = self.filled.max(now);
    }

    /// Takes a token. Returns false if there is none.
    pub(crate) fn take(&mut self, now: Nanos) -> bool {
        self.fill(now);
        let granted = self.level >= NS_PER_S;
        if granted {
            self.level -= NS_PER_S;
        }
        granted
    }

    /// Time at which the next token is available.
    pub(crate) fn ready_at(&self) -> Nanos {
        let lacking = NS_PER_S.saturating_sub(self.level);
        self.filled.saturating_add(Nanos(lacking.div_ceil(u64::from(self.rate.per_s.max(1)))))
    }
}

/// A token bucket per port.
///
/// The number of buckets is bounded by the number of ports. A driver passes only ports that a switch really has. It
/// calls [`PortLimiter::forget`] for the ports of a switch that has left for good.
#[derive(Clone, Debug)]
pub struct PortLimiter {
    rate: Rate,
    /// The bucket of each port, and the number of its frames refused so far.
    buckets: BTreeMap<Place, (TokenBucket, u64)>,
}

impl PortLimiter {
    /// Creates a limiter that allows `rate` for each port.
    pub fn new(rate: Rate) -> PortLimiter {
        PortLimiter { rate, buckets: BTreeMap::new() }
    }

    /// Whether a frame from this port may be handled now. A refused frame costs almost nothing.
    pub fn admit(&mut self, now: Nanos, place: Place) -> bool {
        self.admit_or_count(now, place).is_ok()
    }

    /// Like [`PortLimiter::admit`]. The error is the number of frames of this port refused so far.
    pub fn admit_or_count(&mut self, now: Nanos, place: Place) -> Result<(), u64> {
        let (bucket, refused) = self.buckets.entry(place).or_insert_with(|| (TokenBucket::new(now, self.rate), 0));
        if bucket.take(now) {
            return Ok(());
        }
        *refused += 1;
        Err(*refused)
    }

    /// Drops the bucket of a port that no longer exists.
    pub fn forget(&mut self, place: Place) {
        self.buckets.remove(&place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_flooding_port_does_not_affect_other_ports() {
        let mut limiter = PortLimiter::new(Rate { per_s: 100, burst: 20 });
        let (bad, good) = (Place::new(1, 1), Place::new(1, 2));
        let (mut of_bad, mut of_good) = (0, 0);
        for step in 0..100_000u64 {
            let now = Nanos(step * 10_000);
            of_bad += u32::from(limiter.admit(now, bad));
            if step % 10_000 == 0 {
                of_good += u32::from(limiter.admit(now, good));
            }
        }
        assert_eq!((of_bad, of_good), (119, 10), "20 saved, and 100 a second");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_span_grants_more_than_burst_and_rate(
            gaps in prop::collection::vec(0..50_000_000u64, 1..200), per_s in 1..1000u32, burst in 1..50u32,
        ) {
            let mut bucket = TokenBucket::new(Nanos::ZERO, Rate { per_s, burst });
            let (mut now, mut granted) = (Nanos::ZERO, 0u64);
            for gap in gaps {
                now += Nanos(gap);
                if bucket.take(now) {
                    granted += 1;
                } else {
                    let mut later = bucket;
                    prop_assert!(bucket.ready_at() > now);
                    prop_assert!(later.take(bucket.ready_at()), "there is a token at that time");
                }
                prop_assert!(granted <= u64::from(burst) + now.0 * u64::from(per_s) / NS_PER_S);
            }
        }
    }
}
