//! The event loop: time, frames and cables.

use crate::agents::HostAgent;
use crate::device::{Device, Faults};
use crate::frame::Frame;
use crate::host::Host;
use crate::machine::Machine;
use crate::report::{Fate, Report, Timing};
use crate::sessions::Peer;
use pathloom_model::Mac;
use pathloom_model::{Address, Fabric, Headers, LinkId, Nanos, NodeId};
use pathloom_openflow::{frame, Message};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

/// Connection of somebody who is not the controller.
const SOMEBODY_ELSE: usize = usize::MAX;
/// A packet that has crossed more cables than this is in a loop.
const MOST_HOPS: u32 = 64;

/// An end of a cable: a port of a switch, or an interface of a host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct End {
    /// Its switch or host. Numbers above those of the fabric belong to switches that were added.
    pub node: NodeId,
    /// The port.
    pub port: u32,
}

#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// Bytes reach the controller.
    ToController { peer: usize, bytes: Vec<u8> },
    /// Bytes reach a peer.
    ToPeer { peer: usize, bytes: Vec<u8> },
    /// A peer notices that the controller has closed the connection.
    Closed { peer: usize },
    /// A switch carries out a message.
    Work { peer: usize, message: Vec<u8> },
    /// A frame enters a node.
    Frame { at: End, frame: Frame, hops: u32 },
    /// A switch removes rules that have timed out.
    Expire(NodeId),
    /// A switch without a session connects.
    Dial(NodeId),
    /// An agent without a session connects.
    DialAgent(usize),
    /// A time of an agent has come.
    AgentTime(usize),
}

/// An event, and when it happens. Events of the same time happen in the order in which they were planned.
#[derive(Clone, Debug)]
struct Planned {
    at: Nanos,
    sequence: u64,
    event: Event,
}

impl Planned {
    /// A heap has its largest item first.
    fn order(&self) -> Reverse<(Nanos, u64)> {
        Reverse((self.at, self.sequence))
    }
}

impl PartialEq for Planned {
    fn eq(&self, other: &Planned) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Planned {}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Planned) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Planned {
    fn cmp(&self, other: &Planned) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

/// Frames that are not packets of hosts: probes and ARP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Frames sent to a cable.
    pub sent: u64,
    /// Frames that entered a node.
    pub delivered: u64,
    /// Frames lost on a cable, and those that looped.
    pub lost: u64,
    /// Frames that looped.
    pub looped: u64,
}

/// The network and the controller.
pub struct Network<M: Machine> {
    /// The fabric as it is configured.
    pub fabric: Arc<Fabric>,
    /// The switches, by node.
    pub devices: BTreeMap<NodeId, Device>,
    /// The hosts: one for each attachment of the fabric, in the same order, and those that were added.
    pub hosts: Vec<Host>,
    /// All packets sent.
    pub packets: Vec<Report>,
    /// Frames that are not packets.
    pub frames: Counts,
    /// Durations.
    pub timing: Timing,
    /// Whether switches connect again after the end of a session.
    pub redials: bool,
    /// Number of controllers that each switch and each agent connects to, see [`Machine::connect_to`].
    pub controllers: usize,
    /// A flow whose path is checked whenever a switch has changed its rules.
    pub watched: Vec<Headers>,
    /// Whether hosts go on holding flows that the controller has released.
    pub keeps_holds: bool,
    /// Times at which a packet of a watched flow would not have arrived, and what would have become of it.
    pub failures: Vec<(Nanos, Headers, Vec<Fate>)>,
    pub(crate) agents: Vec<HostAgent>,
    machine: Option<M>,
    pub(crate) peers: Vec<Peer<M::Id>>,
    pub(crate) by_id: BTreeMap<M::Id, usize>,
    /// The sessions of each switch, by the number of the controller.
    pub(crate) by_node: BTreeMap<(NodeId, usize), usize>,
    pub(crate) now: Nanos,
    pub(crate) digest: u64,
    cables: BTreeMap<End, End>,
    unplugged: BTreeSet<End>,
    mute: BTreeSet<End>,
    expiries: BTreeMap<NodeId, Nanos>,
    agenda: BinaryHeap<Planned>,
    sequence: u64,
    /// When the controller must be called, if it has not been called since this was found out.
    wake: Option<Option<Nanos>>,
    rng: Pcg64,
}

