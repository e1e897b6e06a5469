//! Searches of paths, beside plain definitions of their results.

use pathloom_fabrics::{fabric_from_spec, FabricSummary};
use pathloom_model::search::*;
use pathloom_model::{Fabric, FabricBuilder, LinkId, LinkSettings, LinkState, NodeId, Path, Tier};
use proptest::prelude::*;
use std::collections::BTreeSet;

const SETTINGS: LinkSettings = LinkSettings { rate_bps: 1_000_000_000, delay_ps: 1_000_000, buffer_packets: 100 };

/// Builds switches 0..n with one host each and these cables. Self-loops are omitted, parallel cables kept.
fn graph(n: u32, cables: &[(u32, u32)]) -> Fabric {
    let mut builder = FabricBuilder::new("graph");
    let switches: Vec<NodeId> = (0..n).map(|i| builder.switch(format!("s{i}"), Tier::Tor, None)).collect();
    for (i, &switch) in switches.iter().enumerate() {
        let host = builder.host(format!("h{i}"), None);
        builder.cable(switch, host, SETTINGS);
    }
    for &(a, b) in cables.iter().filter(|(a, b)| a % n != b % n) {
        builder.cable(switches[(a % n) as usize], switches[(b % n) as usize], SETTINGS);
    }
    builder.build().unwrap()
}

fn names(fabric: &Fabric, from: NodeId, path: &Path) -> String {
    let names: Vec<&str> = path.switches(fabric, from).iter().map(|&n| fabric.node(n).name.as_str()).collect();
    names.join(" ")
}

/// Finds every simple path by brute force, sorted by hops and links.
fn all_simple(fabric: &Fabric, state: &LinkState, from: NodeId, to: NodeId) -> Vec<Path> {
    fn walk(
        fabric: &Fabric,
        state: &LinkState,
        to: NodeId,
        seen: &mut Vec<NodeId>,
        links: &mut Vec<LinkId>,
        found: &mut Vec<Path>,
    ) {
        let node = seen[seen.len() - 1];
        if node == to {
            found.push(Path::new(links.clone()));
            return;
        }
        for port in fabric.switch_ports(node) {
            if state.is_up(port.link) && !seen.contains(&port.to) {
                seen.push(port.to);
                links.push(port.link);
                walk(fabric, state, to, seen, links, found);
                seen.pop();
                links.pop();
            }
        }
    }
    let mut found = Vec::new();
    walk(fabric, state, to, &mut vec![from], &mut Vec::new(), &mut found);
    found.sort_by(|a, b| (a.hops(), a).cmp(&(b.hops(), b)));
    found
}

/// Returns the size of the smallest set of cables that separates two switches, by trying every set of switches on one
/// side.
fn min_cut(fabric: &Fabric, state: &LinkState, from: NodeId, to: NodeId) -> usize {
    let switches = fabric.switches();
    let place = |node: NodeId| switches.iter().position(|&s| s == node).unwrap();
    let (from, to) = (place(from), place(to));
    let cables: Vec<(usize, usize)> = fabric
        .switch_cables()
        .filter(|&link| state.is_up(link))
        .map(|link| (place(fabric.link(link).from), place(fabric.link(link).to)))
        .collect();
    let sides = (0..1u32 << switches.len()).filter(|side| side >> from & 1 == 1 && side >> to & 1 == 0);
    sides.map(|side| cables.iter().filter(|(a, b)| (side >> a ^ side >> b) & 1 == 1).count()).min().unwrap()
}

fn assert_disjoint(paths: &[Path]) {
    let cables: Vec<u32> = paths.iter().flat_map(|path| path.links().iter().map(|link| link.cable())).collect();
    assert_eq!(cables.iter().collect::<BTreeSet<_>>().len(), cables.len(), "a cable is used twice");
}

#[test]
fn shortest_paths_are_counted_and_picked_without_listing() {
    let fabric = fabric_from_spec("fat-tree:k=8").unwrap();
    let state = LinkState::of(&fabric);
    let tors = fabric.tors();
    let paths = ShortestPaths::between(&fabric, &state, tors[0], tors[31]);
    assert_eq!((paths.count(), paths.hops()), (16, Some(4)));
    let listed: Vec<Path> = paths.iter().collect();
    assert_eq!(listed.len(), 16);
    assert_eq!(paths.nth(5), Some(listed[5].clone()));
    assert_eq!(paths.iter().nth(5), Some(listed[5].clone()));
    assert_eq!(paths.nth(16), None);
    assert_eq!(paths.iter().size_hint(), (16, Some(16)));
    // In a FatTree the core fixes the path.
    let cores: BTreeSet<NodeId> = listed.iter().map(|path| path.switches(&fabric, tors[0])[2]).collect();
    assert_eq!(cores.len(), 16);
}

