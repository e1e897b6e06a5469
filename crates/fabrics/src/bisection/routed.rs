//! A lower bound on every balanced cut, by routing: the rate that any half can send to the other half.

use super::problem::Problem;
use pathloom_model::search::ReverseBfs;
use pathloom_model::{Fabric, LinkId, LinkState, NodeId};

/// Limit on the steps of the routing of all pairs. Above the limit, only the first bound is computed; above ten times
/// the limit, none.
const MOST_STEPS: usize = 60_000_000;
/// Limit on the shares stored for the second bound: one per ToR and directed link.
const MOST_SHARES: usize = 8_000_000;
/// Relative error allowed for sums of rounded numbers.
const ROUNDING: f64 = 1e-9;

/// Returns a lower bound on the capacity of every balanced cut, bits per second; 0 if some ToRs do not reach each
/// other.
///
/// All ToRs send to all others over their shortest paths. Each switch splits its traffic in proportion to the rates
/// of the links. There are two bounds:
///
/// - Each host port sends the same rate to each other host port. If the most loaded link then carries β times its
///   rate, a cut with *a* and *b* host ports on its sides carries at least *ab*/β.
/// - Each ToR sends and receives at most *t* per host port, with any distribution over the other ToRs. *t* is chosen
///   so that no such traffic overloads a link. Then any half can send *t* per host port to the other half. In Clos
///   fabrics, this bound is exact.
pub(super) fn lower_bound(fabric: &Fabric, state: &LinkState, problem: &Problem) -> u128 {
    let (tors, links) = (fabric.tors().len(), fabric.links().len());
    let size = fabric.switches().len() + links;
    if tors.saturating_mul(size) > 10 * MOST_STEPS {
        return 0;
    }
    let mut routing = Routing { fabric, state, bfs: ReverseBfs::default(), here: vec![0.0; fabric.nodes().len()] };
    let weight = tor_weights(fabric);
    let Some(uniform) = routing.uniform_load(&weight) else { return 0 };
    let (least, most) = (problem.least as f64, problem.most as f64);
    let mut bound = least * most / fullness(fabric, &uniform);
    if tors.saturating_mul(tors).saturating_mul(fabric.switches().len()) <= MOST_STEPS
        && tors.saturating_mul(links) <= MOST_SHARES
    {
        bound = bound.max(least / fullness(fabric, &routing.greatest_load(&weight)));
    }
    // The capacity of a cut is a multiple of the unit.
    let units = (bound * (1.0 - ROUNDING) / problem.unit_bps as f64).ceil().max(0.0);
    if units.is_finite() {
        units as u128 * problem.unit_bps
    } else {
        0
    }
}

/// Returns the number of host ports of each ToR.
fn tor_weights(fabric: &Fabric) -> Vec<f64> {
    let mut weight = vec![0.0; fabric.tors().len()];
    for attachment in fabric.attachments() {
        if let Some(tor) = fabric.tor_index(attachment.tor) {
            weight[tor] += 1.0;
        }
    }
    weight
}

/// Returns the largest ratio of load to rate.
fn fullness(fabric: &Fabric, load: &[f64]) -> f64 {
    let ratios = load.iter().zip(fabric.links()).map(|(load, link)| load / link.settings.rate_bps as f64);
    ratios.fold(0.0, f64::max)
}

struct Routing<'a> {
    fabric: &'a Fabric,
    state: &'a LinkState,
    bfs: ReverseBfs,
    /// Traffic at each node that is still to be forwarded; all zeros between two uses.
    here: Vec<f64>,
}

impl Routing<'_> {
    fn aim_at(&mut self, target: NodeId) {
        self.bfs.run(self.fabric, self.state, target, &[], u32::MAX, None);
    }

    /// Routes the traffic in `here` to the target, and reports the load of each link.
    fn flow(&mut self, mut carry: impl FnMut(LinkId, f64)) {
        for &node in self.bfs.reached().iter().rev() {
            let amount = std::mem::take(&mut self.here[node.index()]);
            if amount == 0.0 {
                continue;
            }
            let rate_bps = |link: LinkId| self.fabric.link(link).settings.rate_bps as f64;
            let total: f64 = self.bfs.nearer(self.fabric, self.state, node).map(rate_bps).sum();
            for link in self.bfs.nearer(self.fabric, self.state, node) {
                let part = amount * rate_bps(link) / total;
                carry(link, part);
                self.here[self.fabric.link(link).to.index()] += part;
            }
        }
    }

    /// Returns the load of each link if each host port sends 1 to each host port of the other ToRs. `None` if some
    /// ToRs do not reach each other.
    fn uniform_load(&mut self, weight: &[f64]) -> Option<Vec<f64>> {
        let mut load = vec![0.0; self.fabric.links().len()];
        let has_weight = |&(tor, _): &(usize, &NodeId)| weight[tor] > 0.0;
        for (target, &tor) in self.fabric.tors().iter().enumerate().filter(has_weight) {
            self.aim_at(tor);
            let others = self.fabric.tors().iter().enumerate().filter(|&(source, _)| source != target);
            for (source, &from) in others.filter(has_weight) {
                self.bfs.hops(from)?;
                self.here[from.index()] = weight[source] * weight[target];
            }
            self.flow(|link, amount| load[link.index()] += amount);
        }
        Some(load)
    }

    /// Returns an upper bound on the load of each link if each ToR sends and receives at most its weight.
    fn greatest_load(&mut self, weight: &[f64]) -> Vec<f64> {
        let links = self.fabric.links().len();
        // Per source and link: the largest share of the source's traffic to one target. For targets, the shares are
        // summed at once.
        let mut of_source = vec![0.0f64; weight.len() * links];
        let mut by_target = vec![0.0; links];
        let mut of_target = vec![0.0f64; links];
        for (target, &tor) in self.fabric.tors().iter().enumerate() {
            self.aim_at(tor);
            of_target.fill(0.0);
            for (source, &from) in self.fabric.tors().iter().enumerate().filter(|&(source, _)| source != target) {
                self.here[from.index()] = 1.0;
                let of_source = &mut of_source[source * links..][..links];
                self.flow(|link, share| {
                    of_source[link.index()] = of_source[link.index()].max(share);
                    of_target[link.index()] = of_target[link.index()].max(share);
                });
            }
            by_target.iter_mut().zip(&of_target).for_each(|(sum, share)| *sum += weight[target] * share);
        }
        let mut by_source = vec![0.0; links];
        for (shares, weight) in of_source.chunks(links).zip(weight) {
            by_source.iter_mut().zip(shares).for_each(|(sum, share)| *sum += weight * share);
        }
        by_source.iter().zip(&by_target).map(|(source, target): (&f64, &f64)| source.min(*target)).collect()
    }
}
