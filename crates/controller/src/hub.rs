//! Where sessions and the controller meet. No socket in here: bytes come in and go out by buffers, so that tests and
//! benchmarks can drive it as sockets do.

use crate::answers::Answers;
use crate::clock::Clock;
use crate::config::{Limits, Sessions};
use crate::connection::{Connection, ConnectionId, Stage};
use crate::connections::Connections;
use crate::counts::HubCounts;
use crate::gauges::Gauges;
use crate::hosts::Hosts;
use crate::newcomers::Newcomers;
use crate::places::Places;
use crate::quiet::{subject, Quiet};
use crate::reading::Foreign;
use crate::record::Recorder;
use crate::refused::Ledger;
use crate::scout::{Act, Scout};
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

/// How long the messages of one connection are worked off before it is the turn of others.
const TURN: Nanos = Nanos::from_millis(4);
/// Up to so many sessions are served one after the other, see [`Hub::has_few_sessions`].
const FEW_SESSIONS: usize = 4;

/// Who answers.
#[allow(clippy::large_enum_variant)] // There is one.
pub enum Brain {
    /// The controller of a fabric.
    Fabric(Controller),
    /// Something that knows no fabric and answers packet by packet.
    Packets(Box<dyn Answers>),
    /// Nobody: what is there is looked at.
    Nobody,
}

/// A job of a scheme's solver.
pub(crate) struct Job {
    pub ticket: u64,
    pub solver: fn(&View, &State) -> State,
    pub view: View,
    pub input: State,
}

/// What became of bytes that were received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Bytes worked off. The rest is to be given again: it is the beginning of a message, to come with what follows it,
    /// unless it is `late`.
    pub used: usize,
    /// Whether there are whole messages in the rest, but it is the turn of others.
    pub late: bool,
}

/// All connections, and who answers them.
pub struct Hub {
    pub(crate) clock: Clock,
    pub(crate) brain: Brain,
    pub(crate) hosts: Hosts,
    pub(crate) recorder: Option<Recorder>,
    pub(crate) fabric: Option<Arc<Fabric>>,
    datapaths: BTreeMap<u64, NodeId>,
    pub(crate) sessions: Sessions,
    limits: Limits,
    pub(crate) limiter: Option<PortLimiter>,
    pub(crate) scout: Option<Scout>,
    pub(crate) places: Places,
    /// Connections that have not said yet which switch they are.
    pub(crate) newcomers: Newcomers<ConnectionId>,
    pub(crate) connections: Connections,
    pub(crate) by_node: Vec<Option<ConnectionId>>,
    pub(crate) by_dpid: BTreeMap<u64, ConnectionId>,
    pub(crate) queued: VecDeque<Input>,
    pub(crate) jobs: Vec<Job>,
    /// Wakes who calls [`Hub::timeout`], when it is wanted earlier than was said last.
    pub(crate) timer: Rc<Notify>,
    /// Wakes who calls [`Hub::settle`], when something was received.
    pub(crate) fed: Rc<Notify>,
    armed: Nanos,
    /// What is measured.
    pub(crate) gauges: Gauges,
    /// What switches have refused of hosts.
    pub(crate) refused: Ledger,
    /// What the log has heard of offenders.
    pub(crate) quiet: Quiet,
    /// What was warned of.
    pub(crate) warned: Warned,
    /// What becomes of rules that are not the controller's.
    pub(crate) foreign: Foreign,
    /// Which certificates switches must have.
    pub(crate) binding: Binding,
    /// What has been counted.
    pub counts: HubCounts,
}

