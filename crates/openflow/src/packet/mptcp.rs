//! The TCP options of MPTCP, version 1 (RFC 8684): MP_CAPABLE and MP_JOIN, which set up connections and subflows, and
//! DSS, which maps the bytes of a subflow to those of the connection.

use crate::wire::{Put, Reader};
use crate::ParseError;
use sha2::{Digest, Sha256};

/// Kind of the MPTCP option of TCP (RFC 8684 §3).
pub const OPTION_KIND: u8 = 30;
/// Largest number of option bytes in a TCP header.
pub const MOST_OPTION_BYTES: usize = 40;

const CAPABLE: u8 = 0;
const JOIN: u8 = 1;
const DSS: u8 = 2;
/// Flags of a DSS option (RFC 8684 §3.3.1): DATA_FIN; mapping present, and with a number of eight bytes;
/// acknowledgement present, and with a number of eight bytes.
const DATA_FIN: u8 = 0x10;
const LONG_NUMBER: u8 = 0x08;
const MAPPING: u8 = 0x04;
const LONG_ACK: u8 = 0x02;
const ACK: u8 = 0x01;
const BACKUP: u8 = 0x01;

/// Key of one end of a connection (RFC 8684 §3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key(pub u64);

impl Key {
    /// Returns the token that identifies the connection when a subflow joins: the first 32 bits of the key's SHA-256
    /// (RFC 8684 §3.2).
    pub fn token(self) -> u32 {
        let [a, b, c, d, ..] = <[u8; 32]>::from(Sha256::digest(self.0.to_be_bytes()));
        u32::from_be_bytes([a, b, c, d])
    }
}

/// An MPTCP option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TcpOption {
    /// MP_CAPABLE: the start of a connection.
    Capable {
        /// Version of the sender; 1 here.
        version: u8,
        /// Flags, from A to H (RFC 8684 §3.1).
        flags: u8,
        /// Keys in the option.
        keys: Keys,
    },
    /// MP_JOIN: a subflow joins.
    Join {
        /// Whether the subflow is only a backup for the others. The last of the three segments has no such field.
        backup: bool,
        /// Identifier of the sender's address; 0 in the last of the three segments.
        address: u8,
        /// Which of the three segments it is, with its contents.
        step: JoinStep,
    },
    /// DSS: a mapping, an acknowledgement of the connection's data, or both.
    Dss(Dss),
    /// Another option, by its subtype.
    Other(u8),
}

/// The keys of an MP_CAPABLE option. The length of the option determines their number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keys {
    /// In the SYN: no key.
    None,
    /// In the SYN+ACK: the key of its sender.
    Sender(Key),
    /// In the third segment: both keys and, if it has data, the length of the data, with or without a checksum.
    Both {
        /// Key of the end that opened the connection.
        sender: Key,
        /// Key of the other end.
        receiver: Key,
        /// Length and checksum of the data of this segment.
        data: Option<(u16, Option<u16>)>,
    },
}

/// The three segments with which a subflow joins (RFC 8684 §3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JoinStep {
    /// The SYN: the receiver's token, and a random number of the sender.
    Syn {
        /// Token of the receiver's key.
        token: u32,
        /// Random number of the sender.
        nonce: u32,
    },
    /// The SYN+ACK: the first 64 bits of the sender's authentication code, and a random number.
    SynAck {
        /// HMAC with both keys.
        hmac: u64,
        /// Random number of the sender.
        nonce: u32,
    },
    /// The third segment: the authentication code of the end that opened the subflow, cut to 160 bits.
    Ack {
        /// HMAC with both keys.
        hmac: [u8; 20],
    },
}

/// A DSS option (RFC 8684 §3.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dss {
    /// Whether the mapping ends the connection's data; its last byte is the DATA_FIN.
    pub data_fin: bool,
    /// Next byte of the connection that is expected.
    pub ack: Option<DataNumber>,
    /// Mapping of the subflow's bytes to those of the connection.
    pub mapping: Option<Mapping>,
}

