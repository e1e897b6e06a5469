//! The sets of equal next hops of all switches, and how switches choose among them for each packet.

use crate::packet::{Packet, TagBits};
use pathloom_model::{entropy_hash, NodeId};
use pathloom_scheme::Selection;
use pathloom_switching::selection::{PortView, RoundRobin, ShortestQueue};
use rand::Rng;
use rand_pcg::Pcg32;

/// Constant that makes these draws differ from others with the same seed.
const STREAM: u64 = 0x6e65_7874_686f_7073;
/// Most sets of next hops of a switch. Packets of further sets take the port that the switch chooses by the flow.
pub(crate) const MOST_SETS: usize = 1 << 14;

/// By number of switches passed, modulo 4: the distance between the points of successive numbers, times 2^32. They are the
/// powers of 1/x for the root of x^5 = x + 1, x = 1.167304. With these, the points of any run of numbers are spread evenly, at each
/// switch and at several of them together (Roberts 2018, The Unreasonable Effectiveness of Quasirandom Sequences).
const STEPS: [u32; 4] = [3_679_390_609, 3_152_041_523, 2_700_274_805, 2_313_257_605];

/// The next hops among which a switch chooses by packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NextHops {
    links: Vec<u32>,
    /// By link: the sum of the weights up to it. Empty if all weights are equal.
    sums: Vec<u32>,
    tag: TagBits,
}

impl NextHops {
    /// Next hops from links with their weights. Packets leave with this tag.
    pub(crate) fn new(weighted: &[(u32, u16)], tag: TagBits) -> NextHops {
        let mut sum = 0;
        let sums = weighted.iter().map(|&(_, weight)| {
            sum += u32::from(weight);
            sum
        });
        let are_equal = weighted.windows(2).all(|pair| pair[0].1 == pair[1].1);
        let sums = if are_equal { Vec::new() } else { sums.collect() };
        NextHops { sums, links: weighted.iter().map(|&(link, _)| link).collect(), tag }
    }

    /// Place of the link for a packet of a flow with this hash and an entropy that is not 0.
    #[inline(always)]
    fn hashed(&self, flow_hash: u32, entropy: u32) -> usize {
        let hash = u64::from(entropy_hash(flow_hash, entropy));
        if self.sums.is_empty() {
            ((hash * self.links.len() as u64) >> 32) as usize
        } else {
            self.by_weight(hash)
        }
    }

    /// Place of the link for a flow with this hash.
    fn by_flow(&self, flow_hash: u32) -> u32 {
        let hash = u64::from(flow_hash);
        if self.sums.is_empty() {
            return ((hash * self.links.len() as u64) >> 32) as u32;
        }
        self.by_weight(hash) as u32
    }

    /// Place of the link for a hash of 32 bits, where weights differ.
    #[inline(never)]
    fn by_weight(&self, hash: u64) -> usize {
        let total = self.sums.last().map_or(0, |&sum| u64::from(sum));
        let point = (hash * total) >> 32;
        self.sums.partition_point(|&sum| u64::from(sum) <= point)
    }

    /// Place of the link for a packet whose entropy is the number of a path, after passing `hops` switches. Each switch
    /// takes one digit of the number, the first switch the lowest one. Its base is the number of next hops. The digit 0
    /// means `usual`, other digits the links after it. Where weights differ, the numbers of a flow take points between 0 and 1,
    /// one for each switch, from a place on that the hash of the flow gives.
    #[inline(always)]
    fn numbered(&self, usual: u32, flow_hash: u32, entropy: u32, hops: u8) -> usize {
        if !self.sums.is_empty() {
            let step = STEPS[usize::from(hops) % STEPS.len()].wrapping_mul(entropy);
            return self.by_weight((flow_hash << 16).wrapping_add(step).into());
        }
        let base = self.links.len() as u32;
        let digit = entropy / base.saturating_pow(u32::from(hops)) % base;
        ((usual + digit) % base) as usize
    }

    /// Place of a link among the next hops.
    pub(crate) fn place(&self, link: u32) -> u32 {
        self.links.iter().position(|&known| known == link).unwrap_or(0) as u32
    }
}

/// How a switch chooses among one set of next hops, with what it remembers of its choices.
#[derive(Clone)]
enum Policy {
    Hash,
    Numbered,
    Path,
    RoundRobin(RoundRobin),
    ShortestQueue { policy: ShortestQueue, rng: Pcg32 },
}