impl Hub {
    /// No connections yet. `datapaths` names the switches of the controller's fabric.
    pub fn new(
        brain: Brain,
        fabric: Option<Arc<Fabric>>,
        datapaths: BTreeMap<u64, NodeId>,
        (sessions, limits): (Sessions, Limits),
    ) -> Hub {
        let nodes = fabric.as_ref().map_or(0, |fabric| fabric.nodes().len());
        let per_s = limits.packet_ins_per_port;
        Hub {
            clock: Clock::start(),
            brain,
            hosts: Hosts::new(fabric.clone()),
            recorder: None,
            fabric,
            datapaths,
            sessions,
            limiter: (per_s > 0).then(|| PortLimiter::new(Rate { per_s, burst: per_s })),
            places: Places::new(limits.connections),
            newcomers: Newcomers::new(limits.connections),
            limits,
            scout: None,
            connections: Connections::default(),
            by_node: vec![None; nodes],
            by_dpid: BTreeMap::new(),
            queued: VecDeque::new(),
            jobs: Vec::new(),
            timer: Rc::default(),
            fed: Rc::default(),
            armed: Nanos::MAX,
            gauges: Gauges::default(),
            refused: Ledger::default(),
            quiet: Quiet::default(),
            warned: Warned::default(),
            foreign: Foreign::default(),
            binding: Binding::default(),
            counts: HubCounts::default(),
        }
    }

    /// The controller, if a fabric is controlled.
    pub fn controller(&mut self) -> Option<&mut Controller> {
        match &mut self.brain {
            Brain::Fabric(controller) => Some(controller),
            Brain::Packets(_) | Brain::Nobody => None,
        }
    }

    /// How the cabling found differs from the configured one where it is not used, in words.
    pub fn cabling_differences(&self) -> impl Iterator<Item = &str> {
        self.scout.iter().flat_map(Scout::differences)
    }

    /// Switches whose sessions stand.
    pub fn standing(&self) -> usize {
        self.connections.iter().filter(|connection| matches!(connection.stage, Stage::Up { .. })).count()
    }

    /// All connections.
    pub(crate) fn all_connections(&self) -> impl Iterator<Item = &Connection> {
        self.connections.iter()
    }

    /// Rules of a switch that are not the controller's, when it was last read.
    pub(crate) fn foreign_at(&self, switch: NodeId) -> u64 {
        self.session_of(switch).map_or(0, |connection| connection.strangers.count)
    }

    /// Address of the session of a switch.
    pub(crate) fn peer_of(&self, switch: NodeId) -> Option<String> {
        Some(self.session_of(switch)?.peer.clone())
    }

    /// The connection of a switch whose session stands.
    fn session_of(&self, switch: NodeId) -> Option<&Connection> {
        self.connections.get(self.by_node.get(switch.index()).copied().flatten()?)
    }

    /// Takes a new connection; `None` if there are too many whose sessions stand, in all or from its address. A `peer` that is named otherwise
    /// than by address and port came by a socket in the file system.
    pub fn connect(&mut self, peer: String) -> Option<ConnectionId> {
        let place = self.place_for(&peer)?;
        self.counts.connections += 1;
        let now = self.clock.now();
        let taken = self.connections.insert(self.counts.connections, |id| {
            let mut connection = Connection::new(id, place, peer, now);
            connection.say(&Message::Hello(Hello::OURS));
            connection
        });
        let (id, address) = (taken.id, taken.place.peer());
        self.note_newcomer(id, address);
        self.mark(id);
        self.wake();
        Some(id)
    }

