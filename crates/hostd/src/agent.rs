//! The agent as a state machine: what happens on the host and what the controller says come in by `handle_*`; lines to
//! the controller, orders for the kernel and lines to programs go out by `poll_*`. Time is an argument.
//!
//! The kernel is the only source of flows, apart from programs that announce their own. Orders are about five-tuples,
//! so that a flow can be held before its first packet.

use crate::words::{self, Told, Wants};
use pathloom_model::{FiveTuple, Nanos};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;

/// How long the paces of a lost controller stay: one that starts again finds the flows as they were. No pace lasts for more than
/// 15 s, and a socket loses its own with the next acknowledgement, some 0.3 s later at worst.
pub const PACES_KEPT: Nanos = Nanos::from_millis(14_500);
/// Longest lease of a hold, whatever the controller says.
pub const LONGEST_LEASE: Nanos = Nanos::from_secs(60);
/// How long an order for a flow stays that the agent does not know.
const STRANGER_KEPT: Nanos = Nanos::from_secs(30);

/// A program on the host that announces its own flows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ProgramId(pub u64);

/// What the agent needs to know from its configuration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Addresses of the hosts that it represents.
    pub hosts: Vec<Ipv4Addr>,
    /// Token that it shows to the controller.
    pub token: Option<String>,
    /// Maximum number of flows, and of orders.
    pub max_flows: usize,
}

/// What the kernel shall do with a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Order {
    /// Rate on the wire in bits per second; `None` for no limit.
    pub pace_bps: Option<u64>,
    /// Time until which it sends nothing.
    pub hold_until: Option<Nanos>,
    /// Whether it was held until now: it must be made to send.
    pub released: bool,
}

/// Figures for the status.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Flows announced since the start.
    pub announced: u64,
    /// Holds carried out.
    pub holds: u64,
    /// Leases that ended without a release.
    pub leases_ended: u64,
    /// Paces carried out.
    pub paces: u64,
    /// Flows and orders beyond the maximum.
    pub beyond_limit: u64,
    /// Lines of the controller that were of no use.
    pub useless_lines: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    /// The program that announced it.
    program: Option<ProgramId>,
    /// Whether the kernel has reported it as long.
    is_long: bool,
    size_bytes: Option<u64>,
    /// Whether the controller has heard of it in this session.
    announced: bool,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    order: Order,
    since: Nanos,
}

/// The agent of one or several hosts.
#[derive(Debug)]
pub struct Agent {
    settings: Settings,
    flows: BTreeMap<FiveTuple, Flow>,
    orders: BTreeMap<FiveTuple, Kept>,
    /// Ends of leases; an entry may be out of date.
    leases: BTreeSet<(Nanos, FiveTuple)>,
    /// What the controller wants to hear; `None` before the welcome.
    wants: Option<Wants>,
    /// When the controller was lost, while there are orders of it.
    lost_since: Option<Nanos>,
    lines: VecDeque<String>,
    changed: VecDeque<(FiveTuple, Order)>,
    to_programs: VecDeque<(ProgramId, String)>,
    refusal: Option<String>,
    counts: Counts,
}

impl Agent {
    /// An agent that has no connection yet.
    pub fn new(settings: Settings) -> Agent {
        Agent {
            settings,
            flows: BTreeMap::new(),
            orders: BTreeMap::new(),
            leases: BTreeSet::new(),
            wants: None,
            lost_since: None,
            lines: VecDeque::new(),
            changed: VecDeque::new(),
            to_programs: VecDeque::new(),
            refusal: None,
            counts: Counts::default(),
        }
    }

    /// Takes over an order that an earlier agent has left in the kernel. Nobody knows whether that agent still had its
    /// controller, so paces end when they would have ended without this agent, at `paces_until`.
    pub fn adopt(&mut self, now: Nanos, flow: FiveTuple, order: Order, paces_until: Nanos) {
        if let Some(until) = order.hold_until {
            self.leases.insert((until, flow));
        }
        self.orders.insert(flow, Kept { order, since: now });
        self.lost_since = Some(paces_until.saturating_sub(PACES_KEPT).min(now));
    }

    /// Figures for the status.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Number of known flows and of orders in force.
    pub fn sizes(&self) -> (usize, usize) {
        (self.flows.len(), self.orders.len())
    }

    /// Whether the controller wants transfers announced; `None` without a session.
    pub fn session(&self) -> Option<bool> {
        self.wants.map(|wants| wants.announce)
    }

