//! The papers' choice of a path: the lightest of all shortest paths between two nodes, which are never listed.
//!
//! If each node has only one next hop from some node on, the way to the destination is a *tail*: for example, from a
//! core switch of a FatTree. The width and the length of a tail do not depend on the path before it. So they are kept
//! for all flows to one destination, and computed again only for tails to which a flow was added. The search covers
//! the part where paths branch, once for the widest path and once for the shortest among the widest. At k=48 it
//! examines at most 600 links of the 2,304 on the 576 paths. It skips links behind a link that is narrower than the
//! best path so far.

use super::state::Ledger;
use crate::network::Network;
use crate::routes::{Routes, RoutesTo};

/// No link: paths branch from here on, or this is the destination.
const NONE: u32 = u32::MAX;

/// The way from a node to the destination, if there is only one.
#[derive(Clone, Copy, Debug)]
struct Tail {
    /// Minimum bandwidth left on its links.
    width_bps: i64,
    /// Sum of the lengths of its links.
    length: f64,
    /// The round in which this was computed.
    round: u32,
    /// Its first link.
    link: u32,
    /// The next node.
    next: u32,
    /// Whether paths branch here or further on: then there is no tail.
    branches: bool,
}

/// The data of a node before the tails.
#[derive(Clone, Copy, Debug)]
struct Seen {
    mark: u32,
    /// The link and the previous node of the best path to it.
    link: u32,
    from: u32,
    width_bps: i64,
    length: f64,
}

/// The search, with its data on the last destination.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    to: u32,
    /// Version of the ledger for which the tails are valid.
    version: u64,
    round: u32,
    tails: Vec<Tail>,
    mark: u32,
    seen: Vec<Seen>,
    layer: Vec<u32>,
    next: Vec<u32>,
    chain: Vec<u32>,
    /// Number of links examined since the creation.
    pub operations: u64,
}

impl Walk {
    pub(super) fn new(nodes: usize) -> Walk {
        let tail = Tail { width_bps: 0, length: 0.0, round: 0, link: NONE, next: NONE, branches: true };
        let seen = Seen { mark: 0, link: NONE, from: NONE, width_bps: 0, length: 0.0 };
        Walk {
            to: NONE,
            version: 0,
            round: 0,
            tails: vec![tail; nodes],
            mark: 0,
            seen: vec![seen; nodes],
            layer: Vec::new(),
            next: Vec::new(),
            chain: Vec::new(),
            operations: 0,
        }
    }

    /// Drops the tails, because links came up or went down.
    pub(super) fn forget(&mut self) {
        self.to = NONE;
    }

    /// Finds the path whose tightest link has the most bandwidth left, to within `slack_bps`, and of those the one
    /// with the smallest sum of lengths. Writes it to `path`. Returns whether there is a path. The routes to `to`
    /// must have been prepared.
    pub(super) fn lightest(
        &mut self,
        (routes, ledger): (&Routes, &Ledger),
        (from, to): (u32, u32),
        slack_bps: i64,
        path: &mut Vec<u32>,
    ) -> bool {
        let Some(routes) = routes.to(to) else { return false };
        let Some(hops) = routes.hops(from) else { return false };
        if self.to != to || self.version != ledger.version() {
            (self.to, self.version) = (to, ledger.version());
            self.round = next_mark(self.round, || self.tails.iter_mut().for_each(|tail| tail.round = 0));
        }
        let widest_bps = self.widest(routes, ledger, from);
        self.shortest(routes, ledger, (from, hops), widest_bps.saturating_sub(slack_bps), path)
    }

    /// Updates the data after a flow was put on the path that was found last. Nothing else may have changed. Tails
    /// over its links are computed again when they are needed.
    pub(super) fn taken(&mut self, network: &Network, ledger: &Ledger, path: &[u32]) {
        self.version = ledger.version();
        let mut stack = std::mem::take(&mut self.chain);
        stack.clear();
        stack.extend(path.iter().filter_map(|&link| network.ends(link)).map(|(from, _)| from));
        while let Some(node) = stack.pop() {
            let tail = &mut self.tails[node as usize];
            if tail.round == self.round && !tail.branches {
                tail.round = 0;
                let before = network.entering(node).iter();
                stack.extend(before.map(|hop| hop.node).filter(|&before| self.tails[before as usize].next == node));
            }
        }
        self.chain = stack;
    }

    /// The tail of a node.
    fn tail(&mut self, routes: RoutesTo<'_>, ledger: &Ledger, node: u32) -> Tail {
        let known = self.tails[node as usize];
        if known.round == self.round {
            return known;
        }
        let mut chain = std::mem::take(&mut self.chain);
        chain.clear();
        let mut at = node;
        let mut tail = loop {
            let known = self.tails[at as usize];
            if known.round == self.round {
                break known;
            }
            chain.push(at);
            match routes.at(at) {
                [hop] => at = hop.node,
                members => {
                    let branches = !members.is_empty();
                    break Tail {
                        width_bps: i64::MAX,
                        length: 0.0,
                        round: self.round,
                        link: NONE,
                        next: NONE,
                        branches,
                    };
                }
            }
        };
        self.operations += chain.len() as u64;
        while let Some(node) = chain.pop() {
            if let [hop] = routes.at(node) {
                tail.width_bps = tail.width_bps.min(ledger.left_bps(hop.link));
                tail.length += ledger.length(hop.link);
                (tail.link, tail.next) = (hop.link, hop.node);
            }
            self.tails[node as usize] = tail;
        }
        self.chain = chain;
        tail
    }

