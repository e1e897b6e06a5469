//! The even split: every node splits the traffic to a destination evenly over its next hops.

use super::Problem;

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
