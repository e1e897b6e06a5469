//! Links and hosts together, for a driver: see [`Discovery`].

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
        /// All its ports.
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
        /// The port it came in by.
        place: Place,
        /// From the Ethernet header on.
        frame: &'a [u8],
    },
    /// By configuration, this address is at this port and nowhere else.
    Expected {
        /// The address.
        address: Ipv4Addr,
        /// The port.
        place: Place,
    },
    /// See [`HostInput::Remembered`].
    Remembered {
        /// The host.
        host: KnownHost,
    },
    /// The time of [`Discovery::poll_timeout`] has come.
    Timeout,
}

/// Output of discovery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// A frame to send out of a port unchanged: a packet-out with one output action.
    Send {
        /// The port.
        place: Place,
        /// From the Ethernet header on.
        frame: Vec<u8>,
    },
    /// See [`LinkOutput::LinkUp`].
    LinkUp {
        /// The end with the lower switch and port.
        a: Place,
        /// The other end.
        b: Place,
    },
    /// See [`LinkOutput::LinkDown`].
    LinkDown {
        /// The end with the lower switch and port.
        a: Place,
        /// The other end.
        b: Place,
        /// Why.
        why: LinkLoss,
    },
    /// See [`LinkOutput::EdgeUp`].
    EdgeUp {
        /// The port.
        place: Place,
    },
    /// See [`LinkOutput::EdgeDown`].
    EdgeDown {
        /// The port.
        place: Place,
    },
    /// See [`HostOutput::HostLearnt`].
    HostLearnt {
        /// Its address.
        address: Ipv4Addr,
        /// Its hardware address.
        mac: Mac,
        /// Its port.
        place: Place,
    },
    /// See [`HostOutput::HostMoved`].
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
    /// See [`HostOutput::HostGone`].
    HostGone {
        /// Its address.
        address: Ipv4Addr,
        /// Its hardware address.
        mac: Mac,
        /// Its last port.
        place: Place,
    },
    /// A fault, for the log: once per offender and time span.
    Alarm(Alarm),
}

/// [`LinkDiscovery`] and [`HostLearning`], connected: ports without a switch face hosts, and ports with hosts are not
/// ends of links.
pub struct Discovery {
    links: LinkDiscovery,
    hosts: HostLearning,
    outputs: VecDeque<Output>,
}

impl Discovery {
    /// Starts without switches. `secret` must come from real randomness at each start of the controller; `rng` spreads
    /// probes over time.
    pub fn new(probes: ProbeSettings, hosts: HostSettings, secret: [u8; 32], rng: Pcg64) -> Discovery {
        Discovery {
            links: LinkDiscovery::new(probes, ProbeKey::new(secret), rng),
            hosts: HostLearning::new(hosts),
            outputs: VecDeque::new(),
        }
    }

    /// Handles an input. Time never goes back: an earlier `now` counts as the latest.
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

    /// The next output, in order.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to pass [`Input::Timeout`], if nothing else happens before.
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

    /// How often each kind of trouble happened, by the name of its kind.
    pub fn alarm_counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = self.links.alarm_counts().clone();
        for (&name, &count) in self.hosts.alarm_counts() {
            *counts.entry(name).or_default() += count;
        }
        counts
    }

    /// Passes outputs of each half to the other until neither has a new one. This ends, because hosts only make ports
    /// edge ports, and a port reports once that it became one.
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
            HostOutput::Send { .. } | HostOutput::Alarm(_) => (None, None),
        };
        self.outputs.push_back(match output {
            HostOutput::Send { place, frame } => Output::Send { place, frame },
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
