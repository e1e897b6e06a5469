//! Rate limits of flows, limits of tables, and answers that must be ignored.

use pathloom_control::{Config, Controller, Enforcement, Input, Output, FIRST_METER};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::rules::Refusal;
use pathloom_model::{
    FabricBuilder, FiveTuple, Headers, LinkSettings, Nanos, NodeId, Path, Prefix, Tier, LONG_FLOW_DSCP, PROTO_TCP,
    TCP_FIN, TCP_SYN,
};
use pathloom_scheme::{Action, DefaultRoutes, Event, Needs, Rejection, State};
use pathloom_testkit::{ms, Network, Script, World, LABEL, SECOND, SFMM, SHARED, SLOW};
use std::sync::Arc;

/// A flow on a FatTree with links of 1 Gbit/s.
fn fat_tree(needs: Needs, config: Config) -> World {
    World::new(Arc::new(fabric_from_spec("fat-tree:k=4,rate=1Gbps").unwrap()), needs, config, 3)
}

fn metered(needs: Needs) -> World {
    fat_tree(needs, Config { enforcement: Some(Enforcement::Meter), ..Config::default() })
}

/// Returns the rates of the meters at the flow's source ToR, and whether all its rules there use one of them.
fn meters(world: &World) -> (Vec<u64>, bool) {
    let switch = &world.network.switches[world.tor().index()];
    let mine = |rule: &&pathloom_model::rules::Rule| rule.matches.src_port == Some(1000);
    let rules = switch.rules();
    let named = rules.iter().filter(mine).all(|rule| rule.meter.is_some_and(|id| switch.meters.contains_key(&id)));
    (switch.meters.values().map(|meter| meter.rate_bps).collect(), named)
}

#[test]
fn a_meter_follows_its_flow() {
    for needs in [LABEL, SFMM, SHARED] {
        let mut world = metered(needs);
        let flow = world.id();
        world.act(Action::Pace { flow, rate_bps: Some(8_000_000) });
        world.traffic(ms(300));
        assert_eq!(meters(&world), (vec![8_000_000], true));
        for turn in [2, 3, 1] {
            world.route(&world.walk(&[turn]).unwrap());
            world.traffic(SECOND);
            assert_eq!(meters(&world), (vec![8_000_000], true), "{needs:?} {turn}");
        }
        world.act(Action::Pace { flow, rate_bps: Some(9_000_000) });
        world.traffic(ms(300));
        assert_eq!(meters(&world), (vec![9_000_000], true));
        world.act(Action::Pace { flow, rate_bps: None });
        world.traffic(ms(300));
        assert_eq!(meters(&world), (vec![], false));
        world.act(Action::Pace { flow, rate_bps: Some(7_000_000) });
        world.traffic(ms(300));
        assert!(!world.outputs().any(|output| matches!(output, Output::PaceFlow { .. })));
        world.nothing_is_lost_or_left();
    }
}

#[test]
fn a_meter_lifted_without_a_session_is_deleted_when_the_switch_is_back() {
    for needs in [LABEL, SFMM, SHARED] {
        let mut world = metered(needs);
        let (flow, tor) = (world.id(), world.tor());
        world.act(Action::Pace { flow, rate_bps: Some(8_000_000) });
        world.traffic(ms(300));
        world.network.disconnect(tor);
        world.act(Action::Pace { flow, rate_bps: None });
        world.traffic(ms(100));
        assert_eq!(meters(&world), (vec![8_000_000], true));
        world.network.connect(tor);
        world.traffic(ms(300));
        assert_eq!(meters(&world), (vec![], false));
        world.nothing_is_lost_or_left();
    }
}

