//! MPTCP in hosts: a transfer is one connection over several subflows. Each subflow is an ordinary one with its own
//! slot, lanes and timers. `transport::mptcp` decides which subflow carries which bytes, and how windows grow
//! together.
//!
//! The first subflow opens the connection; the others join when it is answered. Simplifications: a joining subflow
//! sends data as soon as it is answered (RFC 8684 §3.2 has it wait for a fourth segment), hosts know each other's
//! addresses without ADD_ADDR, and the options take no room in packets.

use crate::packet::Packet;
use crate::subflow::{Subflow, Subflows};
use pathloom_model::{MptcpOption, Nanos, TCP_SYN};
use pathloom_transport::mptcp::{Connection, MptcpSettings, Reassembly};
use pathloom_transport::TimeoutWait;

/// Both ends of an MPTCP connection.
struct Multipath {
    connection: Connection,
    reassembly: Reassembly,
    /// Slots of the subflows, by subflow number.
    slots: Vec<u32>,
    /// One past the last byte to deliver; `u64::MAX` for a long-lived transfer.
    size: u64,
    delivered: bool,
    /// Bytes that were delivered in times that were skipped. They have no byte numbers.
    skipped_bytes: u64,
    /// Number of chunks that may still be assigned to the subflow that is served now.
    allowance: usize,
}

/// What follows from an answer to a subflow.
pub(super) struct Answered {
    /// The connection has no byte to send, and this is the first answer.
    pub(super) delivers_nothing: bool,
    /// The connection has nothing left to send.
    pub(super) ends: bool,
    /// The first subflow is established, so others may join.
    pub(super) establishes: bool,
    /// Other subflows may have something to send.
    pub(super) concerns_others: bool,
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

    /// Makes room for one more transfer.
    pub(super) fn expect_one(&mut self) {
        if self.settings.is_some() {
            self.by_transfer.push(None);
        }
    }

    fn get(&mut self, transfer: u32) -> Option<&mut Multipath> {
        self.by_transfer.get_mut(transfer as usize)?.as_deref_mut()
    }

