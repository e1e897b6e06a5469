//! Connections on assigned paths: what [`crate::assignments`] decides is carried out here.
//!
//! Both directions of such a connection are flows like others, with rules, moves and counters, but no scheme hears of them. A
//! bit of their identifiers says what they are, so that a controller that starts anew and finds their rules keeps them out of
//! its scheme's sight. They end together, with the connection's last packet or when nothing comes any more.

use crate::assignments::{self, Assigned, Assignments, SavedAssignments};
use crate::context::Context;
use crate::controller::Controller;
use crate::cookies::{bound_id, is_bound};
use crate::detection;
use crate::flows::Flow;
use crate::io::{Input, Output};
use crate::plan::FlowKey;
use crate::switches::Purpose;
use pathloom_model::{FiveTuple, Headers, NodeId, PROTO_TCP, TCP_ACK, TCP_FIN, TCP_RST, TCP_SYN};
use pathloom_scheme::FlowId;

/// What the assignments see.
fn sight(context: &Context) -> assignments::Context<'_> {
    let Context { now, fabric, view, places, config, .. } = context;
    assignments::Context { now: *now, fabric, links: &view.links, places, limits: &config.assignments }
}

impl Controller {
    /// Path assignments, their claims and connections.
    pub fn assignments(&self) -> &Assignments {
        &self.assignments
    }