#[test]
fn path_counts_saturate_beyond_u128() {
    // 130 pairs of parallel cables in a row: 2^130 paths.
    let cables: Vec<(u32, u32)> = (0..130).flat_map(|i| [(i, i + 1); 2]).collect();
    let fabric = graph(131, &cables);
    let state = LinkState::of(&fabric);
    let paths = ShortestPaths::between(&fabric, &state, NodeId(0), NodeId(130));
    assert_eq!(paths.count(), u128::MAX);
    let last = paths.nth(u128::MAX - 1).unwrap();
    assert_eq!(last.check(&fabric), Ok(()));
    assert_eq!(last.hops(), 130);
    let paths = ShortestPaths::between(&fabric, &state, NodeId(0), NodeId(100));
    assert_eq!(paths.count(), 1 << 100);
    // The last path takes the second cable everywhere.
    let second = paths.nth((1 << 100) - 1).unwrap();
    assert!(second.links().windows(2).all(|pair| pair[1].0 - pair[0].0 == 4));
    assert_eq!(k_shortest(&fabric, &state, NodeId(0), NodeId(130)).take(3).count(), 3);
    assert_eq!(FabricSummary::of(&fabric).shortest_paths.unwrap().max, u64::MAX);
}

#[test]
fn path_from_a_tor_to_itself_is_empty() {
    let fabric = fabric_from_spec("diamond").unwrap();
    let state = LinkState::of(&fabric);
    let tor = fabric.tors()[0];
    for selection in [
        PathSelection::Shortest,
        PathSelection::KShortest(3),
        PathSelection::EdgeDisjoint(3),
        PathSelection::SimpleUpTo(3),
    ] {
        let set = PathSet::new(&fabric, &state, tor, tor, selection);
        assert_eq!(set.iter().collect::<Vec<_>>(), [Path::empty()], "{selection:?}");
        assert_eq!(set.count_up_to(9), 1, "{selection:?}");
    }
}

#[test]
fn links_that_are_down_are_unused_and_hosts_forward_nothing() {
    let fabric = fabric_from_spec("jellyfish:switches=6,hosts=6,ports=4,homes=2").unwrap();
    let mut state = LinkState::of(&fabric);
    let cables: Vec<LinkId> = fabric.switch_cables().collect();
    for link in cables {
        state.set_cable(link, false);
    }
    let (from, to) = (fabric.tors()[0], fabric.tors()[1]);
    assert!(ShortestPaths::between(&fabric, &state, from, to).is_empty());
    assert_eq!(k_shortest(&fabric, &state, from, to).next(), None);
    assert_eq!(edge_disjoint(&fabric, &state, from, to, 9), []);
    assert_eq!(simple_paths(&fabric, &state, from, to, 99).next(), None);
    assert!(next_hops(&fabric, &state, to).at(from).is_empty());
    assert_eq!(distances_to(&fabric, &state, to).hops(from), None);
    assert!(PathSet::new(&fabric, &state, from, to, PathSelection::Shortest).is_empty());
    let summary = FabricSummary::of(&fabric.clone().with_failed(fabric.switch_cables().collect()));
    assert_eq!((summary.shortest_paths, summary.diameter_hops, summary.bisection_bps), (None, None, Some(0)));
    assert_eq!((summary.pairs_sampled, summary.pairs_apart), (30, 30));
}

#[test]
fn disjoint_paths_avoid_the_shortest_path_if_that_yields_more_paths() {
    // The only shortest path, 0-1-2-5, uses cables that both disjoint paths need: 0-1-4-5 and 0-3-2-5.
    let fabric = graph(6, &[(0, 1), (1, 2), (2, 5), (1, 4), (4, 6 + 1), (0, 3), (3, 2), (4, 5)]);
    let state = LinkState::of(&fabric);
    let paths = edge_disjoint(&fabric, &state, NodeId(0), NodeId(5), 9);
    let shown: Vec<String> = paths.iter().map(|path| names(&fabric, NodeId(0), path)).collect();
    assert_eq!(shown, ["s0 s1 s4 s5", "s0 s3 s2 s5"]);
    let one = edge_disjoint(&fabric, &state, NodeId(0), NodeId(5), 1);
    assert_eq!(one[0].hops(), 3);
}

