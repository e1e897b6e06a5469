//! Sender and receiver together, over a wire that loses what a test says.

use super::*;
use crate::packets::{
    Arrived, Feedback, Outgoing, PacketCounters, PacketReceiver, PacketSender, PortLoad, Report, ReportKind,
};
use crate::uec::NetworkTraits;
use crate::TransportSpec;
use pathloom_model::Nanos;
use proptest::prelude::*;
use std::collections::BTreeMap;

const PAYLOAD: u64 = 1024;
/// A full packet takes 872 ns at 10 Gbit/s; the wire takes 2 µs each way.
pub(super) const TRAITS: NetworkTraits = NetworkTraits {
    rate_bps: 10_000_000_000,
    round_trip: Nanos(4_928),
    hop: Nanos(1_000),
    trims: false,
    lossless: false,
    timeout: Nanos(100_000),
};
const WIRE: Nanos = Nanos(2_000);

fn settings(keys: &str) -> RoceSettings {
    match TransportSpec::parse(&format!("roce:mtu=1024B{keys}")).unwrap() {
        TransportSpec::Roce(settings) => settings,
        other => panic!("{other:?}"),
    }
}

/// What is on the wire, by time and order of sending.
#[derive(Clone, Copy, Debug)]
enum OnWire {
    Data(Arrived),
    Feedback(Feedback),
}

struct Wire {
    sender: RoceSender,
    receiver: RoceReceiver,
    now: Nanos,
    under_way: BTreeMap<(Nanos, u64), OnWire>,
    sent: Vec<u64>,
    order: u64,
}

impl Wire {
    fn new(settings: &RoceSettings, bytes: u64) -> Wire {
        let (sender, receiver) = (RoceSender::new(settings, &TRAITS, bytes), RoceReceiver::new(settings, bytes));
        Wire { sender, receiver, now: Nanos::ZERO, under_way: BTreeMap::new(), sent: Vec::new(), order: 0 }
    }

    fn put(&mut self, after: Nanos, what: OnWire) {
        self.order += 1;
        self.under_way.insert((self.now + after, self.order), what);
    }

    /// Runs until the sender has finished. `fate` says of each packet, by its place in the order of sending, whether it is lost
    /// and whether it is marked. Returns when the sender had finished.
    fn run(&mut self, fate: impl Fn(usize, &Outgoing) -> (bool, bool)) -> Nanos {
        for _ in 0..1_000_000 {
            while let Some(outgoing) = self.sender.poll_transmit(self.now) {
                let (lost, marked) = fate(self.sent.len(), &outgoing);
                self.sent.push(outgoing.number);
                if !lost {
                    self.put(WIRE, OnWire::Data(Arrived { marked, ..outgoing.into() }));
                }
            }
            if self.sender.is_finished() {
                return self.now;
            }
            let arrives = self.under_way.first_key_value().map(|(&(at, _), _)| at);
            let at = arrives.into_iter().chain(self.sender.poll_timeout()).min().expect("the transfer is stuck");
            assert!(at >= self.now, "time goes back");
            self.now = at;
            self.sender.handle_timeout(at);
            while let Some(entry) = self.under_way.first_entry().filter(|entry| entry.key().0 <= at) {
                match entry.remove() {
                    OnWire::Data(arrived) => self.arrive(&arrived),
                    OnWire::Feedback(Feedback::Report(report)) => self.sender.handle_report(at, &report),
                    OnWire::Feedback(_) => self.sender.handle_notice(at),
                }
            }
        }
        panic!("the transfer does not end");
    }

    fn arrive(&mut self, arrived: &Arrived) {
        if self.receiver.gives_notice(self.now, arrived) {
            self.put(WIRE, OnWire::Feedback(Feedback::Notice));
        }
        if let Some(report) = self.receiver.handle_data(arrived) {
            self.put(WIRE, OnWire::Feedback(Feedback::Report(report)));
        }
    }
}

#[test]
fn a_lone_transfer_sends_at_the_rate_of_its_card() {
    let bytes = 1_000 * PAYLOAD;
    for keys in ["", ",recovery=irn", ",cc=none"] {
        let mut wire = Wire::new(&settings(keys), bytes);
        let end = wire.run(|_, _| (false, false));
        // The last of 1000 packets leaves after 999 times 872 ns. The wire is crossed twice.
        assert_eq!(end, Nanos(999 * 872 + 4_000), "{keys}");
        assert_eq!((wire.receiver.delivered_bytes(), wire.sender.counters()), (bytes, PacketCounters::default()));
    }
}

