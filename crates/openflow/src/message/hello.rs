//! Hello, and the selection of a version (§6.3.1, §A.5.1).

use crate::wire::{Put, Reader};
use crate::{ParseError, VERSION};

/// The versions that one side supports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Version byte of the header: the highest version that the side supports.
    pub highest: u8,
    /// Bit n is set for wire version n (0..32); `None` from a side that only sends the header.
    pub versions: Option<u32>,
}

impl Hello {
    /// The hello of this crate: OpenFlow 1.3 only.
    pub const OPENFLOW_1_3: Hello = Hello { highest: VERSION, versions: Some(1 << VERSION) };

    /// Whether both sides agree on OpenFlow 1.3. With bitmaps, the highest common version applies. Without them, the
    /// smaller version of both headers applies.
    pub fn agrees(&self) -> bool {
        match self.versions {
            Some(versions) => versions & (1 << VERSION) != 0,
            None => self.highest >= VERSION,
        }
    }

    pub(crate) fn parse(highest: u8, body: &[u8]) -> Result<Hello, ParseError> {
        let mut reader = Reader::new("a hello", body);
        let mut versions = None;
        // Elements of an unknown kind are skipped, and so are bytes that are too few for an element.
        while reader.rest().len() >= 4 {
            let mut element = reader.element("an element of a hello", 2, 4)?;
            let (kind, length) = (element.u16()?, element.u16()?);
            if kind == 1 && versions.is_none() {
                versions = Some(element.u32()?);
            }
            let padding = usize::from(length).wrapping_neg() % 8;
            reader.skip(padding.min(reader.rest().len()))?;
        }
        Ok(Hello { highest, versions })
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        if let Some(versions) = self.versions {
            out.put(&[0, 1, 0, 8]);
            out.put_u32(versions);
        }
        let start = out.len() - if self.versions.is_some() { 16 } else { 8 };
        out[start] = self.highest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bitmap_takes_precedence() {
        let hello = |highest, versions| Hello { highest, versions }.agrees();
        assert!(hello(6, Some(0b101_0000)), "1.5 and 1.3");
        assert!(!hello(6, Some(0b100_0000)), "1.5 alone");
        assert!(!hello(1, None));
        assert!(hello(5, None), "the lower of both is 1.3");
    }
}
