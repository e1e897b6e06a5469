//! EQDS (Olteanu et al., An edge-queued datagram service for all datacenter traffic, NSDI 2022): packets wait at their sender
//! until the receiver gives credit for them.
//!
//! It shares with [`ndp`](super::ndp) the speculative window of the start, the credit in bytes and the trimming. It differs in what
//! enters the network without credit: after a time-out, and after a long wait, only a request to send does. A request is the
//! header of the packet; its receiver answers it as it answers a trimmed packet, and gives credit for it. With `start=request`, a
//! transfer begins with one as well (the back end without trimming). Credit is given at a hundredth less
//! than the rate of the receiver's link, and for up to two products of rate and round trip (`EqdsPullPacer` and `_maxwnd` of
//! csg-htsim: one product beyond what the newest packet knew of; so packets that wait in one full queue do not count).
//!
//! Senders skip the entropy of a trimmed packet, as in csg-htsim (`penalizePath`), and receivers report each packet: there,
//! senders ask for it whenever their credit is used up.

use super::law::{Arrival, PacketEntry, PacketLaw, Trimmed};
use super::ndp::{first_packets, Ndp, NdpSettings};
use super::settings::USUAL_PATHS;
use super::{EntropyChoice, NetworkTraits, PacketControl, UnorderedSettings};
use crate::listing::key;
use pathloom_model::Nanos;
use serde::{Deserialize, Serialize};

/// How a transfer begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Beginning {
    /// With a window of packets, before any credit.
    Speculative,
    /// With a request to send, and no data before the first credit.
    Request,
}

/// Values of the key `start`.
const BEGINNINGS: [(&str, Beginning); 2] = [("speculative", Beginning::Speculative), ("request", Beginning::Request)];

/// Settings of EQDS.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct EqdsSettings {
    /// How a transfer begins.
    pub beginning: Beginning,
    /// The most that may be on its way, credit included, in products of rate and round trip; at least 1.
    pub window: f64,
    /// Share of the rate of the receiver's link that credit is given for.
    pub credit_rate: f64,
}

impl Default for EqdsSettings {
    fn default() -> EqdsSettings {
        EqdsSettings { beginning: Beginning::Speculative, window: 2.0, credit_rate: 0.99 }
    }
}

impl EqdsSettings {
    /// Packets that a transfer may send before any credit, a request included.
    pub(super) fn first_packets(&self, settings: &UnorderedSettings, network: &NetworkTraits) -> u64 {
        match self.beginning {
            Beginning::Speculative => first_packets(settings, network),
            Beginning::Request => 1,
        }
    }

    /// The most packets on their way.
    pub(super) fn most_packets(&self, settings: &UnorderedSettings, network: &NetworkTraits) -> u64 {
        (first_packets(settings, network) as f64 * self.window).ceil() as u64
    }
}

/// What a sender may send.
#[derive(Clone, Debug)]
pub(super) struct Eqds {
    credit: Ndp,
    /// Requests that it may send without credit.
    requests: u64,
}

impl Eqds {
    pub(super) fn new(own: &EqdsSettings, settings: &UnorderedSettings, network: &NetworkTraits) -> Eqds {
        let credit = Ndp::new(&NdpSettings { window: own.window }, settings, network);
        match own.beginning {
            Beginning::Speculative => Eqds { credit, requests: 0 },
            Beginning::Request => Eqds { credit: credit.without_first_window(), requests: 1 },
        }
    }
}

impl PacketLaw for Eqds {
    const ENTRY: PacketEntry = PacketEntry {
        name: "eqds",
        about: "EQDS: packets wait at their sender for credit of the receiver; a transfer begins with a window or a request, and \
                repeats nothing without credit; packets take all paths but those that have trimmed some; with trim=on the \
                receiver knows early what is missing",
        source: "Olteanu et al. 2022 (NSDI); constants of csg-htsim",
        entropy: EntropyChoice::Bitmap,
        paths: USUAL_PATHS,
        reports_each: true,
        keys: &[
            key(
                "start",
                "speculative",
                "how a transfer begins: speculative with the packets of iw; request with a request to send",
                "Olteanu et al. 2022 §4",
            ),
            key("window", "2", "the most on its way, credit included, in multiples of iw, 1 to 100", "csg-htsim"),
            key("credit_rate", "0.99", "share of the rate of the receiver's link that credit is given for, 0.01 to 1", "csg-htsim"),
        ],
        read: |spec| {
            let d = EqdsSettings::default();
            Ok(PacketControl::Eqds(EqdsSettings {
                beginning: spec.choice("start", &BEGINNINGS)?.unwrap_or(d.beginning),
                window: spec.number("window", 1.0, 100.0)?.unwrap_or(d.window),
                credit_rate: spec.number("credit_rate", 0.01, 1.0)?.unwrap_or(d.credit_rate),
            }))
        },
    };

    fn window(&self) -> u64 {
        self.credit.window()
    }

    fn most(&self) -> u64 {
        u64::MAX
    }

    fn admits(&self, in_flight: i64, size: u64) -> bool {
        self.requests > 0 || self.credit.admits(in_flight, size)
    }

    /// After a long wait a request leaves: credit may have been lost.
    fn gap(&self) -> Option<Nanos> {
        self.credit.gap()
    }

    fn reordering(&self) -> Option<u64> {
        self.credit.reordering()
    }

    fn takes_request(&mut self, size: u64) -> bool {
        let is_request = size > self.credit.window();
        self.requests = self.requests.saturating_sub(u64::from(is_request));
        is_request
    }

    fn on_sent(&mut self, bytes: u64) {
        self.credit.on_sent(bytes);
    }

    fn on_pull(&mut self, bytes: u64) {
        self.credit.on_pull(bytes);
    }

    fn on_arrival(&mut self, _arrival: &Arrival) {}

    fn on_trimmed(&mut self, _trimmed: &Trimmed) {}

    /// The packet takes its credit with it. A request asks for another.
    fn on_timeout(&mut self, _now: Nanos, _bytes: u64) {
        self.requests += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uec::tests::{FRAME, TRAITS as NETWORK};

    #[test]
    fn a_sender_has_its_first_window_and_its_credit_and_asks_for_what_timed_out() {
        let mut eqds = Eqds::new(&EqdsSettings::default(), &UnorderedSettings::default(), &NETWORK);
        assert_eq!(eqds.window(), 43 * FRAME);
        (0..43).for_each(|_| {
            assert!(!eqds.takes_request(FRAME));
            eqds.on_sent(FRAME);
        });
        assert!(!eqds.admits(0, FRAME));
        eqds.on_timeout(Nanos(1), FRAME);
        assert!(eqds.admits(0, FRAME) && eqds.takes_request(FRAME));
        assert!(!eqds.admits(0, FRAME), "one request for each packet");
        eqds.on_pull(FRAME);
        assert!(eqds.admits(0, FRAME) && !eqds.takes_request(FRAME));
    }

    #[test]
    fn a_transfer_may_begin_with_a_request_alone() {
        let own = EqdsSettings { beginning: Beginning::Request, ..EqdsSettings::default() };
        let settings = UnorderedSettings::default();
        let mut eqds = Eqds::new(&own, &settings, &NETWORK);
        assert_eq!((eqds.window(), own.first_packets(&settings, &NETWORK)), (0, 1));
        assert!(eqds.admits(0, FRAME) && eqds.takes_request(FRAME) && !eqds.admits(0, FRAME));
        assert_eq!(own.most_packets(&settings, &NETWORK), 86, "43 packets, twice");
    }
}
