//! Reads numbers from bytes with a check of every length, and appends numbers.

use crate::ParseError;

/// Bytes to be read, and a name of the object for errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(what: &'static str, rest: &'a [u8]) -> Reader<'a> {
        Reader { rest, what }
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], ParseError> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or(self.short(count))?;
        self.rest = rest;
        Ok(head)
    }

    fn short(&self, need: usize) -> ParseError {
        ParseError::Short { what: self.what, need, have: self.rest.len() }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(self.short(N))?;
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn skip(&mut self, count: usize) -> Result<(), ParseError> {
        self.take(count).map(|_| ())
    }

    pub(crate) fn u8(&mut self) -> Result<u8, ParseError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, ParseError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, ParseError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, ParseError> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the next element. Its 16-bit length field is at offset `at`, and covers at least `least` bytes.
    pub(crate) fn element(&mut self, what: &'static str, at: usize, least: usize) -> Result<Reader<'a>, ParseError> {
        let length =
            self.rest.get(at..at + 2).ok_or(ParseError::Short { what, need: at + 2, have: self.rest.len() })?;
        let said = usize::from(u16::from_be_bytes([length[0], length[1]]));
        if said < least.max(at + 2) {
            return Err(ParseError::Length { what, said });
        }
        let body = self.take(said).map_err(|_| ParseError::Length { what, said })?;
        Ok(Reader::new(what, body))
    }
}

/// Appends numbers in network byte order.
pub(crate) trait Put {
    fn put(&mut self, bytes: &[u8]);
    fn put_u8(&mut self, value: u8) {
        self.put(&[value]);
    }
    fn put_u16(&mut self, value: u16) {
        self.put(&value.to_be_bytes());
    }
    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_be_bytes());
    }
    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_be_bytes());
    }
    fn put_zeros(&mut self, count: usize);
    /// Writes the number of bytes since `start` into the 16 bits at `start + at`, truncated to 16 bits.
    /// [`crate::header::finish`] refuses messages that are too long.
    fn patch_length(&mut self, start: usize, at: usize);
    /// Appends zeros until the number of bytes since `start` is a multiple of 8.
    fn pad8(&mut self, start: usize);
}

impl Put for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    #[inline]
    fn put_zeros(&mut self, count: usize) {
        self.resize(self.len() + count, 0);
    }

    #[inline]
    fn patch_length(&mut self, start: usize, at: usize) {
        let length = (self.len() - start) as u16;
        if let Some(place) = self.get_mut(start + at..start + at + 2) {
            place.copy_from_slice(&length.to_be_bytes());
        }
    }

    #[inline]
    fn pad8(&mut self, start: usize) {
        self.put_zeros((self.len() - start).wrapping_neg() % 8);
    }
}

/// Returns the text in a field of fixed size, up to the first zero byte.
pub(crate) fn text(field: &[u8]) -> String {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

/// Appends text in a field of fixed size that ends with a zero byte.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str, size: usize) {
    let mut end = text.len().min(size - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    out.put(&text.as_bytes()[..end]);
    out.put_zeros(size - end);
}
