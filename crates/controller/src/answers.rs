//! What may stand in the place of the controller of a fabric, packet by packet.

use crate::connection::ConnectionId;
use pathloom_openflow::{PacketIn, TooLong};

/// Answers packets of switches that belong to no fabric.
pub trait Answers {
    /// Appends the answer to a packet-in to `out`, as messages with this transaction identifier.
    ///
    /// # Errors
    /// The answer does not fit into a message.
    fn packet_in(
        &mut self,
        connection: ConnectionId,
        packet: &PacketIn<'_>,
        xid: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), TooLong>;

    /// Forgets the switch of a connection that is gone.
    fn forget(&mut self, connection: ConnectionId);
}
