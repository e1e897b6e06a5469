//! The port of each host, learnt from ARP: see [`HostLearning`].

mod claims;
mod serving;

use crate::agenda::Agenda;
use crate::alarm::{Alarm, AlarmFilter, Trouble};
use crate::arp::{Arp, ArpError};
use crate::limits::{Bucket, Rate};
use crate::{Mac, Place};
use claims::Host;
use pathloom_model::Nanos;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;

/// How hosts are learnt, with limits per port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostSettings {
    /// The hardware address from which the controller sends ARP requests to hosts; no host may have it.
    pub own_mac: Mac,
    /// Limit of ARP frames, per port.
    pub arp: Rate,
    /// Limit of forwarded requests for unknown addresses, per port.
    pub unknown: Rate,
    /// Limit of requests for unknown addresses forwarded to all edge ports, in total.
    pub floods: Rate,
    /// Maximum number of hosts at one port.
    pub hosts_per_port: usize,
    /// Maximum number of hosts in total.
    pub hosts: usize,
    /// Number of requests to a host before it counts as silent.
    pub probes: u32,
    /// Time between two of these requests.
    pub probe_gap: Nanos,
    /// The controller answers for a host that it heard within this time.
    pub fresh: Nanos,
    /// After this time without a frame from a host, the controller sends it a request.
    pub idle: Nanos,
    /// After a refuted claim to an address, further claims from the same port are refused for this long.
    pub refused_for: Nanos,
    /// Whether a configured address is valid only at its port. If not, the controller asks at its configured port
    /// before it accepts the address at another one.
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
    /// By configuration, this address is at this port; see [`HostSettings::pinned`].
    Expected {
        /// The address.
        address: Ipv4Addr,
        /// The port.
        place: Place,
    },
    /// A host was known when the controller last ran. It gets a request as soon as its port is up, and is learnt when
    /// it answers.
    Remembered {
        /// The host.
        host: KnownHost,
    },
    /// An untagged ARP frame arrived.
    Frame {
        /// At this port.
        place: Place,
        /// From the Ethernet header on.
        frame: &'a [u8],
    },
    /// The time of [`HostLearning::poll_timeout`] has come.
    Timeout,
}

/// Output of host learning.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HostOutput {
    /// A frame to send out of a port unchanged.
    Send {
        /// The port.
        place: Place,
        /// From the Ethernet header on.
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
    /// A host moved, or its address belongs to another host now. At the old port nobody answers any more.
    HostMoved {
        /// The address.
        address: Ipv4Addr,
        /// The hardware address it has now.
        mac: Mac,
        /// Its port until now.
        from: Place,
        /// Its port from now on.
        to: Place,
    },
    /// A host has gone: its port is down, or it was silent for long and does not answer.
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
    arp: Bucket,
    unknown: Bucket,
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
/// Configured addresses are valid only at their port. If they are not pinned, the controller asks at their port before
/// it accepts them elsewhere.
///
/// The controller answers a request for a known host, or forwards it only to this host if it has not heard it recently.
/// It forwards a request for an unknown address to the configured port or to all edge ports, never to ports between
/// switches. From a request whether an address is free (RFC 5227 §2.1.1, sender 0.0.0.0) it learns nothing. It answers
/// such a request only for an owner that it heard recently. All of this is limited per port.
///
/// Limits: the controller accepts a host that takes the address of a host that is switched off, or of a neighbour on
/// the same port whose answers it can imitate, unless the configuration forbids it. ARP offers no better proof.
pub struct HostLearning {
    settings: HostSettings,
    now: Nanos,
    edges: BTreeMap<Place, Edge>,
    hosts: BTreeMap<Ipv4Addr, Host>,
    by_mac: BTreeMap<Mac, BTreeSet<Ipv4Addr>>,
    expected: BTreeMap<Ipv4Addr, Place>,
    /// Configured addresses that were claimed at other ports, and when their own ports were first asked.
    presumed: BTreeMap<Ipv4Addr, Nanos>,
    /// When to check which host.
    agenda: Agenda<Ipv4Addr>,
    floods: Bucket,
    off_edge: u64,
    alarms: AlarmFilter,
    outputs: VecDeque<HostOutput>,
}

impl HostLearning {
    /// Starts without hosts and ports.
    pub fn new(settings: HostSettings) -> HostLearning {
        HostLearning {
            floods: Bucket::new(Nanos::ZERO, settings.floods),
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

    /// Handles an input. Time never goes back: an earlier `now` counts as the latest.
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
            self.look_after(address);
        }
    }

    /// The next output, in order.
    pub fn poll_output(&mut self) -> Option<HostOutput> {
        self.outputs.pop_front()
    }

    /// When to pass [`HostInput::Timeout`], if nothing else happens before.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        self.agenda.next()
    }

    /// Known hosts, by address.
    pub fn hosts(&self) -> impl Iterator<Item = KnownHost> + '_ {
        self.hosts.iter().filter(|(_, host)| host.plugged).map(|(&address, host)| host.known(address))
    }

    /// The host with an address, if it is known.
    pub fn host(&self, address: Ipv4Addr) -> Option<KnownHost> {
        self.hosts.get(&address).filter(|host| host.plugged).map(|host| host.known(address))
    }

    /// Whether a host is at this port.
    pub fn has_hosts(&self, place: Place) -> bool {
        self.edges.get(&place).is_some_and(|edge| edge.up && edge.hosts.iter().any(|ip| self.hosts[ip].plugged))
    }

    /// How often each kind of trouble happened, by [`Trouble::name`].
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
        // Hosts from before the port went down may be here again.
        for address in edge.hosts.clone() {
            if !self.hosts[&address].plugged {
                self.ask(address, None);
            }
        }
    }

    /// The entry of a port; a new one is not up.
    fn edge(&mut self, place: Place) -> &mut Edge {
        let (now, settings) = (self.now, &self.settings);
        self.edges.entry(place).or_insert_with(|| Edge {
            up: false,
            arp: Bucket::new(now, settings.arp),
            unknown: Bucket::new(now, settings.unknown),
            hosts: BTreeSet::new(),
        })
    }

    fn edge_down(&mut self, place: Place) {
        let Some(edge) = self.edges.get_mut(&place).filter(|edge| edge.up) else { return };
        edge.up = false;
        for address in edge.hosts.clone() {
            self.unplug(address);
        }
    }

    fn frame(&mut self, place: Place, frame: &[u8]) {
        let Some(edge) = self.edges.get_mut(&place).filter(|edge| edge.up) else {
            self.off_edge += 1;
            return;
        };
        if !edge.arp.take(self.now) {
            return self.alarm(place, Trouble::ArpFlood);
        }
        let own_mac = self.settings.own_mac;
        match Arp::parse(frame) {
            Err(error) => self.alarm(place, Trouble::BadArp(error)),
            Ok(arp) if arp.sender_mac == own_mac => self.alarm(place, Trouble::BadArp(ArpError::SenderMac)),
            Ok(arp) if arp.is_probe() => self.serve_probe(place, &arp),
            Ok(arp) => {
                if self.claim(KnownHost { address: arp.sender_ip, mac: arp.sender_mac, place }) {
                    self.serve(place, &arp);
                }
            }
        }
    }

    fn alarm(&mut self, place: Place, what: Trouble) {
        let alarm = self.alarms.raise(self.now, place, what);
        self.outputs.extend(alarm.map(HostOutput::Alarm));
    }

    fn send(&mut self, place: Place, arp: &Arp) {
        self.outputs.push_back(HostOutput::Send { place, frame: arp.emit() });
    }
}
