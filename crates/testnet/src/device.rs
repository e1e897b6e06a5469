//! A switch that speaks OpenFlow: bytes of the controller in, bytes for the controller and frames out.

use crate::frame::Frame;
use crate::roles::Roles;
use crate::tables::{error, Copy, Tables};
use pathloom_model::rules::Refusal;
use pathloom_model::Nanos;
use pathloom_openflow::action::Action;
use pathloom_openflow::flow_match::FlowMatch;
use pathloom_openflow::{
    ErrorMessage, Features, FlowMod, FlowStatsRequest, Header, Hello, Kind, Message, MultipartReply, PacketIn,
    PacketInReason, PacketOut, Port, PortReason, PortStats, PortStatus, Reply, Request, SwitchConfig, BAD_REQUEST,
    NO_BUFFER, PORT_MAX,
};
use std::collections::BTreeMap;

/// Bytes of a frame that carry counters.
const FRAME_BYTES: u64 = 1000;
/// Code of a bad request that the switch does not support (§A.4.4, `OFPBRC_BAD_TYPE`).
const BAD_TYPE: u16 = 1;
/// Code of a request that the controller has no permission for (`OFPBRC_EPERM`).
const PERMISSIONS: u16 = 5;

/// In what a switch differs from one that works well.
#[derive(Clone, Debug)]
pub struct Faults {
    /// Number of rows in one part of an answer.
    pub rows_in_part: usize,
    /// It never answers barriers.
    pub ignores_barriers: bool,
    /// It answers barriers on arrival, before earlier messages are carried out.
    pub hasty_barriers: bool,
    /// It never answers echo requests.
    pub ignores_echoes: bool,
    /// It has no meters, and refuses requests about them.
    pub has_no_meters: bool,
    /// It refuses requests for counters of ports, and of rules selected by their cookies.
    pub refuses_counters: bool,
    /// Number of requests for all of its rules that it refuses from now on.
    pub refuses_lists: u32,
    /// Number of requests for its groups that it refuses from now on.
    pub refuses_groups: u32,
    /// Maximum number of rules; `None` for any number.
    pub most_rules: Option<usize>,
    /// Number of rules with this priority or a higher one that it refuses from now on.
    pub refuses: (u16, u32),
    /// It grants roles whatever the number of the election.
    pub ignores_elections: bool,
}

impl Default for Faults {
    fn default() -> Faults {
        Faults {
            rows_in_part: 3,
            ignores_barriers: false,
            hasty_barriers: false,
            ignores_echoes: false,
            has_no_meters: false,
            refuses_counters: false,
            refuses_lists: 0,
            refuses_groups: 0,
            most_rules: None,
            refuses: (0, 0),
            ignores_elections: false,
        }
    }
}

/// A switch.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its datapath identifier.
    pub datapath_id: u64,
    /// Its rules, groups and meters.
    pub tables: Tables,
    /// Its ports by number.
    pub ports: BTreeMap<u32, Port>,
    /// In what it differs from a switch that works well.
    pub faults: Faults,
    /// The roles of its connections.
    pub roles: Roles,
    /// Frames received and sent by each port that the switch began with, by its number.
    counts: Vec<[u64; 2]>,
    xid: u32,
}

impl Device {
    /// An empty switch whose ports have the numbers 1 to `ports` and are up.
    pub fn new(datapath_id: u64, ports: u32, faults: Faults) -> Device {
        let port = |number: u32| {
            let [.., a, b, c] = datapath_id.to_be_bytes();
            let mac = [2, 0x0f, a, b, c, number as u8];
            (number, Port { number, mac, name: format!("p{number}"), ..Port::default() })
        };
        Device {
            datapath_id,
            tables: Tables::new(ports, datapath_id, faults.most_rules),
            ports: (1..=ports).map(port).collect(),
            faults,
            roles: Roles::default(),
            counts: vec![[0; 2]; ports as usize + 1],
            xid: 0,
        }
    }

    fn next_xid(&mut self) -> u32 {
        self.xid += 1;
        self.xid
    }

    /// The first message of a session.
    pub fn hello(&mut self) -> Vec<u8> {
        let xid = self.next_xid();
        bytes_of(&Message::Hello(Hello::OPENFLOW_1_3), xid)
    }

    /// Whether the switch answers this message on arrival, before it carries out earlier ones.
    pub(crate) fn is_hasty(&self, kind: u8) -> bool {
        self.faults.hasty_barriers && kind == Kind::BARRIER_REQUEST
    }

