//! Which source port takes which path, and which ports are in use.

use pathloom_model::{Address, FiveTuple, LinkId};
use std::collections::{BTreeMap, BTreeSet};

/// Connections that differ in their source port only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pair {
    /// Address that opens the connections.
    pub src: Address,
    /// Address that accepts them.
    pub dst: Address,
    /// IP protocol number.
    pub proto: u8,
    /// Destination port.
    pub dst_port: u16,
}

impl Pair {
    /// The pair of a connection.
    pub fn of(five_tuple: &FiveTuple) -> Pair {
        let (src, dst, proto, dst_port) =
            (five_tuple.src(), five_tuple.dst(), five_tuple.proto(), five_tuple.dst_port());
        Pair { src, dst, proto, dst_port }
    }
}

/// The known source ports of all pairs, with the links of their paths, from the host's to the receiver's.
#[derive(Clone, Default, Debug)]
pub struct Ports {
    maps: BTreeMap<Pair, BTreeMap<u16, Vec<LinkId>>>,
    /// Ports of each sender that connections have, or that other programs were found to have.
    used: BTreeMap<Address, BTreeSet<u16>>,
}

impl Ports {
    /// Replaces what is known of a pair. Ports in use stay in use.
    pub fn set(&mut self, pair: Pair, map: BTreeMap<u16, Vec<LinkId>>) {
        self.maps.insert(pair, map);
    }

    /// The path that a port of a pair takes now; `None` if it is not known.
    pub fn path(&self, pair: &Pair, port: u16) -> Option<&[LinkId]> {
        Some(self.maps.get(pair)?.get(&port)?.as_slice())
    }

    /// Takes the lowest free port of a path; `None` if there is none.
    pub fn take(&mut self, pair: &Pair, path: &[LinkId]) -> Option<u16> {
        let used = self.used.entry(pair.src).or_default();
        let fitting = |(&port, links): (&u16, &Vec<LinkId>)| (links == path && !used.contains(&port)).then_some(port);
        let port = self.maps.get(pair)?.iter().find_map(fitting)?;
        used.insert(port);
        Some(port)
    }

    /// Returns a port that no connection has any more.
    pub fn give_back(&mut self, src: Address, port: u16) {
        if let Some(used) = self.used.get_mut(&src) {
            used.remove(&port);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once_and_again_when_it_is_free() {
        let pair = Pair { src: [10, 0, 0, 1].into(), dst: [10, 0, 1, 1].into(), proto: 6, dst_port: 80 };
        let (left, right) = (vec![LinkId(0), LinkId(2)], vec![LinkId(0), LinkId(4)]);
        let mut ports = Ports::default();
        assert_eq!(ports.take(&pair, &left), None);
        ports.set(pair, BTreeMap::from([(7, left.clone()), (8, right.clone()), (9, left.clone())]));
        assert_eq!(
            [ports.take(&pair, &left), ports.take(&pair, &left), ports.take(&pair, &left)],
            [Some(7), Some(9), None]
        );
        ports.give_back(pair.src, 9);
        assert_eq!(ports.take(&pair, &left), Some(9));
        // The hash may have changed: a port that is in use is not given for its new path.
        ports.set(pair, BTreeMap::from([(7, right.clone()), (8, right.clone())]));
        assert_eq!([ports.take(&pair, &right), ports.take(&pair, &right)], [Some(8), None]);
        assert_eq!(ports.path(&pair, 7), Some(right.as_slice()));
        // Ports belong to an address, whatever the pair.
        let other = Pair { dst_port: 81, ..pair };
        ports.set(other, BTreeMap::from([(7, left.clone())]));
        assert_eq!(ports.take(&other, &left), None);
    }
}
