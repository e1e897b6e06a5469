//! What holds for every plan, on any fabric, with any cables cut and any flows.

use super::*;
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::search::distances_to;
use pathloom_model::{Fabric, FiveTuple, Nanos, PROTO_TCP};
use pathloom_scheme::{FlowId, FlowView};
use pathloom_testkit::strategies::fabrics;
use proptest::prelude::*;
use std::sync::Arc;

const FABRICS: [&str; 6] = [
    "fat-tree:k=4,rate=1Gbps",
    "fat-tree:k=4,rate=1Gbps,degrade=a0_0-c0:100Mbps/a0_1-c3:10Mbps",
    "leaf-spine:spines=3,leaves=4,hosts=3,rate=1Gbps,degrade=c0:300Mbps",
    "jellyfish:switches=12,ports=6,hosts=24,seed=3,rate=1Gbps",
    "vl2:d0=2,d1=4,d2=4,hosts=2",
    "rail-optimized:segments=2,servers=2,gpus=2,spines=2,rate=100Gbps",
];

/// A flow by the numbers of its hosts, which are taken modulo their count.
type Pair = (usize, usize);

/// One of the fabrics above, or any connected one.
fn fabric() -> impl Strategy<Value = Arc<Fabric>> {
    let named = prop::sample::select(&FABRICS[..]).prop_map(|spec| Arc::new(fabric_from_spec(spec).unwrap()));
    prop_oneof![named, fabrics()]
}

/// What a controller knows of these long flows while these cables are cut. The flows have these identifiers.
fn view(fabric: &Arc<Fabric>, pairs: &[Pair], ids: &[u64], cut: &[usize]) -> View {
    let mut view = View::new(Arc::clone(fabric));
    let cables: Vec<LinkId> = fabric.switch_cables().collect();
    cut.iter().for_each(|&cable| _ = view.links.set_cable(cables[cable % cables.len()], false));
    let hosts = fabric.hosts();
    for (number, (&(src, dst), &id)) in pairs.iter().zip(ids).enumerate() {
        let [from, to] = [src, dst].map(|host| *fabric.host_attachments(hosts[host % hosts.len()])[0]);
        if from.address == to.address {
            continue;
        }
        let ports = (number as u16, 5001);
        let five_tuple = FiveTuple::new(PROTO_TCP, (from.address, ports.0), (to.address, ports.1));
        let mut flow = FlowView::new(five_tuple, &from, &to, Nanos::ZERO);
        flow.long = true;
        view.flows.insert(FlowId(id), flow);
    }
    view
}

fn planned(view: &View) -> Vec<HopWeights> {
    match weights(view, &of_flows(view)) {
        Answer::Flows { weights, .. } => weights,
        other => panic!("{other:?}"),
    }
}

/// Load of each link if this much enters the places and is divided by these shares.
fn loads(links: usize, places: &[Destination], entering: &[Vec<f64>], shares: &Shares) -> Vec<f64> {
    let mut loads = vec![0.0; links];
    for ((places, entering), shares) in places.iter().zip(entering).zip(shares) {
        let mut passing = entering.clone();
        passing.push(0.0);
        for (at, (place, shares)) in places.iter().zip(shares).enumerate() {
            for (hop, share) in place.hops.iter().zip(shares) {
                loads[hop.link as usize] += passing[at] * share;
                passing[hop.next as usize] += passing[at] * share;
            }
        }
    }
    loads
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0..256usize, 0..6)
}

