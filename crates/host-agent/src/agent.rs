//! The agent as a state machine. Events of the host and lines of the controller are passed to `handle_*`. The functions
//! `poll_*` return lines to the controller, orders for the kernel, and lines to programs. Time is an argument.
//!
//! The kernel is the only source of flows, apart from programs that announce their own. Orders refer to five-tuples, so
//! a flow can be held before its first packet.

use crate::protocol::{AgentMessage, ControllerMessage, Wants, VERSION};
use pathloom_model::{Address, FiveTuple, Nanos};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;

/// How long paces stay after the controller is lost, so that a controller that restarts finds the flows unchanged. No
/// pace lasts for more than 15 s after the loss. A socket loses its pace with the next acknowledgement, which is at
/// most about 0.3 s later.
pub const PACES_KEPT: Nanos = Nanos::from_millis(14_500);
/// Longest lease of a hold. Longer leases of the controller are shortened to this.
pub const LONGEST_LEASE: Nanos = Nanos::from_secs(60);
/// How long an order for an unknown flow is kept.
const STRANGER_KEPT: Nanos = Nanos::from_secs(30);

/// A controller of the host's fabric, by its place in the list of addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ControllerId(pub usize);

/// A program on the host that announces its own flows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ProgramId(pub u64);

/// The part of the configuration that the state machine uses.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Addresses of the hosts that it represents.
    pub hosts: Vec<Ipv4Addr>,
    /// Token that the agent sends to the controller.
    pub token: Option<String>,
    /// Maximum number of flows, and of orders.
    pub max_flows: usize,
}

impl Settings {
    /// Whether an address is one of the represented hosts. These have IPv4 addresses.
    fn represents(&self, address: Address) -> bool {
        address.v4().is_some_and(|address| self.hosts.contains(&address))
    }
}

/// An order for the kernel about a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Order {
    /// Rate on the wire in bits per second. `None`: no limit.
    pub pace_bps: Option<u64>,
    /// Time until which the flow sends nothing.
    pub hold_until: Option<Nanos>,
    /// Whether the flow was held until now. The kernel must then make it send.
    pub released: bool,
}

/// Counters for the log, since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Number of announced flows.
    pub announced: u64,
    /// Number of accepted holds.
    pub holds: u64,
    /// Number of leases that ended without a release.
    pub leases_ended: u64,
    /// Number of accepted paces.
    pub paces: u64,
    /// Number of flows and orders that were refused, because of the maximum or because the host is not represented.
    pub beyond_limit: u64,
    /// Number of unreadable lines of the controller.
    pub useless_lines: u64,
    /// Number of orders and welcomes of deposed leaders, which were refused.
    pub stale: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    /// The program that announced the flow.
    program: Option<ProgramId>,
    /// Whether the kernel has reported the flow as long.
    is_long: bool,
    size_bytes: Option<u64>,
    /// Whether the flow was announced to the controller in this session.
    announced: bool,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    order: Order,
    since: Nanos,
    /// Time at which its pace ends, because the controller was lost and has not repeated it since.
    pace_until: Option<Nanos>,
}

/// A connection to a controller.
#[derive(Clone, Copy, Debug, Default)]
struct Session {
    /// The announcements that it wants. `None` before its welcome.
    wants: Option<Wants>,
    /// Whether it was told that a newer leader exists.
    is_told: bool,
}

/// The agent of one or several hosts. It has a connection to each controller of the fabric. It obeys the one that leads.
#[derive(Debug)]
pub struct Agent {
    settings: Settings,
    flows: BTreeMap<FiveTuple, Flow>,
    orders: BTreeMap<FiveTuple, Kept>,
    /// Ends of leases. An entry may be out of date.
    leases: BTreeSet<(Nanos, FiveTuple)>,
    sessions: BTreeMap<ControllerId, Session>,
    /// The controller that has welcomed the agent last, and that no newer leader has replaced.
    leader: Option<ControllerId>,
    /// The newest election of which the agent knows; 0: none.
    newest: u64,
    /// Ends of paces. An entry may be out of date.
    pace_ends: BTreeSet<(Nanos, FiveTuple)>,
    lines: VecDeque<(ControllerId, String)>,
    changed: VecDeque<(FiveTuple, Order)>,
    to_programs: VecDeque<(ProgramId, String)>,
    refusal: Option<String>,
    counts: Counts,
}

impl Agent {
    /// Creates an agent without a connection.
    pub fn new(settings: Settings) -> Agent {
        Agent {
            settings,
            flows: BTreeMap::new(),
            orders: BTreeMap::new(),
            leases: BTreeSet::new(),
            sessions: BTreeMap::new(),
            leader: None,
            newest: 0,
            pace_ends: BTreeSet::new(),
            lines: VecDeque::new(),
            changed: VecDeque::new(),
            to_programs: VecDeque::new(),
            refusal: None,
            counts: Counts::default(),
        }
    }

