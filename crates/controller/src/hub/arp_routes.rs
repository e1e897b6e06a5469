//! Rules by which switches forward ARP between known hosts without the controller. Hosts refresh what they know of each
//! other by frames to a single station. So they know each other as long as the fabric forwards packets between them,
//! whatever happens to the controller.
//!
//! A ToR compares the sender of such a frame with the hosts that are known at the port. If it is none of them, the frame
//! goes to the controller, which learns from it. Otherwise each switch forwards the frame as it forwards packets to the
//! requested address: beside each default route is a rule for ARP with the same actions.
//!
//! While no controller runs, ToRs send all ARP of hosts along the trees ([`crate::hub::punts`]). The next switch forwards
//! frames to a single station by these rules. So a switch with a session and one without need not agree, and no frame loops.

use crate::hub::punts::{add, delete_all, in_table, with, COOKIE, LASTS_S, WHOLE};
use pathloom_control::{CONTROL, DEFAULTS, LONG_FLOWS};
use pathloom_discovery::{HostSettings, KnownHost};
use pathloom_model::rules::{Rule, RuleKey};
use pathloom_openflow::action::Action;
use pathloom_openflow::convert::{self, UnsupportedRule};
use pathloom_openflow::flow_match::{FlowMatch, ETH_ARP};
use pathloom_openflow::instruction::Instructions;
use pathloom_openflow::{FlowMod, Message, PORT_CONTROLLER};

/// Distinguishes the cookies of these rules from other rules of the driver.
const ARP: u64 = 1 << 49;
const KIND_SHIFT: u32 = 40;
/// Position of the length of a prefix in the cookie of a route.
const LEN_SHIFT: u32 = 32;
/// Priority for frames from other switches: above the trees.
const FROM_SWITCHES: u16 = 0xfff5;
/// Priority for frames of hosts: above the punts, below the trees.
const FROM_HOSTS: u16 = 0xfff1;
/// Priority for frames to the controller, which asks hosts whether they are still there.
const TO_CONTROLLER: u16 = 0xfff2;
/// Priorities in the table of paths, above all paths.
const KNOWN: u16 = 0xfff1;
const UNKNOWN: u16 = 0xfff0;

/// Sends a frame to the controller.
const COPY: &[Action] = &[Action::Output { port: PORT_CONTROLLER, max_len: WHOLE }];

/// A kind of these rules, with its number in cookies.
#[derive(Clone, Copy)]
enum Kind {
    /// As a default route.
    Route = 0,
    /// For the frames of a known host.
    Known = 1,
    /// For the frames of other hosts at a port.
    Unknown = 2,
    /// For all frames of hosts.
    FromHosts = 3,
    /// For frames from other switches.
    FromSwitches = 4,
    /// For frames to the controller.
    ToController = 5,
}

impl Kind {
    fn cookie(self, low: u64) -> u64 {
        COOKIE | ARP | (self as u64) << KIND_SHIFT | low
    }

    /// The message that deletes all rules of this kind.
    fn delete_all(self) -> Message<'static> {
        delete_all(self.cookie(0), u64::MAX << KIND_SHIFT)
    }
}

/// The rules of a switch that depend on no host, and the messages that delete those of an earlier start for another
/// fabric. `hosts`: ports to hosts; `switches`: ports to other switches; `strange`: ports that the fabric does not have.
pub(crate) fn standing(
    hosts: &[u32],
    switches: &[u32],
    strange: &[u32],
) -> (Vec<Message<'static>>, Vec<Message<'static>>) {
    let from_switch = |&port: &u32| go_to_paths(Kind::FromSwitches.cookie(u64::from(port)), FROM_SWITCHES, Some(port));
    let mut wanted: Vec<Message<'static>> = switches.iter().map(from_switch).collect();
    let delete = |&port: &u32| delete_all(Kind::FromSwitches.cookie(u64::from(port)), u64::MAX);
    let mut unwanted: Vec<Message<'static>> = hosts.iter().map(delete).collect();
    if hosts.is_empty() {
        let of_tors = [Kind::FromHosts, Kind::Unknown, Kind::ToController];
        unwanted.extend(of_tors.map(Kind::delete_all));
    } else {
        wanted.extend(hosts.iter().chain(strange).map(|&port| unknown(port)));
        wanted.extend([of_hosts(), to_controller()]);
    }
    (wanted, unwanted)
}

/// The rule for ARP of hosts. As the punts, it must be renewed: while no controller runs, these frames take the trees.
pub(crate) fn of_hosts() -> Message<'static> {
    let mut message = go_to_paths(Kind::FromHosts.cookie(0), FROM_HOSTS, None);
    if let Message::FlowMod(rule) = &mut message {
        rule.hard_timeout_s = LASTS_S;
    }
    message
}

/// The rule for the frames of a known host.
pub(crate) fn known(host: KnownHost) -> Message<'static> {
    let matches = FlowMatch {
        in_port: Some(host.place.port.0),
        eth_src: Some(host.mac.0),
        arp_sha: Some(host.mac.0),
        arp_spa: Some(host.address),
        ..to_a_station()
    };
    let instructions = Instructions { goto_table: Some(DEFAULTS), ..Instructions::default() };
    let mut message = with(known_cookie(host), (LONG_FLOWS, KNOWN), matches, instructions);
    if let Message::FlowMod(rule) = &mut message {
        // It comes and goes with the host. If somebody else deletes it, the controller gets the frames.
        rule.flags = 0;
    }
    message
}

