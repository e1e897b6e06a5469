//! Max-min rates that follow changes: after any changes, they equal the full computation, and a slow one that shares no
//! code with either.

use pathloom_allocation::incremental::{IncrementalMaxMin, LinkUse};
use pathloom_allocation::{max_min, AllocationError, FlowSet, Limit};
use proptest::prelude::*;

const ALL: f64 = f64::INFINITY;

fn over(links: &[u32]) -> Vec<LinkUse> {
    links.iter().map(|&link| LinkUse { link, share: 1.0 }).collect()
}

/// A flow of a test: the links that it uses, its demand and its weight.
#[derive(Clone, Debug)]
struct Flow {
    uses: Vec<LinkUse>,
    demand: f64,
    weight: f64,
}

/// A change of a network. Numbers of flows are taken modulo the number of flows.
#[derive(Clone, Debug)]
enum Change {
    Add(Flow),
    Remove(usize),
    Move(usize, Vec<LinkUse>),
    Demand(usize, f64),
    Capacity(u32, f64),
}

/// Max-min rates by the definition: all levels rise together; again and again, the next flow or link to stop is searched
/// among all.
fn slow(capacities: &[f64], flows: &[Flow]) -> Vec<f64> {
    let mut rates: Vec<Option<f64>> = vec![None; flows.len()];
    while rates.iter().any(Option::is_none) {
        let growing: Vec<usize> = (0..flows.len()).filter(|&flow| rates[flow].is_none()).collect();
        let takes = |flow: usize, link: usize| -> f64 {
            flows[flow].uses.iter().filter(|of| of.link as usize == link).map(|of| of.share).sum()
        };
        let link_level = |link: usize| {
            let taken: f64 = (0..flows.len()).filter_map(|flow| Some(rates[flow]? * takes(flow, link))).sum();
            let weight: f64 = growing.iter().map(|&flow| flows[flow].weight * takes(flow, link)).sum();
            if weight > 0.0 {
                (capacities[link] - taken).max(0.0) / weight
            } else {
                ALL
            }
        };
        let of_links: Vec<f64> = (0..capacities.len()).map(link_level).collect();
        let own = |flow: usize| flows[flow].demand / flows[flow].weight;
        let next = of_links.iter().copied().chain(growing.iter().map(|&flow| own(flow))).fold(ALL, f64::min);
        for &flow in &growing {
            let is_stopped = (0..capacities.len()).any(|link| of_links[link] <= next && takes(flow, link) > 0.0);
            if own(flow) <= next || is_stopped {
                rates[flow] = Some((next * flows[flow].weight).min(flows[flow].demand));
            }
        }
    }
    rates.into_iter().flatten().collect()
}

/// Applies a change to the network and to the list of its flows.
fn apply(network: &mut IncrementalMaxMin, flows: &mut Vec<(u32, Flow)>, capacities: &mut [f64], change: Change) {
    let count = flows.len();
    match change {
        Change::Add(flow) => flows.push((network.add(&flow.uses, flow.demand, flow.weight).unwrap(), flow)),
        Change::Capacity(link, capacity) => {
            network.set_capacity(link, capacity).unwrap();
            capacities[link as usize] = capacity;
        }
        _ if count == 0 => {}
        Change::Remove(which) => network.remove(flows.swap_remove(which % count).0),
        Change::Move(which, uses) => {
            network.set_uses(flows[which % count].0, &uses).unwrap();
            flows[which % count].1.uses = uses;
        }
        Change::Demand(which, demand) => {
            network.set_demand(flows[which % count].0, demand).unwrap();
            flows[which % count].1.demand = demand;
        }
    }
}

fn uses(links: u32, shares: bool) -> impl Strategy<Value = Vec<LinkUse>> {
    let share = if shares { (0.05..2.0f64).boxed() } else { Just(1.0).boxed() };
    let links = prop::collection::btree_map(0..links, share, 1..=links.min(5) as usize);
    links.prop_map(|uses| uses.into_iter().map(|(link, share)| LinkUse { link, share }).collect())
}

