//! The common part of OFPT and LESSOR: each flow gets the least loaded path when it arrives, and rounds over all flows
//! correct imbalances.
//!
//! An arrival is placed at once, by [`Placements`], which is updated flow by flow. A round is a job on a snapshot of
//! the view. It starts from the paths in the network, not from the intended ones. Its answer is the difference.

mod fractional;
mod job;
#[cfg(test)]
mod order_tests;

use crate::entry::KeyInfo;
use crate::helpers::backoff::{Backoff, Waits};
use crate::helpers::state::{pack, unpack};
use crate::next_hop_choice::NextHopChoice;
use crate::placements::{is_only_way, Placements};
use crate::remaining::remaining_time;
use crate::solver_work::SolverWork;
use fractional::{Fractions, Rounding};
pub(crate) use fractional::{ALLOCATION_KEY, ROUNDING_KEY};
pub(crate) use job::{is_short, solve};
use job::{Answer, Job, Wanted};
use pathloom_allocation::placement::PlacerSettings;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::{LinkId, Nanos};
use pathloom_scheme::{Action, DefaultRoutes, Detection, FlowId, Rejection, State, View};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;

pub(crate) const EPSILON_KEY: KeyInfo =
    ("epsilon", "0.05", "growth of a link's length as it fills, which decides between equally loaded paths");
pub(crate) const GAIN_KEY: KeyInfo = (
    "gain",
    "0.02",
    "minimum gain for which flows are moved, as a share of a flow's demand for each one moved, 0 to 1; with \
     allocation=fractional, 0 moves them without a gain too (Algorithm 3)",
);
pub(crate) const LONG_KEY: KeyInfo = ("long", "100KB", "flows announced as smaller stay on the default routes");

pub(crate) const SIZES_KEY: KeyInfo = (
    "sizes",
    "unknown",
    "unknown (hosts label long flows, by DSCP) or announced (applications announce size and five-tuple first)",
);

pub(crate) const DEFAULTS_KEY: KeyInfo = (
    "defaults",
    "ecmp",
    "ecmp (switches hash five-tuples over all shortest paths), per-host (OFPT §4.3: the hosts of a rack use the spines in \
     turn), or drill, conga, hula or flowcut with its usual settings (only in the simulator), how flows without a path of \
     their own are routed",
);

pub(crate) const ACKS_KEY: KeyInfo = (
    "acks",
    "path",
    "path (the reverse direction takes the flow's path, reversed, which doubles the rules) or default (the default \
     routes)",
);

pub(crate) const DETECT_KEY: KeyInfo = (
    "detect",
    "any",
    "how long flows are detected: label (DSCP set by hosts), announced, measured (a tenth of the host's rate), or any \
     of these; simulated hosts label all long flows, so there any equals label",
);
/// Share of a host's rate from which on a flow is long (Hedera §III.A).
const NIC_SHARE: f64 = 0.1;

/// Reads how flows are detected. With known sizes, applications announce them.
pub(crate) fn read_detection(spec: &Spec) -> Result<Detection, SpecError> {
    let sizes = [("unknown", None), ("announced", Some(Detection::Announced))];
    read_detection_by(spec, spec.choice("sizes", &sizes)?.flatten())
}

/// As [`read_detection`], with the detection that the setting of sizes requires.
pub(crate) fn read_detection_by(spec: &Spec, sizes: Option<Detection>) -> Result<Detection, SpecError> {
    let ways = [
        ("label", Detection::Label),
        ("announced", Detection::Announced),
        ("measured", Detection::Measured { nic_share: NIC_SHARE }),
        ("any", Detection::Any { nic_share: NIC_SHARE }),
    ];
    let detect = spec.choice("detect", &ways)?;
    Ok(sizes.or(detect).unwrap_or(Detection::Any { nic_share: NIC_SHARE }))
}

/// A polling period.
pub(crate) fn read_period(spec: &Spec, key: &'static str) -> Result<Option<Nanos>, SpecError> {
    let period = spec.time(key)?;
    if period.is_some_and(|period| period < Nanos::from_millis(1) || period > Nanos::from_secs(3600)) {
        return Err(spec.error(format!("{key}: expected 1ms to 1h, such as 5s")));
    }
    Ok(period)
}

