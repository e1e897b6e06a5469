//! What links do that begin at a port of [`Ports`](crate::network::ports::Ports): their packets wait in the port, and the
//! port makes up for its choices when a packet arrives at either end of the link.

use super::Links;
use crate::lanes::NO_CONNECTION;
use crate::link::{EnqueueResult, LinkQueue};
use crate::network::pfc::send_pauses;
use crate::network::ports::FRAME_BYTES;
use crate::network::victims;
use crate::packet::Packet;
use crate::port::{Offer, Port};
use crate::tap::Tap;
use crate::time::Ps;
use pathloom_model::LinkId;
use pathloom_transport::packets::PortLoad;

impl<T: Tap> Links<T> {
    /// Whether ports of switches are not FIFOs.
    pub(crate) fn has_ports(&self) -> bool {
        self.ports.is_some()
    }

    /// A link has not taken a packet. Offers it to the link's port, if there is one. Returns whether the port took
    /// it.
    #[cold]
    #[inline(never)]
    pub(in crate::network) fn offer_to_port(&mut self, now: Ps, link: u32, packet: Packet) -> bool {
        let Some(port) = self.port_of(LinkId(link)) else { return false };
        let is_up = self.queues[link as usize].is_up();
        // If a packet arrives at the moment when another one ends, the port chooses its next packet first.
        self.catch_up_port(now, port);
        let (offer, queue) = match &mut self.ports {
            Some(ports) if is_up => {
                let queue = ports.queue_of(&self.lanes, &packet);
                (ports.offer(now, port, queue, packet), queue)
            }
            _ => (Offer::Dropped, 0),
        };
        match offer {
            Offer::Dropped => self.queues[link as usize].count_refused(1),
            Offer::Waits => victims::wait(self, (link, queue as u8), &packet),
            Offer::Begins(packet) => self.begin(now, port, packet),
        }
        send_pauses(self, now);
        offer != Offer::Dropped
    }

    /// Whether a link is the event link of a port, whose arrivals are the ends of packets. If so, handles the end of
    /// the packet.
    pub(in crate::network) fn is_end_of_packet(&mut self, now: Ps, link: u32) -> bool {
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
    pub(in crate::network) fn catch_up_with(&mut self, now: Ps, link: u32, leaving: &mut Packet) {
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
        send_pauses(self, now);
    }

    /// Makes the choices of a port up to now. The packet that it sent last is `leaving`, or still on the link. Frames that
    /// pause or resume may be due afterwards.
    pub(in crate::network) fn make_choices(&mut self, now: Ps, port: usize, mut leaving: Option<&mut Packet>) {
        while let Some(ports) = &mut self.ports {
            let link = ports.links[port] as usize;
            let Some(ended) = ports.ports[port].ended(now) else { break };
            let marks = !ports.has_timers && ports.ports[port].marks_leaving();
            match leaving.take() {
                Some(packet) if marks && !packet.is_control() => packet.mark(),
                None if marks => self.queues[link].mark_newest(),
                _ => {}
            }
            if !self.send_next(now, port, ended) {
                break;
            }
        }
    }

    /// Begins to send the packet whose turn it is, at a time up to now. Returns whether there is one.
    pub(in crate::network) fn send_next(&mut self, now: Ps, port: usize, at: Ps) -> bool {
        debug_assert!(at <= now, "a port begins to send in the future");
        let Some(ports) = &mut self.ports else { return false };
        let Some((_, next)) = ports.next(port) else { return false };
        self.queues[ports.links[port] as usize].add_waited(at - next.came);
        self.begin(at, port, next.packet);
        true
    }

    pub(in crate::network) fn begin(&mut self, now: Ps, port: usize, mut packet: Packet) {
        let Some(ports) = &mut self.ports else { return };
        let (link, has_timers) = (ports.links[port], ports.has_timers);
        // The packet will have gone when its end is known.
        if has_timers && ports.ports[port].marks_leaving() && !packet.is_control() {
            packet.mark();
        }
        if let Some(telemetry) = &mut self.telemetry {
            let queue = &self.queues[link as usize];
            let load = PortLoad {
                port: link,
                at_ps: now,
                sent_bytes: queue.taken().bytes,
                queue_bytes: ports.ports[port].waiting_bytes(),
                rate_bps: queue.rate_bps(),
            };
            telemetry.write(&mut packet, load);
        }
        let (free_at, taken) = self.queues[link as usize].send_at_once(now, packet);
        ports.ports[port].begin(free_at);
        if let EnqueueResult::First(at) = taken {
            self.schedule(at, link);
        }
        if !has_timers {
            return;
        }
        let timer = self.fabric.links().len() + port;
        let nothing = Packet::new((NO_CONNECTION as u32) << 1, 0, 0, 0, 0);
        if let EnqueueResult::First(at) = self.queues[timer].push(nothing, free_at) {
            self.schedule(at, timer as u32);
        }
    }

    /// A link has failed: packets that wait at its port are lost as well. Returns them.
    pub(in crate::network) fn fail_port(&mut self, now: Ps, link: LinkId) -> Vec<Packet> {
        let (Some(port), Some(ports)) = (self.port_of(link), &mut self.ports) else { return Vec::new() };
        self.queues[link.index()].add_waited(ports.ports[port].waited(now));
        let lost = ports.fail(now, port);
        self.queues[link.index()].count_refused(lost.len() as u64);
        if ports.has_timers {
            let timer = self.fabric.links().len() + port;
            self.unschedule(timer as u32);
            self.queues[timer].stop_timer();
        }
        lost
    }

    /// Adapts the port of a link, if there is one, to a new rate of the link. The rate applies from the next packet
    /// on.
    pub(in crate::network) fn set_port_rate(&mut self, link: LinkId) {
        if let (Some(port), Some(ports)) = (self.port_of(link), &mut self.ports) {
            ports.ports[port].set_frame_time(self.queues[link.index()].send_time(FRAME_BYTES));
        }
    }

    pub(in crate::network) fn port_of(&self, link: LinkId) -> Option<usize> {
        self.ports.as_ref()?.of(link)
    }

    pub(in crate::network) fn port(&self, link: LinkId) -> Option<&Port> {
        let ports = self.ports.as_ref()?;
        Some(&ports.ports[ports.of(link)?])
    }

    /// Number of packets that wait at ports with priorities, RED or pauses, and at paused cards.
    pub(in crate::network) fn waiting_at_ports(&self) -> u64 {
        let Some(ports) = &self.ports else { return 0 };
        let held = ports.held.values().map(|held| held.len() as u64).sum::<u64>();
        ports.ports.iter().map(|port| port.waiting() as u64).sum::<u64>() + held
    }

    /// The packets that wait at ports with priorities, RED or pauses, and at paused cards.
    pub(in crate::network) fn at_ports(&self) -> impl Iterator<Item = &Packet> {
        let ports = self.ports.iter().flat_map(|ports| &ports.ports).flat_map(Port::packets);
        let held = self.ports.iter().flat_map(|ports| ports.held.values()).flatten().map(|(_, packet)| packet);
        ports.chain(held)
    }

    /// Number of packets that these ports cut down to their headers.
    pub(in crate::network) fn trimmed_at_ports(&self) -> u64 {
        self.ports.iter().flat_map(|ports| &ports.ports).map(Port::trimmed).sum()
    }

    /// Number of events of these ports.
    pub(in crate::network) fn port_events(&self) -> u64 {
        self.queues[self.fabric.links().len()..].iter().map(LinkQueue::delivered_packets).sum()
    }
}
