//! A network in parts, each with its own nodes and for its own thread; and the messages between the parts.
//!
//! Each part has a queue for every link of the whole network, so that links keep their numbers. A link between two
//! parts has two queues (see [`LinkQueue::split`]).

use super::prefetch::{prefetch_tails, GROUP_LINKS};
use super::{credit_node, Network, Node};
use crate::lanes::Lanes;
use crate::link::LinkQueue;
use crate::packet::Packet;
use crate::parts::Plan;
use crate::tap::Tap;
use crate::time::{Ps, NEVER};
use crate::wheel::Wheel;
use pathloom_model::{Headers, LinkId, NodeId};
use std::collections::BTreeMap;

/// Change of a slot.
#[derive(Clone, Copy)]
enum SlotChange {
    /// A subflow has taken the slot; its data have these headers.
    Opened(Headers),
    /// The slot is free: no packet of its subflow is in the network any more.
    Released,
}

/// Messages from one part to another at the end of a window.
#[derive(Default)]
pub(crate) struct Parcel {
    /// Packets that will arrive in the other part, and the links by which they arrive.
    packets: Vec<Packet>,
    links: Vec<u32>,
    /// Lanes that lost packets, and how many.
    lost: Vec<(u32, i32)>,
    slots: Vec<(u32, SlotChange)>,
}

/// Messages of a part for the others. Empty in an undivided network.
#[derive(Default)]
pub(super) struct Outbox {
    /// By link: the part that contains its far end.
    ends_in: Vec<u8>,
    /// By part: the messages for it.
    parcels: Vec<Parcel>,
    /// Time when the first of the packets in the parcels arrives.
    earliest: Option<Ps>,
}

impl<T: Tap> Network<T> {
    /// Puts a packet on a link to another part. Returns whether the link took it.
    #[inline(always)]
    pub(super) fn send_across(&mut self, now: Ps, link: u32, packet: Packet) -> bool {
        let speeds = if T::LARGE { Some(&self.speeds) } else { None };
        let Some(packet) = self.links[link as usize].enqueue_across(now, packet, speeds) else { return false };
        let parcel = &mut self.outbox.parcels[usize::from(self.outbox.ends_in[link as usize])];
        parcel.packets.push(packet);
        parcel.links.push(link);
        let earliest = self.outbox.earliest.unwrap_or(NEVER).min(packet.deliver_at);
        self.outbox.earliest = Some(earliest);
        true
    }

    /// Informs the other parts that a slot was opened.
    pub(super) fn note_opened(&mut self, slot: usize, data: Headers) {
        self.note(slot, SlotChange::Opened(data));
    }

    /// Informs the other parts that a slot was freed.
    pub(super) fn note_released(&mut self, slot: usize) {
        self.note(slot, SlotChange::Released);
    }

    fn note(&mut self, slot: usize, change: SlotChange) {
        self.outbox.parcels.iter_mut().for_each(|parcel| parcel.slots.push((slot as u32, change)));
    }

    /// Informs the part of the hosts that packets of a lane were lost.
    pub(crate) fn note_lost(&mut self, lane: u32, packets: i32) {
        self.outbox.parcels[0].lost.push((lane, packets));
    }

    /// Time when the first packet arrives that this part has sent to others since the last exchange.
    pub(crate) fn earliest_sent(&self) -> Ps {
        self.outbox.earliest.unwrap_or(NEVER)
    }

    /// Time before which no packet arrives in this part, except packets that others send.
    pub(crate) fn earliest_arrival(&self) -> Ps {
        self.wheel.earliest()
    }

    /// Swaps the messages of this part for another one into an empty parcel.
    pub(crate) fn send_messages(&mut self, to: usize, parcel: &mut Parcel) {
        self.outbox.earliest = None;
        std::mem::swap(&mut self.outbox.parcels[to], parcel);
    }

    /// Handles the messages of another part for this one. Adds lanes whose packets were lost to `lost`.
    pub(crate) fn receive_messages(&mut self, parcel: &mut Parcel, lost: &mut Vec<(u32, i32)>) {
        self.change_slots(&parcel.slots);
        for (packets, links) in parcel.packets.chunks(GROUP_LINKS).zip(parcel.links.chunks(GROUP_LINKS)) {
            if T::LARGE {
                prefetch_tails(&self.links, links);
            }
            for (&packet, &link) in packets.iter().zip(links) {
                if let Some(at) = self.links[link as usize].expect(packet) {
                    self.schedule(at, link);
                }
            }
        }
        lost.append(&mut parcel.lost);
        parcel.packets.clear();
        parcel.links.clear();
        parcel.slots.clear();
    }

    fn change_slots(&mut self, changes: &[(u32, SlotChange)]) {
        for &(slot, change) in changes {
            match change {
                SlotChange::Opened(data) => self.make_room(slot as usize, data),
                SlotChange::Released => self.forget_slot(slot as usize),
            }
        }
    }

