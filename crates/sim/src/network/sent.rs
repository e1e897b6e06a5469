//! How much a link has sent. Its queue counts packets when it takes them, so those that still wait are subtracted.

use crate::link::{times, LinkQueue, Quantity};
use crate::port::Port;
use crate::time::Ps;

/// What the queue of a link does not know about the packets that it has sent.
#[derive(Clone, Copy, Default)]
pub(super) struct Interruptions {
    /// Packets that waited when the link failed. They were never sent.
    lost: Quantity,
    /// Time, at the link's rate in the fabric, for the parts that were missing of the packets that were being sent
    /// when the link failed.
    cut: Ps,
    /// When the packet that was being sent at the last change of the rate has left, and its time per byte.
    old_rate: Option<(Ps, u64)>,
}

impl Interruptions {
    /// The link is about to fail: what waits is never sent, and the packet that is being sent is cut off.
    pub(super) fn note_failure(&mut self, waiting: Quantity, unfinished: Ps) {
        self.lost = self.lost + waiting;
        self.cut += unfinished;
        self.old_rate = None;
    }

    /// The rate of the link is about to change. The packet that is being sent keeps the old one: when it will have left,
    /// and its time per byte.
    pub(super) fn note_rate_change(&mut self, old_rate: (Ps, u64)) {
        self.old_rate = Some(old_rate);
    }
}

/// A link at a moment.
#[derive(Clone, Copy)]
pub(crate) struct Sending<'a> {
    queue: &'a LinkQueue,
    port: Option<&'a Port>,
    known: Interruptions,
    /// Time per byte in the fabric.
    own_ps_per_byte: u64,
    now: Ps,
}

impl<'a> Sending<'a> {
    /// A link with its port, if it has one, and its interruptions, if it had any.
    pub(super) fn new(
        queue: &'a LinkQueue,
        port: Option<&'a Port>,
        known: Option<&Interruptions>,
        own_ps_per_byte: u64,
        now: Ps,
    ) -> Sending<'a> {
        Sending { queue, port, known: known.copied().unwrap_or_default(), own_ps_per_byte, now }
    }

    /// Packets that the link has sent, and their bytes. The packet that is being sent counts as a whole.
    pub(crate) fn sent(&self) -> Quantity {
        self.queue.taken() - self.waiting() - self.known.lost
    }

    /// Packets that wait in the queue of the link.
    pub(super) fn waiting(&self) -> Quantity {
        self.queue.beginning_after(self.begun_by())
    }

    /// Time that the link would have taken, at its rate in the fabric, for what has left it of what it has `sent`. The
    /// part of the packet that is being sent counts that has left by now.
    pub(crate) fn busy(&self, sent: Quantity) -> Ps {
        times(sent.bytes, self.own_ps_per_byte).saturating_sub(self.unfinished() + self.known.cut)
    }

    /// Packets on a link wait if they seem to begin after this time. This is `now`, but a packet that is sent at an
    /// old rate has begun, and the next one begins when it has left.
    pub(super) fn begun_by(&self) -> Ps {
        self.old_rate().map_or(self.now, |(left, _)| left - 1)
    }

    /// When the packet that is being sent will have left, and its time per byte. The time is not after `now` if there is
    /// none.
    pub(super) fn rate(&self) -> (Ps, u64) {
        let ps_per_byte = self.queue.ps_per_byte();
        match (self.old_rate(), self.port) {
            (Some(old), _) => old,
            (None, Some(port)) => (self.now + port.backlog(self.now), ps_per_byte),
            (None, None) => (self.queue.leaves(self.now), ps_per_byte),
        }
    }

    /// Time, at the link's rate in the fabric, for the part of the packet being sent that has not left.
    pub(super) fn unfinished(&self) -> Ps {
        let (leaves, present) = self.rate();
        let left = leaves.saturating_sub(self.now);
        if self.own_ps_per_byte == present {
            return left;
        }
        (u128::from(left) * u128::from(self.own_ps_per_byte) / u128::from(present.max(1))) as Ps
    }

    /// When the packet that is being sent will have left, and its time per byte, if that is not the present one.
    fn old_rate(&self) -> Option<(Ps, u64)> {
        self.known.old_rate.filter(|&(left, _)| left > self.now)
    }
}
