//! An output port and the link behind it: a drop-tail FIFO, store-and-forward unless [`Handover`] says otherwise.
//!
//! When a packet enters a FIFO with a fixed rate, the time when it will leave is known. So a packet-hop costs one
//! event: the arrival at the other end. The ring holds every packet that waits, is being sent or is under way, in
//! order of entry.
#![allow(unsafe_code)]

mod kind;
mod rates;
mod sent;
mod speeds;
mod take_back;
#[cfg(test)]
mod tests;
mod translation;

use crate::packet::{Direction, Packet};
use crate::settings::Handover;
use crate::time::{Ps, NEVER};
use crate::trusted::{fetch, item, item_mut};
use crate::wheel::{Due, Scheduled};
use kind::{AT_PORT, CROSSING, DOWN, HANDS_ON_AT_BEGIN, HANDS_TO_HOST, LOSSY, SLOW, TO_HOST};
use pathloom_model::Link;
use speeds::{Speed, SpeedNumber};

pub(crate) use rates::{bytes_in, ps_per_byte, times};
pub(crate) use sent::Quantity;
pub(crate) use speeds::Speeds;
pub(crate) use translation::{translate, LinkCounts};

/// Takes two cache lines: with 128 bytes, a link is found by a shift. A packet that enters or leaves it needs only
/// the first line.
#[repr(C, align(64))]
pub(crate) struct LinkQueue {
    /// A power of two of places, or none. Those from `head` on (wrapping) are in use, as many as `in_flight`, which is
    /// never more than there are. So while `in_flight` is not 0, any number masked with the number of places minus one
    /// is a place.
    ring: Box<[Packet]>,
    /// Number of packets that have left the ring so far.
    head: u64,
    in_flight: u32,
    /// Number of the packets taken last that had not left the port at the last update. If packets are handed on when
    /// their sending begins: number of those that had not begun to be sent.
    waiting: u32,
    /// When the last packet taken will have left the port; [`NEVER`] while the link is down, or if a port does the
    /// queueing.
    busy_until: Ps,
    /// Bytes of all packets taken.
    taken_bytes: u64,
    /// Sum over packets of the time that they wait before they are sent, including those that still wait.
    waited: Ps,
    /// Value of `waiting` up to which the port takes packets without further checks: the buffer, or the marking
    /// threshold if that is lower, plus the packet being sent if that counts. 0 while the link is down, or if a port
    /// does the queueing.
    room: u32,
    /// Bits of [`kind`].
    kind: u16,
    /// Number of the link's rate and delay among the speeds of the network.
    speed: SpeedNumber,
    /// Place in the wheel.
    due: Due,
    /// Most packets that may wait before arriving packets are marked; [`UNMARKED`] if none are marked.
    mark_above: u32,
    buffer: u32,
    /// Time to send a byte, in units of 2^-20 ps.
    ps_per_byte: u64,
    delay: Ps,
    /// Packets that found no room.
    refused: u64,
    /// Packets that were lost on the link, or with it.
    lost: u64,
}

/// The shortest frame: an acknowledgement without options.
const LEAST_WIRE: u64 = pathloom_transport::HEADER_BYTES as u64;

/// Places of the smallest ring that holds packets.
const LEAST_RING: usize = 8;
/// A ring is replaced by a smaller one if at most one of this many places is in use.
const ROOMY: usize = 8;

/// Value of [`LinkQueue::mark_above`] if no packet is marked.
const UNMARKED: u32 = u32::MAX;

impl Scheduled for LinkQueue {
    #[inline(always)]
    fn due(&self) -> Due {
        self.due
    }

    #[inline(always)]
    fn set_due(&mut self, due: Due) {
        self.due = due;
    }

    #[inline(always)]
    fn prepare(&self) {
        self.fetch_head();
    }
}

