//! Agents on the hosts of a fabric. The controller sends them holds, releases and paces. They announce transfers, and
//! pass on applications' requests for paths.
//!
//! If several controllers hold the fabric, agents connect to all of them. A follower sends no orders, and a leader sends the
//! number of its election with each one. Agents refuse those of a deposed leader.
//!
//! An agent connects, names the hosts that it represents, and gets the messages for them; docs/controller.md has the
//! protocol. A session of an agent has the same shape as one of a switch: bytes come in and go out in buffers, and every
//! call takes the time.

mod agent;
mod announced;
mod leading;
mod offenders;

pub use agent::AgentId;
pub(crate) use pathloom_host_agent::protocol::LINE_BYTES;
pub use pathloom_host_agent::protocol::{ControllerMessage, Wants, VERSION};

pub(crate) use self::offenders::Offences;

use self::agent::Agent;
use self::announced::Announced;
use self::leading::Leading;
use self::offenders::Offenders;
use crate::config::{AgentTokens as Tokens, HostsConfig};
use crate::hub::assigning::owner_of;
use crate::hub::connection::Transmit;
use crate::hub::log_limiter::{subject, LogLimiter};
use crate::hub::newcomers::Newcomers;
use pathloom_control::{AssignError, Assigned, AssignmentId, ClaimKey, Input, Output, Owner, PathRequest, PathSearch};
use pathloom_model::{Address, Fabric, FiveTuple, Nanos, NodeId, Path};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// A message of an agent.
type AgentMessage = pathloom_host_agent::protocol::AgentMessage<PathSearch>;

/// Number of invalid lines before an agent is disconnected.
const PATIENCE: u32 = 16;
/// How long an agent that is being disconnected has to read the reason.
pub(crate) const CLOSE_TIMEOUT: Nanos = Nanos::from_secs(1);
/// An agent may exceed its rate by the lines of this time before it is read more slowly.
const BURST: Nanos = Nanos::from_secs(1);
/// How long an agent has for its first line.
const FIRST_LINE: Nanos = Nanos::from_secs(10);
/// Maximum number of unanswered requests for paths.
const MOST_REQUESTS: usize = 1024;

/// All agents.
pub struct Hosts {
    fabric: Option<Arc<Fabric>>,
    /// Tokens of agents that connect by TCP, if they need one.
    tokens: Option<Arc<Tokens>>,
    most: usize,
    /// Maximum number of flows that an agent may have announced, for each host.
    flows_per_host: usize,
    /// Lines per second from one agent, for each of its hosts.
    lines_per_host: u32,
    /// Agents with lines to be written, or to be shut down.
    writable: VecDeque<AgentId>,
    /// Agents whose connections are over, and of which the driver does not know yet.
    ended: VecDeque<AgentId>,
    /// Time until which the allowance of an address is used up by its lines. A new connection gets no new allowance.
    allowance_used_until: BTreeMap<Ipv4Addr, Nanos>,
    /// Offences of agents.
    offenders: Offenders,
    agents: BTreeMap<AgentId, Agent>,
    /// Agents that have not yet named their hosts.
    newcomers: Newcomers<AgentId>,
    by_host: BTreeMap<NodeId, AgentId>,
    /// Hosts with an agent, as last reported to the controller.
    known: BTreeMap<NodeId, AgentId>,
    /// Unanswered requests for paths, with the agent and its number of the request.
    requests: BTreeMap<u64, (AgentId, u64)>,
    last: u64,
    /// What the scheme in charge needs from agents.
    wants: Wants,
    /// Whether this controller may send orders, and by which election.
    leading: Leading,
    now: Nanos,
    /// Limits log lines about agents.
    log_limiter: LogLimiter,
    /// Number of agents disconnected or not accepted.
    refused: u64,
    /// Number of times that agents refused orders, because they obey a newer leader.
    stale: u64,
}

impl Hosts {
    pub(crate) fn new(fabric: Option<Arc<Fabric>>) -> Hosts {
        Hosts {
            fabric,
            tokens: None,
            most: HostsConfig::default().agents,
            flows_per_host: HostsConfig::default().flows_per_host,
            lines_per_host: HostsConfig::default().lines_per_host,
            writable: VecDeque::new(),
            ended: VecDeque::new(),
            allowance_used_until: BTreeMap::new(),
            offenders: Offenders::default(),
            agents: BTreeMap::new(),
            newcomers: Newcomers::new(HostsConfig::default().agents),
            by_host: BTreeMap::new(),
            known: BTreeMap::new(),
            requests: BTreeMap::new(),
            last: 0,
            wants: Wants::default(),
            leading: Leading::Alone,
            now: Nanos::ZERO,
            log_limiter: LogLimiter::default(),
            refused: 0,
            stale: 0,
        }
    }

