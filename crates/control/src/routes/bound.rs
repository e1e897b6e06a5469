//! Connections on assigned paths. This module carries out the decisions of [`crate::assignments`].
//!
//! Both directions of such a connection are flows with rules, moves and counters, but schemes get no events about
//! them. A bit of their identifiers marks them. Therefore a restarted controller that finds their rules tells its
//! scheme nothing about them. Both directions end together, after the last packet of the connection or when it has
//! been idle for too long.

use super::Routes;
use crate::assign_error::AssignError;
use crate::assignments::{self, Assignments, SavedAssignments};
use crate::context::Context;
use crate::cookies::{bound_id, is_bound};
use crate::flows::Flow;
use crate::io::{Input, Output};
use crate::path_requests::{Assigned, AssignmentId, ClaimKey, Owner};
use crate::plan::FlowKey;
use pathloom_model::{FiveTuple, Headers, Path, PROTO_TCP, TCP_ACK, TCP_FIN, TCP_RST, TCP_SYN};
use pathloom_scheme::{FlowId, OptionU64};
use std::net::Ipv4Addr;

/// Returns the part of the state that the assignments need.
fn facts(cx: &Context) -> assignments::Facts<'_> {
    let Context { now, fabric, view, places, config, .. } = cx;
    assignments::Facts { now: *now, fabric, links: &view.links, places, limits: &config.assignments }
}

/// Returns the bandwidth that each of these paths between two hosts has left.
fn available_bps(cx: &Context, (src, dst): (Ipv4Addr, Ipv4Addr), paths: &[Path]) -> Vec<OptionU64> {
    let access = [src, dst].map(|address| cx.places.attachment(&cx.fabric, address));
    let [Some(from), Some(to)] = access else { return Vec::new() };
    let left = |path: &Path| {
        let links = path.links().iter().copied().chain([from.uplink, to.uplink.reverse()]);
        cx.view.available_bps(links).map_or(OptionU64::NONE, OptionU64::from)
    };
    paths.iter().map(left).collect()
}

