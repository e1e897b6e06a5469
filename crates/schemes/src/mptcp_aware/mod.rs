//! mptcp-aware: the subflows of an MPTCP connection take distinct paths (MPTCP-aware SDN §IV-B, Algorithm 1).
//!
//! The first subflow of a connection gets the shortest path between its addresses. Each further subflow gets the path
//! of the set that has the fewest subflows of the connection, and of equal ones the first. So subflows take unused
//! paths while there are any; then all paths are used equally. A subflow that is opened again, or after a restart of the
//! controller, finds the free path. With `mode=turns`, as published, subflows take the paths of the set in turn, and a
//! connection is forgotten after 5 s. In the random mode, each subflow gets a random path of the set.

mod connections;
mod paths;
#[cfg(test)]
mod tests;
mod turns;

use crate::entry::{Entry, EntryInfo, KeyInfo, Parts};
use crate::helpers::backoff::{Backoff, Waits};
use crate::helpers::{draws, state};
use crate::mptcp::HOST_KEYS;
use connections::Connections;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::{Nanos, Path};
use pathloom_scheme::{Action, DefaultRoutes, Event, FlowId, FlowView, Needs, Scheme, State, StateError, View};
use pathloom_transport::mptcp::MptcpSettings;
use pathloom_transport::TransportSpec;
use paths::{addresses, Choice, PathCache, PathRule};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU16;
use turns::Turns;

const NAME: &str = "mptcp-aware";
/// Idle time-out of rules in seconds, as in the published controller (§IV-B.2).
const IDLE_TIMEOUT_S: NonZeroU16 = NonZeroU16::new(5).expect("not 0");

const PATHS_KEY: KeyInfo =
    ("paths", "disjoint", "set of paths for a pair of addresses: disjoint (no shared cable), shortest or k-shortest");
const K_KEY: KeyInfo = ("k", "8", "maximum number of paths in a set, 1 to 256");
const HOPS_KEY: KeyInfo = ("hops", "0", "maximum number of links of a path between ToRs; 0 for no limit");
const MODE_KEY: KeyInfo = (
    "mode",
    "deterministic",
    "deterministic (the path with the fewest open subflows of the connection), turns (Algorithm 1: the next path in turn; a \
     connection is forgotten after 5 s) or random (any path of the set)",
);

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary: "ecmp, and the subflows of an MPTCP connection take distinct paths",
        paper: "MPTCP-aware SDN controller (ISCC 2016)",
        keys: &[PATHS_KEY, K_KEY, HOPS_KEY, MODE_KEY, HOST_KEYS[0], HOST_KEYS[1], HOST_KEYS[2], HOST_KEYS[3]],
    },
    read: |spec| {
        let settings = read_settings(spec)?;
        let hosts = MptcpSettings::read(spec, MptcpSettings::default().tcp)?;
        let central = Parts::central(move |seed| Box::new(MptcpAware::new(settings, seed)));
        Ok(Parts { transport: TransportSpec::Mptcp(hosts), ..central })
    },
};

fn read_settings(spec: &Spec) -> Result<Settings, SpecError> {
    let choices =
        [("disjoint", Choice::EdgeDisjoint), ("shortest", Choice::Shortest), ("k-shortest", Choice::KShortest)];
    let choice = spec.choice("paths", &choices)?.unwrap_or(Choice::EdgeDisjoint);
    let most = spec.count("k", 1, 256)?.unwrap_or(8) as usize;
    let most_hops = spec.count("hops", 0, 1000)?.map(|hops| hops as usize).filter(|&hops| hops > 0);
    let modes = [("deterministic", Mode::FewestSubflows), ("turns", Mode::Turns), ("random", Mode::Random)];
    let mode = spec.choice("mode", &modes)?.unwrap_or(Mode::FewestSubflows);
    Ok(Settings { rule: PathRule { choice, most, most_hops }, mode })
}

/// Which path of the set a subflow takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// The one with the fewest open subflows of the connection.
    FewestSubflows,
    /// The next one in turn.
    Turns,
    /// Any.
    Random,
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    rule: PathRule,
    mode: Mode,
}

/// State that survives a restart.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Memory {
    connections: Connections,
    backoff: Backoff,
}

struct MptcpAware {
    settings: Settings,
    seed: u64,
    cache: PathCache,
    memory: Memory,
    turns: Turns,
    /// Maximum numbers of path sets and of connections that were kept at the same time.
    largest: [usize; 2],
}