    /// Number of agents disconnected or not accepted so far.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// Offences of agents, by agent.
    pub(crate) fn offences(&self) -> impl Iterator<Item = (&str, Offences)> {
        self.offenders.iter()
    }

    /// Number of hosts that have an agent.
    pub(crate) fn represented(&self) -> usize {
        self.by_host.len()
    }

    /// Logs an agent that is limited, unless there are too many equal lines.
    fn log_limited(&mut self, peer: &str, why: &str) {
        self.offenders.count(self.now, peer);
        if let Some(times) = self.log_limiter.count_to_log(self.now, &subject(peer, why)) {
            tracing::warn!(peer, why, times, "an agent is limited");
        }
    }

    /// Notes that an agent sends more than it may, and is read more slowly.
    fn log_slowed(&mut self, id: AgentId) {
        if let Some(peer) = self.agents.get(&id).map(|agent| agent.peer.clone()) {
            self.log_limited(&peer, "it sends more lines than it may, and is read more slowly");
        }
    }

    /// Time until which the allowance of an agent's address is used up.
    fn allowance_used_until(&self, id: AgentId) -> Nanos {
        let Some(agent) = self.agents.get(&id) else { return Nanos::ZERO };
        let of_address = agent.only.and_then(|only| self.allowance_used_until.get(&only)).copied().unwrap_or_default();
        of_address.max(agent.allowance_used_until)
    }

    /// Sets the time until which the allowance of an agent's address is used up.
    fn set_allowance_used_until(&mut self, id: AgentId, until: Nanos) {
        let Some(agent) = self.agents.get_mut(&id) else { return };
        agent.allowance_used_until = until;
        if let Some(only) = agent.only {
            self.allowance_used_until.insert(only, until);
        }
    }

    /// Counts an agent that is disconnected, and logs it unless there are too many equal lines.
    fn count_disconnected(&mut self, peer: &str, why: &str) {
        self.refused += 1;
        self.offenders.count(self.now, peer);
        if let Some(times) = self.log_limiter.count_to_log(self.now, &subject(peer, why)) {
            tracing::warn!(peer, why, times, "an agent is disconnected");
        }
    }

    /// Sets the limits.
    pub(crate) fn set_limits(&mut self, config: &HostsConfig) {
        (self.most, self.newcomers) = (config.agents, Newcomers::new(config.agents));
        (self.flows_per_host, self.lines_per_host) = (config.flows_per_host, config.lines_per_host);
    }

    /// Notes the time of a call.
    #[inline]
    pub(crate) fn set_time(&mut self, now: Nanos) {
        self.now = self.now.max(now);
    }

    /// Counts an agent whose TLS handshake failed.
    pub(crate) fn not_encrypted(&mut self, now: Nanos, peer: &str, why: &str) {
        self.set_time(now);
        self.count_disconnected(peer, &format!("its TLS handshake failed: {why}"));
    }

    /// From now on, agents that connect by TCP need one of these tokens.
    pub(crate) fn set_tokens(&mut self, tokens: Option<Arc<Tokens>>) {
        self.tokens = tokens;
    }

    /// Accepts a connection. Its agent may represent only the host with the address `only`, or any host without one. If
    /// there are too many, disconnects an agent that has not yet named its hosts; `None` if all have.
    pub fn connect(&mut self, now: Nanos, peer: String, only: Option<IpAddr>) -> Option<AgentId> {
        self.set_time(now);
        // A listener for both families sees the address of an IPv4 host as an IPv6 address.
        let only = only.map(|address| address.to_canonical());
        let address = only;
        if self.agents.len() >= self.most {
            let agents = &self.agents;
            let oldest = self.newcomers.take(address, true, |id| agents.get(id).is_some_and(|agent| !agent.greeted));
            let Some(oldest) = oldest else {
                self.count_disconnected(&peer, "there are too many agents");
                return None;
            };
            if let Some(agent) = self.agents.remove(&oldest) {
                self.count_disconnected(&agent.peer, "it had not named its hosts, and another agent needed its place");
                self.ended.push_back(oldest);
            }
        }
        let only = match only {
            None => None,
            Some(IpAddr::V4(address)) => Some(address),
            // No host of a fabric has an address of this kind, so it may represent none.
            Some(IpAddr::V6(_)) => Some(Ipv4Addr::UNSPECIFIED),
        };
        self.last += 1;
        let id = AgentId(self.last);
        let agent = Agent {
            id,
            peer,
            only,
            since: self.now,
            hosts: BTreeSet::new(),
            greeted: false,
            closed: None,
            unlogged_reason: None,
            invalid_lines: 0,
            announced: Announced::default(),
            line: Vec::new(),
            allowance_used_until: Nanos::ZERO,
            out: Vec::new(),
            dirty: false,
        };
        self.agents.insert(id, agent);
        let agents = &self.agents;
        self.newcomers.push(address, id, |id| agents.get(id).is_some_and(|agent| !agent.greeted));
        Some(id)
    }

