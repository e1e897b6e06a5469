//! Flows that share rules (OFPT §5.2: flow aggregation): the number of rules, and that no packet is lost and no rule
//! remains.

use pathloom_control::{Config, Controller, Input};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::rules::Refusal;
use pathloom_model::Path;
use pathloom_scheme::{Action, DefaultRoutes, Event, FlowId, Needs, Rejection, RuleSharing};
use pathloom_testkit::{ms, World, SECOND, SHARED};
use std::sync::Arc;

/// A world with flows between these hosts of a FatTree, by their numbers.
fn sharing(needs: Needs, pairs: &[(usize, usize)]) -> World {
    let fabric = Arc::new(fabric_from_spec("fat-tree:k=4,rate=1Gbps").unwrap());
    World::with_flows(fabric, needs, Config::default(), 7, pairs)
}

fn ids(world: &World) -> Vec<FlowId> {
    world.network.controller.view().flows.keys().copied().collect()
}

/// Puts a flow on the path over these switches.
fn route(world: &mut World, flow: usize, over: &[&str]) {
    let fabric = world.network.fabric.clone();
    let node = |name: &str| fabric.find(name).unwrap();
    let links = over.windows(2).map(|pair| fabric.link_between(node(pair[0]), node(pair[1])).unwrap());
    let path = Path::new(links.collect::<Vec<_>>());
    let flow = ids(world)[flow];
    world.act(Action::Route { flow, path, rate_bps: None });
}

/// Number of rules that a switch has in addition to those at the start.
fn rules(world: &World, name: &str) -> usize {
    let at = world.network.fabric.find(name).unwrap();
    let now = world.network.switches[at.index()].entries.len();
    assert_eq!(now, world.network.controller.rules_at(at) as usize, "{name}: rules and count differ");
    now - world.bare[at.index()]
}

const FIRST: [&str; 5] = ["e0_0", "a0_0", "c0", "a1_0", "e1_0"];
const OTHER: [&str; 5] = ["e0_0", "a0_1", "c2", "a1_1", "e1_0"];

#[test]
fn flows_on_one_path_share_all_rules_but_the_first() {
    let mut world = sharing(SHARED, &[(0, 4), (1, 5), (0, 5)]);
    for flow in 0..3 {
        route(&mut world, flow, &FIRST);
        world.traffic(ms(300));
    }
    assert_eq!(["e0_0", "a0_0", "c0", "a1_0", "e1_0"].map(|name| rules(&world, name)), [3, 1, 1, 1, 1]);
    route(&mut world, 0, &OTHER);
    world.traffic(SECOND);
    let both = ["e0_0", "a0_0", "c0", "a1_0", "e1_0", "a0_1", "c2", "a1_1"];
    // Both paths end at e1_0, so they have the same label there.
    assert_eq!(both.map(|name| rules(&world, name)), [3, 1, 1, 1, 1, 1, 1, 1]);
    route(&mut world, 1, &OTHER);
    route(&mut world, 2, &OTHER);
    world.traffic(SECOND);
    assert_eq!(both.map(|name| rules(&world, name)), [3, 0, 0, 0, 1, 1, 1, 1], "after the drain no flow needs them");
    let counts = world.network.controller.counts();
    assert_eq!((counts.routes, counts.reroutes, counts.reroutes_in_place), (3, 3, 0));
    world.nothing_is_lost_or_left();
}

