//! Runs a schedule over hub and codec. The promises are those of `pathloom-faults`: nothing is lost where nothing may be
//! lost, no packet loops, no rule is left over, and every hold ends.

use super::schedule::{Flow, Schedule, Step};
use super::world::{State, World};
use pathloom_model::Nanos;
use pathloom_testnet::{Fate, Report, Timing};
use std::collections::btree_map::{BTreeMap, Entry};

/// Time within which a cable that flapped is used again, and rules of flows that are over run out.
const SETTLES: Nanos = Nanos::from_secs(12);
const RUNS_OUT: Nanos = Nanos::from_secs(75);
/// Time for which nothing is left over, once nothing is.
const STAYS: Nanos = Nanos::from_secs(5);
/// Time within which a hold ends when nothing else sends.
const RELEASES: Nanos = Nanos::from_secs(10);
/// Rules of flows have this priority or a higher one.
const FLOW_PRIORITY: u16 = 900;

/// What is broken on purpose, so that tests see that the schedules find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sabotage {
    /// Switches answer barriers before they have carried out the messages before them.
    HastyBarriers,
    /// The controller gives its rules an hour until they run out.
    LastingRules,
    /// Hosts go on holding flows that the controller has released, and whose leases have ended.
    LastingHolds,
}

impl Sabotage {
    pub(super) const ALL: [Sabotage; 3] = [Sabotage::HastyBarriers, Sabotage::LastingRules, Sabotage::LastingHolds];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Sabotage::HastyBarriers => "hasty-barriers",
            Sabotage::LastingRules => "lasting-rules",
            Sabotage::LastingHolds => "lasting-holds",
        }
    }
}

/// The rules of fabrics that never had a flow, by fabric and scheme. They do not depend on seeds.
#[derive(Debug, Default)]
pub(super) struct BareStates(BTreeMap<(String, String), State>);

impl BareStates {
    /// The rules of a fabric that never had a flow, under a scheme.
    fn of(&mut self, fabric: &str, scheme: &str) -> Result<&State, String> {
        let state = match self.0.entry((fabric.to_owned(), scheme.to_owned())) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let mut world = World::new(fabric, scheme, "", Timing::PROMPT, 0)?;
                world.begin()?;
                unknown.insert(world.state())
            }
        };
        Ok(state)
    }
}

/// What a schedule has led to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Outcome {
    /// The promises that it has broken.
    pub broken: Vec<String>,
    /// Number that depends on all bytes between controller, switches and agents.
    pub digest: u64,
}

/// Runs a schedule.
///
/// # Errors
/// A switch has no session before the first step, or a controller cannot start.
pub(super) fn run(schedule: &Schedule, sabotage: Option<Sabotage>, bare: &mut BareStates) -> Result<Outcome, String> {
    let timing = Timing { work: (Nanos::ZERO, schedule.work), read: schedule.read, ..Timing::SLOW };
    let more = if sabotage == Some(Sabotage::LastingRules) { "[control]\nidle_timeout_s = 3600" } else { "" };
    let mut world = World::new(&schedule.fabric, &schedule.scheme, more, timing, schedule.seed)?;
    for node in world.fabric.switches().to_vec() {
        world.faults(node).hasty_barriers = sabotage == Some(Sabotage::HastyBarriers);
    }
    world.keeps_holds = sabotage == Some(Sabotage::LastingHolds);
    world.begin()?;
    schedule.agents.iter().for_each(|&host| world.start_agent(host));
    schedule.flows.iter().for_each(|flow| begin(&mut world, flow));
    world.traffic(Nanos::from_millis(1500));
    for (step, then) in &schedule.steps {
        carry_out(&mut world, step)?;
        world.traffic(*then);
    }
    let may_lose = schedule.steps.iter().any(|(step, _)| step.may_lose());
    if may_lose {
        world.run_for(SETTLES);
    }
    let settled = world.now();
    world.traffic(Nanos::from_millis(1000));
    let mut broken = Vec::from_iter(end_flows(&mut world));
    broken.extend(judge_packets(&world, may_lose.then_some(settled)));
    let bare = bare.of(&schedule.fabric, &world.scheme)?;
    broken.extend(run_out(&mut world, bare));
    broken.extend(judge_agents(&mut world));
    let named = |what| format!("{what} ({} on {})", schedule.scheme, schedule.fabric);
    Ok(Outcome { broken: broken.into_iter().map(named).collect(), digest: world.digest() })
}

fn begin(world: &mut World, flow: &Flow) {
    world.begin_flow((flow.from, flow.to, flow.port), flow.size_bytes);
}

