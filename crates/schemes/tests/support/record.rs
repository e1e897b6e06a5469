//! Recorded cases: the events, and the actions of the scheme. One JSON value per line.
//!
//! - `{"setup": {"about", "scheme", "fabric", "seed"}}` is the first line;
//! - `{"flow": {"id", "src", "dst", ...}}` adds a flow to the scheme's view, or changes it;
//! - `{"now", "event", "actions"}` is an event and the resulting actions;
//! - `{"now", "solve", "actions"}` is the end of the running job, with its answer and the resulting actions.
//!
//! The author of a case writes no actions, and `null` as the answer of a job; `PATHLOOM_BLESS=1` fills them in.

use super::World;
use pathloom_model::Nanos;
use pathloom_scheme::{Action, Event, FlowId, State};
use serde::{Deserialize, Serialize};

/// A line of a record.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Setup {
        setup: Setup,
    },
    Flow {
        flow: Flow,
    },
    Event {
        now: Nanos,
        event: Event,
        #[serde(default)]
        actions: Vec<Action>,
    },
    Solve {
        now: Nanos,
        solve: State,
        #[serde(default)]
        actions: Vec<Action>,
    },
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Setup {
    about: String,
    scheme: String,
    fabric: String,
    seed: u64,
}

/// A flow in the view. Hosts are given by name.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Flow {
    id: FlowId,
    src: String,
    dst: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    src_nic: usize,
    #[serde(default, skip_serializing_if = "is_zero")]
    dst_nic: usize,
    /// Names of the switches on its path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    route: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rate_bps: Option<u64>,
    /// Token of its MPTCP connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<u32>,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The specification of the scheme in a record.
pub fn scheme_of(text: &str) -> Result<String, String> {
    match text.lines().next().map(read) {
        Some(Ok(Line::Setup { setup })) => Ok(setup.scheme),
        _ => Err("line 1: expected {\"setup\": {\"about\", \"scheme\", \"fabric\", \"seed\"}}".to_owned()),
    }
}

/// Replays a record. Returns it with the new actions and answers in place of the recorded ones.
pub fn replay(text: &str) -> Result<String, String> {
    replay_with(text, |_| {})
}

/// As [`replay`]; `change` may change the world before the first event.
pub fn replay_with(text: &str, change: impl Fn(&mut World)) -> Result<String, String> {
    scheme_of(text)?;
    let mut world = None;
    let mut out = String::new();
    for (number, line) in text.lines().enumerate() {
        let line = read(line).and_then(|line| step(line, &mut world, &change));
        let line = line.map_err(|problem| format!("line {}: {problem}", number + 1))?;
        out += &serde_json::to_string(&line).map_err(|error| error.to_string())?;
        out.push('\n');
    }
    Ok(out)
}

fn read(line: &str) -> Result<Line, String> {
    serde_json::from_str(line).map_err(|error| format!("{error}: {line}"))
}

fn step(line: Line, world: &mut Option<World>, change: &impl Fn(&mut World)) -> Result<Line, String> {
    match (line, world) {
        (Line::Setup { setup }, world) => {
            change(world.insert(World::new(&setup.fabric, &setup.scheme, setup.seed)));
            Ok(Line::Setup { setup })
        }
        (_, None) => Err("expected the setup line first".to_owned()),
        (Line::Flow { flow }, Some(world)) => {
            show(world, &flow)?;
            Ok(Line::Flow { flow })
        }
        (Line::Event { now, event, .. }, Some(world)) => {
            world.now = now;
            let actions = world.deliver(&event);
            Ok(Line::Event { now, event, actions })
        }
        (Line::Solve { now, .. }, Some(world)) => {
            world.now = now;
            let (solve, actions) = world.solve().ok_or("no job is running")?;
            Ok(Line::Solve { now, solve, actions })
        }
    }
}

fn show(world: &mut World, flow: &Flow) -> Result<(), String> {
    let fabric = world.view.fabric.clone();
    let node = |name: &String| fabric.find(name).ok_or_else(|| format!("no node is called {name}"));
    let known = world.view.flows.get(&flow.id).cloned();
    world.add_flow(flow.id, (node(&flow.src)?, flow.src_nic), (node(&flow.dst)?, flow.dst_nic), flow.id.0 as u16);
    let links = flow.route.windows(2).map(|pair| {
        let missing = || format!("no link from {} to {}", pair[0], pair[1]);
        fabric.link_between(node(&pair[0])?, node(&pair[1])?).ok_or_else(missing)
    });
    let links = links.collect::<Result<Vec<_>, String>>()?;
    if let Some(shown) = world.view.flows.get_mut(&flow.id) {
        shown.route = (!links.is_empty()).then(|| pathloom_model::Path::new(links));
        (shown.size_bytes, shown.rate_bps) = (flow.size_bytes.into(), flow.rate_bps.into());
        shown.mptcp_token = flow.token;
        if let Some(known) = known {
            shown.long = known.long;
            shown.arrived = known.arrived;
        }
    }
    Ok(())
}
