//! A fabric of programs and simple hosts. Frames take random times and arrive in any order. Violations are recorded.

use crate::program::{Outgoing, Program, Used};
use crate::programs::connections::Key;
use crate::programs::{ArpPath, Identity, PortRole, TcpPath};
use crate::Stale;
use pathloom_model::{
    Address, Arp, Body, Carried, Fabric, FiveTuple, Frame, Headers, LinkId, Mac, Nanos, NodeId, PathKind, PathMessage,
    PortNo, PROTO_TCP, TCP_ACK, TCP_SYN,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the hardware address of the host with an IP address.
pub(crate) fn mac_of(ip: Address) -> Mac {
    let [a, b, c, d] = ip.low().to_be_bytes();
    Mac([2, 0, a, b, c, d])
}

pub(crate) fn switch_mac(node: NodeId) -> Mac {
    let [a, b, c, d] = node.0.to_be_bytes();
    Mac([6, 0, a, b, c, d])
}

/// Returns the identity of a switch of a fabric. With `learn`, no port roles are configured.
pub(crate) fn identity(fabric: &Fabric, node: NodeId, boot: u64, learn: bool) -> Identity {
    let role = |link: LinkId| {
        let other = fabric.link(link).to;
        if fabric.is_host(other) {
            PortRole::Host
        } else {
            PortRole::Switch { tier: Some(fabric.node(other).tier) }
        }
    };
    let ports = fabric.node(node).ports.iter().enumerate();
    let roles = ports.map(|(index, &link)| (PortNo(index as u32 + 1), role(link))).collect();
    let tier = Some(fabric.node(node).tier);
    Identity { mac: switch_mac(node), tier, boot, roles: if learn { BTreeMap::new() } else { roles } }
}

/// Distinguishes frames even if their fields are equal: each frame that a host or switch creates has its own origin.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Origin {
    Host(u32),
    Switch(u32),
}

#[derive(Clone, Debug)]
struct Flight {
    to: NodeId,
    port: PortNo,
    link: LinkId,
    frame: Frame,
    origin: Origin,
}

/// One connection of a host to another, and its progress.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) tuple: FiveTuple,
    /// Number of segments that were sent and acknowledged.
    pub(crate) acked: u32,
    pub(crate) wanted: u32,
    next_try: Nanos,
    backoff: Nanos,
    established: bool,
}

#[derive(Clone, Debug, Default)]
struct Host {
    cache: BTreeMap<Address, Mac>,
    sessions: Vec<Session>,
    received: BTreeSet<u32>,
}

/// Creates a program from the time, the fabric, the switch and the number of the start.
type Make<'a, P> = Box<dyn Fn(Nanos, &Fabric, NodeId, u64) -> P + 'a>;

pub(crate) struct Net<'a, P> {
    pub(crate) fabric: &'a Fabric,
    pub(crate) now: Nanos,
    pub(crate) programs: BTreeMap<NodeId, P>,
    make: Make<'a, P>,
    boots: u64,
    hosts: BTreeMap<Address, Host>,
    /// The address of the host at each place, and the place of each address.
    place: BTreeMap<NodeId, Address>,
    home: BTreeMap<Address, NodeId>,
    flights: BTreeMap<(Nanos, u32), Flight>,
    serial: u32,
    /// Cables that are cut (as their lower link), and links that lose all frames while their ports are up.
    pub(crate) down: BTreeSet<LinkId>,
    pub(crate) dead: BTreeSet<LinkId>,
    pub(crate) rng: Pcg64,
    longest: Nanos,
    memory: BTreeMap<(NodeId, FiveTuple, PortNo), PortNo>,
    /// Switches that have forwarded an exploration, and links by which a frame has left.
    explored: BTreeSet<(Origin, NodeId)>,
    left_by: BTreeSet<(Origin, LinkId)>,
    /// Descriptions of violated properties.
    pub(crate) violations: Vec<String>,
    pub(crate) frames: u64,
}

