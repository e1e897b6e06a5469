//! The hub connects sessions with the controller. It is a pure state machine: bytes come in and go out in buffers, and
//! every call that may change something takes the time. A driver does the rest:
//!
//! 1. [`Hub::connect`] accepts a session, [`Hub::received`] takes bytes of its peer, [`Hub::disconnect`] ends it.
//! 2. After any number of such calls, [`Hub::settle`] carries out their results ([`Hub::is_unsettled`]).
//! 3. [`Hub::handle_timeout`] must be called when [`Hub::poll_timeout`] is due. All periodic work is done there.
//! 4. After each call, the driver takes what the hub wants from it: sessions with bytes to write
//!    ([`Hub::poll_writable`], [`Hub::transmit`]), sessions that are over ([`Hub::poll_ended`]), jobs of the scheme
//!    ([`Hub::poll_job`], answered by [`Hub::solved`]), lines of the event log ([`Hub::poll_record`]), requests whose
//!    connections are now seen ([`Hub::poll_visible`]).
//!
//! The connections of host agents are those of [`hosts`]. Only their bytes go through [`Hub::agent_received`].

pub(crate) mod answers;
mod arp_routes;
pub(crate) mod assigning;
pub(crate) mod binding;
pub(crate) mod configured;
pub(crate) mod connection;
mod connections;
pub(crate) mod counts;
mod crowding;
mod dhcp;
pub(crate) mod gauges;
mod hash_steps;
pub(crate) mod hosts;
mod incoming;
pub(crate) mod job;
pub(crate) mod learnt;
pub(crate) mod live_discovery;
mod log_limiter;
pub(crate) mod newcomers;
mod numbers;
mod outgoing;
mod own_rules;
pub(crate) mod places;
mod punts;
mod reading;
mod refused;
mod roles;
pub(crate) mod scheme_process;
mod switches;
#[cfg(test)]
mod tests;
mod trees;
mod upkeep;
mod verify;

pub use self::answers::Responder;
use self::assigning::{Assigning, CONFIRMATION};
use self::binding::Binding;
pub use self::connection::Received;
use self::connection::{Connection, ConnectionId, Stage, Transmit};
use self::connections::Connections;
use self::counts::HubCounts;
use self::crowding::{Crowd, NoPlace};
use self::gauges::Gauges;
use self::hash_steps::HashSteps;
use self::hosts::Hosts;
use self::job::Job;
use self::live_discovery::{HubAction, LiveDiscovery};
use self::log_limiter::{subject, LogLimiter};
use self::places::Place;
use self::refused::RefusalCounts;
use self::roles::Roles;
use self::scheme_process::SchemeProcess;
use self::switches::Switches;
use self::upkeep::{Periodic, Warned};
use crate::config::{Foreign, Limits, Sessions};
use pathloom_control::{Controller, Input, Output, Record, SchemeChange};
use pathloom_discovery::wiring::PortMap;
use pathloom_discovery::{PortLimiter, Rate};
use pathloom_model::{Address, Fabric, Nanos, NodeId, PortNo};
use pathloom_openflow::{frame, Hello, Message};
use pathloom_scheme::Scheme;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

/// Transaction identifier of the hello. Mininet reads the first bytes of a session as UTF-8 when it checks whether a
/// controller listens, so no byte of it may be above 127.
const HELLO_XID: u32 = 1;
/// Maximum number of sessions that count as few, see [`Hub::has_few_sessions`].
const FEW_SESSIONS: usize = 4;

