//! Maximum concurrent flow, compared with closed forms, an independent linear program, and its own certificates.

use crate::common::FatTree;
use pathloom_allocation::fractional::{fractional, Commodity, Fractional, FractionalError, Split};
use pathloom_allocation::{Network, NetworkLink};
use proptest::prelude::*;
use rand::RngExt;
use rand_pcg::Pcg64;

const RATE_BPS: u64 = 1_000_000_000;
const EPSILON: f64 = 0.05;

fn rng(seed: u64) -> Pcg64 {
    Pcg64::new(u128::from(seed), 11)
}

fn commodities(tree: &FatTree, pairs: &[(u32, u32)], demand_bps: f64) -> Vec<Commodity> {
    let commodity = |&(src, dst): &(u32, u32)| Commodity { src: tree.tor_of(src), dst: tree.tor_of(dst), demand_bps };
    pairs.iter().map(commodity).collect()
}

/// Every host sends to `ways` hosts at random.
fn random_pairs(tree: &FatTree, ways: u32, rng: &mut Pcg64) -> Vec<(u32, u32)> {
    (0..ways * tree.hosts()).map(|index| (index / ways, rng.random_range(0..tree.hosts()))).collect()
}

/// The links of a tree in which some cables are cut.
fn cut(tree: &FatTree, cables: &[u32]) -> Vec<NetworkLink> {
    let mut links = tree.links();
    for &cable in cables {
        links[cable as usize].capacity_bps = 0;
        links[cable as usize + 1].capacity_bps = 0;
    }
    links
}

/// Checks a result: loads are those of the split and fit, shares sum to 1, and paths join their ends.
fn check(links: &[NetworkLink], demands: &[Commodity], found: &Fractional) {
    assert!(found.lambda <= found.bound);
    for (link, &load) in links.iter().zip(&found.load_bps) {
        assert!(load <= link.capacity_bps as f64 * (1.0 + 1e-9), "{load} on {link:?}");
    }
    let Split::Paths(paths) = &found.split else { return };
    let mut load = vec![0.0; links.len()];
    for (commodity, paths) in demands.iter().zip(paths) {
        let whole: f64 = paths.iter().map(|(_, share)| share).sum();
        assert!(commodity.src == commodity.dst || (whole - 1.0).abs() < 1e-9, "shares of {commodity:?} sum to {whole}");
        for (path, share) in paths {
            let mut node = commodity.src;
            for &link in path {
                let (from, to) = links[link as usize].ends.expect("no access link");
                assert_eq!(from, node);
                load[link as usize] += share * commodity.demand_bps * found.lambda;
                node = to;
            }
            assert_eq!(node, commodity.dst);
        }
    }
    for (a, b) in load.iter().zip(&found.load_bps) {
        assert!((a - b).abs() <= 1e-6 * RATE_BPS as f64, "{a} and {b}");
    }
}

/// λ = min((k/2) / max ToR load, (k/2)² / max pod load), loads in links.
fn closed_form(tree: &FatTree, demands: &[Commodity]) -> f64 {
    let (half, tors) = (tree.half(), tree.tors() as usize);
    let mut load = vec![[0.0f64; 4]; tors];
    for commodity in demands.iter().filter(|c| c.src != c.dst) {
        let demand = commodity.demand_bps / RATE_BPS as f64;
        load[commodity.src as usize][0] += demand;
        load[commodity.dst as usize][1] += demand;
        if commodity.src / half != commodity.dst / half {
            load[(commodity.src / half) as usize][2] += demand;
            load[(commodity.dst / half) as usize][3] += demand;
        }
    }
    let most = |column: usize| load.iter().map(|row| row[column]).fold(0.0, f64::max);
    let half = f64::from(half);
    (half / most(0).max(most(1))).min(half * half / most(2).max(most(3)))
}

#[test]
fn a_healthy_fat_tree_reaches_the_closed_form_without_a_round() {
    for k in [4, 8] {
        let tree = FatTree::new(k, RATE_BPS);
        for seed in 0..10 {
            let mut rng = rng(seed);
            let pairs = if seed % 2 == 0 { tree.permutation(&mut rng) } else { random_pairs(&tree, 4, &mut rng) };
            let demands = commodities(&tree, &pairs, 0.3e9);
            let found = fractional(&tree.network(), &demands, EPSILON).expect("good demands");
            let exact = closed_form(&tree, &demands);
            assert!((found.lambda - exact).abs() < 1e-9 * exact, "k={k}, seed {seed}: {} for {exact}", found.lambda);
            assert!(found.bound < exact * 1.002 && found.rounds == 0 && found.split == Split::Even);
            check(&tree.links(), &demands, &found);
        }
    }
}