    /// Takes over an order that an earlier agent has left in the kernel. It is unknown whether that agent still had a
    /// session. So paces end at `paces_until`, as they would without this agent, unless the controller repeats them.
    pub fn adopt(&mut self, now: Nanos, flow: FiveTuple, order: Order, paces_until: Nanos) {
        if let Some(until) = order.hold_until {
            self.leases.insert((until, flow));
        }
        self.orders.insert(flow, Kept { order, since: now, pace_until: None });
        self.end_pace_at(flow, paces_until.min(now.saturating_add(PACES_KEPT)));
    }

    /// An earlier agent of the host knew of this election. Orders of earlier leaders stay refused.
    pub fn adopt_election(&mut self, newest: u64) {
        self.newest = self.newest.max(newest);
    }

    /// The newest election of which the agent knows; 0: none.
    pub fn newest_election(&self) -> u64 {
        self.newest
    }

    /// Returns the counters.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Number of known flows and of orders in force.
    pub fn sizes(&self) -> (usize, usize) {
        (self.flows.len(), self.orders.len())
    }

    /// Whether the controller that leads wants announcements of transfers. `None` without a session.
    pub fn session(&self) -> Option<bool> {
        self.wants().map(|wants| wants.announce)
    }

    /// The controller that leads, as far as the agent knows.
    pub fn leader(&self) -> Option<ControllerId> {
        self.leader
    }

    fn wants(&self) -> Option<Wants> {
        self.sessions.get(&self.leader?)?.wants
    }

    /// Returns and forgets the reason of the last refusal by the controller, or why its last line was unreadable.
    pub fn take_refusal(&mut self) -> Option<String> {
        self.refusal.take()
    }

    // --- events of the host

    /// Handles the kernel's report that a flow is long.
    pub fn handle_long(&mut self, flow: FiveTuple) {
        if !self.flows.contains_key(&flow) && self.flows.len() >= self.settings.max_flows {
            self.counts.beyond_limit += 1;
            return;
        }
        self.flows.entry(flow).or_default().is_long = true;
        self.announce_flow(flow);
    }

    /// Handles the end of a flow.
    pub fn handle_closed(&mut self, flow: FiveTuple) {
        // The kernel reports only the end of long connections. Programs report the end of their other transfers.
        let Some(known) = self.flows.remove(&flow) else { return self.forget_order(flow) };
        if known.announced {
            self.send_leader(&AgentMessage::Finish { flow });
        }
        self.forget_order(flow);
    }

    /// Handles the list of all long flows of the kernel, after events were lost. Long flows that are not in the list
    /// have ended.
    pub fn handle_all(&mut self, long: &BTreeSet<FiveTuple>) {
        let over = self.flows.iter().filter(|(flow, known)| known.is_long && !long.contains(flow));
        let over: Vec<_> = over.map(|(&flow, _)| flow).collect();
        over.into_iter().for_each(|flow| self.handle_closed(flow));
        long.iter().for_each(|&flow| self.handle_long(flow));
    }

    /// Handles the announcement of a transfer by a program. The error is sent to the program.
    pub fn handle_announce(
        &mut self,
        program: ProgramId,
        flow: FiveTuple,
        size_bytes: Option<u64>,
    ) -> Result<(), String> {
        if !self.settings.represents(flow.src()) {
            return Err(format!("{} is not an address of this host", flow.src()));
        }
        if !self.flows.contains_key(&flow) && self.flows.len() >= self.settings.max_flows {
            self.counts.beyond_limit += 1;
            return Err(format!("the maximum of {} flows is reached", self.settings.max_flows));
        }
        let known = self.flows.entry(flow).or_default();
        (known.program, known.size_bytes) = (Some(program), size_bytes);
        self.announce_flow(flow);
        Ok(())
    }

    /// Handles the message of a program that its transfer has ended.
    pub fn handle_finish(&mut self, program: ProgramId, flow: FiveTuple) {
        if self.flows.get(&flow).is_some_and(|known| known.program == Some(program)) {
            self.handle_closed(flow);
        }
    }

    /// Handles the end of a program. Its flows end, except those that the kernel has reported as long.
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

    // --- events of the controller

    /// Handles a new connection to a controller: sends the hello.
    pub fn handle_connected(&mut self, controller: ControllerId) {
        self.lines.retain(|&(to, _)| to != controller);
        self.sessions.insert(controller, Session::default());
        let Settings { hosts, token, .. } = self.settings.clone();
        self.send(controller, &AgentMessage::Hello { version: VERSION, hosts, token });
    }

