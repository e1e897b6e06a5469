//! The sender, acknowledgement by acknowledgement, and whole transfers over bad wires.

use super::*;
use crate::{CongestionControl, SackBlocks};

const MSS: u64 = 1000;

fn settings() -> Settings {
    Settings {
        mss_bytes: MSS as u32,
        initial_window_bytes: 4 * MSS,
        handshake: false,
        ack_every: 1,
        ..Settings::default()
    }
}

fn open(settings: &Settings, size: Option<u64>) -> Sender {
    let mut sender = Sender::new(settings, size);
    sender.open(Nanos::ZERO);
    sender
}

fn drain(sender: &mut Sender, now: Nanos) -> Vec<u64> {
    std::iter::from_fn(|| sender.poll_transmit(now)).map(|segment| segment.seq / MSS).collect()
}

#[test]
fn byte_counting_doubles_the_window_with_few_acknowledgements() {
    for (byte_counting, window) in [(false, 5), (true, 8)] {
        let settings = Settings { byte_counting, ..settings() };
        let mut s = open(&settings, None);
        assert_eq!(drain(&mut s, Nanos(0)), vec![0, 1, 2, 3]);
        // One acknowledgement of all four segments.
        s.handle_ack(Nanos(1), 4 * MSS);
        assert_eq!(drain(&mut s, Nanos(1)).len(), window);
    }
}

#[test]
fn slow_start_doubles_and_avoidance_adds_one_segment_a_window() {
    let mut s = open(&Settings { initial_ssthresh_bytes: 8 * MSS, ..settings() }, None);
    assert_eq!(drain(&mut s, Nanos(0)), vec![0, 1, 2, 3]);
    for ack in 1..=4 {
        s.handle_ack(Nanos(1000), ack * MSS);
    }
    assert_eq!(drain(&mut s, Nanos(1000)), (4..12).collect::<Vec<_>>());
    for ack in 5..=12 {
        s.handle_ack(Nanos(2000), ack * MSS);
    }
    assert_eq!(s.cwnd_bytes(), 9 * MSS);
}

#[test]
fn fast_retransmit_and_recovery_follow_rfc_6582() {
    let mut s = open(&Settings { initial_window_bytes: 10 * MSS, ..settings() }, None);
    assert_eq!(drain(&mut s, Nanos(0)).len(), 10);
    // Segments 0 and 4 are lost. Two duplicates: limited transmit; the third: retransmit 0.
    s.handle_ack(Nanos(10), 0);
    s.handle_ack(Nanos(10), 0);
    assert_eq!(drain(&mut s, Nanos(10)), vec![10, 11]);
    s.handle_ack(Nanos(10), 0);
    assert_eq!(drain(&mut s, Nanos(10)), vec![0]);
    assert_eq!(s.cwnd_bytes(), 8 * MSS, "half of 10, limited transmit aside, and 3 that have left");
    for _ in 3..8 {
        s.handle_ack(Nanos(11), 0);
    }
    assert_eq!(drain(&mut s, Nanos(11)), vec![12]);
    s.handle_ack(Nanos(20), 4 * MSS);
    assert_eq!(drain(&mut s, Nanos(20)), vec![4, 13], "a partial acknowledgement retransmits the next hole");
    s.handle_ack(Nanos(30), 14 * MSS);
    assert_eq!(s.cwnd_bytes(), 2 * MSS, "full acknowledgement, option 1");
    assert_eq!((s.retransmits(), s.timeouts()), (2, 0));
}

#[test]
fn a_timeout_resends_from_the_first_gap_and_backs_off() {
    let mut s = open(&settings(), Some(6 * MSS));
    drain(&mut s, Nanos(0));
    let first = s.poll_timeout().unwrap();
    assert_eq!(first, Nanos::from_secs(1));
    s.handle_timeout(first);
    assert_eq!(drain(&mut s, first), vec![0]);
    let second = s.poll_timeout().unwrap();
    assert_eq!(second, first + Nanos::from_secs(2));
    s.handle_timeout(second);
    assert_eq!(drain(&mut s, second), vec![0]);
    // Only the first segment was lost: one acknowledgement covers the others, and the rest is new.
    s.handle_ack(second + Nanos(5), 4 * MSS);
    assert_eq!(drain(&mut s, second + Nanos(5)), vec![4, 5]);
    s.handle_ack(second + Nanos(9), 6 * MSS);
    assert!(s.is_finished() && s.poll_timeout().is_none());
    assert_eq!(s.timeouts(), 2);
}

