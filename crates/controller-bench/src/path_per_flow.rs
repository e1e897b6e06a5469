//! spt and ecmp with a path per flow. Rules of its own put each labelled flow on a path that the scheme's default
//! routes could take. So the benchmark measures the set-up of a path, and not the search for one.
//!
//! In the registry, spt and ecmp only set default routes, so a flow's first packet never reaches the controller.

use pathloom_model::search::ShortestPaths;
use pathloom_model::{FiveTuple, Nanos, NodeId, Path};
use pathloom_scheme::{Action, DefaultRoutes, Detection, Event, Needs, Scheme, View};
use rustc_hash::FxHashMap;

/// Maximum number of paths of one pair of ToRs for ecmp.
const MOST_PATHS: u64 = 64;

/// The scheme.
pub(crate) struct PathPerFlow {
    name: &'static str,
    defaults: DefaultRoutes,
    /// Maximum number of paths of one pair of ToRs.
    most: u64,
    /// The paths from one ToR to another, for a state of the links.
    paths: FxHashMap<(NodeId, NodeId), Vec<Path>>,
}

impl PathPerFlow {
    /// One path for each pair of ToRs.
    pub(crate) fn spt() -> PathPerFlow {
        PathPerFlow { name: "spt", defaults: DefaultRoutes::SinglePath, most: 1, paths: FxHashMap::default() }
    }

    /// All shortest paths, chosen from by the five-tuple.
    pub(crate) fn ecmp() -> PathPerFlow {
        PathPerFlow { name: "ecmp", defaults: DefaultRoutes::Ecmp, most: MOST_PATHS, paths: FxHashMap::default() }
    }
}

impl Scheme for PathPerFlow {
    fn name(&self) -> &'static str {
        self.name
    }

    fn needs(&self) -> Needs {
        Needs { detection: Detection::Label, ..Needs::NOTHING }
    }

    fn handle(&mut self, _now: Nanos, event: &Event, view: &View, actions: &mut Vec<Action>) {
        match event {
            Event::Started => actions.push(Action::SetDefaults(self.defaults)),
            Event::LinkChanged { .. } => self.paths.clear(),
            Event::FlowArrived { flow } => {
                let Some(known) = view.flows.get(flow) else { return };
                let ends = (known.src_tor, known.dst_tor);
                let most = self.most;
                let paths = self.paths.entry(ends).or_insert_with(|| {
                    let all = ShortestPaths::between(&view.fabric, &view.links, ends.0, ends.1);
                    (0..most).map_while(|index| all.nth(index.into())).collect()
                });
                let turn = spread(&known.five_tuple) as usize % paths.len().max(1);
                if let Some(path) = paths.get(turn) {
                    actions.push(Action::Route { flow: *flow, path: path.clone(), rate_bps: None });
                }
            }
            _ => {}
        }
    }
}

/// A number that differs from flow to flow.
fn spread(tuple: &FiveTuple) -> u32 {
    let hosts = tuple.src().low().rotate_left(16) ^ tuple.dst().low();
    let ports = u32::from(tuple.src_port()) << 16 | u32::from(tuple.dst_port());
    (hosts ^ ports).wrapping_mul(0x9e37_79b1) >> 16
}
