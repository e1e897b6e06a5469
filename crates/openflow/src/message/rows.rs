//! The rows of multipart answers (§A.3.5.1 to §A.3.5.14).

use super::group::{BucketMod, GroupType};
use super::meter::{Band, METER_FLAGS};
use crate::flow_match::FlowMatch;
use crate::instruction::Instructions;
use crate::wire::{put_text, text, Put, Reader};
use crate::ParseError;

/// Parses all remaining rows.
pub(crate) fn parse_rows<'a, T>(
    reader: &mut Reader<'a>,
    parse: impl Fn(&mut Reader<'a>) -> Result<T, ParseError>,
) -> Result<Vec<T>, ParseError> {
    let mut rows = Vec::new();
    while !reader.is_empty() {
        rows.push(parse(reader)?);
    }
    Ok(rows)
}

/// Manufacturer and model of a switch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Description {
    /// Manufacturer.
    pub maker: String,
    /// Hardware.
    pub hardware: String,
    /// Software.
    pub software: String,
    /// Serial number.
    pub serial: String,
    /// Readable name of the switch.
    pub datapath: String,
}

impl Description {
    pub(crate) fn parse(reader: &mut Reader<'_>) -> Result<Description, ParseError> {
        let mut field = |size| reader.take(size).map(text);
        Ok(Description {
            maker: field(256)?,
            hardware: field(256)?,
            software: field(256)?,
            serial: field(32)?,
            datapath: field(256)?,
        })
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        put_text(out, &self.maker, 256);
        put_text(out, &self.hardware, 256);
        put_text(out, &self.software, 256);
        put_text(out, &self.serial, 32);
        put_text(out, &self.datapath, 256);
    }
}

/// The rules that are requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowStatsRequest {
    /// The table, or [`crate::TABLE_ALL`].
    pub table: u8,
    /// Only rules with this output port, or [`crate::PORT_ANY`].
    pub out_port: u32,
    /// Only rules with this group, or [`crate::GROUP_ANY`].
    pub out_group: u32,
    /// Only rules with this cookie …
    pub cookie: u64,
    /// … under this mask.
    pub cookie_mask: u64,
    /// Only rules whose match is at least as specific as this.
    pub matches: FlowMatch,
}

impl FlowStatsRequest {
    /// All rules.
    pub const ALL: FlowStatsRequest = FlowStatsRequest {
        table: crate::TABLE_ALL,
        out_port: crate::PORT_ANY,
        out_group: crate::GROUP_ANY,
        cookie: 0,
        cookie_mask: 0,
        matches: FlowMatch {
            in_port: None,
            eth_dst: None,
            to_station: false,
            eth_src: None,
            eth_type: None,
            vlan_vid: None,
            vlan_tagged: false,
            ip_dscp: None,
            ip_proto: None,
            ipv4_src: None,
            ipv4_dst: None,
            tcp_src: None,
            tcp_dst: None,
            udp_src: None,
            udp_dst: None,
            sctp_src: None,
            sctp_dst: None,
            arp_op: None,
            arp_spa: None,
            arp_tpa: None,
            arp_sha: None,
            tcp_flags: None,
            has_unsupported: false,
        },
    };

    pub(crate) fn parse(reader: &mut Reader<'_>) -> Result<FlowStatsRequest, ParseError> {
        let table = reader.u8()?;
        reader.skip(3)?;
        let (out_port, out_group) = (reader.u32()?, reader.u32()?);
        reader.skip(4)?;
        let (cookie, cookie_mask) = (reader.u64()?, reader.u64()?);
        let matches = FlowMatch::parse(reader)?;
        Ok(FlowStatsRequest { table, out_port, out_group, cookie, cookie_mask, matches })
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        out.put(&[self.table, 0, 0, 0]);
        out.put_u32(self.out_port);
        out.put_u32(self.out_group);
        out.put_zeros(4);
        out.put_u64(self.cookie);
        out.put_u64(self.cookie_mask);
        self.matches.emit(out);
    }
}

/// A rule and its counters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowStats {
    /// Table of the rule.
    pub table: u8,
    /// Age of the rule, whole seconds.
    pub duration_s: u32,
    /// Age of the rule, remaining nanoseconds.
    pub duration_ns: u32,
    /// Priority of the rule.
    pub priority: u16,
    /// Idle time-out of the rule.
    pub idle_timeout_s: u16,
    /// Hard time-out of the rule.
    pub hard_timeout_s: u16,
    /// Flags (`OFPFF_*`).
    pub flags: u16,
    /// Cookie of the rule.
    pub cookie: u64,
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Packets that the rule applies to.
    pub matches: FlowMatch,
    /// Instructions of the rule.
    pub instructions: Instructions<'static>,
}

