//! The sending half: selection of segments, loss recovery by duplicate (RFC 6582) or selective (RFC 6675,
//! `selective.rs`) acknowledgements or by time (RFC 8985, `crate::rack`), timers (RFC 6298, `timers.rs`). The size of the
//! window is computed in `window`.
//!
//! Byte numbers start at 0 and have 64 bits; the SYN and the FIN have no number. The FIN is part of the last segment,
//! so a transfer is over when its last byte is acknowledged.

mod receive_window;
mod selective;
mod standing;
mod timers;

use crate::rack::Rack;
use crate::rtt::RttEstimator;
use crate::sack::{Scoreboard, DUP_THRESH};
use crate::settings::{Reordering, Settings};
use crate::timer_clock::TimerClock;
use crate::window::{law::Echo, Window};
use pathloom_model::Nanos;
use receive_window::ReceiveWindow;
pub use standing::Standing;
pub use timers::{SkippedWork, TimeoutWait};

/// Limits on the bytes in flight of a paced sender: round trips at its pace, and a minimum number of segments. The
/// minimum covers the jitter of a path without a long stay in a queue.
const FLIGHT_ROUND_TRIPS: u128 = 2;
const LEAST_FLIGHT_SEGMENTS: u32 = 12;
/// Additional bytes in flight: the acknowledged bytes divided by this. A long flow needs a queue to keep its share
/// of links that also carry acknowledgements. The additional delay for other flows is a small part of the flow's own
/// duration.
const FLIGHT_OF_ACKED: u64 = 256;

/// Purpose of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentKind {
    /// Opens the connection. The answer is a SYN+ACK, which the driver passes to [`Sender::handle_syn_ack`].
    Syn,
    /// Carries payload.
    Data,
}

/// A segment to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Purpose of the segment.
    pub kind: SegmentKind,
    /// First byte of the segment.
    pub seq: u64,
    /// Number of payload bytes.
    pub len: u32,
    /// Whether the segment ends the transfer (carries the FIN).
    pub last: bool,
    /// Whether part of the segment was sent before.
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
///
/// The fields that every acknowledgement needs come first, so that they share few cache lines; see
/// [`Sender::BUSY_BYTES`].
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Sender {
    phase: Phase,
    /// Whether a SYN (in [`Phase::SynSent`]) or the first unacknowledged segment (in [`Phase::Open`]) must be sent at
    /// once.
    send_first: bool,
    limited_transmit: bool,
    in_recovery: bool,
    paced_out: bool,
    /// Whether the sender is on hold: it sends nothing, but its timers run.
    held: bool,
    /// Whether the transfer ends at `limit`. If not, more data can follow ([`Sender::extend`]).
    ended: bool,
    /// Whether a tail loss probe must be sent at once.
    probing: bool,
    /// Whether the pace is provided by the network, and is not a setting of the host.
    provided: bool,
    dup_acks: u32,
    /// Number of duplicate acknowledgements that mean a loss.
    dup_thresh: u32,
    backoffs: u32,
    header_bytes: u32,
    mss: u64,
    /// First byte not acknowledged.
    una: u64,
    /// Next byte to send; returns to `una` after a time-out.
    next: u64,
    /// One past the last byte ever sent.
    high: u64,
    /// One past the last byte available to send; `u64::MAX` if the transfer has no end.
    limit: u64,
    /// Limit on the bytes in flight at the provided pace; the receive window if the network provides no pace.
    flight_limit: u64,
    /// Data that arrived out of order, if receivers report it.
    scoreboard: Option<Box<Scoreboard>>,
    /// Times of transmissions, if they are used to detect losses. It needs the scoreboard.
    rack: Option<Box<Rack>>,
    window: Window,
    /// Segment being timed: one past its last byte, and when it was sent (RFC 6298 §3; never a retransmission).
    timing: Option<(u64, Nanos)>,
    rto_at: Option<Nanos>,
    pace_bps: Option<u64>,
    /// Time of the last segment sent or acknowledgement received.
    active_at: Nanos,
    rtt: RttEstimator,
    impatient: bool,
    partial_ack_seen: bool,
    /// Whether a window of later data must arrive before a missing segment counts as lost.
    tolerates_window: bool,
    retransmits: u32,
    timeouts: u32,
    /// Value of `high` when the last loss was detected (RFC 6582 §3.2).
    recover: Option<u64>,
    pace_at: Nanos,
    receive_window: ReceiveWindow,
    least_flight: u64,
    waited: TimeoutWait,
    /// Bytes that were acknowledged without byte numbers ([`Sender::translate`]).
    skipped_bytes: u64,
}

