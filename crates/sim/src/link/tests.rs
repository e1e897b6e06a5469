//! Tests of a single link.

use super::*;
use pathloom_model::{LinkSettings, NodeId, PortNo};
use proptest::prelude::*;
use std::collections::VecDeque;

fn link(rate_bps: u64, delay_ps: u64, buffer_packets: u32) -> LinkQueue {
    handing_on_at(Handover::End, rate_bps, delay_ps, buffer_packets)
}

fn handing_on_at(handover: Handover, rate_bps: u64, delay_ps: u64, buffer_packets: u32) -> LinkQueue {
    let settings = LinkSettings { rate_bps, delay_ps, buffer_packets };
    let (from, to, from_port, to_port) = (NodeId(0), NodeId(1), PortNo(1), PortNo(1));
    LinkQueue::new(&Link { from, to, from_port, to_port, settings }, false, handover, None)
}

impl LinkQueue {
    /// Offers a packet to a single link.
    fn offer(&mut self, now: Ps, packet: Packet) -> EnqueueResult {
        let speeds = Speeds::of(std::slice::from_mut(self));
        self.enqueue(now, packet, Some(&speeds))
    }
}

/// When the first packet is due.
fn head(link: &LinkQueue) -> Option<Ps> {
    (link.in_flight() > 0).then(|| link.ring[link.head as usize & (link.ring.len() - 1)].deliver_at)
}

fn packet(wire: u16) -> Packet {
    Packet::new(0, 0, 0, wire, 0)
}

#[test]
fn fills_two_cache_lines() {
    assert_eq!(size_of::<LinkQueue>(), 128);
}

#[test]
fn sends_packets_in_order_and_drops_the_tail() {
    let mut l = link(1_000_000_000, 1_000_000, 2);
    let p = packet(1000);
    assert_eq!(l.offer(0, p), EnqueueResult::First(9_000_000));
    assert_eq!(l.offer(0, p), EnqueueResult::Behind);
    assert_eq!(l.offer(0, p), EnqueueResult::Behind);
    assert_eq!(l.offer(7_999_999, p), EnqueueResult::Dropped, "two wait, one is being sent");
    assert_eq!(l.offer(8_000_000, p), EnqueueResult::Behind);
    assert_eq!(l.dequeue().1, Some(17_000_000));
    assert_eq!((l.waited(24_000_000, 24_000_000), l.dropped_packets()), (8_000_000 + 16_000_000 + 16_000_000, 1));
    assert_eq!(
        l.waited(8_000_000, 8_000_000),
        8_000_000 + 8_000_000,
        "one has begun, one still waits, one has just arrived"
    );
}

#[test]
fn hands_packets_on_when_sending_begins_if_told_to() {
    let mut l = handing_on_at(Handover::Begin, 1_000_000_000, 1_000_000, 2);
    let p = packet(1000);
    assert_eq!(l.offer(0, p), EnqueueResult::First(1_000_000));
    assert_eq!((l.offer(0, p), l.offer(0, p)), (EnqueueResult::Behind, EnqueueResult::Behind));
    assert_eq!(l.offer(7_999_999, p), EnqueueResult::Dropped, "two wait, one is being sent though it has arrived");
    assert_eq!(l.offer(8_000_000, p), EnqueueResult::Behind);
    let arrivals: Vec<Option<Ps>> = (0..4).map(|_| l.dequeue().1).collect();
    assert_eq!(arrivals, [Some(9_000_000), Some(17_000_000), Some(25_000_000), None]);
    assert_eq!(
        (l.waited(32_000_000, 32_000_000), l.backlog(30_000_000)),
        (8_000_000 + 16_000_000 + 16_000_000, 2_000_000)
    );
    let mut bare = handing_on_at(Handover::Begin, 1_000_000_000, 0, 0);
    assert_eq!(bare.offer(0, p), EnqueueResult::First(1), "no event is at the time of its cause");
    assert_eq!((bare.offer(5, p), bare.backlog(5)), (EnqueueResult::Dropped, 7_999_995));
}

