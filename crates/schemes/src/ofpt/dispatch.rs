//! Which flows send, and how fast: turns the provision of bandwidth into holds, releases and paces (OFPT §4, §5.2).
//!
//! Two settings control this. `schedule=mrtf` lets flows of known size wait for shorter ones. Waiting flows occupy no
//! path, and get a new one when their turn comes. With `enforce=host` the hosts pace each flow to its provision. With
//! neither, flows share links as TCP does, and nothing here runs.

use super::ageing;
use super::flow_states::{FlowState, FlowStates};
use super::progress::Verdict;
use super::provider::{self, Provider, Remaining};
use super::provision::remaining_ns;
use super::sharing::Sharing;
use crate::helpers::links::rates_bps;
use crate::placements::access;
use crate::remaining::payload_bytes;
use crate::router::{is_short, Router};
use pathloom_model::Nanos;
use pathloom_scheme::{Action, FlowId, FlowView, View};
use std::collections::BTreeSet;

/// A new pace is sent when it differs by more than this share from the one before.
const PACE_STEP: f64 = provider::REPORT_STEP;

/// Minimum time between two exact provisions of all flows, if no flow waits for them: this gap, or
/// `EXACT_PROVISION_GAP_PER_FLOW` for each flow if that is longer. A flow takes about a microsecond, so this takes a
/// tenth of the controller's time.
const EXACT_PROVISION_GAP: Nanos = Nanos::from_millis(100);
const EXACT_PROVISION_GAP_PER_FLOW: Nanos = Nanos(10_000);

/// With at least this many flows, one more or less changes little for each. So arrivals and departures within
/// `DEFER_TIME` are provided for together. Each flow gets its path at once; its pace follows.
const MANY_FLOWS: usize = 1024;
const DEFER_TIME: Nanos = Nanos::from_millis(5);

/// Time between two readings of the counters while flows wait: this gap, or `WATCH_REST` for each ToR if that is
/// longer. A reading is a message from each ToR. At 20 µs for each message this takes 2 % of the controller's time. A
/// TCP sender that waits for its retransmission timer is silent for at least 200 ms.
const WATCH_GAP: Nanos = Nanos::from_millis(200);
const WATCH_REST: Nanos = Nanos::from_millis(1);

/// Settings of a [`Dispatcher`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct DispatchSettings {
    /// Whether flows of known size wait for shorter ones.
    pub schedule: bool,
    /// Hosts pace flows to their provision minus this share, which is left to short flows; `None` for no paces.
    pub headroom: Option<f64>,
    /// How flows of unknown size share full links.
    pub sharing: Sharing,
    /// Whether the share of a flow of unknown size falls with the bytes that it has sent.
    pub ageing: bool,
    /// Announced size, in payload bytes, from which on a flow is long.
    pub long_bytes: u64,
    /// How long a host holds a flow without another message.
    pub lease: Nanos,
}

/// Decides which flows send, and how fast.
pub(super) struct Dispatcher {
    settings: DispatchSettings,
    flow_states: FlowStates,
    /// Long flows of known size, which take turns.
    known: BTreeSet<FlowId>,
    /// Flows that wait.
    waiting: BTreeSet<FlowId>,
    /// Flows that may send but do not. Nothing is provided for them, so that no flow waits for them.
    idle: BTreeSet<FlowId>,
    /// Flows of known size that may send, by the time from which on they are overdue.
    overdue_at: BTreeSet<(Nanos, FlowId)>,
    /// Flows of unknown size, by the time at which they leave their class.
    ages_at: BTreeSet<(Nanos, FlowId)>,
    /// When the counters were last read, or the first flow began to wait; and whether a reading was requested since.
    read_at: Nanos,
    reading_requested: bool,
    /// Time between two readings while flows wait.
    watch_gap: Nanos,
    provision: Option<Provision>,
    /// When all flows were last provided for exactly, and their number.
    last_exact_provision: Option<(Nanos, u64)>,
    /// Flows that have a path but no pace yet, and when the deferred arrivals and departures are provided for.
    unpaced: Vec<FlowId>,
    deferred_until: Option<Nanos>,
}

/// The rates of all flows. The turns at the hosts decide which flows get a path. The paths then decide the rates.
struct Provision {
    /// All flows, on their access links only; present only while there are flows that take turns.
    hosts: Option<Provider>,
    /// The flows whose turn it is, on all links that they cross.
    paths: Provider,
}

