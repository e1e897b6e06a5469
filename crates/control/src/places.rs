//! Addresses that are at a host's port though the fabric lays them out elsewhere, or not at all: those of virtual machines
//! and containers, of hosts that have moved or have addresses of their own, of whatever is behind a router at the edge.
//!
//! Each is a default route of its own, above those that are worked out by ToR: a longer prefix always wins, and a prefix
//! that is placed never has the length of one of the fabric's (see [`crate::Input::Place`]).

use crate::defaults::{Choice, DefaultTable};
use pathloom_model::{Attachment, Fabric, NodeId, PortNo, Prefix};
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

    /// Where an address is; see [`crate::Controller::attachment`].
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

    /// Single addresses that were placed, each with the switch and port that it is at.
    pub(crate) fn ports<'a>(&'a self, fabric: &'a Fabric) -> impl Iterator<Item = (Ipv4Addr, NodeId, PortNo)> + 'a {
        let singles = self.0.iter().filter(|(prefix, _)| prefix.len == 32);
        singles.map(|(_, at)| (at.address, at.tor, fabric.link(at.uplink).to_port))
    }

    /// A prefix is at a host's port from now on, or where the fabric lays it out. Returns whether that is a change; `None` if no
    /// host is there.
    pub(crate) fn place(&mut self, fabric: &Fabric, prefix: Prefix, at: Option<(NodeId, PortNo)>) -> Option<bool> {
        let prefix = Prefix::new(prefix.address, prefix.len.min(32));
        let place = match at {
            Some(at) => Some(attachment_at(fabric, prefix.address, at)?),
            None => None,
        };
        // Where the fabric lays it out, it needs no route of its own.
        let home = fabric.attachment(prefix.address).filter(|_| prefix.len == 32);
        let place = place.filter(|at| home != Some(at));
        if self.0.get(&prefix) == place.as_ref() {
            return Some(false);
        }
        match place {
            Some(at) => self.0.insert(prefix, at),
            None => self.0.remove(&prefix),
        };
        Some(true)
    }

    /// Addresses that a ToR has routes for as if they had been placed there, by an earlier start of the controller: those of
    /// which nothing else is known.
    pub(crate) fn found_at(&self, fabric: &Fabric, tor: NodeId, found: &DefaultTable) -> Vec<(Prefix, PortNo)> {
        let single = |&(prefix, choice): &(Prefix, Choice)| match choice {
            Choice::Port(port) if prefix.len == 32 => Some((prefix, port)),
            _ => None,
        };
        // What is remembered, or told by now, is newer.
        let fresh = |&(prefix, port): &(Prefix, PortNo)| {
            attachment_at(fabric, prefix.address, (tor, port)).is_some() && !self.0.contains_key(&prefix)
        };
        found.routes.iter().filter_map(single).filter(fresh).collect()
    }
}

/// The host's port behind a port of a switch, as the place of an address.
fn attachment_at(fabric: &Fabric, address: Ipv4Addr, (switch, port): (NodeId, PortNo)) -> Option<Attachment> {
    let down = fabric.nodes().get(switch.index()).and_then(|_| fabric.out_link(switch, port))?;
    let (uplink, host) = (down.reverse(), fabric.link(down).to);
    fabric.is_host(host).then_some(Attachment { address, host, tor: switch, uplink })
}
