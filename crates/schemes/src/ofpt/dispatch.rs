//! Who sends, and how fast: turns the provision of bandwidth into holds, releases and paces (OFPT §4, §5.2).
//!
//! Two settings decide how far it goes. `schedule=mrtf` lets flows of known size wait for shorter ones; flows that wait
//! take no place on any path, and get one anew when their turn comes. `enforce=host` has the hosts pace each flow to its
//! provision. With neither, flows share by TCP's own rules, and none of this runs.

use super::provision::{provide, Candidate};
use crate::board::access;
use crate::remaining::payload_bytes;
use crate::router::{is_short, Router};
use pathloom_model::Nanos;
use pathloom_scheme::{Action, FlowId, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A pace is sent again when it differs by more than this share from the one before.
const PACE_STEP: f64 = 0.02;

/// Settings of a [`Dispatcher`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct DispatchSettings {
    /// Flows of known size wait for shorter ones.
    pub schedule: bool,
    /// Hosts pace flows to their provision, less this share, which is left to short flows.
    pub headroom: Option<f64>,
    /// Payload bytes from which on a flow of announced size is long.
    pub long_bytes: u64,
    /// How long a host keeps a flow waiting without hearing more.
    pub lease: Nanos,
}

/// What a flow's host was told, and what is known of its progress.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Charge {
    held: bool,
    paced_bps: Option<u64>,
    /// Payload bytes sent up to `as_of`, by the last reading and the rate provided since.
    sent_bytes: u64,
    rate_bps: u64,
    as_of: Nanos,
}

impl Charge {
    fn advance(&mut self, now: Nanos) {
        let ns = u128::from(now.saturating_sub(self.as_of).0);
        let wire_bytes = u128::from(self.rate_bps) * ns / 8_000_000_000;
        self.sent_bytes += payload_bytes(u64::try_from(wire_bytes).unwrap_or(u64::MAX / 2));
        self.as_of = now;
    }
}

/// Keeps track of who sends.
pub(super) struct Dispatcher {
    settings: DispatchSettings,
    charges: Charges,
}

/// What survives a restart.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Charges(BTreeMap<FlowId, Charge>);

/// A long flow in the view.
struct Sender {
    id: FlowId,
    access: [u32; 2],
    access_bps: u64,
    remaining_bytes: Option<u64>,
}

impl Dispatcher {
    pub(super) fn new(settings: DispatchSettings) -> Dispatcher {
        Dispatcher { settings, charges: Charges::default() }
    }

    pub(super) fn charges(&self) -> &Charges {
        &self.charges
    }

    pub(super) fn recall(&mut self, charges: Charges) {
        self.charges = charges;
    }

    /// Whether it has anything to do: where no size is known all flows have a fair share, whether anybody works it out or
    /// not.
    pub(super) fn is_on(&self, view: &View) -> bool {
        let knows_sizes = || view.long_flows().any(|(_, flow)| flow.size_bytes.is_some());
        let waits = || self.charges.0.values().any(|charge| charge.held);
        self.settings.headroom.is_some() || self.settings.schedule && (knows_sizes() || waits())
    }

    /// A flow was found under way: another controller may have told it to wait.
    pub(super) fn adopt(&mut self, flow: FlowId) {
        self.charges.0.entry(flow).or_default().held |= self.settings.schedule;
    }

    /// A flow is over.
    pub(super) fn forget(&mut self, flow: FlowId) {
        self.charges.0.remove(&flow);
    }

    /// Forgets flows that are gone.
    pub(super) fn keep_known(&mut self, view: &View) {
        self.charges.0.retain(|flow, _| view.flows.contains_key(flow));
    }

    /// Flows that wait.
    pub(super) fn waiting(&self) -> Vec<FlowId> {
        self.charges.0.iter().filter(|(_, charge)| charge.held).map(|(&flow, _)| flow).collect()
    }

