//! Swift (Kumar et al., Swift: Delay is Simple and Effective for Congestion Control in the Datacenter, SIGCOMM 2020): a
//! window that follows the distance of each measured round trip from a target.
//!
//! The paper names the parameters and gives no value for most of them. The constants here are those of csg-htsim
//! (`sim/swift.cpp`); delays follow from the network. Not implemented: the second window, for congestion in the receiving
//! host, which is not simulated.

use super::law::{Arrival, PacketEntry, PacketLaw, Trimmed};
use super::settings::USUAL_PATHS;
use super::{EntropyChoice, NetworkTraits, PacketControl, UnorderedSettings};
use crate::listing::key;
use crate::settings::optional_time;
use pathloom_model::Nanos;
use serde::{Deserialize, Serialize};

/// Packets by which the window grows per round trip (`ai`).
const INCREASE: f64 = 1.0;
/// Share of the excess delay that a decrease removes (`β`).
const DECREASE: f64 = 0.8;
/// Largest decrease (`max_mdf`).
const MOST_DECREASE: f64 = 0.5;
/// Time-outs in a row after which the window becomes the least one (`RETX_RESET_THRESHOLD`).
const RESET_AFTER: u32 = 5;
/// Smallest window, in packets.
const LEAST: f64 = 0.01;
/// Windows, in packets, between which the target falls by the range of flow scaling (`fs_min_cwnd`, `fs_max_cwnd`).
const SCALED: (f64, f64) = (0.1, 100.0);
/// Default range of flow scaling, in base targets (`fs_range`).
const RANGE: f64 = 5.0;
/// Default queueing in the base target, in round trips of the longest path.
const QUEUEING: f64 = 0.5;
/// Weight of a sample in the average round trip.
const GAIN: f64 = 0.125;

/// Settings of Swift. Without a value, a delay follows from the network.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SwiftSettings {
    /// Target of the round trip over no switch, with a large window (base target delay of §3.1).
    pub target_delay: Option<Nanos>,
    /// What each switch on the path adds to the target (ħ of §3.1, topology-based scaling).
    pub hop_delay: Option<Nanos>,
    /// Most that a small window adds to the target (`fs_range` of §3.1, flow-based scaling).
    pub flow_range: Option<Nanos>,
}

/// The window of one sender, in packets. Times are in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Swift {
    window: f64,
    frame: f64,
    /// Packets that the card sends per nanosecond.
    rate: f64,
    target: f64,
    hop: f64,
    /// Flow scaling: the target of a window of w packets is greater by α/√w + β, from 0 to `range`.
    alpha: f64,
    beta: f64,
    range: f64,
    /// Switches on the path.
    hops: f64,
    /// Average of the measured round trips.
    round_trip: f64,
    decreased_at: f64,
    /// Time of the last time-out, and the number of them since the last report.
    timed_out_at: Option<Nanos>,
    timeouts: u32,
}

impl Swift {
    pub(super) fn new(own: &SwiftSettings, settings: &UnorderedSettings, network: &NetworkTraits) -> Swift {
        let given = |time: Option<Nanos>, usual: f64| time.map_or(usual, |time| time.0 as f64);
        let (frame, hop) = (settings.frame_bytes() as f64, network.hop.0 as f64);
        let round_trip = network.round_trip.0 as f64;
        let target = given(own.target_delay, hop + QUEUEING * round_trip).max(1.0);
        let range = given(own.flow_range, RANGE * target);
        let (small, large) = (1.0 / SCALED.0.sqrt(), 1.0 / SCALED.1.sqrt());
        let alpha = range / (small - large);
        let mut swift = Swift {
            window: f64::INFINITY,
            frame,
            rate: network.rate_bps as f64 / 8e9 / frame,
            target,
            hop: given(own.hop_delay, hop),
            alpha,
            beta: -alpha * large,
            range,
            // A path over n switches has n + 1 links.
            hops: (round_trip / hop.max(1.0) - 1.0).max(0.0),
            round_trip,
            decreased_at: f64::NEG_INFINITY,
            timed_out_at: None,
            timeouts: 0,
        };
        if let Some(bytes) = settings.initial_window_bytes {
            swift.window = bytes as f64 / frame;
        }
        swift.bound();
        swift
    }

