//! Path assignments: connections use the paths that were claimed for them, schemes get no events about them, and
//! nothing remains at the end.

use super::applications::{owner, Applications, LIMITS};
use pathloom_control::cookies::is_bound;
use pathloom_control::{
    AssignError, Assigned, AssignmentLimits, ClaimKey, Decision, Input, Output, PathRequest, PathSearch,
};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{Headers, Nanos, TCP_ACK, TCP_FIN};
use pathloom_scheme::{Action, Detection, Event, Needs};
use pathloom_testkit::{ms, LABEL, SECOND, SFMM, SHARED};
use std::sync::Arc;

#[test]
fn connections_use_the_paths_claimed_for_them() {
    let measured = Needs { detection: Detection::Measured { nic_share: 0.0 }, poll_period: Some(ms(200)), ..LABEL };
    for needs in [LABEL, SFMM, SHARED, Needs::NOTHING, measured] {
        let mut applications = Applications::fat_tree(needs);
        let Assigned { assignment, paths } = applications.assign("me", 4, PathSearch::BreadthFirst).unwrap();
        applications.world.traffic(ms(300));
        applications.world.events();
        for (port, path) in (2000..).zip(&paths) {
            assert_eq!(applications.claim("me", assignment, port).as_ref(), Ok(path));
            applications.open(port);
        }
        applications.world.traffic(SECOND);
        for (port, path) in (2000..).zip(&paths) {
            applications.takes(port, path);
        }
        let bound = applications.bound();
        assert_eq!(bound.len(), 8);
        let why = applications.world.network.controller.placement(bound[0]).unwrap();
        assert!(matches!(why.decision, Decision::Assigned { .. }), "{why:?}");
        // A scheme cannot move these flows, and gets no events about them.
        applications.world.act(Action::Unroute { flow: bound[0] });
        applications.world.traffic(SECOND);
        applications.takes(2000, &paths[0]);
        let plain = pathloom_schemes::parse("ecmp").unwrap().central(1).unwrap();
        applications.world.network.set_scheme(plain);
        applications.world.traffic(SECOND);
        applications.takes(2000, &paths[0]);
        let hears_of = |event: &Event| match *event {
            Event::FlowArrived { flow } | Event::RouteConfirmed { flow } | Event::FlowFinished { flow } => {
                is_bound(flow)
            }
            Event::FlowAdopted { flow } | Event::RouteRejected { flow, .. } => is_bound(flow),
            _ => false,
        };
        assert!(!applications.world.events().iter().any(hears_of));
        assert_eq!(applications.world.network.controller.counts().reroutes, 0);
        let scripted = applications.world.scheme();
        applications.world.network.set_scheme(scripted);
        applications.world.traffic(SECOND);
        // One connection is closed, the others just stop sending. All paths become free again.
        applications.close(2000, true);
        applications.world.traffic(ms(500));
        assert_eq!(applications.world.network.controller.assignments().connections(), 3);
        assert_eq!(applications.bound().len(), 6);
        applications.world.flows.truncate(1);
        applications.nothing_is_lost_or_left();
    }
}

