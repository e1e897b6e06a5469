//! Results of the subflows of transfers that have several: the path of each, and what it carried.

use crate::network::Network;
use crate::outcome::{SubflowOutcome, SubflowPath};
use crate::subflow::{Subflow, Subflows};
use crate::tap::Tap;
use crate::transfers::Transfers;
use pathloom_model::{FiveTuple, LinkId};

/// The subflows that have closed.
#[derive(Default)]
pub(crate) struct SubflowLog {
    outcomes: Vec<SubflowOutcome>,
    /// Whether the paths of subflows are recorded when they close.
    pub(crate) records_paths: bool,
    paths: Vec<SubflowPath>,
}

impl SubflowLog {
    /// Records a subflow that is about to close, with the path that its data would take now. `has_others` tells whether
    /// its transfer has several.
    pub(in crate::hosts) fn note<T: Tap>(
        &mut self,
        network: &Network<T>,
        slot: usize,
        subflow: &Subflow,
        has_others: bool,
    ) {
        let (transfer, five_tuple) = (subflow.transfer, network.links.lanes.five_tuple(slot));
        if self.records_paths {
            let links = links_of(network, slot, subflow);
            self.paths.push(SubflowPath { transfer, five_tuple, links, why: None });
        }
        if has_others {
            let links = links_of(network, slot, subflow);
            self.outcomes.push(SubflowOutcome { links, ..row_of(subflow, five_tuple) });
        }
    }

    /// Returns the paths of the subflows that closed since the last call and of the open ones, by transfer and
    /// five-tuple.
    pub(in crate::hosts) fn take_paths<T: Tap>(
        &mut self,
        network: &Network<T>,
        subflows: &Subflows,
    ) -> Vec<SubflowPath> {
        let mut rows = std::mem::take(&mut self.paths);
        let open = subflows.live().filter(|(_, subflow)| !subflow.closed).map(|(slot, subflow)| {
            let (transfer, five_tuple) = (subflow.transfer, network.links.lanes.five_tuple(slot));
            SubflowPath { transfer, five_tuple, links: links_of(network, slot, subflow), why: None }
        });
        rows.extend(open);
        rows.sort_by_key(|row| (row.transfer, row.five_tuple));
        rows
    }

    /// Returns all subflows so far of transfers that have several, by transfer and five-tuple.
    pub(in crate::hosts) fn outcomes<T: Tap>(
        &self,
        network: &Network<T>,
        subflows: &Subflows,
        transfers: &Transfers,
    ) -> Vec<SubflowOutcome> {
        let several = |subflow: &Subflow| !subflow.closed && transfers.subflows(subflow.transfer).len() > 1;
        let open = subflows.live().filter(|(_, subflow)| several(subflow)).map(|(slot, subflow)| {
            let row = row_of(subflow, network.links.lanes.five_tuple(slot));
            SubflowOutcome { links: links_of(network, slot, subflow), ..row }
        });
        let mut rows: Vec<SubflowOutcome> = self.outcomes.iter().cloned().chain(open).collect();
        rows.sort_by_key(|row| (row.transfer, row.five_tuple));
        rows
    }
}

/// Links that the data of a subflow would cross now.
fn links_of<T: Tap>(network: &Network<T>, slot: usize, subflow: &Subflow) -> Vec<LinkId> {
    network.trace(subflow.interfaces[0].uplink(), network.links.lanes.data(slot))
}

fn row_of(subflow: &Subflow, five_tuple: FiveTuple) -> SubflowOutcome {
    SubflowOutcome {
        transfer: subflow.transfer,
        five_tuple,
        links: Vec::new(),
        delivered_bytes: subflow.receiver.delivered_bytes() + subflow.sender.skipped_bytes(),
        retransmits: subflow.sender.retransmits(),
        timeouts: subflow.sender.timeouts(),
    }
}
