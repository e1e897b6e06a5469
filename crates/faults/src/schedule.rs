//! A schedule: everything that a seed determines.

use crate::operator_actions::{self, Act};
use crate::{fabrics, settings};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{Fabric, Fault, FaultKind, FaultTarget, LinkId, Nanos, NodeId};
use pathloom_workload::{FlowSpec, Start, Workload};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::fmt;
use std::sync::Arc;

/// Earliest time of the first fault. Flows that start at once have paths of their own by then, if they get any.
const FIRST_FAULT: Nanos = Nanos::from_millis(250);

/// Contents that schedules may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Scope {
    /// Only contents for which the promises are made.
    #[default]
    Promised,
    /// Also contents that are known to break promises (docs/faults.md).
    Everything,
}

/// Everything that a seed determines.
#[derive(Clone)]
pub struct Schedule {
    /// The seed.
    pub seed: u64,
    /// Specification of the fabric.
    pub fabric_spec: String,
    /// The fabric.
    pub fabric: Arc<Fabric>,
    /// Specification of the scheme.
    pub scheme: String,
    /// Transport of the hosts.
    pub transport: String,
    /// Settings of the control channel and the controller.
    pub control: String,
    /// Switches that take longer than the others to carry out each change, and how long they take.
    pub slow: Vec<(NodeId, Nanos)>,
    /// The flows.
    pub workload: Arc<Workload>,
    /// The faults in order of time. After the last one, everything is repaired.
    pub faults: Vec<Fault>,
    /// Operations of the operator, in order of time.
    pub acts: Vec<(Nanos, Act)>,
}

impl Schedule {
    /// Draws a schedule. The same seed gives the same schedule.
    pub fn draw(seed: u64, scope: Scope) -> Schedule {
        let mut rng = Pcg64::seed_from_u64(seed);
        let (fabric_spec, fabric) = loop {
            let spec = fabrics::draw(&mut rng);
            // Not every number of ports and hosts fits a random graph.
            if let Ok(fabric) = fabric_from_spec(&spec) {
                break (spec, Arc::new(fabric));
            }
        };
        let scheme = settings::scheme(&mut rng).label;
        let span = Nanos::from_millis(rng.random_range(100..1200));
        let workload = Arc::new(workload(&mut rng, &fabric, FIRST_FAULT + span));
        let mut faults = Vec::new();
        let of_control_alone = rng.random_bool(0.5);
        for _ in 0..rng.random_range(1..=8) {
            let at = FIRST_FAULT + micros(&mut rng, span.0);
            draw_fault(&mut rng, &fabric, of_control_alone, at, &mut faults);
        }
        faults.sort_by_key(|fault| fault.at);
        repair(&mut rng, &fabric, &mut faults);
        let last = faults.last().map_or(FIRST_FAULT, |fault| fault.at);
        let acts = operator_actions::draw(&mut rng, &fabric, FIRST_FAULT, last);
        let promised =
            |act: &Act| scope == Scope::Everything || operator_actions::is_promised(act, &scheme, &acts, &faults);
        let acts = acts.iter().filter(|(_, act)| promised(act)).cloned().collect();
        let (transport, control) = (settings::transport(&mut rng), settings::control(&mut rng));
        let slow = settings::slow(&mut rng, &fabric);
        Schedule { seed, fabric_spec, fabric, scheme, transport, control, slow, workload, faults, acts }
    }

    /// Time of the last fault, repair or operation.
    pub fn last(&self) -> Nanos {
        let fault = self.faults.last().map(|fault| fault.at);
        fault.into_iter().chain(self.acts.last().map(|(at, _)| *at)).max().unwrap_or(FIRST_FAULT)
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Schedule { seed, fabric_spec, scheme, transport, control, workload, .. } = self;
        writeln!(f, "seed {seed}: {fabric_spec} {scheme} {transport} {control}, {} flows", workload.flows.len())?;
        for (switch, install) in &self.slow {
            writeln!(f, "  {} takes {} us for each change", self.fabric.node(*switch).name, install.0 / 1000)?;
        }
        for flow in &workload.flows {
            let name = |node: NodeId| &self.fabric.node(node).name;
            writeln!(
                f,
                "  flow {} to {}: {:?}, {:?} bytes",
                name(flow.src),
                name(flow.dst),
                flow.start,
                flow.size_bytes
            )?;
        }
        for fault in &self.faults {
            writeln!(f, "  {}", fault.text(&self.fabric))?;
        }
        for (at, act) in &self.acts {
            writeln!(f, "  {}us: {act:?}", at.0 / 1000)?;
        }
        Ok(())
    }
}

/// Draws a whole number of microseconds, less than `limit_ns`.
fn micros(rng: &mut impl Rng, limit_ns: u64) -> Nanos {
    Nanos::from_micros(rng.random_range(0..limit_ns / 1000))
}