impl Sender {
    /// Number of bytes at the start of the struct that are needed to handle an acknowledgement without a loss, and to
    /// send the next segment.
    pub const BUSY_BYTES: usize = std::mem::offset_of!(Sender, impatient);

    /// Creates a closed sender of `size_bytes`, or of endless data if `None`.
    pub fn new(settings: &Settings, size_bytes: Option<u64>) -> Sender {
        let receive_window = ReceiveWindow::new(settings);
        Sender {
            phase: Phase::Closed,
            send_first: false,
            limited_transmit: settings.limited_transmit,
            impatient: settings.impatient,
            in_recovery: false,
            partial_ack_seen: false,
            paced_out: false,
            held: false,
            dup_acks: 0,
            dup_thresh: match settings.reordering {
                Some(Reordering::Segments(segments)) => segments,
                Some(Reordering::Window) | None => DUP_THRESH,
            },
            tolerates_window: settings.reordering == Some(Reordering::Window),
            header_bytes: settings.header_bytes,
            mss: u64::from(settings.mss_bytes),
            una: 0,
            next: 0,
            high: 0,
            limit: size_bytes.unwrap_or(u64::MAX),
            ended: true,
            probing: false,
            rack: settings.detects_by_time().then(|| Box::new(Rack::new(settings.delayed_ack))),
            scoreboard: settings.sack.then(|| Box::new(Scoreboard::new(u64::from(settings.mss_bytes)))),
            window: Window::new(settings, receive_window.bytes),
            flight_limit: receive_window.bytes,
            receive_window,
            recover: None,
            rtt: RttEstimator::new(settings),
            timing: None,
            rto_at: None,
            backoffs: 0,
            pace_bps: settings.pace_bps,
            pace_at: Nanos::ZERO,
            provided: false,
            least_flight: u64::from(settings.mss_bytes)
                * u64::from(LEAST_FLIGHT_SEGMENTS.max(settings.ack_every.saturating_mul(2))),
            retransmits: 0,
            timeouts: 0,
            active_at: Nanos::ZERO,
            waited: TimeoutWait::default(),
            skipped_bytes: 0,
        }
        .with_handshake(settings.handshake)
    }

    fn with_handshake(mut self, handshake: bool) -> Sender {
        self.send_first = handshake;
        self
    }

    /// Sets the clock of the host's timers. Without this, timers expire exactly at their times.
    pub fn set_timer_clock(&mut self, clock: TimerClock) {
        self.rtt.set_clock(clock);
    }

    /// Creates a closed sender whose application has no data yet. [`Sender::extend`] adds data, [`Sender::finish`]
    /// ends it.
    pub fn without_data(settings: &Settings) -> Sender {
        Sender { ended: false, ..Sender::new(settings, Some(0)) }
    }

    /// Adds `bytes` of data from the application. Returns whether they were accepted: nothing is accepted after the
    /// end.
    pub fn extend(&mut self, bytes: u64) -> bool {
        if !self.ended {
            self.limit = self.limit.saturating_add(bytes);
        }
        !self.ended
    }

    /// Marks the end of the data. The last segment carries the FIN. If all data has been sent before, the transfer is
    /// over when it is acknowledged.
    pub fn finish(&mut self) {
        self.ended = true;
        if self.phase == Phase::Open && self.una >= self.limit {
            self.phase = Phase::Finished;
            self.rto_at = None;
        }
    }

    /// Opens the connection because the application has data. Starts with the SYN, or with data if there is no
    /// handshake.
    pub fn open(&mut self, now: Nanos) {
        if self.phase == Phase::Closed {
            self.phase = if self.send_first { Phase::SynSent } else { Phase::Open };
            self.pace_at = now;
            self.active_at = now;
            if self.limit == 0 && self.ended && self.phase == Phase::Open {
                self.phase = Phase::Finished;
            }
        }
    }

    /// Whether every byte has been acknowledged.
    pub fn is_finished(&self) -> bool {
        self.phase == Phase::Finished
    }

    /// Halves the window of a subflow for which its connection waits ([`crate::mptcp`]). In recovery, the window has
    /// been reduced already.
    pub fn penalise(&mut self) {
        if self.phase == Phase::Open && !self.in_recovery {
            self.window.penalise();
        }
    }

