//! Steady phases of a run are advanced at once (`--fidelity skip`).
//!
//! While no flow starts or ends, no path changes and all rates have settled, the state of the network at a later time is,
//! up to the phase of each window, its present state moved to that time: every packet, timer and time stamp is later by
//! the same amount, and every count is higher by its rate. So a phase is found by [`readings`], and skipped by a
//! translation in time (`jump.rs`) that ends before the next event that is not a packet. Packets do the rest.
//! docs/fidelity.md says what is checked, and how far results differ.

mod jump;
mod readings;
mod steady;

use crate::hosts::HostSettings;
use crate::link::LinkCounts;
use crate::network::Totals;
use crate::simulation::Simulation;
use crate::tap::Tap;
use crate::time::{to_nanos, to_ps, Ps};
use crate::transfers::Transfers;
use jump::Phase;
use pathloom_control::Enforcement;
use pathloom_model::units::PS_PER_NS;
use pathloom_model::Nanos;
use pathloom_transport::TransportSpec;
use readings::{FlowReading, Reading, Readings, WINDOW};
use std::collections::BTreeMap;
use steady::Steady;

/// Time between two looks at a run before the first round-trip time is known.
const FIRST_SPACING: Ps = 100_000_000;
/// Round trips of the slowest flow between two readings, and the shortest that counts.
const ROUND_TRIPS: Ps = 4;
const LEAST_ROUND_TRIP: Ps = 10_000_000;

/// What was skipped of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Skipped {
    /// Simulated time in which no packet was simulated.
    pub time: Nanos,
    /// Number of phases that were advanced at once.
    pub jumps: u64,
    /// Why nothing was skipped, as a clause; `None` if something was.
    pub obstacle: Option<&'static str>,
}

/// What a run does next. Decisions are made at moments that depend only on the run, so that its result does not depend on
/// how it is divided into calls of [`Simulation::advance`].
enum Step {
    /// It simulates packets up to and including this time, and then takes a reading.
    Read(Ps),
    /// It simulates packets up to and including this time, because it is too short for rates to settle.
    Pass(Ps),
    /// It skips a phase.
    Jump(Phase),
    /// It simulates the event at this time, and what is left before it. If nothing changes, the rates still hold.
    Keep(Ps, Steady),
}

/// State of the search for steady phases.
pub(crate) struct Skip {
    /// Why nothing may be skipped in this run; `None` if something may.
    refusal: Option<&'static str>,
    readings: Readings,
    step: Step,
    /// Numbers that change when a flow starts or ends.
    flows: [usize; 2],
    /// Beginning and end of each phase that was skipped, as far as it was.
    phases: Vec<(Ps, Ps)>,
    /// What has prevented jumps, and for how long.
    obstacles: BTreeMap<&'static str, Ps>,
    /// Time up to which obstacles were noted.
    noted: Ps,
}

/// Why nothing may be skipped in a run with these settings; `None` if something may.
pub(crate) fn refusal(
    settings: &HostSettings<'_>,
    transfers: &Transfers,
    has_ports: bool,
    taps: bool,
) -> Option<&'static str> {
    if taps {
        return Some("packets are captured");
    }
    if settings.deployment.is_some() {
        return Some("switches run programs, whose state has times of its own");
    }
    if settings.needs.takes_several_paths() {
        return Some("hosts or switches choose a path for each packet");
    }
    if has_ports || settings.needs.ageing.is_some() {
        return Some("ports of switches have several queues, RED or flow control");
    }
    if settings.needs.paces && settings.control.enforcement != Enforcement::Host {
        return Some("meters of switches limit flows");
    }
    if !matches!(settings.transport, TransportSpec::Tcp(_) | TransportSpec::Mptcp(_)) {
        return Some("hosts use parallel streams, or acknowledge packets");
    }
    transfers.any_under_way().then_some("transfers are under way at the start")
}

impl Skip {
    pub(crate) fn new(refusal: Option<&'static str>) -> Skip {
        Skip {
            refusal,
            readings: Readings::new(FIRST_SPACING),
            step: Step::Read(FIRST_SPACING),
            flows: [0; 2],
            phases: Vec::new(),
            obstacles: BTreeMap::new(),
            noted: 0,
        }
    }

    /// What was skipped so far.
    pub(crate) fn outcome(&self) -> Skipped {
        let longest = self.obstacles.iter().max_by_key(|&(_, time)| time).map(|(&obstacle, _)| obstacle);
        let obstacle = self.refusal.or(longest).unwrap_or("it is too short for rates to settle");
        let obstacle = self.phases.is_empty().then_some(obstacle);
        let time = self.phases.iter().map(|(from, to)| to - from).sum();
        Skipped { time: to_nanos(time), jumps: self.phases.len() as u64, obstacle }
    }

