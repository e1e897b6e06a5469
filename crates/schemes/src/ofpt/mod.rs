//! ofpt: every long flow gets the least loaded path when it arrives. When flows come or go, and every 5 s, flows that
//! could have a higher rate elsewhere are moved.
//!
//! Liu et al., "OFPT: OpenFlow based Parallel Transport in Datacenters", KSII TIIS 10(10), 2016. Algorithm 1 (when to
//! act) is [`Ofpt::handle`]; Algorithm 2 is the placer of `pathloom-allocation` and [`provision`], kept up to date by
//! [`provider`]; Algorithm 3 is in the router; Algorithm 4 is in the controller, as requested by [`Needs::migration`].
//! Short flows use the default routes: ECMP, or with `defaults=per-host` those of the paper (§4.3), which spread
//! destination hosts over the spines.

mod ageing;
mod dispatch;
mod flow_states;
mod progress;
mod provider;
mod provision;
mod sharing;

use crate::entry::{Entry, EntryInfo, KeyInfo, Parts};
use crate::helpers::state;
use crate::next_hop_choice::AT_KEY;
use crate::placements::{access, most_wanted_bps};
use crate::router::{self, Router, RouterSettings};
use dispatch::{DispatchSettings, Dispatcher};
use flow_states::FlowStates;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::Nanos;
use pathloom_scheme::{
    Action, Detection, Event, FlowId, FlowView, Migration, Needs, RuleSharing, Scheme, State, StateError, View,
};
use serde::{Deserialize, Serialize};
use sharing::Sharing;

const NAME: &str = "ofpt";
/// Minimum time between two rounds after arrivals and departures, so that one round handles many of them.
const ROUND_GAP: Nanos = Nanos::from_millis(100);
/// The gap is also at least this many times as long as the last round took: with ten thousand flows a round takes long.
const ROUND_REST: u64 = 10;
/// A lease in polling periods: after that, a host that hears nothing from the controller releases a held flow.
const LEASE_POLLS: u64 = 3;

const PERIOD_KEY: KeyInfo = ("period", "5s", "time between two polls of the ToRs, 1ms to 1h");
const MIGRATION_KEY: KeyInfo =
    ("migration", "sfmm", "sfmm (OFPT §5.3: lower priority, then delete) or tagged (two-phase), how flows are moved");
const RULES_KEY: KeyInfo =
    ("rules", "flow", "flow (each has its own) or path (flows that share a path share rules; moves are tagged then)");
const SCHEDULE_KEY: KeyInfo =
    ("schedule", "mrtf", "mrtf (flows of known size wait for shorter ones) or none, when to start flows");
const ENFORCE_KEY: KeyInfo = (
    "enforce",
    "host",
    "host (hosts pace flows to their provision, and to their interface's rate until it is known; with the control \
     setting enforcement=meter, ToRs do it) or none (TCP shares)",
);
const SIZES_KEY: KeyInfo = (
    "sizes",
    "unknown",
    "unknown (hosts label long flows, by DSCP), learned (the same, and a paced flow's share of full links halves whenever \
     the bytes that it has sent double) or announced (applications announce size and five-tuple first)",
);
const HEADROOM_KEY: KeyInfo = ("headroom", "0.02", "share of its provision that a paced flow leaves to short flows");
const SHARES_KEY: KeyInfo = (
    "shares",
    "length",
    "length (over more than 4 links between ToRs, a paced flow's share of full links falls with the square of their \
     number) or equal (max-min fair)",
);

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary: "each long flow gets the least loaded path; flows are moved as others come and go, and every 5 s",
        paper: "Liu et al., OFPT, KSII TIIS 10(10), 2016",
        keys: &[
            PERIOD_KEY,
            SIZES_KEY,
            router::DETECT_KEY,
            SCHEDULE_KEY,
            ENFORCE_KEY,
            HEADROOM_KEY,
            SHARES_KEY,
            MIGRATION_KEY,
            RULES_KEY,
            router::DEFAULTS_KEY,
            AT_KEY,
            router::ACKS_KEY,
            router::EPSILON_KEY,
            router::GAIN_KEY,
            router::ALLOCATION_KEY,
            router::ROUNDING_KEY,
            router::LONG_KEY,
        ],
    },
    read: |spec| {
        let settings = Settings::read(spec)?;
        let transport = settings.router.choice.transport();
        Ok(Parts { transport, ..Parts::central(move |seed| Box::new(Ofpt::new(settings, seed))) })
    },
};

#[derive(Clone, Copy)]
struct Settings {
    period: Nanos,
    detection: Detection,
    migration: Migration,
    rules: RuleSharing,
    router: RouterSettings,
    dispatch: DispatchSettings,
}

