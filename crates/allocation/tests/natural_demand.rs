//! Hedera's demand estimation, compared with exact max-min rates over the NICs.

use pathloom_allocation::{max_min, natural_demand, FlowSet, HostPair};
use proptest::prelude::*;

fn pair(src: u32, dst: u32, flows: u32) -> HostPair {
    HostPair { src, dst, flows }
}

#[test]
fn estimates_the_example_of_the_paper() {
    // Hedera §4.2: A sends one flow each to B, C and D. B sends two to A and one to C. C sends one each to A and D. D
    // sends two to B. All flows get 1/3, except the one from C to D: it gets the 2/3 that the flow to A leaves.
    let (a, b, c, d) = (0, 1, 2, 3);
    let pairs = [
        pair(a, b, 1),
        pair(a, c, 1),
        pair(a, d, 1),
        pair(b, a, 2),
        pair(b, c, 1),
        pair(c, a, 1),
        pair(c, d, 1),
        pair(d, b, 2),
    ];
    let estimate = natural_demand(&[1.0; 4], &[1.0; 4], &pairs);
    let third = 1.0 / 3.0;
    let expected = [third, third, third, third, third, third, 2.0 * third, third];
    for (got, expected) in estimate.demands.iter().zip(expected) {
        assert!((got - expected).abs() < 1e-9, "{:?}", estimate.demands);
    }
    assert!(estimate.passes <= 4, "{} passes", estimate.passes);
    assert_eq!(estimate.operations, u64::from(estimate.passes) * 2 * 8);
}

#[test]
fn invalid_input_gives_no_demand() {
    let pairs = [pair(0, 0, 0), pair(7, 0, 1), pair(0, 7, 1), pair(0, 0, 2)];
    let estimate = natural_demand(&[4.0], &[10.0], &pairs);
    assert_eq!(estimate.demands, [0.0, 0.0, 0.0, 2.0]);
    assert_eq!(natural_demand(&[f64::NAN], &[1.0], &[pair(0, 0, 1)]).demands, [0.0]);
    assert_eq!(natural_demand(&[1.0], &[-1.0], &[pair(0, 0, 1)]).demands, [0.0]);
    assert!(natural_demand(&[], &[], &[]).demands.is_empty());
}

/// Max-min rates of the same flows over a star: each NIC is a link, and there are no other limits.
fn star(transmit: &[f64], receive: &[f64], pairs: &[HostPair]) -> Vec<f64> {
    let capacity: Vec<f64> = transmit.iter().chain(receive).copied().collect();
    let mut flows = FlowSet::new();
    for pair in pairs {
        for _ in 0..pair.flows {
            flows.push(&[pair.src, transmit.len() as u32 + pair.dst]);
        }
    }
    let mut rates = max_min(&capacity, &flows).unwrap().rates.into_iter();
    pairs.iter().map(|pair| (0..pair.flows).filter_map(|_| rates.next()).last().unwrap_or(0.0)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn equals_max_min_over_the_nics(
        transmit in prop::collection::vec(prop_oneof![Just(1.0), 0.1..10.0f64], 1..10),
        receive in prop::collection::vec(prop_oneof![Just(1.0), 0.1..10.0f64], 1..10),
        raw in prop::collection::vec((0u32..100, 0u32..100, 1u32..4), 0..40),
    ) {
        let pairs: Vec<HostPair> = raw
            .into_iter()
            .map(|(src, dst, flows)| pair(src % transmit.len() as u32, dst % receive.len() as u32, flows))
            .collect();
        let estimate = natural_demand(&transmit, &receive, &pairs);
        for (index, exact) in star(&transmit, &receive, &pairs).into_iter().enumerate() {
            let got = estimate.demands[index];
            prop_assert!((got - exact).abs() < 1e-7, "pair {index}: {got}, exactly {exact}, {} passes", estimate.passes);
        }
    }
}
