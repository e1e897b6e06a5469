//! Sender and receiver together.

mod network;

use super::*;
use crate::packets::{Arrived, Outgoing, PacketCounters, PacketReceiver, PacketSender, Report, ReportKind, TrimmedAt};
use network::{Fates, Network};
use pathloom_model::Nanos;
use proptest::prelude::*;

/// A fabric of 100 Gbit/s with six links of 1 µs between two hosts, as in uet-htsim's permutations.
pub(super) const TRAITS: NetworkTraits = NetworkTraits {
    rate_bps: 100_000_000_000,
    round_trip: Nanos(14_022),
    hop: Nanos(2_337),
    trims: true,
    lossless: false,
    timeout: Nanos(100_656),
};
/// Bytes of a full packet by default.
pub(super) const FRAME: u64 = 4150;
const CHOICES: [EntropyChoice; 5] =
    [EntropyChoice::Single, EntropyChoice::Oblivious, EntropyChoice::Bitmap, EntropyChoice::Reps, EntropyChoice::Mixed];

#[test]
fn a_lone_flow_sends_at_line_rate() {
    for ack_bytes in [1, 16_384] {
        let settings = UnorderedSettings { ack_bytes: Some(ack_bytes), ..UnorderedSettings::default() };
        let mut network = Network::new(&settings, TRAITS, 2_000_000, 1, Fates::default());
        // uet-htsim, `one.cm`: 176.2 µs.
        assert_eq!(network.run().0 / 100, 1_761, "176.2 us less what was rounded");
        assert_eq!(network.receiver.received_bytes(), 2_000_000);
        assert_eq!(network.sender.counters(), PacketCounters::default());
    }
}

#[test]
fn reports_are_sent_after_the_bytes_that_were_asked_for() {
    let (settings, bytes) = (UnorderedSettings { ack_bytes: Some(16_384), ..UnorderedSettings::default() }, 100 * 4086);
    let mut receiver = UnorderedReceiver::new(&settings, &TRAITS, bytes);
    let arrived = |number| Arrived {
        number,
        payload_bytes: 4086,
        entropy: 7,
        retransmission: false,
        asks_report: false,
        marked: false,
        hops: 0,
        trimmed: None,
    };
    let mut reported = |arrived: Arrived| receiver.handle_data(&arrived);
    let first = reported(arrived(0)).unwrap();
    assert_eq!((first.cumulative, first.selective, first.received_bytes, first.entropy), (1, 0, 4150, 7));
    assert_eq!([1, 2, 3].map(|number| reported(arrived(number))), [None; 3]);
    assert_eq!(reported(arrived(4)).unwrap().cumulative, 5);
    let marked = reported(Arrived { marked: true, ..arrived(9) }).unwrap();
    assert_eq!((marked.cumulative, marked.base, marked.selective, marked.marked), (5, 9, 1, true));
    let asked = Arrived { asks_report: true, ..arrived(7) };
    assert_eq!(reported(asked).unwrap().selective, 0b101);
    let nack = reported(Arrived { trimmed: Some(TrimmedAt::Fabric), ..arrived(6) }).unwrap();
    assert_eq!((nack.kind, nack.number), (ReportKind::Nack(TrimmedAt::Fabric), 6));
    let again = reported(arrived(2)).unwrap();
    assert_eq!((again.kind, again.cumulative, again.base, again.selective), (ReportKind::Ack, 5, 6, 0b1010));
    // The holes close: a packet had asked for a report, so the last of them is reported.
    assert_eq!([5, 6].map(|number| reported(arrived(number))), [None; 2]);
    assert_eq!(reported(arrived(8)).unwrap().cumulative, 10);
    assert_eq!(reported(arrived(100)), None, "no such packet");
    assert_eq!(receiver.reordered_packets(), 4);
}

/// One of four packets does not arrive. Four later ones do, and are reported at this time. Each has a level of priority.
fn after_a_missing_packet(trims: bool, at_us: u64, level_of: fn(u64) -> u8) -> Option<Outgoing> {
    let spec = crate::TransportSpec::parse("ndp:iw=16600B").unwrap();
    let settings = spec.uec().unwrap();
    let traits = NetworkTraits { trims, timeout: Nanos::from_micros(300), ..TRAITS };
    let mut sender = UnorderedSender::new(settings, &traits, 100 * 4086, 1);
    let mut receiver = UnorderedReceiver::new(settings, &traits, 100 * 4086);
    for number in 0..4 {
        assert_eq!(sender.poll_transmit(Nanos(0)).map(|outgoing| outgoing.number), Some(number));
        sender.note_level(level_of(number));
    }
    assert_eq!(sender.poll_transmit(Nanos(0)), None);
    for number in 1..=4 {
        let now = Nanos::from_micros(if number < 4 { 20 } else { at_us });
        let arrived = Arrived {
            number,
            payload_bytes: 4086,
            entropy: 0,
            retransmission: false,
            asks_report: true,
            marked: false,
            hops: 5,
            trimmed: None,
        };
        sender.handle_report(now, &receiver.handle_data(&arrived).unwrap());
        if number == 3 {
            sender.handle_pull(receiver.pull());
            assert_eq!(sender.poll_transmit(now).map(|outgoing| outgoing.number), Some(4));
            sender.note_level(level_of(4));
        }
    }
    sender.poll_transmit(Nanos::from_micros(at_us))
}