impl Dispatcher {
    pub(super) fn new(settings: DispatchSettings) -> Dispatcher {
        Dispatcher {
            settings,
            flow_states: FlowStates::default(),
            known: BTreeSet::new(),
            waiting: BTreeSet::new(),
            idle: BTreeSet::new(),
            overdue_at: BTreeSet::new(),
            ages_at: BTreeSet::new(),
            read_at: Nanos::ZERO,
            reading_requested: false,
            watch_gap: WATCH_GAP,
            provision: None,
            last_exact_provision: None,
            unpaced: Vec::new(),
            deferred_until: None,
        }
    }

    pub(super) fn flow_states(&self) -> &FlowStates {
        &self.flow_states
    }

    pub(super) fn recall(&mut self, flow_states: FlowStates) {
        self.flow_states = flow_states;
    }

    /// Starts again. Forgets flows that the view does not have; the caller announces the others one by one.
    pub(super) fn start(&mut self, view: &View) {
        self.flow_states.keep_known(view);
        self.known.clear();
        self.waiting = self.flow_states.0.iter().filter(|(_, state)| state.held).map(|(&flow, _)| flow).collect();
        self.idle.clear();
        self.overdue_at.clear();
        self.ages_at.clear();
        self.reading_requested = false;
        self.watch_gap = WATCH_GAP.max(Nanos(WATCH_REST.0.saturating_mul(view.fabric.tors().len() as u64)));
        (self.provision, self.last_exact_provision, self.deferred_until) = (None, None, None);
        self.unpaced.clear();
    }

    /// Whether there is anything to do. Without paces and known sizes, TCP gives all flows a fair share without a
    /// provision.
    pub(super) fn is_on(&self) -> bool {
        self.settings.headroom.is_some() || !self.known.is_empty() || !self.waiting.is_empty()
    }

    /// Adopts a flow: an earlier controller may have told it to wait.
    pub(super) fn adopt(&mut self, view: &View, id: FlowId, actions: &mut Vec<Action>) {
        let Some(flow) = view.flows.get(&id).filter(|_| self.settings.schedule) else { return };
        if self.is_ours(view, flow) {
            // A flow can be adopted again when its rules are read. It then counts as waiting until it is told its turn,
            // so it must not count as one that lets its turn pass: it would wait for itself.
            let state = self.flow_states.of(Nanos::ZERO, id);
            if let Some(at) = std::mem::take(&mut state.progress).overdue_at() {
                self.overdue_at.remove(&(at, id));
            }
            state.held = true;
            self.idle.remove(&id);
            self.waiting.insert(id);
        } else {
            // The flow takes no turns here, so nothing would release it later.
            actions.push(Action::Release { flow: id });
        }
    }

    /// Flows that occupy no path: those that wait, and those that do not send.
    pub(super) fn absent(&self) -> Vec<FlowId> {
        self.waiting.union(&self.idle).copied().collect()
    }

    /// Whether all flows must be provided for exactly.
    pub(super) fn is_inexact(&self) -> bool {
        let inexact = |provision: &Provision| {
            provision.paths.is_inexact() || provision.hosts.as_ref().is_some_and(Provider::is_inexact)
        };
        self.provision.as_ref().is_some_and(inexact)
    }

    /// When the next exact provision of all flows may start.
    pub(super) fn next_exact_provision(&self) -> Nanos {
        let gap = |flows: u64| EXACT_PROVISION_GAP.max(Nanos(EXACT_PROVISION_GAP_PER_FLOW.0.saturating_mul(flows)));
        self.last_exact_provision.map_or(Nanos::ZERO, |(last, flows)| last.saturating_add(gap(flows)))
    }

    /// Whether a flow is long and runs between hosts of the fabric.
    fn is_ours(&self, view: &View, flow: &FlowView) -> bool {
        !is_short(flow, self.settings.long_bytes) && access(view, flow).is_some()
    }

    /// When to call [`Dispatcher::watch`]; `None` while no flow waits.
    pub(super) fn next_watch(&self) -> Option<Nanos> {
        if self.waiting.is_empty() {
            return None;
        }
        let reading = (!self.reading_requested).then(|| self.read_at.saturating_add(self.watch_gap));
        reading.into_iter().chain(self.overdue_at.first().map(|&(at, _)| at)).min()
    }

