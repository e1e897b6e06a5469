//! The sending half: NewReno congestion control and loss recovery (RFC 5681, RFC 6582), retransmission timer (RFC 6298).
//!
//! Byte numbers count from 0 and are 64 bits wide; the SYN and the FIN take none. The FIN rides on the last segment, so a
//! transfer is over when its last byte is acknowledged.

use crate::rtt::RttEstimator;
use crate::settings::{Settings, HEADER_BYTES};
use pathloom_model::Nanos;

/// Round trips at its pace that a sender may have in flight, and the least number of segments: as many as come and go
/// within the jitter of a path without standing in a queue for long.
const FLIGHT_ROUND_TRIPS: u128 = 2;
const LEAST_FLIGHT_SEGMENTS: u32 = 12;
/// And this part of what has been acknowledged. A flow that goes on for long needs a queue to keep its share beside the
/// acknowledgements on its links; others then wait for a small part of the time that it took itself.
const FLIGHT_OF_ACKED: u64 = 256;

/// What a segment is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentKind {
    /// Opens the connection; answered by a SYN+ACK, which goes to [`Sender::handle_syn_ack`].
    Syn,
    /// Carries payload.
    Data,
}

/// A segment to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// What it is for.
    pub kind: SegmentKind,
    /// Its first byte.
    pub seq: u64,
    /// Payload bytes.
    pub len: u32,
    /// Whether it ends the transfer (carries the FIN).
    pub last: bool,
    /// Whether some of it was sent before.
    pub retransmission: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Closed,
    SynSent,
    Open,
    Finished,
}

/// The sending end of one direction of a connection.
#[derive(Clone, Debug)]
pub struct Sender {
    phase: Phase,
    /// A SYN (in [`Phase::SynSent`]) or the first unacknowledged segment (in [`Phase::Open`]) is to be sent at once.
    send_first: bool,
    limited_transmit: bool,
    impatient: bool,
    byte_counting: bool,
    in_recovery: bool,
    partial_ack_seen: bool,
    paced_out: bool,
    /// Told to wait: nothing is sent, timers go on.
    held: bool,
    dup_acks: u32,
    mss: u64,
    /// First byte not acknowledged.
    una: u64,
    /// Next byte to send; falls back to `una` after a time-out.
    next: u64,
    /// One past the last byte ever sent.
    high: u64,
    /// One past the last byte there is to send; `u64::MAX` when the transfer has no end.
    limit: u64,
    cwnd: u64,
    ssthresh: u64,
    receive_window: u64,
    /// Bytes acknowledged in congestion avoidance since the window last grew (RFC 5681 §3.1, byte counting).
    acked_in_avoidance: u64,
    /// `high` when the last loss was noticed (RFC 6582 §3.2).
    recover: Option<u64>,
    rtt: RttEstimator,
    /// Segment being timed: one past its last byte, and when it was sent (RFC 6298 §3; never a retransmission).
    timing: Option<(u64, Nanos)>,
    rto_at: Option<Nanos>,
    backoffs: u32,
    pace_bps: Option<u64>,
    pace_at: Nanos,
    /// Whether the pace is what the network provides, not a setting of the host.
    provided: bool,
    /// Bytes that may be in flight at that pace, and at least; the receiver's window where nobody says how fast to send.
    flight_limit: u64,
    least_flight: u64,
    retransmits: u32,
    timeouts: u32,
    /// When something was last sent, or an acknowledgement arrived.
    active_at: Nanos,
    waited: TimeoutWait,
}

/// Time that a sender has spent in silence, from the last segment or acknowledgement on, for its retransmission timer to
/// expire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TimeoutWait {
    /// For time-outs that came of the initial one (`initial_rto`), for want of an RTT sample: those of the SYN above all.
    pub initial: Nanos,
    /// For all others, which are `min_rto` or longer.
    pub sampled: Nanos,
}

