//! A packet on its way: 32 bytes in four words, copied from link to link.

use crate::lanes::NO_CONNECTION;
use crate::time::Ps;
use pathloom_transport::packets::TrimmedAt;

/// Mask of a payload length, which fits a frame of 32 KB.
const PAYLOAD_BITS: u64 = 0x7FFF;
/// Bits of a tag, in the word that it shares with other fields.
const TAG_BITS: u64 = 0x1_FFFF << 16;
/// Lowest bit of the kind, in the same word.
const KIND_SHIFT: u32 = 33;
/// Bits of the kind.
const KIND_BITS: u64 = 7 << KIND_SHIFT;
/// Lowest bit of the class selector, in the same word.
const CLASS_SHIFT: u32 = 36;
/// Lowest bit of the entropy, in the same word.
const ENTROPY_SHIFT: u32 = 40;
/// The congestion mark.
const MARK: u64 = 1 << 47;

/// Direction of a packet along its flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// From sender to receiver.
    Data,
    /// From receiver to sender.
    Ack,
}

/// A packet in the network.
///
/// The small fields are packed into words by hand: a packet-hop copies a packet twice, and four words cost a third of
/// what eight fields cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(32))]
pub(crate) struct Packet {
    /// Time when the link that the packet is on delivers it. It has no meaning while the packet is on no link.
    pub deliver_at: Ps,
    /// First payload byte, or for an acknowledgement the next byte expected.
    pub seq: u64,
    /// From the lowest bit on: lane (32 bits), payload bytes or the number of a SACK option (15), congestion mark (1),
    /// bytes on the wire (16).
    fixed: u64,
    /// From the lowest bit on: switches passed (8 bits), TCP flags (8), VLAN tag plus one (17), kind (3), class
    /// selector (3), unused (1), entropy (24).
    state: u64,
}

impl Packet {
    /// Most payload bytes of a packet.
    pub(crate) const MOST_PAYLOAD: u64 = PAYLOAD_BITS;

    /// Creates a packet that has not left its host. A lane is one direction of one connection: twice its slot, plus 1
    /// for acknowledgements. `flags` are those that make a packet special (SYN, FIN); 0 for plain data and
    /// acknowledgements.
    #[inline(always)]
    pub(crate) fn new(lane: u32, seq: u64, payload: u16, wire: u16, flags: u8) -> Packet {
        debug_assert!(u64::from(payload) <= PAYLOAD_BITS, "{payload} bytes do not fit a packet");
        let fixed = u64::from(lane) | u64::from(payload) << 32 | u64::from(wire) << 48;
        Packet { deliver_at: 0, seq, fixed, state: u64::from(flags) << 8 }
    }

    /// The same packet, delivered at this time.
    #[inline(always)]
    pub(crate) fn due(&self, deliver_at: Ps) -> Packet {
        Packet { deliver_at, seq: self.seq, fixed: self.fixed, state: self.state }
    }

    #[inline(always)]
    pub(crate) fn lane(&self) -> u32 {
        self.fixed as u32
    }

    #[inline(always)]
    pub(crate) fn slot(&self) -> usize {
        (self.lane() >> 1) as usize
    }

    #[inline(always)]
    pub(crate) fn direction(&self) -> Direction {
        if self.fixed & 1 == 0 {
            Direction::Data
        } else {
            Direction::Ack
        }
    }

    /// Payload bytes; none in an acknowledgement.
    #[inline(always)]
    pub(crate) fn payload(&self) -> u16 {
        match self.direction() {
            Direction::Data => self.payload_or_option(),
            Direction::Ack => 0,
        }
    }

    /// Payload bytes, or in an acknowledgement the number of its SACK option; 0 if it has none.
    #[inline(always)]
    pub(crate) fn payload_or_option(&self) -> u16 {
        (self.fixed >> 32 & PAYLOAD_BITS) as u16
    }

    /// Whether a queue on its way was above its threshold (CE of RFC 3168); in an acknowledgement, the echo (ECE).
    #[inline(always)]
    pub(crate) fn is_marked(&self) -> bool {
        self.fixed & MARK != 0
    }

    /// Sets the congestion mark, or the echo of one.
    #[inline(always)]
    pub(crate) fn mark(&mut self) {
        self.fixed |= MARK;
    }

    #[inline(always)]
    pub(crate) fn wire(&self) -> u64 {
        self.fixed >> 48
    }

    #[inline(always)]
    pub(crate) fn hop(&self) -> u8 {
        self.state as u8
    }

    #[inline(always)]
    pub(crate) fn flags(&self) -> u8 {
        (self.state >> 8) as u8
    }