impl LinkQueue {
    /// `mark_above` is the most packets that may wait before arriving packets are marked; `None` if none are marked.
    pub(crate) fn new(link: &Link, to_host: bool, handover: Handover, mark_above: Option<u32>) -> LinkQueue {
        let settings = &link.settings;
        let begin = handover == Handover::Begin;
        let mark_above = mark_above.unwrap_or(UNMARKED);
        LinkQueue {
            ring: Box::new([]),
            head: 0,
            in_flight: 0,
            waiting: 0,
            room: room(settings.buffer_packets.min(mark_above), begin),
            mark_above,
            busy_until: 0,
            ps_per_byte: ps_per_byte(settings.rate_bps),
            // A packet always arrives later than its sending begins.
            delay: settings.delay_ps.max(u64::from(begin)),
            speed: SpeedNumber::OWN,
            kind: if begin { HANDS_ON_AT_BEGIN } else { 0 } | if to_host { TO_HOST | HANDS_TO_HOST } else { 0 },
            buffer: settings.buffer_packets,
            taken_bytes: 0,
            refused: 0,
            lost: 0,
            waited: 0,
            due: Due::NOT,
        }
    }

    /// Prefetches the cache line of the packet that is due next. Affects only speed.
    #[inline(always)]
    fn fetch_head(&self) {
        fetch(&self.ring, self.head as usize & self.ring.len().wrapping_sub(1));
    }

    /// Prefetches the cache lines of the packet that is due next and of the one after it. Affects only speed.
    #[inline(always)]
    pub(crate) fn fetch_first_two(&self) {
        let place = self.head as usize & self.ring.len().wrapping_sub(1);
        fetch(&self.ring, place);
        fetch(&self.ring, place + 1);
    }

    /// Prefetches the cache line that the next packet taken will use. Affects only speed.
    #[inline(always)]
    pub(crate) fn fetch_tail(&self) {
        fetch(&self.ring, self.tail() as usize & self.ring.len().wrapping_sub(1));
    }

    /// The packet that is due next. It has no meaning if the ring is empty.
    #[inline(always)]
    pub(crate) fn head(&self) -> Option<&Packet> {
        self.ring.get(self.head as usize & self.ring.len().wrapping_sub(1))
    }

    /// Time to send a frame of `bytes`.
    #[inline(always)]
    pub(crate) fn send_time(&self, bytes: u64) -> Ps {
        times(bytes, self.ps_per_byte)
    }

    /// Rate and delay from the link's own fields.
    #[inline(always)]
    fn own_speed(&self) -> Speed {
        Speed { ps_per_byte: self.ps_per_byte, delay: self.delay }
    }

    /// Takes a packet, or drops and counts it if the buffer is full. `speeds` are those of the network; they are
    /// given if they are closer in the caches than the second cache line of the link.
    #[inline(always)]
    pub(crate) fn enqueue(&mut self, now: Ps, mut packet: Packet, speeds: Option<&Speeds>) -> EnqueueResult {
        let start = if self.busy_until <= now {
            self.waiting = 0;
            now
        } else {
            if self.waiting >= self.room && !self.make_room(now) {
                if !self.has_buffer() {
                    self.count_dropped();
                    return EnqueueResult::Dropped;
                }
                // Acknowledgements are not marked: in them, this bit is the echo.
                if packet.direction() == Direction::Data {
                    packet.mark();
                }
            }
            self.waited += self.busy_until - now;
            self.busy_until
        };
        self.waiting += 1;
        let speed = speeds.and_then(|speeds| speeds.get(self.speed)).unwrap_or_else(|| self.own_speed());
        let left = start + times(packet.wire(), speed.ps_per_byte);
        self.busy_until = left;
        let deliver_at = if self.hands_on_at_begin() { start } else { left } + speed.delay;
        self.push(packet, deliver_at)
    }

