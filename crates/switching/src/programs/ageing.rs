//! When to look at which entry of a table again.

use pathloom_model::Nanos;
use std::collections::BTreeSet;

/// Times at which entries want to be looked at. An entry that is renewed keeps its early time and is looked at in vain;
/// so renewal, which is frequent, costs nothing here.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Ageing<K>(BTreeSet<(Nanos, K)>);

impl<K: Ord + Copy> Ageing<K> {
    pub(crate) fn new() -> Ageing<K> {
        Ageing(BTreeSet::new())
    }

    /// Asks for a look at `key` at `at`.
    pub(crate) fn watch(&mut self, at: Nanos, key: K) {
        self.0.insert((at, key));
    }

    /// The next key whose time has come.
    pub(crate) fn pop_due(&mut self, now: Nanos) -> Option<K> {
        let &(at, key) = self.0.first()?;
        (at <= now).then(|| {
            self.0.pop_first();
            key
        })
    }

    /// When the next time comes.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.0.first().map(|&(at, _)| at)
    }
}
