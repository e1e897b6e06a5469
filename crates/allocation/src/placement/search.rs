//! Searches for one path among all shortest paths between two nodes, without listing them.
//!
//! All next hops of a node are one hop nearer to the destination. So a search goes layer by layer and examines every
//! link of the graph of shortest paths once. These are 1,200 links for the 576 paths between two pods of a k=48
//! FatTree.

use crate::routes::RoutesTo;

/// The data of a node that the search has reached.
#[derive(Clone, Copy, Debug)]
struct Seen {
    round: u32,
    /// The link and the previous node of the best path to it.
    link: u32,
    from: u32,
    cost: f64,
}

/// Buffers of a search, which are reused.
#[derive(Clone, Debug)]
pub(super) struct Search {
    seen: Vec<Seen>,
    round: u32,
    layer: Vec<u32>,
    next: Vec<u32>,
    /// Number of links examined since the creation.
    pub operations: u64,
}

impl Search {
    pub(super) fn new(nodes: usize) -> Search {
        let unseen = Seen { round: 0, link: u32::MAX, from: u32::MAX, cost: 0.0 };
        Search { seen: vec![unseen; nodes], round: 0, layer: Vec::new(), next: Vec::new(), operations: 0 }
    }

    /// Finds the path with the lowest sum of costs, and of equal ones the one whose links come first. Writes it to
    /// `path` and returns the sum. An infinite cost excludes a link. `None` if no path has a finite cost.
    pub(super) fn cheapest(
        &mut self,
        routes: RoutesTo<'_>,
        from: u32,
        cost: impl Fn(u32) -> f64,
        path: &mut Vec<u32>,
    ) -> Option<f64> {
        let hops = routes.hops(from)?;
        self.round = self.round.wrapping_add(1);
        let round = self.round;
        self.seen[from as usize] = Seen { round, link: u32::MAX, from, cost: 0.0 };
        self.layer.clear();
        self.layer.push(from);
        for _ in 0..hops {
            self.next.clear();
            for &node in &self.layer {
                let here = self.seen[node as usize].cost;
                let members = routes.at(node);
                self.operations += members.len() as u64;
                for hop in members {
                    let cost = here + cost(hop.link);
                    let known = &mut self.seen[hop.node as usize];
                    if cost == f64::INFINITY || (known.round == round && known.cost <= cost) {
                        continue;
                    }
                    if known.round != round {
                        self.next.push(hop.node);
                    }
                    *known = Seen { round, link: hop.link, from: node, cost };
                }
            }
            std::mem::swap(&mut self.layer, &mut self.next);
        }
        let &end = self.layer.first()?;
        path.clear();
        let mut node = end;
        while node != from {
            let Seen { link, from, .. } = self.seen[node as usize];
            path.push(link);
            node = from;
        }
        path.reverse();
        Some(self.seen[end as usize].cost)
    }
}
