//! MPTCP in hosts: a transfer is one connection over several subflows. Each subflow is an ordinary one with its own
//! slot, lanes and timers. `transport::mptcp` decides which subflow carries which bytes, and how windows grow
//! together.
//!
//! The first subflow opens the connection; the others join when it is answered. Simplifications: a joining subflow
//! sends data as soon as it is answered (RFC 8684 §3.2 has it wait for a fourth segment), hosts know each other's
//! addresses without ADD_ADDR, and the options take no room in packets.

use super::Hosts;
use crate::agenda::{Agenda, Event};
use crate::network::Network;
use crate::packet::Packet;
use crate::tap::Tap;
use crate::time::{to_nanos, to_ps, Ps};
use pathloom_model::{MptcpOption, TCP_FIN, TCP_SYN};
use pathloom_transport::mptcp::{Connection, MptcpSettings, Reassembly};
use pathloom_transport::{TimeoutWait, HEADER_BYTES};

/// Both ends of an MPTCP connection.
pub(super) struct Multipath {
    connection: Connection,
    reassembly: Reassembly,
    /// Slots of the subflows, by subflow number.
    slots: Vec<u32>,
    /// One past the last byte to deliver; `u64::MAX` for a long-lived transfer.
    size: u64,
    delivered: bool,
    /// Number of chunks that may still be assigned to the subflow that is served now.
    allowance: usize,
}

/// The MPTCP connections under way, by transfer.
#[derive(Default)]
pub(super) struct Multipaths {
    settings: Option<MptcpSettings>,
    by_transfer: Vec<Option<Box<Multipath>>>,
    /// Reused buffer for the order in which subflows are served.
    order: Vec<usize>,
}

impl Multipaths {
    /// Creates a table for `transfers` transfers, without connections. It stays empty unless hosts run MPTCP.
    pub(super) fn new(settings: Option<&MptcpSettings>, transfers: usize) -> Multipaths {
        let by_transfer = settings.iter().flat_map(|_| (0..transfers).map(|_| None)).collect();
        Multipaths { settings: settings.cloned(), by_transfer, order: Vec::new() }
    }

    fn get(&mut self, transfer: u32) -> Option<&mut Multipath> {
        self.by_transfer.get_mut(transfer as usize)?.as_deref_mut()
    }

    /// Transfers with connections under way, with the bytes delivered in order and the bytes that their subflows
    /// delivered in total.
    pub(super) fn delivered(&self) -> impl Iterator<Item = (u32, [u64; 2])> + '_ {
        let each = self.by_transfer.iter().zip(0..);
        each.filter_map(|(one, transfer)| {
            let reassembly = &one.as_ref()?.reassembly;
            Some((transfer, [reassembly.delivered_bytes(), reassembly.arrived_bytes()]))
        })
    }

    /// Option of the first two segments, by which switches and controllers identify the connection of a subflow. Each
    /// transfer has a different token.
    pub(super) fn option(transfer: u32, member: Option<u32>) -> Option<MptcpOption> {
        // Multiplication by an odd factor maps different numbers to different numbers.
        let token = transfer.wrapping_add(1).wrapping_mul(0x9E37_79B1);
        Some(match member? {
            0 => MptcpOption::Capable { token: Some(token) },
            _ => MptcpOption::Join { token },
        })
    }
}

impl Hosts {
    /// Whether hosts run MPTCP.
    pub(super) fn is_multipath(&self) -> bool {
        self.multipaths.settings.is_some()
    }

    /// Starts a connection with its first subflow.
    pub(super) fn start_connection<T: Tap>(
        &mut self,
        now: Ps,
        network: &mut Network<T>,
        agenda: &mut Agenda,
        transfer: u32,
    ) {
        let Some(settings) = &self.multipaths.settings else { return };
        let size = self.transfers.spec(transfer).size_bytes;
        let multipath = Multipath {
            connection: Connection::new(settings, size),
            reassembly: Reassembly::default(),
            slots: Vec::new(),
            size: size.unwrap_or(u64::MAX),
            delivered: false,
            allowance: usize::MAX,
        };
        self.multipaths.by_transfer[transfer as usize] = Some(Box::new(multipath));
        self.join(now, network, agenda, transfer, 0);
        if !self.transport.handshake || self.standing.serve(self.transfers.spec(transfer)) {
            self.join_others(now, network, agenda, transfer);
        }
    }

