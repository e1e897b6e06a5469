//! Times at which table entries are checked for their age.

use pathloom_model::Nanos;
use std::collections::BTreeSet;

/// Check times of entries. A renewed entry keeps its earlier check time, and this check then changes nothing. So
/// renewals, which are frequent, cost nothing here.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct CheckQueue<K>(BTreeSet<(Nanos, K)>);

impl<K: Ord + Copy> CheckQueue<K> {
    pub(crate) fn new() -> CheckQueue<K> {
        CheckQueue(BTreeSet::new())
    }

    /// Adds a check of `key` at time `at`.
    pub(crate) fn watch(&mut self, at: Nanos, key: K) {
        self.0.insert((at, key));
    }

    /// Removes and returns the next key whose check is due.
    pub(crate) fn pop_due(&mut self, now: Nanos) -> Option<K> {
        let &(at, key) = self.0.first()?;
        (at <= now).then(|| {
            self.0.pop_first();
            key
        })
    }

    /// Time of the next check.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.0.first().map(|&(at, _)| at)
    }
}
