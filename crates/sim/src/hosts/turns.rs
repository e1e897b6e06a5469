//! Turns of the transfers that share a card, or that one host pulls: in turn or, where hosts mark packets by age, the
//! youngest level first.

use pathloom_scheme::Ageing;
use std::collections::VecDeque;

/// When a transfer has its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rank {
    /// Its level; 0 comes first.
    level: u8,
    /// Whether it goes on before others of its level, so that one transfer after the other ends.
    goes_on: bool,
}

impl Rank {
    /// The rank of a transfer that has sent, or received, so many bytes. A message `of_job` is as old as its job, which sends
    /// more than any other. Messages of one job share, because the job waits for all of them.
    pub(super) fn of(ageing: Option<Ageing>, bytes: u64, of_job: bool) -> Rank {
        let level = ageing.map_or(0, |ageing| ageing.level(age(bytes, of_job)));
        Rank { level, goes_on: ageing.is_some() && !of_job }
    }
}

/// The bytes by which a message is ranked.
pub(super) fn age(bytes: u64, of_job: bool) -> u64 {
    if of_job {
        u64::MAX
    } else {
        bytes
    }
}

/// Slots of transfers, in the order of their turns.
#[derive(Default)]
pub(super) struct Turns {
    /// By level; one if there are no levels.
    levels: Vec<VecDeque<u32>>,
}

impl Turns {
    pub(super) fn is_empty(&self) -> bool {
        self.levels.iter().all(VecDeque::is_empty)
    }

    /// A transfer that has no turn gets one, after all others of its level.
    pub(super) fn add(&mut self, rank: Rank, slot: u32) {
        self.level(rank).push_back(slot);
    }

    /// The transfer that [`Turns::next`] returned keeps a turn.
    pub(super) fn keep(&mut self, rank: Rank, slot: u32) {
        let level = self.level(rank);
        if rank.goes_on {
            level.push_front(slot);
        } else {
            level.push_back(slot);
        }
    }

    /// Takes the transfer whose turn it is.
    pub(super) fn next(&mut self) -> Option<u32> {
        self.levels.iter_mut().find_map(VecDeque::pop_front)
    }

    /// A transfer loses its turn.
    pub(super) fn remove(&mut self, slot: u32) {
        self.levels.iter_mut().for_each(|level| level.retain(|&other| other != slot));
    }

    fn level(&mut self, rank: Rank) -> &mut VecDeque<u32> {
        let level = usize::from(rank.level);
        while self.levels.len() <= level {
            self.levels.push(VecDeque::new());
        }
        &mut self.levels[level]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGEING: Option<Ageing> = Some(Ageing { first_bytes: 100, factor: 2, levels: 3 });

    /// Lets each of four transfers that have a turn keep it, and returns their order.
    fn order(turns: &mut Turns, rank: impl Fn(u32) -> Rank) -> [u32; 4] {
        [(); 4].map(|()| {
            let slot = turns.next().unwrap();
            turns.keep(rank(slot), slot);
            slot
        })
    }

    #[test]
    fn without_levels_transfers_take_turns_and_so_do_messages_of_jobs() {
        for (ageing, of_job) in [(None, false), (AGEING, true)] {
            let mut turns = Turns::default();
            let rank = |slot: u32| Rank::of(ageing, u64::from(slot) * 90, of_job);
            turns.add(rank(1), 1);
            turns.add(rank(2), 2);
            assert_eq!(order(&mut turns, rank), [1, 2, 1, 2]);
        }
    }

    #[test]
    fn the_youngest_level_goes_first_and_its_first_transfer_continues() {
        let rank = |bytes| Rank::of(AGEING, bytes, false);
        let mut turns = Turns::default();
        turns.add(Rank::of(AGEING, 0, true), 9);
        turns.add(rank(500), 1);
        turns.add(rank(150), 2);
        turns.add(rank(120), 3);
        assert_eq!(turns.next(), Some(2));
        turns.keep(rank(160), 2);
        assert_eq!(turns.next(), Some(2), "it goes on before the other one of its level");
        turns.keep(rank(200), 2);
        assert_eq!(turns.next(), Some(3), "it has grown older");
        assert_eq!([(); 4].map(|()| turns.next()), [Some(2), Some(9), Some(1), None]);
        turns.add(rank(0), 4);
        turns.remove(4);
        assert!(turns.is_empty());
    }
}
