//! What was told to the hosts of flows, and how much the flows have sent.

use super::progress::Progress;
use crate::remaining::payload_bytes;
use pathloom_model::Nanos;
use pathloom_scheme::{FlowId, FlowMap, View};
use serde::{Deserialize, Serialize};

/// The state of a flow: what its host was told, and its progress.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FlowState {
    pub held: bool,
    pub paced_bps: Option<u64>,
    /// Payload bytes sent until `as_of`, estimated from the last reading and the rates provided since.
    pub sent_bytes: u64,
    pub rate_bps: u64,
    pub as_of: Nanos,
    /// Whether it uses its rate. Not kept over a restart.
    #[serde(skip)]
    pub progress: Progress,
    /// When it leaves its class, if it sends at its rate until then. Not kept over a restart.
    #[serde(skip)]
    pub ages_at: Option<Nanos>,
}

impl FlowState {
    /// Estimated payload bytes sent until now.
    pub(super) fn sent_bytes(&self, now: Nanos) -> u64 {
        let ns = now.saturating_sub(self.as_of).0;
        let wire_bytes = match self.rate_bps.checked_mul(ns) {
            Some(product) => product / 8_000_000_000,
            None => {
                let wire_bytes = u128::from(self.rate_bps) * u128::from(ns) / 8_000_000_000;
                u64::try_from(wire_bytes).unwrap_or(u64::MAX / 2)
            }
        };
        self.sent_bytes.saturating_add(payload_bytes(wire_bytes))
    }

    pub(super) fn advance(&mut self, now: Nanos) {
        (self.sent_bytes, self.as_of) = (self.sent_bytes(now), now);
    }
}

/// State that survives a restart.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct FlowStates(pub(super) FlowMap<FlowState>);

impl FlowStates {
    /// The state of a flow; created now if it had none.
    pub(super) fn of(&mut self, now: Nanos, id: FlowId) -> &mut FlowState {
        if !self.0.contains_key(&id) {
            self.0.insert(id, FlowState { as_of: now, ..FlowState::default() });
        }
        self.0.get_mut(&id).expect("the entry was inserted above")
    }

    /// Forgets flows that the view does not have.
    pub(super) fn keep_known(&mut self, view: &View) {
        let gone: Vec<FlowId> = self.0.keys().copied().filter(|id| !view.flows.contains_key(id)).collect();
        for id in gone {
            self.0.remove(&id);
        }
    }

    /// Remaining payload bytes of a flow of known size.
    pub(super) fn remaining_bytes(&self, now: Nanos, view: &View, id: FlowId) -> Option<u64> {
        let size_bytes = view.flows.get(&id)?.size_bytes.get()?;
        Some(size_bytes.saturating_sub(self.0.get(&id).map_or(0, |state| state.sent_bytes(now))))
    }
}