    /// The connection is gone, or is to go at once.
    pub fn disconnect(&mut self, id: ConnectionId, why: &str) {
        let Some(connection) = self.connections.remove(id) else { return };
        // Its tasks may wait for a peer that is not there any more.
        connection.drained.notify_waiters();
        if let Brain::Packets(answers) = &mut self.brain {
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
        if let (Some(dpid), Some(scout)) = (connection.scouted, &mut self.scout) {
            scout.switch_down(self.clock.now(), dpid);
        }
        self.settle();
    }

    /// Works off messages at the start of `bytes`, for a few milliseconds at most. What it leads to is sent with the next
    /// settling, for which [`Hub::fed`] is woken: by then, others may have been heard too.
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
            // Schemes may take long for a flow.
            if matches!(self.brain, Brain::Fabric(_)) {
                now = self.clock.now();
                late = now.saturating_sub(start) > TURN;
            }
        }
        match self.brain {
            Brain::Fabric(_) => self.fed.notify_one(),
            Brain::Packets(_) => self.wake(),
            Brain::Nobody => self.settle(),
        }
        Received { used: at, late }
    }

    /// Answers a packet of a switch that belongs to no fabric.
    #[inline]
    pub(crate) fn answer_packet(&mut self, id: ConnectionId, xid: u32, packet: &PacketIn<'_>) {
        let Hub { brain: Brain::Packets(answers), connections, .. } = self else { return };
        let Some(connection) = connections.get_mut(id) else { return };
        if let Err(problem) = answers.packet_in(id, packet, xid, &mut connection.out) {
            tracing::error!(peer = %connection.peer, %problem, "an answer was not sent");
        }
        self.mark(id);
    }

    /// Whether so few sessions stand that each should hear soon of what it said: else both ends wait for each other in turn.
    pub(crate) fn has_few_sessions(&self) -> bool {
        self.by_dpid.len() <= FEW_SESSIONS
    }

    /// Something the controller is to be told by others than switches.
    pub fn tell(&mut self, input: Input) {
        self.queued.push_back(input);
        self.settle();
    }

    /// The time that the controller named may have come. Returns when this is wanted next.
    pub fn timeout(&mut self) -> Option<Nanos> {
        let now = self.clock.now();
        if self.controller().and_then(|controller| controller.poll_timeout()).is_some_and(|at| at <= now) {
            self.queued.push_back(Input::Timeout);
        }
        if let Some(scout) = &mut self.scout {
            scout.timeout(now);
        }
        self.settle();
        let next = self.next_timeout();
        self.armed = next.unwrap_or(Nanos::MAX);
        next
    }

    fn next_timeout(&mut self) -> Option<Nanos> {
        let scout = self.scout.as_ref().and_then(Scout::poll_timeout);
        let controller = self.controller().and_then(|controller| controller.poll_timeout());
        [scout, controller].into_iter().flatten().min()
    }

    /// Looks after addresses that were placed, and that nobody speaks for.
    pub(crate) fn look_after_places(&mut self) {
        let placed: Vec<_> = self.controller().map(|controller| controller.placed().collect()).unwrap_or_default();
        if let Some(scout) = &mut self.scout {
            scout.look_after_places(&placed);
        }
        self.settle();
    }

    /// Lets the controller work off what has happened, and wakes those who write.
    #[inline(never)] // So that profilers find it.
    pub(crate) fn settle(&mut self) {
        let now = self.clock.now();
        loop {
            self.drain(now);
            while let Some(act) = self.scout.as_mut().and_then(Scout::poll_act) {
                match act {
                    Act::Send { dpid, port, frame } => self.send_frame(dpid, port, &frame),
                    Act::Tell(input) => self.queued.push_back(input),
                    Act::Rewired(switch) => self.rewired(switch),
                }
            }
            if let Some(input) = self.queued.pop_front() {
                self.give(now, input);
                continue;
            }
            match self.controller() {
                Some(controller) if !controller.is_settled() => controller.flush(),
                _ => break,
            }
        }
        self.say_wants();
        if self.next_timeout().is_some_and(|at| at < self.armed) {
            self.timer.notify_one();
        }
        self.wake();
    }

    /// The ports of a switch have other numbers from now on.
    fn rewired(&mut self, switch: NodeId) {
        if let Some(fabric) = self.fabric.clone() {
            self.gauges.switch_changed(&fabric, switch);
        }
    }

    /// Carries out what the controller wants.
    fn drain(&mut self, now: Nanos) {
        while let Some(output) = self.controller().and_then(Controller::poll_output) {
            if let Some(recorder) = &mut self.recorder {
                recorder.output(now, &output);
            }
            self.carry_out(now, output);
        }
    }

    /// Tells the controller, and writes what it wants into the buffers of sessions at once, while it is at hand. Barriers come,
    /// and all is sent, with the next settling.
    #[inline]
    pub(crate) fn give(&mut self, now: Nanos, input: Input) {
        if self.recorder.is_some() {
            self.drain(now);
            self.recorder.iter_mut().for_each(|recorder| recorder.input(now, &input));
        }
        if let Brain::Fabric(controller) = &mut self.brain {
            controller.feed(now, input);
            self.drain(now);
        }
    }

    /// Tells agents of hosts what the scheme in charge wants of them, if that is not what the last one did.
    pub(crate) fn say_wants(&mut self) {
        if let Brain::Fabric(controller) = &self.brain {
            self.hosts.set_announce(controller.needs().detection == Detection::Announced);
        }
    }

    /// Wakes the writers of all sessions with something to write.
    fn wake(&mut self) {
        let (most, mut lagging) = (self.limits.backlog_bytes, Vec::new());
        self.connections.wake_writers(|id, backlog| {
            if backlog > most {
                lagging.push((id, backlog));
            }
        });
        for (id, backlog) in lagging {
            self.offence(id, &format!("{backlog} bytes wait for it to read"));
        }
    }

    /// Whether something is still to be written.
    pub(crate) fn has_backlog(&self) -> bool {
        self.connections.iter().any(|connection| !connection.out.is_empty())
    }

    /// What is to be written to a connection, which is then taken to be written.
    pub(crate) fn take_output(&mut self, id: ConnectionId) -> Vec<u8> {
        let Some(connection) = self.connection_mut(id) else { return Vec::new() };
        connection.dirty = false;
        std::mem::take(&mut connection.out)
    }

    /// A connection, if it is still there: its place may be another's by now.
    #[inline]
    pub(crate) fn connection_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.get_mut(id)
    }

    /// Notes that there is something to write.
    #[inline]
    pub(crate) fn mark(&mut self, id: ConnectionId) {
        self.connections.mark(id);
    }

    /// Which switch of the fabric a datapath identifier names; everything goes where there is no fabric.
    pub(crate) fn place_of(&self, dpid: u64) -> Result<Option<NodeId>, ()> {
        match &self.fabric {
            None => Ok(None),
            Some(_) => self.datapaths.get(&dpid).copied().map(Some).ok_or(()),
        }
    }

    pub(crate) fn dpid_of(&self, node: NodeId) -> Option<u64> {
        self.datapaths.iter().find(|&(_, &other)| other == node).map(|(&dpid, _)| dpid)
    }

    /// The session of a datapath identifier.
    pub(crate) fn holder(&self, dpid: u64) -> Option<ConnectionId> {
        self.by_dpid.get(&dpid).copied()
    }

    pub(crate) fn hold(&mut self, dpid: u64, id: ConnectionId) {
        self.by_dpid.insert(dpid, id);
    }

    /// Closes a connection because of what its peer did.
    pub(crate) fn offence(&mut self, id: ConnectionId, what: &str) {
        self.counts.offences += 1;
        self.close(id, what);
    }

    /// Closes a connection when what was left for it has been written.
    pub(crate) fn close(&mut self, id: ConnectionId, why: &str) {
        let now = self.clock.now();
        let Some(connection) = self.connection_mut(id).filter(|connection| !connection.is_closed()) else { return };
        let switch = match connection.stage {
            Stage::Up { dpid } | Stage::Ports { dpid } | Stage::Contending { dpid, .. } => format!("{dpid:016x}"),
            _ => "unknown".into(),
        };
        let peer = connection.peer.clone();
        connection.stage = Stage::Closed;
        connection.since = now;
        connection.wake.notify_one();
        // Switches are told apart; whoever did not say which one it is counts by its address.
        let subject =
            if switch == "unknown" { subject(&peer, why) } else { format!("switch {}", subject(&switch, why)) };
        if let Some(times) = self.quiet.admit(now, &subject) {
            tracing::warn!(peer, switch, why, times, "a connection is closed");
        }
    }

    /// Names an offender: one line, and then a count.
    pub(crate) fn complain(&mut self, peer: &str, why: &str, what: &str) {
        let now = self.clock.now();
        if let Some(times) = self.quiet.admit(now, &subject(peer, why)) {
            tracing::warn!(peer, why, times, "{what}");
        }
    }
}
