//! Rates and loads of links.

use pathloom_model::search::ShortestPaths;
use pathloom_scheme::{FlowView, View};

/// The rate of each directed link, in bits per second, by its index.
pub fn rates_bps(view: &View) -> Vec<u64> {
    view.fabric.links().iter().map(|link| link.settings.rate_bps).collect()
}

/// The load of each directed link by flows with a path of their own, in bits per second, by its index. A flow counts
/// with the rate that the scheme reserved for it, or else with its measured rate ([`FlowView::load_bps`]). Flows on the
/// default routes are not included, because their links are unknown. [`View::link_load_bps`] is the measured load of
/// all frames.
pub fn loads_bps(view: &View) -> Vec<u64> {
    let mut loads = vec![0u64; view.fabric.links().len()];
    for flow in view.flows.values() {
        for link in flow.intended_route().iter().flat_map(|path| path.links()) {
            loads[link.index()] = loads[link.index()].saturating_add(flow.load_bps());
        }
    }
    loads
}

/// The shortest paths of a flow over links that are up; longer ones if none of the shortest is left.
pub fn paths_of(view: &View, flow: &FlowView) -> ShortestPaths {
    ShortestPaths::between(&view.fabric, &view.links, flow.src_tor, flow.dst_tor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_fabrics::fabric_from_spec;
    use pathloom_model::{FiveTuple, Nanos, PROTO_TCP};
    use pathloom_scheme::FlowId;
    use std::sync::Arc;

    fn flow(view: &View, src: usize, dst: usize) -> FlowView {
        let at = |host: usize| *view.fabric.host_attachments(view.fabric.hosts()[host])[0];
        let (from, to) = (at(src), at(dst));
        let (src, dst) = (from.address, to.address);
        FlowView::new(FiveTuple::new(PROTO_TCP, (src, 1), (dst, 2)), &from, &to, Nanos::ZERO)
    }

    #[test]
    fn a_flow_with_a_path_counts_on_every_link_of_it() {
        let mut view = View::new(Arc::new(fabric_from_spec("fat-tree:k=4,rate=10Mbps").unwrap()));
        assert_eq!(rates_bps(&view), vec![10_000_000; view.fabric.links().len()]);
        let mut flow = flow(&view, 0, 8);
        let path = paths_of(&view, &flow).iter().next().unwrap();
        (flow.route, flow.allocated_bps) = (Some(path.clone()), 3_000_000.into());
        view.flows.insert(FlowId(0), flow.clone());
        view.flows.insert(FlowId(1), flow);
        let loads = loads_bps(&view);
        assert!(path.links().iter().all(|link| loads[link.index()] == 6_000_000));
        assert_eq!(loads.iter().sum::<u64>(), 4 * 2 * 3_000_000);
    }
}