    /// Returns the number of segments retransmitted so far.
    pub fn retransmits(&self) -> u32 {
        self.retransmits
    }

    /// Returns the number of expiries of the retransmission timer so far.
    pub fn timeouts(&self) -> u32 {
        self.timeouts
    }

    /// Returns the number of acknowledged bytes.
    pub fn acked_bytes(&self) -> u64 {
        self.una
    }

    /// Returns the number of bytes sent at least once.
    pub fn sent_bytes(&self) -> u64 {
        self.high
    }

    /// Returns the congestion window in bytes.
    pub fn cwnd_bytes(&self) -> u64 {
        self.window.bytes()
    }

    /// Returns the congestion window in bytes; in recovery, the window after recovery.
    #[inline]
    pub fn steady_window_bytes(&self) -> u64 {
        if self.in_recovery {
            self.window.ssthresh()
        } else {
            self.window.bytes()
        }
    }

    /// Whether the sender is in loss recovery.
    #[inline]
    pub fn is_in_recovery(&self) -> bool {
        self.in_recovery
    }

    /// Whether the connection is open: the SYN has been answered, or there is no handshake.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Sets the growth of the window per byte acknowledged in congestion avoidance, if it is set from outside
    /// ([`crate::CongestionControl::Coupled`]).
    #[inline]
    pub fn set_growth(&mut self, growth: f64) {
        self.window.set_growth(growth);
    }

    /// Returns how many bytes of new data, in full segments, could be sent at once: the room in the window, if all
    /// available data has been sent. 0 after the end of the data is marked.
    #[inline]
    pub fn room_bytes(&mut self) -> u64 {
        if self.phase != Phase::Open || self.held || self.ended || self.send_first || self.limit != self.high {
            return 0;
        }
        if self.scoreboard.is_some() {
            return self.room_selectively();
        }
        let free = (self.una + self.allowed()).saturating_sub(self.high);
        if self.next == self.high && free >= self.mss {
            free - free % self.mss
        } else {
            0
        }
    }

    /// Returns the smoothed round-trip time, once there is a sample.
    pub fn smoothed_rtt(&self) -> Option<Nanos> {
        self.rtt.smoothed()
    }

    /// Holds the sender, so that it sends nothing, or releases it.
    pub fn set_hold(&mut self, held: bool) {
        self.held = held;
        // The driver asks for segments after a release. Until then there is no pace timer.
        self.paced_out = false;
    }

    /// Limits the rate of sending from now on, with headers, to the rate that the network provides; `None` removes
    /// the limit. It also limits the bytes in flight to two round trips at that rate (with the smallest recent RTT),
    /// but not below 12 segments, plus a 256th of the acknowledged bytes. More bytes would only wait in a queue. (BBR
    /// limits itself to two round trips for the same reason: Cardwell et al., CACM 60(2), 2017.)
    pub fn set_pace(&mut self, now: Nanos, rate_bps: Option<u64>) {
        self.pace_bps = rate_bps.map(|rate| rate.max(1));
        self.pace_at = self.pace_at.min(now + Nanos(1));
        self.paced_out = false;
        self.provided = rate_bps.is_some();
        self.limit_flight();
    }

    /// Recomputes the limit on the bytes in flight, after a change of the pace or the RTT.
    fn limit_flight(&mut self) {
        self.flight_limit = match (self.pace_bps.filter(|_| self.provided), self.rtt.least()) {
            (Some(rate_bps), Some(rtt)) => {
                let bytes = FLIGHT_ROUND_TRIPS * u128::from(rate_bps) * u128::from(rtt.0) / 8_000_000_000;
                let bytes = u64::try_from(bytes).unwrap_or(u64::MAX).max(self.least_flight);
                bytes.saturating_add((self.una + self.skipped_bytes) / FLIGHT_OF_ACKED).min(self.receive_window.bytes)
            }
            // Before the first RTT sample, the initial window limits the bytes in flight.
            _ => self.receive_window.bytes,
        };
    }

    /// A segment that was sent at `sent` is acknowledged. At most one per round trip is timed.
    fn sample_rtt(&mut self, sent: Nanos, now: Nanos) {
        let rtt = now.saturating_sub(sent);
        self.rtt.sample(rtt);
        let grows = self.receive_window.grows(now, rtt, self.una);
        if grows {
            self.window.set_most(self.receive_window.bytes);
        }
        if grows || self.provided {
            self.limit_flight();
        }
    }