/// The counter of a rule that is added again starts at 0, but that of its flow does not.
#[test]
fn bytes_are_counted_across_a_change_of_meter() {
    let needs = Needs { poll_period: Some(SECOND), ..LABEL };
    let mut world = fat_tree(needs, Config { enforcement: Some(Enforcement::Meter), ..Config::default() });
    let flow = world.id();
    world.network.run_until(Nanos::from_secs(5));
    let before = world.network.packets.len();
    for rate in 1..8 {
        world.act(Action::Pace { flow, rate_bps: (rate % 2 == 1).then_some(rate * 1_000_000) });
        world.traffic(ms(400));
    }
    world.network.run_until(world.network.now() + Nanos::from_secs(3));
    // The first packet came before there was a rule.
    let sent = (world.network.packets.len() - before) as u64 * 1000;
    let counted = world.network.controller.view().flows[&flow].bytes;
    // What a switch forwards between its answer and the change is not counted: up to 30 ms here, seven times.
    assert!(counted <= sent && counted >= sent - 7 * 45 * 1000, "{counted} of {sent}");
    world.nothing_is_lost_or_left();
}

#[test]
fn meters_survive_restarts_and_lost_rules() {
    for memory in [false, true] {
        let mut world = metered(LABEL);
        let (flow, tor) = (world.id(), world.tor());
        world.act(Action::Pace { flow, rate_bps: Some(8_000_000) });
        world.route(&world.walk(&[2]).unwrap());
        world.traffic(SECOND);
        let snapshot = memory.then(|| world.network.controller.snapshot());
        world.network.kill_controller();
        // A meter of another controller, and one that was left behind.
        for id in [7, FIRST_METER + 500] {
            let meter =
                pathloom_model::rules::Meter { id: pathloom_model::rules::MeterId(id), rate_bps: 1, burst_bytes: 1 };
            world.network.switches[tor.index()].meters.insert(meter.id, meter);
        }
        world.traffic(ms(20));
        let config = Config { epoch: 2, ..world.config.clone() };
        let scheme = world.script.scheme_with(world.needs, vec![Action::SetDefaults(DefaultRoutes::SinglePath)]);
        let (fabric, now) = (world.network.fabric.clone(), world.network.now());
        world.network.start_controller(match snapshot {
            Some(snapshot) => Controller::restore(config, fabric.clone(), scheme, snapshot, now).unwrap(),
            None => Controller::new(config, fabric.clone(), scheme),
        });
        fabric.switches().iter().for_each(|&switch| world.network.connect(switch));
        world.traffic(SECOND);
        assert_eq!(meters(&world), (vec![1, 8_000_000], true), "{memory}");
        let flow = world.id();
        world.act(Action::Pace { flow, rate_bps: Some(6_000_000) });
        world.traffic(SECOND);
        assert_eq!(meters(&world), (vec![1, 6_000_000], true), "{memory}");
        world.network.run_until(world.network.now() + ms(100));
        world.network.wipe(tor);
        world.network.connect(tor);
        world.network.run_until(world.network.now() + SECOND);
        assert_eq!(meters(&world), (vec![6_000_000], true), "{memory}");
        world.traffic(SECOND);
        world.nothing_is_lost_or_left();
    }
}

/// A controller without a snapshot knows neither the rate nor who wanted it. If its scheme paces the flow, the meter stays.
#[test]
fn a_meter_of_an_earlier_controller_ends_unless_the_scheme_says_its_rate() {
    for needs in [LABEL, SFMM, SHARED] {
        for paces in [false, true] {
            let mut world = metered(needs);
            let flow = world.id();
            world.act(Action::Pace { flow, rate_bps: Some(8_000_000) });
            world.route(&world.walk(&[2]).unwrap());
            world.traffic(SECOND);
            world.network.kill_controller();
            let config = Config { epoch: 2, ..world.config.clone() };
            let scheme = world.script.scheme_with(world.needs, vec![Action::SetDefaults(DefaultRoutes::SinglePath)]);
            let fabric = world.network.fabric.clone();
            world.network.start_controller(Controller::new(config, fabric, scheme));
            world.connect_all();
            world.traffic(Nanos::from_secs(14));
            assert_eq!(meters(&world), (vec![8_000_000], true), "{needs:?}: a scheme may need some time");
            if paces {
                world.act(Action::Pace { flow: world.id(), rate_bps: Some(6_000_000) });
            }
            world.traffic(Nanos::from_secs(3));
            let expected = if paces { (vec![6_000_000], true) } else { (vec![], false) };
            assert_eq!(meters(&world), expected, "{needs:?}");
            world.nothing_is_lost_or_left();
        }
    }
}

