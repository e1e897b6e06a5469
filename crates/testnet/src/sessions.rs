//! Connections between the controller and its peers: switches, agents, and whatever a test connects.

use crate::device::{Device, Faults};
use crate::machine::Machine;
use crate::network::{Event, Network};
use pathloom_model::{Nanos, NodeId};
use pathloom_openflow::frame;

/// Time after which a switch without a session connects again.
pub(crate) const REDIAL: (Nanos, Nanos) = (Nanos::from_millis(50), Nanos::from_millis(500));
/// Streams of a connection, for the order of their bytes.
const TO_CONTROLLER: usize = 0;
const TO_PEER: usize = 1;
const WORK: usize = 2;

/// One connection, as its peer sees it.
#[derive(Clone, Debug)]
pub struct Peer<Id> {
    /// The connection at the controller, while it is open.
    pub id: Option<Id>,
    /// Its switch, if it is one. The test acts for a peer that is neither a switch nor an agent.
    pub node: Option<NodeId>,
    /// The number of the controller that it is connected with.
    pub controller: usize,
    /// The number of its agent, if it is one.
    pub agent: Option<usize>,
    /// Bytes of the controller that were not handled yet.
    pub heard: Vec<u8>,
    /// Whether nothing that it sends arrives.
    pub silent: bool,
    /// Bytes that the controller has not used yet.
    unused: Vec<u8>,
    /// When the last bytes of each stream arrive.
    last: [Nanos; 3],
}

impl<M: Machine> Network<M> {
    /// The controller.
    ///
    /// # Panics
    /// The controller does not run.
    pub fn machine(&mut self) -> &mut M {
        self.called().expect("the controller runs")
    }

    /// Calls the controller outside of its sessions, as its other drivers do, and sends what results.
    pub fn with<T>(&mut self, call: impl FnOnce(&mut M, Nanos) -> T) -> T {
        let now = self.now;
        let result = call(self.machine(), now);
        self.transmit();
        result
    }

    /// All switches of the fabric connect.
    pub fn connect_all(&mut self) {
        let nodes: Vec<NodeId> = self.devices.keys().copied().collect();
        for node in nodes {
            self.connect(node);
        }
    }

    /// A switch connects to all controllers that it has no session with. Returns the number of the connection with the
    /// first; `None` if one of them does not accept it.
    pub fn connect(&mut self, node: NodeId) -> Option<usize> {
        let peers: Vec<Option<usize>> =
            (0..self.controllers).map(|controller| self.connect_to(node, controller)).collect();
        peers.iter().all(Option::is_some).then(|| peers[0]).flatten()
    }

    fn connect_to(&mut self, node: NodeId, controller: usize) -> Option<usize> {
        if let Some(&peer) = self.by_node.get(&(node, controller)) {
            return Some(peer);
        }
        let (now, address) = (self.now, format!("192.0.2.{}:6000", node.0));
        let id = self.called()?.connect_to(now, controller, &address);
        let peer = self.opened(id, Some(node), None)?;
        self.peers[peer].controller = controller;
        self.by_node.insert((node, controller), peer);
        let working = self.peers.iter().filter(|other| other.node == Some(node)).map(|other| other.last[WORK]).max();
        // The switch finishes the work that it has begun before it handles messages of the new session.
        self.peers[peer].last[WORK] = working.unwrap_or_default();
        let hello = self.devices.get_mut(&node).map(Device::hello).unwrap_or_default();
        self.say(peer, &hello);
        Some(peer)
    }

    /// A peer connects for which the test acts. Returns the number of the connection.
    pub fn open(&mut self, address: &str) -> Option<usize> {
        let now = self.now;
        let id = self.called()?.connect(now, address);
        self.opened(id, None, None)
    }

    /// The agent of a host connects; the test acts for it. Returns the number of the connection.
    pub fn open_agent(&mut self, address: &str) -> Option<usize> {
        let now = self.now;
        let id = self.called()?.connect_agent(now, address);
        self.opened(id, None, None)
    }

    pub(crate) fn opened(&mut self, id: Option<M::Id>, node: Option<NodeId>, agent: Option<usize>) -> Option<usize> {
        let peer = self.peers.len();
        if let Some(id) = id {
            let last = [self.now; 3];
            let (heard, unused) = (Vec::new(), Vec::new());
            let controller = 0;
            self.peers.push(Peer { id: Some(id), node, controller, agent, heard, silent: false, unused, last });
            self.by_id.insert(id, peer);
        }
        self.transmit();
        id.map(|_| peer)
    }

