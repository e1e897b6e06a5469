//! Takes links and switches out of service, and back into service, without packet loss.
//!
//! A link or switch that is out of service still forwards packets, but no scheme and no default route uses it. The
//! scheme is told that the link went down, and moves its flows. Flows that it leaves there return to the default
//! routes after some time. Default routes change switch by switch. When something leaves service, the switches that
//! are farthest from it change first. The next switches change when these have confirmed, and when the packets that
//! they sent before have passed the next link. When something returns, the nearest switches change first. Therefore
//! no packet reaches a switch that would have to send it back, which an OpenFlow switch does not do (ordered FIB
//! updates, RFC 6976 §4). A switch that leaves service keeps its routes for them. If the scheme changes meanwhile, it gets
//! new ones after all others. If a link fails meanwhile, the order ends and all switches get their new routes at once.
//!
//! A switch without a session gets no messages and keeps its routes. No other switch waits for it. A link that it may
//! still use is not safe to pull until the switch has reconnected and confirmed. A switch whose session has begun, but
//! whose rules are not read yet, changes in its turn, and the others wait for it.

use crate::assignments::Assignments;
use crate::base_rules::BaseRules;
use crate::context::Context;
use crate::io::Target;
use crate::links::Cables;
use crate::plan::Version;
use crate::reasons::Decision;
use crate::routes::Routes;
use crate::switches::{Purpose, Session};
use crate::timers::Timer;
use pathloom_model::{Fabric, LinkId, Nanos, NodeId, Path};
use pathloom_scheme::{Event, FlowId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Time that a scheme has to move its flows. Afterwards the flows are checked with this period.
const PATIENCE: Nanos = Nanos::from_secs(2);

/// How long other switches wait for one whose rules are not read yet. Some switches never list their rules. After a start of
/// the controller, a switch without a session counts as gone after this time.
const READING: Nanos = Nanos::from_secs(10);

/// Switches and cables that are out of service.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct OutOfService {
    switches: BTreeSet<NodeId>,
    /// One direction of each cable, the one with the lower number.
    cables: BTreeSet<LinkId>,
}

impl OutOfService {
    /// Whether a link is out of service, because of its cable or because of a switch at one of its ends.
    pub(crate) fn covers(&self, fabric: &Fabric, link: LinkId) -> bool {
        let ends = fabric.link(link);
        let out = |node| self.switches.contains(&node);
        self.cables.contains(&link.min(link.reverse())) || out(ends.from) || out(ends.to)
    }

    /// Whether exactly this switch or cable is out of service.
    fn has(&self, target: Target) -> bool {
        match target {
            Target::Switch(switch) => self.switches.contains(&switch),
            Target::Cable(link) => self.cables.contains(&link.min(link.reverse())),
        }
    }

    /// Changes the state of a target. Returns whether the state was different.
    fn set(&mut self, target: Target, out: bool) -> bool {
        let cable = |link: LinkId| link.min(link.reverse());
        match (target, out) {
            (Target::Switch(switch), true) => self.switches.insert(switch),
            (Target::Switch(switch), false) => self.switches.remove(&switch),
            (Target::Cable(link), true) => self.cables.insert(cable(link)),
            (Target::Cable(link), false) => self.cables.remove(&cable(link)),
        }
    }

    fn is_empty(&self) -> bool {
        self.switches.is_empty() && self.cables.is_empty()
    }

    /// All switches and cables that are out of service themselves.
    pub(crate) fn targets(&self) -> Vec<Target> {
        let switches = self.switches.iter().copied().map(Target::Switch);
        switches.chain(self.cables.iter().copied().map(Target::Cable)).collect()
    }
}

/// Order in which switches change their default routes. `left` has the switches that have not changed yet.
#[derive(Debug, Default)]
pub(crate) struct Staged {
    left: VecDeque<Vec<NodeId>>,
    /// Switches that have not confirmed yet, each with the number of its last message.
    waiting: BTreeMap<NodeId, u32>,
    number: u32,
    /// Whether something leaves service.
    out: bool,
    /// All switches so far have confirmed, but until this time the packets that they sent before can still be on the
    /// next link.
    settling: Option<Nanos>,
    /// Time until which switches whose rules are not read yet are waited for.
    reads_by: Nanos,
}

