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

/// The next hops among which a switch chooses by packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NextHops {
    links: Vec<u32>,
    /// By link: the sum of the weights up to it.
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
        NextHops { sums: sums.collect(), links: weighted.iter().map(|&(link, _)| link).collect(), tag }
    }

    /// The link for a packet of a flow with this hash; `usual` is that for an entropy of 0.
    #[inline(always)]
    fn hashed(&self, usual: u32, flow_hash: u32, entropy: u32) -> u32 {
        if entropy == 0 {
            return usual;
        }
        let total = self.sums.last().map_or(0, |&sum| u64::from(sum));
        let point = (u64::from(entropy_hash(flow_hash, entropy)) * total) >> 32;
        let place = self.sums.iter().position(|&sum| point < u64::from(sum));
        place.map_or(usual, |place| self.links[place])
    }

    /// The link for a packet whose entropy is the number of a path, after passing `hops` switches. Each switch takes one
    /// digit of the number, the first switch the lowest one. Its base is the number of next hops. The digit 0 means
    /// `usual`, other digits the links after it.
    fn numbered(&self, usual: u32, entropy: u32, hops: u8) -> u32 {
        let base = self.links.len() as u32;
        let digit = entropy / base.saturating_pow(u32::from(hops)) % base;
        self.links[(self.place(usual) + digit as usize) % self.links.len()]
    }

    /// Place of a link among the next hops.
    fn place(&self, link: u32) -> usize {
        self.links.iter().position(|&known| known == link).unwrap_or(0)
    }
}

/// What a switch remembers of its choices among one set of next hops.
#[derive(Clone)]
enum Memory {
    Nothing,
    RoundRobin(RoundRobin),
    ShortestQueue { policy: ShortestQueue, rng: Pcg32 },
}

#[derive(Clone)]
struct Set {
    hops: NextHops,
    memory: Memory,
}

/// A packet's set of next hops.
#[derive(Clone, Copy)]
pub(crate) struct SetRef {
    pub(crate) switch: NodeId,
    pub(crate) number: u32,
    /// The link that the switch chooses by the five-tuple alone.
    pub(crate) usual: u32,
    /// Hash of the five-tuple, of which the lower 16 bits count.
    pub(crate) flow_hash: u32,
}

/// The sets of next hops of all switches. A switch never forgets a set, so its choices do not depend on the cache of
/// decisions.
#[derive(Default)]
pub(crate) struct Sets {
    selection: Selection,
    seed: u64,
    by_switch: Vec<Vec<Set>>,
}

impl Sets {
    pub(crate) fn new(selection: Selection, seed: u64, nodes: usize) -> Sets {
        Sets { selection, seed, by_switch: vec![Vec::new(); nodes] }
    }

    /// The number of a set of next hops, if it is one of the first [`MOST_SETS`] of the switch. `usual` is the link that
    /// its first packet takes by its five-tuple alone.
    pub(crate) fn number(&mut self, switch: NodeId, hops: NextHops, usual: u32) -> Option<u32> {
        let sets = &mut self.by_switch[switch.index()];
        let known = sets.iter().position(|set| set.hops == hops);
        let number = known.unwrap_or(sets.len());
        if known.is_none() && number < MOST_SETS {
            let memory = match self.selection {
                Selection::Hash | Selection::Numbered => Memory::Nothing,
                // Otherwise all switches would begin with the same core switch.
                Selection::RoundRobin => Memory::RoundRobin(RoundRobin::from(hops.place(usual))),
                Selection::ShortestQueue { drawn, remembered } => Memory::ShortestQueue {
                    policy: ShortestQueue::new(hops.links.len(), drawn.into(), remembered.into()),
                    rng: Pcg32::new(self.seed ^ STREAM, u64::from(switch.0) << 32 | number as u64),
                },
            };
            sets.push(Set { hops, memory });
        }
        (number < MOST_SETS).then_some(number as u32)
    }

    /// Chooses a link for a packet, and the tag with which it leaves. `view` shows the ports where these links begin.
    #[inline(always)]
    pub(crate) fn choose<'a, V: PortView>(
        &'a mut self,
        set: SetRef,
        packet: &Packet,
        view: impl FnOnce(&'a [u32]) -> V,
    ) -> (u32, TagBits) {
        let Set { hops, memory } = &mut self.by_switch[set.switch.index()][set.number as usize];
        let link = match memory {
            Memory::Nothing if self.selection == Selection::Numbered => {
                hops.numbered(set.usual, packet.entropy(), packet.hop())
            }
            Memory::Nothing => hops.hashed(set.usual, set.flow_hash, packet.entropy()),
            Memory::RoundRobin(policy) => hops.links[policy.choose(hops.links.len())],
            Memory::ShortestQueue { policy, rng } => hops.links[policy.choose(&view(&hops.links), || rng.next_u32())],
        };
        (link, hops.tag)
    }

    /// Moves the sets of some switches to a part of a network.
    pub(crate) fn part(&mut self, is_in: impl Fn(NodeId) -> bool) -> Sets {
        let take = |(index, sets): (usize, &mut Vec<Set>)| match is_in(NodeId(index as u32)) {
            true => std::mem::take(sets),
            false => Vec::new(),
        };
        let by_switch = self.by_switch.iter_mut().enumerate().map(take).collect();
        Sets { selection: self.selection, seed: self.seed, by_switch }
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
        let paths: Vec<[u32; 2]> = (0..10).map(|number| [0, 1].map(|hop| hops.numbered(12, number, hop))).collect();
        assert_eq!(paths[..4], [[12, 12], [14, 12], [10, 12], [12, 14]]);
        assert_eq!(paths[9], paths[0]);
        let mut distinct = paths[..9].to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 9);
        assert_eq!(hops.numbered(12, 0xFF_FFFF, u8::MAX), 12, "there are no more digits");
    }
}
