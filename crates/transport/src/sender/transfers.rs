//! Whole transfers over wires that drop, reorder and mark, under every congestion control.

use crate::window::laws;
use crate::{
    CongestionControl, Receiver, SackBlocks, Segment, SegmentKind, Sender, Settings, TimeoutWait, TransportSpec,
};
use pathloom_model::Nanos;
use proptest::prelude::*;
use std::collections::BTreeMap;

const MSS: u64 = 1000;
const ONE_WAY: Nanos = Nanos::from_micros(500);

/// A frame in flight.
enum Frame {
    Segment(Segment, bool),
    SynAck,
    Ack(u64, SackBlocks, bool),
}

/// Frames by time of arrival, with a round trip of 1 ms. A list of fates determines what happens to each segment: 0
/// drops it, 1 and 3 delay it behind later ones, 2 marks it. After three passes through the list, nothing is dropped.
struct Wire<'a> {
    frames: BTreeMap<(Nanos, u64), Frame>,
    fates: &'a [u8],
    /// Number of frames so far.
    count: u64,
    /// Number of segments so far, and number of dropped segments.
    segments: u64,
    dropped: u32,
}

impl Wire<'_> {
    fn send(&mut self, now: Nanos, segment: Segment) {
        self.count += 1;
        self.segments += 1;
        let fate = self.fates[self.segments as usize % self.fates.len()];
        let late = [0, 300, 0, 200].get(usize::from(fate)).copied().unwrap_or_default();
        let delay = ONE_WAY + Nanos::from_micros(late);
        if fate == 0 && self.segments <= 3 * self.fates.len() as u64 {
            self.dropped += 1;
        } else {
            self.frames.insert((now + delay, self.count), Frame::Segment(segment, fate == 2));
        }
    }

    fn answer(&mut self, now: Nanos, frame: Frame) {
        self.count += 1;
        self.frames.insert((now + ONE_WAY, self.count), frame);
    }

    fn take_due(&mut self, now: Nanos) -> Option<Frame> {
        self.frames.first_entry().filter(|entry| entry.key().0 <= now).map(|entry| entry.remove())
    }
}

struct Transfer {
    sender: Sender,
    receiver: Receiver,
    took: Nanos,
    /// Number of segments that the wire dropped.
    dropped: u32,
}

fn transfer(settings: &Settings, size: u64, fates: &[u8]) -> Transfer {
    let (mut sender, mut receiver) = (Sender::new(settings, Some(size)), Receiver::new(settings));
    let mut wire = Wire { frames: BTreeMap::new(), fates, count: 0, segments: 0, dropped: 0 };
    let mut now = Nanos::ZERO;
    sender.open(now);
    for _ in 0..200_000 {
        while let Some(segment) = sender.poll_transmit(now) {
            wire.send(now, segment);
        }
        assert!(sender.poll_timeout().is_none_or(|at| at > now), "a timer that does nothing expires for ever");
        if sender.is_finished() {
            return Transfer { sender, receiver, took: now, dropped: wire.dropped };
        }
        let due = [wire.frames.keys().next().map(|key| key.0), sender.poll_timeout(), receiver.poll_timeout()];
        now = due.into_iter().flatten().min().expect("an unfinished transfer has a timer or a frame in flight");
        if let Some(ack) = receiver.handle_timeout(now) {
            wire.answer(now, Frame::Ack(ack, receiver.sack_blocks(), receiver.echoes()));
        }
        while let Some(frame) = wire.take_due(now) {
            match frame {
                Frame::Segment(segment, _) if segment.kind == SegmentKind::Syn => wire.answer(now, Frame::SynAck),
                Frame::Segment(segment, marked) => {
                    if let Some(ack) = receiver.handle_mark(marked) {
                        wire.answer(now, Frame::Ack(ack, receiver.sack_blocks(), !marked));
                    }
                    if let Some(ack) = receiver.handle_data(now, segment.seq, segment.len) {
                        wire.answer(now, Frame::Ack(ack, receiver.sack_blocks(), receiver.echoes()));
                    }
                }
                Frame::SynAck => sender.handle_syn_ack(now),
                Frame::Ack(ack, blocks, echo) => {
                    sender.handle_echo(ack, echo);
                    sender.handle_sack(now, ack, &blocks);
                }
            }
        }
        sender.handle_timeout(now);
    }
    panic!("the transfer does not end");
}

fn settings(congestion: CongestionControl, sack: bool) -> Settings {
    Settings {
        mss_bytes: MSS as u32,
        initial_window_bytes: 4 * MSS,
        initial_ssthresh_bytes: 64 * MSS,
        ack_every: 2,
        congestion,
        sack,
        ..Settings::default()
    }
}

