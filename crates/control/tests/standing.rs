//! Connections whose first packet was not seen, and connections whose accepting side sends.

use pathloom_control::{Config, Input};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{FiveTuple, Headers, Nanos, TCP_ACK, TCP_FIN, TCP_SYN};
use pathloom_scheme::{Action, DefaultRoutes, Detection, Event, Needs};
use pathloom_testkit::{ms, World, LABEL, SECOND};
use std::sync::Arc;

const MEASURED: Needs =
    Needs { detection: Detection::Measured { nic_share: 0.1 }, poll_period: Some(SECOND), ..Needs::NOTHING };

/// The settings of a live controller, which also detects flows without their first packets.
fn live() -> Config {
    Config { sweep: Some(SECOND), both_directions: true, unlabelled: true, ..Config::default() }
}

/// Headers of both directions of a connection between the first host and the last.
fn both_ends(world: &World) -> [Headers; 2] {
    let there = Headers { dscp: 0, ..world.flow };
    let (src, dst, proto, src_port, dst_port) = (
        there.five_tuple.src(),
        there.five_tuple.dst(),
        there.five_tuple.proto(),
        there.five_tuple.src_port(),
        there.five_tuple.dst_port(),
    );
    let back = FiveTuple::new(proto, (dst, dst_port), (src, src_port));
    [there, Headers { five_tuple: back, ..there }]
}

fn unlabelled(needs: Needs, config: Config) -> World {
    let fabric = Arc::new(fabric_from_spec("fat-tree:k=4,rate=10Mbps").unwrap());
    World::new(fabric, needs, config, 1)
}

#[test]
fn data_of_the_accepting_side_is_a_flow() {
    for (config, known) in [(live(), 2), (Config::default(), 1)] {
        let mut world = unlabelled(MEASURED, Config { sweep: None, ..config });
        let [_, back] = both_ends(&world);
        world.network.send(Headers { tcp_flags: TCP_SYN | TCP_ACK, ..back });
        world.pass(ms(300));
        let flows = &world.network.controller.view().flows;
        assert_eq!(flows.len(), known);
        if known == 2 {
            assert!(flows.values().any(|flow| flow.five_tuple == back.five_tuple));
            // Each direction ends by itself.
            world.network.send(Headers { tcp_flags: TCP_FIN | TCP_ACK, ..back });
            world.pass(ms(300));
            assert_eq!(world.network.controller.view().flows.len(), 1);
        }
    }
}

#[test]
fn a_connection_that_was_idle_for_long_is_found_again() {
    let mut world = unlabelled(MEASURED, live());
    world.pass(Nanos::from_secs(16));
    assert!(world.network.controller.view().flows.is_empty(), "it was idle for longer than its time-out");
    world.traffic(Nanos::from_secs(3));
    assert_eq!(world.network.controller.view().flows.len(), 1);
    world.no_mishap();
    world.pass(Nanos::from_secs(60));
    for &switch in world.network.fabric.switches() {
        let rules = world.network.switches[switch.index()].rules();
        let lasting = rules.iter().filter(|rule| rule.hard_timeout_s == 0).count();
        assert_eq!(lasting, world.network.controller.rules_at(switch) as usize, "{switch:?}");
    }
    assert!(world.network.controller.view().flows.is_empty());
}

#[test]
fn open_connections_are_found_when_a_scheme_is_put_in_charge() {
    for needs in [MEASURED, LABEL] {
        let mut world = unlabelled(Needs::NOTHING, live());
        world.traffic(Nanos::from_secs(2));
        assert!(world.network.controller.view().flows.is_empty());
        let scheme = world.script.scheme_with(needs, vec![Action::SetDefaults(DefaultRoutes::SinglePath)]);
        world.network.set_scheme(scheme);
        world.traffic(SECOND);
        assert_eq!(world.network.controller.view().flows.len(), 1);
        assert_eq!(world.network.controller.counts().standing, 1);
        world.pass(Nanos::from_secs(20));
        assert!(world.network.controller.view().flows.is_empty());
        assert!(world.network.delivery_errors().is_empty());
    }
}

#[test]
fn packets_are_copied_only_for_a_moment() {
    let mut world = unlabelled(MEASURED, live());
    world.traffic(Nanos::from_secs(5));
    let copies = world.network.controller.counts().packet_ins;
    assert!(copies <= 2, "a flow with a rule is not copied: {copies}");
    // A connection that is not known, and whose host has the maximum number of flows, is copied for a quarter of the
    // time.
    let config = Config { max_flows_per_host: 0, ..live() };
    let mut world = unlabelled(MEASURED, config);
    world.traffic(Nanos::from_secs(5));
    let sent = world.network.packets.len() as u64;
    let copies = world.network.controller.counts().packet_ins;
    assert!(copies > 0 && copies < sent * 35 / 100, "{copies} of {sent}");
}

#[test]
fn any_detection_uses_labels_and_measurements() {
    const ANY: Needs =
        Needs { detection: Detection::Any { nic_share: 0.1 }, poll_period: Some(SECOND), ..Needs::NOTHING };
    let mut world = unlabelled(ANY, live());
    let id = world.id();
    let arrived = Event::FlowArrived { flow: id };
    assert!(world.events().contains(&arrived), "it has the label");
    let five_tuple = world.flow.five_tuple.with_src_port(2000);
    let other = Headers { five_tuple, dscp: 0, ..world.flow };
    world.network.send(Headers { tcp_flags: TCP_SYN, ..other });
    world.pass(ms(300));
    let arrived =
        |world: &World| world.events().iter().filter(|event| matches!(event, Event::FlowArrived { .. })).count();
    assert_eq!(arrived(&world), 0, "nobody knows yet whether it is long");
    world.flows = vec![other];
    world.traffic(Nanos::from_secs(4));
    assert_eq!(arrived(&world), 1, "it takes more than a tenth of its host's rate");
    // An announcement makes the flow long at once, whatever its rate.
    let five_tuple = world.flow.five_tuple.with_src_port(3000);
    let slow = Headers { five_tuple, dscp: 0, ..world.flow };
    world.network.send(Headers { tcp_flags: TCP_SYN, ..slow });
    world.pass(ms(300));
    let announced = Input::TransferAnnounced { five_tuple, size_bytes: None };
    (0..2).for_each(|_| world.network.give_input(announced.clone()));
    assert_eq!(arrived(&world), 1, "the scheme is told of it once");
    assert_eq!(world.network.controller.counts().announced, 1);
    // If every host labels its long flows, only the label counts.
    let world = unlabelled(ANY, Config { unlabelled: false, ..live() });
    assert_eq!(world.network.controller.needs().detection, Detection::Label);
}
