//! Arrival and end of flows.

use super::Routes;
use crate::context::Context;
use crate::cookies::is_bound;
use crate::detection::{meaning, Meaning};
use crate::flows::Flow;
use crate::plan::FlowKey;
use pathloom_model::{Attachment, FiveTuple, Headers, NodeId, PortNo};
use pathloom_scheme::{Detection, Event, FlowId, FlowView};

/// Maximum number of stored messages per switch until its rules are known.
const MAX_EARLY_MESSAGES: usize = 1024;

/// A message about a flow from a ToR whose rules are not known yet.
#[derive(Clone, Debug)]
pub(super) enum EarlyMessage {
    /// A copy of a packet.
    Packet(PortNo, Headers),
    /// An announcement.
    Announced(FiveTuple, Option<u64>),
}

impl Routes {
    pub(crate) fn packet_in(&mut self, cx: &mut Context, switch: NodeId, in_port: PortNo, headers: &Headers) {
        if !cx.is_ready(switch) {
            return self.store_early_message(cx, switch, EarlyMessage::Packet(in_port, *headers));
        }
        let five_tuple = headers.five_tuple;
        // The packet must come from the port of its source address, so that no host can send packets for another.
        let at_home = |at: &Attachment| at.tor == switch && cx.fabric.link(at.uplink).to_port == in_port;
        if cx.attachment(five_tuple.src).filter(at_home).is_none() {
            cx.counts.invalid_inputs += 1;
            return;
        }
        if self.takes_packet(cx, headers) {
            return;
        }
        match meaning(&cx.config, &cx.needs, headers) {
            // The flow is known by now or has ended; this packet was in transit.
            Meaning::Standing { .. } if self.flows.find(&five_tuple).is_some() => {}
            Meaning::Standing { long } => {
                let arrived = self.arrive(cx, five_tuple, long);
                cx.counts.standing += u64::from(arrived.is_some());
                if let Some(flow) = arrived.filter(|_| long) {
                    cx.counts.labelled += 1;
                    self.queue_event(cx, Event::FlowArrived { flow });
                }
            }
            Meaning::First { long, token, further } => {
                if let Some(id) = self.arrive(cx, five_tuple, long) {
                    cx.counts.labelled += u64::from(long && token.is_none());
                    if let Some(view) = cx.view.flows.get_mut(&id) {
                        view.mptcp_token = token;
                    }
                    match token.filter(|_| further) {
                        Some(token) => self.queue_event(cx, Event::SubflowArrived { flow: id, token: Some(token) }),
                        None if long => self.queue_event(cx, Event::FlowArrived { flow: id }),
                        None => {}
                    }
                }
            }
            Meaning::Named { token } => {
                let first = self.flows.find(&five_tuple.reverse());
                if let Some(view) = first.and_then(|id| cx.view.flows.get_mut(&id)) {
                    view.mptcp_token = Some(token);
                }
            }
            Meaning::Last => self.ended(cx, &five_tuple),
            Meaning::Nothing => {}
        }
    }

    /// Handles an announcement. If flows are measured, it only gives the size of the flow; otherwise it makes the
    /// flow known.
    pub(crate) fn announced(&mut self, cx: &mut Context, five_tuple: FiveTuple, size_bytes: Option<u64>) {
        let long = match cx.needs.detection {
            Detection::Nothing => return,
            Detection::Measured { .. } => false,
            Detection::Label | Detection::Announced | Detection::Any { .. } => true,
        };
        let tor = cx.attachment(five_tuple.src).map(|at| at.tor);
        if let Some(tor) = tor.filter(|&tor| !cx.is_ready(tor)) {
            return self.store_early_message(cx, tor, EarlyMessage::Announced(five_tuple, size_bytes));
        }
        let arrived = self.arrive(cx, five_tuple, long).or_else(|| self.grown(cx, &five_tuple, long));
        let Some(id) = arrived.or_else(|| self.flows.find(&five_tuple)) else { return };
        let Some(view) = cx.view.flows.get_mut(&id) else { return };
        cx.counts.announced += u64::from(arrived.is_some());
        view.size_bytes = size_bytes.or(view.size_bytes.get()).into();
        if let Some(flow) = arrived.filter(|_| long) {
            self.queue_event(cx, Event::FlowArrived { flow });
        }
    }

    /// Stores a message that comes before the rules of a ToR are known, because the rules of the flow may be found
    /// there.
    fn store_early_message(&mut self, cx: &mut Context, tor: NodeId, message: EarlyMessage) {
        let kept = self.early_messages.entry(tor).or_default();
        if kept.len() < MAX_EARLY_MESSAGES {
            kept.push(message);
        } else {
            cx.counts.flows_refused += 1;
        }
    }

    /// The rules of a ToR are known now. Handles its stored messages.
    pub(crate) fn handle_early_messages(&mut self, cx: &mut Context, tor: NodeId) {
        for message in self.early_messages.remove(&tor).unwrap_or_default() {
            match message {
                EarlyMessage::Packet(in_port, headers) => self.packet_in(cx, tor, in_port, &headers),
                EarlyMessage::Announced(five_tuple, size_bytes) => self.announced(cx, five_tuple, size_bytes),
            }
        }
    }

    /// Handles the end of a connection, as reported by its last packet or its application.
    pub(crate) fn ended(&mut self, cx: &mut Context, five_tuple: &FiveTuple) {
        if let Some(id) = self.flows.find(five_tuple) {
            self.finish(cx, id);
        }
    }

