//! Arrival and end of flows, and of connections on assigned paths.

use super::early::EarlyMessage;
use super::{bound, moves, returns, Routes};
use crate::assign_error::AssignError;
use crate::context::Context;
use crate::cookies::is_bound;
use crate::detection::{meaning, Meaning};
use crate::flows::Flow;
use crate::io::{Input, Output};
use crate::path_requests::{Assigned, AssignmentId, ClaimKey, Owner};
use crate::plan::FlowKey;
use pathloom_model::{Attachment, FiveTuple, Headers, NodeId, Path, PortNo};
use pathloom_scheme::{Detection, Event, FlowId};

impl Routes {
    pub(crate) fn packet_in(&mut self, cx: &mut Context, switch: NodeId, in_port: PortNo, headers: &Headers) {
        if !cx.is_ready(switch) {
            return self.early_messages.store(cx, switch, EarlyMessage::Packet(in_port, *headers));
        }
        let five_tuple = headers.five_tuple;
        // The packet must come from the port of its source address, so that no host can send packets for another.
        let at_home = |at: &Attachment| at.tor == switch && cx.fabric.link(at.uplink).to_port == in_port;
        if cx.attachment(five_tuple.src()).filter(at_home).is_none() {
            cx.counts.invalid_inputs += 1;
            return;
        }
        let claimed = bound::is_claimed(&self.assignments, headers);
        if claimed && self.bind(cx, ClaimKey::of(&five_tuple), five_tuple) {
            return;
        }
        match meaning(&cx.config, &cx.needs, headers) {
            // The flow is known by now or has ended; this packet was in transit.
            Meaning::Standing { .. } if self.rules.flows.find(&five_tuple).is_some() => {}
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
                let first = self.rules.flows.find(&five_tuple.reverse());
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
        let tor = cx.attachment(five_tuple.src()).map(|at| at.tor);
        if let Some(tor) = tor.filter(|&tor| !cx.is_ready(tor)) {
            return self.early_messages.store(cx, tor, EarlyMessage::Announced(five_tuple, size_bytes));
        }
        let arrived = self.arrive(cx, five_tuple, long).or_else(|| self.grown(cx, &five_tuple, long));
        let Some(id) = arrived.or_else(|| self.rules.flows.find(&five_tuple)) else { return };
        let Some(view) = cx.view.flows.get_mut(&id) else { return };
        cx.counts.announced += u64::from(arrived.is_some());
        view.size_bytes = size_bytes.or(view.size_bytes.get()).into();
        if let Some(flow) = arrived.filter(|_| long) {
            self.queue_event(cx, Event::FlowArrived { flow });
        }
    }

    /// The rules of a ToR are known now. Handles its stored messages.
    pub(crate) fn handle_early_messages(&mut self, cx: &mut Context, tor: NodeId) {
        for message in self.early_messages.take(tor) {
            match message {
                EarlyMessage::Packet(in_port, headers) => self.packet_in(cx, tor, in_port, &headers),
                EarlyMessage::Announced(five_tuple, size_bytes) => self.announced(cx, five_tuple, size_bytes),
            }
        }
    }

    /// Handles the end of a connection, as reported by its last packet or its application.
    pub(crate) fn ended(&mut self, cx: &mut Context, five_tuple: &FiveTuple) {
        if let Some(id) = self.rules.flows.find(five_tuple) {
            self.finish(cx, id);
        }
    }

    /// Adds a flow that begins. `None` if it is already known or cannot be added.
    fn arrive(&mut self, cx: &mut Context, five_tuple: FiveTuple, long: bool) -> Option<FlowId> {
        let (src, dst) = match (cx.attachment(five_tuple.src()), cx.attachment(five_tuple.dst())) {
            (Some(src), Some(dst)) if src.address != dst.address => (src, dst),
            _ => {
                cx.counts.invalid_inputs += 1;
                return None;
            }
        };
        let mut plans = 0;
        if let Some(id) = self.rules.flows.find(&five_tuple) {
            let last = self.rules.flows.get(id)?;
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
        if self.rules.flows.of_host(src.host) >= cx.config.max_flows_per_host {
            cx.counts.flows_refused += 1;
            return None;
        }
        if !long && self.rules.flows.of_host(src.host) >= self.room_to_count(cx, src.tor) {
            cx.counts.uncounted += 1;
            return None;
        }
        if !self.room.may_arrive(cx, &self.rules, &self.orphans, &src) {
            cx.counts.over_budget += 1;
            return None;
        }
        let key = FlowKey { id: self.rules.flows.next_id(), five_tuple, src, dst, meter: None };
        self.rules.insert_flow(cx, Flow { plans, ..Flow::new(key) }, long);
        self.count_soon(key.id);
        Some(key.id)
    }

    /// Returns the flow of an announcement, if it was known but not as long, because its connection began before.
    fn grown(&mut self, cx: &mut Context, five_tuple: &FiveTuple, long: bool) -> Option<FlowId> {
        let id = self.rules.flows.find(five_tuple).filter(|&id| long && !is_bound(id) && !cx.is_long(id))?;
        self.rules.flows.get(id).filter(|flow| !flow.closed)?;
        self.make_long(cx, id)
    }

    /// Marks a known flow as long.
    fn make_long(&mut self, cx: &mut Context, id: FlowId) -> Option<FlowId> {
        cx.view.flows.get_mut(&id)?.long = true;
        Some(id)
    }

    /// Number of flows of a ToR's hosts that can still be counted.
    fn room_to_count(&self, cx: &Context, tor: NodeId) -> u32 {
        cx.config.max_counted_per_tor.saturating_sub(self.rules.flows.of_tor(tor))
    }

    /// Ends a flow. The scheme is told at once. Packets can be retransmitted after the last one, so the rules of a
    /// path stay until no packet has matched them for their idle time-out.
    pub(super) fn finish(&mut self, cx: &mut Context, id: FlowId) {
        let Some(flow) = self.rules.flows.get_mut(id).filter(|flow| !flow.closed) else { return };
        flow.closed = true;
        let early = flow.current_move.as_ref().is_some_and(|current_move| current_move.adds_hops());
        if cx.view.flows.get(&id).is_some_and(|view| view.long) {
            self.queue_event(cx, Event::FlowFinished { flow: id });
        } else {
            cx.view.flows.remove(&id);
        }
        if early {
            moves::undo(cx, &mut self.rules, id);
        }
        if let Some(back) = returns::way_back(cx, &self.rules.flows, id) {
            // The rules of the way back stay until no packet matches them any more.
            self.finish(cx, back);
        }
        self.end_bound(cx, id);
        let Some(flow) = self.rules.flows.get(id) else { return };
        let on_path = flow.current_move.is_some() || flow.staying().any(|source| flow.version(source.plan).is_some());
        if !on_path {
            self.retire(cx, id);
        }
    }

    /// Ends a flow whose five-tuple another flow takes over. Returns the number of its plans. The other flow
    /// continues from there, because the rules of this one may stay for some time.
    fn replace(&mut self, cx: &mut Context, id: FlowId) -> Option<u8> {
        let plans = self.rules.flows.get(id)?.plans;
        self.finish(cx, id);
        self.retire(cx, id);
        Some(plans)
    }

    /// Deletes all rules of a flow that has ended.
    pub(super) fn retire(&mut self, cx: &mut Context, id: FlowId) {
        if self.rules.flows.get(id).is_some_and(|flow| flow.current_move.is_some()) {
            moves::undo(cx, &mut self.rules, id);
        }
        let Some(flow) = self.rules.flows.get(id) else { return };
        for plan in flow.staying().map(|source| source.plan).collect::<Vec<_>>() {
            self.rules.leave(cx, id, plan);
        }
        self.rules.forget_if_done(cx, id);
    }

    /// Creates the way back of a flow, if it can have one.
    pub(super) fn make_way_back(&mut self, cx: &mut Context, id: FlowId) -> Option<FlowId> {
        let missing = returns::missing(cx, &self.rules.flows, &self.orphans, id)?;
        let plans = match missing.replaces {
            Some(other) => self.replace(cx, other)?,
            None => 0,
        };
        Some(missing.create(cx, &mut self.rules, plans))
    }

    /// If a flow of a connection ends, ends the other direction too.
    pub(super) fn end_bound(&mut self, cx: &mut Context, id: FlowId) {
        if is_bound(id) {
            if let Some(other) = self.assignments.flow_ended(cx.now, id) {
                self.finish(cx, other);
            }
        }
    }

    /// Answers a request for paths, a claim or a release. Other inputs are counted as invalid.
    pub(crate) fn answer_application(&mut self, cx: &mut Context, input: Input) {
        match input {
            Input::AssignPaths { request, owner, paths } => {
                bound::assign(cx, &mut self.assignments, request, owner, paths);
            }
            Input::ClaimPath { request, owner, assignment, connection, path, opens_to } => {
                let answer = match connection.five_tuple() {
                    _ if opens_to == Some(0) => Err(AssignError::Port),
                    Some(five_tuple) => self.claim_standing(cx, &owner, assignment, (connection, five_tuple), path),
                    None if self.is_open_elsewhere(connection, opens_to) => {
                        Err(AssignError::PortTaken { src_port: connection.src_port, id: assignment })
                    }
                    None => self.assignments.claim(&bound::facts(cx), &owner, assignment, connection, path),
                };
                if let (Ok(_), Some(dst_port)) = (&answer, opens_to) {
                    self.assignments.open_unseen_later(cx.now, connection, dst_port);
                }
                let answer = answer.map(|path| Assigned { assignment, paths: vec![path] });
                cx.put(Output::Claimed { request, answer });
            }
            Input::ReleasePaths { request, owner, assignment } => {
                let answer = self.assignments.release(cx.now, &owner, assignment);
                cx.put(Output::Released { request, answer });
            }
            _ => cx.counts.invalid_inputs += 1,
        }
    }

    /// Whether the claim has its connection already, and that one is open to another port than the claim names now. The new
    /// connection would not get the path.
    fn is_open_elsewhere(&self, key: ClaimKey, opens_to: Option<u16>) -> bool {
        let open = self.assignments.flow_of(key).and_then(|flow| self.rules.flows.get(flow));
        open.zip(opens_to).is_some_and(|(open, dst_port)| open.key.five_tuple.dst_port() != dst_port)
    }

    /// Puts a connection on its claimed path. Returns whether this was possible.
    fn bind(&mut self, cx: &mut Context, key: ClaimKey, five_tuple: FiveTuple) -> bool {
        let flow = self.make_bound(cx, five_tuple);
        let back = flow.and_then(|_| self.make_bound(cx, five_tuple.reverse()));
        if flow.is_none() {
            return false;
        }
        cx.counts.bound += 1;
        self.assignments.bind(key, flow, back);
        for id in [flow, back].into_iter().flatten() {
            self.put_on_path(cx, id);
            self.count_soon(id);
        }
        true
    }

    /// Claims a path for an open connection, and moves it there at once, because no first packet will arrive. A
    /// connection has one path, whichever of its ends claims it.
    fn claim_standing(
        &mut self,
        cx: &mut Context,
        owner: &Owner,
        assignment: AssignmentId,
        (key, five_tuple): (ClaimKey, FiveTuple),
        wish: Option<u32>,
    ) -> Result<Path, AssignError> {
        let holder = self.rules.flows.find(&five_tuple).and_then(|flow| self.assignments.holder(flow));
        if let Some((id, _)) = holder.filter(|&(_, other)| other != key) {
            return Err(AssignError::PortTaken { src_port: key.src_port, id });
        }
        let path = self.assignments.claim(&bound::facts(cx), owner, assignment, key, wish)?;
        if self.assignments.is_waiting(key) {
            let ready = |address| cx.attachment(address).is_some_and(|at| cx.is_ready(at.tor));
            if !(ready(key.src) && ready(key.dst) && self.bind(cx, key, five_tuple)) {
                self.assignments.end_claim(cx.now, key);
                return Err(AssignError::NotNow { src_port: key.src_port });
            }
        }
        Ok(path)
    }

    /// Puts a connection on its path although no copy of its first packet has arrived. A switch with a new rule for
    /// copies may still forward by cached flows, and copies are lost if a switch sends too many. The connection is
    /// treated like an open one.
    fn bind_unseen(&mut self, cx: &mut Context, key: ClaimKey, five_tuple: FiveTuple) {
        let flows = [five_tuple, five_tuple.reverse()].map(|ends| self.rules.flows.find(&ends));
        if !flows.into_iter().flatten().any(|flow| self.assignments.holder(flow).is_some()) {
            self.bind(cx, key, five_tuple);
        }
    }

    /// Adds the flow of one direction of a connection. A flow that had the same five-tuple ends, and its rules drain.
    fn make_bound(&mut self, cx: &mut Context, five_tuple: FiveTuple) -> Option<FlowId> {
        let ends = (cx.attachment(five_tuple.src())?, cx.attachment(five_tuple.dst())?);
        let plans = match self.rules.flows.find(&five_tuple) {
            Some(other) => self.replace(cx, other)?,
            None => 0,
        };
        bound::create(cx, &mut self.rules, &self.orphans, (five_tuple, plans), ends)
    }

    /// Handles the expired timers of assignments.
    pub(crate) fn assignments_if_due(&mut self, cx: &mut Context) {
        if self.assignments.poll_timeout().is_some_and(|at| at <= cx.now) {
            let due = self.assignments.handle_timeout(cx.now);
            for (key, five_tuple) in due.unseen {
                self.bind_unseen(cx, key, five_tuple);
            }
            for id in due.again {
                self.put_on_path(cx, id);
            }
        }
    }
}
