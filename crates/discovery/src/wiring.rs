//! Cables that were found at other ports than configured, but can still be used.
//!
//! If two switches are connected as configured, but at other ports, the paths need not change. It is enough to
//! translate the port numbers of a switch to those of the fabric. [`match_cables`] finds this translation. It uses a
//! cable only if
//!
//! - both ends are ports between switches in the fabric, so a host port never becomes a port between switches;
//! - the fabric has a cable between these two switches that was not found at other ports;
//! - all such cables have the same rate, delay and buffer, if there are several.
//!
//! All places follow the convention of [`crate::cabling`]. Port numbers are those of the switch unless stated
//! otherwise.

use crate::cabling::{dpid_of, link_between, place_of, switch_of};
use crate::Place;
use pathloom_model::{Fabric, LinkId, NodeId, PortNo};
use std::collections::{BTreeMap, BTreeSet};

/// Translation of the port numbers of one switch: a permutation of its ports to other switches.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortMap {
    to_fabric: BTreeMap<PortNo, PortNo>,
    to_switch: BTreeMap<PortNo, PortNo>,
}

impl PortMap {
    /// Builds the map from pairs of numbers: at the switch, and in the fabric. `None` if they are not a permutation.
    pub fn new(pairs: impl IntoIterator<Item = (PortNo, PortNo)>) -> Option<PortMap> {
        let mut map = PortMap::default();
        for (own, fabric) in pairs {
            let doubled = map.to_fabric.insert(own, fabric).is_some() || map.to_switch.insert(fabric, own).is_some();
            if doubled {
                return None;
            }
        }
        let is_permutation = map.to_fabric.keys().eq(map.to_switch.keys());
        map.to_fabric.retain(|own, fabric| own != fabric);
        map.to_switch.retain(|fabric, own| own != fabric);
        is_permutation.then_some(map)
    }

    /// Returns the number in the fabric for a port of the switch.
    pub fn fabric(&self, own: PortNo) -> PortNo {
        self.to_fabric.get(&own).copied().unwrap_or(own)
    }

    /// Returns the number at the switch for a port of the fabric.
    pub fn own(&self, fabric: PortNo) -> PortNo {
        self.to_switch.get(&fabric).copied().unwrap_or(fabric)
    }

    /// Ports whose numbers differ, as pairs of numbers (at the switch, in the fabric), in ascending order.
    pub fn pairs(&self) -> impl Iterator<Item = (PortNo, PortNo)> + '_ {
        self.to_fabric.iter().map(|(&own, &fabric)| (own, fabric))
    }
}

/// Translation of the port numbers of all switches.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wiring {
    /// Contains only switches whose port numbers differ from the fabric's.
    maps: BTreeMap<NodeId, PortMap>,
}

impl Wiring {
    /// Returns the map of a switch; `None` if its port numbers are those of the fabric.
    #[inline]
    pub fn at(&self, switch: NodeId) -> Option<&PortMap> {
        self.maps.get(&switch)
    }

    /// Switches whose port numbers differ from the fabric's, in ascending order.
    pub fn maps(&self) -> impl Iterator<Item = (NodeId, &PortMap)> {
        self.maps.iter().map(|(&switch, map)| (switch, map))
    }

    /// Restores the map of a switch from an earlier start of the controller. Returns false and changes nothing if
    /// `pairs` is not a permutation of its ports to other switches.
    pub fn remember(&mut self, fabric: &Fabric, switch: NodeId, pairs: &[(PortNo, PortNo)]) -> bool {
        let is_switch_port =
            |port: PortNo| fabric.out_link(switch, port).is_some_and(|link| fabric.is_switch_link(link));
        let known = fabric.nodes().get(switch.index()).is_some() && !fabric.is_host(switch);
        let map =
            PortMap::new(pairs.iter().copied()).filter(|_| known && pairs.iter().all(|&(own, _)| is_switch_port(own)));
        let Some(map) = map else { return false };
        self.set(switch, map);
        true
    }