    /// Takes a packet that will be delivered at `deliver_at`.
    #[inline(always)]
    pub(crate) fn push(&mut self, packet: Packet, deliver_at: Ps) -> EnqueueResult {
        self.taken_bytes += packet.wire();
        if self.put(packet.due(deliver_at)) {
            EnqueueResult::First(deliver_at)
        } else {
            EnqueueResult::Behind
        }
    }

    /// Puts a packet behind those in the ring. Returns whether it is the only one.
    #[inline(always)]
    fn put(&mut self, packet: Packet) -> bool {
        if self.in_flight as usize == self.ring.len() {
            self.grow();
        }
        let place = self.tail() as usize & (self.ring.len() - 1);
        // SAFETY: the ring has a free place, so it has places, and `place` is masked with their number minus one.
        *unsafe { item_mut(&mut self.ring, place) } = packet;
        self.in_flight += 1;
        self.in_flight == 1
    }

    /// Number of packets taken so far.
    #[inline(always)]
    fn tail(&self) -> u64 {
        self.head + u64::from(self.in_flight)
    }

    /// Begins to send a packet that a port has chosen. Returns when sending ends, and what became of the packet.
    pub(crate) fn send_at_once(&mut self, now: Ps, packet: Packet) -> (Ps, EnqueueResult) {
        let left = now + self.send_time(packet.wire());
        let deliver_at = if self.hands_on_at_begin() { now } else { left } + self.delay;
        (left, self.push(packet, deliver_at))
    }

    /// Removes the packet that is due from the ring, which must not be empty. Returns it, and the time when the next one
    /// is due.
    #[inline(always)]
    pub(crate) fn dequeue(&mut self) -> (Packet, Option<Ps>) {
        assert!(self.in_flight > 0, "a link delivered a packet that it does not have");
        let mask = self.ring.len() - 1;
        // The packet has been delivered. Without a time, it is three words, which stay in registers on their way to
        // the next ring.
        // SAFETY: a packet is in the ring, so it has places, and the number is masked.
        let packet = unsafe { item(&self.ring, self.head as usize & mask) }.due(0);
        self.head += 1;
        self.in_flight -= 1;
        if self.head as usize & mask == 0 {
            return (packet, self.come_round());
        }
        // SAFETY: as above; the ring is the same.
        let next = (self.in_flight > 0).then(|| unsafe { item(&self.ring, self.head as usize & mask) }.deliver_at);
        (packet, next)
    }

    /// Updates `waiting`. Returns whether it is below `room`.
    #[inline(never)]
    fn make_room(&mut self, now: Ps) -> bool {
        if self.room == 0 {
            return false;
        }
        let mask = self.ring.len() - 1;
        // Packets that have been delivered have left the port.
        self.waiting = self.waiting.min(self.in_flight);
        let first_waiting = |link: &LinkQueue| (link.tail() - u64::from(link.waiting)) as usize & mask;
        while self.waiting > 0 && self.ring[first_waiting(self)].deliver_at <= now + self.delay {
            self.waiting -= 1;
        }
        self.waiting < self.room
    }

    /// Whether there is room for packets that must be marked. `waiting` must be up to date.
    #[cold]
    fn has_buffer(&self) -> bool {
        self.room > 0 && self.waiting < room(self.buffer, self.hands_on_at_begin())
    }

    /// Counts a packet that found no room, unless a port does the queueing: it counts its own packets.
    #[cold]
    fn count_dropped(&mut self) {
        self.refused += u64::from(self.kind & AT_PORT == 0);
    }

    #[cold]
    fn grow(&mut self) {
        self.move_to_ring((self.ring.len() * 2).max(LEAST_RING));
    }

    /// The head has reached the ring's first place again. If the queue was long and is short now, it gets a smaller
    /// ring, because packets in the large one touch all of its cache lines. Half of the places of the smaller ring
    /// stay free, so that it does not grow again at once. Returns when the next packet is due.
    #[cold]
    #[inline(never)]
    fn come_round(&mut self) -> Option<Ps> {
        if self.ring.len() > LEAST_RING && self.in_flight() as usize * ROOMY <= self.ring.len() {
            self.move_to_ring((self.ring.len() / 4).max(LEAST_RING));
        }
        self.next_due()
    }