/// All connections, and the program that answers them.
pub struct Hub {
    /// Time of the latest call.
    pub(crate) now: Nanos,
    pub(crate) responder: Responder,
    /// The sessions of host agents.
    pub hosts: Hosts,
    pub(crate) assigning: Assigning,
    /// Lines of the event log that the driver has not taken yet; `None` without a log.
    pub(crate) records: Option<VecDeque<Record>>,
    pub(crate) fabric: Option<Arc<Fabric>>,
    pub(crate) hash_steps: HashSteps,
    pub(crate) switches: Switches,
    pub(crate) sessions: Sessions,
    /// What this controller is among several ones.
    pub(crate) roles: Roles,
    limits: Limits,
    pub(crate) limiter: Option<PortLimiter>,
    pub(crate) discovery: Option<LiveDiscovery>,
    crowd: Crowd,
    pub(crate) connections: Connections,
    pub(crate) queued: VecDeque<Input>,
    pub(crate) jobs: VecDeque<Job>,
    /// The process of a scheme that is no part of the controller.
    pub(crate) process: Option<SchemeProcess>,
    /// Sessions that are over, and of which the driver does not know yet.
    ended: VecDeque<ConnectionId>,
    /// Whether something was received since the last [`Hub::settle`].
    unsettled: bool,
    /// When periodic work is due.
    pub(crate) periodic: Periodic,
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
        let hash_steps = fabric.as_ref().map_or_else(HashSteps::default, |fabric| HashSteps::new(fabric));
        let per_s = limits.packet_ins_per_port;
        Hub {
            now: Nanos::ZERO,
            responder,
            hosts: Hosts::new(fabric.clone()),
            assigning: Assigning::default(),
            records: None,
            switches: Switches::new(fabric.as_ref().map(|_| datapaths), nodes),
            fabric,
            hash_steps,
            sessions,
            roles: Roles::default(),
            limiter: (per_s > 0).then(|| PortLimiter::new(Rate { per_s, burst: per_s })),
            crowd: Crowd::new(limits.connections),
            limits,
            discovery: None,
            connections: Connections::default(),
            queued: VecDeque::new(),
            jobs: VecDeque::new(),
            process: None,
            ended: VecDeque::new(),
            unsettled: false,
            periodic: Periodic::default(),
            gauges: Gauges::default(),
            refused: RefusalCounts::default(),
            log_limiter: LogLimiter::default(),
            warned: Warned::default(),
            foreign: Foreign::default(),
            binding: Binding::default(),
            counts: HubCounts::default(),
        }
    }

    /// The time of the latest call.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Notes the time of a call. Time never goes back. Returns it.
    pub(crate) fn advance(&mut self, now: Nanos) -> Nanos {
        self.now = self.now.max(now);
        self.hosts.set_time(self.now);
        self.now
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

    /// Number of ends of cables that are used at other ports than configured.
    pub fn adopted_ends(&self) -> usize {
        self.discovery.iter().flat_map(LiveDiscovery::adopted).count()
    }

    /// Number of switches with a session.
    pub fn session_count(&self) -> usize {
        self.connections.iter().filter(|connection| matches!(connection.stage, Stage::Up { .. })).count()
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
        self.connections.get(self.switches.session(switch)?)
    }

    /// Accepts a new connection; `None` if there are too many sessions, in total or from its address. A `peer` that
    /// is not an address and port is connected by a Unix socket. `certificate` has the names in the certificate of the
    /// peer, if it has shown one.
    pub fn connect(&mut self, now: Nanos, peer: String, certificate: Option<Vec<String>>) -> Option<ConnectionId> {
        let now = self.advance(now);
        let place = self.place_for(&peer)?;
        self.counts.connections += 1;
        let taken = self.connections.insert(self.counts.connections, |id| {
            let mut connection = Connection::new(id, place, peer, now);
            connection.certificate = certificate;
            connection.answer(&Message::Hello(Hello::OPENFLOW_1_3), HELLO_XID);
            connection
        });
        let (id, address) = (taken.id, taken.place.peer());
        self.crowd.note(address, id, &self.connections);
        self.mark(id);
        Some(id)
    }

    /// A place for a connection; `None` if sessions occupy all places that its address may have.
    fn place_for(&mut self, peer: &str) -> Option<Place> {
        let address = peer.parse::<SocketAddr>().ok().map(|address| address.ip());
        let NoPlace { why, oldest } = match self.crowd.take(address, &self.connections) {
            Ok(place) => return Some(place),
            Err(none) => none,
        };
        self.counts.crowded += 1;
        let Some(oldest) = oldest else {
            self.complain(peer, why, "too many connections; this one was closed");
            return None;
        };
        let gone = self.connection_mut(oldest).map(|connection| connection.peer.clone()).unwrap_or_default();
        self.complain(&gone, why, "too many connections; one without a session was closed to make room");
        self.disconnect(self.now, oldest, "it made room for another connection");
        self.crowd.take_freed(address)
    }

    /// Removes a connection that is closed or must close at once.
    pub fn disconnect(&mut self, now: Nanos, id: ConnectionId, why: &str) {
        let now = self.advance(now);
        let Some(connection) = self.connections.remove(id) else { return };
        self.ended.push_back(id);
        if let Responder::Packets(answers) = &mut self.responder {
            answers.forget(id);
        }
        if self.switches.disown(id) || matches!(connection.stage, Stage::Up { .. }) {
            tracing::info!(peer = %connection.peer, why, "a session ended");
        }
        if let Some(node) = connection.node.filter(|&node| self.switches.end_session(node, id)) {
            self.queued.push_back(Input::SwitchDown { switch: node });
        }
        if let (Some(dpid), Some(discovery)) = (connection.discovered_dpid, &mut self.discovery) {
            discovery.switch_down(now, dpid);
        }
        self.settle(now);
    }

    /// Handles messages at the start of `bytes`, at most `most` of them. The next [`Hub::settle`] sends the results.
    pub fn received(&mut self, now: Nanos, id: ConnectionId, bytes: &[u8], most: usize) -> Received {
        let now = self.advance(now);
        let (mut at, mut late) = (0, false);
        for handled in 0.. {
            let Some(connection) = self.connection_mut(id) else { break };
            if connection.is_closed() {
                at = bytes.len();
                break;
            }
            if handled == most {
                late = at < bytes.len();
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
        }
        match self.responder {
            Responder::Fabric(_) => self.unsettled = true,
            Responder::Packets(_) => self.close_lagging(),
            Responder::SurveyOnly => self.settle(now),
        }
        Received { used: at, late }
    }

    /// Whether there are few sessions. Then reads are short, so that each session soon gets its answers, and the
    /// controller and the switches do not wait for each other in turn.
    pub fn has_few_sessions(&self) -> bool {
        self.switches.owners() <= FEW_SESSIONS
    }

    /// Passes the controller an input that does not come from a switch.
    pub fn handle(&mut self, now: Nanos, input: Input) {
        self.queued.push_back(input);
        self.settle(now);
    }

    /// Passes the controller the result of a job, which took this long.
    pub fn solved(&mut self, now: Nanos, took: Nanos, result: Input) {
        self.gauges.solver.add(took);
        self.handle(now, result);
    }

    /// Puts another scheme in charge. Flows stay on their paths until it moves them.
    pub fn set_scheme(&mut self, now: Nanos, change: SchemeChange, scheme: Box<dyn Scheme>) {
        let now = self.advance(now);
        if self.controller().is_none() {
            return;
        }
        // Earlier inputs are handled first, also in the log.
        self.settle(now);
        let to = change.spec.clone();
        self.records.iter_mut().for_each(|records| records.push_back(Record::scheme(now, change.clone())));
        if let Some(controller) = self.controller() {
            controller.set_scheme(now, scheme);
        }
        let from = std::mem::replace(&mut self.gauges.scheme, (change.spec, now)).0;
        self.settle(now);
        tracing::info!(from, to, "another scheme is in charge");
    }

    /// Sends the controller a request for the API and takes its answer; `None` if no fabric is controlled.
    pub(crate) fn request(&mut self, now: Nanos, input: impl FnOnce(u64) -> Input) -> Option<Output> {
        self.controller()?;
        let input = input(self.assigning.begin());
        self.handle(now, input);
        self.assigning.take_answer()
    }

    /// Returns a number that [`Hub::poll_visible`] returns when the controller will see the connections that the host
    /// of this address opens, within [`CONFIRMATION`]. Before that, a connection could miss its path.
    pub fn when_visible(&mut self, now: Nanos, src: Address) -> u64 {
        let until = self.advance(now).saturating_add(CONFIRMATION);
        let call = self.assigning.call_waits(src, until);
        self.send_visible_answers();
        call
    }

    /// A number that [`Hub::when_visible`] returned, and whose time has come.
    pub fn poll_visible(&mut self) -> Option<u64> {
        self.assigning.poll_visible()
    }

    /// When to call [`Hub::handle_timeout`].
    pub fn poll_timeout(&self) -> Nanos {
        let discovery = self.discovery.as_ref().and_then(LiveDiscovery::poll_timeout);
        let controller = match &self.responder {
            Responder::Fabric(controller) => controller.poll_timeout(),
            Responder::Packets(_) | Responder::SurveyOnly => None,
        };
        let process = self.process.as_ref().and_then(SchemeProcess::poll_timeout);
        [discovery, controller, process].into_iter().flatten().fold(self.periodic.next(), Nanos::min)
    }

    /// Handles time-outs that are due, and does the periodic work.
    pub fn handle_timeout(&mut self, now: Nanos) {
        let now = self.advance(now);
        if self.controller().and_then(|controller| controller.poll_timeout()).is_some_and(|at| at <= now) {
            self.queued.push_back(Input::Timeout);
        }
        if let Some(discovery) = &mut self.discovery {
            discovery.timeout(now);
        }
        self.time_out_process(now);
        self.do_periodic_work(now);
        self.settle(now);
    }

    /// Whether [`Hub::settle`] has something to do. A driver calls it when it has passed on what it could read.
    pub fn is_unsettled(&self) -> bool {
        self.unsettled
    }

    /// Lets the controller handle its inputs, and carries out the results.
    #[inline(never)] // So that profilers find it.
    pub fn settle(&mut self, now: Nanos) {
        let now = self.advance(now);
        self.unsettled = false;
        loop {
            self.drain(now);
            while let Some(action) = self.discovery.as_mut().and_then(LiveDiscovery::poll_action) {
                match action {
                    HubAction::Send { dpid, port, frame } => self.send_frame(now, (dpid, port), &frame),
                    HubAction::Elsewhere { dpid, frame } => self.send_elsewhere(now, Some(dpid), &frame),
                    HubAction::Known(host) => {
                        own_rules::change_known_host(self, host.place.dpid.0, &arp_routes::known(host))
                    }
                    HubAction::Left(host) => {
                        own_rules::change_known_host(self, host.place.dpid.0, &arp_routes::forget(host))
                    }
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
        self.close_lagging();
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
            if let Some(records) = &mut self.records {
                records.push_back(Record::output(now, output.clone()));
            }
            self.carry_out(now, output);
        }
    }

    /// Passes the controller an input, and writes its outputs into the buffers of sessions at once, while they are in
    /// the cache. The next [`Hub::settle`] adds barriers and sends everything.
    #[inline]
    pub(crate) fn handle_input(&mut self, now: Nanos, input: Input) {
        if self.records.is_some() {
            self.drain(now);
            self.records.iter_mut().for_each(|records| records.push_back(Record::input(now, input.clone())));
        }
        if let Responder::Fabric(controller) = &mut self.responder {
            controller.feed(now, input);
            self.drain(now);
        }
    }

    /// Closes connections whose peers do not read what is sent to them.
    fn close_lagging(&mut self) {
        let most = self.limits.backlog_bytes;
        for (id, backlog) in self.connections.lagging(most) {
            self.offence(id, &format!("it does not read: {backlog} bytes wait for it"));
        }
    }

    /// A connection that has bytes to write or is to be shut down, see [`Hub::transmit`]. There is none until the hub is
    /// settled, so that the results of all received messages are written together.
    pub fn poll_writable(&mut self) -> Option<ConnectionId> {
        if self.unsettled {
            return None;
        }
        self.connections.poll_dirty()
    }

    /// A connection that is over. The driver must not use it any more, and drops its socket.
    pub fn poll_ended(&mut self) -> Option<ConnectionId> {
        self.ended.pop_front()
    }

    /// A job to be run.
    pub fn poll_job(&mut self) -> Option<Job> {
        self.jobs.pop_front()
    }

    /// Whether there are jobs to be run.
    pub fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// A line for the event log, if [`Hub::record`] was called.
    pub fn poll_record(&mut self) -> Option<Record> {
        self.records.as_mut()?.pop_front()
    }

    /// From now on, notes each input and output of the controller for the event log.
    pub fn record(&mut self) {
        self.records = Some(VecDeque::new());
    }

    /// Number of bytes that wait to be written to a connection; `None` if it is being closed or is over.
    pub fn backlog(&self, id: ConnectionId) -> Option<usize> {
        self.connections.get(id).filter(|connection| !connection.is_closed()).map(|connection| connection.out.len())
    }

    /// Whether bytes of a connection still wait to be written.
    pub fn has_backlog(&self) -> bool {
        self.connections.iter().any(|connection| !connection.out.is_empty())
    }

    /// Swaps the bytes to be written to a connection with `buffer`, which must be empty. They then count as written.
    pub fn transmit(&mut self, id: ConnectionId, buffer: &mut Vec<u8>) -> Transmit {
        let Some(connection) = self.connection_mut(id) else { return Transmit::Gone };
        std::mem::swap(&mut connection.out, buffer);
        if connection.is_closed() {
            Transmit::Closing
        } else {
            Transmit::Open
        }
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

    /// The fabric's port numbers for a switch; `None` if the switch has the same numbers.
    #[inline]
    pub(crate) fn port_map(&self, switch: NodeId) -> Option<&PortMap> {
        self.discovery.as_ref()?.port_map(switch)
    }

    /// The fabric's number of a port of a switch.
    pub(crate) fn fabric_port(&self, switch: NodeId, own: PortNo) -> PortNo {
        self.port_map(switch).map_or(own, |map| map.fabric(own))
    }

    /// Closes a connection because of what its peer did.
    pub(crate) fn offence(&mut self, id: ConnectionId, what: &str) {
        self.counts.offences += 1;
        self.close(id, what);
    }

    /// Closes a connection when its remaining bytes have been written.
    pub(crate) fn close(&mut self, id: ConnectionId, why: &str) {
        let now = self.now;
        let Some(connection) = self.connection_mut(id).filter(|connection| !connection.is_closed()) else { return };
        let switch = match connection.stage {
            Stage::Up { dpid } | Stage::Standby { dpid } | Stage::Ports { dpid } | Stage::Duplicate { dpid, .. } => {
                format!("{dpid:016x}")
            }
            _ => "unknown".into(),
        };
        let peer = connection.peer.clone();
        connection.stage = Stage::Closed;
        connection.since = now;
        self.mark(id);
        // Offences count by switch; those of a peer without a datapath identifier count by address.
        let subject =
            if switch == "unknown" { subject(&peer, why) } else { format!("switch {}", subject(&switch, why)) };
        if let Some(times) = self.log_limiter.count_to_log(now, &subject) {
            tracing::warn!(peer, switch, why, times, "a connection is closed");
        }
    }
}