    /// Ensures that no flow waits for one that does not send: requests readings of the counters while flows wait, and
    /// stops providing for overdue flows.
    pub(super) fn watch(&mut self, now: Nanos, view: &View, router: &mut Router, actions: &mut Vec<Action>) {
        if self.next_watch().is_none_or(|at| at > now) {
            return;
        }
        if !self.reading_requested && self.read_at.saturating_add(self.watch_gap) <= now {
            self.reading_requested = true;
            actions.push(Action::Measure);
        }
        self.settle(now, view, Vec::new(), router, actions);
    }

    /// Handles new counters in the view. Corrects the estimates of bytes sent, stops providing for idle flows, and
    /// provides again for flows that send again. Returns whether this is a periodic reading, which renews leases, and
    /// not one that was requested.
    pub(super) fn measured(&mut self, now: Nanos, view: &View, router: &mut Router, actions: &mut Vec<Action>) -> bool {
        let periodic = !std::mem::take(&mut self.reading_requested);
        self.read_at = now;
        let (lease, watched) = (self.settings.lease, !self.waiting.is_empty() || !self.idle.is_empty());
        let (mut stopped, mut resumed) = (Vec::new(), Vec::new());
        self.flow_states.0.for_each_mut(|id, state| {
            let Some(flow) = view.flows.get(&id) else { return };
            if periodic && state.held {
                actions.push(Action::Hold { flow: id, lease });
            }
            // On the default routes no rule counts the flow, so there is only the estimate.
            if flow.route.is_none() {
                return;
            }
            let (estimate, counted) = (state.sent_bytes(now), payload_bytes(flow.bytes));
            match state.progress.read(now, estimate, counted).filter(|_| watched && !state.held) {
                Some(Verdict::Idle) => stopped.push(id),
                Some(Verdict::Sends) => resumed.push(id),
                None => {}
            }
            (state.sent_bytes, state.as_of) = (counted, now);
        });
        resumed.retain(|id| self.idle.remove(id));
        for &id in &stopped {
            self.stop_providing(id, view, router, actions);
        }
        self.enter_again(now, view, &resumed);
        if !periodic && !self.waiting.is_empty() && self.next_exact_provision() <= now {
            // Approximate rates may leave room that a waiting flow could use.
            self.settle_all(now, view, resumed, router, actions);
        } else if !(stopped.is_empty() && resumed.is_empty()) {
            self.settle(now, view, resumed, router, actions);
        }
        periodic
    }

    /// Includes flows that send again in the provision.
    fn enter_again(&mut self, now: Nanos, view: &View, flows: &[FlowId]) {
        for &id in flows {
            let state = self.flow_states.of(now, id);
            state.progress.resume(now);
            let hosts = self.provision.as_mut().and_then(|provision| provision.hosts.as_mut());
            hosts.into_iter().for_each(|hosts| put_at_hosts(hosts, view, id, self.known.contains(&id)));
        }
    }

    /// Handles a flow that does not use its share. From now on it may send as fast as its links allow, and other
    /// flows are provided for as if it were absent.
    fn stop_providing(&mut self, id: FlowId, view: &View, router: &mut Router, actions: &mut Vec<Action>) {
        if !self.idle.insert(id) {
            return;
        }
        router.withdraw(id);
        if let Some(Provision { hosts, paths }) = &mut self.provision {
            paths.remove(id);
            hosts.iter_mut().for_each(|hosts| {
                hosts.remove(id);
            });
        }
        let Some(state) = self.flow_states.0.get_mut(&id) else { return };
        if let Some(at) = state.progress.overdue_at() {
            self.overdue_at.remove(&(at, id));
        }
        let most = view.flows.get(&id).and_then(|flow| most(view, flow));
        if let Some((_, most_bps)) = most.filter(|_| self.settings.headroom.is_some()) {
            state.paced_bps = Some(most_bps);
            actions.push(Action::Pace { flow: id, rate_bps: Some(most_bps.max(1)) });
        }
    }

    /// Stops providing for overdue flows while others wait.
    fn give_up_overdue(&mut self, now: Nanos, view: &View, router: &mut Router, actions: &mut Vec<Action>) {
        while let Some(&(at, id)) = self.overdue_at.first().filter(|_| !self.waiting.is_empty()) {
            if at > now {
                break;
            }
            self.overdue_at.pop_first();
            self.stop_providing(id, view, router, actions);
        }
    }