    /// The counters in the view are new: what was estimated from rates is put right, and leases are renewed.
    pub(super) fn measured(&mut self, now: Nanos, view: &View, actions: &mut Vec<Action>) {
        for (id, charge) in &mut self.charges.0 {
            let Some(flow) = view.flows.get(id) else { continue };
            (charge.sent_bytes, charge.as_of) = (payload_bytes(flow.bytes), now);
            if charge.held {
                actions.push(Action::Hold { flow: *id, lease: self.settings.lease });
            }
        }
    }

    /// Works out anew who sends, and tells the hosts what has changed. A flow that is `gone` counts no more.
    pub(super) fn update(
        &mut self,
        now: Nanos,
        view: &View,
        gone: Option<FlowId>,
        router: &mut Router,
        actions: &mut Vec<Action>,
    ) {
        let senders = self.senders(now, view, gone);
        let capacity_bps: Vec<u64> = view.fabric.links().iter().map(|link| link.settings.rate_bps).collect();
        // Whose turn it is at the hosts decides who gets a path; the paths then decide what is left for whom.
        let at_hosts: Vec<Candidate> = senders.iter().map(|sender| sender.candidate(&[])).collect();
        let mut rates = provide(&capacity_bps, &at_hosts);
        for (sender, &rate_bps) in senders.iter().zip(&rates) {
            if rate_bps > 0 || sender.remaining_bytes.is_none() {
                router.arrive_again(now, view, sender.id, actions);
            } else {
                router.withdraw(sender.id);
            }
        }
        let turn: Vec<usize> = (0..senders.len()).filter(|&index| rates[index] > 0).collect();
        let on_paths: Vec<Candidate> = turn
            .iter()
            .map(|&index| senders[index].candidate(router.links(senders[index].id).unwrap_or_default()))
            .collect();
        for (index, rate_bps) in turn.into_iter().zip(provide(&capacity_bps, &on_paths)) {
            rates[index] = rate_bps;
        }
        for (sender, rate_bps) in senders.iter().zip(rates) {
            self.tell(sender, rate_bps, actions);
        }
    }

    fn senders(&mut self, now: Nanos, view: &View, gone: Option<FlowId>) -> Vec<Sender> {
        let mut senders = Vec::new();
        for (id, flow) in view.long_flows().filter(|(id, _)| Some(*id) != gone) {
            let Some((access, access_bps)) = access(view, flow) else { continue };
            if is_short(flow, self.settings.long_bytes) {
                continue;
            }
            let charge = self.charges.0.entry(id).or_insert(Charge { as_of: now, ..Charge::default() });
            charge.advance(now);
            let size_bytes = flow.size_bytes.filter(|_| self.settings.schedule);
            let remaining_bytes = size_bytes.map(|size| size.saturating_sub(charge.sent_bytes));
            senders.push(Sender { id, access, access_bps, remaining_bytes });
        }
        senders
    }

    fn tell(&mut self, sender: &Sender, rate_bps: u64, actions: &mut Vec<Action>) {
        let flow = sender.id;
        let Some(charge) = self.charges.0.get_mut(&flow) else { return };
        charge.rate_bps = rate_bps;
        let waits = rate_bps == 0 && sender.remaining_bytes.is_some();
        if waits && !charge.held {
            actions.push(Action::Hold { flow, lease: self.settings.lease });
        }
        let pace_bps =
            self.settings.headroom.filter(|_| !waits).map(|headroom| (rate_bps as f64 * (1.0 - headroom)) as u64);
        if let Some(pace_bps) = pace_bps {
            let step = |before: u64| before.abs_diff(pace_bps) as f64 > PACE_STEP * before as f64;
            if charge.paced_bps.is_none_or(step) {
                charge.paced_bps = Some(pace_bps);
                actions.push(Action::Pace { flow, rate_bps: Some(pace_bps.max(1)) });
            }
        }
        if charge.held && !waits {
            actions.push(Action::Release { flow });
        }
        charge.held = waits;
    }
}

impl Sender {
    fn candidate(&self, path: &[u32]) -> Candidate {
        let links = self.access.iter().chain(path).copied().collect();
        Candidate { links, access_bps: self.access_bps, remaining_bytes: self.remaining_bytes }
    }
}