#[test]
fn next_hops_lead_nearer_in_a_fat_tree() {
    let fabric = fabric_from_spec("fat-tree:k=4").unwrap();
    let mut state = LinkState::of(&fabric);
    let tor = |name: &str| fabric.find(name).unwrap();
    let to = tor("e3_1");
    let ends = |state: &LinkState, at: &str| -> Vec<String> {
        let hops = next_hops(&fabric, state, to);
        hops.at(tor(at)).iter().map(|&link| fabric.node(fabric.link(link).to).name.clone()).collect()
    };
    assert_eq!(ends(&state, "e0_0"), ["a0_0", "a0_1"]);
    assert_eq!(ends(&state, "a0_1"), ["c2", "c3"]);
    assert_eq!(ends(&state, "c2"), ["a3_1"]);
    assert_eq!(ends(&state, "a3_1"), ["e3_1"]);
    assert_eq!(ends(&state, "e3_1"), [""; 0]);
    assert_eq!(ends(&state, "h0"), [""; 0]);
    state.set_cable(fabric.link_between(tor("a3_1"), tor("e3_1")).unwrap(), false);
    assert_eq!(ends(&state, "e0_0"), ["a0_0"]);
    assert_eq!(ends(&state, "a3_1"), ["e3_0"]);
    assert_eq!(ends(&state, "c2"), ["a3_1"]);
}

#[test]
fn routes_of_a_k32_fat_tree_take_seconds_at_most() {
    let fabric = fabric_from_spec("fat-tree:k=32").unwrap();
    let state = LinkState::of(&fabric);
    let table = RouteTable::new(&fabric, &state);
    // Groups per switch: one upwards for a ToR, one upwards and 16 downwards for an aggregation switch, 32 for a core
    // switch.
    assert_eq!(table.group_count(), 1 + 512 + 512 * 17 + 256 * 32);
    let last = fabric.tors().len() - 1;
    assert_eq!(table.next_hops(fabric.tors()[0], last).len(), 16);
    assert_eq!(table.next_hops(fabric.hosts()[0], last), []);
    assert_eq!(table.next_hops(fabric.tors()[last], last), []);
}

#[test]
fn summary_of_known_fabrics() {
    let summary = FabricSummary::of(&fabric_from_spec("fat-tree:k=8").unwrap());
    assert_eq!((summary.nodes, summary.hosts, summary.switches, summary.tors), (208, 128, 80, 32));
    assert_eq!((summary.links, summary.cables, summary.switch_cables), (768, 384, 256));
    assert_eq!(summary.tiers.iter().map(|tier| tier.nodes).collect::<Vec<_>>(), [128, 32, 32, 16]);
    let paths = summary.shortest_paths.unwrap();
    assert_eq!((paths.min, paths.median, paths.max), (4, 16, 16));
    assert_eq!((summary.diameter_hops, summary.pairs_sampled), (Some(4), 32 * 31));
    // Full bisection: the 64 hosts of one half can all send to the other half at full rate.
    assert_eq!(summary.bisection_bps, Some(64_000_000_000));
    assert_eq!(summary.oversubscription, Some(1.0));
    // Six links in each direction, each with 1 us and one frame at 1 Gbit/s. With full queues, a hundred frames wait
    // at each link.
    assert_eq!(summary.round_trip_ps, Some((12 * (1_000_000 + 12_112_000), 12 * (1_000_000 + 101 * 12_112_000))));
    let summary = FabricSummary::of(&fabric_from_spec("leaf-spine:switch_rate=10Gbps").unwrap());
    assert_eq!(summary.oversubscription, Some(0.5));
    assert_eq!(summary.bisection_bps, Some(80_000_000_000));
    assert_eq!(
        (summary.host_rate_bps.0, summary.switch_rate_bps),
        (1_000_000_000, Some((10_000_000_000, 10_000_000_000)))
    );
    let summary = FabricSummary::of(&fabric_from_spec("leaf-spine:leaves=1,hosts=3,spines=1").unwrap());
    assert_eq!((summary.shortest_paths, summary.bisection_bps, summary.pairs_sampled), (None, None, 0));
}

