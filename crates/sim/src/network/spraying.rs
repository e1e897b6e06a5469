//! Packets of one flow on several paths: a hash of five-tuple and entropy chooses among the next hops of a switch.
//!
//! A switch looks up its rules once per lane. If a group chooses the port, the cache keeps all ports of the group, and each
//! packet chooses one of them by its entropy. A packet with an entropy of 0 takes the port that the
//! group chooses by the five-tuple alone, as with ecmp.

use super::{Arrival, Network, Node};
use crate::cache::NextHops;
use crate::packet::{Packet, TagBits};
use crate::tap::Tap;
use crate::time::Ps;
use pathloom_model::{FiveTuple, LinkId, NodeId, PortNo};
use pathloom_switching::Decision;

impl<T: Tap> Network<T> {
    /// Packets of a flow will have different entropies. To be called before the first packet.
    pub(crate) fn expect_entropies(&mut self) {
        self.sprays = true;
        // In a tree, a packet has as many paths as the square of the links up from a switch.
        let ports = self.fabric.switches().iter().map(|&node| self.fabric.node(node).ports.len()).max().unwrap_or(0);
        self.cache = self.cache.with_ways((ports / 2).pow(2));
    }

    /// Forwards a packet that has arrived by `link`, if a decision about it is cached.
    pub(super) fn spray_on(&mut self, now: Ps, link: u32, mut packet: Packet) -> Arrival {
        let in_link = self.in_link(link);
        let Some((out, tag)) = self.cache.spray(now, in_link, &packet) else { return Arrival::Slow(packet) };
        packet.pass(tag);
        if self.enqueue(now, out, packet) {
            Arrival::Forwarded
        } else {
            Arrival::Dropped(packet.lane())
        }
    }

    /// The next hops among which a decision of a switch has chosen one, if there are several.
    pub(super) fn next_hops(&self, switch: NodeId, in_port: PortNo, decision: &Decision) -> Option<NextHops> {
        let emission = decision.single()?;
        let ports = self.nodes[switch.index()].rules()?.equal_ports(in_port, decision);
        let link = |(port, weight)| Some((self.fabric.out_link(switch, port)?.0, weight));
        let links: Vec<(u32, u16)> = ports.into_iter().filter_map(link).collect();
        (links.len() > 1).then(|| NextHops::new(links, TagBits::of(emission.tag)))
    }

    /// Sends a packet to one of these next hops, and remembers them. Returns how many packets of the lane were lost.
    pub(super) fn spray(
        &mut self,
        now: Ps,
        link: u32,
        mut packet: Packet,
        five_tuple: &FiveTuple,
        (decision, hops): (&Decision, NextHops),
    ) -> i32 {
        let switch = self.fabric.link(LinkId(link)).to;
        let usual = decision.single().and_then(|emission| self.fabric.out_link(switch, emission.port));
        let (Some(usual), Node::Rules(rules)) = (usual, &self.nodes[switch.index()]) else { return 1 };
        let flow_hash = five_tuple.ecmp_hash(rules.salt());
        let out = hops.choose(usual.0, flow_hash, packet.entropy());
        let tag = hops.tag();
        if let Some((place, entry)) = self.entry_for(link, switch, &packet, decision) {
            self.evict_entry(place);
            self.cache.store_set(place, switch, entry, &decision.rules, (hops, flow_hash));
        }
        packet.pass(tag);
        i32::from(!self.enqueue(now, out, packet))
    }
}
