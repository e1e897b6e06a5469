//! Random schedules of faults over hub and codec. A seed draws a fabric, a scheme, flows, delays and faults that may
//! overlap. The promises are those of `pathloom-faults`: nothing is lost where nothing may be lost, no packet loops, no
//! rule is left over, and every hold ends.

use super::lab::{ms, Lab, State};
use pathloom_model::{Nanos, NodeId};
use pathloom_testnet::{Fate, Timing};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const FABRICS: [&str; 4] = [
    "fat-tree:k=4,hosts=1,rate=10Mbps",
    "leaf-spine:spines=2,leaves=3,hosts=2,rate=10Mbps",
    "leaf-spine:spines=3,leaves=4,hosts=1,rate=10Mbps",
    "jellyfish:switches=6,ports=5,hosts=6,seed=3,rate=10Mbps",
];
const SCHEMES: [&str; 7] = [
    "move:period=1h",
    "move:period=300ms,times=8,migration=tagged",
    "move:period=300ms,times=8,migration=sfmm",
    "ecmp",
    "hedera:period=1s",
    "ofpt:detect=label,period=1s",
    "lessor",
];
/// Number of schedules of one test. `PATHLOOM_SCHEDULES` sets another.
const SCHEDULES: u64 = 60;
/// Time within which a cable that flapped is used again, and rules of flows that are over run out.
const SETTLES: Nanos = Nanos::from_secs(12);
const RUNS_OUT: Nanos = Nanos::from_secs(75);

fn draw<'a>(rng: &mut Pcg64, of: &[&'a str]) -> &'a str {
    of[rng.random_range(0..of.len())]
}

/// A fault that must not cost a packet.
fn disturb(lab: &mut Lab, rng: &mut Pcg64, scheme: &str) {
    let nodes: Vec<NodeId> = lab.fabric.switches().to_vec();
    let node = nodes[rng.random_range(0..nodes.len())];
    match rng.random_range(0..6) {
        0 | 1 => lab.break_session(node),
        2 => lab.restart(node, true),
        3 => {
            let snapshot = lab.kill_controller();
            lab.traffic(ms(rng.random_range(0..500)));
            lab.start_controller(scheme, rng.random_bool(0.5).then_some(snapshot));
        }
        4 => lab.devices.get_mut(&node).unwrap().faults.refuses = (900, rng.random_range(1..4)),
        _ => lab.devices.get_mut(&node).unwrap().faults.rows_in_part = rng.random_range(1..40),
    }
}

/// A fault that may cost packets until it is repaired.
fn damage(lab: &mut Lab, rng: &mut Pcg64) {
    let nodes: Vec<NodeId> = lab.fabric.switches().to_vec();
    if rng.random_bool(0.3) {
        return lab.restart(nodes[rng.random_range(0..nodes.len())], false);
    }
    let cables: Vec<_> = lab.fabric.switch_cables().collect();
    let cable = cables[rng.random_range(0..cables.len())];
    lab.set_cable(cable, false);
    lab.traffic(ms(rng.random_range(0..1500)));
    lab.set_cable(cable, true);
}

fn run(seed: u64) {
    let mut rng = Pcg64::seed_from_u64(seed);
    let (fabric, scheme) = (draw(&mut rng, &FABRICS), draw(&mut rng, &SCHEMES));
    let work = [ms(0), ms(5), ms(30)][rng.random_range(0..3)];
    let timing = Timing { work: (ms(0), work), read: [40, 300, usize::MAX][rng.random_range(0..3)], ..Timing::SLOW };
    let mut lab = Lab::with(fabric, scheme, "", timing, seed);
    let bare: State = lab.state();
    let hosts = lab.fabric.attachments().len();
    lab.flows =
        (0..hosts.min(4)).map(|from| lab.packet(from, (from + hosts / 2) % hosts, 3000 + from as u16)).collect();
    lab.traffic(ms(1500));
    let calm = rng.random_bool(0.6);
    for _ in 0..rng.random_range(1..=6) {
        if calm || rng.random_bool(0.5) {
            disturb(&mut lab, &mut rng, scheme);
        } else {
            damage(&mut lab, &mut rng);
        }
        lab.traffic(ms(rng.random_range(0..1200)));
    }
    let name =
        format!("seed {seed}: {scheme} on {fabric}, {}", if calm { "nothing may be lost" } else { "cables cut" });
    if !calm {
        lab.run_for(SETTLES);
    }
    let settled = lab.now();
    lab.traffic(ms(1000));
    lab.run_for(ms(300));
    let wrong = lab.delivery_errors();
    let lost: Vec<_> = wrong.into_iter().filter(|report| calm || report.sent >= settled).collect();
    assert!(lost.is_empty(), "{name}: {} packets, first {:?}", lost.len(), lost[0]);
    let is_lost_track_of = |report: &&pathloom_testnet::Report| report.fates.is_empty();
    assert_eq!(lab.packets.iter().filter(is_lost_track_of).count(), 0, "{name}: sent = delivered + lost");
    let loops = lab.packets.iter().flat_map(|report| &report.fates).filter(|(_, fate)| *fate == Fate::Looped).count();
    assert!(!calm || loops == 0, "{name}: {loops} packets looped");
    lab.run_for(RUNS_OUT);
    assert_eq!(lab.changed_since(&bare), [""; 0], "{name}: rules are left over or missing");
    let controller = lab.machine().hub.controller().unwrap();
    assert_eq!((controller.view().flows.len(), controller.held_flows()), (0, 0), "{name}: flows are left");
}

#[test]
fn schedules_of_faults_break_no_promise() {
    let wanted = std::env::var("PATHLOOM_SCHEDULES").ok().and_then(|wanted| wanted.parse().ok());
    (0..wanted.unwrap_or(SCHEDULES)).for_each(run);
}

/// In schedule 25, a later start of the controller adds default routes again, with other cookies. In schedule 196, a
/// switch gets a group again, with another number.
#[test]
fn rules_that_were_added_again_are_the_same_rules() {
    [25, 196].into_iter().for_each(run);
}
