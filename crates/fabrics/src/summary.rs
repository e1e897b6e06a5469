//! The numbers that describe a fabric: sizes, path counts, diameter, bisection.

use crate::bisection::{bisection, Bisection};
use pathloom_model::search::ReverseBfs;
use pathloom_model::units::PS_PER_S;
use pathloom_model::{Fabric, LinkId, LinkSettings, LinkState, NodeId, Tier};
use serde::Serialize;

/// The number of nodes in a tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct TierCount {
    /// The tier.
    pub tier: Tier,
    /// Number of its nodes.
    pub nodes: usize,
}

/// Numbers of shortest paths between ToRs that reach each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct PathCounts {
    /// Fewest paths. In all three fields, `u64::MAX` means that many or more.
    pub min: u64,
    /// Median (the upper one of two).
    pub median: u64,
    /// Most paths.
    pub max: u64,
}

/// The numbers that describe a fabric, with the failed cables of its specification down.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FabricSummary {
    /// The specification it was built from.
    pub spec: String,
    /// Hosts and switches.
    pub nodes: usize,
    /// Hosts.
    pub hosts: usize,
    /// Switches.
    pub switches: usize,
    /// Switches with hosts.
    pub tors: usize,
    /// Number of nodes in each tier that has nodes, from the hosts up.
    pub tiers: Vec<TierCount>,
    /// Directed links: two per cable.
    pub links: usize,
    /// Cables.
    pub cables: usize,
    /// Cables between two switches.
    pub switch_cables: usize,
    /// Cables that are down from the start.
    pub failed_cables: usize,
    /// Slowest and fastest host link, bits per second.
    pub host_rate_bps: (u64, u64),
    /// Slowest and fastest link between switches, bits per second; `None` if there is none.
    pub switch_rate_bps: Option<(u64, u64)>,
    /// Ordered pairs of ToRs that the numbers below cover: all pairs, or in a large fabric the pairs with evenly
    /// selected target ToRs.
    pub pairs_sampled: u64,
    /// Number of these pairs that have no path.
    pub pairs_apart: u64,
    /// Shortest paths between two ToRs; `None` if no two ToRs reach each other.
    pub shortest_paths: Option<PathCounts>,
    /// Largest number of hops of a shortest path between two ToRs.
    pub diameter_hops: Option<u32>,
    /// Longest round trip between hosts on different ToRs over shortest paths, in picoseconds: with empty queues, and
    /// with every queue on the path full. The acknowledgement counts as a full frame. `u64::MAX` means that much or
    /// more.
    pub round_trip_ps: Option<(u64, u64)>,
    /// Largest ratio, over all ToRs, of the total rate of its host links to that of its links to other switches.
    pub oversubscription: Option<f64>,
    /// Rate that one half of the hosts can send to the other at once, bits per second, without the limit of host
    /// links: the value of `bisection`, which says whether it is exact.
    pub bisection_bps: Option<u64>,
    /// The bisection or bounds on it. `None` for a single ToR, and above 100,000 cables between switches if the
    /// bisection of the fabric is not known.
    pub bisection: Option<Bisection>,
}

/// Limit on the node and link visits for path counts.
const MOST_VISITS: usize = 30_000_000;
const MOST_TARGETS: usize = 1024;

