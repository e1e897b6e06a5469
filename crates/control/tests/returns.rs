//! Ways back: the reverse direction of a connection uses its flow's path, and the scheme gets no events about it.

use pathloom_control::cookies::is_way_back;
use pathloom_control::{Config, Input};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{Headers, Path};
use pathloom_scheme::{Action, Event, FlowId, Needs};
use pathloom_testkit::{ms, strategies, Network, World, LABEL, SECOND, SFMM, SHARED};
use proptest::prelude::*;
use std::sync::Arc;

const BOTH: Needs = Needs { both_directions: true, ..LABEL };

/// A flow of a FatTree, and the unlabelled packets that its receiver sends back.
fn world(needs: Needs) -> World {
    let fabric = Arc::new(fabric_from_spec("fat-tree:k=4").unwrap());
    let mut world = World::new(fabric, needs, Config::default(), 1);
    let back = Headers::plain(world.flow.five_tuple.reverse());
    world.flows.push(back);
    world
}

fn way_back(network: &Network) -> Option<FlowId> {
    network.controller.view().flows.keys().copied().find(|&id| is_way_back(id))
}

fn route(network: &Network, id: FlowId) -> Option<Path> {
    network.controller.view().flows[&id].route.clone()
}

#[test]
fn the_reverse_direction_uses_the_reversed_path() {
    let mut world = world(BOTH);
    for turns in [&[2][..], &[3], &[0]] {
        let path = world.walk(turns).unwrap();
        world.route(&path);
        world.traffic(SECOND);
        let back = way_back(&world.network).unwrap();
        assert_eq!(route(&world.network, back), Some(path.reverse()));
        let sent = world.network.send(world.flows[1]);
        world.pass(ms(100));
        let tor = path.switches(&world.network.fabric, world.tor()).pop().unwrap();
        assert_eq!(world.network.packets[sent].switches, path.reverse().switches(&world.network.fabric, tor));
    }
    let confirmed = Event::RouteConfirmed { flow: world.id() };
    assert_eq!(world.events().iter().filter(|event| **event == confirmed).count(), 3);
    assert_eq!(world.network.controller.counts().reroutes, 2, "requests of the scheme are counted");
    world.act(Action::Unroute { flow: world.id() });
    world.traffic(SECOND);
    assert_eq!(route(&world.network, way_back(&world.network).unwrap()), None);
    world.nothing_is_lost_or_left();
    assert!(!world.events().iter().any(|event| matches!(event, Event::RouteRejected { .. })));
}

#[test]
fn a_way_back_is_not_created_if_the_scheme_does_not_need_it() {
    let mut world = world(LABEL);
    let path = world.walk(&[2]).unwrap();
    world.route(&path);
    world.traffic(SECOND);
    assert_eq!(way_back(&world.network), None);
    world.nothing_is_lost_or_left();
}

#[test]
fn a_long_reverse_direction_gets_its_path_from_the_scheme() {
    let mut world = world(BOTH);
    let path = world.walk(&[2]).unwrap();
    world.route(&path);
    world.traffic(SECOND);
    let back = way_back(&world.network).unwrap();
    world.events();
    let five_tuple = world.flow.five_tuple.reverse();
    world.network.give_input(Input::TransferAnnounced { five_tuple, size_bytes: None });
    assert_eq!(world.events(), [Event::FlowArrived { flow: back }]);
    let other = world.walk(&[3]).unwrap();
    world.act(Action::Route { flow: back, path: other.reverse(), rate_bps: None });
    world.traffic(SECOND);
    assert_eq!(world.events(), [Event::RouteConfirmed { flow: back }]);
    world.route(&world.walk(&[0]).unwrap());
    world.traffic(SECOND);
    assert_eq!(route(&world.network, back), Some(other.reverse()), "it does not follow any more");
    world.nothing_is_lost_or_left();
}

#[test]
fn a_new_controller_without_a_snapshot_recognises_a_way_back() {
    let mut world = world(BOTH);
    let path = world.walk(&[2]).unwrap();
    world.route(&path);
    world.traffic(SECOND);
    let (id, back) = (world.id(), way_back(&world.network).unwrap());
    world.events();
    world.restart(2);
    world.traffic(SECOND);
    world.connect_all();
    world.traffic(SECOND);
    assert_eq!(world.events(), [Event::Started, Event::FlowAdopted { flow: id }]);
    assert_eq!(route(&world.network, back), Some(path.reverse()));
    let other = world.walk(&[3]).unwrap();
    world.route(&other);
    world.traffic(SECOND);
    assert_eq!(route(&world.network, back), Some(other.reverse()), "it follows the flow again");
    world.nothing_is_lost_or_left();
}

#[test]
fn a_way_back_ends_with_its_flow_and_with_its_scheme() {
    let mut world = world(BOTH);
    let path = world.walk(&[2]).unwrap();
    world.route(&path);
    world.traffic(SECOND);
    let plain = pathloom_schemes::parse("ecmp").unwrap().central(1).unwrap();
    world.network.set_scheme(plain);
    world.traffic(SECOND);
    assert_eq!(route(&world.network, way_back(&world.network).unwrap()), None);
    world.network.set_scheme(world.scheme());
    world.route(&world.walk(&[3]).unwrap());
    world.traffic(SECOND);
    assert_eq!(route(&world.network, way_back(&world.network).unwrap()), Some(world.walk(&[3]).unwrap().reverse()));
    world.network.give_input(Input::TransferEnded { five_tuple: world.flow.five_tuple });
    assert_eq!(way_back(&world.network), None);
    world.nothing_is_lost_or_left();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// On any fabric and with any way of moving, no packet of either direction is lost, and nothing remains at the
    /// end.
    #[test]
    fn no_packet_of_either_direction_is_lost(
        fabric in strategies::fabrics(),
        needs in prop::sample::select(vec![LABEL, SFMM, SHARED]),
        moves in prop::collection::vec((prop::collection::vec(any::<u8>(), 1..6), 0..400u64), 1..6),
        restart in any::<bool>(),
        seed: u64,
    ) {
        let needs = Needs { both_directions: true, ..needs };
        let mut world = World::new(fabric, needs, Config::default(), seed);
        let back = Headers::plain(world.flow.five_tuple.reverse());
        world.flows.push(back);
        for (turns, wait) in moves {
            if let Some(path) = world.walk(&turns) {
                world.route(&path);
            }
            world.traffic(ms(wait));
        }
        if restart {
            world.restart(2);
            world.traffic(ms(500));
            world.connect_all();
        }
        world.traffic(SECOND);
        world.nothing_is_lost_or_left();
    }
}