impl Staged {
    fn is_over(&self) -> bool {
        self.left.is_empty() && self.waiting.is_empty() && self.settling.is_none()
    }
}

/// Why a target cannot be taken out of service, or back into service.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DrainError {
    /// The target is not a switch, nor a link between two switches.
    #[error("only switches, and links between two switches, can be taken out of service")]
    NotDrainable,
    /// The hosts of the switch have no other link.
    #[error(
        "hosts are connected to switch {0:?}; take its links out of service one at a time, or move the hosts first"
    )]
    HasHosts(NodeId),
    /// Without the target, the fabric is partitioned.
    #[error("without it, switch {0:?} would be unreachable; bring up another path first")]
    CutsOff(NodeId),
    /// The target already has the requested state.
    #[error("it already has the requested state")]
    Already,
    /// The controller has just started and this switch has had no session yet, so packets could be lost.
    #[error("the controller has just started, and switch {0:?} has had no session yet; repeat it in some seconds")]
    NoSession(NodeId),
}

/// What is out of service, and which switches have not got their new routes yet.
#[derive(Debug, Default)]
pub(crate) struct Drains {
    pub out: OutOfService,
    staged: Staged,
}

impl Drains {
    /// Creates the state that a snapshot contains.
    pub(crate) fn restored(out: OutOfService) -> Drains {
        Drains { out, staged: Staged::default() }
    }

    /// Sends every switch its new default routes, if they may have changed.
    pub(crate) fn update_all(&mut self, cx: &mut Context, base: &mut BaseRules, assignments: &Assignments) {
        if !base.is_stale() {
            return;
        }
        let fabric = cx.fabric.clone();
        if !fabric.switches().iter().any(|&switch| cx.is_ready(switch)) {
            return;
        }
        // A new scheme does not disturb the order in which something leaves service.
        let keeps_order = self.staged.out && !self.staged.is_over() && !base.is_urgent();
        base.refresh();
        if !keeps_order {
            self.unstage();
        }
        let mut last = Vec::new();
        for &switch in fabric.switches() {
            if !cx.is_ready(switch) || self.staged.left.iter().any(|later| later.contains(&switch)) {
                continue;
            }
            if keeps_order && self.is_switch_drained(switch) {
                // It would drop the packets of switches that have not changed yet.
                last.push(switch);
            } else {
                self.update_switch(cx, base, assignments, switch);
            }
        }
        if !last.is_empty() {
            self.staged.left.push_back(last);
        }
    }

    /// Whether a switch is out of service.
    pub(crate) fn is_switch_drained(&self, switch: NodeId) -> bool {
        self.out.switches.contains(&switch)
    }

    /// Whether default routes are still changing, because something left service or returned.
    pub(crate) fn is_staging(&self) -> bool {
        !self.staged.is_over()
    }

    /// Whether a switch or a cable may be taken out of service (`out`), or back into it.
    pub(crate) fn check(&self, cx: &Context, target: Target, out: bool) -> Result<(), DrainError> {
        let known = match target {
            Target::Switch(switch) => cx.is_switch(switch),
            Target::Cable(link) => link.index() < cx.fabric.links().len() && cx.fabric.is_switch_link(link),
        };
        if !known {
            return Err(DrainError::NotDrainable);
        }
        if self.out.has(target) == out {
            return Err(DrainError::Already);
        }
        if !out {
            return Ok(());
        }
        let without = match target {
            Target::Switch(switch) if cx.fabric.tor_index(switch).is_some() => {
                return Err(DrainError::HasHosts(switch))
            }
            Target::Switch(switch) => cx.fabric.switch_ports(switch).iter().map(|port| port.link).collect(),
            Target::Cable(link) => vec![link],
        };
        let leaves = |link: LinkId| without.iter().any(|gone| gone.cable() == link.cable());
        let up = |link: LinkId| cx.view.links.is_up(link);
        let (before, after) = (parts(cx, up), parts(cx, |link| up(link) && !leaves(link)));
        // ToRs that were in one part of the fabric must be in one part afterwards.
        let mut parts: BTreeMap<Option<NodeId>, Option<NodeId>> = BTreeMap::new();
        let torn = |tor: &&NodeId| {
            let part = after[tor.index()];
            *parts.entry(before[tor.index()]).or_insert(part) != part
        };
        cx.fabric.tors().iter().find(torn).map_or(Ok(()), |&tor| Err(DrainError::CutsOff(tor)))
    }