/// Settings of a [`Router`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct RouterSettings {
    /// The default routes, for short flows, and for long ones until they have a path.
    pub defaults: DefaultRoutes,
    /// How switches choose among the next hops of default routes.
    pub choice: NextHopChoice,
    /// Whether the other direction of a connection takes the path of its flow.
    pub both_directions: bool,
    pub epsilon: f64,
    pub gain: f64,
    pub long_bytes: u64,
    /// How flows are rounded onto fractional shares; `None` if each flow is placed by itself.
    pub rounding: Option<Rounding>,
}

impl RouterSettings {
    pub(crate) fn read(spec: &Spec) -> Result<RouterSettings, SpecError> {
        let epsilon = spec.number("epsilon", 0.0, 1.0)?.unwrap_or(0.05);
        // With per-host routes, all flows to one destination take the same uplinks, so the flows of an incast meet
        // long before its last link.
        let hashed = [("ecmp", DefaultRoutes::Ecmp), ("per-host", DefaultRoutes::PerHost)];
        let (defaults, choice) = NextHopChoice::read(spec, &hashed)?;
        let both_directions = spec.choice("acks", &[("path", true), ("default", false)])?;
        Ok(RouterSettings {
            both_directions: both_directions.unwrap_or(true),
            defaults,
            choice,
            epsilon,
            rounding: fractional::read(spec, epsilon)?,
            gain: spec.number("gain", 0.0, 1.0)?.unwrap_or(0.02),
            long_bytes: spec.size_bytes("long")?.unwrap_or(100_000),
        })
    }
}

/// Puts flows on paths.
pub(crate) struct Router {
    settings: RouterSettings,
    placements: Option<Placements>,
    memory: Memory,
    /// Seed of random draws.
    seed: u64,
    /// Whether a flow arrived between ToRs that have no shares.
    lacks_shares: bool,
    /// The current job. It is not saved: a restart loses it, and the next round sends another.
    solving: Option<u64>,
}

/// State that survives a restart.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Memory {
    /// Ticket of the next job. It is never reused, so that an answer to a job from before a restart is not accepted.
    next_ticket: u64,
    /// Flows whose path was refused, for example by a full table.
    #[serde(alias = "rests")]
    backoff: Backoff,
    /// Work of the last job, which predicts the time of the next one.
    #[serde(rename = "cost")] // The name in stored snapshots.
    work: SolverWork,
    /// The fractional shares of the last job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fractions: Option<Fractions>,
}

