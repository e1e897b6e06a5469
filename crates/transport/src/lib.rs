//! TCP as pure state machines: NewReno, CUBIC and DCTCP, with or without selective acknowledgements. MPTCP is built
//! on them ([`mptcp`]). [`packets`] has the traits of transports that acknowledge packets: [`uec`] and [`roce`].
//!
//! A [`Sender`] and a [`Receiver`] are the two ends of one direction of a connection. They have no addresses, queues
//! or clock. A driver gives them the time and the segments that arrive, takes the segments that they want to send,
//! and calls them again at the time that they request. The loop of a driver is
//!
//! ```
//! use pathloom_model::Nanos;
//! use pathloom_transport::{Receiver, Segment, Sender, Settings};
//!
//! let settings = Settings { handshake: false, ..Settings::default() };
//! let (mut sender, mut receiver) = (Sender::new(&settings, Some(10_000)), Receiver::new(&settings));
//! let mut now = Nanos::ZERO;
//! sender.open(now);
//! while !sender.is_finished() {
//!     let mut acks = Vec::new();
//!     while let Some(segment) = sender.poll_transmit(now) {
//!         acks.extend(receiver.handle_data(now, segment.seq, segment.len));
//!     }
//!     now = now + Nanos::from_micros(100);
//!     receiver.handle_timeout(now + Nanos::from_secs(1)).into_iter().chain(acks).for_each(|ack| sender.handle_ack(now, ack));
//! }
//! assert_eq!(receiver.delivered_bytes(), 10_000);
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types))]

mod conflicts;
pub mod ends;
mod family;
mod headers;
mod keys;
mod listing;
pub mod mptcp;
pub mod packets;
mod rack;
mod ranges;
mod receiver;
mod right_sizing;
pub mod roce;
mod rtt;
mod sack;
mod sender;
mod settings;
pub mod streams;
mod timer_clock;
pub mod uec;
mod window;

pub use headers::{HEADER_BYTES, IPV6_MORE_BYTES};
pub use keys::transports;
pub use listing::{TransportKey, TransportName};
pub use receiver::Receiver;
pub use sack::{SackBlocks, DUP_THRESH};
pub use sender::{Segment, SegmentKind, Sender, SkippedWork, Standing, TimeoutWait};
pub use settings::{Reordering, Settings, TransportSpec};
pub use timer_clock::TimerClock;
pub use window::laws::CongestionControl;
