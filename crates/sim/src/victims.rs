//! Victim flows of priority-based flow control: flows that a pause holds back although they do not feed the queue that
//! caused it (Zhu et al. 2015, §2.2 and figure 4).
//!
//! The cause of a pause is a queue, its root. `network/victims.rs` finds it. From then on this file notes the connections
//! with packets that wait in that queue, and how long each connection is held back because of it. Those held back that
//! never fed the queue are victims.

use crate::time::{to_nanos, Ps};
use pathloom_model::{FiveTuple, LinkId, Nanos};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A queue: a link whose port it belongs to, and its priority.
pub(crate) type QueueId = (u32, u8);

/// A connection that pauses held back, and a queue that caused them.
#[derive(Clone, Debug, PartialEq)]
pub struct Victim {
    /// The five-tuple of its data.
    pub five_tuple: FiveTuple,
    /// The link of the queue. The connection had no packet there.
    pub root: LinkId,
    /// The paused link at which it was held back for the longest time.
    pub link: LinkId,
    /// This time.
    pub paused: Nanos,
}

/// The connections that have fed a root.
#[derive(Clone, Debug, Default)]
struct Feeders {
    all: FxHashSet<FiveTuple>,
    /// The last one: packets of one connection often follow each other.
    last: Option<FiveTuple>,
}

/// What pauses have held back, and what fed the queues that caused them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Victims {
    /// The present root of each paused priority of a link.
    present: BTreeMap<QueueId, QueueId>,
    roots: BTreeMap<QueueId, Feeders>,
    /// Connections whose turn has come at a paused card: since when.
    at_cards: BTreeMap<QueueId, BTreeMap<FiveTuple, Ps>>,
    /// Time for which a connection was held back because of a root, by this paused link.
    held: FxHashMap<(FiveTuple, QueueId, u32), Ps>,
}

impl Victims {
    /// A priority of a link is paused because of `root`. Returns whether it is a new root.
    pub(crate) fn begin(&mut self, paused: QueueId, root: QueueId) -> bool {
        self.present.insert(paused, root);
        let is_new = !self.roots.contains_key(&root);
        self.roots.entry(root).or_default();
        is_new
    }

    /// Packets of a connection wait in a queue.
    pub(crate) fn wait(&mut self, queue: QueueId, five_tuple: impl FnOnce() -> FiveTuple) {
        let Some(feeders) = self.roots.get_mut(&queue) else { return };
        let five_tuple = five_tuple();
        if feeders.last.replace(five_tuple) != Some(five_tuple) {
            feeders.all.insert(five_tuple);
        }
    }

    /// The turn of a connection has come at a paused card.
    pub(crate) fn wait_at_card(&mut self, now: Ps, paused: QueueId, five_tuple: FiveTuple) {
        self.at_cards.entry(paused).or_default().entry(five_tuple).or_insert(now);
    }

    /// A priority of a link is resumed. The connections that `waited` for it with packets have been held back, each of which is
    /// named once with the time since when, and those at its card.
    pub(crate) fn end(&mut self, now: Ps, paused: QueueId, mut waited: Vec<(FiveTuple, Ps)>) {
        if let Some(at_card) = self.at_cards.remove(&paused) {
            waited.extend(at_card);
            // The earlier time comes first.
            waited.sort_unstable();
            waited.dedup_by_key(|&mut (five_tuple, _)| five_tuple);
        }
        let Some(root) = self.present.remove(&paused) else { return };
        for (five_tuple, came) in waited {
            *self.held.entry((five_tuple, root, paused.0)).or_default() += now.saturating_sub(came);
        }
    }

    /// The victims, those that were held back for the longest time first. Each connection is named once, with the root
    /// that held it back longest.
    pub(crate) fn all(&self) -> Vec<Victim> {
        let feeds = |(five_tuple, root, _): &(FiveTuple, QueueId, u32)| {
            self.roots.get(root).is_some_and(|feeders| feeders.all.contains(five_tuple))
        };
        let victims = self.held.iter().filter(|(of, _)| !feeds(of)).map(|(&(five_tuple, root, link), &paused)| {
            let paused = to_nanos(paused);
            Victim { five_tuple, root: LinkId(root.0), link: LinkId(link), paused }
        });
        let mut all: Vec<Victim> = victims.filter(|victim| victim.paused > Nanos::ZERO).collect();
        // Of equal times the lower root and the higher link come first.
        all.sort_unstable_by_key(|one| (Reverse(one.paused), one.five_tuple, one.root, Reverse(one.link)));
        let mut named = FxHashSet::default();
        all.retain(|victim| named.insert(victim.five_tuple));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_model::Address;

    fn connection(number: u8) -> FiveTuple {
        let address = |last| Address::new(10, 0, 0, last);
        FiveTuple::new(17, (address(number), 1), (address(100), 2))
    }

    const ROOT: QueueId = (9, 0);

    #[test]
    fn a_connection_that_is_held_back_and_never_feeds_the_root_is_a_victim() {
        let mut victims = Victims::default();
        assert!(victims.begin((1, 0), ROOT));
        assert!(!victims.begin((2, 0), ROOT), "known already");
        victims.wait(ROOT, || connection(1));
        victims.wait((8, 0), || unreachable!("no root"));
        let waiting = |numbers: &[u8]| numbers.iter().map(|&n| (connection(n), 3_000)).collect::<Vec<_>>();
        victims.end(5_000, (1, 0), waiting(&[1, 2]));
        victims.wait_at_card(6_000, (2, 0), connection(3));
        victims.wait_at_card(7_000, (2, 0), connection(3));
        victims.wait_at_card(7_000, (4, 0), connection(4));
        victims.wait_at_card(12_000, (2, 0), connection(2));
        victims.end(16_000, (2, 0), waiting(&[2]));
        let found: Vec<_> = victims.all().into_iter().map(|one| (one.five_tuple, one.link.0, one.paused.0)).collect();
        assert_eq!(found, [(connection(2), 2, 13), (connection(3), 2, 10)]);
        // The packets of one of them reach the root in the end.
        victims.wait(ROOT, || connection(2));
        assert_eq!(victims.all().len(), 1);
    }

    #[test]
    fn the_longest_root_is_named_and_a_pause_without_a_root_has_no_victims() {
        let mut victims = Victims::default();
        for (paused, root, since) in [((1, 0), ROOT, 4_000), ((2, 0), (7, 0), 1_000)] {
            victims.begin(paused, root);
            victims.end(9_000, paused, vec![(connection(1), since)]);
        }
        victims.end(9_000, (3, 0), vec![(connection(5), 0)]);
        let [victim] = victims.all().try_into().unwrap();
        assert_eq!((victim.root, victim.link, victim.paused), (LinkId(7), LinkId(2), Nanos(8)));
    }
}