    /// `TargetDelay` of §3.1 (4): the base target, scaled by the length of the path and by the window.
    fn target_delay(&self) -> f64 {
        let scaled = self.alpha / self.window.sqrt() + self.beta;
        self.target + self.hops * self.hop + scaled.clamp(0.0, self.range)
    }

    /// With a larger window than this, a flow that is alone would exceed the target.
    fn most_packets(&self) -> f64 {
        (self.rate * (self.target + self.hops * self.hop)).max(1.0)
    }

    fn bound(&mut self) {
        self.window = self.window.clamp(LEAST, self.most_packets());
    }

    /// Multiplies the window, at most once per round trip (`canDecrease` of Algorithm 1).
    fn decrease(&mut self, now: Nanos, factor: f64) {
        let now = now.0 as f64;
        if now - self.decreased_at >= self.round_trip {
            self.window *= factor.max(1.0 - MOST_DECREASE);
            self.decreased_at = now;
        }
        self.bound();
    }
}

impl PacketLaw for Swift {
    const ENTRY: PacketEntry = PacketEntry {
        name: "swift",
        about: "Swift: the window follows the distance of each packet's round trip from a target, and may be less than a \
                packet; packets and reports are those of uec",
        source: "Kumar et al. 2020 (SIGCOMM); constants of csg-htsim",
        entropy: EntropyChoice::Single,
        paths: USUAL_PATHS,
        reports_each: true,
        keys: &[
            key(
                "target_delay",
                "none",
                "target of the round trip over no switch, with a large window, a time; none means a link there and back, and \
                 half of the longest round trip",
                "Kumar et al. 2020 §3.1",
            ),
            key(
                "hop_delay",
                "none",
                "what each switch on the path adds to the target, a time; none means a link there and back",
                "Kumar et al. 2020 §3.1",
            ),
            key(
                "flow_range",
                "none",
                "most that a small window adds to the target, a time; none means five times target_delay",
                "Kumar et al. 2020 §3.1; csg-htsim",
            ),
        ],
        read: |spec| {
            Ok(PacketControl::Swift(SwiftSettings {
                target_delay: optional_time(spec, "target_delay")?,
                hop_delay: optional_time(spec, "hop_delay")?,
                flow_range: optional_time(spec, "flow_range")?,
            }))
        },
    };

    fn window(&self) -> u64 {
        (self.window * self.frame) as u64
    }

    fn most(&self) -> u64 {
        (self.most_packets() * self.frame) as u64
    }

    /// §3.2: a window below one packet means one packet per `round trip / window`.
    fn gap(&self) -> Option<Nanos> {
        (self.window < 1.0).then(|| Nanos((self.round_trip / self.window) as u64))
    }

    /// Algorithm 1, on receiving an acknowledgement.
    fn on_arrival(&mut self, arrival: &Arrival) {
        self.timeouts = 0;
        let Some(delay) = arrival.round_trip.map(|round_trip| round_trip.0.max(1) as f64) else { return };
        self.round_trip += GAIN * (delay - self.round_trip);
        self.hops = f64::from(arrival.hops);
        let target = self.target_delay();
        if delay >= target {
            return self.decrease(arrival.now, 1.0 - DECREASE * (delay - target) / delay);
        }
        self.window += INCREASE * arrival.bytes as f64 / self.frame / self.window.max(1.0);
        self.bound();
    }

    /// Algorithm 1, on fast recovery: a packet is known to be lost.
    fn on_trimmed(&mut self, trimmed: &Trimmed) {
        self.timeouts = 0;
        self.decrease(trimmed.now, 1.0 - MOST_DECREASE);
    }

