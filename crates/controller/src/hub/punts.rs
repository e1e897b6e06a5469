//! Punts: the rules that send control traffic (LLDP, ARP, DHCP) to the controller. They are at the top of the control
//! table and have no other output, so they never flood.
//!
//! A switch of a known fabric removes its punts for ARP and DHCP after [`LASTS_S`] unless the controller renews them.
//! Below them are rules that always stay. These send such frames along a spanning tree of the fabric to all hosts, so
//! hosts find each other while no controller runs.

use pathloom_control::{CONTROL, DEFAULTS, LONG_FLOWS};
use pathloom_model::Nanos;
use pathloom_openflow::action::Action;
use pathloom_openflow::flow_match::{FlowMatch, ETH_ARP, ETH_IPV4, ETH_LLDP};
use pathloom_openflow::instruction::Instructions;
use pathloom_openflow::{FlowCommand, FlowMod, Message, PORT_CONTROLLER, TABLE_ALL};
use pathloom_openflow::{FlowStats, SEND_FLOW_REMOVED};
use std::borrow::Cow;
use std::net::Ipv4Addr;

/// Priority above every rule of `pathloom-control`.
const PRIORITY: u16 = 0xfff0;
/// Marks the rules of the driver. `pathloom-control` marks its own with `0xa` and ignores these.
pub(crate) const COOKIE: u64 = 0xb << 60;
/// Cookie bit of the rules for a tree.
const TREE: u64 = 1 << 48;
/// Priority of the rules for a tree: below the punts, above the refusal of broadcasts.
const BELOW_PUNTS: u16 = 0xffe4;
/// Time in seconds after which a switch removes a punt that was not renewed. Linux repeats a request for a neighbour for
/// 3 s at the known address and then for 3 s by broadcast, before it drops packets. So none is lost.
const LASTS_S: u16 = 3;
/// Time after which the controller renews punts.
pub(crate) const RENEWED_AFTER: Nanos = Nanos::from_secs(1);
/// The bits of a cookie that mark rules of the driver.
const OWN_MASK: u64 = 0xf << 60;
/// The whole frame, not buffered (OpenFlow 1.3.5 §7.2.5, `OFPCML_NO_BUFFER`).
const WHOLE: u16 = 0xffff;
/// Cookie bit of the rule for fragments.
const FRAGMENTS: u64 = 1;
/// Priority of the rule for fragments: above the rule for unknown datagrams, and below those of flows.
const BELOW_FLOWS: u16 = 500;
/// UDP in IPv4.
const UDP: u8 = 17;
/// Ports of DHCP (RFC 2131 §4.1).
const DHCP_SERVER: u16 = 67;
const DHCP_CLIENT: u16 = 68;

/// A kind of control traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Punt {
    /// Probes of links.
    Lldp,
    /// ARP of hosts.
    Arp,
    /// Broadcasts of DHCP clients.
    DhcpRequest,
    /// Answers of DHCP servers, to the broadcast address or to an address that no host has yet.
    DhcpReply,
}

impl Punt {
    pub(crate) const ALL: [Punt; 4] = [Punt::Lldp, Punt::Arp, Punt::DhcpRequest, Punt::DhcpReply];

    /// Whether it comes only from hosts, so that switches without hosts need no rule for it.
    pub(crate) fn is_of_hosts(self) -> bool {
        matches!(self, Punt::DhcpRequest | Punt::DhcpReply)
    }

    /// Whether hosts need it while no controller runs.
    pub(crate) fn has_tree(self) -> bool {
        self != Punt::Lldp
    }

    fn matches(self) -> FlowMatch {
        let udp = FlowMatch { eth_type: Some(ETH_IPV4), ip_proto: Some(UDP), ..FlowMatch::default() };
        match self {
            Punt::Lldp => FlowMatch { eth_type: Some(ETH_LLDP), ..FlowMatch::default() },
            Punt::Arp => FlowMatch { eth_type: Some(ETH_ARP), ..FlowMatch::default() },
            Punt::DhcpRequest => FlowMatch {
                ipv4_dst: Some((Ipv4Addr::BROADCAST, Ipv4Addr::BROADCAST)),
                udp_src: Some(DHCP_CLIENT),
                udp_dst: Some(DHCP_SERVER),
                ..udp
            },
            Punt::DhcpReply => FlowMatch { udp_src: Some(DHCP_SERVER), udp_dst: Some(DHCP_CLIENT), ..udp },
        }
    }