impl<'a, P: Inspect> Net<'a, P> {
    /// Starts all switches at once. A frame takes up to `longest` on each link.
    pub(crate) fn new(
        fabric: &'a Fabric,
        seed: u64,
        longest: Nanos,
        make: impl Fn(Nanos, &Fabric, NodeId, u64) -> P + 'a,
    ) -> Net<'a, P> {
        let hosts = fabric.attachments().iter().map(|one| (one.address, Host::default())).collect();
        let place = fabric.attachments().iter().map(|one| (one.host, one.address)).collect();
        let home = fabric.attachments().iter().map(|one| (one.address, one.host)).collect();
        let mut net = Net {
            fabric,
            now: Nanos::from_secs(100),
            programs: BTreeMap::new(),
            make: Box::new(make),
            boots: 0,
            hosts,
            place,
            home,
            flights: BTreeMap::new(),
            serial: 0,
            down: BTreeSet::new(),
            dead: BTreeSet::new(),
            rng: Pcg64::seed_from_u64(seed),
            longest,
            memory: BTreeMap::new(),
            explored: BTreeSet::new(),
            left_by: BTreeSet::new(),
            violations: Vec::new(),
            frames: 0,
        };
        fabric.switches().iter().for_each(|&switch| net.boot(switch));
        net
    }

    /// Starts or restarts a switch. Its neighbours see no change of their ports.
    pub(crate) fn boot(&mut self, switch: NodeId) {
        self.boots += 1;
        self.memory.retain(|&(node, ..), _| node != switch);
        let program = (self.make)(self.now, self.fabric, switch, self.boots);
        self.programs.insert(switch, program);
        for (index, link) in self.fabric.node(switch).ports.iter().enumerate() {
            let up = !self.down.contains(&LinkId(link.0 & !1));
            self.port(switch, PortNo(index as u32 + 1), up);
        }
    }

    fn port(&mut self, switch: NodeId, port: PortNo, up: bool) {
        if let Some(program) = self.programs.get_mut(&switch) {
            program.set_port(self.now, port, up);
        }
        self.settle(switch);
    }

    /// Cuts or repairs a cable. Both ends notice it, and frames on the cable are lost.
    pub(crate) fn set_cable(&mut self, cable: LinkId, up: bool) {
        let both = [cable, cable.reverse()];
        let changed = if up { self.down.remove(&cable) } else { self.down.insert(cable) };
        if !changed {
            return;
        }
        self.flights.retain(|_, flight| !both.contains(&flight.link));
        for link in both {
            let link = self.fabric.link(link);
            self.port(link.from, link.from_port, up);
        }
    }

    /// Sends the frames that a switch has queued, and deletes the decisions that have become wrong.
    fn settle(&mut self, switch: NodeId) {
        loop {
            let Some(program) = self.programs.get_mut(&switch) else { return };
            match program.take_stale() {
                Stale::Nothing => {}
                Stale::Flows(flows) => {
                    let all: BTreeSet<FiveTuple> = flows.into_iter().collect();
                    self.memory.retain(|(node, tuple, _), _| *node != switch || !all.contains(tuple));
                }
                Stale::Everything => self.memory.retain(|(node, ..), _| *node != switch),
            }
            let Some(out) = program.poll_emission() else { return };
            if let Body::Path(PathMessage { carried, .. }) = out.frame.body {
                assert_eq!(carried, Carried::Nothing, "a message of a timer carries a host's packet");
            }
            self.serial += 1;
            let origin = Origin::Switch(self.serial);
            self.send(switch, out, origin);
        }
    }

    fn send(&mut self, node: NodeId, out: Outgoing, origin: Origin) {
        let Some(link) = self.fabric.out_link(node, out.port) else {
            self.violations.push(format!("{node:?} has no port {:?}", out.port));
            return;
        };
        if !self.left_by.insert((origin, link)) {
            self.violations.push(format!("{node:?} sent {origin:?} by {:?} twice: {:?}", out.port, out.frame));
        }
        if self.dead.contains(&link) || self.down.contains(&LinkId(link.0 & !1)) {
            return;
        }
        let (to, port) = (self.fabric.link(link).to, self.fabric.link(link).to_port);
        let delay = Nanos(self.rng.random_range(1000..=self.longest.0));
        self.serial += 1;
        self.flights.insert((self.now + delay, self.serial), Flight { to, port, link, frame: out.frame, origin });
    }

    /// Sends a frame of a host.
    pub(crate) fn host_sends(&mut self, ip: Address, frame: Frame) {
        let host = self.home[&ip];
        self.serial += 1;
        let origin = Origin::Host(self.serial);
        let port = self.fabric.link(self.fabric.node(host).ports[0]).from_port;
        self.send(host, Outgoing { port, frame }, origin);
    }

    /// Two hosts exchange their places. With `unplug`, their ports go down meanwhile; otherwise, no switch notices. All
    /// frames in transit are lost: otherwise, a host could receive one copy of a broadcast at each place.
    pub(crate) fn swap_hosts(&mut self, one: Address, other: Address, unplug: bool) {
        self.flights.clear();
        let places = [self.home[&one], self.home[&other]];
        let cables = places.map(|place| LinkId(self.fabric.node(place).ports[0].0 & !1));
        cables.iter().filter(|_| unplug).for_each(|&cable| self.set_cable(cable, false));
        for (ip, place) in [(one, places[1]), (other, places[0])] {
            self.home.insert(ip, place);
            self.place.insert(place, ip);
        }
        cables.iter().filter(|_| unplug).for_each(|&cable| self.set_cable(cable, true));
    }

    pub(crate) fn open(&mut self, tuple: FiveTuple, segments: u32) {
        let (next_try, backoff) = (self.now, Nanos::from_secs(1));
        let session = Session { tuple, acked: 0, wanted: segments, next_try, backoff, established: false };
        self.hosts.entry(tuple.src()).or_default().sessions.push(session);
    }

    pub(crate) fn sessions(&self) -> impl Iterator<Item = &Session> {
        self.hosts.values().flat_map(|host| &host.sessions)
    }

    /// Gives each session one more segment to send, and lets it try at once.
    pub(crate) fn want_more(&mut self) {
        for session in self.hosts.values_mut().flat_map(|host| &mut host.sessions) {
            session.wanted += 1;
            (session.next_try, session.backoff) = (self.now, Nanos::from_secs(1));
        }
    }

    /// Clears the ARP caches of all hosts.
    pub(crate) fn flush_caches(&mut self) {
        self.hosts.values_mut().for_each(|host| host.cache.clear());
    }

    fn attempt(&mut self, ip: Address, index: usize) {
        let now = self.now;
        let Some(host) = self.hosts.get_mut(&ip) else { return };
        let session = &mut host.sessions[index];
        session.next_try = now + session.backoff;
        session.backoff = Nanos((session.backoff.0 * 2).min(4_000_000_000));
        let (tuple, established) = (session.tuple, session.established);
        let Some(&dst) = host.cache.get(&tuple.dst()) else {
            let arp = Arp {
                request: true,
                sender_mac: mac_of(ip),
                sender_ip: ip,
                target_mac: Mac::ZERO,
                target_ip: tuple.dst(),
            };
            return self.host_sends(ip, Frame { src: mac_of(ip), dst: Mac::BROADCAST, body: Body::Arp(arp) });
        };
        let tcp_flags = if established { TCP_ACK } else { TCP_SYN };
        let body = Body::Ip(Headers { tcp_flags, ..Headers::plain(tuple) });
        self.host_sends(ip, Frame { src: mac_of(ip), dst, body });
    }

    fn at_host(&mut self, ip: Address, frame: Frame, origin: Origin) {
        let mac = mac_of(ip);
        if frame.dst != mac && !frame.dst.is_group() {
            return;
        }
        if let Origin::Host(id) = origin {
            let host = self.hosts.entry(ip).or_default();
            if !host.received.insert(id) {
                self.violations.push(format!("{ip} received frame {id} twice: {frame:?}"));
            }
        }
        match frame.body {
            Body::Arp(arp) if arp.target_ip == ip => {
                self.hosts.entry(ip).or_default().cache.insert(arp.sender_ip, arp.sender_mac);
                if arp.request {
                    let reply = Arp {
                        request: false,
                        sender_mac: mac,
                        sender_ip: ip,
                        target_mac: arp.sender_mac,
                        target_ip: arp.sender_ip,
                    };
                    self.host_sends(ip, Frame { src: mac, dst: arp.sender_mac, body: Body::Arp(reply) });
                }
                self.wake(ip, arp.sender_ip);
            }
            Body::Ip(headers) if headers.five_tuple.dst() == ip => self.segment(ip, frame, headers),
            _ => {}
        }
    }

    fn wake(&mut self, ip: Address, peer: Address) {
        let now = self.now;
        let host = self.hosts.entry(ip).or_default();
        let waiting = |session: &&mut Session| session.tuple.dst() == peer && session.acked < session.wanted;
        host.sessions.iter_mut().filter(waiting).for_each(|session| session.next_try = now);
    }

    fn segment(&mut self, ip: Address, frame: Frame, headers: Headers) {
        if headers.tag.is_some() {
            self.violations.push(format!("{ip} received a frame with a tag of the fabric: {frame:?}"));
        }
        let (now, back) = (self.now, headers.five_tuple.reverse());
        let host = self.hosts.entry(ip).or_default();
        let session = host.sessions.iter_mut().find(|session| session.tuple == back);
        let answer = match (session, headers.tcp_flags & TCP_SYN != 0) {
            (Some(session), true) => {
                session.established = true;
                session.next_try = now;
                session.backoff = Nanos::from_secs(1);
                None
            }
            (Some(session), false) => {
                session.acked = (session.acked + 1).min(session.wanted);
                (session.next_try, session.backoff) = (now, Nanos::from_secs(1));
                None
            }
            (None, true) => Some(TCP_SYN | TCP_ACK),
            (None, false) => Some(TCP_ACK),
        };
        if let Some(tcp_flags) = answer {
            let body = Body::Ip(Headers { tcp_flags, ..Headers::plain(back) });
            self.host_sends(ip, Frame { src: mac_of(ip), dst: frame.src, body });
        }
    }

    /// Handles a frame at a switch: by a remembered decision, or by the program.
    fn at_switch(&mut self, flight: Flight) {
        let Flight { to, port, frame, origin, .. } = flight;
        let now = self.now;
        let plain = match frame.body {
            Body::Ip(headers) if headers.tcp_flags == TCP_ACK && headers.tag.is_none() => Some(headers.five_tuple),
            _ => None,
        };
        let place = plain.map(|tuple| (to, tuple, port));
        let remembered = place.and_then(|place| self.memory.get(&place).copied());
        let asked_too = remembered.is_none() || self.rng.random_ratio(1, 8);
        let Some(program) = self.programs.get_mut(&to) else { return };
        if let (Some(out), Some(tuple)) = (remembered, plain) {
            program.credit(tuple, Used { last: now, packets: 1, bytes: 66 });
            if asked_too {
                let fresh = program.clone().decide(now, port, &frame);
                if fresh.emissions != [Outgoing { port: out, frame }] {
                    self.violations.push(format!("{to:?} did not report a stale remembered decision: {fresh:?}"));
                }
            }
            self.send(to, Outgoing { port: out, frame }, origin);
            return;
        }
        let verdict = program.decide(now, port, &frame);
        assert_eq!(verdict.emissions.is_empty(), verdict.dropped.is_some(), "{verdict:?}");
        self.settle(to);
        if let (Some(tuple), [only]) = (verdict.remember, &verdict.emissions[..]) {
            assert_eq!(only.frame, frame, "only frames that are not changed are remembered");
            self.memory.insert((to, tuple, port), only.port);
        }
        if !verdict.emissions.is_empty() && is_exploration(&frame) && !self.explored.insert((origin, to)) {
            self.violations.push(format!("{to:?} accepted exploration {origin:?} twice: {frame:?}"));
        }
        let ports: BTreeSet<PortNo> = verdict.emissions.iter().map(|out| out.port).collect();
        assert_eq!(ports.len(), verdict.emissions.len(), "a port occurs twice: {verdict:?}");
        for out in verdict.emissions {
            // An answer of the switch is a new frame.
            let answered =
                matches!((frame.body, out.frame.body), (Body::Path(was), Body::Path(is)) if was.kind != is.kind);
            let probe = matches!((frame.body, out.frame.body), (Body::Path(was), Body::Arp(_)) if was.carried == Carried::Nothing);
            self.serial += 1;
            let new = answered || probe;
            self.send(to, out, if new { Origin::Switch(self.serial) } else { origin });
        }
    }

    /// Runs until `until`, or until something goes wrong.
    pub(crate) fn run(&mut self, until: Nanos) {
        while self.violations.is_empty() {
            let flight = self.flights.first_key_value().map(|(&(at, _), _)| at);
            let timers = self.programs.values().filter_map(Program::poll_timeout).min();
            let tries = self.sessions().filter(|one| one.acked < one.wanted).map(|one| one.next_try).min();
            let Some(next) = [flight, timers, tries].into_iter().flatten().min().filter(|&at| at <= until) else {
                self.now = self.now.max(until);
                return;
            };
            self.now = self.now.max(next);
            if flight.is_some_and(|at| at <= self.now) {
                let Some((_, flight)) = self.flights.pop_first() else { return };
                self.frames += 1;
                match self.place.get(&flight.to).copied() {
                    Some(ip) => self.at_host(ip, flight.frame, flight.origin),
                    None => self.at_switch(flight),
                }
            } else if timers.is_some_and(|at| at <= self.now) {
                self.timers();
            } else {
                self.retry();
            }
        }
    }

    /// Checks that the present ways have no loop: to each host, and along each connection from each port.
    pub(crate) fn check_ways(&mut self) {
        let hosts: Vec<Mac> = self.hosts.keys().map(|&ip| mac_of(ip)).collect();
        let tuples: Vec<FiveTuple> =
            self.sessions().flat_map(|session| [session.tuple, session.tuple.reverse()]).collect();
        for &start in self.fabric.switches() {
            for &mac in &hosts {
                self.follow(start, PortNo(0), |program, now, _| program.way_to(now, mac));
            }
            for &tuple in &tuples {
                for port in 1..=self.fabric.node(start).ports.len() as u32 {
                    self.follow(start, PortNo(port), |program, now, in_port| program.way_of(now, tuple, in_port));
                }
            }
        }
    }

    fn follow(&mut self, start: NodeId, in_port: PortNo, way: impl Fn(&P, Nanos, PortNo) -> Option<PortNo>) {
        let (mut node, mut in_port) = (start, in_port);
        for _ in 0..=self.fabric.switches().len() {
            let Some(program) = self.programs.get(&node) else { return };
            let Some(port) = way(program, self.now, in_port) else { return };
            let Some(link) = self.fabric.out_link(node, port) else { return };
            (node, in_port) = (self.fabric.link(link).to, self.fabric.link(link).to_port);
        }
        self.violations.push(format!("there is a loop of ways that begins at {start:?}"));
    }

    fn timers(&mut self) {
        let due: Vec<NodeId> = self
            .programs
            .iter()
            .filter(|(_, program)| program.poll_timeout().is_some_and(|at| at <= self.now))
            .map(|(&node, _)| node)
            .collect();
        for node in due {
            if let Some(program) = self.programs.get_mut(&node) {
                program.handle_timeout(self.now);
                let next = program.poll_timeout();
                assert!(next.is_none_or(|at| at > self.now), "{node:?} wants to be called again at once");
            }
            self.settle(node);
        }
    }

    fn retry(&mut self) {
        let due: Vec<(Address, usize)> = self
            .hosts
            .iter()
            .flat_map(|(&ip, host)| host.sessions.iter().enumerate().map(move |(index, one)| (ip, index, one)))
            .filter(|(_, _, one)| one.acked < one.wanted && one.next_try <= self.now)
            .map(|(ip, index, _)| (ip, index))
            .collect();
        due.into_iter().for_each(|(ip, index)| self.attempt(ip, index));
    }
}

