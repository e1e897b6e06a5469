//! Who sends, and how fast: turns the provision of bandwidth into holds, releases and paces (OFPT §4, §5.2).
//!
//! Two settings decide how far it goes. `schedule=mrtf` lets flows of known size wait for shorter ones; flows that wait
//! take no place on any path, and get one anew when their turn comes. `enforce=host` has the hosts pace each flow to its
//! provision. With neither, flows share by TCP's own rules, and none of this runs.

use super::progress::{Progress, Verdict};
use super::provider::{self, Provider, Remaining};
use super::sharing::Sharing;
use crate::helpers::links::rates_bps;
use crate::placements::access;
use crate::remaining::payload_bytes;
use crate::router::{is_short, Router};
use pathloom_model::Nanos;
use pathloom_scheme::{Action, FlowId, FlowMap, FlowView, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A pace is sent again when it differs by more than this share from the one before.
const PACE_STEP: f64 = provider::NEWS;

/// Between two provisions of all flows that nobody waits for at least this much time passes, and for each flow as much.
/// A flow takes about a microsecond, so that is a tenth of the controller's time.
const EVENING_GAP: Nanos = Nanos::from_millis(100);
const EVENING_REST: Nanos = Nanos(10_000);

/// Where so many flows stand, one more or less changes little for each: what comes and goes within this time is provided for
/// together. Each flow has its path at once; its pace follows.
const MANY: usize = 1024;
const TOGETHER: Nanos = Nanos::from_millis(5);

/// While flows wait, the counters are read this often, and for each ToR at most so often: a reading is a message from each,
/// and 20 µs for each message is 2 % of the controller's time. TCP is silent for 200 ms and more when its timer runs.
const WATCH_GAP: Nanos = Nanos::from_millis(200);
const WATCH_REST: Nanos = Nanos::from_millis(1);

/// Settings of a [`Dispatcher`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct DispatchSettings {
    /// Flows of known size wait for shorter ones.
    pub schedule: bool,
    /// Hosts pace flows to their provision, less this share, which is left to short flows.
    pub headroom: Option<f64>,
    /// How flows of unknown size share full links.
    pub sharing: Sharing,
    /// Payload bytes from which on a flow of announced size is long.
    pub long_bytes: u64,
    /// How long a host keeps a flow waiting without hearing more.
    pub lease: Nanos,
}

/// What a flow's host was told, and what is known of its progress.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Charge {
    held: bool,
    paced_bps: Option<u64>,
    /// Payload bytes sent up to `as_of`, by the last reading and the rate provided since.
    sent_bytes: u64,
    rate_bps: u64,
    as_of: Nanos,
    /// What it has to show for its rate. A restart judges anew.
    #[serde(skip)]
    progress: Progress,
}

impl Charge {
    /// Payload bytes sent by now.
    fn sent_bytes(&self, now: Nanos) -> u64 {
        let ns = now.saturating_sub(self.as_of).0;
        let wire_bytes = match self.rate_bps.checked_mul(ns) {
            Some(product) => product / 8_000_000_000,
            None => {
                let wire_bytes = u128::from(self.rate_bps) * u128::from(ns) / 8_000_000_000;
                u64::try_from(wire_bytes).unwrap_or(u64::MAX / 2)
            }
        };
        self.sent_bytes.saturating_add(payload_bytes(wire_bytes))
    }

    fn advance(&mut self, now: Nanos) {
        (self.sent_bytes, self.as_of) = (self.sent_bytes(now), now);
    }
}

/// Keeps track of who sends.
pub(super) struct Dispatcher {
    settings: DispatchSettings,
    charges: Charges,
    /// Long flows that take turns, by their known size.
    known: BTreeSet<FlowId>,
    /// Flows that wait.
    waiting: BTreeSet<FlowId>,
    /// Flows that may send and do not: nothing is provided for them, so that nobody waits for them.
    idle: BTreeSet<FlowId>,
    /// Flows of known size that may send, by the time at which they should be over at the latest.
    overdue_at: BTreeSet<(Nanos, FlowId)>,
    /// When the counters were read last, or somebody began to wait; and whether a reading was asked for since.
    read_at: Nanos,
    asked: bool,
    /// Time between two readings while flows wait.
    watch_gap: Nanos,
    provision: Option<Provision>,
    /// When all were provided for last, and how many they were.
    last_evening: Option<(Nanos, u64)>,
    /// Flows that have a path and no pace yet, and when those that came or went have to be provided for.
    unpaced: Vec<FlowId>,
    put_off_to: Option<Nanos>,
}

