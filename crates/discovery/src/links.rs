//! Which cable joins which ports, found out by probes: see [`LinkDiscovery`].

mod hearing;
mod ports;
mod probing;

use crate::agenda::Agenda;
use crate::alarm::{Alarm, AlarmFilter, Trouble};
use crate::limits::{Bucket, Rate};
use crate::lldp::ProbeKey;
use crate::{Dpid, Mac, Place};
use pathloom_model::{Nanos, PortNo};
use ports::{Port, Switch};
use rand_pcg::Pcg64;
use std::collections::{BTreeMap, VecDeque};

/// How links are looked for. The defaults find a link within 100 ms, and lose a silent one within 8 s: `interval` until
/// the next probe, and `silence`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProbeSettings {
    /// Longest time between two rounds of a switch. A round probes all of its ports that are part of a link or face hosts,
    /// one right after the other: a switch that wakes up for one probe takes the others along.
    pub interval: Nanos,
    /// Between probes of any other port, as of one whose link fell silent.
    pub idle_interval: Nanos,
    /// Between the first two probes after a port came up; doubled from probe to probe.
    pub first_gap: Nanos,
    /// After this, a probe of a link that has not arrived is sent again.
    pub retry: Nanos,
    /// A link is down when no probe of it has arrived for this long after the first that did not.
    pub silence: Nanos,
    /// Probes, at least, that must have stayed away until then.
    pub missed: u32,
    /// A probe older than this is refused. Bounds what a relay can do, and must bear the delay of two control channels.
    pub max_age: Nanos,
    /// A port on which no probe was heard for this long after it came up faces hosts.
    pub settle: Nanos,
    /// Links of a switch whose session is lost are believed for so long: it forwards on without us.
    pub session_grace: Nanos,
    /// Probes sent in all.
    pub sends: Rate,
    /// LLDP frames looked at, per port.
    pub lldp: Rate,
    /// The same alarm about one port is said at most so often.
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
    /// How long a direction may be silent before a link came of it.
    fn window(&self) -> Nanos {
        self.silence.saturating_add(self.max_age)
    }
}

/// A port as a switch describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortState {
    /// Its number. Reserved ones (OpenFlow 1.3.5 §A.2.1: above 0xffffff00, such as the local port) are ignored.
    pub port: PortNo,
    /// Its hardware address.
    pub mac: Mac,
    /// Whether it has carrier and is not shut down.
    pub up: bool,
}

/// What link discovery is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkInput<'a> {
    /// A session to a switch stands. See [`LinkDiscovery::is_duplicate`].
    SwitchUp {
        /// The switch.
        dpid: Dpid,
        /// All its ports.
        ports: &'a [PortState],
    },
    /// The session to a switch was lost. Its links are believed for [`ProbeSettings::session_grace`].
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
    /// A port is no more.
    PortRemoved {
        /// The port.
        place: Place,
    },
    /// An LLDP frame came in.
    Frame {
        /// By this port.
        place: Place,
        /// From the Ethernet header on.
        frame: &'a [u8],
    },
    /// A host is known to live at this port. To be said only of ports named by [`LinkOutput::EdgeUp`], or on better
    /// authority (configuration): frames of hosts cross ports between switches too.
    HostSeen {
        /// The port.
        place: Place,
    },
    /// No host is known at this port any more.
    HostsGone {
        /// The port.
        place: Place,
    },
    /// The time that [`LinkDiscovery::poll_timeout`] named has come.
    Timeout,
}

/// Why a link is no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkLoss {
    /// A port of it lost carrier or was removed.
    PortDown,
    /// Probes do not get through.
    Silent,
    /// The session to one of its switches was lost for too long.
    SwitchGone,
    /// It cannot be told from a relay any more; an alarm says why.
    Doubtful,
}

/// What link discovery says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkOutput {
    /// To be sent out of a port as it is.
    Send {
        /// The port.
        place: Place,
        /// From the Ethernet header on.
        frame: Vec<u8>,
    },
    /// Probes get through in both directions.
    LinkUp {
        /// The end with the lower switch and port.
        a: Place,
        /// The other end.
        b: Place,
    },
    /// The link is not to be used any more.
    LinkDown {
        /// The end with the lower switch and port.
        a: Place,
        /// The other end.
        b: Place,
        /// Why.
        why: LinkLoss,
    },
    /// The port is up and no switch answers there: hosts may be.
    EdgeUp {
        /// The port.
        place: Place,
    },
    /// The port faces hosts no more.
    EdgeDown {
        /// The port.
        place: Place,
    },
    /// Something is wrong.
    Alarm(Alarm),
}

/// What is to be done later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Timer {
    /// See whether probes from a port still arrive.
    Check(Place),
    /// A port that flapped has been quiet for long enough.
    Quiet(Place),
    /// No switch has answered at a port for long enough.
    Settle(Place),
    /// The session of a switch has been lost for long enough.
    Grace(Dpid),
}

