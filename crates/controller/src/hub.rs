//! The hub connects sessions with the controller. It has no sockets: bytes come in and go out in buffers, so that tests
//! and benchmarks can drive it as sockets do.

use crate::answers::Answers;
use crate::assigning::Assigning;
use crate::clock::Clock;
use crate::config::{Limits, Sessions};
use crate::connection::{Connection, ConnectionId, Stage};
use crate::connections::Connections;
use crate::counts::HubCounts;
use crate::gauges::Gauges;
use crate::hosts::{Hosts, Wants};
use crate::live_discovery::{HubAction, LiveDiscovery};
use crate::log_limiter::{subject, LogLimiter};
use crate::newcomers::Newcomers;
use crate::places::Places;
use crate::reading::Foreign;
use crate::record::Recorder;
use crate::refused::RefusalCounts;
use crate::tls::Binding;
use crate::upkeep::Warned;
use pathloom_control::{Controller, Input};
use pathloom_discovery::{PortLimiter, Rate};
use pathloom_model::{Fabric, Nanos, NodeId};
use pathloom_openflow::{frame, Hello, Message, PacketIn};
use pathloom_scheme::{Detection, State, View};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::Notify;

/// How long the messages of one connection are handled before other connections have their turn.
const TURN: Nanos = Nanos::from_millis(4);
/// Transaction identifier of the hello. Mininet reads the first bytes of a session as UTF-8 when it checks whether a
/// controller listens, so no byte of it may be above 127.
const HELLO_XID: u32 = 1;
/// Maximum number of sessions that count as few, see [`Hub::has_few_sessions`].
const FEW_SESSIONS: usize = 4;

/// The program that answers the switches.
#[allow(clippy::large_enum_variant)] // There is only one value.
pub enum Responder {
    /// The controller of a fabric.
    Fabric(Controller),
    /// A program without a fabric that answers packet by packet.
    Packets(Box<dyn Answers>),
    /// Nothing: the switches are only surveyed.
    SurveyOnly,
}

/// A job of a scheme's solver.
pub(crate) struct Job {
    pub ticket: u64,
    pub solver: fn(&View, &State) -> State,
    pub view: View,
    pub input: State,
}

/// The result of handling received bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Number of bytes handled. The caller passes the remaining bytes again. Unless `late` is set, they are the
    /// beginning of an incomplete message.
    pub used: usize,
    /// Whether the remaining bytes may have whole messages, which wait because other connections have their turn.
    pub late: bool,
}

/// All connections, and the program that answers them.
pub struct Hub {
    pub(crate) clock: Clock,
    pub(crate) responder: Responder,
    pub(crate) hosts: Hosts,
    pub(crate) assigning: Assigning,
    pub(crate) recorder: Option<Recorder>,
    pub(crate) fabric: Option<Arc<Fabric>>,
    datapaths: BTreeMap<u64, NodeId>,
    pub(crate) sessions: Sessions,
    limits: Limits,
    pub(crate) limiter: Option<PortLimiter>,
    pub(crate) discovery: Option<LiveDiscovery>,
    pub(crate) places: Places,
    /// Connections that have not yet sent their datapath identifier.
    pub(crate) newcomers: Newcomers<ConnectionId>,
    pub(crate) connections: Connections,
    pub(crate) by_node: Vec<Option<ConnectionId>>,
    pub(crate) by_dpid: BTreeMap<u64, ConnectionId>,
    pub(crate) queued: VecDeque<Input>,
    pub(crate) jobs: Vec<Job>,
    /// Wakes the caller of [`Hub::timeout`] if it must be called earlier than it last returned.
    pub(crate) timer: Rc<Notify>,
    /// Wakes the caller of [`Hub::settle`] when something was received.
    pub(crate) inputs_handled: Rc<Notify>,
    armed: Nanos,
    /// Measurements of the hub.
    pub(crate) gauges: Gauges,
    /// Frames of hosts that switches refused.
    pub(crate) refused: RefusalCounts,
    /// Limits log lines about offenders.
    pub(crate) log_limiter: LogLimiter,
    /// Warnings given so far.
    pub(crate) warned: Warned,
    /// What to do with rules that are not the controller's.
    pub(crate) foreign: Foreign,
    /// Which certificates switches must have.
    pub(crate) binding: Binding,
    /// Counters.
    pub counts: HubCounts,
}

