//! Observation of packets: a tap sees every packet offered to a link. The plain simulator is compiled without it.

use pathloom_model::{Headers, LinkId, NodeId};

/// A packet as a tap sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeenPacket {
    /// Its parsed headers.
    pub headers: Headers,
    /// First payload byte, or the next byte expected in an acknowledgement. Counts from 0, without SYN and FIN. Without
    /// TCP, it has no meaning.
    pub seq: u64,
    /// Whether it is an acknowledgement.
    pub is_ack: bool,
    /// Payload bytes.
    pub payload: u16,
    /// Bytes on the wire.
    pub wire: u16,
    /// Whether it has a congestion mark (CE) or, as an acknowledgement, the echo of one (ECE).
    pub marked: bool,
}

/// Whether a link took a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It was queued.
    Queued,
    /// It was dropped: the buffer is full or the link is down.
    Dropped,
}

/// Why a switch lost a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// No rule forwards the packet.
    NoRule,
    /// A meter was exceeded.
    Metered,
    /// The packet has passed more switches than its TTL allows: it is in a loop.
    Loop,
}

/// Observer of every packet offered to a link, and of packets that switches lose.
pub trait Tap {
    /// Whether the tap observes anything. It is a constant, so that a run without a tap has no extra cost.
    const ON: bool;
    /// Whether the fabric is so large that its links do not fit into the CPU's caches. Data that arrivals need are
    /// then prefetched. It is a constant as well, so that a run on a small fabric has no extra cost. The results are
    /// the same.
    const LARGE: bool = false;
    /// Whether the network can be divided into parts for several threads. It is a constant as well, so that a run on
    /// one thread has no extra cost.
    const PARTED: bool = false;

    /// A packet was offered to a link at `now_ps`.
    fn seen(&mut self, now_ps: u64, link: LinkId, packet: &SeenPacket, fate: Fate);

    /// A switch lost a packet with these headers at `now_ps`.
    fn lost(&mut self, _now_ps: u64, _switch: NodeId, _headers: &Headers, _why: Loss) {}
}

/// No tap.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTap;

impl Tap for NoTap {
    const ON: bool = false;
    fn seen(&mut self, _: u64, _: LinkId, _: &SeenPacket, _: Fate) {}
}

/// No tap, on a fabric with [`LargeFabric::LINKS`] links or more.
#[derive(Clone, Copy, Debug, Default)]
pub struct LargeFabric;

impl LargeFabric {
    /// Number of links from which on packet-hops wait for memory most of the time: k=16 and more.
    pub const LINKS: usize = 5_000;
}

impl Tap for LargeFabric {
    const ON: bool = false;
    const LARGE: bool = true;
    fn seen(&mut self, _: u64, _: LinkId, _: &SeenPacket, _: Fate) {}
}

/// No tap, on a network that can be divided for several threads ([`crate::Simulation::advance_on`]). `LARGE` tells
/// whether the fabric has [`LargeFabric::LINKS`] links or more.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parted<const LARGE: bool>;

impl<const LARGE: bool> Tap for Parted<LARGE> {
    const ON: bool = false;
    const LARGE: bool = LARGE;
    const PARTED: bool = true;
    fn seen(&mut self, _: u64, _: LinkId, _: &SeenPacket, _: Fate) {}
}

impl crate::packet::Packet {
    pub(crate) fn describe(&self, headers: Headers) -> SeenPacket {
        let is_ack = self.direction() == crate::packet::Direction::Ack;
        let payload = if self.trimmed_at().is_some() { 0 } else { self.payload() };
        let wire = self.wire() as u16;
        SeenPacket { headers, seq: self.seq, is_ack, payload, wire, marked: self.is_marked() }
    }
}
