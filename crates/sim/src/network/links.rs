//! All links of a network, with the packets that wait, are being sent or are under way.

#![allow(unsafe_code)]

mod queueing;

use super::losses::Losses;
use super::outbox::Outbox;
use super::own_ports::Around;
use super::ports::Ports;
use super::prefetch::{prefetch_batch, prefetch_tails, Touched};
use super::sent::{Interruptions, Sending};
use super::{pfc, Arrival};
use crate::cache::{Cache, ON_SLOW_LINK};
use crate::interface::Interface;
use crate::lanes::Lanes;
use crate::link::{ps_per_byte, translate, EnqueueResult, LinkCounts, LinkQueue, Speeds};
use crate::marks::Signals;
use crate::next_hops::Sets;
use crate::packet::Packet;
use crate::settings::ControlSettings;
use crate::store::grow;
use crate::tap::{Fate, Tap};
use crate::telemetry::Telemetry;
use crate::time::Ps;
use crate::trusted::item_mut;
use crate::wheel::Wheel;
use pathloom_model::{Fabric, Link, LinkId, Quality};
use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

/// The links of a network, by number.
pub(crate) struct Links<T: Tap> {
    pub(super) fabric: Arc<Fabric>,
    /// The links of the fabric, followed by one link for the events of each port of `ports`. Their number is fixed, and
    /// every number of a link in the wheel, in the cache of decisions and at the hosts is less. The main loop relies on
    /// this, because a check costs 2 of 245 instructions per packet-hop.
    pub(super) queues: Vec<LinkQueue>,
    /// The speeds of the links.
    pub(super) speeds: Speeds,
    /// Ports that are not FIFOs, if there are any.
    pub(super) ports: Option<Box<Ports>>,
    pub(super) wheel: Wheel,
    /// What the packets on the links belong to.
    pub(crate) lanes: Lanes,
    /// Links on which packets are lost.
    pub(super) losses: Losses,
    /// By link that failed or changed its rate.
    pub(super) interruptions: BTreeMap<LinkId, Interruptions>,
    pub(crate) tap: T,
    /// Time within which nine links in ten can deliver a packet.
    pub(super) typical: Ps,
    /// Messages of this part of a divided network for the other parts.
    pub(super) outbox: Outbox,
    /// What ports have written into packets, if the hosts ask for it. Ports are then no FIFOs.
    pub(crate) telemetry: Option<Box<Telemetry>>,
    /// By link, the bytes that it has carried, in a run without packets.
    pub(crate) carried_bytes: Option<Vec<f64>>,
}

/// What becomes of a packet at the end of a link for which the main loop has found no decision.
pub(super) enum Slowly {
    /// No switch decides about it here.
    Done(Arrival),
    /// It was lost on the link.
    Lost(Packet),
    /// A switch decides about it, with the link under this number in the cache of decisions.
    Decide(u32, Packet),
}

/// Schedules the delivery of a link's head at this time. `queue` is this link.
#[inline(always)]
fn schedule<T: Tap>(wheel: &mut Wheel, queue: &mut LinkQueue, at: Ps, link: u32) {
    if T::LARGE {
        wheel.insert_large(queue, at, link);
    } else {
        wheel.insert(queue, at, link);
    }
}

impl<T: Tap> Index<usize> for Links<T> {
    type Output = LinkQueue;

    #[inline(always)]
    fn index(&self, link: usize) -> &LinkQueue {
        &self.queues[link]
    }
}

impl<T: Tap> IndexMut<usize> for Links<T> {
    #[inline(always)]
    fn index_mut(&mut self, link: usize) -> &mut LinkQueue {
        &mut self.queues[link]
    }
}

impl<T: Tap> Links<T> {
    /// The links of a fabric, without packets.
    pub(super) fn new(fabric: Arc<Fabric>, control: &ControlSettings, signals: Signals, seed: u64, tap: T) -> Links<T> {
        let queue = |link: &Link| {
            LinkQueue::new(link, fabric.is_host(link.to), control.handover, signals.marks.threshold(link))
        };
        let mut queues = Vec::new();
        grow(&mut queues, fabric.links().len());
        queues.extend(fabric.links().iter().map(queue));
        let mut typical: Vec<Ps> =
            queues.iter().zip(fabric.links()).map(|(q, link)| q.send_time(1514) + link.settings.delay_ps).collect();
        let speeds = Speeds::of(&mut queues);
        let ports = Ports::new(&fabric, signals, control.handover, seed, &mut queues);
        // The wheel covers the time that nine links in ten need; a few very slow or long links use its heap.
        typical.sort_unstable();
        let typical = typical[typical.len() * 9 / 10];
        Links {
            wheel: Wheel::new(queues.len(), typical, T::LARGE),
            fabric,
            queues,
            speeds,
            ports,
            lanes: Lanes::default(),
            losses: Losses::new(seed),
            interruptions: BTreeMap::new(),
            tap,
            typical,
            outbox: Outbox::default(),
            telemetry: signals.telemetry.then(Box::default),
            carried_bytes: None,
        }
    }

