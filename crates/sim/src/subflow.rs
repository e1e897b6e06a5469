//! The subflows under way, by slot, from slot 1 on (slot [`NO_CONNECTION`] belongs to no subflow).
//!
//! A subflow is one TCP connection: one five-tuple, one slot, two lanes. A transfer has one or more of them. A slot
//! is reused once its subflow is over and none of its packets is in the network any more; `use_count` distinguishes
//! its users.

use crate::interface::Interface;
use crate::lanes::NO_CONNECTION;
use crate::packet::{Direction, Packet};
use crate::sack_options::SackOptions;
use crate::store::grow;
use crate::time::{to_nanos, Ps, NEVER};
use crate::transfers::Work;
use crate::trusted::{fetch_byte, LINE};
use pathloom_model::Nanos;
use pathloom_scheme::Acknowledged;
use pathloom_transport::{Receiver, Sender, Settings, SkippedWork};
use std::mem::offset_of;
use std::ops::Range;

/// Value of [`Subflow::member`] outside MPTCP.
const NO_MEMBER: u32 = u32::MAX;
/// [`Subflow::size`] of a stream that takes blocks of its transfer one after another, until the last block is taken.
pub(crate) const NOT_KNOWN_YET: u64 = u64::MAX - 1;

/// Fields in the order of cache lines: those that every packet needs, those that data need at the receiving end, and
/// those that acknowledgements need at the sending end.
#[repr(C, align(64))]
pub(crate) struct Subflow {
    /// Interface of the sending host, and interface of the receiving host.
    pub(crate) interfaces: [Interface; 2],
    /// One past the last byte to deliver; `u64::MAX` for a long-lived transfer, and if the connection knows the size
    /// instead.
    pub(crate) size: u64,
    /// Packets of the subflow in the network.
    pub(crate) under_way: i64,
    pub(crate) packets_sent: u64,
    /// Its number among the subflows of an MPTCP connection; [`NO_MEMBER`] outside MPTCP.
    pub(crate) member: u32,
    /// Index of its transfer in the workload.
    pub(crate) transfer: u32,
    pub(crate) use_count: u32,
    pub(crate) delivered: bool,
    /// Whether the sending end has nothing left to do.
    pub(crate) closed: bool,
    /// Whether it uses a connection that stands, so that it needs no SYN.
    pub(crate) stands: bool,
    /// Time until which the controller holds it; 0 if it does not.
    pub(crate) held_until: Ps,
    /// Bytes that the connection has taken from the receiver.
    pub(crate) taken: u64,

    pub(crate) receiver: Receiver,
    /// Time of the receiving end's timer event in the agenda; [`NEVER`] if there is none.
    pub(crate) receiver_timer: Ps,
    /// SACK options under way; `None` before the first loss.
    sack_options: Option<Box<SackOptions>>,

    /// Times when the last two segments will have left the host's card; `None` if their number is not limited.
    card: Option<[Ps; 2]>,
    /// Time of the event in the agenda for room in the card.
    card_event: Ps,
    /// Time of the sending end's timer event in the agenda; [`NEVER`] if there is none.
    pub(crate) sender_timer: Ps,
    pub(crate) sender: Sender,
}

/// Cache lines beside the first one that data need at the receiving end, and that acknowledgements need at the
/// sending end.
const RECEIVING: Range<usize> = lines(offset_of!(Subflow, receiver), Receiver::BUSY_BYTES);
const SENDING: Range<usize> =
    lines(offset_of!(Subflow, card), offset_of!(Subflow, sender) - offset_of!(Subflow, card) + Sender::BUSY_BYTES);

// The fields that every packet needs take one cache line. The fields that data need at the receiving end take one
// more.
const _: () = assert!(offset_of!(Subflow, receiver) == LINE && RECEIVING.end <= 2 * LINE);

/// The cache lines that contain these bytes of a subflow.
const fn lines(from: usize, bytes: usize) -> Range<usize> {
    from / LINE * LINE..from + bytes
}

/// Subflows by slot.
pub(crate) struct Subflows {
    /// The first one belongs to no connection, and no frame is for it.
    slots: Vec<Subflow>,
    free: Vec<u32>,
}

