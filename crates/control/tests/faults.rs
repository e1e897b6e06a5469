//! Dead links, lost sessions, refusals and empty tables.

use pathloom_control::{Config, Controller};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::rules::Refusal;
use pathloom_model::{LinkId, Nanos, NodeId, Path};
use pathloom_scheme::{Action, DefaultRoutes, Event, FlowId, Rejection};
use pathloom_testkit::{ms, Network, Script, Timing, World, LABEL, SECOND};
use std::sync::Arc;

#[test]
fn a_flow_leaves_a_dead_path_at_once_and_can_be_routed_again() {
    let mut world = World::fat_tree();
    let path = world.walk(&[2]).unwrap();
    world.route(&path);
    world.traffic(SECOND);
    world.events();
    let dead = path.links()[1];
    world.network.set_cable(dead, false);
    world.traffic(ms(400));
    let sent = world.network.packets.len();
    world.traffic(SECOND);
    let id = world.id();
    let (low, high) = (dead.min(dead.reverse()), dead.max(dead.reverse()));
    let changed = |link| Event::LinkChanged { link, up: false };
    assert_eq!(world.events(), [changed(low), changed(high)]);
    assert_eq!(world.network.controller.view().flows[&id].route, None);
    assert_eq!(world.network.controller.counts().rescued, 1);
    let late = world.network.delivery_errors().into_iter().filter(|report| report.sent > ms(400)).count();
    assert!(late > 0, "some packets were lost on the link");
    world.pass(ms(100));
    let bad = world.network.delivery_errors();
    assert!(bad.iter().all(|report| !world.network.packets[sent..].iter().any(|p| p.sent == report.sent)));
    world.route(&path);
    world.pass(ms(300));
    let why = Rejection::LinkDown(dead);
    assert_eq!(world.events(), [Event::RouteRejected { flow: id, why }]);
    world.network.set_cable(dead, true);
    world.pass(SECOND);
    world.route(&path);
    world.traffic(SECOND);
    assert!(world.events().contains(&Event::RouteConfirmed { flow: id }));
    world.pass(Nanos::from_secs(40));
    assert_eq!(world.leaked(), Vec::<String>::new());
}

/// A world whose rules for paths expire after 2 s, with a flow on a path.
fn short_idle() -> (World, Path) {
    let config = Config { path_idle_timeout_s: Some(2), ..Config::default() };
    let fabric = Arc::new(fabric_from_spec("fat-tree:k=4,rate=1Gbps").unwrap());
    let mut world = World::new(fabric, LABEL, config, 3);
    let path = world.walk(&[2]).unwrap();
    world.route(&path);
    world.traffic(SECOND);
    world.events();
    (world, path)
}

/// Number of rules of the flow at its source ToR.
fn source_rules(world: &World) -> usize {
    let rules = world.network.switches[world.tor().index()].rules();
    rules.iter().filter(|rule| rule.matches.src_port == Some(1000)).count()
}

#[test]
fn a_flow_that_pauses_keeps_its_path_until_it_is_over() {
    let (mut world, _) = short_idle();
    let id = world.id();
    for pause_s in [3, 5, 8] {
        world.pass(Nanos::from_secs(pause_s));
        assert_eq!(world.events(), [], "a pause of {pause_s} s does not end the flow");
        world.traffic(ms(500));
        assert_eq!(source_rules(&world), 1);
        assert!(world.network.controller.view().flows[&id].route.is_some());
    }
    // The pauses did not end the flow, but this one is longer than its time-out.
    world.pass(Nanos::from_secs(14));
    assert_eq!(world.events(), [Event::FlowFinished { flow: id }]);
    world.pass(Nanos::from_secs(5));
    assert_eq!(world.leaked(), Vec::<String>::new());
}

#[test]
fn without_a_controller_an_idle_sender_leaves_a_dead_path() {
    let (mut world, path) = short_idle();
    let flow = world.flows[0];
    world.network.kill_controller();
    world.network.set_cable(path.links()[1], false);
    world.network.set_cable(path.links()[2], false);
    world.traffic(SECOND);
    assert!(!world.network.reaches(flow), "its path is dead, and there is no controller to move it");
    // TCP doubles the time between two attempts.
    let mut gap = ms(200);
    let mut tries = 0;
    while !world.network.reaches(flow) {
        world.pass(gap);
        world.network.send(flow);
        gap = gap + gap;
        tries += 1;
        assert!(tries < 6, "the flow is not back on the default routes after {gap:?}");
    }
    assert_eq!((tries, source_rules(&world)), (5, 0), "3.2 s are the first gap of more than 2 s");
    // A controller that starts again deletes the remaining rules of the path.
    path.links()[1..3].iter().for_each(|&link| world.network.set_cable(link, true));
    world.restart(2);
    world.connect_all();
    world.pass(Nanos::from_secs(60));
    let of_flow = |rule: &pathloom_model::rules::Rule| rule.matches.src_port == Some(1000);
    assert!(world.network.switches.iter().all(|switch| !switch.rules().iter().any(of_flow)));
}

