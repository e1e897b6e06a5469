//! Cookies of rules. They contain enough information for a restarted controller to recognise the rules in a switch.
//!
//! ```text
//! 63..60 mark | 59..58 kind | 57..42 epoch | 41..6 serial number of the flow | 5..0 plan
//! ```
//! Epoch and serial number together are the [`FlowId`]. Every start of a controller has its own epoch, so no
//! identifier is used twice. The highest bit of the serial number marks a way back (`routes/returns.rs`). The next
//! lower bit marks a direction of a connection on an assigned path (`routes/bound.rs`). Rules of labels have the kind
//! of detection rules, and plan 1.

use pathloom_scheme::FlowId;

const MARK: u64 = 0xA;
const MARK_SHIFT: u32 = 60;
const KIND_SHIFT: u32 = 58;
const FLOW_SHIFT: u32 = 6;
const SERIAL_BITS: u32 = 36;
/// Set in the identifiers of ways back.
const WAY_BACK: u64 = 1 << (SERIAL_BITS - 1);
/// Set in the identifiers of both directions of a connection on an assigned path.
const BOUND: u64 = 1 << (SERIAL_BITS - 2);
const SERIAL_MASK: u64 = BOUND - 1;
const FLOW_MASK: u64 = (1 << (SERIAL_BITS + 16)) - 1;

/// Plan that distinguishes [`RuleKind::Label`] from [`RuleKind::Detection`]. Rules of no single flow have no plan
/// otherwise.
const LABEL_PLAN: u64 = 1;

/// Number of different plans of a flow. Plans are counted modulo this number.
pub const PLANS: u8 = 64;

/// Mask for the comparison of cookies with [`SOURCE_COOKIE`].
pub const SOURCE_COOKIE_MASK: u64 = 0xFC00_0000_0000_0000;
/// Cookie under [`SOURCE_COOKIE_MASK`] of every rule that counts a flow. Requests for flow statistics select these
/// rules.
pub const SOURCE_COOKIE: u64 = MARK << MARK_SHIFT;

/// Purpose of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleKind {
    /// Counts one flow at its source ToR, and puts it on its path if it has one.
    Source,
    /// Forwards one flow at a later switch of its path.
    Hop,
    /// A default route.
    Default,
    /// Joins tables, or copies first and last packets to the controller.
    Detection,
    /// Forwards all packets with a label, at a switch of its tree.
    Label,
}

/// The fields of a cookie of the controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cookie {
    /// Purpose of the rule.
    pub kind: RuleKind,
    /// The flow. For rules of no single flow, only its epoch has a meaning.
    pub flow: FlowId,
    /// Plan of the flow to which the rule belongs, modulo [`PLANS`].
    pub plan: u8,
}

impl Cookie {
    /// Creates the cookie of a rule that belongs to no single flow.
    pub fn of_no_flow(kind: RuleKind, epoch: u16) -> Cookie {
        Cookie { kind, flow: flow_id(epoch, 0), plan: 0 }
    }

    /// Returns the cookie as a number.
    pub fn encode(self) -> u64 {
        let kind = match self.kind {
            RuleKind::Source => 0,
            RuleKind::Hop => 1,
            RuleKind::Default => 2,
            RuleKind::Detection | RuleKind::Label => 3,
        };
        let plan = if self.kind == RuleKind::Label { LABEL_PLAN } else { u64::from(self.plan % PLANS) };
        MARK << MARK_SHIFT | kind << KIND_SHIFT | (self.flow.0 & FLOW_MASK) << FLOW_SHIFT | plan
    }

    /// Reads the fields of a cookie; `None` if it is not a cookie of the controller.
    pub fn decode(cookie: u64) -> Option<Cookie> {
        if cookie >> MARK_SHIFT != MARK {
            return None;
        }
        let plan = cookie & u64::from(PLANS - 1);
        let kind = match cookie >> KIND_SHIFT & 3 {
            0 => RuleKind::Source,
            1 => RuleKind::Hop,
            2 => RuleKind::Default,
            _ if plan == LABEL_PLAN => RuleKind::Label,
            _ => RuleKind::Detection,
        };
        let plan = if kind == RuleKind::Label { 0 } else { plan as u8 };
        Some(Cookie { kind, flow: FlowId(cookie >> FLOW_SHIFT & FLOW_MASK), plan })
    }
}

/// Returns the identifier of flow number `serial` (modulo 2³⁴) of an epoch.
pub fn flow_id(epoch: u16, serial: u64) -> FlowId {
    FlowId(u64::from(epoch) << SERIAL_BITS | serial & SERIAL_MASK)
}

/// Turns the identifier of a flow into that of a way back.
pub fn way_back_id(flow: FlowId) -> FlowId {
    FlowId(flow.0 | WAY_BACK)
}

/// Whether a flow with this identifier is a way back.
pub fn is_way_back(flow: FlowId) -> bool {
    flow.0 & WAY_BACK != 0
}

/// Turns the identifier of a flow into that of a direction of a connection on an assigned path.
pub fn bound_id(flow: FlowId) -> FlowId {
    FlowId(flow.0 | BOUND)
}

/// Whether a flow with this identifier is a direction of a connection on an assigned path.
pub fn is_bound(flow: FlowId) -> bool {
    flow.0 & BOUND != 0
}

/// Returns the epoch and serial number of a flow.
pub fn epoch_and_serial(flow: FlowId) -> (u16, u64) {
    ((flow.0 >> SERIAL_BITS) as u16, flow.0 & SERIAL_MASK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn decoding_reverses_encoding(epoch: u16, serial in 0..1u64 << 34, plan in 0..PLANS, kind in 0..5usize) {
            let kinds = [RuleKind::Source, RuleKind::Hop, RuleKind::Default, RuleKind::Detection, RuleKind::Label];
            let kind = kinds[kind];
            let plan = if matches!(kind, RuleKind::Detection | RuleKind::Label) { 0 } else { plan };
            let cookie = Cookie { kind, flow: flow_id(epoch, serial), plan };
            prop_assert_eq!(Cookie::decode(cookie.encode()), Some(cookie));
            prop_assert_eq!(epoch_and_serial(cookie.flow), (epoch, serial));
            let back = way_back_id(cookie.flow);
            prop_assert!(is_way_back(back) && !is_way_back(cookie.flow));
            prop_assert_eq!(epoch_and_serial(back), (epoch, serial));
            let bound = bound_id(cookie.flow);
            prop_assert!(is_bound(bound) && !is_bound(cookie.flow) && !is_bound(back) && !is_way_back(bound));
            prop_assert_eq!(epoch_and_serial(bound), (epoch, serial));
            prop_assert_eq!(Cookie::decode(Cookie { flow: bound, ..cookie }.encode()).map(|cookie| cookie.flow), Some(bound));
            prop_assert_eq!(Cookie::decode(Cookie { flow: back, ..cookie }.encode()).map(|cookie| cookie.flow), Some(back));
            let selected = cookie.encode() & SOURCE_COOKIE_MASK == SOURCE_COOKIE;
            prop_assert_eq!(selected, kind == RuleKind::Source);
        }

        #[test]
        fn foreign_cookies_are_not_decoded(cookie in 0..0xA000_0000_0000_0000u64) {
            prop_assert_eq!(Cookie::decode(cookie), None);
        }
    }
}