    /// Why the controller refused something last. Asked once, it is forgotten.
    pub fn take_refusal(&mut self) -> Option<String> {
        self.refusal.take()
    }

    // --- the host

    /// The kernel has seen that a flow is long.
    pub fn handle_long(&mut self, flow: FiveTuple) {
        if !self.flows.contains_key(&flow) && self.flows.len() >= self.settings.max_flows {
            self.counts.beyond_limit += 1;
            return;
        }
        self.flows.entry(flow).or_default().is_long = true;
        self.announce_flow(flow);
    }

    /// The connection of a flow is closed.
    pub fn handle_closed(&mut self, flow: FiveTuple) {
        // What a program announced, the program also ends, unless the connection was seen to be long.
        let Some(known) = self.flows.remove(&flow) else { return self.forget_order(flow) };
        if known.announced {
            self.lines.push_back(words::finish(flow));
        }
        self.forget_order(flow);
    }

    /// Flows that the kernel has at this moment, after events were lost: others have ended.
    pub fn handle_all(&mut self, long: &BTreeSet<FiveTuple>) {
        let over = self.flows.iter().filter(|(flow, known)| known.is_long && !long.contains(flow));
        let over: Vec<_> = over.map(|(&flow, _)| flow).collect();
        over.into_iter().for_each(|flow| self.handle_closed(flow));
        long.iter().for_each(|&flow| self.handle_long(flow));
    }

    /// A program announces its own transfer. The error is for the program.
    pub fn handle_announce(
        &mut self,
        program: ProgramId,
        flow: FiveTuple,
        size_bytes: Option<u64>,
    ) -> Result<(), String> {
        if !self.settings.hosts.contains(&flow.src) {
            return Err(format!("{} is no address of this host", flow.src));
        }
        if !self.flows.contains_key(&flow) && self.flows.len() >= self.settings.max_flows {
            self.counts.beyond_limit += 1;
            return Err(format!("there are {} flows already, the maximum", self.settings.max_flows));
        }
        let known = self.flows.entry(flow).or_default();
        (known.program, known.size_bytes) = (Some(program), size_bytes);
        self.announce_flow(flow);
        Ok(())
    }

    /// A program says that its transfer is over.
    pub fn handle_finish(&mut self, program: ProgramId, flow: FiveTuple) {
        if self.flows.get(&flow).is_some_and(|known| known.program == Some(program)) {
            self.handle_closed(flow);
        }
    }

    /// A program has ended. Its connections may go on, if the kernel has seen them.
    pub fn handle_program_gone(&mut self, program: ProgramId) {
        let mut over = Vec::new();
        for (&flow, known) in self.flows.iter_mut().filter(|(_, known)| known.program == Some(program)) {
            known.program = None;
            if !known.is_long {
                over.push(flow);
            }
        }
        over.into_iter().for_each(|flow| self.handle_closed(flow));
    }

    // --- the controller

    /// A connection to the controller is open.
    pub fn handle_connected(&mut self) {
        self.lines.clear();
        self.lines.push_back(words::hello(&self.settings.hosts, self.settings.token.as_deref()));
    }

    /// The connection to the controller is lost. Holds run out with their leases, paces stay for [`PACES_KEPT`].
    pub fn handle_lost(&mut self, now: Nanos) {
        if self.wants.take().is_some() || self.lost_since.is_none() {
            self.lost_since = Some(now);
        }
        self.lines.clear();
        self.flows.values_mut().for_each(|flow| flow.announced = false);
    }

    /// A line of the controller.
    pub fn handle_line(&mut self, now: Nanos, line: &[u8]) {
        let told = match Told::read(line) {
            Ok(told) => told,
            Err(why) => {
                self.counts.useless_lines += 1;
                self.refusal = Some(why);
                return;
            }
        };
        if let Some(program) = told.flow().and_then(|flow| self.flows.get(&flow)?.program) {
            self.to_programs.push_back((program, String::from_utf8_lossy(line).trim_end().to_owned()));
        }
        match told {
            Told::Welcome(wants) | Told::Wants(wants) => {
                (self.wants, self.lost_since) = (Some(wants), None);
                let flows: Vec<_> = self.flows.keys().copied().collect();
                flows.into_iter().for_each(|flow| self.announce_flow(flow));
            }
            Told::Hold { flow, lease_ms } => {
                let lease = Nanos::from_millis(lease_ms.min(LONGEST_LEASE.0 / 1_000_000));
                let until = now.saturating_add(lease);
                if self.change(now, flow, |order| (order.hold_until, order.released) = (Some(until), false)) {
                    self.counts.holds += 1;
                    self.leases.insert((until, flow));
                }
            }
            Told::Release { flow } => self.release(now, flow),
            Told::Pace { flow, rate_bps } => {
                if self.change(now, flow, |order| (order.pace_bps, order.released) = (rate_bps, false)) {
                    self.counts.paces += 1;
                }
            }
            Told::Refused { why } => self.refusal = Some(why),
            Told::Other => {}
        }
    }

