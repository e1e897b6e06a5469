//! The seam between a sender of packets and the control that sets its rate.

use super::RateControl;
use crate::listing::TransportKey;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::Nanos;

/// A rate control: what time, sent bytes and congestion notices do to the rate of a transfer.
pub(super) trait RateLaw {
    /// Name and keys of the control.
    const ENTRY: RateEntry;

    /// The present rate of frames, headers included, in bit/s.
    fn rate_bps(&self) -> f64;

    /// Brings the rate up to date: timers that were due by now have had their effect.
    fn advance(&mut self, now: Nanos);

    /// A frame of this many bytes leaves; the rate is up to date.
    fn on_sent(&mut self, bytes: u64);

    /// The receiver gives notice of congestion.
    fn on_notice(&mut self, now: Nanos);
}

/// What listings and specifications know of a rate control.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateEntry {
    /// Value of the key `cc`.
    pub(crate) name: &'static str,
    /// Its keys.
    pub(crate) keys: &'static [TransportKey],
    /// Reads these keys.
    pub(crate) read: fn(&Spec) -> Result<RateControl, SpecError>,
}
