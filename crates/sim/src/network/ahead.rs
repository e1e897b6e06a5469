//! Brings near what the arrivals of a batch will need: on a large fabric, a packet-hop waits for memory most of its time.
//!
//! A packet-hop touches one thing after another: the link that it leaves, its packet in that link's ring, the remembered
//! decision, the link that it enters and that link's ring. Each tells where the next one is, so a hop alone waits five
//! times. Here every step is asked for all arrivals of a batch before the next step begins: the waits overlap.

use crate::cache::Cache;
use crate::link::LinkQueue;
use crate::trusted::{fetch, fetch_byte, item};
use crate::wheel::LinksDue;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Asks for what the arrivals at the ends of these links will touch. Changes nothing but time.
#[inline(never)]
pub(super) fn ask_ahead(links: &[LinkQueue], cache: &Cache, due: LinksDue<'_>) {
    due.iter().for_each(|link| fetch_link(links, link));
    let queues = || due.iter().map(|link| item(links, link as usize));
    queues().for_each(LinkQueue::fetch_head);
    let forwarded = || queues().filter(|queue| !queue.to_host()).filter_map(LinkQueue::head);
    forwarded().for_each(|packet| cache.fetch(packet));
    let out_links = || forwarded().filter_map(|packet| cache.out_link(packet));
    out_links().for_each(|link| fetch_link(links, link));
    out_links().filter_map(|link| links.get(link as usize)).for_each(LinkQueue::fetch_tail);
}

/// Asks for both cache lines of a link.
#[inline(always)]
fn fetch_link(links: &[LinkQueue], link: u32) {
    fetch(links, link as usize);
    fetch_byte(links, link as usize, LINE);
}
