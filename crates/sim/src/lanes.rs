//! Headers of every subflow under way, by slot, and the slot of each five-tuple.
//!
//! A subflow has a slot and two lanes: one for its data, one for its acknowledgements. Slot 0 belongs to no subflow.
//! Frames of no connection (ARP, exploration, Hello) use it. They have no five-tuple, and no decision about them is
//! cached.

use crate::packet::{Direction, Packet};
use crate::store::grow;
use hashbrown::HashTable;
use pathloom_model::{Address, FiveTuple, Headers, MptcpOption, TCP_ACK};
use rustc_hash::FxBuildHasher;
use std::hash::BuildHasher;

/// The slot of frames of no connection.
pub(crate) const NO_CONNECTION: usize = 0;

/// Headers of the data of a subflow, half as long as [`Headers`]: all addresses of a fabric share their first bits.
#[derive(Clone, Copy)]
struct Kept {
    src: u32,
    dst: u32,
    src_port: u16,
    dst_port: u16,
    proto: u8,
    dscp: u8,
    tcp_flags: u8,
    mptcp: Option<MptcpOption>,
}

/// Headers and five-tuples of the subflows under way.
#[derive(Default)]
pub(crate) struct Lanes {
    /// The last address that was kept, for the bits that all addresses share.
    sample: Option<Address>,
    /// Headers of the data of each subflow, from slot 1 on. Those of a free slot are out of date.
    data: Vec<Kept>,
    /// The slots under way, found by the five-tuple of their data. It is not stored a second time.
    slots: HashTable<u32>,
}

impl Lanes {
    /// Copy for a part of a network that has no hosts. It lacks the look-up of slots by five-tuple.
    pub(crate) fn for_part(&self) -> Lanes {
        Lanes { sample: self.sample, data: self.data.clone(), slots: HashTable::new() }
    }

    /// Headers of a packet as a switch parses them; `None` for a frame of no connection.
    pub(crate) fn headers(&self, packet: &Packet) -> Option<Headers> {
        let data = self.data.get(packet.slot().checked_sub(1)?)?;
        let five_tuple = match packet.direction() {
            Direction::Data => self.whole(data),
            Direction::Ack => self.whole(data).reverse(),
        };
        let tcp_flags = if packet.flags() == 0 { TCP_ACK } else { packet.flags() };
        let mptcp = data.mptcp.filter(|_| packet.flags() != 0).and_then(|option| option_of(option, packet.direction()));
        Some(Headers { five_tuple, dscp: self.dscp(packet), tcp_flags, tag: packet.tag(), mptcp })
    }

    /// Headers of a subflow's data, without options.
    pub(crate) fn data(&self, slot: usize) -> Headers {
        let Kept { dscp, tcp_flags, .. } = self.data[slot - 1];
        Headers { five_tuple: self.five_tuple(slot), dscp, tcp_flags, tag: None, mptcp: None }
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
        self.whole(&self.data[slot - 1])
    }

    /// The five-tuple of what was kept. Hosts set no flow label.
    #[inline]
    fn whole(&self, kept: &Kept) -> FiveTuple {
        let sample = self.sample.unwrap_or(Address::UNSPECIFIED);
        let [src, dst] = [kept.src, kept.dst].map(|low| sample.with_low(low));
        FiveTuple::new(kept.proto, (src, kept.src_port), (dst, kept.dst_port))
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
        self.find(five_tuple).map(|slot| slot as usize)
    }

    /// The lanes whose packets have this five-tuple: data of one subflow, acknowledgements of another.
    pub(crate) fn lanes(&self, five_tuple: &FiveTuple) -> [Option<u32>; 2] {
        [self.find(five_tuple).map(|slot| slot << 1), self.find(&five_tuple.reverse()).map(|slot| slot << 1 | 1)]
    }

    fn find(&self, five_tuple: &FiveTuple) -> Option<u32> {
        let is_it = |&slot: &u32| self.five_tuple(slot as usize) == *five_tuple;
        self.slots.find(hash(five_tuple), is_it).copied()
    }

    /// Gives a slot, at least 1, to a new subflow. No other subflow under way has its five-tuple.
    /// Its addresses are the fabric's, and it has neither a tag nor a flow label.
    pub(crate) fn open(&mut self, slot: usize, data: Headers) {
        let Headers { five_tuple, dscp, tcp_flags, tag: _, mptcp } = data;
        let (src, dst, proto) = (five_tuple.src().low(), five_tuple.dst().low(), five_tuple.proto());
        let (src_port, dst_port) = (five_tuple.src_port(), five_tuple.dst_port());
        let kept = Kept { src, dst, src_port, dst_port, proto, dscp, tcp_flags, mptcp };
        self.sample = Some(five_tuple.src());
        debug_assert!((self.whole(&kept), data.tag) == (five_tuple, None), "{five_tuple:?} is not of the fabric");
        match self.data.get_mut(slot - 1) {
            Some(place) => *place = kept,
            None => {
                grow(&mut self.data, slot);
                self.data.push(kept);
            }
        }
        let mut slots = std::mem::take(&mut self.slots);
        slots.insert_unique(hash(&five_tuple), slot as u32, |&slot| hash(&self.five_tuple(slot as usize)));
        self.slots = slots;
    }

    /// No packet of a subflow is in the network any more, so its five-tuple is removed.
    pub(crate) fn close(&mut self, slot: usize) {
        let hash = hash(&self.five_tuple(slot));
        if let Ok(entry) = self.slots.find_entry(hash, |&known| known as usize == slot) {
            entry.remove();
        }
    }
}

fn hash(five_tuple: &FiveTuple) -> u64 {
    FxBuildHasher.hash_one(five_tuple)
}

/// The part of a subflow's MPTCP option that its SYN carries, or its SYN+ACK (RFC 8684 §3.1, §3.2).
fn option_of(option: MptcpOption, direction: Direction) -> Option<MptcpOption> {
    match (direction, option) {
        (Direction::Data, MptcpOption::Capable { .. }) => Some(MptcpOption::Capable { token: None }),
        (Direction::Data, MptcpOption::Join { .. }) | (Direction::Ack, MptcpOption::Capable { .. }) => Some(option),
        (Direction::Ack, MptcpOption::Join { .. }) => None,
    }
}