    /// Removes the agent of a closed connection.
    pub fn disconnect(&mut self, now: Nanos, id: AgentId, why: &str) {
        self.set_time(now);
        let Some(agent) = self.agents.remove(&id) else { return };
        self.ended.push_back(id);
        let mut left: BTreeSet<NodeId> = agent.hosts.clone();
        left.retain(|host| self.by_host.get(host) == Some(&id));
        self.by_host.retain(|_, other| *other != id);
        // An agent that is still connected represents these hosts again. An example is the agent of the machine,
        // after a program that requested paths has ended.
        for host in left {
            let heir = self.agents.iter().rev().find(|(_, one)| one.closed.is_none() && one.hosts.contains(&host));
            self.by_host.extend(heir.map(|(&heir, _)| (host, heir)));
        }
        self.requests.retain(|_, (other, _)| *other != id);
        if let Some(why) = &agent.unlogged_reason {
            self.count_disconnected(&agent.peer, why);
        }
        if agent.greeted {
            tracing::info!(peer = %agent.peer, hosts = agent.hosts.len(), why, "the connection of an agent ended");
        }
    }

    /// Takes the beginning of a line that an agent has sent and not completed.
    pub(crate) fn take_partial_line(&mut self, id: AgentId) -> Option<Vec<u8>> {
        Some(std::mem::take(&mut self.agents.get_mut(&id)?.line))
    }

    /// Notes the beginning of a line that is not complete.
    pub(crate) fn set_partial_line(&mut self, id: AgentId, line: Vec<u8>) {
        if line.len() > LINE_BYTES {
            self.refuse_and_disconnect(id, &format!("a line is longer than {LINE_BYTES} bytes"));
        } else if let Some(agent) = self.agents.get_mut(&id) {
            agent.line = line;
        }
    }

    /// Counts lines of an agent against its allowance. Returns the time until which nothing more is to be read.
    pub(crate) fn slow_down(&mut self, id: AgentId, lines: u64) -> Option<Nanos> {
        let hosts = self.agents.get(&id).filter(|agent| agent.closed.is_none())?.hosts.len().max(1);
        let per_s = u64::from(self.lines_per_host.max(1)) * hosts as u64;
        let used_until = self.allowance_used_until(id).max(self.now);
        let used_until = used_until.saturating_add(Nanos(lines * 1_000_000_000 / per_s));
        self.set_allowance_used_until(id, used_until);
        let read_again = used_until.saturating_sub(BURST);
        (read_again > self.now).then(|| {
            self.log_slowed(id);
            read_again
        })
    }

