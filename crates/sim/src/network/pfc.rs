//! Frames of priority-based flow control (IEEE 802.1Qbb): switches send and obey them, and so do the cards of hosts.
//!
//! A frame that pauses is a packet of no connection on the opposite link, so it takes its time. It passes all waiting
//! packets, but not the one that is being sent. A port of a switch chooses the next packet at the end of each, so a pause
//! only changes what it may choose. A card of a host is a FIFO that knows all departures in advance. It takes back what
//! has not begun, and keeps the paused part until the switch resumes it.

use super::links::Links;
use super::victims;
use super::Arrival;
use crate::deadlock::{cycle, retain_stuck, Paused};
use crate::outcome::{Deadlock, PauseOutcome};
use crate::packet::{Packet, Pause};
use crate::pfc::Pfc;
use crate::tap::{Fate, Tap};
use crate::time::{to_nanos, Ps};
use pathloom_model::LinkId;
use std::collections::BTreeMap;

pub(super) fn pfc<T: Tap>(links: &Links<T>) -> Option<&Pfc> {
    links.ports.as_ref()?.pfc.as_deref()
}

pub(super) fn pfc_mut<T: Tap>(links: &mut Links<T>) -> Option<&mut Pfc> {
    links.ports.as_mut()?.pfc.as_deref_mut()
}

/// A packet has come by a link, and will leave the switch now. [`NOWHERE`](crate::port::NOWHERE) if the switch itself makes
/// packets.
pub(super) fn note_arriving<T: Tap>(links: &mut Links<T>, link: u32) {
    if let Some(pfc) = pfc_mut(links) {
        pfc.arriving = link;
    }
}

/// Sends the frames that are due. Their ports are up to date afterwards.
pub(super) fn send_pauses<T: Tap>(links: &mut Links<T>, now: Ps) {
    while let Some((about, pause)) = pfc_mut(links).and_then(Pfc::take_due) {
        let back = LinkId(about).reverse();
        let Some(port) = links.port_of(back).filter(|_| links[back.index()].is_up()) else { continue };
        links.make_choices(now, port, None);
        let Some(ports) = &mut links.ports else { return };
        let begins = ports.offer_urgent(now, port, Packet::of_pause(pause));
        if let Some(pfc) = pfc_mut(links) {
            pfc.sent += 1;
        }
        if let Some(packet) = begins {
            links.begin(now, port, packet);
        }
    }
}

/// A frame has arrived by `link`: the other direction of the cable is paused or resumed.
pub(super) fn obey<T: Tap>(links: &mut Links<T>, now: Ps, link: u32, pause: Pause) -> Arrival {
    let about = LinkId(link).reverse();
    let is_card = links.fabric.is_host(links.fabric.link(about).from);
    let is_up = links[about.index()].is_up();
    let Some(pfc) = pfc_mut(links) else { return Arrival::Forwarded };
    pfc.received += u64::from(!is_card);
    pfc.at_hosts += u64::from(is_card);
    if !is_up {
        return Arrival::Forwarded;
    }
    obey_at(links, now, about.0, pause);
    if is_card {
        if pause.stops {
            stop_card(links, now, about.0);
            return Arrival::Forwarded;
        }
        resume_card(links, now, about.0);
        return Arrival::Resumed(about);
    }
    if let (Some(port), Some(ports)) = (links.port_of(about), &mut links.ports) {
        let is_idle = ports.set_paused(port, pause);
        if is_idle && !pause.stops {
            links.send_next(now, port, now);
        }
    }
    send_pauses(links, now);
    Arrival::Forwarded
}

/// Pauses or resumes a priority of a link, and notes what that holds back.
fn obey_at<T: Tap>(links: &mut Links<T>, now: Ps, link: u32, pause: Pause) {
    let (paused, class) = ((link, pause.class), usize::from(pause.class));
    let was_stopped = pfc(links).is_some_and(|pfc| pfc.is_stopped(link, class));
    if was_stopped && !pause.stops {
        victims::end(links, now, paused);
    }
    if let Some(pfc) = pfc_mut(links) {
        pfc.obey(now, link, pause);
    }
    if pause.stops && !was_stopped {
        victims::begin(links, paused);
    }
}

/// Whether a card must not send data of this slot into a link. If so, its connection waits from now on.
pub(crate) fn must_wait<T: Tap>(links: &mut Links<T>, now: Ps, link: u32, slot: usize) -> bool {
    let Some(ports) = &links.ports else { return false };
    let class = ports.queue_of(&links.lanes, &Packet::new((slot as u32) << 1, 0, 0, 0, 0));
    let waits = ports.pfc.as_ref().is_some_and(|pfc| pfc.is_stopped(link, class));
    if waits {
        victims::wait_at_card(links, now, (link, class as u8), slot);
    }
    waits
}

fn is_packet_stopped<T: Tap>(links: &Links<T>, link: u32, packet: &Packet) -> bool {
    let Some(ports) = &links.ports else { return false };
    ports.pfc.as_ref().is_some_and(|pfc| pfc.is_stopped(link, ports.queue_of(&links.lanes, packet)))
}

/// Whether switches may pause cards, so that senders must ask [`must_wait`].
#[inline(always)]
pub(crate) fn can_stop<T: Tap>(links: &Links<T>) -> bool {
    pfc(links).is_some()
}

/// A card gets a packet. Holds it back if its priority is paused. Returns whether it does.
#[inline(never)]
pub(super) fn holds_back<T: Tap>(links: &mut Links<T>, now: Ps, link: u32, packet: Packet) -> bool {
    if !is_packet_stopped(links, link, &packet) || !links[link as usize].is_up() {
        return false;
    }
    if T::ON {
        if let Some(headers) = links.lanes.headers(&packet) {
            links.tap.seen(now, LinkId(link), &packet.describe(headers), Fate::Queued);
        }
    }
    hold(links, now, link, packet);
    true
}