/// Two to six flows without end, and up to eight finite ones.
fn workload(rng: &mut impl Rng, fabric: &Fabric, until: Nanos) -> Workload {
    let hosts = fabric.hosts();
    let (endless, finite) = (rng.random_range(2..=6), rng.random_range(0..=8));
    let mut flows = Vec::new();
    for number in 0..endless + finite {
        let from = rng.random_range(0..hosts.len());
        let to = (from + rng.random_range(1..hosts.len())) % hosts.len();
        let (latest, size_bytes) = match number < endless {
            true => (Nanos::from_millis(150), None),
            false => (until, Some(rng.random_range(1_000..200_000))),
        };
        let start = Start::At(micros(rng, latest.0));
        flows.push(FlowSpec::new(start, hosts[from], hosts[to], size_bytes));
    }
    flows.sort_by_key(|flow| match flow.start {
        Start::At(at) => at,
        Start::After { .. } => Nanos::ZERO,
    });
    Workload { flows, description: String::new(), notes: Vec::new(), jobs: Vec::new() }
}

/// Adds a fault and, in most cases, its repair.
fn draw_fault(rng: &mut impl Rng, fabric: &Fabric, of_control_alone: bool, at: Nanos, faults: &mut Vec<Fault>) {
    let mut put = |at: Nanos, kind: FaultKind| faults.push(Fault { at, kind });
    let switch = fabric.switches()[rng.random_range(0..fabric.switches().len())];
    let back = at + micros(rng, 400_000_000);
    let comes_back = rng.random_bool(0.8);
    match rng.random_range(0..if of_control_alone { 6 } else { 12 }) {
        0..=2 => {
            put(at, FaultKind::Session { switch, up: false });
            if comes_back {
                put(back, FaultKind::Session { switch, up: true });
            }
        }
        3..=4 => {
            put(at, FaultKind::ControllerKill);
            if comes_back {
                put(back, FaultKind::ControllerRestart { from_snapshot: rng.random_bool(0.5) });
            }
        }
        5 => put(at, FaultKind::ControllerRestart { from_snapshot: rng.random_bool(0.5) }),
        6..=8 => {
            let cables: Vec<LinkId> = fabric.switch_cables().collect();
            let target = FaultTarget::Cable(cables[rng.random_range(0..cables.len())]);
            let times = if rng.random_bool(0.2) { rng.random_range(2..=6) } else { 1 };
            let gap = Nanos((back - at).0 / times / 2000 * 2000);
            for number in 0..times {
                let down = at + Nanos(gap.0 * number);
                put(down, FaultKind::Carrier { target, up: false });
                if comes_back || number + 1 < times {
                    put(down + Nanos(gap.0 / 2), FaultKind::Carrier { target, up: true });
                }
            }
        }
        9..=10 => {
            let target = FaultTarget::Node(switch);
            put(at, FaultKind::Carrier { target, up: false });
            if comes_back {
                put(back, FaultKind::Carrier { target, up: true });
            }
        }
        _ => put(at, FaultKind::Reboot { switch }),
    }
}

/// Repairs everything that the faults, in order of time, leave broken.
fn repair(rng: &mut impl Rng, fabric: &Fabric, faults: &mut Vec<Fault>) {
    let mut at = faults.last().map_or(FIRST_FAULT, |fault| fault.at);
    let mut open: Vec<FaultKind> = Vec::new();
    for fault in faults.iter() {
        match fault.kind {
            FaultKind::Carrier { target, up } => {
                open.retain(|kind| *kind != FaultKind::Carrier { target, up: true });
                if !up {
                    open.push(FaultKind::Carrier { target, up: true });
                }
            }
            FaultKind::Session { switch, up } => {
                open.retain(|kind| *kind != FaultKind::Session { switch, up: true });
                if !up {
                    open.push(FaultKind::Session { switch, up: true });
                }
            }
            FaultKind::ControllerKill | FaultKind::ControllerRestart { .. } => {
                open.retain(|kind| !matches!(kind, FaultKind::ControllerRestart { .. }));
                if fault.kind == FaultKind::ControllerKill {
                    open.push(FaultKind::ControllerRestart { from_snapshot: rng.random_bool(0.5) });
                }
            }
            // No schedule draws changes of quality, and a reboot needs no repair.
            FaultKind::Quality { .. } | FaultKind::Reboot { .. } => {}
        }
    }
    debug_assert!(fabric.failed_links().is_empty());
    while !open.is_empty() {
        at += micros(rng, 60_000_000);
        let kind = open.swap_remove(rng.random_range(0..open.len()));
        faults.push(Fault { at, kind });
    }
}