impl Hub {
    /// Creates a hub without connections. `datapaths` has the switches of the fabric by datapath identifier.
    pub fn new(
        responder: Responder,
        fabric: Option<Arc<Fabric>>,
        datapaths: BTreeMap<u64, NodeId>,
        (sessions, limits): (Sessions, Limits),
    ) -> Hub {
        let nodes = fabric.as_ref().map_or(0, |fabric| fabric.nodes().len());
        let per_s = limits.packet_ins_per_port;
        Hub {
            clock: Clock::start(),
            responder,
            hosts: Hosts::new(fabric.clone()),
            assigning: Assigning::default(),
            recorder: None,
            fabric,
            datapaths,
            sessions,
            limiter: (per_s > 0).then(|| PortLimiter::new(Rate { per_s, burst: per_s })),
            places: Places::new(limits.connections),
            newcomers: Newcomers::new(limits.connections),
            limits,
            discovery: None,
            connections: Connections::default(),
            by_node: vec![None; nodes],
            by_dpid: BTreeMap::new(),
            queued: VecDeque::new(),
            jobs: Vec::new(),
            timer: Rc::default(),
            inputs_handled: Rc::default(),
            armed: Nanos::MAX,
            gauges: Gauges::default(),
            refused: RefusalCounts::default(),
            log_limiter: LogLimiter::default(),
            warned: Warned::default(),
            foreign: Foreign::default(),
            binding: Binding::default(),
            counts: HubCounts::default(),
        }
    }

    /// The controller, if a fabric is controlled.
    pub fn controller(&mut self) -> Option<&mut Controller> {
        match &mut self.responder {
            Responder::Fabric(controller) => Some(controller),
            Responder::Packets(_) | Responder::SurveyOnly => None,
        }
    }

    /// Unused cabling that differs from the configuration, as text.
    pub fn cabling_differences(&self) -> impl Iterator<Item = &str> {
        self.discovery.iter().flat_map(LiveDiscovery::differences)
    }

    /// Number of switches with a session.
    pub fn session_count(&self) -> usize {
        self.connections.iter().filter(|connection| matches!(connection.stage, Stage::Up { .. })).count()
    }

    /// All connections.
    pub(crate) fn all_connections(&self) -> impl Iterator<Item = &Connection> {
        self.connections.iter()
    }

    /// Number of rules of a switch that are not the controller's, when it was last read.
    pub(crate) fn foreign_at(&self, switch: NodeId) -> u64 {
        self.session_of(switch).map_or(0, |connection| connection.foreign_rules.count)
    }

    /// Address of the session of a switch.
    pub(crate) fn peer_of(&self, switch: NodeId) -> Option<String> {
        Some(self.session_of(switch)?.peer.clone())
    }

    /// The connection of a switch with a session.
    fn session_of(&self, switch: NodeId) -> Option<&Connection> {
        self.connections.get(self.by_node.get(switch.index()).copied().flatten()?)
    }

    /// Accepts a new connection; `None` if there are too many sessions, in total or from its address. A `peer` that
    /// is not an address and port is connected by a Unix socket.
    pub fn connect(&mut self, peer: String) -> Option<ConnectionId> {
        let place = self.place_for(&peer)?;
        self.counts.connections += 1;
        let now = self.clock.now();
        let taken = self.connections.insert(self.counts.connections, |id| {
            let mut connection = Connection::new(id, place, peer, now);
            connection.answer(&Message::Hello(Hello::OPENFLOW_1_3), HELLO_XID);
            connection
        });
        let (id, address) = (taken.id, taken.place.peer());
        self.note_newcomer(id, address);
        self.mark(id);
        self.wake();
        Some(id)
    }

    /// Removes a connection that is closed or must close at once.
    pub fn disconnect(&mut self, id: ConnectionId, why: &str) {
        let Some(connection) = self.connections.remove(id) else { return };
        // Its tasks may wait for a peer that is gone.
        connection.drained.notify_waiters();
        if let Responder::Packets(answers) = &mut self.responder {
            answers.forget(id);
        }
        let stood = matches!(connection.stage, Stage::Up { .. }) || self.by_dpid.values().any(|&other| other == id);
        if stood {
            self.by_dpid.retain(|_, other| *other != id);
            tracing::info!(peer = %connection.peer, why, "a session ended");
        }
        if let Some(node) = connection.node.filter(|node| self.by_node[node.index()] == Some(id)) {
            self.by_node[node.index()] = None;
            self.queued.push_back(Input::SwitchDown { switch: node });
        }
        if let (Some(dpid), Some(discovery)) = (connection.discovered_dpid, &mut self.discovery) {
            discovery.switch_down(self.clock.now(), dpid);
        }
        self.settle();
    }

