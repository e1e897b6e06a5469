//! Taking links and switches out of service, and back into it, without losing a packet.
//!
//! What is out of service carries packets as before, but no scheme and no default route uses it. The scheme hears of it as
//! of a link that went down and moves its flows in its own way; flows that it leaves there go back to the default routes
//! after a while. Default routes change switch by switch: those farthest from what leaves service first, and the next only
//! when they have confirmed and what they sent before has passed the next link; what comes back is taken up in the opposite
//! order. So no packet comes to a switch that would have to send it back, which an OpenFlow switch does not do (ordered FIB
//! updates, RFC 6976 §4). A failure meanwhile puts an end to the order: all are told at once.
//!
//! A switch without a session cannot be told, and goes on as it was. Nobody waits for it, but what it may still send over
//! is not safe to pull before it is back and has confirmed.

use crate::assignments::Assignments;
use crate::base_rules::BaseRules;
use crate::context::Context;
use crate::io::Target;
use crate::links::Cables;
use crate::plan::Version;
use crate::reasons::{note, Decision};
use crate::routes::Routes;
use crate::switches::{Purpose, Session};
use crate::timers::Timer;
use pathloom_model::{Fabric, LinkId, Nanos, NodeId, Path};
use pathloom_scheme::{Event, FlowId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How long a scheme has for moving its flows; then they are looked after this often.
const PATIENCE: Nanos = Nanos::from_secs(2);

/// What is out of service.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct OutOfService {
    switches: BTreeSet<NodeId>,
    /// One direction of each cable, the lower one.
    cables: BTreeSet<LinkId>,
}

impl OutOfService {
    /// Whether a link is out of service, by itself or with a switch at an end of it.
    pub(crate) fn covers(&self, fabric: &Fabric, link: LinkId) -> bool {
        let ends = fabric.link(link);
        let out = |node| self.switches.contains(&node);
        self.cables.contains(&link.min(link.reverse())) || out(ends.from) || out(ends.to)
    }

    /// Whether this very switch or cable is out of service.
    fn has(&self, target: Target) -> bool {
        match target {
            Target::Switch(switch) => self.switches.contains(&switch),
            Target::Cable(link) => self.cables.contains(&link.min(link.reverse())),
        }
    }

    /// Returns whether that is news.
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

    /// All that is out of service by itself.
    pub(crate) fn targets(&self) -> Vec<Target> {
        let switches = self.switches.iter().copied().map(Target::Switch);
        switches.chain(self.cables.iter().copied().map(Target::Cable)).collect()
    }
}

/// Switches whose default routes are still to change, in order.
#[derive(Debug, Default)]
pub(crate) struct Staged {
    left: VecDeque<Vec<NodeId>>,
    /// Those that have been told and have not confirmed, with the number of what they were told last.
    waiting: BTreeMap<NodeId, u32>,
    number: u32,
    /// Something leaves service.
    out: bool,
    /// All that were told have confirmed, but what they sent before may be on its way to the next ones until this time.
    settling: Option<Nanos>,
}

impl Staged {
    fn is_over(&self) -> bool {
        self.left.is_empty() && self.waiting.is_empty() && self.settling.is_none()
    }
}

/// Why something cannot be taken out of service, or back.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DrainError {
    /// It is no switch, or no link between two switches.
    #[error("only switches, and links between two switches, can be taken out of service")]
    NotOurs,
    /// Hosts have no other way.
    #[error("hosts hang on switch {0:?} itself; take its links out of service one by one, or move the hosts first")]
    HasHosts(NodeId),
    /// Without it the fabric falls apart.
    #[error("without it, switch {0:?} could not be reached any more; bring another way up first")]
    CutsOff(NodeId),
    /// It is so already.
    #[error("it is so already")]
    Already,
}

/// What is out of service, and which switches have still to be told.
#[derive(Debug, Default)]
pub(crate) struct Drains {
    pub out: OutOfService,
    staged: Staged,
}

