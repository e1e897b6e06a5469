//! Prefetches the data that the arrivals of a batch will need. On a large fabric, a packet-hop waits for memory most
//! of its time.
//!
//! A packet-hop touches one object after another: the link that the packet leaves, the packet in that link's ring,
//! the cached decision, the link that the packet enters, and that link's ring. Each object tells where the next one
//! is, so a single hop waits five times. Here, each step is done for all arrivals of a batch before the next step
//! begins, so that the waits overlap.

#![allow(unsafe_code)]

use super::ports::Ports;
use crate::cache::Cache;
use crate::interface::Interface;
use crate::link::LinkQueue;
use crate::next_hops::Sets;
use crate::packet::Packet;
use crate::trusted::{fetch, item};
use crate::wheel::LinksDue;

/// Number of links whose data are prefetched together: more than the usual batch has.
pub(super) const GROUP_LINKS: usize = 32;

/// What the arrivals of a batch touch.
#[derive(Clone, Copy)]
pub(super) struct Touched<'a> {
    pub(super) links: &'a [LinkQueue],
    pub(super) cache: &'a Cache,
    pub(super) sets: &'a Sets,
    pub(super) ports: Option<&'a Ports>,
}

/// Prefetches the data that the arrivals at the ends of these links will touch. `at_host` does the same for a packet
/// that reaches a host. Affects only speed.
#[inline(never)]
pub(super) fn prefetch_batch(touched: Touched<'_>, due: LinksDue<'_>, at_host: impl Fn(&Packet)) {
    due.groups(GROUP_LINKS).for_each(|group| prefetch_group(touched, group, &at_host));
}

#[inline(always)]
fn prefetch_group(touched: Touched<'_>, due: LinksDue<'_>, at_host: impl Fn(&Packet)) {
    let Touched { links, cache, sets, ports } = touched;
    // A delivery needs only the first cache line of its link.
    due.iter().for_each(|link| fetch(links, link as usize));
    if let Some(ports) = ports {
        due.iter().for_each(|link| ports.fetch(link));
        due.iter().for_each(|link| ports.fetch_queues(link));
    }
    // SAFETY: the wheel of these links gives no others.
    due.iter().for_each(|link| unsafe { item(links, link as usize) }.fetch_first_two());
    // Links with packets for switches, with the place of the decision; then the link that the packet will enter.
    let (mut numbers, mut count) = ([(0, 0); GROUP_LINKS], 0);
    for link in due.iter() {
        // SAFETY: as above.
        let queue = unsafe { item(links, link as usize) };
        match queue.head() {
            Some(packet) if queue.to_host() => {
                at_host(packet);
                // The link by which the host answers.
                fetch(links, Interface::at_end_of(link).uplink().index());
            }
            Some(packet) => {
                numbers[count] = (link, cache.fetch(packet, link));
                count += 1;
            }
            None => {}
        }
    }
    for (link, place) in &mut numbers[..count] {
        // SAFETY: as above.
        let head = unsafe { item(links, *link as usize) }.head();
        *link = cache.out_link(*place, |set| sets.foresee(set, head?));
        fetch(links, *link as usize);
    }
    let entered = || numbers[..count].iter().map(|&(link, _)| link);
    if let Some(ports) = ports {
        entered().for_each(|link| ports.fetch(link));
        entered().for_each(|link| ports.fetch_queues(link));
        return entered().for_each(|link| ports.fetch_tails(link));
    }
    for link in entered() {
        let Some(queue) = links.get(link as usize) else { continue };
        queue.fetch_tail();
    }
}

/// Prefetches the places where these links will store the packets that are put on them. Affects only speed.
pub(super) fn prefetch_tails(links: &[LinkQueue], entered: &[u32]) {
    entered.iter().for_each(|&link| fetch(links, link as usize));
    entered.iter().filter_map(|&link| links.get(link as usize)).for_each(LinkQueue::fetch_tail);
}
