//! The list of rate controls. A new one is a file with its [`RateLaw`], and a line here.

use super::law::{RateEntry, RateLaw};
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

        /// The entries of all of them.
        pub(crate) const ENTRIES: &[RateEntry] = &[$(super::$module::$law::ENTRY),*];

        /// State of a rate control.
        #[derive(Clone, Debug)]
        pub(super) enum Law {
            $($name(super::$module::$law),)*
        }

        impl Law {
            /// A transfer begins on a card of this rate, in bit/s.
            pub(super) fn new(control: &RateControl, line_bps: u64) -> Law {
                match control {
                    $(RateControl::$name(own) => Law::$name(super::$module::$law::new(own, line_bps)),)*
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
        }
    };
}

rate_laws! {
    /// DCQCN: cuts on congestion notices, and recovers by time and by bytes.
    Dcqcn(super::dcqcn::DcqcnSettings) => dcqcn::Dcqcn,
    /// The rate of the card.
    None(()) => line::Line,
}