#[test]
fn pods_that_are_the_bottleneck_are_detected() {
    // Half of the links between aggregation and core are missing, evenly. So the pods are the bottleneck, not the
    // ToRs.
    let tree = FatTree::new(4, RATE_BPS);
    let gone: Vec<u32> = tree.switch_cables()[16..].iter().copied().step_by(2).collect();
    let links = cut(&tree, &gone);
    let pairs: Vec<(u32, u32)> = (0..16).map(|host| (host, (host + 4) % 16)).collect();
    let demands = commodities(&tree, &pairs, 1e9);
    let found = fractional(&Network::new(links.clone()), &demands, EPSILON).expect("good demands");
    assert!((found.lambda - 0.5).abs() < 1e-9 && found.bound < 0.501, "{} to {}", found.lambda, found.bound);
    check(&links, &demands, &found);
}

#[test]
fn failed_fat_trees_are_solved_to_within_a_hundredth() {
    for (k, seeds) in [(4, 12), (8, 4)] {
        let tree = FatTree::new(k, RATE_BPS);
        for seed in 0..seeds {
            let mut rng = rng(seed);
            let links = cut(&tree, &tree.failures(0.05, &mut rng));
            let pairs = if seed % 2 == 0 { tree.permutation(&mut rng) } else { random_pairs(&tree, 4, &mut rng) };
            let demands = commodities(&tree, &pairs, 1e9);
            let network = Network::new(links.clone());
            let found = fractional(&network, &demands, EPSILON).expect("good demands");
            assert!(found.lambda >= 0.99 * found.bound, "k={k}, seed {seed}: {} to {}", found.lambda, found.bound);
            check(&links, &demands, &found);
            assert_eq!(fractional(&network, &demands, EPSILON).as_ref(), Ok(&found));
        }
    }
}

#[test]
fn unusual_input_has_a_defined_result() {
    let link = |from, to, capacity_bps| NetworkLink { ends: Some((from, to)), capacity_bps };
    let network = Network::new(vec![link(0, 1, 10), link(1, 2, 0), link(1, 3, 4)]);
    let demand = |src, dst, demand_bps| Commodity { src, dst, demand_bps };
    let solve = |demands: &[Commodity]| fractional(&network, demands, EPSILON);
    // No traffic, and traffic that does not leave its node.
    assert_eq!(solve(&[]).map(|found| found.lambda), Ok(f64::INFINITY));
    assert_eq!(solve(&[demand(0, 0, 5.0)]).map(|found| found.lambda), Ok(f64::INFINITY));
    // A link of capacity 0, a link in only one direction, a node without links.
    let found = solve(&[demand(0, 1, 5.0), demand(0, 2, 1.0), demand(1, 0, 1.0), demand(0, 9, 1.0)]).expect("demands");
    assert_eq!((found.lambda, found.bound, found.cut_off), (0.0, 0.0, vec![1, 2, 3]));
    let found = solve(&[demand(0, 3, 1.0), demand(0, 3, 1.0), demand(0, 1, 1.0)]).expect("demands");
    assert!((found.lambda - 2.0).abs() < 1e-9);
    for demand_bps in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(solve(&[demand(0, 1, demand_bps)]), Err(FractionalError::BadDemand { index: 0, .. })));
    }
    for epsilon in [0.0, 1.0, f64::NAN] {
        let answer = fractional(&network, &[demand(0, 1, 1.0)], epsilon);
        assert!(matches!(answer, Err(FractionalError::BadEpsilon(_))));
    }
}

