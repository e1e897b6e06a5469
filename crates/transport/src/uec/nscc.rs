//! NSCC, the congestion control at the sender: a window of bytes in flight, headers included.
//!
//! A report is one of four cases, by its mark and by the queueing delay, which is the measured round trip less the one
//! without queues:
//!
//! | | delay below the target | above it |
//! | --- | --- | --- |
//! | unmarked | grow in proportion to the distance from the target | grow fairly: the same for all |
//! | marked | no change; the packet's path is avoided | shrink, at most once per round trip |
//!
//! If almost nothing arrives for a round trip ("quick adapt"), the window becomes what has arrived. Growth is collected
//! and applied every eight packets. All of it is from uet-htsim (`initNsccParams`, `updateCwndOnAck_NSCC`,
//! `updateCwndOnNack_NSCC`, `quick_adapt`), whose names are given beside the formulas.

use super::law::{Arrival, PacketEntry, PacketLaw, Trimmed};
use super::settings::USUAL_PATHS;
use super::{EntropyChoice, NetworkTraits, PacketControl, UnorderedSettings};
use crate::listing::key;
use crate::settings::optional_time;
use pathloom_model::Nanos;
use serde::{Deserialize, Serialize};

/// Product of rate and round trip for which the constants are given: 100 Gbit/s · 12 µs (`_reference_network_bdp`).
const REFERENCE_BYTES: f64 = 150_000.0;
/// Round trip of the reference (`_reference_network_rtt`).
const REFERENCE_ROUND_TRIP: f64 = 12_000.0;
/// Weight of a sample in the average delay (`_delay_alpha`).
const DELAY_GAIN: f64 = 0.0125;
/// Delay below which the network counts as idle, so that the window grows fast (`fast_increase`).
const IDLE_DELAY: f64 = 1_000.0;
/// Share of the excess delay that a decrease removes (`_gamma`), and the largest decrease.
const DECREASE: (f64, f64) = (0.8, 0.5);
/// Quick adapt applies if less than a 2^-3 of the maximum window has arrived (`_qa_gate`).
const ADAPT_SHARE: f64 = 0.125;
/// Multiple of the target delay from which quick adapt applies without a loss (`_qa_threshold`).
const ADAPT_DELAY: f64 = 4.0;
/// Packets after which the collected growth is applied (`_adjust_bytes_threshold`).
const ADJUST_PACKETS: f64 = 8.0;

/// Settings of NSCC.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct NsccSettings {
    /// Queueing delay that the window aims at; `None` for three quarters of the round trip if the network trims
    /// packets, otherwise the whole round trip.
    pub target_delay: Option<Nanos>,
}

/// The window of one sender. Bytes and nanoseconds are floating-point numbers here.
#[derive(Clone, Debug)]
pub(super) struct Nscc {
    window: f64,
    /// 1.5 times the product of rate and round trip (`_maxwnd`).
    most: f64,
    /// A full packet (`_min_cwnd`).
    least: f64,
    bytes_per_nano: f64,
    /// Round trip without queues, as the sender knows it (`_base_rtt`).
    base: f64,
    /// The same for the longest path of the network (`_network_rtt`).
    network: f64,
    /// Queueing delay at which the window stays (`_target_Qdelay`).
    target: f64,
    /// Product of rate and round trip in units of the reference (`_scaling_factor_a`).
    scale: f64,
    payload: f64,
    /// Average queueing delay (`_avg_delay`).
    average: f64,
    /// Growth not yet applied: a sum of byte · byte, to be divided by the window (`_inc_bytes`).
    growth: f64,
    /// Bytes arrived since growth was last applied (`_received_bytes`).
    unadjusted: f64,
    adjusted_at: f64,
    decreased_at: f64,
    /// Bytes arrived without delay (`_fi_count`), and whether the window grows fast (`_increase`).
    idle_bytes: f64,
    grows_fast: bool,
    adapt: QuickAdapt,
}

/// State of quick adapt.
#[derive(Clone, Debug, Default)]
struct QuickAdapt {
    /// End of the present period; `None` before the first report (`_qa_endtime`).
    ends: Option<f64>,
    /// Bytes arrived in the period (`_achieved_bytes`).
    arrived: f64,
    /// Whether a packet was trimmed since the last time (`_trigger_qa`).
    is_wanted: bool,
    /// Bytes whose bad reports count no more, because they were in flight when the window was adapted
    /// (`_bytes_to_ignore`), and how many of them have been reported (`_bytes_ignored`).
    ignored: (f64, f64),
}

