//! Bisection bandwidth: the least rate that one half of the hosts can send to the other half at once.
//!
//! Hosts stay with their ToR, and host links are not counted. A balanced cut assigns each switch to one of two sides,
//! so that the numbers of host ports on the sides differ as little as whole racks allow. The capacity of the cut is
//! the total rate of the links from the first side to the second. The bisection is the smallest capacity of a
//! balanced cut. Its computation is NP-hard, so a result also says what is known about it:
//!
//! - the published value of known fabrics ([`known_bps`]);
//! - an upper bound, from a balanced cut that was found ([`local`]);
//! - a lower bound, from a routing that shows how much any half can send ([`routed`]);
//! - the exact value, if a search over all cuts completes ([`exact`]).

mod exact;
mod local;
mod problem;
mod routed;

use pathloom_model::{Fabric, LinkState};
use problem::Problem;
use serde::Serialize;

/// Meaning of a bisection value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BisectionKind {
    /// The bisection itself.
    Exact,
    /// The capacity of the best balanced cut found; the bisection is at most that.
    UpperBound,
}

/// How it is proven that no balanced cut is smaller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BisectionProof {
    /// The value is the known one of this kind of fabric.
    Structure,
    /// A routing over shortest paths carries that rate between any two halves.
    Routing,
    /// All balanced cuts were searched.
    Search,
}

/// The bisection of a fabric, or bounds on it, with the failed cables of its specification down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Bisection {
    /// Value in bits per second; `kind` says what it is. `u64::MAX` means that many or more.
    pub bps: u64,
    /// Whether `bps` is the bisection itself or an upper bound.
    pub kind: BisectionKind,
    /// Lower bound on the bisection, bits per second; equal to `bps` if that is exact.
    pub at_least_bps: u64,
    /// Proof of an exact value.
    pub proof: Option<BisectionProof>,
    /// Host ports on each side of a balanced cut, the smaller number first.
    pub host_ports: (u64, u64),
}

/// Largest number of cables between switches for which a bisection is computed.
const MOST_CABLES: usize = 100_000;

/// Returns the bisection of `fabric`. `None` for a single ToR, and above 100,000 cables between switches if the value
/// is not known from the kind of fabric.
pub fn bisection(fabric: &Fabric) -> Option<Bisection> {
    if fabric.tors().len() < 2 {
        return None;
    }
    let sure = |bps, host_ports, proof| {
        Some(Bisection { bps, kind: BisectionKind::Exact, at_least_bps: bps, proof: Some(proof), host_ports })
    };
    if let Some((bps, host_ports)) = known_bps(fabric) {
        return sure(bps, host_ports, BisectionProof::Structure);
    }
    if fabric.switch_cables().count() > MOST_CABLES {
        return None;
    }
    let state = LinkState::of(fabric);
    let problem = Problem::of(fabric, &state);
    let host_ports = (problem.least, problem.most);
    let found = local::best_cut(&problem);
    let bps = |value: u128| u64::try_from(value).unwrap_or(u64::MAX);
    let least = routed::lower_bound(fabric, &state, &problem);
    if least >= found {
        return sure(bps(found), host_ports, BisectionProof::Routing);
    }
    match exact::smallest_cut(&problem, found) {
        Some(smallest) => sure(bps(smallest), host_ports, BisectionProof::Search),
        None => {
            let (kind, at_least_bps) = (BisectionKind::UpperBound, bps(least));
            Some(Bisection { bps: bps(found), kind, at_least_bps, proof: None, host_ports })
        }
    }
}

/// Returns the bisection of an intact FatTree, VL2 or leaf-spine fabric, and the host ports of its halves.
///
/// In each of these fabrics, ECMP spreads the traffic of a ToR evenly over all its uplinks. The traffic to a ToR
/// arrives evenly over all its downlinks. So any half of the ToRs can send as much as their uplinks carry, and these
/// uplinks form a balanced cut.
fn known_bps(fabric: &Fabric) -> Option<(u64, (u64, u64))> {
    let kind = fabric.spec().split(':').next()?.trim();
    if !matches!(kind, "fat-tree" | "vl2" | "leaf-spine") || !fabric.failed_links().is_empty() {
        return None;
    }
    let tors = fabric.tors();
    let uplinks_bps: u64 = {
        let ports = fabric.switch_ports(tors[0]).iter();
        ports.map(|port| fabric.link(port.link).settings.rate_bps).fold(0, u64::saturating_add)
    };
    let (half, each) = (tors.len() as u64 / 2, fabric.attachments().len() as u64 / tors.len() as u64);
    Some((uplinks_bps.saturating_mul(half), (half * each, (tors.len() as u64 - half) * each)))
}

#[cfg(test)]
mod tests;
