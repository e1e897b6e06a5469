//! Moves flows in place (OFPT §5.3, Alg. 4), on random fabrics, between random paths and with random delays. No
//! packet may be lost, duplicated or looped, whenever it was sent, and no rule may remain at the end. The same checks
//! fail with a wrong order.

use pathloom_control::sfmm::{bottleneck_first, CutoverOrder};
use pathloom_control::{Config, Controller, Counts, Message, Output};
use pathloom_model::{
    Fabric, FabricBuilder, FiveTuple, Headers, LinkId, LinkSettings, Nanos, NodeId, Path, Tier, LONG_FLOW_DSCP,
    PROTO_TCP, TCP_SYN,
};
use pathloom_scheme::{Action, DefaultRoutes, FlowId};
use pathloom_testkit::{ms, strategies, Network, Report, Script, Timing, SFMM};
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use std::cell::Cell;
use std::sync::Arc;

/// One case: paths of a flow, each with its wait after the command before, and the delays of the network.
#[derive(Clone, Debug)]
struct Case {
    fabric: Arc<Fabric>,
    /// Wait in milliseconds before each path, and the turns of the path.
    paths: Vec<(u64, Vec<u8>)>,
    message_ms: u64,
    work_ms: u64,
    link_us: u64,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    let turns = prop::collection::vec(any::<u8>(), 1..6);
    let wait = prop_oneof![3 => 60..160u64, 1 => 0..60u64];
    let paths = prop::collection::vec((wait, turns), 2..4);
    (strategies::fabrics(), paths, 1..10u64, 0..25u64, 50..2000u64, any::<u64>()).prop_map(
        |(fabric, paths, message_ms, work_ms, link_us, seed)| Case {
            fabric,
            paths,
            message_ms,
            work_ms,
            link_us,
            seed,
        },
    )
}

/// Creates a network with one long flow that the controller knows. Also returns the number of rules of each switch
/// without that flow.
fn network(case: &Case, script: &Script, order: CutoverOrder) -> (Network, Headers, Vec<usize>) {
    let scheme = script.scheme_with(SFMM, vec![Action::SetDefaults(DefaultRoutes::SinglePath)]);
    let controller = Controller::new(Config::default(), case.fabric.clone(), scheme).with_cutover_order(order);
    let timing = Timing {
        link: (Nanos(20_000), Nanos(20_000 + 1000 * case.link_us)),
        message: (ms(0), ms(case.message_ms)),
        work: (ms(0), ms(case.work_ms)),
        hasty_barriers: false,
    };
    let mut network = Network::new(case.fabric.clone(), controller, timing, case.seed);
    network.start();
    let bare = network.switches.iter().map(|switch| switch.entries.len()).collect();
    let attachments = case.fabric.attachments();
    let (src, dst) = (attachments[0].address, attachments[attachments.len() - 1].address);
    let five_tuple = FiveTuple::new(PROTO_TCP, (src, 1000), (dst, 80));
    let flow = Headers { dscp: LONG_FLOW_DSCP, ..Headers::plain(five_tuple) };
    network.send(Headers { tcp_flags: TCP_SYN, ..flow });
    network.run_until(network.now() + ms(200));
    network.watched = Some(flow);
    (network, flow, bare)
}

/// Moves a flow from path to path with steady traffic, and waits until all rules have expired. Returns the counts of
/// the controller, or the first error.
fn play(case: &Case, order: CutoverOrder) -> Result<Counts, String> {
    let script = Script::new();
    let (mut network, flow, bare) = network(case, &script, order);
    let (&id, view) = network.controller.view().flows.iter().next().ok_or("the flow is not known")?;
    let mut at = network.now();
    for (wait, turns) in &case.paths {
        at += ms(*wait);
        if let Some(path) = strategies::walk(&case.fabric, view.src_tor, view.dst_tor, turns) {
            script.at(at, Action::Route { flow: id, path, rate_bps: None });
        }
    }
    let end = at + ms(200);
    while network.now() < end {
        network.send(flow);
        network.run_until(network.now() + Nanos(2_300_000));
    }
    let counts = network.controller.counts();
    network.run_until(network.now() + Nanos::from_secs(30));
    let fabric = &case.fabric;
    let left = |&&switch: &&NodeId| {
        let now = network.switches[switch.index()].entries.len();
        (now, network.controller.rules_at(switch) as usize) != (bare[switch.index()], bare[switch.index()])
    };
    match (network.delivery_errors().first(), network.strays().first(), network.failures.first()) {
        (Some(lost), _, _) => Err(format!("lost: {lost:?}")),
        (_, Some(stray), _) => Err(format!("looped: {stray:?}")),
        (_, _, Some(failure)) => Err(format!("would have been lost: {failure:?}")),
        _ => match fabric.switches().iter().find(left) {
            Some(&switch) => Err(format!(
                "{}: {} rules at first, {} in the end, {} counted: {:?}",
                fabric.node(switch).name,
                bare[switch.index()],
                network.switches[switch.index()].entries.len(),
                network.controller.rules_at(switch),
                network.switches[switch.index()].rules(),
            )),
            None if !network.controller.view().flows.is_empty() => Err("the flow is still known".into()),
            None => Ok(counts),
        },
    }
}

