//! Orders of the controller to hosts about their subflows: wait, continue, or send at this rate.

use super::Hosts;
use crate::agenda::{Agenda, Event};
use crate::network::Network;
use crate::subflow::Subflow;
use crate::tap::Tap;
use crate::time::{to_nanos, to_ps, Ps};
use pathloom_model::{FiveTuple, Nanos};

impl Hosts {
    /// Finds the subflow whose data have this five-tuple, unless it is closed or its host has no agent.
    fn find<T: Tap>(&mut self, network: &Network<T>, five_tuple: &FiveTuple) -> Option<(usize, &mut Subflow)> {
        let slot = network.lanes.slot(five_tuple).filter(|_| !self.acknowledge_packets())?;
        let subflow = self.subflows.get(slot);
        let has_agent = self.agents.at(self.transfers.spec(subflow.transfer).src);
        (has_agent && !subflow.closed).then_some((slot, subflow))
    }

    /// The controller sets the rate of a subflow; `None` removes the limit.
    pub(crate) fn pace<T: Tap>(
        &mut self,
        now: Ps,
        network: &mut Network<T>,
        agenda: &mut Agenda,
        five_tuple: &FiveTuple,
        rate_bps: Option<u64>,
    ) {
        if let Some((slot, subflow)) = self.find(network, five_tuple) {
            subflow.sender.set_pace(to_nanos(now), rate_bps);
            self.pump(now, network, agenda, slot);
        }
    }

    /// The controller makes a subflow wait until it is released or the lease ends.
    pub(crate) fn hold<T: Tap>(
        &mut self,
        now: Ps,
        network: &Network<T>,
        agenda: &mut Agenda,
        five_tuple: &FiveTuple,
        lease: Nanos,
    ) {
        let Some((slot, subflow)) = self.find(network, five_tuple) else { return };
        let until = now.saturating_add(to_ps(lease)).max(1);
        subflow.held_until = until;
        subflow.sender.set_hold(true);
        agenda.push(until, Event::LeaseOver { slot: slot as u32, use_count: subflow.use_count });
    }

    /// The lease of a hold has ended. The hold stays if a later order gave it a longer lease.
    pub(crate) fn lease_over<T: Tap>(
        &mut self,
        now: Ps,
        network: &mut Network<T>,
        agenda: &mut Agenda,
        (slot, use_count): (u32, u32),
    ) {
        if self.subflows.current(slot, use_count).is_some_and(|subflow| subflow.held_until <= now) {
            self.end_hold(now, network, agenda, slot as usize);
        }
    }

    /// The controller releases a subflow.
    pub(crate) fn let_go<T: Tap>(
        &mut self,
        now: Ps,
        network: &mut Network<T>,
        agenda: &mut Agenda,
        five_tuple: &FiveTuple,
    ) {
        if let Some((slot, _)) = self.find(network, five_tuple) {
            self.end_hold(now, network, agenda, slot);
        }
    }

    fn end_hold<T: Tap>(&mut self, now: Ps, network: &mut Network<T>, agenda: &mut Agenda, slot: usize) {
        let subflow = self.subflows.get(slot);
        if std::mem::replace(&mut subflow.held_until, 0) > 0 {
            subflow.sender.set_hold(false);
            self.pump(now, network, agenda, slot);
        }
    }

    /// Number of subflows that the controller holds.
    pub(crate) fn held(&self) -> usize {
        self.subflows.live().filter(|(_, subflow)| !subflow.closed && subflow.held_until > 0).count()
    }
}
