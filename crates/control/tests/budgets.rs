//! Budgets for rules: one host must not fill the switches, and no packet is lost to make room.

use pathloom_control::{Config, Controller, Decision, Input, Priorities};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::search::simple_paths;
use pathloom_model::{
    Fabric, FiveTuple, Headers, LinkState, Nanos, Prefix, LONG_FLOW_DSCP, PROTO_TCP, TCP_FIN, TCP_SYN,
};
use pathloom_scheme::{Action, Event, Needs, Rejection};
use pathloom_schemes::Registry;
use pathloom_testkit::{ms, strategies, Network, World, LABEL, SECOND, SFMM, SHARED, SLOW};
use proptest::prelude::*;
use std::sync::Arc;

/// A network under `ofpt`.
fn under_ofpt(config: Config) -> Network {
    let fabric = Arc::new(fabric_from_spec("fat-tree:k=4,rate=1Gbps").unwrap());
    let scheme = Registry::Shipped.parse("ofpt").unwrap().central(1).unwrap();
    let mut network = Network::new(fabric.clone(), Controller::new(config, fabric, scheme), SLOW, 1);
    network.start();
    network
}

/// The first packet of a labelled flow between two hosts.
fn first(fabric: &Fabric, (src, dst): (usize, usize), src_port: u16) -> Headers {
    let address = |host: usize| fabric.attachments()[host].address;
    let five_tuple = FiveTuple::new(PROTO_TCP, (address(src), src_port), (address(dst), 80));
    Headers { dscp: LONG_FLOW_DSCP, tcp_flags: TCP_SYN, ..Headers::plain(five_tuple) }
}

/// One host sends first packets at 6,000 a second for a second. Returns the largest number of rules of a ToR and of
/// another switch.
fn flood(network: &mut Network) -> (usize, usize) {
    let fabric = network.fabric.clone();
    let (mut tor, mut other) = (0, 0);
    for number in 0..6000u16 {
        network.send(first(&fabric, (0, 15), 10_000 + number));
        let next = network.now() + Nanos(1_000_000_000 / 6000);
        network.run_until(next);
        if number % 100 == 99 {
            for &switch in fabric.switches() {
                let rules = network.switches[switch.index()].entries.len();
                let most = if fabric.tors().contains(&switch) { &mut tor } else { &mut other };
                *most = rules.max(*most);
            }
        }
    }
    (tor, other)
}

/// Without a budget, a host gets a rule for each flow at its ToR, and half of that at an aggregation switch. With one,
/// it gets half of the budget. Flows of other hosts still get their paths.
#[test]
fn one_host_gets_half_of_a_budget() {
    let limit = 1000;
    let unlimited = flood(&mut under_ofpt(Config::default()));
    println!("without a budget: {unlimited:?}");
    assert!(unlimited.0 > 4 * limit && unlimited.1 > 2 * limit, "{unlimited:?}");
    let mut network = under_ofpt(Config { rule_limit: Some(limit as u32), ..Config::default() });
    let limited = flood(&mut network);
    println!("with a budget of {limit}: {limited:?}");
    assert!(limited.0 <= limit / 2 + 40 && limited.1 <= limit / 2 + 40, "{limited:?}");
    let counts = network.controller.counts();
    assert!(counts.over_budget > 5000 && counts.made_room == 0, "{counts:?}");
    let fabric = network.fabric.clone();
    // Its neighbour at the same ToR.
    for port in 0..100 {
        network.send(first(&fabric, (1, 14), 10_000 + port));
    }
    network.run_until(network.now() + SECOND);
    let routed = network.controller.view().flows.values().filter(|flow| flow.src_host == fabric.attachments()[1].host);
    assert_eq!(routed.filter(|flow| flow.route.is_some()).count(), 100);
    assert!(network.delivery_errors().is_empty());
}