    /// Lets the assignments do something that takes a look at the rest of the controller.
    fn with_assignments<R>(&mut self, act: impl FnOnce(&mut Assignments, &assignments::Context<'_>) -> R) -> R {
        act(&mut self.assignments, &sight(&self.context))
    }

    /// Answers an application that asks for paths, claims one or releases its assignment; others are not for here.
    pub(crate) fn answer_application(&mut self, input: Input) {
        match input {
            Input::AssignPaths { request, owner, paths } => {
                let answer = self.with_assignments(|all, at| all.assign(at, owner, paths));
                self.context.put(Output::Assigned { request, answer });
            }
            Input::ClaimPath { request, owner, assignment, connection } => {
                let answer = self.with_assignments(|all, at| all.claim(at, &owner, assignment, connection));
                let answer = answer.map(|path| Assigned { assignment, paths: vec![path] });
                self.context.put(Output::Claimed { request, answer });
            }
            Input::ReleasePaths { request, owner, assignment } => {
                let answer = self.assignments.release(self.context.now, &owner, assignment);
                self.context.put(Output::Released { request, answer });
            }
            _ => self.context.counts.nonsense += 1,
        }
    }

    /// Whether the copy of a packet is of a connection on an assigned path. If it is the first of one that somebody claimed a
    /// path for, that is where the connection goes.
    pub(crate) fn takes_packet(&mut self, headers: &Headers) -> bool {
        let (five_tuple, flags) = (headers.five_tuple, headers.tcp_flags);
        if self.assignments.is_empty() || five_tuple.proto != PROTO_TCP {
            return false;
        }
        let first = flags & (TCP_SYN | TCP_ACK | TCP_FIN | TCP_RST) == TCP_SYN;
        if !first || self.assignments.waiting(&five_tuple).is_none() {
            return false;
        }
        let flow = self.make_bound(five_tuple);
        let back = flow.and_then(|_| self.make_bound(five_tuple.reverse()));
        if flow.is_none() {
            return false;
        }
        self.context.counts.bound += 1;
        self.assignments.bind(&five_tuple, flow, back);
        for id in [flow, back].into_iter().flatten() {
            self.lead(id);
            self.fresh.push(id);
        }
        true
    }

    /// Makes a direction of a connection known. A flow that had its five-tuple is over: its rules stay while it drains.
    fn make_bound(&mut self, five_tuple: FiveTuple) -> Option<FlowId> {
        let (src, dst) = (self.context.attachment(five_tuple.src)?, self.context.attachment(five_tuple.dst)?);
        let mut plans = 0;
        if let Some(other) = self.flows.find(&five_tuple) {
            plans = self.replace(other)?;
        }
        if self.orphans.has(&five_tuple) {
            return None;
        }
        if self.flows.of_host(src.host) >= self.context.config.max_flows_per_host {
            self.context.counts.flows_refused += 1;
            return None;
        }
        let key = FlowKey { id: bound_id(self.flows.next_id()), five_tuple, src, dst, meter: None };
        self.insert_flow(Flow { plans, ..Flow::new(key) }, false);
        Some(key.id)
    }

    /// Puts a flow of a connection on the path that it is to have, if that is up. Where it is there already, nothing is done.
    fn lead(&mut self, id: FlowId) {
        if self.flows.get(id).is_none_or(|flow| flow.closed) {
            return;
        }
        match self.assignments.path_of(id) {
            Some(path) if path.is_up(&self.context.view.links) => self.route(id, path, None),
            Some(_) => self.assignments.await_link(self.context.now, id),
            None => {}
        }
    }

    /// A flow of a connection is over, and so is the other direction.
    pub(crate) fn end_bound(&mut self, id: FlowId) {
        if is_bound(id) {
            if let Some(other) = self.assignments.flow_ended(self.context.now, id) {
                self.finish(other);
            }
        }
    }

    /// A flow of a connection has left its path for another reason than a dead link, or could not be put there.
    pub(crate) fn lead_later(&mut self, id: FlowId) {
        if is_bound(id) && self.flows.get(id).is_some_and(|flow| !flow.closed) {
            self.assignments.try_later(self.context.now, id);
        }
    }

    /// Does what is due for assignments.
    pub(crate) fn assignments_if_due(&mut self) {
        if self.assignments.poll_timeout().is_some_and(|at| at <= self.context.now) {
            for id in self.assignments.handle_timeout(self.context.now) {
                self.lead(id);
            }
        }
    }

    /// Links came up or went down: connections go to the paths that take the place of dead ones.
    pub(crate) fn reassign(&mut self) {
        if !self.assignments.is_empty() {
            for id in self.with_assignments(|all, at| all.links_changed(at)) {
                self.lead(id);
            }
        }
    }

    /// Addresses are elsewhere now.
    pub(crate) fn assignments_moved(&mut self) {
        if !self.assignments.is_empty() {
            self.with_assignments(|all, at| all.addresses_changed(at));
        }
    }

    /// Takes back the assignments of a snapshot, when its flows are known.
    pub(crate) fn restore_assignments(&mut self, saved: SavedAssignments) {
        let stands = |id: FlowId| self.flows.get(id).is_some_and(|flow| !flow.closed);
        self.assignments.restore(&sight(&self.context), saved, stands);
    }

    /// The addresses at a switch whose first and last packets are copied because they have assignments.
    pub(crate) fn assigned_sources(&self, switch: NodeId) -> Vec<std::net::Ipv4Addr> {
        let here = |address: &_| self.context.attachment(*address).is_some_and(|at| at.tor == switch);
        self.assignments.sources().filter(here).collect()
    }

    /// Sends the ToRs of addresses that have their first assignment, or had their last, the rules that copy packets.
    pub(crate) fn refresh_copies(&mut self) {
        let changed = self.assignments.take_changed_sources();
        if changed.is_empty() {
            return;
        }
        let mut tors: Vec<NodeId> =
            changed.iter().filter_map(|&at| self.context.attachment(at)).map(|at| at.tor).collect();
        tors.sort_unstable();
        tors.dedup();
        for tor in tors {
            // Otherwise it is told when its session stands.
            if self.context.is_ready(tor) {
                self.refresh_copies_at(tor);
            }
        }
    }

    fn refresh_copies_at(&mut self, tor: NodeId) {
        let sources = self.assigned_sources(tor);
        let wanted = detection::rules(
            &self.context.config,
            &self.context.needs,
            (&self.context.fabric, &self.context.places),
            tor,
            &sources,
        );
        let ours = |rule: &pathloom_model::rules::Rule| detection::is_of_source(&self.context.config, rule);
        let wanted: std::collections::BTreeMap<_, _> =
            wanted.into_iter().filter(ours).map(|rule| (rule.key(), rule)).collect();
        let found = &self.context.switches[tor.index()].fixed.others;
        let surplus = found.values().filter(|rule| ours(rule) && !wanted.contains_key(&rule.key()));
        let surplus: Vec<_> = surplus.map(|rule| rule.key()).collect();
        let missing: Vec<_> = wanted.into_iter().filter(|(key, _)| !found.contains_key(key)).collect();
        if surplus.is_empty() && missing.is_empty() {
            return;
        }
        for (key, rule) in missing {
            self.context.switches[tor.index()].fixed.others.insert(key, rule.clone());
            self.context.add_rule(tor, rule, Purpose::Fixed);
        }
        for key in surplus {
            self.context.switches[tor.index()].fixed.others.remove(&key);
            self.context.delete_rule(tor, key);
        }
        self.context.count_rules(tor, 0);
        self.context.switches[tor.index()].watch.fixed_changed();
    }
}
