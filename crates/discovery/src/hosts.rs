//! Learns the port of each host from ARP: see [`HostLearning`].

mod claims;
mod serving;

use crate::agenda::Agenda;
use crate::alarm::{Alarm, AlarmFilter, AlarmKind};
use crate::arp::{Arp, ArpError};
use crate::limits::{Rate, TokenBucket};
use crate::{Mac, Place};
use claims::Host;
use pathloom_model::Nanos;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;

/// Settings of host learning, with limits per port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostSettings {
    /// The hardware address from which the controller sends ARP requests to hosts; no host may have it.
    pub own_mac: Mac,
    /// Limit of ARP frames, per port.
    pub arp: Rate,
    /// Limit of forwarded requests for unknown addresses, per port.
    pub unknown: Rate,
    /// Limit of requests and announcements that are sent to all edge ports, in total.
    pub floods: Rate,
    /// Maximum number of hosts at one port.
    pub hosts_per_port: usize,
    /// Maximum number of hosts in total.
    pub hosts: usize,
    /// Number of requests to a host before it counts as silent.
    pub probes: u32,
    /// Time between two of these requests.
    pub probe_gap: Nanos,
    /// The controller answers requests for a host if it received a frame from the host within this time.
    pub fresh: Nanos,
    /// After this time without a frame from a host, the controller sends it a request.
    pub idle: Nanos,
    /// After a refuted claim to an address, further claims from the same port are refused for this long.
    pub refused_for: Nanos,
    /// Whether a configured address is valid only at its configured port. If not, the controller sends a request to the
    /// configured port before it accepts the address at another port.
    pub pinned: bool,
    /// Minimum time between two equal alarms about one port.
    pub alarm_every: Nanos,
}

impl Default for HostSettings {
    fn default() -> HostSettings {
        HostSettings {
            own_mac: Mac([0x52, b'L', b'M', 0, 0, 1]),
            arp: Rate { per_s: 100, burst: 400 },
            unknown: Rate { per_s: 10, burst: 20 },
            floods: Rate { per_s: 200, burst: 200 },
            hosts_per_port: 64,
            hosts: 65_536,
            probes: 5,
            probe_gap: Nanos::from_millis(200),
            fresh: Nanos::from_secs(60),
            idle: Nanos::from_secs(300),
            refused_for: Nanos::from_secs(5),
            pinned: true,
            alarm_every: Nanos::from_secs(10),
        }
    }
}

/// Input of host learning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostInput<'a> {
    /// A port faces hosts from now on. ARP from other ports is dropped.
    EdgeUp {
        /// The port.
        place: Place,
    },
    /// A port no longer faces hosts, or lost carrier.
    EdgeDown {
        /// The port.
        place: Place,
    },
    /// According to the configuration, this address is at this port. See [`HostSettings::pinned`].
    Expected {
        /// The address.
        address: Ipv4Addr,
        /// The port.
        place: Place,
    },
    /// A host was known when the controller last ran. It gets a request as soon as its port is up. It is learnt when it
    /// answers.
    Remembered {
        /// The host.
        host: KnownHost,
    },
    /// An untagged ARP frame arrived.
    Frame {
        /// The port that received it.
        place: Place,
        /// The frame, starting with the Ethernet header.
        frame: &'a [u8],
    },
    /// The time returned by [`HostLearning::poll_timeout`] has been reached.
    Timeout,
}

/// Output of host learning.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HostOutput {
    /// A frame to send out of a port unchanged.
    Send {
        /// The port.
        place: Place,
        /// The frame, starting with the Ethernet header.
        frame: Vec<u8>,
    },
    /// A frame for a host that is at no port which is up. It may be at a switch that has no session.
    Elsewhere {
        /// The port at which the frame arrived.
        place: Place,
        /// The frame, starting with the Ethernet header.
        frame: Vec<u8>,
    },
    /// A host was learnt.
    HostLearnt {
        /// Its address.
        address: Ipv4Addr,
        /// Its hardware address.
        mac: Mac,
        /// Its port.
        place: Place,
    },
    /// A host moved, or its address now belongs to another host. No host answers at the old port any more.
    HostMoved {
        /// The address.
        address: Ipv4Addr,
        /// Its present hardware address.
        mac: Mac,
        /// Its previous port.
        from: Place,
        /// Its present port.
        to: Place,
    },
    /// A host has left: its port is down, or it sent nothing for a long time and does not answer.
    HostGone {
        /// Its address.
        address: Ipv4Addr,
        /// Its hardware address.
        mac: Mac,
        /// Its last port.
        place: Place,
    },
    /// A fault.
    Alarm(Alarm),
}

