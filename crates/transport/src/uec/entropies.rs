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
    Freezing(Freezing),
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
            EntropyChoice::Freezing => Entropies::Freezing(Freezing::new(Rounds::new(count, rng))),
            EntropyChoice::Bitmap => Entropies::Bitmap(Bitmap::new(count, rng)),
            EntropyChoice::Reps => Entropies::Reps(Reps::new(count)),
            EntropyChoice::Mixed => Entropies::Mixed(Mixed { good: VecDeque::new(), bitmap: Bitmap::new(count, rng) }),
        }
    }

    /// Returns the entropy of the next packet.
    pub(crate) fn next(&mut self, now: Nanos, rng: &mut Pcg32) -> u32 {
        1 + match self {
            Entropies::Single => return 0,
            Entropies::Oblivious(rounds) => rounds.next(rng),
            Entropies::Freezing(freezing) => freezing.next(now, rng),
            Entropies::Bitmap(bitmap) => bitmap.next(rng),
            Entropies::Reps(reps) => reps.next(rng),
            Entropies::Mixed(mixed) => mixed.next(rng),
        }
    }

    /// Takes what is known of a packet with this entropy. Entropies that were never used change nothing.
    pub(crate) fn learn(&mut self, now: Nanos, entropy: u32, outcome: Outcome) {
        let Some(index) = entropy.checked_sub(1) else { return };
        match self {
            Entropies::Single | Entropies::Oblivious(_) | Entropies::Freezing(_) => {}
            Entropies::Bitmap(bitmap) => bitmap.learn(index, outcome),
            Entropies::Reps(reps) => reps.learn(now, index, outcome),
            Entropies::Mixed(mixed) => mixed.learn(index, outcome),
        }
    }

    /// A packet has arrived, the `place`th that was sent. Unlike [`Entropies::learn`], this is called for every packet,
    /// whether or not a report is about it.
    #[inline]
    pub(crate) fn note_arrival(&mut self, place: u64, entropy: u32) {
        if let (Entropies::Freezing(freezing), Some(index)) = (self, entropy.checked_sub(1)) {
            freezing.note_arrival(place, index);
        }
    }

    /// Nothing was heard of what was sent since the last time-out. If as many packets are sent again each time, each could
    /// meet the same path each time. So numbers go on from another one.
    pub(crate) fn note_silence(&mut self, rng: &mut Pcg32) {
        if let Entropies::Freezing(freezing) = self {
            freezing.rounds = Rounds { next: rng.random_range(0..freezing.rounds.count), ..freezing.rounds };
        }
    }

    /// A packet seems lost, the `place`th that was sent.
    pub(crate) fn note_loss(&mut self, now: Nanos, place: u64, entropy: u32) {
        match (self, entropy.checked_sub(1)) {
            (Entropies::Freezing(freezing), Some(index)) => freezing.note_loss(now, place, index),
            (others, _) => others.learn(now, entropy, Outcome::TimedOut),
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

/// All entropies in turn, until as many packets are lost as where a path has failed. For some time, packets then take only
/// entropies of packets that were sent after the lost ones and have arrived. After that, a few packets try others.
///
/// REPS freezes as well, after one loss and with eight entropies. These are up to 256 of successive packets, so they are
/// spread over the paths that work as evenly as all are. A full queue loses fewer packets than a failed path.
#[derive(Clone, Debug)]
pub(crate) struct Freezing {
    rounds: Rounds,
    /// The packets that arrived last: their places in the order of sending, and their entropies.
    arrived: VecDeque<(u64, u32)>,
    /// The places of the packets that were lost last, the oldest first.
    lost: [Option<u64>; 2],
    mode: Mode,
    /// Length of the last freeze.
    freeze: Nanos,
}

/// What the next packets of [`Freezing`] take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// All entropies in turn.
    All,
    /// Those that are known to work, until this time.
    Frozen { until: Nanos },
    /// Those that are known to work, and a few others: the number of packets since the last other one, of others so far, and
    /// of those that were lost.
    Trying { since: u32, tried: u32, lost: u32 },
}

impl Freezing {
    /// Most entropies that are remembered: enough to spread over 64 paths evenly.
    const MOST: usize = 256;
    /// A path has failed if three of so many successive packets are lost. One of 64 paths has four of them.
    const NEAR: u64 = 256;
    /// With fewer entropies, there is no freeze.
    const LEAST: usize = 16;
    /// Length of the first freeze. Each that follows at once is twice as long.
    const FIRST: Nanos = Nanos::from_millis(2);
    const LONGEST: Nanos = Nanos::from_millis(256);
    /// After a freeze, one of so many packets tries another entropy.
    const ONE_OF: u32 = 16;
    /// After so many, all entropies are used again, unless two are lost.
    const TRIES: u32 = 64;
    const LOST_TRIES: u32 = 2;

    fn new(rounds: Rounds) -> Freezing {
        Freezing { rounds, arrived: VecDeque::new(), lost: [None; 2], mode: Mode::All, freeze: Nanos::ZERO }
    }

    fn next(&mut self, now: Nanos, rng: &mut Pcg32) -> u32 {
        if matches!(self.mode, Mode::Frozen { until } if now >= until) {
            self.mode = Mode::Trying { since: 0, tried: 0, lost: 0 };
        }
        match &mut self.mode {
            Mode::All => self.rounds.next(rng),
            Mode::Frozen { .. } => self.again(rng),
            Mode::Trying { since, tried, .. } if *since + 1 >= Freezing::ONE_OF => {
                (*since, *tried) = (0, *tried + 1);
                if *tried > Freezing::TRIES {
                    (self.mode, self.freeze) = (Mode::All, Nanos::ZERO);
                }
                self.rounds.next(rng)
            }
            Mode::Trying { since, .. } => {
                *since += 1;
                self.again(rng)
            }
        }
    }

    /// The known entropy that was used least recently.
    fn again(&mut self, rng: &mut Pcg32) -> u32 {
        let Some(known) = self.arrived.pop_front() else { return self.rounds.next(rng) };
        self.arrived.push_back(known);
        known.1
    }

    fn note_loss(&mut self, now: Nanos, place: u64, index: u32) {
        let known = self.arrived.len();
        self.arrived.retain(|&(_, other)| other != index);
        let was_known = self.arrived.len() < known;
        let [first, second] = self.lost;
        self.lost = [second, Some(place)];
        match &mut self.mode {
            Mode::All => {
                let since = first.filter(|&first| second.is_some() && place.abs_diff(first) < Freezing::NEAR);
                if let Some(since) = since {
                    self.freeze_if_paths_work(now, since.min(place));
                }
            }
            Mode::Trying { lost, .. } if !was_known => {
                *lost += 1;
                if *lost >= Freezing::LOST_TRIES {
                    self.freeze_if_paths_work(now, 0);
                }
            }
            Mode::Frozen { .. } | Mode::Trying { .. } if self.arrived.len() < Freezing::LEAST => {
                (self.mode, self.freeze) = (Mode::All, Nanos::ZERO);
            }
            Mode::Frozen { .. } | Mode::Trying { .. } => {}
        }
    }

    /// Begins a freeze with the entropies of packets that were sent from `since` on and have arrived, if they are enough. What
    /// was sent before proves nothing: a path may have failed since.
    fn freeze_if_paths_work(&mut self, now: Nanos, since: u64) {
        let works = |&(place, _): &(u64, u32)| place >= since;
        if self.arrived.iter().filter(|known| works(known)).count() < Freezing::LEAST {
            return;
        }
        self.arrived.retain(works);
        let doubled = Nanos(self.freeze.0.saturating_mul(2));
        self.freeze = doubled.clamp(Freezing::FIRST, Freezing::LONGEST);
        self.mode = Mode::Frozen { until: now + self.freeze };
    }

    fn note_arrival(&mut self, place: u64, index: u32) {
        if self.mode == Mode::All {
            if self.arrived.len() == Freezing::MOST {
                self.arrived.pop_front();
            }
            self.arrived.push_back((place, index));
        }
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
        (0..count).map(|_| entropies.next(NOW, rng)).collect()
    }

    /// A sender over four paths, of which some are down.
    struct FourPaths {
        all: Entropies,
        rng: Pcg32,
        place: u64,
    }

    impl FourPaths {
        /// Sends `count` packets at this time. Those on paths that are `up` arrive; then the others are missed. Returns the
        /// packets of each path.
        fn send(&mut self, at_us: u64, up: [bool; 4], count: u32) -> [u32; 4] {
            let (mut sent, mut lost) = ([0; 4], Vec::new());
            for _ in 0..count {
                let entropy = self.all.next(Nanos::from_micros(at_us), &mut self.rng);
                self.place += 1;
                let path = (entropy - 1) as usize % 4;
                sent[path] += 1;
                if up[path] {
                    self.all.note_arrival(self.place, entropy);
                } else {
                    lost.push((self.place, entropy));
                }
            }
            lost.into_iter().for_each(|(place, entropy)| self.all.note_loss(Nanos::from_micros(at_us), place, entropy));
            sent
        }
    }

    #[test]
    fn after_a_loss_packets_keep_to_paths_that_work_and_then_a_few_try_others() {
        let (all, rng) = entropies(EntropyChoice::Freezing, 1 << 16);
        let mut sender = FourPaths { all, rng, place: 0 };
        let (up, down, worse) = ([true; 4], [true, true, false, true], [true, true, false, false]);
        assert_eq!(sender.send(0, up, 400), [100; 4]);
        assert_eq!(sender.send(1000, down, 40), [10; 4], "nothing is known of the failure yet");
        assert_eq!(sender.send(1100, down, 290).map(|sent| sent > 90), [true, true, false, true]);
        assert_eq!(sender.send(1200, down, 300)[2], 0);
        sender.send(1300, worse, 300);
        let [first, second, third, fourth] = sender.send(1400, worse, 300);
        assert_eq!((third, fourth), (0, 0), "a second failure in a freeze");
        assert!(first.abs_diff(second) <= 20, "{first} and {second}");
        let tries = sender.send(3100, worse, 96);
        assert!(tries[2] + tries[3] <= 6, "after a freeze, one of 16: {tries:?}");
        assert_eq!(sender.send(7000, worse, 300)[2..], [0, 0], "the second freeze is longer");
        for at_us in 100_000..100_040 {
            sender.send(at_us, up, 300);
        }
        assert_eq!(sender.send(100_040, up, 400), [100; 4], "all paths are back");
    }

    #[test]
    fn a_few_losses_change_nothing() {
        let (all, rng) = entropies(EntropyChoice::Freezing, 1 << 16);
        let mut sender = FourPaths { all, rng, place: 0 };
        for at_us in 0..20 {
            assert_eq!(sender.send(at_us, [true; 4], 252), [63; 4]);
            assert_eq!(sender.send(at_us, [true, true, true, false], 4), [1; 4]);
        }
    }

    #[test]
    fn a_loss_with_no_proof_of_paths_that_work_changes_nothing() {
        let (all, rng) = entropies(EntropyChoice::Freezing, 1 << 16);
        let mut sender = FourPaths { all, rng, place: 0 };
        sender.send(0, [true; 4], 40);
        assert_eq!(sender.send(1, [false; 4], 40), [10; 4]);
        assert_eq!(sender.send(2, [true; 4], 40), [10; 4]);
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
        assert_eq!(reps.next(NOW, &mut rng), 9);
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
