//! The structures of `bpf/hostd.bpf.c`, with the memory layout of the maps.

use pathloom_model::FiveTuple;
use std::net::Ipv4Addr;

/// Pace without a limit.
pub const NO_PACE: u32 = u32::MAX;
/// Maximum number of prefixes of the fabric.
pub const MAX_PREFIXES: usize = 16;
/// Payload of a full frame with time stamps. Used if the segment size is not known.
const USUAL_MSS_BYTES: u64 = 1448;
/// Bytes of the headers of a segment on Ethernet, with time stamps.
const HEADER_BYTES: u64 = 66;
const TCP: u8 = 6;

/// A connection of a host.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    /// Addresses in network order.
    pub src: u32,
    pub dst: u32,
    /// Ports in the byte order of the machine.
    pub src_port: u16,
    pub dst_port: u16,
}

/// An address in a network namespace (`struct place` in C).
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalAddress {
    pub netns: u64,
    pub address: u32,
    pub zero: u32,
}

/// Settings of the programs.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    pub threshold_bytes: u64,
    pub alive_until_ns: u64,
    pub tos: u32,
    pub orders: u32,
    pub holds: u32,
    pub prefix_count: u32,
    /// Address and mask, in network order.
    pub prefixes: [[u32; 2]; MAX_PREFIXES],
}

/// An order about a connection.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelOrder {
    pub hold_until_ns: u64,
    /// Payload bytes per second, or [`NO_PACE`].
    pub pace: u32,
    pub kick: u32,
}

/// A long connection.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    pub cookie: u64,
    pub netns: u64,
    pub bytes: u64,
    pub mss: u32,
    pub labelled: u32,
}

/// Event: a connection has become long, or a long connection is closed.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    pub key: Key,
    pub closed: u32,
    pub flow: Flow,
}

/// Names of the counters, in the order of their indices.
pub const COUNTERS: [&str; 6] = ["opened", "closed", "long", "untracked", "untold", "held_packets"];
/// Index of the counter of events that were lost because the ring was full.
pub const UNTOLD: u32 = 4;

impl Key {
    /// Creates the key of a TCP five-tuple; `None` for IPv6, which the programs in the kernel do not label.
    pub fn new(flow: &FiveTuple) -> Option<Key> {
        let network = |address: Ipv4Addr| u32::from_ne_bytes(address.octets());
        let (src, dst) = flow.v4()?;
        Some(Key { src: network(src), dst: network(dst), src_port: flow.src_port(), dst_port: flow.dst_port() })
    }

    /// Returns the five-tuple of the key.
    pub fn five_tuple(&self) -> FiveTuple {
        let address = |value: u32| value.to_ne_bytes().into();
        FiveTuple::new(TCP, (address(self.src), self.src_port), (address(self.dst), self.dst_port))
    }
}

/// Returns the rate for the kernel for a rate on the wire. The kernel counts bytes of payload per second, the
/// controller bits per second with headers.
pub fn payload_rate(wire_bps: Option<u64>, mss_bytes: Option<u32>) -> u32 {
    let Some(wire_bps) = wire_bps else { return NO_PACE };
    let mss = mss_bytes.filter(|&mss| mss > 0).map_or(USUAL_MSS_BYTES, u64::from);
    let bytes = u128::from(wire_bps) * u128::from(mss) / u128::from(8 * (mss + HEADER_BYTES));
    // 0 would mean no pacing at all.
    bytes.clamp(1, u128::from(NO_PACE - 1)) as u32
}

/// Returns the rate on the wire for a rate of the kernel. `None`: no limit.
pub fn wire_rate(payload: u32) -> Option<u64> {
    (payload != NO_PACE).then(|| u64::from(payload) * 8 * (USUAL_MSS_BYTES + HEADER_BYTES) / USUAL_MSS_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_sizes_of_the_bpf_programs() {
        assert_eq!(size_of::<Key>(), 12);
        assert_eq!(size_of::<LocalAddress>(), 16);
        assert_eq!(size_of::<Settings>(), 32 + 8 * MAX_PREFIXES);
        assert_eq!(size_of::<KernelOrder>(), 16);
        assert_eq!(size_of::<Flow>(), 32);
        assert_eq!(size_of::<Event>(), 48);
    }

    #[test]
    fn payload_rates_are_lower_than_wire_rates_and_never_0() {
        assert_eq!(payload_rate(None, Some(1448)), NO_PACE);
        assert_eq!(payload_rate(Some(9_800_000), Some(1448)), 9_800_000 / 8 * 1448 / 1514);
        assert_eq!(payload_rate(Some(9_800_000), None), 9_800_000 / 8 * 1448 / 1514);
        assert_eq!(payload_rate(Some(0), None), 1, "0 would be no limit");
        assert_eq!(payload_rate(Some(u64::MAX), None), NO_PACE - 1);
        assert_eq!(wire_rate(NO_PACE), None);
        let back = wire_rate(payload_rate(Some(9_800_000), None)).unwrap();
        assert!((9_799_900..=9_800_000).contains(&back), "{back}");
    }

    #[test]
    fn a_five_tuple_round_trips() {
        let flow = FiveTuple::new(TCP, ([10, 0, 0, 1].into(), 40_000), ([10, 0, 7, 1].into(), 5_001));
        assert_eq!(Key::new(&flow).unwrap().five_tuple(), flow);
        assert_eq!(Key::new(&flow).unwrap().src.to_ne_bytes(), [10, 0, 0, 1]);
    }
}
