//! A packet on its way: 32 bytes, copied from link to link.

use crate::time::Ps;

/// Which way along its flow a packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From sender to receiver.
    Data,
    /// From receiver to sender.
    Ack,
}

/// A packet in the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(32))]
pub(crate) struct Packet {
    /// When the link it is on delivers it.
    pub deliver_at: Ps,
    /// First payload byte, or for an acknowledgement the next byte expected.
    pub seq: u64,
    /// Slot of its connection, doubled; the lowest bit is set for acknowledgements.
    pub lane: u32,
    /// Payload bytes.
    pub payload: u16,
    /// Bytes on the wire.
    pub wire: u16,
    /// VLAN tag plus one; 0 for none.
    pub tag: u16,
    /// Switches passed.
    pub hop: u8,
    /// TCP flags that make it special (SYN, FIN); 0 for plain data and acknowledgements.
    pub flags: u8,
}

impl Packet {
    pub(crate) fn slot(&self) -> usize {
        (self.lane >> 1) as usize
    }

    pub(crate) fn direction(&self) -> Direction {
        if self.lane & 1 == 0 {
            Direction::Data
        } else {
            Direction::Ack
        }
    }

    pub(crate) fn tag(&self) -> Option<u16> {
        self.tag.checked_sub(1)
    }
}
