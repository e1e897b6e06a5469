//! Rate limit of each host port, and of all host ports together.

use super::token_bucket::TokenBucket;
use pathloom_model::{Nanos, PortNo};
use std::collections::BTreeMap;

/// Each port has a limit of its own. Host ports together may do as much as `busy_ports` of them alone. Half of that is divided
/// among them equally: a port always has its share, whatever the others do. They compete for the other half.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct SharedLimit {
    per_s: u32,
    /// Rate of the half for which ports compete.
    common_per_s: u32,
    common: TokenBucket,
    ports: BTreeMap<PortNo, PortLimit>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct PortLimit {
    alone: TokenBucket,
    /// Share of what all ports have together. `None`: the port leads to a switch.
    share: Option<TokenBucket>,
}

impl SharedLimit {
    pub(crate) fn new(per_s: u32, busy_ports: u32) -> SharedLimit {
        let common_per_s = (u64::from(per_s) * u64::from(busy_ports) / 2).clamp(1, u64::from(u32::MAX)) as u32;
        SharedLimit { per_s, common_per_s, common: TokenBucket::new(common_per_s), ports: BTreeMap::new() }
    }

    /// Adds a port, if it is not known yet. `shares`: whether hosts may be there.
    pub(crate) fn add(&mut self, port: PortNo, shares: bool) {
        if self.ports.contains_key(&port) {
            return;
        }
        let share = shares.then(|| TokenBucket::new(self.common_per_s));
        self.ports.insert(port, PortLimit { alone: TokenBucket::new(self.per_s), share });
        let shares = || self.ports.values().filter(|port| port.share.is_some());
        let each_per_s = (self.common_per_s / (shares().count().max(1) as u32)).max(1);
        self.ports.values_mut().filter_map(|port| port.share.as_mut()).for_each(|share| share.set_rate(each_per_s));
    }

    /// Takes a token of a port for its hosts. Returns false if there is none.
    pub(crate) fn take(&mut self, now: Nanos, port: PortNo) -> bool {
        let Some(PortLimit { alone, share }) = self.ports.get_mut(&port) else { return false };
        if !alone.take(now) {
            return false;
        }
        let has = share.as_mut().is_none_or(|share| share.take(now)) || self.common.take(now);
        if !has {
            alone.put_back();
        }
        has
    }

    /// Takes a token of a port that leads to a switch. Returns false if there is none.
    pub(crate) fn take_alone(&mut self, now: Nanos, port: PortNo) -> bool {
        self.ports.get_mut(&port).is_some_and(|port| port.alone.take(now))
    }

    /// Puts a token of a port back that was taken for its hosts.
    pub(crate) fn put_back(&mut self, port: PortNo) {
        let Some(PortLimit { alone, share: Some(share) }) = self.ports.get_mut(&port) else { return };
        alone.put_back();
        if !share.put_back() {
            self.common.put_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each of `ports` takes in a second of a flood, after the burst.
    fn taken(limit: &mut SharedLimit, ports: std::ops::Range<u32>) -> Vec<usize> {
        let mut flood = |from_ms: u64| {
            let mut counts = vec![0; ports.len()];
            for ms in from_ms..from_ms + 1_000 {
                for (count, port) in counts.iter_mut().zip(ports.clone()) {
                    *count += (0..3).filter(|_| limit.take(Nanos::from_millis(ms), PortNo(port))).count();
                }
            }
            counts
        };
        (0..3).for_each(|second| drop(flood(second * 1_000)));
        flood(3_000)
    }

    fn limit(ports: u32) -> SharedLimit {
        let mut limit = SharedLimit::new(100, 4);
        (0..ports).for_each(|port| limit.add(PortNo(port), true));
        limit
    }

    #[test]
    fn a_flood_from_many_ports_gets_no_more_than_some_and_the_others_keep_their_shares() {
        assert_eq!(taken(&mut limit(20), 0..1), [100], "one port has its own limit");
        let mut flooded = limit(20);
        let counts = taken(&mut flooded, 0..19);
        let all: usize = counts.iter().sum();
        assert!(counts.iter().all(|&count| count >= 10), "{counts:?}");
        assert_eq!(all, 200 + 19 * 10);
        // The last port has been quiet: its burst, and what it has per second.
        let quiet =
            |flooded: &mut SharedLimit| (0..100).filter(|_| flooded.take(Nanos::from_secs(4), PortNo(19))).count();
        assert!((20..=21).contains(&quiet(&mut flooded)));
    }

    #[test]
    fn what_is_put_back_belongs_to_its_port_first() {
        let mut limit = limit(20);
        (0..19).for_each(|port| (0..300).for_each(|_| _ = limit.take(Nanos::ZERO, PortNo(port))));
        let last = PortNo(19);
        for _ in 0..1_000 {
            assert!(limit.take(Nanos::ZERO, last));
            limit.put_back(last);
        }
        let other = PortNo(18);
        assert!(!limit.take(Nanos::ZERO, other));
        limit.put_back(last);
        assert!(limit.take(Nanos::ZERO, other), "the share was full");
    }

    #[test]
    fn ports_that_lead_to_switches_share_nothing() {
        let mut limit = limit(1);
        limit.add(PortNo(7), false);
        (0..1_000).for_each(|_| _ = limit.take(Nanos::ZERO, PortNo(0)));
        assert_eq!((0..1_000).filter(|_| limit.take_alone(Nanos::ZERO, PortNo(7))).count(), 200);
        assert!(!limit.take(Nanos::ZERO, PortNo(8)), "unknown");
    }
}
