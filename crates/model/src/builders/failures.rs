//! Which cables are down from the start.

use crate::{Fabric, LinkId, LinkState, NodeId};
use rand::seq::SliceRandom;
use rand::SeedableRng;
use rand_pcg::Pcg64;

/// More cables were to fail than hosts can spare.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "only {failed} of the {cables} cables between switches could fail in this draw before hosts lost each other, and \
     {wanted} were wanted; expected a smaller share"
)]
pub struct TooManyFailures {
    /// Cables that failed in this draw.
    pub failed: usize,
    /// Cables that were to fail.
    pub wanted: usize,
    /// Cables between switches.
    pub cables: usize,
}

/// Draws `share` (0..=1) of all cables between switches, seeded, such that ToRs that reach each other still do: cables
/// are taken in random order, and one whose loss would cut ToRs off is left up. Cables that are down already
/// ([`Fabric::failed_links`]) stay so and count. Returns one direction of each, in ascending order.
pub fn draw_failures(fabric: &Fabric, share: f64, seed: u64) -> Result<Vec<LinkId>, TooManyFailures> {
    let mut order: Vec<LinkId> = fabric.switch_cables().collect();
    let cables = order.len();
    let wanted = (share * cables as f64).round() as usize;
    order.shuffle(&mut Pcg64::seed_from_u64(seed));
    let mut state = LinkState::of(fabric);
    let mut failed: Vec<LinkId> = fabric.failed_links().to_vec();
    let mut search = Reach::new(fabric);
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

/// Breadth-first search that is used again and again.
struct Reach {
    /// Round in which a node was last seen.
    seen: Vec<u32>,
    round: u32,
    queue: Vec<NodeId>,
}

impl Reach {
    fn new(fabric: &Fabric) -> Reach {
        Reach { seen: vec![0; fabric.nodes().len()], round: 0, queue: Vec::new() }
    }

    /// Whether the cable of `link`, now down, leaves ToRs on both sides without a way to each other.
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

    /// Walks from `from` until `to` is found; tells whether it was. The queue then holds all that was seen.
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
