//! Punts: the rules that send control traffic (LLDP, ARP, DHCP) to the controller. They are at the top of the control
//! table and have no other output, so they never flood.

use pathloom_control::{CONTROL, DEFAULTS, LONG_FLOWS};
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

    /// The message that adds the rule. An existing rule is replaced by an equal one, so no frame is lost.
    pub(crate) fn add(self) -> Message<'static> {
        const ACTIONS: &[Action] = &[Action::Output { port: PORT_CONTROLLER, max_len: WHOLE }];
        add(self.cookie(), (CONTROL, PRIORITY), self.matches(), ACTIONS)
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
