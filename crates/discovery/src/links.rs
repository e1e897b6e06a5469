//! Discovery of the cables between switch ports by probes: see [`LinkDiscovery`].

mod hearing;
mod ports;
mod probing;

use crate::agenda::Agenda;
use crate::alarm::{Alarm, AlarmFilter, AlarmKind};
use crate::limits::Rate;
use crate::lldp::ProbeKey;
use crate::{Dpid, Mac, Place};
use pathloom_model::{Nanos, PortNo};
use ports::{Port, Switch};
use probing::Probing;
use rand_pcg::Pcg64;
use std::collections::{BTreeMap, VecDeque};

/// Settings of probing. With the defaults, a link is found within 100 ms, and a silent link counts as down within 8 s:
/// `interval` until the next probe, plus `silence`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProbeSettings {
    /// Longest time between two probe rounds of a switch. A round probes all ports of the switch that are part of a
    /// link or face hosts, one right after the other, so that the switch wakes up only once.
    pub interval: Nanos,
    /// Longest time between probes of any other port, for example one whose link became silent.
    pub idle_interval: Nanos,
    /// Time between the first two probes after a port came up. It doubles from probe to probe.
    pub first_gap: Nanos,
    /// Time after which a link is probed again if its last probe has not arrived.
    pub retry: Nanos,
    /// A link is down if none of its probes has arrived for this long, counted from the first probe that did not
    /// arrive.
    pub silence: Nanos,
    /// Minimum number of missing probes before a link is down.
    pub missed: u32,
    /// A probe older than this is refused. This limits relays. It must exceed the delay of two control channels.
    pub max_age: Nanos,
    /// A port faces hosts if no probe arrived there for this long after it came up.
    pub settle: Nanos,
    /// How long links of a switch without a session count as up, because the switch still forwards.
    pub session_grace: Nanos,
    /// Limit of probes sent by all ports together.
    pub sends: Rate,
    /// Limit of received LLDP frames, per port.
    pub lldp: Rate,
    /// Minimum time between two equal alarms about one port.
    pub alarm_every: Nanos,
}

impl Default for ProbeSettings {
    fn default() -> ProbeSettings {
        ProbeSettings {
            interval: Nanos::from_secs(5),
            idle_interval: Nanos::from_secs(5),
            first_gap: Nanos::from_millis(20),
            retry: Nanos::from_millis(250),
            silence: Nanos::from_secs(3),
            missed: 3,
            max_age: Nanos::from_millis(500),
            settle: Nanos::from_millis(300),
            session_grace: Nanos::from_secs(60),
            sends: Rate { per_s: 20_000, burst: 64 },
            lldp: Rate { per_s: 100, burst: 50 },
            alarm_every: Nanos::from_secs(10),
        }
    }
}

impl ProbeSettings {
    /// How long a probe that has arrived counts as recent, for a direction without a link that is up.
    fn window(&self) -> Nanos {
        self.silence.saturating_add(self.max_age)
    }
}

/// A port as a switch describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortState {
    /// Its number. Discovery ignores 0 and numbers above 0xffffff00 (reserved numbers, such as that of the local
    /// port; OpenFlow 1.3.5 §7.2.1).
    pub port: PortNo,
    /// Its hardware address.
    pub mac: Mac,
    /// Whether it has carrier and is not disabled.
    pub up: bool,
}

/// Input of link discovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkInput<'a> {
    /// A session to a switch is up. See [`LinkDiscovery::is_duplicate`].
    SwitchUp {
        /// The switch.
        dpid: Dpid,
        /// All ports of the switch.
        ports: &'a [PortState],
    },
    /// The session to a switch was lost. Its links stay up for [`ProbeSettings::session_grace`].
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
    /// An LLDP frame arrived.
    Frame {
        /// The port that received it.
        place: Place,
        /// The frame, starting with the Ethernet header.
        frame: &'a [u8],
    },
    /// A host is known at this port. The driver passes this only for ports of [`LinkOutput::EdgeUp`], or if the
    /// configuration contains the host, because frames of hosts also cross ports between switches.
    HostSeen {
        /// The port.
        place: Place,
    },
    /// No host is known at this port any more.
    HostsGone {
        /// The port.
        place: Place,
    },
    /// The time returned by [`LinkDiscovery::poll_timeout`] has been reached.
    Timeout,
}

/// Reason why a link went down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkLoss {
    /// One of its ports lost carrier or was removed.
    PortDown,
    /// Its probes do not arrive any more.
    Silent,
    /// The session to one of its switches was lost for too long.
    SwitchGone,
    /// The link may be a relay. An alarm gives the reason.
    Doubtful,
}

/// Output of link discovery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkOutput {
    /// A frame to send out of a port unchanged.
    Send {
        /// The port.
        place: Place,
        /// The frame, starting with the Ethernet header.
        frame: Vec<u8>,
    },
    /// A link is up: probes arrive in both directions.
    LinkUp {
        /// The end with the lower switch and port.
        a: Place,
        /// The other end.
        b: Place,
    },
    /// The link must not be used any more.
    LinkDown {
        /// The end with the lower switch and port.
        a: Place,
        /// The other end.
        b: Place,
        /// The reason.
        why: LinkLoss,
    },
    /// The port faces hosts: it is up, and no switch answers there.
    EdgeUp {
        /// The port.
        place: Place,
    },
    /// The port no longer faces hosts.
    EdgeDown {
        /// The port.
        place: Place,
    },
    /// A fault.
    Alarm(Alarm),
}