    /// Adds a switch that the fabric does not have, or that claims another's datapath identifier. Returns its node.
    pub fn add_device(&mut self, datapath_id: u64, ports: u32) -> NodeId {
        let nodes = self.fabric.nodes().len() as u32;
        let node = NodeId(self.devices.keys().map(|node| node.0 + 1).max().unwrap_or_default().max(nodes));
        self.devices.insert(node, Device::new(datapath_id, ports, Faults::default()));
        node
    }

    /// The number of the open connection of a switch with the first controller.
    pub fn session(&self, node: NodeId) -> Option<usize> {
        self.by_node.get(&(node, 0)).copied()
    }

    /// The numbers of the open connections of a switch.
    pub fn sessions_of(&self, node: NodeId) -> Vec<usize> {
        self.by_node.range((node, 0)..=(node, usize::MAX)).map(|(_, &peer)| peer).collect()
    }

    /// A connection.
    pub fn peer(&mut self, peer: usize) -> &mut Peer<M::Id> {
        &mut self.peers[peer]
    }

    /// Whether a connection is open.
    pub fn is_open(&self, peer: usize) -> bool {
        self.peers[peer].id.is_some()
    }

    /// A peer sends these bytes.
    pub fn say(&mut self, peer: usize, bytes: &[u8]) {
        let mut left = bytes;
        while !left.is_empty() && self.is_open(peer) && !self.peers[peer].silent {
            let (now, rest) = left.split_at(self.draw_length(left.len()));
            let at = self.in_order(peer, TO_CONTROLLER, self.timing.channel);
            self.plan(at, Event::ToController { peer, bytes: now.to_vec() });
            left = rest;
        }
    }

    /// A switch sends these messages of one kind in the sessions whose roles want them.
    pub(crate) fn tell_controller(&mut self, node: NodeId, bytes: Vec<u8>) {
        let Some(&kind) = bytes.get(1) else { return };
        for peer in self.sessions_of(node) {
            if self.devices.get(&node).is_some_and(|device| device.roles.hears(peer, kind)) {
                self.say(peer, &bytes);
            }
        }
    }

    /// A connection breaks. Bytes under way in either direction are lost, except messages that a switch has begun to
    /// carry out.
    pub fn break_connection(&mut self, peer: usize) {
        if let Some(id) = self.forget(peer) {
            let now = self.now;
            if let Some(machine) = self.called() {
                machine.disconnect(now, id);
                self.transmit();
            }
        }
    }

    /// The sessions of a switch break.
    pub fn break_session(&mut self, node: NodeId) {
        self.sessions_of(node).into_iter().for_each(|peer| self.break_connection(peer));
    }

    /// A switch restarts. It loses its rules, unless it `keeps` them, and its session breaks.
    pub fn restart(&mut self, node: NodeId, keeps: bool) {
        if let Some(device) = self.devices.get_mut(&node).filter(|_| !keeps) {
            device.clear();
        }
        self.break_session(node);
    }

    /// The controller stops without notice. Its connections break.
    pub fn kill(&mut self) -> Option<M> {
        let machine = self.replace_machine(None);
        for peer in 0..self.peers.len() {
            self.forget(peer);
        }
        machine
    }

    /// Another controller runs from now on.
    pub fn start(&mut self, machine: M) {
        self.replace_machine(Some(machine));
        self.transmit();
        if self.redials {
            let nodes: Vec<NodeId> = self.devices.keys().copied().collect();
            nodes.into_iter().for_each(|node| self.plan_dial(node));
            (0..self.agents.len()).for_each(|agent| self.plan_dial_agent(agent));
        }
    }

    fn forget(&mut self, peer: usize) -> Option<M::Id> {
        let id = self.peers[peer].id.take()?;
        self.by_id.remove(&id);
        if let Some(agent) = self.peers[peer].agent {
            self.agent_lost(agent, peer);
        }
        let Peer { node, controller, .. } = self.peers[peer];
        if let Some(node) = node.filter(|&node| self.by_node.get(&(node, controller)) == Some(&peer)) {
            self.by_node.remove(&(node, controller));
            if self.redials {
                self.plan_dial(node);
            }
        }
        Some(id)
    }

