//! HPCC (Li et al., HPCC: High Precision Congestion Control, SIGCOMM 2019, §3): switches write the load of their ports into
//! packets, receivers send it back, and a sender sets its window by the most loaded port on the path.
//!
//! The window is computed from a reference that changes once per round trip, so that the reports on one window of packets do
//! not act on it again and again (§3.2). The rate is the window divided by the base round trip.

use super::law::{Heard, RateEntry, RateLaw};
use super::RateControl;
use crate::listing::key;
use crate::packets::PortLoad;
use crate::settings::optional_time;
use crate::uec::NetworkTraits;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::Nanos;
use serde::{Deserialize, Serialize};

/// Flows for which the growth per round trip is chosen, if it is not given: with so many, their growth fills what the target
/// leaves free (§3.3). The 80 bytes of §5.1 are for this number at 100 Gbit/s and 13 us.
const FLOWS: f64 = 100.0;
/// Picoseconds in a nanosecond.
const PS_PER_NS: f64 = 1e3;

/// Settings of HPCC.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct HpccSettings {
    /// Target of the utilisation of a link (η).
    pub target: f64,
    /// Round trips of additive increase before a multiplicative one (maxStage).
    pub stages: u32,
    /// Growth of the window per round trip (W_AI), in bytes; `None` for one that suits the network.
    pub growth_bytes: Option<u64>,
    /// Round trip without queues (T); `None` for that of the longest path.
    pub base_round_trip: Option<Nanos>,
}

impl Default for HpccSettings {
    fn default() -> HpccSettings {
        HpccSettings { target: 0.95, stages: 5, growth_bytes: None, base_round_trip: None }
    }
}

impl HpccSettings {
    pub(super) fn read(spec: &Spec) -> Result<HpccSettings, SpecError> {
        let d = HpccSettings::default();
        Ok(HpccSettings {
            target: match spec.number("eta", 0.0, 1.0)? {
                Some(target) if target <= 0.0 => return Err(spec.error("eta: expected more than 0, and at most 1")),
                target => target.unwrap_or(d.target),
            },
            stages: spec.count("max_stage", 0, 1000)?.map_or(d.stages, |stages| stages as u32),
            growth_bytes: spec.size_bytes("wai")?,
            base_round_trip: optional_time(spec, "base_rtt")?,
        })
    }
}

/// State of HPCC. Sizes are in bytes, times in picoseconds.
#[derive(Clone, Debug)]
pub(super) struct Hpcc {
    target: f64,
    stages: u32,
    growth: f64,
    /// Base round trip (T).
    base: f64,
    /// Largest window, and the first one: what the card sends in a base round trip.
    most: f64,
    window: f64,
    /// Window from which the others are computed (W^c).
    reference: f64,
    /// Estimated utilisation of the most loaded link (U).
    utilisation: f64,
    stage: u32,
    /// A report on a packet from this number on changes the reference (lastUpdateSeq).
    update_from: u64,
    /// The loads of the last report (L).
    loads: Vec<PortLoad>,
}

impl Hpcc {
    pub(super) fn new(own: &HpccSettings, network: &NetworkTraits) -> Hpcc {
        let base_ns = own.base_round_trip.unwrap_or(network.round_trip).0.max(1) as f64;
        let most = (network.rate_bps as f64 / 8e9 * base_ns).max(1.0);
        Hpcc {
            target: own.target,
            stages: own.stages,
            growth: own.growth_bytes.map_or(most * (1.0 - own.target) / FLOWS, |bytes| bytes as f64),
            base: base_ns * PS_PER_NS,
            most,
            window: most,
            reference: most,
            utilisation: 1.0,
            stage: 0,
            update_from: 0,
            loads: Vec::new(),
        }
    }