#[test]
fn paths_to_one_tor_share_their_last_part() {
    let mut world = sharing(SHARED, &[(0, 4), (8, 4), (12, 5)]);
    route(&mut world, 0, &FIRST);
    route(&mut world, 1, &["e2_0", "a2_0", "c0", "a1_0", "e1_0"]);
    route(&mut world, 2, &["e3_0", "a3_0", "c0", "a1_0", "e1_0"]);
    world.traffic(SECOND);
    assert_eq!(["c0", "a1_0", "e1_0", "a2_0", "a3_0"].map(|name| rules(&world, name)), [1; 5]);
    world.nothing_is_lost_or_left();
    let mut apart = sharing(Needs { rules: RuleSharing::PerFlow, ..SHARED }, &[(0, 4), (8, 4), (12, 5)]);
    route(&mut apart, 0, &FIRST);
    route(&mut apart, 1, &["e2_0", "a2_0", "c0", "a1_0", "e1_0"]);
    apart.traffic(SECOND);
    assert_eq!(["c0", "a1_0", "e1_0", "a2_0"].map(|name| rules(&apart, name)), [2, 2, 2, 1]);
}

/// A new controller, with and without a snapshot, finds the rules, and deletes those that no flow needs.
#[test]
fn shared_rules_are_adopted() {
    for memory in [false, true] {
        let mut world = sharing(SHARED, &[(0, 4), (1, 5), (8, 5)]);
        route(&mut world, 0, &FIRST);
        route(&mut world, 1, &FIRST);
        world.traffic(SECOND);
        let snapshot = memory.then(|| world.network.controller.snapshot());
        world.network.kill_controller();
        world.traffic(ms(20));
        let config = Config { epoch: 2, ..Config::default() };
        let scheme = world.script.scheme_with(SHARED, vec![Action::SetDefaults(DefaultRoutes::SinglePath)]);
        let (fabric, now) = (world.network.fabric.clone(), world.network.now());
        world.network.start_controller(match snapshot {
            Some(snapshot) => Controller::restore(config, fabric.clone(), scheme, snapshot, now).unwrap(),
            None => Controller::new(config, fabric.clone(), scheme),
        });
        fabric.switches().iter().rev().for_each(|&switch| world.network.connect(switch));
        world.traffic(SECOND);
        let routes: Vec<bool> =
            world.network.controller.view().flows.values().map(|flow| flow.route.is_some()).collect();
        assert_eq!(routes, [true, true, false], "{memory}");
        assert_eq!(["e0_0", "a0_0", "c0", "a1_0", "e1_0"].map(|name| rules(&world, name)), [2, 1, 1, 1, 1]);
        route(&mut world, 2, &["e2_0", "a2_0", "c0", "a1_0", "e1_0"]);
        world.traffic(SECOND);
        assert_eq!(["c0", "a1_0", "e1_0"].map(|name| rules(&world, name)), [1, 1, 1], "and used by new flows");
        world.nothing_is_lost_or_left();
    }
}

/// Three flows of one host have paths over a0_0, whose table holds `most` rules. Returns whether a fourth one gets one there
/// too, if another controller starts before: without a snapshot (`Some(false)`) or with one.
fn gets_a_fourth_path(most: u32, restart: Option<bool>) -> bool {
    let mut world = sharing(SHARED, &[(0, 4), (0, 6), (0, 8), (0, 10)]);
    let ends = [["a1_0", "e1_0"], ["a1_0", "e1_1"], ["a2_0", "e2_0"], ["a2_0", "e2_1"]];
    let path = |end: usize| ["e0_0", "a0_0", "c0", ends[end][0], ends[end][1]];
    let narrow = world.network.fabric.find("a0_0").unwrap();
    world.network.give_input(Input::Capacity { switch: narrow, rules: most });
    (0..3).for_each(|flow| route(&mut world, flow, &path(flow)));
    world.traffic(SECOND);
    if let Some(memory) = restart {
        let snapshot = world.network.controller.snapshot();
        match memory {
            false => world.restart(2),
            true => {
                world.network.kill_controller();
                let controller = world.restored(snapshot, 2).unwrap();
                world.network.start_controller(controller);
            }
        }
        world.network.give_input(Input::Capacity { switch: narrow, rules: most });
        world.connect_all();
        world.traffic(SECOND);
    }
    let paths = |world: &World| -> Vec<bool> {
        world.network.controller.view().flows.values().map(|flow| flow.route.is_some()).collect()
    };
    assert_eq!(paths(&world), [true, true, true, false], "{most} {restart:?}");
    route(&mut world, 3, &path(3));
    world.traffic(SECOND);
    paths(&world)[3]
}

