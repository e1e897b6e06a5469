//! The data that a controller has.

use crate::{DefaultRoutes, FlowId, FlowMap, OptionU64, Shared};
use pathloom_model::{Attachment, Fabric, FiveTuple, LinkId, LinkState, Nanos, NodeId, Path};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The data that a controller has about one flow.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct FlowView {
    /// The five-tuple.
    pub five_tuple: FiveTuple,
    /// Sending host.
    pub src_host: NodeId,
    /// Receiving host.
    pub dst_host: NodeId,
    /// Source ToR: the switch of the sending port.
    pub src_tor: NodeId,
    /// Destination ToR: the switch of the receiving port.
    pub dst_tor: NodeId,
    /// When the controller first learned of the flow.
    pub arrived: Nanos,
    /// Payload bytes in total, if the application announced them.
    #[serde(default)]
    pub size_bytes: OptionU64,
    /// Token of the MPTCP connection that the flow belongs to, if it is known.
    pub mptcp_token: Option<u32>,
    /// Whether the flow was reported to the scheme (for example by [`crate::Event::FlowArrived`]).
    pub long: bool,
    /// The present path; `None` on the default routes.
    pub route: Option<Path>,
    /// A path that was requested and is not confirmed yet.
    pub pending: Option<Path>,
    /// The bandwidth that the scheme reserves for the flow, in bits per second.
    #[serde(default)]
    pub allocated_bps: OptionU64,
    /// Bytes counted at the source ToR at the last reading, headers included.
    pub bytes: u64,
    /// Rate over the last measuring period in bits per second, headers included.
    #[serde(default)]
    pub rate_bps: OptionU64,
}

impl FlowView {
    /// A flow on the default routes that was not reported to the scheme. Only its five-tuple, hosts, ToRs and arrival
    /// are known.
    pub fn new(five_tuple: FiveTuple, src: &Attachment, dst: &Attachment, arrived: Nanos) -> FlowView {
        FlowView {
            five_tuple,
            src_host: src.host,
            dst_host: dst.host,
            src_tor: src.tor,
            dst_tor: dst.tor,
            arrived,
            size_bytes: OptionU64::NONE,
            mptcp_token: None,
            long: false,
            route: None,
            pending: None,
            allocated_bps: OptionU64::NONE,
            bytes: 0,
            rate_bps: OptionU64::NONE,
        }
    }

    /// The load of the flow on its path in bits per second: the reserved bandwidth, or else the measured rate, or
    /// else 0.
    pub fn load_bps(&self) -> u64 {
        self.allocated_bps.get().or(self.rate_bps.get()).unwrap_or(0)
    }

    /// The path that the flow is about to take, or else its present one.
    pub fn intended_route(&self) -> Option<&Path> {
        self.pending.as_ref().or(self.route.as_ref())
    }
}

/// Weights of next hops by switch and destination ToR, as [`crate::Action::SetWeights`] set them.
pub type PlannedWeights = BTreeMap<(NodeId, NodeId), Vec<(LinkId, u16)>>;

/// The data that a controller has: the topology, its routes, measured rates and its own load. Nothing in it is known
/// only to the simulator. `clone` makes an owned snapshot, which shares the large parts with the original until they
/// change.
#[derive(Clone, Debug)]
pub struct View {
    /// The topology as configured or discovered.
    pub fabric: Arc<Fabric>,
    /// Which links are up.
    pub links: LinkState,
    /// The known flows, in order of arrival. Flows that are not long are included if the switches count them.
    pub flows: Shared<FlowMap<FlowView>>,
    /// How flows without a path of their own are routed.
    pub defaults: DefaultRoutes,
    /// Weights of next hops that the scheme has set.
    pub weights: Shared<PlannedWeights>,
    /// Share of about the last second in which the controller was busy, 0..=1.
    pub busy_share: f64,
    /// Round-trip time to each switch, by node index; `None` if it was not measured.
    pub switch_rtt: Shared<Vec<Option<Nanos>>>,
    /// When the first switch answered in the last round of measurements; `None` before that, or if no switch was
    /// asked.
    pub first_answer: Option<Nanos>,
    /// Mean load of each directed link between the last two readings of its port's counters, in bits per second, by
    /// link index; unknown before the second reading. Only with [`crate::Needs::link_loads_every`].
    pub link_load_bps: Shared<Vec<OptionU64>>,
}

impl View {
    /// The view of a controller that has just started on `fabric`.
    pub fn new(fabric: Arc<Fabric>) -> View {
        let links = LinkState::of(&fabric);
        let switch_rtt = Shared::from(vec![None; fabric.nodes().len()]);
        let link_load_bps = Shared::from(vec![OptionU64::NONE; fabric.links().len()]);
        View {
            fabric,
            links,
            flows: Shared::default(),
            defaults: DefaultRoutes::default(),
            weights: Shared::default(),
            busy_share: 0.0,
            switch_rtt,
            first_answer: None,
            link_load_bps,
        }
    }

    /// The flows that were reported to the scheme.
    pub fn long_flows(&self) -> impl Iterator<Item = (FlowId, &FlowView)> {
        self.flows.iter().filter(|(_, flow)| flow.long).map(|(&id, flow)| (id, flow))
    }

    /// The bandwidth that a path over these links has left: the minimum of rate minus load, in bits per second. `None`
    /// if a load is unknown.
    pub fn available_bps(&self, links: impl IntoIterator<Item = LinkId>) -> Option<u64> {
        let left = |link: LinkId| {
            let load_bps = self.link_load_bps.get(link.index())?.get()?;
            Some(self.fabric.link(link).settings.rate_bps.saturating_sub(load_bps))
        };
        links.into_iter().map(left).try_fold(u64::MAX, |least, left| Some(least.min(left?)))
    }

    /// The reserved bandwidth per directed link, in bits per second: the sum over the intended routes of all flows.
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