/// The message that deletes the rule for the frames of a host that has left or changed.
pub(crate) fn forget(host: KnownHost) -> Message<'static> {
    in_table(LONG_FLOWS, delete_all(known_cookie(host), u64::MAX))
}

/// The message that deletes the rules for the frames of all hosts.
pub(crate) fn forget_all() -> Message<'static> {
    in_table(LONG_FLOWS, Kind::Known.delete_all())
}

/// The message that deletes all of these rules.
pub(crate) fn delete_everything() -> Message<'static> {
    delete_all(COOKIE | ARP, u64::MAX << KIND_SHIFT & !(0xff << KIND_SHIFT))
}

/// The rule beside a default route. Its output ports are numbered as in `route`.
///
/// # Errors
/// OpenFlow cannot express the actions.
pub(crate) fn route(route: &Rule) -> Result<Message<'static>, UnsupportedRule> {
    Ok(Message::FlowMod(FlowMod { cookie: route_cookie(&route.key()), ..convert::arp_route(route)? }))
}

/// The message that deletes the rule beside a default route.
///
/// # Errors
/// The route is of IPv6.
pub(crate) fn delete_route(route: &RuleKey) -> Result<Message<'static>, UnsupportedRule> {
    convert::arp_route_delete(route).map(Message::FlowMod)
}

/// Whether a rule of the controller is a default route.
pub(crate) fn is_default_route(key: &RuleKey) -> bool {
    key.table == DEFAULTS && key.matches.dst.is_some()
}

/// Whether a cookie is that of a rule for a host or beside a default route. Such rules come and go, so a switch may have some
/// that it should not have any more.
pub(crate) fn is_changing(cookie: u64) -> bool {
    let of_kind = |kind: Kind| cookie >> KIND_SHIFT == kind.cookie(0) >> KIND_SHIFT;
    of_kind(Kind::Route) || of_kind(Kind::Known)
}

/// The rule for the frames of hosts at a port that are not known there.
pub(crate) fn unknown(port: u32) -> Message<'static> {
    let matches = FlowMatch { in_port: Some(port), ..to_a_station() };
    add(Kind::Unknown.cookie(u64::from(port)), (LONG_FLOWS, UNKNOWN), matches, COPY)
}

/// The rule for the answers of hosts to the controller.
fn to_controller() -> Message<'static> {
    let eth_dst = Some(HostSettings::default().own_mac.0);
    let matches = FlowMatch { eth_type: Some(ETH_ARP), eth_dst, ..FlowMatch::default() };
    add(Kind::ToController.cookie(0), (CONTROL, TO_CONTROLLER), matches, COPY)
}

fn go_to_paths(cookie: u64, priority: u16, in_port: Option<u32>) -> Message<'static> {
    let instructions = Instructions { goto_table: Some(LONG_FLOWS), ..Instructions::default() };
    with(cookie, (CONTROL, priority), FlowMatch { in_port, ..to_a_station() }, instructions)
}

fn to_a_station() -> FlowMatch {
    FlowMatch { eth_type: Some(ETH_ARP), to_station: true, ..FlowMatch::default() }
}

fn known_cookie(host: KnownHost) -> u64 {
    Kind::Known.cookie(u64::from(u32::from(host.address)))
}

fn route_cookie(route: &RuleKey) -> u64 {
    let (address, len) = route.matches.dst.map_or((0, 0), |prefix| (prefix.address.low(), prefix.len));
    Kind::Route.cookie(u64::from(len) << LEN_SHIFT | u64::from(address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_discovery::{Dpid, Place};
    use pathloom_model::{Mac, PortNo};
    use std::net::Ipv4Addr;

    fn cookie(message: &Message<'_>) -> u64 {
        let Message::FlowMod(rule) = message else { panic!("{message:?}") };
        rule.cookie
    }

    #[test]
    fn each_rule_has_its_own_cookie_and_only_those_of_hosts_and_routes_change() {
        let place = Place { dpid: Dpid(1), port: PortNo(1) };
        let host = |last: u8| KnownHost { address: Ipv4Addr::new(10, 0, 0, last), mac: Mac([2; 6]), place };
        let known = [1, 2].map(|last| cookie(&known(host(last))));
        let (standing, _) = standing(&[1, 2], &[3, 4], &[9]);
        let standing: Vec<u64> = standing.iter().map(cookie).collect();
        assert!(known.iter().all(|&cookie| is_changing(cookie)) && !standing.iter().any(|&cookie| is_changing(cookie)));
        let mut all = [&known[..], &standing[..]].concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 2 + 7);
        let Message::FlowMod(everything) = delete_everything() else { panic!("no flow-mod") };
        assert!(all.iter().all(|cookie| cookie & everything.cookie_mask == everything.cookie));
        for punt in crate::hub::punts::Punt::ALL {
            assert_ne!(cookie(&punt.add(true)) & everything.cookie_mask, everything.cookie, "{punt:?}");
        }
    }
}
