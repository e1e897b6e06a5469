//! Best possible results of a transfer: as if it had the fabric to itself.

use crate::plan::{Ends, Plan};
use pathloom_model::{Fabric, LinkId, LinkState, Nanos, NodeId};
use pathloom_transport::Settings;
use pathloom_workload::Workload;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Computes reference values for the transfers of one workload on one fabric.
pub(crate) struct Ideals {
    fabric: Arc<Fabric>,
    settings: Settings,
    /// By uplink of an interface: whether a long-lived transfer sends by that interface, and whether one receives by
    /// it.
    sends: Vec<bool>,
    receives: Vec<bool>,
    /// One-way propagation delay between ToRs over the shortest path, computed once per pair.
    propagation: BTreeMap<(NodeId, NodeId), u64>,
    state: LinkState,
}

impl Ideals {
    pub(crate) fn new(fabric: &Arc<Fabric>, workload: &Workload, plan: &Plan, settings: &Settings) -> Ideals {
        let (mut sends, mut receives) = (vec![false; fabric.links().len()], vec![false; fabric.links().len()]);
        let long_lived = |index: &u32| workload.flows[*index as usize].size_bytes.is_none();
        for ends in (0..workload.flows.len() as u32).filter(long_lived).flat_map(|transfer| plan.of(transfer)) {
            sends[ends.src.uplink.index()] = true;
            receives[ends.dst.uplink.index()] = true;
        }
        let state = LinkState::of(fabric);
        Ideals {
            fabric: fabric.clone(),
            settings: settings.clone(),
            sends,
            receives,
            propagation: BTreeMap::new(),
            state,
        }
    }

    /// Payload rate of a long-lived transfer: the rates of the access links of its subflows, less headers, less the
    /// acknowledgements of other long-lived transfers that take the same direction as its data.
    pub(crate) fn optimum_bps(&self, subflows: &[Ends]) -> f64 {
        let mss = f64::from(self.settings.mss_bytes);
        let frame = mss + f64::from(self.settings.header_bytes);
        let acks = f64::from(self.settings.header_bytes) / f64::from(self.settings.ack_every);
        let share = |link: LinkId, acks_too: bool| {
            let rate = self.fabric.link(link).settings.rate_bps as f64;
            rate * mss / (frame + if acks_too { acks } else { 0.0 })
        };
        let [up, down] = access_links(subflows);
        let up: f64 = up.into_iter().map(|link| share(link, self.receives[link.index()])).sum();
        up.min(down.into_iter().map(|link| share(link, self.sends[link.reverse().index()])).sum())
    }

    /// Time to send all frames of `size` over the access links of the slower end, plus the propagation delay.
    pub(crate) fn fct(&mut self, subflows: &[Ends], size: u64) -> Nanos {
        let frames = size.div_ceil(u64::from(self.settings.mss_bytes));
        let bits = u128::from(size + frames * u64::from(self.settings.header_bytes)) * 8;
        let rate = |links: Vec<LinkId>| links.iter().map(|&link| self.fabric.link(link).settings.rate_bps).sum::<u64>();
        let [up, down] = access_links(subflows).map(rate);
        let sending_ps = bits * 1_000_000_000_000 / u128::from(up.min(down));
        let travel_ps = |ends: &Ends| {
            let access_ps = self.delay(ends.src.uplink) + self.delay(ends.dst.uplink.reverse());
            access_ps + self.between(ends.src.tor, ends.dst.tor)
        };
        let ps = sending_ps + u128::from(subflows.iter().map(travel_ps).min().unwrap_or(0));
        Nanos((ps / 1000).max(1) as u64)
    }

    fn delay(&self, link: LinkId) -> u64 {
        self.fabric.link(link).settings.delay_ps
    }

    fn between(&mut self, src: NodeId, dst: NodeId) -> u64 {
        if let Some(&known) = self.propagation.get(&(src, dst)) {
            return known;
        }
        let paths = pathloom_model::search::ShortestPaths::between(&self.fabric, &self.state, src, dst);
        let delays = paths.iter().take(64).map(|path| path.links().iter().map(|&link| self.delay(link)).sum());
        let least = delays.min().unwrap_or(0);
        self.propagation.insert((src, dst), least);
        least
    }
}

/// Links by which subflows leave their host, and links by which they reach the other host. Each link appears once.
fn access_links(subflows: &[Ends]) -> [Vec<LinkId>; 2] {
    let once = |link: fn(&Ends) -> LinkId| {
        let mut links: Vec<LinkId> = subflows.iter().map(link).collect();
        links.sort_unstable();
        links.dedup();
        links
    };
    [once(|ends| ends.src.uplink), once(|ends| ends.dst.uplink.reverse())]
}