/// A switch forwards by cached flows until it has revalidated them with its new rules, and it limits the number of
/// copies.
#[test]
fn a_connection_without_a_seen_first_packet_gets_its_path() {
    for needs in [LABEL, SFMM, SHARED, Needs::NOTHING] {
        let mut applications = Applications::fat_tree(needs);
        let Assigned { assignment, paths } = applications.assign("me", 4, PathSearch::BreadthFirst).unwrap();
        applications.world.traffic(ms(300));
        let (src, dst, dst_port) = (
            applications.world.flow.five_tuple.src(),
            applications.world.flow.five_tuple.dst(),
            applications.world.flow.five_tuple.dst_port(),
        );
        for (port, path) in (2000..).zip(&paths[..3]) {
            let key = ClaimKey::to_come(src, dst, port);
            let opens_to = (port < 2002).then_some(dst_port);
            assert_eq!(applications.claim_to("me", assignment, key, opens_to).as_ref(), Ok(path));
        }
        // The connections send, but their first packets were not seen. One has a first packet that comes late and
        // matches the rules.
        for port in [2000, 2002] {
            let forth = applications.packet(port);
            let back = Headers { five_tuple: forth.five_tuple.reverse(), ..forth };
            applications.world.flows.extend([forth, back]);
        }
        applications.world.traffic(ms(300));
        applications.open(2001);
        applications.world.traffic(SECOND);
        for (port, path) in (2000..).zip(&paths[..2]) {
            applications.takes(port, path);
        }
        // The port of the third connection is not known.
        let all = applications.world.network.controller.assignments();
        assert_eq!((all.waiting_claims(), all.connections()), (1, 2));
        // A connection that is never opened does not occupy its path for ever.
        let never = ClaimKey::to_come(src, dst, 2004);
        applications.claim_to("me", assignment, never, Some(dst_port)).unwrap();
        applications.world.traffic(ms(300));
        assert_eq!(applications.bound().len(), 6);
        applications.world.flows.truncate(1);
        applications.nothing_is_lost_or_left();
    }
}

/// Announcements may come when a connection is already open, often from the server, whose connections share a port.
#[test]
fn open_connections_move_to_the_paths_claimed_for_them() {
    for needs in [LABEL, SFMM, SHARED, Needs::NOTHING] {
        let mut applications = Applications::fat_tree(needs);
        let (client, server, service) = (
            applications.world.flow.five_tuple.src(),
            applications.world.flow.five_tuple.dst(),
            applications.world.flow.five_tuple.dst_port(),
        );
        let ports = [2000, 2001, 2002];
        for port in ports {
            applications.open(port);
        }
        applications.world.traffic(ms(500));
        let standing = |port| ClaimKey { src: server, dst: client, src_port: service, dst_port: Some(port) };
        let request =
            PathRequest { src: server, dst: client, count: 4, search: PathSearch::BreadthFirst, lifetime: None };
        let answer = applications.ask(|request_id| Input::AssignPaths {
            request: request_id,
            owner: owner("server"),
            paths: request,
        });
        let Output::Assigned { answer: Ok(Assigned { assignment, paths }), .. } = answer else { panic!("{answer:?}") };
        for (port, path) in ports.into_iter().zip(&paths) {
            let claimed = applications.claim_as("server", assignment, standing(port));
            assert_eq!(claimed.as_ref(), Ok(path));
        }
        applications.world.traffic(SECOND);
        for (port, path) in ports.into_iter().zip(&paths) {
            applications.takes(port, &path.reverse());
        }
        // A repeated claim gets the same path, and the other end cannot claim another path for the connection.
        assert_eq!(applications.claim_as("server", assignment, standing(2001)).as_ref(), Ok(&paths[1]));
        let other = applications.assign("client", 4, PathSearch::BreadthFirst).unwrap().assignment;
        let again = ClaimKey { src: client, dst: server, src_port: 2000, dst_port: Some(service) };
        let taken = AssignError::PortTaken { src_port: 2000, id: assignment };
        assert_eq!(applications.claim_as("client", other, again), Err(taken));
        let nothing = ClaimKey { dst_port: Some(0), ..again };
        assert_eq!(applications.claim_as("client", other, nothing), Err(AssignError::Port));
        // A connection that is announced but never opened does not occupy its path for ever.
        applications.claim_as("server", assignment, standing(2999)).unwrap();
        assert_eq!(applications.bound().len(), 8);
        applications.close(2000, false);
        let last = applications.packet(2000);
        let last = Headers { five_tuple: last.five_tuple.reverse(), tcp_flags: TCP_FIN | TCP_ACK, ..last };
        applications.world.network.send(last);
        applications.world.traffic(ms(500));
        assert_eq!(applications.world.network.controller.assignments().connections(), 3);
        applications.world.flows.truncate(1);
        applications.nothing_is_lost_or_left();
    }
}

