//! What a switch sees of its own output ports.

use super::ports::Ports;
use crate::link::LinkQueue;
use crate::time::Ps;
use pathloom_model::Fabric;
use pathloom_switching::selection::{PortState, PortView};

/// The ports of a switch at which these links begin.
pub(super) struct OwnPorts<'a> {
    pub(super) now: Ps,
    pub(super) of: &'a [u32],
    /// The links of the network.
    pub(super) links: &'a [LinkQueue],
    pub(super) ports: Option<&'a Ports>,
}

impl PortView for OwnPorts<'_> {
    #[inline(always)]
    fn state(&self, port: usize) -> PortState {
        let number = self.of[port];
        let link = &self.links[number as usize];
        let waiting = self.ports.map_or(0, |ports| ports.queued_bytes(number, link, self.now));
        let backlog = link.backlog_bytes(self.now);
        let sent_bytes = link.taken().bytes.saturating_sub(backlog);
        PortState { queue_bytes: backlog + waiting, sent_bytes, rate_bps: link.rate_bps(), is_up: link.is_up() }
    }
}

/// The links of a network, as those see them that choose among the next hops of a switch.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) now: Ps,
    pub(super) fabric: &'a Fabric,
    pub(super) links: &'a [LinkQueue],
    pub(super) ports: Option<&'a Ports>,
}

impl<'a> Around<'a> {
    /// The ports at which these links begin.
    #[inline(always)]
    pub(super) fn ports(self, of: &'a [u32]) -> OwnPorts<'a> {
        let Around { now, links, ports, .. } = self;
        OwnPorts { now, of, links, ports }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marks::{Marks, Signals};
    use crate::packet::Packet;
    use crate::port::{Offer, NOWHERE};
    use crate::settings::Handover;
    use pathloom_model::LinkId;

    const MICROSECOND: Ps = 1_000_000;

    /// The fabric of a specification, its links, and the number of the first link that begins at a switch.
    fn links(fabric: &str) -> (pathloom_model::Fabric, Vec<LinkQueue>, u32) {
        let fabric = pathloom_fabrics::fabric_from_spec(fabric).unwrap();
        let links = fabric.links().iter().map(|link| LinkQueue::new(link, false, Handover::End, None)).collect();
        let of_switch = fabric.links().iter().position(|link| !fabric.is_host(link.from)).unwrap();
        (fabric, links, of_switch as u32)
    }

    fn packet(bytes: u16) -> Packet {
        Packet::new(2, 0, 0, bytes, 0)
    }

    #[test]
    fn a_fifo_shows_what_has_not_left_it() {
        let (_, mut links, number) = links("fat-tree:k=4,rate=1Gbps,delay=5us");
        let state = |links: &[LinkQueue], us: u64| {
            OwnPorts { now: us * MICROSECOND, of: &[number], links, ports: None }.state(0)
        };
        let up =
            |(queue_bytes, sent_bytes)| PortState { queue_bytes, sent_bytes, rate_bps: 1_000_000_000, is_up: true };
        assert_eq!(state(&links, 0), up((0, 0)));
        for bytes in [1500, 1000] {
            links[number as usize].enqueue(0, packet(bytes), None);
        }
        let queues: Vec<PortState> = [0, 4, 12, 19, 20, 30].iter().map(|&us| state(&links, us)).collect();
        let left = [2500, 2000, 1000, 125, 0, 0].map(|queue| (queue, 2500 - queue));
        assert_eq!(queues, left.map(up));
        links[number as usize].enqueue(30 * MICROSECOND, packet(1000), None);
        links[number as usize].set_rate(30 * MICROSECOND, 100_000_000);
        assert_eq!(state(&links, 30).rate_bps, 100_000_000);
        links[number as usize].fail(31 * MICROSECOND, 31 * MICROSECOND);
        let after = state(&links, 31);
        assert_eq!((after.queue_bytes, after.rate_bps, after.is_up), (0, 100_000_000, false));
    }

    #[test]
    fn a_port_with_several_queues_shows_the_sum() {
        let (fabric, mut links, number) = links("fat-tree:k=4,rate=1Gbps,delay=5us,queues=2");
        let signals = Signals { marks: Marks::Never, headers: false, frame_bytes: 1514, queues: 1, telemetry: false };
        let mut ports = Ports::new(&fabric, signals, Handover::End, 1, &mut links).unwrap();
        let port = ports.port_mut(LinkId(number)).unwrap();
        assert!(matches!(port.offer(0, 0, packet(1500), NOWHERE), Offer::Begins(_)));
        port.begin(12 * MICROSECOND);
        assert_eq!([0, 1].map(|queue| port.offer(0, queue, packet(1000), NOWHERE)), [Offer::Waits, Offer::Waits]);
        let state = |us: u64| {
            let (links, ports) = (&links[..], Some(&*ports));
            OwnPorts { now: us * MICROSECOND, of: &[number], links, ports }.state(0)
        };
        // From 12 us on, the port sends what waits, although it has not been asked to choose.
        assert_eq!([0, 4, 12, 16, 20, 28, 40].map(|us| state(us).queue_bytes), [3500, 3000, 2000, 1500, 1000, 0, 0]);
        assert_eq!((state(0).rate_bps, state(0).is_up), (1_000_000_000, true));
    }
}
