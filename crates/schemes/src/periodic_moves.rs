//! move, a scheme for tests: each flow has a path of its own and moves to the next one every period. With it, tests
//! show that a move loses and delays nothing.

use crate::entry::{Entry, EntryInfo, KeyInfo, Parts};
use crate::helpers::backoff::{Backoff, Waits};
use crate::helpers::{links, state};
use pathloom_model::{Nanos, Path};
use pathloom_scheme::{
    Action, DefaultRoutes, Detection, Event, FlowId, FlowView, Migration, Needs, Scheme, State, StateError, View,
};

const NAME: &str = "move";

const PERIOD_KEY: KeyInfo = ("period", "5s", "time between two moves of every flow, 1ms to 1h");
const MIGRATION_KEY: KeyInfo =
    ("migration", "sfmm", "sfmm (OFPT §5.3: lower priority, then delete) or tagged (two-phase), how flows are moved");
const TIMES_KEY: KeyInfo = ("times", "0", "number of rounds of moves; 0 for no end");

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary: "each long flow gets a path, and the next one every period: tests that moves lose nothing",
        paper: "none; OFPT §6.2.5 moves one flow once",
        keys: &[PERIOD_KEY, TIMES_KEY, MIGRATION_KEY],
    },
    read: |spec| {
        let period = crate::router::read_period(spec, "period")?.unwrap_or(Nanos::from_secs(5));
        let migration = spec.choice("migration", &[("sfmm", Migration::Sfmm), ("tagged", Migration::Tagged)])?;
        let migration = migration.unwrap_or(Migration::Sfmm);
        let times = spec.count("times", 0, u64::from(u32::MAX))?.filter(|&times| times > 0);
        Ok(Parts::central(move |_| {
            Box::new(Move { period, migration, left: times, next: None, backoff: Backoff::default() })
        }))
    },
};

struct Move {
    period: Nanos,
    migration: Migration,
    /// Remaining rounds; `None` for no end.
    left: Option<u64>,
    next: Option<Nanos>,
    /// First paths that were refused, as when a switch has no session yet after a restart.
    backoff: Backoff,
}

/// How long a flow without a path waits after a refusal.
const WAITS: Waits = Waits { first: Nanos::from_millis(500).0, longest: Nanos::from_secs(30).0 };

impl Scheme for Move {
    fn name(&self) -> &'static str {
        NAME
    }

    fn needs(&self) -> Needs {
        Needs { detection: Detection::Label, migration: self.migration, ..Needs::NOTHING }
    }

    fn handle(&mut self, now: Nanos, event: &Event, view: &View, actions: &mut Vec<Action>) {
        match *event {
            Event::Started => {
                self.backoff.keep(|flow| view.flows.contains_key(&flow));
                actions.push(Action::SetDefaults(DefaultRoutes::SinglePath));
                self.next = self.next.or(Some(now.saturating_add(self.period)));
            }
            Event::FlowArrived { flow } | Event::FlowAdopted { flow } => actions.extend(first_route(view, flow)),
            Event::RouteRejected { flow, why } => self.backoff.rejected(now.0, flow, &why, WAITS),
            Event::RouteConfirmed { flow } | Event::FlowFinished { flow } => self.backoff.end(flow),
            Event::LinkChanged { up, link } => {
                let hit = |known: &FlowView| match known.intended_route() {
                    Some(path) => !up && path.links().contains(&link),
                    None => true,
                };
                let hit = view.long_flows().filter(|(_, known)| hit(known));
                actions.extend(hit.filter_map(|(flow, known)| route(view, flow, known)));
            }
            Event::Timeout => {
                let again = self.backoff.take_due(now.0);
                if self.next.is_none_or(|next| next > now) {
                    actions.extend(again.into_iter().filter_map(|flow| first_route(view, flow)));
                    return;
                }
                self.left = self.left.map(|left| left.saturating_sub(1));
                self.next = Some(now.saturating_add(self.period)).filter(|_| self.left != Some(0));
                // A move in progress is not interrupted.
                let standing = view.long_flows().filter(|(_, known)| known.pending.is_none());
                actions.extend(standing.filter_map(|(flow, known)| route(view, flow, known)));
            }
            _ => {}
        }
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        [self.next, self.backoff.next_due().map(Nanos)].into_iter().flatten().min()
    }

    fn save(&self) -> State {
        state::pack(&(self.next, self.left))
    }

    fn restore(&mut self, state: State) -> Result<(), StateError> {
        (self.next, self.left) = state::restore(NAME, state)?;
        Ok(())
    }
}

/// Puts a flow that is on no path on the first of its shortest paths.
fn first_route(view: &View, flow: FlowId) -> Option<Action> {
    let known = view.flows.get(&flow).filter(|known| known.intended_route().is_none())?;
    route(view, flow, known)
}

/// Puts a flow on the next shortest path after its current one, if there is another.
fn route(view: &View, flow: FlowId, known: &FlowView) -> Option<Action> {
    let paths = links::paths_of(view, known);
    let count = paths.count();
    let current = known.intended_route();
    let at = current.and_then(|path| (0..count).find(|&index| paths.nth(index).as_ref() == Some(path)));
    let next = at.map_or(0, |at| (at + 1) % count.max(1));
    let path: Path = paths.nth(next).filter(|path| Some(path) != current)?;
    (!path.links().is_empty()).then_some(Action::Route { flow, path, rate_bps: None })
}
