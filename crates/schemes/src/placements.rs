//! The flows of a view, and the paths that the placer of `pathloom-allocation` gives them.

use crate::allocation::{network_of, path_of, placed_flow};
use pathloom_allocation::placement::{PlacedFlow, Placer, PlacerSettings};
use pathloom_model::{LinkId, Path};
use pathloom_scheme::{FlowId, FlowView, View};

/// The intended path of each flow. Updated flow by flow. It is not kept over a restart; the adopted flows restore it.
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

    /// Adds a flow on its path in the view, or else gives it a path. A known flow keeps its path. Returns whether the
    /// flow runs between addresses of the fabric.
    pub(crate) fn arrive(&mut self, view: &View, id: FlowId) -> bool {
        let Some((flow, wanted)) = view.flows.get(&id).and_then(|flow| Some((flow, known(view, flow)?))) else {
            return false;
        };
        let standing = flow.intended_route().filter(|path| path.is_up(&view.links));
        let links = |path: &Path| path.links().iter().map(|link| link.0).collect::<Vec<u32>>();
        let adopted = standing.is_some_and(|path| self.0.adopt(id.0, wanted, &links(path)).is_ok());
        adopted || self.0.arrive(id.0, wanted).is_ok()
    }

    /// Whether a flow is known.
    pub(crate) fn has(&self, id: FlowId) -> bool {
        self.0.demand_bps(id.0).is_some()
    }

    /// The links that a flow crosses, without its access links; empty within a ToR.
    pub(crate) fn links(&self, id: FlowId) -> Option<&[u32]> {
        self.0.path(id.0)
    }

    /// Whether the demand on a link of a flow's path exceeds its capacity.
    pub(crate) fn is_squeezed(&self, id: FlowId) -> bool {
        self.links(id).is_some_and(|links| links.iter().any(|&link| self.is_overfull(link)))
    }

    /// Gives a flow the least loaded path, whatever its current path.
    pub(crate) fn place_anew(&mut self, view: &View, id: FlowId) {
        if let Some(wanted) = view.flows.get(&id).and_then(|flow| known(view, flow)) {
            self.0.depart(id.0);
            // It cannot fail: the identifier is free now, and the access links are the fabric's.
            let _ = self.0.arrive(id.0, wanted);
        }
    }

    /// Adds a flow without a path.
    pub(crate) fn wait(&mut self, view: &View, id: FlowId) {
        if let Some(wanted) = view.flows.get(&id).and_then(|flow| known(view, flow)) {
            // It fails for a known flow.
            let _ = self.0.wait(id.0, wanted);
        }
    }

    /// Removes a flow.
    pub(crate) fn depart(&mut self, id: FlowId) {
        self.0.depart(id.0);
    }

    /// Puts a flow back on its path in the view, because its intended path was refused.
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

    /// Sets the state of both directions of a cable. Returns the flows whose path has changed.
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

    /// The intended path of a flow; `None` if the flow is unknown, if no path is left, or within a ToR.
    pub(crate) fn path(&self, id: FlowId) -> Option<Path> {
        let links = self.0.path(id.0).filter(|links| !links.is_empty())?;
        Some(path_of(links))
    }

    /// B_f, the demand of a flow.
    pub(crate) fn demand_bps(&self, id: FlowId) -> Option<u64> {
        self.0.demand_bps(id.0)
    }

    /// Whether the demand on a link exceeds its capacity.
    pub(crate) fn is_overfull(&self, link: u32) -> bool {
        self.left_bps(link) < 0
    }

    /// The capacity of a link minus the demand on it.
    pub(crate) fn left_bps(&self, link: u32) -> i64 {
        self.0.network().capacity_bps(link) as i64 - self.0.load_bps(link) as i64
    }

    /// Whether the demand on any link exceeds its capacity.
    pub(crate) fn is_crowded(&self) -> bool {
        self.0.overfull_links() > 0
    }

    /// The placer itself.
    pub(crate) fn placer(&mut self) -> &mut Placer {
        &mut self.0
    }
}

/// A flow in the form of the placer; `None` if the fabric does not have its addresses.
fn known(view: &View, flow: &FlowView) -> Option<PlacedFlow> {
    access(view, flow).map(|_| placed_flow(view, flow))
}

/// The access links of a flow, and the rate of the slower one; `None` if the fabric does not have its addresses.
pub(crate) fn access(view: &View, flow: &FlowView) -> Option<([u32; 2], u64)> {
    let (src, dst) = (view.fabric.attachment(flow.five_tuple.src())?, view.fabric.attachment(flow.five_tuple.dst())?);
    let (up, down) = (src.uplink, dst.uplink.reverse());
    let rate_bps = |link| view.fabric.link(link).settings.rate_bps;
    Some(([up.0, down.0], rate_bps(up).min(rate_bps(down))))
}

/// The highest demand of a flow with a measured rate of `rate_bps`: twice this rate, because TCP at most doubles its
/// rate when there is room. A flow with a rate near zero may want a tenth of its access link.
pub(crate) fn most_wanted_bps(rate_bps: u64, access_bps: u64) -> u64 {
    rate_bps.saturating_mul(2).max(access_bps / 10)
}

/// Whether a path is the only one, so that flows take it without rules of their own: none of its switches has a further
/// link that is up to another switch.
pub(crate) fn is_only_way(view: &View, path: &Path) -> bool {
    let mut back = None;
    path.links().iter().all(|&link| {
        let came_by = back.replace(link.reverse());
        let ports = view.fabric.switch_ports(view.fabric.link(link).from);
        ports.iter().all(|port| port.link == link || Some(port.link) == came_by || !view.links.is_up(port.link))
    })
}