    /// As [`Network::next_before`](super::Network::next_before). `cache` and `sets` have the decisions of the switches.
    #[inline(always)]
    pub(super) fn next_before(
        &mut self,
        limit: Ps,
        cache: &Cache,
        sets: &Sets,
        at_host: impl Fn(&Packet),
    ) -> Option<(Ps, u32)> {
        if T::LARGE {
            let touched = Touched { links: &self.queues, cache, sets, ports: self.ports.as_deref() };
            return self.wheel.pop_large(limit, |due| prefetch_batch(touched, due, &at_host));
        }
        self.wheel.pop_before(&self.queues, limit)
    }

    /// Schedules the delivery of a link's head at this time.
    #[inline(always)]
    pub(super) fn schedule(&mut self, at: Ps, link: u32) {
        schedule::<T>(&mut self.wheel, &mut self.queues[link as usize], at, link);
    }

    /// Removes a link from the wheel.
    pub(super) fn unschedule(&mut self, link: u32) {
        self.wheel.remove(&mut self.queues, link);
    }

    /// A host gives a packet to one of its links. Returns whether the link took it.
    #[inline(always)]
    pub(super) fn send(&mut self, now: Ps, link: u32, packet: Packet) -> bool {
        if self.ports.is_some() && pfc::holds_back(self, now, link, packet) {
            return true;
        }
        self.enqueue(now, link, packet)
    }

    /// Puts a packet on a link. Returns whether the link took it.
    #[inline(always)]
    pub(super) fn enqueue(&mut self, now: Ps, link: u32, packet: Packet) -> bool {
        let speeds = if T::LARGE { Some(&self.speeds) } else { None };
        // SAFETY: hosts send by links of their interfaces, and decisions name links of the fabric (see `queues`).
        let queue = unsafe { item_mut(&mut self.queues, link as usize) };
        if T::PARTED && queue.crosses() {
            return self.outbox.take(link, queue.enqueue_across(now, packet, speeds));
        }
        let is_taken = match queue.enqueue(now, packet, speeds) {
            EnqueueResult::First(at) => {
                schedule::<T>(&mut self.wheel, queue, at, link);
                true
            }
            EnqueueResult::Behind => true,
            EnqueueResult::Dropped => self.offer_to_port(now, link, packet),
        };
        if T::ON {
            let fate = if is_taken { Fate::Queued } else { Fate::Dropped };
            // A tap sees only TCP packets, so it does not see frames of no connection.
            if let Some(headers) = self.lanes.headers(&packet) {
                self.tap.seen(now, LinkId(link), &packet.describe(headers), fate);
            }
        }
        is_taken
    }

    /// Takes the head of a link, which has arrived. Returns it, and whether the link hands its packets to a host without
    /// further checks.
    #[inline(always)]
    pub(super) fn dequeue(&mut self, link: u32) -> (Packet, bool) {
        // SAFETY: the wheel gives only links that were scheduled (see `queues`).
        let queue = unsafe { item_mut(&mut self.queues, link as usize) };
        let (packet, next) = queue.dequeue();
        let hands_to_host = queue.hands_to_host();
        if let Some(at) = next {
            schedule::<T>(&mut self.wheel, queue, at, link);
        }
        (packet, hands_to_host)
    }

    /// Handles a packet at the end of a link for which the main loop has found no decision. Packets on lossy links
    /// may be lost. Decisions about the others are cached under link numbers that only such packets have.
    pub(super) fn arrive_slowly(&mut self, now: Ps, link: u32, mut packet: Packet) -> Slowly {
        if self.is_end_of_packet(now, link) {
            return Slowly::Done(Arrival::Forwarded);
        }
        // A switch repeats a pause while it lasts, so that no loss can undo one: here none is lost.
        if let Some(pause) = packet.pause() {
            return Slowly::Done(pfc::obey(self, now, link, pause));
        }
        let queue = &mut self.queues[link as usize];
        if !queue.is_slow() {
            return Slowly::Done(Arrival::Slow(packet));
        }
        let (to_host, is_lost) = (queue.to_host(), queue.is_lossy() && self.losses.draw(link));
        if is_lost {
            queue.count_lost();
        }
        if queue.in_flight() == 0 {
            self.catch_up_with(now, link, &mut packet);
        }
        if is_lost {
            return Slowly::Lost(packet);
        }
        if to_host {
            return Slowly::Done(Arrival::Host(packet, Interface::at_end_of(link)));
        }
        pfc::note_arriving(self, link);
        Slowly::Decide(link | ON_SLOW_LINK, packet)
    }

    /// Number of a link in the decisions about packets that arrive by it.
    pub(super) fn in_link(&self, link: u32) -> u32 {
        let slow = if self.queues[link as usize].is_slow() { ON_SLOW_LINK } else { 0 };
        link | slow
    }

