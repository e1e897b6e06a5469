//! Runs a schedule and checks the promises.

use crate::explained_losses::Excuses;
use crate::operator_actions::Act;
use crate::schedule::Schedule;
use crate::tables::{self, Tables};
use crate::watch::Watch;
use pathloom_model::{FiveTuple, Nanos};
use pathloom_schemes::{Registry, SchemeSpec};
use pathloom_sim::{ControlSettings, SimSettings, Simulation, Tap};
use pathloom_transport::TransportSpec;
use std::sync::{Arc, Mutex, PoisonError};

/// Time between checks of the paths of flows while faults happen. It is no multiple of common periods, so that checks
/// come at all moments of these periods.
const LOOK: Nanos = Nanos(4_337_000);
/// Time within which a long-lived flow delivers something, once everything is repaired.
const DELIVERS: Nanos = Nanos::from_millis(400);
/// Time within which flows must deliver again after the last repair, in addition to the time that the controller
/// needs.
const RECOVERS: Nanos = Nanos::from_secs(2);
/// Time by which every rule of a flow has expired, and every flow is removed.
const RUN_OUT: Nanos = Nanos::from_secs(60);

/// A deliberate defect, to see whether it is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    /// Switches confirm changes that they have not made yet, so the controller installs rules in the wrong order.
    HastyBarriers,
}

/// Result of a schedule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Broken promises, one per line; empty if all are kept.
    pub violations: Vec<String>,
}

/// Runs a schedule.
///
/// # Panics
/// If the simulator cannot set the schedule up, which is a defect of this crate.
pub fn run(schedule: &Schedule, sabotage: Option<Sabotage>) -> Verdict {
    let mut trial = Trial::new(schedule, sabotage);
    trial.through_the_faults();
    trial.until_flows_deliver();
    trial.until_rules_have_run_out();
    trial.judge_packets();
    Verdict { violations: trial.violations }
}

struct Trial<'a> {
    schedule: &'a Schedule,
    simulation: Simulation<Watch>,
    excuses: Excuses,
    /// The scheme in charge, which the next controller uses, too.
    scheme: Arc<Mutex<SchemeSpec>>,
    /// The rules of the fabric without flows.
    bare: Tables,
    violations: Vec<String>,
}

fn parse(scheme: &str) -> SchemeSpec {
    Registry::WithTestSchemes.parse(scheme).expect("schedules name schemes of the registry")
}

fn settings(schedule: &Schedule, scheme: &Arc<Mutex<SchemeSpec>>) -> SimSettings {
    let seed = schedule.seed;
    let current = scheme.clone();
    let make = move || current.lock().unwrap_or_else(PoisonError::into_inner).central(seed);
    let duration = schedule.last() + Nanos::from_secs(30);
    SimSettings {
        fabric: schedule.fabric.clone(),
        workload: schedule.workload.clone(),
        central: make(),
        successor: Some(Box::new(make)),
        programs: None,
        transport: TransportSpec::parse(&schedule.transport).expect("schedules name transports"),
        control: control(schedule),
        duration,
        drain: 60,
        faults: schedule.faults.clone(),
        seed,
    }
}

fn control(schedule: &Schedule) -> ControlSettings {
    ControlSettings::parse(&schedule.control).expect("schedules have a control channel")
}

fn set_up<T: Tap>(schedule: &Schedule, scheme: &Arc<Mutex<SchemeSpec>>, tap: T) -> (Simulation<T>, Tables) {
    let mut simulation =
        Simulation::with_tap(settings(schedule, scheme), tap, None).expect("schedules can be simulated");
    let bare = tables::of(&mut simulation, &schedule.fabric);
    (simulation, bare)
}

