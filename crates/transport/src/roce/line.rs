//! No rate control: a transfer sends at the rate of its card.

use super::law::{RateEntry, RateLaw};
use super::RateControl;
use crate::uec::NetworkTraits;
use pathloom_model::Nanos;

/// A constant rate.
#[derive(Clone, Debug)]
pub(super) struct Line {
    rate_bps: f64,
}

impl Line {
    pub(super) fn new((): &(), network: &NetworkTraits) -> Line {
        Line { rate_bps: network.rate_bps as f64 }
    }
}

impl RateLaw for Line {
    const ENTRY: RateEntry =
        RateEntry { name: "none", reads_telemetry: false, keys: &[], read: |_| Ok(RateControl::None(())) };

    fn rate_bps(&self) -> f64 {
        self.rate_bps
    }

    fn advance(&mut self, _now: Nanos) {}

    fn on_sent(&mut self, _bytes: u64) {}

    fn on_notice(&mut self, _now: Nanos) {}
}