impl<M: Machine> Network<M> {
    /// Empty switches, cabled as in the fabric. Their datapath identifiers are the numbers of their nodes, plus one.
    pub fn new(fabric: Arc<Fabric>, machine: M, timing: Timing, seed: u64) -> Network<M> {
        let device = |&node: &NodeId| {
            let ports = fabric.node(node).ports.len() as u32;
            (node, Device::new(u64::from(node.0) + 1, ports, Faults::default()))
        };
        let host = |(number, at): (usize, &pathloom_model::Attachment)| {
            let link = fabric.link(at.uplink);
            let mac = Mac([2, 0xee, 0, 0, (number >> 8) as u8, number as u8]);
            let end = End { node: link.from, port: link.from_port.0 };
            Host { address: at.address, mac, end, answers: true, received: Vec::new() }
        };
        let cable = |link: &pathloom_model::Link| {
            let from = End { node: link.from, port: link.from_port.0 };
            (from, End { node: link.to, port: link.to_port.0 })
        };
        Network {
            devices: fabric.switches().iter().map(device).collect(),
            hosts: fabric.attachments().iter().enumerate().map(host).collect(),
            packets: Vec::new(),
            frames: Counts::default(),
            timing,
            redials: true,
            controllers: 1,
            watched: Vec::new(),
            keeps_holds: false,
            failures: Vec::new(),
            agents: Vec::new(),
            machine: Some(machine),
            peers: Vec::new(),
            by_id: BTreeMap::new(),
            by_node: BTreeMap::new(),
            now: Nanos::ZERO,
            digest: 0xcbf2_9ce4_8422_2325,
            cables: fabric.links().iter().map(cable).collect(),
            unplugged: BTreeSet::new(),
            mute: BTreeSet::new(),
            expiries: BTreeMap::new(),
            agenda: BinaryHeap::new(),
            sequence: 0,
            wake: None,
            rng: Pcg64::seed_from_u64(seed),
            fabric,
        }
    }

    /// Whether the controller runs.
    pub(crate) fn is_controlled(&self) -> bool {
        self.machine.is_some()
    }

    /// The controller from now on; `None` while none runs. Returns the one before.
    pub(crate) fn replace_machine(&mut self, machine: Option<M>) -> Option<M> {
        self.wake = None;
        std::mem::replace(&mut self.machine, machine)
    }

    /// The present time.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Number that depends on all bytes between controller, switches and agents, in order.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Runs for this time.
    pub fn run_for(&mut self, time: Nanos) {
        self.run_until(self.now + time);
    }

    /// Runs until this time.
    pub fn run_until(&mut self, end: Nanos) {
        loop {
            let next = self.agenda.peek().map(|planned| planned.at);
            let wake = self.wake().map(|at| at.max(self.now));
            let Some(at) = [next, wake].into_iter().flatten().min().filter(|&at| at <= end) else { break };
            self.now = at;
            if next == Some(at) {
                if let Some(Planned { event, .. }) = self.agenda.pop() {
                    self.happen(event);
                }
            } else if let Some(machine) = self.called() {
                machine.timeout(at);
                self.transmit();
            }
        }
        self.now = end;
    }

    /// When the controller must be called.
    fn wake(&mut self) -> Option<Nanos> {
        *self.wake.get_or_insert_with(|| self.machine.as_mut().and_then(M::poll_timeout))
    }

    /// The controller, if it runs, for a call that may change when it must be called next.
    pub(crate) fn called(&mut self) -> Option<&mut M> {
        self.wake = None;
        self.machine.as_mut()
    }

