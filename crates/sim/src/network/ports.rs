//! Links that begin at a port with strict priorities, RED or pauses ([`Port`]).
//!
//! The ring of such a link holds the packets that are being sent or under way; packets that wait are in the port. A
//! packet that is being sent stays in the ring until it arrives at the other end. So it is enough if the port makes up
//! for its choices when a packet arrives at either end: a packet-hop costs one event, as with a FIFO.
//!
//! If packets are handed on when their sending begins ([`Handover::Begin`]), they may arrive before it ends. The end of
//! each packet is then an event. It is one as well if ports pause their senders, or share a buffer: when a packet leaves,
//! a sender may have to be resumed, and other ports have more room. For these events there is one more link per port. Its
//! number is above those of the fabric's links, and it delivers a packet of no connection at the end of each packet.

use crate::lanes::{Lanes, NO_CONNECTION};
use crate::link::LinkQueue;
use crate::marks::Signals;
use crate::packet::{Packet, Pause};
use crate::pfc::Pfc;
use crate::pools::Pools;
use crate::port::{Limits, Offer, Port, Waiting, NOWHERE};
use crate::settings::Handover;
use crate::time::Ps;
use crate::trusted::{fetch, fetch_byte, LINE};
use pathloom_model::{Fabric, LinkId, PortSettings};
use pathloom_transport::packets::TrimmedAt;
use std::collections::{BTreeMap, VecDeque};

/// Bytes of a full frame, by which RED measures idle times.
pub(super) const FRAME_BYTES: u64 = 1514;
/// Value for a link without such a port.
const NO_PORT: u32 = u32::MAX;

/// The packets that paused cards hold, by the link that the card sends into: each with the time since when it is held.
pub(super) type Held = BTreeMap<u32, VecDeque<(Ps, Packet)>>;

/// The ports of a fabric that are not FIFOs.
pub(super) struct Ports {
    settings: PortSettings,
    /// By link of the fabric: the port at which it begins.
    of_link: Vec<u32>,
    pub(super) ports: Vec<Port>,
    /// By port: its link.
    pub(super) links: Vec<u32>,
    /// Whether the end of each packet is an event.
    pub(super) has_timers: bool,
    /// The buffers that the ports of a switch share, if they do.
    pools: Option<Box<Pools>>,
    /// Flow control, if there is any, and what the cards of hosts hold because of it.
    pub(super) pfc: Option<Box<Pfc>>,
    pub(super) held: Held,
}

impl Ports {
    /// Creates the ports of all switches, if they are not FIFOs. Adds a link for the events of each port to `links`, if
    /// `handover` requires such events.
    pub(super) fn new(
        fabric: &Fabric,
        signals: Signals,
        handover: Handover,
        seed: u64,
        links: &mut Vec<LinkQueue>,
    ) -> Option<Box<Ports>> {
        let settings = fabric.ports().with_queues(signals.queues);
        if settings.is_drop_tail() && !signals.telemetry {
            return None;
        }
        let of_link = vec![NO_PORT; fabric.links().len()];
        let has_timers = handover == Handover::Begin || settings.pfc.is_some() || settings.shared.is_some();
        let fastest_bps = fabric.fastest_port_bps();
        let pfc = settings.pfc.map(|pfc| Box::new(Pfc::new(fabric, pfc, signals.frame_bytes)));
        let (ports, numbers, held) = (Vec::new(), Vec::new(), Held::new());
        let mut all = Ports { settings, of_link, ports, links: numbers, has_timers, pools: None, pfc, held };
        for (index, link) in fabric.links().iter().enumerate() {
            if fabric.is_host(link.from) {
                if all.pfc.is_some() {
                    // The switch must know by which link each packet comes.
                    links[index].take_slow_path();
                }
                continue;
            }
            let settings = settings.at_rate(link.settings.rate_bps, fastest_bps);
            let place = if fabric.is_host(link.to) { TrimmedAt::LastHop } else { TrimmedAt::Fabric };
            let limits = Limits {
                buffer: link.settings.buffer_packets,
                bytes: settings.queue_bytes,
                mark_above: signals.marks.threshold(link).filter(|_| settings.ecn.is_none()),
                ecn: settings.ecn.filter(|_| signals.reacts_to_marks()),
                reacts_to_marks: signals.reacts_to_marks(),
                has_control: settings.control_queue,
                lossless: settings.pfc.is_some(),
                trim: settings.trim_bytes.filter(|_| signals.headers).map(|bytes| (bytes, place)),
                frame_ps: links[index].send_time(FRAME_BYTES),
                frame_bytes: signals.frame_bytes,
            };
            all.of_link[index] = all.ports.len() as u32;
            all.ports.push(Port::new(settings, limits, seed, index as u32));
            all.links.push(index as u32);
            links[index].leave_queueing_to_port();
            if has_timers {
                links.push(LinkQueue::timer(link));
            }
        }
        all.pools = settings.shared.map(|shared| Box::new(Pools::new(fabric, shared, &all.links)));
        Some(Box::new(all))
    }