impl Scheme for MptcpAware {
    fn name(&self) -> &'static str {
        NAME
    }

    fn needs(&self) -> Needs {
        Needs { subflows: true, both_directions: true, idle_timeout_s: Some(IDLE_TIMEOUT_S), ..Needs::NOTHING }
    }

    fn handle(&mut self, now: Nanos, event: &Event, view: &View, actions: &mut Vec<Action>) {
        match *event {
            Event::Started => {
                self.cache.clear();
                self.memory.connections.keep(|flow| view.flows.contains_key(&flow));
                self.memory.backoff.keep(|flow| view.flows.contains_key(&flow));
                actions.push(Action::SetDefaults(DefaultRoutes::Ecmp));
            }
            Event::FlowArrived { flow } | Event::SubflowArrived { flow, .. } => {
                self.memory.connections.add(now, flow, token(view, flow));
                self.place(now, view, flow, actions);
            }
            Event::FlowAdopted { flow } => {
                self.memory.connections.adopt(flow, token(view, flow));
                self.place(now, view, flow, actions);
            }
            Event::FlowFinished { flow } => {
                self.memory.connections.remove(flow, token(view, flow));
                self.memory.backoff.end(flow);
            }
            Event::LinkChanged { .. } => {
                self.cache.clear();
                view.long_flows().for_each(|(flow, _)| self.place(now, view, flow, actions));
            }
            Event::Timeout => {
                for flow in self.memory.backoff.take_due(now.0) {
                    self.place(now, view, flow, actions);
                }
            }
            Event::RouteConfirmed { flow } => self.memory.backoff.end(flow),
            Event::RouteRejected { flow, why } => self.memory.backoff.rejected(now.0, flow, &why, Waits::SECONDS),
            _ => {}
        }
        let kept = [self.cache.len(), self.memory.connections.len()];
        self.largest = std::array::from_fn(|place| self.largest[place].max(kept[place]));
    }

    fn sizes(&self) -> Vec<(&'static str, u64)> {
        vec![("most cached path sets", self.largest[0] as u64), ("most known connections", self.largest[1] as u64)]
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        self.memory.backoff.next_due().map(Nanos)
    }

    fn save(&self) -> State {
        state::pack(&self.memory)
    }

    fn restore(&mut self, state: State) -> Result<(), StateError> {
        self.memory = state::restore(NAME, state)?;
        Ok(())
    }
}

impl MptcpAware {
    fn new(settings: Settings, seed: u64) -> MptcpAware {
        MptcpAware {
            settings,
            seed,
            cache: PathCache::new(seed),
            memory: Memory::default(),
            turns: Turns::default(),
            largest: [0; 2],
        }
    }

    /// Requests a path for a subflow without one, unless a path was refused recently.
    fn place(&mut self, now: Nanos, view: &View, flow: FlowId, actions: &mut Vec<Action>) {
        let Some(known) = view.flows.get(&flow).filter(|known| known.intended_route().is_none()) else { return };
        if self.memory.backoff.holds(now.0, flow) {
            return;
        }
        let paths = self.cache.paths(now, &self.settings.rule, view, known);
        let chosen = match self.settings.mode {
            Mode::Random => draws::below(&mut draws::generator(self.seed, flow.0), paths.len() as u128) as usize,
            Mode::Turns => match known.mptcp_token {
                Some(token) => self.turns.join(now, token, addresses(known), paths.len()),
                None => self.turns.begin(addresses(known)),
            },
            Mode::FewestSubflows => {
                // A path that was requested earlier in the same batch of events is not in the view yet.
                let mut uses = self.memory.connections.uses(now, view, flow, known, &paths);
                count_asked(actions, view, known, &paths, &mut uses);
                (0..uses.len()).min_by_key(|&place| uses[place]).unwrap_or(0)
            }
        };
        // Within a ToR there is no choice.
        let path = paths.get(chosen).filter(|path| !path.is_empty()).cloned();
        actions.extend(path.map(|path| Action::Route { flow, path, rate_bps: None }));
    }
}

/// Token of the connection that a subflow belongs to, if it is known.
fn token(view: &View, flow: FlowId) -> Option<u32> {
    view.flows.get(&flow)?.mptcp_token
}

/// Counts the paths that these actions give to other subflows of the connection.
fn count_asked(actions: &[Action], view: &View, own: &FlowView, paths: &[Path], uses: &mut [usize]) {
    for action in actions {
        let Action::Route { flow: other, path, .. } = action else { continue };
        let is_beside = view.flows.get(other).is_some_and(|other| {
            other.mptcp_token.is_some() && other.mptcp_token == own.mptcp_token && addresses(other) == addresses(own)
        });
        if is_beside {
            paths.iter().position(|one| one == path).into_iter().for_each(|place| uses[place] += 1);
        }
    }
}