impl Drains {
    /// As a snapshot says.
    pub(crate) fn restored(out: OutOfService) -> Drains {
        Drains { out, staged: Staged::default() }
    }

    /// Sends every switch what has changed since it was last told, if something may have.
    pub(crate) fn tell_all(&mut self, cx: &mut Context, base: &mut BaseRules, assignments: &Assignments) {
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
        for &switch in fabric.switches() {
            if cx.is_ready(switch) && !self.staged.left.iter().any(|later| later.contains(&switch)) {
                self.tell_switch(cx, base, assignments, switch);
            }
        }
    }

    /// Whether a switch is out of service.
    pub(crate) fn is_switch_drained(&self, switch: NodeId) -> bool {
        self.out.switches.contains(&switch)
    }

    /// Whether default routes are still being changed for what has left service or come back.
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
            return Err(DrainError::NotOurs);
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
        // ToRs that were in one part have to be in one part afterwards.
        let mut parts: BTreeMap<Option<NodeId>, Option<NodeId>> = BTreeMap::new();
        let torn = |tor: &&NodeId| {
            let part = after[tor.index()];
            *parts.entry(before[tor.index()]).or_insert(part) != part
        };
        cx.fabric.tors().iter().find(torn).map_or(Ok(()), |&tor| Err(DrainError::CutsOff(tor)))
    }

    /// Takes something out of service, or back. The scheme and the default routes are told; flows are left where they are.
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
        if !base.is_stale() {
            self.stage(cx, target, out, &hops);
        }
    }

    /// The scheme has some time now to move its flows off what has left service.
    pub(crate) fn leave_time(&self, cx: &mut Context) {
        cx.timers.set(cx.now.saturating_add(PATIENCE), Timer::Drain);
    }

    /// Has the default routes changed in order.
    fn stage(&mut self, cx: &Context, target: Target, out: bool, hops: &[Option<usize>]) {
        let mut left: Vec<Vec<NodeId>> = Vec::new();
        for &switch in cx.fabric.switches() {
            // A switch that leaves service goes on with the routes it has: for packets that are still on their way.
            let leaving = out && target == Target::Switch(switch);
            if let Some(hops) = hops[switch.index()].filter(|_| !leaving) {
                left.resize_with(left.len().max(hops + 1), Vec::new);
                left[hops].push(switch);
            }
        }
        if out {
            left.reverse();
        }
        // What is left of an earlier order is in this one, which begins when those told so far have confirmed.
        self.staged.left = left.into();
        self.staged.out = out;
    }

    /// Tells the next switches in order, when those before have confirmed.
    pub(crate) fn next_stage(&mut self, cx: &mut Context, base: &mut BaseRules, assignments: &Assignments) {
        while self.staged.waiting.is_empty() && self.staged.settling.is_none() {
            let Some(switches) = self.staged.left.pop_front() else {
                self.staged.out = false;
                return;
            };
            for switch in switches.into_iter().filter(|&switch| cx.is_ready(switch)).collect::<Vec<_>>() {
                self.tell_and_wait(cx, base, assignments, switch);
            }
        }
    }

    /// Brings a switch up to date, and waits for it to confirm if that takes a message.
    fn tell_and_wait(&mut self, cx: &mut Context, base: &mut BaseRules, assignments: &Assignments, switch: NodeId) {
        let before = cx.last_xid();
        base.bring_up_to_date(cx, assignments, switch);
        if cx.last_xid() != before {
            self.staged.number = self.staged.number.wrapping_add(1);
            let (xid, number) = (cx.next_xid(), self.staged.number);
            cx.await_answer(switch, xid, Purpose::Stage { number });
            self.staged.waiting.insert(switch, number);
        }
    }

    /// Brings a switch up to date, in no order. Where something is out of service, it may have sent packets over that until
    /// now, and does so until it has confirmed.
    pub(crate) fn tell_switch(
        &mut self,
        cx: &mut Context,
        base: &mut BaseRules,
        assignments: &Assignments,
        switch: NodeId,
    ) {
        if self.out.is_empty() {
            base.bring_up_to_date(cx, assignments, switch);
        } else {
            self.tell_and_wait(cx, base, assignments, switch);
        }
    }

    /// All switches are told, in no order.
    pub(crate) fn unstage(&mut self) {
        self.staged.left.clear();
        (self.staged.out, self.staged.settling) = (false, None);
    }

    /// A switch has the default routes that it was told of by this number.
    pub(crate) fn stage_confirmed(&mut self, cx: &mut Context, switch: NodeId, number: u32) {
        if self.staged.waiting.get(&switch) != Some(&number) {
            return;
        }
        self.staged.waiting.remove(&switch);
        self.settle(cx);
    }

    /// Waits for what was sent before, if all have confirmed that were told that something leaves service.
    fn settle(&mut self, cx: &mut Context) {
        if self.staged.out && self.staged.waiting.is_empty() {
            let until = cx.now.saturating_add(cx.link_drain());
            self.staged.settling = Some(until);
            cx.timers.set(until, Timer::Stage);
        }
    }

    /// What the switches of a stage sent before they changed has passed the next link.
    pub(crate) fn stage_settled(&mut self, now: Nanos) {
        self.staged.settling = self.staged.settling.filter(|&until| until > now);
    }

    /// The session to a switch was lost: nobody waits for it.
    pub(crate) fn session_lost(&mut self, cx: &mut Context, switch: NodeId) {
        if self.staged.waiting.remove(&switch).is_some() {
            self.settle(cx);
        }
    }

    /// Puts flows back on the default routes that a scheme has left on what is out of service.
    pub(crate) fn unroute_rest(&mut self, cx: &mut Context, routes: &mut Routes) {
        if self.out.is_empty() {
            return;
        }
        let crosses = |path: &Path| path.links().iter().any(|&link| self.out.covers(&cx.fabric, link));
        let mut left: Vec<FlowId> = Vec::new();
        let mut current_move = !self.staged.is_over();
        for (id, flow) in routes.routed().filter_map(|id| Some((id, routes.flows.get(id)?))) {
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
        // Only now does every default route lead past it.
        if self.staged.is_over() {
            for id in left {
                note(cx, &mut routes.flows, id, Decision::Drained);
                routes.unroute(cx, id);
            }
        }
    }

    /// Whether packets may still cross a link that is out of service, without a path of their own that is known: as long as
    /// it is not certain that no switch has rules that lead over it.
    pub(crate) fn may_be_crossed(&self, cx: &Context, routes: &Routes, link: LinkId) -> bool {
        self.is_staging() || self.is_anything_unread(cx, routes) || self.senders(cx, link).any(|at| !is_as_told(cx, at))
    }

    /// Whether there may be flows whose paths are not known, for they were set up before the controller started: a ToR has
    /// not been asked yet, or it cannot be told where its flows go.
    fn is_anything_unread(&self, cx: &Context, routes: &Routes) -> bool {
        !routes.orphans.is_empty() || cx.fabric.tors().iter().any(|tor| !cx.switches[tor.index()].read)
    }

    /// The switches whose default routes decide whether packets cross a link: its ends. A switch that is out of service
    /// keeps those that it had ([`Drains::stage`]), so that its neighbours decide in its place.
    fn senders<'a>(&'a self, cx: &'a Context, link: LinkId) -> impl Iterator<Item = NodeId> + 'a {
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

/// Which part of the fabric each node is in, named by the first ToR in it: it may have fallen apart.
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

/// Hops from the nearest of some switches, by node.
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

/// Whether a switch has nothing but the default routes that it should have, as far as it has confirmed them.
fn is_as_told(cx: &Context, switch: NodeId) -> bool {
    let state = &cx.switches[switch.index()];
    state.session == Session::Ready && !state.reread
}