    /// The first subflow is established, so the others join.
    fn join_others<T: Tap>(&mut self, now: Ps, network: &mut Network<T>, agenda: &mut Agenda, transfer: u32) {
        for member in 1..self.transfers.subflows(transfer).len() {
            self.join(now, network, agenda, transfer, member as u32);
        }
    }

    fn join<T: Tap>(&mut self, now: Ps, network: &mut Network<T>, agenda: &mut Agenda, transfer: u32, member: u32) {
        let ends = self.transfers.subflows(transfer)[member as usize];
        let slot = self.open_subflow(now, network, agenda, transfer, &ends, Some(member));
        if let Some(multipath) = self.multipaths.get(transfer) {
            multipath.connection.join();
            multipath.slots.push(slot as u32);
        }
        self.pump(now, network, agenda, slot);
    }

    /// A subflow has nothing left to send. Gives it more if it has room and there is something for it. Returns
    /// whether it got any.
    #[inline(never)]
    pub(super) fn feed(&mut self, slot: usize) -> bool {
        let subflow = self.subflows.get(slot);
        let Some(multipath) = self.multipaths.get(subflow.transfer) else { return false };
        let room_bytes = subflow.sender.room_bytes();
        if multipath.allowance == 0 || room_bytes == 0 {
            return false;
        }
        let Some(bytes) = multipath.connection.assign(subflow.member as usize, room_bytes) else { return false };
        multipath.allowance -= usize::from(multipath.allowance < usize::MAX);
        let accepted = subflow.sender.extend(bytes);
        if let Some(slow) = multipath.connection.take_penalised() {
            self.subflows.get(multipath.slots[slow] as usize).sender.penalise();
        }
        accepted
    }

    /// An answer to a subflow's segments has arrived.
    #[inline(never)]
    pub(super) fn member_answered<T: Tap>(
        &mut self,
        now: Ps,
        network: &mut Network<T>,
        agenda: &mut Agenda,
        slot: usize,
        packet: &Packet,
    ) {
        let nanos = to_nanos(now);
        let subflow = self.subflows.get(slot);
        let (transfer, member) = (subflow.transfer, subflow.member as usize);
        let Some(multipath) = self.multipaths.get(transfer) else { return };
        let mut established = false;
        if packet.flags() & TCP_SYN == 0 {
            multipath.connection.prepare(member, &mut subflow.sender);
            subflow.handle_ack(nanos, packet);
        } else {
            established = !subflow.sender.is_open();
            subflow.sender.handle_syn_ack(nanos);
        }
        let others = multipath.connection.handle_ack(member, &subflow.sender);
        // If there is no byte to send, the first answer ends the connection.
        if multipath.connection.is_finished() {
            let nothing = multipath.size == 0 && !std::mem::replace(&mut multipath.delivered, true);
            if nothing {
                self.finish_connection(now, agenda, transfer);
            }
            return self.end_connection(now, network, agenda, transfer);
        }
        self.pump(now, network, agenda, slot);
        if established && member == 0 {
            self.join_others(now, network, agenda, transfer);
        }
        if others {
            self.pump_all(now, network, agenda, transfer);
        }
    }

    /// Handles an event of a subflow's retransmission timer. The timer may have moved to a later time.
    #[inline(never)]
    pub(super) fn member_timer<T: Tap>(&mut self, now: Ps, network: &mut Network<T>, agenda: &mut Agenda, slot: usize) {
        let subflow = self.subflows.get(slot);
        let transfer = subflow.transfer;
        let before = subflow.sender.timeouts();
        subflow.sender.handle_timeout(to_nanos(now));
        let expired = subflow.sender.timeouts() > before;
        let others = expired
            && (self.multipaths.get(transfer))
                .is_some_and(|multipath| multipath.connection.handle_timeout(subflow.member as usize, &subflow.sender));
        self.pump(now, network, agenda, slot);
        if others {
            self.pump_all(now, network, agenda, transfer);
        }
    }

