//! Whole connections over wires that drop, reorder and fail.

use super::*;
use crate::{Receiver, SackBlocks, Segment, SegmentKind, Settings};
use pathloom_model::Nanos;
use proptest::prelude::*;
use std::collections::BTreeMap;

const MSS: u64 = 1000;

/// A frame in flight on a wire.
enum Frame {
    /// A segment, with the ranges of the stream in its DSS option.
    Data(Segment, Vec<(u64, u64)>),
    SynAck,
    Ack(u64, SackBlocks),
}

/// One subflow with its wire. A list of fates determines what happens to each segment: 0 drops it, 1 delays it behind
/// later ones. After three passes through the list, nothing is dropped.
struct End {
    sender: Sender,
    receiver: Receiver,
    /// Bytes that the connection has taken from the receiver.
    taken: u64,
    /// Stream byte of each subflow byte, as the segments reported.
    content: Vec<u64>,
    fates: Vec<u8>,
    segments: u64,
    one_way: Nanos,
    /// Time from which nothing passes in either direction.
    dies: Nanos,
}

struct World {
    connection: Connection,
    reassembly: Reassembly,
    ends: Vec<End>,
    frames: BTreeMap<(Nanos, u64), (usize, Frame)>,
    count: u64,
    /// Number of times that each byte of the stream reached the application.
    delivered: Vec<u8>,
}

fn settings(coupling: Coupling, scheduler: Scheduler, sack: bool) -> MptcpSettings {
    let congestion = match coupling {
        Coupling::Uncoupled => crate::CongestionControl::NewReno,
        _ => crate::CongestionControl::Coupled,
    };
    let tcp = Settings {
        mss_bytes: MSS as u32,
        initial_window_bytes: 4 * MSS,
        initial_ssthresh_bytes: 16 * MSS,
        min_rto: Nanos::from_millis(5),
        initial_rto: Nanos::from_millis(20),
        max_rto: Nanos::from_secs(2),
        delayed_ack: Nanos::from_millis(1),
        receive_window_bytes: 40 * MSS,
        congestion,
        sack,
        ..Settings::default()
    };
    MptcpSettings { tcp, manager: PathManager::Ndiffports, subflows: 1, coupling, scheduler }
}

/// A wire: its fates, its one-way delay in microseconds, and the time of its failure in microseconds.
type Wire = (Vec<u8>, u64, Option<u64>);

impl World {
    fn new(settings: &MptcpSettings, size: u64, wires: &[Wire]) -> World {
        let mut world = World {
            connection: Connection::new(settings, Some(size)),
            reassembly: Reassembly::default(),
            ends: Vec::new(),
            frames: BTreeMap::new(),
            count: 0,
            delivered: vec![0; size as usize],
        };
        for (fates, one_way, dies) in wires {
            world.connection.join();
            world.ends.push(End {
                sender: Sender::without_data(&settings.tcp),
                receiver: Receiver::new(&settings.tcp),
                taken: 0,
                content: Vec::new(),
                fates: fates.clone(),
                segments: 0,
                one_way: Nanos::from_micros(*one_way),
                dies: dies.map_or(Nanos(u64::MAX), Nanos::from_micros),
            });
        }
        world
    }

    fn put(&mut self, now: Nanos, one: usize, frame: Frame, extra: Nanos) {
        let end = &self.ends[one];
        if now + end.one_way < end.dies {
            self.count += 1;
            self.frames.insert((now + end.one_way + extra, self.count), (one, frame));
        }
    }

    /// Sends what a subflow can send, at most `chunks` chunks. Returns the number of segments sent.
    fn pump(&mut self, now: Nanos, one: usize, chunks: usize) -> usize {
        let (mut sent, mut given) = (0, 0);
        loop {
            let end = &mut self.ends[one];
            let Some(segment) = end.sender.poll_transmit(now) else {
                let room = end.sender.room_bytes();
                if given == chunks || room == 0 {
                    return sent;
                }
                let Some(len) = self.connection.assign(one, room) else { return sent };
                given += 1;
                assert!(len > 0 && len <= room && self.ends[one].sender.extend(len));
                if let Some(slow) = self.connection.take_penalised() {
                    self.ends[slow].sender.penalise();
                }
                continue;
            };
            sent += 1;
            end.segments += 1;
            let fate = end.fates[end.segments as usize % end.fates.len()];
            let lost = fate == 0 && end.segments <= 3 * end.fates.len() as u64;
            let delay = Nanos::from_micros(if fate == 1 { 700 } else { 0 });
            let ranges = self.connection.mapping(one, segment.seq, segment.seq + u64::from(segment.len)).collect();
            if !lost {
                self.put(now, one, Frame::Data(segment, ranges), delay);
            }
        }
    }