/// A small graph with parallel cables, some of them down, and two of its switches.
fn any_graph() -> impl Strategy<Value = (Fabric, LinkState, NodeId, NodeId)> {
    let cables = prop::collection::vec((0u32..8, 0u32..8), 0..14);
    (2u32..8, cables, prop::collection::vec(0u32..32, 0..3), 0u32..8, 0u32..8).prop_map(|(n, cables, down, a, b)| {
        let fabric = graph(n, &cables);
        let mut state = LinkState::of(&fabric);
        for cable in down {
            let link = LinkId(2 * cable);
            if link.index() < fabric.links().len() && fabric.is_switch_link(link) {
                state.set_cable(link, false);
            }
        }
        (fabric, state, NodeId(a % n), NodeId(b % n))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn k_shortest_paths_are_all_simple_paths_in_order((fabric, state, from, to) in any_graph()) {
        let expected = all_simple(&fabric, &state, from, to);
        let found: Vec<Path> = k_shortest(&fabric, &state, from, to).collect();
        prop_assert_eq!(&found, &expected);
        prop_assert!(found.iter().all(|path| path.check(&fabric).is_ok() && path.is_up(&state)));
    }

    #[test]
    fn shortest_paths_are_the_first_of_all((fabric, state, from, to) in any_graph()) {
        let all = all_simple(&fabric, &state, from, to);
        let least = all.first().map(Path::hops);
        let expected: Vec<Path> = all.into_iter().filter(|path| Some(path.hops()) == least).collect();
        let paths = ShortestPaths::between(&fabric, &state, from, to);
        prop_assert_eq!(paths.count(), expected.len() as u128);
        prop_assert_eq!(paths.hops(), least);
        prop_assert_eq!(paths.iter().collect::<Vec<_>>(), expected);
        prop_assert_eq!(distances_to(&fabric, &state, to).hops(from).map(|hops| hops as usize), least);
    }

    #[test]
    fn simple_paths_are_all_up_to_the_bound((fabric, state, from, to) in any_graph(), most_hops in 0usize..9) {
        let all = all_simple(&fabric, &state, from, to);
        let mut expected: Vec<Path> = all.into_iter().filter(|path| path.hops() <= most_hops).collect();
        // Depth first in port order is ascending order of links.
        expected.sort();
        let found: Vec<Path> = simple_paths(&fabric, &state, from, to, most_hops).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn disjoint_paths_match_the_minimum_cut_with_fewest_hops((fabric, state, from, to) in any_graph(), k in 0usize..5) {
        prop_assume!(from != to);
        let all = all_simple(&fabric, &state, from, to);
        let found = edge_disjoint(&fabric, &state, from, to, k);
        prop_assert_eq!(found.len(), k.min(min_cut(&fabric, &state, from, to)));
        assert_disjoint(&found);
        prop_assert!(found.windows(2).all(|pair| pair[0].hops() <= pair[1].hops()));
        prop_assert!(found.iter().all(|path| all.contains(path)));
        let total: usize = found.iter().map(Path::hops).sum();
        prop_assert_eq!(Some(total), fewest_hops(&all, found.len(), &mut BTreeSet::new(), 0));
    }

    #[test]
    fn routes_agree_with_next_hops_and_never_loop((fabric, state, _from, to) in any_graph()) {
        let table = RouteTable::new(&fabric, &state);
        let hops = next_hops(&fabric, &state, to);
        let column = fabric.tor_index(to).unwrap();
        let distances = distances_to(&fabric, &state, to);
        for &switch in fabric.switches() {
            prop_assert_eq!(table.next_hops(switch, column), hops.at(switch));
            prop_assert_eq!(hops.at(switch).is_empty(), switch == to || distances.hops(switch).is_none());
            for &link in hops.at(switch) {
                prop_assert!(state.is_up(link));
                prop_assert_eq!(fabric.link(link).from, switch);
                prop_assert_eq!(distances.hops(fabric.link(link).to).map(|h| h + 1), distances.hops(switch));
            }
        }
    }

    #[test]
    fn path_sets_agree_with_their_searches((fabric, state, from, to) in any_graph(), k in 0usize..5) {
        for selection in [
            PathSelection::Shortest,
            PathSelection::KShortest(k),
            PathSelection::EdgeDisjoint(k),
            PathSelection::SimpleUpTo(k),
        ] {
            let set = PathSet::new(&fabric, &state, from, to, selection);
            let listed: Vec<Path> = set.iter().collect();
            prop_assert_eq!(set.count_up_to(u128::MAX), listed.len() as u128);
            prop_assert_eq!(set.is_empty(), listed.is_empty());
            for index in 0..=listed.len() {
                prop_assert_eq!(set.nth(index as u128), listed.get(index).cloned());
            }
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), listed);
        }
    }
}

/// Returns the fewest hops that `count` disjoint paths of `all[start..]` have in total, by trying all choices.
fn fewest_hops(all: &[Path], count: usize, used: &mut BTreeSet<u32>, start: usize) -> Option<usize> {
    if count == 0 {
        return Some(0);
    }
    let mut best = None;
    for (index, path) in all.iter().enumerate().skip(start) {
        let cables: Vec<u32> = path.links().iter().map(|link| link.cable()).collect();
        if cables.iter().any(|cable| used.contains(cable)) {
            continue;
        }
        used.extend(&cables);
        if let Some(rest) = fewest_hops(all, count - 1, used, index + 1) {
            let total = rest + path.hops();
            best = Some(best.map_or(total, |known: usize| known.min(total)));
        }
        for cable in &cables {
            used.remove(cable);
        }
    }
    best
}