    /// Carries out a message of the controller with this connection. Appends the answers to `out`. Returns frames to send,
    /// with their ports.
    pub fn handle(
        &mut self,
        now: Nanos,
        connection: usize,
        (header, body): (Header, &[u8]),
        out: &mut Vec<u8>,
    ) -> Vec<(u32, Frame)> {
        let xid = header.xid;
        let permitted = self.roles.permit(connection, header.kind);
        let refused = match Message::parse(header, body) {
            Ok(_) if permitted.is_err() => permitted,
            Ok(Message::RoleRequest(asked)) => {
                let answer = self.roles.request(connection, asked, self.faults.ignores_elections);
                answer.map(|role| append(&Message::RoleReply(role), xid, out))
            }
            Ok(Message::PacketOut(packet)) => return self.packet_out(&packet),
            Ok(Message::FlowMod(change)) => self.flow_mod(now, &change, out),
            Ok(Message::GroupMod(change)) => self.tables.group_mod(change).map_err(|why| error(why, true, false)),
            Ok(Message::MeterMod(_)) if self.faults.has_no_meters => Err(error(Refusal::Unsupported, false, true)),
            Ok(Message::MeterMod(change)) => self.tables.meter_mod(now, change).map_err(|why| error(why, false, true)),
            Ok(Message::MultipartRequest(request)) => self.statistics(&request.request, xid, out),
            Ok(message) => {
                self.answer(&message, xid, out);
                Ok(())
            }
            Err(_) => Err((BAD_REQUEST, BAD_TYPE)),
        };
        if let Err((kind, code)) = refused {
            append(&Message::Error(ErrorMessage { kind, code, data: &[] }), xid, out);
        }
        Vec::new()
    }

    fn answer(&self, message: &Message<'_>, xid: u32, out: &mut Vec<u8>) {
        match message {
            Message::EchoRequest(bytes) if !self.faults.ignores_echoes => append(&Message::EchoReply(bytes), xid, out),
            Message::BarrierRequest if !self.faults.ignores_barriers => append(&Message::BarrierReply, xid, out),
            Message::FeaturesRequest => {
                let (datapath_id, capabilities) = (self.datapath_id, 0x4f);
                let features = Features { datapath_id, buffers: 0, tables: 254, auxiliary: 0, capabilities };
                append(&Message::FeaturesReply(features), xid, out);
            }
            Message::GetConfigRequest => append(&Message::GetConfigReply(SwitchConfig::default()), xid, out),
            _ => {}
        }
    }

    fn flow_mod(&mut self, now: Nanos, change: &FlowMod<'_>, out: &mut Vec<u8>) -> Result<(), (u16, u16)> {
        let (priority, left) = &mut self.faults.refuses;
        if change.priority >= *priority && *left > 0 && change.command == pathloom_openflow::FlowCommand::Add {
            *left -= 1;
            return Err(error(Refusal::TableFull, false, false));
        }
        for removed in self.tables.flow_mod(now, change).map_err(|why| error(why, false, false))? {
            let xid = self.next_xid();
            append(&Message::FlowRemoved(removed), xid, out);
        }
        Ok(())
    }

    /// Removes the rules that have timed out. Returns the messages about them.
    pub fn expire(&mut self, now: Nanos) -> Vec<u8> {
        let mut out = Vec::new();
        for removed in self.tables.expire(now) {
            let xid = self.next_xid();
            append(&Message::FlowRemoved(removed), xid, &mut out);
        }
        out
    }

    fn packet_out(&mut self, packet: &PacketOut<'_>) -> Vec<(u32, Frame)> {
        let Some(frame) = Frame::from_bytes(packet.data) else { return Vec::new() };
        let ports = packet.actions.iter().filter_map(|action| match *action {
            Action::Output { port, .. } if port <= PORT_MAX => Some(port),
            _ => None,
        });
        let sent: Vec<u32> = ports.filter(|port| self.ports.contains_key(port)).collect();
        sent.iter().for_each(|&port| self.count(port, 1));
        sent.into_iter().map(|port| (port, frame.clone())).collect()
    }

    fn statistics(&mut self, request: &Request, xid: u32, out: &mut Vec<u8>) -> Result<(), (u16, u16)> {
        let size = self.faults.rows_in_part.max(1);
        match request {
            Request::Ports if self.faults.refuses_counters => return Err((BAD_REQUEST, BAD_TYPE)),
            Request::Flows(wanted) if self.faults.refuses_counters && wanted.cookie_mask != 0 => {
                return Err((BAD_REQUEST, BAD_TYPE))
            }
            Request::Flows(wanted) if self.faults.refuses_lists > 0 && *wanted == FlowStatsRequest::ALL => {
                self.faults.refuses_lists -= 1;
                return Err((BAD_REQUEST, PERMISSIONS));
            }
            Request::Description => parts(vec![()], size, xid, out, |_| Reply::Description(Box::default())),
            Request::Flows(wanted) => parts(self.tables.rows(wanted), size, xid, out, Reply::Flows),
            Request::Ports => parts(self.port_rows(), size, xid, out, Reply::Ports),
            Request::PortDesc => parts(self.ports.values().cloned().collect(), size, xid, out, Reply::PortDesc),
            Request::GroupDesc if self.faults.refuses_groups > 0 => {
                self.faults.refuses_groups -= 1;
                return Err((BAD_REQUEST, PERMISSIONS));
            }
            Request::GroupDesc => parts(self.tables.group_rows(), size, xid, out, Reply::GroupDesc),
            Request::Meters | Request::MeterConfigs if self.faults.has_no_meters => {
                return Err((BAD_REQUEST, BAD_TYPE))
            }
            Request::MeterConfigs => parts(self.tables.meter_rows(), size, xid, out, Reply::MeterConfigs),
            Request::TableFeatures => parts(self.tables.features(), size, xid, out, Reply::TableFeatures),
            _ => return Err((BAD_REQUEST, BAD_TYPE)),
        }
        Ok(())
    }