    /// Algorithm 1, on a retransmission time-out.
    fn on_timeout(&mut self, now: Nanos, _bytes: u64) {
        if self.timed_out_at.replace(now) == Some(now) {
            return;
        }
        self.timeouts += 1;
        match self.timeouts < RESET_AFTER {
            true => self.decrease(now, 1.0 - MOST_DECREASE),
            false => self.window = LEAST,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uec::tests::{FRAME, TRAITS as NETWORK};

    fn swift(packets: f64) -> Swift {
        let mut swift = Swift::new(&SwiftSettings::default(), &UnorderedSettings::default(), &NETWORK);
        swift.window = packets;
        swift
    }

    fn arrives(swift: &mut Swift, now: u64, delay: u64) {
        let round_trip = Some(Nanos(delay));
        swift.on_arrival(&Arrival { now: Nanos(now), bytes: FRAME, marked: false, round_trip, hops: 5, in_flight: 0 });
    }

    #[test]
    fn the_target_grows_with_the_path_and_as_the_window_falls() {
        let swift_of = |hops, packets| Swift { hops, ..swift(packets) }.target_delay();
        let base = 2_337.0 + 7_011.0;
        assert_eq!((swift_of(0.0, 100.0), swift_of(5.0, 200.0)), (base, base + 5.0 * 2_337.0));
        assert_eq!(swift_of(0.0, 0.1), 6.0 * base);
        assert_eq!(swift_of(0.0, 0.01), 6.0 * base, "no more than the range");
        assert!(swift_of(0.0, 10.0) > swift_of(0.0, 20.0));
    }

    #[test]
    fn the_window_grows_by_a_packet_per_round_trip_below_the_target() {
        let mut swift = swift(20.0);
        (0..20).for_each(|n| arrives(&mut swift, n * 1_000, 14_000));
        assert!((20.9..21.0).contains(&swift.window), "{}", swift.window);
        swift.window = 0.5;
        arrives(&mut swift, 30_000, 14_000);
        assert_eq!(swift.window, 1.5);
        (0..3_000).for_each(|n| arrives(&mut swift, 40_000 + n, 14_000));
        assert_eq!(swift.window(), swift.most(), "never more than what fills the path up to the target");
    }

    #[test]
    fn it_shrinks_by_the_excess_once_per_round_trip_and_at_most_by_half() {
        let mut swift = swift(40.0);
        let target = swift.target_delay();
        arrives(&mut swift, 100_000, 2 * target as u64);
        let excess = (2.0 * target.floor() - target) / (2.0 * target.floor());
        assert!((swift.window - 40.0 * (1.0 - 0.8 * excess)).abs() < 0.01, "{}", swift.window);
        let window = swift.window;
        arrives(&mut swift, 101_000, 1_000_000);
        assert_eq!(swift.window, window);
        arrives(&mut swift, 9_000_000, 10_000_000);
        assert_eq!(swift.window, window / 2.0);
    }

    #[test]
    fn losses_halve_it_and_five_time_outs_reset_it() {
        let mut swift = swift(40.0);
        swift.on_trimmed(&Trimmed { now: Nanos(50_000), bytes: FRAME, round_trip: Nanos(10_000), in_flight: 0 });
        assert_eq!(swift.window, 20.0);
        // All packets of a window time out together.
        (0..20).for_each(|_| swift.on_timeout(Nanos(1_000_000), FRAME));
        assert_eq!(swift.window, 10.0);
        (2..5).for_each(|n| swift.on_timeout(Nanos(n * 1_000_000), FRAME));
        assert_eq!(swift.window, 1.25);
        swift.on_timeout(Nanos(5_000_000), FRAME);
        assert_eq!((swift.window, swift.window()), (LEAST, 41));
        assert_eq!(swift.gap(), Some(Nanos(1_402_200)), "a packet per hundred round trips");
        arrives(&mut swift, 6_000_000, 14_022);
        assert_eq!((swift.window, swift.gap()), (1.01, None));
    }
}