#[test]
fn a_restart_keeps_connections_that_were_open_when_they_were_claimed() {
    let mut applications = Applications::fat_tree(LABEL);
    applications.open(2000);
    applications.open(2001);
    let Assigned { assignment, paths } = applications.assign("me", 4, PathSearch::BreadthFirst).unwrap();
    applications.world.traffic(ms(300));
    let (src, dst, dst_port) = (
        applications.world.flow.five_tuple.src(),
        applications.world.flow.five_tuple.dst(),
        applications.world.flow.five_tuple.dst_port(),
    );
    let standing = |src_port| ClaimKey { src, dst, src_port, dst_port: Some(dst_port) };
    applications.claim_as("me", assignment, standing(2000)).unwrap();
    let snapshot = applications.world.network.controller.snapshot();
    let text = serde_json::to_string(&snapshot).unwrap();
    applications.world.traffic(ms(500));
    applications.world.network.kill_controller();
    // The new controller gets a claim before its switches have connected.
    let controller = applications.world.restored(serde_json::from_str(&text).unwrap(), 2).unwrap();
    applications.world.network.start_controller(controller);
    let later = AssignError::NotNow { src_port: 2001 };
    assert_eq!(applications.claim_as("me", assignment, standing(2001)), Err(later));
    applications.world.connect_all();
    applications.world.traffic(ms(400));
    assert_eq!(applications.claim_as("me", assignment, standing(2001)).as_ref(), Ok(&paths[1]));
    applications.world.traffic(SECOND);
    for (port, path) in [2000, 2001].into_iter().zip(&paths) {
        applications.takes(port, path);
    }
    applications.world.flows.truncate(1);
    applications.nothing_is_lost_or_left();
}

/// Of 10,000 claims, one in ten gets its connection. Some applications release their assignment, the others never do.
/// Some connections are closed, the others just stop sending.
#[test]
fn ten_thousand_claims_leave_no_rule_behind() {
    let limits = AssignmentLimits { most: 100, most_per_owner: 100, most_claims: 500, ..LIMITS };
    let fabric = Arc::new(fabric_from_spec("fat-tree:k=4").unwrap());
    let mut applications = Applications::with_limits(fabric, LABEL, limits, 1);
    let mut port = 2000;
    for round in 0..25 {
        let Assigned { assignment, .. } = applications.assign("me", 4, PathSearch::BreadthFirst).unwrap();
        applications.world.traffic(ms(300));
        let mut opened = Vec::new();
        for number in 0..400 {
            port += 1;
            applications.claim("me", assignment, port).unwrap();
            if number % 10 == 0 {
                applications.open(port);
                opened.push(port);
            }
        }
        applications.world.pass(ms(200));
        assert_eq!(applications.bound().len(), 2 * opened.len());
        if round % 2 == 0 {
            applications.release("me", assignment).unwrap();
        }
        opened.iter().for_each(|&port| applications.close(port, round % 3 == 0));
        applications.world.pass(Nanos::from_secs(15));
    }
    applications.world.pass(Nanos::from_secs(30));
    applications.nothing_is_lost_or_left();
}

#[test]
fn releasing_an_assignment_interrupts_no_connection() {
    let mut applications = Applications::fat_tree(LABEL);
    let Assigned { assignment, paths } = applications.assign("me", 2, PathSearch::EdgeDisjoint).unwrap();
    applications.world.traffic(ms(300));
    applications.claim("me", assignment, 2000).unwrap();
    assert_eq!(applications.claim("you", assignment, 2001), Err(AssignError::NotYours(assignment)));
    assert_eq!(applications.release("you", assignment), Err(AssignError::NotYours(assignment)));
    applications.open(2000);
    applications.world.traffic(SECOND);
    applications.release("me", assignment).unwrap();
    applications.world.traffic(Nanos::from_secs(1));
    applications.takes(2000, &paths[0]);
    // A connection without a claim uses the default routes, unseen by the controller.
    applications.open(2001);
    applications.world.traffic(ms(500));
    assert_eq!(applications.bound().len(), 2);
    applications.close(2000, true);
    applications.world.traffic(ms(500));
    applications.is_empty();
    applications.nothing_is_lost_or_left();
}

