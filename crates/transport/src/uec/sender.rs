//! The sending end: which packets are in flight, and which is next.

use super::entropies::{Entropies, Outcome};
use super::law::{Arrival, Trimmed};
use super::laws::Law;
use super::{NetworkTraits, Sizes, UnorderedSettings, MOST_AHEAD};
use crate::packets::{Outgoing, PacketCounters, PacketSender, Report, ReportKind, TrimmedAt};
use pathloom_model::{Nanos, MOST_QUEUES};
use rand::SeedableRng;
use rand_pcg::Pcg32;
use std::collections::{BTreeSet, VecDeque};

/// Greatest number of times that a time-out doubles while nothing is heard.
const MOST_BACKOFF: u32 = 6;

/// What has happened to a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    InFlight,
    Lost,
    Arrived,
}

/// A packet that was sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Nanos,
    /// Number of packets sent before it, repeated ones included.
    place: u64,
    entropy: u32,
    /// How often it was sent with its payload; more than 2 are not told apart.
    times: u8,
    /// Level of its priority; 0 is sent first.
    level: u8,
    state: State,
}

/// Greatest [`Sent::place`] of the packets that have arrived.
#[derive(Clone, Debug, Default)]
struct Newest {
    of_all: u64,
    /// The same of the packets of each level and the levels above it, once packets have different ones.
    by_level: Option<Box<[u64; MOST_QUEUES as usize]>>,
}

impl Newest {
    fn note_level(&mut self, level: u8) {
        if level > 0 && self.by_level.is_none() {
            let mut by_level = [0; MOST_QUEUES as usize];
            by_level[0] = self.of_all;
            self.by_level = Some(Box::new(by_level));
        }
    }

    fn note_arrival(&mut self, place: u64, level: u8) {
        self.of_all = self.of_all.max(place);
        if let Some(by_level) = &mut self.by_level {
            by_level.iter_mut().take(usize::from(level) + 1).for_each(|newest| *newest = place.max(*newest));
        }
    }

    /// Of the packets that cannot overtake one of this level by their priority.
    fn of_level(&self, level: u8) -> u64 {
        self.by_level.as_ref().map_or(self.of_all, |by_level| by_level[usize::from(level.min(MOST_QUEUES - 1))])
    }
}

/// The sender of uec, swift, ndp and eqds. Sends the packets of a transfer within the window of its congestion control, repeats
/// those that are lost, and chooses an entropy for each (uet-htsim, `UecSrc`).
#[derive(Clone, Debug)]
pub struct UnorderedSender {
    sizes: Sizes,
    law: Law,
    entropies: Entropies,
    rng: Pcg32,
    /// Packets from `cumulative` to the newest that was sent.
    sent: VecDeque<Sent>,
    /// All packets below this number have arrived.
    cumulative: u64,
    lost: BTreeSet<u64>,
    /// Packets in the order in which they were sent, with the times; those that are no longer in flight leave late.
    order: VecDeque<(Nanos, u64)>,
    /// Number of packets sent, repeated ones included.
    departures: u64,
    newest: Newest,
    /// Bytes in flight, with headers. Below 0 for a moment when a packet that counted as lost arrives.
    in_flight: i64,
    /// Of the newest report ([`Report::received_bytes`]).
    received_bytes: u64,
    /// When the last packet left.
    sent_at: Nanos,
    /// End of the gap that the sender waits for, if it does.
    paced_until: Option<Nanos>,
    timeout: Nanos,
    /// Time-outs since the last report.
    backoff: u32,
    counters: PacketCounters,
}

impl UnorderedSender {
    /// Creates the sender of a transfer of this many bytes. The seed determines the entropies.
    pub fn new(settings: &UnorderedSettings, network: &NetworkTraits, bytes: u64, seed: u64) -> UnorderedSender {
        let mut rng = Pcg32::seed_from_u64(seed);
        UnorderedSender {
            sizes: Sizes::new(settings, bytes),
            law: Law::new(settings, network),
            entropies: Entropies::new(settings.entropy, settings.paths, &mut rng),
            rng,
            sent: VecDeque::new(),
            cumulative: 0,
            lost: BTreeSet::new(),
            order: VecDeque::new(),
            departures: 0,
            newest: Newest::default(),
            in_flight: 0,
            received_bytes: 0,
            sent_at: Nanos::ZERO,
            paced_until: None,
            timeout: settings.timeout.unwrap_or(network.timeout),
            backoff: 0,
            counters: PacketCounters::default(),
        }
    }

    /// Congestion window, with headers.
    pub fn window_bytes(&self) -> u64 {
        self.law.window()
    }

    /// Largest window at the round trip that is known now.
    pub fn most_window_bytes(&self) -> u64 {
        self.law.most()
    }

    /// Bytes in flight, with headers.
    pub fn in_flight_bytes(&self) -> u64 {
        self.in_flight.max(0) as u64
    }

    /// Payload bytes of the packets before the first one that is not acknowledged.
    pub fn acknowledged_bytes(&self) -> u64 {
        self.sizes.payload_below(self.cumulative)
    }