    /// Checks that all switches have had sessions with a controller that has run for `age`, or that it has waited for long
    /// enough. Before that it cannot change default routes in a safe order: a switch without a session keeps its old ones,
    /// and nothing is known of the flows that it sends.
    pub(crate) fn check_sessions(cx: &Context, age: Nanos) -> Result<(), DrainError> {
        let is_new = |switch: &&NodeId| {
            let state = &cx.switches[switch.index()];
            state.session == Session::Down && !state.read
        };
        match cx.fabric.switches().iter().find(is_new).filter(|_| age < READING) {
            Some(&switch) => Err(DrainError::NoSession(switch)),
            None => Ok(()),
        }
    }

    /// Takes a target out of service, or back into service. Informs the scheme and starts the change of default
    /// routes. Flows stay on their paths.
    pub(crate) fn drain(&mut self, cx: &mut Context, base: &BaseRules, cables: &Cables, target: Target, out: bool) {
        let before = self.out.clone();
        self.out.set(target, out);
        let fabric = cx.fabric.clone();
        let changed: Vec<LinkId> = fabric
            .switch_cables()
            .filter(|&link| before.covers(&fabric, link) != self.out.covers(&fabric, link))
            .filter(|&link| cables.is_up(link) && fabric.link(link).settings.rate_bps > 0)
            .collect();
        let ends = match target {
            Target::Switch(switch) => vec![switch],
            Target::Cable(link) => vec![fabric.link(link).from, fabric.link(link).to],
        };
        let touched = |link: LinkId| changed.iter().any(|other| other.cable() == link.cable());
        let hops = hops(cx, &ends, |link| cx.view.links.is_up(link) || touched(link));
        for &link in &changed {
            cx.view.links.set_cable(link, !out);
            for link in [link.min(link.reverse()), link.max(link.reverse())] {
                cx.events.push_back(Event::LinkChanged { link, up: !out });
            }
        }
        // A change of scheme that no switch has got yet can wait for the order.
        if !base.is_urgent() {
            self.stage(cx, target, out, &hops);
        }
    }

    /// Starts the time that the scheme has to move its flows off a target that leaves service.
    pub(crate) fn leave_time(&self, cx: &mut Context) {
        cx.timers.set(cx.now.saturating_add(PATIENCE), Timer::Drain);
    }

    /// Plans the order in which switches change their default routes.
    fn stage(&mut self, cx: &mut Context, target: Target, out: bool, hops: &[Option<usize>]) {
        let mut left: Vec<Vec<NodeId>> = Vec::new();
        for &switch in cx.fabric.switches() {
            // A switch that leaves service keeps its routes, for packets that are in transit.
            let leaving = out && target == Target::Switch(switch);
            if let Some(hops) = hops[switch.index()].filter(|_| !leaving) {
                left.resize_with(left.len().max(hops + 1), Vec::new);
                left[hops].push(switch);
            }
        }
        if out {
            left.reverse();
        }
        // This order also contains the switches that remained of an earlier one. It begins when the switches so far
        // have confirmed.
        self.staged.left = left.into();
        self.staged.out = out;
        self.staged.reads_by = cx.now.saturating_add(READING);
        if cx.switches.iter().any(|switch| switch.session == Session::Reading) {
            cx.timers.set(self.staged.reads_by, Timer::Stage);
        }
    }

    /// Sends the next switches in the order their new routes, if the switches before have confirmed, and if the rules of
    /// the next ones are known.
    pub(crate) fn next_stage(&mut self, cx: &mut Context, base: &mut BaseRules, assignments: &Assignments) {
        while self.staged.waiting.is_empty() && self.staged.settling.is_none() {
            let is_reading = |at: &NodeId| cx.switches[at.index()].session == Session::Reading;
            let waits = cx.now < self.staged.reads_by;
            if waits && self.staged.left.front().is_some_and(|next| next.iter().any(is_reading)) {
                return;
            }
            let Some(switches) = self.staged.left.pop_front() else {
                self.staged.out = false;
                return;
            };
            for switch in switches.into_iter().filter(|&switch| cx.is_ready(switch)).collect::<Vec<_>>() {
                self.update_and_wait(cx, base, assignments, switch);
            }
        }
    }

