//! Load balancers in switches: programs that choose among equal next hops and tell each other what they measure.
//!
//! The rules of a switch say which next hops are equal. Its balancer chooses one of them for each packet. It sees the ports of its
//! own switch. It may write a *note* of 24 bits into a packet that another switch reads: an overlay has room for it beside the
//! headers of the host. It may also send probes. Time and random numbers are arguments.

mod conga;
mod flowcut;
mod flowlets;
mod hula;
mod rate_estimator;

pub use conga::{Conga, CongaSettings};
pub use flowcut::Flowcut;
pub use hula::{Hula, HulaSettings};

use crate::selection::{PortState, PortView};
use pathloom_model::Nanos;
use std::cmp::Ordering;

/// Bits of a note.
pub const NOTE_BITS: u32 = 24;

/// A port of a switch that leads to another switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbour {
    /// Number of the port, by which the driver names it.
    pub port: u32,
    /// The tier of the other switch, compared with that of this one: greater if it is closer to the core.
    pub tier: Ordering,
}

/// A packet of a connection at a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passing {
    /// The present time.
    pub now: Nanos,
    /// Number of its flow: one direction of a connection.
    pub flow: u32,
    /// How many connections have had this number; it tells them apart.
    pub connection: u32,
    /// Number of the ToR of the sending host, from 0.
    pub src_tor: u32,
    /// Number of the ToR of the receiving host.
    pub dst_tor: u32,
    /// Whether it has come from a host of this switch.
    pub from_host: bool,
    /// The note in it; it has no meaning if the packet has come from a host.
    pub note: u32,
    /// What its transport header says.
    pub segment: Segment,
}

/// What a switch reads in the TCP header of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Segment {
    /// Data.
    Data {
        /// Bytes of the flow up to the end of the packet.
        end: u64,
    },
    /// An acknowledgement.
    Ack {
        /// Number of the flow that it acknowledges.
        of: u32,
        /// The next byte of that flow that is expected.
        next: u64,
    },
}

/// A probe that a switch sends or receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    /// Number of the ToR that sent it first.
    pub tor: u32,
    /// What switches on its way have written.
    pub note: u32,
}

/// The balancer of one switch.
pub trait Balancer: Send {
    /// Chooses one of these ports for a packet, and returns its place; `None` for the one that the hash of the five-tuple gives.
    /// `view` shows these ports. `draw` returns random numbers.
    fn choose(
        &mut self,
        packet: &Passing,
        ports: &[u32],
        view: &dyn PortView,
        draw: &mut dyn FnMut() -> u32,
    ) -> Option<usize>;

    /// A packet will leave by a port to another switch. Returns its new note.
    fn forward(&mut self, packet: &Passing, port: u32, state: PortState) -> u32;

    /// A packet has come from another switch, and its host is at this one.
    fn deliver(&mut self, packet: &Passing);

    /// When the switch sends its next probes; `None` if it sends none.
    fn poll_timeout(&self) -> Option<Nanos> {
        None
    }

    /// Sends the probes that are due: adds the ports with what they send.
    fn handle_timeout(&mut self, _now: Nanos, _sent: &mut Vec<(u32, Probe)>) {}

    /// A probe has arrived. `port` leads to the switch from which it came. Adds the probes to send now.
    fn handle_probe(
        &mut self,
        _now: Nanos,
        _port: u32,
        _state: PortState,
        _probe: Probe,
        _sent: &mut Vec<(u32, Probe)>,
    ) {
    }
}
