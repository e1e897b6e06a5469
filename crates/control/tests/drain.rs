//! Links and switches leave service and return under traffic. Every packet must arrive once, and none may use what is
//! out of service when the routes have changed.

use pathloom_control::{Config, Controller, Decision, DrainError, Input, Message, Record, Target};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{Fabric, FiveTuple, Headers, LinkId, Nanos, NodeId, Tier, LONG_FLOW_DSCP, PROTO_TCP, TCP_SYN};
use pathloom_scheme::{Action, DefaultRoutes, Scheme};
use pathloom_testkit::{ms, strategies, Network, Script, LABEL, SLOW};
use proptest::prelude::*;
use std::sync::Arc;

fn network(fabric: &Arc<Fabric>, scheme: Box<dyn Scheme>, seed: u64) -> Network {
    let controller = Controller::new(Config::default(), fabric.clone(), scheme);
    let mut network = Network::new(fabric.clone(), controller, SLOW, seed);
    network.start();
    let later = network.now() + ms(300);
    network.run_until(later);
    network
}

/// Headers of packets between many pairs of hosts.
fn tuples(fabric: &Fabric) -> Vec<Headers> {
    let all = fabric.attachments();
    let pair = |index: usize| {
        let (src, dst) = (all[index].address, all[(index * 7 + all.len() / 2) % all.len()].address);
        let five_tuple = FiveTuple::new(PROTO_TCP, (src, 1000 + index as u16), (dst, 80));
        (src != dst).then(|| Headers::plain(five_tuple))
    };
    (0..all.len()).filter_map(pair).collect()
}

/// Sends packets of all pairs for some time.
fn traffic(network: &mut Network, packets: &[Headers], time: Nanos) {
    let end = network.now() + time;
    while network.now() < end {
        for &headers in packets {
            network.send(headers);
        }
        let next = network.now() + ms(2);
        network.run_until(next);
    }
}

/// Asserts that no packet was lost. Returns whether a packet that was sent after `since` visited both ends of a link
/// in succession.
fn crossed(network: &mut Network, link: LinkId, since: Nanos) -> bool {
    let later = network.now() + ms(200);
    network.run_until(later);
    let errors = network.delivery_errors();
    assert!(errors.is_empty(), "{} of {}: {:?}", errors.len(), network.packets.len(), errors[0]);
    met_both_ends(network, link, since)
}

/// Whether a packet that was sent after `since` visited both ends of a link in succession.
fn met_both_ends(network: &Network, link: LinkId, since: Nanos) -> bool {
    let ends = [network.fabric.link(link).from, network.fabric.link(link).to];
    let crosses = |at: &[NodeId]| at == ends || at == [ends[1], ends[0]];
    let same_ends = |other: &LinkId| {
        let other = network.fabric.link(*other);
        crosses(&[other.from, other.to])
    };
    if network.fabric.switch_cables().filter(same_ends).count() > 1 {
        // It is unknown which of the parallel cables a packet used.
        return false;
    }
    network.packets.iter().any(|packet| packet.sent >= since && packet.switches.windows(2).any(crosses))
}

fn drained(network: &mut Network, target: Target, out: bool) {
    // What follows is also tested for switches without a session, where an operator has to wait.
    let checked = network.controller.check_drain(network.now(), target, out);
    assert!(matches!(checked, Ok(()) | Err(DrainError::NoSession(_))), "{checked:?}");
    network.give_input(Input::Drain { target, out });
}

