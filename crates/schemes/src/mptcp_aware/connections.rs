//! The subflows of each connection, and how many of them are on each path.

use super::paths::addresses;
use pathloom_model::{Nanos, Path};
use pathloom_scheme::{FlowId, FlowView, View};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// How long a first subflow with an unknown token counts for any connection between its addresses.
const PRIMARY: Nanos = Nanos::from_secs(5);

/// The existing subflows, by connection.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Connections {
    /// Subflows by the token of their connection.
    by_token: BTreeMap<u32, BTreeSet<FlowId>>,
    /// First subflows whose token was unknown when they arrived, with their arrival times. MPTCP v1 reveals the token
    /// with the SYN+ACK (RFC 8684 §3.1).
    #[serde(rename = "unnamed")] // The name in stored snapshots.
    without_token: BTreeMap<FlowId, Nanos>,
    /// Subflows that a new controller has found on paths. Their rules do not show their connections.
    #[serde(rename = "found")] // The name in stored snapshots.
    adopted: BTreeSet<FlowId>,
}

impl Connections {
    /// Number of known connections, including those with an unknown token.
    pub(super) fn len(&self) -> usize {
        self.by_token.len() + self.without_token.len()
    }

    /// Adds a subflow.
    pub(super) fn add(&mut self, now: Nanos, flow: FlowId, token: Option<u32>) {
        match token {
            Some(token) => drop(self.by_token.entry(token).or_default().insert(flow)),
            None => drop(self.without_token.insert(flow, now)),
        }
    }

    /// Adds a subflow that was found on a path.
    pub(super) fn adopt(&mut self, flow: FlowId, token: Option<u32>) {
        match token {
            Some(token) => drop(self.by_token.entry(token).or_default().insert(flow)),
            None => drop(self.adopted.insert(flow)),
        }
    }

    /// Removes a subflow that has ended.
    pub(super) fn remove(&mut self, flow: FlowId, token: Option<u32>) {
        self.without_token.remove(&flow);
        self.adopted.remove(&flow);
        let Some(token) = token else { return };
        if let Some(subflows) = self.by_token.get_mut(&token) {
            subflows.remove(&flow);
            if subflows.is_empty() {
                self.by_token.remove(&token);
            }
        }
    }

    /// Keeps only the subflows for which `known` is true.
    pub(super) fn keep(&mut self, known: impl Fn(FlowId) -> bool) {
        self.by_token.values_mut().for_each(|subflows| subflows.retain(|&flow| known(flow)));
        self.by_token.retain(|_, subflows| !subflows.is_empty());
        self.without_token.retain(|&flow, _| known(flow));
        self.adopted.retain(|&flow| known(flow));
    }

    /// Counts, for each of these paths, the other subflows of the flow's connection between the same addresses.
    pub(super) fn uses(
        &mut self,
        now: Nanos,
        view: &View,
        flow: FlowId,
        known: &FlowView,
        paths: &[Path],
    ) -> Vec<usize> {
        self.name_first_subflows(view);
        let mut uses = vec![0; paths.len()];
        let Some(token) = known.mptcp_token else { return uses };
        let beside = |other: &FlowId| {
            let other = view.flows.get(other).filter(|_| *other != flow)?;
            (addresses(other) == addresses(known)).then_some(other)
        };
        let named = self.by_token.get(&token).into_iter().flatten().filter_map(beside);
        // The connection's first subflow may be one with an unknown token. One such subflow counts: like the
        // published controller, this assumes that all of them are on the shortest path between their addresses.
        let recent = self.without_token.iter().filter(|&(_, &since)| now.saturating_sub(since) < PRIMARY);
        let without_token = recent.filter_map(|(other, _)| beside(other)).take(1);
        // Most subflows that were found between these addresses belong to the connection: two hosts have few at a
        // time.
        let adopted = self.adopted.iter().filter_map(beside);
        for other in named.chain(without_token).chain(adopted) {
            let place = other.intended_route().and_then(|route| paths.iter().position(|path| path == route));
            place.into_iter().for_each(|place| uses[place] += 1);
        }
        uses
    }

    /// Assigns first subflows to their connections as soon as the view has their tokens.
    fn name_first_subflows(&mut self, view: &View) {
        let token = |flow: &FlowId| view.flows.get(flow).and_then(|known| known.mptcp_token);
        let named: Vec<(FlowId, u32)> =
            self.without_token.keys().filter_map(|flow| Some((*flow, token(flow)?))).collect();
        for (flow, token) in named {
            self.without_token.remove(&flow);
            self.by_token.entry(token).or_default().insert(flow);
        }
    }
}
