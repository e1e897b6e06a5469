//! Connections get source ports of the paths that the scheme wants, and keep them.

use crate::support::{binder, fat_tree, five_tuple, know, long, map, scheme, START};
use pathloom_model::{Fabric, LinkId, Nanos, Path};
use pathloom_routed::{Binder, Counts, OpenError, Opening};
use pathloom_scheme::{Action, Detection, Event, Migration, Needs};
use pathloom_testkit::Script;
use std::collections::BTreeSet;
use std::sync::Arc;

const SECOND: Nanos = Nanos::from_secs(1);
const LABEL: Needs = Needs { detection: Detection::Label, ..Needs::NOTHING };

/// Advances step by step, as a driver does.
fn run_until(binder: &mut Binder, end: Nanos) {
    while let Some(at) = binder.poll_timeout().filter(|&at| at <= end) {
        binder.advance(at);
    }
    binder.advance(end);
}

#[test]
fn ofpt_and_lessor_give_four_connections_four_paths() {
    for spec in ["ofpt", "lessor"] {
        let fabric = fat_tree();
        let mut binder = binder(&fabric, scheme(spec));
        let mut paths = BTreeSet::new();
        // Both hosts of a ToR send to other pods: with disjoint receivers, only the links above the ToR are shared.
        for (number, pair) in [(0, 15), (1, 11), (2, 7), (3, 13)].into_iter().enumerate() {
            let five_tuple = five_tuple(&fabric, pair, 1000);
            know(&mut binder, &fabric, &five_tuple);
            let bound = binder.open(START, long(five_tuple)).expect("the hosts exist");
            assert!(bound.chosen, "{spec}: connection {number} has no path of its own");
            let port = bound.port.expect("each path has ports");
            assert_eq!(map(&fabric, &five_tuple, 4)[&port], bound.path, "{spec}: port {port}");
            assert_eq!(binder.present_path(&five_tuple), Some(bound.path.as_slice()));
            paths.extend(bound.path[1..3].iter().copied());
        }
        // From two ToRs of two hosts each, four connections take all four links up to aggregation switches, and four up
        // to the cores.
        assert_eq!(paths.len(), 8, "{spec}: {paths:?}");
        assert_eq!(binder.counts().without_port, 0);
    }
}

#[test]
fn a_move_of_an_open_connection_is_refused_and_the_scheme_hears_of_it() {
    // Moves in place would need no rule that a switch could refuse.
    for migration in [Migration::Tagged, Migration::Sfmm] {
        refuses_moves(Needs { migration, ..LABEL });
    }
}

fn refuses_moves(needs: Needs) {
    let fabric = fat_tree();
    let script = Script::new();
    let mut binder = binder(&fabric, script.scheme(needs));
    let five_tuple = five_tuple(&fabric, (0, 15), 1000);
    know(&mut binder, &fabric, &five_tuple);
    let bound = binder.open(START, long(five_tuple)).expect("the hosts exist");
    assert!(!bound.chosen, "the script has no path for it");
    let flow = binder.controller().find_flow(&five_tuple).expect("the controller knows it");
    let mut others = map(&fabric, &five_tuple, 1).into_values().filter(|path| *path != bound.path);
    let other = others.next_back().expect("there are four paths");
    let to = |path: &[LinkId]| Path::new(&path[1..path.len() - 1]);
    script.at(SECOND, Action::Route { flow, path: to(&other), rate_bps: None });
    run_until(&mut binder, SECOND);
    let rejected = |event: &Event| matches!(event, Event::RouteRejected { flow: other, .. } if *other == flow);
    assert!(script.events().iter().any(rejected), "{:?}", script.events());
    assert_eq!(binder.counts(), Counts { opened: 1, moves_refused: 1, ..Counts::default() });
    assert_eq!(binder.present_path(&five_tuple), Some(bound.path.as_slice()));

    // Its own path is no move.
    script.clear();
    script.at(SECOND + SECOND, Action::Route { flow, path: to(&bound.path), rate_bps: None });
    run_until(&mut binder, SECOND + SECOND);
    assert!(script.events().contains(&Event::RouteConfirmed { flow }), "{:?}", script.events());
    assert_eq!(binder.counts().moves_refused, 1);
}

#[test]
fn a_connection_without_a_known_port_opens_as_it_would() {
    let fabric = fat_tree();
    let mut binder = binder(&fabric, scheme("ofpt"));
    let five_tuple = five_tuple(&fabric, (0, 15), 1000);
    let bound = binder.open(START, long(five_tuple)).expect("the hosts exist");
    assert!(bound.port.is_none() && bound.chosen);
    assert_eq!(binder.counts().without_port, 1);
    assert_eq!(binder.open(START, long(five_tuple)), Err(OpenError::Open(five_tuple)));
    let strange = five_tuple.with_dst([10, 9, 9, 9].into());
    assert_eq!(binder.open(START, long(strange)), Err(OpenError::UnknownAddress(strange.dst())));
}