/// Number of a byte of the connection: all 64 bits, or the lower half.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataNumber {
    /// The lower 32 bits.
    Short(u32),
    /// All 64 bits.
    Long(u64),
}

/// A mapping of bytes of the subflow to the same number of bytes of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// First byte of the connection.
    pub data: DataNumber,
    /// First byte of the subflow, counted from its SYN.
    pub subflow: u32,
    /// Number of bytes; at most 65535 can be expressed.
    pub length: u16,
    /// Checksum of the data, if the connection uses checksums.
    pub checksum: Option<u16>,
}

impl TcpOption {
    /// Parses an option from its kind to its last byte. Reserved flags and fields are ignored.
    ///
    /// # Errors
    /// The option has another kind, is shorter than its length field, or has a length that its subtype does not allow.
    pub fn parse(option: &[u8]) -> Result<TcpOption, ParseError> {
        let mut reader = Reader::new("an MPTCP option", option);
        let [kind, said, first] = reader.array()?;
        if kind != OPTION_KIND {
            return Err(ParseError::Value { what: "the kind of an MPTCP option", found: u64::from(kind) });
        }
        if usize::from(said) != option.len() || option.len() > MOST_OPTION_BYTES {
            return Err(ParseError::Length { what: "an MPTCP option", said: usize::from(said) });
        }
        match first >> 4 {
            CAPABLE => capable(&mut reader, first & 15, said),
            JOIN => join(&mut reader, first & BACKUP != 0, said),
            DSS => Ok(TcpOption::Dss(dss(&mut reader, said)?)),
            other => Ok(TcpOption::Other(other)),
        }
    }

    /// Appends the option, from its kind to its last byte. For another option, only the subtype is known.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put(&[OPTION_KIND, 0]);
        match self {
            TcpOption::Capable { version, flags, keys } => {
                out.put(&[CAPABLE << 4 | version & 15, *flags]);
                emit_keys(keys, out);
            }
            TcpOption::Join { backup, address, step } => {
                out.put(&[JOIN << 4 | u8::from(*backup), *address]);
                emit_join(step, out);
            }
            TcpOption::Dss(dss) => emit_dss(dss, out),
            TcpOption::Other(subtype) => out.put(&[subtype << 4, 0]),
        }
        // At most 28 bytes.
        out[start + 1] = (out.len() - start) as u8;
    }
}

fn wrong(what: &'static str, said: u8) -> ParseError {
    ParseError::Length { what, said: usize::from(said) }
}

fn capable(reader: &mut Reader<'_>, version: u8, said: u8) -> Result<TcpOption, ParseError> {
    let flags = reader.u8()?;
    let keys = match said {
        4 => Keys::None,
        12 => Keys::Sender(Key(reader.u64()?)),
        20 | 22 | 24 => {
            let (sender, receiver) = (Key(reader.u64()?), Key(reader.u64()?));
            let data = match said {
                20 => None,
                22 => Some((reader.u16()?, None)),
                _ => Some((reader.u16()?, Some(reader.u16()?))),
            };
            Keys::Both { sender, receiver, data }
        }
        _ => return Err(wrong("an MP_CAPABLE option", said)),
    };
    Ok(TcpOption::Capable { version, flags, keys })
}

fn emit_keys(keys: &Keys, out: &mut Vec<u8>) {
    match keys {
        Keys::None => {}
        Keys::Sender(key) => out.put_u64(key.0),
        Keys::Both { sender, receiver, data } => {
            out.put_u64(sender.0);
            out.put_u64(receiver.0);
            if let Some((length, checksum)) = data {
                out.put_u16(*length);
                checksum.iter().for_each(|&checksum| out.put_u16(checksum));
            }
        }
    }
}