/// Ends the flows that are not held, until all have ended: a hold ends at the latest when all others have.
fn end_flows(world: &mut World) -> Option<String> {
    loop {
        for number in (0..world.flows.len()).rev() {
            if !world.is_held(&world.flows[number].five_tuple) {
                world.end_flow(number);
            }
        }
        if world.flows.is_empty() {
            world.run_for(Nanos::from_millis(300));
            return None;
        }
        let held = world.flows.len();
        let end = world.now() + RELEASES;
        while world.flows.iter().all(|headers| world.is_held(&headers.five_tuple)) {
            if world.now() >= end {
                return Some(format!("{held} flows are still held {RELEASES:?} after all others have ended"));
            }
            world.traffic(Nanos::from_millis(10));
        }
    }
}

/// Runs until nothing is left of the flows, and then on, to see that it stays so. Returns what is left.
fn run_out(world: &mut World, bare: &State) -> Vec<String> {
    let end = world.now() + RUNS_OUT;
    while world.now() < end && !what_is_left(world, bare).is_empty() {
        world.run_for(Nanos::from_secs(1));
    }
    world.run_for(STAYS);
    what_is_left(world, bare)
}

/// What is left in switches, controller and agents when all flows are over.
fn what_is_left(world: &mut World, bare: &State) -> Vec<String> {
    let (mut left, now) = (Vec::new(), world.now());
    for agent in 0..world.agent_count() {
        let (sizes, session) = world.with_agent(agent, |agent| {
            // Its driver calls it some times a second, so old orders for unknown flows go.
            agent.handle_time(now);
            (agent.sizes(), agent.session())
        });
        if session.is_none() {
            left.push(format!("agent {agent} has no session"));
        }
        if sizes != (0, 0) {
            left.push(format!("agent {agent} has {} flows and {} orders left", sizes.0, sizes.1));
        }
    }
    let controller = world.machine().hub.controller();
    match controller.map(|controller| (controller.view().flows.len(), controller.held_flows())) {
        Some((0, 0)) => {}
        Some((flows, held)) => left.push(format!("{flows} flows are left, {held} of them held")),
        None => left.push("no controller runs".into()),
    }
    let changed = world.changed_since(bare);
    if !changed.is_empty() {
        left.push(format!("rules are left over or missing at {}", changed.join("; ")));
    }
    left
}

/// Promises about what agents and controller have told each other.
fn judge_agents(world: &mut World) -> Vec<String> {
    let mut broken = Vec::new();
    for agent in 0..world.agent_count() {
        let (counts, refusal) = world.with_agent(agent, |agent| (agent.counts(), agent.take_refusal()));
        if counts.useless_lines > 0 {
            broken.push(format!("agent {agent} cannot read {} lines of the controller", counts.useless_lines));
        }
        if let Some(why) = refusal {
            broken.push(format!("agent {agent} was refused: {why}"));
        }
    }
    broken
}

/// Carries out a step, with traffic while it lasts.
fn carry_out(world: &mut World, step: &Step) -> Result<(), String> {
    match *step {
        Step::BreakSession(switch) => world.break_session(switch),
        Step::Restart { switch, keeps_rules } => world.restart(switch, keeps_rules),
        Step::KillController { down, keeps_snapshot } => {
            let snapshot = world.kill_controller();
            world.traffic(down);
            let scheme = world.scheme.clone();
            world.start_controller(&scheme, snapshot.filter(|_| keeps_snapshot))?;
        }
        Step::Refuse { switch, rules } => world.faults(switch).refuses = (FLOW_PRIORITY, rules),
        Step::RowsInPart { switch, rows } => world.faults(switch).rows_in_part = rows,
        Step::CutCable { cable, lasts } => {
            world.set_cable(cable, false);
            world.traffic(lasts);
            world.set_cable(cable, true);
        }
        Step::ChangeScheme(ref scheme) => world.change_scheme(scheme)?,
        Step::Drain { target, lasts, ref scheme } => {
            world.await_sessions()?;
            world.drain(target, true);
            world.traffic(Nanos(lasts.0 / 2));
            if let Some(scheme) = scheme {
                world.change_scheme(scheme)?;
            }
            world.traffic(Nanos(lasts.0 / 2));
            world.drain(target, false);
        }
        Step::BreakAgent(host) => world.agent_of(host).into_iter().for_each(|agent| world.break_agent(agent)),
        Step::RestartAgent(host) => world.kill_agent(host),
        Step::Begin(ref flow) => begin(world, flow),
        Step::End if world.flows.is_empty() => {}
        Step::End => world.end_flow(0),
    }
    Ok(())
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
