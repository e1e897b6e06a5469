//! Bundles: messages that are executed together (ONF extension 230 to OpenFlow 1.3).

use super::Message;
use crate::flow_match::ONF;
use crate::wire::{Put, Reader};
use crate::{frame, Header, ParseError};

/// Flag: either all messages are executed, or none.
pub const ATOMIC: u16 = 1;
/// Flag: messages are executed in the order in which they were added.
pub const ORDERED: u16 = 2;
const CONTROL: u32 = 2300;
const ADD: u32 = 2301;

/// A request or answer about a bundle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum BundleStep {
    OpenRequest,
    OpenReply,
    CloseRequest,
    CloseReply,
    CommitRequest,
    CommitReply,
    DiscardRequest,
    DiscardReply,
}

const STEPS: [BundleStep; 8] = [
    BundleStep::OpenRequest,
    BundleStep::OpenReply,
    BundleStep::CloseRequest,
    BundleStep::CloseReply,
    BundleStep::CommitRequest,
    BundleStep::CommitReply,
    BundleStep::DiscardRequest,
    BundleStep::DiscardReply,
];

/// A request to open, close, commit or discard a bundle, or the answer to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BundleControl {
    /// Identifier of the bundle in this session.
    pub id: u32,
    /// The request or answer.
    pub step: BundleStep,
    /// Flags: [`ATOMIC`], [`ORDERED`].
    pub flags: u16,
}

/// A request to add a message to a bundle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BundleAdd<'a> {
    /// Identifier of the bundle.
    pub id: u32,
    /// Flags, as when the bundle was opened.
    pub flags: u16,
    /// A complete message with its header. Its xid must equal that of this message.
    pub message: &'a [u8],
}

/// Parses a message about bundles; `None` for other experimenter messages.
pub(crate) fn parse(body: &[u8]) -> Result<Option<Message<'_>>, ParseError> {
    let mut reader = Reader::new("an experimenter message", body);
    match (reader.u32()?, reader.u32()?) {
        (ONF, CONTROL) => {
            let (id, step, flags) = (reader.u32()?, reader.u16()?, reader.u16()?);
            let step = *STEPS
                .get(usize::from(step))
                .ok_or(ParseError::Value { what: "the step of a bundle", found: u64::from(step) })?;
            Ok(Some(Message::BundleControl(BundleControl { id, step, flags })))
        }
        (ONF, ADD) => {
            let id = reader.u32()?;
            reader.skip(2)?;
            let flags = reader.u16()?;
            let message = match frame(reader.rest())? {
                Some((Header { .. }, _, length)) => reader.take(length)?,
                None => return Err(ParseError::Length { what: "a message of a bundle", said: reader.rest().len() }),
            };
            Ok(Some(Message::BundleAdd(BundleAdd { id, flags, message })))
        }
        _ => Ok(None),
    }
}

impl BundleControl {
    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        out.put_u32(ONF);
        out.put_u32(CONTROL);
        out.put_u32(self.id);
        out.put_u16(STEPS.iter().position(|&step| step == self.step).unwrap_or(0) as u16);
        out.put_u16(self.flags);
    }
}

impl BundleAdd<'_> {
    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        out.put_u32(ONF);
        out.put_u32(ADD);
        out.put_u32(self.id);
        out.put_u16(0);
        out.put_u16(self.flags);
        out.put(self.message);
    }
}
