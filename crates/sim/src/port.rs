//! A port that chooses the next packet at the end of each packet: strict priorities or weights, each queue with RED if
//! required. A full queue may cut packets down to their headers instead of dropping them ("trimming").
//!
//! How long a packet will wait is not known when it arrives, because packets of a higher queue may arrive after it.
//! The port need not choose the next packet at the very moment, though. Until the previous packet arrives at the other
//! end, nobody sees the choice, so the port makes up for it when a packet arrives at either end of the link.

use crate::deficits::Deficits;
use crate::packet::{Direction, Packet};
use crate::pools::Share;
use crate::red::Red;
use crate::time::Ps;
use crate::trusted::{fetch, fetch_byte, LINE};
use pathloom_model::{EcnSettings, PortSettings, RedSettings, MOST_QUEUES};
use pathloom_transport::packets::TrimmedAt;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::VecDeque;
use std::slice;

/// Constant that makes these draws differ from others with the same seed.
const STREAM: u64 = 0x6561_726c_7900;

/// The queues of a port. The packet that is being sent is in none of them.
pub(crate) struct Port {
    /// Queues, from the lowest priority to the highest.
    queues: Vec<Queue>,
    rng: Pcg64,
    /// Settings that the queues share.
    limits: Limits,
    /// The packet that is being sent: its queue and its bytes.
    sending: Option<(usize, u64)>,
    /// Frames that pause or resume the other end. They come before all queues, of which their number is one above.
    urgent: VecDeque<Waiting>,
    /// When the last packet will have been sent, or was.
    free_at: Ps,
    /// Bytes of the packets that wait.
    waiting_bytes: u64,
    /// Packets cut down to their headers.
    trimmed: u64,
    /// Turns of the data queues if they have weights. Boxed, so that a port without them is small.
    deficits: Option<Box<Deficits>>,
    /// What the next packet may use of the buffer that the switch's ports share; `None` if this port has its own.
    share: Option<Share>,
}

/// A packet that waits at a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waiting {
    /// When it arrived.
    pub(crate) came: Ps,
    pub(crate) packet: Packet,
    /// The link by which it arrived; [`NOWHERE`] if the switch made it.
    pub(crate) from: u32,
}

/// Value of [`Waiting::from`] for packets of the switch itself.
pub(crate) const NOWHERE: u32 = u32::MAX;

struct Queue {
    /// Waiting packets.
    waiting: VecDeque<Waiting>,
    /// Their bytes.
    bytes: u64,
    /// Whether the other end of the link has paused it.
    is_paused: bool,
    /// Boxed, so that a port without RED is small.
    red: Option<Box<Red>>,
}

/// Limits of each queue of a port, and its sending time.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Packets that may wait in each queue.
    pub(crate) buffer: u32,
    /// Bytes that each queue holds instead, with those of the packet that is being sent from it.
    pub(crate) bytes: Option<u64>,
    /// Packets that may wait in a queue without RED before arriving packets are marked.
    pub(crate) mark_above: Option<u32>,
    /// When packets are marked as they leave.
    pub(crate) ecn: Option<EcnSettings>,
    /// Whether the transport reacts to marks.
    pub(crate) reacts_to_marks: bool,
    /// Whether the highest queue is for acknowledgements and headers.
    pub(crate) has_control: bool,
    /// Whether data wait however long their queue is, because something else limits them.
    pub(crate) lossless: bool,
    /// Bytes of a trimmed packet, and what it says about the place; `None` if full queues drop packets.
    pub(crate) trim: Option<(u16, TrimmedAt)>,
    /// Time to send a full frame.
    pub(crate) frame_ps: Ps,
    /// Bytes of the largest frame, in which weights are counted.
    pub(crate) frame_bytes: u64,
}

/// Result for an arriving packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Offer {
    /// The packet is dropped.
    Dropped,
    /// The packet waits, or its header does, or the packet takes the place of one whose header waits.
    Waits,
    /// The sending of the packet begins.
    Begins(Packet),
}

