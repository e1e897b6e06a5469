//! A port that chooses the next packet at the end of each packet: strict priorities, each queue with RED if required.
//!
//! How long a packet will wait is not known when it arrives, because packets of a higher queue may arrive after it.
//! The port need not choose the next packet at the very moment, though. Until the previous packet arrives at the other
//! end, nobody sees the choice, so the port makes up for it when a packet arrives at either end of the link.

use crate::packet::{Direction, Packet};
use crate::red::Red;
use crate::time::Ps;
use pathloom_model::PortSettings;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::VecDeque;

/// Constant that makes these draws differ from others with the same seed.
const STREAM: u64 = 0x6561_726c_7900;

/// The queues of a port. The packet that is being sent is in none of them.
pub(crate) struct Port {
    /// Queues, from the lowest priority to the highest.
    queues: Vec<Queue>,
    rng: Pcg64,
    /// Settings that the queues share.
    limits: Limits,
    /// Whether a packet is being sent.
    is_sending: bool,
    /// When the last packet will have been sent, or was.
    free_at: Ps,
    /// Bytes of the packets that wait.
    waiting_bytes: u64,
}

struct Queue {
    /// Waiting packets, each with the time when it arrived.
    waiting: VecDeque<(Ps, Packet)>,
    red: Option<Red>,
}

/// Limits of each queue of a port, and its sending time.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Packets that may wait in each queue.
    pub(crate) buffer: u32,
    /// Packets that may wait in a queue without RED before arriving packets are marked.
    pub(crate) mark_above: Option<u32>,
    /// Whether the transport reacts to marks.
    pub(crate) reacts_to_marks: bool,
    /// Time to send a full frame.
    pub(crate) frame_ps: Ps,
}

/// Result for an arriving packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Offer {
    /// The packet is dropped.
    Dropped,
    /// The packet waits.
    Waits,
    /// The sending of the packet begins.
    Begins(Packet),
}

impl Port {
    pub(crate) fn new(settings: PortSettings, limits: Limits, seed: u64, link: u32) -> Port {
        let queue = |_| Queue { waiting: VecDeque::new(), red: settings.red.map(Red::new) };
        Port {
            queues: (0..settings.queues).map(queue).collect(),
            rng: Pcg64::seed_from_u64(seed ^ STREAM ^ (u64::from(link) << 20)),
            limits,
            is_sending: false,
            free_at: 0,
            waiting_bytes: 0,
        }
    }

    /// A packet arrives for a queue.
    pub(crate) fn offer(&mut self, now: Ps, queue: usize, mut packet: Packet) -> Offer {
        let Limits { buffer, mark_above, reacts_to_marks, frame_ps } = self.limits;
        let idle_ps = if self.is_sending { 0 } else { now - self.free_at };
        let queue = &mut self.queues[queue];
        let waiting = queue.waiting.len();
        // Acknowledgements are not marked: in them, this bit is the echo.
        let markable = reacts_to_marks && packet.direction() == Direction::Data;
        let idle_frames = idle_ps / frame_ps.max(1);
        let draw = || self.rng.random_range(0.0..1.0);
        let early = queue.red.as_mut().map(|red| (red.acts(waiting, idle_frames, draw), red.marks()));
        match early {
            Some((true, true)) if markable => packet.mark(),
            Some((true, _)) => return Offer::Dropped,
            None if markable && self.is_sending && mark_above.is_some_and(|above| waiting >= above as usize) => {
                packet.mark();
            }
            _ => {}
        }
        if !self.is_sending {
            return Offer::Begins(packet);
        }
        if waiting >= buffer as usize {
            return Offer::Dropped;
        }
        queue.waiting.push_back((now, packet));
        self.waiting_bytes += packet.wire();
        Offer::Waits
    }

    /// The sending of a packet begins, and will end at `free_at`.
    pub(crate) fn begin(&mut self, free_at: Ps) {
        (self.is_sending, self.free_at) = (true, free_at);
    }

    /// When the packet that was being sent had been sent, if that was by now and the port has not chosen the next one.
    pub(crate) fn ended(&self, now: Ps) -> Option<Ps> {
        (self.is_sending && self.free_at <= now).then_some(self.free_at)
    }

