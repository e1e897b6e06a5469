//! Flows as rates: no packet is sent. Each flow gets its max-min fair share of the links that it crosses by the rules of the
//! switches, with its acknowledgements on the way back, until all its bytes have left. Rules, controller, faults and the
//! choice of paths are those of runs with packets.
//!
//! A transfer begins with the time of a SYN exchange ([`terms`]). Switches copy its first and last packets to the
//! controller as their rules say ([`opening`]). Changes of rules and links move the flows that they concern ([`rates`]).
//! Counters of rules and links grow with the rates; they are computed when somebody is about to read them
//! ([`counters`]).

pub(super) mod counters;
mod opening;
pub(super) mod orders;
mod rates;
pub(super) mod results;
mod terms;

use super::parts::HostSettings;
use crate::network::{PacketIn, Walk};
use crate::outcome::{SubflowOutcome, SubflowPath};
use crate::plan::Ends;
use crate::time::{Ps, NEVER};
use crate::transfers::Work;
use pathloom_allocation::incremental::IncrementalMaxMin;
use pathloom_model::{Fabric, LinkId};
use pathloom_transport::mptcp::Coupling;
use pathloom_transport::Settings;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Part by which a rate may differ from the fair one. Acknowledgements would otherwise carry each change to all flows.
const TOLERANCE: f64 = 1e-3;

/// A subflow: one five-tuple, which takes one way, or all equal ways if the run sprays.
struct Subflow {
    transfer: u32,
    /// Number of the subflow in its transfer, and number of uses of its slot before.
    member: u32,
    use_count: u32,
    state: State,
    ends: Ends,
    /// Ways of its data and of its acknowledgements.
    ways: [Walk; 2],
    /// The round of changes after which they were found.
    walked_after: u64,
    /// Its number among the flows that share links; `None` before it is open, and while it has no way.
    number: Option<u32>,
    /// Limit of its rate by an order of the controller, in bit/s with headers; infinite without.
    pace_bps: f64,
    /// End of the time in which the controller makes it wait; 0 if it does not.
    held_until: Ps,
    /// Its rate with headers since `at`, and the bytes that it had sent then.
    rate_bps: f64,
    at: Ps,
    sent_bytes: f64,
    /// Bytes of these that are counted in the rules and links of its way.
    counted_bytes: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Its connection is being opened.
    Opening,
    /// It may send.
    Open,
    Closed,
}

/// A transfer under way.
struct Transfer {
    /// The slots of its subflows, by number.
    slots: Vec<u32>,
    /// Number of subflows that it will have, at least 1.
    parts: u32,
    /// Bytes with headers that it sends; infinite if it has no end.
    wire_bytes: f64,
    /// When its subflows could send first.
    ready_at: Ps,
    /// When its last byte leaves at the present rates, and the time of its event in the agenda.
    due: Ps,
    scheduled: Ps,
    /// Whether its connection stands, and was in use before.
    continues: bool,
}

/// All flows of a run without packets.
pub(super) struct FluidFlows {
    fabric: Arc<Fabric>,
    settings: Settings,
    /// Which fair share a subflow of a transfer has; `None` without MPTCP.
    coupling: Option<Coupling>,
    /// Whether connections of jobs stand.
    stands: bool,
    /// Whether agents pace long transfers from their start.
    paces: bool,
    /// Whether a flow takes all equal next hops.
    splits: bool,
    shares: IncrementalMaxMin,
    /// Number of the last round of changes of rules and links.
    changes: u64,
    /// By number in `shares`: the slot of the subflow.
    slot_of: Vec<u32>,
    /// From slot 1 on.
    slots: Vec<Subflow>,
    free: Vec<u32>,
    transfers: BTreeMap<u32, Transfer>,
    /// Transfers whose last byte has left and has not arrived, with their results.
    arriving: BTreeMap<u32, Work>,
    /// Open subflows without a way.
    lost: BTreeSet<u32>,
    /// Pairs of uplinks between which a connection stands.
    standing: BTreeSet<(LinkId, LinkId)>,
    /// Copies of packets that the controller has not been sent yet.
    copies: Vec<PacketIn>,
    /// The subflows that have closed, of transfers that have several.
    closed: Vec<SubflowOutcome>,
    /// The ways of all subflows that have closed, if they are recorded.
    records_ways: bool,
    closed_ways: Vec<SubflowPath>,
}

