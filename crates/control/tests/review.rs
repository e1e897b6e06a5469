//! Rules that somebody else deletes, changes or adds while sessions are open.

use pathloom_control::{Config, Input, Output};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::rules::{Actions, Rule, RuleAction, RuleKey};
use pathloom_model::{Headers, Nanos, NodeId, PortNo, TCP_SYN};
use pathloom_scheme::{Action, DefaultRoutes, Needs};
use pathloom_testkit::{ms, strategies, World, LABEL, SECOND, SFMM, SHARED};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Every switch is reviewed once in this time.
const PERIOD: Nanos = Nanos::from_secs(5);

fn watching() -> Config {
    Config { reconcile: Some(PERIOD), ..Config::default() }
}

fn world(needs: Needs) -> World {
    let fabric = fabric_from_spec("fat-tree:k=4").unwrap();
    World::new(Arc::new(fabric), needs, watching(), 1)
}

/// All rules of a switch, without their cookies.
fn rules(world: &World, switch: NodeId) -> BTreeMap<RuleKey, Rule> {
    let rules = world.network.switches[switch.index()].rules();
    rules.into_iter().map(|rule| (rule.key(), Rule { cookie: 0, ..rule })).collect()
}

fn all_rules(world: &World) -> Vec<BTreeMap<RuleKey, Rule>> {
    world.network.fabric.switches().iter().map(|&switch| rules(world, switch)).collect()
}

/// Number of rules that the controller has sent since the log began.
fn added(world: &World) -> usize {
    world.outputs().filter(|output| matches!(output, Output::AddRule { .. })).count()
}

/// A world whose first flow is on its path, with steady traffic.
fn on_its_path(needs: Needs) -> World {
    let mut world = world(needs);
    let path = world.walk(&[2]).unwrap();
    world.route(&path);
    world.traffic(SECOND);
    assert_eq!(world.network.controller.view().flows[&world.id()].route, Some(path));
    world
}

#[test]
fn reviews_of_unchanged_switches_change_nothing() {
    for needs in [LABEL, SFMM, SHARED] {
        let mut world = on_its_path(needs);
        let before = all_rules(&world);
        world.network.log.clear();
        world.traffic(Nanos(3 * PERIOD.0));
        assert_eq!(added(&world), 0);
        assert_eq!(all_rules(&world), before);
        let counts = world.network.controller.counts();
        assert!(counts.reviews >= 40, "{counts:?}");
        assert_eq!((counts.restored, counts.surplus), (0, 0));
        world.nothing_is_lost_or_left();
    }
}

#[test]
fn the_rules_of_a_sweep_are_no_surplus() {
    let fabric = Arc::new(fabric_from_spec("fat-tree:k=4").unwrap());
    let mut world = World::new(fabric, LABEL, Config { sweep: Some(SECOND), ..watching() }, 1);
    world.traffic(Nanos(4 * PERIOD.0));
    let counts = world.network.controller.counts();
    assert!(counts.reviews >= 60, "{counts:?}");
    assert_eq!((counts.restored, counts.surplus), (0, 0));
}

#[test]
fn a_switch_whose_rules_are_all_deleted_has_them_again_within_a_second() {
    for needs in [LABEL, SFMM, SHARED] {
        let mut world = on_its_path(needs);
        let id = world.id();
        let switches = world.network.fabric.switches().to_vec();
        for switch in switches {
            let before = rules(&world, switch);
            world.network.delete_rules(switch, |_| true);
            assert!(rules(&world, switch).is_empty());
            world.traffic(SECOND);
            assert_eq!(rules(&world, switch), before, "{switch:?}");
        }
        assert!(world.network.controller.view().flows.contains_key(&id), "its flow did not end");
        assert!(world.network.controller.counts().restored > 100);
        world.pass(Nanos::from_secs(60));
        assert_eq!(world.leaked(), Vec::<String>::new());
    }
}

#[test]
fn each_kind_of_rule_is_restored() {
    let mut world = on_its_path(LABEL);
    let switches = world.network.fabric.switches().to_vec();
    for switch in switches {
        let before = rules(&world, switch);
        for key in before.keys() {
            world.network.delete_rules(switch, |rule| rule.key() == *key);
            assert_eq!(rules(&world, switch).len(), before.len() - 1);
            world.traffic(SECOND);
            assert_eq!(rules(&world, switch), before, "{switch:?}: {key:?}");
        }
    }
}

