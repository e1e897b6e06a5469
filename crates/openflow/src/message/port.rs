//! Ports and their changes (§A.2.1, §A.4.3).

use crate::flow_match::Mac;
use crate::wire::{put_text, text, Put, Reader};
use crate::ParseError;

/// Bit of [`Port::config`]: set down by the operator.
const PORT_DOWN: u32 = 1;
/// Bit of [`Port::state`]: no carrier.
const LINK_DOWN: u32 = 1;
/// Bytes of a port's name, with the final zero.
const NAME_BYTES: usize = 16;

/// A port of a switch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Port {
    /// Number of the port.
    pub number: u32,
    /// Ethernet address of the port.
    pub mac: Mac,
    /// Name of the port, up to 15 bytes.
    pub name: String,
    /// Settings of the port (`OFPPC_*`).
    pub config: u32,
    /// State of the port (`OFPPS_*`).
    pub state: u32,
    /// Kinds of link (`OFPPF_*`): in use, advertised, supported, and advertised by the other end.
    pub links: [u32; 4],
    /// Speed in use, in kbit/s.
    pub speed_kbps: u32,
    /// Maximum speed, in kbit/s.
    pub top_speed_kbps: u32,
}

impl Port {
    /// Whether packets can leave by the port.
    pub fn is_up(&self) -> bool {
        self.config & PORT_DOWN == 0 && self.state & LINK_DOWN == 0
    }

    /// Sets whether packets can leave by the port.
    pub fn set_up(&mut self, up: bool) {
        self.state = if up { self.state & !LINK_DOWN } else { self.state | LINK_DOWN };
    }

    pub(crate) fn parse(reader: &mut Reader<'_>) -> Result<Port, ParseError> {
        let mut body = Reader::new("a port", reader.take(64)?);
        let number = body.u32()?;
        body.skip(4)?;
        let mac = body.array()?;
        body.skip(2)?;
        let name = text(body.take(NAME_BYTES)?);
        let (config, state) = (body.u32()?, body.u32()?);
        let links = [body.u32()?, body.u32()?, body.u32()?, body.u32()?];
        Ok(Port { number, mac, name, config, state, links, speed_kbps: body.u32()?, top_speed_kbps: body.u32()? })
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        out.put_u32(self.number);
        out.put_zeros(4);
        out.put(&self.mac);
        out.put_zeros(2);
        put_text(out, &self.name, NAME_BYTES);
        out.put_u32(self.config);
        out.put_u32(self.state);
        self.links.iter().for_each(|&kinds| out.put_u32(kinds));
        out.put_u32(self.speed_kbps);
        out.put_u32(self.top_speed_kbps);
    }
}

/// Kind of change of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortReason {
    /// The port is new.
    Added,
    /// The port was removed.
    Deleted,
    /// The port changed.
    Modified,
}

/// A port was added, removed or changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortStatus {
    /// Kind of change.
    pub reason: PortReason,
    /// The port in its new state, or in its last state.
    pub port: Port,
}

impl PortStatus {
    pub(crate) fn parse(body: &[u8]) -> Result<PortStatus, ParseError> {
        let mut reader = Reader::new("a port status", body);
        let reason = match reader.u8()? {
            0 => PortReason::Added,
            1 => PortReason::Deleted,
            2 => PortReason::Modified,
            found => return Err(ParseError::Value { what: "the reason of a port status", found: u64::from(found) }),
        };
        reader.skip(7)?;
        Ok(PortStatus { reason, port: Port::parse(&mut reader)? })
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        out.put_u8(match self.reason {
            PortReason::Added => 0,
            PortReason::Deleted => 1,
            PortReason::Modified => 2,
        });
        out.put_zeros(7);
        self.port.emit(out);
    }
}