impl Sender {
    /// A closed sender of `size_bytes`, or of data without end.
    pub fn new(settings: &Settings, size_bytes: Option<u64>) -> Sender {
        Sender {
            phase: Phase::Closed,
            send_first: false,
            limited_transmit: settings.limited_transmit,
            impatient: settings.impatient,
            byte_counting: settings.byte_counting,
            in_recovery: false,
            partial_ack_seen: false,
            paced_out: false,
            held: false,
            dup_acks: 0,
            mss: u64::from(settings.mss_bytes),
            una: 0,
            next: 0,
            high: 0,
            limit: size_bytes.unwrap_or(u64::MAX),
            cwnd: settings.initial_window_bytes.max(u64::from(settings.mss_bytes)),
            ssthresh: settings.initial_ssthresh_bytes,
            receive_window: settings.receive_window_bytes.max(u64::from(settings.mss_bytes)),
            acked_in_avoidance: 0,
            recover: None,
            rtt: RttEstimator::new(settings),
            timing: None,
            rto_at: None,
            backoffs: 0,
            pace_bps: settings.pace_bps,
            pace_at: Nanos::ZERO,
            provided: false,
            flight_limit: settings.receive_window_bytes.max(u64::from(settings.mss_bytes)),
            least_flight: u64::from(settings.mss_bytes)
                * u64::from(LEAST_FLIGHT_SEGMENTS.max(settings.ack_every.saturating_mul(2))),
            retransmits: 0,
            timeouts: 0,
            active_at: Nanos::ZERO,
            waited: TimeoutWait::default(),
        }
        .with_handshake(settings.handshake)
    }

    fn with_handshake(mut self, handshake: bool) -> Sender {
        self.send_first = handshake;
        self
    }

    /// The application has data: starts with the SYN, or with data where the handshake is left out.
    pub fn open(&mut self, now: Nanos) {
        if self.phase == Phase::Closed {
            self.phase = if self.send_first { Phase::SynSent } else { Phase::Open };
            self.pace_at = now;
            self.active_at = now;
            if self.limit == 0 && self.phase == Phase::Open {
                self.phase = Phase::Finished;
            }
        }
    }

    /// Whether every byte has been acknowledged.
    pub fn is_finished(&self) -> bool {
        self.phase == Phase::Finished
    }

    /// Segments sent again so far.
    pub fn retransmits(&self) -> u32 {
        self.retransmits
    }

    /// Expiries of the retransmission timer so far.
    pub fn timeouts(&self) -> u32 {
        self.timeouts
    }

    /// Time lost in waiting for the retransmission timer so far. The present silence counts once it is longer than the
    /// time-out that the RTT samples make by themselves: nothing but the timer will end it.
    pub fn timeout_wait(&self, now: Nanos) -> TimeoutWait {
        let mut waited = self.waited;
        let silence = now.saturating_sub(self.active_at);
        if self.rto_at.is_some() && self.rtt.unbounded().is_none_or(|rto| silence > rto) {
            *self.part_of(&mut waited) += silence;
        }
        waited
    }

