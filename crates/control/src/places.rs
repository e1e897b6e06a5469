//! Addresses that are at a host's port though the fabric lays them out elsewhere, or not at all: those of virtual machines
//! and containers, of hosts that have moved or have addresses of their own, of whatever is behind a router at the edge.
//!
//! Each is a default route of its own, above those that are worked out by ToR: a longer prefix always wins, and a prefix
//! that is placed never has the length of one of the fabric's (see [`crate::Input::Place`]).

use crate::controller::Controller;
use pathloom_model::{Attachment, Fabric, NodeId, PortNo, Prefix};
use pathloom_scheme::FlowId;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Sources of a prefix as short as this are told from transit by their port alone, so no flow of theirs is looked for.
const SHORTEST_SOURCE: u8 = 8;

/// Where prefixes are that the fabric does not lay out there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Places(BTreeMap<Prefix, Attachment>);

impl Places {
    /// The longest prefix that an address is in.
    fn find(&self, address: Ipv4Addr) -> Option<Attachment> {
        if self.0.is_empty() {
            return None;
        }
        let at = |len: u8| self.0.get(&Prefix::new(address, len));
        let found = (0..=32u8).rev().find_map(at)?;
        Some(Attachment { address, ..*found })
    }

    /// Where an address is; see [`Controller::attachment`].
    pub(crate) fn attachment(&self, fabric: &Fabric, address: Ipv4Addr) -> Option<Attachment> {
        let single = || self.0.get(&Prefix::host(address)).copied();
        single().or_else(|| fabric.attachment(address).copied()).or_else(|| self.find(address))
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All, by prefix.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Prefix, Attachment)> + '_ {
        self.0.iter().map(|(&prefix, &at)| (prefix, at))
    }

    /// The prefixes at a ToR whose flows are looked for beside those of the ToR's own.
    pub(crate) fn sources_at(&self, tor: NodeId, own: Option<Prefix>) -> impl Iterator<Item = Prefix> + '_ {
        let here = self.0.iter().filter(move |(_, at)| at.tor == tor).map(|(&prefix, _)| prefix);
        let covered =
            move |prefix: &Prefix| own.is_some_and(|own| own.len <= prefix.len && own.contains(prefix.address));
        here.filter(move |prefix| prefix.len >= SHORTEST_SOURCE && !covered(prefix))
    }

    /// Single addresses, to be remembered: prefixes are told anew at each start.
    pub(crate) fn singles(&self) -> Vec<Attachment> {
        self.0.iter().filter(|(prefix, _)| prefix.len == 32).map(|(_, &at)| at).collect()
    }

    /// Remembered ones, as far as the fabric still has their ports.
    pub(crate) fn restored(fabric: &Fabric, singles: Vec<Attachment>) -> Places {
        let known = |at: &Attachment| {
            let link = fabric.links().get(at.uplink.index());
            link.is_some_and(|link| (link.from, link.to) == (at.host, at.tor)) && fabric.is_host(at.host)
        };
        Places(singles.into_iter().filter(known).map(|at| (Prefix::host(at.address), at)).collect())
    }
}

/// The host's port behind a port of a switch, as the place of an address.
fn attachment_at(fabric: &Fabric, address: Ipv4Addr, (switch, port): (NodeId, PortNo)) -> Option<Attachment> {
    let down = fabric.nodes().get(switch.index()).and_then(|_| fabric.out_link(switch, port))?;
    let (uplink, host) = (down.reverse(), fabric.link(down).to);
    fabric.is_host(host).then_some(Attachment { address, host, tor: switch, uplink })
}

impl Controller {
    /// Where an address is: where it was placed, where the fabric lays it out, or where a prefix was placed that it is in.
    pub fn attachment(&self, address: Ipv4Addr) -> Option<Attachment> {
        self.context.places.attachment(&self.context.fabric, address)
    }

    /// Single addresses that were placed, each with the switch and port that it is at.
    pub fn placed(&self) -> impl Iterator<Item = (Ipv4Addr, NodeId, PortNo)> + '_ {
        let singles = self.context.places.0.iter().filter(|(prefix, _)| prefix.len == 32);
        singles.map(|(_, at)| (at.address, at.tor, self.context.fabric.link(at.uplink).to_port))
    }

    /// Carries out [`crate::Input::Place`].
    pub(crate) fn place(&mut self, prefix: Prefix, at: Option<(NodeId, PortNo)>) {
        let prefix = Prefix::new(prefix.address, prefix.len.min(32));
        let place = at.map(|at| attachment_at(&self.context.fabric, prefix.address, at));
        if place == Some(None) {
            self.context.counts.nonsense += 1;
            return;
        }
        // Where the fabric lays it out, it needs no route of its own.
        let home = self.context.fabric.attachment(prefix.address).filter(|_| prefix.len == 32);
        let place = place.flatten().filter(|at| home != Some(at));
        if self.context.places.0.get(&prefix) == place.as_ref() {
            return;
        }
        match place {
            Some(at) => self.context.places.0.insert(prefix, at),
            None => self.context.places.0.remove(&prefix),
        };
        self.stale = true;
        self.leave_old_places();
        self.assignments_moved();
    }

    /// Ends the flows one of whose ends is elsewhere now: their paths lead to where it was.
    fn leave_old_places(&mut self) {
        let gone = |at: &Attachment| self.context.attachment(at.address).is_none_or(|now| now.uplink != at.uplink);
        let moved = |flow: &crate::flows::Flow| gone(&flow.key.src) || gone(&flow.key.dst);
        let moved: Vec<FlowId> = self.flows.iter().filter(|(_, flow)| moved(flow)).map(|(id, _)| id).collect();
        for id in moved {
            self.finish(id);
            self.retire(id);
        }
    }

    /// Before the first comparison with what a ToR has: addresses that an earlier start of the controller placed there.
    pub(crate) fn adopt_places(&mut self, tor: NodeId) {
        let routes = &self.context.switches[tor.index()].fixed.defaults.routes;
        let single = |&(prefix, choice): &(Prefix, crate::defaults::Choice)| match choice {
            crate::defaults::Choice::Port(port) if prefix.len == 32 => Some((prefix, port)),
            _ => None,
        };
        let found: Vec<(Prefix, PortNo)> = routes.iter().filter_map(single).collect();
        for (prefix, port) in found {
            let here = attachment_at(&self.context.fabric, prefix.address, (tor, port));
            // What is remembered, or told by now, is newer.
            if here.is_some() && !self.context.places.0.contains_key(&prefix) {
                self.place(prefix, Some((tor, port)));
            }
        }
    }
}
