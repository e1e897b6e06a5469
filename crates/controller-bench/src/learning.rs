//! A plain learning switch, for comparison with those of other controllers. It forwards by the Ethernet addresses that
//! it has seen, and knows no fabric.

use pathloom_controller::embed::{Answers, ConnectionId};
use pathloom_openflow::action::Action;
use pathloom_openflow::flow_match::{FlowMatch, Mac};
use pathloom_openflow::instruction::Instructions;
use pathloom_openflow::packet::Ethernet;
use pathloom_openflow::{
    FlowCommand, FlowMod, Message, PacketIn, PacketOut, TooLong, GROUP_ANY, NO_BUFFER, PORT_ANY, PORT_FLOOD,
};
use rustc_hash::FxHashMap;
use std::borrow::Cow;

/// Seconds without a packet after which a rule is removed.
const IDLE_TIMEOUT_S: u16 = 60;
/// Maximum number of addresses per switch. Frames to others are flooded.
const MOST_ADDRESSES: usize = 65_536;

/// The addresses learnt.
#[derive(Default)]
pub(crate) struct Learning {
    ports: FxHashMap<(ConnectionId, Mac), u32>,
    per_switch: FxHashMap<ConnectionId, usize>,
}

impl Answers for Learning {
    /// Answers a packet: with a rule and the packet if the port is known, otherwise by flooding.
    fn packet_in(
        &mut self,
        connection: ConnectionId,
        packet: &PacketIn<'_>,
        xid: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), TooLong> {
        let (Ok(frame), Some(in_port)) = (Ethernet::parse(packet.data), packet.matches.in_port) else { return Ok(()) };
        self.learn(connection, frame.src, in_port);
        let known = self.ports.get(&(connection, frame.dst)).copied().filter(|_| frame.dst[0] & 1 == 0);
        if known == Some(in_port) {
            return Ok(());
        }
        let actions = [Action::Output { port: known.unwrap_or(PORT_FLOOD), max_len: 0 }];
        if known.is_some() {
            let matches = FlowMatch {
                in_port: Some(in_port),
                eth_src: Some(frame.src),
                eth_dst: Some(frame.dst),
                ..FlowMatch::default()
            };
            add(matches, &actions).emit(xid, out)?;
        }
        let data = if packet.buffer == NO_BUFFER { packet.data } else { &[] };
        let packet = PacketOut { buffer: packet.buffer, in_port, actions: Cow::Borrowed(&actions), data };
        Message::PacketOut(packet).emit(xid, out)
    }

    /// Forgets a switch.
    fn forget(&mut self, connection: ConnectionId) {
        self.ports.retain(|&(other, _), _| other != connection);
        self.per_switch.remove(&connection);
    }
}

impl Learning {
    fn learn(&mut self, connection: ConnectionId, mac: Mac, port: u32) {
        if mac[0] & 1 == 1 {
            return;
        }
        if let Some(known) = self.ports.get_mut(&(connection, mac)) {
            *known = port;
            return;
        }
        let count = self.per_switch.entry(connection).or_default();
        if *count < MOST_ADDRESSES {
            *count += 1;
            self.ports.insert((connection, mac), port);
        }
    }
}

fn add(matches: FlowMatch, actions: &[Action]) -> Message<'_> {
    Message::FlowMod(FlowMod {
        cookie: 0,
        cookie_mask: 0,
        table: 0,
        command: FlowCommand::Add,
        idle_timeout_s: IDLE_TIMEOUT_S,
        hard_timeout_s: 0,
        priority: 1,
        buffer: NO_BUFFER,
        out_port: PORT_ANY,
        out_group: GROUP_ANY,
        flags: 0,
        matches,
        instructions: Instructions { apply: Cow::Borrowed(actions), ..Instructions::default() },
    })
}