    fn set(&mut self, switch: NodeId, map: PortMap) {
        if map == PortMap::default() {
            self.maps.remove(&switch);
        } else {
            self.maps.insert(switch, map);
        }
    }

    /// Translates a place with the switch's port number to the fabric's number.
    pub fn in_fabric(&self, fabric: &Fabric, place: Place) -> Place {
        let map = switch_of(fabric, place.dpid).and_then(|switch| self.at(switch));
        Place { port: map.map_or(place.port, |map| map.fabric(place.port)), ..place }
    }

    /// Translates a place with the fabric's port number to the switch's number.
    pub fn at_switch(&self, fabric: &Fabric, place: Place) -> Place {
        let map = switch_of(fabric, place.dpid).and_then(|switch| self.at(switch));
        Place { port: map.map_or(place.port, |map| map.own(place.port)), ..place }
    }
}

/// Finds the translation with which as many cables as possible match cables of the fabric. Cables that match with the
/// current translation continue to do so. A port without a cable keeps its number if no other port gets this number.
pub fn match_cables(fabric: &Fabric, found: &[(Place, Place)], now: &Wiring) -> Wiring {
    let is_switch_port =
        |place: Place| crate::cabling::link_at(fabric, place).is_some_and(|link| fabric.is_switch_link(link));
    let mut remaining: Vec<(Place, Place)> =
        found.iter().copied().filter(|&(a, b)| is_switch_port(a) && is_switch_port(b)).collect();
    let mut assignment = Assignment { fabric, taken: BTreeSet::new(), numbers: BTreeMap::new() };
    remaining.retain(|&(a, b)| {
        let link = link_between(fabric, now.in_fabric(fabric, a), now.in_fabric(fabric, b));
        !link.is_some_and(|link| assignment.assign(link, (a, b)))
    });
    remaining.retain(|&(a, b)| !link_between(fabric, a, b).is_some_and(|link| assignment.assign(link, (a, b))));
    remaining.sort_unstable();
    let mut pairs: BTreeMap<(NodeId, NodeId), Vec<(Place, Place)>> = BTreeMap::new();
    for (a, b) in remaining {
        if let Some(pair) = switch_of(fabric, a.dpid).zip(switch_of(fabric, b.dpid)) {
            pairs.entry(pair).or_default().push((a, b));
        }
    }
    for ((from, to), cables) in pairs {
        assignment.assign_pair((from, to), &cables);
    }
    assignment.wiring(now)
}

/// The translation chosen so far.
struct Assignment<'a> {
    fabric: &'a Fabric,
    /// Cables of the fabric that were found, each as the lower identifier of its two directions.
    taken: BTreeSet<LinkId>,
    /// Per switch: port numbers at the switch, and their numbers in the fabric.
    numbers: BTreeMap<NodeId, BTreeMap<PortNo, PortNo>>,
}

