//! Addresses that are not where the fabric has them. Default routes lead to them from everywhere, with every kind of
//! default routes and with interrupted cables, and follow them when they move. Flows leave their paths to the old
//! place of an address.

use pathloom_control::{Config, Controller, Input};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::search::ShortestPaths;
use pathloom_model::{Address, Fabric, FiveTuple, Headers, Nanos, NodeId, PortNo, Prefix, LONG_FLOW_DSCP, PROTO_UDP};
use pathloom_scheme::{Action, DefaultRoutes, Scheme};
use pathloom_testkit::{ms, Fate, Network, Script, Timing, LABEL};
use std::sync::Arc;

fn k4() -> Arc<Fabric> {
    Arc::new(fabric_from_spec("fat-tree:k=4").unwrap())
}

fn host(fabric: &Fabric, name: &str) -> (NodeId, (NodeId, PortNo)) {
    let host = fabric.find(name).unwrap();
    let at = fabric.host_attachments(host)[0];
    (host, (at.tor, fabric.link(at.uplink).to_port))
}

fn network(fabric: &Arc<Fabric>, scheme: Box<dyn Scheme>) -> Network {
    let controller = Controller::new(Config::default(), fabric.clone(), scheme);
    let mut network = Network::new(fabric.clone(), controller, Timing::NONE, 1);
    network.start();
    network
}

fn settle(network: &mut Network) {
    let later = network.now() + Nanos::from_secs(3);
    network.run_until(later);
}

fn place(network: &mut Network, prefix: Prefix, at: Option<(NodeId, PortNo)>) {
    network.give_input(Input::Place { prefix, at });
    settle(network);
}

/// Asserts that packets from every host to an address arrive at this host only, or nowhere.
fn assert_leads(network: &Network, dst: Address, to: Option<NodeId>) {
    for at in network.fabric.attachments().iter().filter(|at| Some(at.host) != to) {
        let five_tuple = FiveTuple::new(PROTO_UDP, (at.address, 7), (dst, 9));
        let fates = network.fates(Headers::plain(five_tuple));
        match to {
            Some(host) => assert_eq!(fates, [Fate::Arrived(host, None)], "{} to {dst}", at.address),
            None => assert!(matches!(fates[..], [Fate::Dropped(_)]), "{} to {dst}: {fates:?}", at.address),
        }
    }
}

fn script(how: DefaultRoutes) -> Box<dyn Scheme> {
    Script::new().scheme_with(LABEL, vec![Action::SetDefaults(how)])
}

#[test]
fn default_routes_lead_to_a_placed_address_and_follow_it() {
    let fabric = k4();
    let [(h3, at_h3), (h9, at_h9), (h0, _)] = ["h3", "h9", "h0"].map(|name| host(&fabric, name));
    for how in [DefaultRoutes::SinglePath, DefaultRoutes::Ecmp, DefaultRoutes::PerHost] {
        let mut network = network(&fabric, script(how));
        // An address of another network, one in the prefix of another rack, and the address of another host.
        let own = Address::new(10, 0, 0, 1);
        for address in [Address::new(192, 168, 5, 1), Address::new(10, 0, 0, 77), own] {
            let prefix = Prefix::host(address);
            place(&mut network, prefix, Some(at_h9));
            assert_leads(&network, address, Some(h9));
            let cut = fabric.link_between(at_h9.0, fabric.link(fabric.switch_ports(at_h9.0)[0].link).to).unwrap();
            network.set_cable(cut, false);
            settle(&mut network);
            assert_leads(&network, address, Some(h9));
            network.set_cable(cut, true);
            place(&mut network, prefix, Some(at_h3));
            assert_leads(&network, address, Some(h3));
            place(&mut network, prefix, None);
            assert_leads(&network, address, (address == own).then_some(h0));
        }
        let neighbour = Address::new(10, 0, 4, 2);
        assert!(network.reaches(Headers::plain(FiveTuple::new(6, (own, 1), (neighbour, 2)))));
    }
}