/// Things to do later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Timer {
    /// Check whether probes from a port still arrive.
    Check(Place),
    /// A port that flapped has been stable for long enough.
    Quiet(Place),
    /// No switch has answered at a port for long enough.
    Settle(Place),
    /// The session of a switch has been lost for long enough.
    Grace(Dpid),
}

/// Finds the cables between switches and notices when they break.
///
/// Each port sends probes ([`crate::lldp`]): often after it came up, and rarely once its neighbour is known. Then all
/// ports of a switch are probed together in rounds, at most [`ProbeSettings::interval`] apart. The rounds of different
/// switches are spread over time. A link is up when probes arrive in both directions. It is down at once when one of
/// its ports loses carrier. If one of its probes does not arrive, more are sent, and the link is down after
/// [`ProbeSettings::silence`] without an arrival. Loops do no harm, because a probe crosses only one cable.
///
/// An attacker who controls hosts cannot
///
/// - forge or change a probe (it is signed);
/// - reuse a probe (it has a time stamp and is valid for one arrival) or a probe of an earlier start (the key differs);
/// - create a link between ports with known hosts (these ports get no probes, and a probe that arrives there raises an
///   alarm);
/// - replace a link that is up;
/// - overload the controller (there is a limit per port).
///
/// One attack looks like a cable: two hosts that never sent anything else relay each other's probes, in both
/// directions, within [`ProbeSettings::max_age`]. This false link goes down when one of them is detected as a host
/// ([`LinkInput::HostSeen`]). If the cabling is configured, [`crate::cabling::compare`] reports its ports as miscabled.
/// When a port loses carrier, its hosts are forgotten, because its cable may have been changed. So a host that can
/// switch its port off can become such a relay again. On a hub, a link may be up for a short time, between the first
/// and the second arrival of a probe.
pub struct LinkDiscovery {
    settings: ProbeSettings,
    now: Nanos,
    switches: BTreeMap<Dpid, Switch>,
    ports: BTreeMap<Place, Port>,
    timers: Agenda<Timer>,
    probing: Probing,
    alarms: AlarmFilter,
    outputs: VecDeque<LinkOutput>,
}

impl LinkDiscovery {
    /// Starts without switches. `key` must be new at each start of the controller; `rng` spreads probes over time.
    pub fn new(settings: ProbeSettings, key: ProbeKey, rng: Pcg64) -> LinkDiscovery {
        LinkDiscovery {
            alarms: AlarmFilter::new(settings.alarm_every),
            settings,
            now: Nanos::ZERO,
            switches: BTreeMap::new(),
            ports: BTreeMap::new(),
            timers: Agenda::new(),
            probing: Probing::new(settings, key, rng),
            outputs: VecDeque::new(),
        }
    }

    /// Handles an input. Time does not go backwards: if `now` is earlier than before, the latest time so far is used.
    pub fn handle(&mut self, now: Nanos, input: LinkInput<'_>) {
        self.now = self.now.max(now);
        match input {
            LinkInput::SwitchUp { dpid, ports } => self.switch_up(dpid, ports),
            LinkInput::SwitchDown { dpid } => self.switch_down(dpid),
            LinkInput::PortStatus { dpid, state } => self.port_status(dpid, state),
            LinkInput::PortRemoved { place } => self.port_removed(place),
            LinkInput::Frame { place, frame } => self.frame(place, frame),
            LinkInput::HostSeen { place } => self.host_seen(place),
            LinkInput::HostsGone { place } => self.hosts_gone(place),
            LinkInput::Timeout => {}
        }
        while let Some(timer) = self.timers.pop(self.now) {
            self.fire(timer);
        }
        while let Some(dpid) = self.probing.pop_round(self.now) {
            self.round(dpid);
        }
        while let Some(place) = self.probing.pop(self.now) {
            self.send(place);
        }
    }

    /// Returns the next output, in order.
    pub fn poll_output(&mut self) -> Option<LinkOutput> {
        self.outputs.pop_front()
    }