impl Assignment<'_> {
    /// Uses the cable from place `a` to place `b` as a link of the fabric. Returns false if another cable is already
    /// used as this link.
    fn assign(&mut self, link: LinkId, (a, b): (Place, Place)) -> bool {
        if !self.taken.insert(link.min(link.reverse())) {
            return false;
        }
        for (place, link) in [(a, link), (b, link.reverse())] {
            let end = self.fabric.link(link);
            self.numbers.entry(end.from).or_default().insert(place.port, end.from_port);
        }
        true
    }

    /// Uses the cables found between two switches as the fabric's cables between them, if all choices are equivalent.
    fn assign_pair(&mut self, (from, to): (NodeId, NodeId), found: &[(Place, Place)]) {
        let fabric = self.fabric;
        let failed = |link: LinkId| fabric.failed_links().iter().any(|failed| failed.cable() == link.cable());
        let is_free = |link: &LinkId| {
            fabric.link(*link).to == to && !failed(*link) && !self.taken.contains(&(*link).min(link.reverse()))
        };
        let mut free: Vec<LinkId> = fabric.node(from).ports.iter().copied().filter(is_free).collect();
        let settings = |link: LinkId| [fabric.link(link).settings, fabric.link(link.reverse()).settings];
        let alike = free.windows(2).all(|pair| settings(pair[0]) == settings(pair[1]));
        if !alike || free.len() < found.len() {
            return;
        }
        for &(a, b) in found {
            // A link that has one end at its configured port is preferred.
            let is_half = |link: &LinkId| place_of(fabric, *link) == a || place_of(fabric, link.reverse()) == b;
            let index = free.iter().position(is_half).unwrap_or(0);
            self.assign(free.remove(index), (a, b));
        }
    }

    /// Returns the translation of all ports. A port without a used cable keeps its number if that number is free.
    fn wiring(mut self, now: &Wiring) -> Wiring {
        let mut wiring = Wiring::default();
        for &switch in self.fabric.switches() {
            let mut numbers = self.numbers.remove(&switch).unwrap_or_default();
            let ports = (1..).zip(&self.fabric.node(switch).ports);
            let joined = ports.filter(|&(_, &link)| self.fabric.is_switch_link(link)).map(|(port, _)| PortNo(port));
            let all: BTreeSet<PortNo> = joined.collect();
            let mut free: BTreeSet<PortNo> = all.iter().copied().filter(|port| !has(&numbers, *port)).collect();
            let before = |port: PortNo| now.at(switch).map_or(port, |map| map.fabric(port));
            let wishes: [&dyn Fn(PortNo) -> Option<PortNo>; 2] = [&|port| Some(before(port)), &Some];
            for wish in wishes {
                for &port in &all {
                    let wanted = wish(port).filter(|wanted| !numbers.contains_key(&port) && free.contains(wanted));
                    if let Some(wanted) = wanted {
                        free.remove(&wanted);
                        numbers.insert(port, wanted);
                    }
                }
            }
            for &port in &all {
                if !numbers.contains_key(&port) {
                    numbers.extend(free.pop_first().map(|number| (port, number)));
                }
            }
            let map = PortMap::new(numbers).expect("every port has a number, and every number a port");
            wiring.set(switch, map);
        }
        wiring
    }
}

fn has(numbers: &BTreeMap<PortNo, PortNo>, number: PortNo) -> bool {
    numbers.values().any(|&other| other == number)
}

/// A cable at another port than configured, and the link as which it is used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Adopted {
    /// The port, with the switch's number.
    pub at: Place,
    /// The port to which its cable leads, with the number at that switch.
    pub found: Place,
    /// The directed link of the fabric as which the cable is used.
    pub link: LinkId,
}

/// Returns the cables that are used although their ports differ from the configuration. There is one entry per cable:
/// at the port with the different number, or at the first end in `found` if both differ.
pub fn adopted(fabric: &Fabric, found: &[(Place, Place)], wiring: &Wiring) -> Vec<Adopted> {
    let mut all: Vec<Adopted> = Vec::new();
    for &(a, b) in found {
        let (in_a, in_b) = (wiring.in_fabric(fabric, a), wiring.in_fabric(fabric, b));
        let Some(link) = link_between(fabric, in_a, in_b).filter(|_| (in_a, in_b) != (a, b)) else { continue };
        let (a, b, link) = if in_a == a { (b, a, link.reverse()) } else { (a, b, link) };
        all.push(Adopted { at: a, found: b, link });
    }
    all.sort_unstable();
    all
}

