//! Transfers begin and end: their connections open, switches copy first and last packets, and the last byte arrives.

use super::counters::count;
use super::results::{links_of, payload};
use super::terms::{arrival_ps, frame_ps, idle_ps, wire_bytes, Stretch};
use super::{FluidFlows, State, Subflow, Transfer};
use crate::agenda::Event;
use crate::hosts::shared::Shared;
use crate::hosts::tcp::mptcp_option;
use crate::network::WalkedLink;
use crate::outcome::{SubflowOutcome, SubflowPath};
use crate::packet::Packet;
use crate::run::Run;
use crate::tap::Tap;
use crate::time::{to_nanos, Ps, NEVER};
use crate::transfers::Work;
use pathloom_model::{FiveTuple, Headers, TCP_ACK, TCP_FIN, TCP_SYN};
use pathloom_transport::TimeoutWait;

impl FluidFlows {
    /// Starts a transfer with its first subflow.
    pub(in crate::hosts) fn start<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, transfer: u32) {
        let (spec, ends) = (shared.transfers.spec(transfer), shared.transfers.subflows(transfer)[0]);
        let stands = self.stands && spec.standing;
        let wire = spec.size_bytes.map_or(f64::INFINITY, |size| wire_bytes(&self.settings, size));
        let pair = (ends.src.uplink, ends.dst.uplink);
        let continues = stands && self.coupling.is_none() && !self.standing.insert(pair);
        self.transfers.insert(transfer, Transfer::new(shared.transfers.subflows(transfer).len(), wire, continues));
        self.open(shared, run, transfer, stands);
    }

    /// Opens the next subflow of a transfer. On a connection that stands, it may send at once.
    fn open<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, transfer: u32, stands: bool) {
        let Some(of) = self.transfers.get(&transfer) else { return };
        let member = of.slots.len() as u32;
        let (ends, lanes) = (shared.transfers.subflows(transfer)[member as usize], &mut run.network.links.lanes);
        let in_use = |five_tuple: &FiveTuple| lanes.slot(five_tuple).is_some();
        let ports = shared.source_ports(ends.size_bytes);
        let five_tuple = shared.transfers.start(transfer, &ends, to_nanos(run.now), ports, in_use);
        let slot = match self.free.pop() {
            Some(slot) => {
                let use_count = self.get(slot).use_count + 1;
                *self.get_mut(slot) = Subflow::new(transfer, member, use_count, ends, run.now);
                slot
            }
            None => {
                self.slots.push(Subflow::new(transfer, member, 0, ends, run.now));
                self.slots.len() as u32
            }
        };
        let mptcp = mptcp_option(transfer, self.coupling.map(|_| member));
        lanes.open(slot as usize, Headers { mptcp, ..shared.headers(transfer, five_tuple) });
        let size = ends.size_bytes.filter(|_| self.coupling.is_none());
        shared.announce(run.now, run.agenda, (transfer, five_tuple), size);
        if self.paces && shared.is_known_long(transfer) {
            self.get_mut(slot).pace_bps = shared.rate_bps(ends.src.uplink) as f64;
        }
        if let Some(of) = self.transfers.get_mut(&transfer) {
            of.slots.push(slot);
        }
        self.copy(run, slot, [TCP_SYN, TCP_SYN | TCP_ACK]);
        self.walk(run, slot);
        let takes = if stands || !self.settings.handshake {
            0
        } else {
            self.round_trip_ps(run, slot, self.settings.header_bytes)
        };
        let use_count = self.get(slot).use_count;
        run.agenda.push(run.now + takes, Event::FlowReady { slot, use_count });
    }

    /// Lets switches copy packets with these flags of a subflow's data, and of its acknowledgements.
    fn copy<T: Tap>(&mut self, run: &Run<'_, T>, slot: u32, flags: [u8; 2]) {
        let uplinks = [self.get(slot).ends.src.uplink, self.get(slot).ends.dst.uplink];
        for (direction, (uplink, flags)) in uplinks.into_iter().zip(flags).enumerate().filter(|(_, of)| of.1 != 0) {
            let packet = Packet::new(slot << 1 | direction as u32, 0, 0, self.settings.header_bytes as u16, flags);
            self.copies.extend(run.network.ways().copies(uplink, &packet));
        }
    }

    /// Rates and delays of the links of a way, if it arrives. Of a flow that is split, the links that all of it takes
    /// count, and the widest part of each other layer.
    fn stretches<T: Tap>(&self, run: &Run<'_, T>, way: &[WalkedLink]) -> Vec<Stretch> {
        let stretch = |of: &WalkedLink| Stretch {
            rate_bps: run.network.links[of.link.index()].rate_bps() as f64,
            delay_ps: self.fabric.link(of.link).settings.delay_ps as f64,
        };
        let mut layers: Vec<Stretch> = Vec::new();
        let mut sum = 0.0;
        for of in way {
            // The shares of a layer sum to 1.
            if sum < 1e-9 {
                layers.push(stretch(of));
            }
            sum += of.share;
            sum = if sum > 1.0 - 1e-9 { 0.0 } else { sum };
        }
        layers
    }

    /// Time in ps for a frame with `bytes` and its acknowledgement in an idle network.
    fn round_trip_ps<T: Tap>(&self, run: &Run<'_, T>, slot: u32, bytes: u32) -> Ps {
        let [data, acks] = self.get(slot).ways.each_ref().map(|way| self.stretches(run, &way.links));
        let sum = frame_ps(&data, f64::from(bytes)) + frame_ps(&acks, f64::from(self.settings.header_bytes));
        if sum.is_finite() {
            sum as Ps
        } else {
            0
        }
    }

    /// The connection of a subflow is open: it may send, and others of its transfer may join.
    pub(in crate::hosts) fn ready<T: Tap>(
        &mut self,
        shared: &mut Shared,
        run: &mut Run<'_, T>,
        (slot, use_count): (u32, u32),
    ) {
        let Some(subflow) = self.current(slot, use_count) else { return };
        subflow.state = State::Open;
        subflow.at = run.now;
        let (transfer, member) = (subflow.transfer, subflow.member);
        self.begin_to_share(run, slot);
        if member > 0 {
            return;
        }
        let Some(of) = self.transfers.get_mut(&transfer) else { return };
        of.ready_at = run.now;
        if of.wire_bytes == 0.0 {
            of.due = run.now;
            return run.agenda.push(run.now, Event::FlowDrained(transfer));
        }
        for _ in 1..shared.transfers.subflows(transfer).len() {
            self.open(shared, run, transfer, false);
        }
    }

    /// The last byte of a transfer may have left: it has if it is due.
    pub(in crate::hosts) fn drained<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, transfer: u32) {
        let Some(of) = self.transfers.get_mut(&transfer) else { return };
        of.scheduled = NEVER;
        if of.due > run.now {
            return self.schedule(run, transfer);
        }
        let takes = self.arrival(run, shared, transfer);
        let Some(work) = self.close(shared, run, transfer, true) else { return };
        self.arriving.insert(transfer, work);
        run.agenda.push(run.now + takes, Event::FlowArrived(transfer));
    }

    /// Time in ps from now, when the last byte of a transfer leaves, until it arrives: with the time for which slow start
    /// has kept the sender idle, at the mean rate that the transfer had.
    fn arrival<T: Tap>(&self, run: &Run<'_, T>, shared: &Shared, transfer: u32) -> Ps {
        let Some(of) = self.transfers.get(&transfer) else { return 0 };
        let size = shared.transfers.spec(transfer).size_bytes.unwrap_or(0);
        let last = size.min(u64::from(self.settings.mss_bytes)) as f64 + f64::from(self.settings.header_bytes);
        let data = self.stretches(run, &self.get(of.slots[0]).ways[0].links);
        let mut takes = arrival_ps(&data, last);
        let sent_for_ps = run.now.saturating_sub(of.ready_at) as f64;
        if !of.continues && sent_for_ps > 0.0 {
            let window = self.settings.initial_window_bytes as f64 * of.slots.len() as f64;
            let round_trip = self.round_trip_ps(run, of.slots[0], self.settings.frame_bytes() as u32) as f64;
            let rate_bps = of.wire_bytes * 8e12 / sent_for_ps;
            takes += idle_ps(&self.settings, window, of.wire_bytes, rate_bps, round_trip);
        }
        if takes.is_finite() {
            takes as Ps
        } else {
            0
        }
    }

    /// Closes the subflows of a transfer. Returns its results; `None` if it is not under way. With `all`, all its bytes
    /// have left.
    fn close<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, transfer: u32, all: bool) -> Option<Work> {
        let of = self.transfers.remove(&transfer)?;
        let size = shared.transfers.spec(transfer).size_bytes;
        let has_several = shared.transfers.subflows(transfer).len() > 1;
        let mut work = Work::default();
        for &slot in &of.slots {
            self.get_mut(slot).advance(run.now);
            count(self, run, slot);
            self.copy(run, slot, [TCP_FIN | TCP_ACK, 0]);
            self.leave(slot);
            self.lost.remove(&slot);
            let five_tuple = run.network.links.lanes.five_tuple(slot as usize);
            let delivered_bytes = payload(self, self.get(slot).sent_bytes);
            work.delivered_bytes += delivered_bytes;
            if self.records_ways {
                let links = links_of(self, slot);
                self.closed_ways.push(SubflowPath { transfer, five_tuple, links, why: None });
            }
            if has_several {
                let (links, retransmits, timeouts) = (links_of(self, slot), 0, 0);
                self.closed.push(SubflowOutcome {
                    transfer,
                    five_tuple,
                    links,
                    delivered_bytes,
                    retransmits,
                    timeouts,
                });
            }
            shared.announce_end(run, slot as usize, transfer);
            run.network.links.lanes.close(slot as usize);
            self.get_mut(slot).state = State::Closed;
            self.free.push(slot);
        }
        work.delivered_bytes = size.filter(|_| all).unwrap_or(work.delivered_bytes);
        work.arrived_bytes = work.delivered_bytes;
        Some(work)
    }

    /// The last byte of a transfer has arrived.
    pub(in crate::hosts) fn arrived<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, transfer: u32) {
        let Some(work) = self.arriving.remove(&transfer) else { return };
        let ready = shared.transfers.deliver_connection(transfer, TimeoutWait::default(), to_nanos(run.now));
        shared.transfers.end_packets(transfer, work);
        shared.arrived(run.now, run.agenda, ready);
    }

    /// Arrivals stop, and transfers without end do, too.
    pub(in crate::hosts) fn end_endless<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>) {
        let endless =
            self.transfers.iter().filter(|(_, of)| of.wire_bytes.is_infinite()).map(|(&transfer, _)| transfer);
        for transfer in endless.collect::<Vec<u32>>() {
            if let Some(work) = self.close(shared, run, transfer, false) {
                shared.transfers.end_packets(transfer, work);
            }
        }
    }
}