/// Finds the cables between switches and notices when they break.
///
/// Each port sends probes ([`crate::lldp`]): fast after it came up, and rarely once it is known what is there. Then the
/// ports of a switch have their turn together, once per [`ProbeSettings::interval`]; the turns of switches are drawn apart.
/// A link is up when probes arrive in both directions. It is down at once when a port of it loses carrier; if one of its
/// probes does not arrive, more are sent, and it is down after [`ProbeSettings::silence`]. Loops do not matter: a probe
/// crosses one cable and goes nowhere else.
///
/// What an attacker on hosts cannot do: make up or change a probe (signed), use an old one (time stamp, and each is
/// good for one arrival), use one of an earlier start (key), join ports where hosts are known to live (those get no
/// probes, and a probe that arrives there is an alarm), displace a link that stands, or make us work (limit per port).
///
/// What cannot be told from a cable by content: two hosts that have never sent anything else, and pass on each other's
/// probes, both ways, faster than [`ProbeSettings::max_age`]. The link they feign is given up when either is seen as a
/// host ([`LinkInput::HostSeen`]); where the cabling is configured, [`crate::cabling::compare`] shows it as unexpected.
/// A port that loses carrier forgets that hosts lived there (it may have been cabled anew), so a host that can switch
/// its port off can start over as such a relay. On a hub, a link may be up for the moment between the first and the
/// second arrival of a probe.
pub struct LinkDiscovery {
    settings: ProbeSettings,
    key: ProbeKey,
    rng: Pcg64,
    now: Nanos,
    switches: BTreeMap<Dpid, Switch>,
    ports: BTreeMap<Place, Port>,
    timers: Agenda<Timer>,
    /// Probes due soon after something happened; they go before the routine ones.
    urgent: Agenda<Place>,
    routine: Agenda<Place>,
    /// When all ports of a switch are probed again.
    rounds: Agenda<Dpid>,
    pace: Bucket,
    nonce: u64,
    alarms: AlarmFilter,
    outputs: VecDeque<LinkOutput>,
}

impl LinkDiscovery {
    /// Starts without switches. `key` must be new at each start of the controller; `rng` draws times apart.
    pub fn new(settings: ProbeSettings, key: ProbeKey, rng: Pcg64) -> LinkDiscovery {
        LinkDiscovery {
            pace: Bucket::new(Nanos::ZERO, settings.sends),
            alarms: AlarmFilter::new(settings.alarm_every),
            settings,
            key,
            rng,
            now: Nanos::ZERO,
            switches: BTreeMap::new(),
            ports: BTreeMap::new(),
            timers: Agenda::new(),
            urgent: Agenda::new(),
            routine: Agenda::new(),
            rounds: Agenda::new(),
            nonce: 0,
            outputs: VecDeque::new(),
        }
    }

    /// Takes in what happened. Time never goes back: an earlier `now` counts as the latest.
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
        while let Some(dpid) = self.rounds.pop(self.now) {
            self.round(dpid);
        }
        self.send_due();
    }

    /// The next thing to be done, in order.
    pub fn poll_output(&mut self) -> Option<LinkOutput> {
        self.outputs.pop_front()
    }

    /// When [`LinkInput::Timeout`] is wanted, if nothing else happens before.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let probe = [self.urgent.next(), self.routine.next()].into_iter().flatten().min();
        let probe = probe.map(|at| at.max(self.pace.ready_at()));
        [self.timers.next(), self.rounds.next(), probe].into_iter().flatten().min()
    }

    /// Whether `ports` are those of another switch than the one that has a session under this datapath id. The driver
    /// should then close the newcomer's session; if it reports it as up all the same, it is ignored and an alarm raised.
    ///
    /// Told apart by the hardware addresses of their ports: a switch that connects again has at least one as before.
    pub fn is_duplicate(&self, dpid: Dpid, ports: &[PortState]) -> bool {
        let standing = self.switches.get(&dpid).is_some_and(|switch| switch.session);
        let known = |state: &PortState| self.port(dpid, state.port).is_some_and(|port| port.mac == state.mac);
        standing && !ports.iter().any(known) && self.ports_of(dpid).next().is_some()
    }

    /// How often each kind of trouble happened, by [`Trouble::name`].
    pub fn alarm_counts(&self) -> &BTreeMap<&'static str, u64> {
        self.alarms.counts()
    }

    /// Links that are up, the lower end first, in ascending order.
    pub fn links(&self) -> impl Iterator<Item = (Place, Place)> + '_ {
        self.ports.iter().filter_map(|(&place, port)| port.link.filter(|&peer| place < peer).map(|peer| (place, peer)))
    }

    /// The other end of the link that a port is part of.
    pub fn peer(&self, place: Place) -> Option<Place> {
        self.ports.get(&place)?.link
    }

    /// Ports that face hosts, in ascending order.
    pub fn edges(&self) -> impl Iterator<Item = Place> + '_ {
        self.ports.iter().filter(|(_, port)| port.edge).map(|(&place, _)| place)
    }

    /// Switches whose session stands, in ascending order.
    pub fn switches(&self) -> impl Iterator<Item = Dpid> + '_ {
        self.switches.iter().filter(|(_, switch)| switch.session).map(|(&dpid, _)| dpid)
    }

    /// Switches that are known, with a session or lost within the grace period, in ascending order.
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

    fn alarm(&mut self, place: Place, what: Trouble) {
        let alarm = self.alarms.raise(self.now, place, what);
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
