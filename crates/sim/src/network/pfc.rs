//! Frames of priority-based flow control (IEEE 802.1Qbb): switches send and obey them, and so do the cards of hosts.
//!
//! A frame that pauses is a packet of no connection on the opposite link, so it takes its time. It passes all waiting
//! packets, but not the one that is being sent. A port of a switch chooses the next packet at the end of each, so a pause
//! only changes what it may choose. A card of a host is a FIFO that knows all departures in advance. It takes back what
//! has not begun, and keeps the paused part until the switch resumes it.

use super::{Arrival, Network};
use crate::deadlock::{cycle, retain_stuck, Paused};
use crate::outcome::{Deadlock, PauseOutcome};
use crate::packet::{Packet, Pause};
use crate::pfc::Pfc;
use crate::tap::{Fate, Tap};
use crate::time::{to_nanos, Ps};
use pathloom_model::LinkId;
use std::collections::{BTreeMap, VecDeque};

/// The packets that paused cards hold, by the link that the card sends into: each with the time since when it is held.
pub(super) type Held = BTreeMap<u32, VecDeque<(Ps, Packet)>>;

pub(super) fn pfc<T: Tap>(network: &Network<T>) -> Option<&Pfc> {
    network.ports.as_ref()?.pfc.as_deref()
}

pub(super) fn pfc_mut<T: Tap>(network: &mut Network<T>) -> Option<&mut Pfc> {
    network.ports.as_mut()?.pfc.as_deref_mut()
}

/// A packet has come by a link, and will leave the switch now. [`NOWHERE`](crate::port::NOWHERE) if the switch itself makes
/// packets.
pub(super) fn note_arriving<T: Tap>(network: &mut Network<T>, link: u32) {
    if let Some(pfc) = pfc_mut(network) {
        pfc.arriving = link;
    }
}

/// Sends the frames that are due. Their ports are up to date afterwards.
pub(super) fn send_pauses<T: Tap>(network: &mut Network<T>, now: Ps) {
    while let Some((about, pause)) = pfc_mut(network).and_then(Pfc::take_due) {
        let back = LinkId(about).reverse();
        let Some(port) = network.port_of(back).filter(|_| network.links[back.index()].is_up()) else { continue };
        network.make_choices(now, port, None);
        let Some(ports) = &mut network.ports else { return };
        let begins = ports.offer_urgent(now, port, Packet::of_pause(pause));
        if let Some(pfc) = pfc_mut(network) {
            pfc.sent += 1;
        }
        network.totals.sent += 1;
        if let Some(packet) = begins {
            network.begin(now, port, packet);
        }
    }
}

/// A frame has arrived by `link`: the other direction of the cable is paused or resumed.
pub(super) fn obey<T: Tap>(network: &mut Network<T>, now: Ps, link: u32, pause: Pause) -> Arrival {
    let about = LinkId(link).reverse();
    let is_card = network.fabric.is_host(network.fabric.link(about).from);
    let is_up = network.links[about.index()].is_up();
    let Some(pfc) = pfc_mut(network) else { return Arrival::Forwarded };
    pfc.received += u64::from(!is_card);
    if !is_up {
        return Arrival::Forwarded;
    }
    pfc.obey(now, about.0, pause);
    if is_card {
        if pause.stops {
            stop_card(network, now, about.0);
            return Arrival::Forwarded;
        }
        resume_card(network, now, about.0);
        return Arrival::Resumed(about);
    }
    if let (Some(port), Some(ports)) = (network.port_of(about), &mut network.ports) {
        let is_idle = ports.set_paused(port, pause);
        if is_idle && !pause.stops {
            network.send_next(now, port, now);
        }
    }
    send_pauses(network, now);
    Arrival::Forwarded
}

/// Whether a card must not send data of this slot into a link.
pub(crate) fn is_stopped<T: Tap>(network: &Network<T>, link: u32, slot: usize) -> bool {
    is_packet_stopped(network, link, &Packet::new((slot as u32) << 1, 0, 0, 0, 0))
}

fn is_packet_stopped<T: Tap>(network: &Network<T>, link: u32, packet: &Packet) -> bool {
    let Some(ports) = &network.ports else { return false };
    ports.pfc.as_ref().is_some_and(|pfc| pfc.is_stopped(link, ports.queue_of(&network.lanes, packet)))
}

/// Whether switches may pause cards, so that senders must ask [`is_stopped`].
#[inline(always)]
pub(crate) fn can_stop<T: Tap>(network: &Network<T>) -> bool {
    pfc(network).is_some()
}

/// A card gets a packet. Holds it back if its priority is paused. Returns whether it does.
#[inline(never)]
pub(super) fn holds_back<T: Tap>(network: &mut Network<T>, now: Ps, link: u32, packet: Packet) -> bool {
    if !is_packet_stopped(network, link, &packet) || !network.links[link as usize].is_up() {
        return false;
    }
    if T::ON {
        if let Some(headers) = network.lanes.headers(&packet) {
            network.tap.seen(now, LinkId(link), &packet.describe(headers), Fate::Queued);
        }
    }
    hold(network, now, link, packet);
    true
}

