//! Random schedules of faults over hub and codec. A seed draws a fabric, a scheme, flows, delays and faults that may
//! overlap. The promises are those of `pathloom-faults`: nothing is lost where nothing may be lost, no packet loops, no
//! rule is left over, and every hold ends.

use super::world::{State, World};
use pathloom_model::{Nanos, NodeId};
use pathloom_testnet::{Fate, Report, Timing};
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
/// Time within which a cable that flapped is used again, and rules of flows that are over run out.
const SETTLES: Nanos = Nanos::from_secs(12);
const RUNS_OUT: Nanos = Nanos::from_secs(75);

/// What is broken on purpose, so that tests see that the schedules find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sabotage {
    /// Switches answer barriers before they have carried out the messages before them.
    HastyBarriers,
    /// The controller gives its rules an hour until they run out.
    LastingRules,
}

impl Sabotage {
    pub(super) const ALL: [Sabotage; 2] = [Sabotage::HastyBarriers, Sabotage::LastingRules];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Sabotage::HastyBarriers => "hasty-barriers",
            Sabotage::LastingRules => "lasting-rules",
        }
    }
}

const fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn draw<'a>(rng: &mut Pcg64, of: &[&'a str]) -> &'a str {
    of[rng.random_range(0..of.len())]
}

/// A fault that must not cost a packet.
///
/// # Errors
/// The controller cannot start.
fn disturb(world: &mut World, rng: &mut Pcg64, scheme: &str) -> Result<(), String> {
    let nodes: Vec<NodeId> = world.fabric.switches().to_vec();
    let node = nodes[rng.random_range(0..nodes.len())];
    match rng.random_range(0..6) {
        0 | 1 => world.break_session(node),
        2 => world.restart(node, true),
        3 => {
            let snapshot = world.kill_controller();
            world.traffic(ms(rng.random_range(0..500)));
            let keeps_snapshot = rng.random_bool(0.5);
            world.start_controller(scheme, snapshot.filter(|_| keeps_snapshot))?;
        }
        4 => world.faults(node).refuses = (900, rng.random_range(1..4)),
        _ => world.faults(node).rows_in_part = rng.random_range(1..40),
    }
    Ok(())
}

/// A fault that may cost packets until it is repaired.
fn damage(world: &mut World, rng: &mut Pcg64) {
    let nodes: Vec<NodeId> = world.fabric.switches().to_vec();
    if rng.random_bool(0.3) {
        return world.restart(nodes[rng.random_range(0..nodes.len())], false);
    }
    let cables: Vec<_> = world.fabric.switch_cables().collect();
    let cable = cables[rng.random_range(0..cables.len())];
    world.set_cable(cable, false);
    world.traffic(ms(rng.random_range(0..1500)));
    world.set_cable(cable, true);
}

/// Runs the schedule of a seed. Returns the promises that it breaks.
///
/// # Errors
/// A switch has no session before the first fault, or a controller cannot start.
pub(super) fn run(seed: u64, sabotage: Option<Sabotage>) -> Result<Vec<String>, String> {
    let mut rng = Pcg64::seed_from_u64(seed);
    let (fabric, scheme) = (draw(&mut rng, &FABRICS), draw(&mut rng, &SCHEMES));
    let work = [ms(0), ms(5), ms(30)][rng.random_range(0..3)];
    let timing = Timing { work: (ms(0), work), read: [40, 300, usize::MAX][rng.random_range(0..3)], ..Timing::SLOW };
    let more = if sabotage == Some(Sabotage::LastingRules) { "[control]\nidle_timeout_s = 3600" } else { "" };
    let mut world = World::new(fabric, scheme, more, timing, seed)?;
    for node in world.fabric.switches().to_vec() {
        world.faults(node).hasty_barriers = sabotage == Some(Sabotage::HastyBarriers);
    }
    world.begin()?;
    let bare = world.state();
    let hosts = world.fabric.attachments().len();
    world.flows =
        (0..hosts.min(4)).map(|from| world.packet(from, (from + hosts / 2) % hosts, 3000 + from as u16)).collect();
    world.traffic(ms(1500));
    let calm = rng.random_bool(0.6);
    for _ in 0..rng.random_range(1..=6) {
        if calm || rng.random_bool(0.5) {
            disturb(&mut world, &mut rng, scheme)?;
        } else {
            damage(&mut world, &mut rng);
        }
        world.traffic(ms(rng.random_range(0..1200)));
    }
    if !calm {
        world.run_for(SETTLES);
    }
    let settled = world.now();
    world.traffic(ms(1000));
    world.run_for(ms(300));
    let mut broken = judge_packets(&world, (!calm).then_some(settled));
    world.run_for(RUNS_OUT);
    broken.extend(judge_rules(&mut world, &bare));
    Ok(broken.into_iter().map(|what| format!("{scheme} on {fabric}: {what}")).collect())
}

/// Promises about what is left when all flows are over.
fn judge_rules(world: &mut World, bare: &State) -> Vec<String> {
    let mut broken = Vec::new();
    let changed = world.changed_since(bare);
    if !changed.is_empty() {
        broken.push(format!("rules are left over or missing at {}", changed.join("; ")));
    }
    let controller = world.machine().hub.controller();
    let left = controller.map(|controller| (controller.view().flows.len(), controller.held_flows()));
    match left {
        Some((0, 0)) => {}
        Some((flows, held)) => broken.push(format!("{flows} flows are left, {held} of them held")),
        None => broken.push("no controller runs".into()),
    }
    broken
}

/// Promises about packets. Those that were sent before `settled` may be lost or loop.
fn judge_packets(world: &World, settled: Option<Nanos>) -> Vec<String> {
    let mut broken = Vec::new();
    let wrong = world.delivery_errors();
    let lost: Vec<&Report> = wrong.into_iter().filter(|report| settled.is_none_or(|at| report.sent >= at)).collect();
    if let Some(first) = lost.first() {
        broken.push(format!("{} packets did not arrive as they should, first {first:?}", lost.len()));
    }
    let missing = world.packets.iter().filter(|report| report.fates.is_empty()).count();
    if missing > 0 {
        broken.push(format!("{missing} packets have neither arrived nor been lost"));
    }
    let loops = world.packets.iter().flat_map(|report| &report.fates).filter(|(_, fate)| *fate == Fate::Looped).count();
    if settled.is_none() && loops > 0 {
        broken.push(format!("{loops} packets looped"));
    }
    broken
}