#[test]
fn without_trimming_an_overtaken_packet_is_sent_again_before_its_timer_expires() {
    let again = after_a_missing_packet(false, 100, |_| 0).unwrap();
    assert_eq!((again.number, again.retransmission), (0, true), "it takes the place of nothing that was pulled");
    assert_eq!(after_a_missing_packet(false, 99, |_| 0), None, "it may still be in a queue");
    assert_eq!(after_a_missing_packet(true, 100, |_| 0), None, "its header would have arrived");
}

#[test]
fn a_packet_is_not_lost_because_those_of_a_higher_priority_overtake_it() {
    assert!(after_a_missing_packet(false, 100, |_| 3).is_some());
    // A message that has less left has a higher priority, and its earlier packets still wait in a queue.
    assert_eq!(after_a_missing_packet(false, 100, |number| 3 - u8::from(number > 0)), None);
    assert_eq!(after_a_missing_packet(false, 100, |number| 3 - u8::from(number == 4)), None);
    // A message that has sent more has a lower priority.
    assert!(after_a_missing_packet(false, 100, |number| u8::from(number > 0)).is_some());
    assert!(after_a_missing_packet(false, 100, |number| 6 + number as u8).is_some(), "there are no more queues than 8");
}

#[test]
fn a_trimmed_packet_is_sent_again_after_a_round_trip() {
    let settings = UnorderedSettings::default();
    let mut sender = UnorderedSender::new(&settings, &TRAITS, 10 * 4086, 1);
    let mut receiver = UnorderedReceiver::new(&settings, &TRAITS, 10 * 4086);
    let mut packets: Vec<_> = std::iter::from_fn(|| sender.poll_transmit(Nanos::ZERO)).map(Arrived::from).collect();
    assert_eq!(packets.len(), 10);
    packets[3].trimmed = Some(TrimmedAt::Fabric);
    let reports: Vec<_> = packets.iter().filter_map(|packet| receiver.handle_data(packet)).collect();
    reports.iter().for_each(|report| sender.handle_report(Nanos(14_000), report));
    let again = sender.poll_transmit(Nanos(14_000)).unwrap();
    assert_eq!((again.number, again.retransmission, again.asks_report), (3, true, true));
    let last = receiver.handle_data(&Arrived::from(again)).unwrap();
    sender.handle_report(Nanos(28_000), &last);
    assert!(sender.is_finished() && sender.poll_timeout().is_none());
    assert_eq!(sender.counters(), PacketCounters { retransmissions: 1, timeouts: 0, nacks: 1 });
}

#[test]
fn a_lost_packet_is_sent_again_after_the_time_out_which_doubles() {
    let mut sender = UnorderedSender::new(&UnorderedSettings::default(), &TRAITS, 1000, 1);
    let mut now = Nanos::ZERO;
    for round in 0..9 {
        assert_eq!(sender.poll_transmit(now).unwrap().retransmission, round > 0);
        assert_eq!(sender.poll_transmit(now), None);
        let wait = TRAITS.timeout.0 << round.min(6);
        assert_eq!(sender.poll_timeout(), Some(Nanos(now.0 + wait)));
        sender.handle_timeout(Nanos(now.0 + wait - 1));
        assert_eq!(sender.counters().timeouts, round);
        now = Nanos(now.0 + wait);
        sender.handle_timeout(now);
    }
    assert_eq!(sender.counters(), PacketCounters { retransmissions: 8, timeouts: 9, nacks: 0 });
}

#[test]
fn an_empty_transfer_is_finished() {
    let mut sender = UnorderedSender::new(&UnorderedSettings::default(), &TRAITS, 0, 1);
    assert!(sender.is_finished() && sender.poll_transmit(Nanos::ZERO).is_none());
}

#[test]
fn a_sender_stays_within_the_range_that_receivers_keep() {
    let settings = UnorderedSettings {
        common: crate::Settings { mss_bytes: 100, ..UnorderedSettings::default().common },
        ..UnorderedSettings::default()
    };
    let bytes = 100 * 3 * MOST_AHEAD;
    let mut sender = UnorderedSender::new(&settings, &TRAITS, bytes, 1);
    let mut receiver = UnorderedReceiver::new(&settings, &TRAITS, bytes);
    let mut newest = 0;
    // The first packet never arrives, all others do at once.
    while let Some(packet) = sender.poll_transmit(Nanos::ZERO) {
        newest = packet.number;
        let report = (newest > 0).then(|| receiver.handle_data(&Arrived::from(packet))).flatten();
        report.iter().for_each(|report| sender.handle_report(Nanos::ZERO, report));
    }
    assert_eq!(newest, MOST_AHEAD - 1);
    let beyond = Arrived {
        number: MOST_AHEAD,
        ..Arrived::from(UnorderedSender::new(&settings, &TRAITS, bytes, 1).poll_transmit(Nanos::ZERO).unwrap())
    };
    assert_eq!(receiver.handle_data(&beyond), None);
    assert_eq!(receiver.received_packets(), MOST_AHEAD - 1);
}