    /// What has happened so far.
    pub fn counters(&self) -> PacketCounters {
        self.counters
    }

    /// Number of the next packet that was never sent.
    fn next(&self) -> u64 {
        self.cumulative + self.sent.len() as u64
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut Sent> {
        let place = usize::try_from(number.checked_sub(self.cumulative)?).ok()?;
        self.sent.get_mut(place)
    }

    fn get(&self, number: u64) -> Option<&Sent> {
        let place = usize::try_from(number.checked_sub(self.cumulative)?).ok()?;
        self.sent.get(place)
    }

    /// Round trip of the packet that caused a report, if it is clear which copy of the packet that was (uet-htsim,
    /// `validateSendTs`).
    fn round_trip(&self, now: Nanos, report: &Report) -> Option<Nanos> {
        let sent = self.get(report.number).filter(|sent| sent.state == State::InFlight)?;
        let is_clear = matches!((sent.times, report.retransmission), (1, false) | (2, true));
        is_clear.then(|| Nanos(now.0.saturating_sub(sent.at.0)))
    }

    /// Notes that a packet has arrived. What is in flight was reduced by [`Report::received_bytes`], and before that
    /// when the packet seemed lost.
    fn note_arrival(&mut self, number: u64) {
        let size = self.sizes.frame(number) as i64;
        let Some(sent) = self.get_mut(number) else { return };
        let (place, entropy, level) = (sent.place, sent.entropy, sent.level);
        match std::mem::replace(&mut sent.state, State::Arrived) {
            State::Arrived => return,
            State::InFlight => {}
            State::Lost => {
                self.lost.remove(&number);
                self.in_flight += size;
            }
        }
        self.newest.note_arrival(place, level);
        self.entropies.note_arrival(place, entropy);
    }

    fn note_arrivals(&mut self, report: &Report) {
        while self.cumulative < report.cumulative {
            self.note_arrival(self.cumulative);
            self.sent.pop_front();
            self.cumulative += 1;
        }
        let mut bits = report.selective;
        while bits != 0 {
            self.note_arrival(report.base + u64::from(bits.trailing_zeros()));
            bits &= bits - 1;
        }
    }

    fn handle_ack(&mut self, now: Nanos, report: &Report) {
        let received = report.received_bytes.saturating_sub(self.received_bytes);
        self.received_bytes += received;
        self.in_flight -= received as i64;
        let round_trip = self.round_trip(now, report);
        self.note_arrivals(report);
        let outcome = if report.marked { Outcome::Marked } else { Outcome::Good };
        self.entropies.learn(now, report.entropy, outcome);
        self.law.on_arrival(&Arrival {
            now,
            bytes: received,
            marked: report.marked,
            round_trip,
            hops: report.hops,
            in_flight: self.in_flight_bytes(),
        });
    }

    /// Packets count as lost if so many of those that were sent after them have arrived (as in RFC 4653 §3.1, by packets), and if a
    /// third of the time-out has passed: the time that two full queues take to drain. So long may others overtake a packet.
    /// Those of a higher priority do not count: they overtake it for as long as there are any.
    fn infer_losses(&mut self, now: Nanos) {
        let Some(reordering) = self.law.reordering() else { return };
        self.tidy();
        while let Some(&(at, number)) = self.order.front() {
            let is_overtaken =
                self.get(number).is_some_and(|sent| sent.place + reordering <= self.newest.of_level(sent.level));
            if !is_overtaken || now.saturating_sub(at) < Nanos(self.timeout.0 / 3) {
                return;
            }
            self.lose(now, at, number);
            self.tidy();
        }
    }

    /// The packet that was sent at this time is lost, unless it is no longer in flight. Returns whether it was.
    fn lose(&mut self, now: Nanos, at: Nanos, number: u64) -> bool {
        let size = self.sizes.frame(number);
        let in_flight = |sent: &&mut Sent| sent.state == State::InFlight && sent.at == at;
        let Some(sent) = self.get_mut(number).filter(in_flight) else { return false };
        sent.state = State::Lost;
        let (place, entropy) = (sent.place, sent.entropy);
        self.lost.insert(number);
        self.in_flight -= size as i64;
        self.law.on_timeout(now, size);
        self.entropies.note_loss(now, place, entropy);
        true
    }

    fn handle_nack(&mut self, now: Nanos, report: &Report, place: TrimmedAt) {
        let size = self.sizes.frame(report.number);
        let in_flight = self.in_flight_bytes();
        let Some(sent) = self.get_mut(report.number).filter(|sent| sent.state == State::InFlight) else { return };
        sent.state = State::Lost;
        let round_trip = Nanos(now.0.saturating_sub(sent.at.0));
        self.lost.insert(report.number);
        self.counters.nacks += u64::from(place != TrimmedAt::Sender);
        self.law.on_trimmed(&Trimmed { now, bytes: size, round_trip, in_flight });
        self.in_flight -= size as i64;
        // At the last hop no other path helps, so the path is not to blame.
        let outcome = match (place, report.marked) {
            (TrimmedAt::Fabric, _) => Outcome::Nacked,
            (TrimmedAt::LastHop, true) => Outcome::Marked,
            (TrimmedAt::LastHop, false) | (TrimmedAt::Sender, _) => Outcome::Good,
        };
        self.entropies.learn(now, report.entropy, outcome);
    }

    /// When the oldest packet in flight times out.
    fn retransmission_due(&self) -> Option<Nanos> {
        let &(at, _) = self.order.front()?;
        Some(Nanos(at.0.saturating_add(self.timeout.0.saturating_mul(1 << self.backoff))))
    }

    /// Whether a packet may leave that does not fit into the window: if the window is smaller than a packet, one at a time,
    /// with a gap between them.
    fn passes_gap(&mut self, now: Nanos) -> bool {
        let Some(gap) = self.law.gap().filter(|_| self.in_flight <= 0) else { return false };
        let due = self.sent_at.saturating_add(gap);
        self.paced_until = (due > now).then_some(due);
        self.paced_until.is_none()
    }

    /// Removes packets from the front of `order` that are no longer in flight.
    fn tidy(&mut self) {
        while let Some(&(at, number)) = self.order.front() {
            if self.get(number).is_some_and(|sent| sent.state == State::InFlight && sent.at == at) {
                return;
            }
            self.order.pop_front();
        }
    }
}

impl PacketSender for UnorderedSender {
    fn poll_transmit(&mut self, now: Nanos) -> Option<Outgoing> {
        let again = self.lost.first().copied();
        let number = again.unwrap_or(self.next());
        if number >= self.sizes.packets() || number >= self.cumulative + MOST_AHEAD {
            return None;
        }
        let size = self.sizes.frame(number);
        if !self.law.admits(self.in_flight, size) && !self.passes_gap(now) {
            return None;
        }
        self.in_flight += size as i64;
        self.sent_at = now;
        let fills_window = !self.law.admits(self.in_flight, size + 1);
        let only_header = self.law.takes_request(size);
        if !only_header {
            self.law.on_sent(size);
        }
        let entropy = self.entropies.next(now, &mut self.rng);
        let place = self.departures;
        self.departures += 1;
        let times = u8::from(!only_header);
        let sent_before = match again {
            Some(_) => {
                self.lost.remove(&number);
                let sent = self.get_mut(number)?;
                let before = sent.times;
                let times = before.saturating_add(times);
                *sent = Sent { at: now, place, entropy, times, level: 0, state: State::InFlight };
                before > 0
            }
            None => {
                self.sent.push_back(Sent { at: now, place, entropy, times, level: 0, state: State::InFlight });
                false
            }
        };
        self.counters.retransmissions += u64::from(sent_before && !only_header);
        self.order.push_back((now, number));
        let is_last = self.next() == self.sizes.packets();
        Some(Outgoing {
            number,
            payload_bytes: self.sizes.payload(number),
            entropy,
            retransmission: sent_before,
            asks_report: again.is_some() || is_last || fills_window,
            only_header,
        })
    }