impl Router {
    pub(crate) fn new(settings: RouterSettings, seed: u64) -> Router {
        Router { settings, placements: None, memory: Memory::default(), seed, lacks_shares: false, solving: None }
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(crate) fn recall(&mut self, memory: Memory) {
        self.memory = memory;
    }

    /// Starts without flows.
    pub(crate) fn start(&mut self, view: &View, actions: &mut Vec<Action>) {
        self.solving = None;
        self.placements = None;
        self.memory.backoff.keep(|flow| view.flows.contains_key(&flow));
        // OFPT §4: rules for short flows exist before the flows.
        actions.push(Action::SetDefaults(self.settings.defaults));
    }

    fn placements(&mut self, view: &View) -> &mut Placements {
        let settings = PlacerSettings { epsilon: self.settings.epsilon, ..PlacerSettings::default() };
        self.placements.get_or_insert_with(|| Placements::new(view, settings))
    }

    /// Whether a flow stays on the default routes because of its size.
    pub(crate) fn is_short(&self, view: &View, flow: FlowId) -> bool {
        view.flows.get(&flow).is_some_and(|flow| is_short(flow, self.settings.long_bytes))
    }

    /// Handles a flow that has arrived, or was adopted on a path.
    pub(crate) fn arrive(&mut self, now: Nanos, view: &View, flow: FlowId, actions: &mut Vec<Action>) {
        if !self.is_short(view, flow) && self.placements(view).arrive(view, flow) {
            self.place_by_shares(view, flow);
            self.route(now, view, flow, actions);
        }
    }

    /// Puts a flow without a path in the network onto the path that the shares of its ToRs give it, if they have some.
    /// Returns whether it did.
    fn place_by_shares(&mut self, view: &View, flow: FlowId) -> bool {
        let is_new = view.flows.get(&flow).is_some_and(|flow| flow.intended_route().is_none());
        let Some(placements) = self.placements.as_mut().filter(|_| self.settings.rounding.is_some() && is_new) else {
            return false;
        };
        let fractions = self.memory.fractions.as_ref();
        let path = fractions.and_then(|fractions| fractions.path_of_new(placements, view, flow));
        let Some(path) = path else {
            self.lacks_shares = true;
            return false;
        };
        placements.move_to(view, flow, &path);
        true
    }

    /// Handles a flow that may send (again). It keeps its path if that has free capacity; otherwise it gets the least
    /// loaded one.
    pub(crate) fn arrive_again(&mut self, now: Nanos, view: &View, flow: FlowId, actions: &mut Vec<Action>) {
        if self.is_short(view, flow) || self.placements(view).has(flow) {
            return;
        }
        let placements = self.placements(view);
        if placements.arrive(view, flow) {
            if !self.place_by_shares(view, flow) && self.placements(view).is_squeezed(flow) {
                self.placements(view).place_anew(view, flow);
            }
            self.route(now, view, flow, actions);
        }
    }

    /// Handles a flow that must wait: it occupies no path until it may send again. Its rules stay in place.
    pub(crate) fn withdraw(&mut self, flow: FlowId) {
        if let Some(placements) = &mut self.placements {
            placements.depart(flow);
        }
    }

    /// The links of a flow's intended path between its ToRs; empty within a ToR, `None` without a path.
    pub(crate) fn links(&self, flow: FlowId) -> Option<&[u32]> {
        self.placements.as_ref()?.links(flow)
    }

    /// Whether flows could probably have higher rates on other paths, or shares are to be computed for new ones.
    pub(crate) fn is_crowded(&self) -> bool {
        self.lacks_shares || self.placements.as_ref().is_some_and(Placements::is_crowded)
    }

    /// Handles the end of a flow.
    pub(crate) fn depart(&mut self, flow: FlowId) {
        self.memory.backoff.end(flow);
        if let Some(placements) = &mut self.placements {
            placements.depart(flow);
        }
    }

    /// Handles a link that came up or went down. Flows on it get another path at once, least remaining time first.
    /// Returns the flows whose path changed or was lost; `None` if the state was known, because both directions of a
    /// cable are reported.
    pub(crate) fn link_changed(
        &mut self,
        now: Nanos,
        view: &View,
        (link, up): (LinkId, bool),
        actions: &mut Vec<Action>,
    ) -> Option<Vec<FlowId>> {
        let placements = self.placements(view);
        if placements.is_up(link) == up {
            return None;
        }
        let mut changed = placements.set_cable(link, up);
        changed.sort_by_cached_key(|flow| self.remaining(view, *flow));
        for &flow in &changed {
            self.route(now, view, flow, actions);
        }
        Some(changed)
    }

    /// Handles the confirmation of a flow's path.
    pub(crate) fn confirmed(&mut self, flow: FlowId) {
        self.memory.backoff.end(flow);
    }

    /// Handles the rejection of a flow's path: the flow stays where it was.
    pub(crate) fn rejected(&mut self, now: Nanos, view: &View, flow: FlowId, why: &Rejection) {
        self.memory.backoff.rejected(now.0, flow, why, Waits::SECONDS);
        if let Some(placements) = &mut self.placements {
            placements.put_back(view, flow);
        }
    }

    /// Modelled time of the last round.
    pub(crate) fn last_cost(&self) -> Nanos {
        self.memory.work.predicted_time(self.memory.work.flows)
    }

    /// Whether a round is running.
    pub(crate) fn is_solving(&self) -> bool {
        self.solving.is_some()
    }

    /// Starts a round over all flows except those `absent`, unless there are none. `most_bps` are the known maximum
    /// demands of flows.
    pub(crate) fn solve(
        &mut self,
        now: Nanos,
        view: &View,
        most_bps: Vec<(FlowId, u64)>,
        absent: Vec<FlowId>,
        actions: &mut Vec<Action>,
    ) {
        let RouterSettings { epsilon, gain, long_bytes, .. } = self.settings;
        let flows = view.long_flows().filter(|(_, flow)| !is_short(flow, long_bytes)).count() as u64;
        if flows == 0 || self.solving.is_some() {
            return;
        }
        let ticket = self.memory.next_ticket;
        self.memory.next_ticket += 1;
        self.solving = Some(ticket);
        self.lacks_shares = false;
        let backing_off = self.memory.backoff.waiting(now.0);
        let fractions = self.settings.rounding.map(|rounding| {
            let shares = self.memory.fractions.take().unwrap_or_default().shares;
            Fractions { rounding, seed: self.seed, shares }
        });
        self.memory.fractions.clone_from(&fractions);
        let input = Job { epsilon, gain, long_bytes, most_bps, absent, backing_off, fractions };
        actions.push(Action::Solve { ticket, input: pack(&input), modelled: self.memory.work.predicted_time(flows) });
    }

    /// Handles the answer of a job. Returns whether the job was the current one, and carries out its result (OFPT
    /// Alg. 3).
    pub(crate) fn solved(
        &mut self,
        now: Nanos,
        view: &View,
        (ticket, answer): (u64, &State),
        actions: &mut Vec<Action>,
    ) -> bool {
        if self.solving != Some(ticket) {
            return false;
        }
        self.solving = None;
        let Answer { routes, work, fractions } = unpack(answer);
        self.memory.work = work;
        self.memory.fractions = fractions;
        for Wanted { flow, path, rate_bps } in in_order(view, routes) {
            if self.placements(view).has(flow) && path.is_up(&view.links) && !self.memory.backoff.holds(now.0, flow) {
                let placements = self.placements(view);
                placements.move_to(view, flow, &path);
                self.route_at(view, flow, rate_bps, actions);
            }
        }
        true
    }

    /// Requests the intended path of a flow, if the flow is not on it.
    fn route(&mut self, now: Nanos, view: &View, flow: FlowId, actions: &mut Vec<Action>) {
        if !self.memory.backoff.holds(now.0, flow) {
            let demand_bps = self.placements.as_ref().and_then(|placements| placements.demand_bps(flow));
            self.route_at(view, flow, demand_bps.unwrap_or(0), actions);
        }
    }

    fn route_at(&mut self, view: &View, flow: FlowId, rate_bps: u64, actions: &mut Vec<Action>) {
        let path = self.placements.as_ref().and_then(|placements| placements.path(flow));
        let Some((path, known)) = path.zip(view.flows.get(&flow)) else { return };
        let there = known.intended_route() == Some(&path);
        let needless = known.intended_route().is_none() && is_only_way(view, &path);
        if !there && !needless && path.is_up(&view.links) {
            actions.push(Action::Route { flow, path, rate_bps: Some(rate_bps) });
        }
    }

    fn remaining(&self, view: &View, flow: FlowId) -> Nanos {
        let demand_bps = self.placements.as_ref().and_then(|placements| placements.demand_bps(flow));
        view.flows.get(&flow).map_or(Nanos::MAX, |flow| remaining_time(flow, demand_bps.unwrap_or(0)))
    }
}

/// OFPT Alg. 3: first the flows to be moved, most remaining time first; then the new ones, least remaining time first.
fn in_order(view: &View, routes: Vec<Wanted>) -> Vec<Wanted> {
    let standing = |wanted: &Wanted| view.flows.get(&wanted.flow).is_some_and(|flow| flow.intended_route().is_some());
    let time =
        |wanted: &Wanted| view.flows.get(&wanted.flow).map_or(Nanos::MAX, |flow| remaining_time(flow, wanted.rate_bps));
    let (mut moved, mut new): (Vec<Wanted>, Vec<Wanted>) = routes.into_iter().partition(standing);
    moved.sort_by_cached_key(|wanted| (Reverse(time(wanted)), wanted.flow));
    new.sort_by_cached_key(|wanted| (time(wanted), wanted.flow));
    moved.extend(new);
    moved
}
