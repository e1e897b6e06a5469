//! An agenda of timers: things to do later. Each thing has at most one due time, which can be changed.

use pathloom_model::Nanos;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::hash::Hash;

/// Things and their due times. Things with the same time are sorted by their `Ord`.
#[derive(Clone, Debug)]
pub(crate) struct Agenda<T> {
    by_time: BTreeSet<(Nanos, T)>,
    /// Only for look-ups.
    due: FxHashMap<T, Nanos>,
}

impl<T: Copy + Ord + Hash> Agenda<T> {
    pub(crate) fn new() -> Agenda<T> {
        Agenda { by_time: BTreeSet::new(), due: FxHashMap::default() }
    }

    /// Sets the due time of `thing` to `at`.
    pub(crate) fn set(&mut self, thing: T, at: Nanos) {
        if let Some(before) = self.due.insert(thing, at) {
            self.by_time.remove(&(before, thing));
        }
        self.by_time.insert((at, thing));
    }

    /// Removes `thing`, if it is on the agenda.
    pub(crate) fn cancel(&mut self, thing: T) {
        if let Some(at) = self.due.remove(&thing) {
            self.by_time.remove(&(at, thing));
        }
    }

    /// Whether `thing` is on the agenda.
    pub(crate) fn has(&self, thing: T) -> bool {
        self.due.contains_key(&thing)
    }

    /// Time at which the first thing is due.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.by_time.first().map(|&(at, _)| at)
    }

    /// Removes and returns the first thing, if it is due.
    pub(crate) fn pop(&mut self, now: Nanos) -> Option<T> {
        let &(at, thing) = self.by_time.first().filter(|&&(at, _)| at <= now)?;
        self.by_time.remove(&(at, thing));
        self.due.remove(&thing);
        Some(thing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_due_once_at_the_time_last_set() {
        let mut agenda = Agenda::new();
        agenda.set('b', Nanos(5));
        agenda.set('a', Nanos(5));
        agenda.set('b', Nanos(9));
        agenda.set('c', Nanos(1));
        agenda.cancel('c');
        agenda.cancel('z');
        assert_eq!(agenda.next(), Some(Nanos(5)));
        assert_eq!(agenda.pop(Nanos(4)), None);
        assert_eq!((agenda.pop(Nanos(9)), agenda.pop(Nanos(9)), agenda.pop(Nanos(9))), (Some('a'), Some('b'), None));
    }
}