    pub(crate) fn tag(&self) -> Option<u16> {
        (((self.state & TAG_BITS) >> 16) as u32).checked_sub(1).map(|tag| tag as u16)
    }

    /// Flags, tag and kind in one word, for comparison with cache entries.
    #[inline(always)]
    pub(crate) fn marks(&self) -> u32 {
        (self.state >> 8) as u32 & ((1 << (CLASS_SHIFT - 8)) - 1)
    }

    /// A switch has passed the packet on with this tag, so the packet has passed one more switch.
    #[inline(always)]
    pub(crate) fn pass(&mut self, tag: TagBits) {
        self.state = ((self.state & !TAG_BITS) | tag.0) + 1;
    }

    /// Whether the packet carries payload that a full queue may remove.
    pub(crate) fn can_be_trimmed(&self) -> bool {
        self.fixed & 1 == 0 && self.state & KIND_BITS == 0
    }

    /// Whether the packet is an acknowledgement, a negative one, or a header without its payload.
    pub(crate) fn is_control(&self) -> bool {
        !self.can_be_trimmed()
    }

    /// Cuts the packet down to its header, of this many bytes. It still says how many payload bytes it had.
    pub(crate) fn trim(&mut self, bytes: u16, place: TrimmedAt) {
        let wire = self.wire().min(u64::from(bytes));
        self.fixed = self.fixed & !(0xFFFF << 48) | wire << 48;
        self.state |= trimmed_code(place) << KIND_SHIFT;
    }

    /// A switch adds this many bytes to the headers.
    pub(crate) fn grow(&mut self, bytes: u16) {
        let wire = self.wire() + u64::from(bytes);
        debug_assert!(wire <= 0xFFFF, "{wire} bytes do not fit a packet");
        self.fixed = self.fixed & !(0xFFFF << 48) | wire << 48;
    }

    /// Where the payload was removed; `None` if the packet is as it was sent.
    pub(crate) fn trimmed_at(&self) -> Option<TrimmedAt> {
        let code = (self.state & KIND_BITS) >> KIND_SHIFT;
        [TrimmedAt::Fabric, TrimmedAt::LastHop, TrimmedAt::Sender]
            .into_iter()
            .find(|&place| trimmed_code(place) == code)
    }

    /// A frame that pauses or resumes a priority at the other end of a link (IEEE 802.1Qbb). It belongs to no connection.
    pub(crate) fn of_pause(pause: Pause) -> Packet {
        let packet = Packet::new((NO_CONNECTION as u32) << 1, pause.class.into(), 0, PAUSE_BYTES, 0);
        let code = if pause.stops { PAUSES } else { RESUMES };
        Packet { state: packet.state | code << KIND_SHIFT, ..packet }
    }

    /// What the packet says, if it pauses or resumes a priority.
    pub(crate) fn pause(&self) -> Option<Pause> {
        let code = (self.state & KIND_BITS) >> KIND_SHIFT;
        matches!(code, PAUSES | RESUMES).then_some(Pause { class: self.seq as u8, stops: code == PAUSES })
    }

    /// The class selector (RFC 2474 §4.2.2) that the host gave to this packet; 0 for the DSCP of its connection.
    #[inline(always)]
    pub(crate) fn class_selector(&self) -> u8 {
        (self.state >> CLASS_SHIFT) as u8 & 7
    }

    /// The same packet with this class selector, of which the lower 3 bits count.
    pub(crate) fn with_class_selector(self, class: u8) -> Packet {
        let others = self.state & !(7 << CLASS_SHIFT);
        Packet { state: others | u64::from(class & 7) << CLASS_SHIFT, ..self }
    }

    /// Value that switches hash with the five-tuple where several next hops are equal. Packets with the same value
    /// take the same path.
    #[inline(always)]
    pub(crate) fn entropy(&self) -> u32 {
        (self.state >> ENTROPY_SHIFT) as u32
    }

    /// The same packet with this entropy, of which the lower 24 bits count.
    pub(crate) fn with_entropy(self, entropy: u32) -> Packet {
        let others = self.state & ((1 << ENTROPY_SHIFT) - 1);
        Packet { state: others | u64::from(entropy) << ENTROPY_SHIFT, ..self }
    }
}

impl Packet {
    /// The same packet with this tag, after passing this many switches.
    pub(crate) fn after(self, hops: u8, tag: TagBits) -> Packet {
        Packet { state: (self.state & !TAG_BITS & !0xFF) | tag.0 | u64::from(hops), ..self }
    }
}

/// Bytes of a frame that pauses or resumes (IEEE 802.3, annex 31B: the shortest frame).
pub(crate) const PAUSE_BYTES: u16 = 64;

