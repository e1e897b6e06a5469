//! Losses that a fault itself explains.
//!
//! - A link that is down loses the packets that it carries and those that are sent to it. Links count them; they
//!   break no promise.
//! - A switch that restarted empty, or came back empty, loses the packets that reach it until the controller has a
//!   session to it and has had time to write its rules.
//! - A switch that has its default routes again, but not yet the rules of a flow's path, forwards packets with their
//!   tags to the next switch. Which rules it lacks may be known only when every switch of the path has been read, so
//!   this lasts until all sessions have been up.
//! - While a cable or a switch is down, hosts may have no path to each other, and switches may have no default route
//!   because none exists. Default routes of several switches change one after another, so a packet may meet old and
//!   new ones. This is over when everything is up again and the controller has had time to update the routes. It does
//!   not explain the loss of a packet with a tag: such a packet is on a path of its own, whose rules stay until
//!   nothing uses them.
//!
//! Lost sessions, dead controllers, restarts, changes of scheme and drains explain nothing: they must not cost a
//! packet.

use crate::schedule::Schedule;
use crate::watch::Lost;
use pathloom_model::{Fabric, FailureState, Fault, FaultKind, FaultTarget, LinkState, Nanos, NodeId};
use pathloom_sim::ControlSettings;

/// Failures of a cable within seconds from which on the controller uses it again only after a delay ([`FLAPPED`]).
const FREE_FAILURES: usize = 3;
/// How long a cable that flapped may be kept out of use.
const FLAPPED: Nanos = Nanos::from_secs(11);
/// Approximate upper limit of the rules that a switch gets when it comes back.
const RULES: u64 = 100;

/// Periods in which losses are explained.
#[derive(Default, Debug)]
pub(crate) struct Excuses {
    /// By node: periods in which the switch may lack rules.
    empty_tables: Vec<Vec<(Nanos, Nanos)>>,
    /// Periods that explain losses on default routes, at any switch.
    outages: Vec<(Nanos, Nanos)>,
    /// Periods that explain losses on paths of their own, at any switch: some switch lost its rules, and not all
    /// sessions have been up since.
    path_rule_gaps: Vec<(Nanos, Nanos)>,
    /// Latest time when everything that was repaired is in use again.
    pub(crate) settled: Nanos,
}

/// What determines which switches have a session to the controller at a moment.
struct Sessions {
    running: bool,
    cut: Vec<bool>,
    dead: Vec<bool>,
}

impl Sessions {
    fn take(&mut self, kind: FaultKind) {
        match kind {
            FaultKind::Session { switch, up } => self.cut[switch.index()] = !up,
            FaultKind::Carrier { target: FaultTarget::Node(node), up } => self.dead[node.index()] = !up,
            FaultKind::ControllerKill => self.running = false,
            FaultKind::ControllerRestart { .. } => self.running = true,
            FaultKind::Carrier { .. } | FaultKind::Quality { .. } | FaultKind::Reboot { .. } => {}
        }
    }

    fn stands(&self, switch: NodeId) -> bool {
        self.running && !self.cut[switch.index()] && !self.dead[switch.index()]
    }
}

impl Excuses {
    /// The excuses of a schedule. Its faults are in order of time, and everything is repaired at its end.
    pub(crate) fn of(schedule: &Schedule, control: &ControlSettings) -> Excuses {
        let (fabric, faults) = (&*schedule.fabric, &schedule.faults[..]);
        let install = schedule.slow.iter().map(|&(_, install)| install).max().unwrap_or_default().max(control.install);
        let channel = control.delay.0 * 10 + control.service.0 * 300;
        let writing = Nanos(channel + install.0 * RULES) + Nanos::from_millis(50);
        let last = schedule.last();
        let waits = if flaps(fabric, faults) { FLAPPED } else { Nanos::ZERO };
        let nodes = fabric.nodes().len();
        let mut excuses = Excuses {
            empty_tables: vec![Vec::new(); nodes],
            outages: Vec::new(),
            path_rule_gaps: Vec::new(),
            settled: last + writing + waits,
        };
        let mut sessions = Sessions { running: true, cut: vec![false; nodes], dead: vec![false; nodes] };
        let (mut failure_state, mut links) = (FailureState::of(fabric), LinkState::of(fabric));
        // Beginnings of periods that have not ended: a switch lacks rules; something is down or not known to be up; a
        // path may lack rules.
        let mut empty_since: Vec<Option<Nanos>> = vec![None; nodes];
        let mut outage_since: Option<Nanos> = None;
        let mut rules_missing_since: Option<Nanos> = None;
        let moments = faults.iter().map(|fault| fault.at).skip(1).chain([Nanos(u64::MAX)]);
        for (fault, next) in faults.iter().zip(moments) {
            sessions.take(fault.kind);
            failure_state.apply(fabric, fault, &mut links);
            match fault.kind {
                FaultKind::Reboot { switch: node }
                | FaultKind::Carrier { target: FaultTarget::Node(node), up: true } => {
                    empty_since[node.index()].get_or_insert(fault.at);
                    rules_missing_since.get_or_insert(fault.at);
                }
                _ => {}
            }
            if matches!(fault.kind, FaultKind::Carrier { .. }) {
                outage_since.get_or_insert(fault.at);
            }
            let quiet = fault.at + writing;
            for &switch in fabric.switches() {
                if quiet <= next && sessions.stands(switch) {
                    let window = empty_since[switch.index()].take().map(|from| (from, quiet));
                    excuses.empty_tables[switch.index()].extend(window);
                }
            }
            let all_stand = fabric.switches().iter().all(|&switch| sessions.stands(switch));
            if quiet <= next && all_stand {
                excuses.path_rule_gaps.extend(rules_missing_since.take().map(|from| (from, quiet)));
            }
            let all_up = fabric.cables().all(|link| links.is_up(link));
            if quiet + waits <= next && all_stand && all_up {
                excuses.outages.extend(outage_since.take().map(|from| (from, quiet + waits)));
            }
        }
        excuses
    }

    /// Whether the loss of a packet is explained.
    pub(crate) fn covers(&self, lost: &Lost) -> bool {
        match lost.headers.tag {
            None => within(&self.outages, lost.at) || within(&self.empty_tables[lost.switch.index()], lost.at),
            Some(_) => within(&self.path_rule_gaps, lost.at),
        }
    }

    /// Whether any loss at this time would be explained.
    pub(crate) fn any(&self, at: Nanos) -> bool {
        within(&self.outages, at)
            || within(&self.path_rule_gaps, at)
            || self.empty_tables.iter().any(|windows| within(windows, at))
    }
}

fn within(windows: &[(Nanos, Nanos)], at: Nanos) -> bool {
    windows.iter().any(|&(from, to)| from <= at && at <= to)
}

/// Whether a cable fails so often that the controller waits before it uses the cable again.
fn flaps(fabric: &Fabric, faults: &[Fault]) -> bool {
    let mut failures = vec![0; fabric.links().len() / 2];
    let (mut failure_state, mut links) = (FailureState::of(fabric), LinkState::of(fabric));
    for fault in faults {
        for link in failure_state.apply(fabric, fault, &mut links) {
            failures[link.cable() as usize] += usize::from(!links.is_up(link));
        }
    }
    failures.iter().any(|&failures| failures >= FREE_FAILURES)
}