impl Trial<'_> {
    fn new(schedule: &Schedule, sabotage: Option<Sabotage>) -> Trial<'_> {
        let scheme = Arc::new(Mutex::new(parse(&schedule.scheme)));
        let (mut simulation, bare) = set_up(schedule, &scheme, Watch::new(&schedule.fabric));
        simulation.keep_going();
        for &(switch, install) in &schedule.slow {
            simulation.set_install(switch, install);
        }
        if sabotage == Some(Sabotage::HastyBarriers) {
            simulation.answer_barriers_at_once();
        }
        let excuses = Excuses::of(schedule, &control(schedule));
        Trial { schedule, simulation, excuses, scheme, bare, violations: Vec::new() }
    }

    fn through_the_faults(&mut self) {
        let mut acts = self.schedule.acts.iter().peekable();
        while self.simulation.now() < self.schedule.last() {
            let now = self.simulation.now();
            let next = (now + LOOK).min(self.schedule.last());
            let next = acts.peek().map_or(next, |(at, _)| next.min(*at).max(now));
            self.simulation.advance(next);
            while let Some((_, act)) = acts.next_if(|(at, _)| *at <= next) {
                self.act(act);
            }
            if !self.excuses.any(next) {
                self.check_paths();
            }
        }
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Drain { target, out } => self.simulation.drain(*target, *out),
            Act::Scheme(text) => {
                let scheme = parse(text);
                let central = scheme.central(self.schedule.seed).expect("schedules name schemes with a central part");
                *self.scheme.lock().unwrap_or_else(PoisonError::into_inner) = scheme;
                self.simulation.set_scheme(central);
                self.bare = set_up(self.schedule, &self.scheme, pathloom_sim::NoTap).1;
            }
        }
    }

    /// Checks that a packet of a long-lived flow would arrive now, in both directions.
    fn check_paths(&mut self) {
        for flow in self.standing() {
            for path in self.simulation.paths(flow) {
                let Some(last) = path.last() else { continue };
                let end = self.schedule.fabric.link(*last).to;
                if !self.schedule.fabric.is_host(end) {
                    let (now, name) = (in_ms(self.simulation.now()), &self.schedule.fabric.node(end).name);
                    return self.violate(format!("black hole at {now}: packets of flow {flow} end at {name}"));
                }
            }
        }
    }

    fn violate(&mut self, violation: String) {
        if self.violations.len() < 2 {
            self.violations.push(violation);
        }
    }

    /// Flows without end that have started.
    fn standing(&self) -> Vec<u32> {
        let flows = self.schedule.workload.flows.iter().zip(0..);
        let endless = flows.filter(|(flow, _)| flow.size_bytes.is_none()).map(|(_, index)| index);
        endless.filter(|&index| !self.simulation.route(index).is_empty()).collect()
    }

    fn delivered_bytes(&self) -> Vec<u64> {
        self.simulation.outcome().flows.iter().map(|flow| flow.delivered_bytes).collect()
    }

    /// Advances until every long-lived flow delivers again.
    fn until_flows_deliver(&mut self) {
        let limit = self.excuses.settled + RECOVERS;
        let standing = self.standing();
        loop {
            let before = self.delivered_bytes();
            self.simulation.advance(self.simulation.now() + DELIVERS);
            let after = self.delivered_bytes();
            let silent = standing.iter().find(|&&flow| after[flow as usize] == before[flow as usize]);
            let Some(&flow) = silent else { break };
            if self.simulation.now() > limit {
                let five_tuple = self.simulation.outcome().flows[flow as usize].five_tuple;
                let words = five_tuple.as_ref().map_or_else(String::new, in_words);
                let held = self.simulation.held_subflows();
                let waited = in_ms(self.simulation.now() - self.schedule.last());
                let paths = self.simulation.paths(flow).map(|path| path.len());
                self.violate(format!(
                    "flow {flow} ({words}) delivers nothing {waited} after the last repair (paths of {paths:?} links, {held} held)"
                ));
                break;
            }
        }
        if !self.simulation.is_whole() {
            self.violate("not everything is up at the end: the schedule is wrong".to_owned());
        }
    }

    /// Ends the flows. Then only the rules of a fabric without flows may stay, and no flow may be held.
    fn until_rules_have_run_out(&mut self) {
        self.simulation.end_arrivals();
        let from = self.simulation.now();
        loop {
            self.simulation.advance(self.simulation.now() + Nanos::from_secs(1));
            let left = self.what_is_left();
            if left.is_empty() {
                return;
            }
            if self.simulation.now() > from + RUN_OUT {
                left.into_iter().for_each(|one| self.violate(one));
                return;
            }
        }
    }

    fn what_is_left(&mut self) -> Vec<String> {
        let mut left = Vec::new();
        let held = self.simulation.controller().held_flows() + self.simulation.held_subflows();
        if held > 0 {
            left.push(format!("{held} flows are still held"));
        }
        let flows = self.simulation.controller().view().flows.len();
        if flows > 0 {
            left.push(format!("the controller knows {flows} flows that are over"));
        }
        if !left.is_empty() {
            return left;
        }
        left.extend(tables::difference(&tables::of(&mut self.simulation, &self.schedule.fabric), &self.bare));
        for tables in self.simulation.switch_tables() {
            let (counted, found) = (self.simulation.controller().rules_at(tables.switch), tables.rules.len());
            if counted as usize != found {
                let name = &self.schedule.fabric.node(tables.switch).name;
                left.push(format!("{name} has {found} rules, and the controller counts {counted}"));
            }
        }
        left
    }

    fn judge_packets(&mut self) {
        let lost = std::mem::take(&mut self.simulation.tap_mut().lost);
        let wrong: Vec<_> = lost.iter().filter(|lost| !self.excuses.covers(lost)).collect();
        if let Some(first) = wrong.first() {
            let name = &self.schedule.fabric.node(first.switch).name;
            let (count, at, why) = (wrong.len(), in_ms(first.at), first.why);
            let words = in_words(&first.headers.five_tuple);
            let tag = first.headers.tag;
            self.violate(format!(
                "{count} packets lost without a fault, first {words} (tag {tag:?}) at {name} at {at}: {why:?}"
            ));
        }
        let outcome = self.simulation.outcome();
        let packets = outcome.packets;
        if packets.copied > 0 || packets.misdelivered > 0 {
            self.violate(format!("{} packets duplicated, {} at the wrong host", packets.copied, packets.misdelivered));
        }
        if !outcome.conserves_packets() {
            self.violate(format!("packets are not accounted for: {packets:?}"));
        }
    }
}

fn in_words(flow: &FiveTuple) -> String {
    let (src, dst, src_port, dst_port) = (flow.src(), flow.dst(), flow.src_port(), flow.dst_port());
    format!("{src}:{src_port} to {dst}:{dst_port}")
}

fn in_ms(time: Nanos) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1e3)
}
