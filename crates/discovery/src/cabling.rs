//! Comparison of the discovered cabling with the configured cabling.
//!
//! Convention: node `n` of a fabric is the switch with datapath identifier `n + 1`. Its OpenFlow ports have the same
//! numbers as the ports of the fabric.

use crate::{Dpid, Place};
use pathloom_model::{Fabric, LinkId, NodeId};
use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

/// Returns the datapath identifier of a node.
pub fn dpid_of(node: NodeId) -> Dpid {
    Dpid(u64::from(node.0) + 1)
}

/// Returns the switch with a datapath identifier, if the fabric has it.
pub fn switch_of(fabric: &Fabric, dpid: Dpid) -> Option<NodeId> {
    let node = NodeId(u32::try_from(dpid.0.checked_sub(1)?).ok()?);
    (node.index() < fabric.nodes().len() && !fabric.is_host(node)).then_some(node)
}

/// Returns the port at which a directed link begins.
pub fn place_of(fabric: &Fabric, link: LinkId) -> Place {
    let link = fabric.link(link);
    Place { dpid: dpid_of(link.from), port: link.from_port }
}

/// Returns the directed link that begins at a port of a switch.
pub fn link_at(fabric: &Fabric, place: Place) -> Option<LinkId> {
    fabric.out_link(switch_of(fabric, place.dpid)?, place.port)
}

/// Returns the configured link from port `a` to port `b`.
pub fn link_between(fabric: &Fabric, a: Place, b: Place) -> Option<LinkId> {
    link_at(fabric, a).filter(|&link| place_of(fabric, link.reverse()) == b)
}

/// Returns the configured IPv4 addresses of hosts and their switch ports, for host learning.
pub fn expected_hosts(fabric: &Fabric) -> impl Iterator<Item = (Ipv4Addr, Place)> + '_ {
    fabric.attachments().iter().filter_map(|at| Some((at.address.v4()?, place_of(fabric, at.uplink.reverse()))))
}

/// A port whose cable leads to another port than configured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Miscabled {
    /// The port.
    pub at: Place,
    /// The configured directed link that begins there; it may lead to a host.
    pub wanted: LinkId,
    /// The port to which the cable leads.
    pub found: Place,
}

/// Differences between the discovered cabling and the configured one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CablingReport {
    /// Configured cables between switches that were not found, and whose ports have no other cable either. Cables that
    /// are configured as failed are not included.
    pub missing: Vec<LinkId>,
    /// Links between ports that are not configured. The lower end comes first.
    pub unexpected: Vec<(Place, Place)>,
    /// Configured ports whose cables lead to other ports than configured. One entry per port.
    pub miscabled: Vec<Miscabled>,
    /// Number of configured cables that were found.
    pub right: usize,
}

impl CablingReport {
    /// Whether there are no differences.
    pub fn is_right(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty() && self.miscabled.is_empty()
    }

    /// Returns one line of text per difference, with the node names of the fabric.
    pub fn lines<'a>(&'a self, fabric: &'a Fabric) -> impl Iterator<Item = String> + 'a {
        let missing = self.missing.iter().map(move |&link| {
            format!("no cable found from {} to {}", End(fabric, place_of(fabric, link)), Far(fabric, link))
        });
        let miscabled = self.miscabled.iter().map(move |wrong| {
            let (at, found) = (End(fabric, wrong.at), End(fabric, wrong.found));
            format!("the cable from {at} leads to {found}; it belongs to {}", Far(fabric, wrong.wanted))
        });
        let unexpected = self.unexpected.iter().map(move |&(a, b)| {
            format!("a cable from {} to {} that is not configured", End(fabric, a), End(fabric, b))
        });
        missing.chain(miscabled).chain(unexpected)
    }
}

/// Prints a port with the name of its node, if the fabric has the node.
struct End<'a>(&'a Fabric, Place);

/// Prints the far end of a link.
struct Far<'a>(&'a Fabric, LinkId);

impl fmt::Display for End<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match switch_of(self.0, self.1.dpid) {
            Some(node) => write!(f, "{} port {}", self.0.node(node).name, self.1.port.0),
            None => write!(f, "{}", self.1),
        }
    }
}

impl fmt::Display for Far<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let link = self.0.link(self.1);
        write!(f, "{} port {}", self.0.node(link.to).name, link.to_port.0)
    }
}