#[test]
fn the_silence_before_a_timeout_is_counted() {
    let none = TimeoutWait::default();
    let mut s = open(&Settings { handshake: true, ..settings() }, Some(6 * MSS));
    s.poll_transmit(Nanos::ZERO);
    s.handle_timeout(Nanos::from_secs(1));
    assert_eq!(s.timeout_wait(Nanos::from_secs(1)), TimeoutWait { initial: Nanos::from_secs(1), ..none });
    s.poll_transmit(Nanos::from_secs(1));
    s.handle_syn_ack(Nanos::from_millis(1010));
    let mut s = open(&settings(), Some(6 * MSS));
    drain(&mut s, Nanos::ZERO);
    // The first of four segments arrives after 10 ms. The others are lost, and so are the segments that its
    // acknowledgement allows. The timer restarts with each acknowledgement, and the idle time after the last segment
    // is shorter than the time-out.
    s.handle_ack(Nanos::from_millis(10), MSS);
    assert_eq!(drain(&mut s, Nanos::from_millis(13)), vec![4, 5]);
    let expiry = s.poll_timeout().unwrap();
    assert_eq!(expiry, Nanos::from_millis(210));
    // One RTT of 10 ms gives a time-out of 30 ms without bounds. After that, only the timer can end the idle time.
    assert_eq!(s.timeout_wait(Nanos::from_millis(43)), none);
    assert_eq!(s.timeout_wait(Nanos::from_millis(53)), TimeoutWait { sampled: Nanos::from_millis(40), ..none });
    assert_eq!(s.ended_timeout_wait(), none, "data that arrives without a time-out has not waited for one");
    s.handle_timeout(expiry);
    assert_eq!(s.timeout_wait(expiry), TimeoutWait { sampled: Nanos::from_millis(197), ..none });
    assert_eq!(s.ended_timeout_wait(), s.timeout_wait(expiry));
    // The next time-out is twice as long, and the sender is idle for all of it.
    drain(&mut s, expiry);
    let second = s.poll_timeout().unwrap();
    s.handle_timeout(second);
    assert_eq!(s.timeout_wait(second).sampled, Nanos::from_millis(197 + 400));
}

#[test]
fn a_timeout_in_recovery_keeps_the_threshold() {
    let mut s = open(&Settings { initial_window_bytes: 10 * MSS, ..settings() }, None);
    drain(&mut s, Nanos(0));
    for _ in 0..40 {
        s.handle_ack(Nanos(10), 0);
        drain(&mut s, Nanos(10));
    }
    assert!(s.flight() > 30 * MSS, "a new segment for each duplicate once the window allows");
    s.handle_timeout(Nanos::from_secs(9));
    assert_eq!((s.cwnd_bytes(), s.window.ssthresh()), (MSS, 5 * MSS));
}

#[test]
fn duplicates_after_a_timeout_do_not_halve_again() {
    let mut s = open(&settings(), None);
    drain(&mut s, Nanos(0));
    s.handle_timeout(Nanos::from_secs(1));
    drain(&mut s, Nanos::from_secs(1));
    for _ in 0..5 {
        s.handle_ack(Nanos::from_secs(1), 0);
    }
    assert_eq!(s.cwnd_bytes(), MSS, "RFC 6582 §4.1: the acknowledgement does not cover recover");
}

#[test]
fn the_handshake_gives_the_first_sample_and_survives_loss() {
    let with = Settings { handshake: true, ..settings() };
    let mut s = Sender::new(&with, Some(10));
    assert!(s.poll_transmit(Nanos(0)).is_none(), "closed");
    s.open(Nanos(0));
    assert_eq!(s.poll_transmit(Nanos(0)).unwrap().kind, SegmentKind::Syn);
    assert!(s.poll_transmit(Nanos(0)).is_none());
    s.handle_syn_ack(Nanos::from_millis(50));
    assert_eq!(s.smoothed_rtt(), Some(Nanos::from_millis(50)));
    let segment = s.poll_transmit(Nanos::from_millis(50)).unwrap();
    assert!(segment.last && segment.len == 10);

    let mut s = Sender::new(&with, None);
    s.open(Nanos(0));
    s.poll_transmit(Nanos(0));
    s.handle_timeout(Nanos::from_secs(1));
    assert!(s.poll_transmit(Nanos::from_secs(1)).unwrap().retransmission);
    s.handle_syn_ack(Nanos::from_secs(2));
    assert_eq!((s.cwnd_bytes(), s.smoothed_rtt()), (MSS, None));
    s.poll_transmit(Nanos::from_secs(2));
    assert_eq!(s.poll_timeout(), Some(Nanos::from_secs(5)));
}

