//! The seam between a sender of packets and the control that sets its rate.

use super::RateControl;
use crate::listing::TransportKey;
use crate::packets::PortLoad;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::Nanos;

/// What a sender learns from the telemetry of a packet that has arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard<'a> {
    /// Number of the packet.
    pub(super) number: u64,
    /// Number of the next packet that was never sent.
    pub(super) next: u64,
    /// The ports on its path, in order.
    pub(super) loads: &'a [PortLoad],
}

/// A rate control: what time, sent bytes, congestion notices and telemetry do to the rate of a transfer.
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

    /// Most bytes in flight; `None` if only the rate limits them.
    fn window_bytes(&self) -> Option<u64> {
        None
    }

    /// Whether the sender must measure round trips for it.
    fn measures_round_trips(&self) -> bool {
        false
    }

    /// An acknowledgement has come so long after the packet that caused it left the transfer. Only if it measures them.
    fn on_round_trip(&mut self, _now: Nanos, _round_trip: Nanos) {}

    /// A report brings the telemetry of a packet. Only for controls whose entry asks for it.
    fn on_telemetry(&mut self, _heard: &Heard) {}
}

/// What listings and specifications know of a rate control.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateEntry {
    /// Value of the key `cc`.
    pub(crate) name: &'static str,
    /// Whether it needs the telemetry of switches, and no congestion marks.
    pub(crate) reads_telemetry: bool,
    /// Its keys.
    pub(crate) keys: &'static [TransportKey],
    /// Reads these keys.
    pub(crate) read: fn(&Spec) -> Result<RateControl, SpecError>,
}
