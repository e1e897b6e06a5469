//! Multipath TCP (RFC 8684): one stream of bytes over several subflows, each of them a TCP connection.
//!
//! [`Connection`] is the sending end. It hands the bytes of the stream out to the subflows that can send, remembers which
//! byte of which subflow stands for which byte of the stream (the mappings of RFC 8684 §3.3), couples the windows, and hands
//! out again what a subflow whose path died has outstanding. [`Reassembly`] is the receiving end. Neither has a clock or
//! knows addresses: the subflows' senders and receivers keep their own timers, and a driver goes between them:
//!
//! 1. A subflow's [`Sender`] is made by [`Sender::without_data`]. When it has nothing to send and has room ([`Sender::room_bytes`]),
//!    [`Connection::assign`] gives it a chunk, which the driver passes on by [`Sender::extend`].
//! 2. Around every acknowledgement of a subflow the driver calls [`Connection::prepare`] and [`Connection::handle_ack`],
//!    after its timer [`Connection::handle_timeout`].
//! 3. What a subflow's receiver has delivered in order, [`Connection::take_in`] turns into ranges of the stream, as the DSS
//!    options of those segments would, and adds to the [`Reassembly`].
//!
//! Simplified: acknowledgements of the stream (DATA_ACK) have no number of their own. The sender infers them from those of
//! the subflows, which say the same, for a receiver keeps what it has taken. There are no backup subflows, no checksums, and no
//! retransmission that only makes a slow subflow give way.

mod coupling;
mod mapping;
mod settings;
mod stream;
#[cfg(test)]
mod tests;

pub use settings::{Coupling, MptcpSettings, PathManager, Scheduler, MOST_SUBFLOWS};
pub use stream::Reassembly;

use crate::Sender;
use coupling::Path;
use mapping::Mappings;
use std::collections::VecDeque;
use stream::{Near, Prefix, MOST_WINDOW};

/// The longest chunk of new data, in segments. Long ones save work, but what a subflow has been given waits for it.
const MOST_CHUNK_SEGMENTS: u64 = 16;

/// The sending end of a connection.
#[derive(Clone, Debug)]
pub struct Connection {
    mss: u64,
    /// One past the last byte of the stream; `u64::MAX` if it has no end.
    size: u64,
    /// First byte of the stream that was never handed out.
    next: u64,
    /// What of the stream has been acknowledged by any subflow.
    acked: Prefix,
    receive_window: u64,
    scheduler: Scheduler,
    coupling: Coupling,
    subflows: Vec<Subflow>,
    /// What has to be sent again, and by which subflow it was sent in vain.
    again: VecDeque<Again>,
    /// Bytes handed out a second time.
    reinjected: u64,
    /// Subflow whose turn is next (round robin).
    turn: usize,
    /// Something was withheld from a subflow that had room: there was nothing to hand out, or the receiver had no room.
    starved: bool,
}

/// What the connection knows of a subflow.
#[derive(Clone, Debug, Default)]
struct Subflow {
    mappings: Mappings,
    path: Path,
    /// Its timer has expired, and nothing has been acknowledged since.
    stalled: bool,
    /// Where its bytes went last, at the sending end and at the receiving one.
    near_acked: Near,
    near_taken: Near,
}

/// A range of the stream that is to be sent again, by another subflow than this one.
#[derive(Clone, Copy, Debug)]
struct Again {
    start: u64,
    end: u64,
    not_by: usize,
}

impl Connection {
    /// A connection of `size_bytes`, or of data without end, with no subflow yet.
    pub fn new(settings: &MptcpSettings, size_bytes: Option<u64>) -> Connection {
        let mss = u64::from(settings.tcp.mss_bytes);
        Connection {
            mss,
            size: size_bytes.unwrap_or(u64::MAX),
            next: 0,
            acked: Prefix::default(),
            receive_window: settings.tcp.receive_window_bytes.clamp(mss, MOST_WINDOW),
            scheduler: settings.scheduler,
            coupling: settings.coupling,
            subflows: Vec::new(),
            again: VecDeque::new(),
            reinjected: 0,
            turn: 0,
            starved: false,
        }
    }

    /// Adds a subflow. Subflows are numbered from 0 on.
    pub fn join(&mut self) -> usize {
        self.subflows.push(Subflow::default());
        self.subflows.len() - 1
    }

    /// Whether every byte of the stream has been acknowledged.
    pub fn is_finished(&self) -> bool {
        self.acked.next >= self.size
    }

    /// Bytes of the stream that were handed out a second time, because the subflow that had them was cut off.
    pub fn reinjected_bytes(&self) -> u64 {
        self.reinjected
    }

    /// A subflow that has sent all it was given has room for so many bytes: hands it the next chunk, of as much or less, by
    /// which its sender is to be extended. `None` if there is nothing for it, or it is cut off: until an acknowledgement tells that its
    /// path lives, it gets nothing new.
    pub fn assign(&mut self, subflow: usize, room_bytes: u64) -> Option<u64> {
        if self.subflows[subflow].stalled || room_bytes < self.mss {
            return None;
        }
        let again = if self.again.is_empty() { None } else { self.take_again(subflow) };
        let Some((start, end)) = again.or_else(|| self.take_new(room_bytes)) else {
            self.starved = true;
            return None;
        };
        self.subflows[subflow].mappings.push(start, end - start);
        Some(end - start)
    }