#[test]
fn the_host_paces_if_the_meter_is_refused() {
    let mut world = metered(LABEL);
    let flow = world.id();
    world.act(Action::Pace { flow, rate_bps: Some(8_000_000) });
    world.network.run_until(world.network.now() + Nanos(1));
    let xid = world.outputs().find_map(|output| match output {
        Output::AddMeter { xid, .. } => Some(*xid),
        _ => None,
    });
    let (switch, xid) = (world.tor(), xid.unwrap());
    world.network.give_input(Input::Refused { switch, xid, why: Refusal::TableFull });
    world.traffic(ms(300));
    let paced: Vec<Option<u64>> = world
        .outputs()
        .filter_map(|output| match output {
            Output::PaceFlow { rate_bps, .. } => Some(*rate_bps),
            _ => None,
        })
        .collect();
    assert_eq!(paced, [Some(8_000_000)]);
    assert_eq!(meters(&world), (vec![], false));
    world.nothing_is_lost_or_left();
}

/// Nobody would raise a pace or end a hold of a scheme that is not in charge any more.
#[test]
fn limits_end_with_the_scheme_that_set_them() {
    for enforcement in [Enforcement::Host, Enforcement::Meter] {
        let mut world = fat_tree(LABEL, Config { enforcement: Some(enforcement), ..Config::default() });
        let flow = world.id();
        world.act(Action::Pace { flow, rate_bps: Some(8_000_000) });
        world.act(Action::Hold { flow, lease: Nanos::from_secs(15) });
        world.traffic(ms(300));
        world.network.log.clear();
        let next = Script::new();
        world.network.set_scheme(next.scheme_with(world.needs, vec![Action::SetDefaults(DefaultRoutes::SinglePath)]));
        world.traffic(ms(300));
        assert_eq!(meters(&world), (vec![], false), "{enforcement:?}");
        let told: Vec<&Output> = world
            .outputs()
            .filter(|output| matches!(output, Output::PaceFlow { .. } | Output::ReleaseFlow { .. }))
            .collect();
        let lifted = |output: &Output| matches!(output, Output::PaceFlow { rate_bps: None, .. });
        assert_eq!(told.iter().filter(|output| lifted(output)).count(), usize::from(enforcement == Enforcement::Host));
        assert_eq!(told.iter().filter(|output| matches!(output, Output::ReleaseFlow { .. })).count(), 1, "{told:?}");
        // The limits of the next scheme stay in effect.
        world.network.log.clear();
        next.at(world.network.now(), Action::Pace { flow, rate_bps: Some(5_000_000) });
        world.traffic(ms(300));
        let paced = world.outputs().any(|output| matches!(output, Output::PaceFlow { rate_bps: Some(5_000_000), .. }));
        assert!(paced || meters(&world) == (vec![5_000_000], true), "{enforcement:?}");
        // A change of scheme without limits sends nothing to hosts.
        next.at(world.network.now(), Action::Pace { flow, rate_bps: None });
        world.traffic(ms(300));
        world.network.log.clear();
        world.network.set_scheme(Script::new().scheme(world.needs));
        world.traffic(ms(300));
        assert!(!world.outputs().any(|o| matches!(o, Output::PaceFlow { .. } | Output::ReleaseFlow { .. })));
        world.nothing_is_lost_or_left();
    }
}

