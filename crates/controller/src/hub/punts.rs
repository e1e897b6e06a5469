//! Punts: the rules that send control traffic (LLDP, ARP, DHCP) to the controller. They are at the top of the control
//! table and have no other output, so they never flood.
//!
//! A switch of a known fabric removes its punts for ARP and DHCP after [`LASTS_S`] unless the controller renews them.
//! Below them are rules that always stay. These send such frames of hosts along two trees of the fabric to all other
//! hosts, so hosts find each other while no controller runs. Frames that other switches send along a tree stay in it: their
//! rules are above the punts, because the switch that sent them may be the only one without a controller.

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
/// Cookie bit of the rules for trees.
const TREE: u64 = 1 << 48;
/// Position of the port in the cookies of the rules for trees; 0 for frames of hosts.
const PORT_SHIFT: u32 = 16;
/// Priority of the rules for frames of hosts: below the punts, above the refusal of broadcasts.
const BELOW_PUNTS: u16 = 0xffe4;
/// Priority of the rules for ports that are in no tree. No frame comes from there if the cabling is right.
const NO_TREE: u16 = 0xffe5;
/// Priority of the rules for frames in a tree: above the punts, below the refusal of tagged frames.
const IN_TREE: u16 = 0xfff4;
/// Time in seconds after which a switch removes a punt that was not renewed. Linux repeats a request for a neighbour for
/// 3 s at the known address and then for 3 s by broadcast, before it drops packets. So none is lost.
pub(crate) const LASTS_S: u16 = 3;
/// Time after which the controller renews punts.
pub(crate) const RENEWED_AFTER: Nanos = Nanos::from_secs(1);
/// The bits of a cookie that mark rules of the driver.
const OWN_MASK: u64 = 0xf << 60;
/// The whole frame, not buffered (OpenFlow 1.3.5 §7.2.5, `OFPCML_NO_BUFFER`).
pub(crate) const WHOLE: u16 = 0xffff;
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
    /// `above_trees`: the switch has the rules for trees.
    pub(crate) fn add(self, above_trees: bool) -> Message<'static> {
        const ACTIONS: &[Action] = &[Action::Output { port: PORT_CONTROLLER, max_len: WHOLE }];
        let mut message = add(self.cookie(), (CONTROL, PRIORITY), self.matches(), ACTIONS);
        if let Message::FlowMod(rule) = &mut message {
            rule.hard_timeout_s = if above_trees && self.has_tree() { LASTS_S } else { 0 };
        }
        message
    }

    /// The messages that add the rules for trees, and those that delete rules of an earlier start for other ports.
    pub(crate) fn trees(self, ports: &TreePorts) -> (Vec<Message<'static>>, Vec<Message<'static>>) {
        let rule = |port: u32, priority: u16, to: &[&[u32]]| {
            let to = to.iter().copied().flatten().filter(|&&to| to != port);
            let apply: Vec<Action> = to.map(|&port| Action::Output { port, max_len: 0 }).collect();
            let instructions = Instructions { apply: Cow::Owned(apply), ..Instructions::default() };
            let matches = FlowMatch { in_port: (port > 0).then_some(port), ..self.matches() };
            with(self.tree_cookie(port), (CONTROL, priority), matches, instructions)
        };
        let TreePorts { hosts, trees: [first, second], others } = ports;
        let (mut wanted, mut unwanted) = (Vec::new(), Vec::new());
        for tree in [first, second] {
            wanted.extend(tree.iter().map(|&port| rule(port, IN_TREE, &[hosts, tree])));
        }
        if hosts.is_empty() {
            unwanted.extend(others.iter().chain(&[0]).map(|&port| delete(self.tree_cookie(port))));
        } else {
            wanted.push(rule(0, BELOW_PUNTS, &[hosts, first, second]));
            wanted.extend(others.iter().map(|&port| rule(port, NO_TREE, &[])));
            unwanted.extend(hosts.iter().map(|&port| delete(self.tree_cookie(port))));
        }
        (wanted, unwanted)
    }

    /// The message that deletes all rules for trees.
    pub(crate) fn delete_trees(self) -> Message<'static> {
        let any_port = u64::from(u32::MAX) << PORT_SHIFT;
        delete_all(self.tree_cookie(0), !any_port)
    }

    fn tree_cookie(self, port: u32) -> u64 {
        self.cookie() | TREE | u64::from(port) << PORT_SHIFT
    }

    /// The message that deletes the rule, if an earlier start of the controller left it.
    pub(crate) fn delete(self) -> Message<'static> {
        delete(self.cookie())
    }
}

/// The ports of a switch, by its own numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct TreePorts {
    /// Those that face hosts.
    pub hosts: Vec<u32>,
    /// Those in each tree.
    pub trees: [Vec<u32>; 2],
    /// Those to other switches that are in no tree.
    pub others: Vec<u32>,
}

impl TreePorts {
    /// The ports to other switches.
    pub(crate) fn to_switches(&self) -> Vec<u32> {
        self.trees.iter().flatten().chain(&self.others).copied().collect()
    }

    /// Sends a frame along both trees.
    pub(crate) fn along_trees(&self) -> Vec<Action> {
        self.trees.iter().flatten().map(|&port| Action::Output { port, max_len: 0 }).collect()
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
        && row.flags & SEND_FLOW_REMOVED == wanted.flags
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
pub(crate) fn with(
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
    delete_all(cookie, u64::MAX)
}

/// The message that deletes the rules whose cookies have this value under a mask.
pub(crate) fn delete_all(cookie: u64, cookie_mask: u64) -> Message<'static> {
    let command = FlowCommand::Delete;
    Message::FlowMod(FlowMod { cookie, cookie_mask, table: TABLE_ALL, command, priority: PRIORITY, ..FlowMod::NOTHING })
}

/// Restricts a message that deletes rules to one table.
pub(crate) fn in_table(table: u8, mut message: Message<'static>) -> Message<'static> {
    if let Message::FlowMod(rule) = &mut message {
        rule.table = table;
    }
    message
}
