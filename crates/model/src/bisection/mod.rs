//! Bisection bandwidth: the least that one half of the hosts can send to the other at once.
//!
//! Hosts stay with their ToR, and their own links are not counted. A balanced cut puts every switch on one of two sides
//! so that the numbers of host ports on the sides differ by as little as whole racks allow. Its capacity is what the
//! links from the first side to the second carry together, and the bisection is the least capacity of any balanced cut.
//! To find it is NP-hard, so a number comes with what is known of it:
//!
//! - the value of fabrics whose bisection is in the books ([`known_bps`]);
//! - an upper bound, a balanced cut that was found ([`local`]);
//! - a lower bound, by a routing that shows how much any half can send ([`routed`]);
//! - the exact value, where a search over all cuts comes to its end ([`exact`]).

mod exact;
mod local;
mod problem;
mod routed;

use crate::{Fabric, LinkState};
use problem::Problem;
use serde::Serialize;

/// What a number for the bisection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BisectionKind {
    /// The bisection itself.
    Exact,
    /// The capacity of the best balanced cut that was found; the bisection is that or less.
    UpperBound,
}

/// How it is known that no balanced cut is smaller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BisectionProof {
    /// It is the known value of this kind of fabric.
    Structure,
    /// A routing over shortest paths carries as much between any two halves.
    Routing,
    /// All balanced cuts were searched.
    Search,
}

/// The bisection of a fabric, or bounds on it, with the cables of its specification failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Bisection {
    /// Bits per second; what it is says `kind`. `u64::MAX` stands for that many or more.
    pub bps: u64,
    /// Whether it is the bisection itself or a bound.
    pub kind: BisectionKind,
    /// What the bisection is at least, bits per second; the same as `bps` where that is exact.
    pub at_least_bps: u64,
    /// How an exact value is known to be so.
    pub proof: Option<BisectionProof>,
    /// Host ports on each side of a balanced cut, the smaller number first.
    pub host_ports: (u64, u64),
}

/// Cables between switches from which on no bisection is worked out.
const MOST_CABLES: usize = 100_000;

/// The bisection of `fabric`; `None` for one ToR alone, and above 100,000 cables between switches where the fabric is
/// none of a known kind.
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

/// The bisection of an intact FatTree, VL2 or leaf-spine fabric, and the host ports of its halves.
///
/// In each of them ECMP spreads what a ToR sends evenly over all its uplinks, and what it receives comes evenly over
/// all its downlinks, so any half of the ToRs can send as much as its uplinks hold; and to cut those is a balanced cut.
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
