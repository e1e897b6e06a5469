//! Actions of a scheme in Python, read and checked.

use super::events::Vocabulary;
use super::fields::{about, choice, field, text_of};
use pathloom_model::{LinkId, Nanos, NodeId, Path};
use pathloom_scheme::{Action, DefaultRoutes, FlowId, HopWeights, View};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::collections::BTreeMap;

const DEFAULTS: [(&str, DefaultRoutes); 5] = [
    ("single_path", DefaultRoutes::SinglePath),
    ("spanning_tree", DefaultRoutes::SpanningTree),
    ("ecmp", DefaultRoutes::Ecmp),
    ("per_host", DefaultRoutes::PerHost),
    ("weighted", DefaultRoutes::Weighted),
];

/// Name of a kind of default routes.
pub fn defaults_name(routes: DefaultRoutes) -> &'static str {
    DEFAULTS.iter().find(|(_, known)| *known == routes).map_or("ecmp", |(name, _)| name)
}

impl Vocabulary {
    /// Reads an action. If it is impossible (an unknown flow, links that form no path), the error names the cause.
    pub fn action(&self, given: &Bound<'_, PyAny>, view: &View) -> PyResult<Action> {
        let known = given.is_instance(&self.word(given.py(), "Action")?)?;
        let name = given.get_type().name()?.to_string();
        let read = if known { self.read_action(&name, given, view) } else { Err("is not an action".to_owned()) };
        read.map_err(|problem| PyValueError::new_err(format!("action {}: {problem}", text_of(given))))
    }

    fn read_action(&self, name: &str, given: &Bound<'_, PyAny>, view: &View) -> Result<Action, String> {
        let flow = || known_flow(given, view);
        Ok(match name {
            "SetDefaults" => Action::SetDefaults(choice(given, "routes", &DEFAULTS)?),
            "SetWeights" => Action::SetWeights(weights_of(given, view)?),
            "Route" => {
                let (flow, rate_bps) = (flow()?, field(given, "rate_bps")?);
                Action::Route { flow, path: path_of(given, flow, view)?, rate_bps }
            }
            "Unroute" => Action::Unroute { flow: flow()? },
            "Hold" => Action::Hold { flow: flow()?, lease: Nanos(field(given, "lease_ns")?) },
            "Release" => Action::Release { flow: flow()? },
            "Pace" => Action::Pace { flow: flow()?, rate_bps: field(given, "rate_bps")? },
            "Measure" => Action::Measure,
            "MeasureAgain" => Action::MeasureAgain,
            "Solve" => Action::Solve {
                ticket: field(given, "ticket")?,
                input: given.getattr("answer").and_then(|answer| self.state(&answer)).map_err(about("answer"))?,
                modelled: Nanos(field(given, "modelled_ns")?),
            },
            _ => return Err("is not an action that a scheme may return".to_owned()),
        })
    }
}

fn known_flow(given: &Bound<'_, PyAny>, view: &View) -> Result<FlowId, String> {
    let flow = FlowId(field(given, "flow")?);
    if view.flows.contains_key(&flow) {
        return Ok(flow);
    }
    Err(format!("flow: no flow {} is known; expected one of view.flows", flow.0))
}

/// The path of an action. It must lead from the flow's source ToR to its destination ToR. The controller checks
/// whether its links are up, and answers with `RouteRejected` if they are not.
fn path_of(given: &Bound<'_, PyAny>, flow: FlowId, view: &View) -> Result<Path, String> {
    let path = checked(field(given, "path")?, view)?;
    let Some(known) = view.flows.get(&flow) else { return Ok(path) };
    let (first, last) = (path.links().first(), path.links().last());
    let from = first.map_or(known.src_tor, |&link| view.fabric.link(link).from);
    let to = last.map_or(known.src_tor, |&link| view.fabric.link(link).to);
    if (from, to) == (known.src_tor, known.dst_tor) {
        return Ok(path);
    }
    let name = |node| &view.fabric.node(node).name;
    let (wanted_from, wanted_to) = (name(known.src_tor), name(known.dst_tor));
    Err(format!("path: leads from {} to {}; expected {wanted_from} to {wanted_to}", name(from), name(to)))
}

fn checked(links: Vec<u32>, view: &View) -> Result<Path, String> {
    let path = Path::new(links.into_iter().map(LinkId).collect::<Vec<_>>());
    path.check(&view.fabric).map(|()| path).map_err(about("path"))
}

/// The weights of next hops, by switch and destination ToR.
fn weights_of(given: &Bound<'_, PyAny>, view: &View) -> Result<Vec<HopWeights>, String> {
    let all: BTreeMap<(u32, u32), BTreeMap<u32, u16>> = field(given, "weights")?;
    all.into_iter().map(|((switch, tor), weights)| hop_weights(NodeId(switch), NodeId(tor), weights, view)).collect()
}

fn hop_weights(switch: NodeId, tor: NodeId, weights: BTreeMap<u32, u16>, view: &View) -> Result<HopWeights, String> {
    let fabric = &view.fabric;
    for node in [switch, tor] {
        if node.index() >= fabric.nodes().len() {
            return Err(format!(
                "weights: no node {} is known; expected numbers of view.switches and view.tors",
                node.0
            ));
        }
    }
    for &link in weights.keys() {
        let leaves = fabric.links().get(link as usize).is_some_and(|known| known.from == switch);
        if !leaves {
            let name = &fabric.node(switch).name;
            return Err(format!("weights: link {link} does not leave {name}; expected one of its links"));
        }
    }
    if weights.values().all(|&weight| weight == 0) {
        let (name, to) = (&fabric.node(switch).name, &fabric.node(tor).name);
        return Err(format!("weights: {name} has no link to {to} with a weight above 0"));
    }
    Ok(HopWeights { switch, tor, weights: weights.into_iter().map(|(link, weight)| (LinkId(link), weight)).collect() })
}
