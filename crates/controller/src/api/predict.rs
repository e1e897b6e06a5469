//! Predictions from a copy of the controller's state: the possible paths of a flow, and the paths that another scheme
//! would give the existing flows.

use super::queries::{Fork, Why};
use super::rows::{defaults_text, link_name, path_names, CandidateRow, FlowRow, WhyRow};
use pathloom_allocation::{max_min, FlowSet};
use pathloom_control::{dry_run, DefaultPaths};
use pathloom_model::search::ShortestPaths;
use pathloom_model::{LinkId, Path};
use pathloom_scheme::{FlowId, FlowView, Scheme, View};
use serde::Serialize;
use utoipa::ToSchema;

/// Maximum number of candidate paths shown.
const CANDIDATES: usize = 64;
/// Maximum number of moves listed; all are counted.
const MOVES: usize = 1000;

/// The effect of another scheme. Nothing was sent to switches.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DryRunRow {
    pub scheme: String,
    /// The scheme in charge.
    pub instead_of: String,
    /// Number of long flows in the prediction: those that the scheme in charge has found.
    pub flows: usize,
    pub moved: usize,
    /// The first thousand moves.
    pub moves: Vec<MoveRow>,
    pub default_routes: &'static str,
    /// Number of jobs of its solver.
    pub jobs: usize,
    /// Number of requested paths that could not be set up.
    pub rejected: usize,
    /// Whether the scheme finished: it makes no further moves.
    pub settled: bool,
    pub now: PredictionRow,
    pub then: PredictionRow,
}

/// A flow that would move.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MoveRow {
    pub flow: String,
    pub five_tuple: super::rows::TupleRow,
    /// Null on the default routes.
    pub from: Option<Vec<String>>,
    pub to: Option<Vec<String>>,
}

/// Rates and loads of the paths of all long flows, if each flow sent as fast as possible.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct PredictionRow {
    /// Mean of the max-min fair rates.
    pub max_min_mean_bps: f64,
    pub max_min_least_bps: f64,
    /// Load of the fullest link as a share of its rate, if every flow sent at the rate of its hosts' links. Above 1,
    /// flows have to share it.
    pub max_load_share: f64,
    pub max_load_link: Option<String>,
    /// Number of flows whose path depends on the switches' hash. The prediction uses a different hash.
    pub uncertain: usize,
    /// Number of flows without any path.
    pub cut_off: usize,
}

/// Adds a sentence and the possible paths to the reasons for the path of a flow.
pub(crate) fn explain(why: Why) -> WhyRow {
    let Why { flow, known, placed, history, view, scheme } = why;
    let candidates = candidates(&view, &known);
    let sentence = match (&placed, &flow.path) {
        (Some(reason), _) => format!("{} {}, because of this: {}", reason.scheme, reason.decision, reason.cause),
        (None, Some(_)) => "it was put there before the controller started; the reason is not known".into(),
        (None, None) if !flow.long => {
            format!("{scheme} was not told of it: it uses the default routes ({})", defaults_text(view.defaults))
        }
        (None, None) => format!("{scheme} left it on the default routes ({})", defaults_text(view.defaults)),
    };
    let candidates = candidates.unwrap_or_default();
    WhyRow { flow, why: sentence, placed, history, candidates }
}

fn candidates(view: &View, flow: &FlowView) -> Option<Vec<CandidateRow>> {
    let fabric = &view.fabric;
    let mut loads = vec![0u64; fabric.links().len()];
    for other in view.flows.values() {
        let rate_bps = other.load_bps();
        other.intended_route().iter().flat_map(|path| path.links()).for_each(|link| loads[link.index()] += rate_bps);
    }
    let paths = ShortestPaths::between(fabric, &view.links, flow.src_tor, flow.dst_tor);
    let standing = flow.intended_route().filter(|route| paths.iter().take(CANDIDATES).all(|path| path != **route));
    let all = standing.cloned().into_iter().chain(paths.iter().take(CANDIDATES));
    let share = |link: LinkId| loads[link.index()] as f64 / fabric.link(link).settings.rate_bps.max(1) as f64;
    let row = |path: Path| {
        let fullest = path.links().iter().copied().max_by(|&a, &b| share(a).total_cmp(&share(b)));
        CandidateRow {
            path: path_names(fabric, flow, &path),
            current: flow.intended_route() == Some(&path),
            fullest: fullest.map(|link| link_name(fabric, link)),
            load_bps: fullest.map_or(0, |link| loads[link.index()]),
            load_share: fullest.map_or(0.0, share),
        }
    };
    Some(all.filter(|path| !path.is_empty()).map(row).collect())
}

