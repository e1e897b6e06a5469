//! The fractional primal-dual allocation (OFPT and LESSOR Algorithm 2): shares of the paths of each ToR pair, and flows
//! rounded onto them. Shares stay from one round to the next, so that only what changed is solved again (OFPT Algorithm
//! 3).

use crate::allocation::{network_at, path_of};
use crate::entry::KeyInfo;
use crate::helpers::draws::generator;
use crate::placements::Placements;
use crate::remaining::remaining_time;
use pathloom_allocation::fractional::{allocate, drawn, filled, Share, Shares, Whole};
use pathloom_allocation::placement::Round;
use pathloom_allocation::Network;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::Path;
use pathloom_scheme::{FlowId, FlowView, View};
use rand::RngExt;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;

pub(crate) const ALLOCATION_KEY: KeyInfo = (
    "allocation",
    "place",
    "place (each flow gets the path with the most bandwidth left) or fractional (Algorithm 2: shares of paths for each \
     ToR pair, and flows rounded onto them)",
);
pub(crate) const ROUNDING_KEY: KeyInfo = (
    "rounding",
    "remaining",
    "remaining (largest remaining time first, onto the path with most bandwidth left whose share is not used up) or \
     random (by the probability of its share), how flows are rounded onto shares; only with allocation=fractional",
);

/// How flows are rounded onto shares.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Rounding {
    /// Largest remaining time first, onto the path with the most bandwidth left whose share is not used up.
    #[default]
    Remaining,
    /// By a draw with the probability of the share.
    Random,
}

/// Reads the rounding; `None` with `allocation=place`.
pub(super) fn read(spec: &Spec, epsilon: f64) -> Result<Option<Rounding>, SpecError> {
    let is_fractional = spec.choice("allocation", &[("place", false), ("fractional", true)])?.unwrap_or(false);
    let rounding = spec.choice("rounding", &[("remaining", Rounding::Remaining), ("random", Rounding::Random)])?;
    if rounding.is_some() && !is_fractional {
        return Err(spec.error("only fractional shares are rounded; add allocation=fractional or omit rounding"));
    }
    if is_fractional && !(epsilon > 0.0 && epsilon < 1.0) {
        return Err(
            spec.error("epsilon: expected more than 0 and less than 1 with allocation=fractional, such as 0.05")
        );
    }
    Ok(is_fractional.then(|| rounding.unwrap_or_default()))
}

/// The shares of a pair of ToRs, as they are saved.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Pair {
    from: u32,
    to: u32,
    paths: Vec<Share>,
}

/// The shares of all pairs of ToRs that had flows in the last round, and how flows are rounded onto them.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Fractions {
    pub rounding: Rounding,
    /// Draws come from this seed and the flow's identifier. So a flow keeps its path while the shares stay the same.
    pub seed: u64,
    #[serde(with = "saved")]
    pub shares: Shares,
}

/// JSON has no maps whose keys are pairs.
mod saved {
    use super::{Pair, Shares};
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(shares: &Shares, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(shares.iter().map(|(&(from, to), paths)| Pair { from, to, paths: paths.clone() }))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Shares, D::Error> {
        let pairs = Vec::<Pair>::deserialize(deserializer)?;
        Ok(pairs.into_iter().map(|pair| ((pair.from, pair.to), pair.paths)).collect())
    }
}

impl Fractions {
    /// Computes the shares for the flows of `placements`, and rounds the flows onto them. Returns the flows that moved,
    /// and the work.
    pub(super) fn reallocate(
        &mut self,
        placements: &mut Placements,
        view: &View,
        flows: &[FlowId],
        epsilon: f64,
    ) -> Round {
        let demand = |id: FlowId| placements.demand_bps(id).unwrap_or(0) as f64;
        let mut groups: BTreeMap<(u32, u32), Vec<(FlowId, f64)>> = BTreeMap::new();
        for &id in flows.iter().filter(|&&id| demand(id) > 0.0) {
            groups.entry(pair_of(&view.flows[&id])).or_default().push((id, demand(id)));
        }
        let demands = groups.iter().map(|(&pair, group)| (pair, group.iter().map(|(_, demand)| demand).sum()));
        let network = network_at(&view.fabric, &view.links);
        // It fails only for bad demands and values of ε, which are checked before.
        let found = allocate(&network, &demands.collect(), &self.shares, epsilon).unwrap_or_default();
        self.shares = found.shares;
        let mut all: Vec<(usize, FlowId, f64)> = Vec::new();
        for (at, group) in groups.values().enumerate() {
            all.extend(group.iter().map(|&(id, demand)| (at, id, demand)));
        }
        all.sort_by_cached_key(|&(_, id, demand)| (Reverse(remaining_time(&view.flows[&id], demand as u64)), id));
        let paths: Vec<&[Share]> =
            groups.keys().map(|pair| self.shares.get(pair).map_or(&[][..], Vec::as_slice)).collect();
        let mut moved = Vec::new();
        for (&(pair, id, _), chosen) in all.iter().zip(self.round(&network, placements, &paths, &all)) {
            let Some((links, _)) = chosen.map(|chosen| &paths[pair][chosen]) else { continue };
            if placements.links(id) != Some(links) {
                placements.move_to(view, id, &path_of(links));
                moved.push(id.0);
            }
        }
        Round { moved, operations: found.operations, ..Round::default() }
    }

