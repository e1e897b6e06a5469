//! Frames of hosts that switches refuse: frames without a route, and frames that hosts must not send. A rule for each
//! kind drops and counts them in the switch, so that a flood does not reach the controller. The controller reads the
//! counters periodically for the log and the metrics.

use crate::hub::punts::{add, delete, COOKIE};
use pathloom_control::cookies::{Cookie, RuleKind};
use pathloom_control::{CONTROL, DEFAULTS};
use pathloom_model::{Fabric, Nanos, NodeId, PortNo};
use pathloom_openflow::flow_match::{FlowMatch, ETH_ARP, ETH_IPV4, ETH_IPV6};
use pathloom_openflow::{FlowStats, Message, PORT_MAX};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Distinguishes the cookies of these rules from other rules of the driver.
const REFUSED: u64 = 1 << 56;
const KIND_SHIFT: u32 = 32;
/// Priority above the rules for control traffic, so that tagged frames never reach them.
const FIRST: u16 = 0xfff8;
/// Priority below the rules for control traffic, above the rules of `pathloom-control`.
const BELOW_PUNTS: u16 = 0xffe0;
/// Priority below the rules for control traffic, above those that replace them while no controller runs.
const ABOVE_TREES: u16 = 0xffe8;
/// Priority below every default route: for all other frames.
const LEFT_OVER: u16 = 0;
/// Minimum time between two log lines about the same frames. Their number must also have doubled since the last line.
const AGAIN: Nanos = Nanos::from_secs(600);

/// Why frames are refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Refused {
    /// They have a VLAN tag. Only the fabric itself may add tags.
    Tagged,
    /// The fabric has no such port.
    UnknownPort,
    /// IPv6.
    Ipv6,
    /// IPv4 multicast.
    Multicast,
    /// IPv4 broadcast.
    Broadcast,
    /// IPv4 to an address without a host or route in the fabric.
    NoRoute,
    /// ARP, if the controller does not answer it.
    Arp,
    /// Neither IP nor ARP nor LLDP.
    Other,
}

impl Refused {
    pub(crate) const ALL: [Refused; 8] = [
        Refused::Tagged,
        Refused::UnknownPort,
        Refused::Ipv6,
        Refused::Multicast,
        Refused::Broadcast,
        Refused::NoRoute,
        Refused::Arp,
        Refused::Other,
    ];

    /// The name of the kind in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Refused::Tagged => "vlan_tagged",
            Refused::UnknownPort => "port_not_in_fabric",
            Refused::Ipv6 => "ipv6",
            Refused::Multicast => "multicast",
            Refused::Broadcast => "broadcast",
            Refused::NoRoute => "no_route",
            Refused::Arp => "arp",
            Refused::Other => "other_protocol",
        }
    }

    /// A hint for the operator.
    fn hint(self) -> &'static str {
        match self {
            Refused::Tagged => "hosts must send frames without VLAN tags: the fabric marks paths with such tags",
            Refused::UnknownPort => "the fabric has no such port; cable the host elsewhere or add it to fabric.spec",
            Refused::Ipv6 => "IPv6 is not supported",
            Refused::Multicast => "IPv4 multicast is not supported",
            Refused::Broadcast => "IPv4 broadcast is not supported, except for DHCP",
            Refused::NoRoute => "no host of the fabric has the destination; see [discovery] and [[addresses]]",
            Refused::Arp => "ARP is not answered; set hosts = \"learn\" under [discovery]",
            Refused::Other => "only IPv4 and ARP are supported",
        }
    }

    /// Whether it depends on the port, so that there is a rule per port.
    fn is_per_port(self) -> bool {
        matches!(self, Refused::Tagged | Refused::UnknownPort)
    }

    /// Whether all hosts send such frames all the time, so that the log names only the first switch.
    fn is_common(self) -> bool {
        matches!(self, Refused::Ipv6 | Refused::Multicast | Refused::Broadcast)
    }

    fn cookie(self, port: u32) -> u64 {
        COOKIE | REFUSED | (self as u64) << KIND_SHIFT | u64::from(port)
    }

    /// The rule; `port` is used if there is a rule per port.
    fn rule(self, port: u32) -> Message<'static> {
        let ip = |dst: Option<(Ipv4Addr, Ipv4Addr)>| FlowMatch {
            eth_type: Some(ETH_IPV4),
            ipv4_dst: dst,
            ..FlowMatch::default()
        };
        let kind = |kind: u16| FlowMatch { eth_type: Some(kind), ..FlowMatch::default() };
        let at_port = FlowMatch { in_port: Some(port), ..FlowMatch::default() };
        let groups = (Ipv4Addr::new(224, 0, 0, 0), Ipv4Addr::new(240, 0, 0, 0));
        let (place, matches) = match self {
            Refused::Tagged => ((CONTROL, FIRST), FlowMatch { vlan_tagged: true, ..at_port }),
            Refused::UnknownPort => ((CONTROL, ABOVE_TREES), at_port),
            Refused::Ipv6 => ((CONTROL, BELOW_PUNTS), kind(ETH_IPV6)),
            Refused::Multicast => ((CONTROL, BELOW_PUNTS), ip(Some(groups))),
            Refused::Broadcast => ((CONTROL, BELOW_PUNTS), ip(Some((Ipv4Addr::BROADCAST, Ipv4Addr::BROADCAST)))),
            Refused::NoRoute => ((DEFAULTS, LEFT_OVER + 1), ip(None)),
            Refused::Arp => ((DEFAULTS, LEFT_OVER + 1), kind(ETH_ARP)),
            Refused::Other => ((DEFAULTS, LEFT_OVER), FlowMatch::default()),
        };
        add(self.cookie(port), place, matches, &[])
    }
}

