//! The flows and their rules: by five-tuple at the source ToR, and after it on the paths of the flows.
//!
//! [`Routes`] owns the state of each flow and all rules of single flows. It uses the rest of the controller only
//! through [`Context`]. Packets are handled in [`arrivals`], and the rules that result are sent in [`moves`].

mod adoption;
mod arrivals;
mod bound;
mod moves;
mod reconcile;
mod remember;
mod rescue;
mod returns;
mod room;
mod sources;

pub(crate) use remember::{Drain, FlowRecord};

use crate::assignments::Assignments;
use crate::budget::Budget;
use crate::context::Context;
use crate::cookies::is_bound;
use crate::durations::DurationHistogram;
use crate::flows::{note, Draining, FlowTable};
use crate::labels::Labels;
use crate::limits::Limits;
use crate::orphans::Orphans;
use crate::reasons::Decision;
use arrivals::EarlyMessage;
use moves::Moves;
use pathloom_model::rules::RuleKey;
use pathloom_model::{LinkId, NodeId, Path, PathError};
use pathloom_scheme::{Event, FlowId, Rejection};
use std::collections::{BTreeMap, BTreeSet};

/// All flows and their rules.
pub(crate) struct Routes {
    pub flows: FlowTable,
    /// Flows that may need a counting rule after the current input.
    fresh: Vec<FlowId>,
    /// Rules of abandoned versions, which stay until the packets in transit have passed.
    pub draining: Draining,
    /// Rules that flows share.
    pub labels: Labels,
    /// Rate limits of flows.
    pub limits: Limits,
    /// Rules of unknown flows.
    pub orphans: Orphans,
    /// Paths that are assigned to applications.
    pub assignments: Assignments,
    pub moves: Moves,
    /// How the hosts share the rules of switches.
    budget: Budget,
    /// Times from the request for a path to its confirmation.
    pub set_up: DurationHistogram,
    /// Messages from before the rules of a ToR were known. Their flows may be among those rules.
    early_messages: BTreeMap<NodeId, Vec<EarlyMessage>>,
}

impl Routes {
    pub(crate) fn new(cx: &Context) -> Routes {
        let (epoch, nodes) = (cx.config.epoch, cx.fabric.nodes().len());
        Routes {
            flows: FlowTable::new(epoch, nodes),
            fresh: Vec::new(),
            draining: Draining::new(),
            labels: Labels::default(),
            limits: Limits::new(nodes),
            orphans: Orphans::default(),
            assignments: Assignments::new(epoch),
            moves: Moves::default(),
            budget: Budget::default(),
            set_up: DurationHistogram::default(),
            early_messages: BTreeMap::new(),
        }
    }

    /// Queues an event for the scheme. It gets no events about paths of ways back, nor about connections on assigned
    /// paths.
    pub(crate) fn queue_event(&mut self, cx: &mut Context, event: Event) {
        match event {
            Event::RouteConfirmed { flow } if is_bound(flow) => self.assignments.forget_retry(flow),
            Event::RouteRejected { flow, .. } if is_bound(flow) => self.retry_later(cx, flow),
            Event::RouteConfirmed { flow } | Event::RouteRejected { flow, .. } if cx.is_way_back_only(flow) => {}
            event => cx.events.push_back(event),
        }
    }

    /// Gives a flow a counting rule after the current input, if it needs one.
    pub(crate) fn count_soon(&mut self, id: FlowId) {
        self.fresh.push(id);
    }

    /// Whether a found rule drains.
    pub(crate) fn is_draining(&self, switch: NodeId, key: &RuleKey, plan: u8) -> bool {
        let left = reconcile::five_tuple(key).and_then(|tuple| self.draining.get(&(tuple, plan)));
        left.is_some_and(|left| left.rules.contains(&(switch, *key)))
    }

    /// Carries out [`pathloom_scheme::Action::Route`].
    pub(crate) fn route(&mut self, cx: &mut Context, id: FlowId, path: Path, rate_bps: Option<u64>) {
        let settled = self.flows.get(id).is_some_and(|flow| !flow.closed && flow.current_move.is_none());
        let there = cx.view.flows.get(&id).is_some_and(|view| view.route.as_ref() == Some(&path));
        if !(settled && there) {
            if let Err(why) = self.check_route(cx, id, &path) {
                return self.reject(cx, id, why);
            }
        }
        let pending = cx.view.flows.get(&id).is_some_and(|view| view.pending.as_ref() == Some(&path));
        let asked = pending || self.defer_path(cx, id, &path);
        // This is checked before anything is undone for the new path.
        if !asked && !there && self.flows.free_plan(id, &self.draining).is_none() {
            return self.reject(cx, id, Rejection::Draining);
        }
        let Some(view) = cx.view.flows.get_mut(&id) else { return };
        view.allocated_bps = rate_bps.into();
        if asked {
            return;
        }
        let moves = view.pending.is_some();
        self.supersede(cx, id);
        let decided = match is_bound(id) {
            true => Decision::Assigned { path: path.clone() },
            false => Decision::Route { path: path.clone(), rate_bps },
        };
        let Some(view) = cx.view.flows.get_mut(&id) else { return };
        if view.route.as_ref() == Some(&path) {
            if moves {
                note(cx, &mut self.flows, id, decided);
            }
            return self.queue_event(cx, Event::RouteConfirmed { flow: id });
        }
        view.pending = Some(path.clone());
        note(cx, &mut self.flows, id, decided);
        self.start_move(cx, id, path.clone());
        self.route_way_back(cx, id, &path);
    }

