//! A small network around the state machine under test: cables with delay, loss and carrier, and control channels.
#![allow(dead_code)]

use pathloom_discovery::cabling::{dpid_of, link_at, place_of};
use pathloom_discovery::lldp::ProbeKey;
use pathloom_discovery::{Alarm, LinkDiscovery, LinkInput, LinkLoss, LinkOutput, Mac, Place, PortState, ProbeSettings};
use pathloom_model::{Fabric, LinkId, Nanos, NodeId, PortNo};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Mean delay of one control channel. A frame crosses two control channels and a cable.
const CHANNEL_NS: u64 = 500_000;

/// A fabric of live switches and the discovery that watches it.
pub struct Net {
    pub fabric: Arc<Fabric>,
    pub links: LinkDiscovery,
    pub now: Nanos,
    /// Share of probes that are lost.
    pub loss: f64,
    /// Links that were reported as up.
    pub up: BTreeSet<(Place, Place)>,
    pub up_at: BTreeMap<(Place, Place), Nanos>,
    pub losses: Vec<LinkLoss>,
    pub edges: BTreeSet<Place>,
    pub alarms: Vec<Alarm>,
    /// Every probe sent: time, port, frame.
    pub sent: Vec<(Nanos, Place, Vec<u8>)>,
    /// Cables without carrier.
    pub cut: BTreeSet<u32>,
    /// Ports whose cables have carrier, but lose every frame sent from this port.
    pub mute: BTreeSet<Place>,
    connected: BTreeSet<NodeId>,
    rng: Pcg64,
    on_the_way: BTreeMap<(Nanos, u64), (Place, Vec<u8>)>,
    serial: u64,
}

pub fn mac_of(place: Place) -> Mac {
    let (dpid, port) = (place.dpid.0.to_be_bytes(), place.port.0.to_be_bytes());
    Mac([2, dpid[5], dpid[6], dpid[7], port[2], port[3]])
}

impl Net {
    pub fn new(fabric: Arc<Fabric>, seed: u64) -> Net {
        Net::with(fabric, seed, ProbeSettings::default())
    }

    pub fn with(fabric: Arc<Fabric>, seed: u64, settings: ProbeSettings) -> Net {
        Net {
            links: LinkDiscovery::new(settings, ProbeKey::new([7; 32]), Pcg64::seed_from_u64(seed)),
            fabric,
            now: Nanos::from_secs(1),
            loss: 0.0,
            up: BTreeSet::new(),
            up_at: BTreeMap::new(),
            losses: Vec::new(),
            edges: BTreeSet::new(),
            alarms: Vec::new(),
            sent: Vec::new(),
            cut: BTreeSet::new(),
            mute: BTreeSet::new(),
            connected: BTreeSet::new(),
            rng: Pcg64::seed_from_u64(seed ^ 0x5eed),
            on_the_way: BTreeMap::new(),
            serial: 0,
        }
    }

    pub fn state(&self, node: NodeId, port: PortNo) -> PortState {
        let link = self.fabric.out_link(node, port).expect("a port of the fabric");
        let place = place_of(&self.fabric, link);
        PortState { port, mac: mac_of(place), up: !self.cut.contains(&link.cable()) }
    }

    pub fn ports(&self, node: NodeId) -> Vec<PortState> {
        (1..=self.fabric.node(node).ports.len() as u32).map(|port| self.state(node, PortNo(port))).collect()
    }

    pub fn connect(&mut self, node: NodeId) {
        self.connected.insert(node);
        let ports = self.ports(node);
        self.tell(LinkInput::SwitchUp { dpid: dpid_of(node), ports: &ports });
    }

    pub fn connect_all(&mut self) {
        for node in self.fabric.switches().to_vec() {
            self.connect(node);
        }
    }

    pub fn disconnect(&mut self, node: NodeId) {
        self.connected.remove(&node);
        self.tell(LinkInput::SwitchDown { dpid: dpid_of(node) });
    }

    /// Removes or restores the carrier of a cable. Switches with a session report the change.
    pub fn carrier(&mut self, link: LinkId, up: bool) {
        if up {
            self.cut.remove(&link.cable());
        } else {
            self.cut.insert(link.cable());
        }
        for end in [link, link.reverse()] {
            let (node, port) = (self.fabric.link(end).from, self.fabric.link(end).from_port);
            if self.connected.contains(&node) {
                let state = self.state(node, port);
                self.tell(LinkInput::PortStatus { dpid: dpid_of(node), state });
            }
        }
    }

