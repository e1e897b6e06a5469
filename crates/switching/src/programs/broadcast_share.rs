//! How much of a leaf's traffic are explorations (tcp-path.txt §V.D.2).

/// A leaf-spine fabric and its flows, all of them between leaves.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BroadcastShare {
    /// Spines, N_S.
    pub spines: u32,
    /// Leaves, N_L.
    pub leaves: u32,
    /// Bytes of a Path Request, L_B; 64 in the paper.
    pub request_bytes: f64,
    /// Mean bytes of a flow, L_F; 1.90 and 2.97 MB in the paper.
    pub flow_bytes: f64,
    /// Share of the flows that explore: 1 for TCP-Path, 0.05 for TFE in the paper.
    pub exploring: f64,
}

impl BroadcastShare {
    /// Bytes of explorations that a leaf receives, per flow of the fabric (equation 1, without N_F).
    pub fn broadcast_bytes_per_flow(&self) -> f64 {
        let (spines, leaves) = (f64::from(self.spines), f64::from(self.leaves));
        spines * (leaves - 1.0) / leaves * self.request_bytes * self.exploring
    }

    /// Bytes of data that a leaf forwards, per flow of the fabric (equation 2, without N_F).
    pub fn data_bytes_per_flow(&self) -> f64 {
        2.0 / f64::from(self.leaves) * self.flow_bytes
    }

    /// Broadcast bytes divided by data bytes at a leaf (equation 3): N_S (N_L − 1) / 2 · L_B / L_F.
    pub fn ratio(&self) -> f64 {
        let pairs = f64::from(self.spines) * (f64::from(self.leaves) - 1.0);
        pairs / 2.0 * self.request_bytes / self.flow_bytes * self.exploring
    }
}
