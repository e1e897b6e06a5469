//! Builds a fabric from the discovered topology, if no fabric is configured.

use crate::{Dpid, KnownHost, Mac, Place};
use pathloom_model::{Address, Fabric, FabricBuilder, FabricError, LinkSettings, NodeId, PortNo, Tier};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;

/// A fabric, and the OpenFlow numbers of its ports. Ports of a [`Fabric`] count from 1 without gaps in the order of
/// cabling, and its addresses are laid out by ToR. Real switches may have other port numbers, and real hosts other
/// addresses.
#[derive(Clone, PartialEq, Debug)]
pub struct FoundFabric {
    /// Switches `s1`, `s2`, … by datapath id; hosts `h-10.0.0.1`, … by their lowest address.
    pub fabric: Fabric,
    /// For each discovered address: the address that the fabric assigns to the port of that host.
    pub addresses: BTreeMap<Ipv4Addr, Address>,
    to_wire: BTreeMap<(NodeId, PortNo), Place>,
    from_wire: BTreeMap<Place, (NodeId, PortNo)>,
}

impl FoundFabric {
    /// Returns the real switch port for a port of the fabric.
    pub fn place(&self, node: NodeId, port: PortNo) -> Option<Place> {
        self.to_wire.get(&(node, port)).copied()
    }

    /// Returns the port of the fabric for a real switch port.
    pub fn port(&self, place: Place) -> Option<(NodeId, PortNo)> {
        self.from_wire.get(&place).copied()
    }

    /// Whether all hosts have the addresses that the fabric assigns, so that one rule per ToR routes to them.
    pub fn is_laid_out(&self) -> bool {
        self.addresses.iter().all(|(found, laid_out)| laid_out == found)
    }
}

/// Why no fabric can be built.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FoundError {
    /// Several hosts on one port, behind a switch that the controller does not control.
    #[error("{place}: {first} and {second} are both hosts at this port; connect each host to a port of its own")]
    SharedPort {
        /// The port.
        place: Place,
        /// Hardware address of one host at the port.
        first: Mac,
        /// Hardware address of another host at the port.
        second: Mac,
    },
    /// A port that is the end of a link and also has a host.
    #[error("{0}: the port is the end of a link, but a host was found there too")]
    HostOnLink(Place),
    /// The model refuses the fabric, for example because it has fewer than two hosts.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

/// Builds a fabric from the discovered switches, links (each once) and hosts. `settings` returns the link settings of a
/// port.
///
/// Tiers are inferred. A switch with hosts is a ToR. If some switches are further away from hosts than the neighbours
/// of ToRs, these neighbours are aggregation switches and the further switches are cores. Otherwise the neighbours are
/// cores. Pods are the connected parts that remain when the cores are removed.
///
/// # Errors
/// See [`FoundError`].
pub fn build_fabric(
    switches: impl IntoIterator<Item = Dpid>,
    links: impl IntoIterator<Item = (Place, Place)>,
    hosts: impl IntoIterator<Item = KnownHost>,
    mut settings: impl FnMut(Place) -> LinkSettings,
) -> Result<FoundFabric, FoundError> {
    let links: BTreeSet<(Place, Place)> = links.into_iter().map(|(a, b)| (a.min(b), a.max(b))).collect();
    let homes = homes(hosts)?;
    let ends: BTreeSet<Place> = links.iter().flat_map(|&(a, b)| [a, b]).collect();
    if let Some(&place) = homes.keys().find(|place| ends.contains(place)) {
        return Err(FoundError::HostOnLink(place));
    }
    let mut all: BTreeSet<Dpid> = switches.into_iter().collect();
    all.extend(ends.iter().chain(homes.keys()).map(|place| place.dpid));
    let tiers = tiers(&all, &links, &homes);
    let pods = pods(&all, &links, &tiers);
    let mut builder = FabricBuilder::new("found");
    let nodes: BTreeMap<Dpid, NodeId> = all
        .iter()
        .map(|&dpid| (dpid, builder.switch(format!("s{}", dpid.0), tiers[&dpid], pods.get(&dpid).copied())))
        .collect();
    let mut host_nodes = BTreeMap::new();
    for (&place, (_, addresses)) in &homes {
        let name = addresses.first().map(|address| format!("h-{address}")).expect("entered with its first address");
        host_nodes.insert(place, builder.host(name, pods.get(&place.dpid).copied()));
    }
    // Cables are added in the order of their lower ports, so that the ports of a switch keep their order if possible.
    let mut to_wire = Vec::new();
    let cables = links.iter().map(|&(a, b)| (a, Some(b))).chain(homes.keys().map(|&place| (place, None)));
    for (a, b) in cables.collect::<BTreeSet<_>>() {
        let far =
            b.map_or(host_nodes.get(&a).copied(), |b| nodes.get(&b.dpid).copied()).expect("every end was entered");
        let cable = builder.cable(nodes[&a.dpid], far, settings(a));
        to_wire.push((cable, a));
        if let Some(b) = b {
            builder.set(cable.reverse(), settings(b));
            to_wire.push((cable.reverse(), b));
        }
    }
    let fabric = builder.build()?;
    let port = |link| (fabric.link(link).from, fabric.link(link).from_port);
    let to_wire: BTreeMap<_, _> = to_wire.into_iter().map(|(link, place)| (port(link), place)).collect();
    let from_wire: BTreeMap<_, _> = to_wire.iter().map(|(&port, &place)| (place, port)).collect();
    let mut addresses = BTreeMap::new();
    for (place, (_, found)) in &homes {
        let laid_out = fabric.host_attachments(host_nodes[place])[0].address;
        addresses.extend(found.iter().map(|&address| (address, laid_out)));
    }
    Ok(FoundFabric { fabric, addresses, to_wire, from_wire })
}

