//! Controllers and switches that restart, drains, and changes of scheme.

use super::lab::{ms, s, Lab, K4, QUIET};
use pathloom_control::{DrainError, Input, Target};
use pathloom_testnet::{Faults, Timing};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

#[test]
fn a_killed_controller_costs_no_packet_and_no_rule() {
    for seed in 0..4 {
        let mut lab = Lab::k4(QUIET, seed);
        lab.begin_flows(8);
        lab.traffic(s(3));
        let (before, paths) = (lab.state(), lab.paths());
        // First controllers without a snapshot, which adopt rules, then some with a snapshot.
        for turn in 0..4u64 {
            lab.traffic(s(1));
            let snapshot = lab.kill_controller();
            lab.traffic(ms(100 * turn));
            lab.start_controller(QUIET, (turn >= 2).then_some(snapshot));
            lab.traffic(s(5));
        }
        assert_eq!(lab.changed_since(&before), [""; 0], "seed {seed}");
        assert_eq!(lab.paths(), paths, "seed {seed}");
        lab.nothing_is_lost();
    }
}

#[test]
fn moves_interrupted_by_a_crash_end_within_seconds_and_cost_no_packet() {
    for migration in ["sfmm", "tagged"] {
        let moving = format!("move:period=60ms,migration={migration}");
        let still = format!("move:period=1h,migration={migration}");
        for seed in 0..4 {
            let mut chance = Pcg64::seed_from_u64(seed);
            let mut lab = Lab::with(K4, &still, "", Timing { work: (ms(0), ms(4)), ..Timing::SLOW }, seed);
            lab.begin_flows(8);
            for _ in 0..3 {
                lab.kill_controller();
                lab.start_controller(&moving, None);
                lab.traffic(ms(chance.random_range(600..1200)));
                lab.kill_controller();
                lab.start_controller(&still, None);
                let begun = lab.now();
                lab.traffic(ms(100));
                lab.await_paths();
                assert!(lab.now() - begun < s(5), "{:?}", lab.now() - begun);
            }
            lab.nothing_is_lost();
        }
    }
}

/// Packets are in transit for up to a second. So switches are read before the rules of a snapshot have drained, and flows
/// may move in place again after two seconds.
const WITH_QUEUES: &str = "fat-tree:k=4,rate=20Mbps,buffer=200";

#[test]
fn moves_that_a_snapshot_does_not_know_cost_no_packet_after_a_crash() {
    for migration in ["sfmm", "tagged"] {
        let moving = format!("move:period=2s,migration={migration}");
        // Flows that move again may get other rules in time.
        let still = format!("move:period=1h,migration={migration}");
        for seed in 0..6 {
            let mut chance = Pcg64::seed_from_u64(seed);
            let mut lab = Lab::with(WITH_QUEUES, &moving, "", Timing::SLOW, seed);
            lab.begin_flows(8);
            lab.traffic(s(3));
            // Not amid moves, of which a snapshot has no paths.
            lab.await_paths();
            let controller = |lab: &mut Lab| lab.machine().hub.controller().unwrap().counts().reroutes_in_place;
            let (snapshot, before) = (lab.machine().hub.controller().unwrap().snapshot(), controller(&mut lab));
            lab.traffic(ms(chance.random_range(2000..3500)));
            assert_eq!(controller(&mut lab) > before, migration == "sfmm", "seed {seed}");
            lab.kill_controller();
            lab.traffic(s(1));
            lab.start_controller(&still, Some(snapshot));
            lab.traffic(s(6));
            lab.nothing_is_lost();
        }
    }
}

#[test]
fn a_switch_that_restarts_empty_gets_all_its_rules_again() {
    for seed in 0..3 {
        let mut lab = Lab::k4(QUIET, seed);
        lab.begin_flows(4);
        lab.traffic(s(3));
        let before = lab.state();
        for name in ["e0_0", "a0_0", "c0"] {
            let node = lab.node(name);
            lab.restart(node, false);
            assert!(!lab.changed_since(&before).is_empty());
            lab.traffic(s(5));
            assert_eq!(lab.changed_since(&before), [""; 0], "{name}, seed {seed}");
        }
        let calm = lab.now();
        lab.traffic(s(1));
        lab.run_for(ms(200));
        assert!(lab.delivery_errors().iter().all(|report| report.sent < calm));
    }
}

