//! A network in parts, each with its own nodes and for its own thread.
//!
//! Each part has a queue for every link of the whole network, so that links keep their numbers. A link between two
//! parts has two queues (see [`LinkQueue::split`]).

use super::destinations::Destinations;
use super::links::Links;
use super::node::{Node, Totals};
use super::outbox::{Outbox, Parcel, SlotChange};
use super::plan::Plan;
use super::prefetch::GROUP_LINKS;
use super::switches::Switches;
use super::Network;
use crate::link::LinkQueue;
use crate::tap::Tap;
use crate::time::{Ps, NEVER};
use crate::wheel::Wheel;
use pathloom_model::NodeId;
use std::collections::BTreeMap;

impl<T: Tap> Network<T> {
    /// Informs the part of the hosts that packets of a lane were lost.
    pub(crate) fn note_lost(&mut self, lane: u32, packets: i32) {
        self.links.outbox.parcels[0].lost.push((lane, packets));
    }

    /// Time when the first packet arrives that this part has sent to others since the last exchange.
    pub(crate) fn earliest_sent(&self) -> Ps {
        self.links.outbox.earliest.unwrap_or(NEVER)
    }

    /// Time before which no packet arrives in this part, except packets that others send.
    pub(crate) fn earliest_arrival(&self) -> Ps {
        self.links.wheel.earliest()
    }

    /// Swaps the messages of this part for another one into an empty parcel.
    pub(crate) fn send_messages(&mut self, to: usize, parcel: &mut Parcel) {
        let outbox = &mut self.links.outbox;
        outbox.earliest = None;
        std::mem::swap(&mut outbox.parcels[to], parcel);
    }

    /// Handles the messages of another part for this one. Adds lanes whose packets were lost to `lost`.
    pub(crate) fn receive_messages(&mut self, parcel: &mut Parcel, lost: &mut Vec<(u32, i32)>) {
        self.change_slots(&parcel.slots);
        for (packets, links) in parcel.packets.chunks(GROUP_LINKS).zip(parcel.links.chunks(GROUP_LINKS)) {
            self.links.expect(packets, links);
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
            links: Links {
                fabric: fabric.clone(),
                queues: fabric.links().iter().map(|_| LinkQueue::placeholder()).collect(),
                speeds: self.links.speeds.clone(),
                ports: None,
                wheel: Wheel::new(1, 1, T::LARGE),
                lanes: self.links.lanes.for_part(),
                losses: self.links.losses.part(|link| ends_in[link as usize] == number),
                interruptions: BTreeMap::new(),
                tap: T::default(),
                typical: self.links.typical,
                outbox: outbox(),
                telemetry: None,
                carried_bytes: None,
            },
            switches: Switches {
                nodes: fabric.nodes().iter().map(|_| Node::Host).collect(),
                cache: self.switches.cache.part(|node| plan.of(node) == number),
                destinations: self.switches.destinations.as_ref().map(|_| Destinations::new(&fabric)),
                changes: None,
            },
            totals: Totals::default(),
            programs: None,
            sprays: self.sprays,
            sets: self.sets.part(|node| plan.of(node) == number),
            balancers: None,
        };
        let mut parts: Vec<Network<T>> = (0..plan.parts() as u8).map(part).collect();
        for (index, (queue, link)) in self.links.queues.drain(..).zip(fabric.links()).enumerate() {
            let [from, to] = [link.from, link.to].map(|node| usize::from(plan.of(node)));
            parts[from].links[index] = queue;
            if from != to {
                parts[to].links[index] = parts[from].links[index].split();
            }
        }
        for (index, node) in self.switches.nodes.drain(..).enumerate() {
            parts[usize::from(plan.of(NodeId(index as u32)))].switches.nodes[index] = node;
        }
        for (number, part) in parts.iter_mut().enumerate() {
            part.links.fill_wheel(now, |link| usize::from(ends_in[link.index()]) == number);
        }
        let others = parts.split_off(1);
        let Some(first) = parts.pop() else { return Vec::new() };
        let whole = std::mem::replace(self, first);
        (self.links.lanes, self.links.interruptions) = (whole.links.lanes, whole.links.interruptions);
        self.totals = whole.totals;
        others
    }

    /// Takes back the parts that [`Network::divide`] returned. No event before `now` may be left in any part.
    pub(crate) fn join(&mut self, now: Ps, plan: &Plan, mut others: Vec<Network<T>>) {
        let fabric = self.fabric.clone();
        for (number, part) in (1..).zip(&mut others) {
            let changes = std::mem::take(&mut self.links.outbox.parcels[number].slots);
            part.change_slots(&changes);
        }
        self.links.outbox = Outbox::default();
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
            debug_assert!(part.links.interruptions.is_empty(), "faults come while the network is whole");
            for (index, node) in part.switches.nodes.into_iter().enumerate() {
                if plan.of(NodeId(index as u32)) == number {
                    self.switches.nodes[index] = node;
                }
            }
            self.switches.join(&self.links.lanes, part.switches.cache);
            self.links.losses.join(part.links.losses);
            self.sets.join(part.sets);
            self.totals.add(&part.totals);
        }
        self.links.fill_wheel(now, |_| true);
    }
}