#[test]
fn a_port_of_another_program_is_replaced_by_one_of_the_same_path() {
    let fabric = fat_tree();
    let mut binder = binder(&fabric, scheme("ofpt"));
    let five_tuple = five_tuple(&fabric, (0, 15), 1000);
    know(&mut binder, &fabric, &five_tuple);
    let bound = binder.open(START, long(five_tuple)).expect("the hosts exist");
    let ports = map(&fabric, &five_tuple, 4);
    let of_path: Vec<u16> = ports.iter().filter(|(_, path)| **path == bound.path).map(|(&port, _)| port).collect();
    assert_eq!(bound.port, Some(of_path[0]));
    let next: Vec<Option<u16>> = (0..4).map(|_| binder.port_is_taken(&five_tuple)).collect();
    assert_eq!(next, [Some(of_path[1]), Some(of_path[2]), Some(of_path[3]), None]);
    binder.close(START, &five_tuple);
    let again = binder.open(SECOND, long(five_tuple)).expect("it is closed");
    assert!(again.port.is_some(), "all ports were given back");
}

#[test]
fn connections_avoid_a_cable_that_is_down() {
    let whole = fat_tree();
    let first = five_tuple(&whole, (0, 15), 1000);
    let cut = binder(&whole, scheme("ofpt")).open(START, long(first)).expect("the hosts exist").path[1];
    let fabric = Arc::new(Fabric::clone(&whole).with_failed(vec![cut]));
    for spec in ["ofpt", "lessor", "ecmp"] {
        let mut binder = binder(&fabric, scheme(spec));
        for src_port in 1000..1008 {
            let five_tuple = five_tuple(&fabric, (0, 15), src_port);
            know(&mut binder, &fabric, &five_tuple);
            let bound = binder.open(START, long(five_tuple)).expect("the hosts exist");
            assert!(!bound.path.contains(&cut) && bound.port.is_some(), "{spec}: {bound:?}");
        }
    }
}

#[test]
fn a_silent_connection_keeps_its_path_and_a_closed_one_leaves_nothing() {
    let fabric = fat_tree();
    for spec in ["ofpt", "lessor", "ecmp"] {
        let mut binder = binder(&fabric, scheme(spec));
        let bare = binder.controller().counts().rules_now;
        let five_tuple = five_tuple(&fabric, (0, 15), 1000);
        know(&mut binder, &fabric, &five_tuple);
        let bound = binder.open(START, long(five_tuple)).expect("the hosts exist");
        run_until(&mut binder, Nanos::from_secs(600));
        let known = binder.controller().find_flow(&five_tuple).is_some();
        assert_eq!(known, bound.chosen, "{spec}: the controller forgot a silent connection");
        binder.close(Nanos::from_secs(600), &five_tuple);
        run_until(&mut binder, Nanos::from_secs(700));
        assert_eq!(binder.controller().counts().rules_now, bare, "{spec}: rules are left");
        assert!(binder.controller().view().flows.is_empty(), "{spec}: flows are left");
    }
}

#[test]
fn what_connections_have_sent_reaches_the_scheme_as_rates() {
    let fabric = fat_tree();
    let needs = Needs { poll_period: Some(SECOND), link_loads_every: Some(SECOND), ..LABEL };
    let script = Script::new();
    let mut binder = binder(&fabric, script.scheme(needs));
    let five_tuple = five_tuple(&fabric, (0, 15), 1000);
    know(&mut binder, &fabric, &five_tuple);
    let bound = binder.open(START, Opening { size_bytes: Some(1 << 30), ..long(five_tuple) }).expect("the hosts exist");
    // 8 Mbit/s for ten seconds; totals, as counters of sockets have them.
    for tenth in 1..=100 {
        run_until(&mut binder, Nanos::from_millis(tenth * 100));
        binder.sent(Nanos::from_millis(tenth * 100), &five_tuple, (tenth * 100, tenth * 100_000));
    }
    let view = binder.controller().view();
    let flow = binder.controller().find_flow(&five_tuple).expect("it is open");
    assert_eq!(view.flows[&flow].rate_bps.get(), Some(8_000_000));
    let busy: BTreeSet<LinkId> =
        bound.path.iter().copied().filter(|link| view.link_load_bps[link.index()].get() == Some(8_000_000)).collect();
    // Switches read the counters of their own ports, so the sender's link counts as received.
    assert_eq!(busy, bound.path.iter().copied().collect());
}
