//! The seam between a sender of packets and the congestion control that sets its window.

use super::{EntropyChoice, PacketControl};
use crate::listing::TransportKey;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::Nanos;

/// What a report says of packets that have arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) now: Nanos,
    /// Bytes that have arrived since the last report, with headers.
    pub(super) bytes: u64,
    /// Whether the packet that caused the report was marked.
    pub(super) marked: bool,
    /// Round trip of that packet, if it is clear which copy of it arrived.
    pub(super) round_trip: Option<Nanos>,
    /// Switches that it passed.
    pub(super) hops: u8,
    /// Bytes that remain in flight.
    pub(super) in_flight: u64,
}

/// A report of a packet that lost its payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trimmed {
    pub(super) now: Nanos,
    /// Bytes of the packet, with headers.
    pub(super) bytes: u64,
    /// Time between the packet and the report.
    pub(super) round_trip: Nanos,
    /// Bytes in flight, that packet included.
    pub(super) in_flight: u64,
}

/// A congestion control: what arrivals, trimmed packets and time-outs do to a window of bytes in flight, headers included.
pub(super) trait PacketLaw {
    /// Name, keys and source of the transport with this congestion control.
    const ENTRY: PacketEntry;

    /// The window in bytes.
    fn window(&self) -> u64;

    /// The largest window at what is known of the network, in bytes.
    fn most(&self) -> u64;

    /// Whether a packet of `size` bytes may be sent.
    fn admits(&self, in_flight: i64, size: u64) -> bool {
        in_flight.saturating_add_unsigned(size) <= i64::try_from(self.window()).unwrap_or(i64::MAX)
    }

    /// Time after the last packet when one may leave although it is not admitted, if nothing is in flight; `None` if that
    /// never happens, because the window is not smaller than a packet.
    fn gap(&self) -> Option<Nanos> {
        None
    }

    /// Number of packets that must arrive of those sent after a packet before it counts as lost; `None` if only reports of
    /// trimmed packets and time-outs tell of losses.
    fn reordering(&self) -> Option<u64> {
        None
    }

    /// Whether of a packet of this many bytes only the header may leave, as a request for credit. What leaves is a request or, with
    /// [`PacketLaw::on_sent`], a packet.
    fn takes_request(&mut self, _size: u64) -> bool {
        false
    }

    /// A packet of this many bytes leaves.
    fn on_sent(&mut self, _bytes: u64) {}

    /// Handles a pull of the receiver, which has pulled this many bytes so far.
    fn on_pull(&mut self, _bytes: u64) {}

    /// Handles a report of bytes that have arrived.
    fn on_arrival(&mut self, arrival: &Arrival);

    /// Handles the report of a trimmed packet.
    fn on_trimmed(&mut self, trimmed: &Trimmed);

    /// Handles the time-out of a packet of this many bytes. Several packets can time out at the same time.
    fn on_timeout(&mut self, now: Nanos, bytes: u64);
}

/// What listings and specifications know of a transport that acknowledges packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketEntry {
    /// Name of the transport, before the `:`.
    pub(crate) name: &'static str,
    /// Description in one line.
    pub(crate) about: &'static str,
    /// Where it is published.
    pub(crate) source: &'static str,
    /// Default of the key `entropy`.
    pub(crate) entropy: EntropyChoice,
    /// Default of the key `paths`, with the entropy above.
    pub(crate) paths: u32,
    /// Whether receivers report each packet by default.
    pub(crate) reports_each: bool,
    /// Its keys beside those that all transports of this kind have.
    pub(crate) keys: &'static [TransportKey],
    /// Reads these keys.
    pub(crate) read: fn(&Spec) -> Result<PacketControl, SpecError>,
}