/// Compares the discovered links with the cabling of `fabric`. `found` lists each link once, in either direction.
pub fn compare(fabric: &Fabric, found: impl IntoIterator<Item = (Place, Place)>) -> CablingReport {
    let mut report = CablingReport::default();
    let mut peers = BTreeMap::new();
    for (a, b) in found {
        peers.insert(a, b);
        peers.insert(b, a);
    }
    for (&at, &peer) in &peers {
        match link_at(fabric, at) {
            Some(wanted) if place_of(fabric, wanted.reverse()) != peer || !fabric.is_switch_link(wanted) => {
                report.miscabled.push(Miscabled { at, wanted, found: peer });
            }
            Some(_) => {}
            // If the other end is a configured port, that port is listed as miscabled, so nothing is added here.
            None if at < peer && link_at(fabric, peer).is_none() => report.unexpected.push((at, peer)),
            None => {}
        }
    }
    for link in fabric.switch_cables() {
        let (a, b) = (place_of(fabric, link), place_of(fabric, link.reverse()));
        if peers.get(&a) == Some(&b) {
            report.right += 1;
        } else if !peers.contains_key(&a) && !peers.contains_key(&b) && !is_failed(fabric, link) {
            report.missing.push(link);
        }
    }
    report
}

fn is_failed(fabric: &Fabric, link: LinkId) -> bool {
    fabric.failed_links().iter().any(|failed| failed.cable() == link.cable())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_fabrics::fabric_from_spec;

    fn all(fabric: &Fabric) -> Vec<(Place, Place)> {
        fabric.switch_cables().map(|link| (place_of(fabric, link), place_of(fabric, link.reverse()))).collect()
    }

    #[test]
    fn a_fabric_as_configured_has_no_differences() {
        let fabric = fabric_from_spec("fat-tree:k=4").unwrap();
        let mut found = all(&fabric);
        found.iter_mut().step_by(2).for_each(|pair| *pair = (pair.1, pair.0));
        let report = compare(&fabric, found.iter().copied());
        assert!(report.is_right());
        assert_eq!(report.right, 32);
        for (a, b) in found {
            let link = link_between(&fabric, a, b).expect("configured");
            assert_eq!((place_of(&fabric, link), link_at(&fabric, a)), (a, Some(link)));
        }
        assert_eq!(expected_hosts(&fabric).count(), 16);
    }

    #[test]
    fn swapped_missing_and_unexpected_cables_are_distinguished() {
        let fabric = fabric_from_spec("fat-tree:k=4").unwrap();
        let mut found = all(&fabric);
        let (first, second) = (found[0], found[9]);
        (found[0], found[9]) = ((first.0, second.1), (second.0, first.1));
        let lost = found.remove(20);
        let strange = (Place::new(901, 1), Place::new(902, 7));
        found.push(strange);
        let host_port = expected_hosts(&fabric).next().unwrap().1;
        found.push((Place::new(901, 2), host_port));
        let report = compare(&fabric, found);
        assert_eq!(report.missing, [link_between(&fabric, lost.0, lost.1).unwrap()]);
        assert_eq!(report.unexpected, [strange]);
        assert_eq!((report.miscabled.len(), report.right), (5, 29));
        assert!(report.miscabled.iter().any(|wrong| wrong.at == first.0 && wrong.found == second.1));
        let lines: Vec<String> = report.lines(&fabric).collect();
        assert_eq!(lines.len(), 7);
        assert!(lines[0].starts_with("no cable found from "), "{}", lines[0]);
        let host = fabric.node(fabric.link(link_at(&fabric, host_port).unwrap()).to).name.clone();
        assert!(lines.iter().any(|line| line.contains(&format!("it belongs to {host} port 1"))), "{lines:?}");
    }

    #[test]
    fn links_configured_as_failed_are_not_reported_as_missing() {
        let fabric = fabric_from_spec("fat-tree:k=4,fail=0.1").unwrap();
        let found: Vec<_> = all(&fabric)
            .into_iter()
            .filter(|&(a, b)| !is_failed(&fabric, link_between(&fabric, a, b).unwrap()))
            .collect();
        assert!(found.len() < 32);
        assert!(compare(&fabric, found).is_right());
        for dpid in [0, u64::MAX, 1 << 33] {
            assert_eq!(switch_of(&fabric, Dpid(dpid)), None);
        }
        let host = fabric.hosts()[0];
        assert_eq!(switch_of(&fabric, dpid_of(host)), None);
    }
}