    /// Which of the paths of its pair each flow takes.
    fn round(
        &self,
        network: &Network,
        placements: &Placements,
        paths: &[&[Share]],
        flows: &[(usize, FlowId, f64)],
    ) -> Vec<Option<usize>> {
        match self.rounding {
            Rounding::Random => flows.iter().map(|&(pair, id, _)| drawn(paths[pair], self.point(id))).collect(),
            Rounding::Remaining => {
                let present =
                    |pair: usize, id| paths[pair].iter().position(|(links, _)| placements.links(id) == Some(links));
                let whole = |&(pair, id, demand_bps): &(usize, FlowId, f64)| Whole {
                    pair,
                    demand_bps,
                    present: present(pair, id),
                };
                filled(network, paths, &flows.iter().map(whole).collect::<Vec<_>>())
            }
        }
    }

    /// The path of a new flow by the shares of its pair; `None` if the pair has no shares, or if that path is down.
    pub(super) fn path_of_new(&self, placements: &Placements, view: &View, new: FlowId) -> Option<Path> {
        let pair = pair_of(view.flows.get(&new)?);
        let paths = self.shares.get(&pair)?;
        let chosen = match self.rounding {
            Rounding::Random => drawn(paths, self.point(new))?,
            Rounding::Remaining => emptiest(placements, view, (new, pair), paths)?,
        };
        Some(path_of(&paths[chosen].0)).filter(|path| path.is_up(&view.links))
    }

    /// The point of a flow in the shares laid end to end.
    fn point(&self, flow: FlowId) -> f64 {
        generator(self.seed, flow.0).random_range(0.0..1.0)
    }
}

/// Of the paths of the pair of a new flow whose share is not used up by other flows, the one whose tightest link has the most bandwidth left.
fn emptiest(placements: &Placements, view: &View, (new, pair): (FlowId, (u32, u32)), paths: &[Share]) -> Option<usize> {
    let mut load = vec![0.0; paths.len()];
    for (id, _) in view.long_flows().filter(|&(id, flow)| id != new && pair_of(flow) == pair) {
        let on = paths.iter().position(|(links, _)| placements.links(id) == Some(links));
        on.into_iter().for_each(|path| load[path] += placements.demand_bps(id).unwrap_or(0) as f64);
    }
    let (own_bps, own) = (placements.demand_bps(new)?, placements.links(new).unwrap_or_default());
    let total = load.iter().sum::<f64>() + own_bps as f64;
    // The flow itself is on some path already.
    let left = |link: &u32| placements.left_bps(*link) + if own.contains(link) { own_bps as i64 } else { 0 };
    let tightest = |at: usize| paths[at].0.iter().map(left).min();
    let free = |&at: &usize| load[at] < paths[at].1 * total && path_of(&paths[at].0).is_up(&view.links);
    // Of equal ones, the first.
    (0..paths.len()).rev().filter(free).max_by_key(|&at| tightest(at))
}

fn pair_of(flow: &FlowView) -> (u32, u32) {
    (flow.src_tor.0, flow.dst_tor.0)
}
