//! The OpenFlow 1.3 wire format, as far as the controller of a fabric needs it, and the frames inside packet-ins.
//!
//! The parser turns bytes into valid values, or returns an error that says what is wrong. No input causes a panic,
//! and no length in a message is trusted. Values are appended to a buffer of the caller, so that many messages leave
//! in one write. Adding a rule, sending a packet and reading a packet-in need no allocation.
//!
//! [`Message`] has all kinds of messages. [`convert`] converts them from and to `pathloom_model::rules`. [`packet`]
//! reads Ethernet, IPv4, TCP and UDP. Section numbers are those of the OpenFlow Switch Specification 1.3.5.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types))]

pub mod action;
pub mod convert;
mod error;
pub mod flow_match;
mod header;
pub mod instruction;
mod message;
pub mod packet;
mod rule_bytes;
mod wire;

pub use error::{ParseError, TooLong};
pub use header::{frame, Framed, Header, HEADER_BYTES, VERSION};
pub use message::bundle::{BundleAdd, BundleControl, BundleStep, ATOMIC, ORDERED};
pub use message::error::{ErrorMessage, BAD_ACTION, BAD_INSTRUCTION, BAD_REQUEST, FLOW_MOD_FAILED, GROUP_MOD_FAILED};
pub use message::error::{BAD_MATCH, HELLO_FAILED, IS_SLAVE, METER_MOD_FAILED, ROLE_REQUEST_FAILED, STALE};
pub use message::flow::{FlowCommand, FlowMod, FlowRemoved, RemovedReason, SEND_FLOW_REMOVED};
pub use message::group::{BucketMod, GroupCommand, GroupMod, GroupType};
pub use message::hello::Hello;
pub use message::meter::{Band, MeterCommand, MeterMod};
pub use message::multipart::{MultipartReply, MultipartRequest, Reply, Request};
pub use message::packet_io::{PacketIn, PacketInReason, PacketOut};
pub use message::port::{Port, PortReason, PortStatus};
pub use message::role::{Role, RoleMessage};
pub use message::rows::{
    Description, FlowStats, FlowStatsRequest, GroupDesc, GroupStats, MeterConfig, MeterStats, PortStats, TableFeatures,
    TableStats,
};
pub use message::switch::{Features, SwitchConfig};
pub use message::{Kind, Message};

/// Reserved port: the port where the packet arrived (§A.2.1).
pub const PORT_IN_PORT: u32 = 0xffff_fff8;
/// Reserved port: all ports except the one where the packet arrived.
pub const PORT_FLOOD: u32 = 0xffff_fffb;
/// Reserved port: the controller.
pub const PORT_CONTROLLER: u32 = 0xffff_fffd;
/// Reserved port: the switch itself.
pub const PORT_LOCAL: u32 = 0xffff_fffe;
/// No port, or any port.
pub const PORT_ANY: u32 = 0xffff_ffff;
/// Highest port number that is not reserved.
pub const PORT_MAX: u32 = 0xffff_ff00;
/// No group, or any group.
pub const GROUP_ANY: u32 = 0xffff_ffff;
/// All groups, for deletion.
pub const GROUP_ALL: u32 = 0xffff_fffc;
/// All meters, for deletion and requests.
pub const METER_ALL: u32 = 0xffff_ffff;
/// All tables, for deletion and requests.
pub const TABLE_ALL: u8 = 0xff;
/// Buffer number of a packet that the switch does not hold.
pub const NO_BUFFER: u32 = 0xffff_ffff;
