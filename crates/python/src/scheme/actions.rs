//! Needs and actions of a scheme in Python, read and checked.

use super::events::Vocabulary;
use pathloom_model::{LinkId, Nanos, Path};
use pathloom_scheme::{
    Action, DefaultRoutes, Detection, Entropy, FlowId, Migration, Needs, RuleSharing, Selection, View,
};
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::fmt::Display;
use std::num::NonZeroU16;

const DEFAULTS: [(&str, DefaultRoutes); 5] = [
    ("single_path", DefaultRoutes::SinglePath),
    ("spanning_tree", DefaultRoutes::SpanningTree),
    ("ecmp", DefaultRoutes::Ecmp),
    ("per_host", DefaultRoutes::PerHost),
    ("weighted", DefaultRoutes::Weighted),
];
const MIGRATIONS: [(&str, Migration); 2] = [("tagged", Migration::Tagged), ("sfmm", Migration::Sfmm)];
const SHARINGS: [(&str, RuleSharing); 2] = [("per_flow", RuleSharing::PerFlow), ("per_path", RuleSharing::PerPath)];
/// Name of a kind of default routes.
pub fn defaults_name(routes: DefaultRoutes) -> &'static str {
    DEFAULTS.iter().find(|(_, known)| *known == routes).map_or("ecmp", |(name, _)| name)
}

/// Needs of the object. Without a method `needs`, they are long flows by their label.
pub fn needs_of(object: &Bound<'_, PyAny>) -> PyResult<Needs> {
    let Some(method) = object.getattr_opt("needs")? else {
        return Ok(Needs { detection: Detection::Label, ..Needs::NOTHING });
    };
    let given = method.call0()?;
    read_needs(&given)
        .map_err(|problem| PyValueError::new_err(format!("needs returned {}: {problem}", text_of(&given))))
}

fn read_needs(given: &Bound<'_, PyAny>) -> Result<Needs, String> {
    let nic_share: f64 = field(given, "nic_share")?;
    if !(0.0..=1.0).contains(&nic_share) {
        return Err("nic_share: expected a share of the access rate, 0 to 1".to_owned());
    }
    let poll_period: Option<u64> = field(given, "poll_period_ns")?;
    if poll_period == Some(0) {
        return Err("poll_period_ns: expected a time above 0, or None".to_owned());
    }
    let idle_timeout_s: Option<u16> = field(given, "idle_timeout_s")?;
    let idle_timeout_s = idle_timeout_s
        .map(|seconds| NonZeroU16::new(seconds).ok_or("idle_timeout_s: expected 1 or more, or None"))
        .transpose()?;
    let link_loads_every: Option<u64> = field(given, "link_loads_every_ns")?;
    if link_loads_every == Some(0) {
        return Err("link_loads_every_ns: expected a time above 0, or None".to_owned());
    }
    let (measured, any) = (Detection::Measured { nic_share }, Detection::Any { nic_share });
    let (nothing, label, announced) = (Detection::Nothing, Detection::Label, Detection::Announced);
    let known =
        [("nothing", nothing), ("label", label), ("announced", announced), ("measured", measured), ("any", any)];
    let detection = choice(given, "detection", &known)?;
    if matches!(detection, Detection::Measured { .. }) && poll_period.is_none() {
        return Err("detection: `measured` needs a poll_period_ns".to_owned());
    }
    Ok(Needs {
        detection,
        subflows: field(given, "subflows")?,
        poll_period: poll_period.map(Nanos),
        migration: choice(given, "migration", &MIGRATIONS)?,
        rules: choice(given, "rules", &SHARINGS)?,
        paces: field(given, "paces")?,
        both_directions: field(given, "both_directions")?,
        idle_timeout_s,
        link_loads_every: link_loads_every.map(Nanos),
        entropy: Entropy::Flow,
        selection: Selection::Hash,
        ageing: None,
    })
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

fn field<'py, T: FromPyObjectOwned<'py>>(given: &Bound<'py, PyAny>, name: &'static str) -> Result<T, String> {
    let value = given.getattr(name).map_err(about(name))?;
    value.extract::<T>().map_err(|error| about(name)(Into::<PyErr>::into(error)))
}

fn choice<T: Copy>(given: &Bound<'_, PyAny>, name: &'static str, known: &[(&str, T)]) -> Result<T, String> {
    let word: String = field(given, name)?;
    let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    let found = known.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
    found.ok_or_else(|| format!("{name}: `{word}` is not one of {}", names.join(", ")))
}

fn about<E: Display>(name: &'static str) -> impl Fn(E) -> String {
    move |error| format!("{name}: {error}")
}

/// Representation of an object, cut off if it is long.
fn text_of(object: &Bound<'_, PyAny>) -> String {
    const MOST: usize = 200;
    let text = object.repr().map_or_else(|_| object.get_type().to_string(), |text| text.to_string());
    if text.chars().count() <= MOST {
        return text;
    }
    text.chars().take(MOST).chain("…".chars()).collect()
}
