//! Multipart requests, and the parts of their answers (§A.3.5). The session combines the parts of an answer: all
//! parts have the xid of the request, and all but the last say that more parts follow.

use super::port::Port;
use super::rows::{
    parse_rows, Description, FlowStats, FlowStatsRequest, GroupDesc, GroupStats, MeterConfig, MeterStats, PortStats,
    TableFeatures, TableStats,
};
use crate::wire::{Put, Reader};
use crate::{ParseError, GROUP_ALL, METER_ALL, PORT_ANY};

const DESCRIPTION: u16 = 0;
const FLOW: u16 = 1;
const TABLE: u16 = 3;
const PORT_STATS: u16 = 4;
const GROUP: u16 = 6;
const GROUP_DESC: u16 = 7;
const METER: u16 = 9;
const METER_CONFIG: u16 = 10;
const TABLE_FEATURES: u16 = 12;
const PORT_DESC: u16 = 13;

/// Subject of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Manufacturer and model.
    Description,
    /// Rules and their counters.
    Flows(FlowStatsRequest),
    /// Counters of the tables.
    Tables,
    /// Counters of all ports.
    Ports,
    /// Descriptions of all ports.
    PortDesc,
    /// Counters of all groups.
    Groups,
    /// Descriptions of all groups.
    GroupDesc,
    /// Counters of all meters.
    Meters,
    /// Settings of all meters.
    MeterConfigs,
    /// What the tables can hold. Nothing is changed.
    TableFeatures,
    /// A request that this crate does not support. Only its number can be written.
    Unsupported(u16),
}

/// A multipart request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MultipartRequest {
    /// Whether more of this request follows; never used.
    pub more: bool,
    /// Subject of the request.
    pub request: Request,
}

impl MultipartRequest {
    pub(crate) fn parse(body: &[u8]) -> Result<MultipartRequest, ParseError> {
        let mut reader = Reader::new("a multipart request", body);
        let (kind, flags) = (reader.u16()?, reader.u16()?);
        reader.skip(4)?;
        let request = match kind {
            DESCRIPTION => Request::Description,
            FLOW => Request::Flows(FlowStatsRequest::parse(&mut reader)?),
            TABLE => Request::Tables,
            PORT_STATS => Request::Ports,
            PORT_DESC => Request::PortDesc,
            GROUP => Request::Groups,
            GROUP_DESC => Request::GroupDesc,
            METER => Request::Meters,
            METER_CONFIG => Request::MeterConfigs,
            // A request with a body changes the tables.
            TABLE_FEATURES if reader.is_empty() => Request::TableFeatures,
            other => Request::Unsupported(other),
        };
        Ok(MultipartRequest { more: flags & 1 == 1, request })
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        let kind = match &self.request {
            Request::Description => DESCRIPTION,
            Request::Flows(_) => FLOW,
            Request::Tables => TABLE,
            Request::Ports => PORT_STATS,
            Request::PortDesc => PORT_DESC,
            Request::Groups => GROUP,
            Request::GroupDesc => GROUP_DESC,
            Request::Meters => METER,
            Request::MeterConfigs => METER_CONFIG,
            Request::TableFeatures => TABLE_FEATURES,
            Request::Unsupported(kind) => *kind,
        };
        put_head(out, kind, self.more);
        match &self.request {
            Request::Flows(flows) => flows.emit(out),
            Request::Ports => put_id(out, PORT_ANY),
            Request::Groups => put_id(out, GROUP_ALL),
            Request::Meters | Request::MeterConfigs => put_id(out, METER_ALL),
            _ => {}
        }
    }
}

fn put_head(out: &mut Vec<u8>, kind: u16, more: bool) {
    out.put_u16(kind);
    out.put_u16(u16::from(more));
    out.put_zeros(4);
}

fn put_id(out: &mut Vec<u8>, id: u32) {
    out.put_u32(id);
    out.put_zeros(4);
}

