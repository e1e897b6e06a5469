//! Which entropy the next packet gets. Entropies are numbered from 1, because 0 means none; lists here count from 0.

use super::EntropyChoice;
use pathloom_model::Nanos;
use rand::RngExt;
use rand_pcg::Pcg32;
use std::collections::VecDeque;

/// What a report says of the path of an entropy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The packet arrived without a mark.
    Good,
    /// It arrived with a mark.
    Marked,
    /// It was trimmed.
    Nacked,
    /// Nothing was heard of it.
    TimedOut,
}

/// The entropies of one transfer.
#[derive(Clone, Debug)]
pub(crate) enum Entropies {
    Single,
    Oblivious(Rounds),
    Bitmap(Bitmap),
    Reps(Reps),
    Mixed(Mixed),
}

impl Entropies {
    pub(crate) fn new(choice: EntropyChoice, paths: u32, rng: &mut Pcg32) -> Entropies {
        let count = paths.max(1).next_power_of_two();
        match choice {
            EntropyChoice::Single => Entropies::Single,
            EntropyChoice::Oblivious => Entropies::Oblivious(Rounds::new(count, rng)),
            EntropyChoice::Bitmap => Entropies::Bitmap(Bitmap::new(count, rng)),
            EntropyChoice::Reps => Entropies::Reps(Reps::new(count)),
            EntropyChoice::Mixed => Entropies::Mixed(Mixed { good: VecDeque::new(), bitmap: Bitmap::new(count, rng) }),
        }
    }

    /// Returns the entropy of the next packet.
    pub(crate) fn next(&mut self, rng: &mut Pcg32) -> u32 {
        1 + match self {
            Entropies::Single => return 0,
            Entropies::Oblivious(rounds) => rounds.next(rng),
            Entropies::Bitmap(bitmap) => bitmap.next(rng),
            Entropies::Reps(reps) => reps.next(rng),
            Entropies::Mixed(mixed) => mixed.next(rng),
        }
    }

    /// Takes what is known of a packet with this entropy. Entropies that were never used change nothing.
    pub(crate) fn learn(&mut self, now: Nanos, entropy: u32, outcome: Outcome) {
        let Some(index) = entropy.checked_sub(1) else { return };
        match self {
            Entropies::Single | Entropies::Oblivious(_) => {}
            Entropies::Bitmap(bitmap) => bitmap.learn(index, outcome),
            Entropies::Reps(reps) => reps.learn(now, index, outcome),
            Entropies::Mixed(mixed) => mixed.learn(index, outcome),
        }
    }
}

/// All entropies in turn. Each round has another order: the exclusive or of a counter and a random number (uet-htsim,
/// `UecMpOblivious`).
#[derive(Clone, Debug)]
pub(crate) struct Rounds {
    count: u32,
    next: u32,
    order: u32,
}

impl Rounds {
    fn new(count: u32, rng: &mut Pcg32) -> Rounds {
        Rounds { count, next: 0, order: rng.random_range(0..count) }
    }

    fn current(&self) -> u32 {
        self.next ^ self.order
    }

    fn advance(&mut self, rng: &mut Pcg32) {
        self.next += 1;
        if self.next == self.count {
            (self.next, self.order) = (0, rng.random_range(0..self.count));
        }
    }

    fn next(&mut self, rng: &mut Pcg32) -> u32 {
        let current = self.current();
        self.advance(rng);
        current
    }
}

/// All entropies in turn, without those that have penalties (uet-htsim, `UecMpBitmap`).
#[derive(Clone, Debug)]
pub(crate) struct Bitmap {
    rounds: Rounds,
    penalties: Vec<u8>,
}

impl Bitmap {
    const MOST: u8 = 15;

    fn new(count: u32, rng: &mut Pcg32) -> Bitmap {
        Bitmap { rounds: Rounds::new(count, rng), penalties: vec![0; count as usize] }
    }

    /// The first entropy that is passed over loses one penalty, the others none. If all have penalties, one of them is
    /// used.
    fn next(&mut self, rng: &mut Pcg32) -> u32 {
        if let Some(penalty @ 1..) = self.penalties.get_mut(self.rounds.current() as usize) {
            *penalty -= 1;
            for _ in 0..=self.rounds.count {
                self.rounds.advance(rng);
                if self.penalties[self.rounds.current() as usize] == 0 {
                    break;
                }
            }
        }
        self.rounds.next(rng)
    }

    fn learn(&mut self, index: u32, outcome: Outcome) {
        let added = match outcome {
            Outcome::Good => 0,
            Outcome::Marked => 1,
            Outcome::Nacked => 4,
            Outcome::TimedOut => Bitmap::MOST,
        };
        if let Some(penalty) = self.penalties.get_mut(index as usize) {
            *penalty = (*penalty + added).min(Bitmap::MOST);
        }
    }
}