    fn plan_dial(&mut self, node: NodeId) {
        let at = self.now + self.draw(REDIAL);
        self.plan(at, Event::Dial(node));
    }

    pub(crate) fn dial(&mut self, node: NodeId) {
        if self.redials && self.is_controlled() && self.connect(node).is_none() {
            self.plan_dial(node);
        }
    }

    /// Draws a time that is not before the last one of this stream.
    fn in_order(&mut self, peer: usize, stream: usize, spread: (Nanos, Nanos)) -> Nanos {
        let drawn = self.draw(spread);
        let last = &mut self.peers[peer].last[stream];
        // A switch carries out one message after another; bytes under way overlap.
        *last = if stream == WORK { (*last).max(self.now) + drawn } else { (self.now + drawn).max(*last) };
        *last
    }

    /// Sends what the controller wants to send, and notes which connections it has closed.
    pub(crate) fn transmit(&mut self) {
        while let Some((id, bytes)) = self.called().and_then(M::poll_transmit) {
            let Some(&peer) = self.by_id.get(&id) else { continue };
            let mut left = &bytes[..];
            while !left.is_empty() {
                let (now, rest) = left.split_at(self.draw_length(left.len()));
                let at = self.in_order(peer, TO_PEER, self.timing.channel);
                self.plan(at, Event::ToPeer { peer, bytes: now.to_vec() });
                left = rest;
            }
        }
        while let Some(id) = self.called().and_then(M::poll_closed) {
            let Some(&peer) = self.by_id.get(&id) else { continue };
            let at = self.in_order(peer, TO_PEER, self.timing.channel);
            self.plan(at, Event::Closed { peer });
        }
    }

    pub(crate) fn closed(&mut self, peer: usize) {
        self.forget(peer);
    }

    fn hash(&mut self, peer: usize, bytes: &[u8]) {
        // FNV-1a; the peer and the time count as well.
        let mix = |digest: u64, bytes: &[u8]| {
            bytes.iter().fold(digest, |digest, &byte| (digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
        };
        let head = mix(mix(self.digest, &(peer as u64).to_be_bytes()), &self.now.0.to_be_bytes());
        self.digest = mix(head, bytes);
    }

    pub(crate) fn at_controller(&mut self, peer: usize, bytes: &[u8]) {
        let Some(id) = self.peers[peer].id else { return };
        self.hash(peer, bytes);
        let mut unused = std::mem::take(&mut self.peers[peer].unused);
        unused.extend_from_slice(bytes);
        let now = self.now;
        if let Some(machine) = self.called() {
            let used = machine.received(now, id, &unused);
            unused.drain(..used);
        }
        self.peers[peer].unused = unused;
        self.transmit();
    }

    pub(crate) fn at_peer(&mut self, peer: usize, bytes: &[u8]) {
        if !self.is_open(peer) {
            return;
        }
        self.hash(peer, bytes);
        self.peers[peer].heard.extend_from_slice(bytes);
        if let Some(agent) = self.peers[peer].agent {
            return self.at_agent(agent, peer);
        }
        let Some(node) = self.peers[peer].node else { return };
        let mut heard = std::mem::take(&mut self.peers[peer].heard);
        let mut at = 0;
        while let Ok(Some((header, body, length))) = frame(&heard[at..]) {
            let device = self.devices.get_mut(&node).unwrap_or_else(|| unreachable!("switches stay"));
            if device.is_hasty(header.kind) {
                let mut out = Vec::new();
                device.handle(self.now, peer, (header, body), &mut out);
                self.say(peer, &out);
            } else {
                let done = self.in_order(peer, WORK, self.timing.work);
                self.plan(done, Event::Work { peer, message: heard[at..at + length].to_vec() });
            }
            at += length;
        }
        heard.drain(..at);
        self.peers[peer].heard = heard;
    }

    /// A switch carries out a message. It does so even if the session has ended since.
    pub(crate) fn work(&mut self, peer: usize, message: &[u8]) {
        let Some(node) = self.peers[peer].node else { return };
        let (Ok(Some((header, body, _))), Some(device)) = (frame(message), self.devices.get_mut(&node)) else { return };
        let mut out = Vec::new();
        let frames = device.handle(self.now, peer, (header, body), &mut out);
        self.say(peer, &out);
        for (port, frame) in frames {
            self.send_frame(crate::network::End { node, port }, frame, 0);
        }
        self.plan_expiry(node);
        self.watch();
    }
}