/// Contents of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Manufacturer and model.
    Description(Box<Description>),
    /// Rules and their counters.
    Flows(Vec<FlowStats>),
    /// Counters of the tables.
    Tables(Vec<TableStats>),
    /// Counters of ports.
    Ports(Vec<PortStats>),
    /// Descriptions of ports.
    PortDesc(Vec<Port>),
    /// Counters of groups.
    Groups(Vec<GroupStats>),
    /// Descriptions of groups.
    GroupDesc(Vec<GroupDesc>),
    /// Counters of meters.
    Meters(Vec<MeterStats>),
    /// Settings of meters.
    MeterConfigs(Vec<MeterConfig>),
    /// What tables can hold.
    TableFeatures(Vec<TableFeatures>),
    /// An answer that this crate does not support. Only its number can be written.
    Unsupported(u16),
}

/// Part of a multipart answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MultipartReply {
    /// Whether more parts follow.
    pub more: bool,
    /// Contents of this part.
    pub reply: Reply,
}

impl MultipartReply {
    pub(crate) fn parse(body: &[u8]) -> Result<MultipartReply, ParseError> {
        let mut reader = Reader::new("a multipart reply", body);
        let (kind, flags) = (reader.u16()?, reader.u16()?);
        reader.skip(4)?;
        let reply = match kind {
            DESCRIPTION => Reply::Description(Box::new(Description::parse(&mut reader)?)),
            FLOW => Reply::Flows(parse_rows(&mut reader, FlowStats::parse)?),
            TABLE => Reply::Tables(parse_rows(&mut reader, TableStats::parse)?),
            PORT_STATS => Reply::Ports(parse_rows(&mut reader, PortStats::parse)?),
            PORT_DESC => Reply::PortDesc(parse_rows(&mut reader, Port::parse)?),
            GROUP => Reply::Groups(parse_rows(&mut reader, GroupStats::parse)?),
            GROUP_DESC => Reply::GroupDesc(parse_rows(&mut reader, GroupDesc::parse)?),
            METER => Reply::Meters(parse_rows(&mut reader, MeterStats::parse)?),
            METER_CONFIG => Reply::MeterConfigs(parse_rows(&mut reader, MeterConfig::parse)?),
            TABLE_FEATURES => Reply::TableFeatures(parse_rows(&mut reader, TableFeatures::parse)?),
            other => Reply::Unsupported(other),
        };
        Ok(MultipartReply { more: flags & 1 == 1, reply })
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        let kind = match &self.reply {
            Reply::Description(_) => DESCRIPTION,
            Reply::Flows(_) => FLOW,
            Reply::Tables(_) => TABLE,
            Reply::Ports(_) => PORT_STATS,
            Reply::PortDesc(_) => PORT_DESC,
            Reply::Groups(_) => GROUP,
            Reply::GroupDesc(_) => GROUP_DESC,
            Reply::Meters(_) => METER,
            Reply::MeterConfigs(_) => METER_CONFIG,
            Reply::TableFeatures(_) => TABLE_FEATURES,
            Reply::Unsupported(kind) => *kind,
        };
        put_head(out, kind, self.more);
        match &self.reply {
            Reply::Description(description) => description.emit(out),
            Reply::Flows(rows) => rows.iter().for_each(|row| row.emit(out)),
            Reply::Tables(rows) => rows.iter().for_each(|row| row.emit(out)),
            Reply::Ports(rows) => rows.iter().for_each(|row| row.emit(out)),
            Reply::PortDesc(rows) => rows.iter().for_each(|row| row.emit(out)),
            Reply::Groups(rows) => rows.iter().for_each(|row| row.emit(out)),
            Reply::GroupDesc(rows) => rows.iter().for_each(|row| row.emit(out)),
            Reply::Meters(rows) => rows.iter().for_each(|row| row.emit(out)),
            Reply::MeterConfigs(rows) => rows.iter().for_each(|row| row.emit(out)),
            Reply::TableFeatures(rows) => rows.iter().for_each(|row| row.emit(out)),
            Reply::Unsupported(_) => {}
        }
    }
}