#[derive(Clone)]
struct Set {
    hops: NextHops,
    policy: Policy,
}

/// A packet's set of next hops.
#[derive(Clone, Copy)]
pub(crate) struct SetRef {
    pub(crate) switch: NodeId,
    pub(crate) number: u32,
    /// Hash of the five-tuple, of which the lower 16 bits count.
    pub(crate) flow_hash: u32,
}

/// The sets of next hops of all switches. A switch never forgets a set, so its choices do not depend on the cache of
/// decisions.
#[derive(Default)]
pub(crate) struct Sets {
    selection: Selection,
    /// By node: whether a switch chooses so. Others choose by hash.
    chooses: Vec<bool>,
    seed: u64,
    by_switch: Vec<Vec<Set>>,
}

impl Sets {
    /// No sets yet. `chooses` says for each node whether it chooses by this selection; others choose by hash.
    pub(crate) fn new(selection: Selection, chooses: Vec<bool>, seed: u64) -> Sets {
        Sets { selection, seed, by_switch: vec![Vec::new(); chooses.len()], chooses }
    }

    /// The number of a set of next hops, if it is one of the first [`MOST_SETS`] of the switch. `usual` is the place of the
    /// link that its first packet takes by its five-tuple alone.
    pub(crate) fn number(&mut self, switch: NodeId, hops: NextHops, usual: u32) -> Option<u32> {
        let sets = &mut self.by_switch[switch.index()];
        let known = sets.iter().position(|set| set.hops == hops);
        let number = known.unwrap_or(sets.len());
        if known.is_none() && number < MOST_SETS {
            let policy = match self.selection {
                _ if !self.chooses[switch.index()] => Policy::Hash,
                // Balancers choose outside the sets.
                Selection::Hash | Selection::Conga { .. } | Selection::Hula { .. } | Selection::Flowcut => Policy::Hash,
                Selection::Numbered => Policy::Numbered,
                Selection::Path => Policy::Path,
                // Otherwise all switches would begin with the same core switch.
                Selection::RoundRobin => Policy::RoundRobin(RoundRobin::from(usual as usize)),
                Selection::ShortestQueue { drawn, remembered } => Policy::ShortestQueue {
                    policy: ShortestQueue::new(hops.links.len(), drawn.into(), remembered.into()),
                    rng: Pcg32::new(self.seed ^ STREAM, u64::from(switch.0) << 32 | number as u64),
                },
            };
            sets.push(Set { hops, policy });
        }
        (number < MOST_SETS).then_some(number as u32)
    }

    /// Chooses a link for a packet, and the tag with which it leaves. `usual` returns the place of the link that the
    /// switch chooses by the five-tuple alone. `view` shows the ports where these links begin.
    #[inline(always)]
    pub(crate) fn choose<'a, V: PortView>(
        &'a mut self,
        set: SetRef,
        packet: &Packet,
        usual: impl FnOnce() -> u32,
        view: impl FnOnce(&'a [u32]) -> V,
    ) -> (u32, TagBits) {
        let Set { hops, policy } = &mut self.by_switch[set.switch.index()][set.number as usize];
        let place = match policy {
            Policy::Hash | Policy::Path if packet.entropy() == 0 => usual() as usize,
            Policy::Hash => hops.hashed(set.flow_hash, packet.entropy()),
            Policy::Numbered => hops.numbered(usual(), set.flow_hash, packet.entropy(), packet.hop()),
            // The number begins with the same next hop for all flows.
            Policy::Path => hops.numbered(0, set.flow_hash, packet.entropy() - 1, packet.hop()),
            Policy::RoundRobin(policy) => policy.choose(hops.links.len()),
            Policy::ShortestQueue { policy, rng } => policy.choose(&view(&hops.links), || rng.next_u32()),
        };
        (hops.links[place], hops.tag)
    }

    /// Place of the link that the switch of a set chooses by the five-tuple alone, as `group::choose` of `pathloom_switching`.
    pub(crate) fn usual(&self, set: SetRef) -> u32 {
        let hops = &self.by_switch[set.switch.index()][set.number as usize].hops;
        hops.by_flow(set.flow_hash)
    }

