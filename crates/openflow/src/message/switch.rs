//! Features and settings of a switch (§A.3.1, §A.3.2).

use crate::wire::{Put, Reader};
use crate::ParseError;

/// Features of a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features {
    /// Datapath identifier of the switch.
    pub datapath_id: u64,
    /// Number of packets that the switch can hold for the controller.
    pub buffers: u32,
    /// Number of tables.
    pub tables: u8,
    /// Number of an auxiliary connection; 0 for the main connection.
    pub auxiliary: u8,
    /// Capabilities (`OFPC_*`).
    pub capabilities: u32,
}

impl Features {
    pub(crate) fn parse(body: &[u8]) -> Result<Features, ParseError> {
        let mut reader = Reader::new("a features reply", body);
        let (datapath_id, buffers) = (reader.u64()?, reader.u32()?);
        let [tables, auxiliary] = reader.array()?;
        reader.skip(2)?;
        let capabilities = reader.u32()?;
        reader.skip(4)?;
        Ok(Features { datapath_id, buffers, tables, auxiliary, capabilities })
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        out.put_u64(self.datapath_id);
        out.put_u32(self.buffers);
        out.put(&[self.tables, self.auxiliary, 0, 0]);
        out.put_u32(self.capabilities);
        out.put_zeros(4);
    }
}

/// Settings of a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SwitchConfig {
    /// Treatment of IP fragments (`OFPC_FRAG_*`).
    pub flags: u16,
    /// Bytes of a packet without a rule that are sent to the controller.
    pub miss_send_len: u16,
}

impl SwitchConfig {
    pub(crate) fn parse(body: &[u8]) -> Result<SwitchConfig, ParseError> {
        let mut reader = Reader::new("a switch's settings", body);
        Ok(SwitchConfig { flags: reader.u16()?, miss_send_len: reader.u16()? })
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        out.put_u16(self.flags);
        out.put_u16(self.miss_send_len);
    }
}
