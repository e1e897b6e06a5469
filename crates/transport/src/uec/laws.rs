//! The list of congestion controls of transports that acknowledge packets. A new one is a file with its [`PacketLaw`], and
//! a line here.

use super::law::{Arrival, PacketEntry, PacketLaw, Trimmed};
use super::{NetworkTraits, UnorderedSettings};
use pathloom_model::Nanos;
use serde::{Deserialize, Serialize};

/// Makes from the list the settings, the state, and the calls of one by the other.
macro_rules! packet_laws {
    ($($(#[$about:meta])* $name:ident($settings:ty) => $module:ident::$law:ident,)*) => {
        /// The congestion control of a transport that acknowledges packets, with its settings.
        #[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum PacketControl {
            $($(#[$about])* $name($settings),)*
        }

        impl PacketControl {
            /// Its entry in listings.
            pub(crate) fn entry(&self) -> PacketEntry {
                match self {
                    $(PacketControl::$name(_) => super::$module::$law::ENTRY,)*
                }
            }
        }

        /// The entries of all of them.
        pub(crate) const ENTRIES: &[PacketEntry] = &[$(super::$module::$law::ENTRY),*];

        /// State of a congestion control.
        #[derive(Clone, Debug)]
        pub(super) enum Law {
            $($name(super::$module::$law),)*
        }

        impl Law {
            pub(super) fn new(settings: &UnorderedSettings, network: &NetworkTraits) -> Law {
                match &settings.control {
                    $(PacketControl::$name(own) => Law::$name(super::$module::$law::new(own, settings, network)),)*
                }
            }

            pub(super) fn window(&self) -> u64 {
                match self {
                    $(Law::$name(law) => law.window(),)*
                }
            }

            pub(super) fn most(&self) -> u64 {
                match self {
                    $(Law::$name(law) => law.most(),)*
                }
            }

            pub(super) fn gap(&self) -> Option<Nanos> {
                match self {
                    $(Law::$name(law) => law.gap(),)*
                }
            }

            pub(super) fn reordering(&self) -> Option<u64> {
                match self {
                    $(Law::$name(law) => law.reordering(),)*
                }
            }

            pub(super) fn admits(&self, in_flight: i64, size: u64) -> bool {
                match self {
                    $(Law::$name(law) => law.admits(in_flight, size),)*
                }
            }

            pub(super) fn takes_request(&mut self, size: u64) -> bool {
                match self {
                    $(Law::$name(law) => law.takes_request(size),)*
                }
            }

            pub(super) fn on_sent(&mut self, bytes: u64) {
                match self {
                    $(Law::$name(law) => law.on_sent(bytes),)*
                }
            }

            pub(super) fn on_pull(&mut self, bytes: u64) {
                match self {
                    $(Law::$name(law) => law.on_pull(bytes),)*
                }
            }

            pub(super) fn on_arrival(&mut self, arrival: &Arrival) {
                match self {
                    $(Law::$name(law) => law.on_arrival(arrival),)*
                }
            }

            pub(super) fn on_trimmed(&mut self, trimmed: &Trimmed) {
                match self {
                    $(Law::$name(law) => law.on_trimmed(trimmed),)*
                }
            }

            pub(super) fn on_timeout(&mut self, now: Nanos, bytes: u64) {
                match self {
                    $(Law::$name(law) => law.on_timeout(now, bytes),)*
                }
            }
        }
    };
}

packet_laws! {
    /// NSCC of the Ultra Ethernet Consortium.
    Nscc(super::nscc::NsccSettings) => nscc::Nscc,
    /// Swift, a window by delay.
    Swift(super::swift::SwiftSettings) => swift::Swift,
    /// NDP, whose receivers pull packets.
    Ndp(super::ndp::NdpSettings) => ndp::Ndp,
    /// EQDS, whose senders wait for credit.
    Eqds(super::eqds::EqdsSettings) => eqds::Eqds,
}