    /// Handles the loss of the connection to a controller. If it led: holds end with their leases, paces after
    /// [`PACES_KEPT`] unless a controller repeats them. So no pace stays that it has ended meanwhile, or does not know.
    pub fn handle_lost(&mut self, now: Nanos, controller: ControllerId) {
        self.lines.retain(|&(to, _)| to != controller);
        self.sessions.remove(&controller);
        if self.leader == Some(controller) {
            self.leader_lost(now);
        }
    }

    /// There is no leader, or another one, which does not know the flows.
    fn leader_lost(&mut self, now: Nanos) {
        self.leader = None;
        let until = now.saturating_add(PACES_KEPT);
        let flows: Vec<FiveTuple> = self.orders.keys().copied().collect();
        flows.into_iter().for_each(|flow| self.end_pace_at(flow, until));
        self.flows.values_mut().for_each(|flow| flow.announced = false);
    }

    /// Whether a message may take effect: no newer leader has sent one before. A message without a number is one of a
    /// controller that is alone, or of an earlier version. It counts if no other controller has welcomed the agent since.
    fn permits(&mut self, controller: ControllerId, message: &ControllerMessage<'_>) -> bool {
        let is_welcome = matches!(message, ControllerMessage::Welcome { .. });
        let is_permitted = match message.election() {
            Some(election) => election >= self.newest,
            None => is_welcome || self.leader.is_none_or(|leader| leader == controller),
        };
        if is_permitted {
            self.newest = self.newest.max(message.election().unwrap_or_default());
            return true;
        }
        self.counts.stale += 1;
        let newest = self.newest;
        if let Some(session) = self.sessions.get_mut(&controller).filter(|session| !session.is_told) {
            (session.is_told, session.wants) = (true, None);
            self.send(controller, &AgentMessage::Stale { newest });
        }
        false
    }

    /// A controller leads, by its welcome.
    fn welcomed(&mut self, now: Nanos, controller: ControllerId, wants: Wants) {
        if self.leader.is_some_and(|leader| leader != controller) {
            self.leader_lost(now);
        }
        self.leader = Some(controller);
        self.sessions.insert(controller, Session { wants: Some(wants), is_told: false });
        self.announce_all();
    }

    fn announce_all(&mut self) {
        let flows: Vec<_> = self.flows.keys().copied().collect();
        flows.into_iter().for_each(|flow| self.announce_flow(flow));
    }

    /// Handles a line of a controller.
    pub fn handle_line(&mut self, now: Nanos, controller: ControllerId, line: &[u8]) {
        let message = match ControllerMessage::read(line) {
            Ok(Some(message)) => message,
            Ok(None) => return,
            Err(why) => {
                self.counts.useless_lines += 1;
                self.refusal = Some(why);
                return;
            }
        };
        let is_order = message.flow().is_some() || matches!(message, ControllerMessage::Welcome { .. });
        if is_order && !self.permits(controller, &message) {
            return;
        }
        if let Some(program) = message.flow().and_then(|flow| self.flows.get(&flow)?.program) {
            self.to_programs.push_back((program, String::from_utf8_lossy(line).trim_end().to_owned()));
        }
        match message {
            ControllerMessage::Welcome { wants, .. } => self.welcomed(now, controller, wants),
            ControllerMessage::Wants(wants) => {
                let is_told = self.sessions.get(&controller).is_some_and(|session| session.is_told);
                if !is_told && self.leader.is_none_or(|leader| leader == controller) {
                    self.welcomed(now, controller, wants);
                }
            }
            ControllerMessage::Hold { flow, lease_ms, .. } => {
                let lease = Nanos::from_millis(lease_ms.min(LONGEST_LEASE.0 / 1_000_000));
                let until = now.saturating_add(lease);
                if self.change(now, flow, |order| (order.hold_until, order.released) = (Some(until), false)) {
                    self.counts.holds += 1;
                    self.leases.insert((until, flow));
                }
            }
            ControllerMessage::Release { flow, .. } => self.release(now, flow),
            ControllerMessage::Pace { flow, rate_bps, .. } => {
                if self.change(now, flow, |order| (order.pace_bps, order.released) = (rate_bps, false)) {
                    self.counts.paces += 1;
                    self.orders.entry(flow).and_modify(|kept| kept.pace_until = None);
                }
            }
            ControllerMessage::Refused { why, .. } => self.refusal = Some(why.into_owned()),
            ControllerMessage::Offer { .. } | ControllerMessage::Claimed { .. } => {}
            ControllerMessage::PathsReleased { .. } | ControllerMessage::Standby { .. } => {}
        }
    }

    // --- time

