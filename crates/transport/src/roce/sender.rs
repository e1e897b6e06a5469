//! The sending end of a transfer.

use super::law::Heard;
use super::laws::Law;
use super::send_times::SendTimes;
use super::{Recovery, RoceSettings};
use crate::packets::{Outgoing, PacketCounters, PacketSender, PortLoad, Report, ReportKind};
use crate::uec::{NetworkTraits, Sizes};
use pathloom_model::Nanos;
use std::collections::{BTreeSet, VecDeque};

/// Picoseconds in a nanosecond, and in a second for one bit.
const PS_PER_NS: u64 = 1_000;
const PS_PER_BYTE: f64 = 8e12;
/// Time-outs on a fabric without and with flow control: RTO_high of Mittal et al. 2018, §4.1, and 2^14 · 4.096 µs, a usual value of
/// InfiniBand's local acknowledgement time-out (volume 1, §9.7.6.1.3).
const TIMEOUT: Nanos = Nanos::from_micros(320);
const LOSSLESS_TIMEOUT: Nanos = Nanos(67_108_864);
/// With fewer packets in flight than this, the short time-out applies (Mittal et al. 2018, §3.1).
const FEW: u64 = 3;
/// Greatest number of times that a time-out doubles while nothing is heard.
const MOST_BACKOFF: u32 = 6;

/// What has happened to a packet from the first unacknowledged one on, with [`Recovery::Irn`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    InFlight,
    Arrived,
    Lost,
    /// It was lost, and sent again since.
    Repeated,
}

/// Sends the packets of a transfer at the rate of its control, and repairs losses.
#[derive(Clone, Debug)]
pub struct RoceSender {
    sizes: Sizes,
    recovery: Recovery,
    law: Law,
    /// When packets left, if the control measures round trips.
    times: Option<SendTimes>,
    /// Packets of a message.
    message: u64,
    /// Most packets from the first unacknowledged one on.
    most: u64,
    /// Time before which no packet may leave, in ps.
    next_ps: u64,
    /// That time, if a packet has asked to leave before it.
    paced_until: Option<Nanos>,
    /// All packets below this number are acknowledged.
    first: u64,
    /// The next packet, and one more than the highest number that was sent.
    next: u64,
    sent: u64,
    /// With [`Recovery::Irn`]: packets from `first` to `sent`, those of them that are lost, one more than the highest that has
    /// arrived, and the packets below which losses are known.
    states: VecDeque<State>,
    lost: BTreeSet<u64>,
    highest: u64,
    scanned: u64,
    timeout: Nanos,
    short_timeout: Nanos,
    /// Time of the last progress, from which the time-out runs; `None` if nothing is unacknowledged.
    waits_since: Option<Nanos>,
    backoff: u32,
    counters: PacketCounters,
}

impl RoceSender {
    /// Creates the sender of a transfer of this many bytes.
    pub fn new(settings: &RoceSettings, network: &NetworkTraits, bytes: u64) -> RoceSender {
        let frame = settings.frame_bytes();
        let mtu = u64::from(settings.common.mss_bytes);
        let window = || {
            let bits = u128::from(network.rate_bps) * u128::from(network.round_trip.0) / 1_000_000_000;
            (bits / 8).div_ceil(u128::from(frame)).clamp(1, u128::from(u32::MAX)) as u64
        };
        let usual = if network.lossless { LOSSLESS_TIMEOUT } else { TIMEOUT.max(network.timeout) };
        let law = Law::new(&settings.control, network);
        RoceSender {
            sizes: Sizes::with_header(settings.common.mss_bytes, settings.header_bytes(), bytes),
            recovery: settings.recovery,
            times: law.measures_round_trips().then(SendTimes::default),
            law,
            message: settings.message_bytes.map_or(u64::MAX, |bytes| bytes.div_ceil(mtu)),
            most: match (settings.most_packets, settings.recovery) {
                (Some(packets), _) => packets.into(),
                (None, Recovery::Irn) => window(),
                (None, Recovery::GoBackN) => u64::MAX,
            },
            next_ps: 0,
            paced_until: None,
            first: 0,
            next: 0,
            sent: 0,
            states: VecDeque::new(),
            lost: BTreeSet::new(),
            highest: 0,
            scanned: 0,
            timeout: settings.timeout.unwrap_or(usual),
            short_timeout: settings.short_timeout,
            waits_since: None,
            backoff: 0,
            counters: PacketCounters::default(),
        }
    }