#[test]
fn changes_without_notice_are_found_within_the_period() {
    let mut world = on_its_path(LABEL);
    let before = all_rules(&world);
    let switches = world.network.fabric.switches().to_vec();
    for &switch in &switches {
        for entry in &mut world.network.switches[switch.index()].entries {
            (entry.rule.actions, entry.rule.goto) = (Actions::from([RuleAction::Output(PortNo(1))]), None);
        }
    }
    world.traffic(PERIOD + SECOND);
    // The rule that counts the flow is only added after a second review.
    world.traffic(Nanos::from_secs(2));
    assert_eq!(all_rules(&world), before);
    // The rules disappear without notice, as if the switch restarted within its session.
    for &switch in &switches {
        world.network.switches[switch.index()].entries.clear();
    }
    world.traffic(PERIOD + Nanos::from_secs(3));
    assert_eq!(all_rules(&world), before);
}

#[test]
fn deleted_and_changed_groups_are_restored() {
    let mut world = world(LABEL);
    let scheme = world.script.scheme_with(LABEL, vec![Action::SetDefaults(DefaultRoutes::Ecmp)]);
    world.network.set_scheme(scheme);
    world.traffic(SECOND);
    let switches = world.network.fabric.switches().to_vec();
    let groups = |world: &World| -> Vec<_> {
        switches.iter().map(|switch| world.network.switches[switch.index()].groups.clone()).collect()
    };
    let (before, rules_before) = (groups(&world), all_rules(&world));
    assert!(before.iter().any(|groups| !groups.is_empty()));
    for &switch in &switches {
        world.network.switches[switch.index()].groups.clear();
    }
    world.traffic(PERIOD + SECOND);
    assert_eq!(groups(&world), before);
    for &switch in &switches {
        for group in world.network.switches[switch.index()].groups.values_mut() {
            group.buckets.truncate(1);
        }
    }
    world.traffic(PERIOD + SECOND);
    assert_eq!((groups(&world), all_rules(&world)), (before, rules_before));
}

#[test]
fn a_resync_starts_reviews_at_once() {
    let mut world = world(LABEL);
    let before = all_rules(&world);
    let switches = world.network.fabric.switches().to_vec();
    switches.iter().for_each(|switch| world.network.switches[switch.index()].entries.clear());
    world.network.give_input(Input::Resync { switch: None });
    // The rule that counts the flow is only added after a second review.
    world.traffic(Nanos::from_secs(2));
    assert_eq!(all_rules(&world), before);
}

#[test]
fn unwanted_rules_with_the_controllers_mark_are_deleted() {
    let mut world = on_its_path(LABEL);
    let before = all_rules(&world);
    let switches = world.network.fabric.switches().to_vec();
    // A rule of the flow's path appears at every switch.
    let hop = world.network.switches.iter().flat_map(|switch| switch.rules()).find(|rule| rule.matches.tag.is_some());
    let (now, mut strays) = (world.network.now(), 0);
    for &switch in &switches {
        let place = &mut world.network.switches[switch.index()];
        if place.entries.iter().all(|entry| entry.rule.key() != hop.as_ref().unwrap().key()) {
            place.add_rule(now, hop.clone().unwrap()).unwrap();
            strays += 1;
        }
    }
    world.traffic(PERIOD + SECOND);
    assert_eq!(all_rules(&world), before);
    assert_eq!(world.network.controller.counts().surplus, strays);
    world.nothing_is_lost_or_left();
}

/// A change by somebody else, or an action of the controller.
#[derive(Clone, Debug)]
enum RuleChange {
    /// Every n-th rule is deleted, with notice.
    Delete(prop::sample::Index, usize),
    /// Every n-th rule is deleted without notice.
    Steal(prop::sample::Index, usize),
    /// Every n-th rule gets other actions.
    Twist(prop::sample::Index, usize),
    First(u16),
    Route(u16, Vec<u8>),
    Unroute(u16),
    Session(prop::sample::Index, bool),
}

