//! Addresses at the port of a host, although the fabric has them elsewhere or not at all. Examples are addresses of
//! virtual machines and containers, of hosts that moved or have other addresses, and of systems behind a router at
//! the edge.
//!
//! Each placed prefix has its own default route. It overrides the routes that are computed per ToR: a longer prefix
//! always wins, and a placed prefix never has the length of a prefix of the fabric (see [`crate::Input::Place`]).

use pathloom_model::{Address, Attachment, Fabric, NodeId, PortNo, Prefix};
use std::collections::BTreeMap;

/// Least length of a placed prefix whose flows are detected. Packets from a shorter prefix differ from transit only
/// in their port, so their flows are not detected.
const SHORTEST_SOURCE: u8 = 8;

/// Placed prefixes and their attachments.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Places(BTreeMap<Prefix, Attachment>);

impl Places {
    /// Returns the place of the longest placed prefix that contains an address.
    fn find(&self, address: Address) -> Option<Attachment> {
        if self.0.is_empty() {
            return None;
        }
        let at = |len: u8| self.0.get(&Prefix::new(address, len));
        let found = (0..=address.bits()).rev().find_map(at)?;
        Some(Attachment { address, ..*found })
    }

    /// Returns the place of an address; see [`crate::Controller::attachment`].
    pub(crate) fn attachment(&self, fabric: &Fabric, address: Address) -> Option<Attachment> {
        let single = || self.0.get(&Prefix::host(address)).copied();
        single().or_else(|| fabric.attachment(address).copied()).or_else(|| self.find(address))
    }

    /// Whether there are no placed prefixes.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All placed prefixes, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Prefix, Attachment)> + '_ {
        self.0.iter().map(|(&prefix, &at)| (prefix, at))
    }

    /// The placed prefixes at a ToR whose flows are detected in addition to those of the ToR's own prefix.
    pub(crate) fn sources_at(&self, tor: NodeId, own: Option<Prefix>) -> impl Iterator<Item = Prefix> + '_ {
        let here = self.0.iter().filter(move |(_, at)| at.tor == tor).map(|(&prefix, _)| prefix);
        let covered =
            move |prefix: &Prefix| own.is_some_and(|own| own.len <= prefix.len && own.contains(prefix.address));
        here.filter(move |prefix| prefix.len >= SHORTEST_SOURCE && !covered(prefix))
    }

    /// Single addresses, for the snapshot. Prefixes are not stored: the driver sends them at each start.
    pub(crate) fn singles(&self) -> Vec<Attachment> {
        self.0.iter().filter(|(prefix, _)| prefix.is_host()).map(|(_, &at)| at).collect()
    }

    /// Restores the single addresses of a snapshot whose ports the fabric still has.
    pub(crate) fn restored(fabric: &Fabric, singles: Vec<Attachment>) -> Places {
        let known = |at: &Attachment| {
            let link = fabric.links().get(at.uplink.index());
            link.is_some_and(|link| (link.from, link.to) == (at.host, at.tor)) && fabric.is_host(at.host)
        };
        Places(singles.into_iter().filter(known).map(|at| (Prefix::host(at.address), at)).collect())
    }

    /// Single addresses that were placed, each with its switch and port.
    pub(crate) fn ports<'a>(&'a self, fabric: &'a Fabric) -> impl Iterator<Item = (Address, NodeId, PortNo)> + 'a {
        let singles = self.0.iter().filter(|(prefix, _)| prefix.is_host());
        singles.map(|(_, at)| (at.address, at.tor, fabric.link(at.uplink).to_port))
    }

    /// Places a prefix at the port of a host, or where the fabric has it. Returns whether this is a change; `None` if
    /// there is no host at the port.
    pub(crate) fn place(&mut self, fabric: &Fabric, prefix: Prefix, at: Option<(NodeId, PortNo)>) -> Option<bool> {
        let prefix = Prefix::new(prefix.address, prefix.len.min(prefix.address.bits()));
        let place = match at {
            Some(at) => Some(attachment_at(fabric, prefix.address, at)?),
            None => None,
        };
        // An address at its place in the fabric needs no route of its own.
        let home = fabric.attachment(prefix.address).filter(|_| prefix.is_host());
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

    /// Those addresses with their ports that an earlier start of the controller may have placed at a ToR, because it
    /// has routes for them. Addresses that are already placed are left out: a place from the snapshot or from the
    /// driver is newer.
    pub(crate) fn unplaced(
        &self,
        fabric: &Fabric,
        tor: NodeId,
        found: impl Iterator<Item = (Prefix, PortNo)>,
    ) -> Vec<(Prefix, PortNo)> {
        let fresh = |&(prefix, port): &(Prefix, PortNo)| {
            attachment_at(fabric, prefix.address, (tor, port)).is_some() && !self.0.contains_key(&prefix)
        };
        found.filter(fresh).collect()
    }
}

/// Returns the host's port behind a port of a switch, as the place of an address.
fn attachment_at(fabric: &Fabric, address: Address, (switch, port): (NodeId, PortNo)) -> Option<Attachment> {
    let down = fabric.nodes().get(switch.index()).and_then(|_| fabric.out_link(switch, port))?;
    let (uplink, host) = (down.reverse(), fabric.link(down).to);
    fabric.is_host(host).then_some(Attachment { address, host, tor: switch, uplink })
}