    /// Handles a line; returns the input for the controller.
    pub(crate) fn line(&mut self, id: AgentId, line: &[u8]) -> Option<Input> {
        let agent = self.agents.get(&id).filter(|agent| agent.closed.is_none())?;
        let greeted = agent.greeted;
        let message = match serde_json::from_slice::<AgentMessage>(line) {
            Ok(message) => message,
            Err(problem) => return self.refuse(id, &format!("the line is not a valid message: {problem}")),
        };
        match message {
            AgentMessage::Hello { version, hosts, token } => self.hello(id, version, &hosts, token.as_deref()),
            _ if !greeted => self.refuse(id, "a hello was expected first"),
            AgentMessage::Stale { newest } => self.stale(id, newest),
            // The agent has sent it before it knew that this controller stands by.
            AgentMessage::Announce { .. } | AgentMessage::Finish { .. } if self.leading.follows() => None,
            AgentMessage::Announce { flow, size_bytes } => {
                let host = self.represented_sender(id, &flow)?;
                self.begin(id, host, flow)?;
                Some(Input::TransferAnnounced { five_tuple: flow, size_bytes })
            }
            AgentMessage::Finish { flow } => {
                let host = self.represented_sender(id, &flow)?;
                self.agents.get_mut(&id)?.announced.end(host, &flow);
                Some(Input::TransferEnded { five_tuple: flow })
            }
            AgentMessage::Paths { request, src, dst, count, search, lifetime_s } => {
                let (src, dst) = (src.into(), dst.into());
                let (request, owner) = self.application(id, request, src)?;
                let lifetime = lifetime_s.map(|seconds| Nanos::from_secs(seconds.into()));
                Some(Input::AssignPaths { request, owner, paths: PathRequest { src, dst, count, search, lifetime } })
            }
            AgentMessage::Claim { request, assignment, src, dst, src_port } => {
                let (src, dst) = (src.into(), dst.into());
                let (request, owner) = self.application(id, request, src)?;
                let (assignment, connection) = (AssignmentId(assignment), ClaimKey::to_come(src, dst, src_port));
                Some(Input::ClaimPath { request, owner, assignment, connection, path: None, opens_to: None })
            }
            AgentMessage::ReleasePaths { request, assignment, src } => {
                let (request, owner) = self.application(id, request, src.into())?;
                Some(Input::ReleasePaths { request, owner, assignment: AssignmentId(assignment) })
            }
        }
    }

    /// Inputs for the controller: hosts that have another agent now, or have none any more.
    pub(crate) fn changes(&mut self) -> Vec<Input> {
        if self.leading.follows() {
            return Vec::new();
        }
        let gone = self.known.keys().filter(|host| !self.by_host.contains_key(host));
        let gone = gone.map(|&host| Input::Agent { host, speaks: false });
        let new = self.by_host.iter().filter(|(host, id)| self.known.get(host) != Some(id));
        let changes = gone.chain(new.map(|(&host, _)| Input::Agent { host, speaks: true })).collect();
        self.known.clone_from(&self.by_host);
        changes
    }

    /// An agent that has lines to be written, or whose connection is to be shut down, see [`Hosts::transmit`].
    pub fn poll_writable(&mut self) -> Option<AgentId> {
        while let Some(id) = self.writable.pop_front() {
            if let Some(agent) = self.agents.get_mut(&id) {
                agent.dirty = false;
                return Some(id);
            }
        }
        None
    }

    /// An agent whose connection is over. The driver must not use it any more, and drops its socket.
    pub fn poll_ended(&mut self) -> Option<AgentId> {
        self.ended.pop_front()
    }

    /// Swaps the lines queued for an agent with `buffer`, which must be empty. They then count as written.
    pub fn transmit(&mut self, id: AgentId, buffer: &mut Vec<u8>) -> Transmit {
        let Some(agent) = self.agents.get_mut(&id) else { return Transmit::Gone };
        std::mem::swap(&mut agent.out, buffer);
        match agent.closed {
            Some(_) => Transmit::Closing,
            None => Transmit::Open,
        }
    }

    /// Sends an output of the controller to the agent of a host. Without an agent nothing is sent: the host's flows
    /// are not held, and share the network as TCP does.
    pub(crate) fn carry_out(&mut self, output: &Output) {
        let election = self.leading.election();
        let (host, message) = match *output {
            Output::HoldFlow { host, five_tuple, lease } => {
                (host, ControllerMessage::Hold { flow: five_tuple, lease_ms: lease.0.div_ceil(1_000_000), election })
            }
            Output::ReleaseFlow { host, five_tuple } => {
                (host, ControllerMessage::Release { flow: five_tuple, election })
            }
            Output::PaceFlow { host, five_tuple, rate_bps } => {
                (host, ControllerMessage::Pace { flow: five_tuple, rate_bps, election })
            }
            Output::Assigned { request, ref answer, .. } => {
                return self.answer(request, answer.as_ref().map(Some), |request, assignment, paths| {
                    ControllerMessage::Offer { request, assignment, paths, election }
                });
            }
            Output::Claimed { request, ref answer } => {
                return self.answer(request, answer.as_ref().map(Some), |request, _, paths| {
                    let path = paths.into_iter().next().unwrap_or_default();
                    ControllerMessage::Claimed { request, path, election }
                });
            }
            Output::Released { request, ref answer } => {
                return self.answer(request, answer.as_ref().map(|()| None), |request, _, _| {
                    ControllerMessage::PathsReleased { request, election }
                });
            }
            _ => return,
        };
        match self.by_host.get(&host).and_then(|id| self.agents.get_mut(id)) {
            Some(agent) => agent.send((&mut self.writable, self.now), &message),
            None => tracing::debug!(?output, "no agent represents this host"),
        }
    }