    /// Transfers with connections under way, with the bytes delivered in order and the bytes that their subflows
    /// delivered in total.
    pub(super) fn delivered(&self) -> impl Iterator<Item = (u32, [u64; 2])> + '_ {
        let each = self.by_transfer.iter().zip(0..);
        each.filter_map(|(one, transfer)| {
            let Multipath { reassembly, skipped_bytes, .. } = &**one.as_ref()?;
            Some((
                transfer,
                [reassembly.delivered_bytes(), reassembly.arrived_bytes()].map(|bytes| bytes + skipped_bytes),
            ))
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

    /// Whether hosts run MPTCP.
    pub(super) fn are_used(&self) -> bool {
        self.settings.is_some()
    }

    /// A connection begins; it has no subflow yet.
    pub(super) fn begin(&mut self, transfer: u32, size: Option<u64>) {
        let Some(settings) = &self.settings else { return };
        let multipath = Multipath {
            connection: Connection::new(settings, size),
            reassembly: Reassembly::default(),
            slots: Vec::new(),
            size: size.unwrap_or(u64::MAX),
            delivered: false,
            skipped_bytes: 0,
            allowance: usize::MAX,
        };
        self.by_transfer[transfer as usize] = Some(Box::new(multipath));
    }

    /// The next subflow of a connection is open, in this slot.
    pub(super) fn join(&mut self, transfer: u32, slot: usize) {
        if let Some(multipath) = self.get(transfer) {
            multipath.connection.join();
            multipath.slots.push(slot as u32);
        }
    }

    /// A subflow has nothing left to send. Gives it more if it has room and there is something for it. Returns
    /// whether it got any.
    #[inline(never)]
    pub(super) fn feed(&mut self, subflows: &mut Subflows, slot: usize) -> bool {
        let subflow = subflows.get(slot);
        let Some(multipath) = self.get(subflow.transfer) else { return false };
        let room_bytes = subflow.sender.room_bytes();
        if multipath.allowance == 0 || room_bytes == 0 {
            return false;
        }
        let Some(bytes) = multipath.connection.assign(subflow.member as usize, room_bytes) else { return false };
        multipath.allowance -= usize::from(multipath.allowance < usize::MAX);
        let accepted = subflow.sender.extend(bytes);
        if let Some(slow) = multipath.connection.take_penalised() {
            subflows.get(multipath.slots[slow] as usize).sender.penalise();
        }
        accepted
    }

    /// An answer to a subflow's segments has arrived. Returns what follows; `None` if the connection is over.
    pub(super) fn answered(
        &mut self,
        now: Nanos,
        subflows: &mut Subflows,
        slot: usize,
        packet: &Packet,
    ) -> Option<Answered> {
        let subflow = subflows.get(slot);
        let member = subflow.member as usize;
        let multipath = self.get(subflow.transfer)?;
        let mut established = false;
        if packet.flags() & TCP_SYN == 0 {
            multipath.connection.prepare(member, &mut subflow.sender);
            subflow.handle_ack(now, packet);
        } else {
            established = !subflow.sender.is_open();
            subflow.sender.handle_syn_ack(now);
        }
        let concerns_others = multipath.connection.handle_ack(member, &subflow.sender);
        multipath.connection.tune_receive_window(now);
        let ends = multipath.connection.is_finished();
        // If there is no byte to send, the first answer ends the connection.
        let delivers_nothing = ends && multipath.size == 0 && !std::mem::replace(&mut multipath.delivered, true);
        Some(Answered { delivers_nothing, ends, establishes: established && member == 0, concerns_others })
    }

    /// A subflow's retransmission timer is due, or has moved to a later time. Returns whether other subflows of its
    /// connection may have something to send now.
    pub(super) fn timer_due(&mut self, now: Nanos, subflows: &mut Subflows, slot: usize) -> bool {
        let subflow = subflows.get(slot);
        let before = subflow.sender.timeouts();
        subflow.sender.handle_timeout(now);
        if subflow.sender.timeouts() == before {
            return false;
        }
        let multipath = self.get(subflow.transfer);
        multipath.is_some_and(|multipath| multipath.connection.handle_timeout(subflow.member as usize, &subflow.sender))
    }

    /// Writes the slots of a connection in the order in which its scheduler serves them. Returns how many chunks each may
    /// get in its turn; `None` if the connection is over.
    pub(super) fn order(&mut self, transfer: u32, slots: &mut Vec<usize>) -> Option<usize> {
        let multipath = self.by_transfer.get_mut(transfer as usize)?.as_deref_mut()?;
        multipath.connection.order(&mut self.order);
        slots.clear();
        slots.extend(self.order.iter().map(|&member| multipath.slots[member] as usize));
        Some(multipath.connection.scheduler().chunks())
    }

    /// The subflow of a connection that is served now may get this many chunks.
    pub(super) fn allow(&mut self, transfer: u32, chunks: usize) {
        if let Some(multipath) = self.get(transfer) {
            multipath.allowance = chunks;
        }
    }

    /// A segment of a subflow has arrived. Bytes that are in order on the subflow become part of the stream. Returns
    /// whether this completes the stream.
    pub(super) fn completes(&mut self, subflow: &mut Subflow) -> bool {
        let (from, to) = (subflow.taken, subflow.receiver.delivered_bytes());
        let Some(multipath) = self.get(subflow.transfer).filter(|_| from < to) else { return false };
        subflow.taken = to;
        let Multipath { connection, reassembly, .. } = multipath;
        connection.deliver(subflow.member as usize, from, to, reassembly);
        multipath.reassembly.delivered_bytes() >= multipath.size && !std::mem::replace(&mut multipath.delivered, true)
    }

    /// The shortest time that a subflow of a connection has lost in time-outs.
    pub(super) fn least_wait(&mut self, transfer: u32, subflows: &mut Subflows) -> TimeoutWait {
        let slots = self.get(transfer).into_iter().flat_map(|multipath| &multipath.slots);
        let waits = slots.map(|&slot| subflows.get(slot as usize).sender.ended_timeout_wait());
        waits.min_by_key(|wait: &TimeoutWait| wait.initial.0 + wait.sampled.0).unwrap_or_default()
    }

    /// A connection is over. Returns the slots of its subflows, and the bytes that it has delivered.
    pub(super) fn end(&mut self, transfer: u32) -> Option<(Vec<usize>, u64)> {
        let multipath = self.by_transfer.get_mut(transfer as usize)?.take()?;
        let slots = multipath.slots.iter().map(|&slot| slot as usize).collect();
        Some((slots, multipath.reassembly.delivered_bytes() + multipath.skipped_bytes))
    }

    /// Moves the times of a connection by `by`. Meanwhile it has delivered `bytes`, which bring its end nearer. Its subflows
    /// are moved by themselves. Returns whether so many bytes are left; if not, nothing changes.
    pub(super) fn translate(&mut self, transfer: u32, by: Nanos, bytes: u64) -> bool {
        let Some(multipath) = self.get(transfer) else { return false };
        if !multipath.connection.translate(by, bytes) {
            return false;
        }
        if multipath.size != u64::MAX {
            multipath.size -= bytes;
        }
        multipath.skipped_bytes += bytes;
        true
    }

    /// Bytes of a connection that no subflow has been given; `None` if it has no end or is over.
    pub(super) fn unassigned_bytes(&self, transfer: u32) -> Option<u64> {
        self.by_transfer.get(transfer as usize)?.as_ref()?.connection.unassigned_bytes()
    }

    /// Transfers without end whose connections are under way, in ascending order.
    pub(super) fn long_lived(&self) -> Vec<u32> {
        let long_lived =
            |&(_, one): &(u32, &Option<Box<Multipath>>)| one.as_ref().is_some_and(|one| one.size == u64::MAX);
        (0..).zip(&self.by_transfer).filter(long_lived).map(|(transfer, _)| transfer).collect()
    }
}