fn pairs() -> impl Strategy<Value = Vec<Pair>> {
    prop::collection::vec((0..64usize, 0..64usize), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// The links of a plan are up, and nearer to the ToR. So packets that follow weights arrive, in no loop.
    #[test]
    fn weights_lead_over_working_links_towards_their_tor(fabric in fabric(), pairs in pairs(), cut in cuts()) {
        let ids: Vec<u64> = (0..pairs.len() as u64).collect();
        let view = view(&fabric, &pairs, &ids, &cut);
        for HopWeights { switch, tor, weights } in planned(&view) {
            let distances = distances_to(&fabric, &view.links, tor);
            let hops = distances.hops(switch);
            prop_assert!(weights.iter().any(|&(_, weight)| weight > 0), "{switch:?} has no way to {tor:?}");
            for (link, weight) in weights {
                let next = fabric.link(link);
                prop_assert_eq!(next.from, switch);
                prop_assert!(weight == 0 || view.links.is_up(link), "{link:?} is down");
                let nearer = distances.hops(next.to).zip(hops).is_some_and(|(there, here)| {
                    there < here || there == here && rank(next.to, tor) < rank(switch, tor)
                });
                prop_assert!(weight == 0 || nearer, "{link:?} leads away from {tor:?}");
            }
        }
    }

    /// What the plan counts on fits. It is at least as much as with shares by capacity.
    #[test]
    fn a_plan_exceeds_no_link_and_carries_no_less_than_shares_by_capacity(
        fabric in fabric(), pairs in pairs(), cut in cuts(),
    ) {
        let ids: Vec<u64> = (0..pairs.len() as u64).collect();
        let view = view(&fabric, &pairs, &ids, &cut);
        let graphs = graphs(&view, &of_flows(&view));
        let (capacities, places) = (capacities(&view), &graphs.places);
        let (shares, _) = divide(&capacities, &graphs);
        let fits = fitting(&capacities, places, &shares);
        for (link, load) in loads(capacities.len(), places, &fits, &shares).into_iter().enumerate() {
            prop_assert!(load <= capacities[link] * (1.0 + 1e-9), "link {link}: {load} of {}", capacities[link]);
        }
        let without = sum(&fitting(&capacities, places, &graphs.shortest(&capacities)));
        prop_assert!(sum(&fits) >= without * (1.0 - ROUNDING), "{} for {without}", sum(&fits));
    }

    /// Two controllers that know of the same flows plan the same, in whatever order they have learned of them.
    #[test]
    fn two_controllers_with_the_same_flows_plan_the_same(
        (fabric, pairs, cut, ids) in (fabric(), pairs(), cuts()).prop_flat_map(|(fabric, pairs, cut)| {
            let ids: Vec<u64> = (0..pairs.len() as u64).collect();
            (Just(fabric), Just(pairs), Just(cut), Just(ids).prop_shuffle())
        }),
    ) {
        let in_order: Vec<u64> = (0..pairs.len() as u64).collect();
        let one = view(&fabric, &pairs, &in_order, &cut);
        let other = view(&fabric, &pairs, &ids, &cut);
        prop_assert_eq!(planned(&one), planned(&one));
        prop_assert_eq!(planned(&one), planned(&other));
    }
}

/// On a random graph, shortest paths alone carry too little.
#[test]
fn plans_use_longer_paths_where_they_carry_more() {
    let fabric = Arc::new(fabric_from_spec("jellyfish:switches=20,ports=8,hosts=60,rate=1Gbps,seed=5").unwrap());
    let pairs: Vec<Pair> = (0..60).map(|host| (host, (host * 7 + 30) % 60)).collect();
    let ids: Vec<u64> = (0..60).collect();
    let view = view(&fabric, &pairs, &ids, &[]);
    let (graphs, capacities) = (graphs(&view, &of_flows(&view)), capacities(&view));
    let (shares, _) = divide(&capacities, &graphs);
    let carried = |shares: &Shares| sum(&fitting(&capacities, &graphs.places, shares));
    let by_capacity = carried(&graphs.shortest(&capacities));
    let shortest = split(&capacities, &graphs.places, &graphs.shortest(&capacities), MOST_ROUNDS);
    let (planned, shortest) = (carried(&shares), carried(&shortest.shares));
    assert!(
        planned > 1.1 * shortest && shortest >= by_capacity,
        "{planned}, {shortest} over shortest paths, {by_capacity}"
    );
}
