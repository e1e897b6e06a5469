//! Transfers that began before the run: they continue on their paths. Senders of TCP also continue with their windows
//! ([`super::tcp`]).

use super::Hosts;
use crate::network::Network;
use crate::plan::EPHEMERAL;
use crate::run::Run;
use crate::tap::Tap;
use crate::time::to_nanos;
use pathloom_model::{FiveTuple, LinkId, LinkState, NodeId};
use std::collections::BTreeSet;

/// Source ports to try for a path. Among 16 equal paths, the chance to miss one is 3 in 10,000.
const TRIES: u32 = 128;

impl Hosts {
    /// Gives each transfer under way a source port with which switches hash it to the path that it had. It keeps its own
    /// port if there is no such port, or if switches do not choose by hash.
    pub(crate) fn keep_paths<T: Tap>(&mut self, network: &Network<T>) {
        if !self.transfers().any_under_way() || network.sprays() {
            return;
        }
        let up = LinkState::of(&self.shared.fabric);
        let mut used: BTreeSet<FiveTuple> = BTreeSet::new();
        for transfer in 0..self.transfers().len() as u32 {
            let path = match &self.transfers().spec(transfer).under_way {
                Some(state) if self.transfers().subflows(transfer).len() == 1 => state.path.clone(),
                _ => continue,
            };
            let found = self.port_of_path(network, transfer, &path, &used).filter(|_| self.is_open(&path, &up));
            if let Some(src_port) = found {
                self.shared.transfers.set_port(transfer, src_port);
            }
            used.insert(self.transfers().drawn(transfer));
        }
    }

    /// Whether neighbours on a path have a cable that is up.
    fn is_open(&self, path: &[NodeId], up: &LinkState) -> bool {
        let fabric = &self.shared.fabric;
        let is_up = |ends: &[NodeId]| {
            let mut ports = fabric.node(ends[0]).ports.iter();
            ports.any(|&link| fabric.link(link).to == ends[1] && up.is_up(link))
        };
        path.windows(2).all(is_up)
    }

    /// The first source port, from the drawn one on, with which the data of a transfer take this path.
    fn port_of_path<T: Tap>(
        &self,
        network: &Network<T>,
        transfer: u32,
        path: &[NodeId],
        used: &BTreeSet<FiveTuple>,
    ) -> Option<u16> {
        let (ends, fabric) = (self.transfers().subflows(transfer).first()?, &self.shared.fabric);
        let mut five_tuple = ends.five_tuple();
        let first = u32::from(five_tuple.src_port() - EPHEMERAL.start());
        let switches = |links: &[LinkId]| {
            let ends = links.iter().map(|&link| fabric.link(link).to);
            ends.filter(|&node| !fabric.is_host(node)).eq(path.iter().copied())
        };
        (0..TRIES).map(|tried| EPHEMERAL.start() + ((first + tried) % EPHEMERAL.len() as u32) as u16).find(
            |&src_port| {
                five_tuple = five_tuple.with_src_port(src_port);
                let headers = self.headers(transfer, five_tuple);
                !used.contains(&five_tuple) && switches(&network.trace(ends.src.uplink, headers))
            },
        )
    }

    /// The first window of a transfer under way has left. Acknowledgements pace what follows.
    pub(crate) fn first_window_sent<T: Tap>(&mut self, run: &mut Run<'_, T>, (slot, use_count): (u32, u32)) {
        if let Some(subflow) = self.tcp.subflows.current(slot, use_count) {
            subflow.sender.set_pace(to_nanos(run.now), None);
            self.tcp.pump(&mut self.shared, run, slot as usize);
        }
    }
}