impl Settings {
    fn read(spec: &Spec) -> Result<Settings, SpecError> {
        let period = router::read_period(spec, "period")?.unwrap_or(Nanos::from_secs(5));
        let migration = spec.choice("migration", &[("sfmm", Migration::Sfmm), ("tagged", Migration::Tagged)])?;
        let rules = spec.choice("rules", &[("flow", RuleSharing::PerFlow), ("path", RuleSharing::PerPath)])?;
        let router = RouterSettings::read(spec)?;
        let enforced = spec.choice("enforce", &[("none", false), ("host", true)])?.unwrap_or(true);
        let headroom = spec.number("headroom", 0.0, 0.9)?;
        if headroom.is_some() && !enforced {
            return Err(spec.error("only paced flows leave headroom; omit it, or omit enforce=none"));
        }
        let sharing = spec.choice("shares", &[("length", Sharing::ByLength), ("equal", Sharing::Equal)])?;
        if sharing.is_some() && !enforced {
            return Err(spec.error("only paced flows have shares; omit it, or omit enforce=none"));
        }
        let sizes =
            [("unknown", (false, None)), ("learned", (true, None)), ("announced", (false, Some(Detection::Announced)))];
        let (ageing, sizes) = spec.choice("sizes", &sizes)?.unwrap_or((false, None));
        if ageing && !enforced {
            return Err(spec.error(
                "only the shares of paced flows fall with the bytes sent; omit sizes=learned, or enforce=none",
            ));
        }
        let dispatch = DispatchSettings {
            ageing,
            sharing: sharing.unwrap_or(Sharing::ByLength),
            schedule: spec.choice("schedule", &[("mrtf", true), ("none", false)])?.unwrap_or(true),
            headroom: enforced.then(|| headroom.unwrap_or(0.02)),
            long_bytes: router.long_bytes,
            lease: Nanos(period.0.saturating_mul(LEASE_POLLS)),
        };
        Ok(Settings {
            period,
            detection: router::read_detection_by(spec, sizes)?,
            migration: migration.unwrap_or(Migration::Sfmm),
            rules: rules.unwrap_or(RuleSharing::PerFlow),
            router,
            dispatch,
        })
    }
}

struct Ofpt {
    settings: Settings,
    router: Router,
    dispatcher: Dispatcher,
    /// When the last round began.
    last_round: Option<Nanos>,
    /// Whether to start a round as soon as the current one is over and [`ROUND_GAP`] has passed.
    wants_round: bool,
}

/// State that survives a restart.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Memory {
    router: router::Memory,
    #[serde(rename = "charges")] // The name in stored snapshots.
    flow_states: FlowStates,
}

impl Scheme for Ofpt {
    fn name(&self) -> &'static str {
        NAME
    }

    fn needs(&self) -> Needs {
        self.settings.router.choice.in_needs(Needs {
            detection: self.settings.detection,
            poll_period: Some(self.settings.period),
            migration: self.settings.migration,
            rules: self.settings.rules,
            paces: self.settings.dispatch.headroom.is_some(),
            both_directions: self.settings.router.both_directions,
            ..Needs::NOTHING
        })
    }

    #[expect(clippy::collapsible_match, reason = "match guards must have no side effects")]
    fn handle(&mut self, now: Nanos, event: &Event, view: &View, actions: &mut Vec<Action>) {
        match event {
            Event::Started => {
                (self.last_round, self.wants_round) = (None, false);
                self.router.start(view, actions);
                self.dispatcher.start(view);
            }
            Event::FlowArrived { flow } => self.arrive(now, view, *flow, actions),
            Event::FlowAdopted { flow } => {
                self.dispatcher.adopt(view, *flow, actions);
                // It keeps its path, however many flows share it, until a round finds a better one.
                self.router.arrive(now, view, *flow, actions);
                self.arrive(now, view, *flow, actions);
            }
            Event::FlowFinished { flow } => {
                self.router.depart(*flow);
                self.dispatcher.depart(now, view, *flow, &mut self.router, actions);
                self.tidy_up(now, view, actions);
            }
            Event::RatesMeasured { .. } => {
                if self.dispatcher.measured(now, view, &mut self.router, actions) {
                    self.dispatcher.provide_exactly(now, view, &mut self.router, actions);
                    self.round(now, view, actions);
                }
            }
            Event::LinkChanged { link, up } => {
                if let Some(changed) = self.router.link_changed(now, view, (*link, *up), actions) {
                    self.dispatcher.moved(now, view, &changed, &mut self.router, actions);
                    self.round(now, view, actions);
                }
            }
            Event::Solved { ticket, answer } => {
                if self.router.solved(now, view, (*ticket, answer), actions) {
                    self.dispatcher.provide_exactly(now, view, &mut self.router, actions);
                    self.tidy_up_if_due(now, view, actions);
                }
            }
            Event::Timeout => {
                self.dispatcher.watch(now, view, &mut self.router, actions);
                self.dispatcher.catch_up(now, view, &mut self.router, actions);
                self.tidy_up_if_due(now, view, actions);
            }
            Event::RouteConfirmed { flow } => self.router.confirmed(*flow),
            Event::RouteRejected { flow, why } => {
                self.router.rejected(now, view, *flow, why);
                self.dispatcher.moved(now, view, &[*flow], &mut self.router, actions);
            }
            _ => {}
        }
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        let round = (self.wants_round && !self.router.is_solving()).then(|| self.next_round());
        let exact_provision = self.dispatcher.is_inexact().then(|| self.dispatcher.next_exact_provision());
        let later = [self.dispatcher.next_watch(), self.dispatcher.next_catch_up()];
        round.into_iter().chain(exact_provision).chain(later.into_iter().flatten()).min()
    }

    fn solver(&self) -> fn(&View, &State) -> State {
        router::solve
    }

    fn save(&self) -> State {
        let memory =
            Memory { router: self.router.memory().clone(), flow_states: self.dispatcher.flow_states().clone() };
        state::pack(&memory)
    }

    fn restore(&mut self, state: State) -> Result<(), StateError> {
        let Memory { router, flow_states } = state::restore(NAME, state)?;
        self.router.recall(router);
        self.dispatcher.recall(flow_states);
        Ok(())
    }
}

