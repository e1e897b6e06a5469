//! Ways back: where a scheme asks for both directions ([`pathloom_scheme::Needs::both_directions`]), the other direction of
//! a TCP connection takes the path of its flow, reversed. Acknowledgements then wait only behind what that path carries.
//!
//! A way back is a flow like others, but the scheme does not hear of it. Its identifier says what it is, so that a controller
//! that starts anew and finds its rules does not take it for a long flow. It ends with the flow that it belongs to, and it
//! becomes a long flow of the scheme's when it is announced, labelled or measured to be one.

use super::Routes;
use crate::context::Context;
use crate::cookies::{is_way_back, way_back_id};
use crate::flows::Flow;
use crate::plan::FlowKey;
use pathloom_model::{Path, PROTO_TCP};
use pathloom_scheme::FlowId;

impl Routes {
    /// Has the other direction of a long flow take its path.
    pub(crate) fn lead_back(&mut self, cx: &mut Context, id: FlowId, path: &Path) {
        if !cx.needs.both_directions || !cx.is_long(id) {
            return;
        }
        if let Some(back) = self.way_back(cx, id).or_else(|| self.make_way_back(cx, id)) {
            self.route(cx, back, path.reverse(), None);
        }
    }

    /// The flow is put back on the default routes, and so is the other direction.
    pub(crate) fn leave_back(&mut self, cx: &mut Context, id: FlowId) {
        if let Some(back) = self.way_back(cx, id) {
            self.unroute(cx, back);
        }
    }

    /// The flow is over, and so is its way back. Its rules stay until nothing more comes.
    pub(crate) fn end_back(&mut self, cx: &mut Context, id: FlowId) {
        if let Some(back) = self.way_back(cx, id) {
            self.finish(cx, back);
        }
    }

    /// Puts all ways back on the default routes: a scheme is in charge that asks for none.
    pub(crate) fn leave_all_back(&mut self, cx: &mut Context) {
        let ways: Vec<FlowId> = self.flows.iter().map(|(id, _)| id).filter(|&id| cx.leads_back(id)).collect();
        for id in ways {
            self.unroute(cx, id);
        }
    }

    /// The way back of a flow.
    fn way_back(&self, cx: &Context, id: FlowId) -> Option<FlowId> {
        let reverse = self.flows.get(id)?.key.five_tuple.reverse();
        let back = self.flows.find(&reverse)?;
        (cx.leads_back(back) && self.flows.get(back).is_some_and(|flow| !flow.closed)).then_some(back)
    }

    /// Makes the way back of a flow; `None` where the other direction is a flow of the scheme's, or cannot be one.
    fn make_way_back(&mut self, cx: &mut Context, id: FlowId) -> Option<FlowId> {
        let five_tuple = self.flows.get(id)?.key.five_tuple.reverse();
        if five_tuple.proto != PROTO_TCP {
            // Nothing has to come back, and rules that nothing uses come and go.
            return None;
        }
        let (src, dst) = (cx.attachment(five_tuple.src)?, cx.attachment(five_tuple.dst)?);
        let mut plans = 0;
        let name = match self.flows.find(&five_tuple) {
            Some(other) if cx.is_long(other) => return None,
            Some(other) => {
                // It was known by its first packet, and counted. It is counted on its path from now on.
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