    /// Sends a switch its new rules. If this needs a message, waits until the switch confirms.
    fn update_and_wait(&mut self, cx: &mut Context, base: &mut BaseRules, assignments: &Assignments, switch: NodeId) {
        let before = cx.last_xid();
        base.bring_up_to_date(cx, assignments, switch);
        if cx.last_xid() != before {
            self.staged.number = self.staged.number.wrapping_add(1);
            let (xid, number) = (cx.next_xid(), self.staged.number);
            cx.await_answer(switch, xid, Purpose::Stage { number });
            self.staged.waiting.insert(switch, number);
        }
    }

    /// The rules of a switch were read. It gets the rules that it lacks, unless its turn in the order comes later.
    pub(crate) fn rules_read(
        &mut self,
        cx: &mut Context,
        base: &mut BaseRules,
        assignments: &Assignments,
        switch: NodeId,
    ) {
        // A switch without default routes forwards nothing, so it must not wait.
        let forwards = !base.tables[switch.index()].defaults.routes.is_empty();
        let comes_later = self.staged.left.iter().any(|later| later.contains(&switch));
        if forwards && comes_later {
            return;
        }
        if forwards && self.staged.out && !self.staged.is_over() && self.is_switch_drained(switch) {
            self.staged.left.push_back(vec![switch]);
        } else {
            self.update_switch(cx, base, assignments, switch);
        }
    }

    /// Sends a switch its new rules, regardless of the order. If something is out of service, the switch may send
    /// packets over it until it has confirmed.
    pub(crate) fn update_switch(
        &mut self,
        cx: &mut Context,
        base: &mut BaseRules,
        assignments: &Assignments,
        switch: NodeId,
    ) {
        if self.out.is_empty() {
            base.bring_up_to_date(cx, assignments, switch);
        } else {
            self.update_and_wait(cx, base, assignments, switch);
        }
    }

    /// Ends the order: all switches get their new routes at once.
    pub(crate) fn unstage(&mut self) {
        self.staged.left.clear();
        (self.staged.out, self.staged.settling) = (false, None);
    }

    /// A switch has confirmed the default routes with this number.
    pub(crate) fn stage_confirmed(&mut self, cx: &mut Context, switch: NodeId, number: u32) {
        if self.staged.waiting.get(&switch) != Some(&number) {
            return;
        }
        self.staged.waiting.remove(&switch);
        self.settle(cx);
    }

    /// Starts the time in which earlier packets pass the next link, if something leaves service and all switches have
    /// confirmed.
    fn settle(&mut self, cx: &mut Context) {
        if self.staged.out && self.staged.waiting.is_empty() {
            let until = cx.now.saturating_add(cx.link_drain());
            self.staged.settling = Some(until);
            cx.timers.set(until, Timer::Stage);
        }
    }

    /// The packets that the switches of a stage sent before their change have passed the next link.
    pub(crate) fn stage_settled(&mut self, now: Nanos) {
        self.staged.settling = self.staged.settling.filter(|&until| until > now);
    }

    /// The session to a switch begins. If its turn comes, the others wait for its rules to be read.
    pub(crate) fn session_begun(&self, cx: &mut Context) {
        if !self.staged.left.is_empty() {
            cx.timers.set(self.staged.reads_by, Timer::Stage);
        }
    }

    /// The session to a switch was lost. No other switch waits for it.
    pub(crate) fn session_lost(&mut self, cx: &mut Context, switch: NodeId) {
        if self.staged.waiting.remove(&switch).is_some() {
            self.settle(cx);
        }
    }

