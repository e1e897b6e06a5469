//! The list of rate controls. A new one is a file with its [`RateLaw`], and a line here.

use super::law::{Heard, RateEntry, RateLaw};
use crate::uec::NetworkTraits;
use pathloom_model::Nanos;
use serde::{Deserialize, Serialize};

/// Makes from the list the settings, the state, and the calls of one by the other.
macro_rules! rate_laws {
    ($($(#[$about:meta])* $name:ident($settings:ty) => $module:ident::$law:ident,)*) => {
        /// The rate control of a transfer, with its settings.
        #[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum RateControl {
            $($(#[$about])* $name($settings),)*
        }

        impl RateControl {
            /// Its entry in listings.
            pub(crate) fn entry(&self) -> RateEntry {
                match self {
                    $(RateControl::$name(_) => super::$module::$law::ENTRY,)*
                }
            }
        }

        /// The entries of all of them.
        pub(crate) const ENTRIES: &[RateEntry] = &[$(super::$module::$law::ENTRY),*];

        /// State of a rate control.
        #[derive(Clone, Debug)]
        pub(super) enum Law {
            $($name(super::$module::$law),)*
        }

        impl Law {
            /// A transfer begins in this network.
            pub(super) fn new(control: &RateControl, network: &NetworkTraits) -> Law {
                match control {
                    $(RateControl::$name(own) => Law::$name(super::$module::$law::new(own, network)),)*
                }
            }

            pub(super) fn rate_bps(&self) -> f64 {
                match self {
                    $(Law::$name(law) => law.rate_bps(),)*
                }
            }

            pub(super) fn advance(&mut self, now: Nanos) {
                match self {
                    $(Law::$name(law) => law.advance(now),)*
                }
            }

            pub(super) fn on_sent(&mut self, bytes: u64) {
                match self {
                    $(Law::$name(law) => law.on_sent(bytes),)*
                }
            }

            pub(super) fn on_notice(&mut self, now: Nanos) {
                match self {
                    $(Law::$name(law) => law.on_notice(now),)*
                }
            }

            pub(super) fn window_bytes(&self) -> Option<u64> {
                match self {
                    $(Law::$name(law) => law.window_bytes(),)*
                }
            }

            pub(super) fn measures_round_trips(&self) -> bool {
                match self {
                    $(Law::$name(law) => law.measures_round_trips(),)*
                }
            }

            pub(super) fn on_round_trip(&mut self, now: Nanos, round_trip: Nanos) {
                match self {
                    $(Law::$name(law) => law.on_round_trip(now, round_trip),)*
                }
            }

            pub(super) fn on_telemetry(&mut self, heard: &Heard) {
                match self {
                    $(Law::$name(law) => law.on_telemetry(heard),)*
                }
            }
        }
    };
}

rate_laws! {
    /// DCQCN: cuts on congestion notices, and recovers by time and by bytes.
    Dcqcn(super::dcqcn::DcqcnSettings) => dcqcn::Dcqcn,
    /// The rate of the card.
    None(()) => line::Line,
    /// HPCC: a window by the load of the links on the path.
    Hpcc(super::hpcc::HpccSettings) => hpcc::Hpcc,
    /// TIMELY: follows the slope of the round trip.
    Timely(super::timely::TimelySettings) => timely::Timely,
}
