//! Share of explorations in the traffic of a leaf (tcp-path.txt §V.D.2).

/// A leaf-spine fabric and its flows, which are all between leaves.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BroadcastShare {
    /// Number of spines, N_S.
    pub spines: u32,
    /// Number of leaves, N_L.
    pub leaves: u32,
    /// Bytes of a Path Request, L_B; 64 in the paper.
    pub request_bytes: f64,
    /// Mean bytes of a flow, L_F; 1.90 and 2.97 MB in the paper.
    pub flow_bytes: f64,
    /// Share of the flows that explore: 1 for TCP-Path and 0.05 for TFE in the paper.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(spines: u32, leaves: u32, flow_bytes: f64, exploring: f64) -> f64 {
        BroadcastShare { spines, leaves, request_bytes: 64.0, flow_bytes, exploring }.ratio() * 100.0
    }

    /// Values computed by hand from equation 3. The text of the paper does not contain the cells of Table 2. A test
    /// below checks the statements of the text about them.
    #[test]
    fn follows_the_formula() {
        // 4 · 3 / 2 · 64 / 1,900,000 = 384 / 1,900,000
        assert!((percent(4, 4, 1.90e6, 1.0) - 0.020_210_526_315_789_47).abs() < 1e-15);
        // 384 / 2,970,000
        assert!((percent(4, 4, 2.97e6, 1.0) - 0.012_929_292_929_292_93).abs() < 1e-15);
        // 16 · 31 / 2 · 64 · 0.05 / 1,900,000 = 793.6 / 1,900,000
        assert!((percent(16, 32, 1.90e6, 0.05) - 0.041_768_421_052_631_58).abs() < 1e-15);
    }

    #[test]
    fn is_the_quotient_of_both_loads() {
        for (spines, leaves) in [(4, 4), (8, 16), (128, 128)] {
            let share = BroadcastShare { spines, leaves, request_bytes: 64.0, flow_bytes: 1.9e6, exploring: 0.05 };
            let quotient = share.broadcast_bytes_per_flow() / share.data_bytes_per_flow();
            assert!((share.ratio() - quotient).abs() < 1e-15);
        }
    }

    /// "The ratio is almost 20 times lower for TFE than for TCP-Path and stays at the 1 % threshold even for a 128 leaf
    /// switch scenario" (§V.D.2).
    #[test]
    fn agrees_with_the_text_about_table_2() {
        let whole = percent(128, 128, 1.90e6, 1.0);
        let elephants = percent(128, 128, 1.90e6, 0.05);
        assert!((whole / elephants - 20.0).abs() < 1e-9);
        assert!((elephants - 1.0).abs() < 0.5 && (percent(128, 128, 2.97e6, 0.05) - 1.0).abs() < 0.5);
    }
}
