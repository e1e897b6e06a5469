//! Alarms: faults and their places, with a limit on how often the same alarm is logged.

use crate::arp::ArpError;
use crate::{Dpid, Mac, Place};
use pathloom_model::{Nanos, PortNo};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::fmt;
use std::mem::{discriminant, Discriminant};
use std::net::Ipv4Addr;

/// A fault at a port or a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Alarm {
    /// The kind of fault, with its details.
    pub kind: AlarmKind,
    /// Port of the fault. Port number 0 means the whole switch.
    pub place: Place,
    /// Number of faults of this kind at this place since the last alarm about them, including this one.
    pub times: u64,
}

/// The kinds of faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AlarmKind {
    /// LLDP that claims to be a probe of this controller, with a wrong signature.
    ForgedProbe,
    /// A probe of this controller that is too old, or is no longer among the last probes of its port.
    StaleProbe {
        /// The port that sent the probe.
        from: Place,
        /// Time since the probe was sent.
        age: Nanos,
    },
    /// A probe that had already arrived at this port.
    ReplayedProbe {
        /// The port that sent the probe.
        from: Place,
    },
    /// One probe arrived at two ports: the medium is shared, or somebody relays probes.
    TwoPlaces {
        /// The port that sent the probe.
        from: Place,
        /// The port where the probe arrived first.
        first: Place,
    },
    /// A probe arrived at, or came from, a port with a host: somebody relays probes.
    ProbeOnHostPort {
        /// The port that sent the probe.
        from: Place,
    },
    /// A host is at an end of a link. The link may be forged, so it is no longer used.
    HostOnLink {
        /// The other end.
        peer: Place,
    },
    /// A probe from a port arrived here, but one of the two ports is part of another link that is up.
    Contradiction {
        /// The port that sent the probe.
        from: Place,
    },
    /// A cable joins two ports of the same switch.
    Looped {
        /// The port that sent the probe.
        from: Place,
    },
    /// Probes arrive from here to there, but not in the other direction.
    OneWay {
        /// The port where they arrive.
        to: Place,
    },
    /// The port goes up and down.
    Flapping {
        /// Number of recent failures.
        failures: u32,
        /// How long the port must stay up before it is used again.
        wait: Nanos,
    },
    /// A port sends more LLDP than allowed.
    LldpFlood,
    /// A second switch with this datapath identifier; it is ignored.
    DuplicateSwitch,
    /// A switch with more ports than discovery handles per switch; the others are ignored.
    TooManyPorts,
    /// A port sends more ARP than allowed.
    ArpFlood,
    /// A port sends more requests for unknown addresses than discovery forwards for one port.
    UnknownTargets,
    /// An ARP frame that no honest host sends.
    BadArp(ArpError),
    /// More hosts than allowed, at one port or in total.
    TooManyHosts,
    /// An ARP sender claims an address, or uses a hardware address, whose owner answers at another port.
    Spoofed {
        /// The claimed address.
        address: Ipv4Addr,
        /// The hardware address of the claim.
        mac: Mac,
        /// The port of the owner.
        owner: Place,
    },
}

impl AlarmKind {
    /// The name of this kind, for counters.
    pub fn name(&self) -> &'static str {
        match self {
            AlarmKind::ForgedProbe => "forged_probe",
            AlarmKind::StaleProbe { .. } => "stale_probe",
            AlarmKind::ReplayedProbe { .. } => "replayed_probe",
            AlarmKind::TwoPlaces { .. } => "probe_at_two_places",
            AlarmKind::ProbeOnHostPort { .. } => "probe_on_host_port",
            AlarmKind::HostOnLink { .. } => "host_on_link",
            AlarmKind::Contradiction { .. } => "contradictory_link",
            AlarmKind::Looped { .. } => "looped_cable",
            AlarmKind::OneWay { .. } => "one_way_cable",
            AlarmKind::Flapping { .. } => "flapping_port",
            AlarmKind::LldpFlood => "lldp_flood",
            AlarmKind::DuplicateSwitch => "duplicate_switch",
            AlarmKind::TooManyPorts => "too_many_ports",
            AlarmKind::ArpFlood => "arp_flood",
            AlarmKind::UnknownTargets => "unknown_targets",
            AlarmKind::BadArp(_) => "bad_arp",
            AlarmKind::TooManyHosts => "too_many_hosts",
            AlarmKind::Spoofed { .. } => "spoofed_address",
        }
    }
}

impl Alarm {
    pub(crate) fn of_switch(dpid: Dpid) -> Place {
        Place { dpid, port: PortNo(0) }
    }
}

impl fmt::Display for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.port == PortNo(0) {
            write!(f, "switch {}: {}", self.place.dpid, self.kind)?;
        } else {
            write!(f, "{}: {}", self.place, self.kind)?;
        }
        if self.times > 1 {
            write!(f, " ({} times since the last report)", self.times)?;
        }
        Ok(())
    }
}

