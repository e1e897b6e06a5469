//! Shares of paths that are updated from one allocation to the next, and flows rounded onto them.

use crate::common::FatTree;
use pathloom_allocation::fractional::{
    allocate, drawn, filled, fractional, Allocated, Commodity, Share, Shares, Whole,
};
use pathloom_allocation::{Network, NetworkLink};
use proptest::prelude::*;
use std::collections::BTreeMap;

const RATE_BPS: u64 = 1_000_000_000;
const EPSILON: f64 = 0.05;

type Demands = BTreeMap<(u32, u32), f64>;

/// A k=4 FatTree in which some cables are cut.
fn cut(cables: &[usize]) -> Network {
    let tree = FatTree::new(4, RATE_BPS);
    let (mut links, switch_cables) = (tree.links(), tree.switch_cables());
    for &cable in cables {
        let link = switch_cables[cable % switch_cables.len()] as usize;
        (links[link].capacity_bps, links[link + 1].capacity_bps) = (0, 0);
    }
    Network::new(links)
}

/// Whether λ times all demands fit on their shares, and whether these sum to 1.
fn check(network: &Network, demands: &Demands, found: &Allocated) {
    let mut load = vec![0.0; network.links().len()];
    for (pair, paths) in &found.shares {
        assert!((paths.iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 1e-9, "{pair:?}: {paths:?}");
        for (path, share) in paths {
            path.iter().for_each(|&link| load[link as usize] += share * demands[pair] * found.lambda);
        }
    }
    for (load, link) in load.iter().zip(network.links()) {
        assert!(*load <= link.capacity_bps as f64 * (1.0 + 1e-6), "{load} on {link:?}");
    }
}

#[test]
fn an_arrival_leaves_the_shares_of_others_as_they_are_where_it_can() {
    let network = cut(&[0, 9, 18]);
    let mut demands: Demands = [((0, 4), 1e9), ((1, 5), 1e9), ((3, 7), 1e9)].into();
    let before = allocate(&network, &demands, &Shares::new(), EPSILON).expect("good demands");
    demands.insert((6, 2), 1e8);
    let after = allocate(&network, &demands, &before.shares, EPSILON).expect("good demands");
    assert!(!after.all_solved && after.shares.len() == 4);
    assert!(before.shares.iter().all(|(pair, paths)| after.shares[pair] == *paths));
    check(&network, &demands, &after);
}

#[test]
fn pairs_without_a_path_get_no_shares_and_limit_nobody() {
    let link = |from, to, capacity_bps| NetworkLink { ends: Some((from, to)), capacity_bps };
    let network = Network::new(vec![link(0, 1, 10), link(1, 2, 0)]);
    let demands: Demands = [((0, 1), 5.0), ((0, 2), 5.0), ((0, 0), 5.0), ((7, 8), 5.0)].into();
    let found = allocate(&network, &demands, &Shares::new(), EPSILON).expect("good demands");
    assert_eq!(found.shares.keys().copied().collect::<Vec<_>>(), [(0, 1)]);
    assert!((found.lambda - 2.0).abs() < 1e-9);
    assert!(allocate(&network, &[((0, 1), -1.0)].into(), &Shares::new(), EPSILON).is_err());
    assert!(allocate(&network, &Demands::new(), &Shares::new(), 0.0).is_err());
    let flow = Whole { pair: 0, demand_bps: 1.0, present: Some(3) };
    assert_eq!((drawn(&[], 0.5), filled(&network, &[&[]], &[flow])), (None, vec![None]));
}

fn paths(shares: &[f64]) -> Vec<Share> {
    let whole: f64 = shares.iter().sum();
    shares.iter().enumerate().map(|(index, share)| (vec![index as u32].into(), share / whole)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever came, went or failed before, the updated allocation is as good as a new one.
    #[test]
    fn the_incremental_result_equals_the_full_one_within_epsilon(
        steps in prop::collection::vec(
            (prop::collection::btree_map((0..8u32, 0..8u32), 1e7..2e9, 1..12), prop::collection::vec(0..64usize, 0..4)),
            1..5,
        ),
    ) {
        let mut shares = Shares::new();
        for (demands, cables) in steps {
            let network = cut(&cables);
            let found = allocate(&network, &demands, &shares, EPSILON).expect("good demands");
            prop_assert_eq!(&found, &allocate(&network, &demands, &shares, EPSILON).expect("good demands"));
            check(&network, &demands, &found);
            let of = |(&(src, dst), &demand_bps): (&(u32, u32), &f64)| Commodity { src, dst, demand_bps };
            let served = demands.iter().filter(|(pair, _)| found.shares.contains_key(pair));
            let full = fractional(&network, &served.map(of).collect::<Vec<_>>(), EPSILON).expect("good demands");
            if full.lambda.is_finite() {
                prop_assert!(found.lambda >= (1.0 - EPSILON) * full.lambda, "{} for {}", found.lambda, full.lambda);
                prop_assert!(found.lambda <= full.bound * (1.0 + 1e-9), "{} above {}", found.lambda, full.bound);
            }
            shares = found.shares;
        }
    }

    /// Over evenly spread points, each path is drawn as often as its share says.
    #[test]
    fn randomised_rounding_keeps_the_expected_shares(shares in prop::collection::vec(0.0..1.0f64, 1..9)) {
        prop_assume!(shares.iter().sum::<f64>() > 0.01);
        let paths = paths(&shares);
        let mut count = vec![0.0; paths.len()];
        (0..10_000).for_each(|at| count[drawn(&paths, (f64::from(at) + 0.5) / 1e4).expect("paths")] += 1e-4);
        for ((_, share), count) in paths.iter().zip(count) {
            prop_assert!((share - count).abs() < 2e-4, "{share} {count}");
        }
    }

    /// No path gets more than its share and one flow.
    #[test]
    fn filling_exceeds_no_share_by_more_than_a_flow(
        flows in prop::collection::vec((0..8u32, 0..8u32, 1e7..2e9, prop::option::of(0..9usize)), 1..40),
        cables in prop::collection::vec(0..64usize, 0..4),
    ) {
        let network = cut(&cables);
        let mut demands = Demands::new();
        flows.iter().for_each(|&(src, dst, demand, _)| *demands.entry((src, dst)).or_default() += demand);
        let shares = allocate(&network, &demands, &Shares::new(), EPSILON).expect("good demands").shares;
        let ends: Vec<(u32, u32)> = demands.keys().copied().collect();
        let pairs: Vec<&[Share]> =
            ends.iter().map(|pair| shares.get(pair).map_or(&[][..], Vec::as_slice)).collect();
        let whole = |&(src, dst, demand_bps, present): &(u32, u32, f64, Option<usize>)| Whole {
            pair: ends.binary_search(&(src, dst)).expect("a pair"), demand_bps, present,
        };
        let wholes: Vec<Whole> = flows.iter().map(whole).collect();
        let chosen = filled(&network, &pairs, &wholes);
        prop_assert_eq!(&chosen, &filled(&network, &pairs, &wholes));
        for (pair, paths) in pairs.iter().enumerate() {
            let here = || wholes.iter().zip(&chosen).filter(|(flow, _)| flow.pair == pair);
            let most = here().map(|(flow, _)| flow.demand_bps).fold(0.0, f64::max);
            for (at, (_, share)) in paths.iter().enumerate() {
                let load: f64 = here().filter(|(_, path)| **path == Some(at)).map(|(flow, _)| flow.demand_bps).sum();
                prop_assert!(load <= share * demands[&ends[pair]] + most + 1.0, "{load} on path {at} of {paths:?}");
            }
            prop_assert!(here().all(|(_, path)| path.is_some() != paths.is_empty()));
        }
    }
}
