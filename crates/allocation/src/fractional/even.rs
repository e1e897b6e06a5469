//! The even split: every node splits the traffic to a destination evenly over its next hops.

use super::{Commodity, Problem, Share, FIRST_PATHS};
use crate::routes::{Routes, RoutesTo};
use crate::Network;

/// The paths of an even split, up to [`FIRST_PATHS`] for each commodity, and their shares, which sum to 1. All
/// commodities have a path.
pub(super) fn paths(network: &Network, commodities: &[Commodity]) -> Vec<Vec<Share>> {
    let mut routes = Routes::new(network);
    let mut of = |commodity: &Commodity| {
        let (src, dst) = (network.node_index(commodity.src)?, network.node_index(commodity.dst)?);
        routes.prepare(network, dst);
        let mut found = Vec::new();
        list(routes.to(dst)?, (src, dst), 1.0, &mut Vec::new(), &mut found);
        let whole: f64 = found.iter().map(|(_, share)| share).sum();
        found.iter_mut().for_each(|(_, share)| *share /= whole);
        Some(found)
    };
    commodities.iter().map(|commodity| of(commodity).unwrap_or_default()).collect()
}

fn list(routes: RoutesTo<'_>, (node, dst): (u32, u32), share: f64, path: &mut Vec<u32>, found: &mut Vec<Share>) {
    if node == dst {
        return found.push((path.as_slice().into(), share));
    }
    let hops = routes.at(node);
    for hop in hops {
        if found.len() >= FIRST_PATHS {
            return;
        }
        path.push(hop.link);
        list(routes, (hop.node, dst), share / hops.len() as f64, path, found);
        path.pop();
    }
}

impl Problem<'_> {
    /// Computes the load of each link.
    pub(super) fn even(&mut self) -> Vec<f64> {
        let mut load = vec![0.0; self.capacity.len()];
        let mut amount = vec![0.0; self.network.node_count()];
        let mut layers: Vec<Vec<u32>> = Vec::new();
        let mut operations = 0;
        for (dst, range) in self.by_destination() {
            let Some(routes) = self.routes.to(dst) else { continue };
            for commodity in &self.merged[range] {
                let hops = routes.hops(commodity.src).unwrap_or(0) as usize;
                if layers.len() <= hops {
                    layers.resize(hops + 1, Vec::new());
                }
                if amount[commodity.src as usize] == 0.0 {
                    layers[hops].push(commodity.src);
                }
                amount[commodity.src as usize] += commodity.demand;
            }
            for hops in (1..layers.len()).rev() {
                let mut layer = std::mem::take(&mut layers[hops]);
                for node in layer.drain(..) {
                    let members = routes.at(node);
                    let share = std::mem::take(&mut amount[node as usize]) / members.len() as f64;
                    operations += members.len() as u64;
                    for hop in members {
                        load[hop.link as usize] += share;
                        if amount[hop.node as usize] == 0.0 {
                            layers[hops - 1].push(hop.node);
                        }
                        amount[hop.node as usize] += share;
                    }
                }
                layers[hops] = layer;
            }
            amount[dst as usize] = 0.0;
            layers.iter_mut().for_each(Vec::clear);
        }
        self.operations += operations;
        load
    }
}
