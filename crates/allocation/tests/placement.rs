//! Global First Fit and Simulated Annealing: known cases, and properties that hold for any input.

use pathloom_allocation::placement::{
    anneal, first_fit, AnnealedFlow, AnnealingSettings, Destination, PathTable, Paths, Placed, Request,
};
use proptest::prelude::*;
use rand_pcg::Pcg64;

const SETTINGS: AnnealingSettings = AnnealingSettings { iterations: 1000, cooling: 0.5, unit_bps: 10 };

fn rng(seed: u64) -> Pcg64 {
    Pcg64::new(u128::from(seed), 7)
}

/// Two ends with `count` paths of two links each: path p has links 2p and 2p + 1.
fn parallel(count: u32) -> PathTable {
    let mut table = PathTable::default();
    table.push((0..count).map(|path| vec![2 * path, 2 * path + 1]).collect());
    table
}

fn new(demand_bps: u64) -> Request<'static> {
    Request { pair: 0, demand_bps, present: None }
}

#[test]
fn first_fit_takes_the_first_path_with_room() {
    let requests = [new(6), new(6), new(4), new(5), new(4)];
    let result = first_fit(&[10, 10, 10, 10], &requests, &parallel(2));
    assert_eq!(result.placed, [Placed::Path(0), Placed::Path(1), Placed::Path(0), Placed::Nowhere, Placed::Path(1)]);
    assert_eq!(result.reserved_bps, [10, 10, 10, 10]);
    // Links examined by each request: two; one refused and two taken; two; two refused; one refused and two taken.
    assert_eq!(result.operations, 2 + 3 + 2 + 2 + 3);
}

#[test]
fn first_fit_moves_only_flows_that_no_longer_fit() {
    let (left, right) = ([0u32, 1], [2u32, 3]);
    let on = |links, demand_bps| Request { pair: 0, demand_bps, present: Some(links) };
    let result = first_fit(&[10; 4], &[on(&left, 6), on(&left, 5), on(&right, 1), new(5)], &parallel(2));
    assert_eq!(result.placed, [Placed::Kept, Placed::Path(1), Placed::Kept, Placed::Nowhere]);
    // If no path has capacity, a flow stays on its path and is counted there.
    let result = first_fit(&[10; 4], &[on(&left, 9), on(&left, 8), on(&right, 9), new(1)], &parallel(2));
    assert_eq!(result.placed, [Placed::Kept, Placed::Nowhere, Placed::Kept, Placed::Path(1)]);
    assert_eq!(result.reserved_bps, [17, 17, 10, 10]);
}

#[test]
fn handles_missing_paths_flows_and_links() {
    let mut cut = PathTable::default();
    cut.push(Vec::new());
    assert_eq!(first_fit(&[], &[new(1)], &cut).placed, [Placed::Nowhere]);
    assert_eq!(first_fit(&[], &[new(1)], &parallel(1)).placed, [Placed::Nowhere]);
    let host = [Destination { slot: 7, group: 0 }];
    let flow = |destination, demand_bps| AnnealedFlow { destination, pair: 0, demand_bps };
    assert_eq!(anneal(&[], &host, &[flow(0, 1)], &cut, &SETTINGS, &mut rng(1)).paths, [None]);
    assert_eq!(anneal(&[], &[], &[flow(0, 1)], &parallel(2), &SETTINGS, &mut rng(1)).paths, [None]);
    assert_eq!(anneal(&[], &[], &[], &parallel(2), &SETTINGS, &mut rng(1)).energy_bps, 0);
    let unknown_links =
        anneal(&[], &host, &[flow(0, u64::MAX), flow(0, u64::MAX)], &parallel(2), &SETTINGS, &mut rng(1));
    assert_eq!(unknown_links.energy_bps, 4 * u128::from(u64::MAX));
}

/// A two-tier Clos of `leaves` leaves and `spines` spines; up and down links of capacity 10.
struct Clos {
    leaves: u32,
    spines: u32,
}

impl Clos {
    fn capacity_bps(&self) -> Vec<u64> {
        vec![10; (2 * self.leaves * self.spines) as usize]
    }

    fn pair(&self, from: u32, to: u32) -> u32 {
        from * self.leaves + to
    }
}

impl Paths for Clos {
    fn count(&self, _pair: u32) -> u64 {
        u64::from(self.spines)
    }

    fn links(&self, pair: u32, index: u64, links: &mut Vec<u32>) {
        let (from, to, spine) = (pair / self.leaves, pair % self.leaves, index as u32);
        links.extend([from * self.spines + spine, (self.leaves + to) * self.spines + spine]);
    }
}

/// Exceeded capacity of a placement, computed independently.
fn exceeded(capacity_bps: &[u64], flows: &[AnnealedFlow], chosen: &[Option<u64>], paths: &impl Paths) -> u128 {
    let mut load_bps = vec![0u128; capacity_bps.len()];
    for (flow, index) in flows.iter().zip(chosen) {
        let mut links = Vec::new();
        index.map(|index| paths.links(flow.pair, index, &mut links));
        links.iter().for_each(|&link| load_bps[link as usize] += u128::from(flow.demand_bps));
    }
    load_bps.iter().zip(capacity_bps).map(|(load, &capacity)| load.saturating_sub(u128::from(capacity))).sum()
}