#[test]
fn a_switch_that_restarts_and_keeps_its_rules_costs_no_packet() {
    let mut lab = Lab::k4(QUIET, 1);
    lab.begin_flows(8);
    lab.traffic(s(3));
    let before = lab.state();
    for node in lab.fabric.clone().switches() {
        lab.restart(*node, true);
        lab.traffic(ms(300));
    }
    lab.traffic(s(3));
    assert_eq!(lab.changed_since(&before), [""; 0]);
    lab.nothing_is_lost();
}

#[test]
fn a_drained_switch_or_cable_is_left_without_loss_and_used_again() {
    for seed in 0..4 {
        let mut lab = Lab::k4(QUIET, seed);
        lab.begin_flows(8);
        lab.traffic(s(2));
        let before = lab.state();
        let link = lab.paths()[0][1];
        let over = lab.fabric.link(link).to;
        for target in [Target::Cable(link), Target::Switch(over)] {
            lab.give(Input::Drain { target, out: true });
            lab.traffic(s(5));
            lab.await_paths();
            assert!(lab.paths().iter().all(|path| !path.contains(&link) && !path.contains(&link.reverse())));
            // A switch restarts and a session breaks meanwhile.
            let core = lab.node("c3");
            lab.break_session(core);
            lab.traffic(s(4));
            let port = lab.fabric.link(link).from_port;
            let from = lab.fabric.link(link).from;
            assert!(!lab.routes_over(from, port), "seed {seed}");
            lab.give(Input::Drain { target, out: false });
            lab.traffic(s(5));
        }
        lab.nothing_is_lost();
        let rules = |state: &crate::faults::world::State| state.values().map(|(rules, _)| rules.len()).sum::<usize>();
        assert_eq!(rules(&lab.state()), rules(&before), "seed {seed}");
    }
}

/// A controller starts while 16 flows use the default routes, and an operator drains something at once, or as soon as the
/// controller `accepts` it. Returns how many milliseconds it refused, and how many packets were lost.
fn drain_after_a_start(seed: u64, accepts: bool) -> (usize, usize) {
    let mut lab = Lab::with(K4, "ecmp", "", Timing { work: (ms(0), ms(4)), ..Timing::SLOW }, seed);
    let flows: Vec<_> = (0..16).map(|from| lab.packet(from, (from + 7) % 16, 3000 + from as u16)).collect();
    lab.flows = flows;
    lab.traffic(s(3));
    lab.kill_controller();
    lab.start_controller("ecmp", None);
    let target = match seed % 3 {
        0 => Target::Switch(lab.node("c1")),
        1 => Target::Switch(lab.node("a2_0")),
        _ => Target::Cable(lab.fabric.switch_cables().nth(seed as usize).unwrap()),
    };
    let is_refused = |lab: &mut Lab| {
        let now = lab.now();
        let checked = lab.machine().hub.controller().unwrap().check_drain(now, target, true);
        assert!(matches!(checked, Ok(()) | Err(DrainError::NoSession(_))), "{checked:?}");
        checked.is_err()
    };
    let mut refused = 0;
    while accepts && is_refused(&mut lab) {
        refused += 1;
        lab.traffic(ms(1));
    }
    lab.give(Input::Drain { target, out: true });
    lab.traffic(s(5));
    lab.run_for(ms(200));
    (refused, lab.delivery_errors().len())
}

#[test]
fn the_first_drain_after_a_start_costs_no_packet_if_the_controller_accepts_it() {
    for seed in 0..8 {
        let (refused, lost) = drain_after_a_start(seed, true);
        assert!((1..1000).contains(&refused) && lost == 0, "seed {seed}: {refused} ms, {lost} lost");
    }
    // The reason for the refusal: switches without a session keep their old routes.
    assert!((0..24).any(|seed| drain_after_a_start(seed, false).1 > 0));
}

#[test]
fn flows_leave_no_rule_and_no_meter_when_they_end() {
    let schemes = [QUIET, "ecmp", "hedera:period=1s", "ofpt:detect=label,period=1s", "lessor"];
    for (seed, scheme) in (0..).zip(schemes) {
        let mut lab = Lab::k4(scheme, seed);
        let bare = lab.state();
        let flows: Vec<_> = (0..8).map(|from| lab.packet(from, 15 - from, 3000 + from as u16)).collect();
        lab.flows = flows;
        lab.traffic(s(5));
        lab.run_for(s(90));
        lab.nothing_is_lost();
        assert_eq!(lab.changed_since(&bare), [""; 0], "{scheme}");
        assert_eq!(lab.machine().hub.controller().unwrap().view().flows.len(), 0, "{scheme}");
        assert_eq!(lab.machine().hub.controller().unwrap().held_flows(), 0, "{scheme}");
    }
}

