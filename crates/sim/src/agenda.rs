//! Events other than packet arrivals: timers, flow starts, messages, faults. They are few compared with packets, so a
//! plain heap holds them. Events that are due at the same time run in the order in which they were added.

use crate::interface::Interface;
use crate::time::{Ps, NEVER};
use pathloom_control::{Input, Output};
use pathloom_model::{Address, LinkId, NodeId};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Sender of a message to the controller. If its session or controller ends first, the message is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// A switch, and the number of its session.
    Session(NodeId, u32),
    /// The controller with this number: its solver has answered, or one of its sessions has begun or ended.
    Controller(u32),
    /// A host, or the operator of the fabric.
    Outside,
}

/// An event of the agenda.
#[derive(Debug)]
pub(crate) enum Event {
    /// The next flow of the workload starts.
    NextStart,
    /// A flow whose predecessors have finished starts.
    Start(u32),
    /// A connection's retransmission or pacing timer.
    SenderTimer { slot: u32, use_count: u32 },
    /// The timer of a sender whose receiver acknowledges packets.
    PacketTimer { slot: u32, use_count: u32 },
    /// The card of a host that sends into this link is free.
    CardFree(LinkId),
    /// The host that sends into this link may pull a packet.
    PullDue(LinkId),
    /// A host's network card has room again for a connection that may have at most two segments in it.
    CardReady { slot: u32, use_count: u32 },
    /// A connection's delayed acknowledgement.
    ReceiverTimer { slot: u32, use_count: u32 },
    /// The connection of a flow without packets is open.
    FlowReady { slot: u32, use_count: u32 },
    /// The last byte of a transfer without packets may have left its host.
    FlowDrained(u32),
    /// The last byte of a transfer without packets has arrived.
    FlowArrived(u32),
    /// The lease of a hold ends.
    LeaseOver { slot: u32, use_count: u32 },
    /// The first window of a transfer under way has left.
    FirstWindowSent { slot: u32, use_count: u32 },
    /// A transfer over several streams has waited too long for its paths.
    PathsOverdue(u32),
    /// A message of the controller reaches a switch or a host.
    Deliver { output: Box<Output>, session: u32 },
    /// A switch has carried out a message.
    Apply { output: Box<Output>, session: u32 },
    /// A message reaches the controller.
    Inform { input: Box<Input>, origin: Origin },
    /// The controller with this number has handled the messages that it took from the head of its queue.
    Served { controller: u32 },
    /// The controller writes its snapshot.
    WriteSnapshot,
    /// The controller's own timer.
    ControllerTimer,
    /// Rules of a switch may time out.
    Sweep(NodeId),
    /// The timer of a switch's program.
    ProgramTimer(NodeId),
    /// The balancer of a switch sends probes.
    Probe(NodeId),
    /// The number of entries in the tables of programs is sampled.
    SampleTables,
    /// An interface checks whether its ARP request for this address was answered.
    ArpRetry { interface: Interface, address: Address },
    /// The controller's load is measured.
    MeasureLoad,
    /// An entry of the fault schedule.
    Fault(u32),
    /// Arrivals stop and long-lived flows end.
    EndOfArrivals,
}

impl Event {
    /// Whether the event concerns only hosts and is of a frequent kind.
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

impl Item {
    /// Order of the items. One number is compared faster than two, and the heap spends its time on comparisons.
    #[inline]
    fn key(&self) -> u128 {
        u128::from(self.at) << 64 | u128::from(self.sequence)
    }
}

impl PartialEq for Item {
    fn eq(&self, other: &Item) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Item {}

impl PartialOrd for Item {
    fn partial_cmp(&self, other: &Item) -> Option<Ordering> {
        Some(self.cmp(other))
    }

    // The heap calls this one. The default goes through `partial_cmp`.
    #[inline]
    fn le(&self, other: &Item) -> bool {
        self.key() >= other.key()
    }
}

impl Ord for Item {
    /// Reversed, because the heap returns the greatest item first and the earliest is needed.
    fn cmp(&self, other: &Item) -> Ordering {
        other.key().cmp(&self.key())
    }
}

pub(crate) struct Agenda {
    heap: BinaryHeap<Item>,
    sequence: u64,
    /// Time of the next event. It is a separate field because it is read once per packet-hop.
    next_at: Ps,
    /// Whether [`Agenda::halt`] has been called: no event happens any more.
    halted: bool,
    /// Whether no event happens for now: [`Agenda::halt`] or [`Agenda::pause`] has been called.
    stopped: bool,
    /// Number of events taken out so far.
    pub(crate) taken: u64,
}

impl Default for Agenda {
    fn default() -> Agenda {
        Agenda { heap: BinaryHeap::new(), sequence: 0, next_at: NEVER, halted: false, stopped: false, taken: 0 }
    }
}

impl Agenda {
    pub(crate) fn push(&mut self, at: Ps, event: Event) {
        self.sequence += 1;
        self.heap.push(Item { at, sequence: self.sequence, event });
        self.next_at = self.next_at.min(at);
    }

    /// Time of the next event.
    #[inline]
    pub(crate) fn next_at(&self) -> Ps {
        self.next_at
    }

    /// Time of the next event that is not a frequent event of hosts (`Event::is_of_hosts`). Examines all events.
    pub(crate) fn next_of_others(&self) -> Ps {
        self.heap.iter().filter(|item| !item.event.is_of_hosts()).map(|item| item.at).min().unwrap_or(NEVER)
    }

    /// Moves the timers of connections and cards by `by`. The other events keep their times.
    pub(crate) fn translate(&mut self, by: Ps) {
        let mut items = std::mem::take(&mut self.heap).into_vec();
        let is_of_connections = |event: &Event| event.is_of_hosts() && !matches!(event, Event::NextStart);
        items.iter_mut().filter(|item| is_of_connections(&item.event)).for_each(|item| item.at += by);
        self.heap = items.into();
        if !self.stopped {
            self.next_at = self.heap.peek().map_or(NEVER, |next| next.at);
        }
    }

    /// Removes all events, so that nothing happens any more. [`Agenda::next_at`] then returns 0, a time in the past.
    pub(crate) fn halt(&mut self) {
        self.heap.clear();
        (self.halted, self.stopped) = (true, true);
        self.next_at = 0;
    }

    /// Lets no event happen until [`Agenda::resume`]. [`Agenda::next_at`] returns 0 meanwhile, so that the main loop ends
    /// with the event that it handles.
    pub(crate) fn pause(&mut self) {
        self.stopped = true;
        self.next_at = 0;
    }

    /// Lets events happen again after a pause. Changes nothing after [`Agenda::halt`].
    pub(crate) fn resume(&mut self) {
        self.stopped = self.halted;
        self.next_at = if self.halted { 0 } else { self.heap.peek().map_or(NEVER, |next| next.at) };
    }

    /// Whether no event happens for now.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped
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