#[test]
fn marks_data_above_its_threshold_and_drops_above_its_buffer() {
    let settings = LinkSettings { rate_bps: 1_000_000_000, delay_ps: 0, buffer_packets: 3 };
    let (from, to, from_port, to_port) = (NodeId(0), NodeId(1), PortNo(1), PortNo(1));
    let mut l = LinkQueue::new(&Link { from, to, from_port, to_port, settings }, false, Handover::End, Some(1));
    let p = packet(1000);
    let taken: Vec<bool> = (0..5).map(|_| l.offer(0, p) != EnqueueResult::Dropped).collect();
    assert_eq!(taken, [true, true, true, true, false]);
    assert_ne!(l.offer(8_000_000, Packet::new(1, 0, 0, 66, 0)), EnqueueResult::Dropped);
    let marked: Vec<bool> = (0..5).map(|_| l.dequeue().0.is_marked()).collect();
    assert_eq!(marked, [false, false, true, true, false], "one is sent, one waits; an acknowledgement is not marked");
    l.fail(40_000_000, 40_000_000);
    assert_eq!(l.offer(40_000_000, p), EnqueueResult::Dropped);
    l.restore(40_000_000);
    (0..3).for_each(|_| assert_ne!(l.offer(40_000_000, p), EnqueueResult::Dropped));
    assert!(!l.dequeue().0.is_marked() && !l.dequeue().0.is_marked() && l.dequeue().0.is_marked());
}

#[test]
fn waiting_packets_get_the_new_rate_and_the_packet_being_sent_keeps_the_old_one() {
    for handover in [Handover::End, Handover::Begin] {
        let mut l = handing_on_at(handover, 1_000_000_000, 1_000_000, 9);
        (0..3).for_each(|_| assert_ne!(l.offer(0, packet(1000)), EnqueueResult::Dropped));
        // One packet is being sent until 8 us; the others take 80 us each after that.
        let first = if handover == Handover::End { 9_000_000 } else { 1_000_000 };
        assert_eq!(l.set_rate(4_000_000, 100_000_000), Some(first));
        assert_eq!(l.offer(4_000_000, packet(1000)), EnqueueResult::Behind);
        let sent = if handover == Handover::End { 80_000_000 } else { 0 };
        let due: Vec<Ps> = (0..3).map_while(|_| l.dequeue().1).collect();
        assert_eq!(due, [9_000_000 + sent, 89_000_000 + sent, 169_000_000 + sent]);
        assert_eq!(l.backlog(4_000_000), 244_000_000);
        assert_eq!(l.waited(300_000_000, 300_000_000), 8_000_000 + 88_000_000 + 164_000_000);
    }
    let mut idle = link(1_000_000_000, 0, 1);
    assert_eq!(idle.set_rate(5, 500_000_000), None);
    assert_eq!(idle.offer(10, packet(1000)), EnqueueResult::First(10 + 16_000_000));
}

#[test]
fn a_ring_becomes_small_again_when_its_queue_is_short() {
    let mut l = link(1_000_000_000, 1_000_000, 200);
    (0..200).for_each(|seq| assert_ne!(l.offer(0, Packet::new(0, seq, 0, 1000, 0)), EnqueueResult::Dropped));
    assert_eq!(l.ring.len(), 256);
    let mut taken = Vec::new();
    for seq in 200..1000 {
        let now = 8_000_000 * (seq + 1);
        while head(&l).is_some_and(|at| at <= now && l.in_flight() > 1) {
            taken.push(l.dequeue().0.seq);
        }
        assert_ne!(l.offer(now, Packet::new(0, seq, 0, 1000, 0)), EnqueueResult::Dropped);
    }
    assert_eq!((l.ring.len(), l.in_flight()), (LEAST_RING, 2));
    taken.extend((0..2).map(|_| l.dequeue().0.seq));
    assert!(taken.into_iter().eq(0..1000), "in order, and each once");
}

