//! All kinds of messages, parsed from their bodies and appended to a buffer.

pub(crate) mod bundle;
pub(crate) mod error;
pub(crate) mod flow;
pub(crate) mod group;
pub(crate) mod hello;
pub(crate) mod meter;
pub(crate) mod multipart;
pub(crate) mod packet_io;
pub(crate) mod port;
pub(crate) mod role;
pub(crate) mod rows;
pub(crate) mod switch;

use crate::header::{finish, start};
use crate::wire::Put;
use crate::{Header, ParseError, TooLong, VERSION};
use bundle::{BundleAdd, BundleControl};
use error::ErrorMessage;
use flow::{FlowMod, FlowRemoved};
use group::GroupMod;
use hello::Hello;
use meter::MeterMod;
use multipart::{MultipartReply, MultipartRequest};
use packet_io::{PacketIn, PacketOut};
use port::PortStatus;
use role::RoleMessage;
use switch::{Features, SwitchConfig};

/// Numbers of the message kinds (§A.1).
#[allow(missing_docs)]
pub struct Kind;

#[allow(missing_docs)]
impl Kind {
    pub const HELLO: u8 = 0;
    pub const ERROR: u8 = 1;
    pub const ECHO_REQUEST: u8 = 2;
    pub const ECHO_REPLY: u8 = 3;
    pub const EXPERIMENTER: u8 = 4;
    pub const FEATURES_REQUEST: u8 = 5;
    pub const FEATURES_REPLY: u8 = 6;
    pub const GET_CONFIG_REQUEST: u8 = 7;
    pub const GET_CONFIG_REPLY: u8 = 8;
    pub const SET_CONFIG: u8 = 9;
    pub const PACKET_IN: u8 = 10;
    pub const FLOW_REMOVED: u8 = 11;
    pub const PORT_STATUS: u8 = 12;
    pub const PACKET_OUT: u8 = 13;
    pub const FLOW_MOD: u8 = 14;
    pub const GROUP_MOD: u8 = 15;
    pub const MULTIPART_REQUEST: u8 = 18;
    pub const MULTIPART_REPLY: u8 = 19;
    pub const BARRIER_REQUEST: u8 = 20;
    pub const BARRIER_REPLY: u8 = 21;
    pub const ROLE_REQUEST: u8 = 24;
    pub const ROLE_REPLY: u8 = 25;
    pub const METER_MOD: u8 = 29;
}

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// First message of both sides: the supported versions.
    Hello(Hello),
    /// A message was not executed.
    Error(ErrorMessage<'a>),
    /// Asks the other side whether it is alive.
    EchoRequest(&'a [u8]),
    /// Answers an echo request with the same bytes.
    EchoReply(&'a [u8]),
    /// Asks for the features of the switch.
    FeaturesRequest,
    /// The features of the switch.
    FeaturesReply(Features),
    /// Asks for the settings of the switch.
    GetConfigRequest,
    /// The settings of the switch.
    GetConfigReply(SwitchConfig),
    /// Sets the switch.
    SetConfig(SwitchConfig),
    /// A packet for the controller.
    PacketIn(PacketIn<'a>),
    /// A rule was removed.
    FlowRemoved(FlowRemoved),
    /// A port was added, deleted or changed.
    PortStatus(PortStatus),
    /// Sends a packet.
    PacketOut(PacketOut<'a>),
    /// Changes rules.
    FlowMod(FlowMod<'a>),
    /// Changes groups.
    GroupMod(GroupMod),
    /// Changes meters.
    MeterMod(MeterMod),
    /// Asks for descriptions or counters.
    MultipartRequest(MultipartRequest),
    /// Part of an answer to a multipart request.
    MultipartReply(MultipartReply),
    /// Asks for an answer when all earlier messages are executed.
    BarrierRequest,
    /// All earlier messages are executed.
    BarrierReply,
    /// Requests a role among several controllers.
    RoleRequest(RoleMessage),
    /// The role in force.
    RoleReply(RoleMessage),
    /// Opens, closes, commits or discards a bundle (ONF extension 230).
    BundleControl(BundleControl),
    /// Adds a message to a bundle (ONF extension 230).
    BundleAdd(BundleAdd<'a>),
    /// A message that this crate does not support.
    Unsupported {
        /// Number of the kind.
        kind: u8,
        /// Body of the message.
        body: &'a [u8],
    },
}

impl<'a> Message<'a> {
    /// Parses the body of a message.
    ///
    /// # Errors
    /// The version is not 4 (a hello can have any version), a length does not fit, or a value is undefined.
    #[inline]
    pub fn parse(header: Header, body: &'a [u8]) -> Result<Message<'a>, ParseError> {
        if header.version != VERSION && header.kind != Kind::HELLO {
            return Err(ParseError::Version { found: header.version });
        }
        Ok(match header.kind {
            Kind::PACKET_IN => Message::PacketIn(PacketIn::parse(body)?),
            Kind::BARRIER_REPLY => Message::BarrierReply,
            Kind::HELLO => Message::Hello(Hello::parse(header.version, body)?),
            Kind::ERROR => Message::Error(ErrorMessage::parse(body)?),
            Kind::ECHO_REQUEST => Message::EchoRequest(body),
            Kind::ECHO_REPLY => Message::EchoReply(body),
            Kind::FEATURES_REQUEST => Message::FeaturesRequest,
            Kind::FEATURES_REPLY => Message::FeaturesReply(Features::parse(body)?),
            Kind::GET_CONFIG_REQUEST => Message::GetConfigRequest,
            Kind::GET_CONFIG_REPLY => Message::GetConfigReply(SwitchConfig::parse(body)?),
            Kind::SET_CONFIG => Message::SetConfig(SwitchConfig::parse(body)?),
            Kind::FLOW_REMOVED => Message::FlowRemoved(FlowRemoved::parse(body)?),
            Kind::PORT_STATUS => Message::PortStatus(PortStatus::parse(body)?),
            Kind::PACKET_OUT => Message::PacketOut(PacketOut::parse(body)?),
            Kind::FLOW_MOD => Message::FlowMod(FlowMod::parse(body)?),
            Kind::GROUP_MOD => Message::GroupMod(GroupMod::parse(body)?),
            Kind::METER_MOD => Message::MeterMod(MeterMod::parse(body)?),
            Kind::MULTIPART_REQUEST => Message::MultipartRequest(MultipartRequest::parse(body)?),
            Kind::MULTIPART_REPLY => Message::MultipartReply(MultipartReply::parse(body)?),
            Kind::BARRIER_REQUEST => Message::BarrierRequest,
            Kind::ROLE_REQUEST => Message::RoleRequest(RoleMessage::parse(body)?),
            Kind::ROLE_REPLY => Message::RoleReply(RoleMessage::parse(body)?),
            Kind::EXPERIMENTER => match bundle::parse(body)? {
                Some(message) => message,
                None => Message::Unsupported { kind: header.kind, body },
            },
            kind => Message::Unsupported { kind, body },
        })
    }

    /// Returns the number of the message kind.
    pub fn kind(&self) -> u8 {
        match self {
            Message::Hello(_) => Kind::HELLO,
            Message::Error(_) => Kind::ERROR,
            Message::EchoRequest(_) => Kind::ECHO_REQUEST,
            Message::EchoReply(_) => Kind::ECHO_REPLY,
            Message::FeaturesRequest => Kind::FEATURES_REQUEST,
            Message::FeaturesReply(_) => Kind::FEATURES_REPLY,
            Message::GetConfigRequest => Kind::GET_CONFIG_REQUEST,
            Message::GetConfigReply(_) => Kind::GET_CONFIG_REPLY,
            Message::SetConfig(_) => Kind::SET_CONFIG,
            Message::PacketIn(_) => Kind::PACKET_IN,
            Message::FlowRemoved(_) => Kind::FLOW_REMOVED,
            Message::PortStatus(_) => Kind::PORT_STATUS,
            Message::PacketOut(_) => Kind::PACKET_OUT,
            Message::FlowMod(_) => Kind::FLOW_MOD,
            Message::GroupMod(_) => Kind::GROUP_MOD,
            Message::MeterMod(_) => Kind::METER_MOD,
            Message::MultipartRequest(_) => Kind::MULTIPART_REQUEST,
            Message::MultipartReply(_) => Kind::MULTIPART_REPLY,
            Message::BarrierRequest => Kind::BARRIER_REQUEST,
            Message::BarrierReply => Kind::BARRIER_REPLY,
            Message::RoleRequest(_) => Kind::ROLE_REQUEST,
            Message::RoleReply(_) => Kind::ROLE_REPLY,
            Message::BundleControl(_) | Message::BundleAdd(_) => Kind::EXPERIMENTER,
            Message::Unsupported { kind, .. } => *kind,
        }
    }

    /// Appends the message.
    ///
    /// # Errors
    /// The message would be longer than OpenFlow allows. Then nothing is appended.
    #[inline]
    pub fn emit(&self, xid: u32, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let at = start(self.kind(), xid, out);
        match self {
            Message::Hello(hello) => hello.emit(out),
            Message::Error(error) => error.emit(out),
            Message::EchoRequest(bytes) | Message::EchoReply(bytes) => out.put(bytes),
            Message::FeaturesRequest | Message::GetConfigRequest | Message::BarrierRequest | Message::BarrierReply => {}
            Message::FeaturesReply(features) => features.emit(out),
            Message::GetConfigReply(config) | Message::SetConfig(config) => config.emit(out),
            Message::PacketIn(packet) => packet.emit(out),
            Message::FlowRemoved(removed) => removed.emit(out),
            Message::PortStatus(status) => status.emit(out),
            Message::PacketOut(packet) => packet.emit(out),
            Message::FlowMod(flow) => flow.emit(out),
            Message::GroupMod(group) => group.emit(out),
            Message::MeterMod(meter) => meter.emit(out),
            Message::MultipartRequest(request) => request.emit(out),
            Message::MultipartReply(reply) => reply.emit(out),
            Message::RoleRequest(role) | Message::RoleReply(role) => role.emit(out),
            Message::BundleControl(control) => control.emit(out),
            Message::BundleAdd(add) => add.emit(out),
            Message::Unsupported { body, .. } => out.put(body),
        }
        finish(at, out)
    }
}
