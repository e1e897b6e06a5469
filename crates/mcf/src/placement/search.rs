//! Looks for one path among all shortest ones between two nodes, without listing them.
//!
//! All next hops of a node lie one hop nearer to the destination, so a search goes layer by layer and looks at every
//! link of the graph of shortest paths once: 1,200 links for the 576 paths between two pods of a k=48 FatTree.

use crate::routes::RoutesTo;

/// What is known of a node that the search has come to.
#[derive(Clone, Copy, Debug)]
struct Seen {
    round: u32,
    /// Link by which it is best reached, and the node before it.
    link: u32,
    from: u32,
    width: i64,
    cost: f64,
}

/// Buffers of a search, used again and again.
#[derive(Clone, Debug)]
pub(super) struct Search {
    seen: Vec<Seen>,
    round: u32,
    layer: Vec<u32>,
    next: Vec<u32>,
    /// Links looked at since the beginning.
    pub operations: u64,
}

impl Search {
    pub(super) fn new(nodes: usize) -> Search {
        let unseen = Seen { round: 0, link: u32::MAX, from: u32::MAX, width: 0, cost: 0.0 };
        Search { seen: vec![unseen; nodes], round: 0, layer: Vec::new(), next: Vec::new(), operations: 0 }
    }

    /// Width of the widest path, that of a path being the least of its links' widths. `None` when there is no path.
    pub(super) fn widest(&mut self, routes: RoutesTo<'_>, from: u32, width: impl Fn(u32) -> i64) -> Option<i64> {
        let start = Seen { round: 0, link: u32::MAX, from, width: i64::MAX, cost: 0.0 };
        let end = self.layers(
            routes,
            from,
            start,
            |before, link| Seen { width: before.width.min(width(link)), ..before },
            |a, b| a.width > b.width,
        )?;
        Some(self.seen[end as usize].width)
    }

    /// The path with the least sum of costs; of equal ones, that whose links come first. It is left in `path`. A cost of
    /// infinity excludes a link. `None` when there is no path of finite cost.
    pub(super) fn cheapest(
        &mut self,
        routes: RoutesTo<'_>,
        from: u32,
        cost: impl Fn(u32) -> f64,
        path: &mut Vec<u32>,
    ) -> Option<f64> {
        let start = Seen { round: 0, link: u32::MAX, from, width: 0, cost: 0.0 };
        let end = self.layers(
            routes,
            from,
            start,
            |before, link| Seen { cost: before.cost + cost(link), ..before },
            |a, b| a.cost < b.cost,
        )?;
        let found = self.seen[end as usize].cost;
        if found == f64::INFINITY {
            return None;
        }
        path.clear();
        let mut node = end;
        while node != from {
            let Seen { link, from, .. } = self.seen[node as usize];
            path.push(link);
            node = from;
        }
        path.reverse();
        Some(found)
    }

    /// Goes through the layers; returns the destination.
    fn layers(
        &mut self,
        routes: RoutesTo<'_>,
        from: u32,
        start: Seen,
        step: impl Fn(Seen, u32) -> Seen,
        better: impl Fn(&Seen, &Seen) -> bool,
    ) -> Option<u32> {
        let hops = routes.hops(from)?;
        self.round = self.round.wrapping_add(1);
        let round = self.round;
        self.seen[from as usize] = Seen { round, ..start };
        self.layer.clear();
        self.layer.push(from);
        for _ in 0..hops {
            self.next.clear();
            for &node in &self.layer {
                let here = self.seen[node as usize];
                let members = routes.at(node);
                self.operations += members.len() as u64;
                for hop in members {
                    let there = Seen { link: hop.link, from: node, ..step(here, hop.link) };
                    let known = &mut self.seen[hop.node as usize];
                    if known.round != round {
                        *known = there;
                        self.next.push(hop.node);
                    } else if better(&there, known) {
                        *known = there;
                    }
                }
            }
            std::mem::swap(&mut self.layer, &mut self.next);
        }
        self.layer.first().copied()
    }
}
