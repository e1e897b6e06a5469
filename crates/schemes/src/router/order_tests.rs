//! OFPT Alg. 3, lines 2 to 10: the order in which flows are moved and set up.

use super::{in_order, Wanted};
use crate::remaining::remaining_time;
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{FiveTuple, Nanos, Path};
use pathloom_scheme::{FlowId, FlowView, View};
use proptest::prelude::*;
use std::sync::Arc;

/// A flow: announced payload, bytes counted by switches, whether it is on a path, and the rate that it would get.
type Given = (Option<u64>, u64, bool, u64);

fn view(flows: &[Given]) -> (View, Vec<Wanted>) {
    let mut view = View::new(Arc::new(fabric_from_spec("dumbbell").unwrap()));
    let (from, to) = (view.fabric.attachments()[0], view.fabric.attachments()[1]);
    let path = Path::new(view.fabric.switch_ports(from.tor).iter().map(|port| port.link).take(1).collect::<Vec<_>>());
    let five_tuple = FiveTuple::new(6, (from.address, 1), (to.address, 2));
    let mut wanted = Vec::new();
    for (number, &(size_bytes, bytes, stands, rate_bps)) in flows.iter().enumerate() {
        let known = FlowView {
            size_bytes: size_bytes.into(),
            long: true,
            route: stands.then(|| path.clone()),
            bytes,
            ..FlowView::new(five_tuple, &from, &to, Nanos::ZERO)
        };
        let flow = FlowId(number as u64);
        view.flows.insert(flow, known);
        wanted.push(Wanted { flow, path: path.clone(), rate_bps });
    }
    (view, wanted)
}

fn order(flows: &[Given]) -> Vec<u64> {
    let (view, wanted) = view(flows);
    in_order(&view, wanted).into_iter().map(|wanted| wanted.flow.0).collect()
}

const MB: u64 = 1_000_000;

#[test]
fn existing_flows_come_first_longest_first_then_new_flows_shortest_first() {
    let new = |size_mb| (Some(size_mb * MB), 0, false, 10 * MB);
    let moved = |size_mb| (Some(size_mb * MB), 0, true, 10 * MB);
    assert_eq!(order(&[new(3), moved(1), new(1), moved(3), moved(2), new(2)]), [3, 4, 1, 2, 5, 0]);
    assert_eq!(order(&[]), [0u64; 0]);
}

#[test]
fn flows_are_ordered_by_remaining_time() {
    let tail = |size_mb: u64, sent_mb: u64, stands, rate_mbps: u64| {
        (Some(size_mb * MB), sent_mb * MB * 1514 / 1448, stands, rate_mbps * MB)
    };
    // Left: 1 MB at 10 Mbit/s, 5 MB at 100 Mbit/s, 2 MB at 10 Mbit/s.
    let flows = |stands| [tail(100, 99, stands, 10), tail(5, 0, stands, 100), tail(3, 1, stands, 10)];
    assert_eq!(order(&flows(true)), [2, 0, 1]);
    assert_eq!(order(&flows(false)), [1, 0, 2]);
    // A flow of unknown size will probably send as much as it has sent. A flow without a rate takes for ever.
    assert_eq!(order(&[(None, 9 * MB, true, MB), (Some(8 * MB), 0, true, MB), (Some(1), 0, true, 0)]), [0, 1, 2]);
    assert_eq!(order(&[(None, 0, false, MB), (Some(MB), 0, false, 0), (Some(MB), 0, false, MB)]), [0, 2, 1]);
}

#[test]
fn ties_are_ordered_by_identifier_and_unknown_flows_come_last() {
    assert_eq!(order(&[(Some(MB), 0, true, MB), (Some(MB), 0, true, MB), (Some(MB), 0, true, MB)]), [0, 1, 2]);
    let (mut view, wanted) = view(&[(Some(9 * MB), 0, true, MB), (Some(MB), 0, false, MB), (Some(MB), 0, true, MB)]);
    view.flows.remove(&FlowId(0));
    let found: Vec<u64> = in_order(&view, wanted).into_iter().map(|wanted| wanted.flow.0).collect();
    assert_eq!(found, [2, 1, 0], "a flow that has ended does not count as existing");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_order_follows_algorithm_3(
        flows in prop::collection::vec(
            (prop::option::of(0u64..1 << 40), 0u64..1 << 40, any::<bool>(), 0u64..1 << 36), 0..20),
    ) {
        let (view, wanted) = view(&flows);
        let found = in_order(&view, wanted.clone());
        let stands = |wanted: &Wanted| view.flows[&wanted.flow].route.is_some();
        let time = |wanted: &Wanted| remaining_time(&view.flows[&wanted.flow], wanted.rate_bps);
        prop_assert!(found.is_sorted_by_key(|wanted| !stands(wanted)), "all of ΔR_0, then all of ΔR_n");
        let (moved, new): (Vec<Wanted>, Vec<Wanted>) = found.iter().cloned().partition(stands);
        prop_assert!(moved.iter().rev().is_sorted_by_key(&time));
        prop_assert!(new.iter().is_sorted_by_key(time));
        let mut names: Vec<FlowId> = found.iter().map(|wanted| wanted.flow).collect();
        names.sort();
        prop_assert_eq!(names, wanted.iter().map(|wanted| wanted.flow).collect::<Vec<_>>());
    }
}