/// The optimum by another method: all simple paths, and the simplex method with Bland's rule. It maximises λ subject
/// to λ·d − Σ x ≤ 0 for every commodity and Σ x ≤ c for every link.
fn simplex(links: &[NetworkLink], demands: &[Commodity]) -> f64 {
    let mut columns: Vec<(usize, Vec<u32>)> = Vec::new();
    for (index, commodity) in demands.iter().enumerate() {
        walk(links, commodity.src, commodity.dst, &mut Vec::new(), &mut |path| columns.push((index, path.to_vec())));
    }
    let (rows, width) = (demands.len() + links.len(), 1 + columns.len());
    let mut table = vec![vec![0.0f64; width + rows + 1]; rows + 1];
    for (index, commodity) in demands.iter().enumerate() {
        table[index][0] = commodity.demand_bps;
    }
    for (column, (commodity, path)) in columns.iter().enumerate() {
        table[*commodity][1 + column] = -1.0;
        path.iter().for_each(|&link| table[demands.len() + link as usize][1 + column] = 1.0);
    }
    for (index, link) in links.iter().enumerate() {
        table[demands.len() + index][width + rows] = link.capacity_bps as f64;
    }
    for row in 0..rows {
        table[row][width + row] = 1.0;
    }
    table[rows][0] = -1.0;
    while let Some(enter) = (0..width + rows).find(|&column| table[rows][column] < -1e-9) {
        let ratio = |row: usize| table[row][width + rows] / table[row][enter];
        let leave = (0..rows).filter(|&row| table[row][enter] > 1e-9).min_by(|&a, &b| ratio(a).total_cmp(&ratio(b)));
        let leave = leave.expect("bounded: every path has a link");
        let pivot = table[leave][enter];
        table[leave].iter_mut().for_each(|value| *value /= pivot);
        let source = table[leave].clone();
        for (_, target) in table.iter_mut().enumerate().filter(|(row, _)| *row != leave) {
            let factor = target[enter];
            target.iter_mut().zip(&source).for_each(|(target, source)| *target -= factor * source);
        }
    }
    table[rows][width + rows]
}

/// All simple paths from `node` to `dst` over links with capacity.
fn walk(links: &[NetworkLink], node: u32, dst: u32, path: &mut Vec<u32>, found: &mut impl FnMut(&[u32])) {
    if node == dst {
        return found(path);
    }
    for (index, link) in links.iter().enumerate().filter(|(_, link)| link.capacity_bps > 0) {
        let (from, to) = link.ends.expect("no access links here");
        let seen = path.iter().any(|&link| links[link as usize].ends.is_some_and(|(from, _)| from == to));
        if from == node && !seen {
            path.push(index as u32);
            walk(links, to, dst, path, found);
            path.pop();
        }
    }
}

/// A ring, so that every node can be reached, and some chords.
fn small_graph() -> impl Strategy<Value = (Vec<NetworkLink>, Vec<Commodity>)> {
    let chord = (0..5u32, 0..5u32, 1..20u64);
    let demand = (0..5u32, 1..5u32, 1..10u32);
    (prop::collection::vec(1..20u64, 5), prop::collection::vec(chord, 0..7), prop::collection::vec(demand, 1..5))
        .prop_map(|(ring, chords, demands)| {
            let ring = (0..5).zip(ring).map(|(from, capacity)| (from, (from + 1) % 5, capacity));
            let links = ring.chain(chords).filter(|(from, to, _)| from != to);
            let links = links.map(|(from, to, capacity_bps)| NetworkLink { ends: Some((from, to)), capacity_bps });
            let commodity = |(src, step, demand): (u32, u32, u32)| Commodity {
                src,
                dst: (src + step) % 5,
                demand_bps: f64::from(demand),
            };
            (links.collect(), demands.into_iter().map(commodity).collect())
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// On a healthy FatTree, λ equals the closed form for any demands, and its proof needs no round.
    #[test]
    fn any_demands_on_a_healthy_fat_tree_have_the_closed_form(
        half in 1..5u32,
        demands in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1e3..1e10), 1..80),
    ) {
        let tree = FatTree::new(2 * half, RATE_BPS);
        let tor = |index: prop::sample::Index| index.index(tree.tors() as usize) as u32;
        let demands: Vec<Commodity> = demands
            .into_iter()
            .map(|(src, dst, demand_bps)| Commodity { src: tor(src), dst: tor(dst), demand_bps })
            .collect();
        let found = fractional(&tree.network(), &demands, EPSILON).expect("good demands");
        let exact = closed_form(&tree, &demands);
        prop_assert!(found.lambda == exact || (found.lambda / exact - 1.0).abs() < 1e-9, "{} for {exact}", found.lambda);
        prop_assert!(found.rounds == 0 && (found.lambda.is_infinite() || found.bound < exact * 1.002));
    }

    /// On any small graph, λ is within the target gap of the optimum, and the bound is not below it.
    #[test]
    fn small_graphs_agree_with_the_simplex_method((links, demands) in small_graph()) {
        let found = fractional(&Network::new(links.clone()), &demands, EPSILON).expect("good demands");
        let exact = simplex(&links, &demands);
        prop_assert!(found.lambda <= exact * (1.0 + 1e-6), "λ {} above the optimum {exact}", found.lambda);
        prop_assert!(found.bound >= exact * (1.0 - 1e-6), "bound {} below the optimum {exact}", found.bound);
        prop_assert!(found.lambda >= exact * 0.99, "λ {} of {exact} after {} rounds", found.lambda, found.rounds);
        check(&links, &demands, &found);
    }
}