    /// Disconnects agents that do not identify themselves in time. Call this a few times a second.
    pub(crate) fn tick(&mut self, now: Nanos) {
        self.allowance_used_until.retain(|_, until| *until > now);
        self.now = self.now.max(now);
        let mut disconnected = Vec::new();
        let is_over = |closed: Nanos| now.saturating_sub(closed) > CLOSE_TIMEOUT;
        let over = self.agents.values().filter(|agent| agent.closed.is_some_and(is_over));
        for id in over.map(|agent| agent.id).collect::<Vec<_>>() {
            self.disconnect(now, id, "it was disconnected, and did not read");
        }
        for agent in self.agents.values_mut() {
            if !agent.greeted && now.saturating_sub(agent.since) > FIRST_LINE {
                agent.close((&mut self.writable, self.now), "it did not name its hosts in time");
            }
            disconnected.extend(agent.unlogged_reason.take().map(|why| (agent.peer.clone(), why)));
        }
        for (peer, why) in disconnected {
            self.count_disconnected(&peer, &why);
        }
        for (whose, times) in self.log_limiter.overdue(now) {
            tracing::warn!(whose, times, "agents were refused again since the last message about them");
        }
    }

    /// Refuses a line and disconnects the agent at once.
    pub(crate) fn refuse_and_disconnect(&mut self, id: AgentId, why: &str) {
        if let Some(agent) = self.agents.get_mut(&id) {
            agent.send((&mut self.writable, self.now), &ControllerMessage::Refused { why: why.into(), request: None });
            agent.close((&mut self.writable, self.now), why);
        }
    }

    /// Refuses an invalid line. After too many of them, disconnects the agent.
    pub(crate) fn refuse(&mut self, id: AgentId, why: &str) -> Option<Input> {
        let agent = self.agents.get_mut(&id)?;
        agent.invalid_lines += 1;
        agent.send((&mut self.writable, self.now), &ControllerMessage::Refused { why: why.into(), request: None });
        if !agent.greeted || agent.invalid_lines > PATIENCE {
            agent.close((&mut self.writable, self.now), why);
            return None;
        }
        let peer = agent.peer.clone();
        self.offenders.count(self.now, &peer);
        if let Some(times) = self.log_limiter.count_to_log(self.now, &subject(&peer, why)) {
            tracing::warn!(peer, why, times, "a line of an agent was refused");
        }
        None
    }

    fn hello(&mut self, id: AgentId, version: u32, addresses: &[Ipv4Addr], token: Option<&str>) -> Option<Input> {
        if version != VERSION {
            return self.refuse(id, &format!("this controller supports version {VERSION}, not {version}"));
        }
        let only = self.agents.get(&id)?.only;
        let Some(fabric) = self.fabric.clone() else { return self.refuse(id, "this controller has no fabric") };
        if let Some(Err(why)) = self.tokens.as_ref().filter(|_| only.is_some()).map(|all| all.check(token, addresses)) {
            return self.refuse(id, why);
        }
        // A host with several ports connects from one of its addresses.
        let own = only.and_then(|only| fabric.attachment(only.into())).map(|place| place.host);
        let mut hosts = BTreeSet::new();
        for &address in addresses {
            let Some(place) = fabric.attachment(address.into()) else {
                return self.refuse(id, &format!("the fabric has no host {address}"));
            };
            if only.is_some() && own != Some(place.host) {
                return self.refuse(id, &format!("{address} is not the address this connection comes from"));
            }
            hosts.insert(place.host);
        }
        let agent = self.agents.get_mut(&id)?;
        tracing::info!(peer = %agent.peer, hosts = hosts.len(), "an agent represents hosts");
        (agent.greeted, agent.hosts) = (true, hosts.clone());
        let answer = self.leading.answer(self.wants);
        agent.send((&mut self.writable, self.now), &answer);
        // The last agent to connect counts, because an earlier connection may have died unnoticed.
        self.by_host.retain(|_, other| *other != id);
        let before: BTreeSet<_> = hosts.into_iter().filter_map(|host| self.by_host.insert(host, id)).collect();
        before.into_iter().for_each(|other| self.displace(other));
        None
    }