    /// Handles messages at the start of `bytes`, for a few milliseconds at most. The resulting messages are sent by the
    /// next [`Hub::settle`], for which [`Hub::inputs_handled`] is woken. Until then, other connections may be handled
    /// too.
    pub fn received(&mut self, id: ConnectionId, bytes: &[u8]) -> Received {
        let start = self.clock.now();
        let (mut now, mut at, mut late) = (start, 0, false);
        while let Some(connection) = self.connection_mut(id) {
            if connection.is_closed() {
                (at, late) = (bytes.len(), false);
                break;
            }
            if late {
                break;
            }
            connection.last_heard = now;
            match frame(&bytes[at..]) {
                Ok(Some((header, body, length))) => {
                    self.counts.messages += 1;
                    self.gauges.message(header.kind);
                    match Message::parse(header, body) {
                        Ok(message) => self.message(now, id, header.xid, message),
                        Err(problem) => self.misread(id, header.kind, header.xid, &problem.to_string()),
                    }
                    at += length;
                }
                Ok(None) => break,
                Err(problem) => self.offence(id, &problem.to_string()),
            }
            // A scheme may need much time for a flow.
            if matches!(self.responder, Responder::Fabric(_)) {
                now = self.clock.now();
                late = now.saturating_sub(start) > TURN;
            }
        }
        match self.responder {
            Responder::Fabric(_) => self.inputs_handled.notify_one(),
            Responder::Packets(_) => self.wake(),
            Responder::SurveyOnly => self.settle(),
        }
        Received { used: at, late }
    }

    /// Answers a packet of a switch that belongs to no fabric.
    #[inline]
    pub(crate) fn answer_packet(&mut self, id: ConnectionId, xid: u32, packet: &PacketIn<'_>) {
        let Hub { responder: Responder::Packets(answers), connections, .. } = self else { return };
        let Some(connection) = connections.get_mut(id) else { return };
        if let Err(problem) = answers.packet_in(id, packet, xid, &mut connection.out) {
            tracing::error!(peer = %connection.peer, %problem, "an answer was not sent");
        }
        self.mark(id);
    }

    /// Whether there are few sessions. Then reads are short, so that each session soon gets its answers, and the
    /// controller and the switches do not wait for each other in turn.
    pub(crate) fn has_few_sessions(&self) -> bool {
        self.by_dpid.len() <= FEW_SESSIONS
    }

    /// Passes the controller an input that does not come from a switch.
    pub fn queue_and_settle(&mut self, input: Input) {
        self.queued.push_back(input);
        self.settle();
    }

    /// Handles time-outs of the controller that are due. Returns when to call this next.
    pub fn timeout(&mut self) -> Option<Nanos> {
        let now = self.clock.now();
        if self.controller().and_then(|controller| controller.poll_timeout()).is_some_and(|at| at <= now) {
            self.queued.push_back(Input::Timeout);
        }
        if let Some(discovery) = &mut self.discovery {
            discovery.timeout(now);
        }
        self.settle();
        let next = self.next_timeout();
        self.armed = next.unwrap_or(Nanos::MAX);
        next
    }

    pub(crate) fn next_timeout(&mut self) -> Option<Nanos> {
        let discovery = self.discovery.as_ref().and_then(LiveDiscovery::poll_timeout);
        let controller = self.controller().and_then(|controller| controller.poll_timeout());
        [discovery, controller].into_iter().flatten().min()
    }

    /// Checks learnt addresses for which no host has sent ARP.
    pub(crate) fn look_after_places(&mut self) {
        let placed: Vec<_> = self.controller().map(|controller| controller.placed().collect()).unwrap_or_default();
        if let Some(discovery) = &mut self.discovery {
            discovery.look_after_places(&placed);
        }
        self.settle();
    }

    /// Lets the controller handle its inputs, and wakes the writers of sessions.
    #[inline(never)] // So that profilers find it.
    pub(crate) fn settle(&mut self) {
        let now = self.clock.now();
        loop {
            self.drain(now);
            while let Some(action) = self.discovery.as_mut().and_then(LiveDiscovery::poll_action) {
                match action {
                    HubAction::Send { dpid, port, frame } => self.send_frame(dpid, port, &frame),
                    HubAction::Tell(input) => self.queued.push_back(input),
                    HubAction::Rewired(switch) => self.rewired(switch),
                }
            }
            if let Some(input) = self.queued.pop_front() {
                self.handle_input(now, input);
                continue;
            }
            match self.controller() {
                Some(controller) if !controller.is_settled() => controller.flush(),
                _ => break,
            }
        }
        self.send_visible_answers();
        self.report_scheme_needs();
        if self.next_timeout().is_some_and(|at| at < self.armed) {
            self.timer.notify_one();
        }
        self.wake();
    }

    /// Handles changed port numbers of a switch: forgets the counters of its ports.
    fn rewired(&mut self, switch: NodeId) {
        if let Some(fabric) = self.fabric.clone() {
            self.gauges.switch_changed(&fabric, switch);
        }
    }

    /// Carries out the controller's outputs.
    fn drain(&mut self, now: Nanos) {
        while let Some(output) = self.controller().and_then(Controller::poll_output) {
            if let Some(recorder) = &mut self.recorder {
                recorder.output(now, &output);
            }
            self.carry_out(now, output);
        }
    }