/// A known host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownHost {
    /// Its address.
    pub address: Ipv4Addr,
    /// Its hardware address.
    pub mac: Mac,
    /// Its port.
    pub place: Place,
}

/// A port that faces or faced hosts.
#[derive(Clone, Debug)]
struct Edge {
    up: bool,
    arp: TokenBucket,
    unknown: TokenBucket,
    /// Addresses known here, whether the port is up or not.
    hosts: BTreeSet<Ipv4Addr>,
}

/// Learns hosts from the ARP frames that edge switches send as packet-ins, answers requests for known hosts, and
/// forwards other requests.
///
/// The first host that sends ARP with an address owns the address. A claim is an ARP frame with this address from
/// another port or with another hardware address, or with the hardware address of a host from another port. Before the
/// controller accepts a claim, it sends [`HostSettings::probes`] requests to the owner at its old port. If the owner
/// answers, the claim raises an alarm; if not, the claim is accepted. If the owner's port is down, the claim is
/// accepted at once. (This is the host prober and the pre-condition of TopoGuard, Hong et al., NDSS 2015, §V.)
/// Configured addresses are valid only at their configured port. If they are not pinned, the controller sends a request
/// to this port before it accepts them at another port.
///
/// The controller answers a request for a known host. If it has not heard this host recently, it forwards the request
/// as a broadcast to the port of this host only. A host that got another hardware address answers it, too, and is then
/// accepted like any other claim. It forwards a request for an unknown address to the configured port or to all edge ports, but
/// never to ports between switches. It gives the driver requests and replies for hosts that it does not know, for switches
/// without a session. It learns nothing from a request that asks whether an address is free (RFC 5227
/// §2.1.1, sender 0.0.0.0). It answers such a request only for an owner that it heard recently. All of this is limited
/// per port.
///
/// Known weakness: a host can take the address of a host that is switched off. It can also take the address of a
/// neighbour at the same port, whose answers it can imitate. The controller accepts both unless the configuration
/// forbids it. ARP offers no better proof.
pub struct HostLearning {
    settings: HostSettings,
    now: Nanos,
    edges: BTreeMap<Place, Edge>,
    hosts: BTreeMap<Ipv4Addr, Host>,
    by_mac: BTreeMap<Mac, BTreeSet<Ipv4Addr>>,
    expected: BTreeMap<Ipv4Addr, Place>,
    /// Configured addresses that were claimed at other ports, and the time of the first request to their configured
    /// ports.
    presumed: BTreeMap<Ipv4Addr, Nanos>,
    /// Time of the next check of each host.
    agenda: Agenda<Ipv4Addr>,
    floods: TokenBucket,
    off_edge: u64,
    alarms: AlarmFilter,
    outputs: VecDeque<HostOutput>,
}

impl HostLearning {
    /// Starts without hosts and ports.
    pub fn new(settings: HostSettings) -> HostLearning {
        HostLearning {
            floods: TokenBucket::new(Nanos::ZERO, settings.floods),
            alarms: AlarmFilter::new(settings.alarm_every),
            settings,
            now: Nanos::ZERO,
            edges: BTreeMap::new(),
            hosts: BTreeMap::new(),
            by_mac: BTreeMap::new(),
            expected: BTreeMap::new(),
            presumed: BTreeMap::new(),
            agenda: Agenda::new(),
            off_edge: 0,
            outputs: VecDeque::new(),
        }
    }