impl Nscc {
    pub(super) fn new(own: &NsccSettings, settings: &UnorderedSettings, network: &NetworkTraits) -> Nscc {
        let bytes_per_nano = network.rate_bps as f64 / 8e9;
        let base = network.round_trip.0 as f64;
        let share = if network.trims { 0.75 } else { 1.0 };
        let mut nscc = Nscc {
            window: 0.0,
            most: 0.0,
            least: settings.frame_bytes() as f64,
            bytes_per_nano,
            base,
            network: base,
            target: own.target_delay.map_or(base * share, |target| target.0 as f64).max(1.0),
            scale: bytes_per_nano * base / REFERENCE_BYTES,
            payload: f64::from(settings.common.mss_bytes),
            average: 0.0,
            growth: 0.0,
            unadjusted: 0.0,
            adjusted_at: 0.0,
            decreased_at: 0.0,
            idle_bytes: 0.0,
            grows_fast: false,
            adapt: QuickAdapt::default(),
        };
        nscc.set_base(base);
        nscc.window = settings.initial_window_bytes.map_or(nscc.most, |bytes| bytes as f64);
        nscc.bound();
        nscc
    }

    fn set_base(&mut self, base: f64) {
        self.base = base;
        self.most = (1.5 * self.bytes_per_nano * base).max(self.least);
    }

    fn bound(&mut self) {
        self.window = self.window.clamp(self.least, self.most);
    }

    /// Takes a measured round trip of which no part is a wait of the receiver. The least is that without queues.
    fn measure(&mut self, round_trip: Nanos) {
        let round_trip = round_trip.0 as f64;
        if round_trip < self.base && round_trip > 0.0 {
            self.set_base(round_trip);
            self.bound();
        }
    }

    /// Adds a delay to the average (`update_delay`). A long delay without a mark is of a queue that is about to empty,
    /// so it counts as a quarter of a round trip.
    fn average_in(&mut self, delay: f64, marked: bool) {
        let sample = if !marked && delay > self.target { self.base * 0.25 } else { delay };
        self.average += DELAY_GAIN * (sample - self.average);
    }

    /// `fast_increase` or else `proportional_increase`. The factor of the latter is
    /// `_alpha` = 4 · payload · scale · (target / reference round trip) / target.
    fn grow(&mut self, bytes: f64, delay: f64) {
        if delay < IDLE_DELAY {
            self.idle_bytes += bytes;
            self.grows_fast |= self.idle_bytes > self.window;
            if self.grows_fast {
                self.window += bytes * 0.25 * self.scale;
                return;
            }
        } else {
            self.idle_bytes = 0.0;
            self.grows_fast = false;
        }
        self.growth += 4.0 * self.payload * self.scale * bytes * (self.target - delay) / REFERENCE_ROUND_TRIP;
    }

    /// `multiplicative_decrease`
    fn decrease(&mut self, now: f64) {
        self.grows_fast = false;
        self.idle_bytes = 0.0;
        if self.average > self.target && now - self.decreased_at > self.base {
            let excess = (self.average - self.target) / self.average;
            self.window *= (1.0 - DECREASE.0 * excess).max(DECREASE.1);
            self.decreased_at = now;
        }
    }

    /// `fulfill_adjustment`; the second term is `_eta`.
    fn apply_growth(&mut self, now: f64, waited: f64) {
        self.window += self.growth / self.window;
        if waited >= self.network {
            self.window += 0.15 * self.payload * self.scale;
            self.adjusted_at = now;
        }
        (self.growth, self.unadjusted) = (0.0, 0.0);
        self.bound();
    }

    /// Returns whether the report has no further effect: quick adapt has just set the window, or the report is of a
    /// packet that was in flight when it last did.
    fn quick_adapt(&mut self, now: f64, is_loss: bool, is_bad: bool, delay: f64, in_flight: u64) -> bool {
        let adapt = &mut self.adapt;
        let mut is_done = adapt.ignored.1 < adapt.ignored.0 && is_bad;
        if !is_done && adapt.ends.is_none_or(|end| now > end) {
            let is_bad_period = adapt.is_wanted || is_loss || delay > ADAPT_DELAY * self.target;
            if adapt.ends.is_some() && is_bad_period && adapt.arrived < self.most * ADAPT_SHARE {
                self.window = adapt.arrived.clamp(self.least, self.most);
                adapt.ignored = (in_flight as f64, 0.0);
                adapt.is_wanted = false;
                is_done = true;
            }
            adapt.arrived = 0.0;
            adapt.ends = Some(now + self.base + self.target);
        }
        if is_done {
            (self.growth, self.unadjusted) = (0.0, 0.0);
        }
        is_done
    }
}