#[test]
fn go_back_n_repeats_everything_since_the_lost_packet_and_irn_only_that_packet() {
    // Packet 10 is lost. Packet 11 leaves at 11 · 872 ns and arrives 2 µs later; the refusal takes as long. By then packets
    // 12 to 15 have left, the last one at 15 · 872 = 13080 ns, because the refusal comes at 13592 ns. So six packets are sent
    // again, from 10 on. With IRN, it is one.
    let lose_tenth = |place: usize, _: &Outgoing| (place == 10, false);
    let mut gbn = Wire::new(&settings(""), 100 * PAYLOAD);
    gbn.run(lose_tenth);
    assert_eq!(gbn.sender.counters(), PacketCounters { retransmissions: 6, timeouts: 0, nacks: 1 });
    let expected: Vec<u64> = (0..16).chain(10..100).collect();
    assert_eq!(gbn.sent, expected);
    assert_eq!((gbn.receiver.received_packets(), gbn.receiver.reordered_packets()), (100, 0));
    let mut irn = Wire::new(&settings(",recovery=irn,window=1000"), 100 * PAYLOAD);
    irn.run(lose_tenth);
    let counters = irn.sender.counters();
    assert_eq!((counters.retransmissions, counters.timeouts), (1, 0));
    let expected: Vec<u64> = (0..16).chain([10]).chain(16..100).collect();
    assert_eq!(irn.sent, expected);
    assert_eq!((irn.receiver.received_packets(), irn.receiver.reordered_packets()), (100, 1));
}

#[test]
fn irn_limits_the_packets_in_flight_to_the_product_of_rate_and_round_trip() {
    // 10 Gbit/s for 4.928 µs are 6160 bytes: 6 packets of 1090 bytes.
    let mut sender = RoceSender::new(&settings(",recovery=irn"), &TRAITS, 100 * PAYLOAD);
    let left = (0..100).filter_map(|us| sender.poll_transmit(Nanos::from_micros(us))).count();
    assert_eq!((left, sender.in_flight_bytes()), (6, 6 * 1090));
}

#[test]
fn a_lost_tail_is_repeated_after_the_time_out_which_is_short_for_few_packets_of_irn() {
    let lose_last = |place: usize, _: &Outgoing| (place == 9, false);
    for (keys, timeout) in [("", 320_000), (",recovery=irn,window=50", 100_000), (",rto=1ms", 1_000_000)] {
        let mut wire = Wire::new(&settings(keys), 10 * PAYLOAD);
        let end = wire.run(lose_last);
        assert_eq!(wire.sender.counters().timeouts, 1, "{keys}");
        assert!(end >= Nanos(timeout) && end < Nanos(timeout + 20_000), "{keys} {end:?}");
        assert_eq!(wire.receiver.delivered_bytes(), 10 * PAYLOAD);
    }
    let usual = |lossless| RoceSender::new(&settings(""), &NetworkTraits { lossless, ..TRAITS }, 1).timeout();
    assert_eq!([false, true].map(usual), [Nanos(320_000), Nanos(67_108_864)]);
}

#[test]
fn notices_come_at_most_every_50_microseconds_and_cut_the_rate() {
    let mut wire = Wire::new(&settings(""), 200 * PAYLOAD);
    let mut notices = Vec::new();
    for us in [0, 10, 49, 50, 60, 99, 101] {
        let data = Arrived {
            number: 0,
            payload_bytes: 1024,
            entropy: 0,
            retransmission: false,
            asks_report: false,
            marked: true,
            hops: 1,
            trimmed: None,
        };
        if wire.receiver.gives_notice(Nanos::from_micros(us), &data) {
            notices.push(us);
        }
        assert!(!wire.receiver.gives_notice(Nanos::from_micros(us), &Arrived { marked: false, ..data }));
    }
    assert_eq!(notices, [0, 50, 101]);
    let mut wire = Wire::new(&settings(""), 20 * PAYLOAD);
    wire.run(|place, _| (false, place == 0));
    assert_eq!(wire.sender.rate_bps(), 5e9, "half of the card's rate, within the first 55 us");
}

#[test]
fn acknowledgements_are_counted_and_messages_end_with_one() {
    let reported = |keys: &str| {
        let settings = settings(keys);
        let mut wire = Wire::new(&settings, 20 * PAYLOAD);
        let mut reports: Vec<Report> = Vec::new();
        for us in 0..200 {
            let outgoing = wire.sender.poll_transmit(Nanos::from_micros(us));
            reports.extend(outgoing.and_then(|outgoing| wire.receiver.handle_data(&outgoing.into())));
        }
        reports.iter().map(|report| (report.kind, report.cumulative)).collect::<Vec<_>>()
    };
    let acks = |numbers: &[u64]| numbers.iter().map(|&number| (ReportKind::Ack, number)).collect::<Vec<_>>();
    assert_eq!(reported(""), acks(&[8, 16, 20]));
    assert_eq!(reported(",message=5KiB"), acks(&[5, 10, 15, 20]));
    assert_eq!(reported(",acks=10"), acks(&[10, 20]));
    assert_eq!(reported(",recovery=irn,window=100").len(), 20);
}

