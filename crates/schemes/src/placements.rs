//! The flows of a view, and where the placer of `pathloom-mcf` wants them.

use crate::allocation::{network_of, path_of, placed_flow};
use pathloom_mcf::placement::{PlacedFlow, Placer, PlacerSettings};
use pathloom_model::{LinkId, Path};
use pathloom_scheme::{FlowId, FlowView, View};

/// Where flows are to be. Kept up to date flow by flow; what is lost with it in a restart comes back with the flows that
/// are adopted.
pub(crate) struct Placements(Placer);

impl Placements {
    /// No flows yet, on the fabric of the view.
    pub(crate) fn new(view: &View, settings: PlacerSettings) -> Placements {
        let mut placer = Placer::new(network_of(&view.fabric), settings);
        for link in view.links.down() {
            placer.set_link(link.0, false);
        }
        Placements(placer)
    }

    /// Takes a flow in where it stands in the view, or else gives it a path. A flow that is there already keeps its place.
    /// Tells whether the flow is one of the fabric's.
    pub(crate) fn arrive(&mut self, view: &View, id: FlowId) -> bool {
        let Some((flow, wanted)) = view.flows.get(&id).and_then(|flow| Some((flow, known(view, flow)?))) else {
            return false;
        };
        let standing = flow.intended_route().filter(|path| path.is_up(&view.links));
        let links = |path: &Path| path.links().iter().map(|link| link.0).collect::<Vec<u32>>();
        let adopted = standing.is_some_and(|path| self.0.adopt(id.0, wanted, &links(path)).is_ok());
        adopted || self.0.arrive(id.0, wanted).is_ok()
    }

    /// Whether a flow is there.
    pub(crate) fn has(&self, id: FlowId) -> bool {
        self.0.demand_bps(id.0).is_some()
    }

    /// Everything a flow crosses but its access links; empty within a ToR.
    pub(crate) fn links(&self, id: FlowId) -> Option<&[u32]> {
        self.0.path(id.0)
    }

    /// Whether a link of a flow's path is asked for more than it has.
    pub(crate) fn is_squeezed(&self, id: FlowId) -> bool {
        self.links(id).is_some_and(|links| links.iter().any(|&link| self.is_overfull(link)))
    }

    /// Gives a flow the lightest path, wherever it stands.
    pub(crate) fn place_anew(&mut self, view: &View, id: FlowId) {
        if let Some(wanted) = view.flows.get(&id).and_then(|flow| known(view, flow)) {
            self.0.depart(id.0);
            // The name is free now, and the access links are the fabric's.
            let _ = self.0.arrive(id.0, wanted);
        }
    }

    /// Takes a flow in without giving it a path yet.
    pub(crate) fn wait(&mut self, view: &View, id: FlowId) {
        if let Some(wanted) = view.flows.get(&id).and_then(|flow| known(view, flow)) {
            // It fails for a flow that is there already.
            let _ = self.0.wait(id.0, wanted);
        }
    }

    /// Takes a flow out.
    pub(crate) fn depart(&mut self, id: FlowId) {
        self.0.depart(id.0);
    }

    /// Puts a flow where the view has it: what was wanted for it is not to be.
    pub(crate) fn put_back(&mut self, view: &View, id: FlowId) {
        if self.0.depart(id.0) {
            self.arrive(view, id);
        }
    }

    /// Puts a flow on this path.
    pub(crate) fn move_to(&mut self, view: &View, id: FlowId, path: &Path) {
        if let Some(wanted) = view.flows.get(&id).and_then(|flow| known(view, flow)) {
            self.0.depart(id.0);
            let links: Vec<u32> = path.links().iter().map(|link| link.0).collect();
            if self.0.adopt(id.0, wanted, &links).is_err() {
                self.arrive(view, id);
            }
        }
    }

    /// Notes the state of both directions of a cable. Returns the flows whose path has changed.
    pub(crate) fn set_cable(&mut self, link: LinkId, up: bool) -> Vec<FlowId> {
        let mut changed: Vec<u64> = self.0.set_link(link.0, up);
        changed.extend(self.0.set_link(link.reverse().0, up));
        changed.sort_unstable();
        changed.dedup();
        changed.into_iter().map(FlowId).collect()
    }

    /// Whether traffic can cross a link.
    pub(crate) fn is_up(&self, link: LinkId) -> bool {
        self.0.is_up(link.0)
    }

    /// The path a flow is to be on; `None` for one that is not there, that no path is left for, or within a ToR.
    pub(crate) fn path(&self, id: FlowId) -> Option<Path> {
        let links = self.0.path(id.0).filter(|links| !links.is_empty())?;
        Some(path_of(links))
    }

    /// B_f, what a flow asks for.
    pub(crate) fn demand_bps(&self, id: FlowId) -> Option<u64> {
        self.0.demand_bps(id.0)
    }

    /// Whether the flows on a link ask for more than it has.
    pub(crate) fn is_overfull(&self, link: u32) -> bool {
        self.0.load_bps(link) > self.0.network().capacity_bps(link)
    }

    /// Whether any link is so.
    pub(crate) fn is_crowded(&self) -> bool {
        self.0.overfull_links() > 0
    }

    /// The placer itself.
    pub(crate) fn placer(&mut self) -> &mut Placer {
        &mut self.0
    }
}

/// A flow as the placer wants it; `None` if its addresses are none of the fabric's.
fn known(view: &View, flow: &FlowView) -> Option<PlacedFlow> {
    access(view, flow).map(|_| placed_flow(view, flow))
}

/// The access links of a flow, and the rate of the slower one; `None` if its addresses are none of the fabric's.
pub(crate) fn access(view: &View, flow: &FlowView) -> Option<([u32; 2], u64)> {
    let (src, dst) = (view.fabric.attachment(flow.five_tuple.src)?, view.fabric.attachment(flow.five_tuple.dst)?);
    let (up, down) = (src.uplink, dst.uplink.reverse());
    let rate_bps = |link| view.fabric.link(link).settings.rate_bps;
    Some(([up.0, down.0], rate_bps(up).min(rate_bps(down))))
}

/// What a flow that was seen at `rate_bps` may want: TCP at most doubles its rate when there is room, and whoever was
/// seen at next to nothing may want a tenth of its access link.
pub(crate) fn most_wanted_bps(rate_bps: u64, access_bps: u64) -> u64 {
    rate_bps.saturating_mul(2).max(access_bps / 10)
}

/// Whether a path is the only one there is, so that flows take it without being told: no switch of it has another way
/// than on and back.
pub(crate) fn is_only_way(view: &View, path: &Path) -> bool {
    let mut back = None;
    path.links().iter().all(|&link| {
        let came_by = back.replace(link.reverse());
        let ports = view.fabric.switch_ports(view.fabric.link(link).from);
        ports.iter().all(|port| port.link == link || Some(port.link) == came_by || !view.links.is_up(port.link))
    })
}