/// Returns the host at each port, with its addresses in ascending order.
fn homes(hosts: impl IntoIterator<Item = KnownHost>) -> Result<BTreeMap<Place, (Mac, BTreeSet<Ipv4Addr>)>, FoundError> {
    let mut homes: BTreeMap<Place, (Mac, BTreeSet<Ipv4Addr>)> = BTreeMap::new();
    for KnownHost { address, mac, place } in hosts {
        let (first, addresses) = homes.entry(place).or_insert_with(|| (mac, BTreeSet::new()));
        if *first != mac {
            return Err(FoundError::SharedPort { place, first: *first, second: mac });
        }
        addresses.insert(address);
    }
    Ok(homes)
}

fn neighbours(links: &BTreeSet<(Place, Place)>) -> BTreeMap<Dpid, Vec<Dpid>> {
    let mut neighbours: BTreeMap<Dpid, Vec<Dpid>> = BTreeMap::new();
    for (a, b) in links {
        neighbours.entry(a.dpid).or_default().push(b.dpid);
        neighbours.entry(b.dpid).or_default().push(a.dpid);
    }
    neighbours
}

/// Returns the tier of each switch, derived from the number of hops to the nearest switch with hosts.
fn tiers<T>(
    all: &BTreeSet<Dpid>,
    links: &BTreeSet<(Place, Place)>,
    homes: &BTreeMap<Place, T>,
) -> BTreeMap<Dpid, Tier> {
    let neighbours = neighbours(links);
    let mut hops: BTreeMap<Dpid, u32> = homes.keys().map(|place| (place.dpid, 0)).collect();
    let mut queue: VecDeque<Dpid> = hops.keys().copied().collect();
    while let Some(dpid) = queue.pop_front() {
        let next = hops[&dpid] + 1;
        for &other in neighbours.get(&dpid).into_iter().flatten() {
            hops.entry(other).or_insert_with(|| {
                queue.push_back(other);
                next
            });
        }
    }
    let two_tiers = hops.values().all(|&hops| hops < 2);
    let tier = |dpid: &Dpid| match hops.get(dpid) {
        Some(0) => Tier::Tor,
        Some(1) if !two_tiers => Tier::Aggregation,
        _ => Tier::Core,
    };
    all.iter().map(|dpid| (*dpid, tier(dpid))).collect()
}