#[test]
fn a_pace_spaces_segments() {
    let mut s = open(&Settings { pace_bps: Some(8_528_000), ..settings() }, None);
    assert_eq!(drain(&mut s, Nanos(0)), vec![0]);
    assert_eq!(s.poll_timeout(), Some(Nanos::from_millis(1)));
    assert_eq!(drain(&mut s, Nanos::from_millis(1)), vec![1]);
    s.set_pace(Nanos::from_millis(1), None);
    assert_eq!(drain(&mut s, Nanos::from_millis(1)), vec![2, 3]);
}

#[test]
fn a_held_sender_waits() {
    let mut s = open(&settings(), None);
    s.set_hold(true);
    assert!(s.poll_transmit(Nanos(0)).is_none());
    s.set_hold(false);
    assert_eq!(drain(&mut s, Nanos(9)), vec![0, 1, 2, 3]);
}

#[test]
fn a_held_sender_has_no_pace_timer() {
    let mut s = open(&Settings { pace_bps: Some(8_528_000), ..settings() }, None);
    assert_eq!(drain(&mut s, Nanos::ZERO), vec![0]);
    let paced = s.poll_timeout().unwrap();
    s.set_hold(true);
    assert!(s.poll_transmit(paced).is_none());
    assert!(s.poll_timeout().is_none_or(|at| at > paced), "otherwise the sender wakes forever");
    s.set_hold(false);
    assert_eq!(drain(&mut s, paced), vec![1]);
}

#[test]
fn a_sender_with_a_full_window_has_no_pace_timer() {
    let settings = Settings { pace_bps: Some(8_528_000), initial_window_bytes: 8 * MSS, ..settings() };
    let mut s = open(&settings, None);
    (0..8).for_each(|ms| assert_eq!(drain(&mut s, Nanos::from_millis(ms)), vec![ms]));
    (0..3).for_each(|_| s.handle_ack(Nanos::from_millis(8), 0));
    assert_eq!(drain(&mut s, Nanos::from_millis(8)), vec![0], "the lost one goes first");
    (0..9).for_each(|_| s.handle_ack(Nanos::from_millis(8), 0));
    (9..13).for_each(|ms| assert_eq!(drain(&mut s, Nanos::from_millis(ms)), vec![ms - 1]));
    assert_eq!(s.poll_timeout(), Some(Nanos::from_millis(13)), "the next one waits for its pace");
    // The end of recovery deflates the window: now it is full.
    s.handle_ack(Nanos::from_millis(12), 8 * MSS);
    let late = Nanos::from_millis(13);
    assert!(drain(&mut s, late).is_empty());
    assert!(s.poll_timeout().is_none_or(|at| at > late), "otherwise the sender wakes forever");
}

/// Acknowledges everything in flight after this round-trip time, for several rounds. Returns the segments in flight
/// per round.
fn flights(s: &mut Sender, now: &mut Nanos, rtt: Nanos, rounds: usize) -> Vec<usize> {
    let round = |_| {
        let sent = drain(s, *now);
        *now = now.saturating_add(rtt);
        s.handle_ack(*now, (sent.last().unwrap() + 1) * MSS);
        sent.len()
    };
    (0..rounds).map(round).collect()
}

#[test]
fn bytes_in_flight_are_limited_by_the_provided_rate() {
    // Byte counting doubles the window in each round trip. A pace far above the demand delays nothing.
    let mut s = open(&Settings { byte_counting: true, ..settings() }, None);
    let (mut now, rtt) = (Nanos::ZERO, Nanos::from_millis(10));
    assert_eq!(flights(&mut s, &mut now, rtt, 4), [4, 8, 16, 32]);
    // 8 Mbit/s during two round trips of 10 ms are 20 segments.
    let limit = |rate_bps, s: &mut Sender, now| {
        s.set_pace(now, Some(rate_bps));
        s.flight_limit
    };
    let more = 60 * MSS / FLIGHT_OF_ACKED;
    assert_eq!(limit(8_000_000, &mut s, now), 20 * MSS + more);
    assert_eq!(limit(80_000_000, &mut s, now), 200 * MSS + more);
    assert_eq!(limit(1, &mut s, now), 12 * MSS + more, "the minimum at any pace");
    s.set_pace(now, Some(u64::MAX));
    assert_eq!(s.flight_limit, s.receive_window.bytes);
    s.set_pace(now, None);
    assert_eq!(flights(&mut s, &mut now, rtt, 2), [64, 128], "the network provides no rate any more");
    // A setting of the host says nothing about the network.
    let mut s = open(&Settings { pace_bps: Some(8_000_000), ..settings() }, None);
    s.sample_rtt(Nanos::ZERO, rtt);
    assert_eq!(s.flight_limit, s.receive_window.bytes);
}

