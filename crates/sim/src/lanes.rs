//! Headers of every subflow under way, by slot, and the slot of each five-tuple.
//!
//! A subflow has a slot and two lanes: one for its data, one for its acknowledgements. Slot 0 belongs to no subflow.
//! Frames of no connection (ARP, exploration, Hello) use it. They have no five-tuple, and no decision about them is
//! cached.

use crate::packet::{Direction, Packet};
use crate::store::grow;
use pathloom_model::{FiveTuple, Headers, MptcpOption, TCP_ACK};
use rustc_hash::FxHashMap;

/// The slot of frames of no connection.
pub(crate) const NO_CONNECTION: usize = 0;

/// Headers and five-tuples of the subflows under way.
#[derive(Default)]
pub(crate) struct Lanes {
    /// Headers of the data of each subflow, from slot 1 on. Those of a free slot are out of date.
    data: Vec<Headers>,
    slots: FxHashMap<FiveTuple, u32>,
}

impl Lanes {
    /// Copy for a part of a network that has no hosts. It lacks the look-up of slots by five-tuple.
    pub(crate) fn for_part(&self) -> Lanes {
        Lanes { data: self.data.clone(), slots: FxHashMap::default() }
    }

    /// Headers of a packet as a switch parses them; `None` for a frame of no connection.
    pub(crate) fn headers(&self, packet: &Packet) -> Option<Headers> {
        let data = self.data.get(packet.slot().checked_sub(1)?)?;
        let five_tuple = match packet.direction() {
            Direction::Data => data.five_tuple,
            Direction::Ack => data.five_tuple.reverse(),
        };
        let tcp_flags = if packet.flags() == 0 { TCP_ACK } else { packet.flags() };
        let mptcp = data.mptcp.filter(|_| packet.flags() != 0).and_then(|option| option_of(option, packet.direction()));
        Some(Headers { five_tuple, dscp: self.dscp(packet), tcp_flags, tag: packet.tag(), mptcp })
    }

    /// Headers of a subflow's data, without options.
    pub(crate) fn data(&self, slot: usize) -> Headers {
        Headers { mptcp: None, ..self.data[slot - 1] }
    }

    /// DSCP of a packet of a connection.
    pub(crate) fn dscp(&self, packet: &Packet) -> u8 {
        match packet.class_selector() {
            0 => self.data[packet.slot() - 1].dscp,
            class => class << 3,
        }
    }

    /// Five-tuple of a subflow's data.
    pub(crate) fn five_tuple(&self, slot: usize) -> FiveTuple {
        self.data[slot - 1].five_tuple
    }

    /// Five-tuple of the packets of a subflow's lane.
    pub(crate) fn of_lane(&self, lane: u32) -> FiveTuple {
        let data = self.five_tuple((lane >> 1) as usize);
        if lane & 1 == 0 {
            data
        } else {
            data.reverse()
        }
    }

    /// Slot of the subflow whose data have this five-tuple.
    pub(crate) fn slot(&self, five_tuple: &FiveTuple) -> Option<usize> {
        self.slots.get(five_tuple).map(|&slot| slot as usize)
    }

    /// The lanes whose packets have this five-tuple: data of one subflow, acknowledgements of another.
    pub(crate) fn lanes(&self, five_tuple: &FiveTuple) -> [Option<u32>; 2] {
        let slot = |five_tuple: &FiveTuple| self.slots.get(five_tuple).copied();
        [slot(five_tuple).map(|slot| slot << 1), slot(&five_tuple.reverse()).map(|slot| slot << 1 | 1)]
    }

    /// Gives a slot, at least 1, to a new subflow. No other subflow under way has its five-tuple.
    pub(crate) fn open(&mut self, slot: usize, data: Headers) {
        match self.data.get_mut(slot - 1) {
            Some(place) => *place = data,
            None => {
                grow(&mut self.data, slot);
                self.data.push(data);
            }
        }
        self.slots.insert(data.five_tuple, slot as u32);
    }

    /// No packet of a subflow is in the network any more, so its five-tuple is removed.
    pub(crate) fn close(&mut self, slot: usize) {
        self.slots.remove(&self.data[slot - 1].five_tuple);
    }
}
/// The part of a subflow's MPTCP option that its SYN carries, or its SYN+ACK (RFC 8684 §3.1, §3.2).
fn option_of(option: MptcpOption, direction: Direction) -> Option<MptcpOption> {
    match (direction, option) {
        (Direction::Data, MptcpOption::Capable { .. }) => Some(MptcpOption::Capable { token: None }),
        (Direction::Data, MptcpOption::Join { .. }) | (Direction::Ack, MptcpOption::Capable { .. }) => Some(option),
        (Direction::Ack, MptcpOption::Join { .. }) => None,
    }
}