    /// Present rate of frames in bit/s.
    pub fn rate_bps(&self) -> f64 {
        self.law.rate_bps()
    }

    /// Bytes from the first unacknowledged packet to the last one that was sent.
    pub fn in_flight_bytes(&self) -> u64 {
        self.sizes.frames_below(self.sent) - self.sizes.frames_below(self.first)
    }

    /// Payload bytes of the packets before the first unacknowledged one.
    pub fn acknowledged_bytes(&self) -> u64 {
        self.sizes.payload_below(self.first)
    }

    /// Payload bytes of all packets that were sent, each counted once.
    pub fn sent_bytes(&self) -> u64 {
        self.sizes.payload_below(self.sent)
    }

    /// Its retransmission time-out, with more than a few packets in flight.
    #[cfg(test)]
    pub(super) fn timeout(&self) -> Nanos {
        self.timeout
    }

    /// What has happened so far.
    pub fn counters(&self) -> PacketCounters {
        self.counters
    }

    /// The packet that may be sent next, whatever the rate.
    fn candidate(&self) -> Option<u64> {
        if let Some(&lost) = self.lost.first() {
            return Some(lost);
        }
        let is_allowed = self.next < self.sizes.packets() && self.next - self.first < self.most && self.fits_window();
        is_allowed.then_some(self.next)
    }

    /// Whether less than the window of the rate control is on its way, if it has one. So one packet may always be.
    fn fits_window(&self) -> bool {
        let under_way = || self.sizes.frames_below(self.next) - self.sizes.frames_below(self.first);
        self.law.window_bytes().is_none_or(|window| under_way() < window.max(1))
    }

    /// A frame leaves. The next one may follow after the time that the rate sets. A frame that had to wait for the card for
    /// less than this time does not lower the rate.
    fn pace(&mut self, now: Nanos, bytes: u64) {
        let gap_ps = (bytes as f64 * PS_PER_BYTE / self.law.rate_bps()) as u64;
        let now_ps = now.0.saturating_mul(PS_PER_NS);
        self.next_ps = self.next_ps.max(now_ps.saturating_sub(gap_ps)).saturating_add(gap_ps);
    }

    fn state(&mut self, number: u64) -> Option<&mut State> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.states.get_mut(place)
    }

    /// All packets below a number have arrived. Returns whether that is new.
    fn acknowledge(&mut self, now: Nanos, cumulative: u64) -> bool {
        if cumulative <= self.first {
            return false;
        }
        if self.recovery == Recovery::Irn {
            self.states.drain(..(cumulative - self.first) as usize);
            self.lost = self.lost.split_off(&cumulative);
        }
        self.first = cumulative;
        self.next = self.next.max(cumulative);
        (self.highest, self.scanned) = (self.highest.max(cumulative), self.scanned.max(cumulative));
        self.waits_since = (self.first < self.sent).then_some(now);
        self.backoff = 0;
        true
    }

    /// Goes back to the first packet that is not acknowledged.
    fn go_back(&mut self) {
        self.next = self.first;
    }

    /// Notes which packets beyond the first missing one have arrived, and that those below the highest of them are lost: once
    /// each, until a time-out (Mittal et al. 2018, §3.1).
    fn note_arrivals(&mut self, report: &Report) {
        let arrived = |number: u64, sender: &mut RoceSender| {
            if let Some(state) = sender.state(number) {
                if std::mem::replace(state, State::Arrived) == State::Lost {
                    sender.lost.remove(&number);
                }
                sender.highest = sender.highest.max(number + 1);
            }
        };
        arrived(report.number, self);
        let mut bits = report.selective;
        while bits != 0 {
            arrived(report.base + u64::from(bits.trailing_zeros()), self);
            bits &= bits - 1;
        }
        for number in self.scanned..self.highest {
            if let Some(state) = self.state(number).filter(|state| **state == State::InFlight) {
                *state = State::Lost;
                self.lost.insert(number);
            }
        }
        self.scanned = self.scanned.max(self.highest);
    }

    fn timeout_due(&self) -> Option<Nanos> {
        let few = self.recovery == Recovery::Irn && self.sent - self.first < FEW;
        let timeout = if few { self.short_timeout } else { self.timeout };
        Some(self.waits_since?.saturating_add(Nanos(timeout.0.saturating_mul(1 << self.backoff))))
    }
}

