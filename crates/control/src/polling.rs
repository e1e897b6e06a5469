//! Reads the flow counters of the ToRs in polling rounds.

use crate::context::Context;
use crate::cookies::{is_bound, Cookie, RuleKind};
use crate::flows::FlowTable;
use crate::io::{Output, RuleStats};
use pathloom_model::units::NS_PER_S;
use pathloom_model::{Nanos, NodeId};
use pathloom_scheme::Event;
use std::collections::BTreeSet;

/// Length of a round in which no ToR is asked. It ensures that time passes for a scheme that measures again and
/// again.
const EMPTY_ROUND: Nanos = Nanos::from_millis(1);

/// Why the counters are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reading {
    /// A polling round. The time between the starts of two of them is the polling period.
    Round,
    /// An additional reading within a period.
    Again,
}

/// A reading in progress.
#[derive(Debug)]
struct Round {
    started: Nanos,
    deadline: Nanos,
    /// ToRs that have not answered yet.
    waiting: BTreeSet<NodeId>,
    /// When the first ToR answered.
    first_answer: Option<Nanos>,
}

/// When ToRs were read, and when they will be read.
#[derive(Debug)]
pub(crate) struct Polling {
    period: Option<Nanos>,
    /// When the next periodic round starts.
    due: Option<Nanos>,
    round: Option<Round>,
    /// Reading that was requested during the current one. [`Reading::Round`] has precedence over [`Reading::Again`].
    wanted: Option<Reading>,
    last_round: Nanos,
    /// By node: when it was last read, and the time of the reading before if the last one belongs to the current
    /// round.
    read: Vec<(Nanos, Option<Nanos>)>,
}

impl Polling {
    pub(crate) fn new(nodes: usize) -> Polling {
        let read = vec![(Nanos::ZERO, None); nodes];
        Polling { period: None, due: None, round: None, wanted: None, last_round: Nanos::ZERO, read }
    }

    /// Sets the start of the interval for which the first rates are computed.
    pub(crate) fn begin(&mut self, now: Nanos) {
        self.last_round = now;
        self.read.fill((now, None));
    }

    /// Starts a reading every `period` from now on. Results of earlier readings are kept.
    pub(crate) fn start(&mut self, now: Nanos, period: Option<Nanos>) {
        self.period = period;
        self.due = period.map(|period| now.saturating_add(period));
    }

    /// When [`Polling::poll_if_due`] has work to do.
    pub(crate) fn next(&self) -> Option<Nanos> {
        let deadline = self.round.as_ref().map(|round| round.deadline);
        [deadline, self.due.filter(|_| self.round.is_none())].into_iter().flatten().min()
    }

    /// The session to a ToR was lost, so it cannot answer any more.
    pub(crate) fn session_lost(&mut self, now: Nanos, switch: NodeId) {
        if let Some(round) = self.round.as_mut() {
            if round.waiting.remove(&switch) && round.waiting.is_empty() {
                round.deadline = now;
            }
        }
    }
}

impl Polling {
    /// Carries out [`pathloom_scheme::Action::Measure`] and [`pathloom_scheme::Action::MeasureAgain`].
    pub(crate) fn measure(&mut self, cx: &mut Context, flows: &mut FlowTable, reading: Reading) {
        if self.round.is_none() {
            self.start_round(cx, flows, reading);
        } else if self.wanted != Some(Reading::Round) {
            self.wanted = Some(reading);
        }
    }

    pub(crate) fn poll_if_due(&mut self, cx: &mut Context, flows: &mut FlowTable) {
        if self.round.as_ref().is_some_and(|round| round.deadline <= cx.now) {
            self.finish_round(cx, flows);
        }
        if self.round.is_none() && self.due.is_some_and(|due| due <= cx.now) {
            self.due = self.period.map(|period| cx.now.saturating_add(period));
            self.start_round(cx, flows, Reading::Round);
        }
    }

    fn start_round(&mut self, cx: &mut Context, flows: &mut FlowTable, reading: Reading) {
        match reading {
            Reading::Round => cx.counts.polled(cx.now),
            Reading::Again => cx.counts.polls_again += 1,
        }
        let fabric = cx.fabric.clone();
        let asked = |&tor: &NodeId| flows.of_tor(tor) > 0 && cx.is_ready(tor);
        let waiting: BTreeSet<NodeId> = fabric.tors().iter().copied().filter(asked).collect();
        let patience = if waiting.is_empty() { EMPTY_ROUND } else { cx.config.poll_patience.max(EMPTY_ROUND) };
        for &switch in &waiting {
            cx.put(Output::FlowStatsRequest { switch });
        }
        let deadline = cx.now.saturating_add(patience);
        self.round = Some(Round { started: cx.now, deadline, waiting, first_answer: None });
    }

    pub(crate) fn flow_stats(&mut self, cx: &mut Context, flows: &mut FlowTable, switch: NodeId, rows: &[RuleStats]) {
        for row in rows {
            let Some(Cookie { kind: RuleKind::Source, flow, plan }) = Cookie::decode(row.cookie) else { continue };
            let Some(known) = flows.get_mut(flow).filter(|known| known.key.src.tor == switch) else { continue };
            if let Some(source) = known.sources.iter_mut().find(|source| source.plan == plan) {
                source.bytes = row.counters.bytes;
            }
        }
        let Some(round) = self.round.as_mut() else { return };
        if round.waiting.remove(&switch) {
            round.first_answer.get_or_insert(cx.now);
            let done = round.waiting.is_empty();
            let read = &mut self.read[switch.index()];
            *read = (cx.now, Some(read.0));
            if done {
                self.finish_round(cx, flows);
            }
        }
    }

    fn finish_round(&mut self, cx: &mut Context, flows: &mut FlowTable) {
        let Some(round) = self.round.take() else { return };
        let share = cx.needs.detection.nic_share();
        flows.for_each_mut(|id, flow| {
            let (now, Some(before)) = self.read[flow.key.src.tor.index()] else { return };
            let bytes = flow.bytes();
            let last = flow.measured_bytes.replace(bytes);
            let Some(view) = cx.view.flows.get_mut(&id).filter(|_| !flow.closed) else { return };
            view.bytes = bytes;
            let Some(last) = last else { return };
            let rate_bps = rate(bytes.saturating_sub(last), now.saturating_sub(before));
            view.rate_bps = rate_bps.into();
            // Hedera §III.A: a flow with at least a tenth of the rate of its NIC is an elephant.
            let access_bps = cx.fabric.link(flow.key.src.uplink).settings.rate_bps;
            if !view.long && !is_bound(id) && share.is_some_and(|share| rate_bps as f64 >= share * access_bps as f64) {
                view.long = true;
                cx.events.push_back(Event::FlowArrived { flow: id });
            }
        });
        for read in &mut self.read {
            read.1 = None;
        }
        let period = round.started.saturating_sub(self.last_round);
        self.last_round = round.started;
        cx.view.first_answer = round.first_answer;
        cx.events.push_back(Event::RatesMeasured { period });
        if let Some(reading) = self.wanted.take() {
            self.start_round(cx, flows, reading);
        }
    }
}

/// Returns a rate in bits per second.
fn rate(bytes: u64, time: Nanos) -> u64 {
    (u128::from(bytes) * 8 * u128::from(NS_PER_S) / u128::from(time.0.max(1))) as u64
}