    /// Handles the arrival of a long flow.
    pub(super) fn arrive(
        &mut self,
        now: Nanos,
        view: &View,
        id: FlowId,
        router: &mut Router,
        actions: &mut Vec<Action>,
    ) {
        let Some(flow) = view.flows.get(&id).filter(|flow| self.is_ours(view, flow)) else { return };
        if self.settings.schedule && flow.size_bytes.get().is_some() {
            self.known.insert(id);
        }
        if self.is_on() {
            self.enter(now, view, id, router);
            if self.defer_if_many(now) {
                self.unpaced.push(id);
                router.arrive_again(now, view, id, actions);
                self.provision.iter_mut().for_each(|provision| put(&mut provision.paths, view, router, id, false, 1.0));
            } else {
                self.settle(now, view, vec![id], router, actions);
            }
        } else {
            router.arrive(now, view, id, actions);
        }
    }

    /// Handles the end of a flow.
    pub(super) fn depart(
        &mut self,
        now: Nanos,
        view: &View,
        id: FlowId,
        router: &mut Router,
        actions: &mut Vec<Action>,
    ) {
        if let Some(state) = self.flow_states.0.remove(&id) {
            if let Some(at) = state.progress.overdue_at() {
                self.overdue_at.remove(&(at, id));
            }
            if let Some(at) = state.ages_at {
                self.ages_at.remove(&(at, id));
            }
        }
        self.known.remove(&id);
        self.waiting.remove(&id);
        self.idle.remove(&id);
        if let Some(Provision { hosts, paths }) = &mut self.provision {
            paths.remove(id);
            if let Some(hosts) = hosts {
                hosts.remove(id);
            }
        }
        if !self.defer_if_many(now) {
            self.settle(now, view, Vec::new(), router, actions);
        }
        if !self.is_on() {
            self.provision = None;
        }
    }

    /// Defers the provision for a change if there are many flows. Returns whether the change is provided for later,
    /// together with further changes until then.
    fn defer_if_many(&mut self, now: Nanos) -> bool {
        let many = self.flow_states.0.len() >= MANY_FLOWS && self.known.is_empty() && self.waiting.is_empty();
        if many && self.provision.is_some() {
            self.deferred_until.get_or_insert(now.saturating_add(DEFER_TIME));
        }
        many
    }

    /// When to call [`Dispatcher::catch_up`].
    pub(super) fn next_catch_up(&self) -> Option<Nanos> {
        self.deferred_until.into_iter().chain(self.ages_at.first().map(|&(at, _)| at)).min()
    }

    /// Provides for deferred changes that are due, and for flows that leave their class.
    pub(super) fn catch_up(&mut self, now: Nanos, view: &View, router: &mut Router, actions: &mut Vec<Action>) {
        let mut aged = Vec::new();
        while let Some(&(at, id)) = self.ages_at.first().filter(|&&(at, _)| at <= now) {
            self.ages_at.remove(&(at, id));
            self.flow_states.of(now, id).ages_at = None;
            aged.push(id);
        }
        if !aged.is_empty() || self.deferred_until.is_some_and(|at| at <= now) {
            self.settle(now, view, aged, router, actions);
        }
    }

    /// Handles changes of the paths of these flows.
    pub(super) fn moved(
        &mut self,
        now: Nanos,
        view: &View,
        flows: &[FlowId],
        router: &mut Router,
        actions: &mut Vec<Action>,
    ) {
        if let Some(Provision { paths, .. }) = &mut self.provision {
            let here = |id: &&FlowId| paths.rate_bps(**id).is_some();
            let here: Vec<FlowId> = flows.iter().filter(here).copied().collect();
            for id in here {
                let factor = factor(self.settings, self.flow_states.0.get(&id), now);
                put(paths, view, router, id, self.known.contains(&id), factor);
            }
            self.settle(now, view, Vec::new(), router, actions);
        }
    }

    /// Computes the provision of all flows exactly, on their current paths.
    pub(super) fn provide_exactly(&mut self, now: Nanos, view: &View, router: &mut Router, actions: &mut Vec<Action>) {
        if self.provision.is_some() {
            let here = |id: &&FlowId| view.flows.get(id).is_some_and(|flow| self.is_ours(view, flow));
            let all = self.flow_states.0.keys().filter(here).copied().collect();
            self.settle_all(now, view, all, router, actions);
        }
    }

