//! Rate limit of a port for explorations and similar events.

use pathloom_model::units::NS_PER_S;
use pathloom_model::Nanos;

/// A token bucket in integers: `per_s` tokens per second, at most twice as many at once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct TokenBucket {
    per_s: u32,
    /// Billionths of a token.
    parts: u64,
    at: Nanos,
}

impl TokenBucket {
    pub(crate) fn new(per_s: u32) -> TokenBucket {
        TokenBucket { per_s, parts: TokenBucket::most(per_s), at: Nanos::ZERO }
    }

    fn most(per_s: u32) -> u64 {
        u64::from(per_s) * 2 * NS_PER_S
    }

    /// Takes a token. Returns false if there is none.
    pub(crate) fn take(&mut self, now: Nanos) -> bool {
        let gained = now.saturating_sub(self.at).0.saturating_mul(u64::from(self.per_s));
        self.parts = self.parts.saturating_add(gained).min(TokenBucket::most(self.per_s));
        self.at = self.at.max(now);
        let enough = self.parts >= NS_PER_S;
        if enough {
            self.parts -= NS_PER_S;
        }
        enough
    }

    /// Puts a token back that was taken. Returns false if there is no room for it.
    pub(crate) fn put_back(&mut self) -> bool {
        let most = TokenBucket::most(self.per_s);
        let room = self.parts.saturating_add(NS_PER_S) <= most;
        self.parts = self.parts.saturating_add(NS_PER_S).min(most);
        room
    }

    /// Changes the rate. What the bucket has by now stays, as far as it has room.
    pub(crate) fn set_rate(&mut self, per_s: u32) {
        self.per_s = per_s;
        self.parts = self.parts.min(TokenBucket::most(per_s));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let mut bucket = TokenBucket::new(10);
        let mut take = |at: Nanos, tries: usize| (0..tries).filter(|_| bucket.take(at)).count();
        assert_eq!(take(Nanos::ZERO, 100), 20);
        assert_eq!(take(Nanos::from_millis(99), 100), 0);
        assert_eq!(take(Nanos::from_millis(100), 100), 1);
        assert_eq!(take(Nanos::from_secs(1), 100), 9);
        assert_eq!(take(Nanos::MAX, 100), 20);
        assert!(bucket.put_back());
        assert_eq!((0..100).filter(|_| bucket.take(Nanos::MAX)).count(), 1);
        assert_eq!((0..100).filter(|_| bucket.put_back()).count(), 20);
        assert_eq!((0..100).filter(|_| bucket.take(Nanos::MAX)).count(), 20, "no more than after a pause");
        (0..100).for_each(|_| _ = bucket.put_back());
        bucket.set_rate(3);
        assert_eq!((0..100).filter(|_| bucket.take(Nanos::MAX)).count(), 6);
    }
}
