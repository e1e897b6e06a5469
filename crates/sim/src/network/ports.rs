//! Links that begin at a port with strict priorities, RED or pauses ([`Port`]).
//!
//! The ring of such a link holds the packets that are being sent or under way; packets that wait are in the port. A
//! packet that is being sent stays in the ring until it arrives at the other end. So it is enough if the port makes up
//! for its choices when a packet arrives at either end: a packet-hop costs one event, as with a FIFO.
//!
//! If packets are handed on when their sending begins ([`Handover::Begin`]), they may arrive before it ends. The end of
//! each packet is then an event. It is one as well if ports pause their senders: when a packet leaves, a sender may have
//! to be resumed. For these events there is one more link per port. Its number is above those of the
//! fabric's links, and it delivers a packet of no connection at the end of each packet.

use super::pfc::Held;
use super::Network;
use crate::lanes::{Lanes, NO_CONNECTION};
use crate::link::{EnqueueResult, LinkQueue};
use crate::marks::Signals;
use crate::packet::{Packet, Pause};
use crate::pfc::Pfc;
use crate::port::{Limits, Offer, Port, NOWHERE};
use crate::settings::Handover;
use crate::tap::Tap;
use crate::time::Ps;
use crate::trusted::{fetch, fetch_byte, LINE};
use pathloom_model::{Fabric, LinkId, PortSettings};
use pathloom_transport::packets::TrimmedAt;

/// Bytes of a full frame, by which RED measures idle times.
const FRAME_BYTES: u64 = 1514;
/// Value for a link without such a port.
const NO_PORT: u32 = u32::MAX;

/// The ports of a fabric that are not FIFOs.
pub(super) struct Ports {
    settings: PortSettings,
    /// By link of the fabric: the port at which it begins.
    of_link: Vec<u32>,
    ports: Vec<Port>,
    /// By port: its link.
    links: Vec<u32>,
    /// Whether the end of each packet is an event.
    has_timers: bool,
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
        if settings.is_drop_tail() {
            return None;
        }
        let of_link = vec![NO_PORT; fabric.links().len()];
        let has_timers = handover == Handover::Begin || settings.pfc.is_some();
        let fastest_bps = fabric.fastest_port_bps();
        let pfc = settings.pfc.map(|pfc| Box::new(Pfc::new(fabric, pfc, signals.frame_bytes)));
        let (ports, numbers, held) = (Vec::new(), Vec::new(), Held::new());
        let mut all = Ports { settings, of_link, ports, links: numbers, has_timers, pfc, held };
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
            };
            all.of_link[index] = all.ports.len() as u32;
            all.ports.push(Port::new(settings, limits, seed, index as u32));
            all.links.push(index as u32);
            links[index].leave_queueing_to_port();
            if has_timers {
                links.push(LinkQueue::timer(link));
            }
        }
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
    fn offer(&mut self, now: Ps, port: usize, queue: usize, packet: Packet) -> Offer {
        let Ports { ports, pfc, .. } = self;
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
    fn of(&self, link: LinkId) -> Option<usize> {
        self.of_link.get(link.index()).copied().filter(|&port| port != NO_PORT).map(|port| port as usize)
    }
}

impl<T: Tap> Network<T> {
    /// Whether ports of switches are not FIFOs.
    pub(crate) fn has_ports(&self) -> bool {
        self.ports.is_some()
    }

    /// A link has not taken a packet. Offers it to the link's port, if there is one. Returns whether the port took
    /// it.
    #[cold]
    #[inline(never)]
    pub(super) fn offer_to_port(&mut self, now: Ps, link: u32, packet: Packet) -> bool {
        let Some(port) = self.port_of(LinkId(link)) else { return false };
        let is_up = self.links[link as usize].is_up();
        // If a packet arrives at the moment when another one ends, the port chooses its next packet first.
        self.catch_up_port(now, port);
        let offer = match &mut self.ports {
            Some(ports) if is_up => {
                let queue = ports.queue_of(&self.lanes, &packet);
                ports.offer(now, port, queue, packet)
            }
            _ => Offer::Dropped,
        };
        match offer {
            Offer::Dropped => self.links[link as usize].count_refused(1),
            Offer::Waits => {}
            Offer::Begins(packet) => self.begin(now, port, packet),
        }
        super::pfc::send_pauses(self, now);
        offer != Offer::Dropped
    }

    /// Whether a link is the event link of a port, whose arrivals are the ends of packets. If so, handles the end of
    /// the packet.
    pub(super) fn is_end_of_packet(&mut self, now: Ps, link: u32) -> bool {
        let Some(port) = (link as usize).checked_sub(self.fabric.links().len()) else { return false };
        self.catch_up_port(now, port);
        true
    }

    /// Brings the port of a link up to date, if there is one: it has begun to send all packets whose turn has come by
    /// now.
    pub(crate) fn catch_up(&mut self, now: Ps, link: LinkId) {
        if let Some(port) = self.port_of(link) {
            self.catch_up_port(now, port);
        }
    }

    /// The packet `leaving` has arrived at the end of a link, and the link is empty: brings the port of the link up to
    /// date. If the port still had to say how it sent the packet, marks the packet if it must.
    pub(super) fn catch_up_with(&mut self, now: Ps, link: u32, leaving: &mut Packet) {
        if let Some(port) = self.port_of(LinkId(link)) {
            self.make_choices(now, port, Some(leaving));
        }
    }

