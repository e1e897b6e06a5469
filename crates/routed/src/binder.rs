//! Which source port each connection gets, so that it takes the path that the scheme wants.

use crate::ports::{Pair, Ports};
use crate::switches::{Switches, Walk};
use pathloom_control::{Config, Controller, Input, Output};
use pathloom_model::{
    Address, Fabric, FiveTuple, Headers, LinkId, Nanos, LONG_FLOW_DSCP, PROTO_TCP, TCP_ACK, TCP_FIN, TCP_SYN,
};
use pathloom_scheme::{Detection, Migration, Scheme, State};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A connection that is about to open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opening {
    /// By which the controller knows the connection until it ends. Its source port need not be that of the connection.
    pub five_tuple: FiveTuple,
    /// Whether the host labels it as a long flow.
    pub long: bool,
    /// Payload bytes, if the application knows them.
    pub size_bytes: Option<u64>,
}

/// What a connection gets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bound {
    /// Source port that it must use. `None`: no free port is known whose packets take the path, so it opens as it would
    /// without a controller.
    pub port: Option<u16>,
    /// The links of its path, from the sender's to the receiver's.
    pub path: Vec<LinkId>,
    /// Whether the scheme has chosen the path. If not, it is the path that the default routes have for the five-tuple.
    pub chosen: bool,
}

/// What was done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Connections that were announced.
    pub opened: u64,
    /// Those for which the scheme has chosen the path.
    pub chosen: u64,
    /// Those for which no source port was known or free.
    pub without_port: u64,
    /// Moves of open connections that the scheme has requested. None of them was carried out.
    pub moves_refused: u64,
}

/// Why a connection cannot be bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// No host of the fabric has this address.
    #[error("address {0}: no host of the fabric has it; expected one that the fabric gives to a host")]
    UnknownAddress(Address),
    /// A connection with this five-tuple is open.
    #[error("connection {0:?} is open already; close it first, or use another source port")]
    Open(FiveTuple),
}

/// An open connection.
struct Connection {
    /// Headers of its packets, under the five-tuple of the announcement.
    headers: Headers,
    uplink: LinkId,
    bound: Bound,
    /// Ports that other programs were found to have.
    foreign: Vec<u16>,
    /// Packets and bytes so far.
    counted: (u64, u64),
}

impl Connection {
    fn pair(&self) -> Pair {
        Pair::of(&self.headers.five_tuple)
    }
}

/// Runs a controller over switches in memory, and turns its paths into source ports.
///
/// A driver calls [`Binder::advance`] at the time that [`Binder::poll_timeout`] returns. Times must not go back.
pub struct Binder {
    fabric: Arc<Fabric>,
    controller: Controller,
    switches: Switches,
    ports: Ports,
    connections: BTreeMap<FiveTuple, Connection>,
    /// Answers of solvers, by the time at which they are due and the number of the job.
    solved: BTreeMap<(Nanos, u64), State>,
    counts: Counts,
}

impl Binder {
    /// Starts a scheme. All links have the state that the fabric gives them.
    pub fn new(now: Nanos, fabric: Arc<Fabric>, scheme: Box<dyn Scheme>) -> Binder {
        // A move by tags happens with one rule at the source ToR, which can be refused. A move in place happens by
        // deletions, which switches never refuse.
        let config = Config { migration: Some(Migration::Tagged), ..Config::default() };
        let controller = Controller::new(config, fabric.clone(), scheme);
        let switches = Switches::new(fabric.clone());
        let sessions = switches.sessions();
        let (ports, connections, solved) = (Ports::default(), BTreeMap::new(), BTreeMap::new());
        let mut binder = Binder { fabric, controller, switches, ports, connections, solved, counts: Counts::default() };
        binder.feed(now, sessions);
        binder
    }

    /// What was done so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The controller, to read its state.
    pub fn controller(&self) -> &Controller {
        &self.controller
    }

    /// The links that a connection takes now, by the map of its pair; `None` if they are not known.
    pub fn present_path(&self, five_tuple: &FiveTuple) -> Option<&[LinkId]> {
        let connection = self.connections.get(five_tuple)?;
        self.ports.path(&connection.pair(), connection.bound.port?)
    }

    /// Replaces what is known of the source ports of a pair: the links that packets of each port take now.
    pub fn set_ports(&mut self, pair: Pair, map: BTreeMap<u16, Vec<LinkId>>) {
        self.ports.set(pair, map);
    }

    /// A connection is about to open. The scheme decides at once.
    ///
    /// # Errors
    /// The fabric has no such host, or the connection is open.
    pub fn open(&mut self, now: Nanos, opening: Opening) -> Result<Bound, OpenError> {
        let Opening { five_tuple, long, size_bytes } = opening;
        if self.connections.contains_key(&five_tuple) {
            return Err(OpenError::Open(five_tuple));
        }
        let at = |address| self.fabric.attachment(address).ok_or(OpenError::UnknownAddress(address));
        let (uplink, _) = (at(five_tuple.src())?.uplink, at(five_tuple.dst())?);
        let is_tcp = five_tuple.proto() == PROTO_TCP;
        let dscp = if long { LONG_FLOW_DSCP } else { 0 };
        let headers = Headers { dscp, tcp_flags: if is_tcp { TCP_ACK } else { 0 }, ..Headers::plain(five_tuple) };
        let mut inputs = Vec::new();
        if long && self.controller.needs().detection == Detection::Announced {
            inputs.push(Input::TransferAnnounced { five_tuple, size_bytes });
        }
        let first = Headers { tcp_flags: if is_tcp { TCP_SYN } else { 0 }, ..headers };
        inputs.extend(self.switches.walk(uplink, first).copies);
        self.feed(now, inputs);
        let path = self.switches.walk(uplink, headers).links;
        let chosen = self.is_routed(&five_tuple);
        let port = self.ports.take(&Pair::of(&five_tuple), &path);
        let bound = Bound { port, path, chosen };
        self.counts.opened += 1;
        self.counts.chosen += u64::from(chosen);
        self.counts.without_port += u64::from(port.is_none());
        let connection = Connection { headers, uplink, bound: bound.clone(), foreign: Vec::new(), counted: (0, 0) };
        self.connections.insert(five_tuple, connection);
        Ok(bound)
    }