/// Returns the log line of a cable, with the node names of the fabric.
pub fn adopted_line(fabric: &Fabric, cable: &Adopted) -> String {
    let name = |place: Place| match switch_of(fabric, place.dpid) {
        Some(node) => format!("{} port {}", fabric.node(node).name, place.port.0),
        None => place.to_string(),
    };
    let link = fabric.link(cable.link);
    let configured = Place { dpid: dpid_of(link.from), port: link.from_port };
    format!(
        "the cable from {} leads to {}; it is used as that of {}",
        name(cable.at),
        name(cable.found),
        name(configured)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cabling::compare;
    use pathloom_fabrics::fabric_from_spec;
    use proptest::prelude::*;

    type Found = Vec<(Place, Place)>;

    fn cabled(spec: &str) -> (Fabric, Found) {
        let fabric = fabric_from_spec(spec).unwrap();
        let ends = |link: LinkId| (place_of(&fabric, link), place_of(&fabric, link.reverse()));
        let found = fabric.switch_cables().map(ends).map(|(a, b)| (a.min(b), a.max(b))).collect();
        (fabric, found)
    }

    /// Changes the discovered links as if the cables of two ports were swapped.
    fn swap(found: &mut Found, one: Place, two: Place) {
        let other = |place: Place| {
            if place == one {
                two
            } else if place == two {
                one
            } else {
                place
            }
        };
        for (a, b) in found {
            (*a, *b) = (other(*a), other(*b));
            (*a, *b) = ((*a).min(*b), (*a).max(*b));
        }
    }

    fn in_fabric(fabric: &Fabric, found: &Found, wiring: &Wiring) -> Found {
        found.iter().map(|&(a, b)| (wiring.in_fabric(fabric, a), wiring.in_fabric(fabric, b))).collect()
    }

    fn place(fabric: &Fabric, name: &str, port: u32) -> Place {
        Place { dpid: dpid_of(fabric.find(name).unwrap()), port: PortNo(port) }
    }

    #[test]
    fn swapped_uplinks_are_used_until_they_are_swapped_back() {
        let (fabric, right) = cabled("fat-tree:k=4");
        let none = Wiring::default();
        assert_eq!(match_cables(&fabric, &right, &none), none);
        let [one, two] = [3, 4].map(|port| place(&fabric, "e0_0", port));
        let mut found = right.clone();
        swap(&mut found, one, two);
        let wiring = match_cables(&fabric, &found, &none);
        assert!(compare(&fabric, in_fabric(&fabric, &found, &wiring)).is_right());
        let pairs: Vec<_> =
            wiring.maps().flat_map(|(switch, map)| map.pairs().map(move |pair| (switch, pair))).collect();
        let tor = fabric.find("e0_0").unwrap();
        assert_eq!(pairs, [(tor, (PortNo(3), PortNo(4))), (tor, (PortNo(4), PortNo(3)))]);
        let lines: Vec<_> = adopted(&fabric, &found, &wiring).iter().map(|one| adopted_line(&fabric, one)).collect();
        assert_eq!(
            lines,
            [
                "the cable from e0_0 port 3 leads to a0_1 port 1; it is used as that of e0_0 port 4",
                "the cable from e0_0 port 4 leads to a0_0 port 1; it is used as that of e0_0 port 3",
            ]
        );
        // One of them is cut. The other keeps its number, and so does the port without a cable.
        let cut: Found = found.iter().copied().filter(|&(a, b)| a != one && b != one).collect();
        assert_eq!(match_cables(&fabric, &cut, &wiring), wiring);
        assert_eq!(match_cables(&fabric, &[], &wiring), wiring);
        // If they are found one after the other, the result is the same.
        assert_eq!(match_cables(&fabric, &found, &match_cables(&fabric, &cut, &none)), wiring);
        assert_eq!(match_cables(&fabric, &right, &wiring), none);
    }

    #[test]
    fn a_cable_to_a_switch_that_is_no_neighbour_is_not_adopted() {
        let (fabric, mut found) = cabled("fat-tree:k=4");
        // Uplinks of ToRs of two pods.
        swap(&mut found, place(&fabric, "e0_0", 3), place(&fabric, "e1_0", 3));
        let wiring = match_cables(&fabric, &found, &Wiring::default());
        assert_eq!(wiring, Wiring::default());
        assert_eq!(compare(&fabric, in_fabric(&fabric, &found, &wiring)).miscabled.len(), 4);
        assert_eq!(adopted(&fabric, &found, &wiring), []);
    }

    #[test]
    fn ports_of_hosts_are_never_renumbered() {
        let (fabric, mut found) = cabled("fat-tree:k=4");
        swap(&mut found, place(&fabric, "e0_0", 1), place(&fabric, "e0_0", 3));
        assert_eq!(match_cables(&fabric, &found, &Wiring::default()), Wiring::default());
    }

    #[test]
    fn several_cables_between_two_switches_are_adopted_if_they_are_alike() {
        let text = |rate: &str| {
            let cable = |rate: &str| format!(r#"{{"source": "a", "target": "b", "rate": "{rate}"}}"#);
            let cables = [cable("10Mbps"), cable(rate)].join(", ");
            format!(r#"{{"multigraph": true, "nodes": [{{"id": "a"}}, {{"id": "b"}}], "links": [{cables}]}}"#)
        };
        for (rate, alike) in [("10Mbps", true), ("40Mbps", false)] {
            let read =
                pathloom_fabrics::fabric_from_file_text("two.json", &text(rate)).unwrap_or_else(|e| panic!("{e}"));
            let fabric = read.fabric;
            let ends: Vec<LinkId> = fabric.switch_cables().collect();
            let [one, two] =
                [ends[0], ends[1]].map(|link| (place_of(&fabric, link), place_of(&fabric, link.reverse())));
            let found = vec![(one.0, two.1), (two.0, one.1)];
            let wiring = match_cables(&fabric, &found, &Wiring::default());
            assert_eq!(wiring != Wiring::default(), alike, "{rate}");
            assert_eq!(compare(&fabric, in_fabric(&fabric, &found, &wiring)).is_right(), alike);
        }
    }

    #[test]
    fn a_saved_port_map_is_restored_if_it_is_valid() {
        let (fabric, _) = cabled("fat-tree:k=4");
        let tor = fabric.find("e0_0").unwrap();
        let ports = |pairs: &[(u32, u32)]| pairs.iter().map(|&(a, b)| (PortNo(a), PortNo(b))).collect::<Vec<_>>();
        let mut wiring = Wiring::default();
        assert!(wiring.remember(&fabric, tor, &ports(&[(3, 4), (4, 3)])));
        let taken = wiring.clone();
        assert_eq!(
            (taken.at(tor).unwrap().fabric(PortNo(3)), taken.at(tor).unwrap().own(PortNo(3))),
            (PortNo(4), PortNo(4))
        );
        for bad in [&[(3, 4)][..], &[(1, 3), (3, 1)], &[(3, 9), (9, 3)], &[(3, 4), (3, 4)]] {
            assert!(!wiring.remember(&fabric, tor, &ports(bad)), "{bad:?}");
        }
        assert!(!wiring.remember(&fabric, NodeId(999), &[]) && !wiring.remember(&fabric, fabric.hosts()[0], &[]));
        assert_eq!(wiring, taken);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

        /// For all permutations of switch ports and all cuts: every remaining cable is used, no host port changes, and
        /// a second call returns the same result.
        #[test]
        fn all_cables_of_permuted_ports_are_used(
            swaps in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..20),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
            spec in prop::sample::select(vec!["fat-tree:k=4", "leaf-spine:spines=3,leaves=4,hosts=2", "vl2:hosts=2"]),
        ) {
            let (fabric, mut found) = cabled(spec);
            for (switch, other) in swaps {
                let switch = *switch.get(fabric.switches());
                let ports: Vec<u32> = fabric.switch_ports(switch).iter().map(|port| fabric.link(port.link).from_port.0).collect();
                let at = |index: usize| Place { dpid: dpid_of(switch), port: PortNo(ports[index]) };
                swap(&mut found, at(0), at(other.index(ports.len())));
            }
            for cut in cuts {
                let index = cut.index(found.len());
                found.remove(index);
            }
            let wiring = match_cables(&fabric, &found, &Wiring::default());
            let report = compare(&fabric, in_fabric(&fabric, &found, &wiring));
            prop_assert_eq!((report.right, report.miscabled.len()), (found.len(), 0));
            for (switch, map) in wiring.maps() {
                for (own, other) in map.pairs() {
                    for port in [own, other] {
                        prop_assert!(fabric.is_switch_link(fabric.out_link(switch, port).unwrap()));
                    }
                }
            }
            prop_assert_eq!(match_cables(&fabric, &found, &wiring), wiring);
        }
    }
}
