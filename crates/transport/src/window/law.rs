//! The seam between a congestion window and the congestion control that moves it.

use super::Extent;
use crate::listing::TransportKey;
use crate::CongestionControl;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::Nanos;

/// An acknowledgement of new data in congestion avoidance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack {
    pub(crate) now: Nanos,
    /// Bytes that it acknowledges.
    pub(crate) bytes: u64,
    /// First byte that is not acknowledged.
    pub(crate) una: u64,
    /// Smoothed round-trip time, once there is a sample.
    pub(crate) round_trip: Option<Nanos>,
}

/// What an acknowledgement says of congestion marks (RFC 8257 §3.3).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Echo {
    /// Bytes that it acknowledges.
    pub(crate) acked: u64,
    /// Whether it echoes a mark.
    pub(crate) marked: bool,
    /// First byte that is not acknowledged.
    pub(crate) una: u64,
    /// Next byte to send.
    pub(crate) next: u64,
}

/// A congestion control: what acknowledgements, marks, losses, time-outs and idle times do to window and threshold. Slow
/// start and the course of a recovery are the same for all (RFC 5681, RFC 6582, RFC 6675), and in [`super::Window`].
///
/// The methods that a law leaves out are those of NewReno.
pub(crate) trait WindowLaw {
    /// Name, keys and source, if it is a transport of its own.
    const ENTRY: Option<LawEntry> = None;
    /// Handles an acknowledgement in congestion avoidance.
    fn on_ack(&mut self, extent: &mut Extent, ack: &Ack) {
        extent.count(ack.bytes);
    }

    /// Handles the echo of a congestion mark, or its absence, outside recovery.
    fn on_echo(&mut self, _extent: &mut Extent, _echo: &Echo) {}

    /// Returns the threshold, in bytes, after a loss or a time-out with `flight` unacknowledged bytes: half of them (RFC
    /// 5681 §3.1 equation (4)).
    fn reduced(&self, flight: u64) -> u64 {
        flight / 2
    }

    /// Handles a loss that was detected without a time-out. `extent` has the window before the loss.
    fn on_loss(&mut self, _extent: &Extent) {}

    /// Handles an expired retransmission timer. `extent` has the window before it.
    fn on_timeout(&mut self, _extent: &Extent) {}

    /// The next transfer of a standing connection begins after an idle time. Byte numbers begin again with 0.
    fn on_resume(&mut self) {}

    /// Moves all times by `by`.
    fn translate(&mut self, _by: Nanos) {}

    /// Sets the growth per byte acknowledged, for windows that are coupled with others ([`crate::mptcp`]).
    fn set_growth(&mut self, _growth: f64) {}
}

/// What listings and specifications know of a congestion control.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LawEntry {
    /// Name of the transport, before the `:`.
    pub(crate) name: &'static str,
    /// Description in one line.
    pub(crate) about: &'static str,
    /// Where it is published.
    pub(crate) source: &'static str,
    /// Whether recovery uses selective acknowledgements by default.
    pub(crate) sack: bool,
    /// Whether it needs [`WindowLaw::on_echo`], and so ports that mark packets.
    pub(crate) reacts_to_marks: bool,
    /// Its keys beside those of every TCP.
    pub(crate) keys: &'static [TransportKey],
    /// Reads these keys.
    pub(crate) read: fn(&Spec) -> Result<CongestionControl, SpecError>,
}