/// Content of a frame that pauses or resumes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pause {
    /// Number of the queue that it is about.
    pub(crate) class: u8,
    /// Whether it pauses; otherwise it resumes.
    pub(crate) stops: bool,
}

/// Kinds of frames that pause and resume.
const PAUSES: u64 = 3;
const RESUMES: u64 = 4;

/// The kind of a data packet that has lost its payload. The kind of other packets of connections is 0: the direction
/// tells data from acknowledgements.
fn trimmed_code(place: TrimmedAt) -> u64 {
    match place {
        TrimmedAt::Fabric => 1,
        TrimmedAt::LastHop => 2,
        TrimmedAt::Sender => 5,
    }
}

/// A tag, or none, in the form that a packet stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TagBits(u64);

impl TagBits {
    pub(crate) fn of(tag: Option<u16>) -> TagBits {
        TagBits(tag.map_or(0, |tag| u64::from(tag) + 1) << 16)
    }

    /// The tag plus one, or 0 for no tag: 17 bits.
    pub(crate) fn number(self) -> u32 {
        (self.0 >> 16) as u32
    }

    /// Inverse of [`TagBits::number`].
    #[inline(always)]
    pub(crate) fn from_number(number: u32) -> TagBits {
        TagBits(u64::from(number) << 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_its_fields_apart() {
        let mut p = Packet::new(0xFFFF_FFFF, 7, 0x7FFF, 0xFFFE, 0x03);
        assert_eq!((p.lane(), p.payload(), p.wire(), p.hop(), p.flags()), (u32::MAX, 0, 0xFFFE, 0, 3));
        assert_eq!((p.payload_or_option(), p.is_marked()), (0x7FFF, false));
        p.mark();
        assert_eq!((p.payload_or_option(), p.is_marked(), p.wire(), p.lane()), (0x7FFF, true, 0xFFFE, u32::MAX));
        assert_eq!((p.direction(), p.tag()), (Direction::Ack, None));
        p.pass(TagBits::of(Some(u16::MAX)));
        assert_eq!((p.hop(), p.flags(), p.tag()), (1, 3, Some(u16::MAX)));
        p.pass(TagBits::of(None));
        assert_eq!((p.hop(), p.flags(), p.tag(), p.marks()), (2, 3, None, 3));
        p = p.with_entropy(u32::MAX);
        p.pass(TagBits::of(Some(7)));
        assert_eq!((p.hop(), p.flags(), p.tag(), p.marks(), p.entropy()), (3, 3, Some(7), 3 | 8 << 8, 0xFF_FFFF));
        let marks = p.marks();
        p = p.with_class_selector(0xFF);
        assert_eq!((p.class_selector(), p.marks(), p.entropy(), p.tag()), (7, marks, 0xFF_FFFF, Some(7)));
        p = p.with_class_selector(0);
        assert_eq!(p.with_entropy(0).after(1, TagBits::of(None)), Packet { state: 0x0301, ..p });
        assert_eq!(p.after(1, TagBits::of(None)).entropy(), 0xFF_FFFF);
    }

    #[test]
    fn pauses_say_what_they_stop_and_no_other_packet_is_one() {
        for pause in [Pause { class: 7, stops: true }, Pause { class: 0, stops: false }] {
            let frame = Packet::of_pause(pause);
            assert_eq!((frame.pause(), frame.wire(), frame.slot()), (Some(pause), 64, NO_CONNECTION));
            assert_eq!((frame.trimmed_at(), frame.is_control()), (None, true));
        }
        let mut data = Packet::new(6, 3, 1448, 1514, 0);
        assert_eq!(data.pause(), None);
        data.trim(64, TrimmedAt::Fabric);
        assert_eq!(data.pause(), None);
    }

    #[test]
    fn a_trimmed_packet_keeps_everything_but_its_payload() {
        for place in [TrimmedAt::Fabric, TrimmedAt::LastHop, TrimmedAt::Sender] {
            let mut p = Packet::new(6, 7, 4086, 4150, 0).with_entropy(9);
            p.pass(TagBits::of(Some(u16::MAX)));
            assert!(p.can_be_trimmed() && p.trimmed_at().is_none());
            let before = p;
            p.trim(64, place);
            assert_eq!((p.wire(), p.trimmed_at(), p.is_control()), (64, Some(place), true));
            p.pass(TagBits::of(None));
            assert_eq!((p.lane(), p.seq, p.payload(), p.entropy()), (6, 7, before.payload(), 9));
            assert_eq!((p.hop(), p.tag(), p.trimmed_at()), (2, None, Some(place)));
        }
        assert!(Packet::new(7, 0, 0, 64, 0).is_control(), "an acknowledgement");
    }
}