    /// The width of the widest path, which must exist.
    fn widest(&mut self, routes: RoutesTo<'_>, ledger: &Ledger, from: u32) -> i64 {
        let mut best_bps = i64::MIN;
        self.start_search(from);
        while !self.layer.is_empty() {
            let mut layer = std::mem::take(&mut self.layer);
            let seen = &self.seen;
            layer.sort_unstable_by_key(|&node| std::cmp::Reverse(seen[node as usize].width_bps));
            for &node in &layer {
                let width_bps = self.seen[node as usize].width_bps;
                if width_bps <= best_bps {
                    break;
                }
                let members = routes.at(node);
                self.operations += members.len() as u64;
                for hop in members {
                    let here_bps = width_bps.min(ledger.left_bps(hop.link));
                    if here_bps <= best_bps {
                        continue;
                    }
                    let tail = self.tail(routes, ledger, hop.node);
                    if !tail.branches {
                        best_bps = best_bps.max(here_bps.min(tail.width_bps));
                    } else if self.is_new(hop.node) {
                        self.seen[hop.node as usize].width_bps = here_bps;
                        self.next.push(hop.node);
                    } else {
                        let known_bps = &mut self.seen[hop.node as usize].width_bps;
                        *known_bps = here_bps.max(*known_bps);
                    }
                }
            }
            self.layer = layer;
            self.advance_layer();
        }
        best_bps
    }

    /// Finds the shortest path of at least this width, and of equal ones the one whose links come first. Writes it to
    /// `path`. Returns whether there is one.
    fn shortest(
        &mut self,
        routes: RoutesTo<'_>,
        ledger: &Ledger,
        (from, hops): (u32, u32),
        width_bps: i64,
        path: &mut Vec<u32>,
    ) -> bool {
        let (mut best, mut last) = (f64::INFINITY, None);
        self.start_search(from);
        // No link is shorter than 1, so the remaining hops add at least this length.
        let mut left = f64::from(hops);
        while !self.layer.is_empty() {
            let layer = std::mem::take(&mut self.layer);
            for &node in &layer {
                let length = self.seen[node as usize].length;
                if length + left >= best {
                    continue;
                }
                let members = routes.at(node);
                self.operations += members.len() as u64;
                for hop in members.iter().filter(|hop| ledger.left_bps(hop.link) >= width_bps) {
                    let tail = self.tail(routes, ledger, hop.node);
                    let length = length + ledger.length(hop.link);
                    if !tail.branches {
                        if tail.width_bps >= width_bps && length + tail.length < best {
                            (best, last) = (length + tail.length, Some((node, *hop)));
                        }
                    } else if self.is_new(hop.node) || length < self.seen[hop.node as usize].length {
                        let seen = &mut self.seen[hop.node as usize];
                        if seen.length == f64::INFINITY {
                            self.next.push(hop.node);
                        }
                        (seen.link, seen.from, seen.length) = (hop.link, node, length);
                    }
                }
            }
            left -= 1.0;
            self.layer = layer;
            self.advance_layer();
        }
        let Some((node, hop)) = last else { return false };
        self.write(node, from, path);
        path.push(hop.link);
        let mut at = hop.node;
        while self.tails[at as usize].link != NONE {
            let Tail { link, next, .. } = self.tails[at as usize];
            path.push(link);
            at = next;
        }
        true
    }

    /// Writes the path by which `node` was reached from `from` to `path`.
    fn write(&self, node: u32, from: u32, path: &mut Vec<u32>) {
        path.clear();
        let mut at = node;
        while at != from {
            let seen = self.seen[at as usize];
            path.push(seen.link);
            at = seen.from;
        }
        path.reverse();
    }

    /// Starts a search at a node.
    fn start_search(&mut self, from: u32) {
        self.mark = next_mark(self.mark, || self.seen.iter_mut().for_each(|seen| seen.mark = 0));
        self.layer.clear();
        self.next.clear();
        self.layer.push(from);
        self.seen[from as usize] = Seen { mark: self.mark, link: NONE, from, width_bps: i64::MAX, length: 0.0 };
    }

    /// Records a node. Returns whether this search reaches it for the first time.
    fn is_new(&mut self, node: u32) -> bool {
        let seen = &mut self.seen[node as usize];
        let new = seen.mark != self.mark;
        if new {
            *seen = Seen { mark: self.mark, link: NONE, from: NONE, width_bps: i64::MIN, length: f64::INFINITY };
        }
        new
    }

    /// Goes to the nodes that are one hop nearer to the destination.
    fn advance_layer(&mut self) {
        std::mem::swap(&mut self.layer, &mut self.next);
        self.next.clear();
    }
}

/// The next number that distinguishes new entries from old ones. If the numbers are used up, `clear` resets the old
/// entries.
fn next_mark(mark: u32, clear: impl FnOnce()) -> u32 {
    mark.checked_add(1).unwrap_or_else(|| {
        clear();
        1
    })
}
