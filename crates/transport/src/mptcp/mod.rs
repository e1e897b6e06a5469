//! Multipath TCP (RFC 8684): one stream of bytes over several subflows, each of them a TCP connection.
//!
//! [`Connection`] is the sending end. It assigns the bytes of the stream to subflows that can send, and records which
//! byte of a subflow carries which byte of the stream (the mappings of RFC 8684 §3.3). It couples the windows, and
//! reassigns the unacknowledged bytes of a subflow whose path has failed. [`Reassembly`] is the receiving end.
//! Neither has a clock or addresses. The senders and receivers of the subflows have timers, and a driver connects
//! them:
//!
//! 1. [`Sender::without_data`] creates the [`Sender`] of a subflow. When it has nothing to send and has room
//!    ([`Sender::room_bytes`]), [`Connection::assign`] returns the length of a chunk. The driver adds the chunk by
//!    [`Sender::extend`].
//! 2. For every acknowledgement of a subflow, the driver calls [`Connection::prepare`] before the sender handles it,
//!    and [`Connection::handle_ack`] and [`Connection::tune_receive_window`] afterwards. After an expired timer, it calls [`Connection::handle_timeout`].
//! 3. [`Connection::deliver`] converts the bytes that a subflow's receiver has delivered in order to ranges of the
//!    stream, as the DSS options of those segments would, and adds them to the [`Reassembly`].
//!
//! Simplified: acknowledgements of the stream (DATA_ACK) are not separate. The sender infers them from the
//! acknowledgements of the subflows. These are equivalent, because a receiver keeps all data that it has accepted.
//! There are no backup subflows and no checksums.

mod coupling;
mod mapping;
mod settings;
mod stream;
#[cfg(test)]
mod tests;

pub use settings::{Coupling, MptcpSettings, PathManager, Scheduler, MOST_SUBFLOWS};
pub(crate) use settings::{KEYS, NAME};
pub use stream::Reassembly;

use crate::right_sizing::RightSizing;
use crate::Sender;
use coupling::Path;
use mapping::Mappings;
use pathloom_model::Nanos;
use std::collections::VecDeque;
use stream::{PositionHint, Prefix, MOST_WINDOW};

/// Longest chunk of new data, in segments. Long chunks reduce work, but data assigned to a subflow must wait for it.
const MOST_CHUNK_SEGMENTS: u64 = 16;

/// The sending end of a connection.
#[derive(Clone, Debug)]
pub struct Connection {
    mss: u64,
    /// One past the last byte of the stream; `u64::MAX` if the stream has no end.
    size: u64,
    /// First byte of the stream that was never assigned.
    next: u64,
    /// Bytes of the stream that any subflow has acknowledged.
    acked: Prefix,
    receive_window: u64,
    /// How the receiver tunes its window, if it does.
    sizing: Option<Box<RightSizing>>,
    scheduler: Scheduler,
    coupling: Coupling,
    subflows: Vec<Subflow>,
    /// Ranges to send again, each with the subflow that sent it without success.
    reinjections: VecDeque<Reinjection>,
    /// Number of bytes assigned a second time.
    reinjected: u64,
    /// Next subflow in turn (round robin).
    turn: usize,
    /// The subflow whose window the driver must halve ([`Connection::take_penalised`]).
    penalised: Option<usize>,
    /// Whether a subflow with room got nothing, because there was no data or the receiver had no room.
    starved: bool,
}

/// A subflow is slower than another if its round-trip time is more than this many times as long. On equal paths,
/// round-trip times differ by less.
const SLOWER: u64 = 2;