    /// Disconnects an agent if others represent all of its hosts. It would get no more messages, and would keep its
    /// place if it died.
    fn displace(&mut self, id: AgentId) {
        if self.by_host.values().any(|&other| other == id) {
            return;
        }
        if let Some(agent) = self.agents.get_mut(&id) {
            let why = "another connection represents its hosts now";
            agent.send((&mut self.writable, self.now), &ControllerMessage::Refused { why: why.into(), request: None });
            agent.close((&mut self.writable, self.now), why);
        }
    }

    /// Notes an announced flow, unless the host has too many.
    fn begin(&mut self, id: AgentId, host: NodeId, flow: FiveTuple) -> Option<()> {
        let most = self.flows_per_host;
        let agent = self.agents.get_mut(&id)?;
        if agent.announced.begin(host, flow, most) {
            return Some(());
        }
        let why = format!("host {} has flows that are announced and not finished, the maximum: {most}", flow.src());
        agent.send(
            (&mut self.writable, self.now),
            &ControllerMessage::Refused { why: why.as_str().into(), request: None },
        );
        let peer = agent.peer.clone();
        self.log_limited(&peer, &why);
        None
    }

    /// Returns the sender of a flow. Only the agent of this host may send lines about the flow.
    fn represented_sender(&mut self, id: AgentId, flow: &FiveTuple) -> Option<NodeId> {
        let host = self.host(flow.src());
        if let Some(host) = host.filter(|host| self.by_host.get(host) == Some(&id)) {
            return Some(host);
        }
        self.refuse(id, &format!("this agent does not represent the host {}", flow.src()));
        None
    }

    /// Notes a request of an application. Returns the number by which it will be answered, and the owner. An agent may
    /// send requests only for its own hosts.
    fn application(&mut self, id: AgentId, request: u64, src: Address) -> Option<(u64, Owner)> {
        let host = self.host(src);
        if host.is_none_or(|host| self.by_host.get(&host) != Some(&id)) {
            self.refuse(id, &format!("this agent does not represent the host {src}"));
            return None;
        }
        if let Some(why) = self.leading.why_no_paths() {
            let refused = ControllerMessage::Refused { why: why.into(), request: Some(request) };
            self.agents.get_mut(&id)?.send((&mut self.writable, self.now), &refused);
            return None;
        }
        if self.requests.len() >= MOST_REQUESTS {
            self.refuse(id, "too many requests for paths wait for an answer");
            return None;
        }
        self.last += 1;
        self.requests.insert(self.last, (id, request));
        Some((self.last, owner_of(src)))
    }

    /// Sends an application the answer to its request.
    fn answer(
        &mut self,
        request: u64,
        answer: Result<Option<&Assigned>, &AssignError>,
        message: impl for<'a> FnOnce(u64, u32, Vec<Vec<Cow<'a, str>>>) -> ControllerMessage<'a>,
    ) {
        let Some((id, request)) = self.requests.remove(&request) else { return };
        let (Some(fabric), Some(agent)) = (self.fabric.clone(), self.agents.get_mut(&id)) else { return };
        match answer {
            Ok(assigned) => {
                let paths = assigned.map_or(&[][..], |assigned| &assigned.paths);
                let id = assigned.map_or(0, |assigned| assigned.assignment.0);
                let names = |path| names(&fabric, path).into_iter().map(Cow::Borrowed).collect();
                let message = message(request, id, paths.iter().map(names).collect());
                agent.send((&mut self.writable, self.now), &message);
            }
            Err(why) => agent.send(
                (&mut self.writable, self.now),
                &ControllerMessage::Refused { why: why.to_string().into(), request: Some(request) },
            ),
        }
    }

    fn host(&self, address: Address) -> Option<NodeId> {
        self.fabric.as_ref()?.attachment(address).map(|place| place.host)
    }
}

/// Names of the switches of a path, from ToR to ToR; empty if both hosts are at one ToR.
pub(crate) fn names<'a>(fabric: &'a Fabric, path: &Path) -> Vec<&'a str> {
    let first = path.links().first().map(|&link| fabric.link(link).from);
    let switches = first.map(|first| path.switches(fabric, first)).unwrap_or_default();
    switches.into_iter().map(|node| fabric.node(node).name.as_str()).collect()
}

#[cfg(test)]
mod tests;