fn hold<T: Tap>(network: &mut Network<T>, now: Ps, link: u32, packet: Packet) {
    if let Some(ports) = &mut network.ports {
        ports.held.entry(link).or_default().push_back((now, packet));
    }
}

/// The card of a host takes back what has not begun. What is not paused follows at once.
fn stop_card<T: Tap>(network: &mut Network<T>, now: Ps, link: u32) {
    let back = network.links[link as usize].take_back(now);
    if network.links[link as usize].in_flight() == 0 && !back.is_empty() {
        network.wheel.remove(&mut network.links, link);
    }
    for packet in back {
        match is_packet_stopped(network, link, &packet) {
            true => hold(network, now, link, packet),
            false => take_again(network, now, link, packet),
        }
    }
}

/// The card of a host sends what it held, as far as it may.
fn resume_card<T: Tap>(network: &mut Network<T>, now: Ps, link: u32) {
    let held = network.ports.as_mut().and_then(|ports| ports.held.remove(&link)).unwrap_or_default();
    for (since, packet) in held {
        if is_packet_stopped(network, link, &packet) {
            hold(network, since, link, packet);
            continue;
        }
        network.links[link as usize].add_waited(now.saturating_sub(since));
        take_again(network, now.max(since), link, packet);
    }
}

fn take_again<T: Tap>(network: &mut Network<T>, now: Ps, link: u32, packet: Packet) {
    if let Some(at) = network.links[link as usize].take_again(now, packet) {
        network.schedule(at, link);
    }
}

/// A link has failed: its pauses end, and what its card held is lost. Returns that.
pub(super) fn fail_pauses<T: Tap>(network: &mut Network<T>, now: Ps, link: u32) -> Vec<Packet> {
    let Some(pfc) = pfc_mut(network) else { return Vec::new() };
    pfc.forget(now, link);
    let held = network.ports.as_mut().and_then(|ports| ports.held.remove(&link)).unwrap_or_default();
    let queue = &mut network.links[link as usize];
    held.iter().for_each(|&(since, _)| queue.add_waited(now.saturating_sub(since)));
    queue.count_refused(held.len() as u64);
    send_pauses(network, now);
    held.into_iter().map(|(_, packet)| packet).collect()
}

/// Sum of the times that the packets have waited that the card of a link holds.
pub(super) fn held_waited<T: Tap>(network: &Network<T>, link: LinkId, now: Ps) -> Ps {
    let held = network.ports.as_ref().and_then(|ports| ports.held.get(&link.0));
    held.into_iter().flatten().map(|&(since, _)| now.saturating_sub(since)).sum()
}

/// Number of pauses of a link, and the time during which one of its priorities was paused.
pub(crate) fn pauses<T: Tap>(network: &Network<T>, link: LinkId, now: Ps) -> (u64, Ps) {
    pfc(network).map_or((0, 0), |pfc| pfc.pauses(link.0, now))
}

/// Number of frames of flow control that switches received. Those that hosts received count like all packets of hosts.
pub(super) fn pauses_received<T: Tap>(network: &Network<T>) -> u64 {
    pfc(network).map_or(0, |pfc| pfc.received)
}

/// What flow control has done so far; `None` if there is none.
pub(crate) fn pause_outcome<T: Tap>(network: &Network<T>, now: Ps) -> Option<PauseOutcome> {
    let pfc = pfc(network)?;
    let links = 0..network.fabric.links().len() as u32;
    let beyond = |link: u32| pfc.most_waiting(link).saturating_sub(pfc.thresholds(link).xoff);
    Some(PauseOutcome {
        pauses: links.clone().map(|link| pfc.pauses(link, now).0).sum(),
        frames: pfc.sent,
        paused: to_nanos(links.clone().map(|link| pfc.pauses(link, now).1).sum()),
        most_beyond_xoff_bytes: links.map(beyond).max().unwrap_or(0),
        deadlock: (0..pfc.classes()).find_map(|class| deadlock(network, pfc, class)),
    })
}

/// The links of a priority that will never be resumed, if there are any.
fn deadlock<T: Tap>(network: &Network<T>, pfc: &Pfc, class: usize) -> Option<Deadlock> {
    let links = 0..network.fabric.links().len() as u32;
    let paused = |link: u32| Paused { xon: pfc.thresholds(link).xon, waiting: BTreeMap::new() };
    let stopped = links.filter(|&link| pfc.stops(link, class).is_some());
    let mut stuck: BTreeMap<u32, Paused> = stopped.map(|link| (link, paused(link))).collect();
    let numbers: Vec<u32> = stuck.keys().copied().collect();
    for &out in &numbers {
        for waiting in network.port(LinkId(out)).into_iter().flat_map(|port| port.waiting_in(class)) {
            if let Some(from) = stuck.get_mut(&waiting.from) {
                *from.waiting.entry(out).or_default() += waiting.packet.wire();
            }
        }
    }
    retain_stuck(&mut stuck);
    let cycle = cycle(&stuck);
    let since = cycle.iter().filter_map(|&link| pfc.stops(link, class)).max()?;
    let cycle = cycle.into_iter().map(LinkId).collect();
    Some(Deadlock { cycle, since: to_nanos(since), stuck: stuck.into_keys().map(LinkId).collect() })
}
