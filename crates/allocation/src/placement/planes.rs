//! The papers' choice of a path in a FatTree, by plane and core.
//!
//! A path consists of the cables of its two ToRs to one plane and, between pods, of one core of the plane. The part
//! between the pods is the same for all their ToRs. So it is summarised per plane and core, and kept for all flows of
//! one pair of pods. (It is the papers' path dictionary, split up: the two links of a core, and the best of each
//! plane.) A flow then examines its planes, and the cores of those few planes that may have the path. At k=48 these
//! are about 120 numbers; its 576 paths have 1,200 links.

use super::state::Ledger;
use crate::fat_tree::FatTree;
use crate::routes::Routes;

/// The width of a segment that cannot be crossed.
const BLOCKED: i64 = i64::MIN;

/// A part of a path.
#[derive(Clone, Copy, Debug)]
struct Segment {
    /// Minimum bandwidth left on its links; [`BLOCKED`] if one is down.
    width_bps: i64,
    /// Sum of their lengths.
    length: f64,
}

impl Segment {
    fn of(routes: &Routes, ledger: &Ledger, up: u32, down: u32) -> Segment {
        if !(routes.is_up(up) && routes.is_up(down)) {
            return Segment { width_bps: BLOCKED, length: f64::INFINITY };
        }
        let width_bps = ledger.left_bps(up).min(ledger.left_bps(down));
        Segment { width_bps, length: ledger.length(up) + ledger.length(down) }
    }

    /// The greatest width and the smallest length of these segments, each by itself.
    fn best(all: &[Segment]) -> Segment {
        let none = Segment { width_bps: BLOCKED, length: f64::INFINITY };
        all.iter().fold(none, |best, one| Segment {
            width_bps: best.width_bps.max(one.width_bps),
            length: best.length.min(one.length),
        })
    }
}

/// The search, with its data on the last pair of pods.
#[derive(Clone, Debug, Default)]
pub(super) struct Planes {
    /// Pods and version of the ledger for which the other data is valid.
    known: Option<(usize, usize, u64)>,
    /// The segment between the pods, by plane and core.
    middle: Vec<Segment>,
    /// The best segment of each plane.
    best: Vec<Segment>,
    /// By plane, the cables of the ToRs of the current flow.
    ends: Vec<Segment>,
    /// Plane and core of the path found last.
    choice: (usize, usize),
    /// Number of links examined since the creation.
    pub operations: u64,
}

impl Planes {
    /// Drops its data, because links came up or went down.
    pub(super) fn forget(&mut self) {
        self.known = None;
    }

    /// Finds the path whose tightest link has the most bandwidth left, to within `slack_bps`, and of those the one
    /// with the smallest sum of lengths. Writes it to `path`. Returns whether there is a path that goes up and down
    /// once. `src` and `dst` are numbers of ToRs.
    pub(super) fn lightest(
        &mut self,
        (tree, routes, ledger): (&FatTree, &Routes, &Ledger),
        (src, dst): (usize, usize),
        slack_bps: i64,
        path: &mut Vec<u32>,
    ) -> bool {
        let pods = (tree.pod_of(src), tree.pod_of(dst));
        if pods.0 != pods.1 {
            self.summarise_middle((tree, routes, ledger), pods);
        } else if self.known.is_some_and(|(_, _, version)| version != ledger.version()) {
            self.known = None;
        }
        self.ends.clear();
        for plane in 0..tree.planes {
            let (up, down) = (tree.tor_cable(src, plane).up, tree.tor_cable(dst, plane).down);
            self.ends.push(Segment::of(routes, ledger, up, down));
        }
        self.operations += 2 * tree.planes as u64;
        let cores = if pods.0 == pods.1 { 0 } else { tree.cores };
        let widest_bps = (0..tree.planes).map(|plane| self.bound(plane, cores).width_bps).max().unwrap_or(BLOCKED);
        if widest_bps == BLOCKED {
            return false;
        }
        self.choice = self.shortest(widest_bps.saturating_sub(slack_bps).max(BLOCKED + 1), cores);
        tree.write((src, dst), self.choice.0, self.choice.1, path);
        true
    }

