//! Results of flows under way, and the ways of subflows.

use super::FluidFlows;
use crate::network::Network;
use crate::outcome::{SubflowOutcome, SubflowPath};
use crate::tap::Tap;
use crate::time::Ps;
use crate::transfers::{Transfers, Work};
use pathloom_model::LinkId;

/// Payload of bytes with headers.
pub(super) fn payload(flows: &FluidFlows, wire_bytes: f64) -> u64 {
    (wire_bytes * f64::from(flows.settings.mss_bytes) / flows.settings.frame_bytes() as f64) as u64
}

/// Results by now of the transfers that have started and have not finished.
pub(in crate::hosts) fn work(flows: &FluidFlows, now: Ps) -> impl Iterator<Item = (u32, Work)> + '_ {
    let under_way = flows.transfers.iter().map(move |(&transfer, of)| {
        let bytes = of.slots.iter().map(|&slot| payload(flows, flows.get(slot).sent_by(now))).sum();
        (transfer, Work { delivered_bytes: bytes, arrived_bytes: bytes, ..Work::default() })
    });
    under_way.chain(flows.arriving.iter().map(|(&transfer, &work)| (transfer, work)))
}

/// Records from now on the way of each subflow when it closes.
pub(in crate::hosts) fn record_ways(flows: &mut FluidFlows) {
    flows.records_ways = true;
}

fn open_slots(flows: &FluidFlows) -> impl Iterator<Item = u32> + '_ {
    flows.transfers.values().flat_map(|of| &of.slots).copied()
}

pub(super) fn links_of(flows: &FluidFlows, slot: u32) -> Vec<LinkId> {
    flows.get(slot).ways[0].links.iter().map(|of| of.link).collect()
}

/// The ways of the subflows that closed since the last call and of the open ones, by transfer and five-tuple.
pub(in crate::hosts) fn take_ways<T: Tap>(flows: &mut FluidFlows, network: &Network<T>) -> Vec<SubflowPath> {
    let mut rows = std::mem::take(&mut flows.closed_ways);
    rows.extend(open_slots(flows).map(|slot| SubflowPath {
        transfer: flows.get(slot).transfer,
        five_tuple: network.links.lanes.five_tuple(slot as usize),
        links: links_of(flows, slot),
        why: None,
    }));
    rows.sort_by_key(|row| (row.transfer, row.five_tuple));
    rows
}

/// All subflows so far of transfers that have several, by transfer and five-tuple.
pub(in crate::hosts) fn subflow_outcomes<T: Tap>(
    flows: &FluidFlows,
    now: Ps,
    network: &Network<T>,
    transfers: &Transfers,
) -> Vec<SubflowOutcome> {
    let several = open_slots(flows).filter(|&slot| transfers.subflows(flows.get(slot).transfer).len() > 1);
    let open = several.map(|slot| SubflowOutcome {
        transfer: flows.get(slot).transfer,
        five_tuple: network.links.lanes.five_tuple(slot as usize),
        links: links_of(flows, slot),
        delivered_bytes: payload(flows, flows.get(slot).sent_by(now)),
        retransmits: 0,
        timeouts: 0,
    });
    let mut rows: Vec<SubflowOutcome> = flows.closed.iter().cloned().chain(open).collect();
    rows.sort_by_key(|row| (row.transfer, row.five_tuple));
    rows
}