fn rule_changes() -> impl Strategy<Value = Vec<(u64, RuleChange)>> {
    let index = any::<prop::sample::Index>;
    let turns = prop::collection::vec(any::<u8>(), 1..6);
    let change = prop_oneof![
        4 => (index(), 1..4usize).prop_map(|(which, one)| RuleChange::Delete(which, one)),
        2 => (index(), 1..4usize).prop_map(|(which, one)| RuleChange::Steal(which, one)),
        2 => (index(), 1..4usize).prop_map(|(which, one)| RuleChange::Twist(which, one)),
        4 => (0..4u16).prop_map(RuleChange::First),
        6 => (0..4u16, turns).prop_map(|(flow, turns)| RuleChange::Route(flow, turns)),
        1 => (0..4u16).prop_map(RuleChange::Unroute),
        1 => (index(), any::<bool>()).prop_map(|(which, up)| RuleChange::Session(which, up)),
    ];
    prop::collection::vec((0..400u64, change), 1..25)
}

fn headers(world: &World, flow: u16) -> Headers {
    let five_tuple = world.flow.five_tuple.with_src_port(1000 + flow);
    Headers { five_tuple, ..world.flow }
}

fn apply(world: &mut World, change: &RuleChange) {
    let switches = world.network.fabric.switches().to_vec();
    let known = |world: &World, flow: u16| {
        let five_tuple = headers(world, flow).five_tuple;
        let views = &world.network.controller.view().flows;
        views.iter().find(|(_, view)| view.five_tuple == five_tuple).map(|(&id, _)| id)
    };
    match change {
        RuleChange::Delete(which, one) => {
            let switch = *which.get(&switches);
            let keys: Vec<RuleKey> = rules(world, switch).into_keys().step_by(*one).collect();
            world.network.delete_rules(switch, |rule| keys.contains(&rule.key()));
        }
        RuleChange::Steal(which, one) => {
            let mut number = 0;
            world.network.switches[which.get(&switches).index()].entries.retain(|_| {
                number += 1;
                number % one != 0
            });
        }
        RuleChange::Twist(which, one) => {
            // To one port only: a packet that is duplicated at every switch would never end.
            let entries = &mut world.network.switches[which.get(&switches).index()].entries;
            for entry in entries.iter_mut().step_by(*one) {
                (entry.rule.actions, entry.rule.goto) = (Actions::from([RuleAction::Output(PortNo(1))]), None);
            }
        }
        RuleChange::First(flow) => {
            world.network.send(Headers { tcp_flags: TCP_SYN, ..headers(world, *flow) });
        }
        RuleChange::Route(flow, turns) => {
            if let (Some(flow), Some(path)) = (known(world, *flow), world.walk(turns)) {
                world.act(Action::Route { flow, path, rate_bps: None });
            }
        }
        RuleChange::Unroute(flow) => {
            if let Some(flow) = known(world, *flow) {
                world.act(Action::Unroute { flow });
            }
        }
        RuleChange::Session(which, true) => world.network.connect(*which.get(&switches)),
        RuleChange::Session(which, false) => world.network.disconnect(*which.get(&switches)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if std::env::var_os("PROPTEST_CASES").is_some() { ProptestConfig::default().cases } else { 30 },
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_rule_is_restored_within_some_periods_and_none_is_duplicated(
        fabric in strategies::fabrics(),
        needs in prop_oneof![Just(LABEL), Just(SFMM), Just(SHARED)],
        changes in rule_changes(),
        seed: u64,
    ) {
        let mut world = World::new(fabric, needs, watching(), seed);
        for (wait, change) in &changes {
            apply(&mut world, change);
            world.traffic(ms(*wait));
        }
        world.connect_all();
        world.traffic(SECOND);
        // Four periods: a rule that is deleted shortly before a review can look like the end of its flow.
        for _ in 0..4 * PERIOD.0 / SECOND.0 {
            for flow in 0..4 {
                let headers = headers(&world, flow);
                world.network.send(headers);
            }
            world.pass(SECOND);
        }
        for flow in 0..4 {
            let headers = headers(&world, flow);
            prop_assert!(world.network.reaches(headers), "{:?}: {:?}", headers, world.network.fates(headers));
        }
        // The rules that exist are those that the controller counts, and they do not change any more.
        for &switch in world.network.fabric.switches() {
            let (now, counted) = (rules(&world, switch).len(), world.network.controller.rules_at(switch) as usize);
            prop_assert_eq!((switch, now), (switch, counted));
        }
        world.network.log.clear();
        world.pass(PERIOD + SECOND);
        prop_assert_eq!(added(&world), 0, "all is back");
        world.pass(Nanos::from_secs(80));
        prop_assert_eq!(world.leaked(), Vec::<String>::new());
        prop_assert!(world.network.controller.view().flows.is_empty());
    }
}