impl PacketSender for RoceSender {
    fn poll_transmit(&mut self, now: Nanos) -> Option<Outgoing> {
        let number = self.candidate()?;
        let due = Nanos(self.next_ps / PS_PER_NS);
        // A packet may leave in the nanosecond in which it is due.
        self.paced_until = (due > now).then_some(due);
        if due > now {
            return None;
        }
        let size = self.sizes.frame(number);
        self.law.advance(now);
        self.pace(now, size);
        self.law.on_sent(size);
        let again = number < self.sent;
        if let Some(times) = &mut self.times {
            times.sent(now, number, again);
        }
        self.counters.retransmissions += u64::from(again);
        if self.lost.remove(&number) {
            if let Some(state) = self.state(number) {
                *state = State::Repeated;
            }
        } else {
            self.next = number + 1;
            if self.recovery == Recovery::Irn {
                self.states.push_back(State::InFlight);
            }
        }
        self.sent = self.sent.max(self.next);
        self.waits_since = self.waits_since.or(Some(now));
        let ends_message = (number + 1) % self.message == 0 || number + 1 == self.sizes.packets();
        let fills = self.candidate().is_none();
        Some(Outgoing {
            number,
            payload_bytes: self.sizes.payload(number),
            entropy: 0,
            retransmission: again,
            asks_report: ends_message || fills,
            only_header: false,
        })
    }

    fn handle_report(&mut self, now: Nanos, report: &Report) {
        let covered = report.base.saturating_add(64 - u64::from(report.selective.leading_zeros()));
        let is_possible = report.number < self.sent
            && report.cumulative <= self.sent
            && (report.selective == 0 || covered <= self.sent);
        if !is_possible {
            return;
        }
        self.acknowledge(now, report.cumulative);
        if let Some(left) = self.times.as_mut().and_then(|times| times.reported(report.number, report.cumulative)) {
            self.law.on_round_trip(now, now - left);
        }
        match (self.recovery, report.kind) {
            (Recovery::GoBackN, ReportKind::Missing) if report.cumulative == self.first && self.first < self.sent => {
                self.counters.nacks += 1;
                self.waits_since = Some(now);
                self.go_back();
            }
            (Recovery::Irn, ReportKind::Missing) => {
                self.counters.nacks += 1;
                self.note_arrivals(report);
            }
            _ => {}
        }
    }

    fn handle_telemetry(&mut self, _now: Nanos, report: &Report, loads: &[PortLoad]) {
        if report.number < self.sent {
            self.law.on_telemetry(&Heard { number: report.number, next: self.sent, loads });
        }
    }

    fn handle_pull(&mut self, _bytes: u64) {}

    fn handle_notice(&mut self, now: Nanos) {
        self.law.on_notice(now);
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        if self.is_finished() {
            return None;
        }
        self.timeout_due().into_iter().chain(self.paced_until).min()
    }

    fn handle_timeout(&mut self, now: Nanos) {
        self.paced_until = self.paced_until.filter(|&until| until > now);
        if self.timeout_due().is_none_or(|due| due > now) || self.is_finished() {
            return;
        }
        self.counters.timeouts += 1;
        self.backoff = (self.backoff + 1).min(MOST_BACKOFF);
        self.waits_since = Some(now);
        if self.recovery == Recovery::GoBackN {
            return self.go_back();
        }
        // The first packet is repeated. Reports on later ones then say which others are lost, those included that were
        // lost a second time.
        self.states.iter_mut().filter(|state| **state == State::Repeated).for_each(|state| *state = State::InFlight);
        self.scanned = self.first;
        if let Some(state) = self.states.front_mut() {
            *state = State::Lost;
            self.lost.insert(self.first);
        }
    }

    fn is_finished(&self) -> bool {
        self.first == self.sizes.packets()
    }
}