impl PacketLaw for Nscc {
    const ENTRY: PacketEntry = PacketEntry {
        name: "uec",
        about: "Ultra Ethernet: packets take any path in any order and are acknowledged one by one; full queues may trim \
                them (trim=on of the fabric); NSCC controls the window by delay and marks",
        source: "uet-htsim, the simulator of the Ultra Ethernet Consortium",
        entropy: EntropyChoice::Mixed,
        paths: USUAL_PATHS,
        reports_each: false,
        keys: &[key(
            "target_delay",
            "none",
            "queueing delay that NSCC aims at, a time; none means three quarters of the round trip with trimming, otherwise \
             a round trip",
            "uet-htsim",
        )],
        read: |spec| Ok(PacketControl::Nscc(NsccSettings { target_delay: optional_time(spec, "target_delay")? })),
    };

    fn window(&self) -> u64 {
        self.window as u64
    }

    /// 1.5 times the product of rate and round trip.
    fn most(&self) -> u64 {
        self.most as u64
    }

    /// `processAck`, `updateCwndOnAck_NSCC`
    fn on_arrival(&mut self, arrival: &Arrival) {
        let &Arrival { marked, round_trip, in_flight, .. } = arrival;
        if let Some(round_trip) = round_trip {
            self.measure(round_trip);
        }
        let (now, bytes) = (arrival.now.0 as f64, arrival.bytes as f64);
        self.adapt.arrived += bytes;
        self.adapt.ignored.1 += bytes;
        self.unadjusted += bytes;
        let measured = round_trip.map(|round_trip| round_trip.0 as f64 - self.base).filter(|&delay| delay >= 0.0);
        if let Some(delay) = measured {
            self.average_in(delay, marked);
        }
        let delay = measured.unwrap_or(self.average);
        if self.quick_adapt(now, false, marked, delay, in_flight) {
            return;
        }
        match (marked, delay >= self.target) {
            // `fair_increase`
            (false, true) => self.growth += 5.0 * self.payload * self.scale * bytes,
            (false, false) => self.grow(bytes, delay),
            (true, true) => self.decrease(now),
            (true, false) => {}
        }
        self.bound();
        let waited = now - self.adjusted_at;
        if self.unadjusted > ADJUST_PACKETS * self.least || waited > self.network {
            self.apply_growth(now, waited);
        }
    }

    /// `updateCwndOnNack_NSCC`; the delay counts as that of a full queue.
    fn on_trimmed(&mut self, trimmed: &Trimmed) {
        let bytes = trimmed.bytes as f64;
        self.measure(trimmed.round_trip);
        self.adapt.ignored.1 += bytes;
        self.average_in(self.network, true);
        self.adapt.is_wanted = true;
        if !self.quick_adapt(trimmed.now.0 as f64, true, true, 0.0, trimmed.in_flight) {
            self.window -= bytes;
            self.bound();
        }
    }