/// Returns the pod of each switch that is not a core. Pods are the connected parts without the cores, numbered in the
/// order of their lowest datapath identifiers. The result is empty if there is only one part, or if each part is a
/// single switch.
fn pods(all: &BTreeSet<Dpid>, links: &BTreeSet<(Place, Place)>, tiers: &BTreeMap<Dpid, Tier>) -> BTreeMap<Dpid, u32> {
    let neighbours = neighbours(links);
    let mut pods = BTreeMap::new();
    let mut count = 0;
    for &start in all.iter().filter(|dpid| tiers[dpid] != Tier::Core) {
        if pods.contains_key(&start) {
            continue;
        }
        pods.insert(start, count);
        let mut queue = vec![start];
        while let Some(dpid) = queue.pop() {
            for &other in neighbours.get(&dpid).into_iter().flatten() {
                if tiers[&other] != Tier::Core && !pods.contains_key(&other) {
                    pods.insert(other, count);
                    queue.push(other);
                }
            }
        }
        count += 1;
    }
    if count < 2 || pods.len() == count as usize {
        pods.clear();
    }
    pods
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cabling::{dpid_of, place_of};
    use pathloom_fabrics::fabric_from_spec;

    const SETTINGS: LinkSettings = LinkSettings { rate_bps: 1_000_000_000, delay_ps: 1_000_000, buffer_packets: 100 };

    /// A fabric, and the fabric that is built when everything of the first one is discovered.
    fn rebuilt(spec: &str) -> (Fabric, FoundFabric) {
        let fabric = fabric_from_spec(spec).unwrap();
        let switches: Vec<Dpid> = fabric.switches().iter().map(|&node| dpid_of(node)).collect();
        let links: Vec<_> =
            fabric.switch_cables().map(|link| (place_of(&fabric, link.reverse()), place_of(&fabric, link))).collect();
        let hosts: Vec<KnownHost> = fabric
            .attachments()
            .iter()
            .enumerate()
            .map(|(index, at)| KnownHost {
                address: at.address.v4().unwrap(),
                mac: Mac([2, 0, 0, 0, (index >> 8) as u8, index as u8]),
                place: place_of(&fabric, at.uplink.reverse()),
            })
            .collect();
        let found = build_fabric(switches, links, hosts, |_| SETTINGS).unwrap();
        (fabric, found)
    }

    #[test]
    fn fabrics_are_rebuilt_with_their_tiers_pods_and_addresses() {
        for spec in ["fat-tree:k=4", "fat-tree:k=8", "leaf-spine:spines=3,leaves=5,hosts=2", "vl2:hosts=3", "diamond"] {
            let (fabric, found) = rebuilt(spec);
            let tiers = |fabric: &Fabric| {
                let tiers: Vec<Tier> = fabric.switches().iter().map(|&node| fabric.node(node).tier).collect();
                tiers
            };
            if spec != "diamond" {
                assert_eq!(tiers(&found.fabric), tiers(&fabric), "{spec}");
            }
            assert!(found.is_laid_out(), "{spec}");
            assert_eq!(found.fabric.links().len(), fabric.links().len(), "{spec}");
            for link in fabric.switch_cables() {
                let (a, b) = (place_of(&fabric, link), place_of(&fabric, link.reverse()));
                let ((from, port), (to, _)) = (found.port(a).unwrap(), found.port(b).unwrap());
                let out = found.fabric.out_link(from, port).unwrap();
                assert_eq!(found.fabric.link(out).to, to, "{spec}");
                assert_eq!(found.place(from, port), Some(a), "{spec}");
            }
        }
        let (fabric, found) = rebuilt("fat-tree:k=4");
        for (old, new) in fabric.switches().iter().zip(found.fabric.switches()) {
            assert_eq!(found.fabric.node(*new).pod, fabric.node(*old).pod);
        }
    }

    #[test]
    fn impossible_fabrics_are_refused_with_a_reason() {
        let host = |number: u8, place| KnownHost {
            address: Ipv4Addr::new(10, 0, 0, number),
            mac: Mac([2, 0, 0, 0, 0, number]),
            place,
        };
        let links = [(Place::new(1, 1), Place::new(2, 1))];
        let build = |hosts: &[KnownHost]| build_fabric([], links, hosts.iter().copied(), |_| SETTINGS);
        let shared = build(&[host(1, Place::new(1, 2)), host(2, Place::new(1, 2))]).unwrap_err();
        assert!(shared.to_string().starts_with("switch 0000000000000001 port 2: 02:00"), "{shared}");
        let on_link = build(&[host(1, Place::new(1, 1)), host(2, Place::new(1, 2))]).unwrap_err();
        assert_eq!(on_link, FoundError::HostOnLink(Place::new(1, 1)));
        assert_eq!(build(&[host(1, Place::new(1, 2))]).unwrap_err(), FoundError::Fabric(FabricError::TooFewHosts(1)));
        let elsewhere = build(&[host(9, Place::new(1, 700)), host(4, Place::new(2, 5))]).unwrap();
        assert!(!elsewhere.is_laid_out());
        assert_eq!(elsewhere.addresses[&Ipv4Addr::new(10, 0, 0, 9)], Ipv4Addr::new(10, 0, 0, 1));
    }
}
