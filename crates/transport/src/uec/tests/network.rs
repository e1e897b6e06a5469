//! A sender, a receiver and the network between them, in virtual time. The network loses, trims, marks and overtakes
//! packets at random, and checks every report against what it has delivered.

use super::super::{NetworkTraits, PacketControl, UnorderedReceiver, UnorderedSender, UnorderedSettings, HEADER_BYTES};
use crate::packets::{Arrived, PacketReceiver, PacketSender, Report, ReportKind, TrimmedAt};
use pathloom_model::Nanos;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;
use std::collections::{BTreeMap, BTreeSet};

/// What a network does to packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fates {
    /// Share of packets and reports that are lost.
    pub lose: f64,
    /// Share of data packets that are trimmed.
    pub trim: f64,
    /// Share of data packets that are marked.
    pub mark: f64,
    /// Share of packets and reports that arrive twice.
    pub repeat: f64,
    /// Most time by which a packet is late.
    pub late: Nanos,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    CardIsFree,
    Data(Arrived),
    Report(Report),
    /// The receiver may pull a packet.
    PullIsDue,
    Pull(u64),
}

pub(super) struct Network {
    pub traits: NetworkTraits,
    pub sender: UnorderedSender,
    pub receiver: UnorderedReceiver,
    pub now: Nanos,
    fates: Fates,
    rng: Pcg32,
    /// Events by time, and by number where times are equal.
    agenda: BTreeMap<(Nanos, u64), Event>,
    events: u64,
    card_is_busy: bool,
    /// Whether the receiver waits before it pulls again.
    pulls: bool,
    /// Packets that have arrived, and their bytes with headers.
    arrived: BTreeSet<u64>,
    arrived_bytes: u64,
    full: u64,
    is_pulled: bool,
}

impl Network {
    pub(super) fn new(
        settings: &UnorderedSettings,
        traits: NetworkTraits,
        bytes: u64,
        seed: u64,
        fates: Fates,
    ) -> Network {
        Network {
            traits,
            sender: UnorderedSender::new(settings, &traits, bytes, seed),
            receiver: UnorderedReceiver::new(settings, &traits, bytes),
            now: Nanos::ZERO,
            fates,
            rng: Pcg32::seed_from_u64(seed),
            agenda: BTreeMap::new(),
            events: 0,
            card_is_busy: false,
            pulls: false,
            arrived: BTreeSet::new(),
            arrived_bytes: 0,
            full: settings.frame_bytes(),
            is_pulled: matches!(settings.control, PacketControl::Ndp(_) | PacketControl::Eqds(_)),
        }
    }

    fn draw(&mut self, share: f64) -> bool {
        share > 0.0 && self.rng.random_bool(share)
    }

    fn at(&mut self, time: Nanos, event: Event) {
        self.events += 1;
        self.agenda.insert((time, self.events), event);
    }

    fn nanos_of(&self, bytes: u64) -> Nanos {
        Nanos(bytes * 8_000_000_000 / self.traits.rate_bps)
    }

    /// Puts something on its way that takes this long, unless it is lost.
    fn carry(&mut self, takes: Nanos, event: Event) {
        for _ in 0..1 + u8::from(self.draw(self.fates.repeat)) {
            if !self.draw(self.fates.lose) {
                let late = Nanos(self.rng.random_range(0..=self.fates.late.0));
                self.at(self.now + takes + late, event);
            }
        }
    }

    fn send(&mut self) {
        if self.card_is_busy {
            return;
        }
        let Some(packet) = self.sender.poll_transmit(self.now) else { return };
        // A window below a packet allows one packet at a time. That of a sender that is pulled is what it may send more.
        let allowed = self.sender.window_bytes().max(self.full);
        assert!(self.is_pulled || self.sender.in_flight_bytes() <= allowed, "sent beyond the window");
        let frame = u64::from(packet.payload_bytes + HEADER_BYTES);
        let mut arrived = Arrived::from(packet);
        arrived.marked = self.draw(self.fates.mark);
        if arrived.trimmed.is_none() && self.draw(self.fates.trim) {
            arrived.trimmed = Some(if self.draw(0.5) { TrimmedAt::Fabric } else { TrimmedAt::LastHop });
        }
        let card = self.nanos_of(frame);
        // Half of the round trip and, as for the fabric of six equal links, the time of a full packet at five more.
        let takes = card + Nanos(6_000) + self.nanos_of(5 * self.full);
        self.card_is_busy = true;
        self.at(self.now + card, Event::CardIsFree);
        self.carry(takes, Event::Data(arrived));
    }

    fn deliver(&mut self, arrived: &Arrived) {
        if arrived.trimmed.is_none() && self.arrived.insert(arrived.number) {
            self.arrived_bytes += u64::from(arrived.payload_bytes + HEADER_BYTES);
        }
        if let Some(report) = self.receiver.handle_data(arrived) {
            self.check(&report);
            let takes = Nanos(6_000) + self.nanos_of(6 * u64::from(HEADER_BYTES));
            self.carry(takes, Event::Report(report));
        }
        self.pull();
        let packets = (0..).take_while(|number| self.arrived.contains(number)).count() as u64;
        let delivered = self.receiver.delivered_bytes();
        assert_eq!(delivered.div_ceil(self.full - u64::from(HEADER_BYTES)), packets);
    }

    /// Pulls a packet, if one is wanted, and not more often than packets can arrive.
    fn pull(&mut self) {
        if !self.pulls && self.receiver.wants_pull() {
            let bytes = self.receiver.pull();
            self.pulls = true;
            self.at(self.now + self.nanos_of(self.full), Event::PullIsDue);
            self.carry(Nanos(6_000) + self.nanos_of(6 * u64::from(HEADER_BYTES)), Event::Pull(bytes));
        }
    }

    /// A report never contains what has not arrived.
    fn check(&self, report: &Report) {
        let prefix = (0..).take_while(|number| self.arrived.contains(number)).count() as u64;
        assert_eq!((report.cumulative, report.received_bytes), (prefix, self.arrived_bytes));
        for bit in (0..64).filter(|bit| report.selective >> bit & 1 == 1) {
            assert!(self.arrived.contains(&(report.base + bit)), "{report:?}");
        }
        if let ReportKind::Nack(_) = report.kind {
            assert!(!self.arrived.contains(&report.number), "{report:?}");
        }
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::CardIsFree => self.card_is_busy = false,
            Event::Data(arrived) => self.deliver(&arrived),
            Event::Report(report) => self.sender.handle_report(self.now, &report),
            Event::Pull(bytes) => self.sender.handle_pull(bytes),
            Event::PullIsDue => {
                self.pulls = false;
                self.pull();
            }
        }
        let (window, most) = (self.sender.window_bytes(), self.sender.most_window_bytes());
        assert!(window <= most, "window {window}, at most {most}");
    }

    /// Runs until the sender is finished, and returns the time.
    pub(super) fn run(&mut self) -> Nanos {
        self.send();
        while !self.sender.is_finished() {
            assert!(self.events < 10_000_000, "the transfer does not end");
            let next = self.agenda.first_key_value().map_or(Nanos::MAX, |(&(time, _), _)| time);
            match self.sender.poll_timeout().filter(|&due| due < next) {
                Some(due) => {
                    self.now = due.max(self.now);
                    self.sender.handle_timeout(self.now);
                }
                None => {
                    let ((time, _), event) = self.agenda.pop_first().expect("packets or a time-out are under way");
                    self.now = time;
                    self.step(event);
                }
            }
            self.send();
        }
        self.now
    }
}