/// Recycled entropies: a ring of those that were acknowledged without a mark (Bonato et al., REPS: Recycled Entropy
/// Packet Spraying for Adaptive Load Balancing and Failure Mitigation, 2024, Algorithms 1 and 2).
#[derive(Clone, Debug)]
pub(crate) struct Reps {
    count: u32,
    /// Entropies, and whether each has not been used since it was put here.
    ring: [(u32, bool); Reps::RING],
    filled: usize,
    /// Where the next entropy is put.
    head: usize,
    /// Where the next one is taken during a freeze.
    frozen_head: usize,
    /// End of the freeze, if there is one.
    frozen_until: Option<Nanos>,
    /// Packets that still get random entropies after a freeze.
    explore: u32,
}

impl Reps {
    const RING: usize = 8;
    /// uet-htsim, `exit_freeze_after`.
    const FREEZE: Nanos = Nanos::from_millis(10);
    /// uet-htsim, `explore_counter` after a freeze.
    const EXPLORE: u32 = 16;

    fn new(count: u32) -> Reps {
        Reps {
            count,
            ring: [(0, false); Reps::RING],
            filled: 0,
            head: 0,
            frozen_head: 0,
            frozen_until: None,
            explore: 0,
        }
    }

    fn next(&mut self, rng: &mut Pcg32) -> u32 {
        let recycled = match (self.explore, self.frozen_until) {
            (1.., _) => {
                self.explore -= 1;
                None
            }
            (0, Some(_)) => self.take_any(),
            (0, None) => self.take_oldest_fresh(),
        };
        recycled.unwrap_or_else(|| rng.random_range(0..self.count))
    }

    /// During a freeze, the known entropies are used again and again: new ones might lead to the failed path.
    fn take_any(&mut self) -> Option<u32> {
        let place = self.frozen_head.checked_rem(self.filled)?;
        self.frozen_head = place + 1;
        self.ring[place].1 = false;
        Some(self.ring[place].0)
    }

    fn take_oldest_fresh(&mut self) -> Option<u32> {
        let oldest_first = (self.head..self.head + Reps::RING).map(|place| place % Reps::RING);
        let place = oldest_first.into_iter().find(|&place| self.ring[place].1)?;
        self.ring[place].1 = false;
        Some(self.ring[place].0)
    }

    fn learn(&mut self, now: Nanos, index: u32, outcome: Outcome) {
        if self.frozen_until.is_some_and(|end| now > end) {
            *self = Reps { explore: Reps::EXPLORE, ..Reps::new(self.count) };
        }
        match outcome {
            Outcome::TimedOut if self.frozen_until.is_none() && self.explore == 0 => {
                self.frozen_until = Some(now + Reps::FREEZE);
            }
            Outcome::Good if index < self.count => {
                self.ring[self.head] = (index, true);
                self.head = (self.head + 1) % Reps::RING;
                self.filled = (self.filled + 1).min(Reps::RING);
            }
            _ => {}
        }
    }
}

/// Entropies of unmarked acknowledgements in the order in which they came; if there is none, those of [`Bitmap`]
/// (uet-htsim, `UecMpMixed`).
#[derive(Clone, Debug)]
pub(crate) struct Mixed {
    good: VecDeque<u32>,
    bitmap: Bitmap,
}

impl Mixed {
    /// Most entropies that wait to be used again: as many packets as can be in flight in uet-htsim
    /// (`uecMaxInFlightPkts`).
    const MOST: usize = 1 << 14;

    fn next(&mut self, rng: &mut Pcg32) -> u32 {
        self.good.pop_front().unwrap_or_else(|| self.bitmap.next(rng))
    }

