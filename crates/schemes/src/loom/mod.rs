//! loom: packets of a flow take all paths by weight, receivers pull them, and the fewer bytes a message has sent, the sooner
//! it is served ([docs/loom.md]).
//!
//! Where all next hops are equally good, nothing has to be planned: packets take all of them in turn. Elsewhere
//! the controller plans the weights of next hops for the long flows that hosts report ([`plan`]). A flow never waits for a
//! plan; it uses the weights that are there.

mod plan;

use crate::entry::{Entry, EntryInfo, Parts};
use crate::helpers::state;
use crate::sprayed;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::{Nanos, MOST_QUEUES};
use pathloom_scheme::{
    Action, Ageing, DefaultRoutes, Detection, Entropy, Event, HopWeights, Needs, Scheme, Selection, State, StateError,
    View,
};
use pathloom_transport::{Reordering, TransportSpec};
use plan::{Answer, Job};
use serde::{Deserialize, Serialize};

const NAME: &str = "loom";
/// Time that a visit of a next hop takes in the solver, with the search of routes. Measured for k=8 with 10 % of the cables failed, on a busy
/// machine.
const NS_PER_VISIT: u64 = 60;

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary: "packets take all paths by planned weights, receivers pull them, young messages come first; only in the simulator",
        paper: "docs/loom.md",
        keys: &[
            ("hosts", "pull", "pull (receivers pull packets, as NDP does) or tcp (DCTCP that tolerates reordering)"),
            ("window", "3", "the most on its way to a receiver that pulls, in first windows, 1 to 100"),
            ("react", "on", "whether pulled hosts avoid paths that lose packets (entropy=freezing of ndp)"),
            ("plan", "on", "whether the controller plans weights where paths differ; off: weights by capacity"),
            ("gap", "1ms", "least time between two plans"),
            ("levels", "8", "priorities by age, 1 to 8; 1: none"),
            ("first", "10KB", "bytes of a message at which the first level ends"),
            ("announced", "0", "share of the messages whose size applications announce, 0 to 1; these are served by what is left of them"),
            ("factor", "4", "each further level ends at this many times as many bytes, 2 to 255"),
        ],
    },
    read: |spec| {
        let settings = Settings::read(spec)?;
        let pull = spec.choice("hosts", &[("pull", true), ("tcp", false)])?.unwrap_or(true);
        let transport = match pull {
            true => {
                let window = spec.number("window", 1.0, 100.0)?.unwrap_or(3.0);
                let entropy = if spec.flag("react")?.unwrap_or(true) { "freezing" } else { "oblivious" };
                TransportSpec::parse(&format!("ndp:window={window},ack_bytes=16KB,paths=65536,entropy={entropy}"))?
            }
            false => TransportSpec::parse("dctcp")?.tolerating(Some(Reordering::Window)),
        };
        Ok(Parts { transport, ..Parts::central(move |_| Box::new(Loom::new(settings))) })
    },
};

#[derive(Clone, Copy)]
struct Settings {
    ageing: Ageing,
    plans: bool,
    gap: Nanos,
}

impl Settings {
    fn read(spec: &Spec) -> Result<Settings, SpecError> {
        let levels = spec.count("levels", 1, MOST_QUEUES.into())?.unwrap_or(MOST_QUEUES.into()) as u8;
        let first_bytes = spec.size_bytes("first")?.unwrap_or(10_000);
        let factor = spec.count("factor", 2, 255)?.unwrap_or(4) as u8;
        let plans = spec.flag("plan")?.unwrap_or(true);
        let gap = sprayed::positive(spec, "gap", Nanos::from_millis(1))?;
        let announced_percent = (spec.number("announced", 0.0, 1.0)?.unwrap_or(0.0) * 100.0).round() as u8;
        Ok(Settings { ageing: Ageing { first_bytes, factor, levels, announced_percent }, plans, gap })
    }
}

struct Loom {
    settings: Settings,
    /// The job under way.
    running: Option<u64>,
    last_ticket: u64,
    /// Whether links have changed since it began.
    is_outdated: bool,
    /// Whether paths differ; `None` until that is known for the links that are up.
    uneven: Option<bool>,
    /// Whether long flows have come or gone since the last plan.
    is_due: bool,
    /// When the last plan began.
    last_plan: Option<Nanos>,
    /// Work of the last plan, by which the next one is charged.
    visits: u64,
    /// The weights that switches have, as planned.
    weights: Vec<HopWeights>,
}