    /// Moves the packets to a ring with this number of places, a power of two.
    fn move_to_ring(&mut self, places: usize) {
        let old_mask = self.ring.len().wrapping_sub(1);
        let mut ring = vec![Packet::new(0, 0, 0, 0, 0); places].into_boxed_slice();
        for at in self.head..self.tail() {
            ring[at as usize & (places - 1)] = self.ring[at as usize & old_mask];
        }
        self.ring = ring;
    }

    #[inline(always)]
    fn hands_on_at_begin(&self) -> bool {
        self.kind & HANDS_ON_AT_BEGIN != 0
    }

    /// Whether the other end is a host.
    #[inline(always)]
    pub(crate) fn to_host(&self) -> bool {
        self.kind & TO_HOST != 0
    }

    /// Whether the other end is a host and the link is not slow.
    #[inline(always)]
    pub(crate) fn hands_to_host(&self) -> bool {
        self.kind & HANDS_TO_HOST != 0
    }

    /// Whether the link may lose packets.
    pub(crate) fn is_lossy(&self) -> bool {
        self.kind & LOSSY != 0
    }

    /// Whether arrivals of its packets need more than the main loop does: packets may be lost, a port chooses them, or a
    /// host takes them in another way.
    pub(crate) fn is_slow(&self) -> bool {
        self.kind & (LOSSY | AT_PORT | SLOW) != 0
    }

    /// Sets whether the link may lose packets.
    pub(crate) fn set_lossy(&mut self, lossy: bool) {
        self.kind = self.kind & !LOSSY | if lossy { LOSSY } else { 0 };
        let hands_to_host = if self.to_host() && !self.is_slow() { HANDS_TO_HOST } else { 0 };
        self.kind = self.kind & !HANDS_TO_HOST | hands_to_host;
    }

    /// Lets all packets take the slow path at the other end from now on.
    pub(crate) fn take_slow_path(&mut self) {
        self.kind = self.kind & !HANDS_TO_HOST | SLOW;
    }

    /// Leaves queueing to a port from now on. For a link that has taken no packet yet.
    pub(crate) fn leave_queueing_to_port(&mut self) {
        self.kind = self.kind & !HANDS_TO_HOST | AT_PORT;
        (self.room, self.busy_until) = (0, NEVER);
    }

    /// A link that carries no packets. It serves as a timer: it is due when a port of `link` has sent a packet.
    pub(crate) fn timer(link: &Link) -> LinkQueue {
        LinkQueue::new(link, false, Handover::End, None)
    }

    /// Cancels all pending events of a timer.
    pub(crate) fn stop_timer(&mut self) {
        self.lost += self.in_flight();
        self.head = self.tail();
        self.in_flight = 0;
    }

    /// Whether the link is up.
    pub(crate) fn is_up(&self) -> bool {
        self.kind & DOWN == 0
    }

    /// Counts packets that found no room at the link's port.
    pub(crate) fn count_refused(&mut self, packets: u64) {
        self.refused += packets;
    }

    /// Adds the time that a packet has waited at the link's port.
    pub(crate) fn add_waited(&mut self, time: Ps) {
        self.waited += time;
    }

    /// Marks the packet taken last, if it is still on the link and carries data.
    pub(crate) fn mark_newest(&mut self) {
        let place = self.tail().wrapping_sub(1) as usize & self.ring.len().wrapping_sub(1);
        let is_there = self.in_flight > 0;
        if let Some(packet) = self.ring.get_mut(place).filter(|packet| is_there && !packet.is_control()) {
            packet.mark();
        }
    }

    /// Counts the packet that was delivered last as lost.
    pub(crate) fn count_lost(&mut self) {
        self.lost += 1;
    }