    fn learn(&mut self, index: u32, outcome: Outcome) {
        self.bitmap.learn(index, outcome);
        if outcome == Outcome::Good && index < self.bitmap.rounds.count && self.good.len() < Mixed::MOST {
            self.good.push_back(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use std::collections::BTreeSet;

    const NOW: Nanos = Nanos(1_000);

    fn entropies(choice: EntropyChoice, paths: u32) -> (Entropies, Pcg32) {
        let mut rng = Pcg32::seed_from_u64(7);
        (Entropies::new(choice, paths, &mut rng), rng)
    }

    fn take(entropies: &mut Entropies, rng: &mut Pcg32, count: usize) -> Vec<u32> {
        (0..count).map(|_| entropies.next(rng)).collect()
    }

    #[test]
    fn a_single_path_has_no_entropy() {
        let (mut single, mut rng) = entropies(EntropyChoice::Single, 64);
        assert_eq!(take(&mut single, &mut rng, 3), [0; 3]);
    }

    #[test]
    fn each_round_has_every_entropy_once_in_an_order_of_its_own() {
        for choice in [EntropyChoice::Oblivious, EntropyChoice::Bitmap, EntropyChoice::Mixed] {
            let (mut all, mut rng) = entropies(choice, 16);
            let rounds: Vec<_> = (0..4).map(|_| take(&mut all, &mut rng, 16)).collect();
            for round in &rounds {
                assert_eq!(round.iter().copied().collect::<BTreeSet<_>>(), (1..=16).collect());
            }
            assert!(rounds.iter().any(|round| round != &rounds[0]));
        }
    }

    #[test]
    fn bitmap_skips_a_bad_entropy_as_often_as_it_has_penalties() {
        for (outcome, skipped) in [(Outcome::Marked, 1), (Outcome::Nacked, 4), (Outcome::TimedOut, 15)] {
            let (mut bitmap, mut rng) = entropies(EntropyChoice::Bitmap, 16);
            bitmap.learn(NOW, 3, outcome);
            let without = take(&mut bitmap, &mut rng, 15 * skipped);
            assert!(!without.contains(&3), "{outcome:?}");
            assert!(take(&mut bitmap, &mut rng, 16).contains(&3), "{outcome:?}");
        }
        let (mut bitmap, mut rng) = entropies(EntropyChoice::Bitmap, 4);
        (0..6).for_each(|entropy| bitmap.learn(NOW, entropy, Outcome::TimedOut));
        assert!(take(&mut bitmap, &mut rng, 100).iter().all(|entropy| (1..=4).contains(entropy)));
    }

    #[test]
    fn reps_uses_good_entropies_again_once_and_in_their_order() {
        let (mut reps, mut rng) = entropies(EntropyChoice::Reps, 1 << 16);
        for entropy in [40_000, 50_000] {
            reps.learn(NOW, entropy, Outcome::Good);
        }
        reps.learn(NOW, 60_000, Outcome::Marked);
        assert_eq!(take(&mut reps, &mut rng, 2), [40_000, 50_000]);
        assert!(!take(&mut reps, &mut rng, 20).iter().any(|entropy| [40_000, 50_000, 60_000].contains(entropy)));
        // The ring keeps the newest eight.
        (1..=12).for_each(|entropy| reps.learn(NOW, entropy * 1000, Outcome::Good));
        assert_eq!(take(&mut reps, &mut rng, 8), (5..=12).map(|entropy| entropy * 1000).collect::<Vec<_>>());
    }

    #[test]
    fn reps_freezes_after_a_time_out_and_then_explores() {
        let (mut reps, mut rng) = entropies(EntropyChoice::Reps, 1 << 16);
        for entropy in [40_000, 50_000] {
            reps.learn(NOW, entropy, Outcome::Good);
        }
        reps.learn(NOW, 60_000, Outcome::TimedOut);
        assert_eq!(take(&mut reps, &mut rng, 5), [40_000, 50_000, 40_000, 50_000, 40_000]);
        reps.learn(NOW + Reps::FREEZE, 3, Outcome::Good);
        assert_eq!(take(&mut reps, &mut rng, 2), [50_000, 3]);
        reps.learn(NOW + Reps::FREEZE + Nanos(1), 9, Outcome::Good);
        let explored = take(&mut reps, &mut rng, Reps::EXPLORE as usize);
        assert!(!explored.iter().any(|entropy| [3, 9, 40_000, 50_000].contains(entropy)));
        assert_eq!(reps.next(&mut rng), 9);
    }

    #[test]
    fn mixed_uses_all_good_entropies_again_and_then_those_in_turn() {
        let (mut mixed, mut rng) = entropies(EntropyChoice::Mixed, 16);
        let good: Vec<u32> = (1..=16).chain(1..=16).collect();
        good.iter().for_each(|&entropy| mixed.learn(NOW, entropy, Outcome::Good));
        mixed.learn(NOW, 5, Outcome::Nacked);
        assert_eq!(take(&mut mixed, &mut rng, 32), good);
        assert!(!take(&mut mixed, &mut rng, 15).contains(&5));
    }

    #[test]
    fn entropies_that_were_never_used_change_nothing() {
        for choice in [EntropyChoice::Bitmap, EntropyChoice::Reps, EntropyChoice::Mixed] {
            let (mut told, mut rng) = entropies(choice, 16);
            let (mut untold, mut same) = entropies(choice, 16);
            for entropy in [0, 17, u32::MAX] {
                told.learn(NOW, entropy, Outcome::Good);
                told.learn(NOW, entropy, Outcome::Nacked);
            }
            assert_eq!(take(&mut told, &mut rng, 64), take(&mut untold, &mut same, 64));
        }
    }
}
