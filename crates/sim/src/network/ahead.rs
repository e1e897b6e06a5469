//! Brings near what the arrivals of a batch will need: on a large fabric, a packet-hop waits for memory most of its time.
//!
//! A packet-hop touches one thing after another: the link that it leaves, its packet in that link's ring, the remembered
//! decision, the link that it enters and that link's ring. Each tells where the next one is, so a hop alone waits five
//! times. Here every step is asked for all arrivals of a batch before the next step begins: the waits overlap.

use crate::cache::Cache;
use crate::interface::Interface;
use crate::link::LinkQueue;
use crate::packet::Packet;
use crate::trusted::{fetch, item};
use crate::wheel::LinksDue;

/// Links whose arrivals are asked for together: more than the usual batch has.
pub(super) const TOGETHER: usize = 32;

/// Asks for what the arrivals at the ends of these links will touch; `at_host` for what a host will touch that gets a packet.
/// Changes nothing but time.
#[inline(never)]
pub(super) fn ask_ahead(links: &[LinkQueue], cache: &Cache, due: LinksDue<'_>, at_host: impl Fn(&Packet)) {
    due.groups(TOGETHER).for_each(|group| ask_together(links, cache, group, &at_host));
}

#[inline(always)]
fn ask_together(links: &[LinkQueue], cache: &Cache, due: LinksDue<'_>, at_host: impl Fn(&Packet)) {
    // A delivery needs the first cache line of its link alone.
    due.iter().for_each(|link| fetch(links, link as usize));
    due.iter().for_each(|link| item(links, link as usize).fetch_first_two());
    let (mut numbers, mut count) = ([0; TOGETHER], 0);
    for link in due.iter() {
        let queue = item(links, link as usize);
        match queue.head() {
            Some(packet) if queue.to_host() => {
                at_host(packet);
                // By which the host answers.
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

/// Asks for what packets will touch that are put on these links, at their ends. Changes nothing but time.
pub(super) fn ask_for_tails(links: &[LinkQueue], entered: &[u32]) {
    entered.iter().for_each(|&link| fetch(links, link as usize));
    entered.iter().filter_map(|&link| links.get(link as usize)).for_each(LinkQueue::fetch_tail);
}
