//! The decisions of the default forwarding that a driver may remember, and those that it must forget.

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
    stale: BTreeSet<FiveTuple>,
    all_stale: bool,
}

impl DecisionCache {
    pub(crate) fn new(most: usize) -> DecisionCache {
        let (ends, by_destination) = (BTreeMap::new(), BTreeMap::new());
        DecisionCache { most, ends, by_destination, stale: BTreeSet::new(), all_stale: false }
    }

    /// Notes that a decision about frames between these stations may be remembered.
    pub(crate) fn note(&mut self, five_tuple: FiveTuple, src: Mac, dst: Mac) {
        if self.ends.len() >= self.most && !self.ends.contains_key(&five_tuple) {
            self.forget_all();
        }
        if let Some((_, before)) = self.ends.insert(five_tuple, (src, dst)) {
            if before != dst {
                self.by_destination.entry(before).or_default().remove(&five_tuple);
            }
        }
        self.by_destination.entry(dst).or_default().insert(five_tuple);
    }

    /// Returns the source and destination station of a remembered decision.
    pub(crate) fn ends(&self, five_tuple: &FiveTuple) -> Option<(Mac, Mac)> {
        self.ends.get(five_tuple).copied()
    }

    /// Marks all decisions about frames to a station as wrong, because the way to it has changed.
    pub(crate) fn forget_destination(&mut self, dst: Mac) {
        for five_tuple in self.by_destination.remove(&dst).unwrap_or_default() {
            self.ends.remove(&five_tuple);
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
        self.ends.clear();
        self.by_destination.clear();
        self.stale.clear();
        self.all_stale = true;
    }

    pub(crate) fn take_stale(&mut self) -> Stale {
        let stale = std::mem::take(&mut self.stale);
        if std::mem::take(&mut self.all_stale) {
            // All decisions of the default forwarding are forgotten. Decisions of connections are not stored here.
            self.ends.clear();
            self.by_destination.clear();
            return Stale::Everything;
        }
        if stale.is_empty() {
            Stale::Nothing
        } else {
            Stale::Flows(stale.into_iter().collect())
        }
    }
}
