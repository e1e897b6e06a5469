//! Decisions of a switch about frames.

use crate::table::RuleRef;
use pathloom_model::rules::MeterId;
use pathloom_model::PortNo;

/// One copy of a frame that leaves the switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Emission {
    /// Port by which the copy leaves.
    pub port: PortNo,
    /// VLAN tag of the copy.
    pub tag: Option<u16>,
}

/// What the switch does with a frame, and the rules that caused it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Decision {
    /// Copies that are sent. If there are none, the frame is dropped.
    pub emissions: Vec<Emission>,
    /// Whether a copy of the headers is sent to the controller.
    pub copied: bool,
    /// The rules that acted, in order: one per table.
    pub rules: Vec<RuleRef>,
    /// Meters that the frame must pass first, in order.
    pub meters: Vec<MeterId>,
    /// Whether one of the tables used contains a rule that matches TCP flags. If so, and if the flags of the frame are
    /// not those of a plain segment, the decision is valid for this frame only.
    pub looked_at_flags: bool,
    /// Whether frames to the same destination with the same tag may be handled otherwise: one of the tables used contains a
    /// rule that matches more than these, or an output was left out because the frame came by its port.
    pub looked_at_more: bool,
    /// Whether a group has chosen by the hash of the five-tuple.
    pub hashed: bool,
}

impl Decision {
    /// Returns the emission if there is only one, without copy to the controller and without meter. All plain segments
    /// of the flow that enter by the same port with the same tag and DSCP then leave in the same way. A driver may
    /// remember the decision until [`crate::Switch::take_stale`] returns the flow.
    pub fn single(&self) -> Option<Emission> {
        match self.emissions[..] {
            [one] if !self.copied && self.meters.is_empty() => Some(one),
            _ => None,
        }
    }
}