    /// Time at which the driver passes [`LinkInput::Timeout`], if nothing else happens before.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        [self.timers.next(), self.probing.next()].into_iter().flatten().min()
    }

    /// Whether `ports` belong to another switch than the one that has a session with this datapath identifier. In this
    /// case the driver should close the session of the new switch. If the driver reports this session as up anyway,
    /// discovery ignores it and raises an alarm.
    ///
    /// Switches are distinguished by the hardware addresses of their ports. When a switch reconnects, at least one port
    /// has the same number and address as before.
    pub fn is_duplicate(&self, dpid: Dpid, ports: &[PortState]) -> bool {
        let standing = self.switches.get(&dpid).is_some_and(|switch| switch.session);
        let known = |state: &PortState| self.port(dpid, state.port).is_some_and(|port| port.mac == state.mac);
        standing && !ports.iter().any(known) && self.ports_of(dpid).next().is_some()
    }

    /// Number of faults of each kind, by [`AlarmKind::name`].
    pub fn alarm_counts(&self) -> &BTreeMap<&'static str, u64> {
        self.alarms.counts()
    }

    /// Links that are up, the lower end first, in ascending order.
    pub fn links(&self) -> impl Iterator<Item = (Place, Place)> + '_ {
        self.ports.iter().filter_map(|(&place, port)| port.link.filter(|&peer| place < peer).map(|peer| (place, peer)))
    }

    /// Returns the other end of the link of a port, if the port is part of a link.
    pub fn peer(&self, place: Place) -> Option<Place> {
        self.ports.get(&place)?.link
    }

    /// Shortest travel time of the last probes from a port: from the controller to the switch, over the link, and back
    /// to the controller.
    pub fn probe_time(&self, place: Place) -> Option<Nanos> {
        self.ports.get(&place)?.took.iter().flatten().min().copied()
    }

    /// Ports that face hosts, in ascending order.
    pub fn edges(&self) -> impl Iterator<Item = Place> + '_ {
        self.ports.iter().filter(|(_, port)| port.edge).map(|(&place, _)| place)
    }

    /// Switches with a session, in ascending order.
    pub fn switches(&self) -> impl Iterator<Item = Dpid> + '_ {
        self.switches.iter().filter(|(_, switch)| switch.session).map(|(&dpid, _)| dpid)
    }

    /// Switches that have a session, or lost it within the grace period, in ascending order.
    pub fn known_switches(&self) -> impl Iterator<Item = Dpid> + '_ {
        self.switches.keys().copied()
    }

    fn fire(&mut self, timer: Timer) {
        match timer {
            Timer::Check(place) => self.check(place),
            Timer::Quiet(place) => self.quiet(place),
            Timer::Settle(place) => self.settle(place),
            Timer::Grace(dpid) => self.give_up_switch(dpid),
        }
    }

    /// Whether a port is probed. A port with a host is not, because the host could relay the probe.
    fn probed(&self, place: Place) -> bool {
        self.has_session(place.dpid) && self.ports.get(&place).is_some_and(|port| port.usable() && !port.host)
    }

    /// Probes a port as soon as the rate limit allows.
    fn probe_now(&mut self, place: Place) {
        if self.probed(place) {
            self.probing.soon(self.now, place);
        }
    }

    /// Probes a port that has just received a probe, to test the other direction of its cable.
    fn probe_back(&mut self, place: Place) {
        let Some(port) = self.ports.get_mut(&place).filter(|port| Probing::answers(self.now, port)) else { return };
        port.gap = self.settings.first_gap;
        self.probe_now(place);
    }

    /// Sets the time of a port's next probe.
    fn schedule(&mut self, place: Place) {
        let peer = self.ports.get(&place).and_then(|port| port.link);
        let is_heard = peer.is_none_or(|peer| self.has_session(peer.dpid));
        let probed = self.probed(place);
        if let Some(port) = self.ports.get_mut(&place).filter(|_| probed) {
            self.probing.schedule(self.now, place, port, is_heard);
        }
    }

    /// Starts a round: probes the ports of a switch that are part of a link or face hosts.
    fn round(&mut self, dpid: Dpid) {
        for place in self.ports_of(dpid).collect::<Vec<_>>() {
            let is_known = |port: &Port| port.edge || port.link.is_some();
            if self.probed(place) && self.ports.get(&place).is_some_and(is_known) {
                self.probing.in_round(self.now, place);
            }
        }
        self.probing.next_round(self.now, dpid);
    }

    /// Sends a probe, and notes that it has not arrived yet.
    fn send(&mut self, place: Place) {
        let Some(port) = self.ports.get_mut(&place) else { return };
        let frame = self.probing.probe(self.now, place, port);
        if port.unheard == 0 {
            port.unheard_since = self.now;
            if port.link.is_some() {
                self.timers.set(Timer::Check(place), self.now.saturating_add(self.settings.silence));
            }
        }
        port.unheard = port.unheard.saturating_add(1);
        self.outputs.push_back(LinkOutput::Send { place, frame });
        self.schedule(place);
    }

    fn alarm(&mut self, place: Place, kind: AlarmKind) {
        let alarm = self.alarms.raise(self.now, place, kind);
        self.outputs.extend(alarm.map(LinkOutput::Alarm));
    }

    fn port(&self, dpid: Dpid, port: PortNo) -> Option<&Port> {
        self.ports.get(&Place { dpid, port })
    }

    fn ports_of(&self, dpid: Dpid) -> impl Iterator<Item = Place> + '_ {
        let (low, high) = (Place { dpid, port: PortNo(0) }, Place { dpid, port: PortNo(u32::MAX) });
        self.ports.range(low..=high).map(|(&place, _)| place)
    }

    fn has_session(&self, dpid: Dpid) -> bool {
        self.switches.get(&dpid).is_some_and(|switch| switch.session)
    }
}
