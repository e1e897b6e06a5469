//! Results of the subflows of transfers that have several: the path of each, and what it carried.

use super::Hosts;
use crate::network::Network;
use crate::outcome::{SubflowOutcome, SubflowPath};
use crate::subflow::Subflow;
use crate::tap::Tap;
use pathloom_model::FiveTuple;

impl Hosts {
    /// Records a subflow that is about to close, with the path that its data would take now.
    pub(super) fn note_subflow<T: Tap>(&mut self, network: &Network<T>, slot: usize) {
        let five_tuple = network.lanes.five_tuple(slot);
        let subflow = self.subflows.get(slot);
        let (transfer, uplink) = (subflow.transfer, subflow.interfaces[0].uplink());
        if self.records_paths {
            let links = network.trace(uplink, self.headers(transfer, five_tuple));
            self.closed_paths.push(SubflowPath { transfer, five_tuple, links, why: None });
        }
        let subflow = self.subflows.get(slot);
        if self.transfers.subflows(subflow.transfer).len() > 1 {
            let mut row = row_of(subflow, five_tuple);
            row.links = network.trace(uplink, self.headers(row.transfer, five_tuple));
            self.closed_subflows.push(row);
        }
    }

    /// Returns the paths of the subflows that closed since the last call and of the open ones, by transfer and
    /// five-tuple.
    pub(crate) fn take_subflow_paths<T: Tap>(&mut self, network: &Network<T>) -> Vec<SubflowPath> {
        let mut rows = std::mem::take(&mut self.closed_paths);
        let open = self.subflows.live().filter(|(_, subflow)| !subflow.closed).map(|(slot, subflow)| {
            let (transfer, five_tuple) = (subflow.transfer, network.lanes.five_tuple(slot));
            let links = network.trace(subflow.interfaces[0].uplink(), self.headers(transfer, five_tuple));
            SubflowPath { transfer, five_tuple, links, why: None }
        });
        rows.extend(open);
        rows.sort_by_key(|row| (row.transfer, row.five_tuple));
        rows
    }

    /// Returns all subflows so far of transfers that have several, by transfer and five-tuple.
    pub(crate) fn subflow_outcomes<T: Tap>(&self, network: &Network<T>) -> Vec<SubflowOutcome> {
        let several = |subflow: &Subflow| !subflow.closed && self.transfers.subflows(subflow.transfer).len() > 1;
        let open = self.subflows.live().filter(|(_, subflow)| several(subflow)).map(|(slot, subflow)| {
            let five_tuple = network.lanes.five_tuple(slot);
            let links = network.trace(subflow.interfaces[0].uplink(), self.headers(subflow.transfer, five_tuple));
            SubflowOutcome { links, ..row_of(subflow, five_tuple) }
        });
        let mut rows: Vec<SubflowOutcome> = self.closed_subflows.iter().cloned().chain(open).collect();
        rows.sort_by_key(|row| (row.transfer, row.five_tuple));
        rows
    }
}

fn row_of(subflow: &Subflow, five_tuple: FiveTuple) -> SubflowOutcome {
    SubflowOutcome {
        transfer: subflow.transfer,
        five_tuple,
        links: Vec::new(),
        delivered_bytes: subflow.receiver.delivered_bytes(),
        retransmits: subflow.sender.retransmits(),
        timeouts: subflow.sender.timeouts(),
    }
}