    /// Bytes at the port of a link that have not left it; 0 if it has no such port.
    pub(super) fn queued_bytes(&self, link: u32, queue: &LinkQueue, now: Ps) -> u64 {
        let Some(port) = self.of(LinkId(link)).map(|port| &self.ports[port]) else { return 0 };
        match port.signed_backlog(now) {
            left @ 0.. => port.waiting_bytes() + queue.bytes_of(left as Ps),
            // The port has not made its latest choices, but it has sent this long of what seems to wait.
            left => port.waiting_bytes().saturating_sub(queue.bytes_of(left.unsigned_abs())),
        }
    }

    /// Prefetches the port of a link, if there is one. Affects only speed, as the two functions below.
    #[inline(always)]
    pub(super) fn fetch(&self, link: u32) {
        if let Some(port) = self.of(LinkId(link)) {
            fetch(&self.ports, port);
            fetch_byte(&self.ports, port, LINE);
            fetch_byte(&self.ports, port, 2 * LINE);
        }
    }

    /// Prefetches the queues of the port of a link.
    #[inline(always)]
    pub(super) fn fetch_queues(&self, link: u32) {
        if let Some(port) = self.of(LinkId(link)) {
            self.ports[port].fetch_queues();
        }
    }

    /// Prefetches the places where the port of a link will store a packet.
    #[inline(always)]
    pub(super) fn fetch_tails(&self, link: u32) {
        if let Some(port) = self.of(LinkId(link)) {
            self.ports[port].fetch_tails();
        }
    }

    /// The queue of a packet at any port, and so its priority.
    pub(super) fn queue_of(&self, lanes: &Lanes, packet: &Packet) -> usize {
        let settings = &self.settings;
        // The network cannot work without frames of no connection, so they get the highest priority.
        match packet.slot() == NO_CONNECTION || settings.control_queue && packet.is_control() {
            true => usize::from(settings.queues) - usize::from(!settings.control_queue),
            false => settings.queue_of(lanes.dscp(packet)),
        }
    }

    /// Offers a packet for a queue to a port.
    pub(super) fn offer(&mut self, now: Ps, port: usize, queue: usize, packet: Packet) -> Offer {
        let Ports { ports, pfc, pools, .. } = self;
        if let Some(pools) = pools {
            let before = ports[port].data_bytes();
            ports[port].set_share(pools.share(port));
            let offer = ports[port].offer(now, queue, packet, NOWHERE);
            pools.change(port, before, ports[port].data_bytes());
            return offer;
        }
        let Some(pfc) = pfc else { return ports[port].offer(now, queue, packet, NOWHERE) };
        let (from, bytes) = (pfc.arriving, packet.wire());
        if ports[port].delays(queue) && !pfc.has_room(from, queue, bytes) {
            return Offer::Dropped;
        }
        let offer = ports[port].offer(now, queue, packet, from);
        if offer == Offer::Waits {
            pfc.came(from, queue, bytes);
        }
        offer
    }

    /// Takes the packet that a port sends next, with its queue; `None` if the port is idle now.
    pub(super) fn next(&mut self, port: usize) -> Option<(usize, Waiting)> {
        let (queue, waiting) = self.ports[port].next()?;
        let bytes = waiting.packet.wire();
        if let Some(pfc) = &mut self.pfc {
            pfc.left(waiting.from, queue, bytes);
        }
        let is_data = queue < self.ports[port].data_queues();
        if let Some(pools) = self.pools.as_mut().filter(|_| is_data) {
            pools.change(port, bytes, 0);
        }
        Some((queue, waiting))
    }

    /// The link of a port fails. Returns the packets that waited there, which are lost.
    pub(super) fn fail(&mut self, now: Ps, port: usize) -> Vec<Packet> {
        let before = self.ports[port].data_bytes();
        let lost = self.ports[port].fail(now);
        if let Some(pfc) = &mut self.pfc {
            lost.iter().for_each(|(queue, waiting)| pfc.left(waiting.from, *queue, waiting.packet.wire()));
        }
        if let Some(pools) = &mut self.pools {
            pools.change(port, before, 0);
        }
        lost.into_iter().map(|(_, waiting)| waiting.packet).collect()
    }

    /// Offers a frame that pauses or resumes the other end. Returns it if its sending begins.
    pub(super) fn offer_urgent(&mut self, now: Ps, port: usize, packet: Packet) -> Option<Packet> {
        self.ports[port].offer_urgent(now, packet)
    }

    /// The other end of a port's link pauses or resumes a queue. Returns whether the port is idle.
    pub(super) fn set_paused(&mut self, port: usize, pause: Pause) -> bool {
        self.ports[port].set_paused(pause.class.into(), pause.stops)
    }

    #[cfg(test)]
    pub(super) fn port_mut(&mut self, link: LinkId) -> Option<&mut Port> {
        let port = self.of(link)?;
        self.ports.get_mut(port)
    }

    /// The port at which a link begins.
    pub(super) fn of(&self, link: LinkId) -> Option<usize> {
        self.of_link.get(link.index()).copied().filter(|&port| port != NO_PORT).map(|port| port as usize)
    }
}