/// If nobody were charged for the rules of labels that a new controller finds, their host could fill the switches.
#[test]
fn shared_rules_count_for_their_host_after_a_restart() {
    let world = sharing(SHARED, &[(0, 4)]);
    let bare = world.bare[world.network.fabric.find("a0_0").unwrap().index()] as u32;
    for restart in [None, Some(false), Some(true)] {
        // A host may have as many rules as are free, and one more.
        assert_eq!([5, 6].map(|more| gets_a_fourth_path(bare + more, restart)), [false, true], "{restart:?}");
    }
}

/// The snapshot is taken during the move to the other path, while the rules of the first one drain. It tells that the
/// first path needs the rule of the last switch, but not that the other one does. The source ToR connects last.
#[test]
fn a_shared_rule_stays_until_the_flows_that_use_it_are_known() {
    for moment in 0..40 {
        // Packets may be in transit for longer than the switches need to connect.
        let fabric = Arc::new(fabric_from_spec("fat-tree:k=4,rate=100Mbps,buffer=100").unwrap());
        let mut world = World::with_flows(fabric.clone(), SHARED, Config::default(), moment, &[(0, 4)]);
        route(&mut world, 0, &FIRST);
        world.traffic(ms(60 + 10 * (moment % 8)));
        route(&mut world, 0, &OTHER);
        world.traffic(ms(50 + 10 * (moment / 8)));
        let snapshot = world.network.controller.snapshot();
        world.network.kill_controller();
        let controller = world.restored(snapshot, 2).unwrap();
        world.network.start_controller(controller);
        let tor = world.tor();
        fabric.switches().iter().filter(|&&switch| switch != tor).for_each(|&switch| world.network.connect(switch));
        world.traffic(SECOND);
        world.connect_all();
        world.traffic(SECOND);
        world.nothing_is_lost_or_left();
    }
}

#[test]
fn a_full_table_on_a_shared_path_rejects_all_flows_that_wait_for_it() {
    let mut world = sharing(SHARED, &[(0, 4), (1, 5)]);
    let core = world.network.fabric.clone().find("c0").unwrap();
    world.network.switches[core.index()].room = Some(world.bare[core.index()]);
    world.script.clear();
    route(&mut world, 0, &FIRST);
    route(&mut world, 1, &FIRST);
    world.traffic(ms(500));
    let why = Rejection::Refused(core, Refusal::TableFull);
    let rejected = ids(&world).into_iter().map(|flow| Event::RouteRejected { flow, why }).collect::<Vec<_>>();
    assert_eq!(world.script.events(), rejected);
    assert_eq!(["e0_0", "a0_0", "c0", "a1_0", "e1_0"].map(|name| rules(&world, name)), [2, 0, 0, 0, 0]);
    world.network.switches[core.index()].room = None;
    route(&mut world, 0, &FIRST);
    world.traffic(ms(500));
    assert_eq!(["e0_0", "a0_0", "c0", "a1_0", "e1_0"].map(|name| rules(&world, name)), [2, 1, 1, 1, 1]);
    world.nothing_is_lost_or_left();
}

#[test]
fn a_switch_that_lost_its_rules_gets_the_shared_ones_back() {
    let mut world = sharing(SHARED, &[(0, 4), (1, 5)]);
    route(&mut world, 0, &FIRST);
    route(&mut world, 1, &FIRST);
    world.traffic(SECOND);
    world.network.run_until(world.network.now() + ms(100));
    let core = world.network.fabric.clone().find("c0").unwrap();
    world.network.wipe(core);
    world.network.run_until(world.network.now() + ms(100));
    world.network.connect(core);
    world.network.run_until(world.network.now() + ms(500));
    assert_eq!(rules(&world, "c0"), 1);
    world.traffic(ms(300));
    world.nothing_is_lost_or_left();
}
