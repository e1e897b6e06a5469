//! Global First Fit.

use super::Paths;

/// A flow that needs a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// The pair of its ends.
    pub pair: u32,
    /// The bandwidth that it reserves on every link of its path.
    pub demand_bps: u64,
    /// The links of its present path, if known. It need not be one of the pair's paths.
    pub present: Option<&'a [u32]>,
}

/// The result for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placed {
    /// Its present path still has enough capacity.
    Kept,
    /// This path of its pair is the first with enough capacity.
    Path(u64),
    /// No path has enough capacity: the flow stays where it is.
    Nowhere,
}

/// The result of [`first_fit`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FirstFit {
    /// The result for each request, in the given order.
    pub placed: Vec<Placed>,
    /// Reserved bandwidth by link. It exceeds a capacity only if flows that fit on no path stay on a known path.
    pub reserved_bps: Vec<u64>,
    /// Number of links examined.
    pub operations: u64,
}

/// Hedera §4.3.1, Global First Fit: the paths of each flow are searched in order. The first path whose links all have
/// capacity for the flow's demand is reserved for it. As in the paper, a flow that was placed before keeps its path.
/// Because demands change between rounds, it does so only as long as its demand still fits. Those flows come first,
/// in the given order, then all others. A flow that fits nowhere stays where it is. On a known path, it is counted
/// although it overfills the path. Otherwise the default rules hash it, and nothing is reserved (the paper's line 9).
pub fn first_fit(capacity_bps: &[u64], requests: &[Request<'_>], paths: &impl Paths) -> FirstFit {
    let mut ledger = Ledger { capacity_bps, reserved_bps: vec![0; capacity_bps.len()], operations: 0 };
    let mut placed = vec![Placed::Nowhere; requests.len()];
    for (request, placed) in requests.iter().zip(&mut placed) {
        if request.present.is_some_and(|links| ledger.fits(links, request.demand_bps)) {
            ledger.reserve(request.present.unwrap_or_default(), request.demand_bps);
            *placed = Placed::Kept;
        }
    }
    let mut links = Vec::new();
    for (request, placed) in requests.iter().zip(&mut placed).filter(|(_, placed)| **placed == Placed::Nowhere) {
        let room = (0..paths.count(request.pair)).find(|&index| {
            links.clear();
            paths.links(request.pair, index, &mut links);
            ledger.fits(&links, request.demand_bps)
        });
        match (room, request.present) {
            (Some(index), _) => {
                ledger.reserve(&links, request.demand_bps);
                *placed = Placed::Path(index);
            }
            (None, Some(present)) => ledger.reserve(present, request.demand_bps),
            (None, None) => {}
        }
    }
    FirstFit { placed, reserved_bps: ledger.reserved_bps, operations: ledger.operations }
}

struct Ledger<'a> {
    capacity_bps: &'a [u64],
    reserved_bps: Vec<u64>,
    operations: u64,
}

impl Ledger<'_> {
    fn fits(&mut self, links: &[u32], demand_bps: u64) -> bool {
        links.iter().all(|&link| {
            self.operations += 1;
            let capacity_bps = self.capacity_bps.get(link as usize).copied().unwrap_or(0);
            let reserved_bps = self.reserved_bps.get(link as usize).copied().unwrap_or(0);
            reserved_bps.saturating_add(demand_bps) <= capacity_bps
        })
    }

    fn reserve(&mut self, links: &[u32], demand_bps: u64) {
        for &link in links {
            if let Some(reserved_bps) = self.reserved_bps.get_mut(link as usize) {
                *reserved_bps = reserved_bps.saturating_add(demand_bps);
            }
        }
    }
}