/// The state of a subflow in its connection.
#[derive(Clone, Debug, Default)]
struct Subflow {
    mappings: Mappings,
    path: Path,
    /// Whether the timer of the subflow has expired and nothing has been acknowledged since.
    stalled: bool,
    /// One past the last byte of the subflow that other subflows send again because the receiver has no room.
    handed_over: u64,
    /// One past the last byte that was assigned when the window was halved last. Another round trip has passed once
    /// it is acknowledged.
    penalised_at: u64,
    /// Hints where the last bytes of the subflow were inserted, at the sending end and at the receiving end.
    acked_hint: PositionHint,
    delivered_hint: PositionHint,
}

impl Subflow {
    /// Whether this byte of the stream is part of what the subflow has not had acknowledged, and was not handed over.
    fn holds_up(&self, byte: u64) -> bool {
        self.mappings.outstanding_from(self.handed_over).any(|(start, end)| (start..end).contains(&byte))
    }
}

/// A range of the stream that must be sent again, by a subflow other than `not_by`.
#[derive(Clone, Copy, Debug)]
struct Reinjection {
    start: u64,
    end: u64,
    not_by: usize,
}

impl Connection {
    /// Creates a connection of `size_bytes`, or with endless data if `None`, without subflows.
    pub fn new(settings: &MptcpSettings, size_bytes: Option<u64>) -> Connection {
        let mss = u64::from(settings.tcp.mss_bytes);
        let sizing = settings.tcp.right_sizing();
        let receive_window = sizing.as_ref().map_or(settings.tcp.receive_window_bytes, |sizing| sizing.window());
        Connection {
            mss,
            size: size_bytes.unwrap_or(u64::MAX),
            next: 0,
            acked: Prefix::default(),
            receive_window: receive_window.clamp(mss, MOST_WINDOW),
            sizing,
            scheduler: settings.scheduler,
            coupling: settings.coupling,
            subflows: Vec::new(),
            reinjections: VecDeque::new(),
            reinjected: 0,
            turn: 0,
            penalised: None,
            starved: false,
        }
    }

    /// Adds a subflow, and returns its number. Subflows are numbered from 0.
    pub fn join(&mut self) -> usize {
        self.subflows.push(Subflow::default());
        self.subflows.len() - 1
    }

    /// Whether every byte of the stream has been acknowledged.
    pub fn is_finished(&self) -> bool {
        self.acked.next >= self.size
    }

    /// Moves the times of the connection by `by`, and brings the end of its stream nearer by `bytes`. The driver translates
    /// its subflows. Returns whether that many bytes are left: if not, nothing changes.
    pub fn translate(&mut self, by: Nanos, bytes: u64) -> bool {
        if let Some(unassigned) = self.unassigned_bytes() {
            if bytes >= unassigned && bytes > 0 {
                return false;
            }
            self.size -= bytes;
        }
        if let Some(sizing) = &mut self.sizing {
            sizing.translate(by);
        }
        true
    }

    /// Bytes of the stream that no subflow has been given; `None` if the stream has no end.
    pub fn unassigned_bytes(&self) -> Option<u64> {
        (self.size != u64::MAX).then(|| self.size.saturating_sub(self.next))
    }

    /// Returns the number of bytes of the stream that were assigned a second time, because their subflow was cut off.
    pub fn reinjected_bytes(&self) -> u64 {
        self.reinjected
    }

    /// Assigns the next chunk to a subflow that has sent all its data and has room for `room_bytes`. Returns the
    /// length of the chunk, at most `room_bytes`, by which the driver must extend the sender. `None` if there is no
    /// data for the subflow, or if it is cut off: it gets no new data until an acknowledgement shows that its path
    /// works.
    pub fn assign(&mut self, subflow: usize, room_bytes: u64) -> Option<u64> {
        if self.subflows[subflow].stalled || room_bytes < self.mss {
            return None;
        }
        let chunk = self.take_reinjection(subflow).or_else(|| self.take_new(room_bytes));
        let chunk = chunk.or_else(|| if self.hand_over(subflow) { self.take_reinjection(subflow) } else { None });
        let Some((start, end)) = chunk else {
            self.starved = true;
            return None;
        };
        self.subflows[subflow].mappings.push(start, end - start);
        Some(end - start)
    }