    /// Computes the provision of all flows exactly. For use when all changes of paths were announced by
    /// [`Dispatcher::moved`].
    pub(super) fn compute_exact_rates(
        &mut self,
        now: Nanos,
        view: &View,
        router: &mut Router,
        actions: &mut Vec<Action>,
    ) {
        if self.provision.is_some() {
            self.settle_all(now, view, Vec::new(), router, actions);
        }
    }

    fn settle_all(
        &mut self,
        now: Nanos,
        view: &View,
        these: Vec<FlowId>,
        router: &mut Router,
        actions: &mut Vec<Action>,
    ) {
        self.last_exact_provision = Some((now, self.flow_states.0.len() as u64));
        self.settle_by(Provider::settle_all, now, view, these, router, actions);
    }

    /// Adds a flow to the provision. The first one creates the provision, with all flows that have a path.
    fn enter(&mut self, now: Nanos, view: &View, id: FlowId, router: &Router) {
        let flow_states = &mut self.flow_states;
        flow_states.of(now, id);
        let provision = self.provision.get_or_insert_with(|| {
            let mut paths = Provider::new(rates_bps(view), self.settings.sharing);
            for (other, _) in view.long_flows().filter(|&(other, _)| other != id && router.links(other).is_some()) {
                flow_states.of(now, other);
                put(&mut paths, view, router, other, false, 1.0);
            }
            Provision { hosts: None, paths }
        });
        if provision.hosts.is_none() && !self.known.is_empty() {
            let mut hosts = Provider::new(rates_bps(view), self.settings.sharing);
            for &other in flow_states.0.keys().filter(|&other| *other != id && !self.idle.contains(other)) {
                put_at_hosts(&mut hosts, view, other, self.known.contains(&other));
            }
            provision.hosts = Some(hosts);
        }
        let known = self.known.contains(&id);
        provision.hosts.iter_mut().for_each(|hosts| put_at_hosts(hosts, view, id, known));
    }

    /// Decides turns and rates of these flows and of all flows that changes affect. Tells hosts what changed.
    fn settle(&mut self, now: Nanos, view: &View, these: Vec<FlowId>, router: &mut Router, actions: &mut Vec<Action>) {
        self.settle_by(Provider::settle, now, view, these, router, actions);
    }

