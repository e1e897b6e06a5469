//! Everything that happens but is not a packet's arrival: timers, flow starts, messages, faults. Few beside packets, so a
//! plain heap holds them. Events of one instant run in the order in which they were put in.

use crate::interface::Interface;
use crate::time::{Ps, NEVER};
use pathloom_control::{Input, Output};
use pathloom_model::NodeId;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::net::Ipv4Addr;

/// Where a message to the controller comes from. It is lost with that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// A switch, in its session of this number.
    Session(NodeId, u32),
    /// The controller of this number itself: its solver answers, or a session of it has begun or ended.
    Controller(u32),
    /// A host, or whoever operates the fabric.
    Outside,
}

/// Something due.
#[derive(Debug)]
pub(crate) enum Event {
    /// The next flow of the workload starts.
    NextStart,
    /// A flow whose predecessors have finished starts.
    Start(u32),
    /// A connection's retransmission or pacing timer.
    SenderTimer { slot: u32, use_count: u32 },
    /// A host's card has room again for a connection that may have two segments there at a time.
    CardReady { slot: u32, use_count: u32 },
    /// A connection's delayed acknowledgement.
    ReceiverTimer { slot: u32, use_count: u32 },
    /// A hold's lease is over.
    LeaseOver { slot: u32, use_count: u32 },
    /// A transfer over several streams has waited for its paths for long enough.
    PathsOverdue(u32),
    /// A message of the controller reaches a switch or a host.
    Deliver { output: Box<Output>, session: u32 },
    /// A switch has carried out a message.
    Apply { output: Box<Output>, session: u32 },
    /// A message reaches the controller.
    Inform { input: Box<Input>, origin: Origin },
    /// The controller, the one of this number, has dealt with what it took from the head of its queue.
    Served { controller: u32 },
    /// The controller writes its snapshot.
    Keep,
    /// The controller's own timer.
    ControllerTimer,
    /// Rules of a switch may time out.
    Sweep(NodeId),
    /// The timer of a switch's program.
    ProgramTimer(NodeId),
    /// The tables of programs are looked at.
    SampleTables,
    /// An interface has waited for an answer to its ARP request for the address.
    ArpRetry { interface: Interface, address: Ipv4Addr },
    /// The controller's load is measured.
    MeasureLoad,
    /// An entry of the fault schedule.
    Fault(u32),
    /// Arrivals stop and long-lived flows end.
    EndOfArrivals,
}

impl Event {
    /// Whether it concerns the hosts alone, and is one of those that come by the thousand.
    fn is_of_hosts(&self) -> bool {
        matches!(
            self,
            Event::NextStart | Event::SenderTimer { .. } | Event::CardReady { .. } | Event::ReceiverTimer { .. }
        )
    }
}

struct Item {
    at: Ps,
    sequence: u64,
    event: Event,
}

impl PartialEq for Item {
    fn eq(&self, other: &Item) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Item {}

impl PartialOrd for Item {
    fn partial_cmp(&self, other: &Item) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Item {
    /// Reversed: the heap's greatest is the earliest.
    fn cmp(&self, other: &Item) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

pub(crate) struct Agenda {
    heap: BinaryHeap<Item>,
    sequence: u64,
    /// When the next event is due, kept apart because it is read once per packet-hop.
    next_at: Ps,
    /// Whether nothing is to happen any more.
    halted: bool,
    /// Events taken out so far.
    pub(crate) taken: u64,
}

impl Default for Agenda {
    fn default() -> Agenda {
        Agenda { heap: BinaryHeap::new(), sequence: 0, next_at: NEVER, halted: false, taken: 0 }
    }
}

impl Agenda {
    pub(crate) fn push(&mut self, at: Ps, event: Event) {
        self.sequence += 1;
        self.heap.push(Item { at, sequence: self.sequence, event });
        self.next_at = self.next_at.min(at);
    }

    /// When the next event is due.
    #[inline]
    pub(crate) fn next_at(&self) -> Ps {
        self.next_at
    }

    /// When the next event is due that concerns more than hosts. Looks at all events.
    pub(crate) fn next_of_others(&self) -> Ps {
        self.heap.iter().filter(|item| !item.event.is_of_hosts()).map(|item| item.at).min().unwrap_or(NEVER)
    }

    /// Nothing is to happen any more: whoever asks when the next event is due is told that it was due long ago.
    pub(crate) fn halt(&mut self) {
        self.heap.clear();
        self.halted = true;
        self.next_at = 0;
    }

    /// Whether [`Agenda::halt`] has been called.
    pub(crate) fn is_halted(&self) -> bool {
        self.halted
    }

    pub(crate) fn pop(&mut self) -> Option<(Ps, Event)> {
        let item = self.heap.pop()?;
        self.taken += 1;
        self.next_at = self.heap.peek().map_or(NEVER, |next| next.at);
        Some((item.at, item.event))
    }
}