#[test]
fn connections_leave_dead_and_drained_paths() {
    for search in [PathSearch::BreadthFirst, PathSearch::EdgeDisjoint] {
        let mut applications = Applications::fat_tree(LABEL);
        let Assigned { assignment, paths } = applications.assign("me", 2, search).unwrap();
        applications.world.traffic(ms(300));
        for port in [2000, 2001] {
            applications.claim("me", assignment, port).unwrap();
            applications.open(port);
        }
        applications.world.traffic(SECOND);
        let route = |applications: &Applications| {
            let id = applications.bound()[0];
            applications.world.network.controller.view().flows[&id].route.clone().unwrap()
        };
        // No packet is lost if a link is taken out of service.
        let target = pathloom_control::Target::Cable(paths[0].links()[1]);
        applications.world.network.give_input(Input::Drain { target, out: true });
        applications.world.traffic(SECOND);
        let second = route(&applications);
        assert!(!second.links().contains(&paths[0].links()[1]));
        applications.world.no_mishap();
        applications.world.network.set_cable(second.links()[1], false);
        applications.world.traffic(SECOND);
        let third = route(&applications);
        assert!(third.is_up(&applications.world.network.controller.view().links) && third != second);
        applications.takes(2000, &third);
    }
}

/// The only path is down when the first packet arrives, which may have crossed it just before.
#[test]
fn a_connection_waits_for_its_only_path() {
    let fabric = Arc::new(fabric_from_spec("leaf-spine:spines=1,leaves=2,hosts=1").unwrap());
    let mut applications = Applications::new(fabric, LABEL, 1);
    let Assigned { assignment, paths } = applications.assign("me", 2, PathSearch::BreadthFirst).unwrap();
    assert_eq!(paths.len(), 1);
    applications.world.traffic(ms(300));
    applications.claim("me", assignment, 2000).unwrap();
    applications.world.network.set_cable(paths[0].links()[1], false);
    applications.world.traffic(ms(300));
    applications.open(2000);
    applications.world.traffic(ms(300));
    let up = AssignError::NoPath {
        src: applications.packet(1).five_tuple.src(),
        dst: applications.packet(1).five_tuple.dst(),
    };
    assert_eq!(applications.claim("me", assignment, 2001), Err(up));
    applications.world.network.set_cable(paths[0].links()[1], true);
    applications.world.traffic(SECOND);
    let view = applications.world.network.controller.view();
    assert_eq!(view.flows[&applications.bound()[0]].route.as_ref(), Some(&paths[0]));
}

#[test]
fn a_restart_keeps_assignments_claims_and_connections() {
    for late in [false, true] {
        let mut applications = Applications::fat_tree(LABEL);
        let Assigned { assignment, paths } = applications.assign("me", 4, PathSearch::BreadthFirst).unwrap();
        applications.world.traffic(ms(300));
        for port in [2000, 2001, 2002] {
            applications.claim("me", assignment, port).unwrap();
        }
        applications.open(2000);
        applications.world.traffic(ms(500));
        let mut snapshot = applications.world.network.controller.snapshot();
        applications.open(2001);
        applications.world.traffic(ms(500));
        if late {
            snapshot = applications.world.network.controller.snapshot();
        }
        applications.world.network.kill_controller();
        applications.world.traffic(ms(100));
        let text = serde_json::to_string(&snapshot).unwrap();
        let controller = applications.world.restored(serde_json::from_str(&text).unwrap(), 2).unwrap();
        applications.world.network.start_controller(controller);
        applications.world.connect_all();
        applications.world.traffic(ms(400));
        // A connection from after the snapshot is found in the switches.
        let all = applications.world.network.controller.assignments();
        assert_eq!((all.waiting_claims(), all.connections()), (1, 2), "{late}");
        applications.open(2002);
        applications.world.traffic(SECOND);
        for (port, path) in (2000..).zip(&paths[..3]) {
            applications.takes(port, path);
        }
        assert!(!applications
            .world
            .events()
            .iter()
            .any(|event| matches!(event, Event::FlowAdopted { flow } if is_bound(*flow))));
        applications.nothing_is_lost_or_left();
    }
}