    /// One direction of a cable becomes slow or lossy, or gets its original quality back.
    pub(super) fn set_quality(&mut self, now: Ps, link: LinkId, quality: Quality) {
        let own_bps = self.fabric.link(link).settings.rate_bps;
        let lossy = self.fabric.lossy_links();
        let own_loss = lossy.binary_search_by_key(&link, |&(lossy, _)| lossy).map_or(0, |place| lossy[place].1);
        let (rate_bps, per_billion) = match quality {
            Quality::Rate { rate_bps } => (Some(rate_bps), None),
            Quality::Loss { per_billion } => (None, Some(per_billion)),
            Quality::Restored => (Some(own_bps), Some(own_loss)),
        };
        if let Some(per_billion) = per_billion {
            self.queues[link.index()].set_lossy(per_billion > 0);
            self.losses.set(link.0, per_billion);
        }
        if let Some(rate_bps) = rate_bps {
            self.set_rate(now, link, rate_bps);
        }
    }

    fn set_rate(&mut self, now: Ps, link: LinkId, rate_bps: u64) {
        self.catch_up(now, link);
        let sending = self.sending(link, now);
        let (begun_by, old_rate) = (sending.begun_by(), sending.rate());
        self.interruptions.entry(link).or_default().note_rate_change(old_rate);
        self.unschedule(link.0);
        if let Some(at) = self.queues[link.index()].set_rate(begun_by, rate_bps) {
            self.schedule(at, link.0);
        }
        self.set_port_rate(link);
    }

    /// A link fails. Returns the packets that are lost with it.
    pub(super) fn fail(&mut self, now: Ps, link: LinkId) -> Vec<Packet> {
        self.catch_up(now, link);
        self.unschedule(link.0);
        let sending = self.sending(link, now);
        let (begun_by, waiting, unfinished) = (sending.begun_by(), sending.waiting(), sending.unfinished());
        self.interruptions.entry(link).or_default().note_failure(waiting, unfinished);
        let mut lost = self.queues[link.index()].fail(now, begun_by);
        lost.extend(self.fail_port(now, link));
        lost.extend(pfc::fail_pauses(self, now, link.0));
        lost
    }

    /// What a link has sent, and is sending.
    pub(crate) fn sending(&self, link: LinkId, now: Ps) -> Sending<'_> {
        let own_ps_per_byte = ps_per_byte(self.fabric.link(link).settings.rate_bps);
        let known = self.interruptions.get(&link);
        Sending::new(&self.queues[link.index()], self.port(link), known, own_ps_per_byte, now)
    }

    /// Bytes that a link has sent.
    pub(crate) fn sent_bytes(&self, link: LinkId, now: Ps) -> u64 {
        match &self.carried_bytes {
            Some(carried) => carried[link.index()] as u64,
            None => self.sending(link, now).sent().bytes,
        }
    }

    /// Sum of the times that the packets of a link have waited up to now ([`LinkQueue::waited`]).
    pub(crate) fn waited(&self, link: LinkId, now: Ps) -> Ps {
        let at_port = self.port(link).map_or(0, |port| port.waited(now));
        let in_queue = self.queues[link.index()].waited(now, self.sending(link, now).begun_by());
        in_queue + at_port + pfc::held_waited(self, link, now)
    }

    /// The links of the fabric.
    pub(crate) fn of_fabric(&self) -> &[LinkQueue] {
        &self.queues[..self.fabric.links().len()]
    }

    /// What a balancer sees of the links at this time.
    #[inline(always)]
    pub(super) fn around(&self, now: Ps) -> Around<'_> {
        Around { now, fabric: &self.fabric, links: &self.queues, ports: self.ports.as_deref() }
    }

    /// Lets all packets that arrive by these links take the slow path. To be called before the first packet.
    pub(super) fn take_slow_path(&mut self, which: impl Fn(&LinkQueue) -> bool) {
        self.queues.iter_mut().filter(|link| which(link)).for_each(LinkQueue::take_slow_path);
    }

    /// Takes packets that another part of a divided network has put on these links.
    pub(super) fn expect(&mut self, packets: &[Packet], links: &[u32]) {
        if T::LARGE {
            prefetch_tails(&self.queues, links);
        }
        for (&packet, &link) in packets.iter().zip(links) {
            if let Some(at) = self.queues[link as usize].expect(packet) {
                self.schedule(at, link);
            }
        }
    }

    /// Moves all packets to a time that is `by` later, at `now`. `more` has what each link of the fabric has counted meanwhile.
    pub(crate) fn translate(&mut self, by: Ps, now: Ps, more: &[LinkCounts]) {
        for (queue, more) in self.queues.iter_mut().zip(more) {
            translate(queue, by, more);
        }
        self.fill_wheel(now, |_| true);
    }

    /// Makes a wheel of all links that arrive in the part and are not empty.
    pub(super) fn fill_wheel(&mut self, now: Ps, arrive_here: impl Fn(LinkId) -> bool) {
        let count = (0..self.queues.len() as u32).filter(|&link| arrive_here(LinkId(link))).count();
        self.wheel = Wheel::new(count, self.typical, T::LARGE);
        self.wheel.advance_to(now);
        for link in 0..self.queues.len() as u32 {
            let due = self.queues[link as usize].next_due();
            if let Some(at) = due.filter(|_| arrive_here(LinkId(link))) {
                self.schedule(at, link);
            }
        }
    }
}
