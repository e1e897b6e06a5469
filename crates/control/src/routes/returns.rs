//! Ways back: if a scheme needs both directions ([`pathloom_scheme::Needs::both_directions`]), the reverse direction
//! of a TCP connection uses the path of its flow, reversed. Acknowledgements then only wait behind other traffic of
//! that path.
//!
//! A way back is a flow, but the scheme gets no events about it. Its identifier marks it, so that a restarted
//! controller that finds its rules does not take it for a long flow. It ends together with its flow. It becomes a
//! long flow of the scheme if an announcement, a label or a measurement shows that it is long.

use crate::context::Context;
use crate::cookies::{is_way_back, way_back_id};
use crate::flow_rules::FlowRules;
use crate::flows::{Flow, FlowTable};
use crate::orphans::Orphans;
use crate::plan::FlowKey;
use pathloom_model::{Attachment, FiveTuple, PROTO_TCP};
use pathloom_scheme::FlowId;

/// Returns the way back of a flow.
pub(super) fn way_back(cx: &Context, flows: &FlowTable, id: FlowId) -> Option<FlowId> {
    let reverse = flows.get(id)?.key.five_tuple.reverse();
    let back = flows.find(&reverse)?;
    (cx.is_way_back_only(back) && flows.get(back).is_some_and(|flow| !flow.closed)).then_some(back)
}

/// All ways back that have not become long flows.
pub(super) fn all(cx: &Context, flows: &FlowTable) -> Vec<FlowId> {
    flows.iter().map(|(id, _)| id).filter(|&id| cx.is_way_back_only(id)).collect()
}

/// A way back that can be created.
pub(super) struct Missing {
    five_tuple: FiveTuple,
    ends: (Attachment, Attachment),
    /// The flow that has this five-tuple. It must end first.
    pub replaces: Option<FlowId>,
}

/// Returns the way back that a flow lacks. `None` if the reverse direction is a long flow of the scheme, or cannot be
/// one.
pub(super) fn missing(cx: &Context, flows: &FlowTable, orphans: &Orphans, id: FlowId) -> Option<Missing> {
    let five_tuple = flows.get(id)?.key.five_tuple.reverse();
    if five_tuple.proto() != PROTO_TCP {
        // Other protocols need no reverse packets, and unused rules would expire and be added again.
        return None;
    }
    let ends = (cx.attachment(five_tuple.src())?, cx.attachment(five_tuple.dst())?);
    let replaces = flows.find(&five_tuple);
    let free = match replaces {
        // The reverse direction was known by its first packet and counted. From now on it is counted on its path.
        Some(other) => !cx.is_long(other),
        None => !orphans.has(&five_tuple),
    };
    free.then_some(Missing { five_tuple, ends, replaces })
}

impl Missing {
    /// Creates the way back, whose next plan is `plans`.
    pub(super) fn create(self, cx: &mut Context, rules: &mut FlowRules, plans: u8) -> FlowId {
        let Missing { five_tuple, ends: (src, dst), replaces } = self;
        let name = replaces.unwrap_or_else(|| rules.flows.next_id());
        let name = if is_way_back(name) { rules.flows.next_id() } else { name };
        let key = FlowKey { id: way_back_id(name), five_tuple, src, dst, meter: None };
        rules.insert_flow(cx, Flow { plans, ..Flow::new(key) }, false);
        key.id
    }
}
