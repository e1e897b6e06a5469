//! Subflows that are members of an MPTCP connection: they start, send and end together.
//! [`Multipaths`](super::multipath::Multipaths) decides which member carries which bytes.

use super::Tcp;
use crate::hosts::shared::Shared;
use crate::packet::Packet;
use crate::run::Run;
use crate::tap::Tap;
use crate::time::to_nanos;
use pathloom_model::TCP_FIN;

impl Tcp {
    /// Starts a connection with its first subflow.
    pub(super) fn start_connection<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, transfer: u32) {
        let spec = shared.transfers.spec(transfer);
        self.multipaths.begin(transfer, spec.size_bytes);
        let stands = self.standing.serve(spec);
        self.join(shared, run, transfer, 0);
        if !self.settings.handshake || stands {
            self.join_others(shared, run, transfer);
        }
    }

    /// The first subflow is established, so the others join.
    fn join_others<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, transfer: u32) {
        for member in 1..shared.transfers.subflows(transfer).len() {
            self.join(shared, run, transfer, member as u32);
        }
    }

    fn join<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, transfer: u32, member: u32) {
        let ends = shared.transfers.subflows(transfer)[member as usize];
        let slot = self.open_subflow(shared, run, transfer, &ends, Some(member));
        self.multipaths.join(transfer, slot);
        self.pump(shared, run, slot);
    }

    /// An answer to a subflow's segments has arrived.
    #[inline(never)]
    pub(super) fn member_answered<T: Tap>(
        &mut self,
        shared: &mut Shared,
        run: &mut Run<'_, T>,
        slot: usize,
        packet: &Packet,
    ) {
        let transfer = self.subflows.get(slot).transfer;
        let Some(answered) = self.multipaths.answered(to_nanos(run.now), &mut self.subflows, slot, packet) else {
            return;
        };
        if answered.delivers_nothing {
            self.finish_connection(shared, run, transfer);
        }
        if answered.ends {
            return self.end_connection(shared, run, transfer);
        }
        self.pump(shared, run, slot);
        if answered.establishes {
            self.join_others(shared, run, transfer);
        }
        if answered.concerns_others {
            self.pump_all(shared, run, transfer);
        }
    }

    /// Handles an event of a subflow's retransmission timer. The timer may have moved to a later time.
    #[inline(never)]
    pub(super) fn member_timer<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, slot: usize) {
        let transfer = self.subflows.get(slot).transfer;
        let concerns_others = self.multipaths.timer_due(to_nanos(run.now), &mut self.subflows, slot);
        self.pump(shared, run, slot);
        if concerns_others {
            self.pump_all(shared, run, transfer);
        }
    }

    /// Lets all subflows of a connection send what they have, in the order of its scheduler.
    fn pump_all<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, transfer: u32) {
        let mut slots = Vec::new();
        while let Some(chunks) = self.multipaths.order(transfer, &mut slots) {
            let mut sent = 0;
            for &slot in &slots {
                self.multipaths.allow(transfer, chunks);
                let before = self.subflows.get(slot).packets_sent;
                self.pump(shared, run, slot);
                sent += self.subflows.get(slot).packets_sent - before;
            }
            if sent == 0 || chunks == usize::MAX {
                break;
            }
        }
        self.multipaths.allow(transfer, usize::MAX);
    }

    /// A segment of a subflow has arrived; `ack` is the acknowledgement that its receiver wants, if any. If the stream
    /// is then complete, it is acknowledged at once.
    #[inline(never)]
    pub(super) fn deliver_to_connection<T: Tap>(
        &mut self,
        shared: &mut Shared,
        run: &mut Run<'_, T>,
        slot: usize,
        ack: Option<u64>,
    ) -> Option<u64> {
        let subflow = self.subflows.get(slot);
        if !self.multipaths.completes(subflow) {
            return ack;
        }
        let (last, transfer) = (subflow.receiver.handle_fin(), subflow.transfer);
        self.finish_connection(shared, run, transfer);
        Some(last)
    }

    /// The last byte of a connection has arrived.
    fn finish_connection<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, transfer: u32) {
        let waited = self.multipaths.least_wait(transfer, &mut self.subflows);
        let ready = shared.transfers.deliver_connection(transfer, waited, to_nanos(run.now));
        shared.arrived(run.now, run.agenda, ready);
    }

    /// A connection has nothing left to send, or is stopped. Its subflows end, each with a FIN.
    pub(super) fn end_connection<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, transfer: u32) {
        let Some((slots, delivered_bytes)) = self.multipaths.end(transfer) else { return };
        for slot in slots {
            self.send_fin(shared, run, slot);
            self.close(shared, run, slot);
        }
        shared.transfers.end_connection(transfer, delivered_bytes);
    }

    fn send_fin<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, slot: usize) {
        let subflow = self.subflows.get(slot);
        if !subflow.sender.is_open() {
            return;
        }
        let fin = Packet::new(
            (slot as u32) << 1,
            subflow.sender.acked_bytes(),
            0,
            self.settings.header_bytes as u16,
            TCP_FIN,
        );
        subflow.packets_sent += 1;
        let (link, fin) = (subflow.interfaces[0].uplink().0, shared.entropies.stamp(run.now, fin));
        if run.network.send(run.now, link, fin) {
            self.subflows.get(slot).under_way += 1;
        }
    }
}