#[test]
fn a_path_without_room_for_its_rules_is_rejected_at_once() {
    for needs in [LABEL, SFMM, SHARED] {
        let world = fat_tree(needs, Config::default());
        let (path, core) =
            (world.walk(&[2]).unwrap(), world.walk(&[2]).unwrap().switches(&world.network.fabric, world.tor())[2]);
        let limit = world.bare[core.index()] as u32;
        // The limit is the number of rules that the core switch already has. The ToRs have more, so they are full as
        // well.
        let mut world = fat_tree(needs, Config { rule_limit: Some(limit), ..Config::default() });
        world.script.clear();
        world.network.log.clear();
        let flow = world.id();
        world.route(&path);
        world.traffic(SECOND);
        let rejected = world.script.events();
        let full = |event: &Event| matches!(event, Event::RouteRejected { flow: of, why: Rejection::OverBudget(_) } if *of == flow);
        assert!(rejected.iter().any(full), "{rejected:?}");
        assert!(!world.outputs().any(|output| matches!(output, Output::AddRule { .. })), "{needs:?}");
        assert_eq!(world.network.controller.counts().rules_max, world.bare.iter().copied().max().unwrap() as u32);
        world.nothing_is_lost_or_left();
    }
}

/// If there is room for a move in place but not for its last phases, the flow still moves in place, and by tags from
/// then on.
#[test]
fn a_migration_without_room_for_its_last_phases_moves_the_flow() {
    let roomy = fat_tree(SFMM, Config::default());
    let tor = roomy.tor();
    // At the source ToR: the rule that counts or routes the flow, and one more.
    let limit = roomy.bare[tor.index()] as u32 + 2;
    let mut world = fat_tree(SFMM, Config { rule_limit: Some(limit), ..Config::default() });
    for turn in [2, 3, 1, 2] {
        let path = world.walk(&[turn]).unwrap();
        world.route(&path);
        world.traffic(SECOND);
        let flow = world.id();
        assert_eq!(world.network.controller.view().flows[&flow].route, Some(path), "{turn}");
        assert!(world.network.controller.rules_at(tor) <= limit);
    }
    assert!(world.network.controller.counts().reroutes_in_place > 0);
    world.nothing_is_lost_or_left();
}

/// A switch reports that it is full although the controller expected it to have room, also in the middle of moves.
#[test]
fn a_refused_rule_leaves_nothing_behind() {
    for needs in [LABEL, SFMM, SHARED] {
        for room in 0..3 {
            let mut world = fat_tree(needs, Config::default());
            let (old, new) = (world.walk(&[2]).unwrap(), world.walk(&[3]).unwrap());
            world.route(&old);
            world.traffic(SECOND);
            world.script.clear();
            for switch in new.switches(&world.network.fabric, world.tor()) {
                let fake = &mut world.network.switches[switch.index()];
                fake.room = Some(fake.entries.len() + room);
            }
            world.route(&new);
            world.traffic(SECOND);
            let flow = world.id();
            let view = &world.network.controller.view().flows[&flow];
            let answer = match world.script.events().as_slice() {
                [Event::RouteConfirmed { .. }] => &new,
                [Event::RouteRejected { why: Rejection::Refused(_, Refusal::TableFull), .. }] => &old,
                other => panic!("{needs:?} {room}: {other:?}"),
            };
            assert_eq!((view.route.as_ref(), &view.pending), (Some(answer), &None), "{needs:?} {room}");
            assert_eq!(room > 0, answer == &new, "{needs:?} {room}");
            world.network.switches.iter_mut().for_each(|switch| switch.room = None);
            world.nothing_is_lost_or_left();
        }
    }
}

/// Time to drain that is longer than the tests here need to use all plans of a flow.
const LONG_DRAIN: Nanos = Nanos::from_secs(100);

fn refused_for_draining(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::RouteRejected { why: Rejection::Draining, .. })).count()
}