    /// Passes the controller an input, and writes its outputs into the buffers of sessions at once, while they are in
    /// the cache. The next [`Hub::settle`] adds barriers and sends everything.
    #[inline]
    pub(crate) fn handle_input(&mut self, now: Nanos, input: Input) {
        if self.recorder.is_some() {
            self.drain(now);
            self.recorder.iter_mut().for_each(|recorder| recorder.input(now, &input));
        }
        if let Responder::Fabric(controller) = &mut self.responder {
            controller.feed(now, input);
            self.drain(now);
        }
    }

    /// Tells host agents what the scheme in charge needs from them, if that has changed.
    pub(crate) fn report_scheme_needs(&mut self) {
        if let Responder::Fabric(controller) = &self.responder {
            let detection = controller.needs().detection;
            let announce = detection == Detection::Announced;
            self.hosts.set_wants(Wants { announce, report: matches!(detection, Detection::Any { .. }) });
        }
    }

    /// Wakes the writers of all sessions that have something to write.
    fn wake(&mut self) {
        let (most, mut lagging) = (self.limits.backlog_bytes, Vec::new());
        self.connections.wake_writers(|id, backlog| {
            if backlog > most {
                lagging.push((id, backlog));
            }
        });
        for (id, backlog) in lagging {
            self.offence(id, &format!("it does not read: {backlog} bytes wait for it"));
        }
    }

    /// Whether bytes of a connection still wait to be written.
    pub(crate) fn has_backlog(&self) -> bool {
        self.connections.iter().any(|connection| !connection.out.is_empty())
    }

    /// Takes the bytes to be written to a connection. They then count as written.
    pub(crate) fn take_output(&mut self, id: ConnectionId) -> Vec<u8> {
        let Some(connection) = self.connection_mut(id) else { return Vec::new() };
        connection.dirty = false;
        std::mem::take(&mut connection.out)
    }

    /// A connection, if it still exists. Its place may belong to another one by now.
    #[inline]
    pub(crate) fn connection_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.get_mut(id)
    }

    /// Notes that a connection has something to write.
    #[inline]
    pub(crate) fn mark(&mut self, id: ConnectionId) {
        self.connections.mark(id);
    }

    /// The switch of the fabric with a datapath identifier. Without a fabric, every identifier is accepted.
    pub(crate) fn place_of(&self, dpid: u64) -> Result<Option<NodeId>, ()> {
        match &self.fabric {
            None => Ok(None),
            Some(_) => self.datapaths.get(&dpid).copied().map(Some).ok_or(()),
        }
    }

    pub(crate) fn dpid_of(&self, node: NodeId) -> Option<u64> {
        self.datapaths.iter().find(|&(_, &other)| other == node).map(|(&dpid, _)| dpid)
    }

    /// The connection that has a datapath identifier.
    pub(crate) fn owner(&self, dpid: u64) -> Option<ConnectionId> {
        self.by_dpid.get(&dpid).copied()
    }

    pub(crate) fn set_owner(&mut self, dpid: u64, id: ConnectionId) {
        self.by_dpid.insert(dpid, id);
    }

    /// Closes a connection because of what its peer did.
    pub(crate) fn offence(&mut self, id: ConnectionId, what: &str) {
        self.counts.offences += 1;
        self.close(id, what);
    }

    /// Closes a connection when its remaining bytes have been written.
    pub(crate) fn close(&mut self, id: ConnectionId, why: &str) {
        let now = self.clock.now();
        let Some(connection) = self.connection_mut(id).filter(|connection| !connection.is_closed()) else { return };
        let switch = match connection.stage {
            Stage::Up { dpid } | Stage::Ports { dpid } | Stage::Duplicate { dpid, .. } => format!("{dpid:016x}"),
            _ => "unknown".into(),
        };
        let peer = connection.peer.clone();
        connection.stage = Stage::Closed;
        connection.since = now;
        connection.wake.notify_one();
        // Offences count by switch; those of a peer without a datapath identifier count by address.
        let subject =
            if switch == "unknown" { subject(&peer, why) } else { format!("switch {}", subject(&switch, why)) };
        if let Some(times) = self.log_limiter.count_to_log(now, &subject) {
            tracing::warn!(peer, switch, why, times, "a connection is closed");
        }
    }

    /// Logs an offence of a peer: one line, and then a count.
    pub(crate) fn complain(&mut self, peer: &str, why: &str, what: &str) {
        let now = self.clock.now();
        if let Some(times) = self.log_limiter.count_to_log(now, &subject(peer, why)) {
            tracing::warn!(peer, why, times, "{what}");
        }
    }
}