/// Plays many cases, which only depend on the seed. Returns the number of moves, and of moves in place.
fn play_many(cases_wanted: u32, seed: u8, order: CutoverOrder) -> Result<(u64, u64), String> {
    let settings = Cases { cases: cases_wanted, failure_persistence: None, max_shrink_iters: 200, ..Cases::default() };
    let mut runner = TestRunner::new_with_rng(settings, TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]));
    let sums = Cell::new((0, 0));
    let outcome = runner.run(&cases(), |case| {
        let counts = play(&case, order).map_err(TestCaseError::fail)?;
        let (moves, in_place) = sums.get();
        sums.set((moves + counts.reroutes, in_place + counts.reroutes_in_place));
        Ok(())
    });
    outcome.map(|()| sums.get()).map_err(|error| error.to_string())
}

#[test]
fn no_packet_is_lost_and_no_rule_left_in_ten_thousand_cases_first_half() {
    let (moves, in_place) = play_many(5000, 1, bottleneck_first).unwrap_or_else(|error| panic!("{error}"));
    assert!(in_place > 2000 && moves - in_place > 200, "{moves} moves, {in_place} in place");
}

#[test]
fn no_packet_is_lost_and_no_rule_left_in_ten_thousand_cases_second_half() {
    let (moves, in_place) = play_many(5000, 2, bottleneck_first).unwrap_or_else(|error| panic!("{error}"));
    assert!(in_place > 2000 && moves - in_place > 200, "{moves} moves, {in_place} in place");
}

/// Wrong order: if both paths visit two switches in opposite order, a packet is sent back.
fn also_where_paths_cross(fabric: &Fabric, old: &Path, new: &Path, _: LinkId) -> Option<Vec<NodeId>> {
    let switches = |path: &Path| path.switches(fabric, fabric.link(path.links()[0]).from);
    let after = switches(new);
    Some(switches(old).into_iter().filter(|switch| after.contains(switch)).collect())
}

/// Wrong order: old rules at switches of the old path only are deleted while packets still arrive there.
fn beyond_the_cutover(fabric: &Fabric, old: &Path, new: &Path, bottleneck: LinkId) -> Option<Vec<NodeId>> {
    let order = bottleneck_first(fabric, old, new, bottleneck)?;
    let only_old = old.links().iter().map(|&link| fabric.link(link).to).filter(|switch| !order.contains(switch));
    Some(only_old.chain(order.clone()).collect())
}

/// Shows that the checks above detect errors.
#[test]
fn a_wrong_order_is_detected() {
    for (wrong, sign) in [(also_where_paths_cross as CutoverOrder, "looped"), (beyond_the_cutover, "lost")] {
        let error = play_many(2000, 1, wrong).expect_err("a wrong order");
        assert!(error.contains(sign), "{error}");
    }
}

/// The example of OFPT's Fig. 3: from 3-2-1-7-10 to 3-4-1-9-10.
fn figure_3() -> (Arc<Fabric>, Path, Path, [NodeId; 7]) {
    let settings = LinkSettings { rate_bps: 10_000_000, delay_ps: 1_000_000, buffer_packets: 100 };
    let mut builder = FabricBuilder::new("figure 3");
    let nodes = ["1", "2", "3", "4", "7", "9", "10"].map(|name| builder.switch(name, Tier::Tor, None));
    let [one, two, three, four, seven, nine, ten] = nodes;
    let old = [(three, two), (two, one), (one, seven), (seven, ten)];
    let new = [(three, four), (four, one), (one, nine), (nine, ten)];
    let [old, new] = [old, new].map(|pairs| pairs.map(|(a, b)| builder.cable(a, b, settings)));
    for (name, tor) in [("s", three), ("d", ten)] {
        let host = builder.host(name, None);
        builder.cable(host, tor, settings);
    }
    (Arc::new(builder.build().unwrap()), Path::new(old), Path::new(new), nodes)
}

