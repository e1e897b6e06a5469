//! The rates of flows, which follow every change of flows, rules and links.

use super::counters::count;
use super::terms::ack_ratio;
use super::{FluidFlows, State};
use crate::agenda::Event;
use crate::network::Change;
use crate::run::Run;
use crate::tap::Tap;
use crate::time::{Ps, NEVER};
use pathloom_allocation::incremental::LinkUse;
use pathloom_model::{Headers, LinkId, NodeId};
use pathloom_switching::Stale;
use pathloom_transport::mptcp::Coupling;
use std::collections::BTreeSet;

impl FluidFlows {
    /// Finds the ways of a subflow by the present rules. An open one shares their links from now on.
    pub(super) fn walk<T: Tap>(&mut self, run: &mut Run<'_, T>, slot: u32) {
        let data = run.network.links.lanes.data(slot as usize);
        let acks = Headers { five_tuple: data.five_tuple.reverse(), ..data };
        let ends = self.get(slot).ends;
        let of = |(at, headers): (LinkId, Headers)| run.network.ways().walk(at, headers, self.splits);
        let ways = [(ends.src.uplink, data), (ends.dst.uplink, acks)].map(of);
        if self.get(slot).ways != ways {
            self.get_mut(slot).advance(run.now);
            count(self, run, slot);
            self.get_mut(slot).ways = ways;
            self.get_mut(slot).walked_after = self.changes;
        } else if self.get(slot).number.is_some() {
            return;
        }
        if self.get(slot).state == State::Open {
            self.share(slot);
        }
    }

    /// Lets a subflow that has just opened share links. If nothing has changed since its ways were found, they still hold;
    /// changes that are not followed yet move it later.
    pub(super) fn begin_to_share<T: Tap>(&mut self, run: &mut Run<'_, T>, slot: u32) {
        match self.get(slot).walked_after == self.changes {
            true => self.share(slot),
            false => self.walk(run, slot),
        }
    }

    /// Lets an open subflow share the links of its ways. If its data do not arrive, it has no rate.
    fn share(&mut self, slot: u32) {
        let ratio = ack_ratio(&self.settings);
        let [data, acks] = &self.get(slot).ways;
        let use_of = |link: LinkId, share: f64| LinkUse { link: link.0, share };
        let of_data = data.links.iter().map(|of| use_of(of.link, of.share));
        let uses: Vec<LinkUse> = of_data.chain(acks.links.iter().map(|of| use_of(of.link, of.share * ratio))).collect();
        if !data.arrives || !acks.arrives {
            self.leave(slot);
            self.lost.insert(slot);
            return;
        }
        self.lost.remove(&slot);
        let (number, demand) = (self.get(slot).number, self.get(slot).demand_bps());
        // Links are those of the fabric, and shares are positive, so there is no error.
        let number = match number {
            Some(number) => self.shares.set_uses(number, &uses).ok().map(|()| number),
            None => self.shares.add(&uses, demand, self.weight(slot)).ok(),
        };
        self.get_mut(slot).number = number;
        if let Some(number) = number {
            if self.slot_of.len() <= number as usize {
                self.slot_of.resize(number as usize + 1, 0);
            }
            self.slot_of[number as usize] = slot;
        }
    }

    /// Fair share of a subflow, where a flow of one path has 1. Coupled windows give all subflows of a connection that
    /// meet at a link the share of one flow (RFC 6356 §2). Here each has its part of it at every link.
    fn weight(&self, slot: u32) -> f64 {
        match self.coupling {
            None | Some(Coupling::Uncoupled) => 1.0,
            Some(_) => self.transfers.get(&self.get(slot).transfer).map_or(1.0, |of| 1.0 / f64::from(of.parts)),
        }
    }

    /// A subflow no longer shares links.
    pub(super) fn leave(&mut self, slot: u32) {
        if let Some(number) = self.get_mut(slot).number.take() {
            self.shares.remove(number);
        }
        self.get_mut(slot).rate_bps = 0.0;
    }

    /// Follows the changes since the last call: flows move, links have other capacities, and all rates are right again. To
    /// be called before the time advances.
    pub(in crate::hosts) fn update<T: Tap>(&mut self, run: &mut Run<'_, T>) {
        let mut moved = BTreeSet::new();
        let changes = run.network.take_changes();
        self.changes += u64::from(!changes.is_empty());
        for change in changes {
            moved.append(&mut self.lost.clone());
            match change {
                Change::Rules(_, Stale::Nothing) => {}
                Change::Rules(_, Stale::Flows(flows)) => {
                    let lanes = flows.iter().flat_map(|flow| run.network.links.lanes.lanes(flow));
                    moved.extend(lanes.flatten().map(|lane| lane >> 1));
                }
                Change::Rules(node, Stale::Everything) => moved.extend(self.crossing(node)),
                Change::Link(link) => {
                    let queue = &run.network.links[link.index()];
                    let capacity = if queue.is_up() { queue.rate_bps() as f64 } else { 0.0 };
                    // Capacities are whole numbers, so there is no error.
                    self.shares.set_capacity(link.0, capacity).unwrap_or_default();
                }
            }
        }
        let mut transfers = BTreeSet::new();
        for slot in moved {
            if self.get(slot).state == State::Open {
                self.walk(run, slot);
                transfers.insert(self.get(slot).transfer);
            }
        }
        let changed = self.shares.update().to_vec();
        for number in changed {
            let slot = self.slot_of[number as usize];
            let rate_bps = self.shares.rate(number);
            let subflow = self.get_mut(slot);
            subflow.advance(run.now);
            subflow.rate_bps = rate_bps;
            transfers.insert(subflow.transfer);
        }
        for transfer in transfers {
            self.expect(run, transfer);
        }
    }

    /// The subflows that cross a node, or pass data or acknowledgements to it.
    pub(super) fn crossing(&self, node: NodeId) -> BTreeSet<u32> {
        let ports = self.fabric.node(node).ports.iter();
        let numbers = ports.flat_map(|link| self.shares.crossing(link.reverse().0));
        numbers.map(|number| self.slot_of[number as usize]).collect()
    }

    /// Computes when the last byte of a transfer leaves at the present rates.
    fn expect<T: Tap>(&mut self, run: &mut Run<'_, T>, transfer: u32) {
        let Some(of) = self.transfers.get(&transfer).filter(|of| of.wire_bytes.is_finite()) else { return };
        let slots = || of.slots.iter().map(|&slot| self.get(slot));
        let sent: f64 = slots().map(|subflow| subflow.sent_by(run.now)).sum();
        let rate_bps: f64 = slots().map(|subflow| subflow.rate_bps).sum();
        let takes_ps = (of.wire_bytes - sent).max(0.0) * 8e12 / rate_bps;
        // Without a rate, the quotient is infinite or not a number.
        let due = if takes_ps < 1e18 { run.now + takes_ps.ceil() as Ps } else { NEVER };
        if let Some(of) = self.transfers.get_mut(&transfer) {
            of.due = due;
        }
        self.schedule(run, transfer);
    }

    /// Adds the event for the last byte of a transfer, unless an earlier one will look again.
    pub(super) fn schedule<T: Tap>(&mut self, run: &mut Run<'_, T>, transfer: u32) {
        let Some(of) = self.transfers.get_mut(&transfer) else { return };
        if of.due < of.scheduled {
            of.scheduled = of.due;
            run.agenda.push(of.due, Event::FlowDrained(transfer));
        }
    }
}
