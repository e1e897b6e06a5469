//! Moves flows between paths, on random fabrics and with random delays. Every packet must arrive once, and no rule
//! may remain at the end.

use pathloom_control::{Config, Controller, Decision};
use pathloom_model::{Attachment, Fabric, FiveTuple, Headers, Nanos, Path, LONG_FLOW_DSCP, PROTO_TCP, TCP_SYN};
use pathloom_scheme::{Action, DefaultRoutes, Event, Needs};
use pathloom_testkit::{ms, strategies, Fate, Network, Script, Timing, World, LABEL, SECOND, SHARED, SLOW};
use proptest::prelude::*;
use std::sync::Arc;

fn flow_between(a: &Attachment, b: &Attachment, port: u16) -> Headers {
    let five_tuple = FiveTuple::new(PROTO_TCP, (a.address, port), (b.address, 80));
    Headers { dscp: LONG_FLOW_DSCP, ..Headers::plain(five_tuple) }
}

fn syn(headers: Headers) -> Headers {
    Headers { tcp_flags: TCP_SYN, ..headers }
}

/// Where a flow is sent. Commands come with their wait after the command before.
#[derive(Clone, Debug)]
enum Command {
    Path(Vec<u8>),
    Defaults,
}

fn commands() -> impl Strategy<Value = Vec<(u64, Command)>> {
    let turns = prop::collection::vec(any::<u8>(), 1..6);
    let command = prop_oneof![5 => turns.prop_map(Command::Path), 1 => Just(Command::Defaults)];
    prop::collection::vec((0..120u64, command), 1..7)
}

struct Case {
    network: Network,
    script: Script,
    flow: Headers,
    fixed: Vec<usize>,
}

/// Creates a network with default routes, and one long flow that the controller knows.
fn case(fabric: Arc<Fabric>, needs: Needs, timing: Timing, drain: Option<Nanos>, seed: u64) -> Case {
    let script = Script::new();
    let scheme = script.scheme_with(needs, vec![Action::SetDefaults(DefaultRoutes::SinglePath)]);
    let config = Config { drain, ..Config::default() };
    let controller = Controller::new(config, fabric.clone(), scheme);
    let mut network = Network::new(fabric.clone(), controller, timing, seed);
    network.start();
    let fixed = network.switches.iter().map(|switch| switch.entries.len()).collect();
    let (first, last) = (fabric.attachments()[0], *fabric.attachments().last().expect("there are hosts"));
    let flow = flow_between(&first, &last, 1000);
    network.send(syn(flow));
    let later = network.now() + ms(200);
    network.run_until(later);
    Case { network, script, flow, fixed }
}

/// Carries out the commands with steady traffic, and waits at the end until all rules have expired.
fn run(case: &mut Case, commands: &[(u64, Command)]) {
    let Case { network, script, flow, .. } = case;
    let id = *network.controller.view().flows.keys().next().expect("the controller knows the flow");
    let fabric = network.fabric.clone();
    let view = &network.controller.view().flows[&id];
    let (from, to) = (view.src_tor, view.dst_tor);
    let mut at = network.now() + ms(10);
    for (wait, command) in commands {
        at += ms(*wait);
        let action = match command {
            Command::Defaults => Action::Unroute { flow: id },
            Command::Path(turns) => match strategies::walk(&fabric, from, to, turns) {
                Some(path) => Action::Route { flow: id, path, rate_bps: None },
                None => continue,
            },
        };
        script.at(at, action);
    }
    let end = at + ms(400);
    while network.now() < end {
        network.send(*flow);
        let next = network.now() + Nanos(700_000);
        network.run_until(next);
    }
    let quiet = network.now() + Nanos::from_secs(40);
    network.run_until(quiet);
}

fn leaked(case: &Case) -> Vec<String> {
    let fabric = &case.network.fabric;
    let mut found = Vec::new();
    for &switch in fabric.switches() {
        let (now, then) = (case.network.switches[switch.index()].entries.len(), case.fixed[switch.index()]);
        let counted = case.network.controller.rules_at(switch) as usize;
        if (now, counted) != (then, then) {
            found.push(format!("{}: {then} rules at first, {now} now, {counted} counted", fabric.node(switch).name));
        }
    }
    found
}

proptest! {

    #[test]
    fn no_packet_is_lost_duplicated_or_looped(
        fabric in strategies::fabrics(),
        needs in prop_oneof![Just(LABEL), Just(SHARED)],
        commands in commands(),
        seed: u64,
    ) {
        let mut case = case(fabric, needs, SLOW, None, seed);
        run(&mut case, &commands);
        let errors = case.network.delivery_errors();
        prop_assert!(errors.is_empty(), "{} of {}: {:?}", errors.len(), case.network.packets.len(), errors[0]);
        prop_assert_eq!(leaked(&case), Vec::<String>::new());
        prop_assert!(case.network.controller.view().flows.is_empty());
        let last = case.script.events().into_iter().rfind(|event| !matches!(event, Event::FlowFinished { .. }));
        prop_assert!(!matches!(last, Some(Event::RouteRejected { .. })), "{:?}", last);
    }
}