fn hold<T: Tap>(links: &mut Links<T>, now: Ps, link: u32, packet: Packet) {
    if let Some(ports) = &mut links.ports {
        ports.held.entry(link).or_default().push_back((now, packet));
    }
}

/// The card of a host takes back what has not begun. What is not paused follows at once.
fn stop_card<T: Tap>(links: &mut Links<T>, now: Ps, link: u32) {
    let back = links[link as usize].take_back(now);
    if links[link as usize].in_flight() == 0 && !back.is_empty() {
        links.unschedule(link);
    }
    for packet in back {
        match is_packet_stopped(links, link, &packet) {
            true => hold(links, now, link, packet),
            false => take_again(links, now, link, packet),
        }
    }
}

/// The card of a host sends what it held, as far as it may.
fn resume_card<T: Tap>(links: &mut Links<T>, now: Ps, link: u32) {
    let held = links.ports.as_mut().and_then(|ports| ports.held.remove(&link)).unwrap_or_default();
    for (since, packet) in held {
        if is_packet_stopped(links, link, &packet) {
            hold(links, since, link, packet);
            continue;
        }
        links[link as usize].add_waited(now.saturating_sub(since));
        take_again(links, now.max(since), link, packet);
    }
}

fn take_again<T: Tap>(links: &mut Links<T>, now: Ps, link: u32, packet: Packet) {
    if let Some(at) = links[link as usize].take_again(now, packet) {
        links.schedule(at, link);
    }
}

/// A link has failed: its pauses end, and what its card held is lost. Returns that.
pub(super) fn fail_pauses<T: Tap>(links: &mut Links<T>, now: Ps, link: u32) -> Vec<Packet> {
    for class in 0..pfc(links).map_or(0, Pfc::classes) as u8 {
        obey_at(links, now, link, Pause { class, stops: false });
    }
    let Some(pfc) = pfc_mut(links) else { return Vec::new() };
    pfc.forget(link);
    let held = links.ports.as_mut().and_then(|ports| ports.held.remove(&link)).unwrap_or_default();
    let queue = &mut links[link as usize];
    held.iter().for_each(|&(since, _)| queue.add_waited(now.saturating_sub(since)));
    queue.count_refused(held.len() as u64);
    send_pauses(links, now);
    held.into_iter().map(|(_, packet)| packet).collect()
}

/// Sum of the times that the packets have waited that the card of a link holds.
pub(super) fn held_waited<T: Tap>(links: &Links<T>, link: LinkId, now: Ps) -> Ps {
    let held = links.ports.as_ref().and_then(|ports| ports.held.get(&link.0));
    held.into_iter().flatten().map(|&(since, _)| now.saturating_sub(since)).sum()
}

/// Number of pauses of a link, and the time during which one of its priorities was paused.
pub(crate) fn pauses<T: Tap>(links: &Links<T>, link: LinkId, now: Ps) -> (u64, Ps) {
    pfc(links).map_or((0, 0), |pfc| pfc.pauses(link.0, now))
}

/// Number of frames of flow control that switches sent.
pub(super) fn pauses_sent<T: Tap>(links: &Links<T>) -> u64 {
    pfc(links).map_or(0, |pfc| pfc.sent)
}

/// Number of frames of flow control that switches received. Those that hosts received count like all packets of hosts.
pub(super) fn pauses_received<T: Tap>(links: &Links<T>) -> u64 {
    pfc(links).map_or(0, |pfc| pfc.received)
}

/// Number of frames of flow control that switches and hosts received.
pub(super) fn pauses_taken<T: Tap>(links: &Links<T>) -> u64 {
    pfc(links).map_or(0, |pfc| pfc.received + pfc.at_hosts)
}

/// What flow control has done so far; `None` if there is none.
pub(crate) fn pause_outcome<T: Tap>(links: &Links<T>, now: Ps) -> Option<PauseOutcome> {
    let pfc = pfc(links)?;
    let numbers = 0..links.fabric.links().len() as u32;
    let beyond = |link: u32| pfc.most_waiting(link).saturating_sub(pfc.thresholds(link).xoff);
    Some(PauseOutcome {
        pauses: numbers.clone().map(|link| pfc.pauses(link, now).0).sum(),
        frames: pfc.sent,
        paused: to_nanos(numbers.clone().map(|link| pfc.pauses(link, now).1).sum()),
        most_beyond_xoff_bytes: numbers.map(beyond).max().unwrap_or(0),
        victims: victims::victims(links, pfc, now),
        deadlock: (0..pfc.classes()).find_map(|class| deadlock(links, pfc, class)),
    })
}

/// The links of a priority that will never be resumed, if there are any.
fn deadlock<T: Tap>(links: &Links<T>, pfc: &Pfc, class: usize) -> Option<Deadlock> {
    let numbers = 0..links.fabric.links().len() as u32;
    let paused = |link: u32| Paused { xon: pfc.thresholds(link).xon, waiting: BTreeMap::new() };
    let stopped = numbers.filter(|&link| pfc.stops(link, class).is_some());
    let mut stuck: BTreeMap<u32, Paused> = stopped.map(|link| (link, paused(link))).collect();
    let numbers: Vec<u32> = stuck.keys().copied().collect();
    for &out in &numbers {
        for waiting in links.port(LinkId(out)).into_iter().flat_map(|port| port.waiting_in(class)) {
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
