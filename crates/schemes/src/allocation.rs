//! A fabric and its flows as numbers for `pathloom-allocation`: links by the index of their [`LinkId`], nodes by that of their
//! [`NodeId`].

use pathloom_allocation::placement::{PlacedFlow, Placer};
use pathloom_allocation::{Network, NetworkLink};
use pathloom_model::{Fabric, LinkId, LinkState, NodeId, Path};
use pathloom_scheme::{FlowView, View};

/// The links of a fabric with their rates. Links of hosts are access links: they limit flows, and no path crosses them.
/// All links count as up; see [`follow`].
pub fn network_of(fabric: &Fabric) -> Network {
    let link = |index: u32| {
        let (id, link) = (LinkId(index), fabric.link(LinkId(index)));
        let ends = fabric.is_switch_link(id).then_some((link.from.0, link.to.0));
        NetworkLink { ends, capacity_bps: link.settings.rate_bps }
    };
    Network::new((0..fabric.links().len() as u32).map(link).collect())
}

/// The same with zero capacity on links that are down, for solvers without state, which cannot [`follow`].
pub fn network_at(fabric: &Fabric, links: &LinkState) -> Network {
    let whole = network_of(fabric);
    let capacity_bps = |index: usize, link: &NetworkLink| {
        if links.is_up(LinkId(index as u32)) {
            link.capacity_bps
        } else {
            0
        }
    };
    let links = whole.links().iter().enumerate();
    Network::new(links.map(|(index, link)| NetworkLink { capacity_bps: capacity_bps(index, link), ..*link }).collect())
}

/// Tells a placer which links are up now. Returns the flows whose path changed or was lost, in ascending order.
pub fn follow(placer: &mut Placer, links: &LinkState) -> Vec<u64> {
    let down: Vec<LinkId> = links.down().collect();
    let count = placer.network().links().len() as u32;
    let mut changed = Vec::new();
    for up in [true, false] {
        for index in 0..count {
            let is_up = down.binary_search(&LinkId(index)).is_err();
            if is_up == up {
                changed.extend(placer.set_link(index, up));
            }
        }
    }
    changed.sort_unstable();
    changed.dedup();
    changed
}

/// A flow in the form of a placer: its ToRs, the access links of its addresses, and its remaining bytes if its size was
/// announced. It has no announced rate.
pub fn placed_flow(view: &View, flow: &FlowView) -> PlacedFlow {
    let access = |address| view.fabric.attachment(address).map(|attachment| attachment.uplink);
    PlacedFlow {
        src_tor: flow.src_tor.0,
        dst_tor: flow.dst_tor.0,
        src_access: access(flow.five_tuple.src()).map(|uplink| uplink.0),
        dst_access: access(flow.five_tuple.dst()).map(|uplink| uplink.reverse().0),
        announced_bps: None,
        remaining_bytes: flow.size_bytes.get().map(|size| size.saturating_sub(flow.bytes)),
    }
}

/// A flow between the first ports of two hosts, of unknown size; `None` if one of the nodes is not a host.
pub fn flow_between(fabric: &Fabric, src: NodeId, dst: NodeId) -> Option<PlacedFlow> {
    let known = |node: NodeId| node.index() < fabric.nodes().len();
    let first = |host: NodeId| fabric.host_attachments(host).first().copied().copied();
    let (src, dst) = Some((src, dst))
        .filter(|&(src, dst)| known(src) && known(dst))
        .and_then(|(src, dst)| Some((first(src)?, first(dst)?)))?;
    Some(PlacedFlow {
        src_tor: src.tor.0,
        dst_tor: dst.tor.0,
        src_access: Some(src.uplink.0),
        dst_access: Some(dst.uplink.reverse().0),
        announced_bps: None,
        remaining_bytes: None,
    })
}

/// Converts a placer's path to a path of the model.
pub fn path_of(links: &[u32]) -> Path {
    Path::new(links.iter().map(|&link| LinkId(link)).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_allocation::placement::PlacerSettings;
    use pathloom_fabrics::fabric_from_spec;

    #[test]
    fn paths_of_a_placer_are_paths_of_the_fabric() {
        let fabric = fabric_from_spec("vl2:d0=2,d1=4,d2=4,hosts=4").expect("a VL2");
        let mut placer = Placer::new(network_of(&fabric), PlacerSettings::default());
        let ends = fabric.attachments();
        for (id, (src, dst)) in ends.iter().zip(ends.iter().rev()).enumerate() {
            let flow = flow_between(&fabric, src.host, dst.host).expect("two hosts");
            let path = placer.arrive(id as u64, flow).expect("a new flow").map(path_of).expect("a path");
            assert_eq!(path.check(&fabric), Ok(()));
            assert_eq!(path.switches(&fabric, src.tor).last(), Some(&dst.tor));
        }
        assert!((0..ends.len() as u64).all(|id| placer.demand_bps(id) == Some(1_000_000_000)));
    }

    #[test]
    fn a_placer_follows_the_links() {
        let fabric = fabric_from_spec("leaf-spine:spines=2,leaves=2,hosts=2").expect("a leaf-spine");
        let mut placer = Placer::new(network_of(&fabric), PlacerSettings::default());
        let mut links = LinkState::of(&fabric);
        let ends = fabric.attachments();
        let (src, dst) = (ends[0], ends[3]);
        assert_eq!(flow_between(&fabric, src.host, src.tor), None);
        assert_eq!(flow_between(&fabric, NodeId(999), src.host), None);
        let flow = flow_between(&fabric, src.host, dst.host).expect("two hosts");
        let path = placer.arrive(1, flow).expect("a new flow").map(path_of).expect("a path");
        assert_eq!(follow(&mut placer, &links), [0u64; 0]);
        links.set_cable(path.links()[0], false);
        assert_eq!(follow(&mut placer, &links), [1]);
        let other = placer.path(1).map(path_of).expect("a path");
        assert!(other.is_up(&links) && other != path);
        links.set_cable(other.links()[1], false);
        assert_eq!(follow(&mut placer, &links), [1]);
        assert_eq!(placer.path(1), None);
        links.set_cable(other.links()[1], true);
        assert_eq!(follow(&mut placer, &links), [1]);
        assert_eq!(placer.path(1).map(path_of), Some(other));
    }
}