    /// Takes the packet that is sent next, with the time when it arrived. If there is none, the port is idle.
    pub(crate) fn next(&mut self) -> Option<(Ps, Packet)> {
        let next = self.queues.iter_mut().rev().find_map(|queue| queue.waiting.pop_front());
        self.is_sending = next.is_some();
        self.waiting_bytes -= next.map_or(0, |(_, packet)| packet.wire());
        next
    }

    /// The link fails: the packets that wait are lost.
    pub(crate) fn fail(&mut self, now: Ps) -> Vec<Packet> {
        (self.is_sending, self.free_at, self.waiting_bytes) = (false, self.free_at.min(now), 0);
        self.queues.iter_mut().flat_map(|queue| queue.waiting.drain(..)).map(|(_, packet)| packet).collect()
    }

    /// Sends at another rate from the next packet on.
    pub(crate) fn set_frame_time(&mut self, frame_ps: Ps) {
        self.limits.frame_ps = frame_ps;
    }

    /// Number of waiting packets.
    pub(crate) fn waiting(&self) -> usize {
        self.queues.iter().map(|queue| queue.waiting.len()).sum()
    }

    /// Bytes of the waiting packets.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes
    }

    /// Sum of the times that these packets have waited.
    pub(crate) fn waited(&self, now: Ps) -> Ps {
        self.queues.iter().flat_map(|queue| &queue.waiting).map(|&(came, _)| now - came).sum()
    }

    /// Time until the packet that is being sent has left; negative since it has left, until the next one is chosen.
    pub(crate) fn signed_backlog(&self, now: Ps) -> i64 {
        if self.is_sending {
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
    use pathloom_model::RedSettings;

    const LIMITS: Limits = Limits { buffer: 2, mark_above: None, reacts_to_marks: true, frame_ps: 10 };

    fn packet(lane: u32) -> Packet {
        Packet::new(lane, 0, 0, 1000, 0)
    }

    #[test]
    fn the_highest_nonempty_queue_comes_next_and_each_queue_has_its_own_buffer() {
        let mut port = Port::new(PortSettings { queues: 3, red: None }, LIMITS, 1, 0);
        assert_eq!(port.offer(0, 0, packet(0)), Offer::Begins(packet(0)), "an idle port sends whatever comes");
        port.begin(10);
        for (queue, lane) in [(0, 2), (1, 4), (0, 6), (2, 8)] {
            assert_eq!(port.offer(1, queue, packet(lane)), Offer::Waits);
        }
        assert_eq!(port.offer(2, 0, packet(10)), Offer::Dropped, "two wait in the lowest queue");
        assert_eq!(port.offer(2, 1, packet(12)), Offer::Waits, "the others have room");
        assert_eq!((port.ended(9), port.ended(10), port.ended(30)), (None, Some(10), Some(10)));
        assert_eq!((port.waiting(), port.waiting_bytes(), port.waited(5)), (5, 5000, 4 * 4 + 3));
        let order: Vec<u32> = std::iter::from_fn(|| port.next()).map(|(_, packet)| packet.lane()).collect();
        assert_eq!((order, port.waiting_bytes()), (vec![8, 4, 12, 2, 6], 0));
        assert_eq!(port.offer(50, 0, packet(14)), Offer::Begins(packet(14)));
    }

    #[test]
    fn red_marks_data_of_transports_that_react_and_drops_other_packets() {
        let red = RedSettings { min_packets: 0, max_packets: 1, most_probability: 1.0, weight: 1.0, ecn: true };
        let offered = |ecn: bool, reacts_to_marks: bool, lane: u32| {
            let settings = PortSettings { queues: 1, red: Some(RedSettings { ecn, ..red }) };
            let mut port = Port::new(settings, Limits { reacts_to_marks, ..LIMITS }, 1, 0);
            let first = port.offer(0, 0, packet(0));
            assert_eq!(first, Offer::Begins(packet(0)), "the mean is 0");
            port.begin(10);
            assert_eq!(port.offer(0, 0, packet(0)), Offer::Waits);
            let taken = port.offer(0, 0, packet(lane)) != Offer::Dropped;
            port.next();
            taken.then(|| port.next().is_some_and(|(_, packet)| packet.is_marked()))
        };
        let (data, acknowledgement) = (2, 3);
        assert_eq!(offered(true, true, data), Some(true));
        assert_eq!(offered(true, true, acknowledgement), None);
        assert_eq!(offered(true, false, data), None);
        assert_eq!(offered(false, true, data), None);
    }
}
