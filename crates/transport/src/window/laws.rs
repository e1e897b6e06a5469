//! The list of congestion controls of TCP. A new one is a file with its [`WindowLaw`], and a line here.

use super::law::{Ack, Echo, LawEntry, WindowLaw};
use super::Extent;
use pathloom_model::Nanos;
use serde::{Deserialize, Serialize};

/// Makes from the list the settings, the state, and the calls of one by the other.
macro_rules! laws {
    ($($(#[$about:meta])* $name:ident $({ $($(#[$means:meta])* $field:ident: $type:ty),* })? => $module:ident::$law:ident,)*) => {
        /// The congestion control: determines how far a congestion window grows and shrinks.
        #[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum CongestionControl {
            $($(#[$about])* $name $({ $($(#[$means])* $field: $type),* })?,)*
        }

        impl CongestionControl {
            /// Whether it reacts to congestion marks (ECN).
            pub fn reacts_to_marks(&self) -> bool {
                self.entry().is_some_and(|entry| entry.reacts_to_marks)
            }

            /// Its entry in listings, if it is a transport of its own.
            pub(crate) fn entry(&self) -> Option<LawEntry> {
                match self {
                    $(CongestionControl::$name { .. } => super::$module::$law::ENTRY,)*
                }
            }
        }

        /// Returns the entries of all congestion controls that are transports of their own.
        pub(crate) fn entries() -> impl Iterator<Item = LawEntry> {
            [$(super::$module::$law::ENTRY),*].into_iter().flatten()
        }

        /// State of a congestion control.
        #[derive(Clone, Debug)]
        pub(super) enum Law {
            $($name(Box<super::$module::$law>),)*
        }

        impl Law {
            pub(super) fn new(control: CongestionControl) -> Law {
                match control {
                    $(CongestionControl::$name $({ $($field),* })? => {
                        Law::$name(Box::new(super::$module::$law::new($($($field),*)?)))
                    })*
                }
            }

            #[inline]
            pub(super) fn reacts_to_marks(&self) -> bool {
                match self {
                    $(Law::$name(_) => super::$module::$law::ENTRY.is_some_and(|entry| entry.reacts_to_marks),)*
                }
            }
        }

        impl WindowLaw for Law {
            fn on_ack(&mut self, extent: &mut Extent, ack: &Ack) {
                match self {
                    $(Law::$name(law) => law.on_ack(extent, ack),)*
                }
            }

            fn on_echo(&mut self, extent: &mut Extent, echo: &Echo) {
                match self {
                    $(Law::$name(law) => law.on_echo(extent, echo),)*
                }
            }

            fn reduced(&self, flight: u64) -> u64 {
                match self {
                    $(Law::$name(law) => law.reduced(flight),)*
                }
            }

            fn on_loss(&mut self, extent: &Extent) {
                match self {
                    $(Law::$name(law) => law.on_loss(extent),)*
                }
            }

            fn on_timeout(&mut self, extent: &Extent) {
                match self {
                    $(Law::$name(law) => law.on_timeout(extent),)*
                }
            }

            fn on_resume(&mut self) {
                match self {
                    $(Law::$name(law) => law.on_resume(),)*
                }
            }

            fn translate(&mut self, by: Nanos) {
                match self {
                    $(Law::$name(law) => law.translate(by),)*
                }
            }

            #[inline]
            fn set_growth(&mut self, growth: f64) {
                match self {
                    $(Law::$name(law) => law.set_growth(growth),)*
                }
            }
        }
    };
}

laws! {
    /// RFC 5681.
    #[default]
    NewReno => newreno::NewReno,
    /// RFC 9438.
    Cubic => cubic::Cubic,
    /// RFC 8257; for links that mark packets.
    Dctcp {
        /// Weight of a new sample in the estimated share of marks (g of RFC 8257 §3.3).
        gain: f64
    } => dctcp::Dctcp,
    /// RFC 5681, but the growth in congestion avoidance is set from outside ([`crate::Sender::set_growth`]), for
    /// connections whose windows are coupled.
    Coupled => coupled::Coupled,
}