/// Sends traffic until a link is reported as safe to pull, and asserts that no packet crosses it from then on.
fn is_safe_when_it_says_so(network: &mut Network, packets: &[Headers], link: LinkId) {
    let late = network.now() + ms(3000);
    while network.controller.may_be_crossed(link) {
        assert!(network.now() < late, "{link:?} is not drained");
        traffic(network, packets, ms(2));
    }
    let since = network.now();
    traffic(network, packets, ms(200));
    assert!(!met_both_ends(network, link, since), "packets still cross {link:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn default_routes_leave_a_link_and_come_back_without_loss(
        fabric in strategies::fabrics(),
        pick in any::<prop::sample::Index>(),
        how in prop_oneof![Just(DefaultRoutes::SinglePath), Just(DefaultRoutes::Ecmp), Just(DefaultRoutes::PerHost)],
        seed in any::<u64>(),
    ) {
        let cables: Vec<LinkId> = fabric.switch_cables().collect();
        prop_assume!(!cables.is_empty());
        let link = cables[pick.index(cables.len())];
        let script = Script::new();
        let mut network = network(&fabric, script.scheme_with(LABEL, vec![Action::SetDefaults(how)]), seed);
        prop_assume!(network.controller.check_drain(network.now(), Target::Cable(link), true).is_ok());
        let packets = tuples(&fabric);
        drained(&mut network, Target::Cable(link), true);
        traffic(&mut network, &packets, ms(1500));
        prop_assert!(!network.controller.may_be_crossed(link) && network.controller.is_drained(link.reverse()));
        let since = network.now();
        traffic(&mut network, &packets, ms(20));
        prop_assert!(!crossed(&mut network, link, since), "packets still cross {link:?}");
        drained(&mut network, Target::Cable(link), false);
        traffic(&mut network, &packets, ms(1500));
        prop_assert!(!network.controller.is_staging() && !network.controller.is_drained(link));
        crossed(&mut network, link, since);
    }
}

/// A fabric with one long flow on a path of a scheme.
fn with_a_flow(scheme: Box<dyn Scheme>) -> (Network, Headers) {
    let fabric = Arc::new(fabric_from_spec("fat-tree:k=4").unwrap());
    let mut network = network(&fabric, scheme, 1);
    let headers = Headers { dscp: LONG_FLOW_DSCP, ..tuples(&fabric)[0] };
    network.send(Headers { tcp_flags: TCP_SYN, ..headers });
    traffic(&mut network, &[headers], ms(300));
    (network, headers)
}

fn route(network: &Network) -> Option<Vec<LinkId>> {
    let flow = network.controller.view().flows.values().next().unwrap();
    flow.route.as_ref().map(|path| path.links().to_vec())
}

#[test]
fn a_scheme_moves_its_flows_off_a_switch_that_leaves_service() {
    let (mut network, headers) = with_a_flow(pathloom_schemes::parse("ofpt").unwrap().central(1).unwrap());
    let id = *network.controller.view().flows.keys().next().unwrap();
    let first = route(&network).expect("ofpt places the flow");
    let core = network.fabric.link(first[1]).to;
    drained(&mut network, Target::Switch(core), true);
    traffic(&mut network, &[headers], ms(1500));
    let second = route(&network).expect("ofpt keeps the flow on a path");
    assert!(second.iter().all(|&link| network.fabric.link(link).to != core));
    assert!(network
        .controller
        .flows_on_links()
        .iter()
        .zip(network.fabric.links())
        .all(|(&flows, link)| flows == 0 || (link.from != core && link.to != core)));
    let why = network.controller.placement(id).unwrap();
    assert!(matches!(&why.decision, Decision::Route { path, .. } if path.links() == second), "{why:?}");
    assert!(matches!(why.cause, Some(pathloom_control::Cause::LinkChanged { up: false, .. })), "{why:?}");
    assert!(network.controller.history(id).len() >= 2);
    assert!(!crossed(&mut network, first[1], Nanos::MAX));
    drained(&mut network, Target::Switch(core), false);
    traffic(&mut network, &[headers], ms(500));
    crossed(&mut network, first[1], Nanos::MAX);
    assert!(network.controller.view().links.is_up(first[1]));
}

#[test]
fn a_flow_that_is_left_on_a_drained_link_returns_to_the_default_routes() {
    let script = Script::new();
    let (mut network, headers) =
        with_a_flow(script.scheme_with(LABEL, vec![Action::SetDefaults(DefaultRoutes::SinglePath)]));
    let id = *network.controller.view().flows.keys().next().unwrap();
    let view = network.controller.view().flows[&id].clone();
    let path = strategies::walk(&network.fabric, view.src_tor, view.dst_tor, &[1, 1, 1, 1, 1, 1]).unwrap();
    script.at(network.now(), Action::Route { flow: id, path: path.clone(), rate_bps: None });
    traffic(&mut network, &[headers], ms(500));
    assert_eq!(route(&network).as_deref(), Some(path.links()));
    let link = path.links()[1];
    drained(&mut network, Target::Cable(link), true);
    traffic(&mut network, &[headers], ms(1500));
    assert_eq!(route(&network).as_deref(), Some(path.links()), "the scheme has two seconds");
    traffic(&mut network, &[headers], ms(3000));
    assert_eq!(route(&network), None);
    assert_eq!(network.controller.placement(id).unwrap().decision, Decision::Drained);
    let since = network.now();
    traffic(&mut network, &[headers], ms(20));
    assert!(!crossed(&mut network, link, since));
}

