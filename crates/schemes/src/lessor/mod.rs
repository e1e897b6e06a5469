//! lessor: every long flow gets the least loaded path when it arrives, from measurements that are as recent as the
//! controller's load allows.
//!
//! LESSOR (Frontiers of Information Technology & Electronic Engineering 17(7), 2016). PRE (§4.2) polls the ToRs, with a
//! period that follows the controller's load, and predicts the rate of each flow. PMPT (§4.3) puts flows on paths, by
//! the available bandwidth of each path. A flow is assumed to want its natural demand, but at most twice its predicted
//! rate. So a flow that sends less, because its application has no more, leaves room for others. The bandwidth reserved
//! for a flow exists only in the controller; nothing enforces it.

mod period;
mod pre;
mod prediction;

use crate::entry::{Entry, EntryInfo, KeyInfo, Parts};
use crate::helpers::state;
use crate::next_hop_choice::AT_KEY;
use crate::placements::{access, most_wanted_bps};
use crate::router::{self, Router, RouterSettings};
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::Nanos;
use pathloom_scheme::{Action, Detection, Event, FlowId, Needs, Scheme, State, StateError, View};
use period::PeriodSettings;
use pre::{Due, Pre};
use serde::{Deserialize, Serialize};

const NAME: &str = "lessor";

const PERIOD_KEY: KeyInfo = ("period", "5s", "polling period at the start, T");
const LEAST_KEY: KeyInfo = ("min_period", "500ms", "minimum of T: flows are stable for 1.5 s, three rounds of this");
const MOST_KEY: KeyInfo = ("max_period", "60s", "maximum of T");
const CLAMP_KEY: KeyInfo =
    ("clamp", "on", "on (T stays between min_period and max_period) or off (T has no bounds, as published)");
const LOWER_KEY: KeyInfo = ("lower", "0.5", "LT: T is halved while the controller is less busy than this");
const UPPER_KEY: KeyInfo = ("upper", "0.7", "UT: T is doubled while the controller is busier than this");
const ALPHA_KEY: KeyInfo = ("alpha", "0.05", "first step of T while the load is between LT and UT, as a share of T");

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary: "each long flow gets the least loaded path; ToRs are polled as often as the controller's load allows",
        paper: "LESSOR, FITEE 17(7):647-660, 2016",
        keys: &[
            PERIOD_KEY,
            LEAST_KEY,
            MOST_KEY,
            CLAMP_KEY,
            LOWER_KEY,
            UPPER_KEY,
            ALPHA_KEY,
            router::SIZES_KEY,
            router::DEFAULTS_KEY,
            AT_KEY,
            router::ACKS_KEY,
            router::DETECT_KEY,
            router::EPSILON_KEY,
            router::GAIN_KEY,
            router::ALLOCATION_KEY,
            router::ROUNDING_KEY,
            router::LONG_KEY,
        ],
    },
    read: |spec| {
        let (settings, period) = (Settings::read(spec)?, read_period(spec)?);
        let transport = settings.router.choice.transport();
        Ok(Parts { transport, ..Parts::central(move |seed| Box::new(Lessor::new(settings, period, seed))) })
    },
};

#[derive(Clone, Copy)]
struct Settings {
    detection: Detection,
    router: RouterSettings,
}

impl Settings {
    fn read(spec: &Spec) -> Result<Settings, SpecError> {
        Ok(Settings { detection: router::read_detection(spec)?, router: RouterSettings::read(spec)? })
    }
}

/// Bounds of T.
const USUAL_LEAST: Nanos = Nanos::from_millis(500);
const USUAL_MOST: Nanos = Nanos::from_secs(60);
/// Without bounds, T must still be able to double and to halve. A round lasts until its answers have come in any case.
const UNCLAMPED_LEAST: Nanos = Nanos::from_micros(1);
const UNCLAMPED_MOST: Nanos = Nanos(u64::MAX / 4);

