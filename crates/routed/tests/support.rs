//! A fabric whose routers hash as the simulator's switches do, and maps of its source ports.

use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{Fabric, FiveTuple, LinkId, Nanos, Path, PROTO_TCP};
use pathloom_routed::{Binder, Opening, Pair};
use pathloom_scheme::Scheme;
use std::collections::BTreeMap;
use std::sync::Arc;

pub const START: Nanos = Nanos::ZERO;

pub fn fat_tree() -> Arc<Fabric> {
    Arc::new(fabric_from_spec("fat-tree:k=4,rate=10Mbps").expect("a FatTree of four ports"))
}

pub fn scheme(spec: &str) -> Box<dyn Scheme> {
    pathloom_schemes::parse(spec).expect("the scheme is known").central(1).expect("it has a central part")
}

pub fn binder(fabric: &Arc<Fabric>, scheme: Box<dyn Scheme>) -> Binder {
    Binder::new(START, fabric.clone(), scheme)
}

/// A connection between two hosts, by their numbers.
pub fn five_tuple(fabric: &Fabric, (src, dst): (usize, usize), src_port: u16) -> FiveTuple {
    let address = |host: usize| fabric.attachments()[host].address;
    FiveTuple::new(PROTO_TCP, (address(src), src_port), (address(dst), 5201))
}

pub fn long(five_tuple: FiveTuple) -> Opening {
    Opening { five_tuple, long: true, size_bytes: None }
}

/// All shortest paths of a pair, from the sender's link to the receiver's. Ports from 40000 on take them in turn, `each`
/// times.
pub fn map(fabric: &Fabric, five_tuple: &FiveTuple, each: u16) -> BTreeMap<u16, Vec<LinkId>> {
    let at = |address| *fabric.attachment(address).expect("the address is a host's");
    let (from, to) = (at(five_tuple.src()), at(five_tuple.dst()));
    let mut found: Vec<Vec<LinkId>> = Vec::new();
    let mut open = vec![vec![from.uplink]];
    // Breadth first: the first paths that arrive are the shortest.
    while found.is_empty() && !open.is_empty() {
        let mut longer = Vec::new();
        for path in open {
            let node = fabric.link(*path.last().expect("no path is empty")).to;
            for &link in &fabric.node(node).ports {
                let mut next = path.clone();
                next.push(link);
                if link == to.uplink.reverse() {
                    found.push(next);
                } else if !fabric.is_host(fabric.link(link).to) && Path::new(&next[1..]).check(fabric).is_ok() {
                    longer.push(next);
                }
            }
        }
        open = longer;
    }
    let ports = (40_000..).take(found.len() * usize::from(each));
    ports.zip(found.iter().cycle().cloned()).collect()
}

/// Tells the binder the map of a connection's pair.
pub fn know(binder: &mut Binder, fabric: &Fabric, five_tuple: &FiveTuple) {
    binder.set_ports(Pair::of(five_tuple), map(fabric, five_tuple, 4));
}
