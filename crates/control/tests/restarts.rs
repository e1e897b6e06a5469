//! Restarts of the controller, with and without a snapshot; changes of scheme; replays of logs.

use pathloom_control::{replay, Config, Controller, Input, Message, ReplayError, SchemeChange, Snapshot, Target};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{FiveTuple, Headers, Nanos, LONG_FLOW_DSCP, PROTO_TCP, TCP_SYN};
use pathloom_scheme::{Action, DefaultRoutes, Event, Scheme};
use pathloom_testkit::{ms, Network, Script, Timing, World, LABEL, SECOND, SFMM, SHARED};
use proptest::prelude::*;
use std::sync::Arc;

#[test]
fn a_new_controller_adopts_existing_flows() {
    let mut world = World::fat_tree();
    let path = world.walk(&[2]).unwrap();
    world.route(&path);
    world.traffic(SECOND);
    let id = world.id();
    world.events();
    world.restart(2);
    world.traffic(SECOND);
    world.connect_all();
    world.traffic(SECOND);
    assert_eq!(world.events(), [Event::Started, Event::FlowAdopted { flow: id }]);
    assert_eq!(world.network.controller.view().flows[&id].route, Some(path.clone()));
    assert_eq!(world.network.controller.counts().messages_out, 20, "the controller only read the rules of 20 switches");
    let other = world.walk(&[3]).unwrap();
    world.route(&other);
    world.traffic(SECOND);
    assert_eq!(world.events(), [Event::RouteConfirmed { flow: id }]);
    world.no_mishap();
    world.pass(Nanos::from_secs(40));
    assert_eq!(world.events(), [Event::FlowFinished { flow: id }]);
    assert_eq!(world.leaked(), Vec::<String>::new());
}

#[test]
fn flows_that_end_without_a_controller_leave_no_rules() {
    let mut world = World::fat_tree();
    let path = world.walk(&[2]).unwrap();
    world.route(&path);
    world.traffic(SECOND);
    world.restart(2);
    world.pass(Nanos::from_secs(30));
    world.connect_all();
    world.pass(Nanos::from_secs(30));
    assert!(world.network.controller.view().flows.is_empty());
    assert_eq!(world.leaked(), Vec::<String>::new());
}

#[test]
fn a_snapshot_restores_data_that_rules_do_not_contain() {
    let mut world = World::fat_tree();
    let path = world.walk(&[2]).unwrap();
    world.route(&path);
    world.traffic(SECOND);
    let announced = Input::TransferAnnounced { five_tuple: world.flow.five_tuple, size_bytes: Some(123_456_789) };
    world.network.give_input(announced);
    let snapshot = world.network.controller.snapshot();
    let text = serde_json::to_string(&snapshot).unwrap();
    let snapshot: Snapshot = serde_json::from_str(&text).unwrap();
    assert_eq!(snapshot, world.network.controller.snapshot());
    let (id, before) = (world.id(), world.network.controller.view().flows[&world.id()].clone());
    world.events();
    world.network.kill_controller();
    world.traffic(ms(100));
    let controller = world.restored(snapshot.clone(), 2).unwrap();
    world.network.start_controller(controller);
    world.connect_all();
    world.traffic(SECOND);
    assert_eq!(world.events(), [Event::Started, Event::FlowAdopted { flow: id }]);
    assert_eq!(world.network.controller.view().flows[&id], before);

    // The same snapshot after the flow has moved: the rules of the switches have precedence.
    let other = world.walk(&[3]).unwrap();
    world.route(&other);
    world.traffic(SECOND);
    world.network.kill_controller();
    world.events();
    let controller = world.restored(snapshot, 3).unwrap();
    world.network.start_controller(controller);
    world.connect_all();
    world.traffic(SECOND);
    assert_eq!(world.events(), [Event::Started, Event::FlowAdopted { flow: id }]);
    let view = &world.network.controller.view().flows[&id];
    assert_eq!((view.route.as_ref(), view.size_bytes.get()), (Some(&other), Some(123_456_789)));
    world.no_mishap();
    world.pass(Nanos::from_secs(40));
    assert_eq!(world.events(), [Event::FlowFinished { flow: id }]);
    assert_eq!(world.leaked(), Vec::<String>::new());
}