impl Ofpt {
    fn new(settings: Settings, seed: u64) -> Ofpt {
        Ofpt {
            settings,
            router: Router::new(settings.router, seed),
            dispatcher: Dispatcher::new(settings.dispatch),
            last_round: None,
            wants_round: false,
        }
    }

    fn arrive(&mut self, now: Nanos, view: &View, flow: FlowId, actions: &mut Vec<Action>) {
        self.dispatcher.arrive(now, view, flow, &mut self.router, actions);
        self.tidy_up(now, view, actions);
    }

    /// Starts a round if flows could have more on other paths. Computes all rates exactly if they have become inexact.
    fn tidy_up(&mut self, now: Nanos, view: &View, actions: &mut Vec<Action>) {
        self.wants_round |= self.router.is_crowded();
        self.tidy_up_if_due(now, view, actions);
    }

    fn tidy_up_if_due(&mut self, now: Nanos, view: &View, actions: &mut Vec<Action>) {
        if self.wants_round && self.next_round() <= now {
            self.round(now, view, actions);
        }
        if self.dispatcher.is_inexact() && self.dispatcher.next_exact_provision() <= now {
            self.dispatcher.compute_exact_rates(now, view, &mut self.router, actions);
        }
    }

    /// When the next round after arrivals and departures may start.
    fn next_round(&self) -> Nanos {
        let gap = ROUND_GAP.max(Nanos(self.router.last_cost().0.saturating_mul(ROUND_REST)));
        self.last_round.map_or(Nanos::ZERO, |last| last.saturating_add(gap))
    }

    /// Starts a round over all flows that may send, after the current one if there is one.
    fn round(&mut self, now: Nanos, view: &View, actions: &mut Vec<Action>) {
        self.wants_round = self.router.is_solving();
        if self.wants_round {
            return;
        }
        self.last_round = Some(now);
        let absent = self.dispatcher.absent();
        let most = if self.dispatcher.is_on() { Vec::new() } else { self.most_bps(now, view) };
        self.router.solve(now, view, most, absent, actions);
    }

    /// The maximum demand that each flow is assumed to have, from the measured rates. Used if flows share links by
    /// TCP only.
    fn most_bps(&self, now: Nanos, view: &View) -> Vec<(FlowId, u64)> {
        // A rate over less than a period is not reliable for a flow that began, or had to wait, within it.
        let least_age = Nanos(self.settings.period.0.saturating_mul(2));
        let old = |flow: &FlowView| now.saturating_sub(flow.arrived) >= least_age;
        let most = |(id, flow): (FlowId, &FlowView)| {
            let (_, access_bps) = access(view, flow).filter(|_| old(flow))?;
            Some((id, most_wanted_bps(flow.rate_bps.get()?, access_bps)))
        };
        view.long_flows().filter_map(most).collect()
    }
}
