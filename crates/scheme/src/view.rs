//! What a controller truly knows.

use crate::{DefaultRoutes, FlowId, FlowMap, Known, Shared};
use pathloom_model::{Attachment, Fabric, FiveTuple, LinkState, Nanos, NodeId, Path};
use std::sync::Arc;

/// What a controller knows of one flow.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct FlowView {
    /// Its five-tuple.
    pub five_tuple: FiveTuple,
    /// Sending host.
    pub src_host: NodeId,
    /// Receiving host.
    pub dst_host: NodeId,
    /// Switch of the sending port.
    pub src_tor: NodeId,
    /// Switch of the receiving port.
    pub dst_tor: NodeId,
    /// When the controller first heard of it.
    pub arrived: Nanos,
    /// Payload bytes in all, if the application announced them.
    #[serde(default)]
    pub size_bytes: Known,
    /// Token of the MPTCP connection it belongs to.
    pub mptcp_token: Option<u32>,
    /// Whether the scheme was told of it ([`crate::Event::FlowArrived`] or adopted).
    pub long: bool,
    /// The path it is on; `None` on the default routes.
    pub route: Option<Path>,
    /// A path that was asked for and is not confirmed yet.
    pub pending: Option<Path>,
    /// The bandwidth the scheme counts on for it.
    #[serde(default)]
    pub allocated_bps: Known,
    /// Bytes counted at its source ToR, headers included, at the last reading.
    pub bytes: u64,
    /// Rate over the last measuring period, headers included.
    #[serde(default)]
    pub rate_bps: Known,
}

impl FlowView {
    /// A flow on the default routes of which nothing is known but where it runs, and that the scheme was not told of.
    pub fn new(five_tuple: FiveTuple, src: &Attachment, dst: &Attachment, arrived: Nanos) -> FlowView {
        FlowView {
            five_tuple,
            src_host: src.host,
            dst_host: dst.host,
            src_tor: src.tor,
            dst_tor: dst.tor,
            arrived,
            size_bytes: Known::NOTHING,
            mptcp_token: None,
            long: false,
            route: None,
            pending: None,
            allocated_bps: Known::NOTHING,
            bytes: 0,
            rate_bps: Known::NOTHING,
        }
    }

    /// What it puts on its path, as far as that is known: what the scheme counts on, or else what was measured; in bits
    /// per second.
    pub fn load_bps(&self) -> u64 {
        self.allocated_bps.get().or(self.rate_bps.get()).unwrap_or(0)
    }

    /// The path it is on, or is about to be on.
    pub fn intended_route(&self) -> Option<&Path> {
        self.pending.as_ref().or(self.route.as_ref())
    }
}

/// What a controller truly knows: the topology, its own routes, measured rates, its own load. Never what only the
/// simulator could know. `clone` takes an owned snapshot, which shares what is large with the original until that changes.
#[derive(Clone, Debug)]
pub struct View {
    /// The topology as configured or discovered.
    pub fabric: Arc<Fabric>,
    /// Which links are up.
    pub links: LinkState,
    /// Flows known, in order of arrival. Flows that are not long are here too, if the switches count them.
    pub flows: Shared<FlowMap<FlowView>>,
    /// How flows without a path of their own are routed.
    pub defaults: DefaultRoutes,
    /// Share of the last second or so that the controller was busy, 0..=1.
    pub busy_share: f64,
    /// Round-trip time to each switch, by node; `None` where none was measured.
    pub switch_rtt: Shared<Vec<Option<Nanos>>>,
    /// What each directed link carried between the last two readings of its port's counters, in bits per second, by link;
    /// nothing where there were none. Only with [`crate::Needs::link_loads_every`].
    pub link_load_bps: Shared<Vec<Known>>,
}

impl View {
    /// The view of a controller that has just started on `fabric`.
    pub fn new(fabric: Arc<Fabric>) -> View {
        let links = LinkState::of(&fabric);
        let switch_rtt = Shared::from(vec![None; fabric.nodes().len()]);
        let link_load_bps = Shared::from(vec![Known::NOTHING; fabric.links().len()]);
        View {
            fabric,
            links,
            flows: Shared::default(),
            defaults: DefaultRoutes::default(),
            busy_share: 0.0,
            switch_rtt,
            link_load_bps,
        }
    }

    /// The flows the scheme was told of.
    pub fn long_flows(&self) -> impl Iterator<Item = (FlowId, &FlowView)> {
        self.flows.iter().filter(|(_, flow)| flow.long).map(|(&id, flow)| (id, flow))
    }

    /// Bandwidth that the scheme counts on, summed per directed link over routes and pending routes.
    pub fn allocated_bps(&self) -> Vec<u64> {
        let mut sums = vec![0u64; self.fabric.links().len()];
        for flow in self.flows.values() {
            if let (Some(path), Some(rate_bps)) = (flow.intended_route(), flow.allocated_bps.get()) {
                for link in path.links() {
                    sums[link.index()] += rate_bps;
                }
            }
        }
        sums
    }
}