/// A snapshot can be written at any moment of a move, and the move continues before the controller stops. The rules
/// that are found show its progress.
#[test]
fn a_snapshot_from_before_the_end_of_a_move_costs_no_packet() {
    for needs in [LABEL, SFMM, SHARED] {
        for moment_ms in 0..40 {
            let fabric = Arc::new(fabric_from_spec("fat-tree:k=4,rate=1Gbps").unwrap());
            let mut world = World::new(fabric, needs, Config::default(), moment_ms);
            world.route(&world.walk(&[2]).unwrap());
            world.traffic(SECOND);
            let other = world.walk(&[3]).unwrap();
            world.route(&other);
            world.traffic(ms(5 * moment_ms));
            let snapshot = world.network.controller.snapshot();
            world.traffic(SECOND);
            assert_eq!(world.network.controller.view().flows[&world.id()].route.as_ref(), Some(&other));
            world.network.kill_controller();
            let controller = world.restored(snapshot, 2).unwrap();
            world.network.start_controller(controller);
            world.connect_all();
            world.traffic(Nanos::from_secs(5));
            let what = format!("{needs:?} at {moment_ms}");
            assert_eq!(world.network.controller.view().flows.len(), 1, "{what}");
            let route = &world.network.controller.view().flows[&world.id()].route;
            assert_eq!(route.as_ref(), Some(&other), "{what}");
            world.no_mishap();
            world.pass(Nanos::from_secs(40));
            assert_eq!(world.leaked(), Vec::<String>::new(), "{what}");
        }
    }
}

/// The end of the wait is not in the snapshot. A cable that is out of service stays so, and one that was cut
/// meanwhile is not used.
#[test]
fn a_cable_that_was_held_back_is_used_again_after_a_restart() {
    for (out, cut) in [(false, false), (true, false), (false, true)] {
        let mut world = World::fat_tree();
        let link = world.network.fabric.switch_cables().next().unwrap();
        let target = Target::Cable(link);
        for up in [false, true].repeat(8) {
            world.network.set_cable(link, up);
            world.pass(ms(40));
        }
        if out {
            world.network.give_input(Input::Drain { target, out });
        }
        assert!(!world.network.controller.view().links.is_up(link), "it is held back for 1.6 s");
        let snapshot = world.network.controller.snapshot();
        world.network.kill_controller();
        world.network.set_cable(link, !cut);
        let controller = world.restored(snapshot, 2).unwrap();
        world.network.start_controller(controller);
        world.connect_all();
        world.pass(SECOND);
        assert!(!world.network.controller.view().links.is_up(link), "{out} {cut}: it may still flap");
        world.pass(Nanos::from_secs(10));
        assert_eq!(world.network.controller.view().links.is_up(link), !out && !cut, "{out} {cut}");
        if out {
            world.network.give_input(Input::Drain { target, out: false });
            assert!(world.network.controller.view().links.is_up(link));
        }
    }
}