    /// Moves flows back to the default routes if their scheme left them on a path that is out of service.
    pub(crate) fn unroute_rest(&mut self, cx: &mut Context, routes: &mut Routes) {
        if self.out.is_empty() {
            return;
        }
        let crosses = |path: &Path| path.links().iter().any(|&link| self.out.covers(&cx.fabric, link));
        let mut left: Vec<FlowId> = Vec::new();
        let mut current_move = !self.staged.is_over();
        for (id, flow) in routes.rules.routed().filter_map(|id| Some((id, routes.rules.flows.get(id)?))) {
            let hit = |version: &Version| version.path.as_ref().is_some_and(crosses);
            let stays = |version: &Version| flow.staying().any(|source| source.plan == version.plan);
            let mut hits = flow.versions.iter().filter(|version| hit(version)).peekable();
            match (hits.peek().is_some(), flow.current_move.is_none() && !flow.closed && hits.any(stays)) {
                (false, _) => {}
                (true, true) => left.push(id),
                (true, false) => current_move = true,
            }
        }
        if current_move || !left.is_empty() {
            cx.timers.set(cx.now.saturating_add(PATIENCE), Timer::Drain);
        }
        // Before this moment, default routes can still lead over the target.
        if self.staged.is_over() {
            for id in left {
                routes.unroute_by(cx, id, Decision::Drained);
            }
        }
    }

    /// Whether packets without a known path of their own may still cross a link that is out of service. This is the
    /// case until it is certain that no switch has rules that lead over it.
    pub(crate) fn may_be_crossed(&self, cx: &Context, routes: &Routes, link: LinkId) -> bool {
        self.is_staging()
            || self.is_anything_unread(cx, routes)
            || self.deciding_switches(cx, link).any(|at| !has_confirmed_routes(cx, at))
    }

    /// Whether flows from before the start of the controller may have unknown paths: a ToR has not been read yet, or
    /// some rules were found whose flows are not known yet.
    fn is_anything_unread(&self, cx: &Context, routes: &Routes) -> bool {
        !routes.orphans.is_empty() || cx.fabric.tors().iter().any(|tor| !cx.switches[tor.index()].read)
    }

    /// The switches whose default routes determine whether packets cross a link: its ends. A switch that is out of
    /// service keeps its routes ([`Drains::stage`]), so its neighbours are returned in its place.
    fn deciding_switches<'a>(&'a self, cx: &'a Context, link: LinkId) -> impl Iterator<Item = NodeId> + 'a {
        let ends = cx.fabric.link(link);
        let (mut open, mut seen) = (vec![ends.from, ends.to], BTreeSet::new());
        while let Some(at) = open.pop() {
            if seen.insert(at) && self.is_switch_drained(at) {
                open.extend(cx.fabric.switch_ports(at).iter().map(|port| port.to));
            }
        }
        seen.into_iter().filter(|&at| !self.is_switch_drained(at))
    }
}

/// The part of the fabric that each node belongs to, named by the first ToR in that part. The fabric can be
/// partitioned.
fn parts(cx: &Context, usable: impl Fn(LinkId) -> bool) -> Vec<Option<NodeId>> {
    let mut parts = vec![None; cx.fabric.nodes().len()];
    for &tor in cx.fabric.tors() {
        if parts[tor.index()].is_none() {
            let reached = hops(cx, &[tor], &usable);
            parts.iter_mut().zip(reached).filter(|(_, hops)| hops.is_some()).for_each(|(part, _)| *part = Some(tor));
        }
    }
    parts
}

/// Number of hops to the nearest of some switches, by node.
fn hops(cx: &Context, ends: &[NodeId], usable: impl Fn(LinkId) -> bool) -> Vec<Option<usize>> {
    let mut hops = vec![None; cx.fabric.nodes().len()];
    let mut queue: VecDeque<NodeId> = ends.iter().copied().collect();
    ends.iter().for_each(|end| hops[end.index()] = Some(0));
    while let Some(at) = queue.pop_front() {
        for port in cx.fabric.switch_ports(at) {
            if hops[port.to.index()].is_none() && usable(port.link) {
                hops[port.to.index()] = hops[at.index()].map(|hops| hops + 1);
                queue.push_back(port.to);
            }
        }
    }
    hops
}

/// Whether a switch has confirmed that it has exactly the default routes that it should have.
fn has_confirmed_routes(cx: &Context, switch: NodeId) -> bool {
    let state = &cx.switches[switch.index()];
    state.session == Session::Ready && !state.reread
}
