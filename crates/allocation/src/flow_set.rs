//! Flows, and the links that each of them crosses.

/// Flows with a list of links, a demand and a weight each. They are stored in flat arrays, so that iterating over a
/// hundred thousand of them is cheap.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowSet {
    /// Where the links of each flow begin in `links`. The last entry is the end of all links.
    starts: Vec<u32>,
    links: Vec<u32>,
    demands: Vec<f64>,
    weights: Vec<f64>,
}

impl Default for FlowSet {
    fn default() -> FlowSet {
        FlowSet::new()
    }
}

impl FlowSet {
    /// No flows.
    pub fn new() -> FlowSet {
        FlowSet { starts: vec![0], links: Vec::new(), demands: Vec::new(), weights: Vec::new() }
    }

    /// No flows, with capacity for this many flows that cross this many links in total.
    pub fn with_capacity(flows: usize, links: usize) -> FlowSet {
        let mut starts = Vec::with_capacity(flows + 1);
        starts.push(0);
        let (demands, weights) = (Vec::with_capacity(flows), Vec::with_capacity(flows));
        FlowSet { starts, links: Vec::with_capacity(links), demands, weights }
    }

    /// Adds a flow over `links` with infinite demand. Returns its index.
    pub fn push(&mut self, links: &[u32]) -> usize {
        self.push_with(links, f64::INFINITY, 1.0)
    }

    /// Adds a flow that takes at most `demand` (in the unit of the capacities). It gets `weight` times the share of a
    /// flow of weight 1. Returns its index.
    pub fn push_with(&mut self, links: &[u32], demand: f64, weight: f64) -> usize {
        self.links.extend_from_slice(links);
        self.starts.push(self.links.len() as u32);
        self.demands.push(demand);
        self.weights.push(weight);
        self.demands.len() - 1
    }

    /// Number of flows.
    pub fn len(&self) -> usize {
        self.demands.len()
    }

    /// Whether there are no flows.
    pub fn is_empty(&self) -> bool {
        self.demands.is_empty()
    }

    /// The links of a flow, in the given order.
    pub fn links(&self, flow: usize) -> &[u32] {
        &self.links[self.starts[flow] as usize..self.starts[flow + 1] as usize]
    }

    /// The demand of a flow; infinite if it has no limit.
    pub fn demand(&self, flow: usize) -> f64 {
        self.demands[flow]
    }

    /// The weight of a flow.
    pub fn weight(&self, flow: usize) -> f64 {
        self.weights[flow]
    }
}