fn join(reader: &mut Reader<'_>, backup: bool, said: u8) -> Result<TcpOption, ParseError> {
    let address = reader.u8()?;
    let step = match said {
        12 => JoinStep::Syn { token: reader.u32()?, nonce: reader.u32()? },
        16 => JoinStep::SynAck { hmac: reader.u64()?, nonce: reader.u32()? },
        24 => JoinStep::Ack { hmac: reader.array()? },
        _ => return Err(wrong("an MP_JOIN option", said)),
    };
    let last = said == 24;
    Ok(TcpOption::Join { backup: backup && !last, address: if last { 0 } else { address }, step })
}

fn emit_join(step: &JoinStep, out: &mut Vec<u8>) {
    match step {
        JoinStep::Syn { token, nonce } => {
            out.put_u32(*token);
            out.put_u32(*nonce);
        }
        JoinStep::SynAck { hmac, nonce } => {
            out.put_u64(*hmac);
            out.put_u32(*nonce);
        }
        JoinStep::Ack { hmac } => out.put(hmac),
    }
}

fn dss(reader: &mut Reader<'_>, said: u8) -> Result<Dss, ParseError> {
    let flags = reader.u8()?;
    let has = |flag: u8| flags & flag != 0;
    let ack = if has(ACK) { Some(number(reader, has(LONG_ACK))?) } else { None };
    let mapping = if has(MAPPING) {
        let (data, subflow) = (number(reader, has(LONG_NUMBER))?, reader.u32()?);
        let length = reader.u16()?;
        let checksum = if reader.is_empty() { None } else { Some(reader.u16()?) };
        Some(Mapping { data, subflow, length, checksum })
    } else {
        None
    };
    // No bytes may follow the known fields, and a DATA_FIN needs a mapping, because it is the last byte of one.
    if !reader.is_empty() || (has(DATA_FIN) && mapping.is_none_or(|mapping| mapping.length == 0)) {
        return Err(wrong("a DSS option", said));
    }
    Ok(Dss { data_fin: has(DATA_FIN), ack, mapping })
}

fn number(reader: &mut Reader<'_>, long: bool) -> Result<DataNumber, ParseError> {
    Ok(if long { DataNumber::Long(reader.u64()?) } else { DataNumber::Short(reader.u32()?) })
}

fn emit_dss(dss: &Dss, out: &mut Vec<u8>) {
    let flag = |on: bool, flag: u8| if on { flag } else { 0 };
    let is_long = |number: Option<DataNumber>| matches!(number, Some(DataNumber::Long(_)));
    let flags = flag(dss.data_fin, DATA_FIN)
        | flag(dss.ack.is_some(), ACK)
        | flag(is_long(dss.ack), LONG_ACK)
        | flag(dss.mapping.is_some(), MAPPING)
        | flag(is_long(dss.mapping.map(|mapping| mapping.data)), LONG_NUMBER);
    out.put(&[DSS << 4, flags]);
    dss.ack.iter().for_each(|&ack| emit_number(ack, out));
    if let Some(mapping) = dss.mapping {
        emit_number(mapping.data, out);
        out.put_u32(mapping.subflow);
        out.put_u16(mapping.length);
        mapping.checksum.iter().for_each(|&checksum| out.put_u16(checksum));
    }
}

fn emit_number(number: DataNumber, out: &mut Vec<u8>) {
    match number {
        DataNumber::Short(number) => out.put_u32(number),
        DataNumber::Long(number) => out.put_u64(number),
    }
}

/// Returns the first MPTCP option among the options of a TCP header.
///
/// # Errors
/// As [`TcpOption::parse`]. An option with a wrong length hides the options after it.
pub fn find(mut options: &[u8]) -> Option<Result<TcpOption, ParseError>> {
    loop {
        match *options {
            [1, ref rest @ ..] => options = rest,
            [kind, length, ..] if kind > 1 && length >= 2 => {
                let (option, rest) = options.split_at_checked(usize::from(length))?;
                if kind == OPTION_KIND {
                    return Some(TcpOption::parse(option));
                }
                options = rest;
            }
            _ => return None,
        }
    }
}