/// Bytes of a full frame, by which the control queue is limited if the others are limited by packets.
const FRAME_BYTES: u64 = 1514;

impl Port {
    pub(crate) fn new(settings: PortSettings, limits: Limits, seed: u64, link: u32) -> Port {
        let queue = |red: Option<RedSettings>| Queue {
            waiting: VecDeque::new(),
            bytes: 0,
            is_paused: false,
            red: red.map(Red::new).map(Box::new),
        };
        let data = (0..settings.queues).map(|_| queue(settings.red));
        let control = limits.has_control.then(|| queue(None));
        let deficits = |weights: [u8; MOST_QUEUES as usize]| {
            Box::new(Deficits::new(&weights[..usize::from(settings.queues)], limits.frame_bytes))
        };
        Port {
            queues: data.chain(control).collect(),
            rng: Pcg64::seed_from_u64(seed ^ STREAM ^ (u64::from(link) << 20)),
            limits,
            sending: None,
            urgent: VecDeque::new(),
            free_at: 0,
            waiting_bytes: 0,
            trimmed: 0,
            deficits: settings.weights.map(deficits),
            share: None,
        }
    }

    /// The next packet may use so much of the buffer that the ports of the switch share.
    pub(crate) fn set_share(&mut self, share: Share) {
        self.share = Some(share);
    }