    /// Handles the answer to the SYN.
    pub fn handle_syn_ack(&mut self, now: Nanos) {
        if self.phase != Phase::SynSent {
            return;
        }
        self.phase = if self.limit == 0 && self.ended { Phase::Finished } else { Phase::Open };
        self.send_first = false;
        self.rto_at = None;
        match self.timing.take() {
            Some((_, sent)) => self.sample_rtt(sent, now),
            // RFC 6298 §5.7 and RFC 5681 §3.1: a lost SYN means a window of one segment and a time-out of 3 s.
            None => {
                self.rtt.after_repeated_syn();
                self.window.on_repeated_syn();
            }
        }
        self.backoffs = 0;
    }

    /// Handles an acknowledgement of all bytes before `ack`.
    // Always inlined, not only by a hint. The Python module has two kinds of run (with and without a capture), so
    // there are two callers, and the compiler would emit a call per packet. That costs five instructions per hop.
    #[inline(always)]
    pub fn handle_ack(&mut self, now: Nanos, ack: u64) {
        if self.phase != Phase::Open || ack > self.high {
            return;
        }
        self.active_at = now;
        if ack > self.una {
            self.handle_new_ack(now, ack);
        } else if ack == self.una && self.scoreboard.is_some() {
            // With selective acknowledgements, a duplicate without a block says nothing about losses (RFC 6675 §2).
            self.handle_answer_to_probe(ack, true);
        } else if ack == self.una && self.high > self.una {
            self.handle_duplicate_ack();
        }
    }

    /// Handles the echo of a congestion mark in an acknowledgement, or its absence (RFC 8257 §3.3). The driver calls
    /// it before [`Sender::handle_ack`] or [`Sender::handle_sack`] with the same number.
    pub fn handle_echo(&mut self, ack: u64, echo: bool) {
        if self.phase == Phase::Open && ack <= self.high && !self.in_recovery {
            let (una, next) = (self.una.max(ack), self.next.max(ack));
            self.window.on_echo(&Echo { acked: ack.saturating_sub(self.una), marked: echo, una, next });
        }
    }

    /// Whether the sender needs [`Sender::handle_echo`].
    #[inline]
    pub fn uses_echoes(&self) -> bool {
        self.window.uses_echoes()
    }

    // Inlined for the same reason as `handle_ack`.
    #[inline(always)]
    fn handle_new_ack(&mut self, now: Nanos, ack: u64) {
        let acked = ack - self.una;
        self.una = ack;
        self.next = self.next.max(ack);
        if let Some((end, sent)) = self.timing {
            if ack >= end {
                self.sample_rtt(sent, now);
                self.timing = None;
            }
        }
        self.backoffs = 0;
        if self.scoreboard.is_some() {
            self.acknowledge_selectively(ack);
        }
        let mut restart_timer = true;
        if self.in_recovery {
            restart_timer = self.handle_ack_in_recovery(acked);
        } else {
            self.dup_acks = 0;
            self.window.on_ack(now, acked, ack, self.rtt.smoothed());
        }
        if ack >= self.limit && self.ended {
            self.phase = Phase::Finished;
            self.rto_at = None;
        } else if self.una == self.high {
            self.rto_at = None; // RFC 6298 §5.2
        } else if restart_timer {
            self.rto_at = Some(self.rtt.expiry(now)); // RFC 6298 §5.3
        }
    }

    /// Handles an acknowledgement in recovery (RFC 6582 §3.2 step 3). Returns whether the retransmission timer
    /// restarts.
    #[cold]
    fn handle_ack_in_recovery(&mut self, acked: u64) -> bool {
        if self.recover.is_none_or(|recover| self.una >= recover) {
            self.window.on_recovered(self.flight());
            self.in_recovery = false;
            self.dup_acks = 0;
            return true;
        }
        if self.scoreboard.is_some() {
            return true;
        }
        // Partial acknowledgement: the next hole is sent at once.
        self.send_first = true;
        self.window.on_partial_ack(acked);
        // "Impatient" variant: only the first partial acknowledgement restarts the timer (RFC 6582 §4).
        !std::mem::replace(&mut self.partial_ack_seen, true) || !self.impatient
    }

    /// Handles a duplicate acknowledgement (RFC 6582 §3.2 steps 2 and 3, RFC 3042).
    fn handle_duplicate_ack(&mut self) {
        self.dup_acks += 1;
        if self.in_recovery {
            self.window.inflate();
        } else if self.dup_acks == self.dup_thresh {
            self.begin_recovery();
        }
    }

