//! The paths of a connection in turn, as published (MPTCP-aware SDN, Algorithm 1): each subflow takes the next path of
//! the set for its addresses, whether earlier subflows still exist or not.

use super::paths::Addresses;
use pathloom_model::Nanos;
use std::collections::{BTreeMap, BTreeSet};

/// Connections are forgotten this long after their first further subflow (§IV-B.2).
const LIFETIME: Nanos = Nanos::from_secs(5);
/// Maximum number of pairs of addresses in `primary`. When it is reached, all are dropped.
const MOST_PAIRS: usize = 1 << 16;

/// The published tables. A restart loses them.
#[derive(Default)]
pub(super) struct Turns {
    /// `primaryIPs`: pairs of addresses that have had a first subflow. It is on the shortest path.
    primary: BTreeSet<Addresses>,
    /// `flows`: by token, when the entry was made, and by pair of addresses the number of further subflows.
    connections: BTreeMap<u32, (Nanos, BTreeMap<Addresses, usize>)>,
}

impl Turns {
    /// The path of a first subflow (lines 4 to 8): the shortest, which is the first of the set.
    pub(super) fn begin(&mut self, addresses: Addresses) -> usize {
        if self.primary.len() >= MOST_PAIRS {
            self.primary.clear();
        }
        self.primary.insert(addresses);
        0
    }

    /// The path of a further subflow among this many (lines 9 to 29). Between addresses of a first subflow, the turn begins
    /// with the second path.
    pub(super) fn join(&mut self, now: Nanos, token: u32, addresses: Addresses, paths: usize) -> usize {
        self.connections.retain(|_, (since, _)| now.saturating_sub(*since) < LIFETIME);
        let (_, taken) = self.connections.entry(token).or_insert_with(|| (now, BTreeMap::new()));
        let taken = taken.entry(addresses).or_default();
        *taken += 1;
        let before = *taken - 1 + usize::from(self.primary.contains(&addresses));
        before % paths.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_model::Address;

    const PAIR: Addresses = (Address::new(10, 0, 0, 1), Address::new(10, 0, 0, 2));
    const OTHER: Addresses = (Address::new(10, 0, 0, 1), Address::new(10, 0, 0, 3));

    #[test]
    fn subflows_take_the_next_path_in_turn_and_a_token_lasts_five_seconds() {
        let (mut turns, s) = (Turns::default(), Nanos::from_secs);
        assert_eq!(turns.begin(PAIR), 0);
        let paths: Vec<usize> = (0..5).map(|_| turns.join(s(0), 7, PAIR, 4)).collect();
        assert_eq!(paths, [1, 2, 3, 0, 1]);
        assert_eq!([turns.join(s(0), 7, OTHER, 4), turns.join(s(0), 8, OTHER, 4)], [0, 0]);
        assert_eq!(turns.join(s(4), 7, PAIR, 4), 2, "still known");
        assert_eq!(turns.join(s(5), 7, PAIR, 4), 1, "forgotten");
        assert_eq!(turns.join(s(5), 7, PAIR, 0), 0, "no path");
    }
}
