//! Counters of rules and links, brought up to date before somebody reads them.

use super::terms::ack_ratio;
use super::FluidFlows;
use crate::network::WalkedLink;
use crate::run::Run;
use crate::tap::Tap;
use crate::time::Ps;
use pathloom_control::Output;
use pathloom_model::{LinkId, NodeId};

/// Brings the counters up to date that a switch is about to read for a message of the controller.
pub(in crate::hosts) fn count_for<T: Tap>(flows: &mut FluidFlows, run: &mut Run<'_, T>, output: &Output) {
    match output {
        Output::FlowStatsRequest { switch } | Output::PortStatsRequest { switch } => count_at(flows, run, *switch),
        Output::DeleteRule { switch, key, .. } => match key.matches.only_five_tuple() {
            Some(flow) => {
                for lane in run.network.links.lanes.lanes(&flow).into_iter().flatten() {
                    flows.get_mut(lane >> 1).advance(run.now);
                    count(flows, run, lane >> 1);
                }
            }
            None => count_at(flows, run, *switch),
        },
        _ => {}
    }
}

/// Brings all counters of a switch up to date.
pub(in crate::hosts) fn count_at<T: Tap>(flows: &mut FluidFlows, run: &mut Run<'_, T>, switch: NodeId) {
    for slot in flows.crossing(switch) {
        flows.get_mut(slot).advance(run.now);
        count(flows, run, slot);
    }
}

/// Counts what a subflow has sent, up to the last change of its rate, in the rules and links of its ways.
pub(super) fn count<T: Tap>(flows: &mut FluidFlows, run: &mut Run<'_, T>, slot: u32) {
    let subflow = flows.get(slot);
    let (before, after) = (subflow.counted_bytes, subflow.sent_bytes);
    if after <= before {
        return;
    }
    let frames = [flows.settings.frame_bytes() as f64, f64::from(flows.settings.header_bytes)];
    let ratios = [1.0, ack_ratio(&flows.settings)];
    for (way, (frame, ratio)) in subflow.ways.iter().zip(frames.into_iter().zip(ratios)) {
        for WalkedLink { link, share, sent_by } in &way.links {
            let part = share * ratio;
            if let Some(carried) = &mut run.network.links.carried_bytes {
                carried[link.index()] += (after - before) * part;
            }
            if let Some((switch, rules)) = sent_by {
                // Differences of whole numbers, so that no part of a byte is lost between two readings.
                let whole = |unit: f64| ((after * part / unit) as u64).saturating_sub((before * part / unit) as u64);
                run.network.credit_rules(run.now, *switch, rules, [whole(frame), whole(1.0)]);
            }
        }
    }
    flows.get_mut(slot).counted_bytes = after;
}

/// Bytes that each link has carried by now, where `counted` are those of the counters.
pub(in crate::hosts) fn carried(flows: &FluidFlows, now: Ps, counted: &[f64]) -> Vec<f64> {
    let mut carried = counted.to_vec();
    let ratio = ack_ratio(&flows.settings);
    let open = flows.transfers.values().flat_map(|of| &of.slots).map(|&slot| flows.get(slot));
    for subflow in open {
        let more = subflow.sent_by(now) - subflow.counted_bytes;
        for (way, ratio) in subflow.ways.iter().zip([1.0, ratio]) {
            way.links.iter().for_each(|of| carried[of.link.index()] += more * of.share * ratio);
        }
    }
    carried
}

/// Time in ps during which a link was busy to carry these bytes, at its rate in the fabric.
pub(in crate::hosts) fn busy_ps(flows: &FluidFlows, link: LinkId, bytes: f64) -> f64 {
    bytes * 8e12 / flows.fabric.link(link).settings.rate_bps as f64
}