    /// Sets the rate for packets whose sending begins after `begun_by`, as in [`LinkQueue::waited`]; the packet that is
    /// being sent keeps its rate. Returns when the head is due after the change, if there is one.
    pub(crate) fn set_rate(&mut self, begun_by: Ps, rate_bps: u64) -> Option<Ps> {
        let mask = self.ring.len().wrapping_sub(1);
        let begin = self.hands_on_at_begin();
        let old = self.ps_per_byte;
        self.ps_per_byte = ps_per_byte(rate_bps);
        self.speed = SpeedNumber::OWN;
        let mut next: Option<Ps> = None;
        // If a port does the queueing, the sending of every packet here has begun.
        let begun = self.kind & AT_PORT != 0;
        for at in if begun { self.tail() } else { self.head }..self.tail() {
            let new_send = self.send_time(self.ring[at as usize & mask].wire());
            let packet = &mut self.ring[at as usize & mask];
            let old_send = if begin { 0 } else { times(packet.wire(), old) };
            let planned = (packet.deliver_at - self.delay).saturating_sub(old_send);
            if planned <= begun_by {
                continue;
            }
            let start = next.unwrap_or(planned);
            self.waited = (self.waited + start).saturating_sub(planned);
            packet.deliver_at = if begin { start } else { start + new_send } + self.delay;
            next = Some(start + new_send);
        }
        if let Some(end) = next {
            self.busy_until = end;
        }
        self.next_due()
    }

    /// Number of packets that wait, are being sent or are under way.
    pub(crate) fn in_flight(&self) -> u64 {
        u64::from(self.in_flight)
    }

    /// Number of packets that have arrived at the other end.
    pub(crate) fn delivered_packets(&self) -> u64 {
        self.head - self.lost
    }

    /// Number of packets that found no room, or were lost on the link or with it.
    pub(crate) fn dropped_packets(&self) -> u64 {
        self.refused + self.lost
    }

    /// The link fails: all packets on it are lost, and it takes no packets until [`LinkQueue::restore`]. Returns the
    /// lost packets. `begun_by` is as in [`LinkQueue::waited`].
    pub(crate) fn fail(&mut self, now: Ps, begun_by: Ps) -> Vec<Packet> {
        self.waited = self.waited(now, begun_by);
        let mut lost = Vec::with_capacity(self.in_flight() as usize);
        while self.in_flight > 0 {
            lost.push(self.dequeue().0);
        }
        self.lost += lost.len() as u64;
        self.waiting = 0;
        self.room = 0;
        self.busy_until = NEVER;
        self.kind |= DOWN;
        lost
    }

    /// The link works again.
    pub(crate) fn restore(&mut self, now: Ps) {
        self.kind &= !DOWN;
        if self.kind & AT_PORT == 0 {
            self.room = room(self.buffer.min(self.mark_above), self.hands_on_at_begin());
            self.busy_until = now;
        }
    }

    /// Whether the other end is in another part of the network.
    #[inline(always)]
    pub(crate) fn crosses(&self) -> bool {
        self.kind & CROSSING != 0
    }

    /// Shortest time until a packet that is taken now arrives.
    pub(crate) fn least_transit(&self) -> Ps {
        let send_time = if self.hands_on_at_begin() { 0 } else { self.send_time(LEAST_WIRE) };
        self.delay.saturating_add(send_time)
    }

    /// An empty link, in place of a link that belongs to another part of the network.
    pub(crate) fn placeholder() -> LinkQueue {
        LinkQueue {
            ring: Box::new([]),
            head: 0,
            in_flight: 0,
            due: Due::NOT,
            waiting: 0,
            kind: 0,
            speed: SpeedNumber::OWN,
            buffer: 0,
            busy_until: NEVER,
            room: 0,
            mark_above: UNMARKED,
            ps_per_byte: 0,
            delay: 0,
            taken_bytes: 0,
            refused: 0,
            lost: 0,
            waited: 0,
        }
    }