/// Creates a network with a flow on the old path of [`figure_3`].
fn example(seed: u64) -> (Network, Script, Headers, Vec<usize>, FlowId) {
    let (fabric, old, _, [one, _, _, _, seven, ..]) = figure_3();
    let case = Case { fabric: fabric.clone(), paths: vec![], message_ms: 10, work_ms: 25, link_us: 1000, seed };
    let script = Script::new();
    let (mut network, flow, bare) = network(&case, &script, bottleneck_first);
    let id = *network.controller.view().flows.keys().next().unwrap();
    script.at(network.now(), Action::Route { flow: id, path: old, rate_bps: Some(1_000_000) });
    traffic(&mut network, flow, ms(300));
    assert!(network.controller.view().flows[&id].route.is_some());
    let busy = fabric.link_between(one, seven).unwrap();
    assert!(network.controller.view().flows[&id].route.as_ref().unwrap().links().contains(&busy));
    (network, script, flow, bare, id)
}

fn traffic(network: &mut Network, flow: Headers, time: Nanos) {
    let end = network.now() + time;
    while network.now() < end {
        network.send(flow);
        network.run_until(network.now() + Nanos(2_300_000));
    }
}

/// Rules that were added or deleted since the log was cleared: (switch, whether added, priority).
fn told(network: &Network) -> Vec<(NodeId, bool, u16)> {
    let outputs = network.log.iter().filter_map(|record| match &record.message {
        Message::Output(Output::AddRule { switch, rule, .. }) => Some((*switch, true, rule.priority)),
        Message::Output(Output::DeleteRule { switch, key, .. }) => Some((*switch, false, key.priority)),
        _ => None,
    });
    outputs.collect()
}

#[test]
fn the_example_of_the_paper_step_by_step() {
    let (mut network, script, flow, bare, id) = example(1);
    let (_, _, new, [one, _, three, four, _, nine, ten]) = figure_3();
    network.log.clear();
    script.at(network.now(), Action::Route { flow: id, path: new.clone(), rate_bps: Some(1_000_000) });
    traffic(&mut network, flow, ms(500));
    let steps = told(&network);
    // Without other load all links are equal. 3-2 is the first of the links that the flow leaves, so 3 is cut over
    // first.
    let low: Vec<_> = [four, one, nine, ten].map(|switch| (switch, true, 999)).into();
    assert_eq!(steps[..4], low[..]);
    assert_eq!(steps[4..8], [(three, true, 1001), (three, false, 1002), (one, false, 1000), (ten, false, 1000)]);
    let normal: Vec<_> = [four, one, nine, ten].map(|switch| (switch, true, 1000)).into();
    let copies: Vec<_> = steps.iter().skip(8).filter(|(_, added, _)| *added).copied().collect();
    assert_eq!(copies, [normal, vec![(three, true, 1003)]].concat());
    let counts = network.controller.counts();
    assert_eq!((counts.reroutes, counts.reroutes_in_place), (1, 1));
    assert_eq!(network.controller.view().flows[&id].route, Some(new));
    network.run_until(network.now() + Nanos::from_secs(30));
    assert!(network.delivery_errors().is_empty() && network.strays().is_empty());
    let left: Vec<usize> = network.switches.iter().map(|switch| switch.entries.len()).collect();
    assert_eq!(left, bare);
}

#[test]
fn the_bottleneck_is_left_first() {
    let (mut network, script, flow, _, id) = example(1);
    let (fabric, _, new, [one, _, three, _, seven, _, ten]) = figure_3();
    // A second flow of the same hosts, from 3 over 4 and 1 to 7 and 10, is expected to use most of the capacity.
    let five_tuple = flow.five_tuple.with_src_port(2000);
    let second = Headers { five_tuple, tcp_flags: TCP_SYN, ..flow };
    network.send(second);
    traffic(&mut network, flow, ms(100));
    let other = *network.controller.view().flows.keys().find(|&&known| known != id).unwrap();
    let link = |a, b| fabric.link_between(a, b).unwrap();
    let crossing = Path::new([new.links()[0], new.links()[1], link(one, seven), link(seven, ten)]);
    script.at(network.now(), Action::Route { flow: other, path: crossing, rate_bps: Some(8_000_000) });
    traffic(&mut network, flow, ms(300));
    network.log.clear();
    script.at(network.now(), Action::Route { flow: id, path: new, rate_bps: Some(1_000_000) });
    traffic(&mut network, flow, ms(500));
    let deleted: Vec<NodeId> = told(&network).iter().filter(|(_, added, _)| !added).map(|&(at, ..)| at).collect();
    assert_eq!(deleted[0], one, "1 is before the link to 7");
    assert_eq!(deleted[1..3].iter().collect::<std::collections::BTreeSet<_>>(), [three, ten].iter().collect());
}