    /// Makes a wheel of all links that arrive in the part and are not empty.
    fn fill_wheel(&mut self, now: Ps, arrive_here: impl Fn(LinkId) -> bool) {
        let count = (0..self.links.len() as u32).filter(|&link| arrive_here(LinkId(link))).count();
        self.wheel = Wheel::new(count, self.typical, T::LARGE);
        self.wheel.advance_to(now);
        for link in 0..self.links.len() as u32 {
            let due = self.links[link as usize].next_due();
            if let Some(at) = due.filter(|_| arrive_here(LinkId(link))) {
                self.schedule(at, link);
            }
        }
    }
}

impl<T: Tap + Default> Network<T> {
    /// Divides the network: keeps the first part and returns the others. No event before `now` may be left.
    pub(crate) fn divide(&mut self, now: Ps, plan: &Plan) -> Vec<Network<T>> {
        let fabric = self.fabric.clone();
        let ends_in: Vec<u8> = fabric.links().iter().map(|link| plan.of(link.to)).collect();
        let outbox = || Outbox {
            ends_in: ends_in.clone(),
            parcels: (0..plan.parts()).map(|_| Parcel::default()).collect(),
            earliest: None,
        };
        let part = |number: u8| Network {
            fabric: fabric.clone(),
            links: fabric.links().iter().map(|_| LinkQueue::placeholder()).collect(),
            speeds: self.speeds.clone(),
            wheel: Wheel::new(1, 1, T::LARGE),
            typical: self.typical,
            nodes: fabric.nodes().iter().map(|_| Node::Host).collect(),
            cache: self.cache.part(|node| plan.of(node) == number),
            lanes: self.lanes.for_part(),
            totals: Default::default(),
            programs: None,
            ports: None,
            sprays: self.sprays,
            sets: self.sets.part(|node| plan.of(node) == number),
            balancers: None,
            losses: self.losses.part(|link| ends_in[link as usize] == number),
            interruptions: BTreeMap::new(),
            outbox: outbox(),
            tap: T::default(),
        };
        let mut parts: Vec<Network<T>> = (0..plan.parts() as u8).map(part).collect();
        for (index, (queue, link)) in self.links.drain(..).zip(fabric.links()).enumerate() {
            let [from, to] = [link.from, link.to].map(|node| usize::from(plan.of(node)));
            parts[from].links[index] = queue;
            if from != to {
                parts[to].links[index] = parts[from].links[index].split();
            }
        }
        for (index, node) in self.nodes.drain(..).enumerate() {
            parts[usize::from(plan.of(NodeId(index as u32)))].nodes[index] = node;
        }
        for (number, part) in parts.iter_mut().enumerate() {
            part.fill_wheel(now, |link| usize::from(ends_in[link.index()]) == number);
        }
        let others = parts.split_off(1);
        let Some(first) = parts.pop() else { return Vec::new() };
        let whole = std::mem::replace(self, first);
        (self.lanes, self.totals, self.interruptions) = (whole.lanes, whole.totals, whole.interruptions);
        others
    }

    /// Takes back the parts that [`Network::divide`] returned. No event before `now` may be left in any part.
    pub(crate) fn join(&mut self, now: Ps, plan: &Plan, mut others: Vec<Network<T>>) {
        let fabric = self.fabric.clone();
        for (number, part) in (1..).zip(&mut others) {
            let changes = std::mem::take(&mut self.outbox.parcels[number].slots);
            part.change_slots(&changes);
        }
        self.outbox = Outbox::default();
        for (index, link) in fabric.links().iter().enumerate() {
            let [from, to] = [link.from, link.to].map(|node| usize::from(plan.of(node)));
            let mut take = |part: usize| {
                let of = part.checked_sub(1).map_or(&mut self.links[index], |other| &mut others[other].links[index]);
                std::mem::replace(of, LinkQueue::placeholder())
            };
            let mut queue = take(from);
            if from != to {
                queue.reunite(take(to));
            }
            self.links[index] = queue;
        }
        for (number, part) in (1..).zip(others) {
            debug_assert!(part.interruptions.is_empty(), "faults come while the network is whole");
            for (index, node) in part.nodes.into_iter().enumerate() {
                if plan.of(NodeId(index as u32)) == number {
                    self.nodes[index] = node;
                }
            }
            let (lanes, nodes): (&Lanes, _) = (&self.lanes, &mut self.nodes);
            self.cache.join(part.cache, |switch, owed| credit_node(&mut nodes[switch.index()], lanes, &owed));
            self.losses.join(part.losses);
            self.sets.join(part.sets);
            self.totals.add(&part.totals);
        }
        self.fill_wheel(now, |_| true);
    }
}
