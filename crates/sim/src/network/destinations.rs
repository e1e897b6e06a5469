//! What switches decide about all packets to a destination.
//!
//! The cache ([`crate::cache`]) holds decisions about lanes. If packets of a flow take several paths, those of a short transfer
//! meet most switches once, so the cache seldom has their decision. But default routes look at the destination alone. What a
//! switch has decided by them holds for all packets to the same address with the same tag, until something about the switch
//! changes.

use super::{Network, Node};
use crate::cache::{kept_rules, Entry, Rules};
use crate::next_hops::SetRef;
use crate::packet::{Packet, TagBits};
use crate::tap::Tap;
use crate::time::{to_nanos, Ps};
use pathloom_model::{Headers, LinkId, NodeId};
use pathloom_switching::Decision;
use rustc_hash::FxHashMap;
use std::net::Ipv4Addr;

/// Where packets leave a switch.
#[derive(Clone, Copy)]
pub(super) enum Out {
    /// By this link.
    Link(u32),
    /// By a link of the set with this number.
    Among(u32),
}

/// What a switch does with packets to a destination.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) out: Out,
    /// Tag with which packets leave.
    pub(super) tag: TagBits,
    /// The rules that decided.
    pub(super) rules: Rules,
}

/// The decisions of all switches by destination and tag.
pub(super) struct Destinations {
    by_switch: Vec<FxHashMap<(Ipv4Addr, u32), Known>>,
}

impl Destinations {
    /// Most destinations that are kept of a switch. Then all are forgotten.
    const MOST: usize = 4096;

    pub(super) fn new(nodes: usize) -> Destinations {
        Destinations { by_switch: vec![FxHashMap::default(); nodes] }
    }

    fn get(&self, switch: NodeId, headers: &Headers) -> Option<Known> {
        let key = (headers.five_tuple.dst, TagBits::of(headers.tag).number());
        self.by_switch[switch.index()].get(&key).copied()
    }

    pub(super) fn store(&mut self, switch: NodeId, headers: &Headers, known: Known) {
        let of = &mut self.by_switch[switch.index()];
        if of.len() >= Destinations::MOST {
            of.clear();
        }
        of.insert((headers.five_tuple.dst, TagBits::of(headers.tag).number()), known);
    }

    /// Something about the switch has changed.
    pub(super) fn forget(&mut self, switch: NodeId) {
        self.by_switch[switch.index()].clear();
    }
}

impl<T: Tap> Network<T> {
    /// Forwards a packet that has arrived by `link` as the switch has forwarded others to its destination, if it has. Returns how
    /// many packets of the lane were lost.
    pub(super) fn decide_by_destination(
        &mut self,
        now: Ps,
        link: u32,
        packet: Packet,
        headers: &Headers,
    ) -> Option<i32> {
        let switch = self.fabric.link(LinkId(link)).to;
        let known = self.switches.destinations.as_ref()?.get(switch, headers)?;
        let Node::Rules(rules) = &mut self.switches.nodes[switch.index()] else { return None };
        // A switch does not send a packet back, and chooses among other next hops then.
        let back = LinkId(link).reverse().0;
        let set = match known.out {
            Out::Link(out) if out == back => return None,
            Out::Link(_) => None,
            Out::Among(number) => {
                let flow_hash = headers.five_tuple.ecmp_hash(rules.salt());
                let set = SetRef { switch, number, flow_hash };
                if self.sets.members(set).0.contains(&back) {
                    return None;
                }
                Some((set, self.sets.usual(set)))
            }
        };
        for rule in known.rules.iter().flatten() {
            rules.credit(&[*rule], 1, packet.wire(), to_nanos(now));
        }
        self.switches.cache.count(packet.lane());
        let place = self.switches.cache.place(&packet, link);
        let remembered = |out| {
            let entry = Entry::new(self.links.in_link(link), &packet, true, out, known.tag);
            Some((place?, entry, known.rules))
        };
        match (known.out, set) {
            (_, Some(set)) => {
                let remembered = remembered(0);
                Some(self.spray(now, link, packet, remembered, set))
            }
            (Out::Link(out), None) => {
                if let Some((place, entry, rules)) = remembered(out) {
                    self.switches.remember(&self.links.lanes, place, switch, (entry, rules));
                }
                let mut packet = packet;
                packet.pass(known.tag);
                let packet = self.with_note(now, link, out, packet);
                Some(i32::from(!self.links.enqueue(now, out, packet)))
            }
            (Out::Among(_), None) => None,
        }
    }

    /// Keeps a decision, if it holds for all packets to the same destination. `set`: the next hops among which the switch
    /// chooses. Returns whether it does.
    pub(super) fn note_destination(
        &mut self,
        switch: NodeId,
        headers: &Headers,
        decision: &Decision,
        set: Option<SetRef>,
    ) -> bool {
        let Some(destinations) = &mut self.switches.destinations else { return false };
        let Some(emission) = decision.single().filter(|_| !decision.looked_at_more) else { return false };
        let out = match set {
            Some(set) => Some(Out::Among(set.number)),
            // The port depends on the five-tuple.
            None if decision.hashed => None,
            None => self.fabric.out_link(switch, emission.port).map(|link| Out::Link(link.0)),
        };
        let Some((out, rules)) = out.zip(kept_rules(&decision.rules)) else { return false };
        destinations.store(switch, headers, Known { out, tag: TagBits::of(emission.tag), rules });
        true
    }
}