#[test]
fn a_drained_link_stays_out_of_service_after_a_restart_and_a_flap() {
    let fabric = Arc::new(fabric_from_spec("fat-tree:k=4").unwrap());
    let script = Script::new();
    let scheme = || script.scheme_with(LABEL, vec![Action::SetDefaults(DefaultRoutes::Ecmp)]);
    let mut network = network(&fabric, scheme(), 1);
    let link = fabric.switch_cables().next().unwrap();
    drained(&mut network, Target::Cable(link), true);
    traffic(&mut network, &tuples(&fabric), ms(500));
    let snapshot = network.controller.snapshot();
    let text = serde_json::to_string(&snapshot).unwrap();
    let (config, now) = (Config { epoch: 2, ..Config::default() }, network.now());
    let controller =
        Controller::restore(config, fabric.clone(), scheme(), serde_json::from_str(&text).unwrap(), now).unwrap();
    network.kill_controller();
    network.start_controller(controller);
    fabric.switches().iter().for_each(|&switch| network.connect(switch));
    traffic(&mut network, &tuples(&fabric), ms(500));
    let since = network.now();
    traffic(&mut network, &tuples(&fabric), ms(20));
    assert!(!crossed(&mut network, link, since) && network.controller.is_drained(link));
    [false, true].into_iter().for_each(|up| network.set_cable(link, up));
    let later = network.now() + ms(500);
    network.run_until(later);
    assert!(!network.controller.view().links.is_up(link), "carrier alone does not bring it back");
    drained(&mut network, Target::Cable(link), false);
    let later = network.now() + ms(500);
    network.run_until(later);
    assert!(network.controller.view().links.is_up(link));
}

/// Headers of enough packets to use every link.
fn many_tuples(fabric: &Fabric) -> Vec<Headers> {
    let with_port = |headers: Headers, dst_port| Headers::plain(headers.five_tuple.with_dst_port(dst_port));
    (80..88).flat_map(|port| tuples(fabric).into_iter().map(move |headers| with_port(headers, port))).collect()
}

/// A FatTree with default routes over every link.
fn spread(seed: u64) -> (Arc<Fabric>, Network) {
    let fabric = Arc::new(fabric_from_spec("fat-tree:k=4").unwrap());
    let scheme = Script::new().scheme_with(LABEL, vec![Action::SetDefaults(DefaultRoutes::Ecmp)]);
    let network = network(&fabric, scheme, seed);
    (fabric, network)
}

/// A switch without a session keeps its default routes.
#[test]
fn a_link_is_not_safe_to_pull_while_an_end_of_it_has_no_session() {
    let link = spread(1).0.switch_cables().next().unwrap();
    for end in [link, link.reverse()] {
        let (fabric, mut network) = spread(1);
        let (packets, lost) = (many_tuples(&fabric), fabric.link(end).from);
        network.disconnect(lost);
        drained(&mut network, Target::Cable(link), true);
        traffic(&mut network, &packets, ms(1500));
        let since = network.now();
        traffic(&mut network, &packets, ms(20));
        // No packet that would have to return reaches a switch of a higher tier, but the controller cannot know this.
        let comes = fabric.tor_index(lost).is_some();
        assert_eq!((network.controller.is_staging(), crossed(&mut network, link, since)), (false, comes));
        assert!(network.controller.may_be_crossed(link) && network.controller.may_be_crossed(link.reverse()));
        network.connect(lost);
        is_safe_when_it_says_so(&mut network, &packets, link);
        assert!(!crossed(&mut network, link, Nanos::MAX));
    }
}