    /// Whether there is data to assign.
    fn has_work(&self) -> bool {
        !self.reinjections.is_empty() || self.has_new()
    }

    /// Whether the stream has more data, and the receiver has room for a segment of it.
    fn has_new(&self) -> bool {
        let end = self.size.min(self.next + self.mss);
        self.next < end && end <= self.acked.next + self.receive_window
    }

    /// Returns data to send again. Such data goes first, because the receiver waits for it.
    fn take_reinjection(&mut self, subflow: usize) -> Option<(u64, u64)> {
        let mut place = 0;
        while let Some(entry) = self.reinjections.get_mut(place) {
            if entry.not_by == subflow {
                place += 1;
                continue;
            }
            let missing = self.acked.first_missing(entry.start, entry.end);
            let taken = missing.map(|(start, end)| (start, end.min(start + self.mss)));
            match taken {
                Some((_, end)) if end < entry.end => entry.start = end,
                _ => {
                    self.reinjections.remove(place);
                }
            }
            if let Some((start, end)) = taken {
                self.reinjected += end - start;
                return taken;
            }
        }
        None
    }

    /// Returns new data. RFC 8684 §3.3.4: the receive window is that of the connection.
    fn take_new(&mut self, room_bytes: u64) -> Option<(u64, u64)> {
        if !self.has_new() {
            return None;
        }
        let start = self.next;
        let most = if self.scheduler == Scheduler::RoundRobin { self.mss } else { MOST_CHUNK_SEGMENTS * self.mss };
        let window = self.acked.next + self.receive_window - start;
        let fits = window.min(room_bytes).min(most);
        // Whole segments, except at the end of the stream.
        let whole = if fits < 2 * self.mss { self.mss } else { fits - fits % self.mss };
        let end = self.size.min(start + whole);
        self.next = end;
        Some((start, end))
    }

    /// Subflow `to` has room, but the receiver has none, because it waits for data of a slower subflow: its data that
    /// was not handed over before will be sent by the others, and its window is halved once per round trip
    /// (opportunistic retransmission and penalisation: Raiciu et al., How Hard Can It Be?, NSDI 2012, §4.2). Returns
    /// whether there is such a subflow.
    fn hand_over(&mut self, to: usize) -> bool {
        if self.next >= self.size {
            return false;
        }
        let (missing, limit) = (self.acked.next, self.subflows[to].path.rtt.0.saturating_mul(SLOWER));
        let Some(slow) = self.subflows.iter().position(|one| one.path.rtt.0 > limit && one.holds_up(missing)) else {
            return false;
        };
        let one = &mut self.subflows[slow];
        for (start, end) in one.mappings.outstanding_from(one.handed_over) {
            if self.acked.first_missing(start, end).is_some() {
                self.reinjections.push_back(Reinjection { start, end, not_by: slow });
            }
        }
        one.handed_over = one.mappings.end();
        if one.mappings.una() >= one.penalised_at {
            one.penalised_at = one.mappings.end();
            self.penalised = Some(slow);
        }
        true
    }

    /// Returns the subflow whose window the driver must halve ([`Sender::penalise`]), once. The driver asks after
    /// each [`Connection::assign`].
    pub fn take_penalised(&mut self) -> Option<usize> {
        self.penalised.take()
    }

    /// Prepares the sender of a subflow for an acknowledgement that it is about to handle.
    #[inline]
    pub fn prepare(&self, subflow: usize, sender: &mut Sender) {
        if self.coupling != Coupling::Uncoupled {
            sender.set_growth(self.subflows[subflow].path.growth);
        }
    }