/// Properties of a new subflow.
pub(crate) struct Endpoints {
    pub(crate) transfer: u32,
    pub(crate) size: Option<u64>,
    pub(crate) interfaces: [Interface; 2],
    /// Its number in an MPTCP connection; `None` outside MPTCP.
    pub(crate) member: Option<u32>,
    /// Whether it takes blocks of its transfer one after another.
    pub(crate) takes_blocks: bool,
}

impl Subflows {
    pub(crate) fn new(settings: &Settings) -> Subflows {
        let nobody = Endpoints {
            transfer: u32::MAX,
            size: Some(0),
            interfaces: [Interface::NONE; 2],
            member: None,
            takes_blocks: false,
        };
        let nobody = Subflow { closed: true, ..Subflow::new(settings, &nobody) };
        Subflows { slots: vec![nobody], free: Vec::new() }
    }

    /// Takes a slot for a new subflow, whose sender is not open yet.
    pub(crate) fn open_slot(&mut self, settings: &Settings, ends: &Endpoints) -> usize {
        let mut subflow = Subflow::new(settings, ends);
        match self.free.pop() {
            Some(slot) => {
                subflow.use_count = self.slots[slot as usize].use_count + 1;
                self.slots[slot as usize] = subflow;
                slot as usize
            }
            None => {
                let count = self.slots.len() + 1;
                grow(&mut self.slots, count);
                self.slots.push(subflow);
                self.slots.len() - 1
            }
        }
    }

    /// Frees a slot.
    pub(crate) fn close_slot(&mut self, slot: usize) {
        self.free.push(slot as u32);
    }

    #[inline]
    pub(crate) fn get(&mut self, slot: usize) -> &mut Subflow {
        &mut self.slots[slot]
    }

    #[inline]
    pub(crate) fn at(&self, slot: usize) -> &Subflow {
        &self.slots[slot]
    }

    /// Prefetches the cache lines of a subflow that a packet in this direction needs. Affects only speed.
    #[inline(always)]
    pub(crate) fn fetch(&self, slot: usize, direction: Direction) {
        let end = match direction {
            Direction::Data => RECEIVING,
            Direction::Ack => SENDING,
        };
        fetch_byte(&self.slots, slot, 0);
        end.step_by(LINE).for_each(|offset| fetch_byte(&self.slots, slot, offset));
    }

    /// All subflows that are not over, in order of slot.
    pub(crate) fn live(&self) -> impl Iterator<Item = (usize, &Subflow)> {
        let mut free = self.free.clone();
        free.sort_unstable();
        let slots = self.slots.iter().enumerate().skip(NO_CONNECTION + 1);
        slots.filter(move |(slot, _)| free.binary_search(&(*slot as u32)).is_err())
    }

    /// Returns the subflow if it is still the one for which a timer was set, and is not closed.
    pub(crate) fn current(&mut self, slot: u32, use_count: u32) -> Option<&mut Subflow> {
        self.slots.get_mut(slot as usize).filter(|subflow| subflow.use_count == use_count && !subflow.closed)
    }
}

impl Subflow {
    fn new(settings: &Settings, ends: &Endpoints) -> Subflow {
        Subflow {
            sender: match ends.member.is_some() || ends.takes_blocks {
                false => Sender::new(settings, ends.size),
                true => Sender::without_data(settings),
            },
            receiver: Receiver::new(settings),
            sack_options: None,
            transfer: ends.transfer,
            member: ends.member.unwrap_or(NO_MEMBER),
            taken: 0,
            size: if ends.takes_blocks { NOT_KNOWN_YET } else { ends.size.unwrap_or(u64::MAX) },
            interfaces: ends.interfaces,
            card: settings.small_queues.then_some([0; 2]),
            card_event: 0,
            under_way: 0,
            sender_timer: NEVER,
            receiver_timer: NEVER,
            held_until: 0,
            delivered: false,
            closed: false,
            stands: false,
            packets_sent: 0,
            use_count: 0,
        }
    }

    /// Whether it is a subflow of an MPTCP connection.
    #[inline(always)]
    pub(crate) fn is_member(&self) -> bool {
        self.member != NO_MEMBER
    }

    /// Whether it takes blocks of its transfer one after another, and more are left.
    #[inline(always)]
    pub(crate) fn takes_blocks(&self) -> bool {
        self.size == NOT_KNOWN_YET
    }

    /// The interface to which a packet of this subflow is addressed.
    #[inline(always)]
    pub(crate) fn destination(&self, packet: &Packet) -> Interface {
        match packet.direction() {
            Direction::Data => self.interfaces[1],
            Direction::Ack => self.interfaces[0],
        }
    }

