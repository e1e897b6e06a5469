//! The levels at which a provider serves flows.

use super::*;
use proptest::prelude::*;

const LINKS: u32 = 12;

/// A change to a provider.
#[derive(Clone, Debug)]
enum Change {
    Put { links: Vec<u32>, access_bps: u64, bytes: Option<u64> },
    Remove(usize),
    Reroute(usize, Vec<u32>),
}

#[derive(Clone, Debug)]
struct Flow {
    links: Vec<u32>,
    access_bps: u64,
    bytes: Option<u64>,
}

/// Changes in which the sizes of all, none or some flows are known.
fn changes(known: impl Strategy<Value = bool> + Clone + 'static) -> impl Strategy<Value = Vec<Change>> {
    let links = || prop::collection::btree_set(0..LINKS, 1..10).prop_map(|links| links.into_iter().collect::<Vec<_>>());
    let put = (links(), 100_000u64..2_000_000, known, 0u64..1_000_000)
        .prop_map(|(links, access_bps, known, bytes)| Change::Put { links, access_bps, bytes: known.then_some(bytes) });
    let change = prop_oneof![
        4 => put,
        2 => any::<usize>().prop_map(Change::Remove),
        1 => (any::<usize>(), links()).prop_map(|(flow, links)| Change::Reroute(flow, links)),
    ];
    prop::collection::vec(change, 1..40)
}

/// Applies the changes. After each it checks the flows and their rates.
fn play(capacity_bps: &[u64], sharing: Sharing, changes: &[Change], check: impl Fn(&Provider, &[(FlowId, Flow)])) {
    let mut provider = Provider::new(capacity_bps.to_vec(), sharing);
    let mut flows: Vec<(FlowId, Flow)> = Vec::new();
    let mut known = std::collections::BTreeMap::new();
    for (number, change) in changes.iter().enumerate() {
        match change {
            Change::Put { links, access_bps, bytes } => {
                let id = FlowId(number as u64);
                provider.put(id, links, *access_bps, bytes.is_some());
                flows.push((id, Flow { links: links.clone(), access_bps: *access_bps, bytes: *bytes }));
            }
            Change::Remove(index) if !flows.is_empty() => {
                let (id, _) = flows.swap_remove(index % flows.len());
                assert!(provider.remove(id) && !provider.remove(id));
            }
            Change::Reroute(index, links) if !flows.is_empty() => {
                let index = index % flows.len();
                let (id, flow) = &mut flows[index];
                flow.links = links.clone();
                provider.put(*id, links, flow.access_bps, flow.bytes.is_some());
            }
            Change::Remove(_) | Change::Reroute(..) => {}
        }
        let bytes = |id: FlowId| flows.iter().find(|(other, _)| *other == id).and_then(|(_, flow)| flow.bytes);
        let told = provider.settle(&bytes);
        for &(id, rate_bps) in &told {
            assert_eq!(provider.rate_bps(id), Some(rate_bps));
            known.insert(id, rate_bps);
        }
        for (id, _) in &flows {
            let (rate_bps, told) = (provider.rate_bps(*id).unwrap() as f64, known[id] as f64);
            assert!((rate_bps - told).abs() <= REPORT_STEP * told, "{id:?} was told {told}, not {rate_bps}");
        }
        assert!(!provider.is_inexact(), "so few flows are all served at once");
        check(&provider, &flows);
    }
}

fn sharing() -> impl Strategy<Value = Sharing> {
    prop_oneof![Just(Sharing::Equal), Just(Sharing::ByLength)]
}

fn used_bps(provider: &Provider, flows: &[(FlowId, Flow)]) -> Vec<u64> {
    let mut used = vec![0; LINKS as usize];
    for (id, flow) in flows {
        flow.links.iter().for_each(|&link| used[link as usize] += provider.rate_bps(*id).unwrap());
    }
    assert_eq!(used, provider.used_bps);
    used
}

