//! spt with a path per flow: each labelled flow is put on the shortest path that spt's default routes would take anyway, so
//! that setting up a path is measured, and not a search for one.

use pathloom_model::search::ShortestPaths;
use pathloom_model::{Nanos, NodeId, Path};
use pathloom_scheme::{Action, DefaultRoutes, Detection, Event, Needs, Scheme, View};
use rustc_hash::FxHashMap;

/// The scheme.
#[derive(Default)]
pub(crate) struct ShortestPath {
    /// The path from one ToR to another, for a state of the links.
    paths: FxHashMap<(NodeId, NodeId), Option<Path>>,
}

impl Scheme for ShortestPath {
    fn name(&self) -> &'static str {
        "spt"
    }

    fn needs(&self) -> Needs {
        Needs { detection: Detection::Label, ..Needs::NOTHING }
    }

    fn handle(&mut self, _now: Nanos, event: &Event, view: &View, actions: &mut Vec<Action>) {
        match event {
            Event::Started => actions.push(Action::SetDefaults(DefaultRoutes::SinglePath)),
            Event::LinkChanged { .. } => self.paths.clear(),
            Event::FlowArrived { flow } => {
                let Some(known) = view.flows.get(flow) else { return };
                let ends = (known.src_tor, known.dst_tor);
                let path = self
                    .paths
                    .entry(ends)
                    .or_insert_with(|| ShortestPaths::between(&view.fabric, &view.links, ends.0, ends.1).nth(0));
                if let Some(path) = path {
                    actions.push(Action::Route { flow: *flow, path: path.clone(), rate_bps: None });
                }
            }
            _ => {}
        }
    }
}