    /// Counts a frame that a port has received (0) or sent (1).
    fn count(&mut self, port: u32, direction: usize) {
        if let Some(counts) = self.counts.get_mut(port as usize) {
            counts[direction] += 1;
        }
    }

    fn port_rows(&self) -> Vec<PortStats> {
        let row = |&port: &u32| {
            let packets = self.counts.get(port as usize).copied().unwrap_or_default();
            PortStats { port, packets, bytes: packets.map(|count| count * FRAME_BYTES), ..PortStats::default() }
        };
        self.ports.keys().map(row).collect()
    }

    /// Changes the carrier of a port. Returns the message about it, if the port has changed.
    pub fn set_port(&mut self, number: u32, up: bool) -> Vec<u8> {
        self.tables.set_port(number, up);
        let Some(port) = self.ports.get_mut(&number).filter(|port| port.is_up() != up) else { return Vec::new() };
        port.set_up(up);
        let status = PortStatus { reason: PortReason::Modified, port: port.clone() };
        let xid = self.next_xid();
        bytes_of(&Message::PortStatus(status), xid)
    }

    /// Loses all rules, groups and meters.
    pub fn clear(&mut self) {
        self.tables.clear();
    }

    /// Handles a frame that arrives at a port. Returns the frames that leave, with their ports; and the packet-in for
    /// the controller, if there is one.
    pub fn forward(&mut self, now: Nanos, in_port: u32, frame: &Frame) -> (Vec<(u32, Frame)>, Vec<u8>) {
        self.count(in_port, 0);
        let outcome = self.tables.forward(now, in_port, frame, Some(FRAME_BYTES));
        let mut out = Vec::with_capacity(outcome.out.len());
        for (port, tag) in outcome.out {
            self.count(port, 1);
            out.push((port, frame.tagged(tag)));
        }
        let copied = outcome.copy.map(|copy| self.packet_in(in_port, frame, &copy)).unwrap_or_default();
        (out, copied)
    }

    /// What would become of a frame; nothing changes.
    pub(crate) fn peek(&mut self, in_port: u32, frame: &Frame) -> Vec<(u32, Frame)> {
        let outcome = self.tables.forward(Nanos::ZERO, in_port, frame, None);
        outcome.out.into_iter().map(|(port, tag)| (port, frame.tagged(tag))).collect()
    }

    fn packet_in(&mut self, in_port: u32, frame: &Frame, copy: &Copy) -> Vec<u8> {
        let bytes = frame.tagged(copy.tag).to_bytes();
        let packet = PacketIn {
            buffer: NO_BUFFER,
            total_len: bytes.len() as u16,
            reason: PacketInReason::Action,
            table: copy.table,
            cookie: copy.cookie,
            matches: FlowMatch { in_port: Some(in_port), ..FlowMatch::default() },
            data: &bytes[..bytes.len().min(usize::from(copy.max_len))],
        };
        let xid = self.next_xid();
        bytes_of(&Message::PacketIn(packet), xid)
    }
}

/// Appends an answer in parts of at most this many rows.
fn parts<T: Clone>(rows: Vec<T>, size: usize, xid: u32, out: &mut Vec<u8>, reply: impl Fn(Vec<T>) -> Reply) {
    let count = rows.len().div_ceil(size).max(1);
    for part in 0..count {
        let rows = rows.iter().skip(part * size).take(size).cloned().collect();
        append(&Message::MultipartReply(MultipartReply { more: part + 1 < count, reply: reply(rows) }), xid, out);
    }
}

/// Appends a message. Those of these switches are short enough for OpenFlow.
fn append(message: &Message<'_>, xid: u32, out: &mut Vec<u8>) {
    let done = message.emit(xid, out);
    debug_assert!(done.is_ok(), "{done:?}");
}

fn bytes_of(message: &Message<'_>, xid: u32) -> Vec<u8> {
    let mut out = Vec::new();
    append(message, xid, &mut out);
    out
}

#[cfg(test)]
#[path = "device_tests.rs"]
mod tests;