    /// Splits the link: from now on, the other end is in another part of the network. Returns the queue for that
    /// part. It has the packets on the link, and [`LinkQueue::expect`] adds later ones. This queue delivers no
    /// packets any more.
    pub(crate) fn split(&mut self) -> LinkQueue {
        let (ring, kind) = (self.ring.clone(), self.kind);
        self.kind |= CROSSING;
        self.due = Due::NOT;
        LinkQueue { ring, kind, head: self.head, in_flight: self.in_flight, ..LinkQueue::placeholder() }
    }

    /// Both ends are in one part again. `receiving` is the queue that [`LinkQueue::split`] returned: it knows which
    /// packets have arrived, and all that have not.
    pub(crate) fn reunite(&mut self, receiving: LinkQueue) {
        debug_assert_eq!(self.tail(), receiving.tail(), "the other part has been told of every packet");
        self.kind &= !CROSSING;
        self.ring = receiving.ring;
        (self.head, self.in_flight) = (receiving.head, receiving.in_flight);
        self.lost += receiving.lost;
    }

    /// Takes a packet for another part of the network, or drops it. Returns a taken packet with the time of its
    /// arrival.
    #[inline(always)]
    pub(crate) fn enqueue_across(&mut self, now: Ps, packet: Packet, speeds: Option<&Speeds>) -> Option<Packet> {
        let mask = self.ring.len().wrapping_sub(1);
        if self.in_flight as usize == self.ring.len() {
            // The other part has delivered these packets; they are still in the ring of this part.
            while self.in_flight > 0 && self.ring[self.head as usize & mask].deliver_at <= now {
                self.head += 1;
                self.in_flight -= 1;
            }
        }
        match self.enqueue(now, packet, speeds) {
            EnqueueResult::Dropped => None,
            EnqueueResult::First(_) | EnqueueResult::Behind => {
                let place = (self.tail() - 1) as usize & (self.ring.len() - 1);
                Some(self.ring[place])
            }
        }
    }

    /// Adds a packet that will arrive by this link, later than those before it. If it is the only one, returns when.
    #[inline(always)]
    pub(crate) fn expect(&mut self, packet: Packet) -> Option<Ps> {
        self.put(packet).then_some(packet.deliver_at)
    }

    /// Time when the head is due, if there is one.
    pub(crate) fn next_due(&self) -> Option<Ps> {
        self.head().filter(|_| self.in_flight > 0).map(|packet| packet.deliver_at)
    }

    /// Time until all packets taken have left the port.
    #[inline(always)]
    pub(crate) fn backlog(&self, now: Ps) -> Ps {
        if self.busy_until == NEVER {
            0
        } else {
            self.busy_until.saturating_sub(now)
        }
    }

    /// Bytes that have not left the port, to within one byte per packet. 0 while the link is down, or if a port does the
    /// queueing.
    #[inline(always)]
    pub(crate) fn backlog_bytes(&self, now: Ps) -> u64 {
        bytes_in(self.backlog(now), self.ps_per_byte)
    }

    /// Bytes that the link sends in this time.
    pub(crate) fn bytes_of(&self, time: Ps) -> u64 {
        bytes_in(time, self.ps_per_byte)
    }

    /// Present rate in bit/s, to within one part in a million.
    #[inline(always)]
    pub(crate) fn rate_bps(&self) -> u64 {
        bytes_in(1_000_000_000_000, self.ps_per_byte) * 8
    }
}

/// Number of packets in a port up to which it takes more: the buffer and, unless packets are handed on when their
/// sending begins (`begin`), the packet being sent.
fn room(buffer: u32, begin: bool) -> u32 {
    buffer.saturating_add(u32::from(!begin))
}

/// What became of a packet offered to a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EnqueueResult {
    /// It is the only packet, and the link must be scheduled for its delivery at this time.
    First(Ps),
    /// Other packets are due before it.
    Behind,
    /// There was no room.
    Dropped,
}