/// Four switches with two paths that visit the two inner switches in opposite order.
fn crossing() -> (Arc<Fabric>, Path, Path) {
    let settings = pathloom_model::LinkSettings { rate_bps: 100_000_000, delay_ps: 1_000_000, buffer_packets: 100 };
    let mut builder = pathloom_model::FabricBuilder::new("crossing");
    let nodes: Vec<_> = ["a", "b", "c", "d"].map(|name| builder.switch(name, pathloom_model::Tier::Tor, None)).into();
    let (a, b, c, d) = (nodes[0], nodes[1], nodes[2], nodes[3]);
    let [ab, bc, cd, ac, bd] = [(a, b), (b, c), (c, d), (a, c), (b, d)].map(|(x, y)| builder.cable(x, y, settings));
    for (name, tor) in [("h1", a), ("h2", d)] {
        let host = builder.host(name, None);
        builder.cable(host, tor, settings);
    }
    let fabric = Arc::new(builder.build().unwrap());
    (fabric, Path::new([ab, bc, cd]), Path::new([ac, bc.reverse(), bd]))
}

/// Moves a flow between the paths of [`crossing`] several times.
fn cross(timing: Timing, drain: Option<Nanos>, seed: u64) -> Case {
    let (fabric, there, back) = crossing();
    let mut case = case(fabric, LABEL, timing, drain, seed);
    let id = *case.network.controller.view().flows.keys().next().unwrap();
    for round in 0..6u64 {
        for (path, offset) in [(&there, 0), (&back, 250)] {
            let at = case.network.now() + ms(20 + round * 500 + offset);
            case.script.at(at, Action::Route { flow: id, path: path.clone(), rate_bps: None });
        }
    }
    run(&mut case, &[(3100, Command::Defaults)]);
    case
}

#[test]
fn paths_that_visit_switches_in_opposite_order_are_safe() {
    for seed in 0..5 {
        let case = cross(SLOW, None, seed);
        assert!(case.network.delivery_errors().is_empty(), "{:?}", case.network.delivery_errors()[0]);
        assert_eq!(leaked(&case), Vec::<String>::new());
        assert_eq!(case.network.controller.counts().reroutes, 11, "all except the first of twelve");
    }
}

/// Shows that the checks above detect errors: if switches confirm messages that they have not carried out, packets
/// are lost.
#[test]
fn a_broken_order_is_detected() {
    let hasty = Timing { hasty_barriers: true, work: (ms(0), ms(120)), ..SLOW };
    let lost = |seed| cross(hasty, None, seed).network.delivery_errors().len();
    assert!((0..5).map(lost).sum::<usize>() > 0);
}

/// The same for rules of an old path that are deleted while packets are still on it.
#[test]
fn a_missing_drain_is_detected() {
    let slow_links =
        Timing { link: (ms(20), ms(40)), message: (ms(1), ms(1)), work: (ms(0), ms(0)), hasty_barriers: false };
    let lost = |seed| cross(slow_links, Some(Nanos::ZERO), seed).network.delivery_errors().len();
    assert!((0..5).map(lost).sum::<usize>() > 0);
}

#[test]
fn the_scheme_is_told_about_each_requested_path() {
    let case = cross(SLOW, None, 1);
    let events = case.script.events();
    let confirmed = events.iter().filter(|event| matches!(event, Event::RouteConfirmed { .. })).count();
    assert_eq!(confirmed, 12);
    assert!(!events.iter().any(|event| matches!(event, Event::RouteRejected { .. })));
    assert!(
        matches!(case.network.packets[0].fates.as_slice(), [(_, Fate::Arrived(..))]),
        "the SYN uses the default routes"
    );
}

#[test]
fn the_reason_is_the_request_that_called_a_move_off() {
    let mut world = World::fat_tree();
    let (first, second) = (world.walk(&[1]).unwrap(), world.walk(&[2]).unwrap());
    assert_ne!(first, second);
    world.route(&first);
    world.traffic(SECOND);
    // Both requests come before any rule of the move is confirmed.
    world.route(&second);
    world.route(&first);
    world.traffic(SECOND);
    let controller = &world.network.controller;
    assert_eq!(controller.view().flows[&world.id()].route.as_ref(), Some(&first));
    let decision = controller.placement(world.id()).unwrap().decision;
    assert_eq!(decision, Decision::Route { path: first, rate_bps: None });
}