    /// Brings the estimate up to date (`MeasureInflight` of Algorithm 1). Returns whether the loads are of the same path as the
    /// last ones, and newer.
    fn measure(&mut self, loads: &[PortLoad]) -> bool {
        let is_comparable = |(new, old): (&PortLoad, &PortLoad)| new.port == old.port && new.at_ps > old.at_ps;
        if loads.is_empty() || loads.len() != self.loads.len() || !loads.iter().zip(&self.loads).all(is_comparable) {
            return false;
        }
        let (mut most, mut elapsed) = (0.0, self.base);
        for (new, old) in loads.iter().zip(&self.loads) {
            let time = (new.at_ps - old.at_ps) as f64;
            // Bytes per picosecond.
            let rate = new.rate_bps.max(1) as f64 / 8e12;
            let sent = new.sent_bytes.saturating_sub(old.sent_bytes) as f64 / time;
            let queue = new.queue_bytes.min(old.queue_bytes) as f64;
            let load = queue / (rate * self.base) + sent / rate;
            if load > most {
                (most, elapsed) = (load, time);
            }
        }
        let weight = elapsed.min(self.base) / self.base;
        self.utilisation += weight * (most - self.utilisation);
        true
    }

    /// `ComputeWind` of Algorithm 1.
    fn compute(&mut self, updates: bool) {
        let decreases = self.utilisation >= self.target || self.stage >= self.stages;
        let factor = if decreases { self.target / self.utilisation } else { 1.0 };
        self.window = (self.reference * factor + self.growth).clamp(1.0, self.most);
        if updates {
            self.stage = if decreases { 0 } else { self.stage + 1 };
            self.reference = self.window;
        }
    }
}

impl RateLaw for Hpcc {
    const ENTRY: RateEntry = RateEntry {
        name: "hpcc",
        reads_telemetry: true,
        keys: &[
            key("eta", "0.95", "target of the utilisation of a link, above 0 to 1", "Li et al. 2019 §5.1"),
            key("max_stage", "5", "round trips of additive increase before a multiplicative one, 0 to 1000", "Li et al. 2019 §5.1"),
            key(
                "wai",
                "none",
                "growth of the window per round trip, a size; none means a hundredth of what eta leaves free of rate times \
                 base_rtt, which is 80 B at 100 Gbit/s and 13 us",
                "Li et al. 2019 §3.3 and §5.1",
            ),
            key(
                "base_rtt",
                "none",
                "round trip without queues, a time; none means that of the longest path",
                "Li et al. 2019 §3.2",
            ),
        ],
        read: |spec| HpccSettings::read(spec).map(RateControl::Hpcc),
    };

    fn rate_bps(&self) -> f64 {
        self.window / self.base * 8e12
    }

    fn advance(&mut self, _now: Nanos) {}

    fn on_sent(&mut self, _bytes: u64) {}

    fn on_notice(&mut self, _now: Nanos) {}

    fn window_bytes(&self) -> Option<u64> {
        Some(self.window as u64)
    }