/// A host that began alone has half of the rules. When others need them, it gives some back. A host with less than its
/// share keeps what it has.
#[test]
fn a_host_with_more_than_its_share_makes_room() {
    let limit = 200;
    let mut network = under_ofpt(Config { rule_limit: Some(limit), ..Config::default() });
    let fabric = network.fabric.clone();
    let tor = fabric.tors()[0];
    // A few flows of another host, which never have to make room.
    let few: Vec<Headers> = (0..5).map(|number| first(&fabric, (4, 1), 20_000 + number)).collect();
    let (mut older, mut newer) = (few.clone(), Vec::new());
    let mut last: Vec<Headers> = Vec::new();
    for second in 0..60u16 {
        for number in 0..10 {
            let port = 10_000 + 10 * second + number;
            older.extend((older.len() < 150).then(|| first(&fabric, (0, 15), port)));
            newer.extend((second > 5 && newer.len() < 150).then(|| first(&fabric, (1, 14), port)));
        }
        for flow in older.iter().chain(&newer) {
            let begun = last.contains(flow);
            network.send(Headers { tcp_flags: if begun { 0 } else { TCP_SYN }, ..*flow });
        }
        last = older.iter().chain(&newer).copied().collect();
        network.run_until(network.now() + SECOND);
        assert!(network.switches[tor.index()].entries.len() <= limit as usize);
        let kept = |flow: &Headers| {
            let id = network.controller.find_flow(&flow.five_tuple).expect("the flow is known");
            network.controller.view().flows[&id].route.is_some()
        };
        assert!(second < 5 || few.iter().all(kept), "after {second} s");
    }
    let of = |host: usize| {
        let prefix = Some(Prefix::host(fabric.attachments()[host].address));
        let rules = network.switches[tor.index()].entries.iter().map(|entry| &entry.rule.matches);
        rules.filter(|matches| matches.src_port.is_some() && [matches.src, matches.dst].contains(&prefix)).count()
    };
    let (counts, held) = (network.controller.counts(), [of(0), of(1)]);
    assert!(counts.made_room > 0, "{counts:?}");
    assert!(held.iter().all(|&flows| (50..=70).contains(&flows)), "{held:?}");
    assert!(network.delivery_errors().is_empty());
}

/// Switches that tell what their tables hold have that budget, if it is less than the configured one.
#[test]
fn one_host_gets_half_of_what_the_table_of_a_switch_holds() {
    let mut network = under_ofpt(Config { rule_limit: Some(4000), ..Config::default() });
    for &switch in network.fabric.clone().switches() {
        network.give_input(Input::Capacity { switch, rules: 400 });
    }
    let limited = flood(&mut network);
    assert!(limited.0 <= 240 && limited.1 <= 240, "{limited:?}");
    let tor = network.fabric.tors()[0];
    // A switch that does not know, or has more room, has the configured budget.
    for rules in [0, 100_000] {
        network.give_input(Input::Capacity { switch: tor, rules });
        let (most, _) = flood(&mut network);
        assert!((400..=2040).contains(&most), "{most}");
    }
}

/// Rules of labels count for the host that needs them first, so one host with many paths leaves room for others.
#[test]
fn one_host_cannot_fill_a_switch_with_rules_of_paths() {
    let fabric = Arc::new(fabric_from_spec("fat-tree:k=4").unwrap());
    let (hosts, up) = (fabric.attachments().to_vec(), LinkState::of(&fabric));
    let middle = fabric.find("a0_0").unwrap();
    // Two flows to each ToR of another pod, one over each core switch that is next to `middle`; then another host's.
    let far: Vec<usize> = (4..16).collect();
    let mut pairs: Vec<(usize, usize)> = far.iter().map(|&to| (0, to)).collect();
    pairs.push((2, 15));
    let mut world = World::with_flows(fabric.clone(), SHARED, Config::default(), 1, &pairs);
    let bare = world.bare[middle.index()] as u32;
    world.network.give_input(Input::Capacity { switch: middle, rules: bare + 12 });
    for (number, &(from, to)) in pairs.iter().enumerate() {
        let paths = simple_paths(&fabric, &up, hosts[from].tor, hosts[to].tor, 4);
        let mut by_middle = paths.filter(|path| fabric.link(path.links()[0]).to == middle);
        let path = by_middle.nth(number % 2).unwrap();
        let flow = world.network.controller.find_flow(&world.flows[number].five_tuple).unwrap();
        world.act(Action::Route { flow, path, rate_bps: None });
        world.traffic(ms(200));
    }
    let routed = |flow: &Headers| {
        let id = world.network.controller.find_flow(&flow.five_tuple).unwrap();
        world.network.controller.view().flows[&id].route.is_some()
    };
    let of_host = world.flows[..12].iter().filter(|flow| routed(flow)).count();
    assert!((6..=8).contains(&of_host), "{of_host} of 12 paths");
    assert!(routed(&world.flows[12]), "another host gets its path");
    assert_eq!(world.network.controller.rules_at(middle), bare + of_host as u32 + 1);
    world.nothing_is_lost_or_left();
}