/// All hosts of leaf l send to those of leaf l + 1, one full-rate flow each. This fits exactly if no two flows share
/// a spine.
fn shift(clos: &Clos) -> (Vec<Destination>, Vec<AnnealedFlow>) {
    let hosts = clos.leaves * clos.spines;
    let destinations = (0..hosts).map(|host| Destination { slot: 0, group: host / clos.spines }).collect();
    let flows = (0..hosts).map(|host| {
        let leaf = host / clos.spines;
        let pair = clos.pair((leaf + clos.leaves - 1) % clos.leaves, leaf);
        AnnealedFlow { destination: host, pair, demand_bps: 10 }
    });
    (destinations, flows.collect())
}

#[test]
fn annealing_finds_a_placement_that_fits() {
    let clos = Clos { leaves: 4, spines: 4 };
    let (destinations, flows) = shift(&clos);
    for seed in 0..10 {
        let result = anneal(&clos.capacity_bps(), &destinations, &flows, &clos, &SETTINGS, &mut rng(seed));
        assert_eq!(result.energy_bps, 0, "seed {seed}");
        assert_eq!(exceeded(&clos.capacity_bps(), &flows, &result.paths, &clos), 0);
    }
}

#[test]
fn annealing_starts_from_the_last_round() {
    let clos = Clos { leaves: 4, spines: 4 };
    let (mut destinations, flows) = shift(&clos);
    let first = anneal(&clos.capacity_bps(), &destinations, &flows, &clos, &SETTINGS, &mut rng(1));
    for (destination, slot) in destinations.iter_mut().zip(&first.slots) {
        destination.slot = *slot;
    }
    let second = anneal(&clos.capacity_bps(), &destinations, &flows, &clos, &SETTINGS, &mut rng(2));
    assert_eq!(second.paths, first.paths);
    assert_eq!(second.operations, 2 * flows.len() as u64);
}

fn clos_with_flows() -> impl Strategy<Value = (u32, u32, Vec<(u32, u32, u64)>)> {
    (2u32..5, 1u32..6).prop_flat_map(|(leaves, spines)| {
        let flow = (0..leaves, 0..leaves * 3, 1u64..15);
        (Just(leaves), Just(spines), prop::collection::vec(flow, 0..40))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn annealing_reports_its_energy_and_never_gets_worse((leaves, spines, raw) in clos_with_flows(), seed: u64) {
        let clos = Clos { leaves, spines };
        let destinations: Vec<Destination> =
            (0..leaves * 3).map(|host| Destination { slot: host, group: host / 3 }).collect();
        let flows: Vec<AnnealedFlow> = raw
            .iter()
            .map(|&(from, host, demand_bps)| AnnealedFlow { destination: host, pair: clos.pair(from, host / 3), demand_bps })
            .collect();
        let capacity_bps = clos.capacity_bps();
        let settings = AnnealingSettings { iterations: 200, ..SETTINGS };
        let start = anneal(&capacity_bps, &destinations, &flows, &clos, &AnnealingSettings { iterations: 0, ..settings }, &mut rng(seed));
        let result = anneal(&capacity_bps, &destinations, &flows, &clos, &settings, &mut rng(seed));
        prop_assert_eq!(exceeded(&capacity_bps, &flows, &start.paths, &clos), start.energy_bps);
        prop_assert_eq!(exceeded(&capacity_bps, &flows, &result.paths, &clos), result.energy_bps);
        prop_assert!(result.energy_bps <= start.energy_bps);
        for (flow, path) in flows.iter().zip(&result.paths) {
            prop_assert_eq!(*path, Some(u64::from(result.slots[flow.destination as usize])));
        }
        let again = anneal(&capacity_bps, &destinations, &flows, &clos, &settings, &mut rng(seed));
        prop_assert_eq!(again, result);
    }

    #[test]
    fn first_fit_never_overfills_a_link((leaves, spines, raw) in clos_with_flows()) {
        let clos = Clos { leaves, spines };
        let requests: Vec<Request> = raw
            .iter()
            .map(|&(from, host, demand_bps)| Request { pair: clos.pair(from, host / 3), demand_bps, present: None })
            .collect();
        let capacity_bps = clos.capacity_bps();
        let result = first_fit(&capacity_bps, &requests, &clos);
        let mut load_bps = vec![0u64; capacity_bps.len()];
        for (request, placed) in requests.iter().zip(&result.placed) {
            let mut has_room = |index: u64, take: bool| {
                let mut links = Vec::new();
                clos.links(request.pair, index, &mut links);
                let room = links.iter().all(|&l| load_bps[l as usize] + request.demand_bps <= capacity_bps[l as usize]);
                links.iter().filter(|_| take).for_each(|&link| load_bps[link as usize] += request.demand_bps);
                room
            };
            let tried = if let Placed::Path(index) = placed { *index } else { u64::from(spines) };
            prop_assert!((0..tried).all(|index| !has_room(index, false)), "an earlier path had room");
            if let Placed::Path(index) = placed {
                prop_assert!(has_room(*index, true), "the path taken had no room");
            }
        }
        prop_assert_eq!(load_bps, result.reserved_bps);
    }
}