    /// The links of a set, and the tag with which packets leave.
    pub(crate) fn members(&self, set: SetRef) -> (&[u32], TagBits) {
        let NextHops { links, tag, .. } = &self.by_switch[set.switch.index()][set.number as usize].hops;
        (links, *tag)
    }

    /// The link that [`Sets::choose`] will return, if it depends on the packet alone. To prefetch it.
    #[inline(always)]
    pub(crate) fn foresee(&self, set: SetRef, packet: &Packet) -> Option<u32> {
        let Set { hops, policy } = self.by_switch.get(set.switch.index())?.get(set.number as usize)?;
        match policy {
            Policy::Hash if packet.entropy() != 0 => Some(hops.links[hops.hashed(set.flow_hash, packet.entropy())]),
            _ => None,
        }
    }

    /// Moves the sets of some switches to a part of a network.
    pub(crate) fn part(&mut self, is_in: impl Fn(NodeId) -> bool) -> Sets {
        let take = |(index, sets): (usize, &mut Vec<Set>)| match is_in(NodeId(index as u32)) {
            true => std::mem::take(sets),
            false => Vec::new(),
        };
        let by_switch = self.by_switch.iter_mut().enumerate().map(take).collect();
        Sets { selection: self.selection, chooses: self.chooses.clone(), seed: self.seed, by_switch }
    }

    /// Takes back the sets of a part. A switch is in one part, so the others have no set of it.
    pub(crate) fn join(&mut self, part: Sets) {
        for (own, sets) in self.by_switch.iter_mut().zip(part.by_switch).filter(|(_, sets)| !sets.is_empty()) {
            *own = sets;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_paths_name_each_path_once() {
        let hops = NextHops::new(&[(10, 1), (12, 1), (14, 1)], TagBits::of(None));
        let link = |number, hop| hops.links[hops.numbered(hops.place(12), 0, number, hop)];
        let paths: Vec<[u32; 2]> = (0..10).map(|number| [0, 1].map(|hop| link(number, hop))).collect();
        assert_eq!(paths[..4], [[12, 12], [14, 12], [10, 12], [12, 14]]);
        assert_eq!(paths[9], paths[0]);
        let mut distinct = paths[..9].to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 9);
        assert_eq!(link(0xFF_FFFF, u8::MAX), 12, "there are no more digits");
    }

    #[test]
    fn any_run_of_numbers_is_shared_out_by_weight() {
        let hops = NextHops::new(&[(10, 1), (12, 0), (14, 2)], TagBits::of(None));
        for (flow_hash, first) in [(0, 0), (40_000, 5_000), (65_535, 0xFF_0000)] {
            let place = |number, hop| hops.numbered(0, flow_hash, number, hop);
            let pairs: Vec<[usize; 2]> =
                (first..first + 90).map(|number| [0, 1].map(|hop| place(number, hop))).collect();
            let taken = |pair: [usize; 2]| pairs.iter().filter(|&&one| one == pair).count();
            assert!(pairs.iter().flatten().all(|&place| place != 1), "a next hop of weight 0");
            for (pair, expected) in [([0, 0], 10), ([0, 2], 20), ([2, 0], 20), ([2, 2], 40)] {
                assert!(taken(pair).abs_diff(expected) <= 4, "{pair:?} {} times from {first}", taken(pair));
            }
        }
    }

    #[test]
    fn hashes_are_shared_out_by_weight() {
        let of = |weights: &[u16]| {
            let weighted: Vec<(u32, u16)> = weights.iter().map(|&weight| (7, weight)).collect();
            NextHops::new(&weighted, TagBits::of(None))
        };
        let last = u64::from(u32::MAX);
        let places = |hops: &NextHops| [0, last / 4, last / 4 + 1, last / 2 + 1, last].map(|hash| hops.by_weight(hash));
        assert_eq!(places(&of(&[1, 0, 2, 1])), [0, 0, 2, 2, 3]);
        let (equal, triple) = (of(&[1, 1, 1]), of(&[3, 3, 3]));
        assert_eq!(equal, triple, "only ratios count");
        let hashed = |entropy| equal.hashed(9, entropy);
        let shares = [0, 1, 2].map(|place| (1..9001).filter(|&entropy| hashed(entropy) == place).count());
        assert!(shares.iter().all(|&share| share.abs_diff(3000) < 150), "{shares:?}");
    }
}