/// A flow has 64 plans. While rules of earlier paths drain under all of them, the flow stays where it is, on a
/// complete path.
#[test]
fn a_flow_whose_plans_are_used_up_stays_where_it_is() {
    // A move in place needs two plans. The last free one is either the first or the second of them.
    for (needs, more) in [(LABEL, 0), (SHARED, 0), (SFMM, 0), (SFMM, 1)] {
        let mut world = fat_tree(needs, Config { drain: Some(LONG_DRAIN), ..Config::default() });
        let (flow, paths) = (world.id(), [1, 2].map(|turn| world.walk(&[turn]).unwrap()));
        world.script.clear();
        for _ in 0..more {
            world.route(&paths[1]);
            world.traffic(SECOND);
            world.act(Action::Unroute { flow });
            world.traffic(SECOND);
        }
        for path in paths.iter().cycle().take(70) {
            world.route(path);
            world.network.send(world.flow);
            world.pass(ms(800));
        }
        let refused = refused_for_draining(&world.events());
        assert!((1..=10).contains(&refused), "{needs:?}: {refused}");
        let view = &world.network.controller.view().flows[&flow];
        assert!(view.pending.is_none() && paths.iter().any(|path| view.route.as_ref() == Some(path)), "{view:?}");
        let low = world.network.switches.iter().flat_map(|switch| switch.rules()).any(|rule| rule.priority == 999);
        assert_eq!(
            low,
            needs == SFMM && more == 0,
            "a move in place had no plan for its last phases: {needs:?} {more}"
        );
        world.traffic(ms(100));
        world.act(Action::Unroute { flow });
        world.traffic(ms(500));
        world.pass(LONG_DRAIN);
        world.nothing_is_lost_or_left();
    }
}

/// The same for the rule that counts a flow: its host opens and closes one connection again and again.
#[test]
fn a_connection_that_is_opened_many_times_blocks_nothing() {
    for needs in [LABEL, SFMM, SHARED] {
        let mut world = fat_tree(needs, Config { drain: Some(LONG_DRAIN), ..Config::default() });
        let path = world.walk(&[2]).unwrap();
        world.script.clear();
        for _ in 0..80 {
            world.route(&path);
            world.traffic(ms(250));
            world.network.send(Headers { tcp_flags: TCP_FIN, ..world.flow });
            world.pass(ms(50));
            world.network.send(Headers { tcp_flags: TCP_SYN, ..world.flow });
            world.pass(ms(50));
        }
        let refused = refused_for_draining(&world.events());
        assert!((10..=20).contains(&refused), "{needs:?}: {refused}");
        world.pass(LONG_DRAIN);
        world.nothing_is_lost_or_left();
    }
}

/// The same, but each flow is moved while rules of the one before still wait for their source ToR.
#[test]
fn a_flow_reuses_no_plan_of_the_previous_flow_with_its_ports() {
    for wait in 10..18 {
        let mut world = fat_tree(LABEL, Config { drain: Some(LONG_DRAIN), ..Config::default() });
        let paths = [1, 2].map(|turn| world.walk(&[turn]).unwrap());
        for path in paths.iter().cycle().take(80) {
            world.network.send(Headers { tcp_flags: TCP_FIN, ..world.flow });
            world.pass(ms(25));
            world.network.send(Headers { tcp_flags: TCP_SYN, ..world.flow });
            world.traffic(ms(wait));
            if !world.network.controller.view().flows.is_empty() {
                world.route(path);
            }
            world.traffic(ms(300));
        }
        world.pass(LONG_DRAIN);
        world.nothing_is_lost_or_left();
    }
}

/// A flow ends at any moment of its moves, with every way of moving.
#[test]
fn a_flow_that_ends_before_its_rules_arrive_leaves_nothing() {
    for needs in [LABEL, SFMM, SHARED] {
        for wait in (0..200).step_by(20) {
            let mut world = fat_tree(needs, Config::default());
            world.route(&world.walk(&[2]).unwrap());
            world.traffic(if wait % 40 == 0 { SECOND } else { ms(5) });
            world.route(&world.walk(&[3]).unwrap());
            world.traffic(ms(wait));
            world.network.send(Headers { tcp_flags: TCP_FIN, ..world.flow });
            world.traffic(ms(100));
            world.nothing_is_lost_or_left();
        }
    }
}

