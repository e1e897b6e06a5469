//! The header at the start of every message (§A.1), and the division of a stream into messages.

use crate::wire::{Put, Reader};
use crate::{ParseError, TooLong};

/// Version byte of OpenFlow 1.3.
pub const VERSION: u8 = 4;
/// Length of a header.
pub const HEADER_BYTES: usize = 8;

/// The header of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Wire version.
    pub version: u8,
    /// Number of the message kind.
    pub kind: u8,
    /// Length of the whole message in bytes, with this header.
    pub length: u16,
    /// Number that an answer repeats.
    pub xid: u32,
}

/// A message on a stream: its header, its body, and the number of bytes of both.
pub type Framed<'a> = (Header, &'a [u8], usize);

/// Splits the first message from `bytes`. `None` if the message is not complete.
///
/// # Errors
/// The length field is smaller than a header: nothing after it can be read.
#[inline]
pub fn frame(bytes: &[u8]) -> Result<Option<Framed<'_>>, ParseError> {
    let mut reader = Reader::new("a header", bytes);
    if bytes.len() < HEADER_BYTES {
        return Ok(None);
    }
    let [version, kind] = reader.array()?;
    let header = Header { version, kind, length: reader.u16()?, xid: reader.u32()? };
    let length = usize::from(header.length);
    if length < HEADER_BYTES {
        return Err(ParseError::Length { what: "a message", said: length });
    }
    Ok(bytes.get(HEADER_BYTES..length).map(|body| (header, body, length)))
}

/// Starts a message, and returns its start. [`finish`] sets its length.
#[inline]
pub(crate) fn start(kind: u8, xid: u32, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    let xid = xid.to_be_bytes();
    out.put(&[VERSION, kind, 0, 0, xid[0], xid[1], xid[2], xid[3]]);
    start
}

/// Ends a message that was begun by [`start`].
#[inline]
pub(crate) fn finish(start: usize, out: &mut Vec<u8>) -> Result<(), TooLong> {
    let bytes = out.len() - start;
    if bytes > usize::from(u16::MAX) {
        out.truncate(start);
        return Err(TooLong { bytes });
    }
    out.patch_length(start, 2);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_from_a_stream() {
        let bytes = [4, 2, 0, 10, 0, 0, 0, 7, 0xaa, 0xbb, 4, 2, 0];
        let (header, body, length) = frame(&bytes).unwrap().unwrap();
        assert_eq!((header.kind, header.xid, body, length), (2, 7, &[0xaa, 0xbb][..], 10));
        assert_eq!(frame(&bytes[10..]), Ok(None));
        assert_eq!(frame(&bytes[..9]), Ok(None));
        assert!(frame(&[4, 2, 0, 7, 0, 0, 0, 0]).is_err());
    }

    #[test]
    fn a_message_too_long_appends_nothing() {
        let mut out = vec![1];
        let at = start(2, 1, &mut out);
        out.resize(70_000, 0);
        assert_eq!(finish(at, &mut out), Err(TooLong { bytes: 69_999 }));
        assert_eq!(out, [1]);
    }
}