    /// Finds the path that goes up and down once with the lowest sum of costs, and of equal ones the one whose links
    /// come first. Costs must not be negative. Writes it to `path` and returns the sum. `None` if all paths have an
    /// infinite cost, as links that are down have.
    pub(super) fn cheapest(
        &mut self,
        (tree, routes): (&FatTree, &Routes),
        (src, dst): (usize, usize),
        cost: impl Fn(u32) -> f64,
        path: &mut Vec<u32>,
    ) -> Option<f64> {
        let cost = |up: u32, down: u32| match routes.is_up(up) && routes.is_up(down) {
            true => cost(up) + cost(down),
            false => f64::INFINITY,
        };
        let (from, to) = (tree.pod_of(src), tree.pod_of(dst));
        let (mut least, mut choice) = (f64::INFINITY, (0, 0));
        self.operations += 2 * tree.planes as u64;
        for plane in 0..tree.planes {
            let ends = cost(tree.tor_cable(src, plane).up, tree.tor_cable(dst, plane).down);
            if ends >= least {
                continue;
            }
            if from == to {
                (least, choice) = (ends, (plane, 0));
                continue;
            }
            self.operations += 2 * tree.cores as u64;
            for core in 0..tree.cores {
                let (up, down) = (tree.core_cable(from, plane, core).up, tree.core_cable(to, plane, core).down);
                let whole = ends + cost(up, down);
                if whole < least {
                    (least, choice) = (whole, (plane, core));
                }
            }
        }
        if least < f64::INFINITY {
            tree.write((src, dst), choice.0, choice.1, path);
        }
        Some(least).filter(|&least| least < f64::INFINITY)
    }

    /// Updates the data after a flow was put on the path that was found last. Nothing else may have changed.
    pub(super) fn taken(&mut self, (tree, routes, ledger): (&FatTree, &Routes, &Ledger), src: usize, dst: usize) {
        let (from, to, (plane, core)) = (tree.pod_of(src), tree.pod_of(dst), self.choice);
        let Some(known) = &mut self.known else { return };
        known.2 = ledger.version();
        if from == to {
            return;
        }
        let (up, down) = (tree.core_cable(from, plane, core).up, tree.core_cable(to, plane, core).down);
        self.middle[plane * tree.cores + core] = Segment::of(routes, ledger, up, down);
        self.best[plane] = Segment::best(&self.middle[plane * tree.cores..(plane + 1) * tree.cores]);
        self.operations += tree.cores as u64;
    }

    /// Computes the segments between two pods, unless they are known.
    fn summarise_middle(&mut self, (tree, routes, ledger): (&FatTree, &Routes, &Ledger), (from, to): (usize, usize)) {
        let wanted = Some((from, to, ledger.version()));
        if self.known == wanted {
            return;
        }
        self.known = wanted;
        self.middle.clear();
        self.best.clear();
        for plane in 0..tree.planes {
            for core in 0..tree.cores {
                let (up, down) = (tree.core_cable(from, plane, core).up, tree.core_cable(to, plane, core).down);
                self.middle.push(Segment::of(routes, ledger, up, down));
            }
            self.best.push(Segment::best(&self.middle[plane * tree.cores..]));
        }
        self.operations += 2 * (tree.planes * tree.cores) as u64;
    }

    /// Bounds for the paths of a plane: none is wider or shorter.
    fn bound(&self, plane: usize, cores: usize) -> Segment {
        let ends = self.ends[plane];
        if cores == 0 {
            return ends;
        }
        let middle = self.best[plane];
        Segment { width_bps: ends.width_bps.min(middle.width_bps), length: ends.length + middle.length }
    }

    /// Plane and core of the shortest path of at least this width, which must exist. The plane with the best bound is
    /// examined first, which makes most of the others unnecessary.
    fn shortest(&mut self, width_bps: i64, cores: usize) -> (usize, usize) {
        let (mut length, mut choice) = (f64::INFINITY, (0, 0));
        let planes = || (0..self.ends.len()).map(|plane| (plane, self.bound(plane, cores)));
        let wide = |&(_, bound): &(usize, Segment)| bound.width_bps >= width_bps;
        let first = planes().filter(wide).min_by(|(_, a), (_, b)| a.length.total_cmp(&b.length));
        let mut operations = 0;
        for (plane, bound) in first.into_iter().chain(planes().filter(wide)) {
            if bound.length >= length {
                continue;
            }
            if cores == 0 {
                (length, choice) = (bound.length, (plane, 0));
                continue;
            }
            operations += cores as u64;
            for (core, middle) in self.middle[plane * cores..(plane + 1) * cores].iter().enumerate() {
                let whole = self.ends[plane].length + middle.length;
                if middle.width_bps >= width_bps && whole < length {
                    (length, choice) = (whole, (plane, core));
                }
            }
        }
        self.operations += operations;
        choice
    }
}
