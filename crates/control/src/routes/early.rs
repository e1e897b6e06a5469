//! Messages about flows from ToRs whose rules are not known yet. Their flows may be among those rules.

use crate::context::Context;
use pathloom_model::{FiveTuple, Headers, NodeId, PortNo};
use std::collections::BTreeMap;

/// Maximum number of stored messages per switch until its rules are known.
const MAX_EARLY_MESSAGES: usize = 1024;

/// A message about a flow.
#[derive(Clone, Debug)]
pub(super) enum EarlyMessage {
    /// A copy of a packet.
    Packet(PortNo, Headers),
    /// An announcement.
    Announced(FiveTuple, Option<u64>),
}

/// The messages, by ToR.
#[derive(Default)]
pub(super) struct EarlyMessages(BTreeMap<NodeId, Vec<EarlyMessage>>);

impl EarlyMessages {
    /// Stores a message that comes before the rules of a ToR are known.
    pub(super) fn store(&mut self, cx: &mut Context, tor: NodeId, message: EarlyMessage) {
        let kept = self.0.entry(tor).or_default();
        if kept.len() < MAX_EARLY_MESSAGES {
            kept.push(message);
        } else {
            cx.counts.flows_refused += 1;
        }
    }

    /// Removes and returns the messages of a ToR.
    pub(super) fn take(&mut self, tor: NodeId) -> Vec<EarlyMessage> {
        self.0.remove(&tor).unwrap_or_default()
    }
}
