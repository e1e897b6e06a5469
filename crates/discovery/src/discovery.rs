//! Link discovery and host learning combined: see [`Discovery`].

use crate::alarm::Alarm;
use crate::arp::ARP_ETHERTYPE;
use crate::hosts::{HostInput, HostLearning, HostOutput, HostSettings, KnownHost};
use crate::links::{LinkDiscovery, LinkInput, LinkLoss, LinkOutput, PortState, ProbeSettings};
use crate::lldp::{ProbeKey, LLDP_ETHERTYPE};
use crate::{Dpid, Mac, Place};
use pathloom_model::Nanos;
use rand_pcg::Pcg64;
use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;

/// Input of discovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input<'a> {
    /// A session to a switch is up. See [`LinkDiscovery::is_duplicate`].
    SwitchUp {
        /// The switch.
        dpid: Dpid,
        /// All ports of the switch.
        ports: &'a [PortState],
    },
    /// The session to a switch was lost.
    SwitchDown {
        /// The switch.
        dpid: Dpid,
    },
    /// A port was added or has changed.
    PortStatus {
        /// The switch.
        dpid: Dpid,
        /// The port as it is now.
        state: PortState,
    },
    /// A port was removed.
    PortRemoved {
        /// The port.
        place: Place,
    },
    /// A packet-in. Discovery ignores frames other than LLDP and ARP.
    PacketIn {
        /// The port that received the frame.
        place: Place,
        /// The frame, starting with the Ethernet header.
        frame: &'a [u8],
    },
    /// According to the configuration, this address is at this port. See [`HostInput::Expected`].
    Expected {
        /// The address.
        address: Ipv4Addr,
        /// The port.
        place: Place,
    },
    /// A host was known when the controller last ran. See [`HostInput::Remembered`].
    Remembered {
        /// The host.
        host: KnownHost,
    },
    /// The time returned by [`Discovery::poll_timeout`] has been reached.
    Timeout,
}

/// Output of discovery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// A frame to send out of a port unchanged: a packet-out with one output action.
    Send {
        /// The port.
        place: Place,
        /// The frame, starting with the Ethernet header.
        frame: Vec<u8>,
    },
    /// A frame for a host that may be at a switch without a session. See [`HostOutput::Elsewhere`].
    Elsewhere {
        /// The port at which the frame arrived.
        place: Place,
        /// The frame, starting with the Ethernet header.
        frame: Vec<u8>,
    },
    /// A link is up. See [`LinkOutput::LinkUp`].
    LinkUp {
        /// The end with the lower switch and port.
        a: Place,
        /// The other end.
        b: Place,
    },
    /// A link is down. See [`LinkOutput::LinkDown`].
    LinkDown {
        /// The end with the lower switch and port.
        a: Place,
        /// The other end.
        b: Place,
        /// The reason.
        why: LinkLoss,
    },
    /// A port faces hosts. See [`LinkOutput::EdgeUp`].
    EdgeUp {
        /// The port.
        place: Place,
    },
    /// A port no longer faces hosts. See [`LinkOutput::EdgeDown`].
    EdgeDown {
        /// The port.
        place: Place,
    },
    /// A host was learnt. See [`HostOutput::HostLearnt`].
    HostLearnt {
        /// Its address.
        address: Ipv4Addr,
        /// Its hardware address.
        mac: Mac,
        /// Its port.
        place: Place,
    },
    /// A host moved to another port. See [`HostOutput::HostMoved`].
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
    /// A host has left. See [`HostOutput::HostGone`].
    HostGone {
        /// Its address.
        address: Ipv4Addr,
        /// Its hardware address.
        mac: Mac,
        /// Its last port.
        place: Place,
    },
    /// A fault, for the log. Each kind of fault is reported at most once per port and time span.
    Alarm(Alarm),
}

/// Combines [`LinkDiscovery`] and [`HostLearning`]: a port where no switch answers faces hosts, and a port with a host
/// is not the end of a link.
pub struct Discovery {
    links: LinkDiscovery,
    hosts: HostLearning,
    outputs: VecDeque<Output>,
}

impl Discovery {
    /// Starts without switches. `secret` must be drawn from real randomness at each start of the controller. `rng`
    /// spreads probes over time.
    pub fn new(probes: ProbeSettings, hosts: HostSettings, secret: [u8; 32], rng: Pcg64) -> Discovery {
        Discovery {
            links: LinkDiscovery::new(probes, ProbeKey::new(secret), rng),
            hosts: HostLearning::new(hosts),
            outputs: VecDeque::new(),
        }
    }

