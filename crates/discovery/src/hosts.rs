//! Which host is where, learnt from ARP: see [`HostLearning`].

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

/// How hosts are learnt, and how much of it a port may cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostSettings {
    /// From this address the controller asks hosts whether they are there; no host may have it.
    pub own_mac: Mac,
    /// ARP frames looked at, per port.
    pub arp: Rate,
    /// Questions for unknown addresses passed on, per port.
    pub unknown: Rate,
    /// Questions for unknown addresses passed on to all edge ports, in all.
    pub floods: Rate,
    /// Hosts at one port.
    pub hosts_per_port: usize,
    /// Hosts in all.
    pub hosts: usize,
    /// Questions to a host before it is taken for silent.
    pub probes: u32,
    /// Between two of them.
    pub probe_gap: Nanos,
    /// A host heard of within this time is answered for.
    pub fresh: Nanos,
    /// A host not heard of for this long is asked whether it is still there.
    pub idle: Nanos,
    /// A claim to the address of a live host is not looked at again for this long.
    pub refused_for: Nanos,
    /// Whether an address of the configuration is at its port and nowhere else. If not, its configured port is asked for
    /// it before it is believed elsewhere.
    pub pinned: bool,
    /// The same alarm about one port is said at most so often.
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

/// What host learning is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostInput<'a> {
    /// A port faces hosts from now on. ARP from other ports is not looked at.
    EdgeUp {
        /// The port.
        place: Place,
    },
    /// A port faces hosts no more, or lost carrier.
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
    /// A host was there when the controller last ran. It is asked as soon as its port is up, and counts from its answer on.
    Remembered {
        /// The host.
        host: KnownHost,
    },
    /// An ARP frame came in, untagged.
    Frame {
        /// By this port.
        place: Place,
        /// From the Ethernet header on.
        frame: &'a [u8],
    },
    /// The time that [`HostLearning::poll_timeout`] named has come.
    Timeout,
}

/// What host learning says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HostOutput {
    /// To be sent out of a port as it is.
    Send {
        /// The port.
        place: Place,
        /// From the Ethernet header on.
        frame: Vec<u8>,
    },
    /// A host is there.
    HostLearnt {
        /// Its address.
        address: Ipv4Addr,
        /// Its hardware address.
        mac: Mac,
        /// Its port.
        place: Place,
    },
    /// A host is elsewhere, or its address belongs to another one now: at the old place nobody answers any more.
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
    /// A host is there no more: its port is down, or it was silent for long and does not answer.
    HostGone {
        /// Its address.
        address: Ipv4Addr,
        /// Its hardware address.
        mac: Mac,
        /// Where it was.
        place: Place,
    },
    /// Something is wrong.
    Alarm(Alarm),
}

/// A host that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownHost {
    /// Its address.
    pub address: Ipv4Addr,
    /// Its hardware address.
    pub mac: Mac,
    /// Its port.
    pub place: Place,
}

/// A port that faces, or faced, hosts.
#[derive(Clone, Debug)]
struct Edge {
    up: bool,
    arp: Bucket,
    unknown: Bucket,
    /// Addresses known here, whether the port is up or not.
    hosts: BTreeSet<Ipv4Addr>,
}

/// Learns hosts from the ARP frames that edge switches hand up, answers for those it knows, and passes on what it must.
///
/// Who speaks first for an address has it. Whoever claims it afterwards from another port or with another hardware
/// address (and whoever uses the hardware address of a host elsewhere) is not believed before the owner has been asked
/// at its old place, [`HostSettings::probes`] times, and kept silent; an owner that answers makes the claim an alarm.
/// An owner whose port is down has left: the claim holds at once. (This is the host prober and the pre-condition of
/// TopoGuard, Hong et al., NDSS 2015, §V.) Addresses of the configuration are at their port and nowhere else, or, where
/// they are not pinned, their port is asked before they are believed elsewhere.
///
/// A question for a known host is answered here, or passed on to it alone if it was not heard of lately; one for an
/// unknown address goes to its configured port, or to all edge ports, never to ports between switches. The question
/// whether an address is free (RFC 5227 §2.1.1, sender 0.0.0.0) teaches nothing, and is answered only for an owner that
/// was heard of lately. All of it is limited per port.
///
/// What it cannot tell: a host that takes the address of one that is switched off, or of a neighbour on the same port
/// whose answers it can imitate, is believed, unless the configuration says otherwise. ARP has nothing to prove more by.
pub struct HostLearning {
    settings: HostSettings,
    now: Nanos,
    edges: BTreeMap<Place, Edge>,
    hosts: BTreeMap<Ipv4Addr, Host>,
    by_mac: BTreeMap<Mac, BTreeSet<Ipv4Addr>>,
    expected: BTreeMap<Ipv4Addr, Place>,
    /// Addresses of the configuration that somebody shows elsewhere, and when their own ports were asked first.
    presumed: BTreeMap<Ipv4Addr, Nanos>,
    /// When to look after which host.
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

    /// Takes in what happened. Time never goes back: an earlier `now` counts as the latest.
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

    /// The next thing to be done, in order.
    pub fn poll_output(&mut self) -> Option<HostOutput> {
        self.outputs.pop_front()
    }

    /// When [`HostInput::Timeout`] is wanted, if nothing else happens before.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        self.agenda.next()
    }

    /// Hosts that are there, by address.
    pub fn hosts(&self) -> impl Iterator<Item = KnownHost> + '_ {
        self.hosts.iter().filter(|(_, host)| host.plugged).map(|(&address, host)| host.known(address))
    }

    /// The host with an address, if it is there.
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

    /// ARP frames dropped because they came in by ports that do not face hosts.
    pub fn off_edge(&self) -> u64 {
        self.off_edge
    }

    fn edge_up(&mut self, place: Place) {
        let edge = self.edge(place);
        edge.up = true;
        // Those that were here before the port went down may be here again.
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
