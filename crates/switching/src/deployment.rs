//! A program on every switch of a fabric, and what the hosts of the fabric do.

use crate::programs::Identity;
use crate::Program;
use pathloom_model::Nanos;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Makes the program of a switch that starts at this time.
pub type MakeProgram = dyn Fn(Nanos, Identity) -> Box<dyn Program + Send> + Send + Sync;

/// A program on every switch of a fabric, and what the hosts of the fabric do.
#[derive(Clone)]
pub struct Deployment {
    /// Makes the program of a switch, whose ports are down.
    pub make: Arc<MakeProgram>,
    /// How long hosts keep addresses that they have resolved by ARP. For 0, each connection sends a request.
    pub arp_age: Nanos,
    /// A switch takes up to this long, drawn evenly, for each message between switches that it passes on. Without it, copies of
    /// an exploration that meet no queue arrive at one instant, and the order of ports would choose the path.
    pub jitter: Nanos,
    /// What hosts mark as elephants, if anything.
    pub elephants: Option<Marking>,
}

impl fmt::Debug for Deployment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deployment")
            .field("arp_age", &self.arp_age)
            .field("jitter", &self.jitter)
            .field("elephants", &self.elephants)
            .finish_non_exhaustive()
    }
}

/// Transfers that hosts mark.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Marking {
    /// Transfers of more than these bytes, and those without end.
    pub above_bytes: u64,
    /// How they are marked.
    pub mark: Mark,
}

impl Marking {
    /// Whether a transfer of this size is one; `None` is a transfer without end.
    pub fn include(&self, size_bytes: Option<u64>) -> bool {
        size_bytes.is_none_or(|size| size > self.above_bytes)
    }
}

/// How hosts mark elephants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mark {
    /// By a source port of this range, which other transfers do not use.
    SourcePorts(RangeInclusive<u16>),
    /// By this differentiated-services code point.
    Dscp(u8),
}