/// The rules of this kind that a switch should have, and messages that delete those that it should not have.
pub(crate) struct Refusals {
    pub wanted: Vec<Message<'static>>,
    pub unwanted: Vec<Message<'static>>,
}

impl Refusals {
    /// Returns the rules for a switch of the fabric that has reported these ports.
    pub(crate) fn of(fabric: &Fabric, node: NodeId, reported: &[u32]) -> Refusals {
        let (mut wanted, mut unwanted) = (Vec::new(), Vec::new());
        for (port, &link) in (1..).zip(&fabric.node(node).ports) {
            // An earlier start may have had another fabric.
            unwanted.push(delete(Refused::UnknownPort.cookie(port)));
            if fabric.is_host(fabric.link(link).to) {
                wanted.push(Refused::Tagged.rule(port));
            } else {
                unwanted.push(delete(Refused::Tagged.cookie(port)));
            }
        }
        let of_all = Refused::ALL.into_iter().filter(|kind| !kind.is_per_port());
        if fabric.tor_index(node).is_some() {
            wanted.extend(of_all.map(|kind| kind.rule(0)));
        } else {
            unwanted.extend(of_all.map(|kind| delete(kind.cookie(0))));
        }
        let unknown = reported.iter().filter(|&&port| fabric.out_link(node, PortNo(port)).is_none());
        wanted
            .extend(unknown.filter(|port| (1..=PORT_MAX).contains(port)).flat_map(|&port| rules_of_unknown_port(port)));
        Refusals { wanted, unwanted }
    }
}

/// The rules for a port that the fabric does not have.
pub(crate) fn rules_of_unknown_port(port: u32) -> [Message<'static>; 2] {
    [Refused::Tagged.rule(port), Refused::UnknownPort.rule(port)]
}

/// Cookie and mask that select these rules among all rules of a switch.
pub(crate) const SELECTED: (u64, u64) = (COOKIE | REFUSED, 0xff << 56);

/// The counter of a rule that refuses frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    /// Identifies the rule in its switch.
    name: u64,
    kind: Refused,
    /// The port; 0 for all.
    port: u32,
    /// Frames counted since the switch has the rule.
    counted: u64,
}

/// Reads a row of flow statistics; `None` if its rule drops nothing.
pub(crate) fn row(stats: &FlowStats) -> Option<Row> {
    let (cookie, counted) = (stats.cookie, stats.packets);
    if let Some((kind, port)) = read(cookie) {
        return Some(Row { name: cookie, kind, port, counted });
    }
    // The default route of addresses that no host has.
    let own = Cookie::decode(cookie).is_some_and(|cookie| cookie.kind == RuleKind::Default);
    let drops = stats.instructions.apply.is_empty() && stats.instructions.goto_table.is_none();
    let (address, mask) = stats.matches.ipv4_dst.filter(|_| own && drops)?;
    let name = u64::from(u32::from(address)) << 8 | u64::from(u32::from(mask).count_ones());
    Some(Row { name, kind: Refused::NoRoute, port: 0, counted })
}

/// The kind that a rule with this cookie refuses, and its port (0 for all).
fn read(cookie: u64) -> Option<(Refused, u32)> {
    let kind = Refused::ALL.get((cookie >> KIND_SHIFT & 0xff) as usize)?;
    (cookie == kind.cookie(cookie as u32)).then_some((*kind, cookie as u32))
}

