//! Turns of the transfers that share a card, or that one host pulls: in turn or, where hosts mark packets by age, the
//! youngest level first.

use pathloom_scheme::Ageing;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::VecDeque;

/// Constant that makes these draws differ from others with the same seed.
const STREAM: u64 = 0x616e_6e6f_756e_6365;

/// Whether the application of a transfer announces its size: drawn for each transfer, with a probability of `percent`.
pub(super) fn is_announced(percent: u8, seed: u64, transfer: u32) -> bool {
    percent > 0 && Pcg64::seed_from_u64(seed ^ STREAM ^ u64::from(transfer)).random_range(0..100) < percent
}

/// What decides the level of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RankedBy {
    /// The bytes that it has sent.
    Sent,
    /// The bytes that are left of its size, which its application has announced.
    Left { size_bytes: u64 },
    /// Its job: a message is as old as its job, which sends more than any other.
    Job,
}

impl RankedBy {
    /// The bytes by which a message is ranked that has sent, or whose receiver has, so many.
    pub(super) fn bytes(self, done: u64) -> u64 {
        match self {
            RankedBy::Sent => done,
            RankedBy::Left { size_bytes } => size_bytes.saturating_sub(done),
            RankedBy::Job => u64::MAX,
        }
    }
}

/// When a transfer has its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rank {
    /// Its level; 0 comes first.
    level: u8,
    /// Within a level, the fewest bytes left come first. 0 if they are not known.
    left_bytes: u64,
    /// Whether it goes on before others like it, so that one transfer after the other ends.
    goes_on: bool,
}

impl Rank {
    /// The rank of a transfer that has sent, or received, `done` bytes. Messages of one job share, because the job waits for all
    /// of them.
    pub(super) fn of(ageing: Option<Ageing>, by: RankedBy, done: u64) -> Rank {
        let bytes = by.bytes(done);
        let left_bytes = if matches!(by, RankedBy::Left { .. }) { bytes } else { 0 };
        let level = ageing.map_or(0, |ageing| ageing.level(bytes));
        Rank { level, left_bytes, goes_on: ageing.is_some() && by != RankedBy::Job }
    }
}

/// Slots of transfers, in the order of their turns.
#[derive(Default)]
pub(super) struct Turns {
    /// By level, in ascending order of the bytes left. There is one level if transfers have none.
    levels: Vec<VecDeque<(u64, u32)>>,
}

impl Turns {
    pub(super) fn is_empty(&self) -> bool {
        self.levels.iter().all(VecDeque::is_empty)
    }

    /// A transfer that has no turn gets one, after all others of its rank.
    pub(super) fn add(&mut self, rank: Rank, slot: u32) {
        let level = self.level(rank);
        let place = level.partition_point(|&(left_bytes, _)| left_bytes <= rank.left_bytes);
        level.insert(place, (rank.left_bytes, slot));
    }

    /// The transfer that [`Turns::next`] returned keeps a turn.
    pub(super) fn keep(&mut self, rank: Rank, slot: u32) {
        if !rank.goes_on {
            return self.add(rank, slot);
        }
        let level = self.level(rank);
        let place = level.partition_point(|&(left_bytes, _)| left_bytes < rank.left_bytes);
        level.insert(place, (rank.left_bytes, slot));
    }

    /// Takes the transfer whose turn it is.
    pub(super) fn next(&mut self) -> Option<u32> {
        self.levels.iter_mut().find_map(VecDeque::pop_front).map(|(_, slot)| slot)
    }

    /// A transfer loses its turn.
    pub(super) fn remove(&mut self, slot: u32) {
        self.levels.iter_mut().for_each(|level| level.retain(|&(_, other)| other != slot));
    }

    fn level(&mut self, rank: Rank) -> &mut VecDeque<(u64, u32)> {
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

    const AGEING: Option<Ageing> = Some(Ageing { first_bytes: 100, factor: 2, levels: 3, announced_percent: 0 });

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
        for (ageing, by) in [(None, RankedBy::Sent), (AGEING, RankedBy::Job)] {
            let mut turns = Turns::default();
            let rank = |slot: u32| Rank::of(ageing, by, u64::from(slot) * 90);
            turns.add(rank(1), 1);
            turns.add(rank(2), 2);
            assert_eq!(order(&mut turns, rank), [1, 2, 1, 2]);
        }
    }

    #[test]
    fn the_youngest_level_goes_first_and_its_first_transfer_continues() {
        let rank = |bytes| Rank::of(AGEING, RankedBy::Sent, bytes);
        let mut turns = Turns::default();
        turns.add(Rank::of(AGEING, RankedBy::Job, 0), 9);
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

    #[test]
    fn about_the_given_share_of_the_transfers_is_announced() {
        let announced = |percent, seed| (0..10_000).filter(|&at| is_announced(percent, seed, at)).count();
        assert_eq!([announced(0, 1), announced(100, 1)], [0, 10_000]);
        // Five standard deviations.
        assert!([1, 2, 3].iter().all(|&seed| announced(50, seed).abs_diff(5_000) < 250));
    }

    #[test]
    fn announced_messages_go_by_what_is_left_of_them() {
        let left = |size_bytes, done| Rank::of(AGEING, RankedBy::Left { size_bytes }, done);
        let mut turns = Turns::default();
        turns.add(left(5_000, 0), 1);
        turns.add(left(900, 0), 2);
        turns.add(left(1_000, 200), 3);
        turns.add(Rank::of(AGEING, RankedBy::Sent, 5_000), 4);
        turns.add(left(5_000, 4_950), 5);
        assert_eq!([(); 5].map(|()| turns.next()), [Some(5), Some(4), Some(3), Some(2), Some(1)]);
        turns.add(left(5_000, 1_000), 1);
        turns.add(left(4_000, 0), 2);
        assert_eq!(turns.next(), Some(1));
        turns.keep(left(5_000, 1_100), 1);
        assert_eq!(turns.next(), Some(1), "it goes on, because it has less left now");
        assert_eq!(left(100, 200).left_bytes, 0, "repeated bytes count as sent");
    }
}
