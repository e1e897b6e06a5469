//! Rates and loads of links, and the path with the most free capacity.

use pathloom_model::search::ShortestPaths;
use pathloom_model::Path;
use pathloom_scheme::{FlowView, View};

/// Maximum number of paths of a ToR pair that [`path_with_most_room`] examines. Only artificial fabrics have more.
const MAX_PATHS: usize = 4096;

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

/// The path of a flow whose tightest link has the most free capacity beside `loads_bps`. Of equal ones it is the path
/// with the most free capacity in total, then the first. `None` within a ToR, and if no path is left.
pub fn path_with_most_room(view: &View, flow: &FlowView, loads_bps: &[u64]) -> Option<Path> {
    let room_bps = |index: usize| view.fabric.links()[index].settings.rate_bps.saturating_sub(loads_bps[index]);
    let mut best: Option<((u64, u64), Path)> = None;
    for path in paths_of(view, flow).iter().take(MAX_PATHS) {
        let rooms = || path.links().iter().map(|link| room_bps(link.index()));
        let Some(tightest) = rooms().min() else { continue };
        let room = (tightest, rooms().fold(0, u64::saturating_add));
        if best.as_ref().is_none_or(|(most, _)| room > *most) {
            best = Some((room, path));
        }
    }
    best.map(|(_, path)| path)
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
        FlowView::new(FiveTuple { src, dst, proto: PROTO_TCP, src_port: 1, dst_port: 2 }, &from, &to, Nanos::ZERO)
    }

    #[test]
    fn flows_take_the_emptiest_path_and_count_on_every_link_of_it() {
        let mut view = View::new(Arc::new(fabric_from_spec("fat-tree:k=4,rate=10Mbps").unwrap()));
        assert_eq!(rates_bps(&view), vec![10_000_000; view.fabric.links().len()]);
        let mut taken = Vec::new();
        for number in 0..4 {
            let mut flow = flow(&view, 0, 8);
            let path = path_with_most_room(&view, &flow, &loads_bps(&view)).unwrap();
            (flow.route, flow.allocated_bps) = (Some(path.clone()), 3_000_000.into());
            view.flows.insert(FlowId(number), flow);
            taken.push(path);
        }
        // Two uplinks lead to two cores each.
        let over = |link: usize| taken.iter().filter(|path| path.links()[link] == taken[0].links()[link]).count();
        assert_eq!((over(0), over(1)), (2, 1));
        let loads = loads_bps(&view);
        assert_eq!(loads[taken[0].links()[0].index()], 6_000_000);
        assert_eq!(loads.iter().sum::<u64>(), 4 * 4 * 3_000_000);
        assert_eq!(path_with_most_room(&view, &flow(&view, 0, 1), &loads), None, "within a ToR");
    }
}
