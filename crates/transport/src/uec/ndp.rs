//! NDP (Handley et al., Re-architecting datacenter networks and stacks for low latency and high performance, SIGCOMM 2017):
//! a sender sends one window at once, and then a packet for each pull of the receiver.
//!
//! A receiver pulls as many packets as arrive, whole or trimmed, so that the packets in flight stay those of the first
//! window. Its host paces the pulls of all its transfers at the rate of its link, in turn (§3.2). Not implemented: headers
//! that return to their sender when the queue of headers is full (§3.1), and priorities among transfers.

use super::law::{Arrival, PacketEntry, PacketLaw, Trimmed};
use super::{EntropyChoice, NetworkTraits, PacketControl, UecSettings};
use pathloom_model::Nanos;
use serde::{Deserialize, Serialize};

/// Time-outs after which a sender that waits for pulls sends a packet without one: all pulls for it may be lost.
const PATIENCE: u64 = 8;

/// Settings of NDP. It has none of its own.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct NdpSettings {}

/// What a sender may send. Sizes are in bytes, headers included.
#[derive(Clone, Debug)]
pub(super) struct Ndp {
    first: u64,
    /// What the receiver has pulled so far.
    pulled: u64,
    /// What was sent without a pull after the first window: packets that timed out, since no pull answers them.
    extra: u64,
    sent: u64,
    patience: Nanos,
}

impl Ndp {
    pub(super) fn new(_own: &NdpSettings, settings: &UecSettings, network: &NetworkTraits) -> Ndp {
        Ndp {
            first: first_packets(settings, network) * settings.frame_bytes(),
            pulled: 0,
            extra: 0,
            sent: 0,
            patience: Nanos(settings.timeout.unwrap_or(network.timeout).0.saturating_mul(PATIENCE)),
        }
    }
}

/// Returns the packets of the first window: by default those of a round trip, so that a transfer fills its path.
pub(super) fn first_packets(settings: &UecSettings, network: &NetworkTraits) -> u64 {
    let product = u128::from(network.rate_bps) * u128::from(network.round_trip.0) / 8_000_000_000;
    let bytes = settings.initial_window_bytes.unwrap_or(u64::try_from(product).unwrap_or(u64::MAX));
    bytes.div_ceil(settings.frame_bytes()).max(1)
}

impl PacketLaw for Ndp {
    const ENTRY: PacketEntry = PacketEntry {
        name: "ndp",
        about: "NDP: a window at once, and then a packet for each pull of the receiver, which paces them; packets take all \
                paths; needs trim=on of the fabric to know early what is missing",
        source: "Handley et al. 2017",
        entropy: EntropyChoice::Oblivious,
        reports_each: true,
        keys: &[],
        read: |_| Ok(PacketControl::Ndp(NdpSettings {})),
    };

    /// What may be sent now.
    fn window(&self) -> u64 {
        (self.first + self.extra + self.pulled).saturating_sub(self.sent)
    }

    fn most(&self) -> u64 {
        u64::MAX
    }

    fn admits(&self, _in_flight: i64, size: u64) -> bool {
        size <= self.window()
    }

    fn gap(&self) -> Option<Nanos> {
        Some(self.patience)
    }

    fn on_sent(&mut self, bytes: u64) {
        self.sent += bytes;
        self.extra += self.sent.saturating_sub(self.first + self.extra + self.pulled);
    }

    /// Pulls are numbered by what was pulled altogether, so that a later one stands in for one that is lost.
    fn on_pull(&mut self, bytes: u64) {
        self.pulled = self.pulled.max(bytes);
    }

    fn on_arrival(&mut self, _arrival: &Arrival) {}

    fn on_trimmed(&mut self, _trimmed: &Trimmed) {}

    /// The packet has not arrived, so no pull follows from it.
    fn on_timeout(&mut self, _now: Nanos, bytes: u64) {
        self.extra += bytes;
    }
}

/// What a receiver has pulled, and what it may still pull.
#[derive(Clone, Debug)]
pub(super) struct Pulls {
    /// Packets of the first window, which is also the most that may be on their way.
    first: u64,
    frame: u64,
    pulled: u64,
    /// Packets and headers that have arrived, repeated ones included.
    arrived: u64,
}

impl Pulls {
    pub(super) fn new(settings: &UecSettings, network: &NetworkTraits) -> Pulls {
        let first = first_packets(settings, network);
        Pulls { first, frame: settings.frame_bytes(), pulled: 0, arrived: 0 }
    }

    /// A packet or a header has arrived.
    pub(super) fn note_arrival(&mut self) {
        self.arrived += 1;
    }

    /// Whether a further packet is wanted, if so many are missing.
    pub(super) fn is_wanted(&self, missing: u64) -> bool {
        let under_way = (self.first + self.pulled).saturating_sub(self.arrived);
        under_way < missing.min(self.first)
    }

    /// Pulls one packet. Returns the bytes that were pulled altogether.
    pub(super) fn pull(&mut self) -> u64 {
        self.pulled += 1;
        self.pulled * self.frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETWORK: NetworkTraits = NetworkTraits {
        rate_bps: 100_000_000_000,
        round_trip: Nanos(14_022),
        hop: Nanos(2_337),
        trims: true,
        lossless: false,
        timeout: Nanos(100_000),
    };
    const FRAME: u64 = 4150;

    #[test]
    fn a_sender_has_one_window_and_what_is_pulled() {
        let mut ndp = Ndp::new(&NdpSettings {}, &UecSettings::default(), &NETWORK);
        // 100 Gbit/s · 14 µs are 175 kB.
        assert_eq!(ndp.window(), 43 * FRAME);
        (0..43).for_each(|_| ndp.on_sent(FRAME));
        assert!(!ndp.admits(0, FRAME));
        ndp.on_pull(2 * FRAME);
        ndp.on_pull(FRAME);
        assert_eq!(ndp.window(), 2 * FRAME, "pulls arrive in any order");
        (0..3).for_each(|_| ndp.on_sent(FRAME));
        assert_eq!(ndp.window(), 0, "one was sent without a pull");
        ndp.on_pull(3 * FRAME);
        ndp.on_timeout(Nanos(1), FRAME);
        assert_eq!(ndp.window(), 2 * FRAME);
    }

    #[test]
    fn a_receiver_pulls_one_packet_for_each_that_arrives_and_none_beyond_the_last() {
        let mut pulls = Pulls { first: 3, frame: FRAME, pulled: 0, arrived: 0 };
        assert!(!pulls.is_wanted(10), "the first window is on its way");
        pulls.note_arrival();
        assert!(pulls.is_wanted(9));
        assert_eq!(pulls.pull(), FRAME);
        assert!(!pulls.is_wanted(9));
        pulls.note_arrival();
        assert!(pulls.is_wanted(8) && !pulls.is_wanted(2), "two are on their way, so two missing ones need no pull");
    }
}