/// Who gets how much. Whose turn it is at the hosts decides who gets a path; the paths then decide what is left for whom.
struct Provision {
    /// All flows on their access links; only while there are flows that take turns.
    hosts: Option<Provider>,
    /// Those whose turn it is on everything they cross.
    paths: Provider,
}

/// What survives a restart.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Charges(FlowMap<Charge>);

impl Charges {
    /// The charge of a flow, from now on if it had none.
    fn of(&mut self, now: Nanos, id: FlowId) -> &mut Charge {
        if !self.0.contains_key(&id) {
            self.0.insert(id, Charge { as_of: now, ..Charge::default() });
        }
        self.0.get_mut(&id).expect("it is there by now")
    }

    /// Forgets flows that the view does not have.
    fn keep_known(&mut self, view: &View) {
        let gone: Vec<FlowId> = self.0.keys().copied().filter(|id| !view.flows.contains_key(id)).collect();
        for id in gone {
            self.0.remove(&id);
        }
    }

    /// Payload bytes left of a flow of known size.
    fn remaining_bytes(&self, now: Nanos, view: &View, id: FlowId) -> Option<u64> {
        let size_bytes = view.flows.get(&id)?.size_bytes.get()?;
        Some(size_bytes.saturating_sub(self.0.get(&id).map_or(0, |charge| charge.sent_bytes(now))))
    }
}

impl Dispatcher {
    pub(super) fn new(settings: DispatchSettings) -> Dispatcher {
        Dispatcher {
            settings,
            charges: Charges::default(),
            known: BTreeSet::new(),
            waiting: BTreeSet::new(),
            idle: BTreeSet::new(),
            overdue_at: BTreeSet::new(),
            read_at: Nanos::ZERO,
            asked: false,
            watch_gap: WATCH_GAP,
            provision: None,
            last_evening: None,
            unpaced: Vec::new(),
            put_off_to: None,
        }
    }

    pub(super) fn charges(&self) -> &Charges {
        &self.charges
    }

    pub(super) fn recall(&mut self, charges: Charges) {
        self.charges = charges;
    }

    /// Begins with no flows but those of the view, which are told to be there one by one.
    pub(super) fn start(&mut self, view: &View) {
        self.charges.keep_known(view);
        self.known.clear();
        self.waiting = self.charges.0.iter().filter(|(_, charge)| charge.held).map(|(&flow, _)| flow).collect();
        self.idle.clear();
        self.overdue_at.clear();
        self.asked = false;
        self.watch_gap = WATCH_GAP.max(Nanos(WATCH_REST.0.saturating_mul(view.fabric.tors().len() as u64)));
        (self.provision, self.last_evening, self.put_off_to) = (None, None, None);
        self.unpaced.clear();
    }

    /// Whether it has anything to do: where no size is known all flows have a fair share, whether anybody works it out or
    /// not.
    pub(super) fn is_on(&self) -> bool {
        self.settings.headroom.is_some() || !self.known.is_empty() || !self.waiting.is_empty()
    }

    /// A flow was found under way: another controller may have told it to wait.
    pub(super) fn adopt(&mut self, flow: FlowId) {
        if self.settings.schedule {
            self.charges.of(Nanos::ZERO, flow).held = true;
            self.waiting.insert(flow);
        }
    }

    /// Flows that take no place on any path: those that wait, and those that do not send.
    pub(super) fn absent(&self) -> Vec<FlowId> {
        self.waiting.union(&self.idle).copied().collect()
    }

