//! Programs that can replace the controller of a fabric and answer packet by packet.

use crate::connection::ConnectionId;
use pathloom_openflow::{PacketIn, TooLong};

/// Answers packet-ins of switches without a fabric.
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
