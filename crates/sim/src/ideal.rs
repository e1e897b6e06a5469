//! What a transfer could come to if it had the fabric to itself.

use pathloom_model::{Attachment, Fabric, LinkId, LinkState, Nanos, NodeId};
use pathloom_transport::{Settings, HEADER_BYTES};
use pathloom_workload::Workload;
use std::collections::BTreeMap;

/// Yardsticks of the transfers of one workload on one fabric.
pub(crate) struct Ideals<'a> {
    fabric: &'a Fabric,
    settings: &'a Settings,
    /// Whether a host sends, and whether it receives, any long-lived transfer.
    sends: Vec<bool>,
    receives: Vec<bool>,
    /// One-way propagation between ToRs over the shortest path, worked out once per pair.
    propagation: BTreeMap<(NodeId, NodeId), u64>,
    state: LinkState,
}

impl<'a> Ideals<'a> {
    pub(crate) fn new(fabric: &'a Fabric, workload: &Workload, settings: &'a Settings) -> Ideals<'a> {
        let (mut sends, mut receives) = (vec![false; fabric.nodes().len()], vec![false; fabric.nodes().len()]);
        for flow in workload.flows.iter().filter(|flow| flow.size_bytes.is_none()) {
            sends[flow.src.index()] = true;
            receives[flow.dst.index()] = true;
        }
        let state = LinkState::of(fabric);
        Ideals { fabric, settings, sends, receives, propagation: BTreeMap::new(), state }
    }

    /// Payload rate of a long-lived transfer: its access link's rate, less headers, less the acknowledgements of other
    /// long-lived transfers that go the way of its data.
    pub(crate) fn optimum_bps(&self, src: &Attachment, dst: &Attachment) -> f64 {
        let mss = f64::from(self.settings.mss_bytes);
        let frame = mss + f64::from(HEADER_BYTES);
        let acks = f64::from(HEADER_BYTES) / f64::from(self.settings.ack_every);
        let share = |link: LinkId, acks_too: bool| {
            let rate = self.fabric.link(link).settings.rate_bps as f64;
            rate * mss / (frame + if acks_too { acks } else { 0.0 })
        };
        let up = share(src.uplink, self.receives[src.host.index()]);
        up.min(share(dst.uplink.reverse(), self.sends[dst.host.index()]))
    }

    /// Time for all frames of `size` at the slower access link, and for the last bit to travel.
    pub(crate) fn fct(&mut self, src: &Attachment, dst: &Attachment, size: u64) -> Nanos {
        let frames = size.div_ceil(u64::from(self.settings.mss_bytes));
        let bits = u128::from(size + frames * u64::from(HEADER_BYTES)) * 8;
        let rate = |link: LinkId| self.fabric.link(link).settings.rate_bps;
        let slower = rate(src.uplink).min(rate(dst.uplink.reverse()));
        let sending_ps = bits * 1_000_000_000_000 / u128::from(slower);
        let access_ps = self.delay(src.uplink) + self.delay(dst.uplink.reverse());
        let ps = sending_ps + u128::from(access_ps + self.between(src.tor, dst.tor));
        Nanos((ps / 1000).max(1) as u64)
    }

    fn delay(&self, link: LinkId) -> u64 {
        self.fabric.link(link).settings.delay_ps
    }

    fn between(&mut self, src: NodeId, dst: NodeId) -> u64 {
        if let Some(&known) = self.propagation.get(&(src, dst)) {
            return known;
        }
        let paths = pathloom_model::search::ShortestPaths::between(self.fabric, &self.state, src, dst);
        let delays = paths.iter().take(64).map(|path| path.links().iter().map(|&link| self.delay(link)).sum());
        let least = delays.min().unwrap_or(0);
        self.propagation.insert((src, dst), least);
        least
    }
}
