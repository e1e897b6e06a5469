//! Orders of the controller to hosts: wait, continue, or send at this rate.

use super::FluidFlows;
use crate::agenda::Event;
use crate::hosts::shared::Shared;
use crate::run::Run;
use crate::tap::Tap;
use crate::time::to_ps;
use pathloom_control::Output;
use pathloom_model::FiveTuple;

/// Handles a message of the controller to a host.
pub(in crate::hosts) fn obey<T: Tap>(flows: &mut FluidFlows, shared: &Shared, run: &mut Run<'_, T>, order: &Output) {
    let (Output::HoldFlow { five_tuple, .. }
    | Output::ReleaseFlow { five_tuple, .. }
    | Output::PaceFlow { five_tuple, .. }) = order
    else {
        return;
    };
    let Some(slot) = find(flows, shared, run, five_tuple) else { return };
    let subflow = flows.get_mut(slot);
    match order {
        Output::HoldFlow { lease, .. } => {
            subflow.held_until = run.now.saturating_add(to_ps(*lease)).max(1);
            let lease_over = Event::LeaseOver { slot, use_count: subflow.use_count };
            run.agenda.push(subflow.held_until, lease_over);
        }
        Output::ReleaseFlow { .. } => subflow.held_until = 0,
        Output::PaceFlow { rate_bps, .. } => {
            subflow.pace_bps = rate_bps.map_or(f64::INFINITY, |rate_bps| rate_bps as f64);
        }
        _ => {}
    }
    set_demand(flows, slot);
}

/// The subflow whose data have this five-tuple, if its host has an agent.
fn find<T: Tap>(flows: &FluidFlows, shared: &Shared, run: &Run<'_, T>, five_tuple: &FiveTuple) -> Option<u32> {
    let slot = run.network.links.lanes.slot(five_tuple)? as u32;
    shared.has_agent(flows.get(slot).transfer).then_some(slot)
}

/// The lease of a hold has ended. The hold stays if a later order gave it a longer lease.
pub(in crate::hosts) fn lease_over<T: Tap>(flows: &mut FluidFlows, run: &Run<'_, T>, (slot, use_count): (u32, u32)) {
    let Some(subflow) = flows.current(slot, use_count) else { return };
    if subflow.held_until <= run.now {
        subflow.held_until = 0;
        set_demand(flows, slot);
    }
}

fn set_demand(flows: &mut FluidFlows, slot: u32) {
    let (number, demand) = (flows.get(slot).number, flows.get(slot).demand_bps());
    if let Some(number) = number {
        // The demand is a rate of at least 0, so there is no error.
        flows.shares.set_demand(number, demand).unwrap_or_default();
    }
}

/// Number of subflows that the controller holds.
pub(in crate::hosts) fn held(flows: &FluidFlows) -> usize {
    flows.transfers.values().flat_map(|of| &of.slots).filter(|&&slot| flows.get(slot).held_until > 0).count()
}