#[test]
fn a_flow_within_a_tor_has_a_path_without_links() {
    for needs in [LABEL, SFMM, SHARED] {
        let mut world = fat_tree(needs, Config::default());
        let near = world.network.fabric.attachments()[1].address;
        let five_tuple = world.flow.five_tuple.with_dst(near).with_src_port(2000);
        world.flow = Headers { five_tuple, ..world.flow };
        world.network.send(Headers { tcp_flags: TCP_SYN, ..world.flow });
        world.traffic(ms(300));
        let views = &world.network.controller.view().flows;
        let (&flow, view) = views.iter().find(|(_, view)| view.five_tuple == five_tuple).unwrap();
        assert_eq!((view.src_tor, view.size_bytes.get()), (view.dst_tor, None), "nobody announced its size");
        for _ in 0..2 {
            world.act(Action::Route { flow, path: Path::empty(), rate_bps: None });
            world.traffic(ms(500));
            assert_eq!(world.network.controller.view().flows[&flow].route, Some(Path::empty()));
            world.act(Action::Unroute { flow });
            world.traffic(ms(500));
        }
        world.nothing_is_lost_or_left();
    }
}

#[test]
fn answers_to_jobs_of_another_scheme_are_ignored() {
    let mut world = fat_tree(LABEL, Config::default());
    let job = |ticket| Action::Solve { ticket, input: State("job".into()), modelled: SECOND };
    world.act(job(5));
    world.act(job(6));
    world.network.run_until(world.network.now() + ms(500));
    let second = Script::new();
    world.network.set_scheme(second.scheme(LABEL));
    second.at(world.network.now(), job(5));
    world.network.run_until(world.network.now() + Nanos::from_secs(3));
    let solved = |script: &Script| {
        let tickets = script.events().into_iter().filter_map(|event| match event {
            Event::Solved { ticket, .. } => Some(ticket),
            _ => None,
        });
        tickets.collect::<Vec<_>>()
    };
    assert_eq!(
        (solved(&world.script), solved(&second)),
        (vec![], vec![5]),
        "one answer, to the job of the second scheme"
    );
    assert_eq!(world.network.controller.counts().invalid_inputs, 2);
}

/// A link without capacity cannot carry packets. No requested path and no default route uses it.
#[test]
fn a_link_without_capacity_is_never_used() {
    for needs in [LABEL, SFMM, SHARED] {
        let settings = |rate_bps| LinkSettings { rate_bps, delay_ps: 1_000_000, buffer_packets: 100 };
        let mut builder = FabricBuilder::new("diamond");
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| builder.switch(name, Tier::Tor, None));
        let [ab, bd, ac, cd] = [(a, b, 0), (b, d, 10_000_000), (a, c, 10_000_000), (c, d, 10_000_000)]
            .map(|(from, to, rate)| builder.cable(from, to, settings(rate)));
        for (name, tor) in [("s", a), ("t", d)] {
            let host = builder.host(name, None);
            builder.cable(host, tor, settings(10_000_000));
        }
        let fabric = Arc::new(builder.build().unwrap());
        let script = Script::new();
        let scheme = script.scheme_with(needs, vec![Action::SetDefaults(DefaultRoutes::Ecmp)]);
        let controller = Controller::new(Config::default(), fabric.clone(), scheme);
        let mut network = Network::new(fabric.clone(), controller, SLOW, 3);
        network.start();
        let (src, dst) = (fabric.attachments()[0].address, fabric.attachments()[1].address);
        for src_port in 0..16 {
            let five_tuple = FiveTuple::new(PROTO_TCP, (src, src_port), (dst, 80));
            let flow = Headers { dscp: LONG_FLOW_DSCP, tcp_flags: TCP_SYN, ..Headers::plain(five_tuple) };
            assert!(network.reaches(flow));
            let packet = network.send(flow);
            network.run_until(network.now() + ms(200));
            assert_eq!(network.packets[packet].switches, [a, c, d]);
        }
        let flow = *network.controller.view().flows.keys().next().unwrap();
        script.clear();
        script.at(network.now(), Action::Route { flow, path: Path::new([ac, cd]), rate_bps: None });
        script.at(network.now() + SECOND, Action::Route { flow, path: Path::new([ab, bd]), rate_bps: None });
        network.run_until(network.now() + Nanos::from_secs(2));
        let why = Rejection::LinkDown(ab);
        assert_eq!(script.events(), [Event::RouteConfirmed { flow }, Event::RouteRejected { flow, why }]);
        network.set_cable(ab, false);
        network.set_cable(ab, true);
        network.run_until(network.now() + Nanos::from_secs(60));
        assert!(!network.controller.view().links.is_up(ab), "carrier is not capacity");
    }
}

