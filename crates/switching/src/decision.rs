//! What becomes of a frame.

use crate::table::RuleRef;
use pathloom_model::rules::MeterId;
use pathloom_model::PortNo;

/// One copy of a frame on its way out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Emission {
    /// Port it leaves by.
    pub port: PortNo,
    /// VLAN tag it leaves with.
    pub tag: Option<u16>,
}

/// What becomes of a frame, and why.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Decision {
    /// Copies sent out; none: the frame is dropped.
    pub emissions: Vec<Emission>,
    /// A copy of the headers goes to the controller.
    pub copied: bool,
    /// The rules that acted, in order: one per table passed.
    pub rules: Vec<RuleRef>,
    /// Meters the frame has to pass first, in order.
    pub meters: Vec<MeterId>,
    /// Whether a rule that looks at TCP flags stood in a table that was passed: then the decision holds for this frame
    /// alone when its flags are not those of a plain segment.
    pub looked_at_flags: bool,
}

impl Decision {
    /// Whether all plain segments of a flow that enter alike leave by just this port: then a driver may remember it,
    /// until [`crate::Switch::take_stale`] names the flow.
    pub fn single(&self) -> Option<Emission> {
        match self.emissions[..] {
            [one] if !self.copied && self.meters.is_empty() => Some(one),
            _ => None,
        }
    }
}