impl Routes {
    /// Calls a method of the assignments with the state that it needs.
    fn with_assignments<R>(
        &mut self,
        cx: &Context,
        act: impl FnOnce(&mut Assignments, &assignments::Facts<'_>) -> R,
    ) -> R {
        act(&mut self.assignments, &facts(cx))
    }

    /// Answers a request for paths, a claim or a release. Other inputs are counted as invalid.
    pub(crate) fn answer_application(&mut self, cx: &mut Context, input: Input) {
        match input {
            Input::AssignPaths { request, owner, paths } => {
                let answer = self.with_assignments(cx, |all, at| all.assign(at, owner, paths));
                let found = answer.as_ref().map_or(&[][..], |assigned| &assigned.paths);
                let available_bps = available_bps(cx, (paths.src, paths.dst), found);
                cx.put(Output::Assigned { request, answer, available_bps });
            }
            Input::ClaimPath { request, owner, assignment, connection, path, opens_to } => {
                let answer = match connection.five_tuple() {
                    _ if opens_to == Some(0) => Err(AssignError::Port),
                    Some(five_tuple) => self.claim_standing(cx, &owner, assignment, connection, five_tuple, path),
                    None => self.with_assignments(cx, |all, at| all.claim(at, &owner, assignment, connection, path)),
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

    /// Whether a copied packet belongs to a connection on an assigned path. If it is the first packet of a connection
    /// with a claim, puts the connection on its path.
    pub(crate) fn takes_packet(&mut self, cx: &mut Context, headers: &Headers) -> bool {
        let (five_tuple, flags) = (headers.five_tuple, headers.tcp_flags);
        if self.assignments.is_empty() || five_tuple.proto != PROTO_TCP {
            return false;
        }
        let first = flags & (TCP_SYN | TCP_ACK | TCP_FIN | TCP_RST) == TCP_SYN;
        if !first || self.assignments.waiting(&five_tuple).is_none() {
            return false;
        }
        self.bind(cx, ClaimKey::of(&five_tuple), five_tuple)
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
        key: ClaimKey,
        five_tuple: FiveTuple,
        wish: Option<u32>,
    ) -> Result<Path, AssignError> {
        let holder = self.flows.find(&five_tuple).and_then(|flow| self.assignments.holder(flow));
        if let Some((id, _)) = holder.filter(|&(_, other)| other != key) {
            return Err(AssignError::PortTaken { src_port: key.src_port, id });
        }
        let path = self.with_assignments(cx, |all, at| all.claim(at, owner, assignment, key, wish))?;
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
        let flows = [five_tuple, five_tuple.reverse()].map(|ends| self.flows.find(&ends));
        if !flows.into_iter().flatten().any(|flow| self.assignments.holder(flow).is_some()) {
            self.bind(cx, key, five_tuple);
        }
    }

    /// Adds the flow of one direction of a connection. A flow that had the same five-tuple ends, and its rules drain.
    fn make_bound(&mut self, cx: &mut Context, five_tuple: FiveTuple) -> Option<FlowId> {
        let (src, dst) = (cx.attachment(five_tuple.src)?, cx.attachment(five_tuple.dst)?);
        let mut plans = 0;
        if let Some(other) = self.flows.find(&five_tuple) {
            plans = self.replace(cx, other)?;
        }
        if self.orphans.has(&five_tuple) {
            return None;
        }
        if self.flows.of_host(src.host) >= cx.config.max_flows_per_host {
            cx.counts.flows_refused += 1;
            return None;
        }
        let key = FlowKey { id: bound_id(self.flows.next_id()), five_tuple, src, dst, meter: None };
        self.insert_flow(cx, Flow { plans, ..Flow::new(key) }, false);
        Some(key.id)
    }

    /// Puts a flow of a connection on its path, if that is up. Does nothing if it is already there.
    fn put_on_path(&mut self, cx: &mut Context, id: FlowId) {
        if self.flows.get(id).is_none_or(|flow| flow.closed) {
            return;
        }
        match self.assignments.path_of(id) {
            Some(path) if path.is_up(&cx.view.links) => self.route(cx, id, path, None),
            Some(_) => self.assignments.await_link(cx.now, id),
            None => {}
        }
    }

    /// If a flow of a connection ends, ends the other direction too.
    pub(crate) fn end_bound(&mut self, cx: &mut Context, id: FlowId) {
        if is_bound(id) {
            if let Some(other) = self.assignments.flow_ended(cx.now, id) {
                self.finish(cx, other);
            }
        }
    }

    /// A flow of a connection left its path for another reason than a dead link, or could not be put there. Tries
    /// again later.
    pub(crate) fn retry_later(&mut self, cx: &mut Context, id: FlowId) {
        if is_bound(id) && self.flows.get(id).is_some_and(|flow| !flow.closed) {
            self.assignments.try_later(cx.now, id);
        }
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

    /// Links came up or went down. Moves connections to the paths that replace dead ones.
    pub(crate) fn reassign(&mut self, cx: &mut Context) {
        if !self.assignments.is_empty() {
            for id in self.with_assignments(cx, |all, at| all.links_changed(at)) {
                self.put_on_path(cx, id);
            }
        }
    }

    /// Addresses have moved.
    pub(crate) fn assignments_moved(&mut self, cx: &mut Context) {
        if !self.assignments.is_empty() {
            self.with_assignments(cx, |all, at| all.addresses_changed(at));
        }
    }

    /// Restores the assignments of a snapshot. Its flows must already be known.
    pub(crate) fn restore_assignments(&mut self, cx: &mut Context, saved: SavedAssignments) {
        let stands = |id: FlowId| self.flows.get(id).is_some_and(|flow| !flow.closed);
        self.assignments.restore(&facts(cx), saved, stands);
    }
}