    fn pump_all(&mut self, now: Nanos) {
        let (mut order, chunks) = (Vec::new(), self.connection.scheduler().chunks());
        loop {
            self.connection.order(&mut order);
            let sent: usize = order.iter().map(|&one| self.pump(now, one, chunks)).sum();
            if sent == 0 || chunks == usize::MAX {
                return;
            }
        }
    }

    fn arrive(&mut self, now: Nanos, one: usize, frame: Frame) {
        match frame {
            Frame::Data(segment, _) if segment.kind == SegmentKind::Syn => self.put(now, one, Frame::SynAck, Nanos(0)),
            Frame::Data(segment, ranges) => self.take(now, one, segment, &ranges),
            Frame::SynAck => {
                self.ends[one].sender.handle_syn_ack(now);
                self.pump(now, one, usize::MAX);
            }
            Frame::Ack(ack, blocks) => {
                let sender = &mut self.ends[one].sender;
                self.connection.prepare(one, sender);
                sender.handle_sack(now, ack, &blocks);
                let others = self.connection.handle_ack(one, sender);
                self.connection.tune_receive_window(now);
                let beyond = self.connection.next - self.connection.acked.next;
                assert!(beyond <= self.connection.receive_window, "more than the receiver has room for");
                self.pump(now, one, usize::MAX);
                if others {
                    self.pump_all(now);
                }
            }
        }
    }

    /// Handles the arrival of a segment at its receiver.
    fn take(&mut self, now: Nanos, one: usize, segment: Segment, ranges: &[(u64, u64)]) {
        let end = &mut self.ends[one];
        let bytes: Vec<u64> = ranges.iter().flat_map(|&(from, to)| from..to).collect();
        assert!(bytes.len() == segment.len as usize || segment.seq < end.taken, "a segment without a mapping");
        if end.content.len() < segment.seq as usize + bytes.len() {
            end.content.resize(segment.seq as usize + bytes.len(), u64::MAX);
        }
        for (place, byte) in bytes.into_iter().enumerate() {
            let known = &mut end.content[segment.seq as usize + place];
            assert!(*known == u64::MAX || *known == byte, "a mapping has changed");
            *known = byte;
        }
        let ack = end.receiver.handle_data(now, segment.seq, segment.len);
        let (from, to) = (end.taken, end.receiver.delivered_bytes());
        end.taken = to;
        let mapped: Vec<(u64, u64)> = self.connection.mapping(one, from, to).collect();
        let said = &self.ends[one].content[from as usize..to as usize];
        assert!(mapped.iter().flat_map(|&(from, to)| from..to).eq(said.iter().copied()), "bytes in another order");
        let before = self.reassembly.delivered_bytes();
        self.connection.deliver(one, from, to, &mut self.reassembly);
        (before..self.reassembly.delivered_bytes()).for_each(|byte| self.delivered[byte as usize] += 1);
        if let Some(ack) = ack {
            let blocks = self.ends[one].receiver.sack_blocks();
            self.put(now, one, Frame::Ack(ack, blocks), Nanos(0));
        }
    }

    fn handle_timeouts(&mut self, now: Nanos) {
        let mut others = false;
        for one in 0..self.ends.len() {
            let end = &mut self.ends[one];
            if let Some(ack) = end.receiver.handle_timeout(now) {
                let blocks = end.receiver.sack_blocks();
                self.put(now, one, Frame::Ack(ack, blocks), Nanos(0));
            }
            let sender = &mut self.ends[one].sender;
            let before = sender.timeouts();
            sender.handle_timeout(now);
            if sender.timeouts() > before {
                others |= self.connection.handle_timeout(one, sender);
            }
            self.pump(now, one, usize::MAX);
        }
        if others {
            self.pump_all(now);
        }
    }

    /// Runs to the end and returns the time. Panics if it takes too long.
    fn run(&mut self) -> Nanos {
        let mut now = Nanos::ZERO;
        for end in &mut self.ends {
            end.sender.open(now);
        }
        self.pump_all(now);
        for _ in 0..50_000 {
            if self.connection.is_finished() {
                return now;
            }
            let timers = self.ends.iter().flat_map(|end| [end.sender.poll_timeout(), end.receiver.poll_timeout()]);
            let next = timers.flatten().chain(self.frames.keys().next().map(|key| key.0)).min();
            now = next.expect("a timer or a frame is pending").max(now);
            while let Some(entry) = self.frames.first_entry().filter(|entry| entry.key().0 <= now) {
                let (one, frame) = entry.remove();
                self.arrive(now, one, frame);
            }
            self.handle_timeouts(now);
        }
        panic!("the connection does not end");
    }
}

