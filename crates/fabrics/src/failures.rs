//! Selection of the cables that are down from the start.

use pathloom_model::{Fabric, LinkId, LinkState, NodeId};
use rand::seq::SliceRandom;
use rand::SeedableRng;
use rand_pcg::Pcg64;

/// More cables were to fail than is possible without a disconnection of hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "only {failed} of the {cables} cables between switches can fail in this draw without disconnecting hosts, but \
     {wanted} were requested; expected a smaller share"
)]
pub struct TooManyFailures {
    /// Number of cables that failed in this draw.
    pub failed: usize,
    /// Number of cables that were to fail.
    pub wanted: usize,
    /// Number of cables between switches.
    pub cables: usize,
}

/// Draws the share `share` (0..=1) of all cables between switches, by a seeded generator. ToRs that reach each other
/// still do so afterwards: cables are taken in random order, and a cable is skipped if its loss would disconnect
/// ToRs. Cables that are down already ([`Fabric::failed_links`]) stay down and count. Returns one direction of each,
/// in ascending order.
pub fn draw_failures(fabric: &Fabric, share: f64, seed: u64) -> Result<Vec<LinkId>, TooManyFailures> {
    let mut order: Vec<LinkId> = fabric.switch_cables().collect();
    let cables = order.len();
    let wanted = (share * cables as f64).round() as usize;
    order.shuffle(&mut Pcg64::seed_from_u64(seed));
    let mut state = LinkState::of(fabric);
    let mut failed: Vec<LinkId> = fabric.failed_links().to_vec();
    let mut search = ConnectivitySearch::new(fabric);
    let mut count = failed.iter().filter(|&&link| fabric.is_switch_link(link)).count();
    for link in order {
        if count >= wanted {
            break;
        }
        if !state.set_cable(link, false) {
            continue;
        }
        if search.splits_tors(fabric, &state, link) {
            state.set_cable(link, true);
        } else {
            failed.push(link);
            count += 1;
        }
    }
    if count < wanted {
        return Err(TooManyFailures { failed: count, wanted, cables });
    }
    failed.sort_unstable();
    Ok(failed)
}

/// A breadth-first search whose buffers are reused.
struct ConnectivitySearch {
    /// Round in which a node was last seen.
    seen: Vec<u32>,
    round: u32,
    queue: Vec<NodeId>,
}

impl ConnectivitySearch {
    fn new(fabric: &Fabric) -> ConnectivitySearch {
        ConnectivitySearch { seen: vec![0; fabric.nodes().len()], round: 0, queue: Vec::new() }
    }

    /// Whether the removal of the cable of `link` (which is down already) separates ToRs on its two sides from each
    /// other.
    fn splits_tors(&mut self, fabric: &Fabric, state: &LinkState, link: LinkId) -> bool {
        let (a, b) = (fabric.link(link).from, fabric.link(link).to);
        if self.walk(fabric, state, a, b) {
            return false;
        }
        let holds_tor = |queue: &[NodeId]| queue.iter().any(|&node| fabric.tor_index(node).is_some());
        let near = holds_tor(&self.queue);
        self.walk(fabric, state, b, a);
        near && holds_tor(&self.queue)
    }

    /// Searches from `from` until `to` is found, and returns whether it was found. The queue then contains all nodes
    /// seen.
    fn walk(&mut self, fabric: &Fabric, state: &LinkState, from: NodeId, to: NodeId) -> bool {
        self.round += 1;
        self.queue.clear();
        self.queue.push(from);
        self.seen[from.index()] = self.round;
        let mut next = 0;
        while let Some(&node) = self.queue.get(next) {
            next += 1;
            for port in fabric.switch_ports(node) {
                if state.is_up(port.link) && self.seen[port.to.index()] != self.round {
                    if port.to == to {
                        return true;
                    }
                    self.seen[port.to.index()] = self.round;
                    self.queue.push(port.to);
                }
            }
        }
        false
    }
}
