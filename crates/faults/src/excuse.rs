//! Which losses a fault itself explains.
//!
//! - A link that is down loses what it carries and what is sent to it. Links count that; it is never held against anybody.
//! - A switch that restarted empty, or came back empty, loses what reaches it until the controller has a session to it and
//!   has had time to write its rules.
//! - A switch that has its default routes again, but not yet the rules of a flow's path, sends packets on with their tags, to
//!   whoever is next. Which rules it lacks may be known only when every switch of the path has been read, so that this lasts
//!   until all sessions have stood.
//! - While a cable or a switch is down, hosts may have no path to each other, and switches may have no default route where
//!   there is none to have. Default routes of several switches change one after another, so that a packet may meet old ones
//!   and new ones. That is over when everything is up again and the controller has had time to say so. It explains no loss of
//!   a packet with a tag: that is on a path of its own, whose rules stand until nothing uses them.
//!
//! Lost sessions, dead controllers, restarts, changes of scheme and drains explain nothing: no packet may be lost for them.

use crate::schedule::Schedule;
use crate::watch::Lost;
use pathloom_model::{Damage, Fabric, Fault, FaultKind, FaultTarget, LinkState, Nanos, NodeId};
use pathloom_sim::ControlSettings;

/// Failures of a cable within seconds from which on the controller trusts it late ([`FLAPPED`]).
const FREE_FAILURES: usize = 3;
/// How long a cable that flapped may be held back.
const FLAPPED: Nanos = Nanos::from_secs(11);
/// Rules that a switch gets at most when it comes back, about.
const RULES: u64 = 100;

/// From when to when losses are explained.
#[derive(Default, Debug)]
pub(crate) struct Excuses {
    /// By node.
    empty: Vec<Vec<(Nanos, Nanos)>>,
    /// Anywhere, on default routes.
    damaged: Vec<(Nanos, Nanos)>,
    /// Anywhere, on paths of their own: some switch lost its rules, and not all sessions have stood since.
    torn: Vec<(Nanos, Nanos)>,
    /// When all that was repaired last is in use again at the latest.
    pub(crate) settled: Nanos,
}

/// What can talk to the controller at a moment.
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
    /// Those of a schedule, in order of time, at the end of which everything is repaired.
    pub(crate) fn of(schedule: &Schedule, control: &ControlSettings) -> Excuses {
        let (fabric, faults) = (&*schedule.fabric, &schedule.faults[..]);
        let install = schedule.slow.iter().map(|&(_, install)| install).max().unwrap_or_default().max(control.install);
        let channel = control.delay.0 * 10 + control.service.0 * 300;
        let writing = Nanos(channel + install.0 * RULES) + Nanos::from_millis(50);
        let last = schedule.last();
        let waits = if flaps(fabric, faults) { FLAPPED } else { Nanos::ZERO };
        let nodes = fabric.nodes().len();
        let mut excuses = Excuses {
            empty: vec![Vec::new(); nodes],
            damaged: Vec::new(),
            torn: Vec::new(),
            settled: last + writing + waits,
        };
        let mut sessions = Sessions { running: true, cut: vec![false; nodes], dead: vec![false; nodes] };
        let (mut damage, mut links) = (Damage::of(fabric), LinkState::of(fabric));
        // Since when a switch is without rules, and has had a session; since when something is down or not known to be up.
        let mut empty: Vec<Option<Nanos>> = vec![None; nodes];
        let mut damaged: Option<Nanos> = None;
        let mut torn: Option<Nanos> = None;
        let moments = faults.iter().map(|fault| fault.at).skip(1).chain([Nanos(u64::MAX)]);
        for (fault, next) in faults.iter().zip(moments) {
            sessions.take(fault.kind);
            damage.apply(fabric, fault, &mut links);
            match fault.kind {
                FaultKind::Reboot { switch: node }
                | FaultKind::Carrier { target: FaultTarget::Node(node), up: true } => {
                    empty[node.index()].get_or_insert(fault.at);
                    torn.get_or_insert(fault.at);
                }
                _ => {}
            }
            if matches!(fault.kind, FaultKind::Carrier { .. }) {
                damaged.get_or_insert(fault.at);
            }
            let quiet = fault.at + writing;
            for &switch in fabric.switches() {
                if quiet <= next && sessions.stands(switch) {
                    let window = empty[switch.index()].take().map(|from| (from, quiet));
                    excuses.empty[switch.index()].extend(window);
                }
            }
            let all_stand = fabric.switches().iter().all(|&switch| sessions.stands(switch));
            if quiet <= next && all_stand {
                excuses.torn.extend(torn.take().map(|from| (from, quiet)));
            }
            let all_up = fabric.cables().all(|link| links.is_up(link));
            if quiet + waits <= next && all_stand && all_up {
                excuses.damaged.extend(damaged.take().map(|from| (from, quiet + waits)));
            }
        }
        excuses
    }

    /// Whether the loss of a packet is explained.
    pub(crate) fn covers(&self, lost: &Lost) -> bool {
        match lost.headers.tag {
            None => within(&self.damaged, lost.at) || within(&self.empty[lost.switch.index()], lost.at),
            Some(_) => within(&self.torn, lost.at),
        }
    }

    /// Whether any loss would be explained.
    pub(crate) fn any(&self, at: Nanos) -> bool {
        within(&self.damaged, at) || within(&self.torn, at) || self.empty.iter().any(|windows| within(windows, at))
    }
}

fn within(windows: &[(Nanos, Nanos)], at: Nanos) -> bool {
    windows.iter().any(|&(from, to)| from <= at && at <= to)
}

/// Whether a cable fails so often that the controller waits before it trusts it again.
fn flaps(fabric: &Fabric, faults: &[Fault]) -> bool {
    let mut failures = vec![0; fabric.links().len() / 2];
    let (mut damage, mut links) = (Damage::of(fabric), LinkState::of(fabric));
    for fault in faults {
        for link in damage.apply(fabric, fault, &mut links) {
            failures[link.cable() as usize] += usize::from(!links.is_up(link));
        }
    }
    failures.iter().any(|&failures| failures >= FREE_FAILURES)
}