    /// Handles an input. Time does not go backwards: if `now` is earlier than before, the latest time so far is used.
    pub fn handle(&mut self, now: Nanos, input: HostInput<'_>) {
        self.now = self.now.max(now);
        match input {
            HostInput::EdgeUp { place } => self.edge_up(place),
            HostInput::EdgeDown { place } => self.edge_down(place),
            HostInput::Expected { address, place } => drop(self.expected.insert(address, place)),
            HostInput::Remembered { host } => self.remember(host),
            HostInput::Frame { place, frame } => self.frame(place, frame),
            HostInput::Timeout => {}
        }
        while let Some(address) = self.agenda.pop(self.now) {
            self.handle_timer(address);
        }
    }

    /// Returns the next output, in order.
    pub fn poll_output(&mut self) -> Option<HostOutput> {
        self.outputs.pop_front()
    }

    /// Time at which the driver passes [`HostInput::Timeout`], if nothing else happens before.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        self.agenda.next()
    }

    /// Known hosts, in the order of their addresses.
    pub fn hosts(&self) -> impl Iterator<Item = KnownHost> + '_ {
        self.hosts.iter().filter(|(_, host)| host.present).map(|(&address, host)| host.known(address))
    }

    /// Returns the host with an address, if it is known.
    pub fn host(&self, address: Ipv4Addr) -> Option<KnownHost> {
        self.hosts.get(&address).filter(|host| host.present).map(|host| host.known(address))
    }

    /// Whether a host is known at this port.
    pub fn has_hosts(&self, place: Place) -> bool {
        self.edges.get(&place).is_some_and(|edge| edge.up && edge.hosts.iter().any(|ip| self.hosts[ip].present))
    }

    /// Number of faults of each kind, by [`AlarmKind::name`].
    pub fn alarm_counts(&self) -> &BTreeMap<&'static str, u64> {
        self.alarms.counts()
    }

    /// Number of ARP frames dropped because they arrived at ports that do not face hosts.
    pub fn off_edge(&self) -> u64 {
        self.off_edge
    }

    fn edge_up(&mut self, place: Place) {
        let edge = self.edge(place);
        edge.up = true;
        // Hosts that were here before the port went down may be here again.
        for address in edge.hosts.clone() {
            if !self.hosts[&address].present {
                self.ask(address, None);
            }
        }
    }

    /// Returns the entry of a port. Creates it if it does not exist; a new entry is not up.
    fn edge(&mut self, place: Place) -> &mut Edge {
        let (now, settings) = (self.now, &self.settings);
        self.edges.entry(place).or_insert_with(|| Edge {
            up: false,
            arp: TokenBucket::new(now, settings.arp),
            unknown: TokenBucket::new(now, settings.unknown),
            hosts: BTreeSet::new(),
        })
    }

    fn edge_down(&mut self, place: Place) {
        let Some(edge) = self.edges.get_mut(&place).filter(|edge| edge.up) else { return };
        edge.up = false;
        for address in edge.hosts.clone() {
            self.handle_port_loss(address);
        }
    }

    fn frame(&mut self, place: Place, frame: &[u8]) {
        let Some(edge) = self.edges.get_mut(&place).filter(|edge| edge.up) else {
            self.off_edge += 1;
            return;
        };
        if !edge.arp.take(self.now) {
            return self.alarm(place, AlarmKind::ArpFlood);
        }
        let own_mac = self.settings.own_mac;
        match Arp::parse(frame) {
            Err(error) => self.alarm(place, AlarmKind::BadArp(error)),
            Ok(arp) if arp.sender_mac == own_mac => self.alarm(place, AlarmKind::BadArp(ArpError::SenderMac)),
            Ok(arp) if arp.is_probe() => self.serve_probe(place, &arp),
            Ok(arp) => {
                if self.claim(KnownHost { address: arp.sender_ip, mac: arp.sender_mac, place }) {
                    self.serve(place, &arp);
                }
            }
        }
    }

    fn alarm(&mut self, place: Place, kind: AlarmKind) {
        let alarm = self.alarms.raise(self.now, place, kind);
        self.outputs.extend(alarm.map(HostOutput::Alarm));
    }

    fn send(&mut self, place: Place, arp: &Arp) {
        self.outputs.push_back(HostOutput::Send { place, frame: arp.emit() });
    }
}
