//! The queues that cause pauses, and what they hold back ([`crate::victims`]).
//!
//! A switch pauses a link because bytes of it wait at the ports of the switch. The search goes to the port where most of them
//! wait. If that port is paused itself, the search continues at the switch at the other end. The port that sends at last is
//! the root. Paused ports in a cycle have none.

use super::links::Links;
use super::pfc::{pfc, pfc_mut};
use crate::lanes::NO_CONNECTION;
use crate::packet::Packet;
use crate::pfc::Pfc;
use crate::tap::Tap;
use crate::time::Ps;
use crate::victims::{QueueId, Victim, Victims};
use pathloom_model::{FiveTuple, LinkId};
use std::collections::BTreeSet;

/// A priority of a link has been paused.
pub(super) fn begin<T: Tap>(links: &mut Links<T>, paused: QueueId) {
    let Some(root) = pfc(links).and_then(|pfc| root_of(links, pfc, paused)) else { return };
    let Some(pfc) = pfc_mut(links) else { return };
    if !pfc.victims.begin(paused, root) {
        return;
    }
    let Some(port) = links.port(LinkId(root.0)) else { return };
    let waiting: Vec<Packet> = port.waiting_in(root.1.into()).map(|waiting| waiting.packet).collect();
    waiting.iter().for_each(|packet| wait(links, root, packet));
}

/// The queue where the packets wait because of which a priority of a link is paused.
fn root_of<T: Tap>(links: &Links<T>, pfc: &Pfc, paused: QueueId) -> Option<QueueId> {
    let (mut link, class) = paused;
    let mut seen = BTreeSet::new();
    while seen.insert(link) {
        let bytes_of = |out: &LinkId| -> u64 {
            let waiting = links.port(*out).into_iter().flat_map(|port| port.waiting_in(class.into()));
            waiting.filter(|waiting| waiting.from == link).map(|waiting| waiting.packet.wire()).sum()
        };
        let outs = &links.fabric.node(links.fabric.link(LinkId(link)).to).ports;
        let most = outs.iter().copied().map(|out| (bytes_of(&out), std::cmp::Reverse(out))).max()?;
        let (bytes, std::cmp::Reverse(out)) = most;
        if bytes == 0 {
            return None;
        }
        if !pfc.is_stopped(out.0, class.into()) {
            return Some((out.0, class));
        }
        link = out.0;
    }
    None
}

/// A packet waits in a queue.
pub(super) fn wait<T: Tap>(links: &mut Links<T>, queue: QueueId, packet: &Packet) {
    let Links { ports, lanes, .. } = links;
    let Some(pfc) = ports.as_mut().and_then(|ports| ports.pfc.as_deref_mut()) else { return };
    if packet.slot() != NO_CONNECTION {
        pfc.victims.wait(queue, || lanes.five_tuple(packet.slot()));
    }
}

/// The turn of a connection has come at a paused card.
pub(super) fn wait_at_card<T: Tap>(links: &mut Links<T>, now: Ps, paused: QueueId, slot: usize) {
    let five_tuple = links.lanes.five_tuple(slot);
    if let Some(pfc) = pfc_mut(links) {
        pfc.victims.wait_at_card(now, paused, five_tuple);
    }
}

/// A priority of a link is about to be resumed.
pub(super) fn end<T: Tap>(links: &mut Links<T>, now: Ps, paused: QueueId) {
    let waiting = held_back(links, paused);
    if let Some(pfc) = pfc_mut(links) {
        pfc.victims.end(now, paused, waiting);
    }
}

/// The connections with packets that wait for a paused priority of a link, each with the time since when it is held back.
fn held_back<T: Tap>(links: &Links<T>, (link, class): QueueId) -> Vec<(FiveTuple, Ps)> {
    let Some(ports) = &links.ports else { return Vec::new() };
    let since = ports.pfc.as_ref().map_or(0, |pfc| pfc.stopped_since(link, class.into()));
    let mut slots: Vec<(usize, Ps)> = match links.port(LinkId(link)) {
        Some(port) => port.waiting_in(class.into()).map(|one| (one.packet.slot(), one.came.max(since))).collect(),
        None => {
            let held = ports.held.get(&link).into_iter().flatten();
            let of_class = held.filter(|(_, packet)| ports.queue_of(&links.lanes, packet) == usize::from(class));
            of_class.map(|(came, packet)| (packet.slot(), *came)).collect()
        }
    };
    // Acknowledgements belong to the connection of their data. The earliest time comes first.
    slots.sort_unstable();
    slots.dedup_by_key(|&mut (slot, _)| slot);
    let of_connections = slots.into_iter().filter(|&(slot, _)| slot != NO_CONNECTION);
    of_connections.map(|(slot, came)| (links.lanes.five_tuple(slot), came)).collect()
}

/// The victims so far, also of pauses that have not ended.
pub(super) fn victims<T: Tap>(links: &Links<T>, pfc: &Pfc, now: Ps) -> Vec<Victim> {
    let mut so_far: Victims = pfc.victims.clone();
    for link in 0..links.fabric.links().len() as u32 {
        for class in (0..pfc.classes()).filter(|&class| pfc.is_stopped(link, class)) {
            let paused = (link, class as u8);
            so_far.end(now, paused, held_back(links, paused));
        }
    }
    so_far.all()
}