/// Every congestion control that is a transport of its own, with its defaults.
fn controls() -> impl Strategy<Value = CongestionControl> {
    let control = |name: &str| TransportSpec::parse(name).unwrap().settings().congestion;
    prop::sample::select(laws::entries().map(|law| control(law.name)).collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn every_transfer_completes_over_any_wire(
        size in 0u64..200_000, fates in prop::collection::vec(0u8..12, 1..200), handshake: bool, control in controls(), sack: bool,
        rack: bool,
    ) {
        let settings = Settings { handshake, rack, ..settings(control, sack) };
        let Transfer { sender, receiver, .. } = transfer(&settings, size, &fates);
        prop_assert_eq!(receiver.delivered_bytes(), size);
        prop_assert_eq!(sender.acked_bytes(), size);
    }

    /// Without reordering, a segment that has arrived is sent again only after a time-out.
    #[test]
    fn selective_recovery_sends_nothing_needlessly(losses in prop::collection::btree_set(20u64..150, 0..25), control in controls()) {
        let fates: Vec<u8> = (0..400u64).map(|at| if losses.contains(&at) { 0 } else { 5 }).collect();
        let settings = Settings { ack_every: 1, handshake: false, ..settings(control, true) };
        let Transfer { sender, receiver, dropped, .. } = transfer(&settings, 300 * MSS, &fates);
        prop_assert_eq!(receiver.delivered_bytes(), 300 * MSS);
        prop_assume!(sender.timeouts() == 0);
        // The last segments of a transfer can be rescued although they are only late (RFC 6675 §4, NextSeg (4)).
        prop_assert!(sender.retransmits() <= dropped + 1, "{} for {dropped}", sender.retransmits());
    }
}

#[test]
fn a_clean_wire_needs_no_retransmission() {
    for control in [CongestionControl::NewReno, CongestionControl::Cubic, CongestionControl::Dctcp { gain: 0.0625 }] {
        let Transfer { sender, took, .. } = transfer(&settings(control, true), 1_000_000, &[5]);
        assert_eq!((sender.retransmits(), sender.timeouts()), (0, 0));
        assert_eq!(sender.timeout_wait(took), TimeoutWait::default());
        assert!(took < Nanos::from_millis(25), "{took:?}");
    }
}

/// Many losses in one window: selective acknowledgements repair them in two round trips, duplicates one per round trip.
#[test]
fn selective_recovery_is_faster_with_many_losses() {
    let fates: Vec<u8> = (0..500).map(|at| if (60..100).contains(&at) && at % 3 == 0 { 0 } else { 5 }).collect();
    let time = |sack| {
        let settings =
            Settings { impatient: false, handshake: false, ack_every: 1, ..settings(CongestionControl::NewReno, sack) };
        transfer(&settings, 400 * MSS, &fates).took
    };
    assert!(time(true) + Nanos::from_millis(4) < time(false), "{:?}, {:?}", time(true), time(false));
}

/// Sends 20 segments in four flights of 4 to 8 segments, of which the wire drops these.
fn twenty_segments(lost: impl Fn(usize) -> bool, rack: bool) -> Transfer {
    // The wire numbers segments from 1.
    let fates: Vec<u8> = (0..1000).map(|number: usize| u8::from(number == 0 || !lost(number - 1)) * 5).collect();
    let settings =
        Settings { handshake: false, rack, coarse_timers: false, ..settings(CongestionControl::Cubic, true) };
    let transfer = transfer(&settings, 20 * MSS, &fates);
    assert_eq!(transfer.receiver.delivered_bytes(), 20 * MSS);
    transfer
}

/// RFC 8985 §7: a lost tail is found two round trips after the last segment or acknowledgement. The answer to the probe
/// shows the rest of it, which needs one more round trip.
#[test]
fn a_lost_tail_is_repaired_in_a_few_round_trips_and_not_by_a_timeout() {
    let clean = twenty_segments(|_| false, true);
    for tail in 1..=6 {
        let lost = |number| (20 - tail..20).contains(&number);
        let (probed, waited) = (twenty_segments(lost, true), twenty_segments(lost, false));
        assert_eq!((probed.sender.timeouts(), waited.sender.timeouts()), (0, 1), "tail of {tail}");
        assert_eq!(probed.sender.retransmits(), tail as u32);
        assert!(probed.took < clean.took + Nanos::from_millis(5), "{:?} for {:?}", probed.took, clean.took);
        assert!(waited.took > clean.took + Nanos::from_millis(195), "{:?}", waited.took);
    }
}

/// RFC 8985 §6.2 with a quarter of the round trip as the window: one later segment is enough.
#[test]
fn a_loss_before_the_last_segment_is_found_by_time() {
    let clean = twenty_segments(|_| false, true);
    let transfer = twenty_segments(|number| number == 18, true);
    assert_eq!((transfer.sender.timeouts(), transfer.sender.retransmits()), (0, 1));
    assert!(transfer.took < clean.took + Nanos::from_millis(2), "{:?} for {:?}", transfer.took, clean.took);
}

/// Segment 5 is lost, and its retransmission is lost too: later new segments show it.
#[test]
fn a_retransmission_that_is_lost_again_is_found_by_time() {
    for rack in [true, false] {
        let fates: Vec<u8> = (0..1000).map(|number| if number == 40 { 0 } else { 5 }).collect();
        let settings = Settings { handshake: false, ack_every: 1, rack, ..settings(CongestionControl::Cubic, true) };
        let first = transfer(&settings, 400 * MSS, &fates);
        let again = (41..200).find(|&second| {
            let fates: Vec<u8> = (0..1000).map(|number| if [40, second].contains(&number) { 0 } else { 5 }).collect();
            let both = transfer(&settings, 400 * MSS, &fates);
            both.sender.retransmits() == 2 && both.sender.timeouts() == u32::from(!rack)
        });
        assert_eq!((first.sender.retransmits(), first.sender.timeouts()), (1, 0));
        assert!(again.is_some(), "rack: {rack}");
    }
}

/// Segments that overtake each other by less than the window are not sent again, after the first time.
#[test]
fn reordering_within_the_window_causes_no_retransmission() {
    // Every tenth segment is 0.2 ms late, which is more than three segments and less than a quarter of the round trip.
    let fates: Vec<u8> = (0..1000).map(|number| if number % 10 == 9 { 3 } else { 5 }).collect();
    let again = |rack| {
        let settings = Settings { handshake: false, ack_every: 1, rack, ..settings(CongestionControl::Cubic, true) };
        transfer(&settings, 600 * MSS, &fates).sender.retransmits()
    };
    assert!(again(true) <= 1 && again(false) > 5, "{} and {}", again(true), again(false));
}