#[test]
fn the_longest_placed_prefix_wins() {
    let fabric = k4();
    let [(h15, at_h15), (h3, at_h3)] = ["h15", "h3"].map(|name| host(&fabric, name));
    let mut network = network(&fabric, script(DefaultRoutes::Ecmp));
    place(&mut network, Prefix::new(Address::UNSPECIFIED, 0), Some(at_h15));
    place(&mut network, Prefix::new(Address::new(10, 200, 0, 0), 16), Some(at_h3));
    assert_leads(&network, Address::new(8, 8, 8, 8), Some(h15));
    assert_leads(&network, Address::new(10, 200, 1, 1), Some(h3));
    // The fabric's own addresses stay unchanged.
    assert_leads(&network, Address::new(10, 0, 0, 99), None);
    assert_leads(&network, Address::new(10, 201, 0, 1), None);
    place(&mut network, Prefix::new(Address::UNSPECIFIED, 0), None);
    assert_leads(&network, Address::new(8, 8, 8, 8), None);
}

#[test]
fn invalid_places_are_counted_and_change_nothing() {
    let fabric = k4();
    let mut network = network(&fabric, script(DefaultRoutes::Ecmp));
    let before = network.controller.counts().invalid_inputs;
    let tor = fabric.tors()[0];
    for at in [
        (tor, PortNo(99)),
        (tor, PortNo(0)),
        (fabric.hosts()[0], PortNo(1)),
        (NodeId(9999), PortNo(1)),
        (tor, PortNo(3)),
    ] {
        place(&mut network, Prefix::host(Address::new(192, 168, 0, 1)), Some(at));
    }
    let up = fabric.switch_ports(tor).iter().any(|port| fabric.link(port.link).from_port == PortNo(3));
    assert_eq!(network.controller.counts().invalid_inputs - before, 4 + u64::from(up));
    assert_leads(&network, Address::new(192, 168, 0, 1), None);
}

#[test]
fn a_flow_to_a_placed_address_has_a_path_and_leaves_it_when_the_address_moves() {
    let fabric = k4();
    let [(h9, at_h9), (h3, at_h3)] = ["h9", "h3"].map(|name| host(&fabric, name));
    let script = Script::new();
    let mut network = network(&fabric, script.scheme(LABEL));
    let dst = Address::new(192, 168, 5, 1);
    place(&mut network, Prefix::host(dst), Some(at_h9));
    let five_tuple = FiveTuple::new(PROTO_UDP, (Address::new(10, 0, 0, 1), 7), (dst, 9));
    let packet = Headers { dscp: LONG_FLOW_DSCP, ..Headers::plain(five_tuple) };
    network.send(packet);
    let later = network.now() + ms(500);
    network.run_until(later);
    let flow = network.controller.find_flow(&five_tuple).expect("it was detected");
    let links = network.controller.view().links.clone();
    let path = ShortestPaths::between(&fabric, &links, fabric.tors()[0], at_h9.0).iter().next().unwrap();
    script.at(network.now() + ms(1), Action::Route { flow, path, rate_bps: None });
    // The network reads the next time-out of the controller after each input.
    network.give_input(Input::Timeout);
    settle(&mut network);
    assert!(network.controller.view().flows[&flow].route.is_some());
    assert_eq!(network.fates(packet), [Fate::Arrived(h9, None)]);
    network.give_input(Input::Place { prefix: Prefix::host(dst), at: Some(at_h3) });
    settle(&mut network);
    assert_eq!(network.fates(packet), [Fate::Arrived(h3, None)]);
    assert!(network.controller.find_flow(&five_tuple).is_none());
}

#[test]
fn a_restarted_controller_finds_placed_addresses() {
    let fabric = k4();
    let (h9, at_h9) = host(&fabric, "h9");
    // An address that is not on the fabric, and the address of another host.
    let cases = [Address::new(192, 168, 5, 1), Address::new(10, 0, 0, 1)];
    for (kept, dst) in [true, false].into_iter().flat_map(|kept| cases.map(|dst| (kept, dst))) {
        let mut network = network(&fabric, script(DefaultRoutes::Ecmp));
        place(&mut network, Prefix::host(dst), Some(at_h9));
        let snapshot = network.controller.snapshot();
        network.kill_controller();
        let config = Config { epoch: 2, ..Config::default() };
        let controller = if kept {
            Controller::restore(config, fabric.clone(), script(DefaultRoutes::Ecmp), snapshot, network.now()).unwrap()
        } else {
            Controller::new(config, fabric.clone(), script(DefaultRoutes::Ecmp))
        };
        network.start_controller(controller);
        network.start();
        assert_leads(&network, dst, Some(h9));
        assert_eq!(network.controller.placed().collect::<Vec<_>>(), [(dst, at_h9.0, at_h9.1)]);
    }
}
