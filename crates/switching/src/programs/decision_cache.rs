//! The decisions of the default forwarding that a driver may remember, and those that it must forget.

use super::fair_share::FairShare;
use crate::Stale;
use pathloom_model::{FiveTuple, Mac};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of stale five-tuples in the list. If there are more, all decisions are stale.
const MOST_NAMED: usize = 1024;

/// Remembered decisions by five-tuple and by destination, and the decisions that have become wrong.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct DecisionCache {
    most: usize,
    ends: BTreeMap<FiveTuple, (Mac, Mac)>,
    by_destination: BTreeMap<Mac, BTreeSet<FiveTuple>>,
    /// The decisions about the frames of each station, so that one station cannot displace those of others.
    by_source: FairShare<Mac, FiveTuple>,
    stale: BTreeSet<FiveTuple>,
    all_stale: bool,
}

impl DecisionCache {
    pub(crate) fn new(most: usize) -> DecisionCache {
        let (ends, by_destination) = (BTreeMap::new(), BTreeMap::new());
        let (by_source, stale) = (FairShare::new(), BTreeSet::new());
        DecisionCache { most, ends, by_destination, by_source, stale, all_stale: false }
    }

    /// Notes that a decision about frames between these stations may be remembered. If there are too many decisions, the
    /// station with the most loses its oldest one.
    pub(crate) fn note(&mut self, five_tuple: FiveTuple, src: Mac, dst: Mac) {
        match self.ends.get(&five_tuple).copied() {
            Some(before) if before == (src, dst) => return,
            Some((_, before)) => self.leave_destination(before, &five_tuple),
            None if self.ends.len() >= self.most => self.make_room(),
            None => {}
        }
        self.ends.insert(five_tuple, (src, dst));
        self.by_destination.entry(dst).or_default().insert(five_tuple);
        self.by_source.touch(src, five_tuple);
    }

    fn make_room(&mut self) {
        let Some(oldest) = self.by_source.take_surplus() else { return };
        if let Some((_, dst)) = self.ends.remove(&oldest) {
            self.leave_destination(dst, &oldest);
        }
        self.forget(oldest);
    }

    fn leave_destination(&mut self, dst: Mac, five_tuple: &FiveTuple) {
        if let Some(flows) = self.by_destination.get_mut(&dst) {
            flows.remove(five_tuple);
            if flows.is_empty() {
                self.by_destination.remove(&dst);
            }
        }
    }

    /// Returns the source and destination station of a remembered decision.
    pub(crate) fn ends(&self, five_tuple: &FiveTuple) -> Option<(Mac, Mac)> {
        self.ends.get(five_tuple).copied()
    }

    /// Marks all decisions about frames to a station as wrong, because the way to it has changed.
    pub(crate) fn forget_destination(&mut self, dst: Mac) {
        for five_tuple in self.by_destination.remove(&dst).unwrap_or_default() {
            self.ends.remove(&five_tuple);
            self.by_source.remove(&five_tuple);
            self.forget(five_tuple);
        }
    }

    /// Marks decisions about one direction of one connection as possibly wrong.
    pub(crate) fn forget(&mut self, five_tuple: FiveTuple) {
        if self.stale.len() >= MOST_NAMED {
            self.all_stale = true;
        }
        if !self.all_stale {
            self.stale.insert(five_tuple);
        }
    }

    pub(crate) fn forget_all(&mut self) {
        self.clear();
        self.stale.clear();
        self.all_stale = true;
    }

    fn clear(&mut self) {
        self.ends.clear();
        self.by_destination.clear();
        self.by_source.clear();
    }

    pub(crate) fn take_stale(&mut self) -> Stale {
        let stale = std::mem::take(&mut self.stale);
        if std::mem::take(&mut self.all_stale) {
            // All decisions of the default forwarding are forgotten. Decisions of connections are not stored here.
            self.clear();
            return Stale::Everything;
        }
        if stale.is_empty() {
            Stale::Nothing
        } else {
            Stale::Flows(stale.into_iter().collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_model::Address;

    fn flow(number: u16) -> FiveTuple {
        FiveTuple::new(17, (Address::new(127, 0, 0, 1), number), (Address::new(127, 0, 0, 1), 9))
    }

    #[test]
    fn a_station_with_many_flows_loses_its_own_decisions() {
        let (quiet, flooder, to) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 3]));
        let mut decisions = DecisionCache::new(10);
        (0..3).for_each(|number| decisions.note(flow(number), quiet, to));
        for number in 100..500 {
            decisions.note(flow(number), flooder, Mac([4, 0, 0, 0, 0, number as u8]));
            let stale = decisions.take_stale();
            let expected = if number < 107 { Stale::Nothing } else { Stale::Flows(vec![flow(number - 7)]) };
            assert_eq!(stale, expected, "flow {number}");
        }
        (0..3).for_each(|number| assert_eq!(decisions.ends(&flow(number)), Some((quiet, to))));
        assert_eq!(
            (decisions.ends.len(), decisions.by_destination.len()),
            (10, 8),
            "no destination without flows is kept"
        );
    }
}