#[test]
fn links_share_speeds_until_one_has_another_rate() {
    let mut links = [8, 8, 4, 8].map(|gbps| link(gbps * 1_000_000_000, 1_000_000, 9));
    let speeds = Speeds::of(&mut links);
    assert_eq!(
        links.each_ref().map(|link| speeds.get(link.speed)),
        links.each_ref().map(|link| Some(link.own_speed()))
    );
    assert!(links[0].speed == links[3].speed && links[0].speed != links[2].speed);
    links[1].set_rate(0, 1_000_000_000);
    let due = links.each_mut().map(|link| link.enqueue(0, packet(1000), Some(&speeds)));
    assert_eq!(due, [2, 9, 3, 2].map(|micros| EnqueueResult::First(micros * 1_000_000)));
}

#[test]
fn links_beyond_the_limit_of_speed_numbers_use_their_own_fields() {
    let mut links: Vec<LinkQueue> = (0..70_000).map(|delay| link(8_000_000_000, delay, 9)).collect();
    let speeds = Speeds::of(&mut links);
    for delay in [0, 1, 65_533, 65_534, 65_535, 65_536, 69_999] {
        let due = links[delay as usize].enqueue(0, packet(1000), Some(&speeds));
        assert_eq!(due, EnqueueResult::First(1_000_000 + delay));
    }
}

#[test]
fn odd_rates_keep_their_fraction() {
    let l = link(3_000_000_000, 0, 1);
    assert_eq!(l.send_time(1514 * 1_000_000), 4_037_333_332_370);
}

#[test]
fn a_failed_link_loses_its_packets_and_takes_none() {
    let mut l = link(1_000_000_000, 1_000_000, 2);
    l.offer(0, packet(100));
    assert_eq!(l.fail(0, 0).len(), 1);
    assert_eq!(l.offer(10, packet(100)), EnqueueResult::Dropped);
    l.restore(5_000_000);
    assert_eq!(l.offer(6_000_000, packet(100)), EnqueueResult::First(7_800_000));
    assert_eq!(l.dropped_packets(), 2);
}

proptest! {
    /// The queue, which computes departures in advance, drops and delivers exactly like one that is simulated
    /// step by step.
    #[test]
    fn agrees_with_a_queue_simulated_step_by_step(
        delay in 0u64..20_000_000, buffer in 1u32..100,
        arrivals in prop::collection::vec((0u64..16_000_000, 64u16..1514, 1usize..6), 1..300),
    ) {
        let mut l = link(1_000_000_000, delay, buffer);
        let mut departures: VecDeque<Ps> = VecDeque::new();
        let (mut now, mut delivered, mut expected) = (0, Vec::new(), Vec::new());
        // Bursts, with a long one and a pause now and then, so that the ring grows and shrinks.
        let bursts = arrivals.into_iter().enumerate().map(|(index, (gap, wire, packets))| match index % 50 {
            0 => (gap, wire, packets * 20),
            1 => (gap * 40, wire, 1),
            2..25 => (gap, wire, 1),
            _ => (gap, wire, packets / 3),
        });
        let packets = bursts.flat_map(|(gap, wire, packets)| (0..packets).map(move |n| (if n == 0 { gap } else { 0 }, wire)));
        for (gap, wire) in packets {
            now += gap;
            while let Some(at) = head(&l).filter(|&at| at <= now) {
                delivered.push(at);
                l.dequeue();
            }
            while departures.front().is_some_and(|&d| d <= now) {
                departures.pop_front();
            }
            let fits = departures.len() <= buffer as usize;
            prop_assert_eq!(l.offer(now, packet(wire)) != EnqueueResult::Dropped, fits);
            if fits {
                let left = departures.back().copied().unwrap_or(now).max(now) + u64::from(wire) * 8_000;
                departures.push_back(left);
                expected.push(left + delay);
            }
        }
        while let Some(at) = head(&l) {
            delivered.push(at);
            prop_assert_eq!(l.dequeue().1, head(&l));
        }
        prop_assert_eq!(delivered, expected);
    }
}