#[test]
fn a_longer_path_raises_the_flight_limit() {
    let mut s = open(&settings(), None);
    s.set_pace(Nanos::ZERO, Some(80_000_000));
    s.sample_rtt(Nanos::ZERO, Nanos::from_millis(10));
    assert_eq!(s.flight_limit, 200 * MSS);
    (0..128).for_each(|_| s.sample_rtt(Nanos::ZERO, Nanos::from_millis(50)));
    assert_eq!(s.flight_limit, 1000 * MSS);
}

#[test]
fn data_can_be_added_until_finish() {
    let mut s = Sender::without_data(&settings());
    s.open(Nanos::ZERO);
    assert!(drain(&mut s, Nanos(0)).is_empty() && !s.is_finished());
    assert!(s.extend(2 * MSS));
    assert_eq!(drain(&mut s, Nanos(0)), vec![0, 1]);
    s.handle_ack(Nanos(1), 2 * MSS);
    assert_eq!((s.is_finished(), s.poll_timeout()), (false, None), "all is acknowledged, but more data can follow");
    assert!(s.extend(MSS));
    s.finish();
    let segment = s.poll_transmit(Nanos(2)).unwrap();
    assert!(segment.last && segment.seq == 2 * MSS);
    assert!(!s.extend(MSS), "no data is accepted after the end");
    s.handle_ack(Nanos(3), 3 * MSS);
    assert!(s.is_finished());

    let mut s = Sender::without_data(&settings());
    s.open(Nanos::ZERO);
    s.extend(MSS);
    drain(&mut s, Nanos(0));
    s.finish();
    assert!(!s.is_finished(), "the data is not acknowledged yet");
    s.handle_ack(Nanos(1), MSS);
    assert!(s.is_finished());
}

fn blocks(ranges: &[(u64, u64)]) -> SackBlocks {
    let mut blocks = SackBlocks::default();
    ranges.iter().zip(&mut blocks.0).for_each(|(range, place)| *place = (range.0 * MSS, range.1 * MSS));
    blocks
}

#[test]
fn selective_recovery_sends_each_hole_once_and_within_the_window() {
    let settings = Settings { initial_window_bytes: 10 * MSS, sack: true, ..settings() };
    let mut s = open(&settings, None);
    assert_eq!(drain(&mut s, Nanos(0)).len(), 10);
    // Segments 0, 2 and 4 are lost.
    s.handle_sack(Nanos(10), 0, &blocks(&[(1, 2)]));
    s.handle_sack(Nanos(10), 0, &blocks(&[(3, 4), (1, 2)]));
    assert_eq!(drain(&mut s, Nanos(10)), vec![10, 11], "limited transmit");
    s.handle_sack(Nanos(10), 0, &blocks(&[(5, 6), (3, 4), (1, 2)]));
    assert_eq!(s.cwnd_bytes(), 5 * MSS, "half of 10");
    assert_eq!(
        drain(&mut s, Nanos(10)),
        vec![0],
        "0 and 2 are lost; 4 and 6 to 11 are in flight, which fills the window"
    );
    for last in 7..=9 {
        s.handle_sack(Nanos(11), 0, &blocks(&[(5, last), (3, 4), (1, 2)]));
    }
    assert_eq!(drain(&mut s, Nanos(11)), vec![2], "9, 10, 11 and 0 are in flight");
    s.handle_sack(Nanos(12), 0, &blocks(&[(5, 12), (3, 4), (1, 2)]));
    assert_eq!(drain(&mut s, Nanos(12)), vec![4, 12, 13], "0 and 2 are in flight: the third hole, then new data");
    s.handle_sack(Nanos(20), 12 * MSS, &SackBlocks::default());
    assert_eq!((s.cwnd_bytes(), s.retransmits(), s.timeouts()), (5 * MSS, 3, 0));
}

