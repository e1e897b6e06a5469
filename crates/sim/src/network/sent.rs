//! How much the links have sent. A queue counts packets when it takes them, so those that still wait are subtracted.

use super::Network;
use crate::link::{ps_per_byte, times, Quantity};
use crate::tap::Tap;
use crate::time::Ps;
use pathloom_model::LinkId;

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

impl<T: Tap> Network<T> {
    /// Packets that a link has sent, and their bytes. The packet that is being sent counts as a whole.
    pub(crate) fn sent(&self, link: LinkId, now: Ps) -> Quantity {
        let lost = self.interruptions.get(&link).map_or(Quantity::default(), |known| known.lost);
        let queue = &self.links[link.index()];
        queue.taken() - queue.beginning_after(self.begun_by(link, now)) - lost
    }

    /// Time that a link would have taken, at its rate in the fabric, for what has left it of what it has `sent`. The
    /// part of the packet that is being sent counts that has left by now.
    pub(crate) fn busy(&self, link: LinkId, now: Ps, sent: Quantity) -> Ps {
        let cut = self.interruptions.get(&link).map_or(0, |known| known.cut);
        times(sent.bytes, self.own_ps_per_byte(link)).saturating_sub(self.unfinished(link, now) + cut)
    }

    /// The link is about to fail: what waits is never sent, and the packet that is being sent is cut off. Returns the
    /// time by which the others have begun.
    pub(super) fn note_failure(&mut self, link: LinkId, now: Ps) -> Ps {
        let (begun_by, unfinished) = (self.begun_by(link, now), self.unfinished(link, now));
        let waiting = self.links[link.index()].beginning_after(begun_by);
        let known = self.interruptions.entry(link).or_default();
        known.lost = known.lost + waiting;
        known.cut += unfinished;
        known.old_rate = None;
        begun_by
    }

    /// The rate of the link is about to change. The packet that is being sent keeps the old one. Returns the time by
    /// which this packet has begun.
    pub(super) fn note_rate_change(&mut self, link: LinkId, now: Ps) -> Ps {
        let begun_by = self.begun_by(link, now);
        let (left, ps_per_byte) = (self.leaves(link, now), self.ps_per_byte_of_packet(link, now));
        self.interruptions.entry(link).or_default().old_rate = Some((left, ps_per_byte));
        begun_by
    }

    /// Sum of the times that the packets of a link have waited up to now ([`LinkQueue::waited`]).
    pub(crate) fn waited(&self, link: LinkId, now: Ps) -> Ps {
        let at_port = self.port(link).map_or(0, |port| port.waited(now));
        self.links[link.index()].waited(now, self.begun_by(link, now))
            + at_port
            + super::pfc::held_waited(self, link, now)
    }

    /// Packets on a link wait if they seem to begin after this time. This is `now`, but a packet that is sent at an
    /// old rate has begun, and the next one begins when it has left.
    fn begun_by(&self, link: LinkId, now: Ps) -> Ps {
        self.old_rate(link, now).map_or(now, |(left, _)| left - 1)
    }

    /// When the packet that is being sent will have left; not after `now` if there is none.
    fn leaves(&self, link: LinkId, now: Ps) -> Ps {
        match (self.old_rate(link, now), self.port(link)) {
            (Some((left, _)), _) => left,
            (None, Some(port)) => now + port.backlog(now),
            (None, None) => self.links[link.index()].leaves(now),
        }
    }

    /// Time, at the link's rate in the fabric, for the part of the packet being sent that has not left.
    fn unfinished(&self, link: LinkId, now: Ps) -> Ps {
        let left = self.leaves(link, now).saturating_sub(now);
        let (own, present) = (self.own_ps_per_byte(link), self.ps_per_byte_of_packet(link, now));
        if own == present {
            return left;
        }
        (u128::from(left) * u128::from(own) / u128::from(present.max(1))) as Ps
    }

    fn ps_per_byte_of_packet(&self, link: LinkId, now: Ps) -> u64 {
        self.old_rate(link, now).map_or(self.links[link.index()].ps_per_byte(), |(_, ps_per_byte)| ps_per_byte)
    }

    /// When the packet that is being sent will have left, and its time per byte, if that is not the present one.
    fn old_rate(&self, link: LinkId, now: Ps) -> Option<(Ps, u64)> {
        self.interruptions.get(&link)?.old_rate.filter(|&(left, _)| left > now)
    }

    fn own_ps_per_byte(&self, link: LinkId) -> u64 {
        ps_per_byte(self.fabric.link(link).settings.rate_bps)
    }
}