    /// Adds a flow that begins. `None` if it is already known or cannot be added.
    fn arrive(&mut self, cx: &mut Context, five_tuple: FiveTuple, long: bool) -> Option<FlowId> {
        let (src, dst) = match (cx.attachment(five_tuple.src), cx.attachment(five_tuple.dst)) {
            (Some(src), Some(dst)) if src.address != dst.address => (src, dst),
            _ => {
                cx.counts.invalid_inputs += 1;
                return None;
            }
        };
        let mut plans = 0;
        if let Some(id) = self.flows.find(&five_tuple) {
            let last = self.flows.get(id)?;
            plans = last.plans;
            if !last.closed {
                // The first packet was repeated. However, a way back can turn out to be a long flow itself.
                return (long && cx.is_way_back_only(id)).then(|| self.make_long(cx, id)).flatten();
            }
            // The ports are used again before the rules of their last connection have expired.
            self.retire(cx, id);
        }
        if self.orphans.has(&five_tuple) {
            return None;
        }
        if self.flows.of_host(src.host) >= cx.config.max_flows_per_host {
            cx.counts.flows_refused += 1;
            return None;
        }
        if !long && self.flows.of_host(src.host) >= self.room_to_count(cx, src.tor) {
            cx.counts.uncounted += 1;
            return None;
        }
        if !self.may_arrive(cx, &src) {
            cx.counts.over_budget += 1;
            return None;
        }
        let key = FlowKey { id: self.flows.next_id(), five_tuple, src, dst, meter: None };
        self.insert_flow(cx, Flow { plans, ..Flow::new(key) }, long);
        self.count_soon(key.id);
        Some(key.id)
    }

    /// Returns the flow of an announcement, if it was known but not as long, because its connection began before.
    fn grown(&mut self, cx: &mut Context, five_tuple: &FiveTuple, long: bool) -> Option<FlowId> {
        let id = self.flows.find(five_tuple).filter(|&id| long && !is_bound(id) && !cx.is_long(id))?;
        self.flows.get(id).filter(|flow| !flow.closed)?;
        self.make_long(cx, id)
    }

    /// Marks a known flow as long.
    fn make_long(&mut self, cx: &mut Context, id: FlowId) -> Option<FlowId> {
        cx.view.flows.get_mut(&id)?.long = true;
        Some(id)
    }

    /// Number of flows of a ToR's hosts that can still be counted.
    fn room_to_count(&self, cx: &Context, tor: NodeId) -> u32 {
        cx.config.max_counted_per_tor.saturating_sub(self.flows.of_tor(tor))
    }

    /// Adds a flow to the view and the known flows.
    pub(crate) fn insert_flow(&mut self, cx: &mut Context, flow: Flow, long: bool) {
        let FlowKey { id, five_tuple, src, dst, .. } = flow.key;
        let view = FlowView { long, ..FlowView::new(five_tuple, &src, &dst, cx.now) };
        cx.counts.flows += 1;
        cx.view.flows.insert(id, view);
        self.flows.insert(flow);
    }

    /// Ends a flow. The scheme is told at once. Packets can be retransmitted after the last one, so the rules of a
    /// path stay until no packet has matched them for their idle time-out.
    pub(crate) fn finish(&mut self, cx: &mut Context, id: FlowId) {
        let Some(flow) = self.flows.get_mut(id).filter(|flow| !flow.closed) else { return };
        flow.closed = true;
        let early = flow.current_move.as_ref().is_some_and(|current_move| current_move.adds_hops());
        if cx.view.flows.get(&id).is_some_and(|view| view.long) {
            self.queue_event(cx, Event::FlowFinished { flow: id });
        } else {
            cx.view.flows.remove(&id);
        }
        if early {
            self.undo_move(cx, id);
        }
        self.end_way_back(cx, id);
        self.end_bound(cx, id);
        let Some(flow) = self.flows.get(id) else { return };
        let on_path = flow.current_move.is_some() || flow.staying().any(|source| flow.version(source.plan).is_some());
        if !on_path {
            self.retire(cx, id);
        }
    }

    /// Ends a flow whose five-tuple another flow takes over. Returns the number of its plans. The other flow
    /// continues from there, because the rules of this one may stay for some time.
    pub(crate) fn replace(&mut self, cx: &mut Context, id: FlowId) -> Option<u8> {
        let plans = self.flows.get(id)?.plans;
        self.finish(cx, id);
        self.retire(cx, id);
        Some(plans)
    }

    /// Deletes all rules of a flow that has ended.
    pub(crate) fn retire(&mut self, cx: &mut Context, id: FlowId) {
        if self.flows.get(id).is_some_and(|flow| flow.current_move.is_some()) {
            self.undo_move(cx, id);
        }
        let Some(flow) = self.flows.get(id) else { return };
        for plan in flow.staying().map(|source| source.plan).collect::<Vec<_>>() {
            self.leave(cx, id, plan);
        }
        self.forget_if_done(cx, id);
    }

    /// Removes a flow that has ended and has no rule at its source ToR any more.
    pub(crate) fn forget_if_done(&mut self, cx: &mut Context, id: FlowId) {
        let done = |flow: &Flow| flow.closed && flow.sources.is_empty() && flow.current_move.is_none();
        if self.flows.get(id).is_some_and(done) {
            self.settle(cx, id);
            self.limits.forget(cx, &self.flows, id);
            self.flows.remove(id);
        }
    }
}
