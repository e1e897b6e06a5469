//! The data of a placer on each flow and on each link.

use super::placer::PlacedFlow;
use crate::network::Network;
use std::cell::Cell;

/// A flow and its path.
#[derive(Clone, Debug)]
pub(super) struct FlowState {
    pub id: u64,
    pub flow: PlacedFlow,
    /// Node indices of its ToRs in the network; `None` if one of them has no links. Without meaning if both are the
    /// same ToR.
    pub ends: Option<(u32, u32)>,
    /// Links between its ToRs; `None` while it waits.
    pub path: Option<Box<[u32]>>,
    /// Its demand.
    pub demand_bps: u64,
}

impl PlacedFlow {
    /// Its access links, of source and destination.
    pub(super) fn access(&self) -> [Option<u32>; 2] {
        [self.src_access, self.dst_access]
    }
}

/// Loads of all links, and the flows on them. Loads are whole bits per second, so that a departure undoes an arrival.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    /// c(e), the capacity of each link.
    capacity_bps: Vec<i64>,
    /// c(e) − f(e), the bandwidth left on each link.
    left_bps: Vec<i64>,
    /// l(e), computed on request; NaN if the load has changed since.
    length: Vec<Cell<f64>>,
    /// Number of links whose demand exceeds their capacity.
    overfull: usize,
    /// Slots of the flows on each link; on an access link, including flows without a path.
    on_link: Vec<Vec<u32>>,
    /// By access link, the number of flows for which demands were last estimated.
    shared_by: Vec<u32>,
    ln_growth: f64,
    /// Number of changes so far.
    version: u64,
}

impl Ledger {
    pub(super) fn new(network: &Network, epsilon: f64) -> Ledger {
        let capacity = |capacity_bps: u64| i64::try_from(capacity_bps).unwrap_or(i64::MAX);
        let capacity_bps: Vec<i64> = network.links().iter().map(|link| capacity(link.capacity_bps)).collect();
        Ledger {
            left_bps: capacity_bps.clone(),
            length: vec![Cell::new(1.0); capacity_bps.len()],
            overfull: 0,
            on_link: vec![Vec::new(); capacity_bps.len()],
            shared_by: vec![0; capacity_bps.len()],
            capacity_bps,
            ln_growth: libm::log1p(epsilon.max(0.0)),
            version: 0,
        }
    }

    /// c(e) − f(e): negative if the demand on a link exceeds its capacity.
    pub(super) fn left_bps(&self, link: u32) -> i64 {
        self.left_bps[link as usize]
    }

    /// Links whose demand exceeds their capacity (by more than a thousandth), the most overfull first.
    pub(super) fn overfull_links(&self) -> Vec<u32> {
        let over = |&link: &u32| self.left_bps(link) < -self.capacity_bps(link) / 1000;
        let mut links: Vec<u32> = (0..self.capacity_bps.len() as u32).filter(over).collect();
        links.sort_by_key(|&link| (self.left_bps(link), link));
        links
    }

    /// A number that changes with every change of a load.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// c(e), the capacity of a link.
    pub(super) fn capacity_bps(&self, link: u32) -> i64 {
        self.capacity_bps[link as usize]
    }

    /// f(e), the load of a link.
    pub(super) fn load_bps(&self, link: u32) -> u64 {
        let capacity_bps = self.capacity_bps.get(link as usize).copied().unwrap_or(0);
        (capacity_bps - self.left_bps.get(link as usize).copied().unwrap_or(0)).max(0) as u64
    }

    /// l(e), the length of a link.
    pub(super) fn length(&self, link: u32) -> f64 {
        let (cell, link) = (&self.length[link as usize], link as usize);
        if cell.get().is_nan() {
            let capacity_bps = self.capacity_bps[link];
            let share = (capacity_bps - self.left_bps[link]) as f64 / capacity_bps.max(1) as f64;
            cell.set(libm::exp(self.ln_growth * share));
        }
        cell.get()
    }

    /// Number of links whose demand exceeds their capacity.
    pub(super) fn overfull(&self) -> usize {
        self.overfull
    }

    pub(super) fn on_link(&self, link: u32) -> &[u32] {
        self.on_link.get(link as usize).map_or(&[], Vec::as_slice)
    }

    pub(super) fn shared_by(&self, link: u32) -> u32 {
        self.shared_by[link as usize]
    }

    pub(super) fn set_shared_by(&mut self, link: u32, flows: u32) {
        self.shared_by[link as usize] = flows;
    }

    /// Adds a flow to its access links.
    pub(super) fn join(&mut self, slot: u32, access: [Option<u32>; 2]) {
        for link in access.into_iter().flatten() {
            self.on_link[link as usize].push(slot);
        }
    }

    pub(super) fn leave(&mut self, slot: u32, access: [Option<u32>; 2]) {
        for link in access.into_iter().flatten() {
            self.forget(slot, link);
        }
    }

    pub(super) fn add(&mut self, slot: u32, path: &[u32], demand_bps: u64) {
        self.change(path, 0, demand_bps);
        for &link in path {
            self.on_link[link as usize].push(slot);
        }
    }

    pub(super) fn remove(&mut self, slot: u32, path: &[u32], demand_bps: u64) {
        self.change(path, demand_bps, 0);
        for &link in path {
            self.forget(slot, link);
        }
    }

    pub(super) fn change(&mut self, path: &[u32], before_bps: u64, after_bps: u64) {
        self.version += 1;
        for &link in path {
            let link = link as usize;
            let was_overfull = self.left_bps[link] < 0;
            self.left_bps[link] -= after_bps as i64 - before_bps as i64;
            self.length[link].set(f64::NAN);
            self.overfull += usize::from(self.left_bps[link] < 0);
            self.overfull -= usize::from(was_overfull);
        }
    }

    fn forget(&mut self, slot: u32, link: u32) {
        let slots = &mut self.on_link[link as usize];
        if let Some(position) = slots.iter().position(|&other| other == slot) {
            slots.swap_remove(position);
        }
    }
}