    // --- time

    /// Time has passed: ends leases, and drops the paces of a controller that is lost for too long.
    pub fn handle_time(&mut self, now: Nanos) {
        while let Some(&(until, flow)) = self.leases.first().filter(|(until, _)| *until <= now) {
            self.leases.pop_first();
            // It may have been renewed or released since.
            if self.orders.get(&flow).is_some_and(|kept| kept.order.hold_until == Some(until)) {
                self.counts.leases_ended += 1;
                self.release(now, flow);
            }
        }
        if self.paces_end().is_some_and(|end| end <= now) {
            let paced: Vec<_> = self.orders.iter().filter(|(_, kept)| kept.order.pace_bps.is_some()).collect();
            let paced: Vec<_> = paced.into_iter().map(|(&flow, _)| flow).collect();
            for flow in paced {
                self.change(now, flow, |order| (order.pace_bps, order.released) = (None, false));
            }
            self.lost_since = None;
        }
        let strangers = self
            .orders
            .iter()
            .filter(|(flow, kept)| !self.flows.contains_key(flow) && now.saturating_sub(kept.since) > STRANGER_KEPT);
        let strangers: Vec<_> = strangers.map(|(&flow, _)| flow).collect();
        strangers.into_iter().for_each(|flow| self.forget_order(flow));
    }

    /// When `handle_time` is due next.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let lease = self.leases.first().map(|&(until, _)| until);
        [lease, self.paces_end()].into_iter().flatten().min()
    }

    /// Time until which paces count, as far as the controller is concerned.
    pub fn paces_end(&self) -> Option<Nanos> {
        self.lost_since.map(|since| since.saturating_add(PACES_KEPT))
    }

    // --- what comes out

    /// The next line to the controller.
    pub fn poll_line(&mut self) -> Option<String> {
        self.lines.pop_front()
    }

    /// The next order for the kernel.
    pub fn poll_order(&mut self) -> Option<(FiveTuple, Order)> {
        self.changed.pop_front()
    }

    /// The next line to a program.
    pub fn poll_program(&mut self) -> Option<(ProgramId, String)> {
        self.to_programs.pop_front()
    }

    /// Whether any flow is held.
    pub fn has_holds(&self) -> bool {
        self.orders.values().any(|kept| kept.order.hold_until.is_some())
    }

    fn announce_flow(&mut self, flow: FiveTuple) {
        let Some(wants) = self.wants else { return };
        let wanted = |known: &Flow| wants.announce || wants.report && known.is_long;
        let Some(known) = self.flows.get_mut(&flow).filter(|known| !known.announced && wanted(known)) else { return };
        known.announced = true;
        self.counts.announced += 1;
        self.lines.push_back(words::announce(flow, known.size_bytes));
    }

    fn release(&mut self, now: Nanos, flow: FiveTuple) {
        let held = |kept: &Kept| kept.order.hold_until.is_some();
        if self.orders.get(&flow).is_some_and(held) {
            self.change(now, flow, |order| (order.hold_until, order.released) = (None, true));
        }
    }

    /// Changes an order, and says whether there is room for it.
    fn change(&mut self, now: Nanos, flow: FiveTuple, edit: impl FnOnce(&mut Order)) -> bool {
        let is_new = !self.orders.contains_key(&flow);
        if is_new && (self.orders.len() >= self.settings.max_flows || !self.settings.hosts.contains(&flow.src)) {
            self.counts.beyond_limit += 1;
            return false;
        }
        let kept = self.orders.entry(flow).or_insert(Kept { order: Order::default(), since: now });
        edit(&mut kept.order);
        self.changed.push_back((flow, kept.order));
        true
    }

    fn forget_order(&mut self, flow: FiveTuple) {
        if let Some(kept) = self.orders.remove(&flow) {
            if let Some(until) = kept.order.hold_until {
                self.leases.remove(&(until, flow));
            }
            self.changed.push_back((flow, Order { released: kept.order.hold_until.is_some(), ..Order::default() }));
        }
    }
}

#[cfg(test)]
#[path = "agent_tests.rs"]
mod tests;