/// A switch that is out of service still forwards packets that reach it. Therefore its neighbours must confirm, not
/// the switch itself.
#[test]
fn a_switch_is_safe_to_pull_when_its_neighbours_have_confirmed() {
    let (fabric, mut network) = spread(1);
    let packets = many_tuples(&fabric);
    let core = *fabric.switches().iter().find(|&&at| fabric.node(at).tier == Tier::Core).unwrap();
    let links: Vec<LinkId> = fabric.switch_ports(core).iter().map(|port| port.link).collect();
    let lost = fabric.link(links[0]).to;
    network.disconnect(lost);
    drained(&mut network, Target::Switch(core), true);
    traffic(&mut network, &packets, ms(1500));
    let since = network.now();
    traffic(&mut network, &packets, ms(20));
    assert!(crossed(&mut network, links[1], since), "from the switch that got no new routes to one that did");
    assert!(links.iter().all(|&link| network.controller.may_be_crossed(link)));
    network.connect(lost);
    is_safe_when_it_says_so(&mut network, &packets, links[1]);
    network.disconnect(core);
    assert!(links.iter().all(|&link| !network.controller.may_be_crossed(link)), "it has been pulled");
    assert!(!crossed(&mut network, links[0], Nanos::MAX));
}

/// The switch keeps its routes until no packet can reach it, and gets those of the new scheme afterwards.
#[test]
fn a_switch_that_leaves_service_forwards_on_when_the_scheme_changes() {
    let mut changed_meanwhile = 0;
    for seed in 0..8 {
        let (fabric, mut network) = spread(seed);
        let packets = tuples(&fabric);
        let is_middle = |&&at: &&NodeId| fabric.node(at).tier == Tier::Aggregation;
        let switch = *fabric.switches().iter().find(is_middle).unwrap();
        drained(&mut network, Target::Switch(switch), true);
        traffic(&mut network, &packets, ms(8 * seed));
        changed_meanwhile += u32::from(network.controller.is_staging());
        network.set_scheme(Script::new().scheme_with(LABEL, vec![Action::SetDefaults(DefaultRoutes::Ecmp)]));
        traffic(&mut network, &packets, ms(1000));
        assert!(!network.controller.is_staging(), "seed {seed}");
        drained(&mut network, Target::Switch(switch), false);
        traffic(&mut network, &packets, ms(1000));
        let link = fabric.switch_ports(switch)[0].link;
        assert!(crossed(&mut network, link, Nanos::ZERO), "seed {seed}: it is used before and after");
    }
    assert!(changed_meanwhile >= 4, "{changed_meanwhile}");
}

/// After a failure, all switches get their new routes at once, but they still have to confirm them.
#[test]
fn a_failure_during_the_change_makes_no_link_safe_to_pull() {
    for wait in (0..120).step_by(5) {
        let (fabric, mut network) = spread(wait);
        let packets = many_tuples(&fabric);
        let cables: Vec<LinkId> = fabric.switch_cables().collect();
        let (link, dead) = (cables[0], cables[cables.len() - 1]);
        drained(&mut network, Target::Cable(link), true);
        traffic(&mut network, &packets, ms(wait));
        network.set_cable(dead, false);
        is_safe_when_it_says_so(&mut network, &packets, link);
    }
}

/// A restarted controller knows what is out of service, but not which routes the switches have got.
#[test]
fn after_a_restart_no_link_is_safe_to_pull_before_the_switches_have_been_read() {
    for wait in (0..120).step_by(10) {
        let script = Script::new();
        let (fabric, mut network) = spread(wait);
        let packets = many_tuples(&fabric);
        let link = fabric.switch_cables().next().unwrap();
        drained(&mut network, Target::Cable(link), true);
        traffic(&mut network, &packets, ms(wait));
        let snapshot = network.controller.snapshot();
        network.kill_controller();
        let scheme = script.scheme_with(LABEL, vec![Action::SetDefaults(DefaultRoutes::Ecmp)]);
        let (config, now) = (Config { epoch: 2, ..Config::default() }, network.now());
        network.start_controller(Controller::restore(config, fabric.clone(), scheme, snapshot, now).unwrap());
        for &switch in fabric.switches().iter().rev() {
            assert!(network.controller.may_be_crossed(link), "{wait}");
            network.connect(switch);
            traffic(&mut network, &packets, ms(2));
        }
        is_safe_when_it_says_so(&mut network, &packets, link);
    }
}