    /// Begins recovery and retransmits the first missing segment, unless this loss was detected before.
    fn begin_recovery(&mut self) {
        // RFC 6582 §4.1. Selective acknowledgements tell a segment after `recover` from those before it.
        let least = u64::from(self.rack.is_none());
        if self.recover.is_some_and(|recover| self.una < recover + least) {
            return;
        }
        self.window.on_loss(self.flight());
        self.recover = Some(self.high);
        self.in_recovery = true;
        self.partial_ack_seen = false;
        self.send_first = true;
        self.timing = None;
        self.probing = false;
        let Some(board) = &mut self.scoreboard else { return };
        match &mut self.rack {
            Some(rack) => {
                // What the last recovery has sent again is under way.
                board.begin_recovery(self.una.max(board.high_rxt));
                rack.begin_recovery(board.high_rxt);
                self.send_first = board.high_rxt == self.una;
            }
            None => board.begin_recovery(self.una),
        }
    }

    fn flight(&self) -> u64 {
        self.next - self.una
    }

    /// Returns the next segment to send now, if any.
    // Inlined for the same reason as `handle_ack`.
    #[inline(always)]
    pub fn poll_transmit(&mut self, now: Nanos) -> Option<Segment> {
        if self.phase != Phase::Open || self.held {
            return self.poll_syn(now);
        }
        let choice = if self.scoreboard.is_some() { self.choose_selectively() } else { self.choose() };
        let Some((seq, len)) = choice else {
            // The sender waits for its window, not for its pace. A pace time in the past would wake it forever.
            self.paced_out = false;
            return None;
        };
        if self.pace_bps.is_some() && !self.pass_pace(now, len) {
            return None;
        }
        let retransmission = seq < self.high;
        self.send_first = false;
        self.active_at = now;
        let end = seq + len;
        if self.rack.is_some() || (self.in_recovery && retransmission) {
            self.note_sent(now, seq, end);
        }
        self.next = self.next.max(end);
        self.high = self.high.max(end);
        if retransmission {
            self.retransmits += 1;
        } else if self.timing.is_none() {
            self.timing = Some((end, now));
        }
        if self.rto_at.is_none() {
            self.rto_at = Some(self.rtt.expiry(now)); // RFC 6298 §5.1
        }
        let last = self.ended && end >= self.limit;
        Some(Segment { kind: SegmentKind::Data, seq, len: len as u32, last, retransmission })
    }

    /// Returns first byte and length of the next segment, if recovery uses duplicate acknowledgements.
    #[inline(always)]
    fn choose(&self) -> Option<(u64, u64)> {
        let (seq, first) = if self.send_first { (self.una, true) } else { (self.next, false) };
        let len = self.mss.min(self.limit - seq);
        (len > 0 && (first || seq + len <= self.una + self.allowed())).then_some((seq, len))
    }

    fn poll_syn(&mut self, now: Nanos) -> Option<Segment> {
        if self.phase != Phase::SynSent || !self.send_first || self.held {
            return None;
        }
        self.send_first = false;
        self.active_at = now;
        self.timing = (self.backoffs == 0).then_some((0, now));
        self.rto_at = Some(self.rtt.expiry(now));
        let retransmission = self.backoffs > 0;
        self.retransmits += u32::from(retransmission);
        Some(Segment { kind: SegmentKind::Syn, seq: 0, len: 0, last: false, retransmission })
    }

    /// Returns the limit on unacknowledged bytes. The first two duplicate acknowledgements allow one more segment
    /// each (RFC 3042 §2).
    #[inline(always)]
    fn allowed(&self) -> u64 {
        let extra = match self.limited_transmit && !self.in_recovery {
            true => self.mss * u64::from(self.dup_acks.min(2)),
            false => 0,
        };
        (self.window.bytes() + extra).min(self.flight_limit)
    }

    #[cold]
    fn pass_pace(&mut self, now: Nanos, len: u64) -> bool {
        let Some(rate_bps) = self.pace_bps else { return true };
        self.paced_out = now < self.pace_at;
        if !self.paced_out {
            let bits = u128::from(len + u64::from(self.header_bytes)) * 8;
            let gap = bits * 1_000_000_000 / u128::from(rate_bps);
            self.pace_at = self.pace_at.max(now) + Nanos(gap.min(u128::from(u64::MAX / 4)) as u64);
        }
        !self.paced_out
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod transfers;
