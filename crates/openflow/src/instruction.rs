//! Instructions: how a rule handles a packet (§A.2.4).

use crate::action::Action;
use crate::wire::{Put, Reader};
use crate::ParseError;
use std::borrow::Cow;

const GOTO_TABLE: u16 = 1;
const APPLY_ACTIONS: u16 = 4;
const METER: u16 = 6;

/// The instructions of a rule, in the order in which a switch executes them (§5.9).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Instructions<'a> {
    /// The meter that packets pass first.
    pub meter: Option<u32>,
    /// Actions that are applied at once.
    pub apply: Cow<'a, [Action]>,
    /// The table that processes the packet next.
    pub goto_table: Option<u8>,
    /// Whether there are other instructions. Never written.
    pub has_unsupported: bool,
}

impl Instructions<'_> {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Instructions<'static>, ParseError> {
        let mut reader = Reader::new("instructions", bytes);
        let mut instructions = Instructions::default();
        while !reader.is_empty() {
            let mut body = reader.element("an instruction", 2, 8)?;
            let kind = body.u16()?;
            body.skip(2)?;
            match kind {
                GOTO_TABLE => instructions.goto_table = Some(body.u8()?),
                METER => instructions.meter = Some(body.u32()?),
                APPLY_ACTIONS => {
                    body.skip(4)?;
                    instructions.apply = Cow::Owned(Action::parse_all(body.rest())?);
                }
                _ => instructions.has_unsupported = true,
            }
        }
        Ok(instructions)
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        emit(self.meter, self.goto_table, !self.apply.is_empty(), out, |out| {
            self.apply.iter().for_each(|action| action.emit(out));
        });
    }
}

/// Appends instructions. `actions` appends the actions.
#[inline]
pub(crate) fn emit(
    meter: Option<u32>,
    goto_table: Option<u8>,
    applies: bool,
    out: &mut Vec<u8>,
    actions: impl FnOnce(&mut Vec<u8>),
) {
    if let Some(meter) = meter {
        out.put_u16(METER);
        out.put_u16(8);
        out.put_u32(meter);
    }
    if applies {
        let start = out.len();
        out.put(&[0, APPLY_ACTIONS as u8, 0, 0, 0, 0, 0, 0]);
        actions(out);
        out.patch_length(start, 2);
    }
    if let Some(table) = goto_table {
        out.put(&[0, GOTO_TABLE as u8, 0, 8, table, 0, 0, 0]);
    }
}