/// State that survives a restart: nothing that the next plan does not find out.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Memory {}

impl Scheme for Loom {
    fn name(&self) -> &'static str {
        NAME
    }

    fn needs(&self) -> Needs {
        Needs {
            detection: if self.settings.plans { Detection::Announced } else { Detection::Nothing },
            entropy: Entropy::Cell { bytes: 1 },
            selection: Selection::Numbered,
            ageing: Some(self.settings.ageing),
            ..Needs::NOTHING
        }
    }

    fn handle(&mut self, now: Nanos, event: &Event, view: &View, actions: &mut Vec<Action>) {
        match event {
            Event::Started => {
                *self = Loom { last_ticket: self.last_ticket, ..Loom::new(self.settings) };
                actions.push(Action::SetDefaults(DefaultRoutes::Weighted));
                self.is_due = self.settings.plans;
            }
            Event::FlowAdopted { flow } => {
                if view.flows.get(flow).is_some_and(|flow| flow.intended_route().is_some()) {
                    actions.push(Action::Unroute { flow: *flow });
                }
                self.is_due = self.settings.plans;
            }
            Event::FlowArrived { .. } | Event::FlowFinished { .. } => self.is_due = self.settings.plans,
            Event::LinkChanged { .. } => {
                self.uneven = None;
                self.is_outdated = self.running.is_some();
                self.is_due = self.settings.plans;
            }
            Event::Solved { ticket, answer } => self.solved(*ticket, answer, actions),
            _ => {}
        }
        self.plan_if_due(now, view, actions);
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        self.is_waiting().then(|| self.next_plan())
    }

    fn solver(&self) -> fn(&View, &State) -> State {
        plan::solve
    }

    fn save(&self) -> State {
        state::pack(&Memory {})
    }

    fn restore(&mut self, saved: State) -> Result<(), StateError> {
        state::restore(NAME, saved).map(|Memory {}| ())
    }
}

impl Loom {
    fn new(settings: Settings) -> Loom {
        Loom {
            settings,
            running: None,
            last_ticket: 0,
            is_outdated: false,
            uneven: None,
            is_due: false,
            last_plan: None,
            visits: 0,
            weights: Vec::new(),
        }
    }

    /// Whether a plan is wanted that has not begun.
    fn is_waiting(&self) -> bool {
        self.is_due && self.running.is_none() && self.uneven != Some(false)
    }

    fn next_plan(&self) -> Nanos {
        self.last_plan.map_or(Nanos::ZERO, |last| last.saturating_add(self.settings.gap))
    }

    fn plan_if_due(&mut self, now: Nanos, view: &View, actions: &mut Vec<Action>) {
        // Whether paths differ is found out once for each change of links; that does not wait.
        let job = if self.uneven.is_none() { Job::Everything } else { Job::Flows };
        if !self.is_waiting() || job == Job::Flows && self.next_plan() > now {
            return;
        }
        if job == Job::Flows {
            (self.is_due, self.last_plan) = (false, Some(now));
            if view.long_flows().next().is_none() {
                return;
            }
        }
        self.last_ticket += 1;
        self.running = Some(self.last_ticket);
        let modelled = Nanos(self.visits.saturating_mul(NS_PER_VISIT));
        actions.push(Action::Solve { ticket: self.last_ticket, input: state::pack(&job), modelled });
    }

    fn solved(&mut self, ticket: u64, answer: &State, actions: &mut Vec<Action>) {
        if self.running.take_if(|running| *running == ticket).is_none() {
            return;
        }
        if std::mem::take(&mut self.is_outdated) {
            self.is_due = self.settings.plans;
            return;
        }
        match state::unpack(answer) {
            Answer::Everything { is_even, visits } => {
                (self.uneven, self.visits) = (Some(!is_even), self.visits.max(visits));
                if is_even {
                    self.set(Vec::new(), actions);
                }
            }
            Answer::Flows { weights, visits } => {
                self.visits = visits;
                self.set(weights, actions);
            }
        }
    }

    /// Gives switches these weights, unless they have them.
    fn set(&mut self, weights: Vec<HopWeights>, actions: &mut Vec<Action>) {
        if weights != self.weights {
            self.weights.clone_from(&weights);
            actions.push(Action::SetWeights(weights));
        }
    }
}
