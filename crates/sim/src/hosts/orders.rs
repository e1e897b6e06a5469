//! Orders of the controller to hosts about their subflows: wait, continue, or send at this rate.

use super::fluid::orders as fluid_orders;
use super::Hosts;
use crate::agenda::Event;
use crate::run::Run;
use crate::tap::Tap;
use crate::time::{to_nanos, to_ps};
use pathloom_control::Output;
use pathloom_model::{FiveTuple, Nanos};

impl Hosts {
    /// Handles a message of the controller to a host. Messages to switches are ignored.
    pub(crate) fn obey<T: Tap>(&mut self, run: &mut Run<'_, T>, order: Output) {
        if let Some(fluid) = &mut self.fluid {
            return fluid_orders::obey(fluid, &self.shared, run, &order);
        }
        match order {
            Output::HoldFlow { five_tuple, lease, .. } => self.hold(run, &five_tuple, lease),
            Output::ReleaseFlow { five_tuple, .. } => {
                if let Some(slot) = self.find(run, &five_tuple) {
                    self.end_hold(run, slot);
                }
            }
            Output::PaceFlow { five_tuple, rate_bps, .. } => {
                if let Some(slot) = self.find(run, &five_tuple) {
                    self.tcp.subflows.get(slot).sender.set_pace(to_nanos(run.now), rate_bps);
                    self.tcp.pump(&mut self.shared, run, slot);
                }
            }
            Output::Assigned { request, answer, available_bps } => {
                let answer = answer.map(|assigned| (assigned, available_bps));
                self.tcp.assigned(&mut self.shared, run, request, answer);
            }
            Output::Claimed { request, .. } => self.tcp.claimed(&mut self.shared, run, request),
            _ => {}
        }
    }

    /// Finds the subflow whose data have this five-tuple, unless it is closed or its host has no agent.
    fn find<T: Tap>(&mut self, run: &Run<'_, T>, five_tuple: &FiveTuple) -> Option<usize> {
        let slot = run.network.links.lanes.slot(five_tuple).filter(|_| !self.acknowledge_packets())?;
        let subflow = self.tcp.subflows.get(slot);
        (self.shared.has_agent(subflow.transfer) && !subflow.closed).then_some(slot)
    }

    /// The controller makes a subflow wait until it is released or the lease ends.
    fn hold<T: Tap>(&mut self, run: &mut Run<'_, T>, five_tuple: &FiveTuple, lease: Nanos) {
        let Some(slot) = self.find(run, five_tuple) else { return };
        let until = run.now.saturating_add(to_ps(lease)).max(1);
        let subflow = self.tcp.subflows.get(slot);
        subflow.held_until = until;
        subflow.sender.set_hold(true);
        run.agenda.push(until, Event::LeaseOver { slot: slot as u32, use_count: subflow.use_count });
    }

    /// The lease of a hold has ended. The hold stays if a later order gave it a longer lease.
    pub(crate) fn lease_over<T: Tap>(&mut self, run: &mut Run<'_, T>, (slot, use_count): (u32, u32)) {
        if let Some(fluid) = &mut self.fluid {
            return fluid_orders::lease_over(fluid, run, (slot, use_count));
        }
        if self.tcp.subflows.current(slot, use_count).is_some_and(|subflow| subflow.held_until <= run.now) {
            self.end_hold(run, slot as usize);
        }
    }

    fn end_hold<T: Tap>(&mut self, run: &mut Run<'_, T>, slot: usize) {
        let subflow = self.tcp.subflows.get(slot);
        if std::mem::replace(&mut subflow.held_until, 0) > 0 {
            subflow.sender.set_hold(false);
            self.tcp.pump(&mut self.shared, run, slot);
        }
    }

    /// Number of subflows that the controller holds.
    pub(crate) fn held(&self) -> usize {
        let held = self.tcp.subflows.live().filter(|(_, subflow)| !subflow.closed && subflow.held_until > 0).count();
        held + self.fluid.as_ref().map_or(0, |fluid| fluid_orders::held(fluid))
    }
}
