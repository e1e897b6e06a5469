//! Changes of meters (§A.3.4.4).

use crate::wire::{Put, Reader};
use crate::ParseError;

/// Command of a meter-mod.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MeterCommand {
    /// Add the meter; an error if it exists.
    Add,
    /// Replace the meter; an error if it does not exist.
    Modify,
    /// Delete the meter, or all meters.
    Delete,
}

/// Flag: rates are in kbit/s.
const KBPS: u16 = 1;
/// Flag: bands have a burst size.
const BURST: u16 = 4;
/// Kind of a band that drops packets.
const DROP: u16 = 1;

/// A limit of a meter. Only bands that drop packets are read; others are ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Band {
    /// Rate above which packets are dropped, in kbit/s.
    pub rate_kbps: u32,
    /// Burst that may exceed the rate, in kbit.
    pub burst_kbit: u32,
}

impl Band {
    /// Parses all bands in `bytes` that drop packets.
    pub(crate) fn parse_all(bytes: &[u8]) -> Result<Vec<Band>, ParseError> {
        let mut reader = Reader::new("bands", bytes);
        let mut bands = Vec::new();
        while !reader.is_empty() {
            let mut body = reader.element("a band", 2, 12)?;
            let kind = body.u16()?;
            body.skip(2)?;
            let band = Band { rate_kbps: body.u32()?, burst_kbit: body.u32()? };
            if kind == DROP {
                bands.push(band);
            }
        }
        Ok(bands)
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        out.put_u16(DROP);
        out.put_u16(16);
        out.put_u32(self.rate_kbps);
        out.put_u32(self.burst_kbit);
        out.put_zeros(4);
    }
}

/// A change of a meter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeterMod {
    /// The command.
    pub command: MeterCommand,
    /// Identifier of the meter.
    pub id: u32,
    /// Limits of the meter.
    pub bands: Vec<Band>,
}

/// The flags of meters that this crate writes.
pub(crate) const METER_FLAGS: u16 = KBPS | BURST;

impl MeterMod {
    pub(crate) fn parse(body: &[u8]) -> Result<MeterMod, ParseError> {
        let mut reader = Reader::new("a meter-mod", body);
        let command = match reader.u16()? {
            0 => MeterCommand::Add,
            1 => MeterCommand::Modify,
            2 => MeterCommand::Delete,
            found => return Err(ParseError::Value { what: "the command of a meter-mod", found: u64::from(found) }),
        };
        reader.skip(2)?;
        Ok(MeterMod { command, id: reader.u32()?, bands: Band::parse_all(reader.rest())? })
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        out.put_u16(match self.command {
            MeterCommand::Add => 0,
            MeterCommand::Modify => 1,
            MeterCommand::Delete => 2,
        });
        out.put_u16(METER_FLAGS);
        out.put_u32(self.id);
        self.bands.iter().for_each(|band| band.emit(out));
    }
}