    /// `NewAck` of Algorithm 1. A first report, and one from another path, only gives something to compare with.
    fn on_telemetry(&mut self, heard: &Heard) {
        if self.measure(heard.loads) {
            let updates = heard.number >= self.update_from;
            self.compute(updates);
            if updates {
                self.update_from = heard.next;
            }
        }
        let is_newer =
            |old: &PortLoad| heard.loads.first().is_none_or(|new| new.at_ps > old.at_ps || new.port != old.port);
        if self.loads.first().is_none_or(is_newer) {
            self.loads.clear();
            self.loads.extend_from_slice(heard.loads);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 Gbit/s and 13 us: 162,500 bytes per round trip.
    const NETWORK: NetworkTraits = NetworkTraits {
        rate_bps: 100_000_000_000,
        round_trip: Nanos(13_000),
        hop: Nanos(1_000),
        trims: false,
        lossless: true,
        timeout: Nanos(100_000),
    };
    const BASE_PS: u64 = 13_000_000;
    const FULL: u64 = 162_500;

    /// A law, and a port that its packets cross.
    struct Path {
        law: Hpcc,
        load: PortLoad,
        number: u64,
    }

    impl Path {
        fn new(own: HpccSettings) -> Path {
            let load = PortLoad { port: 7, at_ps: 0, sent_bytes: 0, queue_bytes: 0, rate_bps: 100_000_000_000 };
            let mut path = Path { law: Hpcc::new(&own, &NETWORK), load, number: 0 };
            path.report(0, 0, 0);
            path
        }

        /// A round trip passes in which the port sends this much. Each report is on a packet of a new round trip.
        fn report(&mut self, after_ps: u64, sent_bytes: u64, queue_bytes: u64) {
            self.load.at_ps += after_ps;
            self.load.sent_bytes += sent_bytes;
            self.load.queue_bytes = queue_bytes;
            self.law.on_telemetry(&Heard { number: self.number, next: self.number + 1, loads: &[self.load] });
            self.number += 1;
        }
    }

    #[test]
    fn a_sender_begins_with_the_product_of_rate_and_round_trip_and_grows_by_the_bytes_of_the_paper() {
        let law = Hpcc::new(&HpccSettings::default(), &NETWORK);
        assert_eq!((law.window_bytes(), law.rate_bps()), (Some(FULL), 1e11));
        assert!((law.growth - 81.25).abs() < 1e-9, "{}", law.growth);
    }

    #[test]
    fn the_window_shrinks_by_the_excess_over_the_target_queue_included() {
        let mut path = Path::new(HpccSettings { growth_bytes: Some(0), ..HpccSettings::default() });
        // The link is full, and half of a round trip's bytes wait at both times.
        path.report(BASE_PS, FULL, FULL / 2);
        assert_eq!(path.law.window_bytes(), Some((FULL as f64 * 0.95) as u64), "the lesser of two queues counts");
        path.report(BASE_PS, FULL, FULL / 2);
        assert_eq!(path.law.window_bytes(), Some((FULL as f64 * 0.95 * 0.95 / 1.5) as u64));
    }

    #[test]
    fn below_the_target_it_grows_by_steps_and_after_five_of_them_in_proportion() {
        let mut path = Path::new(HpccSettings { growth_bytes: Some(100), ..HpccSettings::default() });
        path.law.reference = 10_000.0;
        // A quarter of the link is in use.
        for step in 1..=5 {
            path.report(BASE_PS, FULL / 4, 0);
            assert_eq!((path.law.window_bytes(), path.law.stage), (Some(10_000 + step * 100), step as u32));
        }
        path.report(BASE_PS, FULL / 4, 0);
        assert_eq!((path.law.window_bytes(), path.law.stage), (Some((10_500.0 * 0.95 / 0.25) as u64 + 100), 0));
    }

    #[test]
    fn reports_on_the_packets_of_one_round_trip_act_on_the_same_reference() {
        let mut path = Path::new(HpccSettings { growth_bytes: Some(0), ..HpccSettings::default() });
        path.report(BASE_PS, 2 * FULL, FULL);
        let (reference, next) = (path.law.reference, 1_000);
        path.law.update_from = next;
        for _ in 0..20 {
            path.report(BASE_PS / 4, FULL / 2, FULL);
        }
        assert_eq!(path.law.reference, reference, "packets that were sent before the last update");
        let once = reference * 0.95 / path.law.utilisation;
        assert!((path.law.window - once).abs() < 1.0, "{} {once}", path.law.window);
        path.number = next;
        path.report(BASE_PS / 4, FULL / 2, FULL);
        assert!(path.law.reference < reference);
    }

    #[test]
    fn the_most_loaded_port_counts_and_another_path_or_an_old_report_changes_nothing() {
        let mut law = Hpcc::new(&HpccSettings::default(), &NETWORK);
        let load =
            |port, at_ps, sent_bytes| PortLoad { port, at_ps, sent_bytes, queue_bytes: 0, rate_bps: 100_000_000_000 };
        let hear = |law: &mut Hpcc, loads: &[PortLoad]| law.on_telemetry(&Heard { number: 1, next: 2, loads });
        hear(&mut law, &[load(1, 10, 0), load(2, 20, 0)]);
        hear(&mut law, &[load(1, 10 + BASE_PS, FULL / 10), load(2, 20 + BASE_PS, FULL / 2)]);
        assert!((law.utilisation - 0.5).abs() < 1e-9, "{}", law.utilisation);
        let before = law.clone();
        hear(&mut law, &[load(1, 11, 5), load(2, 21, 5)]);
        hear(&mut law, &[]);
        assert_eq!((law.window, law.utilisation), (before.window, before.utilisation));
        hear(&mut law, &[load(1, 10 + 2 * BASE_PS, FULL), load(3, 20 + 2 * BASE_PS, 9 * FULL)]);
        assert_eq!((law.window, law.utilisation), (before.window, before.utilisation), "another path");
    }
}
