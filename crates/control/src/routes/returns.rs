//! Ways back: if a scheme needs both directions ([`pathloom_scheme::Needs::both_directions`]), the reverse direction
//! of a TCP connection uses the path of its flow, reversed. Acknowledgements then only wait behind other traffic of
//! that path.
//!
//! A way back is a flow, but the scheme gets no events about it. Its identifier marks it, so that a restarted
//! controller that finds its rules does not take it for a long flow. It ends together with its flow. It becomes a
//! long flow of the scheme if an announcement, a label or a measurement shows that it is long.

use super::Routes;
use crate::context::Context;
use crate::cookies::{is_way_back, way_back_id};
use crate::flows::Flow;
use crate::plan::FlowKey;
use pathloom_model::{Path, PROTO_TCP};
use pathloom_scheme::FlowId;

impl Routes {
    /// Puts the reverse direction of a long flow on its path, reversed.
    pub(crate) fn route_way_back(&mut self, cx: &mut Context, id: FlowId, path: &Path) {
        if !cx.needs.both_directions || !cx.is_long(id) {
            return;
        }
        if let Some(back) = self.way_back(cx, id).or_else(|| self.make_way_back(cx, id)) {
            self.route(cx, back, path.reverse(), None);
        }
    }

    /// The flow returns to the default routes, and its way back too.
    pub(crate) fn unroute_way_back(&mut self, cx: &mut Context, id: FlowId) {
        if let Some(back) = self.way_back(cx, id) {
            self.unroute(cx, back);
        }
    }

    /// The flow has ended, and its way back too. The rules of the way back stay until no packet matches them any
    /// more.
    pub(crate) fn end_way_back(&mut self, cx: &mut Context, id: FlowId) {
        if let Some(back) = self.way_back(cx, id) {
            self.finish(cx, back);
        }
    }

    /// Puts all ways back on the default routes, because the new scheme does not need them.
    pub(crate) fn unroute_all_ways_back(&mut self, cx: &mut Context) {
        let ways: Vec<FlowId> = self.flows.iter().map(|(id, _)| id).filter(|&id| cx.is_way_back_only(id)).collect();
        for id in ways {
            self.unroute(cx, id);
        }
    }

    /// Returns the way back of a flow.
    fn way_back(&self, cx: &Context, id: FlowId) -> Option<FlowId> {
        let reverse = self.flows.get(id)?.key.five_tuple.reverse();
        let back = self.flows.find(&reverse)?;
        (cx.is_way_back_only(back) && self.flows.get(back).is_some_and(|flow| !flow.closed)).then_some(back)
    }

    /// Creates the way back of a flow. `None` if the reverse direction is a long flow of the scheme, or cannot be
    /// one.
    fn make_way_back(&mut self, cx: &mut Context, id: FlowId) -> Option<FlowId> {
        let five_tuple = self.flows.get(id)?.key.five_tuple.reverse();
        if five_tuple.proto != PROTO_TCP {
            // Other protocols need no reverse packets, and unused rules would expire and be added again.
            return None;
        }
        let (src, dst) = (cx.attachment(five_tuple.src)?, cx.attachment(five_tuple.dst)?);
        let mut plans = 0;
        let name = match self.flows.find(&five_tuple) {
            Some(other) if cx.is_long(other) => return None,
            Some(other) => {
                // The reverse direction was known by its first packet and counted. From now on it is counted on its
                // path.
                plans = self.replace(cx, other)?;
                other
            }
            None if self.orphans.has(&five_tuple) => return None,
            None => self.flows.next_id(),
        };
        let name = if is_way_back(name) { self.flows.next_id() } else { name };
        let key = FlowKey { id: way_back_id(name), five_tuple, src, dst, meter: None };
        self.insert_flow(cx, Flow { plans, ..Flow::new(key) }, false);
        Some(key.id)
    }
}
