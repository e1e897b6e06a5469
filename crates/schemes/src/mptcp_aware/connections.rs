//! Which subflows belong to which connection, and how many of a connection are on each path.

use super::paths::addresses;
use pathloom_model::{Nanos, Path};
use pathloom_scheme::{FlowId, FlowView, View};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// How long a first subflow whose token is not known is taken for the one of any connection between its addresses.
const PRIMARY: Nanos = Nanos::from_secs(5);

/// Subflows that stand, by connection.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Connections {
    /// Subflows by the token of their connection.
    by_token: BTreeMap<u32, BTreeSet<FlowId>>,
    /// First subflows whose token was not known when they came, and when they came. MPTCP v1 tells it with the SYN+ACK
    /// (RFC 8684 §3.1).
    unnamed: BTreeMap<FlowId, Nanos>,
    /// Subflows that a new controller has found standing. Their rules do not tell of which connections they are.
    found: BTreeSet<FlowId>,
}

impl Connections {
    /// Connections that are known, those among them whose token is not.
    pub(super) fn len(&self) -> usize {
        self.by_token.len() + self.unnamed.len()
    }

    /// Takes in a subflow.
    pub(super) fn add(&mut self, now: Nanos, flow: FlowId, token: Option<u32>) {
        match token {
            Some(token) => drop(self.by_token.entry(token).or_default().insert(flow)),
            None => drop(self.unnamed.insert(flow, now)),
        }
    }

    /// Takes in a subflow that was found standing.
    pub(super) fn adopt(&mut self, flow: FlowId, token: Option<u32>) {
        match token {
            Some(token) => drop(self.by_token.entry(token).or_default().insert(flow)),
            None => drop(self.found.insert(flow)),
        }
    }

    /// A subflow is over.
    pub(super) fn remove(&mut self, flow: FlowId, token: Option<u32>) {
        self.unnamed.remove(&flow);
        self.found.remove(&flow);
        let Some(token) = token else { return };
        if let Some(subflows) = self.by_token.get_mut(&token) {
            subflows.remove(&flow);
            if subflows.is_empty() {
                self.by_token.remove(&token);
            }
        }
    }

    /// Forgets subflows that are gone.
    pub(super) fn keep(&mut self, known: impl Fn(FlowId) -> bool) {
        self.by_token.values_mut().for_each(|subflows| subflows.retain(|&flow| known(flow)));
        self.by_token.retain(|_, subflows| !subflows.is_empty());
        self.unnamed.retain(|&flow, _| known(flow));
        self.found.retain(|&flow| known(flow));
    }

    /// How many other subflows of the flow's connection, between the same addresses, are on each of these paths.
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
        // Without a first subflow of its own, the connection's is one of those whose token is not known. Like the published
        // controller, all of them are taken to be on the shortest path between their addresses.
        let recent = self.unnamed.iter().filter(|&(_, &since)| now.saturating_sub(since) < PRIMARY);
        let unnamed = recent.filter_map(|(other, _)| beside(other)).take(1);
        // Of those that were found standing, most are of the connection: two hosts have few at a time.
        let found = self.found.iter().filter_map(beside);
        for other in named.chain(unnamed).chain(found) {
            let place = other.intended_route().and_then(|route| paths.iter().position(|path| path == route));
            place.into_iter().for_each(|place| uses[place] += 1);
        }
        uses
    }

    /// Gives first subflows to their connections as soon as the view knows their tokens.
    fn name_first_subflows(&mut self, view: &View) {
        let token = |flow: &FlowId| view.flows.get(flow).and_then(|known| known.mptcp_token);
        let named: Vec<(FlowId, u32)> = self.unnamed.keys().filter_map(|flow| Some((*flow, token(flow)?))).collect();
        for (flow, token) in named {
            self.unnamed.remove(&flow);
            self.by_token.entry(token).or_default().insert(flow);
        }
    }
}