    /// `mark_packet_for_retransmission`
    fn on_timeout(&mut self, _now: Nanos, bytes: u64) {
        self.window -= bytes as f64;
        self.bound();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETWORK: NetworkTraits = NetworkTraits {
        rate_bps: 100_000_000_000,
        round_trip: Nanos(14_000),
        hop: Nanos(2_337),
        trims: true,
        lossless: false,
        timeout: Nanos(100_000),
    };
    const FRAME: u64 = 4150;

    fn nscc(window: u64) -> Nscc {
        let settings = UnorderedSettings { initial_window_bytes: Some(window), ..UnorderedSettings::default() };
        Nscc::new(&NsccSettings::default(), &settings, &NETWORK)
    }

    fn arrives(nscc: &mut Nscc, now: u64, marked: bool, round_trip: Option<Nanos>, in_flight: u64) {
        nscc.on_arrival(&Arrival { now: Nanos(now), bytes: FRAME, marked, round_trip, hops: 5, in_flight });
    }

    fn trimmed(nscc: &mut Nscc, now: u64, in_flight: u64) {
        nscc.on_trimmed(&Trimmed { now: Nanos(now), bytes: FRAME, round_trip: Nanos(14_000), in_flight });
    }

    fn delayed(delay: u64) -> Option<Nanos> {
        Some(Nanos(14_000 + delay))
    }

    /// Reports of one packet each, this long after the start and then at line rate.
    fn report(nscc: &mut Nscc, from: u64, count: u64, marked: bool, delay: u64) -> u64 {
        (0..count).for_each(|n| arrives(nscc, from + n * 332, marked, delayed(delay), 100_000));
        from + count * 332
    }

    #[test]
    fn the_constants_are_those_of_the_reference() {
        let n = nscc(u64::MAX);
        assert_eq!((n.window(), n.most(), n.target), (262_500, 262_500, 10_500.0));
        assert_eq!(n.scale, 175_000.0 / 150_000.0);
        let plain = Nscc::new(
            &NsccSettings::default(),
            &UnorderedSettings::default(),
            &NetworkTraits { trims: false, ..NETWORK },
        );
        assert_eq!((plain.window(), plain.target), (262_500, 14_000.0));
        assert_eq!(nscc(0).window(), FRAME);
    }

    #[test]
    fn the_window_grows_fast_without_delay_and_in_proportion_to_it_otherwise() {
        let grown = |delay, count| {
            let mut n = nscc(50_000);
            report(&mut n, 0, count, false, delay);
            n.window() - 50_000
        };
        // Nine packets apply the growth once. The first report is late, counted from the start of time.
        let half = grown(5_250, 9) as f64;
        let expected = 4.0 * 4086.0 * 7.0 / 6.0 * 9.0 * 4150.0 * 5_250.0 / 12_000.0 / 50_000.0;
        assert!((half - expected).abs() < 0.02 * expected, "{half} {expected}");
        assert!(grown(2_000, 9) > grown(8_000, 9));
        let (fast, slow) = (grown(0, 40), grown(1_000, 40));
        assert!(fast > slow, "{fast} {slow}");
    }

    #[test]
    fn growth_above_the_target_is_fair() {
        let grown = |delay| {
            let mut n = nscc(50_000);
            report(&mut n, 0, 9, false, delay);
            n.window() - 50_000
        };
        let expected = (5.0 * 4086.0 * 7.0 / 6.0 * 9.0 * 4150.0 / 50_000.0) as u64;
        assert_eq!((grown(10_500), grown(30_000)), (expected, expected));
    }

    #[test]
    fn marks_shrink_the_window_once_per_round_trip_if_the_average_is_above_the_target() {
        let mut n = nscc(200_000);
        report(&mut n, 20_000, 50, true, 2_000);
        let eta = 0.15 * 4086.0 * 7.0 / 6.0;
        assert_eq!(n.window(), 200_000 + (2.0 * eta) as u64, "a mark below the target changes nothing");
        n = nscc(200_000);
        n.average = 21_000.0;
        n.adjusted_at = 40_000.0;
        arrives(&mut n, 40_000, true, delayed(21_000), 100_000);
        // 1 - 0.8 · (21 - 10.5) / 21
        assert_eq!(n.window(), 120_000);
        arrives(&mut n, 50_000, true, delayed(21_000), 100_000);
        assert_eq!(n.window(), 120_000);
        arrives(&mut n, 54_001, true, delayed(21_000), 100_000);
        assert!((72_000..73_000).contains(&n.window()), "{}", n.window());
        n.average = 1e9;
        arrives(&mut n, 1_000_000, true, delayed(21_000), 100_000);
        assert!((36_000..37_500).contains(&n.window()), "at most halved: {}", n.window());
    }

    #[test]
    fn quick_adapt_sets_the_window_to_what_arrived_and_ignores_what_was_in_flight() {
        let mut n = nscc(200_000);
        arrives(&mut n, 20_000, false, delayed(2_000), 190_000);
        for number in 0..4 {
            arrives(&mut n, 30_000 + number, true, delayed(12_000), 150_000);
        }
        let before = n.window();
        trimmed(&mut n, 40_000, 140_000);
        assert_eq!(n.window(), before - FRAME, "the period has not ended");
        trimmed(&mut n, 44_501, 140_000);
        assert_eq!(n.window(), 4 * FRAME);
        for number in 0..30 {
            trimmed(&mut n, 44_502 + number, 130_000);
        }
        assert_eq!(n.window(), 4 * FRAME);
        (0..10).for_each(|number| trimmed(&mut n, 44_602 + number, 10_000));
        assert_eq!(n.window(), FRAME);
    }

    #[test]
    fn a_shorter_round_trip_lowers_the_largest_window() {
        let mut n = nscc(u64::MAX);
        n.measure(Nanos(15_000));
        assert_eq!(n.most(), 262_500);
        n.measure(Nanos(7_000));
        assert_eq!((n.window(), n.most()), (131_250, 131_250));
        n.measure(Nanos(1));
        assert_eq!((n.window(), n.most()), (FRAME, FRAME));
        n.on_timeout(Nanos(0), FRAME);
        assert_eq!(n.window(), FRAME);
    }
}
