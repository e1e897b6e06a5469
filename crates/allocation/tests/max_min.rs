//! Max-min rates: known cases, the defining property for random cases, and a case of the size that schemes need.

use pathloom_allocation::{max_min, AllocationError, FlowSet, Limit, MaxMin};
use proptest::prelude::*;

fn flows(list: &[(&[u32], f64, f64)]) -> FlowSet {
    let mut flows = FlowSet::new();
    for &(links, demand, weight) in list {
        flows.push_with(links, demand, weight);
    }
    flows
}

const ALL: f64 = f64::INFINITY;

#[test]
fn solves_the_textbook_example() {
    // One long flow over two links, two flows on the first, one on the second: 1/3 each on the first, 2/3 for the last.
    let flows = flows(&[(&[0, 1], ALL, 1.0), (&[0], ALL, 1.0), (&[0], ALL, 1.0), (&[1], ALL, 1.0)]);
    let allocation = max_min(&[1.0, 1.0], &flows).unwrap();
    let expected = [1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0, 2.0 / 3.0];
    for (rate, expected) in allocation.rates.iter().zip(expected) {
        assert!((rate - expected).abs() < 1e-12, "{rate} against {expected}");
    }
    assert_eq!(allocation.limits, [Limit::Link(0), Limit::Link(0), Limit::Link(0), Limit::Link(1)]);
}

#[test]
fn respects_demands_weights_and_dead_links() {
    let flows = flows(&[(&[0], 1.0, 1.0), (&[0], ALL, 3.0), (&[0], ALL, 1.0), (&[0, 1], ALL, 1.0), (&[], 2.0, 1.0)]);
    let allocation = max_min(&[9.0, 0.0], &flows).unwrap();
    assert_eq!(allocation.rates, [1.0, 6.0, 2.0, 0.0, 2.0]);
    assert_eq!(allocation.limits[0], Limit::Demand);
    assert_eq!(allocation.limits[3], Limit::Link(1));
    assert_eq!(allocation.limits[4], Limit::Demand);
    assert_eq!(max_min(&[], &FlowSet::new()).unwrap().rates, Vec::<f64>::new());
}

#[test]
fn refuses_invalid_input() {
    let one = |links: &[u32], demand, weight| flows(&[(links, demand, weight)]);
    assert_eq!(max_min(&[1.0], &one(&[1], ALL, 1.0)), Err(AllocationError::UnknownLink { flow: 0, link: 1, links: 1 }));
    assert_eq!(max_min(&[1.0], &one(&[], ALL, 1.0)), Err(AllocationError::Unbounded { flow: 0 }));
    assert_eq!(max_min(&[ALL], &one(&[0], ALL, 1.0)), Err(AllocationError::Unbounded { flow: 0 }));
    assert_eq!(max_min(&[ALL], &one(&[0], 5.0, 1.0)).unwrap().rates, [5.0]);
    assert!(matches!(max_min(&[f64::NAN], &one(&[0], ALL, 1.0)), Err(AllocationError::BadCapacity { link: 0, .. })));
    assert!(matches!(max_min(&[-1.0], &one(&[0], ALL, 1.0)), Err(AllocationError::BadCapacity { link: 0, .. })));
    assert!(matches!(max_min(&[1.0], &one(&[0], -1.0, 1.0)), Err(AllocationError::BadDemand { flow: 0, .. })));
    for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(max_min(&[1.0], &one(&[0], ALL, weight)), Err(AllocationError::BadWeight { flow: 0, .. })));
    }
}

/// Checks the property that defines weighted max-min fairness. Returns a description of the violation, if there is
/// one.
fn violation(capacity: &[f64], flows: &FlowSet, allocation: &MaxMin) -> Option<String> {
    let mut used = vec![0.0; capacity.len()];
    let mut most_per_weight = vec![0.0f64; capacity.len()];
    for flow in 0..flows.len() {
        for &link in flows.links(flow) {
            used[link as usize] += allocation.rates[flow];
            let per_weight = allocation.rates[flow] / flows.weight(flow);
            most_per_weight[link as usize] = most_per_weight[link as usize].max(per_weight);
        }
    }
    for link in 0..capacity.len() {
        if used[link] > capacity[link] * (1.0 + 1e-9) {
            return Some(format!("link {link} carries {} of {}", used[link], capacity[link]));
        }
    }
    for (flow, &rate) in allocation.rates.iter().enumerate() {
        let fair = match allocation.limits[flow] {
            Limit::Demand => rate == flows.demand(flow),
            Limit::Link(link) => {
                let link = link as usize;
                rate <= flows.demand(flow)
                    && used[link] >= capacity[link] * (1.0 - 1e-9)
                    && rate / flows.weight(flow) >= most_per_weight[link] * (1.0 - 1e-9)
            }
        };
        if !fair {
            return Some(format!("flow {flow} has {rate}, limited by {:?}", allocation.limits[flow]));
        }
    }
    None
}

fn network() -> impl Strategy<Value = (Vec<f64>, FlowSet)> {
    let capacities = prop::collection::vec(prop_oneof![4 => 0.1..100.0f64, 1 => Just(0.0), 3 => Just(10.0)], 1..12);
    capacities.prop_flat_map(|capacities| {
        let links = capacities.len() as u32;
        let demand = prop_oneof![2 => Just(f64::INFINITY), 1 => 0.0..20.0f64, 1 => Just(5.0)];
        let weight = prop_oneof![2 => Just(1.0), 1 => 0.01..10.0f64];
        let flow = (prop::collection::btree_set(0..links, 1..=links.min(6) as usize), demand, weight);
        prop::collection::vec(flow, 0..40).prop_map(move |list| {
            let mut flows = FlowSet::new();
            for (links, demand, weight) in list {
                flows.push_with(&links.into_iter().collect::<Vec<u32>>(), demand, weight);
            }
            (capacities.clone(), flows)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_flow_has_a_bottleneck_or_its_demand((capacity, flows) in network()) {
        let allocation = max_min(&capacity, &flows).unwrap();
        prop_assert_eq!(violation(&capacity, &flows, &allocation), None);
    }
}

#[test]
fn the_check_detects_a_wrong_rate() {
    let flows = flows(&[(&[0], ALL, 1.0), (&[0, 1], ALL, 1.0)]);
    let capacity = [1.0, 10.0];
    let right = max_min(&capacity, &flows).unwrap();
    for rates in [[0.6, 0.4], [0.4, 0.4], [0.6, 0.6]] {
        let wrong = MaxMin { rates: rates.to_vec(), limits: right.limits.clone() };
        assert!(violation(&capacity, &flows, &wrong).is_some(), "{rates:?}");
    }
}

#[test]
fn handles_a_hundred_thousand_flows() {
    let links = 160_000u32;
    let mut flows = FlowSet::new();
    let mut state = 1u64;
    let mut next = |below: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % u64::from(below)) as u32
    };
    for _ in 0..100_000 {
        let path: Vec<u32> = (0..6).map(|hop| hop * (links / 6) + next(links / 6)).collect();
        flows.push(&path);
    }
    let capacity = vec![1e9; links as usize];
    let allocation = max_min(&capacity, &flows).unwrap();
    assert_eq!(violation(&capacity, &flows, &allocation), None);
}
