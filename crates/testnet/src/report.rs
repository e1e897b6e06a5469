//! Durations, and what becomes of packets.

use pathloom_model::{Headers, Nanos, NodeId};

/// Durations: the least and the greatest of each.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Time of a frame on a cable.
    pub cable: (Nanos, Nanos),
    /// Time of bytes between controller and switch.
    pub channel: (Nanos, Nanos),
    /// Time that a switch takes for a message.
    pub work: (Nanos, Nanos),
    /// Maximum number of bytes that arrive at once.
    pub read: usize,
}

impl Timing {
    /// Bytes arrive at once and as they were written.
    pub const PROMPT: Timing = Timing {
        cable: (Nanos(1000), Nanos(1000)),
        channel: (Nanos(1000), Nanos(1000)),
        work: (Nanos::ZERO, Nanos::ZERO),
        read: usize::MAX,
    };
    /// Messages take up to ten times as long as frames, switches take long for each, and reads end anywhere.
    pub const SLOW: Timing = Timing {
        cable: (Nanos(100_000), Nanos(3_000_000)),
        channel: (Nanos::from_millis(1), Nanos::from_millis(15)),
        work: (Nanos::ZERO, Nanos::from_millis(30)),
        read: 100,
    };
}

/// What became of a packet, or of a copy of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It reached this host, with this tag.
    Arrived(NodeId, Option<u16>),
    /// A switch had no rule for it, or had a rule that drops it.
    Dropped(NodeId),
    /// It was sent to a cable that was unplugged or cut, by this node.
    Cut(NodeId),
    /// It was in a loop.
    Looped,
}

/// Everything that became of one packet.
#[derive(Clone, Debug)]
pub struct Report {
    /// When it was sent.
    pub sent: Nanos,
    /// Its headers.
    pub headers: Headers,
    /// Empty while it is under way; more than one if it was duplicated.
    pub fates: Vec<(Nanos, Fate)>,
    /// The switches it has entered, in order.
    pub switches: Vec<NodeId>,
}