    /// Checks whether a flow can be put on a path now, and whether all its switches have room for the rules.
    pub(crate) fn check_route(&mut self, cx: &mut Context, id: FlowId, path: &Path) -> Result<(), Rejection> {
        let flow = self.flows.get(id).filter(|flow| !flow.closed).ok_or(Rejection::UnknownFlow)?;
        match path.check(&cx.fabric) {
            Ok(()) => {}
            Err(PathError::Broken { .. } | PathError::Loop { .. }) => return Err(Rejection::Malformed),
            Err(PathError::Host { .. } | PathError::Unknown { .. }) => return Err(Rejection::Malformed),
        }
        let ends = match (path.links().first(), path.links().last()) {
            (Some(&first), Some(&last)) => (cx.fabric.link(first).from, cx.fabric.link(last).to),
            _ => (flow.key.src.tor, flow.key.src.tor),
        };
        if ends != (flow.key.src.tor, flow.key.dst.tor) {
            return Err(Rejection::WrongEnds);
        }
        if let Some(&link) = path.links().iter().find(|&&link| !cx.view.links.is_up(link)) {
            return Err(Rejection::LinkDown(link));
        }
        let later = path.links().iter().map(|&link| cx.fabric.link(link).to);
        if let Some(switch) = std::iter::once(flow.tor()).chain(later).find(|&switch| !cx.is_ready(switch)) {
            return Err(Rejection::SwitchGone(switch));
        }
        self.ask_for_rules(cx, id, path)
    }

    pub(crate) fn reject(&mut self, cx: &mut Context, id: FlowId, why: Rejection) {
        cx.counts.rejected += 1;
        note(cx, &mut self.flows, id, Decision::Rejected { why });
        self.queue_event(cx, Event::RouteRejected { flow: id, why });
    }

    /// Puts a flow back on the default routes, and stores the decision that led to it.
    pub(crate) fn unroute_by(&mut self, cx: &mut Context, id: FlowId, decision: Decision) {
        note(cx, &mut self.flows, id, decision);
        self.unroute(cx, id);
    }

    /// Puts a flow back on the default routes.
    pub(crate) fn unroute(&mut self, cx: &mut Context, id: FlowId) {
        self.supersede(cx, id);
        if self.flows.get(id).is_none_or(|flow| flow.closed) {
            return;
        }
        self.leave_paths(cx, id);
        self.retry_later(cx, id);
        if let Some(view) = cx.view.flows.get_mut(&id) {
            view.allocated_bps = None.into();
        }
        self.count_soon(id);
    }

    /// Puts a flow back on the default routes, which only needs its source ToR.
    pub(crate) fn leave_paths(&mut self, cx: &mut Context, id: FlowId) {
        let Some(flow) = self.flows.get(id) else { return };
        let on_paths: Vec<u8> =
            flow.staying().map(|source| source.plan).filter(|&plan| flow.version(plan).is_some()).collect();
        if !flow.closed && !on_paths.is_empty() && on_paths.len() == flow.staying().count() {
            self.add_count(cx, id);
        }
        for plan in on_paths {
            self.leave(cx, id, plan);
        }
        if let Some(view) = cx.view.flows.get_mut(&id) {
            view.route = None;
        }
    }

    /// Flows with rules for paths, which a dead link can affect.
    pub(crate) fn routed(&self) -> impl Iterator<Item = FlowId> + '_ {
        self.flows.iter().filter(|(_, flow)| !flow.versions.is_empty()).map(|(id, _)| id)
    }

    /// Number of flows with rules for a path over each link, by link. Flows that move away from a link are included.
    pub(crate) fn on_links(&self, cx: &Context) -> Vec<u32> {
        let mut flows = vec![0; cx.fabric.links().len()];
        for flow in self.routed().filter_map(|id| self.flows.get(id)) {
            let links = flow.versions.iter().filter_map(|version| version.path.as_ref()).flat_map(Path::links);
            let links: BTreeSet<LinkId> = links.copied().collect();
            links.into_iter().for_each(|link| flows[link.index()] += 1);
        }
        flows
    }
}