impl FabricSummary {
    /// Computes the numbers. Takes well under a second up to some thousand switches.
    pub fn of(fabric: &Fabric) -> FabricSummary {
        let state = LinkState::of(fabric);
        let tiers = [Tier::Host, Tier::Tor, Tier::Aggregation, Tier::Core];
        let count = |tier: Tier| fabric.nodes().iter().filter(|node| node.tier == tier).count();
        let rates = |of_switches: bool| {
            let links = (0..fabric.links().len() as u32).map(LinkId);
            let rates = links.filter(|&link| fabric.is_switch_link(link) == of_switches);
            let rates = rates.map(|link| fabric.link(link).settings.rate_bps);
            rates.fold(None, |range: Option<(u64, u64)>, rate| {
                Some(range.map_or((rate, rate), |(least, most)| (least.min(rate), most.max(rate))))
            })
        };
        let switch_cables = fabric.switch_cables().count();
        let paths = PathSample::take(fabric, &state, [FRAME_BYTES; 2]);
        let bisection = bisection(fabric);
        FabricSummary {
            spec: fabric.spec().to_owned(),
            nodes: fabric.nodes().len(),
            hosts: fabric.hosts().len(),
            switches: fabric.switches().len(),
            tors: fabric.tors().len(),
            tiers: tiers
                .map(|tier| TierCount { tier, nodes: count(tier) })
                .into_iter()
                .filter(|t| t.nodes > 0)
                .collect(),
            links: fabric.links().len(),
            cables: fabric.links().len() / 2,
            switch_cables,
            failed_cables: fabric.failed_links().len(),
            host_rate_bps: rates(false).unwrap_or((0, 0)),
            switch_rate_bps: rates(true),
            pairs_sampled: paths.pairs,
            pairs_apart: paths.pairs - paths.counts.len() as u64,
            diameter_hops: paths.diameter_hops,
            round_trip_ps: paths.round_trip_ps,
            shortest_paths: paths.min_median_max(),
            oversubscription: oversubscription(fabric, &state),
            bisection_bps: bisection.map(|bisection| bisection.bps),
            bisection,
        }
    }
}

/// Computes [`FabricSummary::round_trip_ps`] alone, without the bisection, which takes longer.
pub fn round_trip_ps(fabric: &Fabric) -> Option<(u64, u64)> {
    PathSample::take(fabric, &LinkState::of(fabric), [FRAME_BYTES; 2]).round_trip_ps
}

/// Longest round trip between hosts on different ToRs over shortest paths with empty queues, in ps, of a frame and its
/// answer of these lengths. `None` if there are no two such hosts.
pub fn round_trip_of(fabric: &Fabric, frame_bytes: [u64; 2]) -> Option<u64> {
    PathSample::take(fabric, &LinkState::of(fabric), frame_bytes).round_trip_ps.map(|(idle_ps, _)| idle_ps)
}

/// Shortest paths between pairs of ToRs.
struct PathSample {
    pairs: u64,
    /// Number of shortest paths of each pair that is connected.
    counts: Vec<u64>,
    diameter_hops: Option<u32>,
    /// Longest round trip from host to host, with empty and with full queues.
    round_trip_ps: Option<(u64, u64)>,
}

/// Length of a full frame. Queues are assumed to hold full frames.
const FRAME_BYTES: u64 = 1514;

/// Time that a frame takes over a link, with the queue empty and with the queue full of such frames.
fn hop_ps(settings: &LinkSettings, frame_bytes: u64) -> (u64, u64) {
    let frame_ps = (u128::from(frame_bytes * 8) * u128::from(PS_PER_S) / u128::from(settings.rate_bps.max(1))) as u64;
    let waiting_ps = frame_ps.saturating_mul(u64::from(settings.buffer_packets));
    let idle_ps = frame_ps.saturating_add(settings.delay_ps);
    (idle_ps, idle_ps.saturating_add(waiting_ps))
}

/// Adds both members.
fn sum(a: (u64, u64), b: (u64, u64)) -> (u64, u64) {
    (a.0.saturating_add(b.0), a.1.saturating_add(b.1))
}

/// The greater of both members.
fn most(a: (u64, u64), b: (u64, u64)) -> (u64, u64) {
    (a.0.max(b.0), a.1.max(b.1))
}

/// As [`most`], for each of two directions.
fn most_each_way(a: [(u64, u64); 2], b: [(u64, u64); 2]) -> [(u64, u64); 2] {
    [most(a[0], b[0]), most(a[1], b[1])]
}

