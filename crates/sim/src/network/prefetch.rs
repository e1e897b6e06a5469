//! Prefetches the data that the arrivals of a batch will need. On a large fabric, a packet-hop waits for memory most
//! of its time.
//!
//! A packet-hop touches one object after another: the link that the packet leaves, the packet in that link's ring,
//! the cached decision, the link that the packet enters, and that link's ring. Each object tells where the next one
//! is, so a single hop waits five times. Here, each step is done for all arrivals of a batch before the next step
//! begins, so that the waits overlap.

#![allow(unsafe_code)]

use crate::cache::Cache;
use crate::interface::Interface;
use crate::link::LinkQueue;
use crate::packet::Packet;
use crate::trusted::{fetch, item};
use crate::wheel::LinksDue;

/// Number of links whose data are prefetched together: more than the usual batch has.
pub(super) const GROUP_LINKS: usize = 32;

/// Prefetches the data that the arrivals at the ends of these links will touch. `at_host` does the same for a packet
/// that reaches a host. Affects only speed.
#[inline(never)]
pub(super) fn prefetch_batch(links: &[LinkQueue], cache: &Cache, due: LinksDue<'_>, at_host: impl Fn(&Packet)) {
    due.groups(GROUP_LINKS).for_each(|group| prefetch_group(links, cache, group, &at_host));
}

#[inline(always)]
fn prefetch_group(links: &[LinkQueue], cache: &Cache, due: LinksDue<'_>, at_host: impl Fn(&Packet)) {
    // A delivery needs only the first cache line of its link.
    due.iter().for_each(|link| fetch(links, link as usize));
    // SAFETY: the wheel of these links gives no others.
    due.iter().for_each(|link| unsafe { item(links, link as usize) }.fetch_first_two());
    let (mut numbers, mut count) = ([0; GROUP_LINKS], 0);
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
                numbers[count] = cache.fetch(packet);
                count += 1;
            }
            None => {}
        }
    }
    for number in &mut numbers[..count] {
        *number = cache.out_link(*number) as usize;
        fetch(links, *number);
    }
    for &link in &numbers[..count] {
        let Some(queue) = links.get(link) else { continue };
        queue.fetch_tail();
    }
}

/// Prefetches the places where these links will store the packets that are put on them. Affects only speed.
pub(super) fn prefetch_tails(links: &[LinkQueue], entered: &[u32]) {
    entered.iter().for_each(|&link| fetch(links, link as usize));
    entered.iter().filter_map(|&link| links.get(link as usize)).for_each(LinkQueue::fetch_tail);
}
