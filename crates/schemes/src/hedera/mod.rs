//! hedera: ECMP for all flows, and paths of their own for elephants, which are placed again every polling period.
//!
//! Al-Fares et al., "Hedera: Dynamic Flow Scheduling for Data Center Networks", NSDI 2010. Edge switches are polled
//! every 5 s; a flow over 10 % of its NIC is an elephant; the natural demands of all elephants are estimated (§4.2) and
//! Global First Fit (§4.3.1) or Simulated Annealing (§4.3.2) places them. The placement is a job for
//! [`Action::Solve`]: `job.rs` has its input and output, `solver_work.rs` the model of its time.

mod job;
mod placing;

use crate::entry::{Entry, EntryInfo, KeyInfo, Parts};
use crate::helpers::backoff::{Backoff, Waits};
use crate::helpers::state::{self, pack, unpack};
use crate::next_hop_choice::{NextHopChoice, AT_KEY};
use crate::solver_work::SolverWork;
use job::{Answer, Job};
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::{Address, Nanos};
use pathloom_scheme::{Action, Detection, Event, FlowId, Needs, Scheme, State, StateError, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const NAME: &str = "hedera";

pub(crate) const PAPER: &str = "Al-Fares et al., Hedera, NSDI 2010";
pub(crate) const ELEPHANT_KEY: KeyInfo =
    ("elephant", "0.1", "a flow at this share of its NIC's rate or more is placed");
pub(crate) const PERIOD_KEY: KeyInfo = ("period", "5s", "time between two polls of the ToRs, 1ms to 1h");
pub(crate) const ITERATIONS_KEY: KeyInfo =
    ("iterations", "10000", "neighbours that Simulated Annealing tries per round");
pub(crate) const COOLING_KEY: KeyInfo =
    ("cooling", "1000", "the paper's c over the first temperature: 0.5 for 16 hosts, 1000 for large fabrics");
pub(crate) const DEFAULTS_KEY: KeyInfo = (
    "defaults",
    "ecmp",
    "ecmp (switches hash five-tuples), or drill, conga, hula or flowcut with its usual settings (only in the simulator), how \
     other flows are routed",
);
const PLACEMENT_KEY: KeyInfo = ("placement", "gff", "gff (Global First Fit) or sa (Simulated Annealing)");

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary: "ecmp, and every 5 s elephants get the first path with room for their natural demand",
        paper: PAPER,
        keys: &[ELEPHANT_KEY, PERIOD_KEY, PLACEMENT_KEY, ITERATIONS_KEY, COOLING_KEY, DEFAULTS_KEY, AT_KEY],
    },
    read: |spec| {
        let annealed = spec.choice("placement", &[("gff", false), ("sa", true)])?.unwrap_or(false);
        if let Some(key) = ["iterations", "cooling"].into_iter().find(|key| !annealed && spec.text_of(key).is_some()) {
            return Err(
                spec.error(format!("{key} is a setting of Simulated Annealing; add placement=sa or leave it out"))
            );
        }
        let annealing = annealed.then(|| read_annealing(spec)).transpose()?;
        let settings = Settings { annealing, ..read_detection(spec)? };
        Ok(parts(NAME, settings))
    },
};

/// The settings for detecting elephants; Global First Fit places them.
pub(crate) fn read_detection(spec: &Spec) -> Result<Settings, SpecError> {
    let nic_share = spec.number("elephant", 0.0, 1.0)?.unwrap_or(0.1);
    let period = crate::router::read_period(spec, "period")?.unwrap_or(Nanos::from_secs(5));
    let ((), choice) = NextHopChoice::read(spec, &[("ecmp", ())])?;
    Ok(Settings { nic_share, period, annealing: None, choice })
}

/// The settings of Simulated Annealing.
pub(crate) fn read_annealing(spec: &Spec) -> Result<Annealing, SpecError> {
    let iterations = spec.count("iterations", 1, 10_000_000)?.unwrap_or(10_000) as u32;
    Ok(Annealing { iterations, cooling: spec.number("cooling", 0.0, 1e9)?.unwrap_or(1000.0) })
}

/// How elephants are detected and placed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Settings {
    /// A flow at this share of its NIC or more is an elephant.
    pub nic_share: f64,
    /// Time between polls.
    pub period: Nanos,
    /// Settings of Simulated Annealing; `None` for Global First Fit.
    pub annealing: Option<Annealing>,
    /// How switches choose for flows that are no elephants.
    pub choice: NextHopChoice,
}

/// Settings of Simulated Annealing. See [`pathloom_allocation::placement::AnnealingSettings`].
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Annealing {
    pub iterations: u32,
    pub cooling: f64,
}

/// The scheme called `name`.
pub(crate) fn parts(name: &'static str, settings: Settings) -> Parts {
    let transport = settings.choice.transport();
    Parts { transport, ..Parts::central(move |seed| scheme(name, settings, seed)) }
}