    fn note_level(&mut self, level: u8) {
        let Some(&(_, number)) = self.order.back() else { return };
        if let Some(sent) = self.get_mut(number).filter(|sent| sent.state == State::InFlight) {
            sent.level = level;
            self.newest.note_level(level);
        }
    }

    fn handle_report(&mut self, now: Nanos, report: &Report) {
        let next = self.next();
        let covered = report.base.saturating_add(64 - u64::from(report.selective.leading_zeros()));
        let is_possible = report.number < next
            && report.cumulative <= next
            && (report.selective == 0 || covered <= next)
            && report.received_bytes <= self.sizes.frames_below(next);
        if !is_possible {
            return;
        }
        self.backoff = 0;
        match report.kind {
            ReportKind::Ack => {
                self.handle_ack(now, report);
                self.infer_losses(now);
            }
            ReportKind::Nack(place) => self.handle_nack(now, report, place),
            ReportKind::Missing => {}
        }
        self.tidy();
    }

    fn handle_pull(&mut self, bytes: u64) {
        self.backoff = 0;
        self.law.on_pull(bytes);
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        let paced_until = self.paced_until.filter(|_| !self.is_finished());
        self.retransmission_due().into_iter().chain(paced_until).min()
    }

    fn handle_timeout(&mut self, now: Nanos) {
        self.paced_until = self.paced_until.filter(|&until| until > now);
        if self.retransmission_due().is_none_or(|due| due > now) {
            return;
        }
        let limit = Nanos(now.0.saturating_sub(self.timeout.0.saturating_mul(1 << self.backoff)));
        while let Some(&(at, number)) = self.order.front().filter(|&&(at, _)| at <= limit) {
            self.order.pop_front();
            self.counters.timeouts += u64::from(self.lose(now, at, number));
        }
        if self.backoff > 0 {
            self.entropies.note_silence(&mut self.rng);
        }
        self.backoff = (self.backoff + 1).min(MOST_BACKOFF);
        self.tidy();
    }

    fn is_finished(&self) -> bool {
        self.cumulative == self.sizes.packets()
    }
}