/// A controller has just been started, and does not know yet which routes the switches have.
#[test]
fn switches_change_in_their_turn_although_their_rules_are_not_read_yet() {
    let fabric = Arc::new(fabric_from_spec("leaf-spine:spines=2,leaves=3,hosts=2").unwrap());
    let link = fabric.switch_cables().next().unwrap();
    let spine = *fabric.switches().iter().find(|&&at| fabric.tor_index(at).is_none()).unwrap();
    let mut unread = 0;
    // Sessions begin within 15 ms, and rules are read within 60 ms.
    for (wait, target) in (16..60).step_by(2).flat_map(|at| [(at, Target::Cable(link)), (at, Target::Switch(spine))]) {
        let scheme = || Script::new().scheme_with(LABEL, vec![Action::SetDefaults(DefaultRoutes::Ecmp)]);
        let mut network = network(&fabric, scheme(), wait);
        let packets = many_tuples(&fabric);
        network.kill_controller();
        traffic(&mut network, &packets, ms(10));
        network.start_controller(Controller::new(Config { epoch: 2, ..Config::default() }, fabric.clone(), scheme()));
        fabric.switches().iter().for_each(|&switch| network.connect(switch));
        traffic(&mut network, &packets, ms(wait));
        let is_read = |record: &&Record| matches!(record.message, Message::Input(Input::RuleDump { .. }));
        let read = network.log.iter().filter(is_read).count();
        unread += u32::from(read < fabric.switches().len());
        drained(&mut network, target, true);
        is_safe_when_it_says_so(&mut network, &packets, link);
        assert!(!crossed(&mut network, link, Nanos::MAX), "{wait} {target:?}");
    }
    assert!(unread >= 10, "{unread}");
}

/// Some switches never list their rules. The others wait for them, but not for ever.
#[test]
fn a_switch_whose_rules_stay_unread_does_not_stop_the_others() {
    let (fabric, mut network) = spread(1);
    let link = fabric.switch_cables().next().unwrap();
    let ends = [fabric.link(link).from, fabric.link(link).to];
    let mute = *fabric.switches().iter().find(|at| !ends.contains(at)).unwrap();
    // Its session exists for the controller only.
    network.disconnect(mute);
    network.give_input(Input::SwitchUp { switch: mute, ports_down: Vec::new() });
    drained(&mut network, Target::Cable(link), true);
    for (wait_s, waits) in [(9, true), (2, false)] {
        let later = network.now() + Nanos::from_secs(wait_s);
        network.run_until(later);
        assert_eq!((network.controller.is_staging(), network.controller.may_be_crossed(link)), (waits, waits));
    }
}

/// An unknown flow has a path over the link, which only its ToR can report.
#[test]
fn no_link_is_safe_to_pull_before_all_flows_are_known() {
    let script = Script::new();
    let scheme = || script.scheme_with(LABEL, vec![Action::SetDefaults(DefaultRoutes::SinglePath)]);
    let (mut network, headers) = with_a_flow(scheme());
    let (&flow, view) = network.controller.view().flows.iter().next().unwrap();
    let tor = view.src_tor;
    let path = strategies::walk(&network.fabric, tor, view.dst_tor, &[1]).unwrap();
    let link = path.links()[1];
    script.at(network.now(), Action::Route { flow, path, rate_bps: None });
    traffic(&mut network, &[headers], ms(500));
    network.kill_controller();
    let config = Config { epoch: 2, ..Config::default() };
    network.start_controller(Controller::new(config, network.fabric.clone(), scheme()));
    let others: Vec<NodeId> = network.fabric.switches().iter().copied().filter(|&switch| switch != tor).collect();
    others.into_iter().for_each(|switch| network.connect(switch));
    traffic(&mut network, &[headers], ms(300));
    drained(&mut network, Target::Cable(link), true);
    traffic(&mut network, &[headers], ms(1500));
    let since = network.now();
    traffic(&mut network, &[headers], ms(20));
    assert!(!network.controller.is_staging() && crossed(&mut network, link, since));
    assert!(network.controller.may_be_crossed(link));
    network.connect(tor);
    traffic(&mut network, &[headers], ms(1500));
    is_safe_when_it_says_so(&mut network, &[headers], link);
}

