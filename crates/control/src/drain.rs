//! Taking links and switches out of service, and back into it, without losing a packet.
//!
//! What is out of service carries packets as before, but no scheme and no default route uses it. The scheme hears of it as
//! of a link that went down and moves its flows in its own way; flows that it leaves there go back to the default routes
//! after a while. Default routes change switch by switch: those farthest from what leaves service first, and the next only
//! when they have confirmed; what comes back is taken up in the opposite order. So no packet comes to a switch that sends
//! it back (ordered FIB updates, RFC 6976 §4). A failure meanwhile puts an end to the order: all are told at once.
//!
//! A switch without a session cannot be told, and goes on as it was. Nobody waits for it, but what it may still send over
//! is not safe to pull before it is back and has confirmed.

use crate::controller::Controller;
use crate::io::Target;
use crate::plan::Version;
use crate::reasons::Decision;
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
pub(crate) struct Drains {
    switches: BTreeSet<NodeId>,
    /// One direction of each cable, the lower one.
    cables: BTreeSet<LinkId>,
}

impl Drains {
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
}

impl Staged {
    fn is_over(&self) -> bool {
        self.left.is_empty() && self.waiting.is_empty()
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

impl Controller {
    /// Whether a switch or a cable may be taken out of service (`out`), or back into it.
    pub fn check_drain(&self, target: Target, out: bool) -> Result<(), DrainError> {
        let known = match target {
            Target::Switch(switch) => self.context.is_switch(switch),
            Target::Cable(link) => {
                link.index() < self.context.fabric.links().len() && self.context.fabric.is_switch_link(link)
            }
        };
        if !known {
            return Err(DrainError::NotOurs);
        }
        if self.drains.has(target) == out {
            return Err(DrainError::Already);
        }
        if !out {
            return Ok(());
        }
        let without = match target {
            Target::Switch(switch) if self.context.fabric.tor_index(switch).is_some() => {
                return Err(DrainError::HasHosts(switch))
            }
            Target::Switch(switch) => self.context.fabric.switch_ports(switch).iter().map(|port| port.link).collect(),
            Target::Cable(link) => vec![link],
        };
        let leaves = |link: LinkId| without.iter().any(|gone| gone.cable() == link.cable());
        let up = |link: LinkId| self.context.view.links.is_up(link);
        let (before, after) = (self.parts(up), self.parts(|link| up(link) && !leaves(link)));
        // ToRs that were in one part have to be in one part afterwards.
        let mut parts: BTreeMap<Option<NodeId>, Option<NodeId>> = BTreeMap::new();
        let torn = |tor: &&NodeId| {
            let part = after[tor.index()];
            *parts.entry(before[tor.index()]).or_insert(part) != part
        };
        self.context.fabric.tors().iter().find(torn).map_or(Ok(()), |&tor| Err(DrainError::CutsOff(tor)))
    }

    /// Carries out [`crate::Input::Drain`].
    pub(crate) fn drain(&mut self, target: Target, out: bool) {
        if self.check_drain(target, out).is_err() {
            self.context.counts.nonsense += 1;
            return;
        }
        let before = self.drains.clone();
        self.drains.set(target, out);
        let fabric = self.context.fabric.clone();
        let changed: Vec<LinkId> = fabric
            .switch_cables()
            .filter(|&link| before.covers(&fabric, link) != self.drains.covers(&fabric, link))
            .filter(|&link| self.cables.is_up(link) && fabric.link(link).settings.rate_bps > 0)
            .collect();
        let ends = match target {
            Target::Switch(switch) => vec![switch],
            Target::Cable(link) => vec![fabric.link(link).from, fabric.link(link).to],
        };
        let touched = |link: LinkId| changed.iter().any(|other| other.cable() == link.cable());
        let hops = self.hops(&ends, |link| self.context.view.links.is_up(link) || touched(link));
        for &link in &changed {
            self.context.view.links.set_cable(link, !out);
            for link in [link.min(link.reverse()), link.max(link.reverse())] {
                self.tell(Event::LinkChanged { link, up: !out });
            }
        }
        self.stage(target, out, &hops);
        self.reassign();
        if out {
            self.context.timers.set(self.context.now.saturating_add(PATIENCE), Timer::Drain);
        }
    }

    /// Which part of the fabric each node is in, named by the first ToR in it: it may have fallen apart.
    fn parts(&self, usable: impl Fn(LinkId) -> bool) -> Vec<Option<NodeId>> {
        let mut parts = vec![None; self.context.fabric.nodes().len()];
        for &tor in self.context.fabric.tors() {
            if parts[tor.index()].is_none() {
                let reached = self.hops(&[tor], &usable);
                parts
                    .iter_mut()
                    .zip(reached)
                    .filter(|(_, hops)| hops.is_some())
                    .for_each(|(part, _)| *part = Some(tor));
            }
        }
        parts
    }

    /// Hops from the nearest of some switches, by node.
    fn hops(&self, ends: &[NodeId], usable: impl Fn(LinkId) -> bool) -> Vec<Option<usize>> {
        let mut hops = vec![None; self.context.fabric.nodes().len()];
        let mut queue: VecDeque<NodeId> = ends.iter().copied().collect();
        ends.iter().for_each(|end| hops[end.index()] = Some(0));
        while let Some(at) = queue.pop_front() {
            for port in self.context.fabric.switch_ports(at) {
                if hops[port.to.index()].is_none() && usable(port.link) {
                    hops[port.to.index()] = hops[at.index()].map(|hops| hops + 1);
                    queue.push_back(port.to);
                }
            }
        }
        hops
    }

    /// Has the default routes changed in order.
    fn stage(&mut self, target: Target, out: bool, hops: &[Option<usize>]) {
        if self.stale {
            return;
        }
        let mut left: Vec<Vec<NodeId>> = Vec::new();
        for &switch in self.context.fabric.switches() {
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
    }

    /// Tells the next switches in order, when those before have confirmed.
    pub(crate) fn next_stage(&mut self) {
        while self.staged.waiting.is_empty() {
            let Some(switches) = self.staged.left.pop_front() else { return };
            for switch in switches.into_iter().filter(|&switch| self.context.is_ready(switch)).collect::<Vec<_>>() {
                self.tell_and_wait(switch);
            }
        }
    }

    /// Brings a switch up to date, and waits for it to confirm if that takes a message.
    fn tell_and_wait(&mut self, switch: NodeId) {
        let before = self.context.last_xid();
        self.bring_up_to_date(switch);
        if self.context.last_xid() != before {
            self.staged.number = self.staged.number.wrapping_add(1);
            let (xid, number) = (self.context.next_xid(), self.staged.number);
            self.context.await_answer(switch, xid, Purpose::Stage { number });
            self.staged.waiting.insert(switch, number);
        }
    }

    /// Brings a switch up to date, in no order. Where something is out of service, it may have sent packets over that until
    /// now, and does so until it has confirmed.
    pub(crate) fn tell_switch(&mut self, switch: NodeId) {
        if self.drains.is_empty() {
            self.bring_up_to_date(switch);
        } else {
            self.tell_and_wait(switch);
        }
    }

    /// All switches are told, in no order.
    pub(crate) fn unstage(&mut self) {
        self.staged.left.clear();
    }

    /// A switch has the default routes that it was told of by this number.
    pub(crate) fn staged(&mut self, switch: NodeId, number: u32) {
        if self.staged.waiting.get(&switch) == Some(&number) {
            self.staged.waiting.remove(&switch);
        }
    }

    /// The session to a switch was lost: nobody waits for it.
    pub(crate) fn stage_lost(&mut self, switch: NodeId) {
        self.staged.waiting.remove(&switch);
    }

    /// Puts flows back on the default routes that a scheme has left on what is out of service.
    pub(crate) fn drain_rest(&mut self) {
        if self.drains.is_empty() {
            return;
        }
        let crosses = |path: &Path| path.links().iter().any(|&link| self.drains.covers(&self.context.fabric, link));
        let mut left: Vec<FlowId> = Vec::new();
        let mut moving = !self.staged.is_over();
        for (id, flow) in self.routed().filter_map(|id| Some((id, self.flows.get(id)?))) {
            let hit = |version: &Version| version.path.as_ref().is_some_and(crosses);
            let stays = |version: &Version| flow.staying().any(|source| source.plan == version.plan);
            let mut hits = flow.versions.iter().filter(|version| hit(version)).peekable();
            match (hits.peek().is_some(), flow.moving.is_none() && !flow.closed && hits.any(stays)) {
                (false, _) => {}
                (true, true) => left.push(id),
                (true, false) => moving = true,
            }
        }
        if moving || !left.is_empty() {
            self.context.timers.set(self.context.now.saturating_add(PATIENCE), Timer::Drain);
        }
        // Only now does every default route lead past it.
        if self.staged.is_over() {
            for id in left {
                self.note(id, Decision::Drained);
                self.unroute(id);
            }
        }
    }

    /// Whether a link is out of service, or a switch at an end of it.
    pub fn is_drained(&self, link: LinkId) -> bool {
        self.drains.covers(&self.context.fabric, link)
    }

    /// Whether a switch is out of service.
    pub fn is_switch_drained(&self, switch: NodeId) -> bool {
        self.drains.switches.contains(&switch)
    }

    /// Whether default routes are still being changed for what has left service or come back.
    pub fn is_staging(&self) -> bool {
        !self.staged.is_over()
    }

    /// Whether packets may still cross a link that is out of service, without a path of their own that is known: as long as
    /// it is not certain that no switch has rules that lead over it.
    pub fn may_be_crossed(&self, link: LinkId) -> bool {
        self.is_staging() || self.is_anything_unread() || self.senders(link).any(|at| !self.is_as_told(at))
    }

    /// Whether there may be flows whose paths are not known, for they were set up before the controller started: a ToR has
    /// not been asked yet, or it cannot be told where its flows go.
    fn is_anything_unread(&self) -> bool {
        !self.orphans.is_empty()
            || self.context.fabric.tors().iter().any(|tor| !self.context.switches[tor.index()].read)
    }

    /// Whether a switch has nothing but the default routes that it should have, as far as it has confirmed them.
    fn is_as_told(&self, switch: NodeId) -> bool {
        let state = &self.context.switches[switch.index()];
        state.session == Session::Ready && !state.reread
    }

    /// The switches whose default routes decide whether packets cross a link: its ends. A switch that is out of service
    /// keeps those that it had ([`Controller::stage`]), so that its neighbours decide in its place.
    fn senders(&self, link: LinkId) -> impl Iterator<Item = NodeId> + '_ {
        let ends = self.context.fabric.link(link);
        let (mut open, mut seen) = (vec![ends.from, ends.to], BTreeSet::new());
        while let Some(at) = open.pop() {
            if seen.insert(at) && self.is_switch_drained(at) {
                open.extend(self.context.fabric.switch_ports(at).iter().map(|port| port.to));
            }
        }
        seen.into_iter().filter(|&at| !self.is_switch_drained(at))
    }

    /// Number of flows with rules for a path over each link, by link, with those that move away from it.
    pub fn flows_on_links(&self) -> Vec<u32> {
        let mut flows = vec![0; self.context.fabric.links().len()];
        for flow in self.routed().filter_map(|id| self.flows.get(id)) {
            let links = flow.versions.iter().filter_map(|version| version.path.as_ref()).flat_map(Path::links);
            let links: BTreeSet<LinkId> = links.copied().collect();
            links.into_iter().for_each(|link| flows[link.index()] += 1);
        }
        flows
    }
}