/// Frames refused so far.
#[derive(Debug, Default)]
pub(crate) struct RefusalCounts {
    /// The counter of each rule at the last reading.
    read: BTreeMap<(NodeId, u64), u64>,
    totals: BTreeMap<(NodeId, Refused), u64>,
    logged: BTreeMap<(Option<NodeId>, Refused, u32), LoggedFrames>,
}

/// The log lines so far about frames of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct LoggedFrames {
    frames: u64,
    logged: u64,
    at: Nanos,
}

impl RefusalCounts {
    /// Takes the counter of a rule. Returns the number of frames to log: for the first frames at once, later rarely.
    pub(crate) fn take(&mut self, now: Nanos, switch: NodeId, rule: &Row) -> Option<u64> {
        let Row { kind, port, counted, .. } = *rule;
        let last = self.read.insert((switch, rule.name), counted).unwrap_or(0);
        // A rule that was added again counts from 0.
        let more = if counted >= last { counted - last } else { counted };
        if more == 0 {
            return None;
        }
        *self.totals.entry((switch, kind)).or_default() += more;
        let whose = (!kind.is_common()).then_some(switch);
        let seen = self.logged.entry((whose, kind, port)).or_default();
        seen.frames += more;
        let due = seen.logged == 0 || (seen.frames >= 2 * seen.logged && now.saturating_sub(seen.at) >= AGAIN);
        due.then(|| {
            (seen.logged, seen.at) = (seen.frames, now);
            seen.frames
        })
    }

    /// Frames refused so far, by switch and kind.
    pub(crate) fn totals(&self) -> impl Iterator<Item = (NodeId, &'static str, u64)> + '_ {
        self.totals.iter().map(|(&(switch, kind), &frames)| (switch, kind.name(), frames))
    }
}

/// Logs refused frames.
pub(crate) fn log_refused(switch: &str, Row { kind, port, .. }: &Row, frames: u64) {
    let (what, hint) = (kind.name(), kind.hint());
    match *port {
        0 => tracing::warn!(switch, what, frames, hint, "frames of hosts are refused"),
        _ => tracing::warn!(switch, port, what, frames, hint, "frames of a port are refused"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(kind: Refused, port: u32, counted: u64) -> Row {
        Row { name: kind.cookie(port), kind, port, counted }
    }

    #[test]
    fn cookies_encode_kind_and_port_and_one_mask_selects_them() {
        for kind in Refused::ALL {
            let cookie = kind.cookie(0xffff_feff);
            assert_eq!(read(cookie), Some((kind, 0xffff_feff)));
            assert_eq!(cookie & SELECTED.1, SELECTED.0);
        }
        for punt in crate::hub::punts::Punt::ALL {
            let Message::FlowMod(rule) = punt.add(true) else { panic!("{punt:?}") };
            assert_ne!(rule.cookie & SELECTED.1, SELECTED.0, "{punt:?}");
            assert_eq!(read(rule.cookie), None);
        }
    }

    #[test]
    fn the_first_frames_are_logged_at_once_and_later_ones_rarely() {
        let (mut counts, tor) = (RefusalCounts::default(), NodeId(3));
        let logged: Vec<(u64, u64)> = (1..=2000)
            .filter_map(|second| {
                Some((second, counts.take(Nanos::from_secs(second), tor, &counted(Refused::Tagged, 2, second * 10))?))
            })
            .collect();
        assert_eq!(logged, [(1, 10), (601, 6010), (1202, 12020)]);
        assert_eq!(counts.take(Nanos::from_secs(2001), tor, &counted(Refused::Tagged, 1, 1)), Some(1), "another port");
        assert_eq!(counts.totals().collect::<Vec<_>>(), [(tor, "vlan_tagged", 20_001)]);
    }

    #[test]
    fn common_frames_of_all_hosts_is_logged_once_and_counted_by_switch() {
        let mut counts = RefusalCounts::default();
        let logged = (0..8).filter(|&tor| counts.take(Nanos(1), NodeId(tor), &counted(Refused::Ipv6, 0, 5)).is_some());
        assert_eq!(logged.count(), 1);
        assert_eq!(counts.totals().count(), 8);
    }

    #[test]
    fn no_frames_are_lost_if_a_counter_restarts_at_0() {
        let mut counts = RefusalCounts::default();
        for frames in [100, 150, 20, 30] {
            counts.take(Nanos(1), NodeId(0), &counted(Refused::NoRoute, 0, frames));
        }
        assert_eq!(counts.totals().next(), Some((NodeId(0), "no_route", 180)));
    }
}