    fn is_routed(&self, five_tuple: &FiveTuple) -> bool {
        let view = self.controller.view();
        let flow = self.controller.find_flow(five_tuple).and_then(|flow| view.flows.get(&flow));
        flow.is_some_and(|flow| flow.route.is_some())
    }

    /// Another program has the port that a connection was given. Returns another port of the same path, if there is one.
    pub fn port_is_taken(&mut self, five_tuple: &FiveTuple) -> Option<u16> {
        let connection = self.connections.get_mut(five_tuple)?;
        connection.foreign.push(connection.bound.port?);
        connection.bound.port = self.ports.take(&Pair::of(five_tuple), &connection.bound.path);
        self.counts.without_port += u64::from(connection.bound.port.is_none());
        connection.bound.port
    }

    /// A connection has sent this much since it opened, with headers. Less than before is ignored.
    pub fn sent(&mut self, now: Nanos, five_tuple: &FiveTuple, (packets, bytes): (u64, u64)) {
        let Some(connection) = self.connections.get_mut(five_tuple) else { return };
        let (packets_before, bytes_before) = connection.counted;
        connection.counted = (packets.max(packets_before), bytes.max(bytes_before));
        let more = (packets.saturating_sub(packets_before), bytes.saturating_sub(bytes_before));
        let walk = self.switches.walk(connection.uplink, connection.headers);
        self.switches.credit(now, &walk, more);
        let links = self.present_path(five_tuple).map_or(walk.links, <[LinkId]>::to_vec);
        self.switches.credit_links(&links, more.1);
    }

    /// A connection has ended.
    pub fn close(&mut self, now: Nanos, five_tuple: &FiveTuple) {
        let Some(connection) = self.connections.remove(five_tuple) else { return };
        for port in connection.foreign.iter().copied().chain(connection.bound.port) {
            self.ports.give_back(five_tuple.src(), port);
        }
        let is_tcp = five_tuple.proto() == PROTO_TCP;
        let last = Headers { tcp_flags: if is_tcp { TCP_FIN | TCP_ACK } else { 0 }, ..connection.headers };
        let mut inputs = self.switches.walk(connection.uplink, last).copies;
        if !is_tcp || self.controller.needs().detection == Detection::Announced {
            inputs.push(Input::TransferEnded { five_tuple: *five_tuple });
        }
        self.feed(now, inputs);
    }

    /// The time at which the driver must call [`Binder::advance`], unless it calls another method before.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let solved = self.solved.keys().next().map(|&(at, _)| at);
        [self.controller.poll_timeout(), self.switches.next_timeout(), solved].into_iter().flatten().min()
    }

    /// Does what is due.
    pub fn advance(&mut self, now: Nanos) {
        if self.switches.next_timeout().is_some_and(|at| at <= now) {
            // Hosts say when connections end. So silent ones keep their rules.
            let walks: Vec<Walk> =
                self.connections.values().map(|one| self.switches.walk(one.uplink, one.headers)).collect();
            walks.iter().for_each(|walk| self.switches.credit(now, walk, (0, 0)));
        }
        let mut inputs = self.switches.expire(now);
        while let Some(entry) = self.solved.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((_, ticket), answer) = entry.remove_entry();
            inputs.push(Input::Solved { ticket, answer });
        }
        inputs.push(Input::Timeout);
        self.feed(now, inputs);
    }

    /// Gives the controller inputs, and carries out what it sends, until nothing is left to do. Messages take no time.
    fn feed(&mut self, now: Nanos, inputs: Vec<Input>) {
        let mut waiting = VecDeque::from(inputs);
        loop {
            if let Some(input) = waiting.pop_front() {
                self.controller.feed(now, input);
            }
            if waiting.is_empty() {
                self.controller.flush();
            }
            while let Some(output) = self.controller.poll_output() {
                waiting.extend(self.carry_out(now, output));
            }
            if waiting.is_empty() && self.controller.is_settled() {
                return;
            }
        }
    }

    fn carry_out(&mut self, now: Nanos, output: Output) -> Option<Input> {
        if let Output::Solve { ticket, input, modelled } = output {
            let answer = self.controller.solver()(self.controller.view(), &input);
            self.solved.insert((now.saturating_add(modelled), ticket), answer);
            return None;
        }
        let connections = &self.connections;
        let mut stands = false;
        let answer = self.switches.carry_out(now, output, |five_tuple| {
            let connection = connections.get(five_tuple)?;
            stands = true;
            Some((connection.uplink, connection.headers))
        });
        if stands && matches!(answer, Some(Input::Refused { .. })) {
            self.counts.moves_refused += 1;
        }
        answer
    }
}