    /// Handles an input. Time does not go backwards: if `now` is earlier than before, the latest time so far is used.
    pub fn handle(&mut self, now: Nanos, input: Input<'_>) {
        match input {
            Input::SwitchUp { dpid, ports } => self.links.handle(now, LinkInput::SwitchUp { dpid, ports }),
            Input::SwitchDown { dpid } => self.links.handle(now, LinkInput::SwitchDown { dpid }),
            Input::PortStatus { dpid, state } => self.links.handle(now, LinkInput::PortStatus { dpid, state }),
            Input::PortRemoved { place } => self.links.handle(now, LinkInput::PortRemoved { place }),
            Input::PacketIn { place, frame } => match ethertype(frame) {
                Some(LLDP_ETHERTYPE) => self.links.handle(now, LinkInput::Frame { place, frame }),
                Some(ARP_ETHERTYPE) => self.hosts.handle(now, HostInput::Frame { place, frame }),
                _ => {}
            },
            Input::Expected { address, place } => self.hosts.handle(now, HostInput::Expected { address, place }),
            Input::Remembered { host } => self.hosts.handle(now, HostInput::Remembered { host }),
            Input::Timeout => {
                self.links.handle(now, LinkInput::Timeout);
                self.hosts.handle(now, HostInput::Timeout);
            }
        }
        self.pass_on(now);
    }

    /// Returns the next output, in order.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Time at which the driver passes [`Input::Timeout`], if nothing else happens before.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        [self.links.poll_timeout(), self.hosts.poll_timeout()].into_iter().flatten().min()
    }

    /// The state of links.
    pub fn links(&self) -> &LinkDiscovery {
        &self.links
    }

    /// The state of hosts.
    pub fn hosts(&self) -> &HostLearning {
        &self.hosts
    }

    /// Number of faults of each kind, by [`crate::AlarmKind::name`].
    pub fn alarm_counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = self.links.alarm_counts().clone();
        for (&name, &count) in self.hosts.alarm_counts() {
            *counts.entry(name).or_default() += count;
        }
        counts
    }

    /// Passes the outputs of link discovery to host learning and vice versa, until neither has a new one. The loop ends
    /// because host learning can only turn ports into edge ports, and each port reports this only once.
    fn pass_on(&mut self, now: Nanos) {
        loop {
            while let Some(output) = self.links.poll_output() {
                self.take_links(now, output);
            }
            let Some(output) = self.hosts.poll_output() else { return };
            self.take_hosts(now, output);
        }
    }

    fn take_links(&mut self, now: Nanos, output: LinkOutput) {
        self.outputs.push_back(match output {
            LinkOutput::Send { place, frame } => Output::Send { place, frame },
            LinkOutput::LinkUp { a, b } => Output::LinkUp { a, b },
            LinkOutput::LinkDown { a, b, why } => Output::LinkDown { a, b, why },
            LinkOutput::EdgeUp { place } => {
                self.hosts.handle(now, HostInput::EdgeUp { place });
                Output::EdgeUp { place }
            }
            LinkOutput::EdgeDown { place } => {
                self.hosts.handle(now, HostInput::EdgeDown { place });
                Output::EdgeDown { place }
            }
            LinkOutput::Alarm(alarm) => Output::Alarm(alarm),
        });
    }

    fn take_hosts(&mut self, now: Nanos, output: HostOutput) {
        let (seen, left) = match output {
            HostOutput::HostLearnt { place, .. } => (Some(place), None),
            HostOutput::HostMoved { from, to, .. } => (Some(to), Some(from)),
            HostOutput::HostGone { place, .. } => (None, Some(place)),
            HostOutput::Send { .. } | HostOutput::Elsewhere { .. } | HostOutput::Alarm(_) => (None, None),
        };
        self.outputs.push_back(match output {
            HostOutput::Send { place, frame } => Output::Send { place, frame },
            HostOutput::Elsewhere { place, frame } => Output::Elsewhere { place, frame },
            HostOutput::HostLearnt { address, mac, place } => Output::HostLearnt { address, mac, place },
            HostOutput::HostMoved { address, mac, from, to } => Output::HostMoved { address, mac, from, to },
            HostOutput::HostGone { address, mac, place } => Output::HostGone { address, mac, place },
            HostOutput::Alarm(alarm) => Output::Alarm(alarm),
        });
        if let Some(place) = seen {
            self.links.handle(now, LinkInput::HostSeen { place });
        }
        if let Some(place) = left.filter(|&place| !self.hosts.has_hosts(place)) {
            self.links.handle(now, LinkInput::HostsGone { place });
        }
    }
}

fn ethertype(frame: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(*frame.get(12..)?.first_chunk()?))
}
