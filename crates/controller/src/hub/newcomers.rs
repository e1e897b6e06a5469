//! Connections that have not identified themselves yet. If no place is free, the oldest of them is closed. So a peer
//! with silent connections blocks nobody.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

/// Newcomers by address, oldest first. Entries of connections that have identified themselves or are closed stay in
/// the queues until they are found.
#[derive(Debug)]
pub(crate) struct Newcomers<T> {
    by_peer: BTreeMap<Option<IpAddr>, VecDeque<T>>,
    /// Maximum number of newcomers. If the queues hold more entries, some belong to connections that are no longer
    /// new.
    most: usize,
    queued: usize,
}

impl<T> Newcomers<T> {
    /// Returns an empty queue for this maximum number of newcomers.
    pub(crate) fn new(most: usize) -> Newcomers<T> {
        Newcomers { by_peer: BTreeMap::new(), most, queued: 0 }
    }

    /// Adds a newcomer.
    pub(crate) fn push(&mut self, peer: Option<IpAddr>, newcomer: T, is_new: impl Fn(&T) -> bool) {
        if self.queued > 2 * self.most {
            self.by_peer.values_mut().for_each(|queue| queue.retain(&is_new));
            self.by_peer.retain(|_, queue| !queue.is_empty());
            self.queued = self.by_peer.values().map(VecDeque::len).sum();
        }
        self.by_peer.entry(peer).or_default().push_back(newcomer);
        self.queued += 1;
    }

    /// Removes and returns the oldest newcomer of this address. If there is none and `of_any` is set, takes the
    /// oldest newcomer of the address with the most entries.
    pub(crate) fn take(&mut self, peer: Option<IpAddr>, of_any: bool, is_new: impl Fn(&T) -> bool) -> Option<T> {
        let mut found = self.take_of(peer, &is_new);
        while let (None, true, Some(longest)) = (&found, of_any, self.most_crowded()) {
            found = self.take_of(longest, &is_new);
        }
        found
    }

    fn most_crowded(&self) -> Option<Option<IpAddr>> {
        self.by_peer.iter().max_by_key(|(_, queue)| queue.len()).map(|(&peer, _)| peer)
    }

    fn take_of(&mut self, peer: Option<IpAddr>, is_new: impl Fn(&T) -> bool) -> Option<T> {
        let queue = self.by_peer.get_mut(&peer)?;
        let mut found = None;
        while let Some(first) = queue.pop_front() {
            self.queued -= 1;
            if is_new(&first) {
                found = Some(first);
                break;
            }
        }
        if queue.is_empty() {
            self.by_peer.remove(&peer);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> Option<IpAddr> {
        Some([192, 0, 2, last].into())
    }

    #[test]
    fn the_oldest_of_the_address_is_taken_then_of_the_most_crowded_address() {
        let mut newcomers = Newcomers::new(10);
        for (peer, number) in [(1, 1), (1, 2), (2, 3), (3, 4), (3, 5)] {
            newcomers.push(ip(peer), number, |_| true);
        }
        let is_new = |number: &i32| *number != 1;
        assert_eq!(newcomers.take(ip(1), false, is_new), Some(2));
        assert_eq!(newcomers.take(ip(1), false, is_new), None);
        assert_eq!(newcomers.take(ip(1), true, is_new), Some(4));
        assert_eq!([0; 3].map(|_| newcomers.take(ip(9), true, is_new)), [Some(5), Some(3), None]);
        assert!(newcomers.by_peer.is_empty() && newcomers.queued == 0);
    }

    #[test]
    fn entries_of_closed_connections_are_removed() {
        let mut newcomers = Newcomers::new(10);
        for number in 0..10_000 {
            newcomers.push(ip((number % 200) as u8), number, |other| *other + 5 > number);
        }
        assert!(newcomers.queued <= 21 && newcomers.by_peer.len() <= 21, "{}", newcomers.queued);
    }
}