    /// Brings all ports up to date.
    pub(crate) fn catch_up_all(&mut self, now: Ps) {
        for port in 0..self.ports.as_ref().map_or(0, |ports| ports.ports.len()) {
            self.catch_up_port(now, port);
        }
    }

    fn catch_up_port(&mut self, now: Ps, port: usize) {
        self.make_choices(now, port, None);
        super::pfc::send_pauses(self, now);
    }

    /// Makes the choices of a port up to now. The packet that it sent last is `leaving`, or still on the link. Frames that
    /// pause or resume may be due afterwards.
    pub(super) fn make_choices(&mut self, now: Ps, port: usize, mut leaving: Option<&mut Packet>) {
        while let Some(ports) = &mut self.ports {
            let link = ports.links[port] as usize;
            let Some(ended) = ports.ports[port].ended(now) else { break };
            let marks = !ports.has_timers && ports.ports[port].marks_leaving();
            match leaving.take() {
                Some(packet) if marks && !packet.is_control() => packet.mark(),
                None if marks => self.links[link].mark_newest(),
                _ => {}
            }
            if !self.send_next(now, port, ended) {
                break;
            }
        }
    }

    /// Begins to send the packet whose turn it is, at a time up to now. Returns whether there is one.
    pub(super) fn send_next(&mut self, now: Ps, port: usize, at: Ps) -> bool {
        debug_assert!(at <= now, "a port begins to send in the future");
        let Some(ports) = &mut self.ports else { return false };
        let Some((queue, next)) = ports.ports[port].next() else { return false };
        if let Some(pfc) = &mut ports.pfc {
            pfc.left(next.from, queue, next.packet.wire());
        }
        self.links[ports.links[port] as usize].add_waited(at - next.came);
        self.begin(at, port, next.packet);
        true
    }

    pub(super) fn begin(&mut self, now: Ps, port: usize, mut packet: Packet) {
        let Some(ports) = &mut self.ports else { return };
        let (link, has_timers) = (ports.links[port], ports.has_timers);
        // The packet will have gone when its end is known.
        if has_timers && ports.ports[port].marks_leaving() && !packet.is_control() {
            packet.mark();
        }
        let (free_at, taken) = self.links[link as usize].send_at_once(now, packet);
        ports.ports[port].begin(free_at);
        if let EnqueueResult::First(at) = taken {
            self.schedule(at, link);
        }
        if !has_timers {
            return;
        }
        let timer = self.fabric.links().len() + port;
        let nothing = Packet::new((NO_CONNECTION as u32) << 1, 0, 0, 0, 0);
        if let EnqueueResult::First(at) = self.links[timer].push(nothing, free_at) {
            self.schedule(at, timer as u32);
        }
    }

    /// A link has failed: packets that wait at its port are lost as well. Returns them.
    pub(super) fn fail_port(&mut self, now: Ps, link: LinkId) -> Vec<Packet> {
        let (Some(port), Some(ports)) = (self.port_of(link), &mut self.ports) else { return Vec::new() };
        self.links[link.index()].add_waited(ports.ports[port].waited(now));
        let lost = ports.ports[port].fail(now);
        if let Some(pfc) = &mut ports.pfc {
            lost.iter().for_each(|(queue, waiting)| pfc.left(waiting.from, *queue, waiting.packet.wire()));
        }
        let lost: Vec<Packet> = lost.into_iter().map(|(_, waiting)| waiting.packet).collect();
        self.links[link.index()].count_refused(lost.len() as u64);
        if ports.has_timers {
            let timer = self.fabric.links().len() + port;
            self.wheel.remove(&mut self.links, timer as u32);
            self.links[timer].stop_timer();
        }
        lost
    }

    /// Adapts the port of a link, if there is one, to a new rate of the link. The rate applies from the next packet
    /// on.
    pub(super) fn set_port_rate(&mut self, link: LinkId) {
        if let (Some(port), Some(ports)) = (self.port_of(link), &mut self.ports) {
            ports.ports[port].set_frame_time(self.links[link.index()].send_time(FRAME_BYTES));
        }
    }

    pub(super) fn port_of(&self, link: LinkId) -> Option<usize> {
        self.ports.as_ref()?.of(link)
    }

    pub(super) fn port(&self, link: LinkId) -> Option<&Port> {
        let ports = self.ports.as_ref()?;
        Some(&ports.ports[ports.of(link)?])
    }

    /// The links of the fabric.
    pub(crate) fn fabric_links(&self) -> &[LinkQueue] {
        &self.links[..self.fabric.links().len()]
    }

    /// Number of packets that wait at ports with priorities, RED or pauses, and at paused cards.
    pub(super) fn waiting_at_ports(&self) -> u64 {
        let Some(ports) = &self.ports else { return 0 };
        let held = ports.held.values().map(|held| held.len() as u64).sum::<u64>();
        ports.ports.iter().map(|port| port.waiting() as u64).sum::<u64>() + held
    }

    /// Number of packets that these ports cut down to their headers.
    pub(super) fn trimmed_at_ports(&self) -> u64 {
        self.ports.iter().flat_map(|ports| &ports.ports).map(Port::trimmed).sum()
    }

    /// Number of events of these ports.
    pub(super) fn port_events(&self) -> u64 {
        self.links[self.fabric.links().len()..].iter().map(LinkQueue::delivered_packets).sum()
    }
}