impl FlowStats {
    pub(crate) fn parse(reader: &mut Reader<'_>) -> Result<FlowStats, ParseError> {
        let mut body = reader.element("a row of flow statistics", 0, 56)?;
        body.skip(2)?;
        let table = body.u8()?;
        body.skip(1)?;
        let (duration_s, duration_ns) = (body.u32()?, body.u32()?);
        let (priority, idle_timeout_s, hard_timeout_s, flags) = (body.u16()?, body.u16()?, body.u16()?, body.u16()?);
        body.skip(4)?;
        let (cookie, packets, bytes) = (body.u64()?, body.u64()?, body.u64()?);
        let matches = FlowMatch::parse(&mut body)?;
        let instructions = Instructions::parse(body.rest())?;
        Ok(FlowStats {
            table,
            duration_s,
            duration_ns,
            priority,
            idle_timeout_s,
            hard_timeout_s,
            flags,
            cookie,
            packets,
            bytes,
            matches,
            instructions,
        })
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put(&[0, 0, self.table, 0]);
        out.put_u32(self.duration_s);
        out.put_u32(self.duration_ns);
        out.put_u16(self.priority);
        out.put_u16(self.idle_timeout_s);
        out.put_u16(self.hard_timeout_s);
        out.put_u16(self.flags);
        out.put_zeros(4);
        out.put_u64(self.cookie);
        out.put_u64(self.packets);
        out.put_u64(self.bytes);
        self.matches.emit(out);
        self.instructions.emit(out);
        out.patch_length(start, 0);
    }
}

/// Counters of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableStats {
    /// The table.
    pub table: u8,
    /// Number of rules in the table.
    pub active: u32,
    /// Number of packets looked up.
    pub lookups: u64,
    /// Number of packets that matched a rule.
    pub matched: u64,
}

impl TableStats {
    pub(crate) fn parse(reader: &mut Reader<'_>) -> Result<TableStats, ParseError> {
        let table = reader.u8()?;
        reader.skip(3)?;
        Ok(TableStats { table, active: reader.u32()?, lookups: reader.u64()?, matched: reader.u64()? })
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        out.put(&[self.table, 0, 0, 0]);
        out.put_u32(self.active);
        out.put_u64(self.lookups);
        out.put_u64(self.matched);
    }
}

/// What a table can hold (§A.3.5.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableFeatures {
    /// The table.
    pub table: u8,
    /// Maximum number of rules in the table. Tables may share their memory.
    pub max_entries: u32,
    /// Whether the switch tells properties of the table, which are not read.
    pub has_unsupported: bool,
}

impl TableFeatures {
    /// Bytes before the properties.
    const HEAD_BYTES: usize = 64;

    pub(crate) fn parse(reader: &mut Reader<'_>) -> Result<TableFeatures, ParseError> {
        let length = usize::from(reader.u16()?);
        let table = reader.u8()?;
        reader.skip(TableFeatures::HEAD_BYTES - 7)?;
        let max_entries = reader.u32()?;
        let properties = length.checked_sub(TableFeatures::HEAD_BYTES);
        let found = length as u64;
        let properties = properties.ok_or(ParseError::Value { what: "the length of table features", found })?;
        reader.skip(properties)?;
        Ok(TableFeatures { table, max_entries, has_unsupported: properties > 0 })
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        out.put_u16(TableFeatures::HEAD_BYTES as u16);
        out.put(&[self.table]);
        out.put_zeros(TableFeatures::HEAD_BYTES - 7);
        out.put_u32(self.max_entries);
    }
}

/// Counters of a port. A counter that the switch does not support is all ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortStats {
    /// The port.
    pub port: u32,
    /// Packets received and sent.
    pub packets: [u64; 2],
    /// Bytes received and sent.
    pub bytes: [u64; 2],
    /// Packets dropped on reception and on transmission.
    pub dropped: [u64; 2],
    /// Receive errors, transmit errors, frame errors, overruns, checksum errors, collisions.
    pub errors: [u64; 6],
    /// Age of the port, whole seconds.
    pub duration_s: u32,
    /// Age of the port, remaining nanoseconds.
    pub duration_ns: u32,
}

impl PortStats {
    pub(crate) fn parse(reader: &mut Reader<'_>) -> Result<PortStats, ParseError> {
        let port = reader.u32()?;
        reader.skip(4)?;
        let mut numbers = [0; 12];
        for number in &mut numbers {
            *number = reader.u64()?;
        }
        let [a, b, c, d, e, f, errors @ ..] = numbers;
        let (duration_s, duration_ns) = (reader.u32()?, reader.u32()?);
        Ok(PortStats { port, packets: [a, b], bytes: [c, d], dropped: [e, f], errors, duration_s, duration_ns })
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        out.put_u32(self.port);
        out.put_zeros(4);
        let numbers = self.packets.iter().chain(&self.bytes).chain(&self.dropped).chain(&self.errors);
        numbers.for_each(|&number| out.put_u64(number));
        out.put_u32(self.duration_s);
        out.put_u32(self.duration_ns);
    }
}

