//! The structures of `bpf/switch.bpf.c`, with the memory layout of the maps.

use pathloom_model::{FiveTuple, Mac};
use std::net::Ipv4Addr;

/// Number of bytes of the header before a frame in the ring.
pub const HEADER_BYTES: usize = 16;
/// Number of flows for which the kernel's table has room (`MOST_FLOWS`).
pub const KERNEL_FLOWS: usize = 131_072;

/// A flow that arrives at an interface.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Flow {
    pub ifindex: u32,
    /// Addresses and ports in network order.
    pub src: u32,
    pub dst: u32,
    pub src_port: u16,
    pub dst_port: u16,
    pub proto: u16,
    pub dscp: u16,
    pub dst_mac: [u8; 6],
    pub src_mac: [u8; 6],
}

/// The output interface of a flow, the reason for it, and counters.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    pub ifindex: u32,
    pub kind: u32,
    pub exploration: u64,
    /// Time of the last frame, by the monotonic clock.
    pub last_ns: u64,
    pub packets: u64,
    pub bytes: u64,
}

/// Settings and counters of a port.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Port {
    pub number: u32,
    pub per_s: u32,
    pub due_ns: u64,
    pub forwarded: u64,
    pub forwarded_bytes: u64,
    pub told: u64,
    pub limited: u64,
    pub lost: u64,
    pub too_long: u64,
}

impl Flow {
    /// Creates the flow of a five-tuple between two stations; `None` for IPv6, which the kernel's part does not forward.
    pub fn new(ifindex: u32, five_tuple: &FiveTuple, src: Mac, dst: Mac, dscp: u8) -> Option<Flow> {
        let network = |address: Ipv4Addr| u32::from_ne_bytes(address.octets());
        let (src_ip, dst_ip) = five_tuple.v4()?;
        Some(Flow {
            ifindex,
            src: network(src_ip),
            dst: network(dst_ip),
            src_port: five_tuple.src_port().to_be(),
            dst_port: five_tuple.dst_port().to_be(),
            proto: five_tuple.proto().into(),
            dscp: dscp.into(),
            dst_mac: dst.0,
            src_mac: src.0,
        })
    }

    /// Returns the five-tuple of the flow.
    pub fn five_tuple(&self) -> FiveTuple {
        let address = |value: u32| value.to_ne_bytes().into();
        FiveTuple::new(
            self.proto as u8,
            (address(self.src), u16::from_be(self.src_port)),
            (address(self.dst), u16::from_be(self.dst_port)),
        )
    }
}

/// A frame that the kernel passes to user space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UpcallFrame<'a> {
    /// Number of the port at which the frame arrived.
    pub port: u32,
    /// VLAN tag that the kernel has taken out of the bytes.
    pub tci: Option<u16>,
    /// The frame without that tag. Empty if the kernel could not read it.
    pub bytes: &'a [u8],
}

impl UpcallFrame<'_> {
    /// Reads an entry of the ring. `None` if it is shorter than its header states.
    pub fn read(entry: &[u8]) -> Option<UpcallFrame<'_>> {
        let word = |index: usize| {
            let bytes = entry.get(4 * index..4 * index + 4)?;
            Some(u32::from_ne_bytes(bytes.try_into().ok()?))
        };
        let (port, len, tagged, tci) = (word(0)?, word(1)?, word(2)?, word(3)?);
        let bytes = entry.get(HEADER_BYTES..HEADER_BYTES + len as usize)?;
        Some(UpcallFrame { port, tci: (tagged != 0).then_some(tci as u16), bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_sizes_of_the_bpf_program() {
        assert_eq!(size_of::<Flow>(), 36 - 4);
        assert_eq!(size_of::<Path>(), 40);
        assert_eq!(size_of::<Port>(), 64);
    }

    #[test]
    fn the_table_of_flows_has_the_size_of_the_bpf_program() {
        assert!(include_str!("../bpf/switch.bpf.c").contains(&format!("#define MOST_FLOWS {KERNEL_FLOWS}\n")));
    }

    #[test]
    fn a_flow_round_trips() {
        let tuple = FiveTuple::new(6, ([10, 0, 0, 1].into(), 40_000), ([10, 0, 7, 2].into(), 80));
        let flow = Flow::new(7, &tuple, Mac([2; 6]), Mac([4; 6]), 8).unwrap();
        assert_eq!(flow.five_tuple(), tuple);
        assert_eq!(flow.src_port.to_ne_bytes(), 40_000_u16.to_be_bytes());
        assert_eq!(flow.src.to_ne_bytes(), [10, 0, 0, 1]);
    }

    #[test]
    fn entries_of_the_ring_are_read_and_bad_ones_refused() {
        let mut entry = Vec::new();
        for word in [3_u32, 2, 1, 4094] {
            entry.extend(word.to_ne_bytes());
        }
        entry.extend([0xab, 0xcd, 0, 0]);
        assert_eq!(UpcallFrame::read(&entry), Some(UpcallFrame { port: 3, tci: Some(4094), bytes: &[0xab, 0xcd] }));
        assert_eq!(UpcallFrame::read(&entry[..17]), None);
        assert_eq!(UpcallFrame::read(&entry[..10]), None);
    }
}