    pub fn tell(&mut self, input: LinkInput<'_>) {
        self.links.handle(self.now, input);
        while let Some(output) = self.links.poll_output() {
            self.take(output);
        }
    }

    fn take(&mut self, output: LinkOutput) {
        match output {
            LinkOutput::Send { place, frame } => {
                self.sent.push((self.now, place, frame.clone()));
                self.carry(place, frame);
            }
            LinkOutput::LinkUp { a, b } => {
                assert!(a < b && self.up.insert((a, b)), "{a:?}-{b:?} came up twice");
                self.up_at.insert((a, b), self.now);
            }
            LinkOutput::LinkDown { a, b, why } => {
                assert!(self.up.remove(&(a, b)), "{a:?}-{b:?} went down without being up");
                self.losses.push(why);
            }
            LinkOutput::EdgeUp { place } => assert!(self.edges.insert(place)),
            LinkOutput::EdgeDown { place } => assert!(self.edges.remove(&place)),
            LinkOutput::Alarm(alarm) => self.alarms.push(alarm),
        }
    }

    /// Sends a frame out of a port and over its cable. The frame reaches the controller if the switch at the other end
    /// has a session.
    fn carry(&mut self, place: Place, frame: Vec<u8>) {
        let link = link_at(&self.fabric, place).expect("sent out of a port of the fabric");
        let to = self.fabric.link(link).to;
        let stopped = self.cut.contains(&link.cable()) || self.mute.contains(&place) || self.fabric.is_host(to);
        if stopped || !self.connected.contains(&to) || self.rng.random_bool(self.loss) {
            return;
        }
        let delay = CHANNEL_NS + self.rng.random_range(0..2 * CHANNEL_NS);
        self.arrive_at(self.now + Nanos(delay), place_of(&self.fabric, link.reverse()), frame);
    }

    pub fn arrive_at(&mut self, at: Nanos, place: Place, frame: Vec<u8>) {
        self.on_the_way.insert((at, self.serial), (place, frame));
        self.serial += 1;
    }

    pub fn inject(&mut self, place: Place, frame: &[u8]) {
        self.tell(LinkInput::Frame { place, frame });
    }

    pub fn run_for(&mut self, span: Nanos) {
        let end = self.now + span;
        loop {
            let arrival = self.on_the_way.keys().next().map(|&(at, _)| at);
            let timer = self.links.poll_timeout();
            let Some(at) = [arrival, timer].into_iter().flatten().min().filter(|&at| at <= end) else { break };
            assert!(timer != Some(self.now) || arrival == Some(self.now) || at > self.now, "a timer that never ends");
            self.now = self.now.max(at);
            if arrival == Some(at) {
                let (_, (place, frame)) = self.on_the_way.pop_first().expect("peeked at");
                self.inject(place, &frame);
            } else {
                self.tell(LinkInput::Timeout);
            }
        }
        self.now = end;
    }

    /// Runs until exactly the wanted links are up, at most for `span`. Returns the time that this took.
    pub fn run_until_right(&mut self, span: Nanos) -> Option<Nanos> {
        let start = self.now;
        while self.now - start <= span {
            if self.up == self.wanted() {
                return Some(self.now - start);
            }
            self.run_for(Nanos::from_millis(1));
        }
        None
    }

    /// The cables between switches that have carrier.
    pub fn wanted(&self) -> BTreeSet<(Place, Place)> {
        let live = |link: &LinkId| !self.cut.contains(&link.cable());
        let ends = |link| (place_of(&self.fabric, link), place_of(&self.fabric, link.reverse()));
        self.fabric.switch_cables().filter(live).map(ends).map(|(a, b)| (a.min(b), a.max(b))).collect()
    }

    /// Ports that face hosts.
    pub fn host_ports(&self) -> BTreeSet<Place> {
        let of = |host: &NodeId| self.fabric.node(*host).ports.iter().map(|link| link.reverse()).collect::<Vec<_>>();
        self.fabric.hosts().iter().flat_map(of).map(|link| place_of(&self.fabric, link)).collect()
    }

    pub fn has_alarm(&self, wanted: impl Fn(&Alarm) -> bool) -> bool {
        self.alarms.iter().any(wanted)
    }
}