/// Counters of a group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupStats {
    /// The group.
    pub id: u32,
    /// Number of rules and groups that refer to the group.
    pub references: u32,
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Age of the group, whole seconds.
    pub duration_s: u32,
    /// Age of the group, remaining nanoseconds.
    pub duration_ns: u32,
    /// Packets and bytes per bucket.
    pub buckets: Vec<(u64, u64)>,
}

impl GroupStats {
    pub(crate) fn parse(reader: &mut Reader<'_>) -> Result<GroupStats, ParseError> {
        let mut body = reader.element("a row of group statistics", 0, 40)?;
        body.skip(4)?;
        let (id, references) = (body.u32()?, body.u32()?);
        body.skip(4)?;
        let (packets, bytes) = (body.u64()?, body.u64()?);
        let (duration_s, duration_ns) = (body.u32()?, body.u32()?);
        let buckets = parse_rows(&mut body, |body| Ok((body.u64()?, body.u64()?)))?;
        Ok(GroupStats { id, references, packets, bytes, duration_s, duration_ns, buckets })
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_zeros(4);
        out.put_u32(self.id);
        out.put_u32(self.references);
        out.put_zeros(4);
        out.put_u64(self.packets);
        out.put_u64(self.bytes);
        out.put_u32(self.duration_s);
        out.put_u32(self.duration_ns);
        for &(packets, bytes) in &self.buckets {
            out.put_u64(packets);
            out.put_u64(bytes);
        }
        out.patch_length(start, 0);
    }
}

/// A group in a switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupDesc {
    /// How the group selects a bucket.
    pub kind: GroupType,
    /// Identifier of the group.
    pub id: u32,
    /// The buckets.
    pub buckets: Vec<BucketMod>,
}

impl GroupDesc {
    pub(crate) fn parse(reader: &mut Reader<'_>) -> Result<GroupDesc, ParseError> {
        let mut body = reader.element("a group", 0, 8)?;
        body.skip(2)?;
        let kind = GroupType::parse(body.u8()?)?;
        body.skip(1)?;
        Ok(GroupDesc { kind, id: body.u32()?, buckets: BucketMod::parse_all(body.rest())? })
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put(&[0, 0, self.kind.number(), 0]);
        out.put_u32(self.id);
        self.buckets.iter().for_each(|bucket| bucket.emit(out));
        out.patch_length(start, 0);
    }
}

/// Counters of a meter.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MeterStats {
    /// The meter.
    pub id: u32,
    /// Number of rules that refer to the meter.
    pub flows: u32,
    /// Number of packets into the meter.
    pub packets: u64,
    /// Number of bytes into the meter.
    pub bytes: u64,
    /// Age of the meter, whole seconds.
    pub duration_s: u32,
    /// Age of the meter, remaining nanoseconds.
    pub duration_ns: u32,
    /// Packets and bytes above the limit, per band.
    pub bands: Vec<(u64, u64)>,
}

impl MeterStats {
    pub(crate) fn parse(reader: &mut Reader<'_>) -> Result<MeterStats, ParseError> {
        let mut body = reader.element("a row of meter statistics", 4, 40)?;
        let id = body.u32()?;
        body.skip(8)?;
        let (flows, packets, bytes) = (body.u32()?, body.u64()?, body.u64()?);
        let (duration_s, duration_ns) = (body.u32()?, body.u32()?);
        let bands = parse_rows(&mut body, |body| Ok((body.u64()?, body.u64()?)))?;
        Ok(MeterStats { id, flows, packets, bytes, duration_s, duration_ns, bands })
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u32(self.id);
        out.put_zeros(8);
        out.put_u32(self.flows);
        out.put_u64(self.packets);
        out.put_u64(self.bytes);
        out.put_u32(self.duration_s);
        out.put_u32(self.duration_ns);
        for &(packets, bytes) in &self.bands {
            out.put_u64(packets);
            out.put_u64(bytes);
        }
        out.patch_length(start, 4);
    }
}

/// A meter in a switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeterConfig {
    /// Identifier of the meter.
    pub id: u32,
    /// Limits of the meter; empty for a meter that counts packets or has no burst size.
    pub bands: Vec<Band>,
}

impl MeterConfig {
    pub(crate) fn parse(reader: &mut Reader<'_>) -> Result<MeterConfig, ParseError> {
        let mut body = reader.element("a meter", 0, 8)?;
        body.skip(2)?;
        let in_kbps = body.u16()? & METER_FLAGS == METER_FLAGS;
        let (id, bands) = (body.u32()?, Band::parse_all(body.rest())?);
        Ok(MeterConfig { id, bands: if in_kbps { bands } else { Vec::new() } })
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u16(0);
        out.put_u16(METER_FLAGS);
        out.put_u32(self.id);
        self.bands.iter().for_each(|band| band.emit(out));
        out.patch_length(start, 0);
    }
}