/// Runs a scheme on the copy and returns the flows that it would move.
pub(crate) fn try_scheme(fork: Fork, label: String, scheme: Box<dyn Scheme>) -> DryRunRow {
    let Fork { view: before, now, scheme: instead_of } = fork;
    let run = dry_run(before.clone(), scheme, now);
    let after = run.view;
    let fabric = before.fabric.clone();
    let moved: Vec<(FlowId, &FlowView, &FlowView)> = before
        .long_flows()
        .filter_map(|(id, old)| Some((id, old, after.flows.get(&id)?)))
        .filter(|(_, old, new)| old.intended_route() != new.intended_route())
        .collect();
    let row = |&(id, old, new): &(FlowId, &FlowView, &FlowView)| MoveRow {
        flow: id.0.to_string(),
        five_tuple: old.five_tuple.into(),
        from: old.intended_route().map(|path| path_names(&fabric, old, path)),
        to: new.intended_route().map(|path| path_names(&fabric, new, path)),
    };
    DryRunRow {
        scheme: label,
        instead_of,
        flows: before.long_flows().count(),
        moved: moved.len(),
        moves: moved.iter().take(MOVES).map(row).collect(),
        default_routes: defaults_text(after.defaults),
        jobs: run.jobs,
        rejected: run.rejected,
        settled: run.settled,
        now: predict(&before),
        then: predict(&after),
    }
}

/// Rates and loads of the long flows on their paths.
pub(crate) fn predict(view: &View) -> PredictionRow {
    let fabric = &view.fabric;
    let mut row = PredictionRow::default();
    let mut defaults = DefaultPaths::new(fabric, &view.links, view.defaults);
    let (mut flows, mut ends) = (FlowSet::new(), FlowSet::new());
    for (_, flow) in view.long_flows() {
        let access = (fabric.attachment(flow.five_tuple.src()), fabric.attachment(flow.five_tuple.dst()));
        let (Some(src), Some(dst)) = access else { continue };
        let path = match flow.intended_route() {
            Some(path) => Some((path.clone(), true)),
            None => defaults.path(&flow.five_tuple),
        };
        let Some((path, sure)) = path else {
            row.cut_off += 1;
            continue;
        };
        row.uncertain += usize::from(!sure);
        let access = [src.uplink.0, dst.uplink.reverse().0];
        let links: Vec<u32> = path.links().iter().map(|link| link.0).chain(access).collect();
        flows.push(&links);
        ends.push(&access);
    }
    let capacity: Vec<f64> = fabric.links().iter().map(|link| link.settings.rate_bps as f64).collect();
    let (Ok(fair), Ok(wanted)) = (max_min(&capacity, &flows), max_min(&capacity, &ends)) else { return row };
    if flows.is_empty() {
        return row;
    }
    row.max_min_mean_bps = fair.rates.iter().sum::<f64>() / flows.len() as f64;
    row.max_min_least_bps = fair.rates.iter().copied().fold(f64::INFINITY, f64::min);
    let mut loads = vec![0.0; capacity.len()];
    for (index, rate) in wanted.rates.iter().enumerate() {
        flows.links(index).iter().for_each(|&link| loads[link as usize] += rate);
    }
    let shares = loads.iter().zip(&capacity).map(|(load, capacity)| load / capacity.max(1.0)).enumerate();
    if let Some((link, share)) = shares.max_by(|a, b| a.1.total_cmp(&b.1)) {
        row.max_load_share = share;
        row.max_load_link = Some(link_name(fabric, LinkId(link as u32)));
    }
    row
}

/// A flow, after it was announced.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AnnouncedRow {
    /// The flow; null if the controller does not know it.
    pub flow: Option<FlowRow>,
    /// The result of the announcement.
    pub note: String,
}