fn read_period(spec: &Spec) -> Result<PeriodSettings, SpecError> {
    let period = |key| router::read_period(spec, key);
    let clamped = spec.choice("clamp", &[("on", true), ("off", false)])?.unwrap_or(true);
    let (least, most) = (period("min_period")?, period("max_period")?);
    if !clamped && (least.is_some() || most.is_some()) {
        return Err(spec.error("min_period and max_period are the bounds of T; omit them, or clamp=off"));
    }
    let (usual_least, usual_most) = if clamped { (USUAL_LEAST, USUAL_MOST) } else { (UNCLAMPED_LEAST, UNCLAMPED_MOST) };
    let settings = PeriodSettings {
        lower: spec.number("lower", 0.0, 1.0)?.unwrap_or(0.5),
        upper: spec.number("upper", 0.0, 1.0)?.unwrap_or(0.7),
        first: period("period")?.unwrap_or(Nanos::from_secs(5)),
        least: least.unwrap_or(usual_least),
        most: most.unwrap_or(usual_most),
        alpha: spec.number("alpha", 0.01, 0.5)?.unwrap_or(0.05),
    };
    if settings.lower > settings.upper {
        return Err(spec.error("lower is greater than upper; expected lower <= upper, such as lower=0.5,upper=0.7"));
    }
    if !(settings.least..=settings.most).contains(&settings.first) {
        return Err(spec.error("expected min_period <= period <= max_period, such as 500ms, 5s and 60s"));
    }
    Ok(settings)
}

struct Lessor {
    settings: Settings,
    pre: Pre,
    router: Router,
    /// Whether to start a round as soon as the current one is over.
    stale: bool,
}

/// State that survives a restart.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Memory {
    pre: pre::Memory,
    router: router::Memory,
}

impl Scheme for Lessor {
    fn name(&self) -> &'static str {
        NAME
    }

    fn needs(&self) -> Needs {
        self.settings.router.choice.in_needs(Needs {
            detection: self.settings.detection,
            both_directions: self.settings.router.both_directions,
            ..Needs::NOTHING
        })
    }

    #[expect(clippy::collapsible_match, reason = "match guards must have no side effects")]
    fn handle(&mut self, now: Nanos, event: &Event, view: &View, actions: &mut Vec<Action>) {
        match event {
            Event::Started => {
                self.stale = false;
                self.router.start(view, actions);
                self.pre.begin(now, view);
                actions.push(Action::Measure);
            }
            Event::FlowArrived { flow } | Event::FlowAdopted { flow } => self.router.arrive(now, view, *flow, actions),
            Event::FlowFinished { flow } => {
                self.router.depart(*flow);
                self.pre.forget(*flow);
            }
            Event::RatesMeasured { .. } => {
                let due = self.pre.answered(now, view);
                self.carry_out(now, due, view, actions);
            }
            Event::Timeout => {
                let due = self.pre.wake(now, view);
                self.carry_out(now, due, view, actions);
            }
            Event::LinkChanged { link, up } => {
                if self.router.link_changed(now, view, (*link, *up), actions).is_some() {
                    self.allocate(now, view, actions);
                }
            }
            Event::Solved { ticket, answer } => {
                let ours = self.router.solved(now, view, (*ticket, answer), actions);
                if ours && std::mem::take(&mut self.stale) {
                    self.allocate(now, view, actions);
                }
            }
            Event::RouteConfirmed { flow } => self.router.confirmed(*flow),
            Event::RouteRejected { flow, why } => self.router.rejected(now, view, *flow, why),
            _ => {}
        }
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        self.pre.next()
    }

    fn solver(&self) -> fn(&View, &State) -> State {
        router::solve
    }

    fn save(&self) -> State {
        let memory = Memory { pre: self.pre.memory().clone(), router: self.router.memory().clone() };
        state::pack(&memory)
    }

    fn restore(&mut self, state: State) -> Result<(), StateError> {
        let Memory { pre, router } = state::restore(NAME, state)?;
        self.pre.recall(pre);
        self.router.recall(router);
        Ok(())
    }
}

impl Lessor {
    fn new(settings: Settings, period: PeriodSettings, seed: u64) -> Lessor {
        Lessor { settings, pre: Pre::new(period), router: Router::new(settings.router, seed), stale: false }
    }

    fn carry_out(&mut self, now: Nanos, due: Due, view: &View, actions: &mut Vec<Action>) {
        if due.poll {
            actions.push(Action::Measure);
        }
        if due.poll_again {
            actions.push(Action::MeasureAgain);
        }
        if due.allocate {
            self.allocate(now, view, actions);
        }
    }

    /// PMPT over all flows, with their predicted rates.
    fn allocate(&mut self, now: Nanos, view: &View, actions: &mut Vec<Action>) {
        if self.router.is_solving() {
            self.stale = true;
            return;
        }
        let most = view.long_flows().filter_map(|(id, flow)| {
            let (_, access_bps) = access(view, flow)?;
            Some((id, most_wanted_bps(self.pre.predicted(id)?, access_bps)))
        });
        let most: Vec<(FlowId, u64)> = most.collect();
        self.router.solve(now, view, most, Vec::new(), actions);
    }
}