/// The agent may have been started again, or have missed a change while it had no connection.
#[test]
fn an_agent_that_connects_gets_the_rates_of_its_flows() {
    let mut world = fat_tree(LABEL, Config { enforcement: Some(Enforcement::Host), ..Config::default() });
    let (flow, fabric) = (world.id(), world.network.fabric.clone());
    let rates = |world: &World| -> Vec<Option<u64>> {
        let rate = |output: &Output| match output {
            Output::PaceFlow { rate_bps, .. } => Some(*rate_bps),
            _ => None,
        };
        world.outputs().filter_map(rate).collect()
    };
    world.act(Action::Pace { flow, rate_bps: Some(8_000_000) });
    world.traffic(ms(300));
    for host in [fabric.hosts()[0], fabric.hosts()[1]] {
        world.network.give_input(Input::Agent { host, speaks: false });
        world.network.give_input(Input::Agent { host, speaks: true });
    }
    assert_eq!(rates(&world), [Some(8_000_000); 2], "the other host has no flow");
    world.act(Action::Pace { flow, rate_bps: None });
    world.traffic(ms(300));
    world.network.give_input(Input::Agent { host: fabric.hosts()[0], speaks: true });
    assert_eq!(rates(&world), [Some(8_000_000), Some(8_000_000), None]);
    world.nothing_is_lost_or_left();
}

/// A virtual machine moves with its address and its agent. The agent at the new port has other addresses.
#[test]
fn orders_for_a_moved_address_go_to_the_agent_that_names_it() {
    for enforcement in [Enforcement::Host, Enforcement::Any] {
        let mut world = fat_tree(LABEL, Config { enforcement: Some(enforcement), ..Config::default() });
        let fabric = world.network.fabric.clone();
        let [home, other, peer] = [1, 9, 12].map(|host| fabric.host_attachments(fabric.hosts()[host])[0]);
        let at = Some((other.tor, fabric.link(other.uplink).to_port));
        for host in [home.host, other.host] {
            world.network.give_input(Input::Agent { host, speaks: true });
        }
        world.network.give_input(Input::Place { prefix: Prefix::host(home.address), at });
        world.traffic(SECOND);
        let (src, dst) = (home.address, peer.address);
        let five_tuple = FiveTuple::new(PROTO_TCP, (src, 7), (dst, 80));
        world.network.give_input(Input::TransferAnnounced { five_tuple, size_bytes: None });
        let flow = world.network.controller.find_flow(&five_tuple).unwrap();
        world.act(Action::Hold { flow, lease: Nanos::from_secs(1) });
        world.act(Action::Pace { flow, rate_bps: Some(8_000_000) });
        world.act(Action::Release { flow });
        world.traffic(ms(300));
        world.network.give_input(Input::Agent { host: home.host, speaks: true });
        let told: Vec<NodeId> = world
            .outputs()
            .filter_map(|output| match *output {
                Output::HoldFlow { host, .. } | Output::ReleaseFlow { host, .. } | Output::PaceFlow { host, .. } => {
                    Some(host)
                }
                _ => None,
            })
            .collect();
        assert_eq!(told, [home.host; 5], "{enforcement:?}: three orders, and two again for the agent that came");
    }
}

