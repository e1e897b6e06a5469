//! What switches decide about all packets to a destination.
//!
//! The cache ([`crate::cache`]) holds decisions about lanes. If packets of a flow take several paths, those of a short transfer
//! meet most switches once, so the cache seldom has their decision. But default routes look at the destination alone. What a
//! switch has decided by them holds for all packets to the same address with the same tag, until something about the switch
//! changes.

use crate::cache::Rules;
use crate::packet::TagBits;
use pathloom_model::{Address, Fabric, Headers, NodeId};

/// Where packets leave a switch.
#[derive(Clone, Copy)]
pub(super) enum Out {
    /// By this link.
    Link(u32),
    /// By a link of the set with this number.
    Among(u32),
}

/// What a switch does with packets to a destination.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) out: Out,
    /// Tag with which packets leave.
    pub(super) tag: TagBits,
    /// The rules that decided.
    pub(super) rules: Rules,
}

/// A decision in the table of a switch, in one cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Slot {
    /// Last 32 bits of the destination: all hosts of a fabric share the other bits.
    dst: u32,
    /// Number of the tag with which packets arrive.
    tag: u32,
    /// The state of the switch when it decided: [`Table::state`].
    state: u32,
    known: Known,
}

/// What a switch has decided by destination and tag. A destination that needs the slot of another one displaces it.
#[derive(Clone, Default)]
struct Table {
    /// None before the first decision.
    slots: Vec<Slot>,
    /// Number of changes of the switch so far. Decisions of earlier states do not hold.
    state: u32,
}

/// The decisions of all switches about destinations.
pub(super) struct Destinations {
    tables: Vec<Table>,
    /// Slots of a table: a power of two.
    slots: usize,
    /// The bits of an address before the last 32, of all hosts.
    first_bits: u128,
}

impl Destinations {
    /// Most slots of a table.
    const MOST_SLOTS: usize = 4096;

    /// No decisions yet, of switches that may know as many destinations as there are hosts.
    pub(super) fn new(fabric: &Fabric) -> Destinations {
        let slots = (2 * fabric.hosts().len()).next_power_of_two().min(Destinations::MOST_SLOTS);
        let first_bits = fabric.whole_prefix().address.to_bits() >> 32;
        Destinations { tables: vec![Table::default(); fabric.nodes().len()], slots, first_bits }
    }

    /// What identifies a destination in a table; `None` for addresses that are not the fabric's.
    fn key(&self, dst: Address) -> Option<u32> {
        (dst.to_bits() >> 32 == self.first_bits).then_some(dst.low())
    }

    /// Place of a destination in a table.
    fn place(&self, dst: u32, tag: u32) -> usize {
        let number = u64::from(dst) << 32 | u64::from(tag);
        // Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, §6.4).
        (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize & (self.slots - 1)
    }

    /// What a switch does with packets to the destination of these headers.
    pub(super) fn get(&self, switch: NodeId, headers: &Headers) -> Option<Known> {
        let (dst, tag) = (self.key(headers.five_tuple.dst())?, TagBits::of(headers.tag).number());
        let table = &self.tables[switch.index()];
        let slot = table.slots.get(self.place(dst, tag))?;
        (slot.dst == dst && slot.tag == tag && slot.state == table.state).then_some(slot.known)
    }

    /// Keeps what a switch does with packets to the destination of these headers.
    pub(super) fn store(&mut self, switch: NodeId, headers: &Headers, known: Known) {
        let Some(dst) = self.key(headers.five_tuple.dst()) else { return };
        let tag = TagBits::of(headers.tag).number();
        let (place, count) = (self.place(dst, tag), self.slots);
        let table = &mut self.tables[switch.index()];
        let slot = Slot { dst, tag, state: table.state, known };
        if table.slots.is_empty() {
            // Of no state of the switch.
            table.slots.resize(count, Slot { state: u32::MAX, ..slot });
        }
        table.slots[place] = slot;
    }

    /// Something about the switch has changed.
    pub(super) fn forget(&mut self, switch: NodeId) {
        let table = &mut self.tables[switch.index()];
        table.state += 1;
        if table.state == u32::MAX {
            *table = Table::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_model::{FiveTuple, PROTO_TCP};

    fn headers(dst: u32, tag: Option<u16>) -> Headers {
        let five_tuple = FiveTuple::new(PROTO_TCP, ([10, 0, 0, 1].into(), 1), (dst.into(), 2));
        Headers { five_tuple, dscp: 0, tcp_flags: 0, tag, mptcp: None }
    }

    #[test]
    fn a_decision_is_about_a_destination_and_a_tag_until_the_switch_changes() {
        assert_eq!(size_of::<Slot>(), 64, "a cache line");
        let mut destinations = Destinations::new(&pathloom_fabrics::fabric_from_spec("dumbbell").unwrap());
        let link = |found: Option<Known>| {
            found.map(|known| match known.out {
                Out::Link(link) | Out::Among(link) => link,
            })
        };
        let known = |link| Known { out: Out::Link(link), tag: TagBits::of(None), rules: Rules::default() };
        for (number, dst) in (0..100).zip(0x0a00_0001..) {
            let headers = headers(dst, None);
            destinations.store(NodeId(1), &headers, known(number));
            assert_eq!(link(destinations.get(NodeId(1), &headers)), Some(number), "also in the slot of another one");
        }
        let last = headers(0x0a00_0001 + 99, None);
        assert!(destinations.get(NodeId(2), &last).is_none(), "another switch");
        let v6: Address = format!("fd00::{:x}:{:x}", 0x0a00, 1 + 99).parse().unwrap();
        let other_family = Headers { five_tuple: last.five_tuple.with_dst(v6), ..last };
        assert_eq!(v6.low(), last.five_tuple.dst().low());
        assert!(destinations.get(NodeId(1), &other_family).is_none(), "another address with the same last bits");
        destinations.store(NodeId(1), &other_family, known(7));
        assert_eq!(link(destinations.get(NodeId(1), &last)), Some(99), "it displaces nothing");
        assert!(destinations.get(NodeId(1), &headers(0x0a00_0001 + 99, Some(7))).is_none(), "another tag");
        destinations.forget(NodeId(1));
        assert!((0x0a00_0001..).take(100).all(|dst| destinations.get(NodeId(1), &headers(dst, None)).is_none()));
        destinations.tables[1].state = u32::MAX - 1;
        destinations.store(NodeId(1), &last, known(5));
        destinations.forget(NodeId(1));
        destinations.store(NodeId(1), &headers(1, None), known(6));
        assert!(destinations.get(NodeId(1), &last).is_none(), "the states have begun anew");
    }
}