impl fmt::Display for AlarmKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Nanos| time.0 / 1_000_000;
        match self {
            AlarmKind::ForgedProbe => f.write_str("sends LLDP that claims to be a probe of this controller; ignored"),
            AlarmKind::StaleProbe { from, age } => {
                write!(f, "a probe that left {from} arrived after {} ms; replayed, or the control channel is too slow; ignored", ms(*age))
            }
            AlarmKind::ReplayedProbe { from } => write!(f, "a probe that left {from} arrived here again; ignored"),
            AlarmKind::TwoPlaces { from, first } => {
                write!(
                    f,
                    "a probe that left {from} arrived here and at {first}: a shared medium or a relay; no link there"
                )
            }
            AlarmKind::ProbeOnHostPort { from } => {
                write!(
                    f,
                    "a probe that left {from} arrived here, but a host is at one of the two ports: a relay; no link"
                )
            }
            AlarmKind::HostOnLink { peer } => {
                write!(f, "a host is at this end of a link to {peer}; the link is no longer used")
            }
            AlarmKind::Contradiction { from } => {
                write!(
                    f,
                    "a probe that left {from} arrived here, but one of the two ports is part of another link that is up"
                )
            }
            AlarmKind::Looped { from } => {
                write!(f, "is cabled to its own switch: a probe that left {from} arrived here")
            }
            AlarmKind::OneWay { to } => {
                write!(f, "probes arrive from here to {to}, but not in the other direction; no link")
            }
            AlarmKind::Flapping { failures, wait } => {
                write!(f, "went down {failures} times in a row; must stay up for {} ms before it is used", ms(*wait))
            }
            AlarmKind::LldpFlood => f.write_str("sends more LLDP than a port is allowed to; the rest is dropped"),
            AlarmKind::DuplicateSwitch => {
                f.write_str("a second switch with this datapath identifier is ignored; give each switch a unique one")
            }
            AlarmKind::TooManyPorts => {
                f.write_str("has more ports than the controller handles; the others are ignored")
            }
            AlarmKind::ArpFlood => f.write_str("sends more ARP than a port is allowed to; the rest is dropped"),
            AlarmKind::UnknownTargets => {
                f.write_str("sends too many ARP requests for unknown addresses; not all are forwarded")
            }
            AlarmKind::BadArp(error) => write!(f, "an ARP frame {error}; dropped"),
            AlarmKind::TooManyHosts => f.write_str("has more hosts than allowed; the others are ignored"),
            AlarmKind::Spoofed { address, mac, owner } => {
                write!(f, "{mac} claims {address}, but the owner of the address or of the hardware address is at {owner}; dropped")
            }
        }
    }
}

/// Passes one alarm of each kind per place and time span, and counts the others.
///
/// It contains at most one entry per known port and kind.
#[derive(Clone, Debug)]
pub(crate) struct AlarmFilter {
    every: Nanos,
    /// Only for look-ups.
    last_alarms: FxHashMap<(Place, Discriminant<AlarmKind>), (Nanos, u64)>,
    /// Number of faults of each kind, including alarms that were not passed.
    counts: BTreeMap<&'static str, u64>,
}

impl AlarmFilter {
    pub(crate) fn new(every: Nanos) -> AlarmFilter {
        AlarmFilter { every, last_alarms: FxHashMap::default(), counts: BTreeMap::new() }
    }

    /// Counts an alarm, and returns it if it may pass.
    pub(crate) fn raise(&mut self, now: Nanos, place: Place, kind: AlarmKind) -> Option<Alarm> {
        *self.counts.entry(kind.name()).or_default() += 1;
        let entry = self.last_alarms.entry((place, discriminant(&kind)));
        let mut first = false;
        let (last, suppressed) = entry.or_insert_with(|| {
            first = true;
            (now, 0)
        });
        if !first && now.saturating_sub(*last) < self.every {
            *suppressed += 1;
            return None;
        }
        *last = now;
        Some(Alarm { kind, place, times: std::mem::take(suppressed) + 1 })
    }

    /// Number of faults of each kind, by [`AlarmKind::name`].
    pub(crate) fn counts(&self) -> &BTreeMap<&'static str, u64> {
        &self.counts
    }

    /// Forgets a port that no longer exists.
    pub(crate) fn forget(&mut self, place: Place) {
        self.last_alarms.retain(|&(at, _), _| at != place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_is_reported_once_per_time_span_with_its_count() {
        let mut filter = AlarmFilter::new(Nanos::from_secs(10));
        let place = Place::new(0x2a, 3);
        let mut counts = Vec::new();
        for second in 0..25 {
            counts.extend(filter.raise(Nanos::from_secs(second), place, AlarmKind::ArpFlood).map(|alarm| alarm.times));
        }
        assert_eq!(counts, [1, 10, 10]);
        assert_eq!(filter.counts()["arp_flood"], 25, "the last four were not reported, but counted");
        let other = filter.raise(Nanos::from_secs(25), place, AlarmKind::ForgedProbe).expect("another kind");
        assert!(other.to_string().starts_with("switch 000000000000002a port 3: sends LLDP"), "{other}");
        let whole = Alarm { kind: AlarmKind::DuplicateSwitch, place: Alarm::of_switch(Dpid(1)), times: 3 };
        assert!(whole.to_string().starts_with("switch 0000000000000001: a second"), "{whole}");
        assert!(whole.to_string().ends_with("(3 times since the last report)"), "{whole}");
    }
}