impl PathSample {
    /// Counts the shortest paths from all other ToRs with one search per target ToR. Round trips are those of a frame and
    /// its answer of these lengths.
    fn take(fabric: &Fabric, state: &LinkState, [there, back]: [u64; 2]) -> PathSample {
        // No path leads to the switches inside servers, nor from them.
        let tors: Vec<NodeId> = fabric.tors().iter().copied().filter(|&tor| !fabric.is_inside_server(tor)).collect();
        let visits = fabric.nodes().len() + fabric.links().len();
        let targets = (MOST_VISITS / visits).clamp(1, MOST_TARGETS).min(tors.len());
        let mut sample = PathSample { pairs: 0, counts: Vec::new(), diameter_hops: None, round_trip_ps: None };
        let hop_ps = |link: LinkId, frame_bytes: u64| hop_ps(&fabric.link(link).settings, frame_bytes);
        let host_links =
            (0..fabric.links().len() as u32).map(LinkId).filter(|&link| fabric.is_host(fabric.link(link).from));
        let at_hosts_ps = [there, back].map(|bytes| {
            let host_links_ps = host_links.clone().map(|link| [hop_ps(link, bytes), hop_ps(link.reverse(), bytes)]);
            let [up, down] = host_links_ps.fold([(0, 0); 2], most_each_way);
            sum(up, down)
        });
        // To the target, and back from it.
        let mut way_ps: Vec<[(u64, u64); 2]> = Vec::new();
        let mut bfs = ReverseBfs::default();
        let mut paths: Vec<u64> = Vec::new();
        for number in 0..targets {
            let target = tors[number * tors.len() / targets];
            bfs.run(fabric, state, target, &[], u32::MAX, None);
            paths.clear();
            paths.resize(fabric.nodes().len(), 0);
            paths[target.index()] = 1;
            way_ps.clear();
            way_ps.resize(fabric.nodes().len(), [(0, 0); 2]);
            for &node in bfs.reached() {
                let ways = bfs.nearer(fabric, state, node).map(|link| {
                    let [to, from] = way_ps[fabric.link(link).to.index()];
                    [sum(hop_ps(link, there), to), sum(hop_ps(link.reverse(), back), from)]
                });
                way_ps[node.index()] = ways.fold([(0, 0); 2], most_each_way);
                let on = bfs.nearer(fabric, state, node).map(|link| paths[fabric.link(link).to.index()]);
                let count = on.fold(0, u64::saturating_add);
                paths[node.index()] = paths[node.index()].max(count);
            }
            sample.pairs += tors.len() as u64 - 1;
            let others = tors.iter().filter(|&&tor| tor != target);
            for (tor, hops) in others.filter_map(|&tor| Some((tor, bfs.hops(tor)?))) {
                sample.counts.push(paths[tor.index()]);
                sample.diameter_hops = sample.diameter_hops.max(Some(hops));
                let [to, from] = way_ps[tor.index()];
                let trip_ps = sum(sum(to, from), sum(at_hosts_ps[0], at_hosts_ps[1]));
                sample.round_trip_ps = Some(sample.round_trip_ps.map_or(trip_ps, |longest| most(longest, trip_ps)));
            }
        }
        sample
    }

    fn min_median_max(mut self) -> Option<PathCounts> {
        self.counts.sort_unstable();
        let (&min, &max) = (self.counts.first()?, self.counts.last()?);
        Some(PathCounts { min, median: self.counts[self.counts.len() / 2], max })
    }
}

fn oversubscription(fabric: &Fabric, state: &LinkState) -> Option<f64> {
    let ratio = |&tor: &NodeId| {
        let up = fabric.node(tor).ports.iter().copied().filter(|&link| state.is_up(link));
        let (mut hosts_bps, mut switches_bps) = (0.0, 0.0);
        for link in up {
            let rate_bps = fabric.link(link).settings.rate_bps as f64;
            *(if fabric.is_switch_link(link) { &mut switches_bps } else { &mut hosts_bps }) += rate_bps;
        }
        (switches_bps > 0.0).then(|| hosts_bps / switches_bps)
    };
    fabric.tors().iter().filter_map(ratio).reduce(f64::max)
}