#[test]
fn a_snapshot_that_does_not_fit_is_refused() {
    let world = World::fat_tree();
    let good = serde_json::to_value(world.network.controller.snapshot()).unwrap();
    let with = |key: &str, value: serde_json::Value| {
        let mut changed = good.clone();
        changed[key] = value;
        let snapshot = serde_json::from_value(changed).unwrap();
        world.restored(snapshot, 2).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(with("form", 99.into()).contains("format 99"));
    assert!(with("fabric", "fat-tree:k=6".into()).contains("fat-tree:k=6"));
    assert!(with("scheme", "hedera".into()).contains("hedera"));
    assert!(with("state", "nonsense".into()).contains("nonsense"));
    assert!(with("nodes", 3.into()).contains("3 nodes"));
    assert_eq!(with("form", good["form"].clone()), "");
}

/// Its rules are deleted when they are found, and everything else is restored.
#[test]
fn a_flow_of_a_snapshot_whose_address_no_longer_exists_is_left_out() {
    let fabric = Arc::new(fabric_from_spec("fat-tree:k=4").unwrap());
    let mut world = World::with_flows(fabric.clone(), SHARED, Config::default(), 5, &[(0, 15), (1, 14)]);
    world.route(&world.walk(&[2]).unwrap());
    world.traffic(SECOND);
    let (ids, path): (Vec<_>, _) = (
        world.network.controller.view().flows.keys().copied().collect(),
        world.network.controller.view().flows[&world.id()].route.clone(),
    );
    let mut stored = serde_json::to_value(world.network.controller.snapshot()).unwrap();
    let gone = stored["flows"].as_array_mut().unwrap().iter_mut().find(|flow| flow["id"] == ids[1].0).unwrap();
    gone["five_tuple"]["dst"] = "10.9.9.9".into();
    let snapshot: Snapshot = serde_json::from_value(stored).unwrap();
    assert_eq!(snapshot.homeless(&fabric).iter().map(|flow| flow.dst().to_string()).collect::<Vec<_>>(), ["10.9.9.9"]);
    world.network.kill_controller();
    let controller = world.restored(snapshot, 2).unwrap();
    let restored: Vec<_> = controller.view().flows.iter().map(|(&id, flow)| (id, flow.route.clone())).collect();
    assert_eq!(restored, [(ids[0], path)]);
    world.network.start_controller(controller);
    world.connect_all();
    world.traffic(SECOND);
    world.nothing_is_lost_or_left();
}

#[test]
fn another_scheme_takes_over_without_loss() {
    let mut world = World::fat_tree();
    let (old, new) = (world.walk(&[2]).unwrap(), world.walk(&[3]).unwrap());
    world.route(&old);
    world.traffic(SECOND);
    let (id, second) = (world.id(), Script::new());
    let start = vec![Action::SetDefaults(DefaultRoutes::Ecmp)];
    world.network.set_scheme(second.scheme_with(LABEL, start));
    world.traffic(SECOND);
    assert_eq!(second.events(), [Event::Started, Event::FlowAdopted { flow: id }]);
    second.at(world.network.now(), Action::Route { flow: id, path: new, rate_bps: None });
    world.traffic(SECOND);
    assert_eq!(second.events()[2..], [Event::RouteConfirmed { flow: id }]);
    world.no_mishap();
}

#[test]
fn a_log_can_be_replayed() {
    let mut world = World::fat_tree();
    for turns in [[2], [3], [1], [0]] {
        let path = world.walk(&turns).unwrap();
        let at = world.network.now();
        world.route(&path);
        world.traffic(ms(300));
        if turns == [1] {
            world.network.set_cable(path.links()[1], false);
        }
        assert!(world.network.now() > at);
    }
    world.pass(Nanos::from_secs(20));
    let text: String = world.network.log.iter().map(|record| record.to_line() + "\n").collect();
    let mut records = pathloom_control::read_log(&text).unwrap();
    assert_eq!(records, world.network.log);

    // The scripted scheme must get the same actions again.
    let again = || {
        let start = vec![Action::SetDefaults(DefaultRoutes::SinglePath)];
        let scheme = world.script.from_the_start().scheme_with(LABEL, start);
        Controller::new(world.config.clone(), world.network.fabric.clone(), scheme)
    };
    assert!(replay(&records, &mut again(), nothing_else).unwrap() > 100);
    let output = records.iter().rposition(|record| matches!(record.message, Message::Output(_))).unwrap();
    let at = records[output].at;
    records.remove(output);
    let Err(ReplayError::Divergence(divergence)) = replay(&records, &mut again(), nothing_else) else {
        panic!("a missing output must be reported");
    };
    assert_eq!((divergence.at >= at, divergence.logged.is_none()), (true, true));
    let cut = &text[..text.len() - 20];
    assert!(pathloom_control::read_log(cut).unwrap_err().to_string().contains("cut off"));
}

fn nothing_else(change: &SchemeChange) -> Result<Box<dyn Scheme>, String> {
    Err(format!("nobody put {} in charge", change.spec))
}

fn named(spec: &str) -> Box<dyn Scheme> {
    pathloom_schemes::Registry::WithTestSchemes.parse(spec).unwrap().central(0).unwrap()
}

#[test]
fn a_log_with_changes_of_scheme_can_be_replayed() {
    let fabric = Arc::new(fabric_from_spec("fat-tree:k=4").unwrap());
    let fresh = || Controller::new(Config::default(), fabric.clone(), named("ofpt"));
    let mut network = Network::new(fabric.clone(), fresh(), Timing::NONE, 1);
    network.start();
    network.run_until(ms(100));
    let all = fabric.attachments();
    for (turn, change) in ["ecmp", "lessor", "hedera", "ofpt"].into_iter().enumerate() {
        for (index, at) in all.iter().enumerate() {
            let dst = all[(index + all.len() / 2 + turn) % all.len()].address;
            let src_port = 1000 + turn as u16;
            let five_tuple = FiveTuple::new(PROTO_TCP, (at.address, src_port), (dst, 2));
            network.send(Headers { dscp: LONG_FLOW_DSCP, tcp_flags: TCP_SYN, ..Headers::plain(five_tuple) });
        }
        // Some moves are in progress.
        network.run_until(network.now() + ms(1));
        network.set_scheme(named(change));
        network.run_until(network.now() + SECOND);
    }
    let text: String = network.log.iter().map(|record| record.to_line() + "\n").collect();
    let records = pathloom_control::read_log(&text).unwrap();
    let make = |change: &SchemeChange| Ok(named(&change.spec));
    let outputs = records.iter().filter(|record| matches!(record.message, Message::Output(_))).count();
    assert_eq!(replay(&records, &mut fresh(), make).unwrap(), outputs);
    assert!(outputs > 500);
    // Another scheme in its place has other outputs. An unknown scheme is named in the error.
    let other = |change: &SchemeChange| Ok(named(if change.spec == "lessor" { "spt" } else { &change.spec }));
    assert!(matches!(replay(&records, &mut fresh(), other), Err(ReplayError::Divergence(_))));
    let unknown = replay(&records, &mut fresh(), nothing_else).unwrap_err().to_string();
    assert!(unknown.contains("puts `ecmp` in charge: nobody put ecmp in charge"), "{unknown}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    /// Without a snapshot, and whatever the order and time in which the switches return, only their rules are read.
    #[test]
    fn adoption_changes_nothing(
        order in Just((0..20usize).collect::<Vec<_>>()).prop_shuffle(),
        gaps_ms in proptest::collection::vec(0u64..40, 20),
        seed: u64,
    ) {
        let fabric = Arc::new(fabric_from_spec("fat-tree:k=4").unwrap());
        let fresh = |epoch| {
            let config = Config { epoch, ..Config::default() };
            Controller::new(config, fabric.clone(), named("move:period=1h"))
        };
        let slow = |most_us: u64| (Nanos(1000), Nanos(most_us * 1000));
        let timing = Timing { link: slow(2000), message: slow(20_000), work: slow(10_000), hasty_barriers: false };
        let mut network = Network::new(fabric.clone(), fresh(1), timing, seed);
        network.start();
        let all = fabric.attachments();
        let flows: Vec<Headers> = (0..all.len()).map(|index| {
            let (src, dst) = (all[index].address, all[(index + all.len() / 2) % all.len()].address);
            let five_tuple = FiveTuple::new(PROTO_TCP, (src, 1000), (dst, 2));
            Headers { dscp: LONG_FLOW_DSCP, ..Headers::plain(five_tuple) }
        }).collect();
        flows.iter().for_each(|&headers| { network.send(Headers { tcp_flags: TCP_SYN, ..headers }); });
        let traffic = |network: &mut Network, time: Nanos| {
            let end = network.now() + time;
            while network.now() < end {
                flows.iter().for_each(|&headers| { network.send(headers); });
                network.run_until(network.now() + ms(2));
            }
        };
        traffic(&mut network, SECOND);
        prop_assert!(network.controller.view().flows.values().all(|flow| flow.route.is_some()));
        let routes = |network: &Network| -> Vec<_> {
            network.controller.view().flows.values().map(|flow| flow.route.clone()).collect()
        };
        let before = routes(&network);
        network.kill_controller();
        traffic(&mut network, ms(50));
        network.start_controller(fresh(2));
        for (&switch, &gap_ms) in order.iter().zip(&gaps_ms) {
            network.connect(fabric.switches()[switch]);
            traffic(&mut network, ms(gap_ms));
        }
        traffic(&mut network, SECOND);
        prop_assert_eq!(network.controller.counts().messages_out, 20);
        prop_assert_eq!(routes(&network), before);
        // The last packets are still in transit.
        network.run_until(network.now() + ms(100));
        let errors = network.delivery_errors();
        prop_assert!(errors.is_empty(), "{} packets: {:?}", errors.len(), errors[0]);
    }
}