    fn cookie(self) -> u64 {
        let name = match self {
            Punt::Lldp => u64::from(ETH_LLDP),
            Punt::Arp => u64::from(ETH_ARP),
            Punt::DhcpRequest => u64::from(DHCP_CLIENT),
            Punt::DhcpReply => u64::from(DHCP_SERVER),
        };
        COOKIE | name
    }

    /// The message that adds or renews the rule. An existing rule is replaced by an equal one, so no frame is lost.
    /// `above_tree`: the switch has the rule for a tree.
    pub(crate) fn add(self, above_tree: bool) -> Message<'static> {
        const ACTIONS: &[Action] = &[Action::Output { port: PORT_CONTROLLER, max_len: WHOLE }];
        let mut message = add(self.cookie(), (CONTROL, PRIORITY), self.matches(), ACTIONS);
        if let Message::FlowMod(rule) = &mut message {
            rule.hard_timeout_s = if above_tree && self.has_tree() { LASTS_S } else { 0 };
        }
        message
    }

    /// The message that adds the rule for a tree: the same frames go out of these ports, except the one at which they
    /// arrived.
    pub(crate) fn add_tree(self, ports: &[u32]) -> Message<'static> {
        let actions: Vec<Action> = ports.iter().map(|&port| Action::Output { port, max_len: 0 }).collect();
        let instructions = Instructions { apply: Cow::Owned(actions), ..Instructions::default() };
        with(self.cookie() | TREE, (CONTROL, BELOW_PUNTS), self.matches(), instructions)
    }

    /// The message that deletes the rule for a tree.
    pub(crate) fn delete_tree(self) -> Message<'static> {
        delete(self.cookie() | TREE)
    }

    /// The message that deletes the rule, if an earlier start of the controller left it.
    pub(crate) fn delete(self) -> Message<'static> {
        delete(self.cookie())
    }
}

/// Whether a cookie belongs to a rule of the driver.
pub(crate) fn is_own(cookie: u64) -> bool {
    cookie & OWN_MASK == COOKIE
}

/// Whether the controller renews this rule all the time, because the switch removes it.
pub(crate) fn is_renewed(rule: &Message<'_>) -> bool {
    matches!(rule, Message::FlowMod(rule) if rule.hard_timeout_s > 0)
}

/// Whether a row of a switch is this rule, unchanged. Each rule of the driver has its own cookie, so the match need not
/// be compared.
pub(crate) fn is_installed(wanted: &Message<'_>, row: &FlowStats) -> bool {
    let Message::FlowMod(wanted) = wanted else { return false };
    (row.cookie, row.table, row.priority) == (wanted.cookie, wanted.table, wanted.priority)
        && row.instructions == wanted.instructions
        && row.flags & SEND_FLOW_REMOVED != 0
}

/// The rule for fragments of datagrams. Switches see port 0 in them (Open vSwitch even in the first one), so they would
/// look like first packets of a flow. The rule is below the rules of flows and above the one that copies unknown
/// datagrams.
pub(crate) fn fragments() -> Message<'static> {
    let matches = FlowMatch {
        eth_type: Some(ETH_IPV4),
        ip_proto: Some(UDP),
        udp_src: Some(0),
        udp_dst: Some(0),
        ..FlowMatch::default()
    };
    let instructions = Instructions { goto_table: Some(DEFAULTS), ..Instructions::default() };
    with(COOKIE | FRAGMENTS, (LONG_FLOWS, BELOW_FLOWS), matches, instructions)
}

/// The message that adds a rule of the driver, in a table and with a priority. Without actions, the rule drops
/// frames.
pub(crate) fn add(cookie: u64, place: (u8, u16), matches: FlowMatch, actions: &'static [Action]) -> Message<'static> {
    with(cookie, place, matches, Instructions { apply: Cow::Borrowed(actions), ..Instructions::default() })
}

/// The message that adds a rule. The switch reports the removal of the rule.
fn with(
    cookie: u64,
    (table, priority): (u8, u16),
    matches: FlowMatch,
    instructions: Instructions<'static>,
) -> Message<'static> {
    let flags = SEND_FLOW_REMOVED;
    Message::FlowMod(FlowMod { cookie, table, priority, matches, instructions, flags, ..FlowMod::NOTHING })
}

/// The message that deletes the rules with a cookie.
pub(crate) fn delete(cookie: u64) -> Message<'static> {
    let command = FlowCommand::Delete;
    Message::FlowMod(FlowMod {
        cookie,
        cookie_mask: u64::MAX,
        table: TABLE_ALL,
        command,
        priority: PRIORITY,
        ..FlowMod::NOTHING
    })
}
