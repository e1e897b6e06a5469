//! NewReno (RFC 5681): the window grows by one segment per round trip and is halved by a loss.

use super::law::{LawEntry, WindowLaw};
use crate::CongestionControl;

/// Has no state: the window and its threshold are all that it needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewReno;

impl NewReno {
    pub(super) fn new() -> NewReno {
        NewReno
    }
}

impl WindowLaw for NewReno {
    const ENTRY: Option<LawEntry> = Some(LawEntry {
        name: "newreno",
        about: "TCP with NewReno congestion control and loss recovery",
        source: "RFC 5681, RFC 6582, RFC 6298",
        // NewReno recovers losses without selective acknowledgements. The other transports were defined with them.
        sack: false,
        reacts_to_marks: false,
        keys: &[],
        read: |_| Ok(CongestionControl::NewReno),
    });
}