    /// Updates the connection after the sender of a subflow has handled an acknowledgement. Returns whether the
    /// driver must now ask other subflows for data to send.
    pub fn handle_ack(&mut self, subflow: usize, sender: &Sender) -> bool {
        let una = sender.acked_bytes();
        let one = &mut self.subflows[subflow];
        let (acked, hint) = (&mut self.acked, &mut one.acked_hint);
        let progress = one.mappings.acknowledge(una, |start, end| acked.insert(hint, start, end));
        if progress > 0 && std::mem::take(&mut one.stalled) {
            // The subflow recovers its data itself.
            self.reinjections.retain(|entry| entry.not_by != subflow);
        }
        if one.path.update(sender, progress, self.mss) && self.coupling != Coupling::Uncoupled {
            self.couple();
        }
        let go_on = progress > 0 && self.starved && self.has_work();
        self.starved &= !go_on;
        go_on
    }

    /// Lets the receiver tune its window, after an acknowledgement. Its round trip is the longest one of all subflows, as
    /// in Linux.
    #[inline]
    pub fn tune_receive_window(&mut self, now: Nanos) {
        if let Some(sizing) = &mut self.sizing {
            let known = self.subflows.iter().map(|one| one.path.rtt).filter(|&rtt| rtt < Path::UNKNOWN);
            let grown = known.max().and_then(|longest| sizing.measure(now, longest, self.acked.next));
            self.receive_window = grown.map_or(self.receive_window, |bytes| bytes.min(MOST_WINDOW));
        }
    }

    /// Handles an expired retransmission timer of a subflow: its unacknowledged bytes are assigned to the other
    /// subflows, once per interruption of the subflow. Returns whether the driver must ask other subflows for data to
    /// send.
    pub fn handle_timeout(&mut self, subflow: usize, sender: &Sender) -> bool {
        let one = &mut self.subflows[subflow];
        one.path.lose(sender);
        // An unanswered SYN leaves no data behind.
        if one.stalled || one.mappings.outstanding().next().is_none() {
            return false;
        }
        one.stalled = true;
        for (start, end) in one.mappings.outstanding() {
            if self.acked.first_missing(start, end).is_some() {
                self.reinjections.push_back(Reinjection { start, end, not_by: subflow });
            }
        }
        self.couple();
        !self.reinjections.is_empty()
    }

    fn couple(&mut self) {
        coupling::couple(self.coupling, self.mss as f64, &mut self.subflows);
    }

    /// Handles the bytes from `start` up to `end` that a subflow's receiver has delivered, and adds their ranges of
    /// the stream to `reassembly`. The bytes of a subflow must come in order, and before they are acknowledged.
    #[inline]
    pub fn deliver(&mut self, subflow: usize, start: u64, end: u64, reassembly: &mut Reassembly) {
        let Subflow { mappings, delivered_hint, .. } = &mut self.subflows[subflow];
        mappings.take(start, end, |start, end| reassembly.insert(delivered_hint, start, end));
    }

    /// Returns the ranges of the stream for a subflow's bytes from `start` up to `end`. The bytes must not be
    /// acknowledged yet.
    pub fn mapping(&self, subflow: usize, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.subflows[subflow].mappings.pieces(start, end)
    }

    /// Writes the numbers of the subflows to `order`, in the order in which the driver must ask them for data: by
    /// round-trip time, or in turn. The driver assigns as much as each subflow can take, or one chunk per turn
    /// ([`Scheduler::chunks`]).
    pub fn order(&mut self, order: &mut Vec<usize>) {
        let count = self.subflows.len();
        order.clear();
        match self.scheduler {
            Scheduler::LowestRtt => {
                order.extend(0..count);
                order.sort_by_key(|&one| (self.subflows[one].stalled, self.subflows[one].path.rtt));
            }
            Scheduler::RoundRobin => {
                order.extend((0..count).map(|step| (self.turn + step) % count));
                self.turn = (self.turn + 1) % count.max(1);
            }
        }
    }

    /// Returns how subflows are selected.
    pub fn scheduler(&self) -> Scheduler {
        self.scheduler
    }
}