    /// Lets all subflows of a connection send what they have, in the order of its scheduler.
    fn pump_all<T: Tap>(&mut self, now: Ps, network: &mut Network<T>, agenda: &mut Agenda, transfer: u32) {
        let mut order = std::mem::take(&mut self.multipaths.order);
        while let Some(multipath) = self.multipaths.get(transfer) {
            multipath.connection.order(&mut order);
            let chunks = multipath.connection.scheduler().chunks();
            let slots = multipath.slots.clone();
            let mut sent = 0;
            for &one in &order {
                let slot = slots[one] as usize;
                if let Some(multipath) = self.multipaths.get(transfer) {
                    multipath.allowance = chunks;
                }
                let before = self.subflows.get(slot).packets_sent;
                self.pump(now, network, agenda, slot);
                sent += self.subflows.get(slot).packets_sent - before;
            }
            if sent == 0 || chunks == usize::MAX {
                break;
            }
        }
        if let Some(multipath) = self.multipaths.get(transfer) {
            multipath.allowance = usize::MAX;
        }
        self.multipaths.order = order;
    }

    /// A segment of a subflow has arrived; `ack` is the acknowledgement that its receiver wants, if any. Bytes that
    /// are in order on the subflow become part of the stream. If the stream is then complete, it is acknowledged at
    /// once.
    #[inline(never)]
    pub(super) fn deliver_to_connection(
        &mut self,
        now: Ps,
        agenda: &mut Agenda,
        slot: usize,
        ack: Option<u64>,
    ) -> Option<u64> {
        let subflow = self.subflows.get(slot);
        let (from, to) = (subflow.taken, subflow.receiver.delivered_bytes());
        let transfer = subflow.transfer;
        let Some(multipath) = self.multipaths.get(transfer).filter(|_| from < to) else { return ack };
        subflow.taken = to;
        let Multipath { connection, reassembly, .. } = multipath;
        connection.deliver(subflow.member as usize, from, to, reassembly);
        if multipath.reassembly.delivered_bytes() < multipath.size || multipath.delivered {
            return ack;
        }
        multipath.delivered = true;
        let last = subflow.receiver.handle_fin();
        self.finish_connection(now, agenda, transfer);
        Some(last)
    }

    /// The last byte of a connection has arrived.
    fn finish_connection(&mut self, now: Ps, agenda: &mut Agenda, transfer: u32) {
        let Some(multipath) = self.multipaths.get(transfer) else { return };
        let subflows = &mut self.subflows;
        let waits = multipath.slots.iter().map(|&slot| subflows.get(slot as usize).sender.ended_timeout_wait());
        let waited = waits.min_by_key(|wait: &TimeoutWait| wait.initial.0 + wait.sampled.0).unwrap_or_default();
        for (next, delay) in self.transfers.deliver_connection(transfer, waited, to_nanos(now)) {
            agenda.push(now + to_ps(delay), Event::Start(next));
        }
        if now >= self.duration {
            self.stop_if_finished(agenda);
        }
    }

    /// A connection has nothing left to send, or is stopped. Its subflows end, each with a FIN.
    pub(super) fn end_connection<T: Tap>(
        &mut self,
        now: Ps,
        network: &mut Network<T>,
        agenda: &mut Agenda,
        transfer: u32,
    ) {
        let Some(multipath) = self.multipaths.by_transfer[transfer as usize].take() else { return };
        for &slot in &multipath.slots {
            self.send_fin(now, network, slot as usize);
            self.close(now, network, agenda, slot as usize);
        }
        self.transfers.end_connection(transfer, multipath.reassembly.delivered_bytes());
    }

    fn send_fin<T: Tap>(&mut self, now: Ps, network: &mut Network<T>, slot: usize) {
        let subflow = self.subflows.get(slot);
        if !subflow.sender.is_open() {
            return;
        }
        let fin = Packet::new((slot as u32) << 1, subflow.sender.acked_bytes(), 0, HEADER_BYTES as u16, TCP_FIN);
        subflow.packets_sent += 1;
        if network.send(now, subflow.interfaces[0].uplink().0, self.entropies.stamp(now, fin)) {
            self.subflows.get(slot).under_way += 1;
        }
    }

    /// Transfers without end whose connections are under way, in ascending order.
    pub(super) fn long_lived_connections(&self) -> Vec<u32> {
        let long_lived =
            |&(_, one): &(u32, &Option<Box<Multipath>>)| one.as_ref().is_some_and(|one| one.size == u64::MAX);
        (0..).zip(&self.multipaths.by_transfer).filter(long_lived).map(|(transfer, _)| transfer).collect()
    }
}