prop_compose! {
    fn fates()(
        lose in 0.0..0.3f64,
        trim in 0.0..0.4f64,
        mark in 0.0..1.0f64,
        repeat in 0.0..0.2f64,
        late in 0..60_000u64,
    ) -> Fates {
        Fates { lose, trim, mark, repeat, late: Nanos(late) }
    }
}

prop_compose! {
    /// Reports that may be of anything: numbers near those of the transfer, and any others.
    fn reports()(
        near in prop::array::uniform3(0..60u64),
        far in prop::array::uniform3(any::<u64>()),
        is_far in prop::array::uniform3(prop::bool::weighted(0.1)),
        selective in any::<u64>(),
        shift in 0..64u32,
        received_bytes in prop_oneof![0..200_000u64, any::<u64>()],
        entropy in prop_oneof![0..70u32, any::<u32>()],
        flags in prop::array::uniform2(any::<bool>()),
        kind in prop_oneof![
            Just(ReportKind::Ack),
            Just(ReportKind::Nack(TrimmedAt::Fabric)),
            Just(ReportKind::Nack(TrimmedAt::LastHop)),
        ],
    ) -> Report {
        let [number, cumulative, base] = [0, 1, 2].map(|place| if is_far[place] { far[place] } else { near[place] });
        let [marked, retransmission] = flags;
        let selective = selective >> shift;
        Report { kind, number, cumulative, base, selective, received_bytes, entropy, marked, hops: 5, retransmission }
    }
}

/// Every congestion control, with its defaults.
fn controls() -> impl Strategy<Value = PacketControl> {
    let control = |name: &str| crate::TransportSpec::parse(name).unwrap().uec().unwrap().control;
    prop::sample::select(laws::ENTRIES.iter().map(|entry| control(entry.name)).collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn every_byte_is_delivered_once_whatever_happens(
        control in controls(),
        choice in 0..5usize,
        bytes in 1..600_000u64,
        ack_bytes in 1..40_000u64,
        seed in any::<u64>(),
        fates in fates(),
    ) {
        let settings = UnorderedSettings { control, entropy: CHOICES[choice], ack_bytes: Some(ack_bytes), ..UnorderedSettings::default() };
        let mut network = Network::new(&settings, TRAITS, bytes, seed, fates);
        let end = network.run();
        prop_assert_eq!(network.receiver.received_bytes(), bytes);
        prop_assert_eq!(network.receiver.delivered_bytes(), bytes);
        prop_assert_eq!(network.sender.acknowledged_bytes(), bytes);
        prop_assert_eq!(network.sender.in_flight_bytes(), 0);
        prop_assert_eq!(network.sender.poll_timeout(), None);
        let again = Network::new(&settings, TRAITS, bytes, seed, fates).run();
        prop_assert_eq!(again, end, "the same seed, the same result");
    }

    #[test]
    fn reports_of_anything_do_no_harm(
        control in controls(),
        choice in 0..5usize,
        seed in any::<u64>(),
        steps in prop::collection::vec((reports(), 0..200_000u64), 1..80),
    ) {
        let settings = UnorderedSettings { control, entropy: CHOICES[choice], ..UnorderedSettings::default() };
        let mut sender = UnorderedSender::new(&settings, &TRAITS, 200_000, seed);
        let mut now = Nanos::ZERO;
        for (report, wait) in steps {
            while sender.poll_transmit(now).is_some() {}
            now += Nanos(wait);
            sender.handle_timeout(now);
            sender.handle_report(now, &report);
            prop_assert!(sender.window_bytes() <= sender.most_window_bytes());
        }
    }

    #[test]
    fn packets_with_any_number_do_no_harm(numbers in prop::collection::vec(prop_oneof![0..90u64, any::<u64>()], 1..200)) {
        let settings = UnorderedSettings { ack_bytes: Some(1), ..UnorderedSettings::default() };
        let mut receiver = UnorderedReceiver::new(&settings, &TRAITS, 50 * 4086);
        let mut seen = std::collections::BTreeSet::new();
        for number in numbers {
            let arrived = Arrived {
                number,
                payload_bytes: 4086,
                entropy: 0,
                retransmission: false,
                asks_report: false,
                marked: false,
 hops: 0,
                trimmed: None,
            };
            prop_assert_eq!(receiver.handle_data(&arrived).is_some(), number < 50);
            seen.extend((number < 50).then_some(number));
            prop_assert_eq!(receiver.received_packets(), seen.len() as u64);
        }
    }
}