/// Whatever flows of whatever hosts arrive and end, no switch ever has more rules than its budget, no packet is lost,
/// and a host that has fewer flows than its share keeps them.
fn hosts_share_a_budget(
    fabric: Arc<Fabric>,
    needs: Needs,
    room: u32,
    flows: &[(usize, usize, u64, Vec<u8>, bool)],
) -> Result<(), TestCaseError> {
    let bare = World::new(fabric.clone(), needs, Config::default(), 1).bare;
    let limit = bare.iter().copied().max().unwrap_or(0) as u32 + room;
    let config = Config { rule_limit: Some(limit), priorities: Priorities::default(), ..Config::default() };
    let mut world = World::new(fabric.clone(), needs, config, 1);
    let hosts = fabric.attachments().len();
    for (port, (src, dst, wait, turns, ends)) in (2000..).zip(flows) {
        let (src, dst) = (src % hosts, dst % hosts);
        if src == dst {
            continue;
        }
        let headers = first(&fabric, (src, dst), port);
        world.network.send(headers);
        world.flows.push(Headers { tcp_flags: 0, ..headers });
        world.traffic(ms(*wait));
        let id = world.network.controller.find_flow(&headers.five_tuple);
        let ends_at = [src, dst].map(|host| fabric.attachments()[host].tor);
        let path = strategies::walk(&fabric, ends_at[0], ends_at[1], turns);
        if let (Some(flow), Some(path)) = (id, path) {
            world.act(pathloom_scheme::Action::Route { flow, path, rate_bps: None });
        }
        world.traffic(ms(*wait));
        if *ends {
            let gone = world.flows.remove(world.flows.len() / 2);
            world.network.send(Headers { tcp_flags: TCP_FIN, ..gone });
        }
        for &switch in fabric.switches() {
            let (has, counted) =
                (world.network.switches[switch.index()].entries.len(), world.network.controller.rules_at(switch));
            prop_assert!(has <= limit as usize && counted <= limit, "{:?} has {} of {}", switch, has, limit);
        }
    }
    world.flows.clear();
    world.nothing_is_lost_or_left();
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn no_switch_has_more_rules_than_its_budget(
        fabric in strategies::fabrics(),
        needs in prop_oneof![Just(LABEL), Just(SFMM), Just(SHARED)],
        room in 1..12u32,
        flows in prop::collection::vec(
            (0..4usize, 0..64usize, 1..60u64, prop::collection::vec(any::<u8>(), 1..5), any::<bool>()), 1..24),
    ) {
        hosts_share_a_budget(fabric, needs, room, &flows)?;
    }
}

/// The reason why a flow made room, and why another one got none, can be read.
#[test]
fn the_controller_says_why_a_flow_has_no_path() {
    let fabric = Arc::new(fabric_from_spec("fat-tree:k=4,rate=1Gbps").unwrap());
    let bare = World::new(fabric.clone(), LABEL, Config::default(), 3).bare;
    let tor = fabric.tors()[0];
    let limit = bare[tor.index()] as u32 + 1;
    let mut world = World::new(fabric, LABEL, Config { rule_limit: Some(limit), ..Config::default() }, 3);
    let (flow, path) = (world.id(), world.walk(&[2]).unwrap());
    world.script.clear();
    world.route(&path);
    world.traffic(ms(300));
    let full = Rejection::OverBudget(tor);
    assert_eq!(world.script.events(), [Event::RouteRejected { flow, why: full }]);
    let controller = &world.network.controller;
    let why = controller.history(flow).last().map(|why| why.decision.clone());
    assert_eq!(why, Some(Decision::Rejected { why: full }));
    let text = pathloom_control::decision_text(&world.network.fabric, &why.unwrap());
    assert!(text.contains("its share of the rules of") && text.contains("control.rule_limit"), "{text}");
    world.nothing_is_lost_or_left();
}