/// A controller without a snapshot, or with one, takes over at any moment of a migration. The migration is completed
/// or undone.
#[test]
fn a_migration_is_completed_or_undone_after_a_restart() {
    let (mut finished, mut taken_back) = (0, 0);
    for wait in (0..240u64).step_by(12) {
        for memory in [false, true] {
            let (mut network, script, flow, bare, id) = example(wait);
            let (fabric, old, new, _) = figure_3();
            script.at(network.now(), Action::Route { flow: id, path: new.clone(), rate_bps: None });
            traffic(&mut network, flow, ms(wait));
            let snapshot = memory.then(|| network.controller.snapshot());
            network.kill_controller();
            traffic(&mut network, flow, ms(20));
            let config = Config { epoch: 2, ..Config::default() };
            let start = vec![Action::SetDefaults(DefaultRoutes::SinglePath)];
            let scheme = script.scheme_with(SFMM, start);
            network.start_controller(match snapshot {
                Some(snapshot) => Controller::restore(config, fabric.clone(), scheme, snapshot, network.now()).unwrap(),
                None => Controller::new(config, fabric.clone(), scheme),
            });
            for &switch in fabric.switches().iter().rev() {
                network.connect(switch);
                traffic(&mut network, flow, ms(5));
            }
            traffic(&mut network, flow, ms(500));
            let flows: Vec<_> = network.controller.view().flows.values().collect();
            assert_eq!(flows.len(), 1, "{wait} {memory}");
            match &flows[0].route {
                Some(path) if *path == new => finished += 1,
                Some(path) if *path == old => taken_back += 1,
                other => assert_eq!(*other, None, "{wait} {memory}"),
            }
            network.run_until(network.now() + Nanos::from_secs(60));
            assert!(network.delivery_errors().is_empty(), "{wait} {memory}: {:?}", network.delivery_errors()[0]);
            assert!(network.failures.is_empty(), "{wait} {memory}: {:?}", network.failures[0]);
            let left: Vec<usize> = network.switches.iter().map(|switch| switch.entries.len()).collect();
            assert_eq!(left, bare, "{wait} {memory}");
        }
    }
    assert!(finished >= 8 && taken_back >= 8, "{finished} {taken_back}");
}

/// A flow that gets another path while it is between two paths is moved there next.
#[test]
fn a_path_requested_during_a_migration_is_set_up_next() {
    for wait in (0..240u64).step_by(12) {
        let (mut network, script, flow, bare, id) = example(wait);
        let (_, old, new, _) = figure_3();
        let third = Path::new([old.links()[0], old.links()[1], new.links()[2], new.links()[3]]);
        let at = network.now();
        script.at(at, Action::Route { flow: id, path: new, rate_bps: None });
        script.at(at + ms(wait), Action::Route { flow: id, path: third.clone(), rate_bps: None });
        traffic(&mut network, flow, ms(900));
        let view = &network.controller.view().flows[&id];
        assert_eq!((view.route.as_ref(), &view.pending), (Some(&third), &None), "{wait}");
        network.run_until(network.now() + Nanos::from_secs(60));
        assert!(network.delivery_errors().is_empty() && network.strays().is_empty(), "{wait}");
        let left: Vec<usize> = network.switches.iter().map(|switch| switch.entries.len()).collect();
        assert_eq!(left, bare, "{wait}");
    }
}

/// A link fails, a table is full or a session is lost at any moment of a migration.
#[test]
fn a_migration_that_fails_leaves_no_rules() {
    for wait in (0..240u64).step_by(12) {
        for fault in 0..4 {
            let (mut network, script, flow, bare, id) = example(wait);
            let (_, old, new, [one, ..]) = figure_3();
            script.at(network.now(), Action::Route { flow: id, path: new.clone(), rate_bps: None });
            traffic(&mut network, flow, ms(wait));
            let struck = network.now();
            match fault {
                0 => network.set_cable(old.links()[2], false),
                1 => network.set_cable(new.links()[2], false),
                2 => network.switches[one.index()].room = Some(network.switches[one.index()].entries.len()),
                _ => network.disconnect(one),
            }
            traffic(&mut network, flow, ms(600));
            let view = network.controller.view().flows[&id].clone();
            assert_eq!(view.pending, None, "{wait} {fault}");
            assert!(network.reaches(flow), "{wait} {fault}: {view:?}");
            network.switches[one.index()].room = None;
            network.set_cable(old.links()[2], true);
            network.set_cable(new.links()[2], true);
            network.connect(one);
            network.run_until(network.now() + Nanos::from_secs(60));
            // A dead link loses packets until the controller has noticed the failure and the source ToR has changed
            // its rule.
            let lost = network.delivery_errors();
            let early = |report: &Report| report.sent < struck + ms(120);
            assert!(lost.iter().all(|report| fault < 2 && early(report)), "{wait} {fault}: {:?}", lost.last());
            let left: Vec<usize> = network.switches.iter().map(|switch| switch.entries.len()).collect();
            assert_eq!(left, bare, "{wait} {fault}");
        }
    }
}