fn changes(shares: bool) -> impl Strategy<Value = (Vec<f64>, Vec<Vec<Change>>)> {
    let capacity = || prop_oneof![4 => 0.1..100.0f64, 1 => Just(0.0), 3 => Just(10.0)];
    prop::collection::vec(capacity(), 1..10).prop_flat_map(move |capacities| {
        let links = capacities.len() as u32;
        let demand = || prop_oneof![3 => Just(ALL), 1 => 0.0..20.0f64, 1 => Just(5.0)];
        let weight = prop_oneof![2 => Just(1.0), 1 => 0.1..10.0f64];
        let flow = (uses(links, shares), demand(), weight);
        let flow = flow.prop_map(|(uses, demand, weight)| Change::Add(Flow { uses, demand, weight }));
        let change = prop_oneof![
            6 => flow,
            3 => (0..100usize).prop_map(Change::Remove),
            2 => (0..100usize, uses(links, shares)).prop_map(|(which, uses)| Change::Move(which, uses)),
            1 => (0..100usize, demand()).prop_map(|(which, demand)| Change::Demand(which, demand)),
            1 => (0..links, capacity()).prop_map(|(link, capacity)| Change::Capacity(link, capacity)),
        ];
        let steps = prop::collection::vec(prop::collection::vec(change, 1..4), 1..30);
        (Just(capacities), steps)
    })
}

fn equal(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= 1e-6 * expected.abs().max(1e-3)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rates_equal_those_of_the_full_computation((mut capacities, steps) in changes(false)) {
        let mut network = IncrementalMaxMin::new(&capacities).unwrap();
        let mut flows = Vec::new();
        for step in steps {
            step.into_iter().for_each(|change| apply(&mut network, &mut flows, &mut capacities, change));
            let before: Vec<f64> = (0..200).map(|flow| network.rate(flow)).collect();
            let mut changed: Vec<u32> = network.update().to_vec();
            changed.sort_unstable();
            let mut set = FlowSet::new();
            for (_, flow) in &flows {
                let links: Vec<u32> = flow.uses.iter().map(|of| of.link).collect();
                set.push_with(&links, flow.demand, flow.weight);
            }
            let full = max_min(&capacities, &set).unwrap();
            for ((number, flow), &expected) in flows.iter().zip(&full.rates) {
                prop_assert!(equal(network.rate(*number), expected), "{} {expected} {flow:?}", network.rate(*number));
                let is_noted = changed.binary_search(number).is_ok();
                prop_assert!(is_noted || network.rate(*number) == before[*number as usize]);
            }
            for link in 0..capacities.len() as u32 {
                prop_assert!(network.load(link) <= network.capacity(link) * (1.0 + 1e-9) + 1e-12);
            }
            prop_assert_eq!(network.len(), flows.len());
        }
    }

    #[test]
    fn rates_with_shares_equal_those_of_the_definition((mut capacities, steps) in changes(true)) {
        let mut network = IncrementalMaxMin::new(&capacities).unwrap();
        let mut flows = Vec::new();
        for step in steps {
            step.into_iter().for_each(|change| apply(&mut network, &mut flows, &mut capacities, change));
            network.update();
            let list: Vec<Flow> = flows.iter().map(|(_, flow)| flow.clone()).collect();
            for ((number, flow), expected) in flows.iter().zip(slow(&capacities, &list)) {
                prop_assert!(equal(network.rate(*number), expected), "{} {expected} {flow:?}", network.rate(*number));
            }
        }
    }
}