    /// Bytes that wait in the data queues.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.queues[..self.data_queues()].iter().map(|queue| queue.bytes).sum()
    }

    /// Number of queues of data. The control queue is above them.
    pub(crate) fn data_queues(&self) -> usize {
        self.queues.len() - usize::from(self.limits.has_control)
    }

    /// Prefetches the queues. Affects only speed.
    #[inline(always)]
    pub(crate) fn fetch_queues(&self) {
        fetch(&self.queues, 0);
        fetch_byte(&self.queues, 0, LINE);
    }

    /// Prefetches the first waiting packet of each queue, and the place behind the last one. Affects only speed.
    #[inline(always)]
    pub(crate) fn fetch_tails(&self) {
        for Queue { waiting, .. } in &self.queues {
            if let (Some(first), Some(last)) = (waiting.front(), waiting.back()) {
                fetch(slice::from_ref(first), 0);
                fetch(slice::from_ref(last), 1);
            }
        }
    }

    /// Number of the highest queue.
    pub(crate) fn highest(&self) -> usize {
        self.queues.len() - 1
    }

    /// Whether a packet for a queue would wait, if it is not dropped.
    pub(crate) fn delays(&self, queue: usize) -> bool {
        self.sending.is_some() || self.queues[queue].is_paused
    }

    /// A packet that came by the link `from` ([`NOWHERE`] if the switch made it) arrives for a queue.
    pub(crate) fn offer(&mut self, now: Ps, queue: usize, mut packet: Packet, from: u32) -> Offer {
        if !self.passes_early(now, queue, &mut packet) {
            return Offer::Dropped;
        }
        if !self.delays(queue) {
            self.sending = Some((queue, packet.wire()));
            return Offer::Begins(packet);
        }
        if self.has_room(queue, packet.wire()) {
            self.wait(queue, Waiting { came: now, packet, from });
            return Offer::Waits;
        }
        match self.limits.trim.filter(|_| packet.can_be_trimmed()) {
            Some((bytes, _)) if self.has_room(self.highest(), bytes.into()) => {
                self.trim(queue, Waiting { came: now, packet, from });
                Offer::Waits
            }
            _ => Offer::Dropped,
        }
    }

    /// A frame that pauses or resumes the other end must leave before all waiting packets. Returns it if its sending begins.
    pub(crate) fn offer_urgent(&mut self, now: Ps, packet: Packet) -> Option<Packet> {
        if self.sending.is_some() {
            self.urgent.push_back(Waiting { came: now, packet, from: NOWHERE });
            self.waiting_bytes += packet.wire();
            return None;
        }
        self.sending = Some((self.queues.len(), packet.wire()));
        Some(packet)
    }

    /// The other end pauses or resumes a queue. Returns whether the port is idle, so that it may have to send the next
    /// packet.
    pub(crate) fn set_paused(&mut self, queue: usize, is_paused: bool) -> bool {
        if let Some(queue) = self.queues.get_mut(queue) {
            queue.is_paused = is_paused;
        }
        self.sending.is_none()
    }

    /// The packets that wait in a queue.
    pub(crate) fn waiting_in(&self, queue: usize) -> impl Iterator<Item = &Waiting> {
        self.queues[queue].waiting.iter()
    }

    /// Marks an arriving packet, if RED or the threshold says so. Returns whether RED accepts it.
    fn passes_early(&mut self, now: Ps, queue: usize, packet: &mut Packet) -> bool {
        let Limits { mark_above, reacts_to_marks, frame_ps, .. } = self.limits;
        // A port whose packets are paused is not idle.
        let idle_ps = if self.sending.is_some() || self.waiting_bytes > 0 { 0 } else { now - self.free_at };
        let queue = &mut self.queues[queue];
        let waiting = queue.waiting.len();
        // Acknowledgements are not marked: in them, this bit is the echo.
        let markable = reacts_to_marks && packet.direction() == Direction::Data;
        let idle_frames = idle_ps / frame_ps.max(1);
        let draw = || self.rng.random_range(0.0..1.0);
        let early = queue.red.as_mut().map(|red| (red.acts(waiting, idle_frames, draw), red.marks()));
        match early {
            Some((true, true)) if markable => packet.mark(),
            Some((true, _)) => return false,
            None if markable && self.sending.is_some() && mark_above.is_some_and(|above| waiting >= above as usize) => {
                packet.mark();
            }
            _ => {}
        }
        true
    }

    /// Whether a queue has room for a packet of this many bytes. The control queue has twice the bytes of the others, as
    /// in uet-htsim.
    fn has_room(&self, queue: usize, bytes: u64) -> bool {
        let Limits { buffer, bytes: most, has_control, lossless, .. } = self.limits;
        if lossless && !(has_control && queue == self.highest()) {
            return true;
        }
        if let Some(share) = self.share.filter(|_| queue < self.data_queues()) {
            return bytes <= share.free && self.queues[queue].bytes + bytes <= share.most;
        }
        let most = match most {
            most if has_control && queue == self.highest() => 2 * most.unwrap_or(u64::from(buffer) * FRAME_BYTES),
            Some(most) => most,
            None => return self.queues[queue].waiting.len() < buffer as usize,
        };
        let sending = self.sending.map_or(0, |(of, bytes)| if of == queue { bytes } else { 0 });
        self.queues[queue].bytes + sending + bytes <= most
    }

    fn wait(&mut self, queue: usize, waiting: Waiting) {
        self.queues[queue].waiting.push_back(waiting);
        self.queues[queue].bytes += waiting.packet.wire();
        self.waiting_bytes += waiting.packet.wire();
    }

    /// Cuts down the packet that arrives at a full queue or, with the same probability, the last one in the queue, so
    /// that packets of the same flow are not trimmed again and again (Handley et al. 2017, §3.1).
    fn trim(&mut self, queue: usize, arriving: Waiting) {
        let Some((bytes, place)) = self.limits.trim else { return };
        let last = if self.rng.random() { self.queues[queue].waiting.pop_back() } else { None };
        let mut header = last.unwrap_or(arriving);
        if last.is_some() {
            self.queues[queue].bytes -= header.packet.wire();
            self.waiting_bytes -= header.packet.wire();
            self.wait(queue, arriving);
        }
        header.packet.trim(bytes, place);
        self.wait(self.highest(), header);
        self.trimmed += 1;
    }

    /// Whether the packet that has just been sent is marked as it leaves, by what it leaves behind in its queue.
    pub(crate) fn marks_leaving(&mut self) -> bool {
        let (Some(ecn), Some((queue, _))) = (self.limits.ecn, self.sending) else { return false };
        let Some(behind) = self.queues.get(queue).map(|queue| queue.bytes) else { return false };
        if behind <= ecn.min_bytes || self.limits.has_control && queue == self.highest() {
            return false;
        }
        let share = (behind - ecn.min_bytes) as f64 / (ecn.max_bytes - ecn.min_bytes) as f64;
        behind > ecn.max_bytes || self.rng.random_range(0.0..1.0) < share * ecn.most_probability
    }

    /// Number of packets that were cut down to their headers.
    pub(crate) fn trimmed(&self) -> u64 {
        self.trimmed
    }

    /// The sending of the packet that [`Port::offer`] or [`Port::next`] returned will end at `free_at`.
    pub(crate) fn begin(&mut self, free_at: Ps) {
        self.free_at = free_at;
    }

    /// When the packet that was being sent had been sent, if that was by now and the port has not chosen the next one.
    pub(crate) fn ended(&self, now: Ps) -> Option<Ps> {
        (self.sending.is_some() && self.free_at <= now).then_some(self.free_at)
    }

    /// Takes the packet that is sent next, with its queue. If there is none, the port is idle.
    pub(crate) fn next(&mut self) -> Option<(usize, Waiting)> {
        let next = self.next_waiting();
        self.sending = next.map(|(queue, waiting)| (queue, waiting.packet.wire()));
        next
    }

    fn next_waiting(&mut self) -> Option<(usize, Waiting)> {
        if let Some(urgent) = self.urgent.pop_front() {
            self.waiting_bytes -= urgent.packet.wire();
            return Some((self.queues.len(), urgent));
        }
        let queue = self.next_queue()?;
        let next = self.queues[queue].waiting.pop_front()?;
        self.queues[queue].bytes -= next.packet.wire();
        self.waiting_bytes -= next.packet.wire();
        Some((queue, next))
    }

    fn next_queue(&mut self) -> Option<usize> {
        let data = self.data_queues();
        let Some(deficits) = &mut self.deficits else {
            return self.queues.iter().rposition(|queue| !queue.waiting.is_empty() && !queue.is_paused);
        };
        if self.queues[data..].iter().any(|control| !control.waiting.is_empty()) {
            return Some(data);
        }
        let queues = &self.queues;
        deficits.next(|queue| {
            queues[queue].waiting.front().filter(|_| !queues[queue].is_paused).map(|first| first.packet.wire())
        })
    }

    /// The link fails: the packets that wait are lost, and no pause holds. Returns the packets with their queues.
    pub(crate) fn fail(&mut self, now: Ps) -> Vec<(usize, Waiting)> {
        (self.sending, self.free_at, self.waiting_bytes) = (None, self.free_at.min(now), 0);
        let above = self.queues.len();
        let mut lost = Vec::new();
        for (number, queue) in self.queues.iter_mut().enumerate() {
            (queue.bytes, queue.is_paused) = (0, false);
            lost.extend(queue.waiting.drain(..).map(|waiting| (number, waiting)));
        }
        lost.extend(self.urgent.drain(..).map(|waiting| (above, waiting)));
        lost
    }

    /// Sends at another rate from the next packet on.
    pub(crate) fn set_frame_time(&mut self, frame_ps: Ps) {
        self.limits.frame_ps = frame_ps;
    }

    /// Number of waiting packets.
    pub(crate) fn waiting(&self) -> usize {
        self.queues.iter().map(|queue| queue.waiting.len()).sum::<usize>() + self.urgent.len()
    }

    /// The waiting packets.
    pub(crate) fn packets(&self) -> impl Iterator<Item = &Packet> {
        self.queues.iter().flat_map(|queue| &queue.waiting).chain(&self.urgent).map(|waiting| &waiting.packet)
    }

    /// Bytes of the waiting packets.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes
    }

    /// Sum of the times that these packets have waited.
    pub(crate) fn waited(&self, now: Ps) -> Ps {
        self.queues.iter().flat_map(|queue| &queue.waiting).chain(&self.urgent).map(|waiting| now - waiting.came).sum()
    }

    /// Time until the packet that is being sent has left; negative since it has left, until the next one is chosen.
    pub(crate) fn signed_backlog(&self, now: Ps) -> i64 {
        if self.sending.is_some() {
            self.free_at as i64 - now as i64
        } else {
            0
        }
    }

    /// Time until the packet that is being sent has left.
    pub(crate) fn backlog(&self, now: Ps) -> Ps {
        self.free_at.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        buffer: 2,
        bytes: None,
        mark_above: None,
        ecn: None,
        reacts_to_marks: true,
        has_control: false,
        lossless: false,
        trim: None,
        frame_ps: 10,
        frame_bytes: 1000,
    };

    fn packet(lane: u32) -> Packet {
        Packet::new(lane, 0, 0, 1000, 0)
    }

    #[test]
    fn the_highest_nonempty_queue_comes_next_and_each_queue_has_its_own_buffer() {
        let mut port = Port::new(PortSettings { queues: 3, ..PortSettings::DROP_TAIL }, LIMITS, 1, 0);
        assert_eq!(port.offer(0, 0, packet(0), NOWHERE), Offer::Begins(packet(0)), "an idle port sends whatever comes");
        port.begin(10);
        for (queue, lane) in [(0, 2), (1, 4), (0, 6), (2, 8)] {
            assert_eq!(port.offer(1, queue, packet(lane), NOWHERE), Offer::Waits);
        }
        assert_eq!(port.offer(2, 0, packet(10), NOWHERE), Offer::Dropped, "two wait in the lowest queue");
        assert_eq!(port.offer(2, 1, packet(12), NOWHERE), Offer::Waits, "the others have room");
        assert_eq!((port.ended(9), port.ended(10), port.ended(30)), (None, Some(10), Some(10)));
        assert_eq!((port.waiting(), port.waiting_bytes(), port.waited(5)), (5, 5000, 4 * 4 + 3));
        let order: Vec<u32> = std::iter::from_fn(|| port.next()).map(|(_, next)| next.packet.lane()).collect();
        assert_eq!((order, port.waiting_bytes()), (vec![8, 4, 12, 2, 6], 0));
        assert_eq!(port.offer(50, 0, packet(14), NOWHERE), Offer::Begins(packet(14)));
    }

    #[test]
    fn queues_with_weights_send_in_turn_below_the_control_queue() {
        let mut weights = [1; MOST_QUEUES as usize];
        weights[0] = 2;
        let limits = Limits { buffer: 100, has_control: true, ..LIMITS };
        let settings = PortSettings { queues: 2, weights: Some(weights), ..PortSettings::DROP_TAIL };
        let mut port = Port::new(settings, limits, 1, 0);
        assert_eq!(port.offer(0, 0, packet(0), NOWHERE), Offer::Begins(packet(0)));
        for queue in [0, 1, 2].into_iter().cycle().take(15) {
            assert_eq!(port.offer(0, queue, packet(2), NOWHERE), Offer::Waits);
        }
        let order: Vec<usize> = std::iter::from_fn(|| port.next()).map(|(queue, _)| queue).collect();
        assert_eq!(order, [2, 2, 2, 2, 2, 0, 0, 1, 0, 0, 1, 0, 1, 1, 1]);
    }

    #[test]
    fn a_share_of_a_common_buffer_takes_the_place_of_the_buffer() {
        let mut port = Port::new(PortSettings { queues: 2, ..PortSettings::DROP_TAIL }, LIMITS, 1, 0);
        assert_eq!(port.offer(0, 0, packet(0), NOWHERE), Offer::Begins(packet(0)));
        port.set_share(Share { free: 10_000, most: 3000 });
        let offers: Vec<Offer> = (0..4).map(|_| port.offer(0, 0, packet(2), NOWHERE)).collect();
        assert_eq!(offers, [Offer::Waits, Offer::Waits, Offer::Waits, Offer::Dropped]);
        port.set_share(Share { free: 999, most: 3000 });
        assert_eq!((port.offer(0, 1, packet(2), NOWHERE), port.data_bytes()), (Offer::Dropped, 3000));
        port.set_share(Share { free: 1000, most: 3000 });
        assert_eq!((port.offer(0, 1, packet(2), NOWHERE), port.data_bytes()), (Offer::Waits, 4000));
    }

    #[test]
    fn red_marks_data_of_transports_that_react_and_drops_other_packets() {
        let red = RedSettings { min_packets: 0, max_packets: 1, most_probability: 1.0, weight: 1.0, ecn: true };
        let offered = |ecn: bool, reacts_to_marks: bool, lane: u32| {
            let settings = PortSettings { red: Some(RedSettings { ecn, ..red }), ..PortSettings::DROP_TAIL };
            let mut port = Port::new(settings, Limits { reacts_to_marks, ..LIMITS }, 1, 0);
            let first = port.offer(0, 0, packet(0), NOWHERE);
            assert_eq!(first, Offer::Begins(packet(0)), "the mean is 0");
            port.begin(10);
            assert_eq!(port.offer(0, 0, packet(0), NOWHERE), Offer::Waits);
            let taken = port.offer(0, 0, packet(lane), NOWHERE) != Offer::Dropped;
            port.next();
            taken.then(|| port.next().is_some_and(|(_, next)| next.packet.is_marked()))
        };
        let (data, acknowledgement) = (2, 3);
        assert_eq!(offered(true, true, data), Some(true));
        assert_eq!(offered(true, true, acknowledgement), None);
        assert_eq!(offered(true, false, data), None);
        assert_eq!(offered(false, true, data), None);
    }

    #[test]
    fn a_paused_queue_waits_and_pauses_of_the_other_end_come_first() {
        let limits = Limits { has_control: true, lossless: true, ..LIMITS };
        let mut port = Port::new(PortSettings { queues: 2, ..PortSettings::DROP_TAIL }, limits, 1, 0);
        assert!(port.set_paused(1, true), "the port is idle");
        assert_eq!(port.offer(0, 1, packet(2), 7), Offer::Waits, "it is paused");
        assert_eq!(port.offer(1, 0, packet(4), 7), Offer::Begins(packet(4)), "others are not");
        port.begin(10);
        for lane in [6, 8, 10, 12] {
            assert_eq!(port.offer(2, 0, packet(lane), 7), Offer::Waits, "the buffer is no limit");
        }
        let stop = Packet::of_pause(crate::packet::Pause { class: 0, stops: true });
        assert_eq!((port.offer_urgent(3, stop), port.waiting(), port.waiting_bytes()), (None, 6, 5064));
        let next = |port: &mut Port| port.next().map(|(queue, next)| (queue, next.packet.lane(), next.came, next.from));
        assert_eq!(next(&mut port), Some((3, 0, 3, NOWHERE)), "one above the control queue");
        assert_eq!(next(&mut port), Some((0, 6, 2, 7)), "the upper queue is paused");
        assert!(!port.set_paused(1, false), "the port is sending");
        assert_eq!(next(&mut port), Some((1, 2, 0, 7)));
        port.set_paused(0, true);
        assert_eq!((next(&mut port), port.waiting()), (None, 3));
        assert!(port.set_paused(0, false));
        assert_eq!(port.fail(20).len(), 3);
    }

    /// A port whose data queue holds 3000 bytes, and which is sending a packet from it until 10.
    fn trimming(seed: u64) -> Port {
        let trim = Some((64, TrimmedAt::Fabric));
        let limits = Limits { bytes: Some(3000), has_control: true, trim, ..LIMITS };
        let mut port = Port::new(PortSettings::DROP_TAIL, limits, seed, 0);
        assert_eq!(port.offer(0, 0, packet(0), NOWHERE), Offer::Begins(packet(0)));
        port.begin(10);
        port
    }

    #[test]
    fn a_full_queue_trims_one_of_two_packets_and_the_header_overtakes_the_data() {
        let mut trimmed_lanes = Vec::new();
        for seed in 0..20 {
            let mut port = trimming(seed);
            for lane in [2, 4, 6] {
                assert_eq!(port.offer(1, 0, packet(lane), NOWHERE), Offer::Waits);
            }
            // 1000 bytes are being sent, and 2000 wait; the third packet takes the place of the second one, or not.
            assert_eq!((port.waiting(), port.waiting_bytes(), port.trimmed()), (3, 2064, 1));
            let order: Vec<Packet> = std::iter::from_fn(|| port.next()).map(|(_, next)| next.packet).collect();
            assert_eq!(order[0].trimmed_at(), Some(TrimmedAt::Fabric));
            assert_eq!((order[0].wire(), order[1].lane(), order[1].wire()), (64, 2, 1000));
            assert_eq!(order[0].lane() + order[2].lane(), 4 + 6);
            trimmed_lanes.push(order[0].lane());
        }
        assert!(trimmed_lanes.contains(&4) && trimmed_lanes.contains(&6), "{trimmed_lanes:?}");
    }

    #[test]
    fn acknowledgements_and_headers_are_dropped_only_if_their_own_queue_is_full() {
        let mut port = trimming(1);
        let (control, ack) = (port.highest(), Packet::new(3, 0, 0, 64, 0));
        let taken =
            std::iter::repeat_with(|| port.offer(1, control, ack, NOWHERE)).take_while(|offer| *offer == Offer::Waits);
        assert_eq!(taken.count(), 6000 / 64, "twice the bytes of the data queue");
        for _ in 0..2 {
            assert_eq!(port.offer(1, 0, packet(2), NOWHERE), Offer::Waits);
        }
        assert_eq!((port.offer(1, 0, packet(2), NOWHERE), port.trimmed()), (Offer::Dropped, 0), "no room for a header");
    }

    #[test]
    fn marks_depend_on_what_a_packet_leaves_behind() {
        let marked_by = |most_probability: f64, waiting: usize| {
            let ecn = Some(EcnSettings { min_bytes: 1000, max_bytes: 5000, most_probability });
            let limits = Limits { buffer: 100, ecn, ..LIMITS };
            let marks = |seed: u64| {
                let mut port = Port::new(PortSettings::DROP_TAIL, limits, seed, 0);
                (0..=waiting).for_each(|_| assert_ne!(port.offer(0, 0, packet(0), NOWHERE), Offer::Dropped));
                port.marks_leaving()
            };
            (0..1000).filter(|&seed| marks(seed)).count()
        };
        let marked = |waiting: usize| marked_by(1.0, waiting);
        assert_eq!([0, 1, 6, 9].map(marked), [0, 0, 1000, 1000]);
        assert!(marked_by(0.2, 5).abs_diff(200) < 50 && marked_by(0.2, 3).abs_diff(100) < 40, "a fifth at most");
        assert_eq!(marked_by(0.2, 6), 1000, "above the upper threshold");
        for (waiting, share) in [(2, 250), (3, 500), (4, 750)] {
            assert!(marked(waiting).abs_diff(share) < 50, "{waiting}: {}", marked(waiting));
        }
        assert!(marked(5) == 1000, "at the upper threshold");
    }
}
