//! NDP (Handley et al., Re-architecting datacenter networks and stacks for low latency and high performance, SIGCOMM 2017):
//! a sender sends one window at once, and then a packet for each pull of the receiver.
//!
//! A receiver pulls as many packets as arrive, whole or trimmed, so that the packets in flight stay those of the first
//! window. Its host paces the pulls of all its transfers at the rate of its link, in turn (§3.2). Not implemented: headers
//! that return to their sender when the queue of headers is full (§3.1), and priorities among transfers.

use super::eqds::EqdsSettings;
use super::law::{Arrival, PacketEntry, PacketLaw, Trimmed};
use super::settings::MOST_PATHS;
use super::{EntropyChoice, NetworkTraits, PacketControl, UnorderedSettings};
use crate::listing::key;
use pathloom_model::Nanos;
use serde::{Deserialize, Serialize};

/// Time-outs after which a sender that waits for pulls sends a packet without one: all pulls for it may be lost.
const PATIENCE: u64 = 8;

/// Settings of NDP.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct NdpSettings {
    /// The most that may be on its way, in first windows, at least 1. More than one leaves room for queues: while less arrives
    /// than the link takes, the receiver pulls more.
    pub window: f64,
}

impl Default for NdpSettings {
    fn default() -> NdpSettings {
        NdpSettings { window: 1.0 }
    }
}

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
    /// The most packets on their way, if no port trims.
    reordering: Option<u64>,
}

impl Ndp {
    pub(super) fn new(own: &NdpSettings, settings: &UnorderedSettings, network: &NetworkTraits) -> Ndp {
        let first = first_packets(settings, network);
        Ndp {
            reordering: (!network.trims).then_some(most_packets(own, first)),
            first: first * settings.frame_bytes(),
            pulled: 0,
            extra: 0,
            sent: 0,
            patience: Nanos(settings.timeout.unwrap_or(network.timeout).0.saturating_mul(PATIENCE)),
        }
    }
}

/// Returns the packets of the first window: by default those of a round trip, so that a transfer fills its path.
pub(super) fn first_packets(settings: &UnorderedSettings, network: &NetworkTraits) -> u64 {
    let product = u128::from(network.rate_bps) * u128::from(network.round_trip.0) / 8_000_000_000;
    let bytes = settings.initial_window_bytes.unwrap_or(u64::try_from(product).unwrap_or(u64::MAX));
    bytes.div_ceil(settings.frame_bytes()).max(1)
}

/// Returns the most packets that may be on their way, if the first window has so many.
fn most_packets(own: &NdpSettings, first: u64) -> u64 {
    ((first as f64 * own.window).ceil() as u64).max(first)
}

impl Ndp {
    /// The same without a first window.
    pub(super) fn without_first_window(self) -> Ndp {
        Ndp { first: 0, ..self }
    }
}

impl PacketLaw for Ndp {
    const ENTRY: PacketEntry = PacketEntry {
        name: "ndp",
        about: "NDP: a window at once, and then a packet for each pull of the receiver, which paces them; packets take all \
                paths; needs trim=on of the fabric to know early what is missing",
        source: "Handley et al. 2017",
        entropy: EntropyChoice::Oblivious,
        // A sender of the paper uses all paths equally often. A few hashed entropies would favour some paths for the whole transfer.
        paths: MOST_PATHS,
        reports_each: true,
        keys: &[key(
            "window",
            "1",
            "the most on its way, in first windows, 1 to 100: more leaves room for queues on several paths",
            "this project",
        )],
        read: |spec| {
            let window = spec.number("window", 1.0, 100.0)?.unwrap_or(NdpSettings::default().window);
            Ok(PacketControl::Ndp(NdpSettings { window }))
        },
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

    /// Not more than a window is on its way, so a packet that a window of others has overtaken is rarely still under way.
    fn reordering(&self) -> Option<u64> {
        self.reordering
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
    /// Packets of the first window.
    first: u64,
    /// The most that may be on their way.
    most: u64,
    frame: u64,
    pulled: u64,
    /// Packets and headers that have arrived, without packets that had arrived before.
    arrived: u64,
}

impl Pulls {
    pub(super) fn new(own: &NdpSettings, settings: &UnorderedSettings, network: &NetworkTraits) -> Pulls {
        let first = first_packets(settings, network);
        Pulls { first, most: most_packets(own, first), frame: settings.frame_bytes(), pulled: 0, arrived: 0 }
    }

    /// What a receiver of EQDS gives credit for.
    pub(super) fn of_credit(own: &EqdsSettings, settings: &UnorderedSettings, network: &NetworkTraits) -> Pulls {
        let (first, most) = (own.first_packets(settings, network), own.most_packets(settings, network));
        Pulls { first, most, frame: settings.frame_bytes(), pulled: 0, arrived: 0 }
    }

    /// A packet or a header has arrived.
    pub(super) fn note_arrival(&mut self) {
        self.arrived += 1;
    }

    /// Whether a further packet is wanted, if so many are missing.
    pub(super) fn is_wanted(&self, missing: u64) -> bool {
        let under_way = (self.first + self.pulled).saturating_sub(self.arrived);
        under_way < missing.min(self.most)
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
    use crate::uec::tests::{FRAME, TRAITS as NETWORK};

    #[test]
    fn a_sender_has_one_window_and_what_is_pulled() {
        let mut ndp = Ndp::new(&NdpSettings::default(), &UnorderedSettings::default(), &NETWORK);
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
        let mut pulls = Pulls { first: 3, most: 3, frame: FRAME, pulled: 0, arrived: 0 };
        assert!(!pulls.is_wanted(10), "the first window is on its way");
        pulls.note_arrival();
        assert!(pulls.is_wanted(9));
        assert_eq!(pulls.pull(), FRAME);
        assert!(!pulls.is_wanted(9));
        pulls.note_arrival();
        assert!(pulls.is_wanted(8) && !pulls.is_wanted(2), "two are on their way, so two missing ones need no pull");
        let mut wide = Pulls { first: 3, most: 5, frame: FRAME, pulled: 0, arrived: 0 };
        assert!(wide.is_wanted(10) && !wide.is_wanted(3));
        wide.pull();
        wide.pull();
        assert!(!wide.is_wanted(10), "five are on their way");
    }
}