    /// Whether there is something to hand out.
    fn has_work(&self) -> bool {
        !self.again.is_empty() || self.has_new()
    }

    /// Whether there is more of the stream, and room for a segment of it at the receiver.
    fn has_new(&self) -> bool {
        let end = self.size.min(self.next + self.mss);
        self.next < end && end <= self.acked.next + self.receive_window
    }

    /// What has to be sent again goes first: the receiver waits for it.
    fn take_again(&mut self, subflow: usize) -> Option<(u64, u64)> {
        let mut place = 0;
        while let Some(entry) = self.again.get_mut(place) {
            if entry.not_by == subflow {
                place += 1;
                continue;
            }
            let missing = self.acked.first_missing(entry.start, entry.end);
            let taken = missing.map(|(start, end)| (start, end.min(start + self.mss)));
            match taken {
                Some((_, end)) if end < entry.end => entry.start = end,
                _ => {
                    self.again.remove(place);
                }
            }
            if let Some((start, end)) = taken {
                self.reinjected += end - start;
                return taken;
            }
        }
        None
    }

    /// RFC 8684 §3.3.4: the receive window is that of the connection.
    fn take_new(&mut self, room_bytes: u64) -> Option<(u64, u64)> {
        if !self.has_new() {
            return None;
        }
        let start = self.next;
        let most = if self.scheduler == Scheduler::RoundRobin { self.mss } else { MOST_CHUNK_SEGMENTS * self.mss };
        let window = self.acked.next + self.receive_window - start;
        let fits = window.min(room_bytes).min(most);
        // Whole segments, unless it is the end.
        let whole = if fits < 2 * self.mss { self.mss } else { fits - fits % self.mss };
        let end = self.size.min(start + whole);
        self.next = end;
        Some((start, end))
    }

    /// An acknowledgement for a subflow is about to be handed to its sender.
    #[inline]
    pub fn prepare(&self, subflow: usize, sender: &mut Sender) {
        if self.coupling != Coupling::Uncoupled {
            sender.set_growth(self.subflows[subflow].path.growth);
        }
    }

    /// The sender of a subflow has dealt with an acknowledgement. Tells whether other subflows are to be asked whether they
    /// have something to send now.
    pub fn handle_ack(&mut self, subflow: usize, sender: &Sender) -> bool {
        let una = sender.acked_bytes();
        let one = &mut self.subflows[subflow];
        let (acked, near) = (&mut self.acked, &mut one.near_acked);
        let progress = one.mappings.acknowledge(una, |start, end| acked.insert(near, start, end));
        if progress > 0 && std::mem::take(&mut one.stalled) {
            // It goes on by itself.
            self.again.retain(|entry| entry.not_by != subflow);
        }
        if one.path.update(sender, progress, self.mss) && self.coupling != Coupling::Uncoupled {
            self.couple();
        }
        let go_on = progress > 0 && self.starved && self.has_work();
        self.starved &= !go_on;
        go_on
    }

    /// The retransmission timer of a subflow has expired: what it has outstanding is for the others, once for each time
    /// that the subflow is cut off. Tells whether others are to be asked whether they can send.
    pub fn handle_timeout(&mut self, subflow: usize, sender: &Sender) -> bool {
        let one = &mut self.subflows[subflow];
        one.path.lose(sender);
        // A SYN that is not answered cuts nothing off.
        if one.stalled || one.mappings.outstanding().next().is_none() {
            return false;
        }
        one.stalled = true;
        for (start, end) in one.mappings.outstanding() {
            if self.acked.first_missing(start, end).is_some() {
                self.again.push_back(Again { start, end, not_by: subflow });
            }
        }
        self.couple();
        !self.again.is_empty()
    }

    fn couple(&mut self) {
        coupling::couple(self.coupling, self.mss as f64, &mut self.subflows);
    }

    /// A subflow's receiver has delivered its bytes from `start` on and before `end`: adds those of the stream that they stand
    /// for. Bytes of a subflow come in order, and before they are acknowledged.
    #[inline]
    pub fn take_in(&mut self, subflow: usize, start: u64, end: u64, reassembly: &mut Reassembly) {
        let Subflow { mappings, near_taken, .. } = &mut self.subflows[subflow];
        mappings.take(start, end, |start, end| reassembly.insert(near_taken, start, end));
    }

    /// The ranges of the stream that a subflow's bytes from `start` on and before `end` stand for. They must not have been
    /// acknowledged yet.
    pub fn mapping(&self, subflow: usize, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.subflows[subflow].mappings.pieces(start, end)
    }

    /// The subflows in the order in which they are to be asked whether they can send, by number: the least round-trip time
    /// first, or in turn. The driver gives each of them as much as it can take, or one chunk where they take turns
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

    /// How subflows are chosen.
    pub fn scheduler(&self) -> Scheduler {
        self.scheduler
    }
}