    /// Whether a provision of all flows has to be worked out.
    pub(super) fn is_uneven(&self) -> bool {
        let uneven = |provision: &Provision| {
            provision.paths.is_uneven() || provision.hosts.as_ref().is_some_and(Provider::is_uneven)
        };
        self.provision.as_ref().is_some_and(uneven)
    }

    /// When it may be worked out again that nobody waits for.
    pub(super) fn next_evening(&self) -> Nanos {
        let gap = |flows: u64| EVENING_GAP.max(Nanos(EVENING_REST.0.saturating_mul(flows)));
        self.last_evening.map_or(Nanos::ZERO, |(last, flows)| last.saturating_add(gap(flows)))
    }

    /// Whether a flow is long, and between hosts of the fabric.
    fn is_ours(&self, view: &View, flow: &FlowView) -> bool {
        !is_short(flow, self.settings.long_bytes) && access(view, flow).is_some()
    }

    /// When the dispatcher has to look after flows that wait; `None` while nobody does.
    pub(super) fn next_watch(&self) -> Option<Nanos> {
        if self.waiting.is_empty() {
            return None;
        }
        let reading = (!self.asked).then(|| self.read_at.saturating_add(self.watch_gap));
        reading.into_iter().chain(self.overdue_at.first().map(|&(at, _)| at)).min()
    }

    /// Sees to it that nobody waits for a flow that does not send: has the counters read while flows wait, and stops providing
    /// for flows that should be over.
    pub(super) fn watch(&mut self, now: Nanos, view: &View, router: &mut Router, actions: &mut Vec<Action>) {
        if self.next_watch().is_none_or(|at| at > now) {
            return;
        }
        if !self.asked && self.read_at.saturating_add(self.watch_gap) <= now {
            self.asked = true;
            actions.push(Action::Measure);
        }
        self.settle(now, view, Vec::new(), router, actions);
    }

    /// The counters in the view are new: what was estimated from rates is put right, flows that do not use their share are
    /// provided for no longer, and those that do are again. Tells whether it is a periodic reading, not one that was asked
    /// for; that one renews leases.
    pub(super) fn measured(&mut self, now: Nanos, view: &View, router: &mut Router, actions: &mut Vec<Action>) -> bool {
        let periodic = !std::mem::take(&mut self.asked);
        self.read_at = now;
        let (lease, watched) = (self.settings.lease, !self.waiting.is_empty() || !self.idle.is_empty());
        let (mut stopped, mut resumed) = (Vec::new(), Vec::new());
        self.charges.0.for_each_mut(|id, charge| {
            let Some(flow) = view.flows.get(&id) else { return };
            if periodic && charge.held {
                actions.push(Action::Hold { flow: id, lease });
            }
            // On the default routes nobody counts it: what was estimated is all that is known.
            if flow.route.is_none() {
                return;
            }
            let (estimate, counted) = (charge.sent_bytes(now), payload_bytes(flow.bytes));
            match charge.progress.read(now, estimate, counted).filter(|_| watched && !charge.held) {
                Some(Verdict::Idle) => stopped.push(id),
                Some(Verdict::Sends) => resumed.push(id),
                None => {}
            }
            (charge.sent_bytes, charge.as_of) = (counted, now);
        });
        resumed.retain(|id| self.idle.remove(id));
        for &id in &stopped {
            self.stop_providing(id, view, router, actions);
        }
        self.enter_again(now, view, &resumed);
        if !periodic && !self.waiting.is_empty() && self.next_evening() <= now {
            // What was worked out flow by flow may leave room that one who waits could have.
            self.settle_all(now, view, resumed, router, actions);
        } else if !(stopped.is_empty() && resumed.is_empty()) {
            self.settle(now, view, resumed, router, actions);
        }
        periodic
    }

    /// Flows that send again are there for others again.
    fn enter_again(&mut self, now: Nanos, view: &View, flows: &[FlowId]) {
        for &id in flows {
            let charge = self.charges.of(now, id);
            charge.progress.resume(now);
            let hosts = self.provision.as_mut().and_then(|provision| provision.hosts.as_mut());
            hosts.into_iter().for_each(|hosts| put_at_hosts(hosts, view, id, self.known.contains(&id)));
        }
    }