proptest! {
    /// Whatever is lost and marked, everything arrives once and in the end.
    #[test]
    fn everything_arrives_whatever_is_lost(
        losses in prop::collection::vec(any::<bool>(), 1..80), step in 1usize..7, irn in any::<bool>(), marks in any::<bool>(),
    ) {
        let keys = if irn { ",recovery=irn" } else { "" };
        let mut wire = Wire::new(&settings(keys), 60 * PAYLOAD + 1);
        wire.run(|place, _| (place % step == 0 && losses.get(place).copied().unwrap_or(false), marks));
        prop_assert_eq!(wire.receiver.received_bytes(), 60 * PAYLOAD + 1);
        prop_assert_eq!(wire.receiver.delivered_bytes(), 60 * PAYLOAD + 1);
        prop_assert_eq!(wire.receiver.received_packets(), 61);
    }
}

#[test]
fn keys_are_read_and_errors_name_the_problem() {
    let both = ["dcqcn", "roce"].map(|name| TransportSpec::parse(name).unwrap());
    assert_eq!((&both[0], both[0].name()), (&both[1], "roce"));
    let read = settings(",recovery=irn,cc=none,cnp=20us,acks=4,window=9,rto=2ms,rto_low=1ms,message=1MB");
    assert_eq!((read.recovery, read.control, read.frame_bytes()), (Recovery::Irn, RateControl::None(()), 1090));
    assert_eq!((read.notice_gap, read.most_packets), (Nanos::from_micros(20), Some(9)));
    let [both, hpcc] = ["roce:cc=hpcc,gain=0.5", "hpcc:eta=0.9,acks=2"].map(|text| TransportSpec::parse(text).unwrap());
    assert_eq!([both.name(), hpcc.name()], ["hpcc"; 2]);
    assert!([&both, &hpcc].iter().all(|transport| !transport.echoes_marks()));
    let TransportSpec::Roce(hpcc) = hpcc else { panic!("{hpcc:?}") };
    let own = HpccSettings { target: 0.9, ..HpccSettings::default() };
    assert_eq!((hpcc.control, hpcc.frame_bytes(), hpcc.largest_bytes()), (RateControl::Hpcc(own), 4164, 4164 + 120));
    for (text, words) in [
        ("roce:mtu=1000B", "not one of 256B"),
        ("roce:recovery=sack", "is not one of gbn, irn"),
        ("roce:cc=swift", "is not one of dcqcn, none, hpcc, timely"),
        ("hpcc:eta=0", "more than 0"),
        ("hpcc:cnp=1us", "unknown key `cnp`"),
        ("hpcc:base_rtt=0s", "more than 0s"),
        ("roce:gain=0", "more than 0"),
        ("roce:rai=0bps", "rai"),
        ("roce:timer=0s", "more than 0s"),
        ("roce:mss=1KB", "unknown key `mss`"),
        ("roce:cc=timely,t_low=1ms", "t_low: must be less than t_high"),
        ("rocee", "did you mean `roce`"),
    ] {
        let message = TransportSpec::parse(text).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn with_hpcc_the_window_limits_what_is_in_flight_and_each_packet_is_acknowledged() {
    let TransportSpec::Roce(settings) = TransportSpec::parse("hpcc:mtu=1024B,wai=1B").unwrap() else { panic!() };
    let mut sender = RoceSender::new(&settings, &TRAITS, 100 * PAYLOAD);
    let mut receiver = RoceReceiver::new(&settings, 100 * PAYLOAD);
    // 10 Gbit/s for 4.928 us are 6,160 bytes: the sixth packet begins within them.
    let mut now = Nanos::ZERO;
    let mut sent = Vec::new();
    while sent.len() < 6 {
        match sender.poll_transmit(now) {
            Some(packet) => sent.push(packet),
            None => now = sender.poll_timeout().unwrap(),
        }
    }
    now = Nanos(50_000);
    assert_eq!(sender.poll_transmit(now), None, "the window is full");
    let reports: Vec<Report> = sent.iter().map(|&packet| receiver.handle_data(&packet.into()).unwrap()).collect();
    // The port was full, with five windows of queue.
    let load = |at_ps: u64| PortLoad {
        port: 1,
        at_ps,
        sent_bytes: at_ps / 800,
        queue_bytes: 5 * 6_160,
        rate_bps: 10_000_000_000,
    };
    for (number, report) in reports.iter().enumerate() {
        sender.handle_telemetry(now, report, &[load(number as u64 * 5_000_000)]);
        sender.handle_report(now, report);
    }
    assert!(sender.rate_bps() < 0.3e10, "{}", sender.rate_bps());
    let next = sender.poll_transmit(Nanos(100_000)).unwrap();
    assert_eq!(next.number, 6);
    // Reports on packets that were not sent change nothing.
    let rate = sender.rate_bps();
    sender.handle_telemetry(now, &Report { number: 50, ..reports[0] }, &[load(900_000_000)]);
    assert_eq!(sender.rate_bps(), rate);
}