#[test]
fn a_drain_that_would_cut_hosts_off_is_refused() {
    let fabric = Arc::new(fabric_from_spec("fat-tree:k=4").unwrap());
    let mut network = network(&fabric, pathloom_schemes::parse("ecmp").unwrap().central(1).unwrap(), 1);
    let tor = fabric.tors()[0];
    let ups: Vec<LinkId> =
        fabric.switch_ports(tor).iter().map(|port| port.link).filter(|&link| fabric.is_switch_link(link)).collect();
    let check = |network: &Network, target, out| network.controller.check_drain(network.now(), target, out);
    assert_eq!(check(&network, Target::Switch(tor), true), Err(DrainError::HasHosts(tor)));
    assert_eq!(check(&network, Target::Switch(fabric.hosts()[0]), true), Err(DrainError::NotDrainable));
    assert_eq!(check(&network, Target::Cable(fabric.attachments()[0].uplink), true), Err(DrainError::NotDrainable));
    assert_eq!(check(&network, Target::Cable(ups[0]), false), Err(DrainError::Already));
    drained(&mut network, Target::Cable(ups[0]), true);
    assert_eq!(check(&network, Target::Cable(ups[0]), true), Err(DrainError::Already));
    assert!(matches!(check(&network, Target::Cable(ups[1]), true), Err(DrainError::CutsOff(_))));
    network.give_input(Input::Drain { target: Target::Cable(ups[1]), out: true });
    assert!(network.controller.view().links.is_up(ups[1]) && network.controller.counts().invalid_inputs == 1);
}

/// Whatever switch has no session yet when the operator drains something after a restart: he is told so, and no packet is lost
/// when the drain is repeated after that. A switch that does not come back does not keep him waiting for ever.
#[test]
fn a_drain_before_all_switches_have_sessions_is_refused() {
    for late in 0..20 {
        let fabric = Arc::new(fabric_from_spec("fat-tree:k=4").unwrap());
        let scheme = || pathloom_schemes::parse("ecmp").unwrap().central(1).unwrap();
        let mut network = network(&fabric, scheme(), 1);
        let check = |network: &Network, out| {
            let core = Target::Switch(fabric.find("c0").unwrap());
            network.controller.check_drain(network.now(), core, out)
        };
        assert_eq!(check(&network, true), Ok(()));
        network.kill_controller();
        network.start_controller(Controller::new(Config { epoch: 2, ..Config::default() }, fabric.clone(), scheme()));
        let late = fabric.switches()[late];
        for &switch in fabric.switches().iter().filter(|&&switch| switch != late) {
            network.connect(switch);
        }
        let later = network.now() + ms(1000);
        network.run_until(later);
        assert_eq!(check(&network, true), Err(DrainError::NoSession(late)));
        if late.index().is_multiple_of(2) {
            network.connect(late);
            let later = network.now() + ms(1000);
            network.run_until(later);
            assert_eq!(check(&network, true), Ok(()));
        } else {
            let later = network.now() + ms(10_000);
            network.run_until(later);
            network.connect(late);
            assert_eq!(check(&network, true), Ok(()));
        }
    }
}

/// Hosts that are already cut off do not count. The rest of the fabric does.
#[test]
fn a_drain_that_would_cut_hosts_off_is_refused_even_if_others_are_already_cut_off() {
    let (fabric, mut network) = spread(1);
    let ups = |tor: NodeId| fabric.switch_ports(tor).iter().map(|port| port.link).collect::<Vec<_>>();
    let (alone, other) = (ups(fabric.tors()[0]), ups(fabric.tors()[5]));
    alone.iter().for_each(|&link| network.set_cable(link, false));
    let later = network.now() + ms(300);
    network.run_until(later);
    drained(&mut network, Target::Cable(alone[0]), true);
    drained(&mut network, Target::Cable(other[0]), true);
    let refused = network.controller.check_drain(network.now(), Target::Cable(other[1]), true);
    assert!(matches!(refused, Err(DrainError::CutsOff(_))), "{refused:?}");
}
