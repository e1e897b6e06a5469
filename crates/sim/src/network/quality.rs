//! Links that are slower than in the fabric, or lose packets.

use super::{Arrival, Network};
use crate::cache::ON_SLOW_LINK;
use crate::interface::Interface;
use crate::lanes::NO_CONNECTION;
use crate::packet::Packet;
use crate::tap::Tap;
use crate::time::Ps;
use pathloom_model::{LinkId, Quality};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::BTreeMap;

/// Constant that makes these draws differ from others with the same seed.
const STREAM: u64 = 0x6c6f_7373_6573;

/// The links that lose packets. Each has its own generator, so its losses do not depend on other links.
pub(super) struct Losses {
    seed: u64,
    links: BTreeMap<u32, Lossy>,
}

struct Lossy {
    per_billion: u32,
    rng: Pcg64,
}

impl Losses {
    pub(super) fn new(seed: u64) -> Losses {
        Losses { seed, links: BTreeMap::new() }
    }

    /// Sets the loss rate of a link. A link that has lost packets before keeps its generator.
    fn set(&mut self, link: u32, per_billion: u32) {
        let seed = self.seed ^ STREAM ^ (u64::from(link) << 20);
        let of = self.links.entry(link).or_insert_with(|| Lossy { per_billion, rng: Pcg64::seed_from_u64(seed) });
        of.per_billion = per_billion;
    }

    /// Moves the generators of some links to a part of a network: the part in which these links end.
    pub(super) fn part(&mut self, is_in: impl Fn(u32) -> bool) -> Losses {
        let (part, rest) = std::mem::take(&mut self.links).into_iter().partition(|(link, _)| is_in(*link));
        self.links = rest;
        Losses { seed: self.seed, links: part }
    }

    /// Takes back the generators of a part.
    pub(super) fn join(&mut self, part: Losses) {
        self.links.extend(part.links);
    }

    fn draw(&mut self, link: u32) -> bool {
        self.links.get_mut(&link).is_some_and(|of| of.rng.random_range(0..1_000_000_000u32) < of.per_billion)
    }
}

impl<T: Tap> Network<T> {
    /// Handles a packet at the end of a link for which the main loop has found no decision. Packets on lossy links
    /// may be lost. Decisions about the others are cached under link numbers that only this function uses.
    pub(crate) fn arrive_slowly(&mut self, now: Ps, link: u32, mut packet: Packet) -> Arrival {
        if self.is_end_of_packet(now, link) {
            return Arrival::Forwarded;
        }
        // A switch repeats a pause while it lasts, so that no loss can undo one: here none is lost.
        if let Some(pause) = packet.pause() {
            return super::pfc::obey(self, now, link, pause);
        }
        let queue = &mut self.links[link as usize];
        if !queue.is_slow() {
            return Arrival::Slow(packet);
        }
        let is_lost = queue.is_lossy() && self.losses.draw(link);
        if is_lost {
            queue.count_lost();
        }
        if queue.in_flight() == 0 {
            self.catch_up_with(now, link, &mut packet);
        }
        if is_lost {
            if packet.slot() == NO_CONNECTION {
                self.take_frame(&packet);
            }
            return Arrival::Dropped(packet.lane());
        }
        if self.links[link as usize].to_host() {
            return Arrival::Host(packet, Interface::at_end_of(link));
        }
        super::pfc::note_arriving(self, link);
        if self.balancers.is_some() {
            self.forward_balanced(now, link | ON_SLOW_LINK, packet)
        } else if self.sprays {
            self.forward_sprayed(now, link | ON_SLOW_LINK, packet)
        } else {
            self.forward(now, link | ON_SLOW_LINK, packet)
        }
    }

    /// Lets all packets take the slow path when they reach a host. To be called before the first packet.
    pub(crate) fn take_slow_path_to_hosts(&mut self) {
        self.links.iter_mut().filter(|link| link.to_host()).for_each(crate::link::LinkQueue::take_slow_path);
    }

    /// Number of a link in the decisions about packets that arrive by it.
    pub(super) fn in_link(&self, link: u32) -> u32 {
        let slow = if self.links[link as usize].is_slow() { ON_SLOW_LINK } else { 0 };
        link | slow
    }

    fn set_loss(&mut self, link: LinkId, per_billion: u32) {
        let was = self.in_link(link.0);
        self.links[link.index()].set_lossy(per_billion > 0);
        self.losses.set(link.0, per_billion);
        self.cache.renumber(self.fabric.link(link).to, was, self.in_link(link.0));
    }

    /// One direction of a cable becomes slow or lossy, or gets its original quality back.
    pub(crate) fn set_quality(&mut self, now: Ps, link: LinkId, quality: Quality) {
        let own_bps = self.fabric.link(link).settings.rate_bps;
        let lossy = self.fabric.lossy_links();
        let own_loss = lossy.binary_search_by_key(&link, |&(lossy, _)| lossy).map_or(0, |place| lossy[place].1);
        let (rate_bps, per_billion) = match quality {
            Quality::Rate { rate_bps } => (Some(rate_bps), None),
            Quality::Loss { per_billion } => (None, Some(per_billion)),
            Quality::Restored => (Some(own_bps), Some(own_loss)),
        };
        if let Some(per_billion) = per_billion {
            self.set_loss(link, per_billion);
        }
        if let Some(rate_bps) = rate_bps {
            self.catch_up(now, link);
            let begun_by = self.note_rate_change(link, now);
            self.wheel.remove(&mut self.links, link.0);
            if let Some(at) = self.links[link.index()].set_rate(begun_by, rate_bps) {
                self.schedule(at, link.0);
            }
            self.set_port_rate(link);
        }
    }
}