    /// Whether its slot can be freed.
    pub(crate) fn is_over(&self) -> bool {
        self.closed && self.under_way == 0
    }

    /// Number and bytes of the SACK option of an acknowledgement that is sent now; 0 and 0 if it has no option.
    #[inline(always)]
    pub(crate) fn sack_option(&mut self) -> (u16, u16) {
        if !self.receiver.has_sack_blocks() {
            return (0, 0);
        }
        let blocks = self.receiver.sack_blocks();
        let number = self.sack_options.get_or_insert_default().put(blocks);
        // RFC 2018 §3: kind, length and eight bytes per block, with two of padding.
        (number, 4 + 8 * blocks.blocks().count() as u16)
    }

    /// An acknowledgement of the sender's data has arrived.
    #[inline(always)]
    pub(crate) fn handle_ack(&mut self, now: Nanos, packet: &Packet) {
        if self.sender.uses_echoes() {
            self.sender.handle_echo(packet.seq, packet.is_marked());
        }
        match packet.payload_or_option() {
            0 => self.sender.handle_ack(now, packet.seq),
            option => {
                let blocks = self.sack_options.as_mut().and_then(|options| options.take(option));
                self.sender.handle_sack(now, packet.seq, &blocks.unwrap_or_default());
            }
        }
    }

    /// Whether the host's card takes a further segment now. If not, returns the time to ask again, or `None` if the
    /// agenda has an event for that.
    #[inline]
    pub(crate) fn card_has_room(&mut self, now: Ps) -> Result<(), Option<Ps>> {
        let Some([earlier, _]) = self.card.filter(|&[earlier, _]| earlier > now) else { return Ok(()) };
        if self.card_event > now {
            return Err(None);
        }
        self.card_event = earlier;
        Err(Some(earlier))
    }

    /// Moves every time of the subflow by `by`. Meanwhile it has done this work, of which the delivered bytes bring its end
    /// nearer. Returns whether so many bytes are left; if not, nothing changes.
    pub(crate) fn translate(&mut self, by: Ps, work: &Work) -> bool {
        let Work { delivered_bytes: bytes, retransmits, timeouts, timeout_wait: waited, .. } = *work;
        if !self.sender.translate(to_nanos(by), &SkippedWork { bytes, retransmits, timeouts, waited }) {
            return false;
        }
        if self.size < NOT_KNOWN_YET {
            self.size -= bytes;
        }
        self.packets_sent += work.packets;
        self.receiver.translate(to_nanos(by), work.segments, work.reordered);
        for timer in [&mut self.sender_timer, &mut self.receiver_timer].into_iter().filter(|timer| **timer != NEVER) {
            *timer += by;
        }
        self.card_event += by;
        self.card.iter_mut().flatten().for_each(|leaves| *leaves += by);
        true
    }

    /// What an acknowledgement told the sender, which had `before` acknowledged bytes.
    pub(crate) fn acknowledged(&self, before: u64, marked: bool) -> Acknowledged {
        let (una, sent) = (self.sender.acked_bytes(), self.sender.sent_bytes());
        Acknowledged { bytes: una - before, marked, una, sent }
    }

    /// The host's card has taken a segment, which will have left it at `until`.
    #[inline]
    pub(crate) fn card_took(&mut self, until: Ps) {
        if let Some(leaving) = &mut self.card {
            *leaving = [leaving[1], until];
        }
    }

    /// Time for which the sending end needs a timer event, unless the agenda has one for that time or an earlier one.
    #[inline]
    pub(crate) fn sender_wants(&mut self) -> Option<Ps> {
        wants(self.sender.poll_timeout(), &mut self.sender_timer)
    }

    /// The same for the receiving end.
    #[inline]
    pub(crate) fn receiver_wants(&mut self) -> Option<Ps> {
        wants(self.receiver.poll_timeout(), &mut self.receiver_timer)
    }
}

/// Timers move to later times far more often than they expire. So one event serves all later deadlines: when it is
/// due, the deadline is checked again.
#[inline]
pub(crate) fn wants(deadline: Option<Nanos>, scheduled: &mut Ps) -> Option<Ps> {
    let at = crate::time::to_ps(deadline?);
    if at >= *scheduled {
        return None;
    }
    *scheduled = at;
    Some(at)
}
