//! Deployment of a program on every switch of a fabric, with the matching behaviour of hosts.

use crate::programs::Identity;
use crate::Program;
use pathloom_model::Nanos;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Creates the program of a switch that starts at this time.
pub type MakeProgram = dyn Fn(Nanos, Identity) -> Box<dyn Program + Send> + Send + Sync;

/// A program on every switch of a fabric, and the behaviour of the hosts.
#[derive(Clone)]
pub struct Deployment {
    /// Creates the program of a switch. All ports of the switch are down.
    pub make: Arc<MakeProgram>,
    /// How long hosts keep addresses that they have resolved by ARP. With 0, each connection sends a request.
    pub arp_age: Nanos,
    /// Time after which a host repeats an ARP request without an answer.
    pub arp_retry: Nanos,
    /// Longest time that a switch needs to forward a message between switches. The time of each message is uniformly
    /// random. Without this jitter, copies of an exploration that meet no queue arrive at the same time, and the order
    /// of ports determines the path.
    pub jitter: Nanos,
    /// The transfers that hosts mark as elephants, if any.
    pub elephants: Option<Marking>,
}

impl fmt::Debug for Deployment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deployment")
            .field("arp_age", &self.arp_age)
            .field("arp_retry", &self.arp_retry)
            .field("jitter", &self.jitter)
            .field("elephants", &self.elephants)
            .finish_non_exhaustive()
    }
}

/// The transfers that hosts mark as elephants, and the kind of mark.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Marking {
    /// Hosts mark transfers of more than this number of bytes, and transfers without end.
    pub above_bytes: u64,
    /// The mark.
    pub mark: Mark,
}

impl Marking {
    /// Whether hosts mark a transfer of this size. `None` is a transfer without end.
    pub fn include(&self, size_bytes: Option<u64>) -> bool {
        size_bytes.is_none_or(|size| size > self.above_bytes)
    }
}

/// The mark by which switches recognise elephants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mark {
    /// A source port in this range, which other transfers do not use.
    SourcePorts(RangeInclusive<u16>),
    /// This differentiated-services code point.
    Dscp(u8),
}
