//! The way of a flow through the switches, by their present rules, and the changes that may alter it.

use super::switches::Switches;
use super::{PacketIn, TTL};
use crate::lanes::Lanes;
use crate::packet::Packet;
use pathloom_model::{Fabric, Headers, LinkId, NodeId, PortNo};
use pathloom_switching::{Decision, RuleRef, Stale, Switch};
use std::collections::BTreeMap;

/// A link that a part of a flow takes, and the rules that sent it there.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct WalkedLink {
    pub(crate) link: LinkId,
    /// Part of the flow that takes it, above 0 and at most 1.
    pub(crate) share: f64,
    /// The switch at its start, with the rules that it used; `None` for a link out of a host.
    pub(crate) sent_by: Option<(NodeId, Vec<RuleRef>)>,
}

/// The way of a flow.
#[derive(Clone, Default, PartialEq, Debug)]
pub(crate) struct Walk {
    /// The links, in the order of their distance from the host that sends.
    pub(crate) links: Vec<WalkedLink>,
    /// Whether all of the flow reaches the interface that it is for.
    pub(crate) arrives: bool,
}

/// A change that may alter the ways of flows.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// A switch decides otherwise about some flows.
    Rules(NodeId, Stale),
    /// A link has failed, has come back, or has another rate.
    Link(LinkId),
}

/// The switches of a network with their rules, for finding ways.
#[derive(Clone, Copy)]
pub(crate) struct Ways<'a> {
    pub(super) fabric: &'a Fabric,
    pub(super) switches: &'a Switches,
    pub(super) lanes: &'a Lanes,
}

impl Ways<'_> {
    /// The way of packets with these headers, from the link out of their host. With `splits`, a flow takes all next hops
    /// among which a group chooses, in proportion to their weights.
    pub(crate) fn walk(self, uplink: LinkId, headers: Headers, splits: bool) -> Walk {
        let goal = self.fabric.attachment(headers.five_tuple.dst()).map(|at| at.uplink.reverse());
        let mut walk = Walk { links: vec![WalkedLink { link: uplink, share: 1.0, sent_by: None }], arrives: false };
        let mut layer = BTreeMap::from([((uplink, headers.tag), 1.0)]);
        let mut arrived = 0.0;
        for _ in 0..=TTL {
            let mut next = BTreeMap::new();
            for ((link, tag), share) in std::mem::take(&mut layer) {
                let record = self.fabric.link(link);
                let Some(rules) = self.switches.nodes[record.to.index()].rules() else {
                    arrived += if Some(link) == goal { share } else { 0.0 };
                    continue;
                };
                let decision = rules.decide(record.to_port, &Headers { tag, ..headers });
                for (out, tag, part) in self.onward(record.to, (rules, record.to_port), &decision, splits) {
                    let sent_by = Some((record.to, decision.rules.clone()));
                    walk.links.push(WalkedLink { link: out, share: share * part, sent_by });
                    *next.entry((out, tag)).or_insert(0.0) += share * part;
                }
            }
            if next.is_empty() {
                break;
            }
            layer = next;
        }
        walk.arrives = arrived > 1.0 - 1e-9;
        walk
    }

    /// The links by which a frame leaves a switch, with its tag and the part that takes each.
    fn onward(
        self,
        switch: NodeId,
        (rules, in_port): (&Switch, PortNo),
        decision: &Decision,
        splits: bool,
    ) -> Vec<(LinkId, Option<u16>, f64)> {
        let [emission] = decision.emissions[..] else { return Vec::new() };
        let equal = if splits { rules.equal_ports(in_port, decision) } else { Vec::new() };
        let total: f64 = equal.iter().map(|&(_, weight)| f64::from(weight)).sum();
        let out = |port: PortNo| self.fabric.out_link(switch, port);
        if total > 0.0 {
            let part = |&(port, weight): &(PortNo, u16)| Some((out(port)?, emission.tag, f64::from(weight) / total));
            return equal.iter().filter_map(part).filter(|&(_, _, part)| part > 0.0).collect();
        }
        out(emission.port).map(|link| (link, emission.tag, 1.0)).into_iter().collect()
    }

    /// The copies that switches make for the controller of a packet of this lane with these flags, as it crosses the
    /// network.
    pub(crate) fn copies(self, uplink: LinkId, packet: &Packet) -> Vec<PacketIn> {
        let mut copies = Vec::new();
        let Some(mut headers) = self.lanes.headers(packet) else { return copies };
        let mut link = uplink;
        for _ in 0..=TTL {
            let record = self.fabric.link(link);
            let (switch, in_port) = (record.to, record.to_port);
            let Some(rules) = self.switches.nodes[switch.index()].rules() else { break };
            let decision = rules.decide(in_port, &headers);
            if decision.copied {
                copies.push(PacketIn { switch, in_port, headers });
            }
            let [emission] = decision.emissions[..] else { break };
            let Some(out) = self.fabric.out_link(switch, emission.port) else { break };
            headers.tag = emission.tag;
            link = out;
        }
        copies
    }
}
