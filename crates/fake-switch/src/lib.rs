//! Switches without packets, for load and tests: each answers as a switch must, and accepts every rule.

mod sockets;

pub use sockets::{connect, drive, until};

use pathloom_openflow::{frame, Features, Hello, Kind, Message, MultipartReply, Port, Reply, Request, SwitchConfig};
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Instant;

/// The workload of a fake switch.
pub trait Work {
    /// The session is up and the measurement begins: appends the first messages.
    fn begin(&mut self, out: &mut Vec<u8>);
    /// A message for the workload, with the time at which it was read. Appends the next messages.
    fn message(&mut self, read: Instant, kind: u8, bytes: &[u8], out: &mut Vec<u8>);
}

/// Shared state of fake switches.
#[derive(Clone, Default)]
pub struct Common {
    /// Number of switches that have answered the request for their features.
    pub standing: Rc<Cell<usize>>,
    /// Messages read by all.
    pub messages: Rc<Cell<u64>>,
}

/// A fake switch.
pub struct Fake {
    /// Its datapath identifier.
    pub datapath_id: u64,
    /// Number of its ports, which count from 1.
    pub ports: u32,
    /// What it shares with others.
    pub common: Common,
    stands: bool,
}

impl Fake {
    /// A switch without a session.
    pub fn new(datapath_id: u64, ports: u32, common: Common) -> Fake {
        Fake { datapath_id, ports, common, stands: false }
    }

    /// Appends the first message of a session.
    pub fn hello(&self, out: &mut Vec<u8>) {
        append_message(&Message::Hello(Hello::OPENFLOW_1_3), 1, out);
    }

    /// Handles whole messages; returns their number of bytes. All of them count as read now, and their answers as sent
    /// now, although that is a little later, because reading the clock costs more than a message.
    ///
    /// # Errors
    /// The bytes are no message.
    pub fn read(&mut self, bytes: &[u8], out: &mut Vec<u8>, work: &mut impl Work) -> io::Result<usize> {
        let (now, mut at) = (Instant::now(), 0);
        while let Some((header, body, length)) = frame(&bytes[at..]).map_err(io::Error::other)? {
            self.common.messages.set(self.common.messages.get() + 1);
            match header.kind {
                Kind::FLOW_MOD | Kind::PACKET_OUT => work.message(now, header.kind, body, out),
                Kind::BARRIER_REQUEST => append_message(&Message::BarrierReply, header.xid, out),
                _ => {
                    let message = Message::parse(header, body).map_err(io::Error::other)?;
                    self.answer(&message, header.xid, out);
                }
            }
            at += length;
        }
        Ok(at)
    }

    fn answer(&mut self, message: &Message<'_>, xid: u32, out: &mut Vec<u8>) {
        match message {
            Message::EchoRequest(bytes) => append_message(&Message::EchoReply(bytes), xid, out),
            Message::FeaturesRequest => {
                let (datapath_id, capabilities) = (self.datapath_id, 0x4f);
                let features = Features { datapath_id, buffers: 0, tables: 254, auxiliary: 0, capabilities };
                append_message(&Message::FeaturesReply(features), xid, out);
                // Plain learning switches do not request ports.
                self.stand();
            }
            Message::GetConfigRequest => append_message(&Message::GetConfigReply(SwitchConfig::default()), xid, out),
            Message::MultipartRequest(request) => {
                let reply = self.reply(&request.request);
                append_message(&Message::MultipartReply(MultipartReply { more: false, reply }), xid, out);
            }
            Message::RoleRequest(role) => append_message(&Message::RoleReply(*role), xid, out),
            _ => {}
        }
    }

    fn stand(&mut self) {
        if !std::mem::replace(&mut self.stands, true) {
            self.common.standing.set(self.common.standing.get() + 1);
        }
    }

    fn reply(&self, request: &Request) -> Reply {
        let port = |number: u32| Port {
            number,
            mac: [2, 0, 0, 0, 0, number as u8],
            name: format!("p{number}"),
            state: 4,
            ..Port::default()
        };
        match request {
            Request::Description => Reply::Description(Box::default()),
            Request::Flows(_) => Reply::Flows(Vec::new()),
            Request::Tables => Reply::Tables(Vec::new()),
            Request::Ports => Reply::Ports(Vec::new()),
            Request::PortDesc => Reply::PortDesc((1..=self.ports).map(port).collect()),
            Request::Groups => Reply::Groups(Vec::new()),
            Request::GroupDesc => Reply::GroupDesc(Vec::new()),
            Request::Meters => Reply::Meters(Vec::new()),
            Request::MeterConfigs => Reply::MeterConfigs(Vec::new()),
            Request::TableFeatures => Reply::TableFeatures(Vec::new()),
            Request::Unsupported(kind) => Reply::Unsupported(*kind),
        }
    }
}

/// Appends a message. Those of a fake switch are short.
pub fn append_message(message: &Message<'_>, xid: u32, out: &mut Vec<u8>) {
    let done = message.emit(xid, out);
    debug_assert!(done.is_ok(), "{done:?}");
}