fn exactly(capacity_bps: &[u64], sharing: Sharing, flows: &[(FlowId, Flow)]) -> Vec<u64> {
    let mut demands = Demands::default();
    for (_, flow) in flows {
        demands.push(&flow.links, flow.access_bps, sharing.weight(flow.links.len()), flow.bytes);
    }
    let capacity: Vec<f64> = capacity_bps.iter().map(|&bps| bps as f64).collect();
    provide(&capacity, &demands).into_iter().map(|share| share.rate_bps).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Within the tolerance, every flow has a bottleneck: its access link, or a full link on which no flow has a
    /// higher level. Without tolerance, the exact computation gives the same.
    #[test]
    fn fair_shares_match_the_exact_computation(
        capacity in prop::collection::vec(200_000u64..4_000_000, LINKS as usize), changes in changes(Just(false)), sharing in sharing(),
    ) {
        play(&capacity, sharing, &changes, |provider, flows| {
            let used = used_bps(provider, flows);
            assert!(used.iter().zip(&capacity).all(|(&used, &capacity)| used as f64 <= capacity as f64 * (1.0 + SLACK) + 1.0));
            let rate = |id: &FlowId| provider.rate_bps(*id).unwrap();
            for (id, flow) in flows {
                let weight = |flow: &Flow| sharing.weight(flow.links.len());
                let mine = rate(id) as f64 / weight(flow) * (1.0 + TOLERANCE + SLACK) + 2.0 / weight(flow);
                let bottleneck = flow.links.iter().any(|&link| {
                    let full = capacity[link as usize] as f64 * (1.0 - TOLERANCE) <= used[link as usize] as f64 + 60.0;
                    let others = flows.iter().filter(|(_, other)| other.links.contains(&link));
                    full && others.map(|(other, flow)| rate(other) as f64 / weight(flow)).all(|other| other <= mine)
                });
                assert!(rate(id) + 1 >= flow.access_bps || bottleneck, "{id:?} of {flows:?} has {}", rate(id));
            }
            let mut evened = provider.clone();
            evened.settle_all(&|_| None);
            for ((id, _), exact) in flows.iter().zip(exactly(&capacity, sharing, flows)) {
                assert!(evened.rate_bps(*id).unwrap().abs_diff(exact) <= 1, "{id:?} of {flows:?}");
                let (is, exact) = (rate(id) as f64, exact as f64);
                assert!((is - exact).abs() <= 0.15 * exact + 2.0, "{id:?} has {is}, not {exact}: {flows:?}");
            }
        });
    }

    /// No flow that takes turns waits if it could start in the free capacity, and none leaves capacity unused
    /// that it could use. (The order of turns is only exact after `settle_all`.)
    #[test]
    fn no_flow_waits_that_could_send(
        capacity in prop::collection::vec(200_000u64..4_000_000, LINKS as usize), changes in changes(Just(true)), sharing in sharing(),
    ) {
        play(&capacity, sharing, &changes, |provider, flows| {
            let used = used_bps(provider, flows);
            assert!(used.iter().zip(&capacity).all(|(&used, &capacity)| used as f64 <= capacity as f64 * (1.0 + SLACK) + 1.0));
            for (id, flow) in flows {
                let rate_bps = provider.rate_bps(*id).unwrap();
                let least = if rate_bps == 0 { LEAST_SHARE * flow.access_bps as f64 } else { 0.0 };
                let kept = flow.links.iter().any(|&link| {
                    let room = capacity[link as usize].saturating_sub(used[link as usize]) as f64;
                    room <= least.max(TOLERANCE * capacity[link as usize] as f64) + 1.0
                });
                assert!(rate_bps + 1 >= flow.access_bps || kept, "{id:?} of {flows:?} has {rate_bps}");
            }
        });
    }

    /// With known and unknown sizes, on links that may have no capacity, no link carries more than its capacity.
    #[test]
    fn no_link_is_overbooked(
        capacity in prop::collection::vec(prop_oneof![Just(0u64), 1u64..4_000_000], LINKS as usize),
        changes in changes(any::<bool>()),
        sharing in sharing(),
    ) {
        play(&capacity, sharing, &changes, |provider, flows| {
            let used = used_bps(provider, flows);
            assert!(used.iter().zip(&capacity).all(|(&used, &capacity)| used as f64 <= capacity as f64 * (1.0 + SLACK) + 1.0));
        });
    }
}

#[test]
fn too_many_flows_are_left_to_the_exact_computation() {
    let (capacity, flows) = (vec![1_000_000, 50_000_000], 2_000u64);
    let mut provider = Provider::new(capacity, Sharing::Equal);
    let told: usize = (0..flows)
        .map(|id| {
            provider.put(FlowId(id), &[0, 1], 1_000_000, false);
            provider.settle(&|_| None).len()
        })
        .sum();
    assert!(provider.is_inexact());
    assert!(told < 400 * flows as usize, "{told} flows were told of new rates");
    // The flow that arrived last has its fair share already; earlier ones get theirs now.
    assert_eq!(provider.rate_bps(FlowId(flows - 1)), Some(1_000_000 / flows));
    let told = provider.settle_all(&|_| None);
    assert!(told.contains(&(FlowId(0), 500)) && told.iter().all(|&(id, _)| id != FlowId(flows - 1)), "{told:?}");
    assert!(!provider.is_inexact());
    assert!((0..flows).all(|id| provider.rate_bps(FlowId(id)) == Some(500)));
    // A single departure leaves too little capacity to serve all other flows again.
    assert!(provider.remove(FlowId(0)));
    assert_eq!(provider.settle(&|_| None), []);
    assert!(!provider.is_inexact());
}

#[test]
fn a_flow_of_unknown_size_gets_its_share_of_two_full_links() {
    let mut provider = Provider::new(vec![10_000_000; 4], Sharing::Equal);
    let left = |_| Some(1_000_000);
    provider.put(FlowId(1), &[0, 2], 10_000_000, true);
    provider.put(FlowId(2), &[1, 3], 10_000_000, true);
    assert_eq!(provider.settle(&left), [(FlowId(1), 10_000_000), (FlowId(2), 10_000_000)]);
    provider.put(FlowId(3), &[0, 1], 10_000_000, false);
    let half = 5_000_000;
    assert_eq!(provider.settle(&left), [(FlowId(1), half), (FlowId(2), half), (FlowId(3), half)]);
}

#[test]
fn unknown_links_and_flows_are_ignored() {
    let mut provider = Provider::new(vec![100], Sharing::Equal);
    provider.put(FlowId(1), &[7, 0], 50, false);
    assert_eq!(provider.settle(&|_| None), [(FlowId(1), 50)]);
    assert_eq!((provider.rate_bps(FlowId(1)), provider.rate_bps(FlowId(2))), (Some(50), None));
    assert_eq!(provider.settle_all(&|_| None), []);
    assert!(!provider.remove(FlowId(2)));
}