#[test]
fn a_segment_counts_as_lost_after_a_window_of_later_ones() {
    let (initial_window_bytes, reordering) = (5 * MSS, Some(Reordering::Window));
    let settings = Settings { initial_window_bytes, reordering, sack: true, ..settings() };
    let [mut late, mut lost] = [(); 2].map(|()| open(&settings, None));
    for s in [&mut late, &mut lost] {
        assert_eq!(drain(s, Nanos(0)).len(), 5);
        for last in 2..=5 {
            s.handle_sack(Nanos(10), 0, &blocks(&[(1, last)]));
        }
        assert_eq!(drain(s, Nanos(10)), vec![5, 6, 7, 8], "new data, as much as has arrived");
    }
    late.handle_sack(Nanos(11), 5 * MSS, &SackBlocks::default());
    drain(&mut late, Nanos(11));
    assert_eq!((late.is_in_recovery(), late.retransmits()), (false, 0));
    lost.handle_sack(Nanos(11), 0, &blocks(&[(1, 6)]));
    assert!(lost.is_in_recovery());
    assert_eq!(drain(&mut lost, Nanos(11))[0], 0);
}

#[test]
fn a_timeout_does_not_resend_sacked_bytes() {
    let settings = Settings { initial_window_bytes: 6 * MSS, sack: true, ..settings() };
    let mut s = open(&settings, Some(8 * MSS));
    drain(&mut s, Nanos(0));
    s.handle_sack(Nanos(5), 0, &blocks(&[(1, 3)]));
    let at = s.poll_timeout().unwrap();
    drain(&mut s, Nanos(6));
    s.handle_timeout(at);
    assert_eq!(drain(&mut s, at), vec![0]);
    s.handle_sack(at, 3 * MSS, &SackBlocks::default());
    assert_eq!(drain(&mut s, at), vec![3, 4]);
}

#[test]
fn cubic_keeps_seven_tenths_after_a_loss_and_grows_with_time() {
    let settings = Settings {
        initial_window_bytes: 100 * MSS,
        initial_ssthresh_bytes: 100 * MSS,
        sack: true,
        congestion: CongestionControl::Cubic,
        ..settings()
    };
    let mut s = open(&settings, None);
    drain(&mut s, Nanos(0));
    s.handle_sack(Nanos(1000), 0, &blocks(&[(1, 5)]));
    assert_eq!(s.cwnd_bytes(), 70 * MSS);
    drain(&mut s, Nanos(1000));
    s.handle_ack(Nanos(2000), 100 * MSS);
    let mut grown = Vec::new();
    for second in 1..=8u64 {
        let now = Nanos::from_secs(second);
        let sent = drain(&mut s, now).len() as u64;
        s.handle_ack(now, s.acked_bytes() + sent * MSS);
        grown.push(s.cwnd_bytes() / MSS);
    }
    // The epoch begins with the first growth, after 1 s. K is the cube root of 30 / 0.4: 4.2 s. 2.8 s later, the
    // cubic function is 8.8 segments above its plateau.
    assert!(grown[3] <= 101 && grown[3] >= 95 && grown[7] >= 107 && grown[7] <= 110, "{grown:?}");
}

#[test]
fn dctcp_reduces_the_window_by_the_share_of_marks() {
    let settings = Settings {
        initial_window_bytes: 20 * MSS,
        initial_ssthresh_bytes: 20 * MSS,
        congestion: CongestionControl::Dctcp { gain: 1.0 },
        ..settings()
    };
    let mut s = open(&settings, None);
    let segments = drain(&mut s, Nanos(0));
    assert_eq!(segments.len(), 20);
    s.handle_echo(MSS, true);
    assert_eq!(s.cwnd_bytes(), 10 * MSS, "all data is marked so far");
    s.handle_ack(Nanos(1), MSS);
    s.handle_echo(2 * MSS, true);
    assert_eq!(s.cwnd_bytes(), 10 * MSS, "one reduction per window of data, without growth");
    for ack in 2..=20 {
        s.handle_echo(ack * MSS, false);
        s.handle_ack(Nanos(2), ack * MSS);
    }
    drain(&mut s, Nanos(3));
    s.handle_echo(21 * MSS, true);
    // One segment of 20 was marked in the previous window of data, and this one is marked too.
    assert_eq!(s.cwnd_bytes(), (10.0 * MSS as f64 * (1.0 - 2.0 / 21.0 / 2.0)) as u64);
}
