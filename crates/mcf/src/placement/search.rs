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
    /// Nodes to go on from, the width of the way there, and hops from there to the destination.
    stack: Vec<(u32, i64, u32)>,
    /// Links looked at since the beginning.
    pub operations: u64,
}

impl Search {
    pub(super) fn new(nodes: usize) -> Search {
        let unseen = Seen { round: 0, link: u32::MAX, from: u32::MAX, width: 0, cost: 0.0 };
        Search {
            seen: vec![unseen; nodes],
            round: 0,
            layer: Vec::new(),
            next: Vec::new(),
            stack: Vec::new(),
            operations: 0,
        }
    }

    /// Width of the widest path to within `slack`, that of a path being the least of its links' widths; no path is wider
    /// than `most`. `None` when there is no path. A path is followed only as long as it is wider than the best one known
    /// by more than the slack, which spares most of the links.
    pub(super) fn widest(
        &mut self,
        routes: RoutesTo<'_>,
        from: u32,
        most: i64,
        slack: i64,
        width: impl Fn(u32) -> i64,
    ) -> Option<i64> {
        let hops = routes.hops(from)?;
        self.round = self.round.wrapping_add(1);
        let round = self.round;
        let mut first: Vec<(i64, u32)> = routes.at(from).iter().map(|hop| (width(hop.link), hop.node)).collect();
        first.sort_unstable_by_key(|&(width, _)| std::cmp::Reverse(width));
        self.operations += first.len() as u64;
        let mut best = None;
        let mut stack = std::mem::take(&mut self.stack);
        for (width_so_far, node) in first {
            if best.is_some_and(|best: i64| width_so_far.min(most) <= best.saturating_add(slack)) {
                break;
            }
            stack.push((node, width_so_far, hops - 1));
            while let Some((node, width_so_far, hops)) = stack.pop() {
                if best.is_some_and(|best| width_so_far.min(most) <= best.saturating_add(slack)) {
                    continue;
                }
                if hops == 0 {
                    best = Some(width_so_far);
                    continue;
                }
                let seen = &mut self.seen[node as usize];
                if seen.round == round && seen.width >= width_so_far {
                    continue;
                }
                (seen.round, seen.width) = (round, width_so_far);
                let members = routes.at(node);
                self.operations += members.len() as u64;
                for hop in members {
                    let width = width(hop.link).min(width_so_far);
                    if best.is_none_or(|best| width > best.saturating_add(slack)) {
                        stack.push((hop.node, width, hops - 1));
                    }
                }
            }
        }
        self.stack = stack;
        best
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
        let hops = routes.hops(from)?;
        self.round = self.round.wrapping_add(1);
        let round = self.round;
        self.seen[from as usize] = Seen { round, link: u32::MAX, from, width: 0, cost: 0.0 };
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
                    *known = Seen { round, link: hop.link, from: node, width: 0, cost };
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