/// A flow that has neither its demand nor a link that limits it to within a tolerance; `None` if every flow has one.
fn unfair(network: &IncrementalMaxMin, flows: &[(u32, Flow)], tolerance: f64) -> Option<String> {
    let level = |flow: &(u32, Flow)| network.rate(flow.0) / flow.1.weight;
    let limits = |of: &(u32, Flow), link: u32| {
        let others = flows.iter().filter(|other| other.1.uses.iter().any(|of| of.link == link));
        let is_full = network.load(link) >= network.capacity(link) * (1.0 - tolerance) - 1e-9;
        is_full && others.map(level).fold(0.0, f64::max) <= level(of) * (1.0 + tolerance) + 1e-9
    };
    let is_fair =
        |of: &&(u32, Flow)| network.rate(of.0) == of.1.demand || of.1.uses.iter().any(|at| limits(of, at.link));
    let found = flows.iter().find(|of| !is_fair(of))?;
    Some(format!("{} of {found:?}", network.rate(found.0)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rates_are_fair_to_within_the_tolerance((mut capacities, steps) in changes(true)) {
        let mut network = IncrementalMaxMin::new(&capacities).unwrap().with_tolerance(0.01);
        let mut flows = Vec::new();
        for step in steps {
            step.into_iter().for_each(|change| apply(&mut network, &mut flows, &mut capacities, change));
            network.update();
            prop_assert_eq!(unfair(&network, &flows, 0.010_001), None);
            for link in 0..capacities.len() as u32 {
                prop_assert!(network.load(link) <= network.capacity(link) * (1.0 + 1e-9) + 1e-9);
            }
        }
    }
}

#[test]
fn the_parking_lot_gives_the_long_flow_half_of_each_link() {
    // One flow over n links of capacity 1, and one flow on each: all have 1/2. The flows of the first link leave.
    let mut network = IncrementalMaxMin::new(&[1.0, 1.0, 1.0]).unwrap();
    let long = network.add(&over(&[0, 1, 2]), ALL, 1.0).unwrap();
    let short: Vec<u32> = (0..3).map(|link| network.add(&over(&[link]), ALL, 1.0).unwrap()).collect();
    network.update();
    assert!(short.iter().chain([&long]).all(|&flow| network.rate(flow) == 0.5));
    network.remove(short[0]);
    assert!(network.update().is_empty(), "links 1 and 2 still limit the long flow");
    network.set_capacity(1, 0.5).unwrap();
    network.update();
    assert_eq!([long, short[1], short[2]].map(|flow| network.rate(flow)), [0.25, 0.25, 0.75]);
    assert_eq!(network.limit(long), Some(Limit::Link(1)));
    network.remove(long);
    network.update();
    assert_eq!([short[1], short[2], long].map(|flow| network.rate(flow)), [0.5, 1.0, 0.0]);
}

#[test]
fn a_change_reaches_only_the_flows_that_it_concerns() {
    let mut network = IncrementalMaxMin::new(&vec![10.0; 1000]).unwrap();
    for link in 0..1000 {
        network.add(&over(&[link]), ALL, 1.0).unwrap();
    }
    assert_eq!(network.update().len(), 1000);
    let joined = network.add(&over(&[3, 4]), ALL, 1.0).unwrap();
    let mut changed = network.update().to_vec();
    changed.sort_unstable();
    assert_eq!(changed, [3, 4, joined]);
    assert_eq!(network.rate(3), 5.0);
}

#[test]
fn a_flow_that_uses_a_link_twice_takes_twice() {
    let mut network = IncrementalMaxMin::new(&[9.0]).unwrap();
    let [twice, once] = [&[0, 0][..], &[0]].map(|links| network.add(&over(links), ALL, 1.0).unwrap());
    network.update();
    assert_eq!([network.rate(twice), network.rate(once)], [3.0, 3.0]);
    network.remove(twice);
    network.update();
    assert_eq!(network.rate(once), 9.0);
}

#[test]
fn refuses_invalid_input_and_stays_as_it_was() {
    assert!(matches!(IncrementalMaxMin::new(&[1.0, ALL]), Err(AllocationError::BadCapacity { link: 1, .. })));
    let mut network = IncrementalMaxMin::new(&[1.0]).unwrap();
    assert_eq!(network.add(&over(&[1]), ALL, 1.0), Err(AllocationError::UnknownLink { flow: 0, link: 1, links: 1 }));
    assert_eq!(network.add(&[], ALL, 1.0), Err(AllocationError::Unbounded { flow: 0 }));
    assert!(matches!(network.add(&over(&[0]), f64::NAN, 1.0), Err(AllocationError::BadDemand { .. })));
    assert!(matches!(network.add(&over(&[0]), ALL, 0.0), Err(AllocationError::BadWeight { .. })));
    let none = [LinkUse { link: 0, share: 0.0 }];
    assert!(matches!(network.add(&none, ALL, 1.0), Err(AllocationError::BadShare { share: 0.0, .. })));
    assert_eq!(network.set_capacity(7, 1.0), Err(AllocationError::NoLink { link: 7, links: 1 }));
    assert!(network.is_empty());
    let flow = network.add(&over(&[0]), ALL, 1.0).unwrap();
    assert!(network.set_uses(flow, &over(&[2])).is_err() && network.set_demand(flow, -1.0).is_err());
    network.update();
    assert_eq!(network.rate(flow), 1.0);
}
