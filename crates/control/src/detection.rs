//! Detection of first and last packets: the rules of the control table that copy them to the controller, and the
//! meaning of a copy.

use crate::config::Config;
use crate::cookies::{Cookie, RuleKind};
use crate::places::Places;
use crate::tables::{self, CONTROL, DEFAULTS, LONG_FLOWS};
use pathloom_model::rules::{Actions, Match, Rule, RuleAction};
use pathloom_model::{
    Address, Fabric, Headers, MptcpOption, NodeId, Prefix, LONG_FLOW_DSCP, PROTO_TCP, PROTO_UDP, TCP_ACK, TCP_FIN,
    TCP_RST, TCP_SYN,
};
use pathloom_scheme::{Detection, Needs};

/// Returns the rules that join the tables of `switch`. A ToR also gets rules that copy packets of its own hosts, by
/// the ToR's prefix and by prefixes that are placed there. Packets in transit are not copied. `assigned` are
/// addresses at the switch that have path assignments. They get their own rules if the rules for the prefix do not
/// copy their first packets.
pub(crate) fn rules(
    config: &Config,
    needs: &Needs,
    (fabric, places): (&Fabric, &Places),
    switch: NodeId,
    assigned: &[Address],
) -> Vec<Rule> {
    let priorities = &config.priorities;
    let mut rules = vec![
        tables::rule(CONTROL, 0, Match::default(), Actions::NONE, Some(LONG_FLOWS)),
        tables::rule(LONG_FLOWS, 0, Match::default(), Actions::NONE, Some(DEFAULTS)),
    ];
    let own = fabric.tor_prefix(switch);
    let finds = !matches!(needs.detection, Detection::Nothing | Detection::Announced);
    let labelled = (needs.detection == Detection::Label).then_some(LONG_FLOW_DSCP);
    let dscp = labelled.filter(|_| !needs.subflows);
    for prefix in own.into_iter().chain(places.sources_at(switch, own)) {
        let from_here = Match { src: Some(prefix), ..Match::default() };
        let mut copy = |table: u8, priority, matches| {
            rules.push(tables::rule(table, priority, matches, [RuleAction::Copy].into(), Some(table + 1)));
        };
        let tcp = Match { proto: Some(PROTO_TCP), ..from_here };
        if finds || needs.subflows {
            // A flow of the accepting side starts with its SYN+ACK. The SYN+ACK of a first subflow contains the token
            // of the connection.
            let both = config.both_directions || needs.subflows;
            let flags = Some((TCP_SYN, if both { TCP_SYN } else { TCP_SYN | TCP_ACK }));
            copy(CONTROL, priorities.first, Match { tcp_flags: flags, dscp, ..tcp });
            copy(CONTROL, priorities.last, Match { tcp_flags: Some((TCP_FIN, TCP_FIN)), dscp, ..tcp });
        }
        if finds {
            // Without a handshake, the first packets are those that match no rule of their flow.
            copy(LONG_FLOWS, priorities.unknown, Match { proto: Some(PROTO_UDP), dscp: labelled, ..from_here });
        }
    }
    if dscp.is_some() || !(finds || needs.subflows) {
        rules.extend(assigned.iter().flat_map(|&address| of_source(config, address)));
    }
    for rule in &mut rules {
        rule.cookie = Cookie::of_no_flow(RuleKind::Detection, config.epoch).encode();
        rule.notify_removal = config.is_watched();
    }
    rules
}

/// Returns the rules that copy first and last packets from an address, regardless of the receiver.
fn of_source(config: &Config, address: Address) -> [Rule; 2] {
    let from_here = Match { src: Some(Prefix::host(address)), proto: Some(PROTO_TCP), ..Match::default() };
    [(config.priorities.first, (TCP_SYN, TCP_SYN | TCP_ACK)), (config.priorities.last, (TCP_FIN, TCP_FIN))].map(
        |(priority, flags)| {
            let matches = Match { tcp_flags: Some(flags), ..from_here };
            let priority = priority.saturating_add(1);
            tables::rule(CONTROL, priority, matches, [RuleAction::Copy].into(), Some(LONG_FLOWS))
        },
    )
}

/// Whether a rule is one of [`of_source`].
pub(crate) fn is_of_source(config: &Config, rule: &Rule) -> bool {
    let address = rule.matches.src.and_then(Prefix::only);
    address.is_some_and(|address| of_source(config, address).iter().any(|other| other.key() == rule.key()))
}

/// Meaning of a copied packet of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Meaning {
    /// A flow begins.
    First {
        /// Whether the scheme is told at once, not only after a measurement.
        long: bool,
        /// The token of its MPTCP connection.
        token: Option<u32>,
        /// Whether it is an additional subflow of that connection.
        further: bool,
    },
    /// A packet of the reverse direction contains the token of the flow's MPTCP connection.
    Named {
        /// The token of the connection.
        token: u32,
    },
    /// A flow ends.
    Last,
    /// A packet of a flow that is not known.
    Standing {
        /// Whether the scheme is told at once, not only after a measurement.
        long: bool,
    },
    /// The packet has no meaning for the scheme.
    Nothing,
}

/// Returns the meaning of a packet for a scheme with these needs.
pub(crate) fn meaning(config: &Config, needs: &Needs, headers: &Headers) -> Meaning {
    let tcp = headers.five_tuple.proto() == PROTO_TCP;
    if tcp && headers.tcp_flags & TCP_FIN != 0 {
        return Meaning::Last;
    }
    let labelled = headers.dscp == LONG_FLOW_DSCP;
    if tcp && headers.tcp_flags & TCP_SYN == 0 {
        let swept = config.sweep.is_some() && headers.tcp_flags & TCP_RST == 0;
        return match needs.detection {
            Detection::Label if swept && labelled => Meaning::Standing { long: true },
            Detection::Measured { .. } if swept => Meaning::Standing { long: false },
            Detection::Any { .. } if swept => Meaning::Standing { long: labelled },
            _ => Meaning::Nothing,
        };
    }
    if tcp && headers.tcp_flags & TCP_ACK != 0 && (needs.subflows || !config.both_directions) {
        return match headers.mptcp {
            Some(MptcpOption::Capable { token: Some(token) }) if needs.subflows => Meaning::Named { token },
            _ => Meaning::Nothing,
        };
    }
    if let (true, Some(option)) = (needs.subflows, headers.mptcp) {
        return match option {
            MptcpOption::Capable { token } => Meaning::First { long: true, token, further: false },
            MptcpOption::Join { token } => Meaning::First { long: true, token: Some(token), further: true },
        };
    }
    match needs.detection {
        Detection::Label if labelled => Meaning::First { long: true, token: None, further: false },
        Detection::Measured { .. } => Meaning::First { long: false, token: None, further: false },
        Detection::Any { .. } => Meaning::First { long: labelled, token: None, further: false },
        _ => Meaning::Nothing,
    }
}