/// Creates a central policy called `name`.
fn scheme(name: &'static str, settings: Settings, seed: u64) -> Box<dyn Scheme> {
    Box::new(Hedera { name, settings, seed, memory: Memory::default(), solving: None, stale: false })
}

struct Hedera {
    name: &'static str,
    settings: Settings,
    seed: u64,
    memory: Memory,
    /// The current job. It is not saved: a restart loses it, and the next round sends another.
    solving: Option<u64>,
    /// Whether something changed since the current job was sent.
    stale: bool,
}

/// State that survives a restart.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Memory {
    /// Polling rounds seen.
    round: u64,
    /// Ticket of the next job. It is never reused, so that an answer to a job from before a restart is not accepted.
    next_ticket: u64,
    /// Flows whose path was refused, for example by a full table.
    #[serde(alias = "rests")]
    backoff: Backoff,
    /// Simulated Annealing starts from the slots of the last round (Hedera §4.3.2), by destination address.
    slots: BTreeMap<Address, u32>,
    /// Work of the last job, which predicts the time of the next one.
    #[serde(rename = "cost")] // The name in stored snapshots.
    work: SolverWork,
}

impl Scheme for Hedera {
    fn name(&self) -> &'static str {
        self.name
    }

    fn needs(&self) -> Needs {
        self.settings.choice.in_needs(Needs {
            detection: Detection::Measured { nic_share: self.settings.nic_share },
            poll_period: Some(self.settings.period),
            ..Needs::NOTHING
        })
    }

    fn handle(&mut self, _now: Nanos, event: &Event, view: &View, actions: &mut Vec<Action>) {
        match event {
            Event::Started => {
                self.solving = None;
                actions.push(Action::SetDefaults(pathloom_scheme::DefaultRoutes::Ecmp));
            }
            Event::RatesMeasured { .. } => {
                self.memory.round += 1;
                self.place(view, actions);
            }
            // Flows over a dead link are already on default routes. A restored link can carry flows again.
            Event::LinkChanged { .. } => self.place(view, actions),
            Event::Solved { ticket, answer } if self.solving == Some(*ticket) => {
                self.solving = None;
                self.apply(answer, view, actions);
                if std::mem::take(&mut self.stale) {
                    self.place(view, actions);
                }
            }
            Event::FlowFinished { flow } | Event::RouteConfirmed { flow } => {
                self.memory.backoff.end(*flow);
            }
            Event::RouteRejected { flow, why } => {
                // The round in which the path was refused does not count.
                self.memory.backoff.rejected(self.memory.round + 1, *flow, why, Waits::ROUNDS);
            }
            _ => {}
        }
    }

    fn solver(&self) -> fn(&View, &State) -> State {
        job::solve
    }

    fn save(&self) -> State {
        pack(&self.memory)
    }

    fn restore(&mut self, state: State) -> Result<(), StateError> {
        self.memory = state::restore(self.name, state)?;
        Ok(())
    }
}

impl Hedera {
    /// Sends a job, unless there is nothing to place. If a job is running, the new one follows it.
    fn place(&mut self, view: &View, actions: &mut Vec<Action>) {
        if self.solving.is_some() {
            self.stale = true;
            return;
        }
        let flows = view.long_flows().count() as u64;
        if flows == 0 {
            return;
        }
        let memory = &mut self.memory;
        let ticket = memory.next_ticket;
        memory.next_ticket += 1;
        self.solving = Some(ticket);
        let backing_off = memory.backoff.waiting(memory.round);
        let annealing = self.settings.annealing.map(|settings| job::AnnealingJob {
            settings,
            seed: self.seed,
            stream: ticket,
            slots: memory.slots.clone(),
        });
        let input = Job { nic_share: self.settings.nic_share, backing_off, annealing };
        actions.push(Action::Solve { ticket, input: pack(&input), modelled: memory.work.predicted_time(flows) });
    }

    /// Moves flows as the job says, if they have not changed since.
    fn apply(&mut self, answer: &State, view: &View, actions: &mut Vec<Action>) {
        let Answer { moves, unroute, slots, work } = unpack(answer);
        self.memory.slots = slots;
        self.memory.work = work;
        let routed = |flow: FlowId| view.flows.get(&flow).map(|flow| flow.intended_route());
        let gone_small = unroute.into_iter().filter(|&flow| routed(flow).flatten().is_some());
        actions.extend(gone_small.map(|flow| Action::Unroute { flow }));
        for job::Move { flow, path, rate_bps } in moves {
            if path.is_up(&view.links) && routed(flow).is_some_and(|route| route != Some(&path)) {
                actions.push(Action::Route { flow, path, rate_bps: Some(rate_bps) });
            }
        }
    }
}