/// A switch refuses a rule of a flow, or has no room for it. The flow takes another path, or the default routes.
#[test]
fn refused_rules_cost_no_packet() {
    for seed in 0..4 {
        let mut lab = Lab::k4(QUIET, seed);
        let bare = lab.state();
        let (a, b) = (lab.node("a0_0"), lab.node("e0_0"));
        lab.devices.get_mut(&a).unwrap().faults.refuses = (900, 3);
        lab.devices.get_mut(&b).unwrap().faults.refuses = (900, 2);
        let flows: Vec<_> = (0..8).map(|from| lab.packet(from, 8 + from, 3000 + from as u16)).collect();
        lab.flows = flows;
        lab.traffic(s(5));
        assert!(!lab.logged(&["a switch refused a message"]).is_empty());
        lab.nothing_is_lost();
        lab.run_for(s(60));
        assert_eq!(lab.changed_since(&bare), [""; 0], "seed {seed}");
    }
}

#[test]
fn a_switch_without_room_for_groups_gets_rules_to_single_ports() {
    let mut lab = Lab::bare(K4, "ecmp", "", Timing::SLOW, 1);
    for name in ["e0_0", "a0_0"] {
        let switch = lab.node(name);
        lab.devices.get_mut(&switch).unwrap().tables.set_most_groups(0);
    }
    lab.connect_all();
    lab.run_for(s(10));
    for to in 1..16 {
        let headers = lab.packet(0, to, 1000);
        assert!(lab.reaches(headers), "{to}: {:?}", lab.fates(headers));
    }
    let refusals = lab.logged(&["a switch refused a message"]).len();
    assert!(!lab.logged(&["a switch refused a message", "the group table is full"]).is_empty());
    // The controller does not repeat what the switches refused.
    lab.run_for(s(300));
    assert_eq!(lab.logged(&["a switch refused a message"]).len(), refusals);
}

#[test]
fn refused_counters_are_named_and_do_not_read_as_an_idle_switch() {
    let mut lab = Lab::bare(K4, "hedera:period=1s", "", Timing::SLOW, 1);
    let tor = lab.node("e0_0");
    lab.devices.get_mut(&tor).unwrap().faults.refuses_counters = true;
    lab.connect_all();
    lab.run_for(s(5));
    lab.flows = vec![lab.packet(0, 9, 3000), lab.packet(1, 12, 3001)];
    lab.traffic(s(10));
    assert_eq!(lab.sessions(), 20);
    assert!(!lab.logged(&["a switch refused the counters of flows"]).is_empty());
    lab.nothing_is_lost();
}

/// Starts a controller again while a switch refuses a list three times. Checks that the controller names the list each time,
/// and that nothing is lost and nothing leaks.
fn restart_with(refusals: impl FnOnce(&mut Faults), list: &str) {
    let mut lab = Lab::k4(QUIET, 1);
    let bare = lab.state();
    lab.flows = vec![lab.packet(0, 9, 3000), lab.packet(1, 12, 3001)];
    lab.traffic(s(5));
    let tor = lab.node("e0_0");
    refusals(&mut lab.devices.get_mut(&tor).unwrap().faults);
    lab.kill_controller();
    lab.start_controller(QUIET, None);
    lab.traffic(s(30));
    assert_eq!(lab.logged(&[&format!("a switch refused the list of its {list}")]).len(), 3);
    lab.nothing_is_lost();
    lab.run_for(s(90));
    assert_eq!(lab.changed_since(&bare), [""; 0]);
}

/// Rules that a switch does not list are unknown, not absent: they would stay for ever beside those of a restarted
/// controller.
#[test]
fn a_switch_that_refuses_to_list_its_rules_is_asked_again_and_nothing_leaks() {
    restart_with(|faults| faults.refuses_lists = 3, "rules");
}

/// Groups that a switch does not list now are unknown, not absent: adding them again would be refused.
#[test]
fn a_switch_that_refuses_to_list_its_groups_is_asked_again_and_nothing_leaks() {
    restart_with(|faults| faults.refuses_groups = 3, "groups or meters");
}

#[test]
fn a_switch_without_meters_still_forwards() {
    let mut lab = Lab::bare(K4, "ecmp", "", Timing::SLOW, 1);
    let tor = lab.node("e0_0");
    lab.devices.get_mut(&tor).unwrap().faults.has_no_meters = true;
    lab.connect_all();
    lab.run_for(s(10));
    assert_eq!(lab.sessions(), 20);
    for to in 1..16 {
        let headers = lab.packet(0, to, 1000);
        assert!(lab.reaches(headers), "{to}: {:?}", lab.fates(headers));
    }
}