    /// What a time-out that expires now counts as.
    fn part_of<'a>(&self, waited: &'a mut TimeoutWait) -> &'a mut Nanos {
        if self.rtt.smoothed().is_none() {
            &mut waited.initial
        } else {
            &mut waited.sampled
        }
    }

    /// Bytes acknowledged.
    pub fn acked_bytes(&self) -> u64 {
        self.una
    }

    /// Congestion window in bytes.
    pub fn cwnd_bytes(&self) -> u64 {
        self.cwnd
    }

    /// Smoothed round-trip time, once there is a sample.
    pub fn smoothed_rtt(&self) -> Option<Nanos> {
        self.rtt.smoothed()
    }

    /// Keeps the sender from sending anything, or lets it go on.
    pub fn set_hold(&mut self, held: bool) {
        self.held = held;
        // Whoever lets it go on asks what it sends; until then no pace is waited for.
        self.paced_out = false;
    }

    /// Limits the rate of what is sent from now on, headers included, to what the network provides for it; `None` lifts the
    /// limit. What is in flight beyond two round trips at that rate, of the least RTT seen lately, and beyond 12 segments
    /// stands in a queue: so much is sent before acknowledgements come, and a 256th of what was acknowledged. (BBR keeps to
    /// two round trips for the same reason: Cardwell et al., CACM 60(2), 2017.)
    pub fn set_pace(&mut self, now: Nanos, rate_bps: Option<u64>) {
        self.pace_bps = rate_bps.map(|rate| rate.max(1));
        self.pace_at = self.pace_at.min(now + Nanos(1));
        self.paced_out = false;
        self.provided = rate_bps.is_some();
        self.limit_flight();
    }

    /// The pace or the RTT is new.
    fn limit_flight(&mut self) {
        self.flight_limit = match (self.pace_bps.filter(|_| self.provided), self.rtt.least()) {
            (Some(rate_bps), Some(rtt)) => {
                let bytes = FLIGHT_ROUND_TRIPS * u128::from(rate_bps) * u128::from(rtt.0) / 8_000_000_000;
                let bytes = u64::try_from(bytes).unwrap_or(u64::MAX).max(self.least_flight);
                bytes.saturating_add(self.una / FLIGHT_OF_ACKED).min(self.receive_window)
            }
            // Before there is an RTT the initial window is what is in flight.
            _ => self.receive_window,
        };
    }

    fn sample_rtt(&mut self, rtt: Nanos) {
        self.rtt.sample(rtt);
        if self.provided {
            self.limit_flight();
        }
    }

    /// The answer to the SYN has arrived.
    pub fn handle_syn_ack(&mut self, now: Nanos) {
        if self.phase != Phase::SynSent {
            return;
        }
        self.phase = if self.limit == 0 { Phase::Finished } else { Phase::Open };
        self.send_first = false;
        self.rto_at = None;
        match self.timing.take() {
            Some((_, sent)) => self.sample_rtt(now.saturating_sub(sent)),
            // RFC 6298 §5.7 and RFC 5681 §3.1: a lost SYN means a window of one segment and a time-out of 3 s.
            None => {
                self.rtt.after_repeated_syn();
                self.cwnd = self.mss;
            }
        }
        self.backoffs = 0;
    }

    /// An acknowledgement of all bytes before `ack` has arrived.
    // Always inlined, not only by a hint: the Python module has two kinds of run (with a capture and without), so two
    // callers, and would call it for each packet. That costs five instructions a hop.
    #[inline(always)]
    pub fn handle_ack(&mut self, now: Nanos, ack: u64) {
        if self.phase != Phase::Open || ack > self.high {
            return;
        }
        self.active_at = now;
        if ack > self.una {
            self.handle_new_ack(now, ack);
        } else if ack == self.una && self.high > self.una {
            self.handle_duplicate_ack();
        }
    }

    // As `handle_ack`.
    #[inline(always)]
    fn handle_new_ack(&mut self, now: Nanos, ack: u64) {
        let acked = ack - self.una;
        self.una = ack;
        self.next = self.next.max(ack);
        if let Some((end, sent)) = self.timing {
            if ack >= end {
                self.sample_rtt(now.saturating_sub(sent));
                self.timing = None;
            }
        }
        self.backoffs = 0;
        let mut restart_timer = true;
        if self.in_recovery {
            restart_timer = self.handle_ack_in_recovery(acked);
        } else {
            self.dup_acks = 0;
            self.grow(acked);
        }
        if ack >= self.limit {
            self.phase = Phase::Finished;
            self.rto_at = None;
        } else if self.una == self.high {
            self.rto_at = None; // RFC 6298 §5.2
        } else if restart_timer {
            self.rto_at = Some(now + self.rtt.rto()); // RFC 6298 §5.3
        }
    }

    /// RFC 5681 §3.1: slow start by at most one segment per acknowledgement, then one segment per window. RFC 3465 §2.2
    /// counts bytes.
    #[inline]
    fn grow(&mut self, acked: u64) {
        if self.cwnd < self.ssthresh {
            self.cwnd += if self.byte_counting { acked } else { acked.min(self.mss) };
        } else {
            self.acked_in_avoidance += acked;
            if self.acked_in_avoidance >= self.cwnd {
                self.acked_in_avoidance -= self.cwnd;
                self.cwnd += self.mss;
            }
        }
        // A window far beyond what the receiver offers means nothing.
        self.cwnd = self.cwnd.min(self.receive_window + self.mss);
    }

    /// RFC 6582 §3.2 step 3. Returns whether the retransmission timer restarts.
    #[cold]
    fn handle_ack_in_recovery(&mut self, acked: u64) -> bool {
        if self.recover.is_none_or(|recover| self.una >= recover) {
            // Full acknowledgement, option 1: no burst when little is left in flight.
            self.cwnd = self.ssthresh.min(self.flight().max(self.mss) + self.mss);
            self.in_recovery = false;
            self.dup_acks = 0;
            self.acked_in_avoidance = 0;
            return true;
        }
        // Partial acknowledgement: the next hole is sent at once; the window deflates by what left it.
        self.send_first = true;
        self.cwnd = self.cwnd.saturating_sub(acked).max(self.mss);
        if acked >= self.mss {
            self.cwnd += self.mss;
        }
        // "Impatient" variant: only the first partial acknowledgement restarts the timer (RFC 6582 §4).
        !std::mem::replace(&mut self.partial_ack_seen, true) || !self.impatient
    }

    /// RFC 6582 §3.2 steps 2 and 3, RFC 3042.
    fn handle_duplicate_ack(&mut self) {
        self.dup_acks += 1;
        if self.in_recovery {
            self.cwnd += self.mss;
        } else if self.dup_acks == 3 && self.recover.is_none_or(|recover| self.una > recover) {
            // RFC 5681 §3.2 (2): what limited transmit has sent is not counted. Without it no more than cwnd is in flight.
            self.ssthresh = self.half_of(self.flight().min(self.cwnd));
            self.recover = Some(self.high);
            self.in_recovery = true;
            self.partial_ack_seen = false;
            self.send_first = true;
            self.cwnd = self.ssthresh + 3 * self.mss;
            self.timing = None;
        }
    }

    fn flight(&self) -> u64 {
        self.next - self.una
    }

    /// RFC 5681 §3.1 equation (4).
    fn half_of(&self, flight: u64) -> u64 {
        (flight / 2).max(2 * self.mss)
    }

    /// When [`Sender::handle_timeout`] or, for a paced sender, [`Sender::poll_transmit`] is to be called next.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Nanos> {
        match (self.rto_at, self.paced_out) {
            (Some(rto), true) => Some(rto.min(self.pace_at)),
            (None, true) => Some(self.pace_at),
            (rto, false) => rto,
        }
    }

    /// Acts on an expired retransmission timer (RFC 6298 §5.4-5.6, RFC 5681 §3.1); does nothing if it has not expired.
    pub fn handle_timeout(&mut self, now: Nanos) {
        if self.rto_at.is_none_or(|at| at > now) {
            return;
        }
        self.rto_at = None;
        self.timeouts += 1;
        let mut waited = self.waited;
        *self.part_of(&mut waited) += now.saturating_sub(self.active_at);
        (self.waited, self.active_at) = (waited, now);
        self.timing = None;
        self.rtt.back_off();
        if self.phase == Phase::SynSent {
            self.send_first = true;
            self.backoffs += 1;
            return;
        }
        if self.backoffs == 0 {
            // In recovery the flight goes on growing while duplicates tell that most of it has arrived: it says nothing of the
            // network, whose share was halved already. RFC 5681 §3.1 allows less than half of it.
            let most = if self.in_recovery { self.ssthresh } else { u64::MAX };
            self.ssthresh = self.half_of(self.flight()).min(most);
        }
        self.backoffs += 1;
        self.cwnd = self.mss;
        self.acked_in_avoidance = 0;
        self.recover = Some(self.high);
        self.in_recovery = false;
        self.send_first = false;
        self.dup_acks = 0;
        self.next = self.una;
    }

    /// The next segment to send now, if any.
    // As `handle_ack`.
    #[inline(always)]
    pub fn poll_transmit(&mut self, now: Nanos) -> Option<Segment> {
        if self.phase != Phase::Open || self.held {
            return self.poll_syn(now);
        }
        let (seq, first) = if self.send_first { (self.una, true) } else { (self.next, false) };
        let len = self.mss.min(self.limit - seq);
        if len == 0 || (!first && seq + len > self.una + self.window()) {
            // It is the window that is waited for, not the pace: a pace that has passed would wake the sender for ever.
            self.paced_out = false;
            return None;
        }
        if self.pace_bps.is_some() && !self.pass_pace(now, len) {
            return None;
        }
        let retransmission = seq < self.high;
        if first {
            self.send_first = false;
        }
        self.active_at = now;
        let end = seq + len;
        self.next = self.next.max(end);
        self.high = self.high.max(end);
        if retransmission {
            self.retransmits += 1;
        } else if self.timing.is_none() {
            self.timing = Some((end, now));
        }
        if self.rto_at.is_none() {
            self.rto_at = Some(now + self.rtt.rto()); // RFC 6298 §5.1
        }
        let last = end >= self.limit;
        Some(Segment { kind: SegmentKind::Data, seq, len: len as u32, last, retransmission })
    }

    fn poll_syn(&mut self, now: Nanos) -> Option<Segment> {
        if self.phase != Phase::SynSent || !self.send_first || self.held {
            return None;
        }
        self.send_first = false;
        self.active_at = now;
        self.timing = (self.backoffs == 0).then_some((0, now));
        self.rto_at = Some(now + self.rtt.rto());
        let retransmission = self.backoffs > 0;
        self.retransmits += u32::from(retransmission);
        Some(Segment { kind: SegmentKind::Syn, seq: 0, len: 0, last: false, retransmission })
    }

    /// Bytes that may be outstanding. The first two duplicate acknowledgements allow a segment more each (RFC 3042 §2).
    #[inline]
    fn window(&self) -> u64 {
        let extra = match self.limited_transmit && !self.in_recovery {
            true => self.mss * u64::from(self.dup_acks.min(2)),
            false => 0,
        };
        (self.cwnd + extra).min(self.flight_limit)
    }

    #[cold]
    fn pass_pace(&mut self, now: Nanos, len: u64) -> bool {
        let Some(rate_bps) = self.pace_bps else { return true };
        self.paced_out = now < self.pace_at;
        if !self.paced_out {
            let bits = u128::from(len + u64::from(HEADER_BYTES)) * 8;
            let gap = bits * 1_000_000_000 / u128::from(rate_bps);
            self.pace_at = self.pace_at.max(now) + Nanos(gap.min(u128::from(u64::MAX / 4)) as u64);
        }
        !self.paced_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Receiver;
    use proptest::prelude::*;

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
    fn counting_bytes_the_window_doubles_however_few_acknowledgements_come() {
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
    fn a_timeout_goes_back_and_backs_off() {
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
        // Everything had arrived but the first segment: one acknowledgement, and the rest is new.
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
        // The first of four arrives after 10 ms, the others are lost, and what it lets go as well: the timer starts anew
        // with each acknowledgement, and the silence after the last sending is shorter than the time-out.
        s.handle_ack(Nanos::from_millis(10), MSS);
        assert_eq!(drain(&mut s, Nanos::from_millis(13)), vec![4, 5]);
        let expiry = s.poll_timeout().unwrap();
        assert_eq!(expiry, Nanos::from_millis(210));
        // One RTT of 10 ms makes a time-out of 30 ms by itself; from then on only the timer can end the silence.
        assert_eq!(s.timeout_wait(Nanos::from_millis(43)), none);
        assert_eq!(s.timeout_wait(Nanos::from_millis(53)), TimeoutWait { sampled: Nanos::from_millis(40), ..none });
        s.handle_timeout(expiry);
        assert_eq!(s.timeout_wait(expiry), TimeoutWait { sampled: Nanos::from_millis(197), ..none });
        // The next one is twice as long, and all of it silence.
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
        assert_eq!((s.cwnd, s.ssthresh), (MSS, 5 * MSS));
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
    fn a_held_sender_waits_for_no_pace() {
        let mut s = open(&Settings { pace_bps: Some(8_528_000), ..settings() }, None);
        assert_eq!(drain(&mut s, Nanos::ZERO), vec![0]);
        let paced = s.poll_timeout().unwrap();
        s.set_hold(true);
        assert!(s.poll_transmit(paced).is_none());
        assert!(s.poll_timeout().is_none_or(|at| at > paced), "it would be woken again and again");
        s.set_hold(false);
        assert_eq!(drain(&mut s, paced), vec![1]);
    }

    #[test]
    fn a_sender_whose_window_closes_waits_for_no_pace() {
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
        assert!(s.poll_timeout().is_none_or(|at| at > late), "it would be woken again and again");
    }

    /// Acknowledges everything that is in flight after this round-trip time, again and again; returns what was in flight.
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
    fn no_more_is_in_flight_than_what_is_provided_needs() {
        // Byte counting doubles the window in each round trip; a pace far above what is asked for spaces nothing.
        let mut s = open(&Settings { byte_counting: true, ..settings() }, None);
        let (mut now, rtt) = (Nanos::ZERO, Nanos::from_millis(10));
        assert_eq!(flights(&mut s, &mut now, rtt, 4), [4, 8, 16, 32]);
        // 8 Mbit/s for twice 10 ms are 20 segments.
        let limit = |rate_bps, s: &mut Sender, now| {
            s.set_pace(now, Some(rate_bps));
            s.flight_limit
        };
        let more = 60 * MSS / FLIGHT_OF_ACKED;
        assert_eq!(limit(8_000_000, &mut s, now), 20 * MSS + more);
        assert_eq!(limit(80_000_000, &mut s, now), 200 * MSS + more);
        assert_eq!(limit(1, &mut s, now), 12 * MSS + more, "so many come and go whatever the pace");
        s.set_pace(now, Some(u64::MAX));
        assert_eq!(s.flight_limit, s.receive_window);
        s.set_pace(now, None);
        assert_eq!(flights(&mut s, &mut now, rtt, 2), [64, 128], "nobody says how fast to send any more");
        // A setting of the host says nothing of the network.
        let mut s = open(&Settings { pace_bps: Some(8_000_000), ..settings() }, None);
        s.sample_rtt(rtt);
        assert_eq!(s.flight_limit, s.receive_window);
    }

    #[test]
    fn a_longer_path_gets_what_it_needs_in_flight() {
        let mut s = open(&settings(), None);
        s.set_pace(Nanos::ZERO, Some(80_000_000));
        s.sample_rtt(Nanos::from_millis(10));
        assert_eq!(s.flight_limit, 200 * MSS);
        (0..128).for_each(|_| s.sample_rtt(Nanos::from_millis(50)));
        assert_eq!(s.flight_limit, 1000 * MSS);
    }

    /// A wire that drops, reorders and repeats, with a round trip of 1 ms.
    fn transfer(size: u64, fates: &[u8], handshake: bool) -> (Sender, Receiver, Nanos) {
        let settings = Settings { handshake, ack_every: 2, ..settings() };
        let (mut sender, mut receiver) = (open(&settings, Some(size)), Receiver::new(&settings));
        let mut wire: std::collections::BTreeMap<(Nanos, u64), (bool, SegmentKind, u64, u32)> = Default::default();
        let (mut now, mut count) = (Nanos::ZERO, 0u64);
        for _ in 0..200_000 {
            while let Some(s) = sender.poll_transmit(now) {
                count += 1;
                let fate = fates[count as usize % fates.len()];
                let delay = Nanos::from_micros(500 + if fate == 1 { 300 } else { 0 });
                if fate != 0 || count > 3 * fates.len() as u64 {
                    wire.insert((now + delay, count << 1), (true, s.kind, s.seq, s.len));
                }
            }
            if sender.is_finished() {
                return (sender, receiver, now);
            }
            let due = [wire.keys().next().map(|k| k.0), sender.poll_timeout(), receiver.poll_timeout()];
            now = due.into_iter().flatten().min().expect("a transfer that is not over waits for something");
            let mut acks = Vec::from_iter(receiver.handle_timeout(now));
            while let Some(entry) = wire.first_entry().filter(|e| e.key().0 <= now) {
                match entry.remove() {
                    (true, SegmentKind::Syn, ..) => {
                        wire.insert((now + Nanos::from_micros(500), count << 1 | 1), (false, SegmentKind::Syn, 0, 0));
                    }
                    (true, SegmentKind::Data, seq, len) => acks.extend(receiver.handle_data(now, seq, len)),
                    (false, SegmentKind::Syn, ..) => sender.handle_syn_ack(now),
                    (false, SegmentKind::Data, ack, _) => sender.handle_ack(now, ack),
                }
            }
            for ack in acks {
                count += 1;
                wire.insert((now + Nanos::from_micros(500), count << 1 | 1), (false, SegmentKind::Data, ack, 0));
            }
            sender.handle_timeout(now);
        }
        panic!("the transfer does not end");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn every_transfer_ends_whole_over_any_wire(size in 0u64..200_000, fates in prop::collection::vec(0u8..12, 1..200), handshake: bool) {
            let (sender, receiver, _) = transfer(size, &fates, handshake);
            prop_assert_eq!(receiver.delivered_bytes(), size);
            prop_assert_eq!(sender.acked_bytes(), size);
        }
    }

    #[test]
    fn a_clean_wire_needs_no_retransmission() {
        let (sender, _, now) = transfer(1_000_000, &[5], true);
        assert_eq!((sender.retransmits(), sender.timeouts()), (0, 0));
        assert_eq!(sender.timeout_wait(now), TimeoutWait::default());
        assert!(now < Nanos::from_millis(20), "{now:?}");
    }
}