    fn settle_by(
        &mut self,
        settle: fn(&mut Provider, Remaining<'_>) -> Vec<(FlowId, u64)>,
        now: Nanos,
        view: &View,
        these: Vec<FlowId>,
        router: &mut Router,
        actions: &mut Vec<Action>,
    ) {
        self.give_up_overdue(now, view, router, actions);
        self.deferred_until = None;
        let mut changed = these;
        changed.append(&mut self.unpaced);
        let Some(Provision { hosts, paths }) = &mut self.provision else { return };
        changed.retain(|id| self.flow_states.0.contains_key(id));
        let remaining = |id: FlowId| self.flow_states.remaining_bytes(now, view, id);
        if let Some(hosts) = hosts {
            changed.extend(settle(hosts, &remaining).into_iter().map(|(id, _)| id));
            changed.sort_unstable();
            changed.dedup();
        }
        changed.retain(|id| !self.idle.contains(id));
        for &id in &changed {
            let known = self.known.contains(&id);
            if !known || hosts.as_ref().and_then(|hosts| hosts.rate_bps(id)).is_none_or(|rate_bps| rate_bps > 0) {
                router.arrive_again(now, view, id, actions);
                let factor = factor(self.settings, self.flow_states.0.get(&id), now);
                put(paths, view, router, id, known, factor);
            } else {
                router.withdraw(id);
                paths.remove(id);
            }
        }
        let mut rates = settle(paths, &remaining);
        rates.extend(changed.into_iter().map(|id| (id, paths.rate_bps(id).unwrap_or(0))));
        rates.sort_unstable();
        rates.dedup();
        for (id, rate_bps) in rates {
            self.tell(now, view, id, rate_bps, actions);
        }
    }

    /// Tells a flow's host what changed: hold, release or pace.
    fn tell(&mut self, now: Nanos, view: &View, flow: FlowId, rate_bps: u64, actions: &mut Vec<Action>) {
        let known = self.known.contains(&flow);
        let left_bytes = if known { self.flow_states.remaining_bytes(now, view, flow) } else { None };
        let Some(state) = self.flow_states.0.get_mut(&flow) else { return };
        state.advance(now);
        state.rate_bps = rate_bps;
        if let Some(at) = state.progress.overdue_at() {
            self.overdue_at.remove(&(at, flow));
        }
        state.progress.told(now, rate_bps, left_bytes);
        if let Some(at) = state.progress.overdue_at() {
            self.overdue_at.insert((at, flow));
        }
        if self.settings.ageing && !known {
            if let Some(at) = state.ages_at.take() {
                self.ages_at.remove(&(at, flow));
            }
            state.ages_at = leaves_class_at(state, now);
            self.ages_at.extend(state.ages_at.map(|at| (at, flow)));
        }
        let waits = rate_bps == 0 && known;
        if waits && !state.held {
            actions.push(Action::Hold { flow, lease: self.settings.lease });
        }
        let pace_bps =
            self.settings.headroom.filter(|_| !waits).map(|headroom| (rate_bps as f64 * (1.0 - headroom)) as u64);
        if let Some(pace_bps) = pace_bps {
            let step = |before: u64| before.abs_diff(pace_bps) as f64 > PACE_STEP * before as f64;
            if state.paced_bps.is_none_or(step) {
                state.paced_bps = Some(pace_bps);
                actions.push(Action::Pace { flow, rate_bps: Some(pace_bps.max(1)) });
            }
        }
        if state.held && !waits {
            actions.push(Action::Release { flow });
        }
        if std::mem::replace(&mut state.held, waits) != waits {
            if waits && self.waiting.is_empty() {
                self.read_at = now;
            }
            match waits {
                true => self.waiting.insert(flow),
                false => self.waiting.remove(&flow),
            };
        }
    }
}

/// The factor of a flow's weight on full links, by the bytes that it has sent.
fn factor(settings: DispatchSettings, state: Option<&FlowState>, now: Nanos) -> f64 {
    match state.filter(|_| settings.ageing) {
        Some(state) => ageing::weight(ageing::class(state.sent_bytes(now))),
        None => 1.0,
    }
}

/// When a flow leaves its class at its present rate.
fn leaves_class_at(state: &FlowState, now: Nanos) -> Option<Nanos> {
    let sent_bytes = state.sent_bytes(now);
    let left_bytes = ageing::end_bytes(ageing::class(sent_bytes))? - sent_bytes;
    // A little later, because the payload is less than the bytes on the wire.
    let ns = remaining_ns(left_bytes + left_bytes / 16 + 1, state.rate_bps);
    (state.rate_bps > 0).then(|| now.saturating_add(Nanos(u64::try_from(ns).unwrap_or(u64::MAX))))
}

/// Puts a flow on all links that it crosses now. A flow with an unknown path counts on its access links only.
fn put(paths: &mut Provider, view: &View, router: &Router, id: FlowId, known: bool, factor: f64) {
    let Some((ends, most_bps)) = view.flows.get(&id).and_then(|flow| most(view, flow)) else { return };
    let links: Vec<u32> = ends.iter().chain(router.links(id).unwrap_or_default()).copied().collect();
    paths.put_weighted(id, &links, most_bps, known, factor);
}

fn put_at_hosts(hosts: &mut Provider, view: &View, id: FlowId, known: bool) {
    if let Some((ends, most_bps)) = view.flows.get(&id).and_then(|flow| most(view, flow)) {
        hosts.put(id, &ends, most_bps, known);
    }
}

/// The access links of a flow, and the highest rate that it can have: that of its access links, or of the fastest link
/// between its ToRs and the rest of the fabric. Without the latter, other flows of its host would wait for a rate that
/// no path has.
fn most(view: &View, flow: &FlowView) -> Option<([u32; 2], u64)> {
    let (ends, access_bps) = access(view, flow)?;
    let fastest_bps = |tor| {
        let ports = view.fabric.switch_ports(tor).iter();
        ports.map(|port| view.fabric.link(port.link).settings.rate_bps).max()
    };
    let within = flow.src_tor == flow.dst_tor;
    let between_bps = if within { None } else { fastest_bps(flow.src_tor).min(fastest_bps(flow.dst_tor)) };
    Some((ends, access_bps.min(between_bps.unwrap_or(u64::MAX))))
}
