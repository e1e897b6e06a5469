//! Default routes, tested by packets that are forwarded by the resulting rules.

use pathloom_control::{Config, Controller, Output};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::search::RouteTable;
use pathloom_model::{Address, Fabric, FiveTuple, Headers, LinkId, LinkState, Nanos, NodeId, PROTO_TCP};
use pathloom_scheme::{Action, DefaultRoutes, HopWeights, Needs};
use pathloom_testkit::{strategies, Fate, Network, Script, Timing};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const KINDS: [DefaultRoutes; 4] =
    [DefaultRoutes::SinglePath, DefaultRoutes::SpanningTree, DefaultRoutes::Ecmp, DefaultRoutes::PerHost];

fn network(fabric: &Arc<Fabric>, how: DefaultRoutes) -> Network {
    scripted(fabric, how).1
}

/// Also returns the script, by which a test sets later actions of the scheme.
fn scripted(fabric: &Arc<Fabric>, how: DefaultRoutes) -> (Script, Network) {
    let script = Script::new();
    let scheme = script.scheme_with(Needs::NOTHING, vec![Action::SetDefaults(how)]);
    let controller = Controller::new(Config::default(), fabric.clone(), scheme);
    let mut network = Network::new(fabric.clone(), controller, Timing::NONE, 7);
    network.start();
    (script, network)
}

fn fabric(spec: &str) -> Arc<Fabric> {
    Arc::new(fabric_from_spec(spec).unwrap())
}

fn packet(src: Address, dst: Address, src_port: u16) -> Headers {
    Headers::plain(FiveTuple::new(PROTO_TCP, (src, src_port), (dst, 80)))
}

fn all_pairs(fabric: &Fabric) -> Vec<Headers> {
    let addresses: Vec<Address> = fabric.attachments().iter().map(|at| at.address).collect();
    let pairs = addresses.iter().flat_map(|&src| addresses.iter().map(move |&dst| (src, dst)));
    pairs.filter(|(src, dst)| src != dst).map(|(src, dst)| packet(src, dst, 1000)).collect()
}

/// Switches that are reachable from `from` over the links that are up.
fn component(network: &Network, from: NodeId) -> BTreeSet<NodeId> {
    let (mut seen, mut open) = (BTreeSet::from([from]), vec![from]);
    while let Some(here) = open.pop() {
        for &link in &network.fabric.node(here).ports {
            let next = network.fabric.link(link).to;
            if network.links.is_up(link) && network.fabric.is_switch_link(link) && seen.insert(next) {
                open.push(next);
            }
        }
    }
    seen
}

fn check(network: &Network) {
    let fabric = &network.fabric;
    for headers in all_pairs(fabric) {
        let tor = |address| fabric.attachment(address).unwrap().tor;
        let (src, dst) = (tor(headers.five_tuple.src()), tor(headers.five_tuple.dst()));
        let connected = component(network, src).contains(&dst);
        let fates = network.fates(headers);
        if connected {
            assert!(network.reaches(headers), "{headers:?}: {fates:?}");
        } else {
            assert!(matches!(fates.as_slice(), [Fate::Dropped(_)]), "{headers:?}: {fates:?}");
        }
    }
}