    /// A flow does not use its share: it may go on as fast as its links allow, and others are provided for as if it were not
    /// there.
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
        let Some(charge) = self.charges.0.get_mut(&id) else { return };
        if let Some(at) = charge.progress.overdue_at() {
            self.overdue_at.remove(&(at, id));
        }
        let most = view.flows.get(&id).and_then(|flow| most(view, flow));
        if let Some((_, most_bps)) = most.filter(|_| self.settings.headroom.is_some()) {
            charge.paced_bps = Some(most_bps);
            actions.push(Action::Pace { flow: id, rate_bps: Some(most_bps.max(1)) });
        }
    }

    /// Flows that should be over by now are waited for no longer.
    fn give_up_overdue(&mut self, now: Nanos, view: &View, router: &mut Router, actions: &mut Vec<Action>) {
        while let Some(&(at, id)) = self.overdue_at.first().filter(|_| !self.waiting.is_empty()) {
            if at > now {
                break;
            }
            self.overdue_at.pop_first();
            self.stop_providing(id, view, router, actions);
        }
    }

    /// A long flow has come.
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
            if self.puts_off(now) {
                self.unpaced.push(id);
                router.arrive_again(now, view, id, actions);
                self.provision.iter_mut().for_each(|provision| put(&mut provision.paths, view, router, id, false));
            } else {
                self.settle(now, view, vec![id], router, actions);
            }
        } else {
            router.arrive(now, view, id, actions);
        }
    }

    /// A flow is over.
    pub(super) fn depart(
        &mut self,
        now: Nanos,
        view: &View,
        id: FlowId,
        router: &mut Router,
        actions: &mut Vec<Action>,
    ) {
        if let Some(at) = self.charges.0.remove(&id).and_then(|charge| charge.progress.overdue_at()) {
            self.overdue_at.remove(&(at, id));
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
        if !self.puts_off(now) {
            self.settle(now, view, Vec::new(), router, actions);
        }
        if !self.is_on() {
            self.provision = None;
        }
    }

    /// Whether what has changed is provided for later, together with what else changes until then.
    fn puts_off(&mut self, now: Nanos) -> bool {
        let many = self.charges.0.len() >= MANY && self.known.is_empty() && self.waiting.is_empty();
        if many && self.provision.is_some() {
            self.put_off_to.get_or_insert(now.saturating_add(TOGETHER));
        }
        many
    }

    /// When what was put off has to be provided for.
    pub(super) fn put_off_to(&self) -> Option<Nanos> {
        self.put_off_to
    }

    /// Provides for what was put off, if its time has come.
    pub(super) fn catch_up(&mut self, now: Nanos, view: &View, router: &mut Router, actions: &mut Vec<Action>) {
        if self.put_off_to.is_some_and(|at| at <= now) {
            self.settle(now, view, Vec::new(), router, actions);
        }
    }

    /// The paths of these flows have changed.
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
                put(paths, view, router, id, self.known.contains(&id));
            }
            self.settle(now, view, Vec::new(), router, actions);
        }
    }

    /// Works out the provision of all flows, wherever their paths are by now.
    pub(super) fn even_out(&mut self, now: Nanos, view: &View, router: &mut Router, actions: &mut Vec<Action>) {
        if self.provision.is_some() {
            let here = |id: &&FlowId| view.flows.get(id).is_some_and(|flow| self.is_ours(view, flow));
            let all = self.charges.0.keys().filter(here).copied().collect();
            self.settle_all(now, view, all, router, actions);
        }
    }

    /// The same where no path has changed that was not told of.
    pub(super) fn even_rates(&mut self, now: Nanos, view: &View, router: &mut Router, actions: &mut Vec<Action>) {
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
        self.last_evening = Some((now, self.charges.0.len() as u64));
        self.settle_by(Provider::settle_all, now, view, these, router, actions);
    }

    /// Notes a flow; the first one brings along those that nobody has provided for so far.
    fn enter(&mut self, now: Nanos, view: &View, id: FlowId, router: &Router) {
        let charges = &mut self.charges;
        charges.of(now, id);
        let provision = self.provision.get_or_insert_with(|| {
            let mut paths = Provider::new(rates_bps(view), self.settings.sharing);
            for (other, _) in view.long_flows().filter(|&(other, _)| other != id && router.links(other).is_some()) {
                charges.of(now, other);
                put(&mut paths, view, router, other, false);
            }
            Provision { hosts: None, paths }
        });
        if provision.hosts.is_none() && !self.known.is_empty() {
            let mut hosts = Provider::new(rates_bps(view), self.settings.sharing);
            for &other in charges.0.keys().filter(|&other| *other != id && !self.idle.contains(other)) {
                put_at_hosts(&mut hosts, view, other, self.known.contains(&other));
            }
            provision.hosts = Some(hosts);
        }
        let known = self.known.contains(&id);
        provision.hosts.iter_mut().for_each(|hosts| put_at_hosts(hosts, view, id, known));
    }

    /// Finds out whose turn it is, of all whom a change has touched and of these, and what they get; tells hosts what has
    /// changed.
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
        self.put_off_to = None;
        let mut changed = these;
        changed.append(&mut self.unpaced);
        let Some(Provision { hosts, paths }) = &mut self.provision else { return };
        changed.retain(|id| self.charges.0.contains_key(id));
        let remaining = |id: FlowId| self.charges.remaining_bytes(now, view, id);
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
                put(paths, view, router, id, known);
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

    /// Tells a flow's host what is new.
    fn tell(&mut self, now: Nanos, view: &View, flow: FlowId, rate_bps: u64, actions: &mut Vec<Action>) {
        let known = self.known.contains(&flow);
        let left_bytes = if known { self.charges.remaining_bytes(now, view, flow) } else { None };
        let Some(charge) = self.charges.0.get_mut(&flow) else { return };
        charge.advance(now);
        charge.rate_bps = rate_bps;
        if let Some(at) = charge.progress.overdue_at() {
            self.overdue_at.remove(&(at, flow));
        }
        charge.progress.told(now, rate_bps, left_bytes);
        if let Some(at) = charge.progress.overdue_at() {
            self.overdue_at.insert((at, flow));
        }
        let waits = rate_bps == 0 && known;
        if waits && !charge.held {
            actions.push(Action::Hold { flow, lease: self.settings.lease });
        }
        let pace_bps =
            self.settings.headroom.filter(|_| !waits).map(|headroom| (rate_bps as f64 * (1.0 - headroom)) as u64);
        if let Some(pace_bps) = pace_bps {
            let step = |before: u64| before.abs_diff(pace_bps) as f64 > PACE_STEP * before as f64;
            if charge.paced_bps.is_none_or(step) {
                charge.paced_bps = Some(pace_bps);
                actions.push(Action::Pace { flow, rate_bps: Some(pace_bps.max(1)) });
            }
        }
        if charge.held && !waits {
            actions.push(Action::Release { flow });
        }
        if std::mem::replace(&mut charge.held, waits) != waits {
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

/// Everything a flow crosses now. A flow whose path is not known counts on its access links.
fn put(paths: &mut Provider, view: &View, router: &Router, id: FlowId, known: bool) {
    let Some((ends, most_bps)) = view.flows.get(&id).and_then(|flow| most(view, flow)) else { return };
    let links: Vec<u32> = ends.iter().chain(router.links(id).unwrap_or_default()).copied().collect();
    paths.put(id, &links, most_bps, known);
}

fn put_at_hosts(hosts: &mut Provider, view: &View, id: FlowId, known: bool) {
    if let Some((ends, most_bps)) = view.flows.get(&id).and_then(|flow| most(view, flow)) {
        hosts.put(id, &ends, most_bps, known);
    }
}

/// The access links of a flow, and the most that it can have: what they carry, or the fastest of the links between its ToRs
/// and the rest of the fabric. Were that left out, a flow would keep others of its host waiting for a rate that no path has.
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