    /// Ends expired leases, paces that the controller has not repeated since it was lost, and old orders for unknown
    /// flows.
    pub fn handle_time(&mut self, now: Nanos) {
        while let Some(&(until, flow)) = self.leases.first().filter(|(until, _)| *until <= now) {
            self.leases.pop_first();
            // The hold may have been renewed or released.
            if self.orders.get(&flow).is_some_and(|kept| kept.order.hold_until == Some(until)) {
                self.counts.leases_ended += 1;
                self.release(now, flow);
            }
        }
        while let Some(&(until, flow)) = self.pace_ends.first().filter(|(until, _)| *until <= now) {
            self.pace_ends.pop_first();
            let Some(kept) = self.orders.get_mut(&flow).filter(|kept| kept.pace_until == Some(until)) else { continue };
            kept.pace_until = None;
            self.change(now, flow, |order| (order.pace_bps, order.released) = (None, false));
        }
        let strangers = self
            .orders
            .iter()
            .filter(|(flow, kept)| !self.flows.contains_key(flow) && now.saturating_sub(kept.since) > STRANGER_KEPT);
        let strangers: Vec<_> = strangers.map(|(&flow, _)| flow).collect();
        strangers.into_iter().for_each(|flow| self.forget_order(flow));
    }

    /// Time at which `handle_time` must be called next.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let lease = self.leases.first().map(|&(until, _)| until);
        let pace = self.pace_ends.first().map(|&(until, _)| until);
        [lease, pace].into_iter().flatten().min()
    }

    /// Time at which the last pace ends because the controller is lost. `None` if it is not lost, or if there is no pace.
    pub fn paces_end(&self) -> Option<Nanos> {
        let last = self.pace_ends.last().map(|&(until, _)| until);
        last.filter(|_| self.wants().is_none())
    }

    // --- outputs

    /// Returns the next line, and the controller that it is for.
    pub fn poll_line(&mut self) -> Option<(ControllerId, String)> {
        self.lines.pop_front()
    }

    /// Returns the next order for the kernel.
    pub fn poll_order(&mut self) -> Option<(FiveTuple, Order)> {
        self.changed.pop_front()
    }

    /// Returns the next line to a program.
    pub fn poll_program(&mut self) -> Option<(ProgramId, String)> {
        self.to_programs.pop_front()
    }

    /// Whether any flow is held.
    pub fn has_holds(&self) -> bool {
        self.orders.values().any(|kept| kept.order.hold_until.is_some())
    }

    fn send(&mut self, controller: ControllerId, message: &AgentMessage) {
        self.lines.push_back((controller, message.line()));
    }

    fn send_leader(&mut self, message: &AgentMessage) {
        if let Some(leader) = self.leader {
            self.send(leader, message);
        }
    }

    fn announce_flow(&mut self, flow: FiveTuple) {
        let Some(wants) = self.wants() else { return };
        let wanted = |known: &Flow| wants.announce || wants.report && known.is_long;
        let Some(known) = self.flows.get_mut(&flow).filter(|known| !known.announced && wanted(known)) else { return };
        known.announced = true;
        self.counts.announced += 1;
        let size_bytes = known.size_bytes;
        self.send_leader(&AgentMessage::Announce { flow, size_bytes });
    }

    /// Sets the end of a flow's pace, if it has one without an end.
    fn end_pace_at(&mut self, flow: FiveTuple, until: Nanos) {
        let endless = |kept: &&mut Kept| kept.order.pace_bps.is_some() && kept.pace_until.is_none();
        if let Some(kept) = self.orders.get_mut(&flow).filter(endless) {
            kept.pace_until = Some(until);
            self.pace_ends.insert((until, flow));
        }
    }

    fn release(&mut self, now: Nanos, flow: FiveTuple) {
        let held = |kept: &Kept| kept.order.hold_until.is_some();
        if self.orders.get(&flow).is_some_and(held) {
            self.change(now, flow, |order| (order.hold_until, order.released) = (None, true));
        }
    }

    /// Changes an order. Returns false if there are too many orders, or if the flow does not begin at a represented
    /// host.
    fn change(&mut self, now: Nanos, flow: FiveTuple, edit: impl FnOnce(&mut Order)) -> bool {
        let is_new = !self.orders.contains_key(&flow);
        if is_new && (self.orders.len() >= self.settings.max_flows || !self.settings.represents(flow.src())) {
            self.counts.beyond_limit += 1;
            return false;
        }
        let kept = self.orders.entry(flow).or_insert(Kept { order: Order::default(), since: now, pace_until: None });
        edit(&mut kept.order);
        self.changed.push_back((flow, kept.order));
        true
    }

    fn forget_order(&mut self, flow: FiveTuple) {
        if let Some(kept) = self.orders.remove(&flow) {
            if let Some(until) = kept.order.hold_until {
                self.leases.remove(&(until, flow));
            }
            if let Some(until) = kept.pace_until {
                self.pace_ends.remove(&(until, flow));
            }
            self.changed.push_back((flow, Order { released: kept.order.hold_until.is_some(), ..Order::default() }));
        }
    }
}

#[cfg(test)]
#[path = "agent_tests.rs"]
mod tests;
