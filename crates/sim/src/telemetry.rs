//! In-band network telemetry: the load of the ports that a packet has left. It does not fit into a packet, so it is kept
//! beside it, under the packet's connection and number. The bytes that it takes in the packet count.

use crate::lanes::NO_CONNECTION;
use crate::packet::Packet;
use pathloom_transport::packets::{PortLoad, MOST_PORT_LOADS, PORT_LOAD_BYTES};
use std::collections::BTreeMap;

/// Most packets of a connection whose telemetry is kept. If more are under way, those with the lowest numbers were lost.
const MOST: usize = 4096;

/// What switches have written into the packets that are under way.
#[derive(Default)]
pub(crate) struct Telemetry {
    /// By slot of the connection, and by number of the packet. A repeated packet has another number here, because the number
    /// says that it is repeated.
    packets: Vec<BTreeMap<u64, Vec<PortLoad>>>,
}

impl Telemetry {
    /// A switch writes the load of the port that a packet leaves into it, if it carries data. The packet grows.
    pub(crate) fn write(&mut self, packet: &mut Packet, load: PortLoad) {
        if packet.is_control() || packet.slot() == NO_CONNECTION {
            return;
        }
        let slot = packet.slot();
        if self.packets.len() <= slot {
            self.packets.resize_with(slot + 1, BTreeMap::new);
        }
        let of_slot = &mut self.packets[slot];
        // The switch has counted itself.
        let before = usize::from(packet.hop()).saturating_sub(1);
        if before >= MOST_PORT_LOADS {
            return;
        }
        packet.grow(PORT_LOAD_BYTES as u16);
        if before == 0 {
            of_slot.insert(packet.seq, vec![load]);
            if of_slot.len() > MOST {
                of_slot.pop_first();
            }
        } else if let Some(loads) = of_slot.get_mut(&packet.seq) {
            // Of two copies of a packet that are under way, only one can be told.
            loads.truncate(before);
            loads.push(load);
        }
    }

    /// Takes what was written into a packet that has arrived; empty if nothing is known.
    pub(crate) fn take(&mut self, packet: &Packet) -> Vec<PortLoad> {
        let loads = self.packets.get_mut(packet.slot()).and_then(|of_slot| of_slot.remove(&packet.seq));
        loads.filter(|loads| loads.len() == usize::from(packet.hop()).min(MOST_PORT_LOADS)).unwrap_or_default()
    }

    /// Forgets the packets of a connection that is over.
    pub(crate) fn forget(&mut self, slot: usize) {
        if let Some(of_slot) = self.packets.get_mut(slot) {
            of_slot.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::TagBits;

    fn load(port: u32) -> PortLoad {
        PortLoad { port, at_ps: 1, sent_bytes: 2, queue_bytes: 3, rate_bps: 4 }
    }

    /// A packet that passes these ports.
    fn passes(telemetry: &mut Telemetry, mut packet: Packet, ports: &[u32]) -> Packet {
        for &port in ports {
            packet.pass(TagBits::of(None));
            telemetry.write(&mut packet, load(port));
        }
        packet
    }

    #[test]
    fn each_port_adds_its_load_and_its_bytes_to_data_and_nothing_to_others() {
        let mut telemetry = Telemetry::default();
        let data = passes(&mut telemetry, Packet::new(4, 9, 1000, 1068, 0), &[7, 8, 9]);
        assert_eq!((data.wire(), data.payload()), (1068 + 24, 1000));
        assert_eq!(telemetry.take(&data), [load(7), load(8), load(9)]);
        assert_eq!(telemetry.take(&data), []);
        let ack = passes(&mut telemetry, Packet::new(5, 9, 0, 70, 0), &[7, 8]);
        assert_eq!((ack.wire(), telemetry.take(&ack)), (70, Vec::new()));
    }

    #[test]
    fn a_long_path_fills_the_packet_and_a_copy_that_mixes_paths_tells_nothing() {
        let mut telemetry = Telemetry::default();
        let ports: Vec<u32> = (0..20).collect();
        let data = passes(&mut telemetry, Packet::new(4, 9, 1000, 1068, 0), &ports);
        assert_eq!((data.wire(), telemetry.take(&data).len()), (1068 + 15 * 8, 15));
        let copy = Packet::new(4, 9, 1000, 1068, 0);
        let first = passes(&mut telemetry, copy, &[1, 2, 3]);
        passes(&mut telemetry, copy, &[1]);
        assert_eq!(telemetry.take(&first), []);
    }

    #[test]
    fn what_was_lost_is_forgotten_with_its_connection_and_by_number() {
        let mut telemetry = Telemetry::default();
        for number in 0..MOST as u64 + 10 {
            passes(&mut telemetry, Packet::new(4, number, 1000, 1068, 0), &[1]);
        }
        assert_eq!(telemetry.packets[2].len(), MOST);
        telemetry.forget(2);
        assert!(telemetry.packets[2].is_empty());
    }
}