fn couplings() -> impl Strategy<Value = Coupling> {
    prop::sample::select(vec![Coupling::Lia, Coupling::Olia, Coupling::Uncoupled])
}

fn schedulers() -> impl Strategy<Value = Scheduler> {
    prop::sample::select(vec![Scheduler::LowestRtt, Scheduler::RoundRobin])
}

fn wires() -> impl Strategy<Value = Vec<Wire>> {
    let wire = (prop::collection::vec(0u8..9, 1..40), 50u64..5000, prop::option::of(0u64..60_000));
    prop::collection::vec(wire, 1..5).prop_map(|mut wires| {
        // One path never fails.
        wires[0].2 = None;
        let place = wires[0].0.len() % wires.len();
        wires.swap(0, place);
        wires
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]
    #[test]
    fn every_byte_is_delivered_once_and_in_order(
        size in 0u64..60_000, wires in wires(), coupling in couplings(), scheduler in schedulers(), sack: bool,
    ) {
        let mut world = World::new(&settings(coupling, scheduler, sack), size, &wires);
        world.run();
        prop_assert_eq!(world.reassembly.delivered_bytes(), size);
        prop_assert!(world.delivered.iter().all(|&times| times == 1));
    }
}

fn clean(one_way_us: u64) -> Wire {
    (vec![5], one_way_us, None)
}

#[test]
fn nothing_is_sent_twice_on_clean_paths() {
    for scheduler in [Scheduler::LowestRtt, Scheduler::RoundRobin] {
        let mut world = World::new(&settings(Coupling::Lia, scheduler, false), 500_000, &[clean(500), clean(900)]);
        world.run();
        assert!(world.ends.iter().all(|end| end.taken > 50_000 && end.sender.retransmits() == 0));
        assert_eq!(world.ends.iter().map(|end| end.taken).sum::<u64>(), 500_000);
        assert_eq!(world.connection.reinjected_bytes(), 0);
    }
}

#[test]
fn outstanding_bytes_of_a_dead_path_are_reinjected_once() {
    let dead = (vec![5], 500, Some(6000));
    let mut world = World::new(&settings(Coupling::Lia, Scheduler::LowestRtt, false), 500_000, &[dead, clean(500)]);
    let took = world.run();
    assert!(world.connection.reinjected_bytes() > 0 && world.connection.reinjected_bytes() <= 40 * MSS);
    // Segments that arrived on the dead path, but whose acknowledgements were lost, arrive twice.
    let arrived = world.ends[0].taken + world.ends[1].taken;
    assert!((500_000..=500_000 + world.connection.reinjected_bytes()).contains(&arrived), "{arrived}");
    assert!(took < Nanos::from_millis(100), "{took:?}");
}

#[test]
fn bytes_of_a_recovered_path_are_not_reinjected() {
    let mut connection = Connection::new(&settings(Coupling::Uncoupled, Scheduler::LowestRtt, false), Some(10_000));
    let tcp = settings(Coupling::Uncoupled, Scheduler::LowestRtt, false).tcp;
    let mut sender = Sender::without_data(&Settings { handshake: false, ..tcp });
    assert_eq!((connection.join(), connection.join()), (0, 1));
    sender.open(Nanos(0));
    for _ in 0..3 {
        sender.extend(connection.assign(0, MSS).unwrap());
    }
    while sender.poll_transmit(Nanos(0)).is_some() {}
    sender.handle_timeout(Nanos::from_secs(1));
    assert!(connection.handle_timeout(0, &sender) && !connection.handle_timeout(0, &sender), "once");
    assert_eq!(connection.assign(1, MSS), Some(MSS));
    assert_eq!(connection.mapping(1, 0, MSS).collect::<Vec<_>>(), [(0, MSS)], "reinjected data goes first");
    sender.handle_ack(Nanos::from_secs(2), MSS);
    connection.handle_ack(0, &sender);
    assert_eq!(connection.assign(1, MSS), Some(MSS));
    assert_eq!(connection.mapping(1, MSS, 2 * MSS).collect::<Vec<_>>(), [(3 * MSS, 4 * MSS)]);
}

/// The round trip of the first subflow takes 20 ms, that of the second 1 ms. The first gets the first bytes of the
/// stream, the second fills the receive window.
#[test]
fn data_of_a_slow_subflow_is_sent_by_a_faster_one_once_the_receive_window_is_full() {
    let set = settings(Coupling::Uncoupled, Scheduler::LowestRtt, true);
    let mut connection = Connection::new(&set, None);
    let mut senders = [20, 1].map(|rtt_ms| {
        let mut sender = Sender::without_data(&set.tcp);
        let one = connection.join();
        sender.open(Nanos(0));
        sender.poll_transmit(Nanos(0)).unwrap();
        sender.handle_syn_ack(Nanos::from_millis(rtt_ms));
        connection.handle_ack(one, &sender);
        sender
    });
    for _ in 0..3 {
        senders[0].extend(connection.assign(0, MSS).unwrap());
    }
    while senders[0].poll_transmit(Nanos::from_millis(20)).is_some() {}
    let new = std::iter::from_fn(|| connection.assign(1, MSS).filter(|_| connection.reinjected_bytes() == 0));
    assert_eq!((new.count(), connection.take_penalised()), (37, Some(0)), "the receive window is 40 segments");
    assert_eq!((connection.assign(1, MSS), connection.assign(1, MSS)), (Some(MSS), Some(MSS)));
    let repeated = connection.mapping(1, 37 * MSS, 40 * MSS).collect::<Vec<_>>();
    assert_eq!(repeated, [(0, 3 * MSS)], "all that the slow subflow has outstanding");
    assert_eq!((connection.assign(1, MSS), connection.take_penalised()), (None, None), "once");
    assert_eq!(connection.assign(0, MSS), None, "a slow subflow does not take over from a fast one");
    let before = senders[0].cwnd_bytes();
    senders[0].penalise();
    assert_eq!(senders[0].cwnd_bytes(), before / 2);
}

#[test]
fn schedulers_order_by_least_rtt_or_in_turn() {
    let mut connection = Connection::new(&settings(Coupling::Lia, Scheduler::RoundRobin, false), None);
    assert_eq!([0; 3].map(|_| connection.join()), [0, 1, 2]);
    let mut order = Vec::new();
    let turns: Vec<Vec<usize>> = (0..4).map(|_| (connection.order(&mut order), order.clone()).1).collect();
    assert_eq!(turns, [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]);
    connection.scheduler = Scheduler::LowestRtt;
    connection.subflows[0].path.rtt = Nanos(7);
    connection.subflows[2].path.rtt = Nanos(5);
    connection.order(&mut order);
    assert_eq!(order, [2, 0, 1]);
}

#[test]
fn the_order_follows_measured_round_trips() {
    for coupling in [Coupling::Lia, Coupling::Olia, Coupling::Uncoupled] {
        let wires = [clean(900), clean(300), clean(500)];
        let mut world = World::new(&settings(coupling, Scheduler::LowestRtt, false), 100_000, &wires);
        world.run();
        let mut order = Vec::new();
        world.connection.order(&mut order);
        assert_eq!(order, [1, 2, 0], "{coupling:?}");
    }
}

#[test]
fn assigned_bytes_respect_the_receive_window() {
    let mut connection = Connection::new(&settings(Coupling::Lia, Scheduler::LowestRtt, false), None);
    assert_eq!((connection.join(), connection.join()), (0, 1));
    let given = std::iter::from_fn(|| connection.assign(0, 7 * MSS).or_else(|| connection.assign(1, MSS))).sum::<u64>();
    assert_eq!(given, 40 * MSS);
}

#[test]
fn a_tuned_receive_window_grows_with_what_all_subflows_bring_in_the_longest_round_trip() {
    let set = settings(Coupling::Uncoupled, Scheduler::LowestRtt, true);
    let run = |tunes: bool, window: u64, ssthresh_segments: u64| {
        let mut set = set.clone();
        set.tcp.receive_window_bytes = window;
        set.tcp.initial_ssthresh_bytes = ssthresh_segments * MSS;
        let ends = Settings { tunes_receive_window: false, ..set.tcp.clone() };
        set.tcp.tunes_receive_window = tunes;
        let mut world = World::new(&set, 3_000_000, &[clean(500), clean(2_000)]);
        for end in &mut world.ends {
            end.sender = Sender::without_data(&ends);
        }
        (world.run(), world.connection.receive_window)
    };
    let (large, small, tuned) = (run(false, 3 << 20, 1_000), run(false, 64 << 10, 1_000), run(true, 3 << 20, 1_000));
    assert!(tuned.1 > 200_000 && tuned.1 <= 3 << 20, "{}", tuned.1);
    // The first longest round trip, of 4 ms, has to be over before the window can grow.
    assert!(
        tuned.0 <= large.0 + Nanos::from_millis(8) && tuned.0 + Nanos::from_millis(20) < small.0,
        "{tuned:?} {small:?}"
    );
    // 8 segments in 1 ms and 8 in 4 ms are 40 segments in the longest round trip; twice that and 16 more are 96, and the
    // growth from 10 to 40 adds up to six times as many.
    let slow = run(true, 3 << 20, 4).1;
    assert!(slow < 40 * 96 * MSS && slow < tuned.1, "{slow}");
}