/// Whether a frame is flooded.
fn is_exploration(frame: &Frame) -> bool {
    matches!(frame.body, Body::Path(message) if matches!(message.kind, PathKind::Request | PathKind::RecoveryRequest))
}

/// Access of tests to the tables of a program.
pub(crate) trait Inspect: Program + Clone {
    /// Returns the port that the default forwarding uses to a host.
    fn way_to(&self, now: Nanos, mac: Mac) -> Option<PortNo>;

    /// Returns the port by which a frame of a connection leaves if it arrives at `in_port`.
    fn way_of(&self, now: Nanos, tuple: FiveTuple, in_port: PortNo) -> Option<PortNo>;
}

impl Inspect for ArpPath {
    fn way_to(&self, now: Nanos, mac: Mac) -> Option<PortNo> {
        self.hosts.port(now, mac)
    }

    fn way_of(&self, _: Nanos, _: FiveTuple, _: PortNo) -> Option<PortNo> {
        None
    }
}

impl Inspect for TcpPath {
    fn way_to(&self, now: Nanos, mac: Mac) -> Option<PortNo> {
        self.base.hosts.port(now, mac)
    }

    fn way_of(&self, now: Nanos, tuple: FiveTuple, in_port: PortNo) -> Option<PortNo> {
        let way = self.connections.get(Key::of(tuple))?.way(now, tuple)?;
        (way.0 == in_port).then_some(way.1)
    }
}

/// A TCP five-tuple between two addresses.
pub(crate) fn tuple(src: Address, dst: Address, src_port: u16) -> FiveTuple {
    FiveTuple::new(PROTO_TCP, (src, src_port), (dst, 80))
}