impl FluidFlows {
    /// No flows; `None` if the run sends packets.
    pub(super) fn new(fabric: &Arc<Fabric>, settings: &HostSettings<'_>) -> Option<Box<FluidFlows>> {
        let HostSettings { transport, needs, .. } = settings;
        if !settings.fluid {
            return None;
        }
        let capacities: Vec<f64> = fabric.links().iter().map(|link| link.settings.rate_bps as f64).collect();
        // Rates of links are whole numbers, so there is no error.
        let shares = IncrementalMaxMin::new(&capacities).ok()?.with_tolerance(TOLERANCE);
        Some(Box::new(FluidFlows {
            fabric: fabric.clone(),
            settings: transport.settings().clone(),
            coupling: transport.mptcp().map(|mptcp| mptcp.coupling),
            stands: transport.settings().standing && !needs.subflows,
            paces: needs.paces,
            splits: needs.takes_several_paths(),
            shares,
            changes: 0,
            slot_of: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            transfers: BTreeMap::new(),
            arriving: BTreeMap::new(),
            lost: BTreeSet::new(),
            standing: BTreeSet::new(),
            copies: Vec::new(),
            closed: Vec::new(),
            records_ways: false,
            closed_ways: Vec::new(),
        }))
    }

    fn get(&self, slot: u32) -> &Subflow {
        &self.slots[slot as usize - 1]
    }

    fn get_mut(&mut self, slot: u32) -> &mut Subflow {
        &mut self.slots[slot as usize - 1]
    }

    /// The subflow in a slot, if it is still the one with this use count and not closed.
    fn current(&mut self, slot: u32, use_count: u32) -> Option<&mut Subflow> {
        let subflow = self.slots.get_mut((slot as usize).checked_sub(1)?)?;
        (subflow.use_count == use_count && subflow.state != State::Closed).then_some(subflow)
    }

    /// Takes the copies of packets for the controller.
    pub(super) fn take_copies(&mut self) -> Vec<PacketIn> {
        std::mem::take(&mut self.copies)
    }
}

impl Subflow {
    fn new(transfer: u32, member: u32, use_count: u32, ends: Ends, now: Ps) -> Subflow {
        Subflow {
            transfer,
            member,
            use_count,
            state: State::Opening,
            ends,
            ways: Default::default(),
            walked_after: 0,
            number: None,
            pace_bps: f64::INFINITY,
            held_until: 0,
            rate_bps: 0.0,
            at: now,
            sent_bytes: 0.0,
            counted_bytes: 0.0,
        }
    }

    /// Adds the bytes that it has sent since the last change of its rate.
    fn advance(&mut self, now: Ps) {
        self.sent_bytes = self.sent_by(now);
        self.at = now;
    }

    /// Bytes that it has sent by now, with headers.
    fn sent_by(&self, now: Ps) -> f64 {
        self.sent_bytes + self.rate_bps * now.saturating_sub(self.at) as f64 / 8e12
    }

    /// The most that it may take, in bit/s.
    fn demand_bps(&self) -> f64 {
        if self.held_until > 0 {
            0.0
        } else {
            self.pace_bps
        }
    }
}

impl Transfer {
    fn new(parts: usize, wire_bytes: f64, continues: bool) -> Transfer {
        let parts = parts.max(1) as u32;
        Transfer { slots: Vec::new(), parts, wire_bytes, ready_at: NEVER, due: NEVER, scheduled: NEVER, continues }
    }
}
