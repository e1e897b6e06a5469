//! Who answers the switches: the controller of a fabric, or a program that replaces it and answers packet by packet.

use crate::hub::connection::ConnectionId;
use pathloom_control::Controller;
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

/// The program that answers the switches.
#[allow(clippy::large_enum_variant)] // There is only one value.
pub enum Responder {
    /// The controller of a fabric.
    Fabric(Controller),
    /// A program without a fabric that answers packet by packet.
    Packets(Box<dyn Answers>),
    /// Nothing: the switches are only surveyed, or another controller leads.
    SurveyOnly,
}
