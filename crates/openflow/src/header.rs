//! The header that every message starts with (§A.1), and how a stream is cut into messages.

use crate::wire::{Put, Reader};
use crate::{ParseError, TooLong};

/// Version byte of OpenFlow 1.3.
pub const VERSION: u8 = 4;
/// Length of a header.
pub const HEADER_BYTES: usize = 8;

/// What stands in front of every message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Wire version.
    pub version: u8,
    /// Number of the message kind.
    pub kind: u8,
    /// Bytes of the whole message, this header included.
    pub length: u16,
    /// Number that an answer repeats.
    pub xid: u32,
}

/// A message on a stream: its header, its body, and how many bytes both take.
pub type Framed<'a> = (Header, &'a [u8], usize);

/// Cuts the first message off `bytes`. `None` if it is not all there.
///
/// # Errors
/// The length is less than the header's own: nothing after it can be read.
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

/// Starts a message; its length comes with [`finish`].
#[inline]
pub(crate) fn start(kind: u8, xid: u32, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    let xid = xid.to_be_bytes();
    out.put(&[VERSION, kind, 0, 0, xid[0], xid[1], xid[2], xid[3]]);
    start
}

/// Ends a message that [`start`] began.
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
    fn cuts_messages_off_a_stream() {
        let bytes = [4, 2, 0, 10, 0, 0, 0, 7, 0xaa, 0xbb, 4, 2, 0];
        let (header, body, length) = frame(&bytes).unwrap().unwrap();
        assert_eq!((header.kind, header.xid, body, length), (2, 7, &[0xaa, 0xbb][..], 10));
        assert_eq!(frame(&bytes[10..]), Ok(None));
        assert_eq!(frame(&bytes[..9]), Ok(None));
        assert!(frame(&[4, 2, 0, 7, 0, 0, 0, 0]).is_err());
    }

    #[test]
    fn a_message_too_long_leaves_nothing_behind() {
        let mut out = vec![1];
        let at = start(2, 1, &mut out);
        out.resize(70_000, 0);
        assert_eq!(finish(at, &mut out), Err(TooLong { bytes: 69_999 }));
        assert_eq!(out, [1]);
    }
}