#[test]
fn a_link_that_dies_in_the_middle_of_a_move_ends_it() {
    for wait in [1, 20, 40, 60, 80, 120] {
        let mut world = World::fat_tree();
        let (old, new) = (world.walk(&[2]).unwrap(), world.walk(&[3]).unwrap());
        world.route(&old);
        world.traffic(SECOND);
        world.events();
        world.route(&new);
        world.traffic(ms(wait));
        let dead = *new.links().iter().find(|link| !old.links().contains(link)).unwrap();
        world.network.set_cable(dead, false);
        world.traffic(SECOND);
        let id = world.id();
        let events = world.events();
        let answers = events.iter().filter(|event| {
            matches!(event, Event::RouteConfirmed { .. } | Event::RouteRejected { why: Rejection::LinkDown(_), .. })
        });
        assert_eq!(answers.count(), 1, "{wait}: {events:?}");
        let view = &world.network.controller.view().flows[&id];
        assert!(view.pending.is_none() && view.route.as_ref() != Some(&new), "{wait}: {view:?}");
        assert!(world.network.reaches(world.flow));
        world.pass(Nanos::from_secs(40));
        world.network.set_cable(dead, true);
        world.pass(SECOND);
        assert_eq!(world.leaked(), Vec::<String>::new(), "{wait}");
    }
}

#[test]
fn invalid_paths_are_rejected() {
    let mut world = World::fat_tree();
    let path = world.walk(&[2]).unwrap();
    let id = world.id();
    let links = path.links().to_vec();
    let host_link = world.network.fabric.attachments()[0].uplink;
    let cases = [
        (Path::new(&links[1..]), Rejection::WrongEnds),
        (path.reverse(), Rejection::WrongEnds),
        (Path::empty(), Rejection::WrongEnds),
        (Path::new([links[0], links[2]]), Rejection::Malformed),
        (Path::new([host_link]), Rejection::Malformed),
        (Path::new([LinkId(9999)]), Rejection::Malformed),
    ];
    for (path, why) in cases {
        world.events();
        world.route(&path);
        world.pass(SECOND);
        assert_eq!(world.events(), [Event::RouteRejected { flow: id, why }]);
    }
    let action = Action::Route { flow: FlowId(12345), path, rate_bps: None };
    world.script.at(world.network.now(), action);
    world.pass(SECOND);
    let why = Rejection::UnknownFlow;
    assert_eq!(world.events(), [Event::RouteRejected { flow: FlowId(12345), why }]);
    assert_eq!(world.network.controller.counts().rejected, 7);
}

#[test]
fn a_full_table_rolls_the_path_back() {
    for full in 0..5 {
        let mut world = World::fat_tree();
        let path = world.walk(&[2]).unwrap();
        let switches = path.switches(&world.network.fabric, world.network.fabric.link(path.links()[0]).from);
        let Some(&switch) = switches.get(full) else { break };
        let now = world.network.switches[switch.index()].entries.len();
        world.network.switches[switch.index()].room = Some(now);
        world.events();
        world.route(&path);
        world.traffic(SECOND);
        let (flow, why) = (world.id(), Rejection::Refused(switch, Refusal::TableFull));
        assert_eq!(world.events(), [Event::RouteRejected { flow, why }]);
        assert_eq!(world.network.controller.view().flows[&flow].route, None);
        world.no_mishap();
        world.pass(Nanos::from_secs(40));
        assert_eq!(world.leaked(), Vec::<String>::new(), "switch {full} of the path");
    }
}

#[test]
fn a_refused_default_route_is_sent_again() {
    let fabric = Arc::new(fabric_from_spec("fat-tree:k=4").unwrap());
    let scheme = Script::new().scheme_with(LABEL, vec![Action::SetDefaults(DefaultRoutes::SinglePath)]);
    let mut network =
        Network::new(fabric.clone(), Controller::new(Config::default(), fabric.clone(), scheme), Timing::NONE, 1);
    let tor = fabric.tors()[0];
    network.switches[tor.index()].room = Some(5);
    network.start();
    assert_eq!(network.switches[tor.index()].entries.len(), 5);
    assert!(network.controller.counts().refused > 0);
    network.switches[tor.index()].room = None;
    network.run_until(Nanos::from_secs(120));
    assert_eq!(network.switches[tor.index()].entries.len(), network.controller.rules_at(tor) as usize);
    assert!(network.controller.counts().messages_out < 2000, "not too often");
}

#[test]
fn a_lost_session_does_not_stop_traffic() {
    let mut world = World::fat_tree();
    let (old, new) = (world.walk(&[2]).unwrap(), world.walk(&[3]).unwrap());
    world.route(&old);
    world.traffic(SECOND);
    let middle = world.network.fabric.link(old.links()[1]).to;
    world.network.disconnect(middle);
    world.traffic(SECOND);
    world.events();
    world.route(&old.clone());
    world.pass(ms(100));
    assert_eq!(world.events(), [Event::RouteConfirmed { flow: world.id() }], "it is there already");
    let through = if new.switches(&world.network.fabric, NodeId(0)).contains(&middle) { new.clone() } else { new };
    world.route(&through);
    world.traffic(SECOND);
    world.network.connect(middle);
    world.traffic(SECOND);
    world.no_mishap();
    world.pass(Nanos::from_secs(40));
    assert_eq!(world.leaked(), Vec::<String>::new());
}

#[test]
fn a_switch_with_empty_tables_gets_everything_back() {
    let mut world = World::fat_tree();
    let path = world.walk(&[2]).unwrap();
    world.route(&path);
    world.traffic(SECOND);
    for &switch in &path.switches(&world.network.fabric, world.network.fabric.link(path.links()[0]).from) {
        world.network.wipe(switch);
        assert!(!world.network.reaches(world.flow));
        world.network.connect(switch);
        world.pass(SECOND);
        assert!(world.network.reaches(world.flow));
        assert_eq!(world.network.controller.view().flows[&world.id()].route.as_ref(), Some(&path));
    }
    world.traffic(SECOND);
    world.pass(Nanos::from_secs(40));
    assert_eq!(world.leaked(), Vec::<String>::new());
}