/// An agent that comes replaces the meter, and a meter replaces an agent that goes.
#[test]
fn a_flow_is_paced_by_the_agent_of_its_host_if_there_is_one() {
    for needs in [LABEL, SFMM, SHARED] {
        let mut world = fat_tree(needs, Config { enforcement: Some(Enforcement::Any), ..Config::default() });
        let flow = world.id();
        let host = world.network.controller.view().fabric.hosts()[0];
        let paced = |world: &World| {
            world.outputs().filter(|output| matches!(output, Output::PaceFlow { rate_bps: Some(_), .. })).count()
        };
        world.act(Action::Pace { flow, rate_bps: Some(8_000_000) });
        world.traffic(ms(300));
        assert_eq!((meters(&world), paced(&world)), ((vec![8_000_000], true), 0));
        for turn in 1..4 {
            world.network.give_input(Input::Agent { host, speaks: true });
            world.traffic(ms(300));
            assert_eq!((meters(&world), paced(&world)), ((vec![], false), 2 * turn - 1), "{needs:?}");
            // Another agent gets the rate, too.
            world.network.give_input(Input::Agent { host, speaks: true });
            world.traffic(ms(300));
            assert_eq!((meters(&world), paced(&world)), ((vec![], false), 2 * turn), "{needs:?}");
            world.network.give_input(Input::Agent { host, speaks: false });
            world.traffic(ms(300));
            assert_eq!((meters(&world), paced(&world)), ((vec![8_000_000], true), 2 * turn));
        }
        world.act(Action::Pace { flow, rate_bps: None });
        world.traffic(ms(300));
        assert_eq!(meters(&world), (vec![], false));
        let nobody = pathloom_model::NodeId(u32::MAX);
        world.network.give_input(Input::Agent { host: nobody, speaks: true });
        assert_eq!(world.network.controller.counts().invalid_inputs, 1);
        world.nothing_is_lost_or_left();
    }
}

/// The agent may have missed a release while it had no connection, or while the controller was started again.
#[test]
fn an_agent_that_connects_gets_the_releases_of_its_flows() {
    for restarts in [false, true] {
        let mut world = fat_tree(LABEL, Config::default());
        let (flow, fabric) = (world.id(), world.network.fabric.clone());
        let hold = Action::Hold { flow, lease: Nanos::from_secs(15) };
        let connect = |world: &mut World| {
            world.network.log.clear();
            for host in [fabric.hosts()[0], fabric.hosts()[1]] {
                world.network.give_input(Input::Agent { host, speaks: false });
                world.network.give_input(Input::Agent { host, speaks: true });
            }
            world.outputs().filter(|output| matches!(output, Output::ReleaseFlow { .. })).count()
        };
        world.act(hold.clone());
        world.traffic(ms(300));
        assert_eq!(connect(&mut world), 0, "the flow is held");
        let next = Script::new();
        world.network.set_scheme(next.scheme_with(world.needs, vec![Action::SetDefaults(DefaultRoutes::SinglePath)]));
        world.traffic(ms(300));
        if restarts {
            let snapshot = world.network.controller.snapshot();
            world.network.kill_controller();
            let config = Config { epoch: 2, ..world.config.clone() };
            let (scheme, now) = (next.scheme(world.needs), world.network.now());
            let controller = Controller::restore(config, fabric.clone(), scheme, snapshot, now).unwrap();
            world.network.start_controller(controller);
            world.connect_all();
            world.traffic(ms(300));
        }
        assert_eq!(connect(&mut world), 1, "the other host has no flow");
        next.at(world.network.now(), hold);
        world.traffic(ms(300));
        assert_eq!(connect(&mut world), 0, "the flow is held again");
        world.nothing_is_lost_or_left();
    }
}