    /// Runs until `done` is true, for this time at most. Returns whether it is.
    pub fn run_while(&mut self, most: Nanos, mut goes_on: impl FnMut(&mut Network<M>) -> bool) -> bool {
        let end = self.now + most;
        while goes_on(self) {
            if self.now >= end {
                return false;
            }
            self.run_for(Nanos::from_millis(1));
        }
        true
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::ToController { peer, bytes } => self.at_controller(peer, &bytes),
            Event::ToPeer { peer, bytes } => self.at_peer(peer, &bytes),
            Event::Closed { peer } => self.closed(peer),
            Event::Work { peer, message } => self.work(peer, &message),
            Event::Frame { at, frame, hops } => self.enter(at, &frame, hops),
            Event::Expire(node) => self.expire(node),
            Event::Dial(node) => self.dial(node),
            Event::DialAgent(agent) => self.dial_agent(agent),
            Event::AgentTime(agent) => self.agent_time(agent),
        }
    }

    pub(crate) fn plan(&mut self, at: Nanos, event: Event) {
        self.sequence += 1;
        self.agenda.push(Planned { at, sequence: self.sequence, event });
    }

    pub(crate) fn draw(&mut self, (least, most): (Nanos, Nanos)) -> Nanos {
        Nanos(self.rng.random_range(least.0..=most.0))
    }

    /// Draws the length of the next read.
    pub(crate) fn draw_length(&mut self, left: usize) -> usize {
        let most = left.min(self.timing.read);
        if most <= 1 || self.timing.read == usize::MAX {
            return most;
        }
        self.rng.random_range(1..=most)
    }

    /// Sends a frame from an end of a cable.
    pub(crate) fn send_frame(&mut self, from: End, frame: Frame, hops: u32) {
        self.frames.sent += u64::from(frame.number().is_none());
        let to = self.cables.get(&from).copied();
        let Some(at) = to.filter(|to| self.is_plugged(from, *to) && !self.mute.contains(&from)) else {
            return self.fate(&frame, Fate::Cut(from.node));
        };
        if hops > MOST_HOPS {
            return self.fate(&frame, Fate::Looped);
        }
        let arrives = self.now + self.draw(self.timing.cable);
        self.plan(arrives, Event::Frame { at, frame, hops: hops + 1 });
    }

    fn is_plugged(&self, one: End, other: End) -> bool {
        !self.unplugged.contains(&one) && !self.unplugged.contains(&other)
    }

    fn fate(&mut self, frame: &Frame, fate: Fate) {
        match frame.number() {
            Some(number) => self.packets[number].fates.push((self.now, fate)),
            None => {
                self.frames.lost += u64::from(matches!(fate, Fate::Cut(_) | Fate::Looped));
                self.frames.looped += u64::from(matches!(fate, Fate::Looped));
            }
        }
    }

    fn enter(&mut self, at: End, frame: &Frame, hops: u32) {
        self.frames.delivered += u64::from(frame.number().is_none());
        let Some(device) = self.devices.get_mut(&at.node) else { return self.at_host(at, frame) };
        if let Some(number) = frame.number() {
            self.packets[number].switches.push(at.node);
        }
        let (out, copied) = device.forward(self.now, at.port, frame);
        self.tell_controller(at.node, copied);
        if out.is_empty() {
            self.fate(frame, Fate::Dropped(at.node));
        }
        for (port, frame) in out {
            self.send_frame(End { node: at.node, port }, frame, hops);
        }
        // Frames only delay the expiry of rules.
    }

    fn at_host(&mut self, end: End, frame: &Frame) {
        if frame.number().is_some() {
            return self.fate(frame, Fate::Arrived(end.node, frame.tag));
        }
        let answers: Vec<Frame> =
            self.hosts.iter_mut().filter(|host| host.end == end).filter_map(|host| host.handle(frame)).collect();
        answers.into_iter().for_each(|answer| self.send_frame(end, answer, 0));
    }

    /// A host with this address.
    pub fn host_of(&self, address: Address) -> Option<&Host> {
        self.hosts.iter().find(|host| host.address == address)
    }

    /// The host that has the source address sends a packet. Returns its number.
    pub fn send(&mut self, headers: Headers) -> usize {
        let end = self.host_of(headers.five_tuple.src()).expect("a host sends from an address that it has").end;
        self.send_from(end, headers)
    }

    /// A packet is sent from an interface. Returns its number.
    pub fn send_from(&mut self, end: End, headers: Headers) -> usize {
        let (fates, switches) = (Vec::with_capacity(1), Vec::with_capacity(6));
        self.packets.push(Report { sent: self.now, headers, fates, switches });
        let number = self.packets.len() - 1;
        self.send_frame(end, Frame::packet(number, headers), 0);
        number
    }

    /// A frame is sent from an interface.
    pub fn send_bytes(&mut self, end: End, bytes: &[u8]) {
        let frame = Frame::from_bytes(bytes).expect("an Ethernet frame");
        self.send_frame(end, frame, 0);
    }

    /// A host announces its address by ARP.
    pub fn announce(&mut self, host: usize) {
        let (end, frame) = (self.hosts[host].end, self.hosts[host].request(self.hosts[host].address));
        self.send_frame(end, frame, 0);
    }

    /// What becomes of a packet that a host sends now, if nothing else happens. The check takes no time and leaves no
    /// trace.
    pub fn fates(&mut self, headers: Headers) -> Vec<Fate> {
        let from = self.host_of(headers.five_tuple.src()).expect("a host sends from an address that it has").end;
        let (mut fates, mut open) = (Vec::new(), vec![(from, Frame::packet(0, headers), 0)]);
        while let Some((from, frame, hops)) = open.pop() {
            let to = self.cables.get(&from).copied();
            let Some(at) = to.filter(|to| self.is_plugged(from, *to) && !self.mute.contains(&from)) else {
                fates.push(Fate::Cut(from.node));
                continue;
            };
            let Some(device) = self.devices.get_mut(&at.node) else {
                fates.push(Fate::Arrived(at.node, frame.tag));
                continue;
            };
            if hops > MOST_HOPS {
                fates.push(Fate::Looped);
                continue;
            }
            let out = device.peek(at.port, &frame);
            if out.is_empty() {
                fates.push(Fate::Dropped(at.node));
            }
            open.extend(out.into_iter().map(|(port, frame)| (End { node: at.node, port }, frame, hops + 1)));
        }
        fates
    }

    /// Whether a packet with these headers would reach the host with its destination address, exactly once and
    /// without a tag.
    pub fn reaches(&mut self, headers: Headers) -> bool {
        let host = self.host_of(headers.five_tuple.dst()).map(|host| host.end.node);
        host.is_some_and(|host| self.fates(headers) == [Fate::Arrived(host, None)])
    }

    /// Notes which watched flows do not arrive now.
    pub(crate) fn watch(&mut self) {
        for headers in self.watched.clone() {
            if !self.reaches(headers) {
                let fates = self.fates(headers);
                self.failures.push((self.now, headers, fates));
            }
        }
    }

    /// Packets that did not reach the host that they were for, exactly once and without a tag.
    pub fn delivery_errors(&self) -> Vec<&Report> {
        let is_fine = |report: &&Report| {
            let host = self.host_of(report.headers.five_tuple.dst()).map(|host| host.end.node);
            matches!(report.fates[..], [(_, Fate::Arrived(node, None))] if Some(node) == host)
        };
        self.packets.iter().filter(|report| !is_fine(report)).collect()
    }

    /// The ends of a link of the fabric.
    pub fn ends(&self, link: LinkId) -> [End; 2] {
        let link = self.fabric.link(link);
        [End { node: link.from, port: link.from_port.0 }, End { node: link.to, port: link.to_port.0 }]
    }

    /// The end at the other side of a cable.
    pub fn other_end(&self, end: End) -> Option<End> {
        self.cables.get(&end).copied()
    }

    /// A cable fails or works again; both ends notice.
    pub fn set_cable(&mut self, link: LinkId, up: bool) {
        self.ends(link).into_iter().for_each(|end| self.plug(end, up));
    }

    /// Somebody else sends a switch this message. The switch reports rules that it removes.
    pub fn meddle(&mut self, node: NodeId, message: &Message<'_>) {
        let (mut bytes, mut out) = (Vec::new(), Vec::new());
        message.emit(0, &mut bytes).expect("a message that is short enough");
        let device = self.devices.get_mut(&node).expect("a switch");
        if let Ok(Some((header, body, _))) = frame(&bytes) {
            device.handle(self.now, SOMEBODY_ELSE, (header, body), &mut out);
        }
        self.tell_controller(node, out);
        self.plan_expiry(node);
    }

    /// A port or interface loses or gains carrier.
    pub fn plug(&mut self, end: End, up: bool) {
        match up {
            true => self.unplugged.remove(&end),
            false => self.unplugged.insert(end),
        };
        let message = self.devices.get_mut(&end.node).map(|device| device.set_port(end.port, up)).unwrap_or_default();
        self.tell_controller(end.node, message);
    }

    /// A cable no longer carries what is sent at this end, or does again. Nobody notices.
    pub fn set_mute(&mut self, end: End, mute: bool) {
        match mute {
            true => self.mute.insert(end),
            false => self.mute.remove(&end),
        };
    }

    /// Exchanges the cables of two ports. Both lose carrier and gain it again, and so do the other ends.
    pub fn swap(&mut self, one: End, two: End) {
        let others = [self.other_end(one), self.other_end(two)];
        let ends: Vec<End> = [one, two].into_iter().chain(others.into_iter().flatten()).collect();
        ends.iter().for_each(|&end| self.plug(end, false));
        for (end, other) in [(one, others[1]), (two, others[0])] {
            let Some(other) = other else { continue };
            self.cables.insert(end, other);
            self.cables.insert(other, end);
        }
        ends.iter().for_each(|&end| self.plug(end, true));
    }

    /// A host moves its cable to another port. The port that it leaves loses carrier.
    pub fn replug(&mut self, host: usize, to: End) {
        let end = self.hosts[host].end;
        if let Some(old) = self.cables.insert(end, to) {
            self.cables.remove(&old);
            self.plug(old, false);
        }
        self.cables.insert(to, end);
        self.plug(to, true);
    }

    pub(crate) fn plan_expiry(&mut self, node: NodeId) {
        let Some(at) = self.devices[&node].tables.poll_timeout() else { return };
        let at = at.max(self.now);
        if self.expiries.get(&node).is_none_or(|&planned| planned > at || planned < self.now) {
            self.expiries.insert(node, at);
            self.plan(at, Event::Expire(node));
        }
    }

    fn expire(&mut self, node: NodeId) {
        self.expiries.remove(&node);
        let Some(device) = self.devices.get_mut(&node) else { return };
        let messages = device.expire(self.now);
        self.tell_controller(node, messages);
        self.plan_expiry(node);
    }
}
