//! The flows that an agent has announced and not finished, by host. Flows of a host beyond its limit are refused and
//! use the default routes.

use pathloom_model::{FiveTuple, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// The flows of one agent.
#[derive(Debug, Default)]
pub(super) struct Announced(BTreeMap<NodeId, BTreeSet<FiveTuple>>);

impl Announced {
    /// Notes a flow of a host. Returns false if the host already has `most` other flows.
    pub(super) fn begin(&mut self, host: NodeId, flow: FiveTuple, most: usize) -> bool {
        let flows = self.0.entry(host).or_default();
        if flows.len() >= most && !flows.contains(&flow) {
            return false;
        }
        flows.insert(flow);
        true
    }

    /// Removes a flow that is over.
    pub(super) fn end(&mut self, host: NodeId, flow: &FiveTuple) {
        if let Some(flows) = self.0.get_mut(&host) {
            flows.remove(flow);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_model::Address;

    #[test]
    fn the_number_of_flows_per_host_is_limited() {
        let mut announced = Announced::default();
        let (src, dst) = (Address::new(10, 0, 0, 1), Address::new(10, 0, 7, 1));
        let flow = |src_port| FiveTuple::new(6, (src, src_port), (dst, 80));
        let taken = (0..1000).filter(|&port| announced.begin(NodeId(1), flow(port), 10)).count();
        assert_eq!(taken, 10);
        assert!(announced.begin(NodeId(1), flow(3), 10), "it is known");
        assert!(announced.begin(NodeId(2), flow(3), 10), "another host has its own");
        announced.end(NodeId(1), &flow(3));
        assert!(announced.begin(NodeId(1), flow(500), 10) && !announced.begin(NodeId(1), flow(501), 10));
    }
}