/// One port may have connections to several ports of one receiver, but a claim has one of them.
#[test]
fn a_claim_that_has_its_connection_is_refused_to_another_one() {
    let mut applications = Applications::fat_tree(LABEL);
    let Assigned { assignment, paths } = applications.assign("me", 4, PathSearch::BreadthFirst).unwrap();
    applications.world.traffic(ms(300));
    let (src, dst, dst_port) = (
        applications.world.flow.five_tuple.src(),
        applications.world.flow.five_tuple.dst(),
        applications.world.flow.five_tuple.dst_port(),
    );
    let key = ClaimKey::to_come(src, dst, 2000);
    applications.claim_to("me", assignment, key, Some(dst_port)).unwrap();
    applications.open(2000);
    applications.world.traffic(ms(500));
    // An answer may have been lost, so the claim is repeated.
    for opens_to in [None, Some(dst_port)] {
        assert_eq!(applications.claim_to("me", assignment, key, opens_to).as_ref(), Ok(&paths[0]));
    }
    let taken = AssignError::PortTaken { src_port: 2000, id: assignment };
    assert_eq!(applications.claim_to("me", assignment, key, Some(dst_port + 1)), Err(taken));
    applications.takes(2000, &paths[0]);
    applications.nothing_is_lost_or_left();
}

/// It knows neither the assignments nor their claims. Connections keep their paths, and applications ask again.
#[test]
fn a_controller_without_a_snapshot_leaves_connections_on_their_paths() {
    let mut applications = Applications::fat_tree(LABEL);
    let Assigned { assignment, paths } = applications.assign("me", 4, PathSearch::BreadthFirst).unwrap();
    applications.world.traffic(ms(300));
    for port in [2000, 2001] {
        applications.claim("me", assignment, port).unwrap();
    }
    applications.open(2000);
    applications.world.traffic(ms(500));
    applications.world.restart(2);
    applications.world.connect_all();
    applications.world.traffic(SECOND);
    applications.takes(2000, &paths[0]);
    assert_eq!(applications.claim("me", assignment, 2001), Err(AssignError::Unknown(assignment)));
    let again = applications.assign("me", 4, PathSearch::BreadthFirst).unwrap();
    assert_ne!(again.assignment, assignment);
    applications.world.traffic(ms(300));
    let path = applications.claim("me", again.assignment, 2001).unwrap();
    applications.open(2001);
    applications.world.traffic(SECOND);
    applications.takes(2000, &paths[0]);
    applications.takes(2001, &path);
    applications.nothing_is_lost_or_left();
}

/// Otherwise the first packet of a connection that follows at once would pass a switch without the rule that copies
/// it.
#[test]
fn connections_of_an_address_are_seen_when_its_switch_has_confirmed_the_rules_that_copy_them() {
    let mut applications = Applications::fat_tree(Needs::NOTHING);
    let src = applications.world.flow.five_tuple.src();
    let seen = |applications: &Applications| applications.world.network.controller.sees_connections_of(src);
    assert!(seen(&applications), "there is nothing to wait for");
    let Assigned { assignment, paths } = applications.assign("me", 1, PathSearch::BreadthFirst).unwrap();
    assert!(!seen(&applications));
    let mut waited = 0;
    while !seen(&applications) {
        applications.world.pass(Nanos::from_micros(100));
        waited += 1;
        assert!(waited < 10_000, "the switch answers barriers");
    }
    applications.claim("me", assignment, 2000).unwrap();
    applications.open(2000);
    applications.world.traffic(SECOND);
    applications.takes(2000, &paths[0]);
    // A switch without a session confirms nothing.
    let tor = applications.world.tor();
    applications.release("me", assignment).unwrap();
    applications.close(2000, true);
    applications.world.traffic(SECOND);
    applications.world.network.disconnect(tor);
    applications.assign("me", 1, PathSearch::BreadthFirst).unwrap();
    assert!(seen(&applications));
}