    /// Beginning and end of each phase that was skipped so far.
    pub(crate) fn phases(&self) -> impl Iterator<Item = (Nanos, Nanos)> + '_ {
        self.phases.iter().map(|&(from, to)| (to_nanos(from), to_nanos(to)))
    }

    /// Notes what has prevented a jump until now.
    fn note(&mut self, now: Ps, obstacle: &'static str) {
        *self.obstacles.entry(obstacle).or_default() += now - std::mem::replace(&mut self.noted, now);
    }

    /// Begins to look for a steady phase anew.
    fn restart(&mut self, now: Ps) -> Step {
        self.readings.clear();
        Step::Read((now + self.readings.spacing()).next_multiple_of(PS_PER_NS))
    }

    /// As [`Simulation::advance_before`], without the packets of steady phases.
    #[inline(never)]
    pub(crate) fn advance<T: Tap>(&mut self, sim: &mut Simulation<T>, limit: Ps) {
        if self.refusal.is_some() {
            return sim.packets_before(limit);
        }
        while !sim.agenda.is_stopped() && sim.now.saturating_add(1) < limit {
            let until = match &mut self.step {
                Step::Read(at) | Step::Pass(at) | Step::Keep(at, _) => *at,
                Step::Jump(phase) => {
                    let begun = self.phases.last_mut().filter(|begun| begun.0 == phase.began);
                    phase.jump(sim, limit - 1);
                    match begun {
                        Some(begun) => begun.1 = sim.now,
                        None => self.phases.push((phase.began, sim.now)),
                    }
                    if !phase.is_over() {
                        break;
                    }
                    sim.now
                }
            };
            sim.packets_before((until + 1).min(limit));
            if until >= limit || sim.agenda.is_stopped() {
                break;
            }
            self.step = self.next_step(sim);
        }
    }

    /// What comes after a step, whose time has come.
    fn next_step<T: Tap>(&mut self, sim: &mut Simulation<T>) -> Step {
        match std::mem::replace(&mut self.step, Step::Pass(sim.now)) {
            Step::Read(_) => self.read(sim),
            Step::Pass(_) => {
                self.note(sim.now, "flows start too soon after each other");
                self.has_changed(sim);
                self.restart(sim.now)
            }
            Step::Jump(phase) => {
                self.noted = sim.now;
                self.after_jump(sim.now, phase)
            }
            Step::Keep(_, steady) if self.has_changed(sim) => {
                drop(steady);
                self.note(sim.now, "flows start or end, or paths change, too soon after each other");
                self.restart(sim.now)
            }
            Step::Keep(_, steady) => self.begin_phase(sim, steady),
        }
    }

    /// Takes a reading.
    fn read<T: Tap>(&mut self, sim: &mut Simulation<T>) -> Step {
        if self.has_changed(sim) {
            self.note(sim.now, "flows start or end, or paths change, too soon after each other");
            return self.restart(sim.now);
        }
        let start = sim.hosts.transfers().next_start().map(to_ps).filter(|&at| at < sim.duration);
        let settles_at = sim.now + 2 * WINDOW as Ps * self.readings.spacing();
        if let Some(start) = start.filter(|&at| self.readings.is_empty() && at < settles_at) {
            return Step::Pass(start.max(sim.now + 1));
        }
        match reading(sim) {
            Ok(reading) => self.readings.add(reading),
            Err(obstacle) => {
                self.note(sim.now, obstacle);
                self.readings.clear();
            }
        }
        if self.readings.is_first() {
            let longest = sim.hosts.live_subflows().filter_map(|(_, subflow)| subflow.sender.smoothed_rtt()).max();
            self.readings.set_spacing(ROUND_TRIPS * to_ps(longest.unwrap_or_default()).max(LEAST_ROUND_TRIP));
        }
        match self.readings.steady() {
            Ok(Some(steady)) => return self.begin_phase(sim, steady),
            Ok(None) => {}
            Err(obstacle) => self.note(sim.now, obstacle),
        }
        Step::Read(sim.now + self.readings.spacing())
    }

    /// Whether flows have started or ended, or paths may have changed, since the last call.
    fn has_changed<T: Tap>(&mut self, sim: &mut Simulation<T>) -> bool {
        let transfers = sim.hosts.transfers();
        let flows = [transfers.started(), transfers.open()];
        let paths = !sim.network.take_changes().is_empty();
        std::mem::replace(&mut self.flows, flows) != flows || paths
    }
}

/// What every open connection and every link has done so far.
///
/// # Errors
/// The state of some connection is not one that can be steady.
fn reading<T: Tap>(sim: &Simulation<T>) -> Result<Reading, &'static str> {
    let now = to_nanos(sim.now);
    let open = sim.hosts.live_subflows().filter(|(_, subflow)| !subflow.closed);
    let flows: Vec<FlowReading> = open.map(|(slot, subflow)| FlowReading::of(slot, subflow, now)).collect();
    if flows.is_empty() {
        return Err("no flow is under way for long");
    }
    if flows.iter().any(|flow| !flow.is_open) {
        return Err("connections are still being opened");
    }
    if flows.iter().any(|flow| flow.provided_bps == Some(0)) {
        return Err("connections are on hold");
    }
    let Totals { copied, dropped_at_switches, misdelivered, .. } = sim.network.totals;
    Ok(Reading {
        at: sim.now,
        flows,
        connections: sim.hosts.connections().collect(),
        links: sim.network.links.of_fabric().iter().map(LinkCounts::of).collect(),
        rare: [copied, dropped_at_switches, misdelivered],
    })
}