#[test]
fn all_hosts_reach_each_other() {
    for spec in ["fat-tree:k=4", "vl2:d0=2,d1=4,d2=4,hosts=3", "leaf-spine:spines=3,leaves=4,hosts=2", "three-layer"] {
        for how in KINDS {
            check(&network(&fabric(spec), how));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn failures_and_repairs_leave_everyone_connected(
        fabric in strategies::fabrics(),
        how in 0..KINDS.len(),
        faults in prop::collection::vec(any::<prop::sample::Index>(), 1..12),
    ) {
        let mut network = network(&fabric, KINDS[how]);
        check(&network);
        for fault in faults {
            let cable = LinkId(2 * fault.index(fabric.links().len() / 2) as u32);
            if fabric.is_switch_link(cable) {
                let up = !network.links.is_up(cable);
                network.set_cable(cable, up);
                // Long enough for a cable that flapped to be used again.
                let later = network.now() + Nanos::from_secs(11);
                network.run_until(later);
                check(&network);
            }
        }
        let rules: Vec<usize> = fabric.switches().iter().map(|s| network.switches[s.index()].entries.len()).collect();
        let fresh = self::network(&fabric, KINDS[how]);
        let same_state = network.links.down().next().is_none();
        let wanted: Vec<usize> = fabric.switches().iter().map(|s| fresh.switches[s.index()].entries.len()).collect();
        prop_assert!(!same_state || rules == wanted, "{rules:?} {wanted:?}");
    }
}

#[test]
fn unknown_addresses_are_dropped_and_never_loop() {
    for how in KINDS {
        let network = network(&fabric("fat-tree:k=4"), how);
        let src = network.fabric.attachments()[0].address;
        for dst in [[10, 0, 0, 77], [10, 0, 0, 0], [10, 0, 3, 200], [10, 0, 8, 1], [10, 200, 0, 1], [10, 255, 255, 255]]
        {
            let fates = network.fates(packet(src, dst.into(), 1));
            assert!(matches!(fates.as_slice(), [Fate::Dropped(_)]), "{dst:?}: {fates:?}");
        }
    }
}

/// How often each link between switches is crossed by one packet per pair of hosts.
fn loads(network: &Network, port: u16) -> BTreeMap<LinkId, usize> {
    let mut loads = BTreeMap::new();
    let fabric = network.fabric.clone();
    for headers in all_pairs(&fabric) {
        let headers = Headers { five_tuple: headers.five_tuple.with_src_port(port), ..headers };
        let mut here = fabric.attachment(headers.five_tuple.src()).unwrap().uplink;
        while !fabric.is_host(fabric.link(here).to) {
            let record = fabric.link(here);
            let verdict = network.switches[record.to.index()].peek(record.to_port, headers, &mut Vec::new());
            here = fabric.out_link(record.to, verdict.out[0].0).unwrap();
            *loads.entry(here).or_insert(0) += 1;
        }
    }
    loads.retain(|&link, _| fabric.is_switch_link(link));
    loads
}

#[test]
fn a_spanning_tree_leaves_all_other_links_idle() {
    // The paths of all pairs are not longer than with the root in the middle.
    for (spec, longest) in [("fat-tree:k=4", 4), ("vl2:d0=2,d1=4,d2=4,hosts=3", 4), ("leaf-spine:spines=3,leaves=4", 2)]
    {
        let network = network(&fabric(spec), DefaultRoutes::SpanningTree);
        let loads = loads(&network, 1000);
        let cables: BTreeSet<LinkId> = loads.keys().map(|&link| link.min(link.reverse())).collect();
        let mut ends: BTreeSet<NodeId> = BTreeSet::new();
        cables.iter().for_each(|&cable| ends.extend([network.fabric.link(cable).from, network.fabric.link(cable).to]));
        assert_eq!(cables.len() + 1, ends.len(), "{spec}: a tree has one cable less than switches");
        let pairs = all_pairs(&network.fabric).len();
        assert!(loads.values().sum::<usize>() <= longest * pairs, "{spec}: the root is in the middle");
    }
}

#[test]
fn routes_per_host_use_every_link_equally() {
    let network = network(&fabric("fat-tree:k=4"), DefaultRoutes::PerHost);
    let loads = loads(&network, 1000);
    assert_eq!(loads.len(), 64, "all 32 cables in both directions");
    let (least, most) = (loads.values().min().unwrap(), loads.values().max().unwrap());
    assert!(most - least <= 4, "{least} to {most}");
}

#[test]
fn trees_of_different_tors_use_different_cores() {
    let network = network(&fabric("fat-tree:k=4"), DefaultRoutes::SinglePath);
    let fabric = &network.fabric;
    let loads = loads(&network, 1000);
    let cores: BTreeSet<NodeId> = loads
        .keys()
        .map(|&link| fabric.link(link).to)
        .filter(|&node| fabric.node(node).tier == pathloom_model::Tier::Core)
        .collect();
    assert!(cores.len() >= 3, "{cores:?}");
    for headers in all_pairs(fabric) {
        let again = Headers { five_tuple: headers.five_tuple.with_src_port(4242), ..headers };
        assert_eq!(network.fates(headers), network.fates(again), "ports make no difference");
    }
}

#[test]
fn ecmp_spreads_flows_over_all_links() {
    let network = network(&fabric("fat-tree:k=4"), DefaultRoutes::Ecmp);
    let mut used = BTreeSet::new();
    (1000..1010).for_each(|port| used.extend(loads(&network, port).into_keys()));
    assert_eq!(used.len(), 64);
}

#[test]
fn few_rules_are_enough() {
    let most = |spec: &str, how| {
        let network = network(&fabric(spec), how);
        let rules = |&switch: &NodeId| network.switches[switch.index()].entries.len();
        network.fabric.switches().iter().map(rules).max().unwrap()
    };
    // A core switch of a k=8 FatTree: 2 joins of tables, all addresses, 8 pods.
    assert_eq!(most("fat-tree:k=8", DefaultRoutes::Ecmp), 11);
    assert!(
        most("fat-tree:k=8", DefaultRoutes::SinglePath) <= 32,
        "{}",
        most("fat-tree:k=8", DefaultRoutes::SinglePath)
    );
    assert!(most("fat-tree:k=8", DefaultRoutes::PerHost) <= 128 + 8);
}

#[test]
fn one_dead_link_costs_few_messages() {
    let mut network = network(&fabric("fat-tree:k=8"), DefaultRoutes::Ecmp);
    let before = network.controller.counts().messages_out;
    let core_link = (0..network.fabric.links().len() as u32).map(LinkId).find(|&link| {
        let record = network.fabric.link(link);
        network.fabric.node(record.from).tier == pathloom_model::Tier::Core
    });
    network.set_cable(core_link.unwrap(), false);
    let later = network.now() + Nanos::from_secs(1);
    network.run_until(later);
    let messages = network.controller.counts().messages_out - before;
    // The switches at both ends, and the other switches that reached hosts over the core. Each gets group, rule and
    // barrier, and deletions of the old ones.
    assert!((8..200).contains(&messages), "{messages}");
    check(&network);
}

/// Numbers of flows, of 400 from host 0 to the last host, by the spine that they take.
fn flows_by_spine(network: &Network) -> BTreeMap<String, usize> {
    let fabric = network.fabric.clone();
    let (first, last) = (fabric.attachments()[0].address, fabric.attachments().last().unwrap().address);
    let mut counts = BTreeMap::new();
    for port in 1000..1400 {
        let (at, headers) = (fabric.attachment(first).unwrap(), packet(first, last, port));
        let entry = fabric.link(at.uplink);
        let verdict = network.switches[entry.to.index()].peek(entry.to_port, headers, &mut Vec::new());
        let spine = fabric.link(fabric.out_link(entry.to, verdict.out[0].0).unwrap()).to;
        *counts.entry(fabric.node(spine).name.clone()).or_insert(0) += 1;
    }
    counts
}

#[test]
fn weights_of_the_scheme_divide_the_flows_until_they_are_withdrawn() {
    let fabric = fabric("leaf-spine:spines=3,leaves=2,hosts=2");
    let (script, mut network) = scripted(&fabric, DefaultRoutes::Weighted);
    let [from, to] = [fabric.tors()[0], fabric.tors()[1]];
    let link = |spine: usize| {
        let is_next = |&&link: &&LinkId| fabric.node(fabric.link(link).to).name == format!("c{spine}");
        *fabric.node(from).ports.iter().find(is_next).unwrap()
    };
    let set = |network: &mut Network, weights: Vec<(LinkId, u16)>| {
        let weights = if weights.is_empty() { vec![] } else { vec![HopWeights { switch: from, tor: to, weights }] };
        script.at(network.now(), Action::SetWeights(weights));
        let later = network.now() + Nanos::from_secs(1);
        network.run_until(later);
        check(network);
        flows_by_spine(network)
    };
    assert_eq!(flows_by_spine(&network).len(), 3);
    let divided = set(&mut network, vec![(link(0), 1), (link(2), 3)]);
    let share = |counts: &BTreeMap<String, usize>, spine: &str| counts.get(spine).copied().unwrap_or(0);
    assert_eq!(share(&divided, "c1"), 0, "a next hop that is not listed");
    assert!(share(&divided, "c2") > 2 * share(&divided, "c0"), "{divided:?}");
    assert_eq!(set(&mut network, vec![(link(1), 5)]), BTreeMap::from([("c1".to_owned(), 400)]));
    network.set_cable(link(1), false);
    let left = set(&mut network, vec![(link(1), 5)]);
    assert_eq!((left.len(), share(&left, "c1")), (2, 0), "no listed next hop is up: {left:?}");
    network.set_cable(link(1), true);
    assert_eq!(set(&mut network, vec![(LinkId(u32::MAX), 5)]).len(), 3, "no such link");
    assert_eq!(set(&mut network, vec![]).len(), 3);
}

/// Weights that a scheme draws for all links of all switches, for all ToRs: also for links that lead away from the ToR.
fn drawn_weights(fabric: &Fabric, seed: u64) -> Vec<HopWeights> {
    let mut state = seed;
    let mut draw = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u16 % 3
    };
    let pairs = fabric.switches().iter().flat_map(|&switch| fabric.tors().iter().map(move |&tor| (switch, tor)));
    let mut weights = |(switch, tor): (NodeId, NodeId)| {
        let weights = fabric.switch_ports(switch).iter().map(|port| (port.link, draw())).collect();
        HopWeights { switch, tor, weights }
    };
    pairs.map(&mut weights).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever weights a scheme sets, packets arrive, in no loop. That holds as well while switches have weights of different plans:
    /// each switch takes those of one of two draws.
    #[test]
    fn no_weights_of_a_scheme_make_a_loop(seeds in prop::array::uniform2(any::<u64>()), mix in any::<u64>()) {
        let fabric = fabric("jellyfish:switches=10,ports=5,hosts=20,seed=4");
        let (script, mut network) = scripted(&fabric, DefaultRoutes::Weighted);
        let [one, other] = seeds.map(|seed| drawn_weights(&fabric, seed));
        let mixed = one.into_iter().zip(other).map(|(one, other)| if mix >> (one.switch.0 % 64) & 1 == 0 { one } else { other });
        script.at(network.now(), Action::SetWeights(mixed.collect()));
        network.run_until(network.now() + Nanos::from_secs(1));
        check(&network);
    }
}

#[test]
fn weights_may_lead_sideways() {
    let fabric = fabric("jellyfish:switches=10,ports=5,hosts=20,seed=4");
    let table = RouteTable::with_sideways(&fabric, &LinkState::of(&fabric));
    let shortest = RouteTable::new(&fabric, &LinkState::of(&fabric));
    let sideways = |switch: NodeId, tor: usize| {
        let known = shortest.next_hops(switch, tor);
        table.next_hops(switch, tor).iter().copied().find(|link| !known.is_empty() && !known.contains(link))
    };
    let pairs = fabric.switches().iter().flat_map(|&switch| (0..fabric.tors().len()).map(move |tor| (switch, tor)));
    let (switch, tor, link) = pairs
        .filter_map(|(switch, tor)| Some((switch, tor, sideways(switch, tor)?)))
        .next()
        .expect("one in a random graph");
    let (script, mut network) = scripted(&fabric, DefaultRoutes::Weighted);
    let weights = HopWeights { switch, tor: fabric.tors()[tor], weights: vec![(link, 1)] };
    script.at(network.now(), Action::SetWeights(vec![weights]));
    network.run_until(network.now() + Nanos::from_secs(1));
    check(&network);
    let to = fabric.attachments().iter().find(|at| at.tor == fabric.tors()[tor]).unwrap();
    let from = fabric.attachments().iter().find(|at| at.tor == switch).unwrap();
    let entry = fabric.link(from.uplink);
    let verdict =
        network.switches[switch.index()].peek(entry.to_port, packet(from.address, to.address, 1000), &mut Vec::new());
    assert_eq!(fabric.out_link(switch, verdict.out[0].0), Some(link));
}

#[test]
fn repeating_the_same_defaults_sends_nothing() {
    let (script, mut network) = scripted(&fabric("fat-tree:k=4"), DefaultRoutes::Ecmp);
    let outputs = |network: &Network| network.controller.counts().messages_out;
    let before = outputs(&network);
    script.at(Nanos::from_secs(5), Action::SetDefaults(DefaultRoutes::Ecmp));
    network.run_until(Nanos::from_secs(6));
    assert_eq!(outputs(&network), before);
    script.at(Nanos::from_secs(7), Action::SetDefaults(DefaultRoutes::SinglePath));
    network.run_until(Nanos::from_secs(9));
    assert!(outputs(&network) > before);
    check(&network);
    let groups: usize = network.switches.iter().map(|switch| switch.groups.len()).sum();
    assert_eq!(groups, 0, "groups that nobody needs are deleted");
}

/// A switch may still use a group for a moment after the last rule that named it (Open vSwitch, by cached flows).
#[test]
fn unused_groups_stay_for_a_while() {
    let (script, mut network) = scripted(&fabric("fat-tree:k=4"), DefaultRoutes::Ecmp);
    let groups =
        |network: &Network| -> Vec<_> { network.switches.iter().map(|switch| switch.groups.clone()).collect() };
    let all = groups(&network);
    assert!(all.iter().any(|own| !own.is_empty()));
    for (second, how) in [(7, DefaultRoutes::SinglePath), (8, DefaultRoutes::Ecmp), (20, DefaultRoutes::SinglePath)] {
        script.at(Nanos::from_secs(second), Action::SetDefaults(how));
    }
    let passed = |rest: Nanos| rest.saturating_sub(Nanos::from_millis(1));
    network.run_until(passed(Nanos::from_secs(8)));
    check(&network);
    assert_eq!(groups(&network), all, "nobody needs them, but they still exist");
    network.run_until(Nanos::from_secs(19));
    check(&network);
    assert_eq!(groups(&network), all, "they were needed again before their deletion");
    network.run_until(passed(Nanos::from_secs(21)));
    assert_eq!(groups(&network), all);
    // A switch that was disconnected at that moment gets the deletion when it is back.
    let away = network.fabric.switches()[0];
    network.disconnect(away);
    network.run_until(Nanos::from_secs(22));
    assert_eq!(groups(&network).iter().filter(|own| !own.is_empty()).count(), 1);
    network.connect(away);
    network.run_until(Nanos::from_secs(24));
    assert!(groups(&network).iter().all(|own| own.is_empty()));
    check(&network);
}

#[test]
fn rules_of_others_are_not_changed() {
    let fabric = fabric("fat-tree:k=4");
    let mut network = self::network(&fabric, DefaultRoutes::Ecmp);
    let switch = fabric.switches()[0];
    let mut foreign = network.switches[switch.index()].rules()[0].clone();
    (foreign.cookie, foreign.priority) = (0x1234, 9);
    let now = network.now();
    network.switches[switch.index()].add_rule(now, foreign.clone()).unwrap();
    let before = network.controller.counts().messages_out;
    network.disconnect(switch);
    network.connect(switch);
    network.run_until(now + Nanos::from_secs(1));
    assert!(network.switches[switch.index()].rules().contains(&foreign));
    assert_eq!(network.controller.counts().messages_out, before + 1, "reading the rules was enough");
}

#[test]
fn outputs_to_a_new_switch_are_ordered() {
    let fabric = fabric("fat-tree:k=4");
    let scheme = Script::new().scheme(Needs::NOTHING);
    let mut controller = Controller::new(Config::default(), fabric.clone(), scheme);
    let switch = fabric.tors()[0];
    let up = pathloom_control::Input::SwitchUp { switch, ports_down: vec![] };
    controller.handle(Nanos::ZERO, up);
    assert_eq!(controller.poll_output(), Some(Output::DumpRequest { switch }));
    assert_eq!(controller.poll_output(), None, "nothing is sent before the switch's rules are known");
    let empty = pathloom_control::Input::RuleDump { switch, rules: vec![], groups: vec![], meters: vec![] };
    controller.handle(Nanos::ZERO, empty);
    let outputs: Vec<Output> = std::iter::from_fn(|| controller.poll_output()).collect();
    let group = outputs.iter().position(|output| matches!(output, Output::AddGroup { .. })).unwrap();
    let rule = outputs.iter().position(|output| match output {
        Output::AddRule { rule, .. } => {
            rule.actions.iter().any(|a| matches!(a, pathloom_model::rules::RuleAction::Group(_)))
        }
        _ => false,
    });
    assert!(group < rule.unwrap());
    assert!(matches!(outputs.last(), Some(Output::Barrier { .. })));
}
